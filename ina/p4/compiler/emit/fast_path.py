"""Egress of v1model twice: once for packets whose headers lie as in most, where all positions are constants, once for any.

Ingress tells for all copies of a packet (`headers_stay` is 2) whether those headers are valid that the longest way through the
parser extracts, one after the other from the first byte, and no others. That takes away the positions that egress would have to
load, and everything that depends on them: half of its instructions in a program that aggregates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ina.p4.compiler import ir
from ina.p4.compiler.arch.emit_tna import TnaStatements
from ina.p4.compiler.layout import Offsets
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.optimise.fast_path import extracted

USUAL = 2  # the value of `headers_stay`
LONGEST = 200  # statements of an egress that is worth having twice


class FastPath(TnaStatements):
    """What the emitter says about `headers_stay`."""

    module: ir.Module
    meta: Offsets
    carried: list[ir.Storage]

    def _meta_cell(self, v: ir.Var) -> str:
        raise TypeError("defined in emit")

    def _load(self, items: Sequence[ir.Storage]) -> None:
        raise TypeError("defined in emit")

    def _save(self) -> ir.Extern | None:
        """The end of ingress, if egress leaves the headers where they are."""
        found = (s for s in ir.walk(self.module.ingress.body) if isinstance(s, ir.Extern) and s.op == "save")
        save = next(found, None)
        return save if save is not None and save.targets else None

    def usual(self) -> tuple[list[value_trees.Header], dict[int, int]] | None:
        """The headers that the deparser emits, and where those begin that are usually valid, by the id of that variable; at
        None: where they end. None: egress is not worth having twice.
        """
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

    def usual_stay(self, stays: str, known: Mapping[int, object]) -> None:
        """In ingress: whether they do."""
        usual = self.usual()
        if usual is None:
            return
        headers, begin = usual
        wanted = []
        for header in headers:
            if id(header.valid) in begin:
                wanted.append(self.c(header.valid))
            elif id(header.valid) in known:
                wanted.append(f"!{self.c(header.valid)}")
                region = header.region
                if region is not None and id(region) in known:
                    wanted.append(f"{self.name(region)} == ina_zeros")
        self.wrapped(f"if ({stays} && {' && '.join(wanted)}) {{ /* as in most packets */")
        self.line(f"    {stays} = {USUAL};")
        self.line("}")

    def usual_constants(self) -> dict[int, str] | None:
        """Where such packets have headers and which are valid, by the id of region and variable."""
        usual = self.usual()
        if usual is None:
            return None
        headers, begin = usual
        constants: dict[int, str] = {}
        for header in headers:
            at = begin.get(id(header.valid))
            constants[id(header.valid)] = "0u" if at is None else "1u"
            constants[id(header.region)] = "(uint8_t *)ina_zeros" if at is None else f"data + {at}"
        return constants

    def settle(self, body: list[ir.Stmt]) -> None:
        """For ingress of usual packets: the headers that were extracted and get no other place."""
        self.leave = "return 1"
        for stmt in ir.walk(body):
            if isinstance(stmt, ir.Extern) and isinstance(stmt.data, ir.Region):
                (self.settled.add if stmt.op == "extract_region" else self.settled.discard)(id(stmt.data))

    def usual_egress(self, body: list[ir.Stmt]) -> None:
        """Egress for such packets."""
        constants, save = self.usual_constants(), self._save()
        if constants is None or save is None:
            return
        constants[id(save.targets[0])] = f"{USUAL}u"
        self.line(f"if (ina_likely({self._meta_cell(save.target)} == {USUAL}u)) {{")
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
