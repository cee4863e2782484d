"""Parsers and controls: parameters, locals, states, apply blocks (P4_16 v1.2.5 §13, §14)."""

from __future__ import annotations

from ina.p4.compiler import ast, types
from ina.p4.compiler.check.scope import suggest
from ina.p4.compiler.check.tables import TableChecker
from ina.p4.compiler.errors import Note


class BlockChecker(TableChecker):
    # --- types of parsers and controls

    def block_type(self, d: ast.ParserTypeDecl | ast.ControlTypeDecl | ast.PackageDecl) -> None:
        """Checks parser, control and package types without a body."""
        cls = {
            ast.ParserTypeDecl: types.ParserType, ast.ControlTypeDecl: types.ControlType, ast.PackageDecl:
            types.PackageType,
        }[type(d)]  # fmt: skip
        t = cls(d.name, decl=d)
        with self.nested():
            t.type_params = self.type_variables(d.type_params)
            params = self.parameters(d.params)
        if isinstance(d, ast.PackageDecl):
            t.ctor_params = params
        else:
            t.params = params
        d.type = t
        self.scope.declare(d.name, d, d.span)

    def _begin_block(self, d: ast.ParserDecl | ast.ControlDecl, t: types.ParserType | types.ControlType) -> None:
        if d.type_params:
            kind = "parser" if isinstance(d, ast.ParserDecl) else "control"
            self.fail(d.type_params[0].span, f"{kind} '{d.name}' has a body: it cannot have type parameters")
        t.params = self.parameters(d.params)
        t.ctor_params = self.parameters(d.ctor_params)
        for p in d.ctor_params:
            if p.direction:
                self.fail(p.span, f"constructor parameter '{p.name}' cannot have a direction")
            if any(p.name == q.name for q in d.params):
                self.fail(p.span, f"parameter '{p.name}' appears twice")
        d.type = t

    # --- controls

    def control_declaration(self, d: ast.ControlDecl) -> None:
        outer = self.context, self.owner_locals
        try:
            with self.nested():
                self.context = ""
                self._begin_block(d, types.ControlType(d.name, decl=d))
                with self.nested():
                    for local in d.locals:
                        with self.declaring(local):
                            self._control_local(local)
                    self.context, self.owner_locals = "control", d.locals
                    with self.nested():
                        self.statements(d.body)
        finally:
            self.context, self.owner_locals = outer
        self.scope.declare(d.name, d, d.span)

    def _control_local(self, local: ast.Node) -> None:
        if isinstance(local, ast.ActionDecl):
            self.action_declaration(local)
        elif isinstance(local, ast.TableDecl):
            self.table_declaration(local)
        elif isinstance(local, ast.ValueSetDecl):
            self.fail(local.span, "a value_set can only be declared in a parser")
        else:
            self.statement(local)

    # --- parsers

    def parser_declaration(self, d: ast.ParserDecl) -> None:
        outer = self.context, self.owner_locals, self.in_parser
        try:
            with self.nested():
                self.context, self.in_parser = "", True
                self._begin_block(d, types.ParserType(d.name, decl=d))
                with self.nested():
                    for local in d.locals:
                        with self.declaring(local):
                            self._parser_local(local)
                    self.context, self.owner_locals = "parser", d.locals
                    self._states(d)
        finally:
            self.context, self.owner_locals, self.in_parser = outer
        self.scope.declare(d.name, d, d.span)

    def _parser_local(self, local: ast.Node) -> None:
        if isinstance(local, ast.ValueSetDecl):
            self.value_set_declaration(local)
        elif isinstance(local, (ast.ActionDecl, ast.TableDecl)):
            kind = "an action" if isinstance(local, ast.ActionDecl) else "a table"
            self.fail(local.span, f"{kind} cannot be declared in a parser")
        else:
            self.statement(local)

    def value_set_declaration(self, d: ast.ValueSetDecl) -> None:
        element = self.resolve(d.element_ref)
        d.size = self.expression(d.size)
        if not self.is_static(d.size):
            self.constant_int(d.size, "size of a value set")
        d.type = types.SetType(element)
        self.scope.declare(d.name, d, d.span)

    def _states(self, d: ast.ParserDecl) -> None:
        for state in d.state_list:
            if state.name in ("accept", "reject"):
                self.fail(state.span, f"state '{state.name}' is built in: it cannot be declared")
            if state.name in d.states:
                notes = [Note("first declared here", d.states[state.name].span)]
                self.fail(state.span, f"state '{state.name}' is already declared", notes)
            d.states[state.name] = state
        if "start" not in d.states:
            self.fail(d.span, f"parser '{d.name}' has no state 'start'")
        for state in d.state_list:
            with self.recover(), self.nested():
                for s in state.statements:
                    with self.recover():
                        self.statement(s)
                if state.transition is not None:
                    self._transition(d, state.transition)
        self._ends(d)

    def _ends(self, d: ast.ParserDecl) -> None:
        """Reports a parser that never ends, because its states only lead to each other."""
        reached, waiting = set(), [d.states["start"]]
        while waiting:
            state = waiting.pop()
            if state in reached:
                continue
            reached.add(state)
            if state.transition is None:
                return
            for branch in state.transition.branches:
                if branch.target is None:  # accept or reject, or an error that was reported
                    return
                waiting.append(branch.target)
            if state.transition.cases and not any(isinstance(k, ast.DontCare) for k in state.transition.cases[-1].keys):
                return  # NoMatch ends it
        self.fail(d.span, f"parser '{d.name}' never reaches accept or reject")

    def _transition(self, d: ast.ParserDecl, transition: ast.Transition) -> None:
        if transition.target_name is not None:
            transition.target = self._target(d, transition, transition.target_name)
            return
        transition.keys = [self.value(key, "a key") for key in transition.keys]
        for key in transition.keys:
            if isinstance(key.type, types.InfIntType):
                self.fail(key.span, "a select key needs a width: write the literal as in 8w1")
            if isinstance(types.strip_new(key.type), (types.VarbitType, types.RecordType, types.StackType)):
                self.fail(key.span, f"cannot select on {key.type}", ["select on its fields"])
        count = len(transition.keys)
        for case in transition.cases:
            with self.recover():
                case.target = self._target(d, case, case.target_name)
                if len(case.keys) == 1 and count != 1:
                    only = case.keys[0]
                    if isinstance(only, ast.DontCare):
                        case.keys = [ast.DontCare(only.span) for _ in transition.keys]
                    elif self._is_tuple_value_set(only):
                        continue
                keys = transition.keys
                if count == 1 and len(case.keys) > 1:  # one key of tuple or struct type
                    case.keys = [ast.ListExpr(case.span, case.keys)]
                if len(case.keys) != count:
                    self.fail(case.span, f"{len(case.keys)} values in this case, but select has {count} keys")
                case.keys = [self.keyset(e, key.type) for e, key in zip(case.keys, keys, strict=True)]

    def _is_tuple_value_set(self, e: ast.Expr) -> bool:
        """Checks a value set of structs or tuples that is matched with all keys at once; returns False for anything else."""
        if isinstance(e, ast.Name) and isinstance(self.scope.lookup(e.name), ast.ValueSetDecl):
            self.expression(e)
            return True
        return False

    def _target(self, d: ast.ParserDecl, node: ast.Node, name: str) -> ast.ParserState | None:
        if name in ("accept", "reject"):
            return None
        state = d.states.get(name)
        if state is None:
            self.fail(
                node.span, f"parser '{d.name}' has no state '{name}'", suggest(name, [*d.states, "accept", "reject"])
            )
        return state
