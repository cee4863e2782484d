"""Recursive descent: top-level declarations, parsers, controls, tables (P4_16 v1.2.5 appendix H).

The whole grammar is read here; the checker determines what a construct means and whether it is allowed in its place.
"""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.errors import Span
from ina.p4.compiler.front.expressions import join
from ina.p4.compiler.front.lexer import Tokens
from ina.p4.compiler.front.statements import StatementParser

_RECORD_KINDS = frozenset(["struct", "header", "header_union"])


class Parser(StatementParser):
    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)

    def parse_program(self, filename: str) -> ast.Program:
        declarations: list[ast.Node] = []
        while self.kinds[self.pos] != "eof":
            if not self.accept(";"):  # the grammar lets stray semicolons stand between declarations
                declarations.append(self.parse_declaration())
        return ast.Program(filename, declarations)

    def parse_declaration(self) -> ast.Node:
        annotations = self.parse_annotations()
        kind = self.kinds[self.pos]
        if parse := _DECLARATIONS.get(kind):
            return parse(self, annotations)
        if self.at("type") and self.kinds[self.pos + 1] not in ("(", "<"):
            return self.parse_typedef(annotations)
        if kind == "error" and self.kinds[self.pos + 1] == "{":
            return ast.ErrorDecl(self.expect("error"), self._parse_members())
        if kind == "match_kind" and self.kinds[self.pos + 1] == "{":
            return ast.MatchKindDecl(self.expect("match_kind"), self._parse_members())
        if kind != "id" and not self.starts_type():
            self.expected("a declaration")
        type_ref = self.parse_type()
        if self.at("("):
            return self.parse_instantiation(annotations, type_ref)
        if self.kinds[self.pos] == "id" and self.kinds[self.pos + 1] in ("=", ";"):
            self.fail(
                self.spans[self.pos], "a variable cannot be declared at the top level",
                ["use 'const', or declare it in a control, parser, action or function"],
            )  # fmt: skip
        return self.parse_function(annotations, type_ref)

    # --- types

    def parse_record(self, annotations: list[ast.Annotation]) -> ast.RecordDecl:
        """struct|header|header_union name <T> { type name ; ... }"""
        kind = self.kinds[self.pos]
        self.pos += 1
        name, span = self.parse_name(f"a name of the {kind}")
        self.declare(name, is_type=True)
        self.scopes.append({})
        type_params = self.parse_type_parameters()
        self.expect("{", f"before the fields of {kind} {name}")
        fields = []
        while not self.accept("}"):
            field_annotations = self.parse_annotations()
            type_ref = self.parse_type()
            field_name, field_span = self.parse_name("a name of a field")
            type_ref = self.parse_array_suffix(type_ref)
            self.expect(";", "after the field")
            fields.append(ast.StructField(field_span, field_name, type_ref, annotations=field_annotations))
        self.scopes.pop()
        return ast.RecordDecl(span, name, kind, type_params, fields, annotations=annotations)

    def parse_enum(self, annotations: list[ast.Annotation]) -> ast.EnumDecl:
        """enum [type] name { member [= value], ... }"""
        self.expect("enum")
        underlying = None
        if not (self.kinds[self.pos] == "id" and self.kinds[self.pos + 1] == "{"):
            underlying = self.parse_type()
        name, span = self.parse_name("a name of the enum")
        self.declare(name, is_type=True)
        return ast.EnumDecl(span, name, underlying, self._parse_members(), annotations=annotations)

    def _parse_members(self) -> list[ast.EnumMember]:
        self.expect("{")
        members = []
        while not self.at("}"):
            annotations = self.parse_annotations()
            if self.texts[self.pos].isidentifier() and self.kinds[self.pos] != "eof":
                self.pos += 1
            else:
                self.expected("a name of a member")
            name, span = self.texts[self.pos - 1], self.spans[self.pos - 1]
            value = self.parse_expression() if self.accept("=") else None
            members.append(ast.EnumMember(span, name, value, annotations=annotations))
            if not self.accept(","):
                break
        self.expect("}", "after the members")
        return members

    def parse_typedef(self, annotations: list[ast.Annotation]) -> ast.TypedefDecl:
        """typedef type name ; | type type name ;"""
        is_new = self.at("type")
        self.pos += 1
        inner = self.parse_annotations()
        target: ast.TypeRef | ast.RecordDecl | ast.EnumDecl
        if self.kinds[self.pos] in _RECORD_KINDS:
            target = self.parse_record(inner)
        elif self.at("enum"):
            target = self.parse_enum(inner)
        else:
            target = self.parse_type()
        name, span = self.parse_name("a name of the new type")
        self.expect(";", "after the type definition")
        self.declare(name, is_type=True)
        return ast.TypedefDecl(span, name, target, is_new, annotations=annotations)

    # --- externs, actions, packages

    def parse_extern(self, annotations: list[ast.Annotation]) -> ast.Node:
        """extern name <T> { methods } | extern type name <T> ( parameters ) ;"""
        self.expect("extern")
        if self.kinds[self.pos] == "id":
            following = self.pos + 1
            if self.kinds[following] == "<":  # `extern X<T> {` or `extern X<T> f(...)`
                name, span = self.parse_name()
                self.scopes.append({})
                type_params = self.parse_type_parameters()
                self.scopes.pop()
                is_object = self.at("{") or self.at(";")
                self.pos = following - 1
                if is_object:
                    return self._parse_extern_object(annotations)
                del name, span, type_params
            elif self.kinds[following] in ("{", ";"):
                return self._parse_extern_object(annotations)
        name, span, return_ref, type_params, params = self._parse_prototype()
        self.expect(";", "after the extern function")
        return ast.ExternFunctionDecl(span, name, return_ref, type_params, params, annotations=annotations)

    def _parse_prototype(self) -> tuple[str, Span, ast.TypeRef, list[ast.Name], list[ast.Param]]:
        return_ref = self.parse_type()
        name, span = self.parse_name("a name of a function")
        self.declare(name)
        self.scopes.append({})
        type_params = self.parse_type_parameters()
        params = self.parse_parameters()
        self.scopes.pop()
        return name, span, return_ref, type_params, params

    def _parse_extern_object(self, annotations: list[ast.Annotation]) -> ast.ExternDecl:
        name, span = self.parse_name("a name of the extern")
        self.declare(name, is_type=True)
        self.scopes.append({})
        type_params = self.parse_type_parameters()
        methods: list[ast.ExternMethod] = []
        if not self.accept(";"):
            self.expect("{", "before the methods of the extern")
            while not self.accept("}"):
                methods.append(self._parse_method(name))
        self.scopes.pop()
        return ast.ExternDecl(span, name, type_params, methods, annotations=annotations)

    def _parse_method(self, extern: str) -> ast.ExternMethod:
        annotations = self.parse_annotations()
        abstract = self.accept("abstract")
        if self.at(extern) and self.kinds[self.pos + 1] == "(":
            span = self.spans[self.pos]
            self.pos += 1
            self.scopes.append({})
            method = ast.ExternMethod(span, extern, None, [], self.parse_parameters(), annotations=annotations)
            self.scopes.pop()
        else:
            name, span, return_ref, type_params, params = self._parse_prototype()
            method = ast.ExternMethod(span, name, return_ref, type_params, params, abstract, annotations=annotations)
        self.expect(";", "after the method")
        return method

    def parse_action(self, annotations: list[ast.Annotation]) -> ast.ActionDecl:
        """action name ( parameters ) block"""
        self.expect("action")
        name, span = self.parse_name("a name of the action")
        self.declare(name)
        self.scopes.append({})
        params = self.parse_parameters()
        body = self.parse_block()
        self.scopes.pop()
        return ast.ActionDecl(span, name, params, body, annotations=annotations)

    def parse_package(self, annotations: list[ast.Annotation]) -> ast.PackageDecl:
        """package name <T> ( parameters ) ;"""
        self.expect("package")
        name, span = self.parse_name("a name of the package")
        self.declare(name, is_type=True)
        self.scopes.append({})
        type_params = self.parse_type_parameters()
        params = self.parse_parameters(is_ctor=True)
        self.scopes.pop()
        self.expect(";", "after the package")
        return ast.PackageDecl(span, name, type_params, params, annotations=annotations)

    # --- parsers

    def parse_parser(self, annotations: list[ast.Annotation]) -> ast.Node:
        """parser name <T> ( parameters ) ; | parser name ( parameters ) ( constructor parameters ) { locals states }"""
        self.expect("parser")
        name, span = self.parse_name("a name of the parser")
        self.declare(name, is_type=True)
        self.scopes.append({})
        type_params = self.parse_type_parameters()
        params = self.parse_parameters()
        if self.accept(";"):
            self.scopes.pop()
            return ast.ParserTypeDecl(span, name, type_params, params, annotations=annotations)
        ctor_params = self.parse_parameters(is_ctor=True) if self.at("(") else []
        opening = self.expect("{", f"before the body of parser {name}")
        local_declarations: list[ast.Node] = []
        states: list[ast.ParserState] = []
        while not self.accept("}"):
            if self.kinds[self.pos] == "eof":
                self.fail(opening, "'{' is never closed")
            inner = self.parse_annotations()
            if self.at("state") and self.kinds[self.pos + 1] == "id":
                states.append(self._parse_state(inner))
            elif states:
                self.expected("'state' or '}'")
            else:
                local_declarations.append(self._parse_local(inner))
        self.scopes.pop()
        return ast.ParserDecl(
            span, name, type_params, params, ctor_params, local_declarations, states, annotations=annotations
        )

    def _parse_local(self, annotations: list[ast.Annotation]) -> ast.Node:
        """Parses a local element of a parser or control."""
        kind = self.kinds[self.pos]
        if kind == "const":
            return self.parse_const(annotations)
        if kind == "value_set":
            return self.parse_value_set(annotations)
        if kind == "action":
            return self.parse_action(annotations)
        if kind == "table":
            return self.parse_table(annotations)
        if kind in _RECORD_KINDS or kind in ("enum", "extern", "typedef", "parser", "control", "package"):
            self.fail(self.spans[self.pos], f"'{kind}' can only be declared at the top level of a program")
        if kind != "id" and not self.starts_type():
            self.expected("a local declaration")
        return self.parse_variable_or_instance(annotations, self.parse_type())

    def parse_value_set(self, annotations: list[ast.Annotation]) -> ast.ValueSetDecl:
        """value_set < type > ( size ) name ;"""
        self.expect("value_set")
        self.expect("<", "and the type of the value set's elements")
        element = self.parse_type()
        self.expect(">")
        self.expect("(", "and the size of the value set")
        size = self.parse_expression()
        self.expect(")")
        name, span = self.parse_name("a name of the value set")
        self.expect(";", "after the value set")
        self.declare(name)
        return ast.ValueSetDecl(span, name, element, size, annotations=annotations)

    def _parse_state(self, annotations: list[ast.Annotation]) -> ast.ParserState:
        """state name { statements transition }"""
        self.expect("state")
        name, span = self.parse_name("a name of the state")
        opening = self.expect("{", f"before the body of state {name}")
        self.scopes.append({})
        statements: list[ast.Node] = []
        transition = None
        while not self.at("}") and not self.at("transition"):
            if self.kinds[self.pos] == "eof":
                self.fail(opening, "'{' is never closed")
            statements.append(self.parse_statement())
        if self.at("transition"):
            transition = self._parse_transition()
        self.expect("}", "after the transition: it ends a state")
        self.scopes.pop()
        return ast.ParserState(span, name, statements, transition, annotations=annotations)

    def _parse_transition(self) -> ast.Transition:
        """transition name ; | transition select ( expressions ) { keyset : name ; ... }"""
        span = self.expect("transition")
        if not self.accept("select"):
            name, name_span = self.parse_name("a name of a state or 'select'")
            self.expect(";", "after the transition")
            return ast.Transition(name_span, name)
        keys: list[ast.Expr] = []
        for argument in self.parse_arguments()[0]:
            if argument.value is None:
                self.fail(span, "select needs expressions to match")
            keys.append(argument.value)
        self.expect("{", "before the cases of select")
        cases = []
        while not self.accept("}"):
            case_span = self.spans[self.pos]
            keyset = self.parse_keyset()
            self.expect(":", "after the keyset")
            name, name_span = self.parse_name("a name of a state")
            self.expect(";", "after the case")
            cases.append(ast.SelectCase(join(case_span, name_span), keyset, name))
        return ast.Transition(span, None, keys, cases)

    # --- controls

    def parse_control(self, annotations: list[ast.Annotation]) -> ast.Node:
        """control name <T> ( parameters ) ; | control name ( parameters ) ( constructor parameters ) { locals
        apply { } }
        """
        self.expect("control")
        name, span = self.parse_name("a name of the control")
        self.declare(name, is_type=True)
        self.scopes.append({})
        type_params = self.parse_type_parameters()
        params = self.parse_parameters()
        if self.accept(";"):
            self.scopes.pop()
            return ast.ControlTypeDecl(span, name, type_params, params, annotations=annotations)
        ctor_params = self.parse_parameters(is_ctor=True) if self.at("(") else []
        opening = self.expect("{", f"before the body of control {name}")
        local_declarations: list[ast.Node] = []
        while True:
            if self.kinds[self.pos] == "eof":
                self.fail(opening, "'{' is never closed")
            inner = self.parse_annotations()
            if self.at("apply") and self.kinds[self.pos + 1] in ("{", "@"):
                self.pos += 1
                body = self.parse_block(self.parse_annotations())
                break
            if self.at("}"):
                self.fail(self.spans[self.pos], f"control {name} has no 'apply' block")
            local_declarations.append(self._parse_local(inner))
        self.expect("}", "after the apply block: it ends a control")
        self.scopes.pop()
        return ast.ControlDecl(
            span, name, type_params, params, ctor_params, local_declarations, body, annotations=annotations
        )

    def parse_table(self, annotations: list[ast.Annotation]) -> ast.TableDecl:
        """table name { key = { } actions = { } [const] entries = { } [const] name = expression ; ... }"""
        self.expect("table")
        name, span = self.parse_name("a name of the table")
        self.declare(name)
        table = ast.TableDecl(span, name, annotations=annotations)
        seen: dict[str, Span] = {}
        self.expect("{", f"before the properties of table {name}")
        while not self.accept("}"):
            inner = self.parse_annotations()
            is_const = self.accept("const")
            prop, prop_span = self.parse_name("a property of the table")
            if prop in seen:
                self.fail(prop_span, f"table {name} has property '{prop}' twice")
            seen[prop] = prop_span
            self.expect("=", f"after '{prop}'")
            self._parse_property(table, prop, prop_span, is_const, inner)
        if "actions" not in seen:
            self.fail(span, f"table '{name}' has no actions", ["add actions = { ... }"])
        return table

    def _parse_property(
        self, table: ast.TableDecl, prop: str, span: Span, is_const: bool, annotations: list[ast.Annotation]
    ) -> None:
        if prop == "key":
            if table.entries:
                self.fail(span, f"the key of table '{table.name}' must stand before its entries")
            self.expect("{", "before the key of the table")
            while not self.accept("}"):
                expr = self.parse_expression()
                self.expect(":", "and the match kind of the key")
                kind, kind_span = self.parse_name("a match kind")
                table.keys.append(ast.TableKey(join(expr.span, kind_span), expr, kind, self.parse_annotations()))
                self.expect(";", "after the key")
            return
        if prop == "actions":
            self.expect("{", "before the actions of the table")
            while not self.accept("}"):
                inner = self.parse_annotations()
                table.actions.append(self._parse_action_ref(inner))
                self.expect(";", "after the action")
            return
        if prop == "entries":
            table.const_entries = is_const
            self.expect("{", "before the entries of the table")
            while not self.accept("}"):
                table.entries.append(self._parse_entry(is_const))
            return
        if prop == "default_action":
            if not table.actions:
                self.fail(span, f"the actions of table '{table.name}' must stand before its default_action")
            table.const_default = is_const
            table.default_ref = self._parse_action_ref(annotations)
        elif prop == "size":
            table.size_expr = self.parse_expression()
        else:
            table.properties[prop] = ast.Property(span, prop, self.parse_expression(), is_const, annotations)
        self.expect(";", f"after the property '{prop}'")

    def _parse_action_ref(self, annotations: list[ast.Annotation]) -> ast.ActionRef:
        """[.] name [ ( arguments ) ]"""
        start = self.spans[self.pos]
        absolute = self.accept(".")
        name, span = self.parse_name("a name of an action")
        arguments = self.parse_arguments()[0] if self.at("(") else None
        return ast.ActionRef(join(start, span), name, arguments, absolute, annotations)

    def _parse_entry(self, table_const: bool) -> ast.TableEntry:
        """[const] [priority = value :] keyset : action annotations ;"""
        span = self.spans[self.pos]
        is_const = self.accept("const") or table_const
        priority = None
        if self.at("priority") and self.kinds[self.pos + 1] == "=":
            self.pos += 2
            priority = self.parse_expression()
            self.expect(":", "after the priority")
        keys = self.parse_keyset()
        self.expect(":", "and an action after the keys of the entry")
        action = self._parse_action_ref([])
        entry = ast.TableEntry(span, keys, action, is_const, priority, self.parse_annotations())
        self.expect(";", "after the entry")
        return entry


_DECLARATIONS = {
    "const": Parser.parse_const,
    "extern": Parser.parse_extern,
    "action": Parser.parse_action,
    "parser": Parser.parse_parser,
    "control": Parser.parse_control,
    "package": Parser.parse_package,
    "header": Parser.parse_record,
    "struct": Parser.parse_record,
    "header_union": Parser.parse_record,
    "enum": Parser.parse_enum,
    "typedef": Parser.parse_typedef,
    "value_set": Parser.parse_value_set,
}
