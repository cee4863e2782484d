"""Protocols to begin with: the files of `ina protocol new`, made of the texts (*.in) of this folder.

Each is complete: a switch program, its worker, its entries, a test, an experiment and a README. They differ in their operation, a
row of `OPERATIONS`; examples/maximum and examples/majority are what this writes. examples/lockstep is the same less the
operation: sums need no kind of values in a packet, and are also of floats. A test compares their lines.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import shlex
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ina.aggregation import protocols

HERE = Path(__file__).resolve().parent
NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
PORT = 0xBEC8  # of UDP, where none is chosen
IMPORTED = ("conftest", "ina", "numpy", "pytest")  # modules that the files import, and the one that pytest looks for beside them


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
        raise SkeletonError(f"--operation {operation!r}: expected one of {', '.join(OPERATIONS)}; for sums begin with a copy of "
                            "examples/lockstep (ina examples copy lockstep)")
    if not 1024 <= port <= 65535:
        raise SkeletonError(f"--port {port}: expected 1024 to 65535, a UDP port of its own")
    if taken := _owner(port):
        raise SkeletonError(f"--port {port} (0x{port:04X}): {taken}: expected another one")
    if name in IMPORTED or name in sys.stdlib_module_names or name in metadata.packages_distributions():
        raise SkeletonError(f"NAME {name!r}: {name}.py would hide the Python module of that name: expected another one")
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise SkeletonError(f"folder {str(folder)!r}: expected a name in UTF-8") from None
    class_name = name.title().replace("_", "")
    if keyword.iskeyword(class_name) or class_name in _names_used():
        raise SkeletonError(f"NAME {name!r}: its class in Python would be {class_name}: expected another one")
    chosen = OPERATIONS[operation]
    words = {"name": name, "NAME": name.upper(), "Name": class_name, "port": f"0x{port:04X}",
             "about": chosen.about, "comment": chosen.comment, "operation": chosen.code, "declared": chosen.declared,
             "reduced": chosen.reduced, "rows": chosen.cases[0], "answer": chosen.cases[1], "source": chosen.source,
             "program": _toml_string(str(folder / f"{name}.p4")), "shell_program": shlex.quote(str(folder / f"{name}.p4")),
             "shell_experiment": shlex.quote(str(folder / f"{name}.toml")),
             "shell_test": shlex.quote(str(folder / f"test_{name}.py"))}
    made = {}
    for path in sorted(HERE.glob("*.in")):
        text = re.sub("@(" + "|".join(words) + ")@", lambda match: words[match[1]], path.read_text(encoding="utf-8"))
        made[path.name.removesuffix(".in").replace("NAME", name)] = text
    return made


def _owner(port: int) -> str:
    """Returns text that says which protocol of the package has the UDP port, or "" if none has it."""
    from ina.aggregation.entries import programs
    from ina.aggregation.worker.config import SERVER

    first = port & 0xFFF0  # the low four bits are free in the package's programs: a worker may spread its flow over 16 ports
    if titles := [program.title for program in programs() if program.udp_port == first]:
        return f"0x{first:04X} to 0x{first + 15:04X} are ports of {', '.join(titles)}"
    return "the port of the parameter server" if port == SERVER.port else ""


def _names_used() -> set[str]:
    """Returns all names that NAME.py.in imports or uses; a class of one of these names would hide it."""
    text = re.sub("@[A-Za-z]+@", "_", (HERE / "NAME.py.in").read_text(encoding="utf-8"))
    nodes = [*ast.walk(ast.parse(text))]
    imported = {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    return imported | {node.id for node in nodes if isinstance(node, ast.Name)}


def _toml_string(text: str) -> str:
    """Returns a basic string of TOML, which has no surrogate pairs, and DEL only as an escape."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _check(name: str, made: dict[str, str]) -> None:
    """Compiles the program and the worker, and loads the entries, in a folder of their own. Raises SkeletonError: ``name`` means
    something else in one of the three languages, or there is no C compiler."""
    from ina.aggregation.entries import program_named
    from ina.base import paths
    from ina.base.cc import BuildError
    from ina.p4.compiler.build import compile_program
    from ina.p4.compiler.errors import CompileError

    with tempfile.TemporaryDirectory() as scratch:
        for file, text in made.items():
            (Path(scratch) / file).write_text(text, encoding="utf-8")
        program = Path(scratch) / f"{name}.p4"
        try:
            compile_program(program, defines={"VALUES": "32"}, include_dirs=[paths.p4_dir()])
            program_named(str(program))
        except CompileError as error:
            raise SkeletonError(f"NAME {name!r} means something else in P4 ({error.message}): expected another one") from None
        except (BuildError, ValueError) as error:  # of the worker or the entries: ValueError
            if wrong := re.search(r" error: (.*)", str(error)):
                raise SkeletonError(f"NAME {name!r} means something else in C ({wrong[1]}): expected another one") from None
            raise SkeletonError(f"NAME {name!r}: {error}") from None


def write(name: str, folder: Path, operation: str, port: int = PORT) -> list[Path]:
    """Writes a protocol's files to a folder, which it makes; returns their paths. Raises SkeletonError, also for a name with
    which a file does not compile, and OSError."""
    made = texts(name, folder, operation, port)
    if folder.exists() and not folder.is_dir():
        raise SkeletonError(f"{folder} is a file: expected a folder, one that there is or a new one")
    if there := [str(folder / file) for file in made if (folder / file).exists()]:
        raise SkeletonError(f"{', '.join(there)}: there already: expected a folder without {'it' if len(there) == 1 else 'them'}")
    _check(name, made)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in made.items():
        (folder / file).write_text(text, encoding="utf-8")
    return [folder / file for file in made]
