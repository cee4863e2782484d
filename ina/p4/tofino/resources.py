"""Lower bounds of the memory and wires of Tofino 1 that a program's objects take: SRAM and TCAM blocks, container and hash bits.

Facts: a stage has 80 SRAM blocks of 1024 x 128 bits, 24 TCAM blocks of 512 x 44, 416 hash bits, 4 stateful ALUs; there are 12
stages, and 4096 bits of packet header vector in containers of 8, 16 and 32 bits and 2048 more that only parser and deparser
reach, which ingress and egress share (P4 Language Consortium's open Tofino back end, mau/memories.h and phv/phv_spec.cpp). An
exact table is hashed four ways, each of a block at least, except where its key is its address; key bits that tell an entry's row
are not stored (mau/resource_estimate.cpp, mau/table_format.cpp). Bits are assumed to be packed without gaps; placement and a
compiler's additions are not counted, so real figures are higher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ina.p4.compiler import ast, types
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import Span
from ina.p4.compiler.instances import calls_in
from ina.p4.tofino.fields import VALID, Ref, leaves, width_of
from ina.p4.tofino.stateful import bits_of, cells_of
from ina.p4.tofino.units import Gress, Item, Unit, flat

SRAM_ROWS, SRAM_WIDTH, SRAM_BLOCKS = 1024, 128, 960
TCAM_ROWS, TCAM_WIDTH, TCAM_BLOCKS = 512, 44, 288
PHV_BITS, CARRIED_BITS, STATEFUL, HASH_BITS = 4096, 4096 + 2048, 48, 4992
VERSION = 4  # bits of an exact entry, for its atomic replacement
WAYS = 4  # of an exact match: each hashes its own row address
DEFAULT_SIZE = 512
COUNTED = {"PACKETS": 21, "BYTES": 32, "PACKETS_AND_BYTES": 42}  # bits of a counter's cell, in the densest packing


@dataclass
class TableUse:
    """Use of a table, register, counter or meter: `sram` and `tcam` in blocks, `hash_bits`."""

    name: str
    kind: str
    span: Span | None
    entries: int
    key_bits: int = 0
    data_bits: int = 0
    sram: int = 0
    tcam: int = 0
    hash_bits: int = 0
    key: tuple[Ref, ...] = ()


@dataclass
class Containers:
    """Bits of one gress: `headers` of the longest path through its parser, `touched` of those that its control reads or writes,
    `metadata` that it uses, of which those that are not needed at the same time may share containers."""

    name: str
    headers: int
    metadata: int
    touched: int
    longest: list[str] = field(default_factory=list)


def key_bits(unit: Unit, kinds: tuple[str, ...]) -> int:
    return sum(width_of(k.expr.type) for k in unit.decl.keys if k.match_kind in kinds)


def table_use(unit: Unit) -> TableUse:
    table = unit.decl
    sram_kind = storage(unit)
    ternary = any(k.match_kind in ("ternary", "lpm", "range", "optional") for k in table.keys)
    bits = key_bits(unit, ("exact", "ternary", "lpm", "range", "optional", "atcam_partition_index", "dleft_hash"))
    size = table.size or unit.owner.sizes.get(table.name) or len(table.entries) or DEFAULT_SIZE
    use = TableUse(unit.name, "no key", table.span, size if table.keys else 1, bits, 0 if profile_of(unit) else data_bits(unit))
    if not table.keys:
        return use
    use.kind = sram_kind or ("ternary" if ternary else "exact")
    use.key = tuple(unit.keys)
    use.sram = blocks(size, use.data_bits)
    if use.kind == "ternary":
        use.tcam = math.ceil(size / TCAM_ROWS) * max(1, math.ceil(bits / TCAM_WIDTH))
    elif use.kind == "alpm":  # the partitions are found in a TCAM, with the key's first bits at least
        use.tcam = math.ceil(partitions(unit) / TCAM_ROWS)
    elif use.kind == "exact":
        rows = math.ceil(math.log2(max(2, size)))
        if bits <= max(10, rows):  # the key itself can be the address
            use.hash_bits = min(10, bits)
        else:
            ways = 1 if any(a.name == "ways" for a in table.annotations) else WAYS
            use.sram = max(ways, blocks(size, bits - rows + use.data_bits + VERSION))
            use.hash_bits = 10 * ways
    return use


def data_bits(unit: Unit) -> int:
    """Returns the most data bits of an entry's action."""
    return max((sum(width_of(p.type) for p in r.decl.params if not p.direction) for r in unit.decl.actions), default=0)


