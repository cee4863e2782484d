"""The manual page ina(1), in roff, from the commands and their parsers. The wheel puts it into share/man/man1."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

STATUS = (
    ("0", "Done."),
    ("1", "The command began and failed, or found what it looks for."),
    ("2", "The command line, or a file of it, is wrong; nothing was begun."),
    ("130", "Interrupted."),
    ("141", "Nobody reads its output."),
    ("143", "Terminated."),
)
FILES = (
    ("~/.config/ina.toml", "Settings of the torch back end."),
    ("~/.cache/ina", "Compiled programs; $INA_CACHE names another folder."),
    ("/run/ina", "Sockets and state of running networks; $INA_RUN_DIR names another folder."),
)


def escaped(text: str) -> str:
    """Returns a line of text for roff: blanks joined, minus signs that can be copied, no request at its beginning."""
    line = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line[:1] in (".", "'") else line


def entry(head: str, text: str) -> list[str]:
    """Returns a tagged paragraph."""
    return [".TP", f"\\fB{escaped(head)}\\fR", escaped(text)] if text else [".TP", f"\\fB{escaped(head)}\\fR"]


def page(
    version: str,
    description: str,
    groups: dict[str, tuple],
    commands: Iterable[tuple[tuple[str, ...], str, argparse.ArgumentParser]],
    arguments: Callable[[argparse.ArgumentParser], list[tuple[str, str]]],
) -> str:
    """Returns the page. ``groups``: those of ina.cli.commands; ``commands``: words, summary and parser of each command;
    ``arguments`` returns an argument's words and help for each argument of a parser."""
    lines = ['.\\" Written by docs/site/generate.py: change the code, then run make docs.', f'.TH INA 1 "" "ina {version}" "ina"',
             ".SH NAME", "ina \\- in\\-network aggregation: P4 switch programs and real torch training",
             ".SH SYNOPSIS", ".B ina", "\\fICOMMAND\\fR [\\fIARGUMENT\\fR ...]", ".SH DESCRIPTION", escaped(description)]
    for group, members in groups.items():
        lines.append(f".SS To {escaped(group)}")
        for command in members:
            lines += entry(f"ina {command.name}", f"{command.summary}. Example: {command.example}")
    lines.append(".SH COMMANDS")
    for words, summary, parser in commands:
        lines += [f".SS ina {escaped(' '.join(words))}", escaped(summary)]
        for head, text in arguments(parser):
            lines += entry(head, text)
    for heading, rows in (("EXIT STATUS", STATUS), ("FILES", FILES)):
        lines.append(f".SH {heading}")
        for head, text in rows:
            lines += entry(head, text)
    return "\n".join(lines) + "\n"
