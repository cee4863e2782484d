"""The cache of compiled programs: damaged files are made again, and nothing is loaded from folders that others can write to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import child
import pytest
from capabilities import need
from v1_program import source

need("cc")

from ina.base import cache, cc  # noqa: E402
from ina.p4.compiler import build  # noqa: E402
from ina.p4.runtime.loaded_program import Program  # noqa: E402

ROOT = Path(__file__).parent.parent.parent
STRANGER = 1002


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


DAMAGE = {"cut": lambda data: data[:100], "one bit": flipped, "empty": lambda data: b"", "gone": None}


def damage(path: Path, kind: str) -> None:
    data = path.read_bytes()
    path.unlink()
    if kind != "gone":
        path.write_bytes(DAMAGE[kind](data))


@pytest.mark.build
@pytest.mark.parametrize("spoil", ["so", "c", "json", "known.json"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_program_is_made_again(tmp_path, place, kind, spoil):
    path = tmp_path / "program.p4"
    path.write_text(source("hdr.data.a = 7;"))
    first = build.compile_program(path)
    whole = first.so_path.read_bytes()
    (victim,) = [file for file in place.iterdir() if file.name.partition(".")[2] == spoil]
    damage(victim, kind)
    again = build.compile_program(path)
    assert again == first and again.c_path.exists() and again.so_path.read_bytes() == whole
    Program(again.so_path)
    files = {file: file.stat().st_mtime_ns for file in place.iterdir()}
    assert build.compile_program(path) == first
    assert {file: file.stat().st_mtime_ns for file in place.iterdir()} == files, "it is whole, and not made a third time"


@pytest.mark.build
@pytest.mark.parametrize(("ingress", "defines"), [
    ('#if __has_include("extra.p4")\nhdr.data.a = 1;\n#else\nhdr.data.a = 2;\n#endif', {}),
    ("#if HAS\nhdr.data.a = 1;\n#else\nhdr.data.a = 2;\n#endif", {"HAS": '__has_include("extra.p4")'}),
    ("#define PASTE(a, b) a ## b\n#if PASTE(__has_, include)(<extra.p4>)\nhdr.data.a = 1;\n#endif", {}),
    ("#include <extra.p4>", {}),
], ids=["a condition", "a macro of the command line", "a pasted name", "a file that hides another"])
def test_a_file_that_appears_or_goes_makes_another_program(tmp_path, place, ingress, defines):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    (tmp_path / "program.p4").write_text(source(f"\n{ingress}\n"))
    (tmp_path / "second" / "extra.p4").write_text("hdr.data.a = 3;\n")
    folders = [tmp_path / "first", tmp_path / "second"] if "#include" in ingress else [tmp_path / "first"]

    def compiled() -> str:
        return build.compile_program(tmp_path / "program.p4", defines=defines, include_dirs=folders, cflags=["-O0"]).source_hash

    without = compiled()
    (tmp_path / "first" / "extra.p4").write_text("hdr.data.a = 4;\n")
    present = compiled()
    assert present != without and compiled() == present
    (tmp_path / "first" / "extra.p4").unlink()
    assert compiled() == without


@pytest.mark.build
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_shared_object_is_made_again(tmp_path, place, kind):
    """Workers of protocols, and the ports over DPDK."""
    worker = tmp_path / "worker.c"
    worker.write_text("int answer(void) { return 42; }\n")
    path = cc.shared_object("worker", [], [worker])
    whole = path.read_bytes()
    for victim in (path, path.with_suffix(".json")):
        damage(victim, kind)
        assert cc.shared_object("worker", [], [worker]) == path and path.read_bytes() == whole
        assert cache.read_record(path.with_suffix(".json")) == {}


@pytest.mark.build
@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_output_of_p4c_is_made_again(tmp_path, place, monkeypatch, kind):
    need("p4runtime")
    from ina.p4.p4runtime import bmv2

    def p4c(arguments):
        for option, text in (("-o", '{"tables": []}'), ("--p4runtime-files", '{"pkgInfo": {"arch": "v1model"}}')):
            Path(arguments[arguments.index(option) + 1]).write_text(text)

    monkeypatch.setattr(bmv2, "versions", lambda: {bmv2.COMPILER[1]: "1"})
    monkeypatch.setattr(bmv2, "_run_p4c", p4c)
    (tmp_path / "program.p4").write_text("")
    config = bmv2.compile_bmv2(tmp_path / "program.p4").config
    whole = {file: file.read_bytes() for file in place.iterdir()}
    assert {file.suffix for file in whole} == {".json", ".p4info", ".record"}
    for victim in whole:
        damage(victim, kind)
        assert bmv2.compile_bmv2(tmp_path / "program.p4").config == config
        assert {file: file.read_bytes() for file in place.iterdir()} == whole


def run_compile(folder: Path, **environment: str) -> subprocess.CompletedProcess:
    """Runs `ina compile` in `folder`."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("INA_CACHE", "XDG_CACHE_HOME")}
    command = [sys.executable, "-m", "ina.cli", "compile", str(ROOT / "p4" / "patch.p4")]
    environment = {**inherited, "PYTHONPATH": str(ROOT), **environment}
    return child.run(command, child.TRAINING, cwd=folder, env=environment)


@pytest.mark.build
@pytest.mark.parametrize("variables", [
    {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "."}, {"XDG_CACHE_HOME": "here"}, {"INA_CACHE": ""},
    {"INA_CACHE": "", "XDG_CACHE_HOME": ""},
])
def test_nothing_is_loaded_from_the_working_folder(tmp_path, variables):
    (tmp_path / "work").mkdir()
    done = run_compile(tmp_path / "work", HOME=str(tmp_path / "home"), **variables)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == tmp_path / "home" / ".cache" / "ina"
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.build
@pytest.mark.parametrize("variables", [{"INA_CACHE": "here"}, {"INA_CACHE": "./"}, {"HOME": "here"}])
def test_relative_folders_are_refused_by_name(tmp_path, variables):
    (tmp_path / "work").mkdir()
    done = run_compile(tmp_path / "work", **variables)
    ((name, value),) = variables.items()
    assert done.returncode == 1 and f"{name}={value}: expected an absolute path" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and list((tmp_path / "work").iterdir()) == []


@pytest.mark.build
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_a_folder_in_which_others_can_write_is_refused(tmp_path, mode):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    done = run_compile(tmp_path, INA_CACHE=str(folder))
    assert done.returncode == 1 and f"{folder}: others can write there (mode {mode:o})" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and list(folder.iterdir()) == []


@pytest.mark.root
def test_a_folder_of_somebody_else_is_refused(tmp_path):
    need("root")
    folder = tmp_path / "cache"
    folder.mkdir()
    shutil.chown(folder, STRANGER)
    done = run_compile(tmp_path, INA_CACHE=str(folder))
    assert done.returncode == 1 and f"{folder}: belongs to user {STRANGER}" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and list(folder.iterdir()) == []
