"""Lowering of statements."""

from __future__ import annotations

from functools import partial

from ina.p4.compiler import ast, fold, ir, loops, types
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import Context, unsupported
from ina.p4.compiler.lower.expressions import BINARY, Expressions
from ina.p4.compiler.lower.value_trees import Stack, Value


class Statements:
    def __init__(self, context: Context, expressions: Expressions) -> None:
        self.context, self.code = context, context.code
        self.expressions, self.values = expressions, expressions.values

    def statement(self, node: ast.Node) -> None:
        outer, self.code.here = self.code.here, node.span
        self._statement(node)
        self.code.here = outer

    def _statement(self, node: ast.Node) -> None:
        match node:
            case ast.Assign():
                self._assignment(node)
            case ast.CallStatement():
                self.context.call(node.call)
            case ast.Block():
                for inner in node.statements:
                    self.statement(inner)
            case ast.If():
                self._if(node)
            case ast.VarDecl():
                self._variable(node)
            case ast.ConstDecl():
                self.context.scope[node] = self.values.constant(node.value.const, node.type, node)
            case ast.Switch():
                self._switch(node)
            case ast.Return():
                self._return(node)
            case ast.Exit():
                self._exit()
            case ast.ForC():
                self._for_c(node)
            case ast.ForIn():
                self._for_in(node)
            case ast.Break():
                self.code.emit(ir.Goto(self.context.loops[-1][0]))
            case ast.Continue():
                self.code.emit(ir.Goto(self.context.loops[-1][1]))
            case ast.EmptyStatement() | ast.Instantiation():
                pass
            case _:
                raise unsupported(node, f"this statement ({type(node).__name__})")

    def body(self, block: ast.Block) -> None:
        for statement in block.statements:
            self.statement(statement)

    def _assignment(self, node: ast.Assign) -> None:
        if node.op == "=":
            # The left side's indices are evaluated first (§11.1).
            place = self.expressions.lvalue(node.target)
            self.values.assign(place, self.expressions.value(node.value), node)
            return
        place = self.expressions.lvalue(node.target)
        old, value = self.values.in_order([lambda: self.values.scalar(place), lambda: self.expressions.scalar(node.value)])
        self.values.assign(place, ir.Op(BINARY[node.op], (old, value), old.width, old.signed), node)

    def _variable(self, node: ast.VarDecl) -> None:
        place = self.context.storage.place(node.type, node.name, where=node.span)
        if node.init is None:
            self.values.reset(place, node)
        else:
            self.values.assign(place, self.expressions.value(node.init), node)
        self.context.scope[node] = place

    def _if(self, node: ast.If) -> None:
        condition = self.expressions.scalar(node.condition)
        if isinstance(condition, ir.Const):  # known at compile time, or an argument of the constructor
            branch = node.then if condition.value else node.otherwise
            if branch is not None:
                self.statement(branch)
            return
        then = self.code.block(lambda: self.statement(node.then))
        otherwise = self.code.block(partial(self.statement, node.otherwise)) if node.otherwise else []
        self.code.emit(ir.If(condition, then, otherwise, likely(node)))

    def _switch(self, node: ast.Switch) -> None:
        t = node.subject.type
        subject = self.expressions.scalar(node.subject)
        cases: list[tuple[int, list[ir.Stmt]]] = []
        default: list[ir.Stmt] = []
        waiting: list[ast.SwitchCase] = []
        for case in node.cases:
            waiting.append(case)
            if case.body is None:
                continue
            for label in waiting:
                # Each label gets its own copy of the body: labels share one only where the program fell through.
                lowered = self.code.block(partial(self.statement, case.body))
                if label.label is None:
                    default = lowered
                elif isinstance(t, types.ActionRunType):
                    cases.append((self._action_index(t, label), lowered))
                else:
                    value = self.values.constant(label.label.const, t, label.label)
                    assert isinstance(value, ir.Const)
                    cases.append((value.value, lowered))
            waiting = []
        if subject.width > 64:
            result = default
            for case_value, lowered in reversed(cases):
                result = [ir.If(fold.eq(subject, fold.const(case_value, subject.width, subject.signed)), lowered, result)]
            self.code.out += result
            return
        self.code.emit(ir.Switch(subject, cases, default))

    def _action_index(self, t: types.ActionRunType, case: ast.SwitchCase) -> int:
        for i, ref in enumerate(t.table.actions):
            if ref is case.action or (case.action is not None and ref.decl is case.action.decl):
                return i
        raise unsupported(case, "this label")

    def _return(self, node: ast.Return) -> None:
        frame = self.context.frames[-1]
        if node.value is not None and frame.result is not None:
            self.values.assign(frame.result, self.expressions.value(node.value), node)
        frame.label_used = True
        self.code.emit(ir.Goto(frame.label))

    def _exit(self) -> None:
        # Pending out parameters are copied out, innermost first.
        for frame in reversed(self.context.frames):
            for copy in frame.copy_out:
                copy()
        self.code.emit(ir.Goto(self.context.exit_label))

    def _for_c(self, node: ast.ForC) -> None:
        for init in node.init:
            self.statement(init)
        top, again, end = self.code.label("loop"), self.code.label("continue"), self.code.label("break")
        self.code.emit(ir.Label(top))
        self.code.emit(ir.If(fold.lnot(self.expressions.scalar(node.condition)), [ir.Goto(end)]))
        rounds = self._repeated(node, end, again)
        self.code.emit(ir.Label(again))
        for update in node.update:
            self.statement(update)
        self.code.emit(
            *([ir.Goto(top)] if rounds != 1 else ()),
            ir.Label(end),
        )

    def _repeated(self, node: ast.ForC | ast.ForIn, end: str, again: str) -> int | None:
        """Lowers a loop's body. Returns its rounds, None if they are not known."""
        outer, rounds = self.context.around, loops.known_rounds(node, self.context.limit)
        self.context.around = loops.within(outer, rounds, self.context.limit)
        if self.context.around is None:
            self.context.count_round()
        self.context.loops.append((end, again))
        self.context.repeating += 1
        self.statement(node.body)
        self.context.repeating -= 1
        self.context.loops.pop()
        self.context.around = outer
        return rounds

    def _for_in(self, node: ast.ForIn) -> None:
        target = self.context.scope[node.target] = self.context.storage.place(node.target.type, node.target.name)
        if isinstance(node.collection, ast.Range):
            self._for_range(node, node.collection, target)
            return
        collection = self.values.read(self.expressions.value(node.collection))
        if not isinstance(collection, Stack | value_trees.Sequence):
            raise unsupported(node.collection, "iteration over this collection")
        end = self.code.label("break")
        for item in value_trees.members(self.values.snapshot(collection)):  # the body may change its parts
            again = self.code.label("continue")
            self.values.assign(target, item, node)
            self.context.loops.append((end, again))
            self.statement(node.body)
            self.context.loops.pop()
            self.code.emit(ir.Label(again))
        self.code.emit(ir.Label(end))

    def _for_range(self, node: ast.ForIn, bounds: ast.Range, target: Value) -> None:
        low = self.code.stable(self.expressions.scalar(bounds.lo))
        high = self.code.stable(self.expressions.scalar(bounds.hi))
        counter = self.code.temp(low.width, low.signed, "i")
        top, again, end = self.code.label("loop"), self.code.label("continue"), self.code.label("break")
        self.code.emit(
            ir.Assign(counter, low),
            ir.If(ir.Op("gt", (low, high), 1), [ir.Goto(end)]),
            ir.Label(top),
        )
        self.values.assign(target, counter, node)
        rounds = self._repeated(node, end, again)
        self.code.emit(
            ir.Label(again),
            ir.If(fold.eq(counter, high), [ir.Goto(end)]),  # before the increment: `high` may be the type's maximum
            ir.Assign(counter, fold.add(counter, fold.const(1, counter.width, counter.signed))),
            *([ir.Goto(top)] if rounds != 1 else ()),
            ir.Label(end),
        )


def likely(node: ast.If) -> bool | None:
    """Returns what @likely and @unlikely at its blocks state about the condition, or None."""
    for block, outcome in ((node.then, True), (node.otherwise, False)):
        for note in block.annotations if isinstance(block, ast.Block) else ():
            if note.name in ("likely", "unlikely"):
                return outcome == (note.name == "likely")
    return None
