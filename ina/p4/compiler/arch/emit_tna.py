"""C text of TNA's operations (tna_operations.py, tna.h)."""

from __future__ import annotations

from ina.p4.compiler import ir
from ina.p4.compiler.arch import tna_operations as ops
from ina.p4.compiler.emit.expressions import c_type
from ina.p4.compiler.emit.hashes import put_words
from ina.p4.compiler.emit.names import c_comment
from ina.p4.compiler.emit.operations import COMMON
from ina.p4.compiler.emit.storage import packed, store
from ina.p4.compiler.emit.writer import Handlers, Writer

TNA = Handlers(COMMON)


@TNA.of(ops.Begin)
def _begin(w: Writer, stmt: ops.Begin) -> None:
    w.line(
        "struct ina_tna *const tna = (struct ina_tna *)(void *)meta;",
        "const uint32_t octets = pkt->wire_len - tna->front + 4; /* counters and meters count the FCS */",
        "(void)octets;",
        "memset((uint8_t *)tna + 2, 0, offsetof(struct ina_tna, mirror_header) - 2);",
        "pkt->digest = pkt->clone = 0;",
    )


@TNA.of(ops.ParserDrop)
def _parser_drop(w: Writer, stmt: ops.ParserDrop) -> None:
    w.line(
        "tna->parser_drop = 1;",
        "pkt->verdict = INA_DROP;",
        "return;",
    )


def _requests(w: Writer, names: list[str], values: list[ir.Expr]) -> None:
    w.line("/* what the program asked of the switch */")
    for name, value in zip(names, values, strict=False):
        w.line(f"tna->{name} = (uint{8 if value.width <= 8 else 16}_t){w.c(value)};")


@TNA.of(ops.EndIngress)
def _end_ingress(w: Writer, stmt: ops.EndIngress) -> None:
    _requests(w, stmt.names, stmt.args)
    if stmt.digest:
        w.line(f"pkt->digest = (uint8_t){w.c(stmt.args[-1])};")
        with w.braces("if (pkt->digest) {"):
            store(w, [f.var for d in w.module.digests for f in d.fields])
    w.line(
        "if (tna->drop_ctl & INA_TNA_DROP_FORWARD)",
        "    tna->has_ucast = tna->has_mcast_a = tna->has_mcast_b = tna->resubmit = 0;",
        "if (tna->drop_ctl & INA_TNA_DROP_CPU) tna->copy_to_cpu = 0;",
        "if (tna->resubmit) {",
        "    tna->mirror = 0;",
        "    pkt->verdict = INA_RESUBMIT;",
        "    return;",
        "}",
        "if (!(tna->has_ucast | tna->has_mcast_a | tna->has_mcast_b | tna->copy_to_cpu)) {",
        "    pkt->verdict = INA_DROP;",
        "    return;",
        "}",
    )


@TNA.of(ops.EndEgress)
def _end_egress(w: Writer, stmt: ops.EndEgress) -> None:
    _requests(w, stmt.names, stmt.args)
    w.line(
        "if (tna->drop_ctl & INA_TNA_DROP_MIRROR) tna->mirror = 0;",
        "if (tna->drop_ctl & INA_TNA_DROP_FORWARD && !tna->mirror) {",
        "    pkt->verdict = INA_DROP;",
        "    return;",
        "}",
    )


@TNA.of(ops.Sent)
def _sent(w: Writer, stmt: ops.Sent) -> None:
    dropped = "tna->drop_ctl & INA_TNA_DROP_FORWARD ? INA_DROP : " if stmt.egress else ""
    w.line(f"pkt->verdict = {dropped}INA_UNICAST;")


def _header(w: Writer, field: str, values: list[ir.Expr]) -> None:
    at = 0
    for text, bits in packed(w, values):
        size = bits // 8
        w.line(f"ina_store(tna->{field} + {at}, {size}, {text if bits == 64 else f'({text}) >> {64 - bits}'});")
        at += size


@TNA.of(ops.Mirror)
def _mirror(w: Writer, stmt: ops.Mirror) -> None:
    session, *fields = stmt.args
    w.line(
        "tna->mirror = 1;",
        f"tna->mirror_session = (uint16_t){w.c(session)};",
        f"tna->mirror_len = {sum(f.width for f in fields) // 8};",
    )
    _header(w, "mirror_header", fields)


@TNA.of(ops.Resubmit)
def _resubmit(w: Writer, stmt: ops.Resubmit) -> None:
    w.line("tna->resubmit = 1;")
    _header(w, "resubmit_data", stmt.args)


@TNA.of(ops.ChangeableHash)
def _changeable_hash(w: Writer, stmt: ops.ChangeableHash) -> None:
    dynamic, (static, *values) = stmt.dynamic, stmt.args
    words = f"(const uint64_t *)(const void *)(state + {dynamic.configure.offset})"
    w.line(f"{w.name(stmt.target)} = {w.c(static)};")
    with w.braces(f"if (*{words}) {{ {c_comment(f'hash {dynamic.name}: the control plane has changed it')}"):
        put_words(w, values)
        w.line(f"{w.name(stmt.target)} = ({c_type(dynamic.width)})ina_dynamic_hash({words}, bytes);")


@TNA.of(ops.Complement)
def _complement(w: Writer, stmt: ops.Complement) -> None:
    total, *frame = (w.c(a) for a in stmt.args)
    if frame:
        start, end = frame
        total = f"ina_csum_add({total}, data + {start}, {end} - {start})"
    w.line(f"{w.name(stmt.target)} = (uint16_t)ina_csum_fold({total});")


@TNA.of(ops.Math)
def _math(w: Writer, stmt: ops.Math) -> None:
    target, unit = stmt.target, stmt.unit
    table = ", ".join(map(str, unit.table))
    call = f"ina_math({w.c(stmt.args[0])}, table, {int(unit.invert)}, {unit.shift}, {unit.scale})"
    if target.width < 32:
        largest = (1 << target.width) - 1
        call = f"({c_type(target.width)})({call} > {largest}u ? {largest}u : {call})"
    w.line(
        "{",
        f"    static const uint8_t table[16] = {{{table}}};",
        f"    {w.name(target)} = {call};",
        "}",
    )


def _filter(filter_: ir.Filter, index: str, call: str, otherwise: str) -> str:
    cell = f"(struct ina_filter *)(void *)(state + {filter_.offset} + 64 * (uint64_t)({index}))"
    return f"({index} < {filter_.size}u ? {call.replace('CELL', cell)} : {otherwise})"


@TNA.of(ops.LowPass)
def _low_pass(w: Writer, stmt: ops.LowPass) -> None:
    index, sample = (w.c(a) for a in stmt.args)
    text = _filter(stmt.filter, index, f"ina_lpf(CELL, {sample}, now)", sample)
    w.line(f"{w.name(stmt.target)} = {text};")


@TNA.of(ops.EarlyDrop)
def _early_drop(w: Writer, stmt: ops.EarlyDrop) -> None:
    index, sample = (w.c(a) for a in stmt.args)
    seed = f"(uint64_t *)(void *)(state + {w.module.layout['random_offset']})"
    text = _filter(stmt.filter, index, f"ina_wred(CELL, {sample}, now, ina_random({seed}, 0, 0))", "0")
    w.line(f"{w.name(stmt.target)} = {text};")
