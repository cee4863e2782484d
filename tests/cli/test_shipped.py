"""`ina programs` and `ina examples`: each program and example of the package by its name, from any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from ina import cli
from ina.base import paths
from ina.cli import shipped

pytestmark = pytest.mark.fast


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def lines(capsys) -> dict[str, str]:
    """The names that a list begins its lines with, and what stands behind each."""
    return {name: about for name, about in (line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())}


def test_programs_are_listed_with_the_first_sentence_of_each(capsys):
    assert cli.main(["programs"]) == 0
    listed = lines(capsys)
    root = paths.p4_dir()
    files = {path for path in root.rglob("*.p4") if "include" not in path.relative_to(root).parts}
    assert {root / f"{name}.p4" for name in listed} == files
    assert listed["switchml"] == "In-network aggregation after SwitchML (Sapio et al., NSDI'21), for v1model"
    assert all(about[0].isupper() and not about.endswith((",", "*")) for about in listed.values())


def test_a_program_is_printed_as_it_is(capsys):
    for name in ("switchml", "tofino/thc"):
        assert cli.main(["programs", name]) == 0
        assert capsys.readouterr().out == (paths.p4_dir() / f"{name}.p4").read_text()
    assert cli.main(["programs", "tofino/thc", "--path"]) == 0
    assert capsys.readouterr().out == f"{paths.p4_dir() / 'tofino/thc.p4'}\n"


@pytest.mark.parametrize(("argv", "message"), [
    ("programs swichml", "no program 'swichml'; did you mean 'switchml'?; ina programs lists them"),
    ("programs --path", "--path: expected a program's name before it; ina programs lists them"),
    ("examples copy learnt", "no example 'learnt'; did you mean 'learn'?; ina examples list has them"),
])
def test_a_name_that_is_none(argv, message, capsys):
    assert cli.main(argv.split()) == 1
    assert capsys.readouterr().err == f"ina: {message}\n"


@pytest.mark.parametrize("command", ["compile", "explain", "tofino check", "switch run"])
def test_a_command_says_of_a_program_that_is_none_what_may_be_meant(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([*command.split(), "swichml"])
    assert stopped.value.code == 2
    assert "no file 'swichml' here, and no program of that name; did you mean 'switchml'?" in capsys.readouterr().err


def test_a_command_takes_a_name_in_any_folder(capsys):
    assert cli.main(["explain", "switchml"]) == 0
    by_name = capsys.readouterr().out
    assert cli.main(["explain", str(paths.p4_dir() / "switchml.p4")]) == 0
    assert by_name == capsys.readouterr().out and "register" in by_name


def test_a_changed_copy_finds_the_headers(tmp_path, capsys):
    assert cli.main(["programs", "switchml"]) == 0
    (tmp_path / "mine.p4").write_text(capsys.readouterr().out)
    assert cli.main(["explain", "mine.p4"]) == 0


def test_a_file_comes_before_a_program_of_its_name(tmp_path, capsys):
    (tmp_path / "switchml").write_text("not P4")
    assert cli.main(["explain", "switchml"]) == 1
    assert capsys.readouterr().err.startswith("switchml:2:1: error:")


def test_examples_are_listed(capsys):
    assert cli.main(["examples"]) == 0
    listed = lines(capsys)
    assert cli.main(["examples", "list"]) == 0
    assert lines(capsys) == listed and listed["learn"] == "a P4 program and its test"
    there = {path.stem for path in (paths.root() / "examples").iterdir()}
    assert set(listed) == there - {"README", "__pycache__"}


def test_an_example_is_copied_once(tmp_path, capsys):
    assert cli.main(["examples", "copy", "learn"]) == 0
    assert capsys.readouterr().out == "examples/learn\n"
    original = paths.root() / "examples/learn"
    for path in original.iterdir():
        assert (tmp_path / "examples/learn" / path.name).read_bytes() == path.read_bytes()
    assert cli.main(["examples", "copy", "learn", "examples"]) == 1
    message = "ina: examples/learn is there already: expected a new one; choose another folder, or move it\n"
    assert capsys.readouterr().err == message
    assert cli.main(["examples", "copy", "one_packet", "own"]) == 0
    assert {path.name for path in (tmp_path / "own").iterdir()} == {"one_packet.py", "one_packet.p4"}


def test_a_folder_of_a_programs_name_hides_no_program(tmp_path):
    (tmp_path / "atp").mkdir()
    assert shipped.program_path("atp") == paths.p4_dir() / "atp.p4"
    (tmp_path / "ps").write_text("")
    assert shipped.program_path("ps") == Path("ps")
