"""TNA's objects and functions in the reference interpreter: registers, hashes, checksums, meters, filters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_math import math_unit
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.instances import abstract_method, symmetric_places
from ina.p4.compiler.reference.expressions import Frame, InterpreterError
from ina.p4.compiler.reference.hashes import SplitMix64, csum16, to_bytes
from ina.p4.compiler.reference.packet import ParserError
from ina.p4.compiler.reference.tables import ActionProfile, BoundAction, Entry
from ina.p4.compiler.reference.v1model_objects import CounterArray, MeterArray, MeterState, RegisterArray
from ina.p4.compiler.reference.values import Record, copy, default_value, from_const, pack, wrap
from ina.p4.compiler.types import Type, fixed_width, underlying

if TYPE_CHECKING:
    from ina.p4.compiler.reference.interpreter import Interpreter

MASK32 = (1 << 32) - 1
COLORS = (0, 1, 3)  # MeterColor_t of green, yellow, red
STANDARD_CRCS = {  # width, polynomial, reflected, initial value, final xor
    "CRC8": (8, 0x07, False, 0, 0),
    "CRC16": (16, 0x8005, True, 0, 0),
    "CRC32": (32, 0x04C11DB7, True, MASK32, MASK32),
    "CRC64": (64, 0x42F0E1EBA9EA3693, False, 0, 0),
    "RANDOM": (64, 0xAD93D23594C935A9, True, (1 << 64) - 1, 0),
}


class Unset(int):
    """The value of an invalid intrinsic metadata field: never written (then zero), or invalidated."""


class Nothing(Unset):
    """The value of an invalid field in a deparser: it equals nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


class SelectorProfile(ActionProfile):
    """An action profile whose groups' members are selected by a Hash."""

    def __init__(self, name: str, size: int, architecture: ObjectMethods) -> None:
        super().__init__(name, size, None, lambda: 0)
        self.architecture = architecture
        self.hash: Instance | None = None  # the ActionSelector's

    def select(self, group: int, width: int, bits: int) -> BoundAction | None:
        members = self.groups[group]
        if not members:
            return None
        assert self.hash is not None
        return self.members[members[self.architecture.hash_bits(self.hash, width, bits) % len(members)]]


