"""How much of Tofino 1's memory and wires a program's objects take at least: blocks of SRAM and TCAM, containers' and hash bits.

Facts: a stage has 80 SRAM blocks of 1024 x 128 bits, 24 TCAM blocks of 512 x 44, 416 hash bits, 4 stateful ALUs; there are 12
stages and 4096 bits of packet header vector in containers of 8, 16 and 32 bits, which ingress and egress share (P4 Language
Consortium's open Tofino back end, mau/memories.h and phv/phv_spec.cpp). Entries of exact tables are taken to be packed as
tightly as their bits allow, ternary ones to use whole blocks; ways, parity, placement and what a compiler adds are not
counted, so real figures are higher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ina.compiler import ast, types
from ina.compiler.program import Instance
from ina.tofino.fields import leaves, width_of
from ina.tofino.program import Gress
from ina.tofino.stateful import bits_of, cells_of
from ina.tofino.units import Unit, flat

SRAM_ROWS, SRAM_WIDTH, SRAM_BLOCKS = 1024, 128, 960
TCAM_ROWS, TCAM_WIDTH, TCAM_BLOCKS = 512, 44, 288
PHV_BITS, STATEFUL, HASH_BITS = 4096, 48, 4992
ENTRY_OVERHEAD = 8  # bits: version and which action
WAYS = 4  # in which an exact match is looked up: each hashes its own row address
DEFAULT_SIZE = 512


@dataclass
class TableUse:
    """`sram` and `tcam` in blocks, `hash_bits`; of a register, counter or meter too."""

    name: str
    kind: str
    span: Any
    entries: int
    key_bits: int = 0
    data_bits: int = 0
    sram: int = 0
    tcam: int = 0
    hash_bits: int = 0


@dataclass
class Containers:
    """Bits of one gress: `headers` of the longest way through its parser, `metadata` that its control uses, of which those that
    are not needed at the same time may share containers."""

    name: str
    headers: int
    metadata: int
    longest: list[str] = field(default_factory=list)


def key_bits(unit: Unit, kinds: tuple[str, ...]) -> int:
    return sum(width_of(k.expr.type) for k in unit.table.keys if k.match_kind in kinds)


def table_use(unit: Unit) -> TableUse:
    table = unit.table
    ternary = any(k.match_kind in ("ternary", "lpm", "range", "optional") for k in table.keys)
    bits = key_bits(unit, ("exact", "ternary", "lpm", "range", "optional", "atcam_partition_index"))
    size = table.size or unit.owner.sizes.get(table.name) or len(table.entries) or DEFAULT_SIZE
    data = max((sum(width_of(p.type) for p in r.decl.params if not p.direction) for r in table.actions), default=0)
    use = TableUse(
        unit.name,
        "ternary" if ternary else "exact" if table.keys else "no key",
        table.span,
        size if table.keys else 1,
        bits,
        data,
    )
    if ternary:
        use.tcam = math.ceil(size / TCAM_ROWS) * max(1, math.ceil(bits / TCAM_WIDTH))
        if data:
            use.sram = blocks(size, data + ENTRY_OVERHEAD)
    elif table.keys:
        use.sram = blocks(size, bits + data + ENTRY_OVERHEAD)
        use.hash_bits = WAYS * min(10, max(1, (size - 1).bit_length()))
    return use


def blocks(entries: int, bits: int) -> int:
    """Of SRAM: entries side by side in a row where several fit, else over several rows' blocks."""
    if bits <= SRAM_WIDTH:
        return math.ceil(entries / (SRAM_ROWS * (SRAM_WIDTH // max(1, bits))))
    return math.ceil(entries / SRAM_ROWS) * math.ceil(bits / SRAM_WIDTH)


def object_use(instance: Instance, entries: int = 0) -> TableUse | None:
    """Of an extern object; None: it takes none of these. `entries`: of the table that a direct one belongs to."""
    kind, span = instance.decl.name, instance.site.span if instance.site else None
    if kind in ("Register", "DirectRegister"):
        cells = entries or cells_of(instance)
        use = TableUse(instance.name, "register", span, cells, data_bits=bits_of(instance))
        # A block more, so that a cell can be read and written at once.
        use.sram = blocks(cells, bits_of(instance)) + 1
        use.hash_bits = 0 if entries else max(0, (cells - 1).bit_length())
        return use
    if kind.removeprefix("Direct") in ("Counter", "Meter"):
        cells, kind = entries or cells_of(instance), kind.removeprefix("Direct")
        bits = 128 if kind == "Meter" or "BYTES" in str(instance.args.get("type", "")) else 32
        return TableUse(instance.name, kind.lower(), span, cells, data_bits=bits, sram=blocks(cells, bits) + 1)
    if kind == "Hash":
        width = width_of(instance.type.args[0]) if instance.type.args else 0
        return TableUse(instance.name, "hash", span, 0, hash_bits=width)
    return None


def containers(gress: Gress, units: list[Any]) -> Containers:
    """Headers count that are extracted and then used or emitted: what is neither, a compiler leaves out."""
    root = gress.control.decl.params[0].name
    refs = {r for u in flat(units) for r in (*u.matched, *u.all("reads"), *u.all("writes"))}
    used = {r[0] for r in refs}
    emitted = _called(gress.deparser.decl.body, "packet_out", gress.deparser.decl.params[1].name, root)
    sizes = {path: bits for path, bits in _extracted(gress, root).items()
             if path in emitted or any(u.startswith(f"{path}.") for u in used)}  # fmt: skip
    longest = _longest(gress, root, sizes)
    widths: dict[str, int] = {}
    for path, low, high in refs:
        if not path.startswith((f"{root}.", "ig_intr_", "eg_intr_")) and not path.endswith("$valid"):
            widths[path] = max(widths.get(path, 0), high - low + 1)
    return Containers(gress.name, sum(sizes[p] for p in longest), sum(widths.values()), longest)


def _headers(path: str, t: Any) -> list[tuple[str, Any]]:
    plain = types.strip_new(t)
    if isinstance(plain, types.HeaderType):
        return [(path, t)]
    if isinstance(plain, types.StackType):
        return [h for i in range(plain.size) for h in _headers(f"{path}[{i}]", plain.element)]
    if isinstance(plain, types.RecordType):
        return [h for f in plain.fields.values() for h in _headers(f"{path}.{f.name}", f.type)]
    return []


def _called(node: Any, kind: str, own: str, root: str) -> dict[str, int]:
    """Headers that a parser's or deparser's statements extract or emit, as the control calls them, and their bits."""
    found: dict[str, int] = {}
    if isinstance(node, ast.CallStatement) and node.call.kind == kind and node.call.args and node.call.args[0] is not None:
        argument = node.call.args[0]
        text = ast.source_text(argument)
        path = root + text.removeprefix(own) if text == own or text.startswith(f"{own}.") else text
        for header, t in _headers(path, argument.type):
            found[header] = sum(high - low + 1 for p, low, high in leaves(header, t) if not p.endswith("$valid"))
    for inner in getattr(node, "statements", ()):
        found |= _called(inner, kind, own, root)
    for name in ("then", "otherwise"):
        if getattr(node, name, None) is not None:
            found |= _called(getattr(node, name), kind, own, root)
    return found


def _extracted(gress: Gress, root: str) -> dict[str, int]:
    decl = gress.parser.decl
    return {
        h: bits for state in decl.states.values() for h, bits in _called(state, "packet_in", decl.params[1].name, root).items()
    }


def _longest(gress: Gress, root: str, sizes: dict[str, int]) -> list[str]:
    """Headers on the way through the parser that extracts the most bits of those in `sizes`."""
    decl = gress.parser.decl
    known: dict[str, list[str]] = {}

    def follow(state: Any, seen: frozenset[str]) -> list[str]:
        if state is None or state.name in seen:
            return []
        if state.name in known:
            return known[state.name]
        own = [h for h in _called(state, "packet_in", decl.params[1].name, root) if h in sizes]
        t = state.transition
        targets = [t.target, *(c.target for c in t.cases)] if t is not None else []
        ways = [follow(target, seen | {state.name}) for target in targets]
        best = max(ways, key=lambda way: sum(sizes[h] for h in way), default=[])
        known[state.name] = list(dict.fromkeys([*own, *best]))
        return known[state.name]

    return follow(decl.states.get("start"), frozenset())
