"""Lowering of the Tofino native architecture: one module for each pipeline of the `Switch`.

A phase is complete: parser, control, deparser, over the packet with its intrinsic metadata in front (tna.h). The
program's requests to the switch end up in `struct ina_tna`. Values that were never written are zero.

An ingress parser that finds an error drops the packet, unless the program reads `parser_err`; NoMatch drops it even
then. An explicit `reject` only ends parsing (Tofino Native Architecture, section 5.2).
"""

from __future__ import annotations

from typing import Any

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.arch.lower_tna_objects import Objects
from ina.p4.compiler.arch.lower_tna_packet import extracted_port_metadata, ingress_port
from ina.p4.compiler.arch.tna_registers import check_accesses
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.errors import NO_SPAN, CompileError
from ina.p4.compiler.instances import instances_below
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.parser import CALL

PARSER_ERRORS = {"NoMatch": 0x0001, "PacketTooShort": 0x0002, "CounterRange": 0x0004}
OTHER_ERROR = 0x0040  # errors that a Tofino does not have, such as a header stack's overflow
# Fields that are invalid until they are written (section 5.3), by side and struct.
VALID_FIELDS = {
    "ingress": (
        ("for_tm", ("ucast_egress_port", "mcast_grp_a", "mcast_grp_b")), ("for_deparser", ("digest_type", "resubmit_type")),
    ),
    "egress": (("for_deparser", ("mirror_type",)),),
}  # fmt: skip
TM_FIELDS = (
    "ucast_egress_port", "mcast_grp_a", "mcast_grp_b", "level1_mcast_hash", "level2_mcast_hash", "level1_exclusion_id",
    "level2_exclusion_id", "rid", "bypass_egress", "deflect_on_drop", "ingress_cos", "qid", "copy_to_cpu",
    "icos_for_copy_to_cpu", "packet_color",
)  # fmt: skip
BLOCKS = ("parser", "control", "deparser")


def pipelines(program: CheckedProgram) -> list[tuple[str, Instance]]:
    """Returns the pipelines of a Switch or MultiParserSwitch with their names. Raises CompileError for a pipeline given twice."""
    main = program.package
    named_pipelines = [(a.site.name if a.site else p, a) for p, a in main.args.items() if isinstance(a, Instance)]
    if len({id(a) for _, a in named_pipelines}) != len(named_pipelines):
        raise CompileError(main.origin.span, "one pipeline stands in this Switch twice: give each pipe its own")
    return named_pipelines


def lower_switch(program: CheckedProgram) -> list[ir.Module]:
    """Returns one module for each pipeline."""
    return [Tna(program, name, pipeline).lower() for name, pipeline in pipelines(program)]


