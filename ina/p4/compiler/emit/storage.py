"""Stores and loads of what a packet takes along in its metadata, from ingress to egress and into further passes."""

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
