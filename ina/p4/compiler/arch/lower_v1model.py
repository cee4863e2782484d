"""Lowering of the v1model architecture: its pipeline, with the semantics of BMv2's simple_switch.

Ingress ends as simple_switch's does: clone, digest, resubmit, multicast, drop, unicast, in this order; egress: drop,
recirculate, transmit. Values that were never written are zero.
"""

from __future__ import annotations

from ina.p4.compiler import fold, ir
from ina.p4.compiler.arch import v1model_operations as ops
from ina.p4.compiler.arch.v1model_machine import DROP_PORT
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.externs.copies import Copies, cloned_headers
from ina.p4.compiler.externs.extern import Objects
from ina.p4.compiler.externs.user import UserCode
from ina.p4.compiler.instances import instances_of
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import CALL
from ina.p4.compiler.lower.lowering import ExternLowering, Lowering
from ina.p4.compiler.operations import Deparse

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


def lower_v1switch(program: CheckedProgram, externs: ExternLowering) -> ir.Module:
    """Returns the module of a program whose package is V1Switch."""
    return _V1Switch(Lowering(program, program.package, externs)).lower()


class _V1Switch:
    def __init__(self, low: Lowering) -> None:
        self.low, self.context, self.code = low, low.context, low.code
        self.copies = low.state(Copies)

    # --- the pipeline -----------------------------------------------------------------------------------------------

    def lower(self) -> ir.Module:
        low, context, code, main = self.low, self.context, self.code, self.low.program.package
        parser, verify, ingress, egress, compute, deparser = (main.args[p.name] for p in main.decl.params)
        for name, param in zip(("hdr", "meta", "standard_metadata"), parser.decl.params[1:], strict=True):
            low.places[name] = context.storage.place(param.type, name, in_packet=name == "hdr")
        self.headers, self.meta, self.standard = low.places.values()
        context.parser_error = low.field("standard_metadata", "parser_error")
        top = [self.headers, self.meta, self.standard]
        code.emit(ops.Restore(("INA_RESUBMITTED", "INA_RECIRCULATED")))
        self._set_standard(_INGRESS_FIELDS)
        reject = context.reject_label = code.label("reject")
        low.parsers.enter_parser(parser, ["packet", *top], CALL)
        code.emit(ir.Label(context.reject_label))
        context.reject_label = ""
        low.inliner.control(verify, top[:2])
        end = code.label("end")
        clones = len(code.out)
        low.inliner.control(ingress, top)
        self._ingress_verdict()
        ingress_body = code.taken()

        context.in_egress = True
        self._set_standard(_EGRESS_FIELDS)
        code.emit(ir.Assign(low.field("standard_metadata", "egress_spec"), fold.const(0, 9)))
        begin = len(code.out)
        low.inliner.control(egress, top)
        dropped = fold.eq(low.field("standard_metadata", "egress_spec"), fold.const(DROP_PORT, 9))
        cloned = context.flag_or_zero("clone")  # the clone of a dropped packet still needs its frame
        code.emit(ir.If(fold.land(dropped, fold.eq(cloned, fold.const(0, 32))), [ops.Drop()]))
        if "E2E" in self.copies.kinds:
            code.emit(ir.If(context.flag_or_zero("clone"), code.block(self._copy_headers)))
            code.out[begin:begin] = code.block(self._length_of_clone)
        low.inliner.control(compute, top[:2])
        deparse = code.block(lambda: low.deparsers.deparse(deparser, ["packet", self.headers]))
        deparse += code.block(low.deparsers.write_frame)
        stays = None if "E2E" in self.copies.kinds else self._stays(deparse)
        code.out += deparse if stays is None else [ir.If(fold.lnot(stays), deparse)]
        if "E2E" in self.copies.kinds:
            code.emit(ir.Assign(self.copies.payload_at, context.out_length))
        grow = low.deparsers.max_grow()
        self._egress_verdict(dropped)
        egress_body = code.taken()

        if "I2E" in self.copies.kinds:
            ingress_body[clones:clones] = code.block(lambda: self._parsed_clone(end))
        if "E2E" in self.copies.kinds:
            ingress_body[:0] = code.block(lambda: self._egress_clone(end))
        if self.copies.kinds:
            ingress_body.append(ir.Label(end))
        flags: list[ir.Expr] = [context.flags[k] for k in ("ingress_clone", "ingress_digest") if k in context.flags]
        order = [header for header, _ in low.deparsers.emitted]
        ingress_body.append(ops.Save(order, context.cursor, targets=[] if stays is None else [stays], args=flags))
        for region in context.storage.regions:
            if self.copies.needs_original:
                region.in_place = False
            region.own_buffer |= not region.in_place
        for instance in instances_of(low.program):
            low.externs.declare(low, instance)
        return self._module(ir.Phase(ingress_body, reject), ir.Phase(egress_body), grow)

    def _module(self, ingress: ir.Phase, egress: ir.Phase, grow: int) -> ir.Module:
        low, objects = self.low, self.low.state(Objects)
        module = ir.Module(
            low.program.filename,
            ingress,
            egress,
            [r for registers in objects.registers.values() for r in registers] + list(low.state(UserCode).states.values()),
            list(objects.counters.values()),
            sorted((t for t in low.matching.tables.values()), key=lambda t: t.index),
            low.context.storage.regions,
            grow,
            low.program.errors,
            low.context.uses_random,
            preserved=self.copies.preserved,
            digests=objects.digests,
            meters=list(objects.meters.values()),
            messages=objects.messages,
            c_text=low.state(UserCode).text(),
        )
        for stmt in ir.walk(ingress.body):
            if isinstance(stmt, ops.Restore):
                stmt.targets = [v for values in module.preserved.values() for v in values]
        for name, root in low.places.items():
            value_trees.name_fields(module.fields, name, root)
        return module

    def _stays(self, deparse: list[ir.Stmt]) -> ir.Var | None:
        """Returns a variable that is true if the deparser has nothing to move, which ingress can compute once for all copies of
        a packet if egress leaves all headers where they are. None if it does not."""
        emitted = self.low.deparsers.emitted
        headers = [header for header, _ in emitted]
        if not headers or any(h.region is None or not isinstance(h.valid, ir.Var) for h in headers):
            return None
        valid = {h.valid for h in headers}
        for stmt in ir.walk(self.code.out):
            if isinstance(stmt, ir.Operation) and stmt.regions():
                return None
            if any(target in valid for target in ir.writes(stmt)):
                return None
        outputs = {place for _, place in emitted} | {self.context.out_length}
        for stmt in ir.walk(deparse):
            plain = isinstance(stmt, ir.Label) or isinstance(stmt, ir.If) and stmt.condition in valid
            if not plain and not (isinstance(stmt, ir.Assign) and stmt.target in outputs):
                if not isinstance(stmt, Deparse):
                    return None
        if sum(isinstance(stmt, ir.If) for stmt in deparse) != len(headers):
            return None
        return ir.Var("headers_stay", 1)

    # --- clones -----------------------------------------------------------------------------------------------------

    def _parsed_clone(self, end: str) -> None:
        """Lowers a clone of ingress, which is parsed again; then its metadata starts anew, except for the preserved fields (as
        in BMv2)."""

        def restart() -> None:
            self.low.values.reset(self.meta, CALL)
            self.low.values.reset(self.standard, CALL)
            self.code.emit(ops.Restore(("INA_INGRESS_CLONE",)))
            self._to_egress(end)

        self.code.emit(ir.If(fold.eq(_KIND, fold.const(1, 32)), self.code.block(restart)))

    def _egress_clone(self, end: str) -> None:
        """Lowers a clone of egress. Its headers are those that egress left, without deparsing and parsing: they are stored with
        the preserved fields. Behind them comes the frame, from the end of the deparser's output on."""

        def bring() -> None:
            self.code.emit(ops.Restore(("INA_EGRESS_CLONE",)))
            self.low.assign(self.headers, cloned_headers(self.low), CALL)
            self.code.emit(ir.Assign(self.context.cursor, self.copies.payload_at))
            self._to_egress(end)

        self.code.emit(ir.If(_EGRESS_CLONE, self.code.block(bring)))

    def _copy_headers(self) -> None:
        self.low.assign(cloned_headers(self.low), self.headers, CALL)
        length = self.copies.length
        self.code.emit(ir.Assign(length, fold.cond(_EGRESS_CLONE, length, ir.Native("pkt->wire_len", 32))))

    def _length_of_clone(self) -> None:
        """Sets a clone's packet_length to that of the packet that came in; the frame has the deparser's length."""
        length = self.low.field("standard_metadata", "packet_length")
        self.code.emit(ir.If(_EGRESS_CLONE, [ir.Assign(length, self.copies.length)]))

    def _to_egress(self, end: str) -> None:
        self._set_standard({"instance_type": "pkt->instance_type"})
        self.code.emit(
            ops.Decide("INA_UNICAST", args=[ir.Native("pkt->egress_port", 32)]),
            ir.Goto(end),
        )

    def _set_standard(self, fields: dict[str, str]) -> None:
        for name, text in fields.items():
            target = value_trees.field_of(self.standard, name)
            self.code.emit(ir.Assign(target, fold.cast(ir.Native(text, 64), target.width)))

    # --- verdicts ---------------------------------------------------------------------------------------------------

    def _describe(self, digest: ir.Expr) -> None:
        """Tells the runtime of a clone, its session and field list, and of a digest."""
        requests = [self.context.flag_or_zero(name) for name in ("clone", "clone_session", "clone_list")]
        self.code.emit(ops.Describe(args=[*requests, digest]))

    def _ingress_verdict(self) -> None:
        group = self.low.field("standard_metadata", "mcast_grp")
        port = self.low.field("standard_metadata", "egress_spec")
        self._describe(self.context.flag_or_zero("digest"))
        drop, unicast = ops.Decide("INA_DROP"), ops.Decide("INA_UNICAST", args=[port])
        one = ir.If(fold.eq(port, fold.const(DROP_PORT, 9)), [drop], [unicast])
        many = fold.lnot(fold.eq(group, fold.const(0, 16)))
        verdict: list[ir.Stmt] = [ir.If(many, [ops.Decide("INA_MULTICAST", args=[group])], [one])]
        resubmit = self.context.flag_or_zero("resubmit")
        if isinstance(resubmit, ir.Var):
            again: list[ir.Stmt] = [ops.Decide("INA_RESUBMIT", args=[self.context.flag_or_zero("resubmit_list")])]
            verdict = [ir.If(fold.lnot(fold.eq(resubmit, fold.const(0, 32))), again, verdict)]
        self.code.out += verdict

    def _egress_verdict(self, dropped: ir.Expr) -> None:
        clone = self.context.flag_or_zero("clone")
        if isinstance(clone, ir.Var):
            self._describe(fold.const(0, 32))
            self.code.emit(
                ops.Preserve(args=[clone]),
                ir.If(dropped, [ops.Drop()]),
            )
        again = [self.context.flag_or_zero(name) for name in ("recirculate", "recirculate_list")]
        self.code.emit(ops.Transmit(args=again))
