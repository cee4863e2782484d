"""C text of IR expressions and of accesses to storage.

C variables are unsigned and as wide as needed: 32, 64 or 128 bits, and always hold canonical bit patterns (bits above
the width are zero), so that equality and unsigned comparison need nothing; only operations that can leave the width
are masked. Wider values are structs of 64-bit words with functions of their own (wide.h, emit/wide.py).
"""

from __future__ import annotations

import re

from ina.p4.compiler import ir
from ina.p4.compiler.emit.names import Names, c_comment
from ina.p4.compiler.emit.wide import Wide, is_wide, wide_cell, wide_number, wide_type, word_count

SIMPLE: dict[ir.Operator, str] = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}
COMPARE: dict[ir.Operator, str] = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
OPPOSITE: dict[ir.Operator, ir.Operator] = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
TRUTH = {*COMPARE, "land", "lor", "lnot"}  # what is an int in C


def container(width: int) -> int:
    """Returns the bits of the C variable that holds `width` bits."""
    return 32 if width <= 32 else 64 if width <= 64 else 128 if width <= 128 else 64 * word_count(width)


def c_type(width: int) -> str:
    if is_wide(width):
        return wide_type(width)
    return {32: "uint32_t", 64: "uint64_t", 128: "ina_u128"}[container(width)]


def signed_type(width: int) -> str:
    return {32: "int32_t", 64: "int64_t", 128: "__int128"}[container(width)]


def number(value: int, width: int) -> str:
    if is_wide(width):
        return wide_number(value, width)
    size = container(width)
    if size == 32:
        return f"{value}u"
    if size == 64:
        return f"{value}ull"
    return (
        f"((ina_u128){value >> 64}ull << 64 | {value & (1 << 64) - 1}ull)" if value >> 64 else f"(ina_u128){value}ull"
    )


def mask(text: str, width: int) -> str:
    """Returns `text` cut to `width` bits."""
    if is_wide(width):
        return text if width % 64 == 0 else f"{wide_type(width)}_mask({text}, {width})"
    return text if width == container(width) else f"({text} & {number((1 << width) - 1, width)})"


def cell_bytes(width: int) -> int:
    """Returns the bytes of a register cell or metadata field of `width` bits."""
    return 1 if width <= 8 else 2 if width <= 16 else container(width) // 8


def cell(pointer: str, size: int) -> str:
    """Returns the cell of `size` bytes at `pointer` as a C lvalue."""
    if size > 16:
        return wide_cell(pointer, size)
    return f"*(uint8_t *)({pointer})" if size == 1 else f"*(ina_r{8 * size} *)({pointer})"


