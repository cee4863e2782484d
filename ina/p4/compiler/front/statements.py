"""Recursive descent: annotations, parameters, local declarations, statements (P4_16 v1.2.5 appendix H)."""

from __future__ import annotations

from collections.abc import Callable

from ina.p4.compiler import ast
from ina.p4.compiler.errors import CompileError, Span
from ina.p4.compiler.front.expressions import BASE_TYPES, ExpressionParser, join

COMPOUND = frozenset(["+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", "|+|=", "|-|="])
READ_AS_PAIRS = ("ina_program",)  # in parentheses, too: BFRuntime carries no structured annotations
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class StatementParser(ExpressionParser):
    # --- annotations

    def parse_annotations(self) -> list[ast.Annotation]:
        annotations = []
        while self.kinds[self.pos] in ("@", "pragma"):
            if self.kinds[self.pos] == "pragma":
                _, *words = self.texts[self.pos].split()
                annotations.append(ast.Annotation(self.spans[self.pos], words[0] if words else "pragma", words[1:]))
                self.pos += 1
            else:
                annotations.append(self._parse_annotation())
        return annotations

    def _parse_annotation(self) -> ast.Annotation:
        """@name | @name ( tokens ) | @name [ expressions ] | @name [ name = expression, ... ]"""
        start = self.expect("@")
        name, span = self.texts[self.pos], self.spans[self.pos]
        if not name.replace("_", "a").isalnum():
            self.expected("a name of an annotation after '@'")
        self.pos += 1
        annotation = ast.Annotation(join(start, span), name)
        if self.at("("):
            body = self.pos + 1
            annotation.tokens = self._parse_balanced()
            end = self.pos
            if name in READ_AS_PAIRS:
                self.pos = body
                self._parse_pairs(annotation, ")")
                self.expect(")", "at the end of the annotation")
            else:
                annotation.exprs = self._try_expressions(body, end - 1)
                self.pos = end
        elif self.accept("["):
            annotation.structured = True
            if self.kinds[self.pos] == "id" and self.kinds[self.pos + 1] == "=":
                self._parse_pairs(annotation, "]")
            else:
                while not self.at("]"):
                    annotation.exprs.append(self.parse_expression())
                    if not self.accept(","):
                        break
            self.expect("]", "at the end of the annotation")
        return annotation

    def _parse_pairs(self, annotation: ast.Annotation, closing: str) -> None:
        while not self.at(closing):
            key, key_span = self.parse_name("a key")
            self.expect("=", "after the key of an annotation")
            if key in annotation.pairs:
                self.fail(key_span, f"key '{key}' appears twice in annotation @{annotation.name}")
            annotation.pairs[key] = self.parse_expression()
            if not self.accept(","):
                break

    def _parse_balanced(self) -> list[str]:
        opening, start, closers = self.spans[self.pos], self.pos + 1, []
        while True:
            kind = self.kinds[self.pos]
            if kind == "eof":
                self.fail(opening, f"'{self.texts[start - 1]}' is never closed")
            if kind in _CLOSING:
                closers.append(_CLOSING[kind])
            elif closers and kind == closers[-1]:
                closers.pop()
                if not closers:
                    self.pos += 1
                    return self.texts[start : self.pos - 1]
            self.pos += 1

    def _try_expressions(self, start: int, end: int) -> list[ast.Expr]:
        """Parses the tokens from `start` to `end` as a list of expressions; returns an empty list if they are none."""
        self.pos = start
        depth, exprs = self.depth, []
        try:
            while self.pos < end:
                exprs.append(self.parse_expression())
                if self.pos < end:
                    self.expect(",")
        except CompileError:
            self.depth = depth
            return []
        return exprs if self.pos == end else []

    # --- parameters

    def parse_type_parameters(self) -> list[ast.Name]:
        """Parses < name, ... >, declared as types in the current scope."""
        params: list[ast.Name] = []
        if not self.accept("<"):
            return params
        while not self.at(">"):
            name, span = self.parse_name("a name of a type parameter")
            self.declare(name, is_type=True)
            params.append(ast.Name(span, name))
            if not self.accept(","):
                break
        self.expect(">", "after the type parameters")
        return params

    def parse_parameters(self, is_ctor: bool = False) -> list[ast.Param]:
        """( annotations direction type name = default, ... )"""
        params: list[ast.Param] = []
        self.expect("(", "before the parameters")
        while not self.at(")"):
            annotations = self.parse_annotations()
            direction = self.kinds[self.pos] if self.kinds[self.pos] in ("in", "out", "inout") else ""
            if direction:
                self.pos += 1
            type_ref = self.parse_type()
            name, span = self.parse_name("a name of a parameter")
            self.declare(name)
            default = self.parse_expression() if self.accept("=") else None
            params.append(ast.Param(span, name, direction, type_ref, default, is_ctor, annotations=annotations))
            if not self.accept(","):
                break
        self.expect(")", "after the parameters")
        return params

    # --- local declarations

    def parse_const(self, annotations: list[ast.Annotation]) -> ast.ConstDecl:
        """const type name = expression ;"""
        self.expect("const")
        type_ref = self.parse_type()
        name, span = self.parse_name("a name of a constant")
        self.expect("=", "and the value of the constant")
        value = self.parse_expression()
        self.expect(";", "after the constant")
        self.declare(name)
        return ast.ConstDecl(span, name, type_ref, value, annotations=annotations)

    def parse_variable_or_instance(self, annotations: list[ast.Annotation], type_ref: ast.TypeRef) -> ast.Declaration:
        """Parses the rest of a declaration behind its type: `name [= init] ;`, `(args) name [= { body }] ;`"""
        if self.at("("):
            return self.parse_instantiation(annotations, type_ref)
        variable = self.parse_variable(annotations, type_ref)
        self.expect(";", "after the declaration")
        return variable

    def parse_variable(self, annotations: list[ast.Annotation], type_ref: ast.TypeRef) -> ast.VarDecl:
        name, span = self.parse_name("a name of a variable")
        type_ref = self.parse_array_suffix(type_ref)
        init = self.parse_expression() if self.accept("=") else None
        self.declare(name)
        return ast.VarDecl(span, name, type_ref, init, annotations=annotations)

    def parse_array_suffix(self, type_ref: ast.TypeRef) -> ast.TypeRef:
        """Parses `[n]` behind the declared name, so that the checker can report it."""
        while self.accept("["):
            type_ref = ast.StackTypeRef(self.spans[self.pos - 1], type_ref, self.parse_expression())
            self.expect("]", "after the size")
        return type_ref

    def parse_instantiation(self, annotations: list[ast.Annotation], type_ref: ast.TypeRef) -> ast.Instantiation:
        arguments, _ = self.parse_arguments()
        name, span = self.parse_name("a name of the instance")
        self.declare(name)
        type_ref = self.parse_array_suffix(type_ref)
        body: list[ast.Node] | None = None
        if self.accept("="):
            body = []
            self.expect("{", "and the bodies of abstract methods")
            self.scopes.append({})
            while not self.at("}"):
                member_annotations = self.parse_annotations()
                member_type = self.parse_type()
                if self.at("("):
                    body.append(self.parse_instantiation(member_annotations, member_type))
                else:
                    body.append(self.parse_function(member_annotations, member_type))
            self.scopes.pop()
            self.expect("}")
        self.expect(";", "after the instantiation")
        return ast.Instantiation(span, name, type_ref, arguments, body, annotations=annotations)

    def parse_function(self, annotations: list[ast.Annotation], return_ref: ast.TypeRef) -> ast.FunctionDecl:
        """Parses `type name <T, ...> ( parameters ) { body }` from the name on."""
        name, span = self.parse_name("a name of a function")
        self.declare(name)
        self.scopes.append({})
        type_params = self.parse_type_parameters()
        params = self.parse_parameters()
        body = self.parse_block()
        self.scopes.pop()
        return ast.FunctionDecl(span, name, return_ref, type_params, params, body, annotations=annotations)

    # --- statements

    def parse_block(self, annotations: list[ast.Annotation] | None = None) -> ast.Block:
        span = self.expect("{")
        self.scopes.append({})
        self.enter()
        statements = []
        while not self.at("}"):
            if self.kinds[self.pos] == "eof":
                self.fail(span, "'{' is never closed")
            statements.append(self.parse_statement())
        self.depth -= 1
        self.pos += 1
        self.scopes.pop()
        return ast.Block(span, statements, annotations or [])

    def parse_statement(self) -> ast.Node:
        """Parses a statement or a local declaration."""
        annotations = self.parse_annotations() if self.kinds[self.pos] in ("@", "pragma") else []
        kind, span = self.kinds[self.pos], self.spans[self.pos]
        if kind == "id":
            return self._parse_named_statement(annotations)
        if kind in BASE_TYPES:
            return self.parse_variable_or_instance(annotations, self.parse_type())
        if parse := _STATEMENTS.get(kind):
            return parse(self, annotations)
        if kind in (".", "this", "(", "{"):
            return self._parse_simple_statement(";")
        self.fail(span, f"expected a statement, found '{self.texts[self.pos]}'")

    def _parse_named_statement(self, annotations: list[ast.Annotation]) -> ast.Node:
        """Parses a statement that starts with an identifier: declaration, instantiation, assignment, call."""
        following = self.kinds[self.pos + 1]
        if following in ("id", "<", "[", "(") and (following == "id" or self.starts_type()):
            start, depth = self.pos, self.depth
            type_ref = self.parse_type()
            if self.at("(") and not self._is_constructed_call():
                return self.parse_instantiation(annotations, type_ref)
            if self.kinds[self.pos] == "id":
                return self.parse_variable_or_instance(annotations, type_ref)
            self.pos, self.depth = start, depth
        return self._parse_simple_statement(";")

    def _is_constructed_call(self) -> bool:
        """Returns True if the tokens behind `T` are a call `T(...).method(...)` and not an instantiation."""
        start = self.pos
        self._parse_balanced()
        is_call = self.at(".") or self.at(";")
        self.pos = start
        return is_call

    def _parse_simple_statement(self, end: str | None) -> ast.Statement:
        """lvalue = expression, lvalue op= expression, call"""
        start = self.pos
        target = self.parse_postfix(self.parse_primary())
        kind = self.kinds[self.pos]
        statement: ast.Statement
        if kind == "=" or kind in COMPOUND:
            self.pos += 1
            value = self.parse_expression()
            statement = ast.Assign(join(target.span, value.span), target, "=" if kind == "=" else kind[:-1], value)
        elif kind == ">" and self.kinds[self.pos + 1] == ">=" and self.pos in self.joined:
            self.pos += 2
            value = self.parse_expression()
            statement = ast.Assign(join(target.span, value.span), target, ">>", value)
        elif isinstance(target, ast.Call):
            statement = ast.CallStatement(target.span, target)
        elif self.pos == start + 1 and kind == "id":
            self.expected(f"'=', '(' or an operator after '{self.texts[start]}'")
        else:
            self.expected("'=' or a call")
        if end:
            self.expect(end, "after the statement")
        return statement

    def _parse_if(self, annotations: list[ast.Annotation]) -> ast.If:
        """if ( expression ) statement [else statement]; a chain of else-ifs counts as nesting"""
        span = self.expect("if")
        self.expect("(", "after 'if'")
        condition = self.parse_expression()
        self.expect(")", "after the condition")
        self.enter()
        then = self._parse_branch()
        otherwise = self._parse_branch() if self.accept("else") else None
        self.depth -= 1
        return ast.If(span, condition, then, otherwise)

    def _parse_branch(self) -> ast.Statement:
        statement = self.parse_statement()
        if isinstance(statement, ast.Declaration):
            self.fail(statement.span, "a declaration needs a block of its own here: put it in { }")
        assert isinstance(statement, ast.Statement)
        return statement

    def _parse_switch(self, annotations: list[ast.Annotation]) -> ast.Switch:
        """switch ( expression ) { label: block | label: ... }"""
        span = self.expect("switch")
        self.expect("(", "after 'switch'")
        subject = self.parse_expression()
        self.expect(")")
        self.expect("{", "before the cases of the switch")
        cases = []
        while not self.accept("}"):
            case_span = self.spans[self.pos]
            label = None if self.accept("default") else self.parse_expression()
            self.expect(":", "after the label of a case")
            body = None
            if self.at("{") or self.kinds[self.pos] in ("@", "pragma"):
                body = self.parse_block(self.parse_annotations())
            cases.append(ast.SwitchCase(case_span, label, body))
        return ast.Switch(span, subject, cases)

    def parse_for(self, annotations: list[ast.Annotation]) -> ast.Statement:
        """for ( type name in collection ) | for ( init ; condition ; update )"""
        span = self.spans[self.pos]
        self.pos += 1
        self.expect("(", "after 'for'")
        self.scopes.append({})
        self.enter()
        inner = self.parse_annotations()
        statement: ast.ForIn | ast.ForC
        if self.starts_type() and not (self.kinds[self.pos] == "id" and self.kinds[self.pos + 1] == "in"):
            type_ref = self.parse_type()
            if self.kinds[self.pos] == "id" and self.kinds[self.pos + 1] == "in":
                name, name_span = self.parse_name()
                self.declare(name)
                statement = self._parse_for_in(
                    span, ast.VarDecl(name_span, name, type_ref, None, annotations=inner), annotations
                )
            else:
                statement = self._parse_for_c(span, [self.parse_variable(inner, type_ref)], annotations)
        elif self.at(";"):
            statement = self._parse_for_c(span, [], annotations)
        else:
            if self.kinds[self.pos] == "id" and self.kinds[self.pos + 1] == "in":
                name, name_span = self.parse_name()
                self.fail(name_span, f"the variable of the loop needs a type, as in for (bit<8> {name} in ...)")
            statement = self._parse_for_c(span, [self._parse_simple_statement(None)], annotations)
        self.depth -= 1
        self.scopes.pop()
        return statement

    def _parse_for_in(self, span: Span, target: ast.VarDecl, annotations: list[ast.Annotation]) -> ast.ForIn:
        self.expect("in")
        collection = self.parse_expression()
        if self.accept(".."):
            hi = self.parse_expression()
            collection = ast.Range(join(collection.span, hi.span), collection, hi)
        self.expect(")", "after the collection of the loop")
        return ast.ForIn(span, target, collection, self._parse_branch(), annotations)

    def _parse_for_c(self, span: Span, init: list[ast.Node], annotations: list[ast.Annotation]) -> ast.ForC:
        while init and self.accept(","):
            inner = self.parse_annotations()
            if self.starts_type():
                init.append(self.parse_variable(inner, self.parse_type()))
            else:
                init.append(self._parse_simple_statement(None))
        self.expect(";", "after the initialisation of the loop")
        condition = self.parse_expression()
        self.expect(";", "after the condition of the loop")
        update: list[ast.Statement] = []
        while not self.at(")"):
            update.append(self._parse_simple_statement(None))
            if not self.accept(","):
                break
        self.expect(")", "after the update of the loop")
        return ast.ForC(span, init, condition, update, self._parse_branch(), annotations)

    def _parse_return(self, annotations: list[ast.Annotation]) -> ast.Return:
        span = self.expect("return")
        value = None if self.at(";") else self.parse_expression()
        self.expect(";", "after 'return'")
        return ast.Return(span, value)

    def _parse_word(self, annotations: list[ast.Annotation]) -> ast.Statement:
        """break ; | continue ; | exit ; | ;"""
        kind, span = self.kinds[self.pos], self.spans[self.pos]
        self.pos += 1
        if kind == ";":
            return ast.EmptyStatement(span)
        self.expect(";", f"after '{kind}'")
        return {"break": ast.Break, "continue": ast.Continue, "exit": ast.Exit}[kind](span)


_STATEMENTS: dict[str, Callable[[StatementParser, list[ast.Annotation]], ast.Node]] = {
    "const": StatementParser.parse_const,
    "{": StatementParser.parse_block,
    "if": StatementParser._parse_if,
    "for": StatementParser.parse_for,
    "switch": StatementParser._parse_switch,
    "return": StatementParser._parse_return,
    "break": StatementParser._parse_word,
    "continue": StatementParser._parse_word,
    "exit": StatementParser._parse_word,
    ";": StatementParser._parse_word,
}
