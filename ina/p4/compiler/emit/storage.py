"""Values as bytes in C: what a packet takes along in its metadata (into egress, further passes), and words in wire order."""

from __future__ import annotations

from collections.abc import Iterable

from ina.p4.compiler import ir
from ina.p4.compiler.emit.expressions import c_type, cell, cell_bytes
from ina.p4.compiler.emit.wide import is_wide
from ina.p4.compiler.emit.writer import Writer


def load(w: Writer, items: Iterable[ir.Storage]) -> None:
    for item in items:
        if isinstance(item, ir.Region):
            _load_region(w, item)
        elif isinstance(item, ir.Array):
            w.line(f"memcpy({w.name(item)}, meta + {w.meta.storage[item]}, sizeof {w.name(item)});")
        else:
            cast = "" if is_wide(item.width) else f"({c_type(item.width)})"
            w.line(f"{w.name(item)} = {cast}{meta_cell(w, item)};")


def meta_cell(w: Writer, v: ir.Var) -> str:
    return cell(f"meta + {w.meta.storage[v]}", cell_bytes(v.width))


def store(w: Writer, items: Iterable[ir.Storage]) -> None:
    for item in items:
        if isinstance(item, ir.Region):
            _store_region(w, item)
        elif isinstance(item, ir.Array):
            w.line(f"memcpy(meta + {w.meta.storage[item]}, {w.name(item)}, sizeof {w.name(item)});")
        else:
            size = cell_bytes(item.width)
            narrow = f"(uint{8 * size}_t)" if size < 4 else ""
            w.line(f"{meta_cell(w, item)} = {narrow}{w.name(item)};")


def _load_region(w: Writer, region: ir.Region) -> None:
    """Loads a header's place, which is relative to the frame since a replica lies elsewhere. -1: none, -2: its own buffer."""
    name, place = w.name(region), f"*(const int32_t *)(void *)(meta + {w.meta.places[region]})"
    text = f"data + {place}"
    if region.own_buffer:
        text = f"{place} == -2 ? {w.buffer(region)} : {text}"
    w.line(f"{name} = {place} == -1 ? (uint8_t *)ina_zeros : {text};")


def _store_region(w: Writer, region: ir.Region) -> None:
    name = w.name(region)
    text = f"(int32_t)({name} - data)"
    if region in w.settled:
        w.line(f"*(int32_t *)(void *)(meta + {w.meta.places[region]}) = {text};")
        return
    if region.own_buffer:
        text = f"{name} == {w.buffer(region)} ? -2 : {text}"
    elsewhere = f" || {name} == {name}_room" if region in w.stack_buffers else ""
    w.line(
        f"*(int32_t *)(void *)(meta + {w.meta.places[region]}) ="
        f" {name} == ina_zeros{elsewhere} ? -1 : {text};"
    )


# --- values as bytes in wire order ------------------------------------------------------------------------------------


def packed(w: Writer, values: list[ir.Expr]) -> list[tuple[str, int]]:
    """Returns values one after the other in wire order as big-endian words of at most 64 bits: (C text, bits)."""
    words: list[tuple[str, int]] = []
    parts: list[str] = []
    used = 0
    for value in values:
        remaining = value.width
        while remaining:
            take = min(remaining, 64 - used)
            low = remaining - take
            if is_wide(value.width):
                text = w.expressions.wide.piece(value, low, take)
            else:
                text = w.c(value)
                if low:
                    text = f"({text} >> {low})"
            if remaining < value.width and not is_wide(value.width):  # not the first piece: bits above it have been written
                text = f"((uint64_t){text} & {(1 << take) - 1}ull)"
            shift = 64 - used - take
            parts.append(f"(uint64_t){text} << {shift}" if shift else f"(uint64_t){text}")
            used += take
            remaining = low
            if used == 64:
                words.append((" | ".join(f"({p})" for p in parts), 64))
                parts, used = [], 0
    if used:
        words.append((" | ".join(f"({p})" for p in parts), used))
    return words


def put_bits(w: Writer, into: str, value: ir.Expr, width: str) -> None:
    """Emits the copy of a value's low `width` bits into zeroed bytes from bit `at` on, which moves behind them."""
    if is_wide(value.width):
        w.line(f"ina_put_bits({into}, at, ({w.c(value)}).w, {width});")
    elif value.width > 64:
        text = w.c(value)
        w.line(f"ina_put_bits({into}, at, (const uint64_t[2]){{(uint64_t){text}, (uint64_t)({text} >> 64)}}, {width});")
    else:
        w.line(f"ina_put64({into}, at, {w.c(value)}, {width});")
    w.line(f"at += {width};")