class Expressions:
    """Writes expressions. `bases`: pointers to use for regions (within a loop)."""

    def __init__(self, names: Names) -> None:
        self.name = names.name
        self.wide = Wide(self.c)
        self.bases: dict[ir.Region, str] = {}

    def base(self, region: ir.Region) -> str:
        """Returns the pointer to a region's first byte."""
        return self.bases.get(region) or self.name(region)

    # --- storage ----------------------------------------------------------------------------------------------------

    def index(self, e: ir.Elem) -> str:
        if not e.step:
            return str(e.index)
        text = "i" if e.step == 1 else f"{e.step} * (int)i"
        return f"{text} + {e.index}" if e.index else text

    def elem(self, e: ir.Elem) -> str:
        array = e.array
        if array.region is None:
            return f"{self.name(array)}[{self.index(e)}]"
        if array.offset % 8 == 0 and array.width in (8, 16, 32, 64):
            return f"ina_load{array.width}({self.place(e)})"
        return self.wire(self.base(array.region), array.offset + e.index * array.width, array.width, field(e))

    def place(self, e: ir.Elem) -> str:
        """Returns the address of an element that is whole bytes."""
        assert e.array.region is not None
        base, size = self.base(e.array.region), e.array.width // 8
        at = plus(base, e.array.offset // 8 + size * e.index, field(e))
        return f"{at} + {size * e.step} * (int)i" if e.step else at

    def store_elem(self, e: ir.Elem, value: str) -> str:
        """Returns a statement that writes an element; the region must be writable (see `own`)."""
        array = e.array
        if array.region is None:
            return f"{self.name(array)}[{self.index(e)}] = {self.narrow(value, array.width)};"
        if array.offset % 8 == 0 and array.width in (8, 16, 32, 64):
            return f"ina_store{array.width}({self.place(e)}, {value});"
        base = self.base(array.region)
        return self.store_wire(base, array.offset + e.index * array.width, array.width, value, field(e))

    def narrow(self, value: str, width: int) -> str:
        return f"({array_type(width)}){value}" if width <= 16 else value

    def wire(self, base: str, bit: int, width: int, name: str = "") -> str:
        """Returns the `width` bits from bit `bit` after the pointer `base`; `name` goes into a comment."""
        if is_wide(width):
            return f"{wide_type(width)}_load({base}, {bit}, {width})"
        first, last = bit // 8, (bit + width - 1) // 8
        count = last - first + 1
        shift = 8 * (last + 1) - bit - width
        if count > 16:
            high, low = self.wire(base, bit, width - 8, name), self.wire(base, bit + width - 8, 8, name)
            return f"((ina_u128){high} << 8 | {low})"
        at = plus(base, first, name)
        text = f"ina_load_wide({at}, {count})" if count > 8 else f"ina_load({at}, {count})"
        if shift:
            text = f"({text} >> {shift})"
        if width <= 64 or count <= 8:
            text = f"({c_type(width)}){text}"
        return text if width == 8 * count or width == container(width) and count <= 16 else mask(f"({text})", width)

    def store_wire(self, base: str, bit: int, width: int, value: str, name: str = "") -> str:
        if is_wide(width):
            return f"{wide_type(width)}_store({base}, {bit}, {width}, {value});"
        first, last = bit // 8, (bit + width - 1) // 8
        count = last - first + 1
        shift = 8 * (last + 1) - bit - width
        if count > 16:
            # Two stores: the value may read the very bits that the first one changes.
            high = self.store_wire(base, bit, width - 8, "(whole >> 8)", name)
            low = self.store_wire(base, bit + width - 8, 8, "(whole & 255u)")
            return f"{{ const ina_u128 whole = {value}; {high} {low} }}"
        wide = count > 8
        kind = "ina_u128" if wide else "uint64_t"
        text = f"({kind}){value}" + (f" << {shift}" if shift else "")
        if width != 8 * count:
            keep = ((1 << 8 * count) - 1) & ~(((1 << width) - 1) << shift)
            old = f"ina_load{'_wide' if wide else ''}({plus(base, first)}, {count})"
            text = f"({text}) | ({old} & {number(keep, 8 * count)})"
        return f"ina_store{'_wide' if wide else ''}({plus(base, first, name)}, {count}, {text});"

    # --- expressions ------------------------------------------------------------------------------------------------

    def c(self, e: ir.Expr) -> str:
        """Returns the C text of an expression, of type `c_type(e.width)` (comparisons: int), canonical."""
        match e:
            case ir.Var():
                return self.name(e)
            case ir.Const():
                return number(e.value, e.width)
            case ir.Elem():
                return self.elem(e)
            case ir.Op():
                return self._op(e)
            case ir.Wire():
                return self.wire(f"data + {self.c(e.pos)}", e.bit, e.width)
            case ir.Native():
                return f"({c_type(e.width)}){atom(e.text)}"
        raise TypeError(type(e).__name__)

    def whole(self, e: ir.Expr) -> str:
        """Returns the text of `c` without outer brackets, for use as a whole expression."""
        text = self.c(e)
        return text[1:-1] if text[0] == "(" and _closed(text) else text

    def test(self, e: ir.Expr, inside: str = "") -> str:
        """Returns the C text of a condition, for an `if` or as an operand of `inside`."""
        if not isinstance(e, ir.Op) or e.op not in TRUTH or is_wide(e.args[0].width):
            return self.c(e)
        name, args = e.op, e.args
        if name == "lnot":
            inner = args[0]
            if isinstance(inner, ir.Op) and inner.op in OPPOSITE and not is_wide(inner.args[0].width):
                return self.test(ir.Op(OPPOSITE[inner.op], inner.args, 1), inside)
            text = self.test(inner)
            return f"!{text}" if not isinstance(inner, ir.Op) or text[0] == "(" == text[-1] and _closed(text) else f"!({text})"
        if name in ("land", "lor"):
            sign = "&&" if name == "land" else "||"
            text = f" {sign} ".join([self.test(a, name) for a in args])
            return f"({text})" if inside not in ("", name) else text
        side = self.as_signed if args[0].signed and name not in ("eq", "ne") else self.c
        text = f"{side(args[0])} {COMPARE[name]} {side(args[1])}"
        return f"({text})" if inside == "compare" else text

    def as_signed(self, e: ir.Expr) -> str:
        """Returns the value with its sign, as a C integer."""
        size, kind = container(e.width), signed_type(e.width)
        if size == e.width:
            return f"({kind}){self.c(e)}"
        gap = size - e.width
        return f"(({kind})({self.unsigned(e)} << {gap}) >> {gap})"

    def unsigned(self, e: ir.Expr) -> str:
        """Returns the text of `c`, cast where that is an int."""
        return f"(uint32_t){self.c(e)}" if e.width == 1 and isinstance(e, ir.Op) else self.c(e)

    def _op(self, e: ir.Op) -> str:
        name, args, width = e.op, e.args, e.width
        if is_wide(max(width, *(a.width for a in args))):
            return self.wide.operation(e)
        if name == "cond":
            return f"({self.c(args[0])} ? {self.c(args[1])} : {self.c(args[2])})"
        if name == "cast":
            return self._cast(args[0], width)
        if name in TRUTH:
            return f"({self.test(e)})"
        match name:
            case "not":
                return mask(f"(~{self.c(args[0])})", width)
            case "neg":
                return mask(f"(0 - {self.c(args[0])})", width)
            case "shl" | "shr":
                return self._shift(e)
        a, b = self.c(args[0]), self.c(args[1])
        if name in SIMPLE:
            text = f"({a} {SIMPLE[name]} {b})"
            return mask(text, width) if name in ("add", "sub", "mul") else text
        match name:
            case "div" | "mod":
                operator = "/" if name == "div" else "%"
                if isinstance(args[1], ir.Const) and args[1].value:
                    return f"({a} {operator} {b})"
                return f"({b} ? {a} {operator} {b} : {number(0, width)})"
            case "satadd" | "satsub":
                sign = "s" if e.signed else "u"
                if width == 32:
                    return f"ina_{name}_{sign}32({a}, {b})"
                bits = "" if name == "satsub" and not e.signed else f", {width}"
                return f"({c_type(width)})ina_{name}_{sign}({a}, {b}{bits})"
            case "concat":
                return f"(({c_type(width)}){a} << {args[1].width} | {b})"
        raise TypeError(name)

    def _cast(self, a: ir.Expr, width: int) -> str:
        if a.signed and width > a.width:
            return mask(f"({c_type(width)})({self.as_signed(a)})", width)
        if isinstance(a, ir.Native) and width <= 64:
            text = f"({c_type(width)}){atom(a.text)}"
            return mask(text, width) if width < a.width else text
        text = self.unsigned(a) if width > 1 else self.c(a)
        if container(width) != container(a.width):
            text = f"({c_type(width)}){text}"
        return mask(text, width) if width < a.width else text

    def _shift(self, e: ir.Op) -> str:
        a, n = e.args
        width = e.width
        if isinstance(n, ir.Const):
            amount = n.value
            if e.op == "shr" and e.signed:
                return mask(f"({c_type(width)})({self.as_signed(a)} >> {min(amount, width - 1)})", width)
            if amount >= width:
                return number(0, width)
            return mask(f"({self.unsigned(a)} << {amount})", width) if e.op == "shl" else f"({self.c(a)} >> {amount})"
        by = self.c(n)
        if e.op == "shr" and e.signed:
            limited = f"({by} < {width}u ? {by} : {width - 1}u)"
            return mask(f"({c_type(width)})({self.as_signed(a)} >> {limited})", width)
        sign = "<<" if e.op == "shl" else ">>"
        return mask(f"({by} < {width}u ? {self.unsigned(a)} {sign} {by} : {number(0, width)})", width)


def plus(base: str, offset: int, name: str = "") -> str:
    """Returns `base` plus `offset` bytes, with a comment that names the field there."""
    text = f"{base} + {offset}" if offset else base
    return f"{text} {c_comment(name)}" if name else text


def field(e: ir.Elem) -> str:
    return e.array.fields[e.index] if e.array.fields and not e.step else ""


def atom(text: str) -> str:
    return text if re.fullmatch(r"[\w\[\].>-]+", text) else f"({text})"


def _closed(text: str) -> bool:
    """Returns True if the first bracket of a text is closed by its last character."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if not depth:
            return i == len(text) - 1
    return False


def array_type(width: int) -> str:
    """Returns the C type of an element of a local array."""
    return {8: "uint8_t", 16: "uint16_t", 32: "uint32_t", 64: "uint64_t"}[width]
