"""``ina completion``: a script with which a shell completes the words of ``ina``."""

from __future__ import annotations

import argparse
from pathlib import Path

from ina.cli.errors import reported

SHELLS = ("bash", "zsh", "fish")


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Adds the command to ``ina``; it sets ``main``, a function of the parsed arguments."""
    parser = commands.add_parser("completion", epilog='For bash, in ~/.bashrc: eval "$(ina completion bash)", or better, once: '
                                 "ina completion bash > ~/.local/share/bash-completion/completions/ina")
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads it")
    parser.set_defaults(main=reported(_completion))


def _completion(args: argparse.Namespace) -> int:
    from ina.base.extras import extra

    with extra("completion"):
        import shtab
    from ina.cli.parsers import parser

    top = parser()
    _mark_files(top, shtab.FILE)
    print(shtab.complete(top, args.shell))
    return 0


def _mark_files(parser: argparse.ArgumentParser, mark: object) -> None:
    """Marks all arguments that are paths, here and in the commands below, with ``mark``, by which shtab completes files."""
    from ina.cli.parsers import folder
    from ina.cli.shipped import program_path

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _mark_files(below, mark)
        elif action.type in (Path, folder, program_path):
            action.complete = mark  # type: ignore[attr-defined]