def implementation(unit: Unit) -> Instance | None:
    """Returns the object that the property `implementation` names, where it is one of the control."""
    prop = unit.decl.properties.get("implementation")
    return unit.owner.children.get(prop.value.name) if prop is not None and isinstance(prop.value, ast.Name) else None


def profile_of(unit: Unit) -> Instance | None:
    """Returns the ActionProfile or ActionSelector that has the table's entries' actions."""
    instance = implementation(unit)
    inner = instance.args.get("action_profile") if instance is not None else None
    if isinstance(inner, Instance):
        return inner
    return instance if instance is not None and instance.decl.name in ("ActionProfile", "ActionSelector") else None


def storage(unit: Unit) -> str:
    """Returns how a longest prefix or ternary match is stored in SRAM: "alpm", "atcam"; "": not in SRAM."""
    instance = implementation(unit)
    if (instance is not None and instance.decl.name == "Alpm") or any(a.name == "alpm" for a in unit.decl.annotations):
        return "alpm"
    indexed = any(k.match_kind == "atcam_partition_index" for k in unit.decl.keys)
    return "atcam" if indexed or instance is not None and instance.decl.name == "Atcam" else ""


def partitions(unit: Unit) -> int:
    instance = implementation(unit)
    number = instance.args.get("number_partitions") if instance is not None else None
    return number if isinstance(number, int) else 1


def blocks(entries: int, bits: int) -> int:
    """Returns the SRAM blocks for so many entries of so many bits."""
    return math.ceil(entries * bits / (SRAM_ROWS * SRAM_WIDTH))


def object_use(instance: Instance, entries: int = 0, data: int = 0) -> TableUse | None:
    """Returns the use of an extern object; None: none of these resources. `entries`: of the table that a direct object belongs
    to; `data`: bits of an action profile's entries."""
    kind, span = instance.decl.name, instance.site.span if instance.site else None
    if kind in ("Register", "DirectRegister"):
        cells = entries or cells_of(instance)
        # One more block, so that a cell can be read and written in one cycle.
        sram = blocks(cells, bits_of(instance)) + 1
        return TableUse(instance.name, "register", span, cells, data_bits=bits_of(instance), sram=sram)
    if kind.removeprefix("Direct") in ("Counter", "Meter", "Lpf", "Wred"):
        cells, kind = entries or cells_of(instance), kind.removeprefix("Direct")
        bits = COUNTED.get(str(instance.args.get("type", "")).rpartition(".")[2].upper(), 32) if kind == "Counter" else 128
        name = kind.lower() if kind in ("Counter", "Meter") else "filter"
        return TableUse(instance.name, name, span, cells, data_bits=bits, sram=blocks(cells, bits) + 1)
    if kind == "Hash":
        width = width_of(instance.type.args[0]) if instance.type.args else 0
        return TableUse(instance.name, "hash", span, 0, hash_bits=width if width <= 32 else 0)  # of wider hashes, a part is used
    if kind in ("ActionProfile", "ActionSelector"):
        size = cells_of(instance)
        return TableUse(instance.name, "profile", span, size, data_bits=data, sram=blocks(size, data))
    return None


