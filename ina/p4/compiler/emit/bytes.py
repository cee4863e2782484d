"""C text that converts values into bytes and back: hashes and checksums, varbits, the deparser."""

from __future__ import annotations

from ina.p4.compiler import ir
from ina.p4.compiler.emit.expressions import Expressions, c_type
from ina.p4.compiler.emit.wide import is_wide, wide_type
from ina.p4.compiler.externs.hashing import Crc
from ina.p4.compiler.lower import value_trees


class Bytes(Expressions):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.depth = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # --- hashes -----------------------------------------------------------------------------------------------------

    def packed(self, values: list[ir.Expr]) -> list[tuple[str, int]]:
        """Returns values one after the other in wire order as big-endian words of at most 64 bits: (C text, bits)."""
        words: list[tuple[str, int]] = []
        parts: list[str] = []
        used = 0
        for value in values:
            remaining = value.width
            while remaining:
                take = min(remaining, 64 - used)
                low = remaining - take
                if is_wide(value.width):
                    text = self.piece(value, low, take)
                else:
                    text = self.c(value)
                    if low:
                        text = f"({text} >> {low})"
                if remaining < value.width and not is_wide(value.width):  # not the first piece: bits above it have been written
                    text = f"((uint64_t){text} & {(1 << take) - 1}ull)"
                shift = 64 - used - take
                parts.append(f"(uint64_t){text} << {shift}" if shift else f"(uint64_t){text}")
                used += take
                remaining = low
                if used == 64:
                    words.append((" | ".join(f"({p})" for p in parts), 64))
                    parts, used = [], 0
        if used:
            words.append((" | ".join(f"({p})" for p in parts), used))
        return words

    def x_hash(self, stmt: ir.Extern) -> None:
        """Emits a hash. `data`: (algorithm, a list that is true for varbits, 1 if the payload behind the cursor is
        hashed too)."""
        algorithm, varbits, payload = stmt.data
        target = self.name(stmt.target)
        values = stmt.args[: len(stmt.args) - payload]
        rest = self.c(stmt.args[-1]) if payload else None
        bits = sum(v.width for v in values)
        if algorithm == "csum16" and not any(varbits) and (not payload or bits % 16 == 0):
            self._csum(target, values, rest)
            return
        self.line("{")
        self.depth += 1
        size = str((bits + 7) // 8)
        if any(varbits):
            size = self._put(values, varbits)
        else:
            self.line(f"uint8_t bytes[{8 * max(1, (bits + 63) // 64)}];")
            for i, (text, _) in enumerate(self.packed(values)):
                self.line(f"ina_store64(bytes + {8 * i}, {text});")
        if not isinstance(algorithm, str):
            self.line(f"{target} = {self.crc(algorithm, size)};")
            self.depth -= 1
            self.line("}")
            return
        more = f", data + {rest}, pkt->len - {rest}" if payload else ", 0, 0"
        kind = algorithm.removesuffix("_custom")
        self.line(f"{target} = ina_hash_{kind}(bytes, {size}{more});")
        self.depth -= 1
        self.line("}")

    def crc(self, crc: Crc, size: str) -> str:
        raise TypeError("defined in arch/emit_tna.py")

    def _put(self, values: list[ir.Expr], varbits: list[bool]) -> str:
        """Declares `bytes` and fills it with the values bit by bit; returns the C expression of its size."""
        self.line(f"uint8_t bytes[{(sum(v.width for v in values) + 7) // 8 + 1}] = {{0}};")
        self.line("uint64_t at = 0;")
        pending = iter(values)
        for is_varbit in varbits:
            value = next(pending)
            self._put_bits("bytes", value, self.c(next(pending)) if is_varbit else str(value.width))
        return "(at + 7) / 8"

    def _put_bits(self, into: str, value: ir.Expr, width: str) -> None:
        """Emits the copy of a value's low `width` bits into zeroed bytes from bit `at` on, which moves behind them."""
        if is_wide(value.width):
            self.line(f"ina_put_bits({into}, at, ({self.c(value)}).w, {width});")
        elif value.width > 64:
            text = self.c(value)
            self.line(f"ina_put_bits({into}, at, (const uint64_t[2]){{(uint64_t){text}, (uint64_t)({text} >> 64)}}, {width});")
        else:
            self.line(f"ina_put64({into}, at, {self.c(value)}, {width});")
        self.line(f"at += {width};")

    # --- varbits ----------------------------------------------------------------------------------------------------

    def x_extract_bits(self, stmt: ir.Extern) -> None:
        """Emits the extraction of a varbit, whose size is known at run time; the frame is long enough."""
        target, (position, size), bit = stmt.target, stmt.args, stmt.data
        where = f"data + {self.c(position)}, {bit}, {self.c(size)}"
        if is_wide(target.width):
            self.line(f"{self.name(target)} = {wide_type(target.width)}_load({where});")
            return
        self.line("{")
        self.line("    uint64_t bits[2] = {0};")
        self.line(f"    ina_get_bits(bits, {where});")
        value = "(ina_u128)bits[1] << 64 | bits[0]" if target.width > 64 else f"({c_type(target.width)})bits[0]"
        self.line(f"    {self.name(target)} = {value};")
        self.line("}")

    def _csum(self, target: str, values: list[ir.Expr], payload_at: str | None) -> None:
        """Emits the Internet checksum. It does not depend on the order of 16-bit words, so each stretch of whole ones is added
        as one number."""
        terms, stretch, bits = [], [], 0
        for value in values:
            stretch.append(value)
            bits += value.width
            if bits % 16 == 0 and (bits >= 32 or not self._joins(stretch, values)):
                terms.append(stretch)
                stretch, bits = [], 0
        if stretch:
            terms.append([*stretch, ir.Const(0, -bits % 16)] if bits % 16 else stretch)
        self.line("{")
        self.depth += 1
        self.line("uint64_t sum = 0;")
        loads = [self._load_of(term) for term in terms]
        if all(loads) and payload_at is None:  # the bytes' order can wait (RFC 1071)
            for load in loads:
                self.line(f"sum += {load};")
            self.line(f"{target} = __builtin_bswap16((uint16_t)ina_csum_fold(sum));")
        else:
            for term in terms:
                self._sum(term)
            if payload_at is not None:
                self.line(f"sum = ina_csum_add(sum, data + {payload_at}, pkt->len - {payload_at});")
            self.line(f"{target} = ina_csum_fold(sum);")
        self.depth -= 1
        self.line("}")

    def _load_of(self, values: list[ir.Expr]) -> str | None:
        """Returns the C load, in the processor's byte order, of 16 or 32 header bits that the values fill; None if they
        do not."""
        place = self.adjacent(values)
        if place is None or place[1] % 8 or place[2] not in (16, 32):
            return None
        region, start, bits = place
        return f"*(const ina_u{bits} *)({self.base(region)} + {start // 8})"

    def _joins(self, stretch: list[ir.Expr], values: list[ir.Expr]) -> bool:
        """Returns True if the value after a stretch lies right behind it in the same header (then one load takes both)."""
        after = values.index(stretch[-1]) + 1
        return after < len(values) and self.adjacent([*stretch, values[after]]) is not None

    @staticmethod
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

    def _sum(self, values: list[ir.Expr]) -> None:
        place = self.adjacent(values)
        if place and place[1] % 8 == 0 and place[2] <= 32:
            self.line(f"sum += {self.wire(self.base(place[0]), place[1], place[2])};")
            return
        for text, _ in self.packed(values):
            self.line(f"sum += (({text}) >> 32) + (uint32_t)({text});")

    # --- the deparser -----------------------------------------------------------------------------------------------

    def x_deparse(self, stmt: ir.Extern) -> None:
        """Moves what has to move, writes the small headers, and sets the frame's new bounds.

        The unparsed rest of the frame stays where it is, and headers in wire order that keep their distance to it as
        well.
        """
        cursor, total = (self.c(a) for a in stmt.args[:2])
        emitted = [(header, self.c(place)) for (header, _), place in zip(stmt.data, stmt.args[2:], strict=False)]
        regions = [(n, header.region, out) for n, (header, out) in enumerate(emitted) if header.region]
        self.line("/* what leaves: the headers, then the rest of the frame */")
        self.line(f"const uint32_t rest = pkt->len - {cursor};")
        self.line(f"int64_t start = (int64_t){cursor} - {total};")
        self.line("uint32_t push = 0;  /* how far the rest must move for want of headroom */")
        self.line("if (__builtin_expect(start < -(int64_t)pkt->headroom, 0)) {")
        self.line("    push = (uint32_t)(-(int64_t)pkt->headroom - start);")
        self.line("    if (push > pkt->tailroom) {")
        self.line("        pkt->verdict = INA_DROP;")
        self.line("        return;")
        self.line("    }")
        self.line("    start += push;")
        self.line("}")
        for n, region, out in regions:
            name = self.name(region)
            self.line(f"const int move{n} = {out} && {name} != data + (start + {out} - 1);")
            self.line(f"uint8_t scratch{n}[{region.size}];")
            self.line(f"if (move{n}) memcpy(scratch{n}, {name}, {region.size});")
        self.line(f"if (push) memmove(data + {cursor} + push, data + {cursor}, rest);")
        for n, region, out in regions:
            self.line(f"if (move{n}) memcpy(data + (start + {out} - 1), scratch{n}, {region.size});")
        for header, out in emitted:
            if not header.region:
                self._write_header(header, out)
        self.line("pkt->data = data + start;")
        self.line("pkt->headroom = (uint32_t)(pkt->headroom + start);")
        self.line("pkt->tailroom -= push;")
        self.line(f"pkt->wire_len += {total} - {cursor};")
        self.line(f"pkt->len = {total} + rest;")

    def _write_header(self, header: value_trees.Header, out: str) -> None:
        self.line(f"if ({out}) {{")
        self.depth += 1
        self.line(f"uint8_t *const o = data + (start + {out} - 1);")
        if value_trees.varbit(header.type):
            self._put_header(header)
        at = 0
        fixed = [] if value_trees.varbit(header.type) else list(value_trees.on_the_wire(header))
        for text, bits in self.packed(fixed):
            size = bits // 8
            value = text if bits == 64 else f"({text}) >> {64 - bits}"
            self.line(f"ina_store(o + {at}, {size}, {value});")
            at += size
        self.depth -= 1
        self.line("}")

    def _put_header(self, header: value_trees.Header) -> None:
        """Emits a header with a varbit, written at `o`."""
        self.line("uint64_t at = 0;")
        size = value_trees.fixed_bits(header.type) // 8
        varbits = [self.c(f.size) for f in header.fields.values() if isinstance(f, value_trees.Varbit)]
        self.line(f"memset(o, 0, {size} + {' + '.join(f'{v} / 8' for v in varbits)});")
        padding = header.type.padding()
        for name, field in header.fields.items():
            if isinstance(field, value_trees.Varbit):
                self._put_bits("o", field.bits, self.c(field.size))
            else:
                for leaf in map(value_trees.expression, value_trees.scalars(field)):
                    self._put_bits("o", leaf, str(leaf.width))
            if name in padding:
                self.line(f"at += {padding[name]};")
