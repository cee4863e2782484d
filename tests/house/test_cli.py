"""Properties of all commands: no error that a user can fix ends in a traceback."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys

import pytest
from capabilities import need
from v1_program import source

from ina import cli
from ina.base import manifest, paths

pytestmark = pytest.mark.build


def ina(*argv, before="pass", **options):
    """``ina ...`` as a process of its own, in which the statements `before` came first."""
    code = f"import sys\n{before}\nfrom ina import cli; sys.exit(cli.main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *map(str, argv)], text=True, check=False, **options)


@pytest.mark.parametrize("argv", [
    ["deploy", "switch.toml", "--dry-run"],
    ["switch", "run", paths.p4_dir() / "switchml.p4", "-i", "1@lo"],
])
def test_an_extra_that_is_missing_is_named(argv, tmp_path):
    """`make run` installs neither gRPC nor protobuf."""
    missing = "sys.modules['google'] = sys.modules['grpc'] = None"
    done = ina(*argv, before=missing, cwd=paths.p4_dir().parent, capture_output=True)
    assert done.returncode == 1 and "pip install 'ina[p4runtime]'" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_compiled_part_of_other_sources_is_refused():
    """After `git pull` without `make` the compiled part is older: missing functions would show in the midst of a run."""
    others = "from ina.base import paths; paths.native_sources = lambda: 'others'"
    done = ina("experiment", "show", before=others, capture_output=True)
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr
    assert "_native" in done.stderr and "was built from other sources" in done.stderr and "run make build" in done.stderr


def test_a_compiled_part_that_is_missing_is_refused():
    done = ina("experiment", "show", before="sys.modules['ina._native'] = None", capture_output=True)
    assert done.returncode == 1 and "compiled part cannot be loaded: run make build" in done.stderr, done.stderr


def test_a_folder_p4_of_another_package_is_no_checkout(tmp_path, monkeypatch):
    """site-packages has one where the package p4runtime is installed: its modules are p4.v1 and p4.config.v1."""
    installed = tmp_path / "site-packages" / "ina"
    (installed.parent / "p4" / "v1").mkdir(parents=True)
    shutil.copytree(paths.p4_dir(), installed / "data" / "p4")
    monkeypatch.setattr(paths, "PACKAGE", installed)
    assert paths.root() == installed / "data" and paths.p4_dir() == installed / "data" / "p4"
    shutil.rmtree(installed / "data")
    with pytest.raises(FileNotFoundError, match="no p4/switchml.p4 beside .*reinstall ina"):
        paths.root()


def test_sources_are_those_of_a_checkout(tmp_path, monkeypatch):
    """One more line is another digest; an installed package has headers and no means to build."""
    for folder in ("host", *(f for f in manifest.FOLDERS if not f.startswith("host/")), "p4"):
        shutil.copytree(paths.PACKAGE.parent / folder, tmp_path / folder)
    before = paths.native_sources()
    monkeypatch.setattr(paths, "PACKAGE", tmp_path / "ina")
    assert paths.native_sources() == before
    with (tmp_path / "ina/p4/runtime/c/switch.c").open("a") as source:
        source.write("\n")
    assert paths.native_sources() not in ("", before)
    (tmp_path / "host" / "binding.py").unlink()
    assert paths.native_sources() == ""


def test_a_reader_that_has_gone_is_no_error(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = ina("wire", "lua", stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(("raised", "status", "message"), [
    (KeyboardInterrupt(), 130, "ina: interrupted\n"),
    (MemoryError("Unable to allocate 364. TiB"), 1, "ina: not enough memory: Unable to allocate 364. TiB\n"),
])
def test_what_no_command_can_help(raised, status, message, monkeypatch, capsys):
    def main(_args):
        raise raised

    parser = argparse.ArgumentParser()
    parser.set_defaults(main=main)
    monkeypatch.setattr(cli, "parser", lambda argv: parser)
    assert cli.main([]) == status
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(("number", "message"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
@pytest.mark.parametrize("module", ["argparse", "numpy", "ina.base.native", "ina.cli.topo"])
def test_a_signal_while_it_starts_is_one_line(module, number, message):
    """The imports of a command can take half a second, and the signal may interrupt any of them."""
    command = {"argparse": ["--version"], "ina.cli.topo": ["topo", "list"]}.get(module, ["explore"])
    interrupted = f"""
import os
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Interrupt())
"""
    done = ina(*command, before=interrupted, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", f"ina: {message}\n")


def test_a_bug_keeps_its_traceback(monkeypatch):
    def main(_args):
        import ina.no_such_module  # noqa: F401

    parser = argparse.ArgumentParser()
    parser.set_defaults(main=main)
    monkeypatch.setattr(cli, "parser", lambda argv: parser)
    with pytest.raises(ImportError):
        cli.main([])


@pytest.mark.parametrize("command", ["compile", "explain"])
def test_warnings_are_said(command, tmp_path, capsys):
    """Warnings come each time, also for a program that is compiled already."""
    program = tmp_path / "cut.p4"
    program.write_text(source("bit<8> x = 300; hdr.data.d = x;"))
    for _ in range(2):
        assert cli.main([command, str(program)]) == 0
        assert "cut.p4:" in (output := capsys.readouterr().err) and "warning: 300 does not fit into bit<8>" in output


@pytest.mark.parametrize("define", ["1X=2", "A B", "", "=3"])
def test_a_macro_has_a_name(define, capsys):
    assert cli.main(["compile", "nowhere.p4", "-D", define]) == 1
    assert capsys.readouterr().err == f"ina: -D {define}: expected NAME or NAME=VALUE, with a name of letters, digits and _\n"


def test_a_copy_that_fails_names_the_copy(capsys):
    need("dev-full")
    assert cli.main(["compile", str(paths.p4_dir() / "switchml.p4"), "-o", "/dev/full"]) == 1
    assert capsys.readouterr().err == "ina: /dev/full: No space left on device\n"


def test_a_program_without_main_is_named(tmp_path, capsys):
    (library := tmp_path / "library.p4").write_text("#include <core.p4>\n#include <v1model.p4>\n")
    assert cli.main(["compile", str(library)]) == 1
    assert capsys.readouterr().err.startswith(f"{library}: error: the program has no 'main'\n")
