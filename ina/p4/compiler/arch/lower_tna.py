"""Lowering of the Tofino native architecture: one module for each pipeline of the `Switch`.

A phase is complete: parser, control, deparser, over the packet with its intrinsic metadata in front (tna.h). The
program's requests to the switch end up in `struct ina_tna`. Values that were never written are zero.

An ingress parser that finds an error drops the packet, unless the program reads `parser_err`; NoMatch drops it even
then. An explicit `reject` only ends parsing (Tofino Native Architecture, section 5.2).
"""

from __future__ import annotations

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.arch import tna_operations as ops
from ina.p4.compiler.arch.architecture import sets_mirror_type
from ina.p4.compiler.arch.tna_accesses import check_accesses
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.errors import NO_SPAN, CompileError
from ina.p4.compiler.externs.copies import KeptIngress
from ina.p4.compiler.externs.extern import Objects
from ina.p4.compiler.externs.hashes import Sums, deposit_residuals
from ina.p4.compiler.externs.tna_functions import PhaseState, field_places
from ina.p4.compiler.externs.user import UserCode
from ina.p4.compiler.instances import instances_below
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import CALL
from ina.p4.compiler.lower.inline import Argument
from ina.p4.compiler.lower.lowering import ExternLowering, Lowering

# A header that the packet cuts short is a partial one, and its extractors lack their source (p4c's test parser_error.stf).
PARSER_ERRORS = {"NoMatch": 0x0001, "PacketTooShort": 0x0022, "CounterRange": 0x0004}
OTHER_ERROR = 0x0040  # errors that a Tofino does not have, such as a header stack's overflow
# Fields that may be invalid, by side and struct. They are until they are written (section 5.3), but for ingress' mirror_type.
VALID_FIELDS = {
    "ingress": (
        ("for_tm", ("ucast_egress_port", "mcast_grp_a", "mcast_grp_b")),
        ("for_deparser", ("digest_type", "resubmit_type", "mirror_type")),
    ),
    "egress": (("for_deparser", ("mirror_type",)),),
}
TM_FIELDS = (
    "ucast_egress_port", "mcast_grp_a", "mcast_grp_b", "level1_mcast_hash", "level2_mcast_hash", "level1_exclusion_id",
    "level2_exclusion_id", "rid", "bypass_egress", "deflect_on_drop", "ingress_cos", "qid", "copy_to_cpu",
    "icos_for_copy_to_cpu", "packet_color",
)


def pipelines(program: CheckedProgram) -> list[tuple[str, Instance]]:
    """Returns the pipelines of a Switch or MultiParserSwitch with their names. Raises CompileError for a pipeline given twice."""
    main = program.package
    named_pipelines = [(a.site.name if a.site else p, a) for p, a in main.args.items() if isinstance(a, Instance)]
    if len({a for _, a in named_pipelines}) != len(named_pipelines):
        raise CompileError(main.origin.span, "one pipeline stands in this Switch twice: give each pipe its own")
    return named_pipelines


def lower_switch(program: CheckedProgram, externs: ExternLowering) -> list[ir.Module]:
    """Returns one module for each pipeline."""
    return [
        _Pipeline(name, pipeline, Lowering(program, pipeline, externs, keeps_fields=True)).lower()
        for name, pipeline in pipelines(program)
    ]


def ingress_port(parser: Instance) -> str:
    """Returns the ingress parser's name for the port that a packet came in by."""
    params = [p.name for p in parser.decl.params if str(p.type) == "ingress_intrinsic_metadata_t"]
    return f"{params[0] if params else 'ig_intr_md'}.ingress_port"


def extracted_port_metadata(parser: Instance) -> list[tuple[str, int, int]]:
    """Returns the port metadata that a parser extracts as a header: the 64 bits right behind the intrinsic metadata."""
    decl: ast.ParserDecl = parser.decl
    for state in decl.states.values():
        calls = [s.call for s in state.statements if isinstance(s, ast.CallStatement) and s.call.kind == "packet_in"]
        for i, call in enumerate(calls):
            if call.method != "extract" or str(call.params[0].type) != "ingress_intrinsic_metadata_t":
                continue
            following = calls[i + 1 : i + 2]
            transition = state.transition
            for case in transition.branches if not following and transition is not None else []:
                if case.target is not None:
                    following += [s.call for s in case.target.statements[:1] if isinstance(s, ast.CallStatement)]
            for next_call in following:
                if next_call.kind == "packet_in" and next_call.method == "extract":
                    extracted = next_call.params[0].type
                    if types.fixed_width(extracted) == 64 and "resubmit" not in str(extracted):
                        return field_places(extracted)
    return []


