"""C text of v1model's operations (v1model_operations.py)."""

from __future__ import annotations

from ina.p4.compiler import ir
from ina.p4.compiler.arch import v1model_operations as ops
from ina.p4.compiler.emit.fast_path import FAST_PATH, fast_path_constants, mark_fast_path
from ina.p4.compiler.emit.operations import COMMON
from ina.p4.compiler.emit.storage import load, store
from ina.p4.compiler.emit.usage import preserved, storage_of, used_storage
from ina.p4.compiler.emit.writer import Handlers, Writer
from ina.p4.compiler.lower.value_trees import Header

V1MODEL = Handlers(COMMON)


@V1MODEL.of(ops.Restore)
def _restore(w: Writer, stmt: ops.Restore) -> None:
    if not w.module.preserved:
        return
    with w.braces(f"if ({' || '.join(f'pkt->instance_type == {kind}' for kind in stmt.kinds)}) {{"):
        w.line("switch (pkt->field_list) {")
        for field_list, values in sorted(w.module.preserved.items()):
            w.line(f"case {field_list}u:")
            with w.indented():
                load(w, dict.fromkeys(map(storage_of, values)))
                w.line("break;")
        w.line(
            "default: break;",
            "}",
        )


@V1MODEL.of(ops.Save)
def _save(w: Writer, stmt: ops.Save) -> None:
    digests: list[ir.Storage] = [f.var for digest in w.module.digests for f in digest.fields]
    always = [*digests, *preserved(w.module)]
    storage = dict.fromkeys([*w.carried, *always])
    conditions = "".join(f" || {w.c(flag)}" for flag in stmt.args if isinstance(flag, ir.Var))
    w.line("pkt->verdict = (uint8_t)verdict;")
    with w.braces(f"if (verdict != INA_DROP{conditions}) {{"):
        if stmt.targets:
            _stays(w, w.name(stmt.target), stmt.headers, stmt.cursor)
        constants = (fast_path_constants(w) or {}).keys() - set(always)
        store(w, [v for v in storage if v not in constants])
        if rest := [v for v in storage if v in constants]:
            with w.braces(f"if ({w.name(stmt.target)} != {FAST_PATH}) {{"):
                store(w, rest)


def _stays(w: Writer, stays: str, headers: list[Header], cursor: ir.Var) -> None:
    """Sets `stays` if the headers that the deparser emits lie one after the other before the rest of the frame."""
    used = used_storage(w.module.ingress.body)
    w.line(
        "uint32_t at = 0; /* do all headers stay where they are? */",
        f"{stays} = 1;",
    )
    for header in headers:
        region = header.region
        if header.flag not in used:
            continue  # it is never valid
        assert region is not None  # `save` has a target only where all lie in wire order
        w.line(
            f"if ({w.c(header.valid)}) {{",
            f"    {stays} &= {w.name(region)} == data + at;",
            f"    at += {region.size};",
            "}",
        )
    w.line(f"{stays} &= at == {w.name(cursor) if cursor in used else 0};")
    mark_fast_path(w, stays, used)


@V1MODEL.of(ops.Preserve)
def _preserve(w: Writer, stmt: ops.Preserve) -> None:
    _preserve_if(w, stmt.args[0])


def _preserve_if(w: Writer, request: ir.Expr) -> None:
    if fields := preserved(w.module):
        with w.braces(f"if ({w.c(request)}) {{"):
            store(w, fields)


@V1MODEL.of(ops.Describe)
def _describe(w: Writer, stmt: ops.Describe) -> None:
    clone, session, field_list, digest = stmt.args
    w.line("/* what the program asked of the switch */")
    if isinstance(clone, ir.Var):
        w.line(
            f"pkt->clone = (uint8_t){w.c(clone)};",
            f"pkt->clone_session = {w.c(session)};",
            f"if ({w.expressions.test(clone)}) pkt->clone_list = {w.c(field_list)};",
        )
    if isinstance(digest, ir.Var):
        w.line(f"pkt->digest = (uint8_t){w.c(digest)};")


TARGETS = {  # the field of struct ina_packet that says where a packet goes
    "INA_RESUBMIT": "field_list = ", "INA_MULTICAST": "mcast_grp = (uint16_t)", "INA_UNICAST": "egress_port = (uint16_t)",
}


@V1MODEL.of(ops.Decide)
def _decide(w: Writer, stmt: ops.Decide) -> None:
    w.line(f"verdict = {stmt.verdict};", *(f"pkt->{TARGETS[stmt.verdict]}{w.c(arg)};" for arg in stmt.args))


@V1MODEL.of(ops.Drop)
def _drop(w: Writer, stmt: ops.Drop) -> None:
    w.line(
        "pkt->verdict = INA_DROP;",
        "return;",
    )


@V1MODEL.of(ops.Truncate)
def _truncate(w: Writer, stmt: ops.Truncate) -> None:
    length = w.c(stmt.args[0])
    w.line(
        f"if (!{length}) pkt->truncate_len = 1;",
        f"else if (!pkt->truncate_len || {length} < pkt->truncate_len) pkt->truncate_len = {length};",
    )


@V1MODEL.of(ops.Transmit)
def _transmit(w: Writer, stmt: ops.Transmit) -> None:
    again, field_list = stmt.args
    if isinstance(again, ir.Var):
        _preserve_if(w, again)
        w.line(
            f"if ({w.expressions.test(again)}) {{",
            "    pkt->verdict = INA_RECIRCULATE;",
            f"    pkt->field_list = {w.c(field_list)};",
            "    return;",
            "}",
        )
    w.line("pkt->verdict = INA_UNICAST;")
