"""Registers: v1model's `register`; TNA's Register, RegisterAction, RegisterParam, MathUnit and their direct forms.

A RegisterAction becomes a read, its inlined body, and a write of the parts that the body writes: the hardware does this in one
stateful ALU. Each access leaves a statement that `arch/lower_tna.py` checks.
"""

from __future__ import annotations

from ina.p4.compiler import ast, fold, ir, operations, types
from ina.p4.compiler.arch import tna_operations
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.arch.tna_operations import math_unit
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.check.const import wrap
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.externs.cells import direct_entry, index32, scalars_of
from ina.p4.compiler.externs.extern import ExternObject, Objects
from ina.p4.compiler.instances import abstract_method
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import shape_of, unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.table_description import TableUse
from ina.p4.compiler.lower.value_trees import Value
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.objects import RegisterArray
from ina.p4.compiler.reference.places import Arguments
from ina.p4.compiler.reference.statements import run_body
from ina.p4.compiler.reference.values import Value as RunTimeValue
from ina.p4.compiler.reference.values import copy, default_value, from_const


class V1Register(ExternObject):
    names = ("register",)

    def cells(self, low: Lowering, instance: Instance, element: types.Type, node: ast.Node) -> list[ir.Register]:
        """Returns one register for each scalar of the element: `r`, or `r.x` and `r.y.z`."""
        registers = low.state(Objects).registers
        if instance not in registers:
            registers[instance] = [
                ir.Register(f"{instance.name}{path}", width, int(instance.args["size"]), signed)
                for path, width, signed in scalars_of(element, "", node)
            ]
        return registers[instance]

    def declare(self, low: Lowering, instance: Instance) -> None:
        self.cells(low, instance, instance.type.args[0], instance.site or low.program.package.decl)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        match call.method:
            case "read":
                self._read(low, call, instance)
            case "write":
                self._write(low, call, instance)
            case _:
                return super().lower(low, call, instance)
        return None

    def _read(self, low: Lowering, call: ast.Call, instance: Instance) -> None:
        cells = self.cells(low, instance, call.params[0].type, call)
        target = low.expressions.lvalue(call.args[0]) if call.args[0] is not None else None
        index = index32(low, call.given(1))
        if isinstance(target, ir.Var | ir.Elem):
            low.emit(ir.RegRead(target, cells[0], index))
            return
        if len(cells) > 1:
            index = low.code.stable(index)
        result = low.context.storage.place(call.params[0].type, "cell")
        for register, part in zip(cells, value_trees.variables(result), strict=True):
            low.emit(ir.RegRead(part, register, index))
        if target is not None:
            low.assign(target, result, call)

    def _write(self, low: Lowering, call: ast.Call, instance: Instance) -> None:
        index = index32(low, call.given(0))
        value = low.value(call.given(1))
        cells = self.cells(low, instance, call.params[1].type, call)
        if len(cells) > 1:
            index = low.code.stable(index)
        for register, part in zip(cells, value_trees.scalars(value), strict=True):
            low.emit(ir.RegWrite(register, index, value_trees.expression(part)))

    def create(self, machine: Machine, instance: Instance) -> RegisterArray:
        return RegisterArray(instance.name, instance.type.args[0], instance.args["size"])

    def interpret(self, machine: V1Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> None:
        register = machine.state(instance, RegisterArray)
        if call.method == "read":
            args.place(0).set(register.read(args.index(1)))
        else:
            register.write(args.index(0), args.value(1))


def tna_cells(low: Lowering, instance: Instance, node: ast.Node, size: int | None = None) -> list[ir.Register]:
    """Returns the registers of a Register, RegisterParam or DirectRegister (which its table has created): one for each scalar of
    its element."""
    registers = low.state(Objects).registers
    if instance not in registers:
        element = instance.type.args[0]
        size = int(instance.args.get("size", 1)) if size is None else size  # a DirectRegister that no table names has one cell
        shapes = scalars_of(element, "", node)
        initial = _initial(low, instance, element, node, len(shapes))
        registers[instance] = [
            ir.Register(
                f"{instance.name}{path}", width, size, signed, initial=value, part=part,
                param=instance.decl.name == "RegisterParam",
            )
            for part, ((path, width, signed), value) in enumerate(zip(shapes, initial, strict=True))
        ]
    return registers[instance]


def _initial(low: Lowering, instance: Instance, element: types.Type, node: ast.Node, count: int) -> list[int]:
    initial = instance.args.get("initial_value")
    if initial is None:
        return [0] * count
    leaves = value_trees.scalars(low.values.constant(initial, element, node))
    return [leaf.value for leaf in leaves if isinstance(leaf, ir.Const)]


def note_access(low: Lowering, call: ast.Call, register: Instance) -> None:
    low.emit(operations.Access(register, call.span))


class Register(ExternObject):
    names = ("Register", "DirectRegister")
    properties = ("registers",)

    def declare(self, low: Lowering, instance: Instance) -> None:
        if instance.decl.name == "Register":
            tna_cells(low, instance, instance.site or low.context.instance.decl)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        if instance.decl.name == "Register":
            raise unsupported(prop, f"'{prop.name}' of type {instance.decl.name}")
        for register in tna_cells(low, instance, prop, use.table.size):
            register.table = use.table.name
        use.direct.append(instance)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        if call.method not in ("read", "write"):
            return super().lower(low, call, instance)
        args = call.named()
        direct = instance.decl.name == "DirectRegister"
        index = direct_entry(low, call, instance) if direct else index32(low, args["index"])
        cells = tna_cells(low, instance, call)
        note_access(low, call, instance)
        index = low.code.stable(index)
        result = low.context.storage.place(instance.type.args[0], "cell")
        for register, part in zip(cells, value_trees.variables(result), strict=True):
            low.emit(ir.RegRead(part, register, index))
        if "value" in args:
            for register, value in zip(cells, value_trees.scalars(low.value(args["value"])), strict=True):
                low.emit(ir.RegWrite(register, index, value_trees.expression(value)))
        return result

    def create(self, machine: Machine, instance: Instance) -> object:
        """Returns the cells: of a direct register by the handles of the table's entries."""
        cells: dict[int, RunTimeValue] = {}
        return cells if instance.decl.name == "DirectRegister" else _array(instance, instance.args.get("size", 0))

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        if instance.decl.name == "DirectRegister":
            return super().interpret(machine, instance, call, args, frame)
        register, index = machine.state(instance, RegisterArray), args.index("index")
        value = register.read(index)
        if call.method == "write":
            register.write(index, args.value("value"))
        return value


class RegisterAction(ExternObject):
    names = ("RegisterAction", "DirectRegisterAction")

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        match instance.decl.name, call.method:
            case "RegisterAction", "execute":
                return self._execute(low, call, instance, index32(low, call.named()["index"]))
            case "RegisterAction", "execute_log":
                return self._execute(low, call, instance, self._next_log(low, call, instance.args["reg"]))
            case "DirectRegisterAction", "execute":
                return self._execute(low, call, instance, direct_entry(low, call, instance.args["reg"]))
            case _, "predicate":
                return self._predicate(low, call)
        return super().lower(low, call, instance)

    def _execute(self, low: Lowering, call: ast.Call, action: Instance, index: ir.Expr) -> Value | None:
        register: Instance = action.args["reg"]
        cells = tna_cells(low, register, call)
        note_access(low, call, register)
        body = abstract_method(action, "apply")
        value = low.context.storage.place(body.params[0].type, "cell")
        has_result = len(body.params) > 1
        result_type = body.params[1].type if has_result else call.type
        result = None if isinstance(result_type, types.VoidType) else low.context.storage.place(result_type, "read")
        args = [value, result] if has_result and result is not None else [value]
        context = low.context
        outer, context.this = context.this, action

        def inlined() -> None:
            low.inliner.inline_values(body.params, args, call, lambda: low.statements.body(body.body))

        lowered = low.code.block(inlined)
        context.this = outer
        written = {target for stmt in ir.walk(lowered) for target in ir.writes(stmt)}
        if not self._unchanged(low, index, lowered):
            index = low.code.stable(index)
        parts = list(value_trees.variables(value))
        if len(parts) != len(cells):
            raise unsupported(call, f"a RegisterAction of {body.params[0].type} on a Register of {register.type.args[0]}")
        for cell, part in zip(cells, parts, strict=True):
            low.emit(ir.RegRead(part, cell, index))
        if not has_result and result is not None:
            low.values.reset(result, call)
        low.code.out += lowered
        for cell, part in zip(cells, parts, strict=True):
            if part in written:
                low.emit(ir.RegWrite(cell, index, part))
        return result

    def _unchanged(self, low: Lowering, index: ir.Expr, body: list[ir.Stmt]) -> bool:
        """Returns True if an index is the same behind `body`: then all accesses name it alike, and registers can share rows."""
        read = low.values.keys(index)
        plain = all(isinstance(leaf, ir.Const | ir.Var | ir.Elem) for leaf in ir.leaves(index))
        return plain and not any(low.values.keys(target) & read for stmt in ir.walk(body) for target in ir.writes(stmt))

    def _next_log(self, low: Lowering, call: ast.Call, register: Instance) -> ir.Expr:
        """Returns the index for execute_log, which goes through the cells one after the other."""
        size = tna_cells(low, register, call)[0].size
        log = low.state(Objects).logs.setdefault(register, ir.Register(f"{register.name}.$log", 32, 1))
        at = low.code.temp(32, name="log")
        low.emit(ir.RegRead(at, log, fold.const(0, 32)))
        following = fold.add(at, fold.const(1, 32))
        last = fold.eq(at, fold.const(size - 1, 32))
        low.emit(ir.RegWrite(log, fold.const(0, 32), fold.cond(last, fold.const(0, 32), following)))
        return at

    def _predicate(self, low: Lowering, call: ast.Call) -> ir.Expr:
        """Returns one of four bits, selected by the values of (cmphi, cmplo)."""
        if low.context.this is None:
            raise unsupported(call, "predicate outside of a RegisterAction")
        args = call.named()
        small, large = (low.scalar(args[n]) if n in args else fold.FALSE for n in ("cmplo", "cmphi"))
        shape = shape_of(call.type, call)
        number = fold.add(fold.cast(small, 32), ir.Op("shl", (fold.cast(large, 32), fold.const(1, 32)), 32))
        return fold.cast(ir.Op("shl", (fold.const(1, 32), number), 32), *shape)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        if call.method == "predicate":
            low, high = (bool(args.number(name, 0)) for name in ("cmplo", "cmphi"))
            return wrap(1 << (2 * high + low), types.underlying(call.type))
        if instance.decl.name == "DirectRegisterAction":
            return self._interpret_direct(machine, instance, call, frame)
        owner = instance.args["reg"]
        register = machine.state(owner, RegisterArray)
        if call.method == "execute":
            index = args.index("index")
        else:
            index = machine.logs.get(owner, 0)
            machine.logs[owner] = (index + 1) % len(register)
        value = register.read(index)
        after, result = self._apply(instance, value, call, frame)
        register.write(index, after)
        if 0 <= index < len(register):
            machine.observer.register_changed(owner, index, value, after)
        return result

    def _interpret_direct(self, machine: TnaMachine, instance: Instance, call: ast.Call, frame: Frame) -> RunTimeValue:
        owner = instance.args["reg"]
        handle, t = machine.direct_cell(owner, call), owner.type.args[0]
        if handle < 0:
            return self._apply(instance, default_value(t), call, frame)[1]
        cells: dict[int, RunTimeValue] = machine.state(owner, dict)
        if handle not in cells:
            initial = owner.args.get("initial_value")
            cells[handle] = default_value(t) if initial is None else from_const(initial, t)
        cells[handle], result = self._apply(instance, copy(cells[handle]), call, frame)
        return result

    def _apply(
        self, action: Instance, value: RunTimeValue, call: ast.Call, frame: Frame
    ) -> tuple[RunTimeValue, RunTimeValue]:
        """Runs the program's `apply` method, in the scope of its control; returns (new value, result)."""
        machine, callee = frame.machine, frame.inner()
        body = abstract_method(action, "apply")
        register, *output = body.params
        callee.vars[register] = copy(value)
        result = None if isinstance(call.type, types.VoidType) else default_value(call.type)
        if output:
            callee.vars[output[0]] = default_value(output[0].type)
        before, machine.this = machine.this, action
        run_body(body.body, callee)
        machine.this = before
        return callee.vars[register], callee.vars[output[0]] if output else result


class RegisterParam(ExternObject):
    """A register of one cell that only the control plane writes."""

    names = ("RegisterParam",)

    def declare(self, low: Lowering, instance: Instance) -> None:
        tna_cells(low, instance, instance.site or low.context.instance.decl, 1)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        cells = tna_cells(low, instance, call, 1)
        result = low.context.storage.place(instance.type.args[0], "param")
        for register, part in zip(cells, value_trees.variables(result), strict=True):
            low.emit(ir.RegRead(part, register, fold.const(0, 32)))
        return result

    def create(self, machine: Machine, instance: Instance) -> RegisterArray:
        return _array(instance, 1)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        return machine.state(instance, RegisterArray).read(0)


class MathUnit(ExternObject):
    names = ("MathUnit",)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> Value | None:
        x = low.scalar(call.given(0))
        if x.width > 32:
            raise unsupported(call, "a MathUnit of more than 32 bits")
        result = low.code.temp(x.width, x.signed, "math")
        low.emit(tna_operations.Math(math_unit(instance, call.span), targets=[result], args=[x]))
        return result

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> RunTimeValue:
        unit = math_unit(instance, call.span)
        width = types.fixed_width(call.type) or 0
        x = args.number("x") & (1 << width) - 1
        e = max(0, x.bit_length() - 1)
        if unit.shift < 0:
            e += e & 1
        power = e >> 1 if unit.shift < 0 else e << unit.shift
        power = unit.scale + (-power if unit.invert else power)
        value = unit.table[(x << 3) >> e]
        return wrap(min((1 << width) - 1, value >> -power if power < 0 else value << power), types.underlying(call.type))


def _array(instance: Instance, size: int) -> RegisterArray:
    """Returns a register's cells in the interpreter."""
    t = instance.type.args[0]
    register = RegisterArray(instance.name, t, size)
    initial = instance.args.get("initial_value")
    if initial is not None:
        register.values = [from_const(initial, t) for _ in range(size)]
    return register
