"""Lowering of the v1model architecture: its pipeline, objects and functions, with the semantics of BMv2's simple_switch.

Ingress ends as simple_switch's does: clone, digest, resubmit, multicast, drop, unicast, in this order; egress: drop,
recirculate, transmit. Values that were never written are zero.
"""

from __future__ import annotations

from typing import Any

from ina.p4.compiler import fold, ir
from ina.p4.compiler.lower.parser import CALL
from ina.p4.compiler.lower.pipeline import Pipelines
from ina.p4.compiler.lower.v1model_externs import DROP_PORT

_INGRESS_FIELDS = {
    "ingress_port": "pkt->ingress_port",
    "instance_type": "pkt->instance_type",
    "packet_length": "pkt->wire_len",
    "ingress_global_timestamp": "now / 1000000",
}
_KIND = ir.Native("pkt->instance_type", 32)
_EGRESS_CLONE = fold.eq(_KIND, fold.const(2, 32))
_EGRESS_FIELDS = {
    "egress_port": "pkt->egress_port",
    "egress_rid": "pkt->rid",
    "instance_type": "pkt->instance_type",
    "packet_length": "pkt->wire_len",
    "enq_timestamp": "pkt->enq_time / 1000000",
    "enq_qdepth": "pkt->enq_qdepth",
    "deq_timedelta": "(pkt->deq_time - pkt->enq_time) / 1000000",
    "deq_qdepth": "pkt->deq_qdepth",
    "egress_global_timestamp": "now / 1000000",
}


