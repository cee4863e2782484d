"""The command line itself: what it imports, its help, and its errors."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from ina import cli
from ina.cli.commands import COMMANDS, GROUPS

HEAVY = {"numpy", "torch", "grpc", "google", "rich", "scapy", "pcpp", "matplotlib", "networkx", "cffi", "ina._native"}


@pytest.mark.build
@pytest.mark.parametrize("argv", [["--version"], ["--help"], ["-h"], ["experimnt"], ["run", "--help"], ["report", "--help"]])
def test_what_needs_no_package_imports_none(argv):
    """Neither `ina --version` nor help of `ina` and its largest command wait for anything."""
    code = "import sys\nfrom ina import cli\ntry:\n    cli.main(sys.argv[1:])\nexcept SystemExit:\n    print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=60, check=True)
    modules = set(done.stdout.splitlines()[-1].split())
    assert {"argparse", "ina.cli"} <= modules and not modules & HEAVY


@pytest.mark.fast
def test_help_has_every_command_in_a_group(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert stopped.value.code == 0 and max(map(len, text.splitlines())) <= 110
    assert [name for name in COMMANDS if f"  {name} " in text] == list(COMMANDS)
    assert all(f"{group}:\n" in text for group in GROUPS)


@pytest.mark.fast
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_parses(name, capsys):
    """The example is in the command's help, and its options exist."""
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert stopped.value.code == 0 and COMMANDS[name].example in text
    assert COMMANDS[name].example.startswith(f"ina {name}")
    argv = shlex.split(COMMANDS[name].example)[1:]
    assert callable(cli.parser(argv).parse_args(argv).main)


@pytest.mark.fast
@pytest.mark.parametrize(("argv", "message"), [
    ("experimnt", "ina: no command 'experimnt'; did you mean 'experiment'?"),
    ("xyzzy", "ina: no command 'xyzzy';"),
    ("--verison", "ina: no option '--verison'; did you mean '--version'?"),
    ("", "ina: the following arguments are required: COMMAND;"),
    ("experiment", "ina experiment: the following arguments are required: COMMAND;"),
    ("experiment lst", "ina experiment: no command 'lst'; did you mean 'list'?"),
    ("topo xyzzy", "ina topo: no command 'xyzzy'; there are: list, show;"),
    ("run --stepz 3", "ina run: no option '--stepz'; did you mean '--steps'?"),
    ("run --stepz=3", "ina run: no option '--stepz=3'; did you mean '--steps'?"),
    ("wire show extra", "ina wire show: one argument too many: 'extra';"),
    ("run --switch bmv", "ina run: argument --switch: 'bmv': expected embedded or"),
    ("explore --dtype int", "ina explore: argument --dtype: invalid choice: 'int' (choose from"),
    ("controller --topolgy x", "ina controller: no option '--topolgy'; did you mean '--topology'?"),
    ("run -x", "ina run: one argument too many: '-x';"),
    ("experiment --jsn list", "ina experiment: no option '--jsn';"),
    ("trace", "ina trace: the following arguments are required: program, packets;"),
])  # fmt: skip
def test_a_wrong_command_line_is_one_line(argv, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(argv.split())
    output = capsys.readouterr()
    assert (stopped.value.code, output.out) == (2, "")
    assert output.err.startswith(message) and output.err.count("\n") == 1 and output.err.endswith(" --help says more\n")
