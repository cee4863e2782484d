"""C headers of the wire for the host's code: FILES of the checkout that are made from the P4 programs' headers.

They are in the checkout since C is compiled before the P4 compiler can run. ``make generated`` writes them; a test compares them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence

from ina.aggregation.wire import kinds, layout
from ina.aggregation.wire.c_header import declared, packed
from ina.aggregation.wire.kinds import COLUMNS, Kind
from ina.aggregation.wire.layout import Field, Layout, Unit

NOTE = "Written by `make generated` from"
_REDUCTIONS = {"sum": "INA_SUM", "max": "INA_MAX", "own": "INA_OWN"}
_ENUMS = ("contributors", "receivers", "values", "words")  # columns of words that C knows
_MEMBERS = {  # names of members that are more than one field, by those of their units
    ("msg_type_overflow_size",): "type_overflow_size",
    ("set_checked_slot",): "set_slot",
    ("msg_type_resend_collision_ecn_overflow",): "type_flags",
    ("life", "job", "sequence"): "identity",
}


def frame(
    wire: Layout, rows: Sequence[Kind], source: str, file: str, prefix: str, struct: str, head: Sequence[str],
) -> str:
    """Returns the C header ``file`` with the frame as a ``struct``: the headers ``head`` lie between UDP and the check header.
    Constants have the ``prefix``."""
    units = [unit for name in head for unit in _members(wire[name].units)]
    size = wire.size(head) + wire["check"].size
    picture = " | ".join(f"{name} {wire[name].size}" for name in (*layout.HEAD[:3], *head, "check"))
    behind = {header.name: header for row in rows for header in (row.extra, None if row.has_values else row.payload) if header}
    return "\n".join([
        f"/* {NOTE} {source}: do not edit. Multi-byte members are big endian.",
        " *",
        f" *     {picture} | payload (kinds.h)",
        " */",
        f"#ifndef {_guard(file)}",
        f"#define {_guard(file)}",
        "",
        '#include "check.h"',
        '#include "internet.h"',
        '#include "kinds.h"',
        "",
        f"struct {struct} {{",
        "    struct ina_internet net;",
        *(f"    {declared(unit)}" for unit in units),
        "    struct ina_check_header check;",
        "    uint8_t payload[];          /* a header of the kind's own, if it has one, then its values */",
        "} __attribute__((packed));",
        "",
        "enum {",
        *(f"    {prefix}_{name} = {value}," for unit in units for name, value in _bits(unit)),
        f"    {prefix}_PAYLOAD = INA_INTERNET_SIZE + {size}",
        "};",
        f'static_assert(sizeof(struct {struct}) == {prefix}_PAYLOAD, "as in {source}");',
        f'static_assert(INA_WIRE_VERSION == {wire.constants["WIRE_VERSION"]}, "as in p4/include/frame.p4");',
        *(line for header in behind.values() for line in ("", *packed(f"{prefix}_{header.name}".lower(), header.units))),
        *_size_codes(wire, prefix),
        "",
        "#endif",
        "",
    ])


def kinds_header() -> str:
    """Returns the C header with the tables of kinds."""
    tables = {"INA_WIRE": ("ina_kinds", kinds.switchml()), "INA_ATP": ("ina_atp_kinds", kinds.atp())}
    programs = dict.fromkeys(kind.program for _, rows in tables.values() for kind in rows)
    columns = {**{name: COLUMNS[name] for name in _ENUMS}, "program": programs}
    return "\n".join([
        f"/* {NOTE}",
        f" * {kinds.SOURCE} and {kinds.ATP_SOURCE}: do not edit. */",
        f"#ifndef {_guard(KINDS)}",
        f"#define {_guard(KINDS)}",
        "",
        '#include "protocol.h"',
        "",
        *(f"enum {{ {', '.join(_word(column, word) for word in words)} }};" for column, words in columns.items()),
        "",
        "struct ina_kind {           /* docs/reference/packet-kinds.md */",
        "    uint8_t program;        /* that has it first */",
        "    uint8_t contributors;   /* who sends it; NONE: it does not go up */",
        "    uint8_t receivers;      /* who gets it; NONE: it does not come down */",
        "    uint8_t reduction;      /* enum ina_reduction, of what goes up */",
        "    uint8_t values, words;",
        "    uint8_t extra, payload; /* bytes of its header behind the check header, and of a payload that is no values */",
        "    uint8_t quarters;       /* of a lane's value that one of its takes; 0: none are sent */",
        "    uint8_t checked;        /* 1: the check words are those of the values */",
        "    uint8_t result;         /* kind of the result */",
        "};",
        *(line for prefix, (name, rows) in tables.items() for line in _table(prefix, name, rows)),
        "",
        "#endif",
        "",
    ])


def _table(prefix: str, name: str, rows: Sequence[Kind]) -> list[str]:
    numbers = ", ".join(f"{prefix}_{kind.name.upper()} = {kind.number}" for kind in rows)
    extra = max(kind.extra_bytes for kind in rows)
    return [
        "",
        "enum {",
        *(f"    {line.strip()}" for line in _wrapped(f"{numbers},")),
        f"    {prefix}_KINDS = {rows[-1].number + 1}, {prefix}_MOST_EXTRA = {extra}",
        "};",
        "enum { /* of each program: struct ina_protocol */",
        *_reductions(rows),
        "};",
        f"static const struct ina_kind {name}[16] = {{ /* by message type; others have no row */",
        *(line for kind in rows for line in _wrapped(f"[{prefix}_{kind.name.upper()}] = {{{_row(prefix, kind)}}},")),
        "};",
    ]


def _reductions(rows: Sequence[Kind]) -> list[str]:
    """Declares those of each program: with its own kinds, and with those of the first row's, which it has, too."""
    base, lines = rows[0].program, []
    for program in dict.fromkeys(kind.program for kind in rows):
        own = {kind.reduction for kind in rows if kind.program in (base, program)}
        text = " | ".join(f"1 << {name}" for word, name in _REDUCTIONS.items() if word in own)
        lines.append(f"    INA_REDUCTIONS_{program.upper()} = {text},")
    return lines


