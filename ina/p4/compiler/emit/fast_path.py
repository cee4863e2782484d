"""Egress of v1model in two versions: the fast path, for packets with the common headers, and the general one.

Ingress sets `headers_stay` to 2, for all copies of a packet, if exactly the headers are valid that the longest path through the
parser extracts and they lie one after the other from the first byte. On the fast path their positions are constants, so egress
neither loads them nor computes what depends on them: half of its instructions in a program that aggregates.
"""

from __future__ import annotations

from collections.abc import Callable

from ina.p4.compiler import ir
from ina.p4.compiler.arch.v1model_operations import Save
from ina.p4.compiler.emit.storage import load, meta_cell
from ina.p4.compiler.emit.usage import Used
from ina.p4.compiler.emit.writer import Writer
from ina.p4.compiler.lower.value_trees import Header
from ina.p4.compiler.operations import ExtractRegion, OfRegion
from ina.p4.compiler.optimise.fast_path import extracted

FAST_PATH = 2  # the value of `headers_stay` for packets of the fast path
LONGEST = 200  # statements of an egress that is worth having twice


def _save(w: Writer) -> Save | None:
    """Returns the statement that ends ingress, if egress leaves the headers where they are."""
    save = next((s for s in ir.walk(w.module.ingress.body) if isinstance(s, Save)), None)
    return save if save is not None and save.targets else None


def _headers(w: Writer) -> tuple[list[Header], dict[ir.Expr, int]] | None:
    """Returns the headers that the deparser emits, and the first byte of each that is valid on the fast path, by its
    `valid` variable. None: egress is not worth having twice."""
    save, egress = _save(w), list(ir.walk(w.module.egress.body))
    if save is None or save.target not in w.meta.storage or len(egress) > LONGEST:
        return None
    if any(isinstance(stmt, ir.Label | ir.Goto) for stmt in egress):
        return None
    valid, at = {region.valid for region in extracted(w.module.ingress)}, 0
    begin: dict[ir.Expr, int] = {}
    for header in save.headers:
        region = header.region
        if header.valid in begin or region is None or region.valid is not header.valid:
            return None
        if header.valid in valid:
            begin[header.valid] = at
            at += region.size
    return (save.headers, begin) if begin else None


def mark_fast_path(w: Writer, stays: str, used: Used) -> None:
    """Emits the test at the end of ingress whether a packet's egress takes the fast path. `used`: storage in use."""
    fast_path = _headers(w)
    if fast_path is None:
        return
    headers, begin = fast_path
    conditions = []
    for header in headers:
        if header.valid in begin:
            conditions.append(w.c(header.valid))
        elif header.flag in used:
            conditions.append(f"!{w.c(header.valid)}")
            region = header.region
            if region is not None and region in used:
                conditions.append(f"{w.name(region)} == ina_zeros")
    w.wrapped(f"if ({stays} && {' && '.join(conditions)}) {{ /* as in most packets */")
    w.line(
        f"    {stays} = {FAST_PATH};",
        "}",
    )


def fast_path_constants(w: Writer) -> dict[ir.Storage, str] | None:
    """Returns the C values, on the fast path, of headers' places and valid bits, by region and variable."""
    fast_path = _headers(w)
    if fast_path is None:
        return None
    headers, begin = fast_path
    constants: dict[ir.Storage, str] = {}
    for header in headers:
        at = begin.get(header.valid)
        constants[header.flag] = "0u" if at is None else "1u"
        assert header.region is not None  # `save` has a target only where all lie in wire order
        constants[header.region] = "(uint8_t *)ina_zeros" if at is None else f"data + {at}"
    return constants


def settle(w: Writer, body: list[ir.Stmt]) -> None:
    """Prepares ingress of the fast path: `settled` are the headers that were extracted and never move."""
    w.leave = "return 1"
    for stmt in ir.walk(body):
        if isinstance(stmt, OfRegion):
            (w.settled.add if isinstance(stmt, ExtractRegion) else w.settled.discard)(stmt.region)


def fast_path_egress(w: Writer, body: list[ir.Stmt], block: Callable[[list[ir.Stmt]], None]) -> None:
    """Emits egress of the fast path before the general one."""
    constants, save = fast_path_constants(w), _save(w)
    if constants is None or save is None:
        return
    constants[save.target] = f"{FAST_PATH}u"
    with w.braces(f"if (ina_likely({meta_cell(w, save.target)} == {FAST_PATH}u)) {{"):
        for item in w.carried:
            if item in constants:
                w.line(f"{w.name(item)} = {constants[item]};")
            else:
                load(w, [item])
        w.settled = {
            item for item, text in constants.items() if isinstance(item, ir.Region) and text.startswith("data")
        }  # egress leaves them there
        block(body)
        w.settled = set()
        w.line("return;")
