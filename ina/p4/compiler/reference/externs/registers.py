"""Registers: v1model's `register`; TNA's Register, RegisterParam, DirectRegister and the actions on them."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.instances import abstract_method
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.externs.extern import ExternObject
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.objects import RegisterArray
from ina.p4.compiler.reference.statements import run_body
from ina.p4.compiler.reference.tables import Table
from ina.p4.compiler.reference.values import Value, copy, default_value, from_const, wrap
from ina.p4.compiler.types import VoidType, underlying


class V1Register(ExternObject):
    names = ("register",)

    def create(self, machine: Machine, instance: Instance) -> RegisterArray:
        return RegisterArray(instance.name, instance.type.args[0], instance.args["size"])

    def interpret(self, machine: V1Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        register = machine.state(instance, RegisterArray)
        if call.method == "read":
            args.place(0).set(register.read(args.number(1)))
        else:
            register.write(args.number(0), args.value(1))
        return None


class Register(ExternObject):
    names = ("Register",)

    def create(self, machine: Machine, instance: Instance) -> RegisterArray:
        return _array(instance, instance.args.get("size", 0))

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        register, index = machine.state(instance, RegisterArray), args.number("index")
        value = register.read(index)
        if call.method == "write":
            register.write(index, args.value("value"))
        return value


class RegisterParam(ExternObject):
    names = ("RegisterParam",)

    def create(self, machine: Machine, instance: Instance) -> RegisterArray:
        return _array(instance, 1)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        return machine.state(instance, RegisterArray).read(0)


class RegisterAction(ExternObject):
    names = ("RegisterAction",)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        if call.method == "predicate":
            return _predicate(call, args)
        owner = instance.args["reg"]
        register = machine.state(owner, RegisterArray)
        if call.method == "execute":
            index = args.number("index")
        else:
            index = machine.logs.get(owner, 0)
            machine.logs[owner] = (index + 1) % len(register)
        value = register.read(index)
        after, result = _apply(instance, value, call, frame)
        register.write(index, after)
        if 0 <= index < len(register):
            machine.observer.register_changed(owner, index, value, after)
        return result


class DirectRegister(ExternObject):
    names = ("DirectRegister",)

    def create(self, machine: Machine, instance: Instance) -> dict[int, Value]:
        return {}

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        table.attached.append(instance)


class DirectRegisterAction(ExternObject):
    names = ("DirectRegisterAction",)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        if call.method == "predicate":
            return _predicate(call, args)
        owner = instance.args["reg"]
        entry, t = machine.entry(owner, call), owner.type.args[0]
        if entry is None:
            return _apply(instance, default_value(t), call, frame)[1]
        cells: dict[int, Value] = machine.state(owner, dict)
        if entry.handle not in cells:
            initial = owner.args.get("initial_value")
            cells[entry.handle] = default_value(t) if initial is None else from_const(initial, t)
        cells[entry.handle], result = _apply(instance, copy(cells[entry.handle]), call, frame)
        return result


def _array(instance: Instance, size: int) -> RegisterArray:
    t = instance.type.args[0]
    register = RegisterArray(instance.name, t, size)
    initial = instance.args.get("initial_value")
    if initial is not None:
        register.values = [from_const(initial, t) for _ in range(size)]
    return register


def _predicate(call: ast.Call, args: Arguments) -> int:
    low, high = (bool(args.number(name, 0)) for name in ("cmplo", "cmphi"))
    return wrap(1 << (2 * high + low), underlying(call.type))


def _apply(action: Instance, value: Value, call: ast.Call, frame: Frame) -> tuple[Value, Value]:
    """Runs the program's `apply` method, in the scope of its control; returns (new value, result)."""
    machine, callee = frame.machine, frame.inner()
    body = abstract_method(action, "apply")
    register, *output = body.params
    callee.vars[register] = copy(value)
    result = None if isinstance(call.type, VoidType) else default_value(call.type)
    if output:
        callee.vars[output[0]] = default_value(output[0].type)
    before, machine.this = machine.this, action
    run_body(body.body, callee)
    machine.this = before
    return callee.vars[register], callee.vars[output[0]] if output else result
