"""Egress of v1model in two versions: the fast path, for packets with the common headers, and the general one.

Ingress sets `headers_stay` to 2, for all copies of a packet, if exactly the headers are valid that the longest path through the
parser extracts and they lie one after the other from the first byte. On the fast path their positions are constants, so egress
neither loads them nor computes what depends on them: half of its instructions in a program that aggregates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ina.p4.compiler import ir
from ina.p4.compiler.arch.emit_tna import TnaStatements
from ina.p4.compiler.layout import Offsets
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.optimise.fast_path import extracted

FAST_PATH = 2  # the value of `headers_stay` for packets of the fast path
LONGEST = 200  # statements of an egress that is worth having twice


class FastPath(TnaStatements):
    """Emits the code that sets and tests `headers_stay`."""

    module: ir.Module
    meta: Offsets
    carried: list[ir.Storage]

    def _meta_cell(self, v: ir.Var) -> str:
        raise TypeError("defined in emit")

    def _load(self, items: Sequence[ir.Storage]) -> None:
        raise TypeError("defined in emit")

    def _save(self) -> ir.Extern | None:
        """Returns the statement that ends ingress, if egress leaves the headers where they are."""
        saves = (s for s in ir.walk(self.module.ingress.body) if isinstance(s, ir.Extern) and s.op == "save")
        save = next(saves, None)
        return save if save is not None and save.targets else None

    def fast_path_headers(self) -> tuple[list[value_trees.Header], dict[int, int]] | None:
        """Returns the headers that the deparser emits, and the first byte of each that is valid on the fast path, by the id of
        its `valid` variable. None: egress is not worth having twice."""
        save, egress = self._save(), list(ir.walk(self.module.egress.body))
        if save is None or id(save.targets[0]) not in self.meta or len(egress) > LONGEST:
            return None
        if any(isinstance(stmt, ir.Label | ir.Goto) for stmt in egress):
            return None
        headers, _ = save.data
        valid, at, begin = {id(region.valid) for region in extracted(self.module.ingress)}, 0, {}
        for header in headers:
            if id(header.valid) in begin or header.region.valid is not header.valid:
                return None
            if id(header.valid) in valid:
                begin[id(header.valid)] = at
                at += header.region.size
        return (headers, begin) if begin else None

    def mark_fast_path(self, stays: str, used: Mapping[int, object]) -> None:
        """Emits the test at the end of ingress whether a packet's egress takes the fast path. `used`: ids of storage in use."""
        fast_path = self.fast_path_headers()
        if fast_path is None:
            return
        headers, begin = fast_path
        conditions = []
        for header in headers:
            if id(header.valid) in begin:
                conditions.append(self.c(header.valid))
            elif id(header.valid) in used:
                conditions.append(f"!{self.c(header.valid)}")
                region = header.region
                if region is not None and id(region) in used:
                    conditions.append(f"{self.name(region)} == ina_zeros")
        self.wrapped(f"if ({stays} && {' && '.join(conditions)}) {{ /* as in most packets */")
        self.line(f"    {stays} = {FAST_PATH};")
        self.line("}")

    def fast_path_constants(self) -> dict[int, str] | None:
        """Returns the C values, on the fast path, of headers' places and valid bits, by the id of region and variable."""
        fast_path = self.fast_path_headers()
        if fast_path is None:
            return None
        headers, begin = fast_path
        constants: dict[int, str] = {}
        for header in headers:
            at = begin.get(id(header.valid))
            constants[id(header.valid)] = "0u" if at is None else "1u"
            constants[id(header.region)] = "(uint8_t *)ina_zeros" if at is None else f"data + {at}"
        return constants

    def settle(self, body: list[ir.Stmt]) -> None:
        """Prepares ingress of the fast path: `settled` are the headers that were extracted and never move."""
        self.leave = "return 1"
        for stmt in ir.walk(body):
            if isinstance(stmt, ir.Extern) and isinstance(stmt.data, ir.Region):
                (self.settled.add if stmt.op == "extract_region" else self.settled.discard)(id(stmt.data))

    def fast_path_egress(self, body: list[ir.Stmt]) -> None:
        """Emits egress of the fast path before the general one."""
        constants, save = self.fast_path_constants(), self._save()
        if constants is None or save is None:
            return
        constants[id(save.targets[0])] = f"{FAST_PATH}u"
        self.line(f"if (ina_likely({self._meta_cell(save.target)} == {FAST_PATH}u)) {{")
        self.depth += 1
        for item in self.carried:
            if id(item) in constants:
                self.line(f"{self.name(item)} = {constants[id(item)]};")
            else:
                self._load([item])
        self.settled = {i for i, text in constants.items() if text.startswith("data")}  # egress leaves them there
        self.block(body)
        self.settled = set()
        self.line("return;")
        self.depth -= 1
        self.line("}")
