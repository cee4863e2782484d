"""Package data that pyproject.toml cannot describe: the compiled part, and the files that an installed package carries
(ina/base/manifest.py)."""

import os
import runpy
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.build_ext import build_ext

manifest = runpy.run_path("ina/base/manifest.py")
data = {manifest["data_package"](folder): folder for folder in manifest["DATA"]}


class BuildBesideEachOther(build_ext):
    """Builds C files on all processors, and says which are done (`make build` shows these lines)."""

    def build_extensions(self) -> None:
        compiler = self.compiler
        compile_one, compile_all = compiler._compile, compiler.compile

        def compile_beside(*args: Any, **options: Any) -> Any:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                begun: dict[Any, str] = {}

                def begin(target: str, source: str, *rest: Any) -> None:
                    begun[pool.submit(compile_one, target, source, *rest)] = source

                compiler._compile = begin
                objects = compile_all(*args, **options)
                for count, each in enumerate(as_completed(begun), 1):
                    each.result()
                    print(f"compiled {count} of {len(begun)}: {os.path.relpath(begun[each])}\n", end="", flush=True)
            return objects

        compiler.compile = compile_beside
        super().build_extensions()


setup(
    packages=[*find_packages(include=["ina", "ina.*"]), *data],
    package_dir=data,
    package_data=manifest["package_data"](),
    data_files=[("share/man/man1", ["docs/reference/ina.1"])],
    cffi_modules=["host/binding.py:ffi"],
    cmdclass={"build_ext": BuildBesideEachOther},
    # The compiled part keeps to CPython's stable ABI, as all that cffi writes: one wheel for this version and later ones.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
