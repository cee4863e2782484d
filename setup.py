"""Package data that pyproject.toml cannot describe: the compiled part, and the files that an installed package carries
(ina/base/manifest.py)."""

import runpy

from setuptools import find_packages, setup

manifest = runpy.run_path("ina/base/manifest.py")
data = {manifest["data_package"](folder): folder for folder in manifest["DATA"]}

setup(
    packages=[*find_packages(include=["ina", "ina.*"]), *data],
    package_dir=data,
    package_data=manifest["package_data"](),
    cffi_modules=["host/binding.py:ffi"],
)
