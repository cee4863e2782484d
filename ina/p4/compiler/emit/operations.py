"""C text of the operations that programs of any architecture use."""

from __future__ import annotations

from ina.p4.compiler import ir, operations
from ina.p4.compiler.emit.expressions import c_type
from ina.p4.compiler.emit.hashes import write_hash
from ina.p4.compiler.emit.storage import packed, put_bits
from ina.p4.compiler.emit.wide import is_wide, wide_type
from ina.p4.compiler.emit.writer import Handlers, Writer
from ina.p4.compiler.lower import value_trees

COMMON = Handlers()
COMMON.of(operations.Hash)(write_hash)


@COMMON.of(operations.Random)
def _random(w: Writer, stmt: operations.Random) -> None:
    low, size = (w.c(a) for a in stmt.args)
    seed = f"(uint64_t *)(void *)(state + {w.module.layout['random_offset']})"
    w.line(f"{w.name(stmt.target)} = ina_random({seed}, {low}, {size});")


def _octets(w: Writer, less: ir.Expr | None) -> str:
    """Returns the bytes of the packet, as counters and meters see it."""
    octets = "pkt->wire_len" if w.module.architecture == "v1model" else "octets"
    return octets if less is None else f"({octets} - {w.c(less)})"


def meter_text(w: Writer, meter: ir.Meter, index: str, less: ir.Expr | None = None, before: str | None = None) -> str:
    """Returns a meter's colour. `less`: bytes that do not count. `before`: the packet's colour so far."""
    amount = "1" if meter.kind == "packets" else _octets(w, less)
    if meter.adjust is not None:
        adjust = f"*(const int64_t *)(const void *)(state + {meter.adjust.offset})"
        amount = f"ina_adjusted({_octets(w, None)}, {w.c(less) if less is not None else '0'}, {adjust})"
    cell = f"(struct ina_meter *)(void *)(state + {meter.offset} + 64 * (uint64_t)({index}))"
    call = f"ina_meter({cell}, {amount}, now)" if before is None else f"ina_meter_aware({cell}, {amount}, now, {before})"
    return f"({index} < {meter.size}u ? {call} : {before or 0})"


@COMMON.of(operations.Measure)
def _measure(w: Writer, stmt: operations.Measure) -> None:
    index, *more = stmt.args
    less, before = more[0] if more else None, w.c(more[1]) if len(more) > 1 else None
    text = meter_text(w, stmt.meter, w.c(index), less, before)
    w.line(f"{w.name(stmt.target)} = {text};")


def count(w: Writer, counter: ir.Counter, index: str, less: ir.Expr | None = None) -> None:
    base = f"state + {counter.offset} + 16 * (uint64_t)({index})"
    w.line(
        f"if ({index} < {counter.size}u) {{",
        f"    *(ina_r64 *)({base}) += 1;",
        f"    *(ina_r64 *)({base} + 8) += {_octets(w, less)};",
        "}",
    )


@COMMON.of(operations.Count)
def _count(w: Writer, stmt: operations.Count) -> None:
    count(w, stmt.counter, w.c(stmt.args[0]), stmt.args[1] if len(stmt.args) > 1 else None)


@COMMON.of(operations.Fail)
def _fail(w: Writer, stmt: operations.Fail) -> None:
    w.line(
        f"pkt->verdict = {stmt.verdict};",
        "pkt->clone = pkt->digest = 0;",
        f"{w.leave};",
    )


@COMMON.of(operations.LeaveFastPath)
def _leave_fast_path(w: Writer, stmt: operations.LeaveFastPath) -> None:
    w.line("return 0;")


@COMMON.of(operations.ExtractRegion)
def _extract_region(w: Writer, stmt: operations.ExtractRegion) -> None:
    region, cursor = stmt.region, w.c(stmt.args[0])
    if region.in_place:
        w.line(f"{w.name(region)} = data + {cursor};")
    else:
        w.line(f"{w.name(region)} = memcpy({w.buffer(region)}, data + {cursor}, {region.size});")


@COMMON.of(operations.FreshRegion)
def _fresh_region(w: Writer, stmt: operations.FreshRegion) -> None:
    w.line(f"{w.name(stmt.region)} = memset({w.buffer(stmt.region)}, 0, {stmt.region.size});")


@COMMON.of(operations.KeepRegion)
def _keep_region(w: Writer, stmt: operations.KeepRegion) -> None:
    name, region = w.name(stmt.region), stmt.region
    w.line(f"if ({name} == ina_zeros) {name} = memset({w.buffer(region)}, 0, {region.size});")


@COMMON.of(operations.ClearRegion)
def _clear_region(w: Writer, stmt: operations.ClearRegion) -> None:
    w.line(f"{w.name(stmt.region)} = (uint8_t *)ina_zeros;")


@COMMON.of(operations.CopyRegion)
def _copy_region(w: Writer, stmt: operations.CopyRegion) -> None:
    target, source = stmt.to, stmt.source
    w.own(target)
    w.line(
        f"memmove({w.name(target)}, {w.name(source)}, {target.size});",
        f"{w.name(target.valid)} = {w.name(source.valid)};",
    )


