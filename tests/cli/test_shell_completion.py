"""`ina completion`, judged by a shell that reads its script, and the manual page, by groff."""

from __future__ import annotations

import sys

import child
import pytest
from capabilities import need

from ina.base import paths
from ina.cli.commands import COMMANDS

pytestmark = pytest.mark.build


def ina(*argv, before="pass"):
    code = f"import sys\n{before}\nfrom ina import cli; sys.exit(cli.main(sys.argv[1:]))"
    return child.run([sys.executable, "-c", code, *argv])


def completed(script, line, cwd):
    """The words that bash offers, with the shell's variables as they are when somebody presses the tabulator key."""
    typed = [*line.split(), *([""] if line.endswith(" ") else [])]
    variables = f"COMP_WORDS=({' '.join(repr(word) for word in typed)}); COMP_CWORD={len(typed) - 1};"
    function = "$(complete -p ina | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
    code = f"source {script}; {variables} {function} ina; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return set(child.run(["bash", "-c", code], cwd=cwd, check=True).stdout.split())


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    need("shtab")
    path = tmp_path_factory.mktemp("completion") / "ina.bash"
    path.write_text(ina("completion", "bash").stdout)
    return path


@pytest.mark.parametrize(("line", "words"), [
    ("ina ", set(COMMANDS)),
    ("ina exp", {"experiment", "explain", "explore"}),
    ("ina experiment ", {"list", "show", "run", "agree", "measure", "all"}),
    ("ina run --wor", {"--world", "--workers"}),
    ("ina run --world ", {"auto", "local", "testbed", "virtual"}),
    ("ina experiment run --no-such", set()),
])
def test_bash_completes(script, line, words, tmp_path):
    there = completed(script, line, tmp_path)
    assert words <= there if line.endswith(" ") else words == there


def test_bash_completes_files_of_arguments_that_are_paths(script, tmp_path):
    (tmp_path / "mine.p4").touch()
    assert completed(script, "ina compile mi", tmp_path) == {"mine.p4"}


@pytest.mark.parametrize(("shell", "first"), [("zsh", "#compdef ina"), ("fish", "")])
def test_other_shells_have_scripts_with_all_commands(shell, first):
    need("shtab")
    text = ina("completion", shell).stdout
    assert text.startswith(first) and all(name in text for name in COMMANDS)


def test_without_its_extra_it_is_named():
    done = ina("completion", "bash", before="sys.modules['shtab'] = None")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ina: ina completion needs shtab: pip install 'ina[completion]'")


def test_the_manual_page_has_every_command_and_no_mistake():
    need("groff")
    page = paths.root() / "docs/reference/ina.1"
    done = child.run(["groff", "-man", "-ww", "-Tutf8", "-P-cbou", page], check=True)
    assert done.stderr == ""
    assert all(f"ina {name}" in done.stdout for name in COMMANDS)
    assert "--world auto, local, testbed, virtual" in " ".join(done.stdout.split())