class Tna(Objects):
    def __init__(self, program: CheckedProgram, name: str, pipeline: Instance) -> None:
        super().__init__(program)
        self.name, self.pipeline = name, pipeline
        self.instance = pipeline
        self.resets: set[int] = set()  # ids of statements that initialise
        self.in_deparser = False

    def lower(self) -> ir.Module:
        blocks = [self._block(self.pipeline.args[p.name]) for p in self.pipeline.decl.params]
        ingress, ingress_grow, fields = self._phase(*blocks[:3])
        unpacked = bool(self.port_metadata)
        metadata = self.port_metadata or extracted_port_metadata(blocks[0])
        self.in_egress = True
        egress, egress_grow, more = self._phase(*blocks[3:])
        self._unused()
        for body in (ingress, egress):
            check_accesses(body)
        module = ir.Module(
            self.program.filename,
            ir.Phase(ingress),
            ir.Phase(egress),
            [r for cells in self.registers.values() for r in cells] + list(self.logs.values())
            + [t.key_mask for t in self.tables.values() if t.key_mask is not None]
            + [m.adjust for m in self.meters.values() if m.adjust is not None]
            + [h.configure for h in self.hashes.values()],
            list(self.counters.values()),
            sorted(self.tables.values(), key=lambda t: t.index),
            self.storage.regions,
            max(ingress_grow, egress_grow),
            self.program.errors,
            self.uses_random,
            digests=self.digests,
            meters=list(self.meters.values()),
            messages=self.messages,
            filters=list(self.filters.values()),
            hashes=list(self.hashes.values()),
            architecture="tna",
            pipeline=self.name,
            keep_ingress=self.keep_ingress,
            selectors=self.selectors,
            port_metadata=(f"{blocks[0].name}.$PORT_METADATA", metadata, unpacked, ingress_port(blocks[0])),
        )
        module.fields = {f"ingress.{k}": v for k, v in fields.items()} | {f"egress.{k}": v for k, v in more.items()}
        for region in self.storage.regions:
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

    def _phase(self, parser: Instance, control: Instance, deparser: Instance) -> tuple[list[ir.Stmt], int, dict[str, Any]]:
        """Returns (statements, bytes that the frame may grow, places of headers and metadata by P4 path)."""
        self.out = []
        self.cursor, self.out_length = ir.Var("cursor", 32), ir.Var("out_length", 32)
        self.parser_error = ir.Var("parser_error", 32)
        self.emitted, self.created = [], {}
        self.sums, self.parser_counters, self.validity = {}, {}, {}
        self.places = self._places(parser, control, deparser)
        self.emit(ir.Extern("tna_begin", [], []))
        self.reject_label = self.new_label("reject")
        self.enter_parser(parser, self._parameters(parser), CALL)
        self.emit(ir.Label(self.reject_label))
        self.reject_label = ""
        self.deposit_residuals()
        dropped = self._from_parser(control)
        self.control(control, self._parameters(control))
        self.deparse(deparser, self._parameters(deparser))
        grow = self.max_grow()
        if self.in_egress:
            self._end_of_egress()
        else:
            self._end_of_ingress()
        self.write_frame()
        self.emit(ir.Extern("tna_sent", [], [], self.in_egress))
        body, self.out = self.out, []
        if dropped is not None:
            dropped.condition = self._drop_condition(body)
        self._note_validity(body)
        fields: dict[str, Any] = {}
        for (name, place) in (("hdr", self.places["H"]), ("md", self.places["M"])):
            self.name_fields(fields, name, place)
        return body, grow, fields

    def _places(self, *blocks: Instance) -> dict[str, Any]:
        """Returns headers (H), metadata (M) and intrinsic metadata by type, including types that no block names."""
        places: dict[str, Any] = {}
        headers, meta = blocks[0].decl.params[1:3]
        places["H"] = self.storage.place(headers.type, "hdr", in_packet=True)
        places["M"] = self.storage.place(meta.type, "md")
        for name, t in self.program.types.items():
            side = "egress" if self.in_egress else "ingress"
            if name.startswith(f"{side}_intrinsic_metadata") and isinstance(t, types.RecordType):
                places[name] = self.storage.place(t, name.removeprefix(f"{side}_").removeprefix("intrinsic_"))
        side = "egress" if self.in_egress else "ingress"
        for struct, names in VALID_FIELDS[side]:
            fields = places[f"{side}_intrinsic_metadata_{struct}_t"].fields
            self.validity |= {id(fields[f]): ir.Var(f"has_{f}", 1) for f in names}
        return places

    def _parameters(self, block: Instance) -> list[Any]:
        """Returns a block's arguments: packet, headers, metadata, then intrinsic metadata by their types."""
        values: list[Any] = []
        packet = isinstance(block.decl.params[0].type, types.ExternType)
        first = ["packet", self.places["H"], self.places["M"]] if packet else [self.places["H"], self.places["M"]]
        for i, param in enumerate(block.decl.params):
            if i < len(first):
                values.append(first[i])
                continue
            place = self.places.get(str(types.strip_new(param.type)))
            if place is None:
                raise CompileError(param.span, f"TNA gives no parameter of type {param.type} here")
            values.append(place)
        return values

    def deparse(self, deparser: Instance, values: list[Any]) -> None:
        self.in_deparser = True
        super().deparse(deparser, values)
        self.in_deparser = False

    def _binary(self, e: ast.Binary) -> ir.Expr:
        """Lowers a binary operator. In a deparser an invalid field equals nothing (sections 7.7, 7.10, 7.14)."""
        result = super()._binary(e)
        if self.in_deparser and e.op == "==":
            for operand in (e.left, e.right):
                if isinstance(operand, ast.Member) and operand.kind == "field":
                    flag = self.validity.get(id(self.value(operand)))
                    result = result if flag is None else fold.land(result, flag)
        return result

    def _zero(self, header: value_trees.Header) -> None:
        """Keeps the fields of a header that becomes valid: they have containers of their own, with the values last written."""
        if header.region:
            header.region.own_buffer = True
            self.emit(ir.Extern("keep_region", [], [], header.region))

    def reset(self, place: Any, node: ast.Node) -> None:
        before = len(self.out)
        super().reset(place, node)
        self.resets.update(id(s) for s in self.out[before:])

    def _intrinsic(self, kind: str) -> Any:
        """Returns the fields of ingress_/egress_intrinsic_metadata_<kind>_t."""
        return self.places[f"{'egress' if self.in_egress else 'ingress'}_intrinsic_metadata_{kind}_t"].fields

    def _from_parser(self, control: Instance) -> ir.If | None:
        """Sets the metadata from the parser; for ingress returns the statement that drops after an error."""
        fields = self._intrinsic("from_parser")
        self.emit(ir.Assign(fields["global_tstamp"], fold.cast(ir.Native("now / 1000", 64), 48)))
        bits: ir.Expr = fold.const(OTHER_ERROR, 16)
        for name, value in {**PARSER_ERRORS, "NoError": 0}.items():
            same = fold.eq(self.parser_error, fold.const(self.error_index[name], 32))
            bits = fold.cond(same, fold.const(value, 16), bits)
        self.emit(ir.Assign(fields["parser_err"], bits))
        if self.in_egress:
            return None
        dropped = ir.If(fold.TRUE, [ir.Extern("tna_parser_drop", [], [])])
        self.emit(dropped)
        return dropped

    def _drop_condition(self, body: list[ir.Stmt]) -> ir.Expr:
        """Returns the test for a parser error that drops the packet in ingress."""
        error = self._intrinsic("from_parser")["parser_err"]
        is_read = any(leaf is error for s in ir.walk(body) for e in ir.reads(s) for leaf in ir.leaves(e))
        if is_read:
            return fold.eq(self.parser_error, fold.const(self.error_index["NoMatch"], 32))
        return fold.lnot(fold.eq(self.parser_error, fold.const(0, 32)))

    def _note_validity(self, body: list[ir.Stmt]) -> None:
        """Marks fields of the intrinsic metadata as valid from their first assignment on (section 5.3)."""
        if not self.validity:
            return
        statements: list[ir.Stmt] = []
        for stmt in body:
            statements.append(stmt)
            for inner in ir.blocks(stmt):
                self._note_validity(inner)
            if id(stmt) not in self.resets:
                flags = (self.validity.get(id(target)) for target in ir.writes(stmt))
                statements += [ir.Assign(flag, fold.TRUE) for flag in flags if flag is not None]
        body[:] = statements

    # --- ends -------------------------------------------------------------------------------------------------------

    def _end_of_ingress(self) -> None:
        tm, deparser = self._intrinsic("for_tm"), self._intrinsic("for_deparser")
        fields = {name: tm[name] for name in TM_FIELDS}
        fields |= {f"has_{short}": self.validity[id(tm[name])] for short, name in
                   (("ucast", "ucast_egress_port"), ("mcast_a", "mcast_grp_a"), ("mcast_b", "mcast_grp_b"))}  # fmt: skip
        fields |= {name: deparser[name] for name in ("drop_ctl", "mirror_type", "resubmit_type", "digest_type")}
        digest = self.flags.get("ingress_digest")
        args = [*fields.values(), *([digest] if digest is not None else [])]
        self.emit(ir.Extern("tna_ingress", [], args, (list(fields), digest is not None)))

    def _end_of_egress(self) -> None:
        deparser, port = self._intrinsic("for_deparser"), self._intrinsic("for_output_port")
        fields = {name: deparser[name] for name in ("drop_ctl", "mirror_type", "coalesce_flush", "coalesce_length")}
        fields |= {name: port[name] for name in ("capture_tstamp_on_tx", "update_delay_on_tx")}
        self.emit(ir.Extern("tna_egress", [], list(fields.values()), list(fields)))

    def _unused(self) -> None:
        """Creates objects that no statement uses."""
        for instance in instances_below(self.pipeline):
            site = instance.site or self.pipeline.decl
            match instance.decl.name:
                case "Register":
                    self.cells(instance, site)
                case "RegisterParam":
                    self.cells(instance, site, 1)
                case "Counter":
                    self.counter(instance)
                case "Meter":
                    self.meter(instance)
                case "Lpf" | "Wred":
                    self.filter(instance)
