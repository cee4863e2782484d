"""Protocols to begin with: the files of `ina protocol new`, made of the texts (*.in) of this folder.

Each is complete: a switch program, its worker, its entries, a test, an experiment and a README. They differ in their operation, a
row of `OPERATIONS`; examples/maximum and examples/majority are what this writes.
"""

from __future__ import annotations

import json
import keyword
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ina.aggregation import protocols

HERE = Path(__file__).resolve().parent
NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
PORT = 0xBEC8  # of UDP, where none is chosen


@dataclass(frozen=True)
class Operation:
    """An operation of the switch on the workers' values.

    `about`: a part of a sentence. `comment`, `code`: lines of P4, macros FIRST, NEXT and RESULT. `declared`: INA_MAX or
    INA_OWN, as the worker declares it. `reduced`: the result, in numpy, of `tensors`, a row for each worker. `cases`: rows of a
    test, a column for each element, and what must come out, in Python. `source`: a paragraph of the README."""

    about: str
    comment: str
    code: str
    declared: str
    reduced: str
    cases: tuple[str, str]
    source: str = ""


OPERATIONS = {
    "maximum": Operation(
        about="the largest of all workers' integers",
        comment=" * Values are signed: bit<32> compares without a sign, and -1 would be larger than all others.",
        code="#define FIRST(value) value\n#define NEXT(row, value) ((int<32>)row > (int<32>)value ? row : value)\n"
             "#define RESULT(row) row",
        declared="INA_MAX",
        reduced="tensors.max(axis=0)",
        cases=("[[1, -5, 0, -2**31, -1], [2, -3, 0, -2**31, 1], [-9, -4, 0, 2**31 - 1, 0]]", "[2, -3, 0, 2**31 - 1, 1]"),
    ),
    "majority": Operation(
        about="the sign that most workers have",
        comment=" * A row counts signs: 1 for each positive value, -1 for each negative one; zero is no vote. The result is 1\n"
                " * or -1, the sign of the count, and 0 for a tie.",
        code="#define SIGN(value) (value == 0 ? 32w0 : value[31:31] == 1 ? 32w0xFFFFFFFF : 32w1)\n"
             "#define FIRST(value) SIGN(value)\n#define NEXT(row, value) row + SIGN(value)\n#define RESULT(row) SIGN(row)",
        declared="INA_OWN",
        reduced='np.sign(np.sign(tensors).sum(axis=0)).astype("int32")',
        cases=("[[5, -1, 7, 0, 9, -2**31], [1, -9, -1, 0, -8, -2**31], [-99, 3, 0, 0, 0, 2**31 - 1]]", "[1, -1, 0, 0, 0, -1]"),
        source="The vote is that of signSGD with majority vote (Bernstein et al., ICLR 2019, arXiv:1810.05291): workers\n"
               "send the signs of their gradients, and the server answers with the sign of the majority. There a sign\n"
               "travels as one bit; here values are int32, as they are, and the switch takes their signs. A zero is no\n"
               "vote, and a tie gives 0: both are choices of this program. In torch the vote is\n"
               "`ina.backend.all_reduce_own(tensor)` of an int32 tensor.\n\n",
    ),
}


class SkeletonError(ValueError):
    """A name, port or folder that no protocol can have; the message says what was expected."""


def texts(name: str, folder: Path, operation: str, port: int = PORT) -> dict[str, str]:
    """Returns the files of a protocol by their names; those that name the program have its path in ``folder``. Raises
    SkeletonError."""
    if not NAME.fullmatch(name):
        raise SkeletonError(f"NAME {name!r}: expected 1 to 31 small letters, digits and _, a letter first")
    if name in protocols.names():
        raise SkeletonError(f"NAME {name!r}: a protocol of the package has it: expected another one")
    if operation not in OPERATIONS:
        raise SkeletonError(f"--operation {operation!r}: expected one of {', '.join(OPERATIONS)}")
    if not 1024 <= port <= 65535:
        raise SkeletonError(f"--port {port}: expected 1024 to 65535, a UDP port of its own")
    if keyword.iskeyword(name.title()):
        raise SkeletonError(f"NAME {name!r}: its class in Python would be {name.title()}: expected another one")
    chosen = OPERATIONS[operation]
    words = {"name": name, "NAME": name.upper(), "Name": name.title().replace("_", ""), "port": f"0x{port:04X}",
             "about": chosen.about, "comment": chosen.comment, "operation": chosen.code, "declared": chosen.declared,
             "reduced": chosen.reduced, "rows": chosen.cases[0], "answer": chosen.cases[1], "source": chosen.source,
             "folder": str(folder), "program": json.dumps(str(folder / f"{name}.p4"))}
    made = {}
    for path in sorted(HERE.glob("*.in")):
        text = re.sub("@(" + "|".join(words) + ")@", lambda match: words[match[1]], path.read_text(encoding="utf-8"))
        made[path.name.removesuffix(".in").replace("NAME", name)] = text
    return made


def write(name: str, folder: Path, operation: str, port: int = PORT) -> list[Path]:
    """Writes a protocol's files to a folder, which it makes; returns their paths. Raises SkeletonError, also for a name with
    which the program does not compile, and OSError."""
    from ina.base import paths
    from ina.p4.compiler import frontend
    from ina.p4.compiler.errors import CompileError

    made = texts(name, folder, operation, port)
    if folder.exists() and not folder.is_dir():
        raise SkeletonError(f"{folder} is a file: expected a folder, one that there is or a new one")
    if there := [str(folder / file) for file in made if (folder / file).exists()]:
        raise SkeletonError(f"{', '.join(there)}: there already: expected a folder without {'it' if len(there) == 1 else 'them'}")
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / f"{name}.p4"
        program.write_text(made[program.name], encoding="utf-8")
        try:
            frontend.load(program, defines={"VALUES": "32"}, include_dirs=[paths.p4_dir()])
        except CompileError as error:
            raise SkeletonError(f"NAME {name!r} means something else in P4 ({error.message}): expected another one") from None
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in made.items():
        (folder / file).write_text(text, encoding="utf-8")
    return [folder / file for file in made]
