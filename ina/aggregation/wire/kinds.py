"""Kinds of packets: one row each, read from the annotations of their numbers in the P4 programs' headers.

    kinds.switchml()      rows of p4/include/switchml/headers.p4: SwitchML, and what others add to it
    kinds.atp()           rows of p4/include/atp/headers.p4

A row is a constant with an annotation ``@kind[column=word, ...]``; COLUMNS has the words of each column and their meanings. C's
table (host/protocol/kinds.h), dissectors, scapy layers and docs/reference/packet-kinds.md are made from these rows.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ina.aggregation.wire.layout import Header, LayoutError, header
from ina.base.paths import p4_dir
from ina.p4.compiler import ast, frontend, types

SOURCE = "p4/include/switchml/headers.p4"
ATP_SOURCE = "p4/include/atp/headers.p4"

# column -> word -> meaning; the first word is that of a row without the column. Others have names of programs, headers, kinds.
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "reduction": {"none": "nothing is reduced", "sum": "sums", "max": "the largest of each value", "own": "the program's own"},
    "values": {
        "never": "it has none", "always": "it has values",
        "optional": "the size says whether it has; without, only exponents are compared",
        "zeros": "all are 0, and not sent",
    },
    "words": {"none": "no values", "integers": "two's complement, as wide as the lane",
              "indices": "4 bits for each byte of the result", "floats": "IEEE 754 binary32",
              "lanes": "two unsigned numbers of 16 bits", "bytes": "of each lane its upper byte, rounded"},
    "contributors": {"none": "a switch or server makes it", "all": "each worker of the job",
                     "sources": "the workers that have values", "offering": "each worker, if it can contribute or not"},
    "receivers": {"none": "it goes up only", "all": "each worker of the job", "sender": "whose packet it answers",
                  "receivers": "the workers that its header names; the other members get it without values"},
    "completes": {"none": "it is no part of a phase", "all": "a packet of each worker", "members": "a packet of each member",
                  "enough": "a packet of each worker, and as many contributors as are enough"},
}
SENT = ("always", "optional")  # words of "values": of kinds that carry some
SMALL = {"VALUES": "32"}  # how many makes no difference to a row, but takes time


@dataclass(frozen=True)
class Kind:
    """A kind of packet.

    Attributes:
        number: message type on the wire, 4 bits.
        name: of the constant, in small letters, without the protocol's.
        program: whose headers have it first (p4/include/<program>/headers.p4); other programs drop it as malformed.
        result: name of the kind of its result; its own, if the row names none.
        extra: header between the check header and the payload, which the checksum of the headers covers; None: there is none.
        payload: header of the payload: the values, or what stands in their place; None: there is none.
        quarters: of a lane's value that one of its takes: 4 all, 2 half; 0: none are sent.
        checked: the check words are those of the values, and are added like them.
        again: name of the kind that answers a retransmission while the phase is not complete (then: the result); "": none does.
        reduction, values, words, contributors, receivers, completes: see COLUMNS.
    """

    number: int
    name: str
    program: str
    result: str
    extra: Header | None
    payload: Header | None
    quarters: int
    checked: bool
    again: str = ""
    reduction: str = "none"
    values: str = "never"
    words: str = "none"
    contributors: str = "none"
    receivers: str = "none"
    completes: str = "none"

    @property
    def has_values(self) -> bool:
        """True: values are sent, in all its packets or in some."""
        return self.values in SENT

    @property
    def payload_bytes(self) -> int:
        """Bytes of a payload that is no values."""
        return self.payload.size if self.payload and not self.has_values else 0

    @property
    def extra_bytes(self) -> int:
        """Bytes of the header between the check header and the payload."""
        return self.extra.size if self.extra else 0


def switchml() -> tuple[Kind, ...]:
    """Returns the kinds of SwitchML's headers by number, those that other programs add among them. LayoutError: see read."""
    return read(p4_dir().parent / SOURCE, "SWITCHML_")


def atp() -> tuple[Kind, ...]:
    """Returns the kinds of ATP's headers by number. LayoutError: see read."""
    return read(p4_dir().parent / ATP_SOURCE, "ATP_")


@functools.cache
def read(path: Path, prefix: str) -> tuple[Kind, ...]:
    """Returns the rows of a P4 file by number: its constants with the annotation ``@kind``; names lose the ``prefix``.

    LayoutError names the constant: a column, word, program, header or kind that there is not, values without a header, or a
    number that is not 1..15 or that two kinds have.
    """
    program = frontend.load(path, defines=SMALL)
    rows = [_row(path, declaration, annotation, prefix) for declaration in program.declarations
            if isinstance(declaration, ast.ConstDecl) and (annotation := declaration.annotation("kind"))]
    by_number = {row.number: row for row in rows}
    if len(by_number) != len(rows):
        raise LayoutError(f"{path}: two kinds have one number: {', '.join(f'{row.name} {row.number}' for row in rows)}")
    names = [row.name for row in rows]
    for row in rows:
        if unknown := {row.result, row.again or row.name} - {*names}:
            wrong = f"{prefix}{row.name.upper()}: there is no kind {min(unknown)!r}"
            raise LayoutError(f"{path}: {wrong}; there are: {', '.join(names)}")
    return tuple(row for _, row in sorted(by_number.items()))


def _row(path: Path, constant: ast.ConstDecl, annotation: ast.Annotation, prefix: str) -> Kind:
    columns: dict[str, Any] = {key: getattr(value, "value", None) for key, value in annotation.pairs.items()}
    for key, word in columns.items():
        expected = [*COLUMNS[key]] if key in COLUMNS else [0, 1] if key == "checked" else None
        if key not in Kind.__dataclass_fields__ or key in ("number", "name", "quarters"):
            raise LayoutError(f"{path}: {constant.name}: there is no column {key!r}")
        if word not in expected if expected else not isinstance(word, str):
            wanted = f"one of {expected}" if expected else "a name"
            raise LayoutError(f"{path}: {constant.name}: {key} = {word!r}: expected {wanted}")
    name = constant.name.removeprefix(prefix).lower()
    number, program = constant.value.const, columns.pop("program", "")
    if not 0 < number < 16:  # 4 bits, of which 0 is no kind
        raise LayoutError(f"{path}: {constant.name} = {number}: expected 1..15")
    extra, payload, lane = (_header(constant.name, program, key) for key in
                            (columns.pop("extra", ""), columns.pop("payload", ""), "values"))
    sent = columns.get("values", "never")
    if (sent in SENT and not payload) or (sent == "zeros" and payload):
        raise LayoutError(f"{path}: {constant.name}: values = {sent!r}: expected {'a' if sent in SENT else 'no'} payload")
    quarters = 4 * payload.size // lane.size if payload and lane and sent in SENT else 0
    checked, result = bool(columns.pop("checked", 0)), columns.pop("result", name)
    return Kind(number, name, program, result, extra, payload, quarters, checked, **columns)


def _header(constant: str, program: str, name: str) -> Header | None:
    path = p4_dir() / f"include/{program}/headers.p4"
    if not program or not path.is_file():
        raise LayoutError(f"{constant}: program = {program!r}: there is no {path}")
    if not name:
        return None
    type_ = frontend.load(path, defines=SMALL).types.get(f"{name}_t")
    if not isinstance(type_, types.HeaderType):
        raise LayoutError(f"{path}: {constant}: there is no header {name}_t")
    return header(name, type_)
