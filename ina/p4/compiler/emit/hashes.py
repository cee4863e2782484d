"""C text of hashes and checksums."""

from __future__ import annotations

from ina.p4.compiler import ir
from ina.p4.compiler.emit.expressions import c_type
from ina.p4.compiler.emit.storage import packed, put_bits
from ina.p4.compiler.emit.writer import Writer
from ina.p4.compiler.operations import Crc, Hash


def write_hash(w: Writer, stmt: Hash) -> None:
    algorithm, varbits, payload = stmt.algorithm, stmt.varbits, stmt.payload
    target = w.name(stmt.target)
    values = stmt.args[: len(stmt.args) - payload]
    rest = w.c(stmt.args[-1]) if payload else None
    bits = sum(v.width for v in values)
    if algorithm == "csum16" and not any(varbits) and (not payload or bits % 16 == 0):
        _csum(w, target, values, rest)
        return
    with w.braces("{"):
        size = str((bits + 7) // 8)
        if any(varbits):
            size = _put(w, values, varbits)
        else:
            put_words(w, values)
        if isinstance(algorithm, str):
            more = f", data + {rest}, pkt->len - {rest}" if payload else ", 0, 0"
            w.line(f"{target} = ina_hash_{algorithm.removesuffix('_custom')}(bytes, {size}{more});")
        else:
            w.line(f"{target} = {crc_text(w, algorithm, size)};")


def crc_text(w: Writer, crc: Crc, size: str) -> str:
    """Returns the CRC of the first `size` bytes of `bytes`."""
    table = w.crcs.setdefault(crc, f"ina_crc{crc.width}_{len(w.crcs)}")
    if crc.reversed:
        return f"({c_type(crc.width)})ina_crc_low({table}, {crc.init}ull, bytes, {size}) ^ {crc.xor}ull"
    return f"({c_type(crc.width)})ina_crc_high({table}, {crc.width}, {crc.init}ull, bytes, {size}) ^ {crc.xor}ull"


def crc_tables(w: Writer) -> list[str]:
    lines = []
    for crc, name in w.crcs.items():
        lines.append(f"static const uint64_t {name}[256] = {{ /* polynomial {crc.poly:#x} */")
        values = crc_table(crc)
        lines += ["    " + " ".join(f"{v:#018x}ull," for v in values[i : i + 4]) for i in range(0, 256, 4)]
        lines.append("};")
    return lines


def crc_table(crc: Crc) -> list[int]:
    """Returns the table of a CRC: the effect of each byte on the register."""
    mask, values = (1 << crc.width) - 1, []
    poly = int(f"{crc.poly:0{crc.width}b}"[::-1], 2) if crc.reversed else crc.poly
    for byte in range(256):
        value = byte if crc.reversed else byte << (crc.width - 8)
        for _ in range(8):
            if crc.reversed:
                value = value >> 1 ^ (poly if value & 1 else 0)
            else:
                value = (value << 1 ^ (poly if value >> (crc.width - 1) & 1 else 0)) & mask
        values.append(value)
    return values


def put_words(w: Writer, values: list[ir.Expr]) -> None:
    """Declares `bytes` and fills it with the values, in words of 64 bits."""
    bits = sum(v.width for v in values)
    w.line(f"uint8_t bytes[{8 * max(1, (bits + 63) // 64)}];")
    for i, (text, _) in enumerate(packed(w, values)):
        w.line(f"ina_store64(bytes + {8 * i}, {text});")


def _put(w: Writer, values: list[ir.Expr], varbits: list[bool]) -> str:
    """Declares `bytes` and fills it with the values bit by bit; returns the C expression of its size."""
    w.line(
        f"uint8_t bytes[{(sum(v.width for v in values) + 7) // 8 + 1}] = {{0}};",
        "uint64_t at = 0;",
    )
    pending = iter(values)
    for is_varbit in varbits:
        value = next(pending)
        put_bits(w, "bytes", value, w.c(next(pending)) if is_varbit else str(value.width))
    return "(at + 7) / 8"


def _csum(w: Writer, target: str, values: list[ir.Expr], payload_at: str | None) -> None:
    """Emits the Internet checksum. It does not depend on the order of 16-bit words, so each stretch of whole ones is added
    as one number."""
    terms, stretch, bits = [], [], 0
    for value in values:
        stretch.append(value)
        bits += value.width
        if bits % 16 == 0 and (bits >= 32 or not _joins(stretch, values)):
            terms.append(stretch)
            stretch, bits = [], 0
    if stretch:
        terms.append([*stretch, ir.Const(0, -bits % 16)] if bits % 16 else stretch)
    with w.braces("{"):
        w.line("uint64_t sum = 0;")
        loads = [_load_of(w, term) for term in terms]
        if all(loads) and payload_at is None:  # the bytes' order can wait (RFC 1071)
            for load in loads:
                w.line(f"sum += {load};")
            w.line(f"{target} = __builtin_bswap16((uint16_t)ina_csum_fold(sum));")
        else:
            for term in terms:
                _sum(w, term)
            if payload_at is not None:
                w.line(f"sum = ina_csum_add(sum, data + {payload_at}, pkt->len - {payload_at});")
            w.line(f"{target} = ina_csum_fold(sum);")


def _load_of(w: Writer, values: list[ir.Expr]) -> str | None:
    """Returns the C load, in the processor's byte order, of 16 or 32 header bits that the values fill; None if they
    do not."""
    place = adjacent(values)
    if place is None or place[1] % 8 or place[2] not in (16, 32):
        return None
    region, start, bits = place
    return f"*(const ina_u{bits} *)({w.expressions.base(region)} + {start // 8})"


def _joins(stretch: list[ir.Expr], values: list[ir.Expr]) -> bool:
    """Returns True if the value after a stretch lies right behind it in the same header (then one load takes both)."""
    after = values.index(stretch[-1]) + 1
    return after < len(values) and adjacent([*stretch, values[after]]) is not None


def adjacent(values: list[ir.Expr]) -> tuple[ir.Region, int, int] | None:
    """Returns (region, first bit, bits) of values that lie side by side in one header, else None."""
    first = values[0]
    if not isinstance(first, ir.Elem) or first.array.region is None:
        return None
    start = at = first.array.offset + first.index * first.array.width
    for value in values:
        if not isinstance(value, ir.Elem) or value.array.region is not first.array.region:
            return None
        if value.array.offset + value.index * value.array.width != at:
            return None
        at += value.array.width
    return first.array.region, start, at - start


def _sum(w: Writer, values: list[ir.Expr]) -> None:
    place = adjacent(values)
    if place and place[1] % 8 == 0 and place[2] <= 32:
        w.line(f"sum += {w.expressions.wire(w.expressions.base(place[0]), place[1], place[2])};")
        return
    for text, _ in packed(w, values):
        w.line(f"sum += (({text}) >> 32) + (uint32_t)({text});")
