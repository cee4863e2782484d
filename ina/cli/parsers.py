"""Parsers of the command line: grouped help, one-line errors, and suggestions for mistyped commands and options."""

from __future__ import annotations

import argparse
import difflib
import itertools
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from ina import __version__
from ina.cli.commands import COMMANDS, GROUPS

DESCRIPTION = "In-network aggregation: P4 switch programs and real torch training."


def folder(text: str) -> Path:
    """Returns the folder that an option names. Raises ArgumentTypeError: there is none."""
    if not text or not Path(text).is_dir():
        there = "an empty name" if not text else "a file" if Path(text).exists() else "there is nothing of this name"
        raise argparse.ArgumentTypeError(f"{text}: {there}: expected a folder".removeprefix(": "))
    return Path(text)


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns ``; did you mean 'run'?`` for a similar word, else nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line. An unknown option is told before what is missing because of it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}{'' if message.endswith('?') else ';'} {self.prog} --help says more\n")

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """Parses arguments. Those that are left over are an error of the command that they were given to."""
        words = sys.argv[1:] if args is None else list(args)
        if not self._subparsers or words[:1] and words[0].startswith("-"):  # else they are the command's
            self._check_options(words)
        parsed, rest = super().parse_known_args(words, namespace)
        if rest:
            self.error(f"one argument too many: {rest[0]!r}")
        return parsed, rest

    def _check_options(self, words: list[str]) -> None:
        """Checks that words which look like long options are some, or the beginning of one."""
        options = [option for action in self._actions for option in action.option_strings]
        for word in itertools.takewhile(lambda word: word != "--", words):
            name = word.partition("=")[0]
            if name.startswith("--") and not any(option.startswith(name) for option in options):
                self.error(f"no option {word!r}{nearest(name, options)}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Returns the value of a word. An empty name of a file is an error: Path makes it the current folder."""
        if action.type is Path and not arg_string:
            raise argparse.ArgumentError(action, "an empty name: expected that of a file or folder, such as ./name")
        return super()._get_value(action, arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            names = f"; there are: {', '.join(action.choices)}"
            raise argparse.ArgumentError(None, f"no command {value!r}{nearest(value, action.choices) or names}")
        super()._check_value(action, value)


class Commands(argparse._SubParsersAction):
    """The top-level commands: each parser gets the help and the example of its Command."""

    def add_parser(self, name: str, **settings: Any) -> Any:
        command = COMMANDS[name]
        text = f"{command.summary[0].upper()}{command.summary[1:]}"
        settings.setdefault("description", text if text.endswith(".") else f"{text}.")
        parser = super().add_parser(name, help=command.summary, **settings)
        if command.example not in (parser.epilog or ""):
            parser.epilog = f"{(parser.epilog or '').rstrip()}\n\nExample: {command.example}".strip()
        return parser


class Top(Parser):
    """The parser of ``ina``. Its help needs no command's module."""

    def format_help(self) -> str:
        width = max(map(len, COMMANDS)) + 2
        lines = [self.format_usage(), f"{DESCRIPTION}\n"]
        for group, commands in GROUPS.items():
            lines += [f"{group}:", *(f"  {command.name:<{width}}{command.summary}" for command in commands), ""]
        lines += ["ina COMMAND --help has each command's options and an example; -h, --help shows this, --version the version."]
        return "\n".join(lines) + "\n"


def parser(names: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """Returns the parser of ``ina`` with these commands, whose modules it imports."""
    top = Top(prog="ina")
    top.add_argument("--version", action="version", version=f"ina {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, action=Commands, parser_class=Parser)
    for module in dict.fromkeys(COMMANDS[name].module for name in names):
        import_module(module).add_arguments(commands)
    return top
