"""Lowering of statements."""

from __future__ import annotations

from typing import Any

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.lower import loops, value_trees
from ina.p4.compiler.lower.expressions import BINARY, Expressions
from ina.p4.compiler.lower.value_trees import Stack


class Statements(Expressions):
    frames: list[Any]
    loops: list[tuple[str, str]]
    exit_label: str
    labels: int
    repeating: int  # loops of the C text around the current statement
    limit: int  # rounds of loops without a known bound (loops.py)
    around: int | None  # rounds of the loops around the current statement, None: they are counted at run time

    def new_label(self, name: str) -> str:
        self.labels += 1
        return f"{name}_{self.labels}"

    def statement(self, node: ast.Node) -> None:
        outer, self.here = self.here, node.span
        self._statement(node)
        self.here = outer

    def _statement(self, node: ast.Node) -> None:
        match node:
            case ast.Assign():
                self._assignment(node)
            case ast.CallStatement():
                self.call(node.call)
            case ast.Block():
                for inner in node.statements:
                    self.statement(inner)
            case ast.If():
                self._if(node)
            case ast.VarDecl():
                self._variable(node)
            case ast.ConstDecl():
                self.scope[id(node)] = self.constant(node.value.const, node.type, node)
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
                self.emit(ir.Goto(self.loops[-1][0]))
            case ast.Continue():
                self.emit(ir.Goto(self.loops[-1][1]))
            case ast.EmptyStatement() | ast.Instantiation():
                pass
            case _:
                raise self.unsupported(node, f"this statement ({type(node).__name__})")

    def _assignment(self, node: ast.Assign) -> None:
        if node.op == "=":
            # The left side's indices are evaluated first (§11.1).
            place = self.lvalue(node.target)
            self.assign(place, self.value(node.value), node)
            return
        place = self.lvalue(node.target)
        old, value = self.in_order([lambda: self.read(place), lambda: self.scalar(node.value)])
        self.assign(place, ir.Op(BINARY[node.op], (old, value), old.width, old.signed), node)

    def _variable(self, node: ast.VarDecl) -> None:
        place = self.storage.place(node.type, node.name, where=node.span)
        if node.init is None:
            self.reset(place, node)
        else:
            self.assign(place, self.value(node.init), node)
        self.scope[id(node)] = place

    def reset(self, place: Any, node: ast.Node) -> None:
        raise TypeError("defined in lower/calls.py")

    def _if(self, node: ast.If) -> None:
        if node.condition.const is not None:
            branch = node.then if node.condition.const else node.otherwise
            if branch is not None:
                self.statement(branch)
            return
        condition = self.scalar(node.condition)
        if isinstance(condition, ir.Const):  # an argument of the constructor
            branch = node.then if condition.value else node.otherwise
            if branch is not None:
                self.statement(branch)
            return
        then = self.block(lambda: self.statement(node.then))
        otherwise = self.block(lambda: self.statement(node.otherwise)) if node.otherwise else []
        self.emit(ir.If(condition, then, otherwise, likely(node)))

    def _switch(self, node: ast.Switch) -> None:
        t = node.subject.type
        subject = self.scalar(node.subject)
        cases: list[tuple[int, list[ir.Stmt]]] = []
        default: list[ir.Stmt] = []
        waiting: list[ast.SwitchCase] = []
        for case in node.cases:
            waiting.append(case)
            if case.body is None:
                continue
            for label in waiting:
                # Each label gets its own copy of the body: labels share one only where the program fell through.
                lowered = self.block(lambda case=case: self.statement(case.body))
                if label.label is None:
                    default = lowered
                elif isinstance(t, types.ActionRunType):
                    cases.append((self._action_index(t, label), lowered))
                else:
                    value = self.constant(label.label.const, t, label.label)
                    cases.append((value.value, lowered))
            waiting = []
        if subject.width > 64:
            result = default
            for value, lowered in reversed(cases):
                result = [ir.If(fold.eq(subject, fold.const(value, subject.width, subject.signed)), lowered, result)]
            self.out += result
            return
        self.emit(ir.Switch(subject, cases, default))

    def _action_index(self, t: types.ActionRunType, case: ast.SwitchCase) -> int:
        for i, ref in enumerate(t.table.actions):
            if ref is case.action or (case.action is not None and ref.decl is case.action.decl):
                return i
        raise self.unsupported(case, "this label")

    def _return(self, node: ast.Return) -> None:
        frame = self.frames[-1]
        if node.value is not None:
            self.assign(frame.result, self.value(node.value), node)
        frame.label_used = True
        self.emit(ir.Goto(frame.label))

    def _exit(self) -> None:
        # Pending out parameters are copied out, innermost first.
        for frame in reversed(self.frames):
            for copy in frame.copy_out:
                copy()
        self.emit(ir.Goto(self.exit_label))

    def _for_c(self, node: ast.ForC) -> None:
        for init in node.init:
            self.statement(init)
        top, again, end = self.new_label("loop"), self.new_label("continue"), self.new_label("break")
        self.emit(ir.Label(top))
        condition = self.scalar(node.condition)
        self.emit(ir.If(fold.lnot(condition), [ir.Goto(end)]))
        self._repeated(node, end, again)
        self.emit(ir.Label(again))
        for update in node.update:
            self.statement(update)
        self.emit(ir.Goto(top))
        self.emit(ir.Label(end))

    def _repeated(self, node: ast.ForC | ast.ForIn, end: str, again: str) -> None:
        outer = self.around
        self.around = loops.within(outer, loops.known_rounds(node, self.limit), self.limit)
        if self.around is None:
            self.count_round()
        self.loops.append((end, again))
        self.repeating += 1
        self.statement(node.body)
        self.repeating -= 1
        self.loops.pop()
        self.around = outer

    def count_round(self) -> None:
        """Counts a round of this pass; beyond the limit the packet ends."""
        rounds = self.flag("rounds")
        self.emit(ir.Assign(rounds, fold.add(rounds, fold.const(1, 32))))
        ends: list[ir.Stmt] = [ir.Extern("fail", [], [], "INA_ENDLESS")]
        self.emit(ir.If(ir.Op("gt", (rounds, fold.const(self.limit, 32)), 1), ends, likely=False))

    def flag(self, name: str, width: int = 32) -> ir.Var:
        raise TypeError("defined in lower/v1model_externs.py")

    def _for_in(self, node: ast.ForIn) -> None:
        target = self.scope[id(node.target)] = self.storage.place(node.target.type, node.target.name)
        if isinstance(node.collection, ast.Range):
            self._for_range(node, node.collection, target)
            return
        collection = self.read(self.value(node.collection))
        if not isinstance(collection, Stack | value_trees.Sequence):
            raise self.unsupported(node.collection, "iteration over this collection")
        collection = self._snapshot(collection)  # the body may change its parts
        end = self.new_label("break")
        for item in collection.items:
            again = self.new_label("continue")
            self.assign(target, item, node)
            self.loops.append((end, again))
            self.statement(node.body)
            self.loops.pop()
            self.emit(ir.Label(again))
        self.emit(ir.Label(end))

    def _for_range(self, node: ast.ForIn, bounds: ast.Range, target: Any) -> None:
        low = self.stable(self.scalar(bounds.lo))
        high = self.stable(self.scalar(bounds.hi))
        counter = self.temp(low.width, low.signed, "i")
        top, again, end = self.new_label("loop"), self.new_label("continue"), self.new_label("break")
        self.emit(ir.Assign(counter, low))
        self.emit(ir.If(ir.Op("gt", (low, high), 1), [ir.Goto(end)]))
        self.emit(ir.Label(top))
        self.assign(target, counter, node)
        self._repeated(node, end, again)
        self.emit(ir.Label(again))
        self.emit(
            ir.If(fold.eq(counter, high), [ir.Goto(end)])
        )  # before the increment: `high` may be the type's maximum
        self.emit(ir.Assign(counter, fold.add(counter, fold.const(1, counter.width, counter.signed))))
        self.emit(ir.Goto(top))
        self.emit(ir.Label(end))


def likely(node: ast.If) -> bool | None:
    """Returns what @likely and @unlikely at its blocks state about the condition, or None."""
    for block, outcome in ((node.then, True), (node.otherwise, False)):
        for note in block.annotations if isinstance(block, ast.Block) else ():
            if note.name in ("likely", "unlikely"):
                return outcome == (note.name == "likely")
    return None