class _Pipeline:
    def __init__(self, name: str, pipeline: Instance, low: Lowering) -> None:
        self.name, self.pipeline = name, pipeline
        self.low, self.context, self.code = low, low.context, low.code
        self.state = low.state(PhaseState)

    def lower(self) -> ir.Module:
        low, objects = self.low, self.low.state(Objects)
        blocks = [self._block(self.pipeline.args[p.name]) for p in self.pipeline.decl.params]
        ingress, ingress_grow, fields = self._phase(*blocks[:3])
        unpacked = bool(self.state.port_metadata)
        metadata = self.state.port_metadata or extracted_port_metadata(blocks[0])
        self.context.in_egress = True
        egress, egress_grow, more = self._phase(*blocks[3:])
        for instance in instances_below(self.pipeline):
            low.externs.declare(low, instance)
        for body in (ingress, egress):
            check_accesses(body, self.context.results)
        tables = low.matching.tables.values()
        hashes = list(objects.hashes.values())
        module = ir.Module(
            low.program.filename,
            ir.Phase(ingress),
            ir.Phase(egress),
            [r for registers in objects.registers.values() for r in registers] + list(objects.logs.values())
            + [t.key_mask for t in tables if t.key_mask is not None]
            + [m.adjust for m in objects.meters.values() if m.adjust is not None]
            + [h.configure for h in hashes] + list(low.state(UserCode).states.values()),
            list(objects.counters.values()),
            sorted(tables, key=lambda t: t.index),
            self.context.storage.regions,
            max(ingress_grow, egress_grow),
            low.program.errors,
            self.context.uses_random,
            digests=objects.digests,
            meters=list(objects.meters.values()),
            messages=objects.messages,
            c_text=low.state(UserCode).text(),
            filters=list(objects.filters.values()),
            hashes=hashes,
            architecture="tna",
            pipeline=self.name,
            keep_ingress=low.state(KeptIngress).needed,
            selectors=objects.selectors,
            port_metadata=(f"{blocks[0].name}.$PORT_METADATA", metadata, unpacked, ingress_port(blocks[0])),
        )
        module.fields = {f"ingress.{k}": v for k, v in fields.items()} | {f"egress.{k}": v for k, v in more.items()}
        for region in self.context.storage.regions:
            region.own_buffer |= not region.in_place
        return module

    def _block(self, block: Instance) -> Instance:
        """Returns a parser, control or deparser; for a MultiParserPipeline its one parser."""
        if not isinstance(block.decl, ast.PackageDecl):
            return block
        parsers = [a for a in block.args.values() if isinstance(a, Instance)]
        if any(p.decl is not parsers[0].decl or p.args != parsers[0].args for p in parsers):
            raise CompileError(
                block.site.span if block.site else NO_SPAN, "parsers that differ by port are not supported by this back end"
            )
        return parsers[0]

    # --- a phase ----------------------------------------------------------------------------------------------------

    def _phase(
        self, parser: Instance, control: Instance, deparser: Instance
    ) -> tuple[list[ir.Stmt], int, dict[str, ir.Var | ir.Elem]]:
        """Returns (statements, bytes that the frame may grow, places of headers and metadata by P4 path)."""
        low, context, code = self.low, self.context, self.code
        context.cursor, context.out_length = ir.Var("cursor", 32), ir.Var("out_length", 32)
        self.parser_error = context.parser_error = ir.Var("parser_error", 32)
        low.deparsers.emitted, context.created = [], set()
        low.state(Sums).variables, self.state.counters, self.state.validity = {}, {}, {}
        low.places = self._places(parser)
        code.emit(ops.Begin())
        if not context.in_egress and sets_mirror_type(low.program):
            code.emit(ir.Assign(self.state.validity[self._intrinsic("for_deparser", "mirror_type")], fold.TRUE))
        context.reject_label = code.label("reject")
        low.parsers.enter_parser(parser, self._parameters(parser), CALL)
        code.emit(ir.Label(context.reject_label))
        context.reject_label = ""
        deposit_residuals(low)
        dropped = self._from_parser()
        low.inliner.control(control, self._parameters(control))
        context.validity = self.state.validity
        low.deparsers.deparse(deparser, self._parameters(deparser))
        context.validity = {}
        grow = low.deparsers.max_grow()
        if context.in_egress:
            self._end_of_egress()
        else:
            self._end_of_ingress()
        low.deparsers.write_frame()
        code.emit(ops.Sent(context.in_egress))
        body = code.taken()
        if dropped is not None:
            dropped.condition = self._drop_condition(body)
        self._note_validity(body)
        fields: dict[str, ir.Var | ir.Elem] = {}
        for name, place in (("hdr", low.places["H"]), ("md", low.places["M"])):
            value_trees.name_fields(fields, name, place)
        return body, grow, fields

    def _places(self, parser: Instance) -> dict[str, value_trees.Value]:
        """Returns headers (H), metadata (M) and intrinsic metadata by type, including types that no block names."""
        storage, side = self.context.storage, self._side()
        headers, meta = parser.decl.params[1:3]
        places = {"H": storage.place(headers.type, "hdr", in_packet=True), "M": storage.place(meta.type, "md")}
        for name, t in self.low.program.types.items():
            if name.startswith(f"{side}_intrinsic_metadata") and isinstance(t, types.RecordType):
                places[name] = storage.place(t, name.removeprefix(f"{side}_").removeprefix("intrinsic_"))
        for struct, names in VALID_FIELDS[side]:
            place = places[f"{side}_intrinsic_metadata_{struct}_t"]
            self.state.validity |= {value_trees.part(place, f): ir.Var(f"has_{f}", 1) for f in names}
        return places

    def _side(self) -> str:
        return "egress" if self.context.in_egress else "ingress"

    def _parameters(self, block: Instance) -> list[Argument]:
        """Returns a block's arguments: packet, headers, metadata, then intrinsic metadata by their types."""
        places = self.low.places
        packet = isinstance(block.decl.params[0].type, types.ExternType)
        values: list[Argument] = ["packet", places["H"], places["M"]] if packet else [places["H"], places["M"]]
        for param in block.decl.params[len(values) :]:
            place = places.get(str(types.strip_new(param.type)))
            if place is None:
                raise CompileError(param.span, f"TNA gives no parameter of type {param.type} here")
            values.append(place)
        return values

    def _intrinsic(self, kind: str, field: str) -> ir.Var | ir.Elem:
        """Returns a field of ingress_/egress_intrinsic_metadata_<kind>_t."""
        return self.low.field(f"{self._side()}_intrinsic_metadata_{kind}_t", field)

    def _from_parser(self) -> ir.If | None:
        """Sets the metadata from the parser; for ingress returns the statement that drops after an error."""
        error_index, time = self.context.error_index, self._intrinsic("from_parser", "global_tstamp")
        self.code.emit(ir.Assign(time, fold.cast(ir.Native("now / 1000", 64), 48)))
        bits: ir.Expr = fold.const(OTHER_ERROR, 16)
        for name, value in {**PARSER_ERRORS, "NoError": 0}.items():
            same = fold.eq(self.parser_error, fold.const(error_index[name], 32))
            bits = fold.cond(same, fold.const(value, 16), bits)
        self.code.emit(ir.Assign(self._intrinsic("from_parser", "parser_err"), bits))
        if self.context.in_egress:
            return None
        dropped = ir.If(fold.TRUE, [ops.ParserDrop()])
        self.code.emit(dropped)
        return dropped

    def _drop_condition(self, body: list[ir.Stmt]) -> ir.Expr:
        """Returns the test for a parser error that drops the packet in ingress."""
        error = self._intrinsic("from_parser", "parser_err")
        is_read = any(leaf is error for s in ir.walk(body) for e in ir.reads(s) for leaf in ir.leaves(e))
        if is_read:
            return fold.eq(self.parser_error, fold.const(self.context.error_index["NoMatch"], 32))
        return fold.lnot(fold.eq(self.parser_error, fold.const(0, 32)))

    def _note_validity(self, body: list[ir.Stmt]) -> None:
        """Marks fields of the intrinsic metadata as valid from their first assignment on (section 5.3)."""
        if not self.state.validity:
            return
        statements: list[ir.Stmt] = []
        for stmt in body:
            statements.append(stmt)
            for inner in ir.blocks(stmt):
                self._note_validity(inner)
            if stmt not in self.low.values.resets:
                flags = (self.state.validity.get(target) for target in ir.writes(stmt))
                statements += [ir.Assign(flag, fold.TRUE) for flag in flags if flag is not None]
        body[:] = statements

    # --- ends -------------------------------------------------------------------------------------------------------

    def _end_of_ingress(self) -> None:
        fields: dict[str, ir.Expr] = {name: self._intrinsic("for_tm", name) for name in TM_FIELDS}
        for short, name in (("ucast", "ucast_egress_port"), ("mcast_a", "mcast_grp_a"), ("mcast_b", "mcast_grp_b")):
            fields[f"has_{short}"] = self.state.validity[fields[name]]
        for name in ("drop_ctl", "mirror_type", "resubmit_type", "digest_type"):
            fields[name] = self._intrinsic("for_deparser", name)
        digest = self.context.flags.get("ingress_digest")
        args = [*fields.values(), *([digest] if digest is not None else [])]
        self.code.emit(ops.EndIngress(list(fields), digest is not None, args=args))

    def _end_of_egress(self) -> None:
        fields = {n: self._intrinsic("for_deparser", n) for n in ("drop_ctl", "mirror_type", "coalesce_flush", "coalesce_length")}
        fields |= {n: self._intrinsic("for_output_port", n) for n in ("capture_tstamp_on_tx", "update_delay_on_tx")}
        self.code.emit(ops.EndEgress(list(fields), args=list(fields.values())))
