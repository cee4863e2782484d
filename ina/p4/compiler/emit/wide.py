"""C text of values of more than 128 bits: structs of 64-bit words, `ina_w<words>`, and their functions (wide.h)."""

from __future__ import annotations

from collections.abc import Callable

from ina.p4.compiler import ir


def is_wide(width: int) -> bool:
    return width > 128


def word_count(width: int) -> int:
    return (width + 63) // 64


def wide_type(width: int) -> str:
    return f"ina_w{word_count(width)}"


def wide_number(value: int, width: int) -> str:
    words = ", ".join(f"{value >> (64 * i) & (1 << 64) - 1}ull" for i in range(word_count(width)))
    return f"(({wide_type(width)}){{{{{words}}}}})"


def wide_cell(pointer: str, size: int) -> str:
    """Returns the cell of `size` bytes at `pointer` as a C lvalue."""
    return f"*(ina_rw{size // 8} *)({pointer})"


class Wide:
    """Operations with a wide operand or result. `c` gives the C text of an expression."""

    def __init__(self, c: Callable[[ir.Expr], str]) -> None:
        self.c = c

    def operation(self, e: ir.Op) -> str:
        name, args, width = e.op, e.args, e.width
        kind = wide_type(max(width, args[0].width))
        match name:
            case "cond":
                return f"({self.c(args[0])} ? {self.c(args[1])} : {self.c(args[2])})"
            case "cast":
                return self._convert(args[0], width)
            case "concat":
                high, low = (self._resized(a, width) for a in args)
                return f"{kind}_or({kind}_shl({high}, {args[1].width}), {low})"
            case "not" | "neg":
                text = f"{kind}_not({self.c(args[0])})"
                return self._cut(text if name == "not" else f"{kind}_add({text}, {kind}_of(1))", width)
            case "shl" | "shr":
                return self._wide_shift(e)
        a, b = self.c(args[0]), self.c(args[1])
        match name:
            case "eq":
                return f"{kind}_eq({a}, {b})"
            case "ne":
                return f"(uint32_t)!{kind}_eq({a}, {b})"
            case "lt" | "gt" | "le" | "ge":
                if name in ("gt", "le"):
                    a, b = b, a
                less = (
                    f"{kind}_slt({a}, {b}, {args[0].width})" if args[0].signed else f"{kind}_ult({a}, {b})"
                )
                return less if name in ("lt", "gt") else f"(uint32_t)!{less}"
            case "satadd" | "satsub":
                return f"{kind}_{name}({a}, {b}, {width}, {int(e.signed)})"
            case "and" | "or" | "xor" | "div" | "mod":
                return f"{kind}_{name}({a}, {b})"
            case "add" | "sub" | "mul":
                return self._cut(f"{kind}_{name}({a}, {b})", width)
        raise TypeError(name)

    @staticmethod
    def _cut(text: str, width: int) -> str:
        return text if width % 64 == 0 else f"{wide_type(width)}_mask({text}, {width})"

    def _resized(self, e: ir.Expr, width: int) -> str:
        """Returns the bits of `e` as the wide type of `width` bits, which is no narrower."""
        if not is_wide(e.width):
            return f"{wide_type(width)}_of({self.c(e)})"
        if word_count(e.width) == word_count(width):
            return self.c(e)
        return f"{wide_type(width)}_from({self.c(e)}.w, {word_count(e.width)})"

    def _convert(self, e: ir.Expr, width: int) -> str:
        if is_wide(width):
            if width < e.width:
                same = word_count(e.width) == word_count(width)
                text = self.c(e)
                return self._cut(
                    text if same else f"{wide_type(width)}_from({text}.w, {word_count(e.width)})", width
                )
            text = self._resized(e, width)
            if e.signed and width > e.width:
                text = self._cut(f"{wide_type(width)}_extend({text}, {e.width})", width)
            return text
        text = f"{wide_type(e.width)}_low({self.c(e)})"
        if width < 128:
            text = f"({text} & (((ina_u128)1 << {width}) - 1))"
        return f"(uint32_t){text}" if width <= 32 else f"(uint64_t){text}" if width <= 64 else text

    def _wide_shift(self, e: ir.Op) -> str:
        value, amount = e.args
        by = self.c(amount)
        if is_wide(amount.width):
            by = f"{wide_type(amount.width)}_amount({by})"
        if not is_wide(e.width):  # only the amount is wide
            return self.c(ir.Op(e.op, (value, ir.Native(by, 64)), e.width, e.signed))
        if 64 < amount.width <= 128:
            by = f"({by} > 0xffffffffu ? 0xffffffffu : (uint64_t){by})"
        kind = wide_type(e.width)
        if e.op == "shl":
            return self._cut(f"{kind}_shl({self.c(value)}, {by})", e.width)
        if e.signed:
            return f"{kind}_sar({self.c(value)}, {by}, {e.width})"
        return f"{kind}_shr({self.c(value)}, {by})"

    def piece(self, e: ir.Expr, low: int, take: int) -> str:
        """Returns `take` <= 64 bits of a wide value from bit `low` on, as a 64-bit integer."""
        text = f"{wide_type(e.width)}_shr({self.c(e)}, {low}).w[0]" if low else f"{self.c(e)}.w[0]"
        return text if take == 64 else f"({text} & {(1 << take) - 1}ull)"
