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
    w.line(f"if ({' || '.join(f'pkt->instance_type == {kind}' for kind in stmt.kinds)}) {{")
    w.depth += 1
    w.line("switch (pkt->field_list) {")
    for field_list, values in sorted(w.module.preserved.items()):
        w.line(f"case {field_list}u:")
        w.depth += 1
        load(w, dict.fromkeys(map(storage_of, values)))
        w.line("break;")
        w.depth -= 1
    w.line("default: break;")
    w.line("}")
    w.depth -= 1
    w.line("}")


@V1MODEL.of(ops.Save)
def _save(w: Writer, stmt: ops.Save) -> None:
    digests: list[ir.Storage] = [f.var for digest in w.module.digests for f in digest.fields]
    always = [*digests, *preserved(w.module)]
    storage = dict.fromkeys([*w.carried, *always])
    conditions = "".join(f" || {w.c(flag)}" for flag in stmt.args if isinstance(flag, ir.Var))
    w.line("pkt->verdict = (uint8_t)verdict;")
    w.line(f"if (verdict != INA_DROP{conditions}) {{")
    w.depth += 1
    if stmt.targets:
        _stays(w, w.name(stmt.target), stmt.headers, stmt.cursor)
    constants = (fast_path_constants(w) or {}).keys() - set(always)
    store(w, [v for v in storage if v not in constants])
    if rest := [v for v in storage if v in constants]:
        w.line(f"if ({w.name(stmt.target)} != {FAST_PATH}) {{")
        w.depth += 1
        store(w, rest)
        w.depth -= 1
        w.line("}")
    w.depth -= 1
    w.line("}")


def _stays(w: Writer, stays: str, headers: list[Header], cursor: ir.Var) -> None:
    """Sets `stays` if the headers that the deparser emits lie one after the other before the rest of the frame."""
    used = used_storage(w.module.ingress.body)
    w.line("uint32_t at = 0; /* do all headers stay where they are? */")
    w.line(f"{stays} = 1;")
    for header in headers:
        region = header.region
        if header.flag not in used:
            continue  # it is never valid
        assert region is not None  # `save` has a target only where all lie in wire order
        w.line(f"if ({w.c(header.valid)}) {{")
        w.line(f"    {stays} &= {w.name(region)} == data + at;")
        w.line(f"    at += {region.size};")
        w.line("}")
    w.line(f"{stays} &= at == {w.name(cursor) if cursor in used else 0};")
    mark_fast_path(w, stays, used)


@V1MODEL.of(ops.Preserve)
def _preserve(w: Writer, stmt: ops.Preserve) -> None:
    _preserve_if(w, stmt.args[0])


def _preserve_if(w: Writer, request: ir.Expr) -> None:
    if fields := preserved(w.module):
        w.line(f"if ({w.c(request)}) {{")
        w.depth += 1
        store(w, fields)
        w.depth -= 1
        w.line("}")


@V1MODEL.of(ops.Describe)
def _describe(w: Writer, stmt: ops.Describe) -> None:
    clone, session, field_list, digest = stmt.args
    w.line("/* what the program asked of the switch */")
    if isinstance(clone, ir.Var):
        w.line(f"pkt->clone = (uint8_t){w.c(clone)};")
        w.line(f"pkt->clone_session = {w.c(session)};")
        w.line(f"if ({w.expressions.test(clone)}) pkt->clone_list = {w.c(field_list)};")
    if isinstance(digest, ir.Var):
        w.line(f"pkt->digest = (uint8_t){w.c(digest)};")


@V1MODEL.of(ops.Resubmit)
def _resubmit(w: Writer, stmt: ops.Resubmit) -> None:
    w.line("verdict = INA_RESUBMIT;")
    w.line(f"pkt->field_list = {w.c(stmt.args[0])};")


@V1MODEL.of(ops.Multicast)
def _multicast(w: Writer, stmt: ops.Multicast) -> None:
    w.line("verdict = INA_MULTICAST;")
    w.line(f"pkt->mcast_grp = (uint16_t){w.c(stmt.args[0])};")


@V1MODEL.of(ops.Unicast)
def _unicast(w: Writer, stmt: ops.Unicast) -> None:
    w.line("verdict = INA_UNICAST;")
    w.line(f"pkt->egress_port = (uint16_t){w.c(stmt.args[0])};")


@V1MODEL.of(ops.IngressDrop)
def _ingress_drop(w: Writer, stmt: ops.IngressDrop) -> None:
    w.line("verdict = INA_DROP;")


@V1MODEL.of(ops.Drop)
def _drop(w: Writer, stmt: ops.Drop) -> None:
    w.line("pkt->verdict = INA_DROP;")
    w.line("return;")


@V1MODEL.of(ops.Truncate)
def _truncate(w: Writer, stmt: ops.Truncate) -> None:
    length = w.c(stmt.args[0])
    w.line(f"if (!{length}) pkt->truncate_len = 1;")
    w.line(f"else if (!pkt->truncate_len || {length} < pkt->truncate_len) pkt->truncate_len = {length};")


@V1MODEL.of(ops.Transmit)
def _transmit(w: Writer, stmt: ops.Transmit) -> None:
    again, field_list = stmt.args
    if isinstance(again, ir.Var):
        _preserve_if(w, again)
        w.line(f"if ({w.expressions.test(again)}) {{")
        w.line("    pkt->verdict = INA_RECIRCULATE;")
        w.line(f"    pkt->field_list = {w.c(field_list)};")
        w.line("    return;")
        w.line("}")
    w.line("pkt->verdict = INA_UNICAST;")
