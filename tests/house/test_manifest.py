"""The manifest of sources: missing or empty files are errors, and every relevant file is in its digest."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from capabilities import need

from ina.base import manifest

pytestmark = pytest.mark.build
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def checkout(tmp_path):
    """A copy of the files that the manifest names."""
    for group in manifest.GROUPS:
        for path in manifest.files(group):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    (tmp_path / "p4").mkdir()
    (tmp_path / "p4" / "switchml.p4").write_text("// marks a checkout\n")
    return tmp_path / "ina"


def test_each_file_changes_the_digest_of_its_group(checkout):
    for group in manifest.GROUPS:
        before = manifest.digest(group, checkout)
        for path in manifest.files(group, checkout):
            content = path.read_bytes()
            path.write_bytes(content + b"\n")
            assert manifest.digest(group, checkout) != before, f"{path} is not in {group}"
            path.write_bytes(content)
        assert manifest.digest(group, checkout) == before == manifest.digest(group)


def test_every_header_and_module_changes_the_compiler_s_key():
    """The key depends on all modules of the compiler, and on all headers that generated code may include."""
    need("repository")
    tracked = subprocess.run(
        ["git", "ls-files", "ina/p4/compiler", *manifest.INCLUDES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    sources = {name for name in tracked.stdout.split()
               if name.endswith(".h") and not name.startswith("host/dpdk/") or name.startswith("ina/p4/compiler/")}
    assert len(sources) > 80
    assert sources - {str(path.relative_to(ROOT)) for path in manifest.files("compiler")} == set()


def test_the_key_is_made_of_that(checkout):
    """The process uses the copy's compiler: a comment in a header, or in a module of a subfolder, changes the key."""
    code = ("import sys; from ina.p4.compiler.compiled import toolchain_digest; import ina.p4.compiler.build\n"
            "assert ina.p4.compiler.build.__file__.startswith(sys.argv[1]), ina.p4.compiler.build.__file__\n"
            "print(toolchain_digest(('cc',)))")
    for path in (ROOT / "ina/__init__.py", *(ROOT / "ina/base").glob("*.py")):
        (checkout / path.relative_to(ROOT / "ina")).write_bytes(path.read_bytes())

    def key() -> str:
        return subprocess.run([sys.executable, "-c", code, str(checkout)], cwd=checkout.parent, stdout=subprocess.PIPE, text=True,
                              check=True, env={"PYTHONPATH": str(checkout.parent), "PATH": "/usr/bin:/bin"}).stdout

    before = key()
    assert before == key()
    for name in ("p4/compiler/emit/emit.py", "p4/compiler/reference/tables.py", "p4/compiler/emit/prelude.h",
                 "p4/runtime/c/tna.h",
                 "../host/net/packet.h"):
        with (checkout / name).open("a") as file:
            file.write("\n")
        assert key() not in ("", before), name
        before = key()


@pytest.mark.parametrize("group", manifest.GROUPS)
def test_what_is_missing_or_empty_is_an_error(checkout, group):
    path = manifest.files(group, checkout)[-1]
    path.write_text("")
    with pytest.raises(manifest.Incomplete, match=f"{path.name} is empty"):
        manifest.files(group, checkout)
    for file in [p for p in path.parent.iterdir() if p.suffix == path.suffix]:
        file.unlink()
    with pytest.raises(manifest.Incomplete, match="expected .* there, found none"):
        manifest.files(group, checkout)


def test_the_command_lists_a_group_for_the_makefile():
    done = subprocess.run([sys.executable, "ina/base/manifest.py", "native", "binding"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {"host/protocol/codec.c", "ina/p4/runtime/c/switch.h", "ina/worlds/virtual/c/flow.c",
            "host/binding.py"} <= set(done.stdout.split())
    done = subprocess.run([sys.executable, "ina/base/manifest.py", "all"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "all: expected one of headers, " in done.stderr


def test_make_stops_where_sources_are_missing(checkout):
    (checkout.parent / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    (checkout / "p4/runtime/c/table.h").write_text("")
    done = subprocess.run(["make", "help", f"PYTHON={sys.executable}"], cwd=checkout.parent, capture_output=True, text=True)
    assert done.returncode != 0 and "table.h is empty" in done.stderr and "the checkout is incomplete" in done.stderr


def test_a_package_carries_what_the_manifest_names():
    """setup.py alone decides which files are shipped."""
    assert "packages" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"].get("setuptools", {})
    data = manifest.package_data()
    assert data["ina.data.p4"] == ["*.p4"] and data["ina.p4.compiler"] == ["p4include/*.p4"]
    carried = {path for name, patterns in (manifest.DATA | manifest.BESIDE).items() for pattern in patterns
               for path in manifest.folder(name).glob(pattern)}
    for group in ("worker", "program", "dpdk", "dpdk headers"):
        assert set(manifest.files(group)) <= carried, f"an installed package lacks some of {group}"