class Filter:
    """Cells of an Lpf or Wred: (mode, rise, fall, out, low, high) once configured, times in ns; the average and its time."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self.cells: dict[int, tuple[int, float, float, float, float, float]] = {}
        self.averages: dict[int, tuple[float, int]] = {}

    def average(self, index: int, sample: int, now_ps: int) -> float:
        mode, rise, fall = self.cells[index][:3]
        before, last = self.averages.get(index, (0.0, 0))
        constant = rise if sample > before else fall
        decay = math.exp(-max(now_ps - last, 0) / 1e3 / constant) if constant > 0 else 0.0
        after = before * decay + sample if mode == 2 else sample + (before - sample) * decay
        self.averages[index] = (after, max(now_ps, last))
        return after


@dataclass
class Phase:
    """The state of the packet in the current phase."""

    egress: bool
    octets: int
    now_ps: int
    requests: dict[str, int] = field(default_factory=dict)
    mirror: bytes | None = None
    resubmit: bytes | None = None
    digest: tuple[int, tuple[Any, ...]] | None = None
    sums: dict[Instance, int] = field(default_factory=dict)
    deposits: list[tuple[Instance, Any]] = field(default_factory=list)
    counters: dict[Instance, int] = field(default_factory=dict)
    entries: dict[Instance, Entry | None] = field(default_factory=dict)


def _register(architecture: ObjectMethods, instance: Instance) -> RegisterArray:
    t = instance.type.args[0]
    size = 1 if instance.decl.name == "RegisterParam" else instance.args.get("size", 0)
    register = RegisterArray(instance.name, t, size)
    initial = instance.args.get("initial_value")
    if initial is not None:
        register.values = [from_const(initial, t) for _ in range(size)]
    return register


def _profile(architecture: ObjectMethods, instance: Instance) -> SelectorProfile:
    return SelectorProfile(instance.name, instance.args["size"], architecture)


def _selector(architecture: ObjectMethods, instance: Instance) -> SelectorProfile:
    profile = instance.args.get("action_profile")
    selector = architecture.objects.get(profile) if isinstance(profile, Instance) else None
    if selector is None:
        selector = architecture.create(profile) if isinstance(profile, Instance) else _profile(architecture, instance)
    selector.hash = instance.args["hash"]
    return selector


OBJECTS: dict[str, Callable[[Any, Instance], Any]] = {
    "Register": _register,
    "RegisterParam": _register,
    "DirectRegister": lambda a, i: {},
    "Counter": lambda a, i: CounterArray(i.name, i.args["size"], i.args["type"].lower()),
    "DirectCounter": lambda a, i: i.args["type"].lower(),
    "Meter": lambda a, i: MeterArray(i.name, i.args["size"], i.args["type"].lower()),
    "DirectMeter": lambda a, i: MeterArray(i.name, 1 << 32, i.args["type"].lower()),
    "Lpf": lambda a, i: Filter(i.name, i.args["size"]),
    "Wred": lambda a, i: Filter(i.name, i.args["size"]),
    "DirectLpf": lambda a, i: Filter(i.name, 1 << 32),
    "DirectWred": lambda a, i: Filter(i.name, 1 << 32),
    "ActionProfile": _profile,
    "ActionSelector": _selector,
}


class ObjectMethods:
    """Methods of objects, and functions. The subclass moves packets."""

    phase: Phase
    random: SplitMix64

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter
        self.objects: dict[Instance, Any] = {}
        self.this: Instance | None = None  # the object whose abstract method runs
        self._logs: dict[Instance, int] = {}

    def create(self, instance: Instance) -> Any:
        raise TypeError("defined in arch/interpret_tna.py")

    def header_bytes(self, value: Any, t: Type) -> bytes:
        raise TypeError("defined in arch/interpret_tna.py")

    def packed(self, call: ast.Call, instance: Instance, data: Any) -> None:
        raise TypeError("defined in arch/interpret_tna.py")

    def call_method(self, instance: Instance, method: str, call: ast.Call, args: list[Any], frame: Frame) -> Any:
        state: Any = self.objects.get(instance)
        self.interpreter.observer.method_called(instance, method, args, state)
        by_name = {p.name: a for p, a in zip(call.params, args, strict=True) if a is not None}
        match instance.decl.name, method:
            case "Register", "read":
                return state.read(by_name["index"])
            case "Register", "write":
                old = state.read(by_name["index"])
                state.write(by_name["index"], by_name["value"])
                return old
            case "RegisterParam", "read":
                return state.read(0)
            case "RegisterAction", "execute":
                return self._execute(instance, self.objects[instance.args["reg"]], by_name["index"], call, frame)
            case "RegisterAction", "execute_log":
                register = self.objects[instance.args["reg"]]
                at = self._logs.get(instance.args["reg"], 0)
                self._logs[instance.args["reg"]] = (at + 1) % len(register)
                return self._execute(instance, register, at, call, frame)
            case "DirectRegisterAction", "execute":
                return self._execute_direct(instance, call, frame)
            case "RegisterAction" | "DirectRegisterAction", "predicate":
                return wrap(1 << (2 * bool(by_name.get("cmphi")) + bool(by_name.get("cmplo"))), underlying(call.type))
            case "MathUnit", "execute":
                return wrap(approximate(instance, by_name["x"], call), underlying(call.type))
            case "Counter", "count":
                state.count(by_name["index"], self._octets(by_name))
            case "DirectCounter", "count":
                entry = self._entry(instance, call)
                if entry is not None:
                    entry.packets, entry.octets = entry.packets + 1, entry.octets + self._octets(by_name)
            case "Meter", "execute":
                return self._meter(instance, state, by_name["index"], by_name)
            case "DirectMeter", "execute":
                entry = self._entry(instance, call)
                return self._meter(instance, state, -1 if entry is None else entry.handle, by_name)
            case "Lpf" | "Wred", "execute":
                return self._filter(instance, state, by_name["index"], by_name["val"])
            case "DirectLpf" | "DirectWred", "execute":
                entry = self._entry(instance, call)
                return self._filter(instance, state, -1 if entry is None else entry.handle, by_name["val"])
            case "Hash", "get":
                data = copy(args[0])
                for i, j in symmetric_places(instance, call.args[0]):
                    _exchangeable(data, i, j, call.given(0))
                return wrap(self.hash_bits(instance, *pack(data, call.given(0).type)), underlying(call.type))
            case "Random", "get":
                return wrap(self.random.between(0, (1 << (fixed_width(call.type) or 0)) - 1), underlying(call.type))
            case _:
                return self._packet_method(instance, method, call, by_name, args)
        return None

    def _entry(self, instance: Instance, call: ast.Call) -> Any:
        if instance not in self.phase.entries:
            raise InterpreterError(call, f"{instance.name} outside of the actions of its table")
        return self.phase.entries[instance]

    def _octets(self, by_name: dict[str, Any]) -> int:
        adjust: int = by_name.get("adjust_byte_count", 0)
        return self.phase.octets - adjust & MASK32

    # --- registers --------------------------------------------------------------------------------------------------

    def _execute(self, action: Instance, register: RegisterArray, index: int, call: ast.Call, frame: Frame) -> Any:
        value = register.read(index)
        after, result = self._apply(action, value, call, frame)
        register.write(index, after)
        if 0 <= index < len(register):
            self.interpreter.observer.register_changed(action.args["reg"], index, value, after)
        return result

    def _execute_direct(self, action: Instance, call: ast.Call, frame: Frame) -> Any:
        register = action.args["reg"]
        entry = self._entry(register, call)
        t, cells = register.type.args[0], self.objects[register]
        initial = register.args.get("initial_value")
        fresh = default_value(t) if initial is None else from_const(initial, t)
        if entry is None:
            return self._apply(action, default_value(t), call, frame)[1]
        value, result = self._apply(action, copy(cells.get(entry.handle, fresh)), call, frame)
        cells[entry.handle] = value
        return result

    def _apply(self, action: Instance, value: Any, call: ast.Call, frame: Frame) -> tuple[Any, Any]:
        """Runs the program's `apply` method, in the scope of its control; returns (new value, result)."""
        body = abstract_method(action, "apply")
        callee = Frame(frame.instance, frame.outer or frame)
        callee.vars[body.params[0]] = copy(value)
        result = None
        if len(body.params) > 1:
            callee.vars[body.params[1]] = default_value(body.params[1].type)
        elif str(call.type) != "void":
            result = default_value(call.type)
        before, self.this = self.this, action
        self.interpreter.run_body(body.body, callee)
        self.this = before
        if len(body.params) > 1:
            result = callee.vars[body.params[1]]
        return callee.vars[body.params[0]], result

    # --- meters and filters -------------------------------------------------------------------------------------------

    def _meter(self, instance: Instance, meter: MeterArray, index: int, by_name: dict[str, Any]) -> int:
        before: int = {0: 0, 1: 1, 3: 2}.get(by_name.get("color", 0), by_name.get("color", 0))
        state: MeterState | None = meter.states.get(index)
        color = before
        if state is not None:
            color = aware(state, 1 if meter.unit == "packets" else self._octets(by_name), self.phase.now_ps, before)
        colors = [instance.args.get(name, value) for name, value in zip(("green", "yellow", "red"), COLORS, strict=True)]
        result: int = colors[min(color, 2)]
        return result

    def _filter(self, instance: Instance, state: Filter, index: int, sample: int) -> int:
        if instance.decl.name.endswith("Lpf"):
            if index not in state.cells:
                return sample
            return min(MASK32, int(state.average(index, sample, self.phase.now_ps) * state.cells[index][3]))
        drop = self._early_drop(state, index, sample)
        value: int = instance.args["drop_value"] if drop else instance.args["no_drop_value"]
        return value

    def _early_drop(self, state: Filter, index: int, sample: int) -> bool:
        if not 0 <= index < state.size:
            return False
        number = self.random.next()
        if index not in state.cells:
            return False
        average = state.average(index, sample, self.phase.now_ps)
        *_, out, low, high = state.cells[index]
        if average < low or average >= high:
            return average >= high
        return (number >> 11) * 2.0**-53 < out * (average - low) / (high - low)

    # --- hashes -----------------------------------------------------------------------------------------------------

    def hash_bits(self, instance: Instance, width: int, bits: int) -> int:
        """Returns the hash of a number of `width` bits (Tofino Native Architecture, section 7.8)."""
        algorithm, result_width = instance.args["algo"], fixed_width(instance.type.args[0]) or 0
        if algorithm == "IDENTITY":
            return bits & (1 << result_width) - 1
        if algorithm.startswith("XOR"):
            size = int(algorithm[3:])
            bits <<= -width % size
            result = 0
            while bits:
                result, bits = result ^ bits & (1 << size) - 1, bits >> size
            return result & (1 << result_width) - 1
        extended = msb = False
        if algorithm == "CUSTOM":
            polynomial = instance.args["poly"].args
            size = fixed_width(instance.args["poly"].type.args[0]) or 0
            size -= size % 8 == 1
            full = (1 << size) - 1
            parameters = (
                size, polynomial["coeff"] & full, polynomial["reversed"], polynomial["init"] & full, polynomial["xor"] & full
            )  # fmt: skip
            extended, msb = polynomial["extended"], polynomial["msb"]
        else:
            parameters = STANDARD_CRCS[algorithm]
        result, size = crc(*parameters, bits.to_bytes((width + 7) // 8, "big")), parameters[0]
        if extended:
            result = sum(result << at for at in range(0, result_width, size))
        elif msb and result_width < size:
            result >>= size - result_width
        return result & (1 << result_width) - 1

    # --- parsers and deparsers ----------------------------------------------------------------------------------------

    def _packet_method(self, instance: Instance, method: str, call: ast.Call, by_name: dict[str, Any], args: list[Any]) -> Any:
        phase = self.phase
        match instance.decl.name, method:
            case "Checksum", "add":
                added = ~csum16(to_bytes(args[0], call.given(0).type)) & 0xFFFF
                phase.sums[instance] = phase.sums.get(instance, 0) + added
            case "Checksum", "subtract":
                phase.sums[instance] = phase.sums.get(instance, 0) + csum16(to_bytes(args[0], call.given(0).type))
            case "Checksum", "get":
                return folded(phase.sums.get(instance, 0))
            case "Checksum", "verify":
                return folded(phase.sums.get(instance, 0)) != 0xFFFF
            case "Checksum", "subtract_all_and_deposit":
                phase.deposits.append((instance, args[0]))
            case "Checksum", "update":
                checksum = csum16(to_bytes(args[0], call.given(0).type))
                return 0xFFFF if checksum == 0 and by_name.get("zeros_as_ones") else checksum
            case "ParserCounter", _:
                return self._counter(instance, method, by_name, call)
            case "ParserPriority", "set":
                return None
            case "Mirror", "emit":
                phase.mirror = self.header_bytes(by_name["hdr"], call.params[-1].type) if "hdr" in by_name else b""
                phase.requests |= {"mirror": 1, "mirror_session": by_name["session_id"], "mirror_len": len(phase.mirror)}
            case "Resubmit", "emit":
                data = self.header_bytes(by_name["hdr"], call.params[-1].type) if "hdr" in by_name else b""
                phase.resubmit = data.ljust(8, b"\0")
            case "Digest", "pack":
                self.packed(call, instance, args[0])
            case kind, _:
                raise InterpreterError(call, f"TNA has no method '{kind}.{method}'")
        return None

    def deposit(self, payload: bytes) -> None:
        for instance, place in self.phase.deposits:
            place.set(folded(self.phase.sums.get(instance, 0) + (~csum16(payload) & 0xFFFF)))

    def _counter(self, instance: Instance, method: str, by_name: dict[str, Any], call: ast.Call) -> Any:
        counters = self.phase.counters
        value = counters.get(instance, 0)
        match method:
            case "is_zero":
                return value == 0
            case "is_negative":
                return value < 0
            case "increment" | "decrement":
                value += by_name["value"] if method == "increment" else -by_name["value"]
            case "set" if "value" in by_name:
                value = by_name["value"]
            case _:
                field = by_name["field"] & 255
                if field > by_name["max"]:
                    raise ParserError("CounterRange")
                turn = by_name["rotate"] % 8
                value = ((field >> turn | field << 8 - turn) & 255 & (1 << by_name["mask"] + 1) - 1) + by_name["add"]
        counters[instance] = (value + 128) % 256 - 128
        return None

    # --- functions ----------------------------------------------------------------------------------------------------

    @staticmethod
    def x_max(call: ast.Call, frame: Frame, a: int, b: int) -> int:
        return max(a, b)

    @staticmethod
    def x_min(call: ast.Call, frame: Frame, a: int, b: int) -> int:
        return min(a, b)

    @staticmethod
    def x_funnel_shift_right(call: ast.Call, frame: Frame, target: Any, high: int, low: int, amount: int) -> None:
        t = underlying(call.params[0].type)
        width = fixed_width(t) or 0
        mask = (1 << width) - 1
        target.set(wrap(((high & mask) << width | low & mask) >> amount, t))

    def x_invalidate(self, call: ast.Call, frame: Frame, value: Any) -> None:
        place = self.interpreter.lvalue(call.given(0), frame)
        place.container[place.key] = Unset(value)

    @staticmethod
    def x_is_validated(call: ast.Call, frame: Frame, value: Any) -> bool:
        return not isinstance(value, Unset)

    @staticmethod
    def x_sizeInBits(call: ast.Call, frame: Frame, value: Any) -> int:
        return fixed_width(call.given(0).type) or 0

    @staticmethod
    def x_sizeInBytes(call: ast.Call, frame: Frame, value: Any) -> int:
        return ((fixed_width(call.given(0).type) or 0) + 7) // 8

    @staticmethod
    def x_port_metadata_unpack(call: ast.Call, frame: Frame, packet: Any) -> Any:
        packet.need(64)
        value = packet.lookahead(call.type)
        packet.advance(64)
        return value


def _exchangeable(data: Any, i: int, j: int, expression: ast.Expr) -> None:
    """Replaces two values of a list by their exclusive or."""
    assert isinstance(expression, ast.ListExpr | ast.StructInit)
    mask = (1 << (fixed_width(expression.values[i].type) or 0)) - 1
    places: list[Any] = list(data.fields) if isinstance(data, Record) else list(range(len(data.items)))
    container = data.fields if isinstance(data, Record) else data.items
    container[places[i]] = container[places[j]] = (container[places[i]] ^ container[places[j]]) & mask


def crc(width: int, poly: int, reflected: bool, init: int, xor: int, text: bytes) -> int:
    """Computes a CRC bit by bit; `init` is the register's initial value."""
    register, mask = init, (1 << width) - 1
    mirrored = int(f"{poly:0{width}b}"[::-1], 2)
    for byte in text:
        for bit in range(8):
            if reflected:
                feedback = (register ^ byte >> bit) & 1
                register = register >> 1 ^ (mirrored if feedback else 0)
            else:
                feedback = (register >> (width - 1) ^ byte >> (7 - bit)) & 1
                register = (register << 1 ^ (poly if feedback else 0)) & mask
    return register ^ xor


def folded(total: int) -> int:
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def aware(state: MeterState, amount: int, now_ps: int, before: int) -> int:
    """Marks colour-aware (RFC 2698 section 3): 0 green, 1 yellow, 2 red."""
    if before == 0:
        return state.mark(amount, now_ps)
    elapsed = max(now_ps - state.last_ps, 0) / 1e12
    committed = min(state.committed_tokens + elapsed * state.committed_rate, state.committed_burst)
    color = state.mark(amount if before == 1 else 0, now_ps)
    state.committed_tokens = committed
    return 2 if before == 2 or color == 2 else 1


def approximate(instance: Instance, x: int, call: ast.Call) -> int:
    """Returns a MathUnit's result (tna_math.py)."""
    unit = math_unit(instance, call.span)
    width = fixed_width(call.type) or 0
    x &= (1 << width) - 1
    e = max(0, x.bit_length() - 4)
    if unit.shift < 0:
        e += e & 1
    power = e >> 1 if unit.shift < 0 else e << unit.shift
    power = unit.scale + (-power if unit.invert else power)
    value = unit.table[x >> e]
    return min((1 << width) - 1, value >> -power if power < 0 else value << power)
