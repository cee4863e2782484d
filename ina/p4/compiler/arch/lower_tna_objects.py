"""Lowering of TNA's objects and functions in controls: registers, counters, meters, filters, hashes, random numbers.

A RegisterAction becomes a read, its inlined body, and a write of the parts that the body writes: the hardware does this
in one stateful ALU. Each access leaves an `Extern("access")` that `tna_registers.py` checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.arch.lower_tna_packet import PacketObjects
from ina.p4.compiler.arch.tna_math import math_unit
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.instances import abstract_method, symmetric_places
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.expressions import hint

SELECTOR_GROUPS = 4  # p4c's default, for an ActionSelector with only a size
COLORS = {"green": 0, "yellow": 1, "red": 3}  # MeterColor_t


class Objects(PacketObjects):
    attachable = ("counters", "meters", "registers", "filters", "implementation")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.filters: dict[int, ir.Filter] = {}
        self.hashes: dict[int, ir.DynamicHash] = {}
        self.logs: dict[int, ir.Register] = {}  # the next cell of execute_log
        self.selectors: dict[str, tuple[str, int]] = {}  # of action profiles
        self.comparisons: Instance | None = None  # the RegisterAction whose body is being lowered

    # --- functions --------------------------------------------------------------------------------------------------

    def extern_function(self, e: ast.Call) -> Any:
        match e.decl.name:
            case "max" | "min" as name:
                a, b = self.stable(self.scalar(e.given(0))), self.stable(self.scalar(e.given(1)))
                return fold.cond(ir.Op("gt" if name == "max" else "lt", (a, b), 1), a, b)
            case "funnel_shift_right":
                target = self.lvalue(e.given(0))
                high, low = self.scalar(e.given(1)), self.scalar(e.given(2))
                both = ir.Op("shr", (fold.concat([high, low]), fold.const(e.given(3).const, 32)), high.width + low.width)
                self.assign(target, fold.cast(both, *self.shape(e.params[0].type, e)), e)
                return None
            case "sizeInBits" | "sizeInBytes" as name:
                bits = types.fixed_width(e.given(0).type)
                if bits is None:
                    raise self.unsupported(e, f"the size of {e.given(0).type}")
                return fold.const(bits if name == "sizeInBits" else -(-bits // 8), 32)
            case "invalidate" | "is_validated" as name:
                return self._validity(e, name)
            case "port_metadata_unpack":
                return self.unpack_port_metadata(e)
        return super().extern_function(e)

    def _validity(self, e: ast.Call, name: str) -> ir.Expr | None:
        flag = self.validity.get(id(self.value(e.given(0))))
        if flag is None:
            fields = "ucast_egress_port, mcast_grp_a, mcast_grp_b, digest_type, resubmit_type and, in egress, mirror_type"
            raise self.unsupported(e, f"{name} of a field other than {fields}")
        if name == "is_validated":
            return flag
        self.emit(ir.Assign(flag, fold.FALSE))
        return None

    # --- objects ----------------------------------------------------------------------------------------------------

    def resolve_instance(self, receiver: ast.Expr | None) -> Instance:
        if isinstance(receiver, ast.Name) and receiver.name == "this" and self.comparisons is not None:
            return self.comparisons
        return super().resolve_instance(receiver)

    def extern_method(self, e: ast.Call, instance: Instance) -> Any:
        args = {p.name: a for p, a in zip(e.params, e.args, strict=True) if a is not None}
        match instance.decl.name, e.method:
            case "Register", "read" | "write":
                return self._cell(e, instance, self._index32(args["index"]), args.get("value"))
            case "DirectRegister", "read" | "write":
                return self._cell(e, instance, self.direct_entry(e, instance), args.get("value"))
            case "RegisterAction", "execute":
                return self._execute(e, instance, self._index32(args["index"]))
            case "RegisterAction", "execute_log":
                return self._execute(e, instance, self._next_log(e, instance.args["reg"]))
            case "DirectRegisterAction", "execute":
                return self._execute(e, instance, self.direct_entry(e, instance.args["reg"]))
            case "RegisterAction" | "DirectRegisterAction", "predicate":
                return self._predicate(e, args)
            case "RegisterParam", "read":
                return self._register_param(e, instance)
            case "MathUnit", "execute":
                return self._math(e, instance)
            case "Counter", "count":
                self._count(self.counter(instance), self._index32(args["index"]), args)
            case "DirectCounter", "count":
                self._count(self.attached(e, instance, self.counters), self.direct_entry(e, instance), args)
            case "Meter", "execute":
                return self._meter(e, self.meter(instance), self._index32(args["index"]), instance, args)
            case "DirectMeter", "execute":
                return self._meter(e, self.attached(e, instance, self.meters), self.direct_entry(e, instance), instance, args)
            case "Lpf" | "Wred", "execute":
                return self._filter(e, self.filter(instance), self._index32(args["index"]), instance)
            case "DirectLpf" | "DirectWred", "execute":
                return self._filter(e, self.attached(e, instance, self.filters), self.direct_entry(e, instance), instance)
            case "Hash", "get":
                return self.dynamic(instance, e, self.tna_hash(instance, self.symmetric(instance, e.given(0)), e))
            case "Random", "get":
                return self._random_bits(e, instance)
            case _:
                return self.packet_object(e, instance, args)
        return None

    def direct_entry(self, e: ast.Call, instance: Instance) -> ir.Expr:
        """Returns the entry of its table whose cell a direct object's call uses here."""
        entry = self.entries.get(id(instance))
        if entry is None:
            raise self.unsupported(e, f"{instance.decl.name}.{e.method} outside of the actions of the table that names it")
        return entry

    def attached(self, e: ast.Call, instance: Instance, objects: dict[int, Any]) -> Any:
        self.direct_entry(e, instance)
        return objects[id(instance)]

    # --- registers --------------------------------------------------------------------------------------------------

    def cells(self, instance: Instance, node: ast.Node, size: int | None = None) -> list[ir.Register]:
        """Returns the registers of a Register or DirectRegister (which its table has created): one for each scalar of its
        element."""
        registers = self.registers.get(id(instance))
        if registers is None:
            element = instance.type.args[0]
            size = int(instance.args["size"]) if size is None else size
            shapes = self._scalars_of(element, "", node)
            initial = self._initial(instance, element, node, len(shapes))
            registers = self.registers[id(instance)] = [
                ir.Register(
                    f"{instance.name}{path}", width, size, signed, initial=value, part=part,
                    param=instance.decl.name == "RegisterParam",
                )  # fmt: skip
                for part, ((path, width, signed), value) in enumerate(zip(shapes, initial, strict=True))
            ]
        return registers

    def _initial(self, instance: Instance, element: types.Type, node: ast.Node, count: int) -> list[int]:
        initial = instance.args.get("initial_value")
        if initial is None:
            return [0] * count
        return [leaf.value for leaf in value_trees.scalars(self.constant(initial, element, node))]

    def note_access(self, e: ast.Call, register: Instance) -> None:
        self.emit(ir.Extern("access", [], [], (register, e.span)))

    def _cell(self, e: ast.Call, instance: Instance, index: ir.Expr, value: ast.Expr | None) -> Any:
        cells = self.cells(instance, e)
        self.note_access(e, instance)
        index = self.stable(index)
        result = self.storage.place(instance.type.args[0], "cell")
        for register, part in zip(cells, value_trees.scalars(result), strict=True):
            self.emit(ir.RegRead(part, register, index))
        if value is not None:
            for register, part in zip(cells, value_trees.scalars(self.read(self.value(value))), strict=True):
                self.emit(ir.RegWrite(register, index, part))
        return result

    def _execute(self, e: ast.Call, action: Instance, index: ir.Expr) -> Any:
        register: Instance = action.args["reg"]
        cells = self.cells(register, e)
        self.note_access(e, register)
        body = abstract_method(action, "apply")
        value = self.storage.place(body.params[0].type, "cell")
        has_result = len(body.params) > 1
        result_type = body.params[1].type if has_result else e.type
        result = None if isinstance(result_type, types.VoidType) else self.storage.place(result_type, "read")
        args = [value, result] if has_result else [value]
        outer, self.comparisons = self.comparisons, action
        lowered = self.block(lambda: self.inline_values(body.params, args, e, lambda: self.body(body.body)))
        self.comparisons = outer
        written = {id(target) for stmt in ir.walk(lowered) for target in ir.writes(stmt)}
        if not self._unchanged(index, lowered):
            index = self.stable(index)
        parts = list(value_trees.scalars(value))
        if len(parts) != len(cells):
            raise self.unsupported(e, f"a RegisterAction of {body.params[0].type} on a Register of {register.type.args[0]}")
        for cell, part in zip(cells, parts, strict=True):
            self.emit(ir.RegRead(part, cell, index))
        if not has_result and result is not None:
            self.reset(result, e)
        self.out += lowered
        for cell, part in zip(cells, parts, strict=True):
            if id(part) in written:
                self.emit(ir.RegWrite(cell, index, part))
        return result

    def _unchanged(self, index: ir.Expr, body: list[ir.Stmt]) -> bool:
        """Returns True if an index is the same behind `body`: then all accesses name it alike, and registers can share rows."""
        read = self._keys(index)
        plain = all(isinstance(leaf, ir.Const | ir.Var | ir.Elem) for leaf in ir.leaves(index))
        return plain and not any(self._keys(target) & read for stmt in ir.walk(body) for target in ir.writes(stmt))

    def _next_log(self, e: ast.Call, register: Instance) -> ir.Expr:
        """Returns the index for execute_log, which goes through the cells one after the other."""
        size = self.cells(register, e)[0].size
        log = self.logs.get(id(register))
        if log is None:
            log = self.logs[id(register)] = ir.Register(f"{register.name}.$log", 32, 1)
        at = self.temp(32, name="log")
        self.emit(ir.RegRead(at, log, fold.const(0, 32)))
        following = fold.add(at, fold.const(1, 32))
        last = fold.eq(at, fold.const(size - 1, 32))
        self.emit(ir.RegWrite(log, fold.const(0, 32), fold.cond(last, fold.const(0, 32), following)))
        return at

    def _predicate(self, e: ast.Call, args: dict[str, ast.Expr]) -> ir.Expr:
        """Returns one of four bits, selected by the values of (cmphi, cmplo)."""
        if self.comparisons is None:
            raise self.unsupported(e, "predicate outside of a RegisterAction")
        low, high = (self.scalar(args[n]) if n in args else fold.FALSE for n in ("cmplo", "cmphi"))
        shape = self.shape(e.type, e)
        number = fold.add(fold.cast(low, 32), ir.Op("shl", (fold.cast(high, 32), fold.const(1, 32)), 32))
        return fold.cast(ir.Op("shl", (fold.const(1, 32), number), 32), *shape)

    def _register_param(self, e: ast.Call, instance: Instance) -> Any:
        """Reads a register of one cell that only the control plane writes."""
        cells = self.cells(instance, e, 1)
        result = self.storage.place(instance.type.args[0], "param")
        for register, part in zip(cells, value_trees.scalars(result), strict=True):
            self.emit(ir.RegRead(part, register, fold.const(0, 32)))
        return result

    def _math(self, e: ast.Call, instance: Instance) -> ir.Expr:
        x = self.scalar(e.given(0))
        if x.width > 32:
            raise self.unsupported(e, "a MathUnit of more than 32 bits")
        result = self.temp(x.width, x.signed, "math")
        self.emit(ir.Extern("math", [result], [x], math_unit(instance, e.span)))
        return result

    # --- counters, meters, filters ----------------------------------------------------------------------------------

    def counter(self, instance: Instance, size: int | None = None) -> ir.Counter:
        counter = self.counters.get(id(instance))
        if counter is None:
            kind = instance.args["type"].lower()
            size = size if size is not None else int(instance.args["size"])
            counter = self.counters[id(instance)] = ir.Counter(instance.name, kind, size, explicit=True)
        return counter

    def meter(self, instance: Instance, size: int | None = None) -> ir.Meter:
        meter = self.meters.get(id(instance))
        if meter is None:
            kind = instance.args["type"].lower()
            size = size if size is not None else int(instance.args["size"])
            meter = self.meters[id(instance)] = ir.Meter(instance.name, kind, size, explicit=True)
            if kind == "bytes":
                meter.adjust = ir.Register(f"{instance.name}.$byte_count_adjust", 64, 1)
        return meter

    def filter(self, instance: Instance, size: int | None = None) -> ir.Filter:
        filter_ = self.filters.get(id(instance))
        if filter_ is None:
            kind = instance.decl.name.removeprefix("Direct").lower()
            size = size if size is not None else int(instance.args["size"])
            filter_ = self.filters[id(instance)] = ir.Filter(instance.name, kind, size)
        return filter_

    def _less(self, args: dict[str, ast.Expr]) -> list[ir.Expr]:
        adjustment = args.get("adjust_byte_count")
        return [] if adjustment is None else [fold.cast(self.scalar(adjustment), 32)]

    def _count(self, counter: ir.Counter, index: ir.Expr, args: dict[str, ast.Expr]) -> None:
        self.emit(ir.Extern("count", [], [index, *self._less(args)], counter))

    def _meter(
        self, e: ast.Call, meter: ir.Meter, index: ir.Expr, instance: Instance, args: dict[str, ast.Expr]
    ) -> ir.Expr:
        less = self._less(args) or [fold.const(0, 32)]
        colors: list[ir.Expr] = []
        if "color" in args:
            color = self.stable(self.scalar(args["color"]))
            colors = [fold.cond(fold.eq(color, fold.const(COLORS["red"], 8)), fold.const(2, 32), fold.cast(color, 32))]
        result = self.temp(32, name="color")
        self.emit(ir.Extern("meter", [result], [index, *less, *colors], meter))
        green, yellow, red = (fold.const(instance.args.get(name, value), 8) for name, value in COLORS.items())
        others = fold.cond(fold.eq(result, fold.const(1, 32)), yellow, red)
        return fold.cond(fold.eq(result, fold.const(0, 32)), green, others)

    def _filter(self, e: ast.Call, filter_: ir.Filter, index: ir.Expr, instance: Instance) -> ir.Expr:
        x = self.scalar(e.given(0))
        if x.width > 32:
            raise self.unsupported(e, f"{instance.decl.name} of more than 32 bits")
        x = fold.cast(x, 32)
        if filter_.kind == "lpf":
            result = self.temp(32, name="average")
            self.emit(ir.Extern("lpf", [result], [index, x], filter_))
            return fold.cast(result, *self.shape(e.type, e))
        result = self.temp(1, name="drop")
        self.uses_random = True
        self.emit(ir.Extern("wred", [result], [index, x], filter_))
        drop, keep = (fold.const(instance.args[name], 8) for name in ("drop_value", "no_drop_value"))
        return fold.cond(result, drop, keep)

    def _random_bits(self, e: ast.Call, instance: Instance) -> ir.Expr:
        width, signed = self.shape(e.type, e)
        if width > 64:
            raise self.unsupported(e, "random values of more than 64 bits")
        self.uses_random = True
        result = self.temp(64, name="random")
        size = fold.const(1 << width if width < 64 else 0, 64)
        self.emit(ir.Extern("random", [result], [fold.const(0, 64), size]))
        return fold.cast(result, width, signed)

    # --- tables -----------------------------------------------------------------------------------------------------

    def attach(self, table: ir.Table, name: str, instance: Instance, prop: ast.Property) -> None:
        direct: Callable[[], Any] | None = None
        match name, instance.decl.name:
            case "counters", "DirectCounter":
                table.counter = self.counter(instance, table.size)
                direct = lambda: table.counter  # noqa: E731
            case "meters", "DirectMeter":
                table.meter = self.meter(instance, table.size)
                direct = lambda: table.meter  # noqa: E731
            case "meters" | "filters", "DirectLpf" | "DirectWred":
                filter_ = self.filter(instance, table.size)
                direct = lambda: filter_  # noqa: E731
            case "registers", "DirectRegister":
                for register in self.cells(instance, prop, table.size):
                    register.table = table.name
            case "implementation", "ActionProfile":
                table.profile = instance.name
            case "implementation", "ActionSelector":
                profile = instance.args.get("action_profile")
                table.profile = profile.name if isinstance(profile, Instance) else instance.name
                self.selectors[table.profile] = (instance.name, int(instance.args.get("num_groups", SELECTOR_GROUPS)))
                self.algorithms[id(table)] = instance.args["hash"]
            case ("implementation", "Alpm" | "Atcam") | ("filters" | "meters" | "counters", "Lpf" | "Wred" | "Meter" | "Counter"):
                return  # how the hardware stores the table; objects that actions index themselves
            case _:
                raise self.unsupported(prop, f"'{name}' of type {instance.decl.name}")
        if direct is not None:
            direct().table = table.name
        if name != "implementation":
            self.direct.setdefault(id(table), []).append(instance)

    def hash_of(self, algorithm: Any, parts: list[Any], payload: bool = False) -> ir.Var:
        if isinstance(algorithm, Instance):  # an action selector's
            symmetric_places(algorithm, None)
            hashed = fold.cast(self.tna_hash(algorithm, parts, algorithm.origin), 64)
            result = self.temp(hashed.width, hashed.signed, hint(hashed))
            self.emit(ir.Assign(result, hashed))
            return result
        return super().hash_of(algorithm, parts, payload)
