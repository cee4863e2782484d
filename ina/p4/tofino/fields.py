"""Fields that an expression of a checked program reads, and that an lvalue is: paths from a control's parameters, with bits.

A `Ref` is (path, low bit, high bit). Headers and structs count as all their fields; a header's validity is the field `$valid`. A
`Scope` maps parameters of sub-controls and actions to their arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ina.p4.compiler import ast, types
from ina.p4.compiler.checked_program import Instance

Ref = tuple[str, int, int]
VALID = "$valid"


def width_of(t: types.Type) -> int:
    plain = types.strip_new(t)
    return 1 if isinstance(plain, types.BoolType) else types.fixed_width(plain) or 0


def leaves(path: str, t: types.Type) -> Iterator[Ref]:
    """Yields all fields of a value of type `t` that is at `path`."""
    plain = types.strip_new(t)
    if isinstance(plain, types.StackType):
        for i in range(plain.size):
            yield from leaves(f"{path}[{i}]", plain.element)
    elif isinstance(plain, types.RecordType):
        if isinstance(plain, types.HeaderType):
            yield f"{path}.{VALID}", 0, 0
        for f in plain.fields.values():
            yield from leaves(f"{path}.{f.name}", f.type)
    elif width := width_of(plain):
        yield path, 0, width - 1


@dataclass
class Scope:
    """`paths`: the path of each declaration, or the fields that its value was computed from. `instance`: owner of the body."""

    instance: Instance
    paths: dict[ast.Node, str | frozenset[Ref]] = field(default_factory=dict)

    def inner(self) -> Scope:
        return Scope(self.instance, dict(self.paths))

    def bind(self, params: Sequence[ast.Param], arguments: Sequence[ast.Expr | None], caller: Scope) -> None:
        """Binds parameters to arguments; None: a value from the control plane."""
        for param, argument in zip(params, arguments, strict=True):
            path = None if argument is None else caller.path(argument)
            self.paths[param] = path if path is not None else frozenset(caller.reads(argument))

    def path(self, e: ast.Expr) -> str | None:
        """Returns the path of an lvalue or a part of one; None: it is computed."""
        if isinstance(e, ast.Name):
            bound = self.paths.get(e.decl)
            if bound is None and isinstance(e.decl, ast.VarDecl):
                return f"{self.instance.name}.{e.name}"
            return bound if isinstance(bound, str) else None
        if isinstance(e, ast.Member) and e.kind == "field":
            base = self.path(e.base)
            return None if base is None else f"{base}.{e.member}"
        if isinstance(e, ast.Index):
            base = self.path(e.base)
            index = e.index.const if isinstance(e.index.const, int) else "*"
            return None if base is None else f"{base}[{index}]"
        if isinstance(e, ast.Cast) and width_of(e.type) == width_of(e.operand.type):
            return self.path(e.operand)
        return None

    def refs(self, e: ast.Expr) -> list[Ref]:
        """Returns the fields of an lvalue."""
        if isinstance(e, ast.Slice):
            base = self.refs(e.base)
            return [(base[0][0], base[0][1] + e.lo_bit, base[0][1] + e.hi_bit)] if len(base) == 1 else base
        path = self.path(e)
        if path is not None:
            return list(leaves(path, e.type))
        if isinstance(e, ast.Name) and isinstance(bound := self.paths.get(e.decl), frozenset):
            return list(bound)
        return []

    def reads(self, e: ast.Expr | None) -> list[Ref]:
        """Returns everything that the value of `e` depends on."""
        if e is None or e.const is not None:
            return []
        if isinstance(e, ast.Name):
            return self.refs(e)
        if isinstance(e, ast.Slice | ast.Index) or (isinstance(e, ast.Member) and e.kind == "field"):
            return self.refs(e) or self.reads(e.base)
        if isinstance(e, ast.Call):
            if e.kind == "header_method" and e.method == "isValid":
                path = self.path(e.on)
                return [(f"{path}.{VALID}", 0, 0)] if path else []
            return [r for a in e.args for r in self.reads(a)]
        return [r for part in parts(e) for r in self.reads(part)]


# Attributes of each class of expressions that have the expressions directly inside one
PARTS: dict[type[ast.Expr], tuple[str, ...]] = {
    ast.Binary: ("left", "right"), ast.Unary: ("operand",), ast.Cast: ("operand",), ast.Mask: ("value", "mask"),
    ast.Ternary: ("condition", "then", "otherwise"), ast.ListExpr: ("values",), ast.StructInit: ("values",),
    ast.Member: ("base",), ast.Slice: ("base",), ast.Index: ("base", "index"), ast.Call: ("receiver", "args"),
}


def parts(e: ast.Expr) -> list[ast.Expr]:
    """Returns the expressions directly inside `e`."""
    values = [getattr(e, name) for name in PARTS.get(type(e), ())]
    return [part for value in values for part in ([value] if isinstance(value, ast.Expr) else value or ()) if part is not None]


def calls(e: ast.Expr) -> Iterator[ast.Call]:
    """Yields the calls in an expression, those inside others' arguments first."""
    if e.const is not None:
        return
    for part in parts(e):
        yield from calls(part)
    if isinstance(e, ast.Call):
        yield e