class V1Model(Pipelines):
    """Lowers a program whose package is V1Switch."""

    _cloned_headers: Any = None

    # --- the pipeline -----------------------------------------------------------------------------------------------

    def lower(self) -> ir.Module:
        main = self.program.main
        assert main is not None
        self.instance = main
        parser, verify, ingress, egress, compute, deparser = (main.args[p.name] for p in main.decl.params)
        _, self.headers, self.meta, self.standard = (
            None if i == 0 else self.storage.place(p.type, name, in_packet=i == 1)
            for i, (p, name) in enumerate(zip(parser.decl.params, ("packet", "hdr", "meta", "standard_metadata"), strict=True))
        )
        self.header_type = parser.decl.params[1].type
        self.parser_error = self.standard.fields["parser_error"]
        packet = "packet"
        top = [self.headers, self.meta, self.standard]
        self.emit(ir.Extern("restore", [], [], ("INA_RESUBMITTED", "INA_RECIRCULATED")))
        self._set_standard(_INGRESS_FIELDS)
        reject = self.reject_label = self.new_label("reject")
        self.enter_parser(parser, [packet, *top], CALL)
        self.emit(ir.Label(self.reject_label))
        self.reject_label = ""
        self.control(verify, top[:2])
        end = self.new_label("end")
        clones = len(self.out)
        self.control(ingress, top)
        self._ingress_verdict()
        ingress_body, self.out = self.out, []

        self.in_egress = True
        self._set_standard(_EGRESS_FIELDS)
        self.emit(ir.Assign(self.standard.fields["egress_spec"], fold.const(0, 9)))
        begin = len(self.out)
        self.control(egress, top)
        dropped = fold.eq(self.standard.fields["egress_spec"], fold.const(DROP_PORT, 9))
        cloned = self._flag_or_zero("clone")
        if isinstance(cloned, ir.Var):  # the clone of a dropped packet still needs its frame
            dropped_now = fold.land(dropped, fold.eq(cloned, fold.const(0, 32)))
        else:
            dropped_now = dropped
        self.emit(ir.If(dropped_now, [ir.Extern("drop", [], [])]))
        if "E2E" in self.used:
            self.emit(ir.If(self._flag_or_zero("clone"), self.block(self._copy_headers)))
            self.out[begin:begin] = self.block(self._length_of_clone)
        self.control(compute, top[:2])
        deparse = self.block(lambda: self.deparse(deparser, ["packet", self.headers]))
        deparse += self.block(self.write_frame)
        stays = None if "E2E" in self.used else self._stays(deparse)
        self.out += deparse if stays is None else [ir.If(fold.lnot(stays), deparse)]
        if "E2E" in self.used:
            self.emit(ir.Assign(self.payload_at, self.out_length))
        grow = self.max_grow()
        self._egress_verdict(dropped)
        egress_body, self.out = self.out, []

        if "I2E" in self.used:
            ingress_body[clones:clones] = self.block(lambda: self._parsed_clone(end))
        if "E2E" in self.used:
            ingress_body[:0] = self.block(lambda: self._egress_clone(end))
        if {"I2E", "E2E"} & self.used:
            ingress_body.append(ir.Label(end))
        flags: list[ir.Expr] = [self.flags[k] for k in ("ingress_clone", "ingress_digest") if k in self.flags]
        order = [header for header, _ in self.emitted]
        ingress_body.append(ir.Extern("save", [] if stays is None else [stays], flags, (order, self.cursor)))
        for region in self.storage.regions:
            if self.needs_original:
                region.in_place = False
            region.own_buffer |= not region.in_place
        self.unused_objects()
        module = ir.Module(
            self.program.filename,
            ir.Phase(ingress_body, reject),
            ir.Phase(egress_body),
            [register for cells in self.registers.values() for register in cells],
            list(self.counters.values()),
            sorted((t for t in self.tables.values()), key=lambda t: t.index),
            self.storage.regions,
            grow,
            self.program.errors,
            self.uses_random,
            digests=self.digests,
            meters=list(self.meters.values()),
            messages=self.messages,
        )
        module.preserved = self.preserved
        for stmt in ir.walk(ingress_body):
            if isinstance(stmt, ir.Extern) and stmt.op == "restore":
                stmt.targets = [v for values in self.preserved.values() for v in values]
        for name, root in (("hdr", self.headers), ("meta", self.meta), ("standard_metadata", self.standard)):
            self.name_fields(module.fields, name, root)
        return module

    def _stays(self, deparse: list[ir.Stmt]) -> ir.Var | None:
        """Returns a variable that is true if the deparser has nothing to move, which ingress can compute once for all copies of
        a packet if egress leaves all headers where they are. None if it does not."""
        headers = [header for header, _ in self.emitted]
        if not headers or any(h.region is None or not isinstance(h.valid, ir.Var) for h in headers):
            return None
        valid = {id(h.valid) for h in headers}
        for stmt in ir.walk(self.out):
            if isinstance(stmt, ir.Extern) and (isinstance(stmt.data, ir.Region) or stmt.op == "copy_region"):
                return None
            if any(id(target) in valid for target in ir.writes(stmt)):
                return None
        outputs = {id(place) for _, place in self.emitted} | {id(self.out_length)}
        for stmt in ir.walk(deparse):
            plain = isinstance(stmt, ir.Label) or isinstance(stmt, ir.If) and id(stmt.condition) in valid
            if not plain and not (isinstance(stmt, ir.Assign) and id(stmt.target) in outputs):
                if not (isinstance(stmt, ir.Extern) and stmt.op == "deparse"):
                    return None
        if sum(isinstance(stmt, ir.If) for stmt in deparse) != len(headers):
            return None
        return ir.Var("headers_stay", 1)

    def _parsed_clone(self, end: str) -> None:
        """Lowers a clone of ingress, which is parsed again; then its metadata starts anew, except for the preserved fields (as
        in BMv2)."""

        def restart() -> None:
            self.reset(self.meta, CALL)
            self.reset(self.standard, CALL)
            self.emit(ir.Extern("restore", [], [], ("INA_INGRESS_CLONE",)))
            self._to_egress(end)

        body = self.block(restart)
        self.emit(ir.If(fold.eq(_KIND, fold.const(1, 32)), body))

    def _egress_clone(self, end: str) -> None:
        """Lowers a clone of egress. Its headers are those that egress left, without deparsing and parsing: they are stored with
        the preserved fields. Behind them comes the frame, from the end of the deparser's output on."""

        def bring() -> None:
            self.emit(ir.Extern("restore", [], [], ("INA_EGRESS_CLONE",)))
            self.assign(self.headers, self.cloned_headers(), CALL)
            self.emit(ir.Assign(self.cursor, self.payload_at))
            self._to_egress(end)

        self.emit(ir.If(_EGRESS_CLONE, self.block(bring)))

    def _copy_headers(self) -> None:
        self.assign(self.cloned_headers(), self.headers, CALL)
        self.emit(ir.Assign(self.length, fold.cond(_EGRESS_CLONE, self.length, ir.Native("pkt->wire_len", 32))))

    def _length_of_clone(self) -> None:
        """Sets a clone's packet_length to that of the packet that came in; the frame has the deparser's length."""
        self.emit(ir.If(_EGRESS_CLONE, [ir.Assign(self.standard.fields["packet_length"], self.length)]))

    def _to_egress(self, end: str) -> None:
        self._set_standard({"instance_type": "pkt->instance_type"})
        self.emit(ir.Extern("unicast", [], [ir.Native("pkt->egress_port", 32)]))
        self.emit(ir.Goto(end))

    def cloned_headers(self) -> Any:
        """Returns the storage of a clone's headers between the two egress passes."""
        if self._cloned_headers is None:
            self._cloned_headers = self.storage.place(self.header_type, "cloned_hdr")
        return self._cloned_headers

    def _set_standard(self, fields: dict[str, str]) -> None:
        for name, text in fields.items():
            target = self.standard.fields[name]
            self.emit(ir.Assign(target, fold.cast(ir.Native(text, 64), target.width)))

    # --- verdicts ---------------------------------------------------------------------------------------------------

    def _flag_or_zero(self, name: str) -> ir.Expr:
        key = f"{'egress' if self.in_egress else 'ingress'}_{name}"
        return self.flags.get(key, fold.const(0, 32))

    def _ingress_verdict(self) -> None:
        standard = self.standard.fields
        self.emit(
            ir.Extern(
                "describe",
                [],
                [
                    self._flag_or_zero("clone"), self._flag_or_zero("clone_session"), self._flag_or_zero("clone_list"),
                    self._flag_or_zero("digest"),
                ],
            )
        )
        verdict: list[ir.Stmt] = [
            ir.If(
                fold.lnot(fold.eq(standard["mcast_grp"], fold.const(0, 16))),
                [ir.Extern("multicast", [], [standard["mcast_grp"]])],
                [
                    ir.If(
                        fold.eq(standard["egress_spec"], fold.const(DROP_PORT, 9)),
                        [ir.Extern("ingress_drop", [], [])],
                        [ir.Extern("unicast", [], [standard["egress_spec"]])],
                    )
                ],
            )
        ]
        resubmit = self._flag_or_zero("resubmit")
        if isinstance(resubmit, ir.Var):
            again: list[ir.Stmt] = [ir.Extern("resubmit", [], [self._flag_or_zero("resubmit_list")])]
            verdict = [ir.If(fold.lnot(fold.eq(resubmit, fold.const(0, 32))), again, verdict)]
        self.out += verdict

    def _egress_verdict(self, dropped: ir.Expr) -> None:
        if isinstance(self._flag_or_zero("clone"), ir.Var):
            self.emit(
                ir.Extern(
                    "describe",
                    [],
                    [
                        self._flag_or_zero("clone"), self._flag_or_zero("clone_session"), self._flag_or_zero("clone_list"),
                        fold.const(0, 32),
                    ],
                )
            )
            self.emit(ir.Extern("preserve", [], [self._flag_or_zero("clone")]))
            self.emit(ir.If(dropped, [ir.Extern("drop", [], [])]))
        self.emit(ir.Extern("transmit", [], [self._flag_or_zero("recirculate"), self._flag_or_zero("recirculate_list")]))
