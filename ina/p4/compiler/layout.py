"""Memory layout: registers and counters in the state block, carried values in the packet's metadata.

State:  [random seed 64] register groups, each 64-byte aligned | meters and filters, 64 bytes each | statistics: counters,
        16 bytes each (packets, bytes).
        Registers of one size that the program indexes by the same value form a group: row i holds cell i of each of
        them, small ones first, then (cache-line aligned) long runs; rows are padded to the cache line. A single
        register is an array; arrays are spaced so that equal indices do not fall into one cache set.
Meta:   [struct ina_tna] carried variables, largest first | digests | preserved fields | headers in their own buffers.
"""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import asdict, dataclass, field
from typing import Any

from ina.p4.compiler import ir
from ina.p4.compiler.emit.expressions import cell_bytes

LINE = 64
TNA_BYTES = 128  # struct ina_tna, rounded up


@dataclass(slots=True)
class Offsets:
    """Places in the metadata: of variables, arrays and regions' own buffers; `places`: of the variables that say where regions
    lie."""

    storage: dict[ir.Storage, int] = field(default_factory=dict)
    places: dict[ir.Region, int] = field(default_factory=dict)


def align(n: int, to: int) -> int:
    return -(-n // to) * to


def place_state(module: ir.Module, groups: list[list[ir.Register]], bulk: set[ir.Register]) -> None:
    """Sets offset, stride, bytes and group of all registers and the offsets of counters; fills `module.layout`.

    `bulk`: the registers that loops run over; they keep their order and start on a cache line.
    """
    at = 0
    if module.uses_random:
        module.layout["random_offset"] = 0
        at = LINE
    for number, group in enumerate(groups):
        for register in group:
            register.bytes = cell_bytes(register.width)
            register.group = number
        at = _place_group(group, at, bulk)
    states: list[ir.Meter | ir.Filter] = [*module.meters, *module.filters]
    for cells in states:
        cells.offset = at = align(at, LINE)
        at += LINE * cells.size
    for table in module.tables:
        if table.hits is not None:
            table.hits = at = align(at, LINE)
            at += table.size
    module.layout["stats_offset"] = at = align(at, LINE)
    for counter in (*module.counters, *(counter for *_, counter in module.messages)):
        counter.offset = at
        at += 16 * counter.size
    module.layout["state_size"] = align(max(at, 1), LINE)


def _place_group(group: list[ir.Register], at: int, bulk: set[ir.Register]) -> int:
    at = align(at, LINE)
    if len(group) == 1:
        register = group[0]
        register.offset, register.stride = at, register.bytes
        # One line more than a multiple of the page keeps arrays of power-of-two size out of each other's sets.
        return at + align(register.bytes * register.size, LINE) + LINE
    offset = 0
    for in_bulk in (False, True):
        members = [r for r in group if (r in bulk) == in_bulk]
        for size in sorted({r.bytes for r in members}, reverse=True):
            offset = align(offset, LINE) if in_bulk else offset
            for register in members:
                if register.bytes == size:
                    register.offset, offset = at + offset, offset + size
    # Small rows may share a cache line, but must not straddle two.
    stride = align(offset, LINE) if offset > LINE // 2 else 1 << max(0, offset - 1).bit_length()
    for register in group:
        register.stride = stride
    return at + stride * group[0].size


def place_meta(module: ir.Module, carried: list[ir.Storage]) -> Offsets:
    """Returns the places in the metadata of what egress takes over from ingress, digests, preserved fields and regions."""
    offsets = Offsets()
    at = TNA_BYTES if module.architecture == "tna" else 0

    def put(item: ir.Storage, size: int, alignment: int) -> None:
        nonlocal at
        if item in offsets.storage:
            return
        at = align(at, alignment)
        offsets.storage[item] = at
        at += size

    items = list(carried)
    items += [f.var for digest in module.digests for f in digest.fields]
    items += [v.array if isinstance(v, ir.Elem) else v for values in module.preserved.values() for v in values]
    variables = [v for v in items if isinstance(v, ir.Var)]
    for v in variables:
        if cell_bytes(v.width) > 4:
            put(v, cell_bytes(v.width), cell_bytes(v.width))
    for region in (item for item in carried if isinstance(item, ir.Region)):
        at = align(at, 4)
        offsets.places[region] = at
        at += 4
    for v in sorted(variables, key=lambda v: -cell_bytes(v.width)):
        put(v, cell_bytes(v.width), cell_bytes(v.width))
    for array in items:
        if isinstance(array, ir.Array):
            put(array, array.count * array.width // 8, LINE)
    for region in module.regions:
        if region.own_buffer:
            put(region, region.size, LINE if region.size > LINE else 8)
    module.layout["meta_size"] = align(max(at, 1), LINE)
    return offsets


def describe(module: ir.Module, meta: Offsets) -> dict[str, Any]:
    """Returns the layout that the program publishes as JSON.

    Sizes, strides and offsets are bytes, widths bits, `word`s 64-bit words. Offsets of registers and counters count from the
    state's start, of metadata and digest fields from `pkt->meta`. Entries are in the order in which they win; 64-bit numbers
    are decimal strings.
    """

    def entry(t: ir.Table, i: int) -> dict[str, Any]:
        e = t.entries[i]
        names = [("low", "high") if k.match == "range" else ("value", "mask") for k in t.keys]
        return {
            "keys": [{a: str(v), b: str(m)} for (a, b), (v, m) in zip(names, e.keys, strict=True)],
            "action": e.action,
            "params": [str(w) for w in e.params],
            "const": e.const,
            "priority": len(t.entries) - i,
        }

    def key(k: ir.Key) -> dict[str, Any]:
        written = {"written": k.written} if k.written else {}
        return {"name": k.name, "width": k.width, "match": k.match, **written, "word": k.word}

    def table(t: ir.Table) -> dict[str, Any]:
        return {
            "name": t.name,
            "index": t.index,
            "kind": t.kind,
            "key_words": t.key_words,
            "keys": [key(k) | {"shift": k.shift} for k in t.keys],
            "param_words": t.param_words,
            "size": t.size,
            "const_entries": t.const_entries,
            "chained": t.chained,
            "default_action": t.default_action,
            "default_params": [str(w) for w in t.default_params],
            "const_default": t.const_default,
            "direct_counter": t.counter.name if t.counter else None,
            "direct_meter": t.meter.name if t.meter else None,
            "profile": t.profile,
            "hits": t.hits,
            "key_mask": t.key_mask.name if t.key_mask else None,
            "actions": [{"name": a.name, "params": [asdict(p) for p in a.params]} for a in t.actions],
            "entries": [entry(t, i) for i in range(len(t.entries))],
        }

    return {
        "state": {"size": module.layout["state_size"], "stats_offset": module.layout["stats_offset"], "align": LINE},
        "meta": {"size": module.layout["meta_size"], "align": LINE},
        "registers": [
            {
                "name": r.name,
                "width": r.width,
                "signed": r.signed,
                "size": r.size,
                "offset": r.offset,
                "stride": r.stride,
                "bytes": r.bytes,
                "initial": str(r.initial),
                "table": r.table,
                "param": r.param,
            }
            for r in module.registers
        ],
        "counters": [
            {"name": c.name, "type": c.kind, "size": c.size, "offset": c.offset, "stride": 16, "table": c.table}
            for c in module.counters
        ],
        "meters": [
            {"name": m.name, "type": m.kind, "size": m.size, "offset": m.offset, "table": m.table}
            for m in module.meters
        ],
        "filters": [
            {"name": f.name, "type": f.kind, "size": f.size, "offset": f.offset, "table": f.table} for f in module.filters
        ],
        "hashes": [
            {
                "name": h.name,
                "width": h.width,
                "used": h.used,
                "fields": [{"name": name, "width": width, "constant": constant} for name, width, constant in h.fields],
                "configure": h.configure.name,
                "initial": h.initial,
            }
            for h in module.hashes
            if h.call is not None
        ],
        "pipeline": module.pipeline,
        "selectors": {name: list(selector) for name, selector in module.selectors.items()},
        "port_metadata": {
            "name": module.port_metadata[0],
            "unpacked": module.port_metadata[2],
            "key": module.port_metadata[3],
            "fields": [{"name": name, "width": width, "bit": bit} for name, width, bit in module.port_metadata[1]],
        },
        "messages": [{"text": text, "where": where, "offset": c.offset} for text, where, c in module.messages],
        "tables": [table(t) for t in module.tables if not t.value_set],
        "value_sets": [
            {"name": t.name, "index": t.index, "key_words": t.key_words, "keys": [key(k) for k in t.keys], "size": t.size}
            for t in module.tables
            if t.value_set
        ],
        "digests": [
            {
                "name": d.name,
                "number": d.number,
                "fields": [
                    {
                        "name": f.name,
                        "width": f.var.width,
                        "offset": meta.storage[f.var],
                        "bytes": cell_bytes(f.var.width),
                    }
                    for f in d.fields
                ],
            }
            for d in module.digests
        ],
        "metadata": [
            {"name": name, "width": place.width, "offset": meta.storage[place], "bytes": cell_bytes(place.width)}
            for name, place in module.fields.items()
            if isinstance(place, ir.Var) and place in meta.storage
        ],
        "errors": module.errors,
    }


# --- rows of registers ------------------------------------------------------------------------------------------------


def groups(module: ir.Module) -> list[list[ir.Register]]:
    """Returns all registers, in groups that share a row; within one in order of first use, which is how loops will run over them.

    The layout is right whatever the program does; it is fast when one packet touches the same row of all of them. So registers go
    together when they have one size and are most often indexed by one expression.
    """
    used: dict[ir.Register, Tally[object]] = {}
    first: dict[ir.Register, int] = {}
    for stmt in module.statements():
        if isinstance(stmt, ir.RegRead | ir.RegWrite):
            used.setdefault(stmt.register, Tally())[ir.key(stmt.index)] += 1
            first.setdefault(stmt.register, len(first))
    by_key: dict[object, list[ir.Register]] = {}
    # Registers of pairs: all first words, then all second ones.
    for register in sorted(module.registers, key=lambda r: (r.part, first.get(r, len(first)))):
        tally = used.get(register)
        # One of several indices, if it is a constant or a variable, means a scalar or an array with a life of its own.
        index = tally.most_common(1)[0][0] if tally else None
        alone = tally is None or index is None or isinstance(index, int | ir.Expr) and register.size > 1 and len(tally) > 1
        by_key.setdefault(register if alone else (register.size, index), []).append(register)
    return list(by_key.values())