@COMMON.of(operations.ExtractBits)
def _extract_bits(w: Writer, stmt: operations.ExtractBits) -> None:
    # The frame is long enough.
    target, (position, size), bit = stmt.target, stmt.args, stmt.bit
    where = f"data + {w.c(position)}, {bit}, {w.c(size)}"
    if is_wide(target.width):
        w.line(f"{w.name(target)} = {wide_type(target.width)}_load({where});")
        return
    w.line(
        "{",
        "    uint64_t bits[2] = {0};",
        f"    ina_get_bits(bits, {where});",
    )
    value = "(ina_u128)bits[1] << 64 | bits[0]" if target.width > 64 else f"({c_type(target.width)})bits[0]"
    w.line(
        f"    {w.name(target)} = {value};",
        "}",
    )


@COMMON.of(operations.Deparse)
def _deparse(w: Writer, stmt: operations.Deparse) -> None:
    """Moves what has to move, writes the small headers, and sets the frame's new bounds.

    The unparsed rest of the frame stays where it is, and headers in wire order that keep their distance to it as
    well.
    """
    cursor, total = (w.c(a) for a in stmt.args[:2])
    emitted = [(header, w.c(place)) for header, place in zip(stmt.headers, stmt.args[2:], strict=False)]
    regions = [(n, header.region, out) for n, (header, out) in enumerate(emitted) if header.region]
    w.line(
        "/* what leaves: the headers, then the rest of the frame */",
        f"const uint32_t rest = pkt->len - {cursor};",
        f"int64_t start = (int64_t){cursor} - {total};",
        "uint32_t push = 0;  /* how far the rest must move for want of headroom */",
        "if (__builtin_expect(start < -(int64_t)pkt->headroom, 0)) {",
        "    push = (uint32_t)(-(int64_t)pkt->headroom - start);",
        "    if (push > pkt->tailroom) {",
        "        pkt->verdict = INA_DROP;",
        "        return;",
        "    }",
        "    start += push;",
        "}",
    )
    for n, region, out in regions:
        name = w.name(region)
        w.line(
            f"const int move{n} = {out} && {name} != data + (start + {out} - 1);",
            f"uint8_t scratch{n}[{region.size}];",
            f"if (move{n}) memcpy(scratch{n}, {name}, {region.size});",
        )
    w.line(f"if (push) memmove(data + {cursor} + push, data + {cursor}, rest);")
    for n, region, out in regions:
        w.line(f"if (move{n}) memcpy(data + (start + {out} - 1), scratch{n}, {region.size});")
    for header, out in emitted:
        if not header.region:
            _write_header(w, header, out)
    w.line(
        "pkt->data = data + start;",
        "pkt->headroom = (uint32_t)(pkt->headroom + start);",
        "pkt->tailroom -= push;",
        f"pkt->wire_len += {total} - {cursor};",
        f"pkt->len = {total} + rest;",
    )


def _write_header(w: Writer, header: value_trees.Header, out: str) -> None:
    with w.braces(f"if ({out}) {{"):
        w.line(f"uint8_t *const o = data + (start + {out} - 1);")
        if value_trees.varbit(header.type):
            _put_header(w, header)
        at = 0
        fixed = [] if value_trees.varbit(header.type) else list(value_trees.on_the_wire(header))
        for text, bits in packed(w, fixed):
            size = bits // 8
            value = text if bits == 64 else f"({text}) >> {64 - bits}"
            w.line(f"ina_store(o + {at}, {size}, {value});")
            at += size


def _put_header(w: Writer, header: value_trees.Header) -> None:
    """Emits a header with a varbit, written at `o`."""
    w.line("uint64_t at = 0;")
    size = value_trees.fixed_bits(header.type) // 8
    varbits = [w.c(f.size) for f in header.fields.values() if isinstance(f, value_trees.Varbit)]
    w.line(f"memset(o, 0, {size} + {' + '.join(f'{v} / 8' for v in varbits)});")
    padding = header.type.padding()
    for name, field in header.fields.items():
        if isinstance(field, value_trees.Varbit):
            put_bits(w, "o", field.bits, w.c(field.size))
        else:
            for leaf in map(value_trees.expression, value_trees.scalars(field)):
                put_bits(w, "o", leaf, str(leaf.width))
        if name in padding:
            w.line(f"at += {padding[name]};")


@COMMON.of(operations.CallC)
def _call_c(w: Writer, stmt: operations.CallC) -> None:
    args = [f"state + {stmt.state.offset}"] if stmt.state is not None else []
    for arg, pointer in zip(stmt.args, stmt.pointers, strict=True):
        kind = "(int64_t *)" if arg.signed else ""
        args.append(f"{kind}&{w.c(arg)}" if pointer else w.c(arg))
    result = f"{w.name(stmt.target)} = (uint64_t)" if stmt.returns else ""
    w.line(f"{result}{stmt.function}({', '.join(args)});")