def containers(gress: Gress, units: list[Item]) -> Containers:
    """Counts the headers that are extracted and then used or emitted: a compiler leaves the others out."""
    root = gress.control.decl.params[0].name
    refs = {r for u in flat(units) for r in (*u.matched, *u.reads, *u.writes)}
    paths = {r[0] for r in refs}
    emitted = _called(gress.deparser.decl.body, "packet_out", gress.deparser.decl.params[1].name, root)
    sizes = {path: bits for path, bits in _extracted(gress, root).items()
             if path in emitted or any(u.startswith(f"{path}.") for u in paths)}
    longest = _longest(gress, root, sizes)
    widths: dict[str, int] = {}
    for path, low, high in refs:
        if not path.startswith((f"{root}.", "ig_intr_", "eg_intr_")) and not path.endswith("$valid"):
            widths[path] = max(widths.get(path, 0), high - low + 1)
    bits = {(path, bit) for path, low, high in refs for bit in range(low, high + 1) if path.rpartition(".")[0] in longest
            and not path.endswith(VALID)}
    return Containers(gress.name, sum(sizes[p] for p in longest), sum(widths.values()), len(bits), longest)


def never_valid(gress: Gress, units: list[Item]) -> list[str]:
    """Returns the headers that nothing extracts or makes valid, by the control's names."""
    param, own = gress.control.decl.params[0], gress.parser.decl.params[1].name
    validated = {r[0] for u in flat(units) for r in u.writes if r[0].endswith(f".{VALID}")}
    for call in (c for state in gress.parser.decl.states.values() for c in calls_in(state) if c.kind != "packet_in"):
        operands = [ast.source_text(a) for a in (call.receiver, *call.args) if a is not None]
        if any(text == own or text.startswith((f"{own}.", f"{own}[")) for text in operands):
            return []  # sub-parsers, and setValid in parsers, are not followed
    present = _extracted(gress, param.name)
    return [path for path, _ in _headers(param.name, param.type)
            if not {path, path.partition("[")[0] + ".next"} & present.keys() and f"{path}.{VALID}" not in validated]


def _headers(path: str, t: types.Type) -> list[tuple[str, types.Type]]:
    plain = types.strip_new(t)
    if isinstance(plain, types.HeaderType):
        return [(path, t)]
    if isinstance(plain, types.StackType):
        return [h for i in range(plain.size) for h in _headers(f"{path}[{i}]", plain.element)]
    if isinstance(plain, types.RecordType):
        return [h for f in plain.fields.values() for h in _headers(f"{path}.{f.name}", f.type)]
    return []


def _called(node: ast.Node, kind: str, own: str, root: str) -> dict[str, int]:
    """Returns the bits of headers that a parser's or deparser's statements extract or emit, by the control's names."""
    headers: dict[str, int] = {}
    for argument in filter(None, (call.args[0] for call in calls_in(node) if call.kind == kind and call.args)):
        text = ast.source_text(argument)
        path = root + text.removeprefix(own) if text == own or text.startswith(f"{own}.") else text
        for header, t in _headers(path, argument.type):
            headers[header] = sum(high - low + 1 for p, low, high in leaves(header, t) if not p.endswith("$valid"))
    return headers


def _extracted(gress: Gress, root: str) -> dict[str, int]:
    decl = gress.parser.decl
    return {
        h: bits for state in decl.states.values() for h, bits in _called(state, "packet_in", decl.params[1].name, root).items()
    }


def _longest(gress: Gress, root: str, sizes: dict[str, int]) -> list[str]:
    """Returns the headers on the path through the parser that extracts the most bits of those in `sizes`."""
    decl = gress.parser.decl
    memo: dict[str, list[str]] = {}

    def follow(state: ast.ParserState | None, seen: frozenset[str]) -> list[str]:
        if state is None or state.name in seen:
            return []
        if state.name in memo:
            return memo[state.name]
        own = [h for h in _called(state, "packet_in", decl.params[1].name, root) if h in sizes]
        branches = state.transition.branches if state.transition is not None else ()
        ways = [follow(branch.target, seen | {state.name}) for branch in branches]
        best = max(ways, key=lambda way: sum(sizes[h] for h in way), default=[])
        memo[state.name] = list(dict.fromkeys([*own, *best]))
        return memo[state.name]

    return follow(decl.states.get("start"), frozenset())
