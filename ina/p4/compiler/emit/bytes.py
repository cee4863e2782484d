"""C text that lays values out as bytes."""

from __future__ import annotations

from ina.p4.compiler import ir
from ina.p4.compiler.emit.wide import is_wide
from ina.p4.compiler.emit.writer import Writer


def packed(w: Writer, values: list[ir.Expr]) -> list[tuple[str, int]]:
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
                text = w.expressions.wide.piece(value, low, take)
            else:
                text = w.c(value)
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


def put_bits(w: Writer, into: str, value: ir.Expr, width: str) -> None:
    """Emits the copy of a value's low `width` bits into zeroed bytes from bit `at` on, which moves behind them."""
    if is_wide(value.width):
        w.line(f"ina_put_bits({into}, at, ({w.c(value)}).w, {width});")
    elif value.width > 64:
        text = w.c(value)
        w.line(f"ina_put_bits({into}, at, (const uint64_t[2]){{(uint64_t){text}, (uint64_t)({text} >> 64)}}, {width});")
    else:
        w.line(f"ina_put64({into}, at, {w.c(value)}, {width});")
    w.line(f"at += {width};")
