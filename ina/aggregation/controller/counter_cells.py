"""Names of a program's counter cells: counter ``drops`` has a cell for each member of the program's enum ``Drop``."""

from __future__ import annotations

import functools
from pathlib import Path

from ina.p4.compiler import frontend
from ina.p4.compiler.errors import CompileError


def labels(program: str, counter: str, cells: int) -> list[str]:
    """Returns a name for each cell; its number where the program has no such enum (any more). A counter with several times as
    many cells as the enum has members has them for each job."""
    kind = counter.rpartition(".")[2].removesuffix("s").capitalize()
    members = _enums(program).get(kind)
    if not members or cells % len(members):
        return [str(number) for number in range(cells)]
    if cells == len(members):
        return members
    return [f"job {number // len(members)}: {members[number % len(members)]}" for number in range(cells)]


@functools.cache
def _enums(program: str) -> dict[str, list[str]]:
    """Returns the members of the program's enums, in lower case and words, by value."""
    try:
        types = frontend.load(Path(program), defines={"VALUES": "32", "SLOTS": "64"}).types
    except (CompileError, OSError):
        return {}
    enums = {name: members for name, kind in types.items() if isinstance(members := getattr(kind, "members", None), dict)}
    return {name: [member.lower().replace("_", " ") for member in sorted(members, key=members.__getitem__)]
            for name, members in enums.items() if sorted(members.values()) == list(range(len(members)))}