def _row(prefix: str, kind: Kind) -> str:
    up = kind.contributors != "none"
    words = {name: _word(name, getattr(kind, name)) for name in _ENUMS if getattr(kind, name) != [*COLUMNS[name]][0]}
    cells = {
        "program": _word("program", kind.program), "reduction": _REDUCTIONS.get(kind.reduction), **words,
        "extra": kind.extra_bytes, "payload": kind.payload_bytes, "quarters": kind.quarters, "checked": int(kind.checked),
        "result": up and f"{prefix}_{kind.result.upper()}",
    }
    return ", ".join(f".{key} = {cell}" for key, cell in cells.items() if cell)


def _wrapped(text: str) -> list[str]:
    lines = textwrap.wrap(text.replace(" = ", "\0=\0"), 130, initial_indent="    ", subsequent_indent="        ")
    return [line.replace("\0", " ") for line in lines]


def _word(column: str, word: str) -> str:
    return f"INA_{column}_{word}".upper()


def _guard(file: str) -> str:
    return f"INA_{file.rpartition('/')[2].replace('.', '_').upper()}"


def _members(units: Sequence[Unit]) -> list[Unit]:
    """Returns a header's units, with the names of _MEMBERS."""
    names = tuple(unit.name for unit in units)
    for count in range(1, len(units) + 1):
        if member := _MEMBERS.get(names[:count]):
            first, last = units[0], units[count - 1]
            fields = tuple(field for unit in units[:count] for field in unit.fields)
            return [Unit(member, first.offset, last.offset + last.size - first.offset, fields), *_members(units[count:])]
    return [units[0], *_members(units[1:])] if units else []


def _bits(unit: Unit) -> list[tuple[str, str]]:
    """Returns names and values of a unit's fields: masks in host byte order; in a unit that is too long for an enum, where each
    begins, and how long the lowest is."""
    if len(unit.fields) == 1:
        return []

    def of(field: Field) -> tuple[str, str]:
        name, shift = field.name.upper(), unit.shift(field)
        if unit.size == 8:
            return (f"{name}_SHIFT", str(shift)) if shift else (f"{name}_BITS", str(field.width))
        return ("TYPE_SHIFT", str(shift)) if name == "MSG_TYPE" else (name, f"{unit.mask(field):#x}")

    return [of(field) for field in unit.fields]


def _size_codes(wire: Layout, prefix: str) -> list[str]:
    if "SIZE_NONE" not in wire.constants:
        return []
    codes = layout.size_codes()
    return [
        "",
        f"enum {{ {prefix}_SIZE_NONE = {wire.constants['SIZE_NONE']}, {prefix}_MOST_VALUES = {max(codes.values())} }};",
        "",
        "/* Size code of K values in a packet, -1: there is none. */",
        f"static inline int {prefix.lower()}_size_code(uint32_t values)",
        "{",
        "    switch (values) {",
        *(f"    case {values}: return {code};" for code, values in codes.items()),
        "    default: return -1;",
        "    }",
        "}",
    ]


KINDS, WIRE, ATP_WIRE = "host/protocol/kinds.h", "host/protocol/wire.h", "host/protocol/atp_wire.h"
FILES: Mapping[str, Callable[[], str]] = {
    KINDS: kinds_header,
    WIRE: lambda: frame(layout.load(), kinds.switchml(), kinds.SOURCE, WIRE, "INA_WIRE", "ina_wire_frame",
                        ("switchml", "exponents")),
    ATP_WIRE: lambda: frame(layout.load_atp(), kinds.atp(), kinds.ATP_SOURCE, ATP_WIRE, "INA_ATP", "ina_atp_wire", ("atp",)),
}
