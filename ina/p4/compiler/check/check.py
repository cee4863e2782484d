"""The checker's top level: declarations of a program in order (P4_16 v1.2.5 §6, §7). It collects all errors.

The checker is one object whose class grows with its subjects: types, conversions, operators, expressions, calls, statements,
tables, blocks (parsers and controls), programs, each a file of check/ on top of the one before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.blocks import BlockChecker
from ina.p4.compiler.check.const import wrap
from ina.p4.compiler.check.elaborate import elaborate
from ina.p4.compiler.check.types import TooManyErrors
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.errors import CompileError, Note
from ina.p4.compiler.types import BitType, Signature


def check_program(program: ast.Program) -> CheckedProgram:
    """Checks and annotates `program`. Raises CompileError with all errors (at most MAX_ERRORS)."""
    return ProgramChecker().program(program)


class ProgramChecker(BlockChecker):
    def program(self, program: ast.Program) -> CheckedProgram:
        declarations: list[ast.Node] = []
        try:
            for d in program.declarations:
                with self.declaring(d):
                    self.annotations(d)
                    if getattr(d, "name", "") == "main" and isinstance(d, (ast.ExternDecl, ast.RecordDecl)):
                        self.fail(d.span, "'main' must be the instantiation of a package")
                    _CHECKS[type(d)](self, d)
                declarations += self.new_functions
                self.new_functions = []
                declarations.append(d)
        except TooManyErrors:
            pass
        if self.diagnostics:
            raise CompileError.collect(self.diagnostics)
        named_types = {
            d.name: d.type
            for d in declarations
            if isinstance(d, ast.TypeDeclaration) and d.type is not None
        }
        checked = CheckedProgram(
            program.filename,
            declarations,
            None,
            {},
            self.error_members,
            self.match_kinds,
            named_types,
            warnings=self.warnings,
        )
        elaborate(checked)
        return checked

    def annotations(self, d: ast.Node) -> None:
        """Checks annotations: structured ones may appear once and hold integers, strings and bools (§18.1); `@name` holds a
        string."""
        seen: dict[str, ast.Annotation] = {}
        for note in getattr(d, "annotations", ()):
            if note.name in seen and (note.structured or seen[note.name].structured):
                self.fail(note.span, f"annotation @{note.name} stands twice", [Note("first here", seen[note.name].span)])
            seen[note.name] = note
            for e in (*note.exprs, *note.pairs.values()) if note.structured else ():
                if isinstance(e, (ast.ListExpr, ast.StructInit)):
                    self.fail(e.span, f"@{note.name} can hold integers, strings and bools")
            if note.name == "name" and isinstance(next(iter(note.exprs), None), ast.IntLiteral):
                self.fail(note.span, "@name holds a string")
            if note.name == "deprecated" and note.exprs and isinstance(note.exprs[0], ast.Binary):
                if note.exprs[0].op != "++":
                    self.fail(note.exprs[0].span, "@deprecated holds a string")

    # --- types

    def record_declaration(self, d: ast.RecordDecl) -> None:
        if d.type_params:
            variables = {p.name for p in d.type_params}
            if len(variables) != len(d.type_params):
                self.fail(d.span, f"{d.kind} {d.name} has a type parameter twice")
            with self.nested():
                self.record(d, self.type_variables(d.type_params), d.span)
        else:
            d.type = self.record(d, (), d.span)
        self.scope.declare(d.name, d, d.span)

    def enum_declaration(self, d: ast.EnumDecl) -> None:
        seen: dict[str, ast.EnumMember] = {}
        for member in d.members:
            if member.name in seen:
                self.fail(
                    member.span,
                    f"enum {d.name} has '{member.name}' twice",
                    [Note("first here", seen[member.name].span)],
                )
            seen[member.name] = member
        if not d.members:
            self.fail(d.span, f"enum {d.name} has no members")
        if d.underlying is None:
            for member in d.members:
                if member.value is not None:
                    self.fail(member.span, f"only an enum with a type has values: enum bit<8> {d.name} {{ ... }}")
            d.type = types.EnumType(d.name, list(seen), d)
        else:
            underlying = self.resolve(d.underlying)
            if not isinstance(underlying, BitType):
                self.fail(d.underlying.span, f"the type of an enum must be bit<> or int<>, not {underlying}")
            t = types.SerEnumType(d.name, underlying, {}, d)
            with self.nested() as scope:
                scope.names[d.name] = t  # members may build on earlier ones
                for member in d.members:
                    if member.value is None:
                        self.fail(member.span, f"'{member.name}' needs a value: {member.name} = ...")
                    value = self.constant_int(member.value, f"value of '{member.name}'")
                    if wrap(value, underlying) != value:
                        self.fail(member.value.span, f"{value} does not fit into {underlying}")
                    t.members[member.name] = value
            d.type = t
        self.scope.declare(d.name, d, d.span)

    def typedef_declaration(self, d: ast.TypedefDecl) -> None:
        target = d.target
        if isinstance(target, (ast.RecordDecl, ast.EnumDecl)):
            _CHECKS[type(target)](self, target)
            base = target.type
            assert base is not None
        else:
            base = self.resolve(target)
        if d.is_new:
            plain = types.underlying(base)
            if not isinstance(plain, (BitType, types.BoolType, types.VarbitType)) or isinstance(
                base, types.SerEnumType
            ):
                self.fail(
                    d.span,
                    f"'type' makes new types of bit<>, int<>, varbit<> and bool, not of {base}",
                    ["use 'typedef'"],
                )
            d.type = types.NewType(d.name, base, d)
        else:
            d.type = base
        self.scope.declare(d.name, d, d.span)

    def error_declaration(self, d: ast.ErrorDecl | ast.MatchKindDecl) -> None:
        kind, members = (
            ("error", self.error_members) if isinstance(d, ast.ErrorDecl) else ("match_kind", self.match_kinds)
        )
        for member in d.members:
            if member.name in members:
                self.fail(member.span, f"{kind} '{member.name}' is already declared")
            members.append(member.name)

    # --- externs

    def extern_declaration(self, d: ast.ExternDecl) -> None:
        t = types.ExternType(d.name, decl=d)
        d.type = t
        self.scope.declare(d.name, d, d.span)
        with self.nested():
            t.type_params = self.type_variables(d.type_params)
            for method in d.methods:
                with self.recover(), self.nested():
                    variables = self.type_variables(method.type_params)
                    returns = types.VOID if method.return_ref is None else self.resolve(method.return_ref)
                    params = self.parameters(method.params)
                    signature = Signature(method.name, variables, params, returns, method, method.abstract)
                    if method.return_ref is not None and isinstance(returns, types.InfIntType):
                        self.fail(method.return_ref.span, f"method '{method.name}' cannot return int: it has no width")
                    others = t.ctors if method.return_ref is None else t.methods.get(method.name, [])
                    for other in others:
                        if [p.name for p in other.params] == [p.name for p in params]:
                            notes = [Note("first declared here", other.decl.span)]
                            self.fail(method.span, f"'{method.name}' is declared twice: no call can tell them apart", notes)
                    if method.return_ref is None:
                        t.ctors.append(signature)
                    else:
                        if method.name == d.name:
                            self.fail(method.span, f"'{method.name}' is the constructor's name: it returns nothing")
                        t.methods.setdefault(method.name, []).append(signature)

    def extern_function(self, d: ast.ExternFunctionDecl) -> None:
        with self.nested():
            variables = self.type_variables(d.type_params)
            d.return_type = self.resolve(d.return_ref)
            params = self.parameters(d.params)
            self.signatures[d] = Signature(d.name, variables, params, d.return_type, d)
        self._declare_function(d)

    def function_declaration(self, d: ast.FunctionDecl) -> None:
        for p in d.params:
            if p.annotation("optional"):
                self.fail(p.span, f"parameter '{p.name}' cannot be optional: a function has all its arguments")
        if d.type_params:
            self.templates[d] = copy.deepcopy(d)
            with self.nested():
                # Only the prototype is resolved here; each use checks a copy of its own.
                variables = self.type_variables(d.type_params)
                returns = self.resolve(d.return_ref)
                params = self.parameters(d.params)
                self.signatures[d] = Signature(d.name, variables, params, returns, d)
        else:
            self.function_body(d)
        self._declare_function(d)

    def _declare_function(self, d: ast.ExternFunctionDecl | ast.FunctionDecl) -> None:
        overloads = self.scope.names.get(d.name)
        if isinstance(overloads, list):
            for other in overloads:
                mine, theirs = self.signatures[d].params, self.signatures[other].params
                if [p.name for p in mine] == [p.name for p in theirs] or len(mine) == len(theirs) == 0:
                    notes = [Note("first declared here", other.span)]
                    self.fail(d.span, f"'{d.name}' is already declared with these parameters", notes)
            overloads.append(d)
        else:
            self.scope.declare(d.name, [d], d.span)

    # --- values

    def global_instance(self, d: ast.Instantiation) -> None:
        self.instance_declaration(d)

    def misplaced(self, d: ast.Node) -> None:
        self.fail(d.span, "a value_set can only be declared in a parser")


_CHECKS: dict[type, Callable[..., None]] = {
    ast.RecordDecl: ProgramChecker.record_declaration,
    ast.EnumDecl: ProgramChecker.enum_declaration,
    ast.TypedefDecl: ProgramChecker.typedef_declaration,
    ast.ErrorDecl: ProgramChecker.error_declaration,
    ast.MatchKindDecl: ProgramChecker.error_declaration,
    ast.ExternDecl: ProgramChecker.extern_declaration,
    ast.ExternFunctionDecl: ProgramChecker.extern_function,
    ast.FunctionDecl: ProgramChecker.function_declaration,
    ast.ActionDecl: ProgramChecker.action_declaration,
    ast.ConstDecl: ProgramChecker.const_declaration,
    ast.Instantiation: ProgramChecker.global_instance,
    ast.ParserTypeDecl: ProgramChecker.block_type,
    ast.ControlTypeDecl: ProgramChecker.block_type,
    ast.PackageDecl: ProgramChecker.block_type,
    ast.ParserDecl: ProgramChecker.parser_declaration,
    ast.ControlDecl: ProgramChecker.control_declaration,
    ast.ValueSetDecl: ProgramChecker.misplaced,
}
