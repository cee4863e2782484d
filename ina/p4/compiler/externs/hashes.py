"""Hashes, checksums and random numbers: v1model's `hash`, checksum functions, Checksum16 and `random`; TNA's Checksum and Random
(tna_hash.py has its Hash)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ina.p4.compiler import ast, fold, ir, operations, types
from ina.p4.compiler.arch import tna_operations
from ina.p4.compiler.arch.tna_machine import Residual, TnaMachine, WordSum
from ina.p4.compiler.arch.v1model_machine import V1Machine
from ina.p4.compiler.check.const import wrap
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.externs.extern import ExternFunction, ExternObject
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.context import shape_of, unsupported
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.value_trees import Choice, Header, SliceOf, Value, Varbit
from ina.p4.compiler.operations import Crc
from ina.p4.compiler.reference.expressions import evaluate_as
from ina.p4.compiler.reference.hashes import ALGORITHMS, csum16, sum_of_words, to_bytes
from ina.p4.compiler.reference.machine import Frame, Machine
from ina.p4.compiler.reference.places import Arguments
from ina.p4.compiler.reference.signals import InterpreterError
from ina.p4.compiler.reference.values import Record
from ina.p4.compiler.types import fixed_width, underlying

Part = ir.Expr | Header | Varbit
MOST_BRANCHES = 2  # headers whose validity is branched on, with fast code for each combination; more are joined bit by bit
WIDTHS = {
    "crc32": 32, "crc32_custom": 32, "crc16": 16, "crc16_custom": 16, "csum16": 16, "xor16": 16, "identity": 64, "random": 64,
}


def algorithm_of(e: ast.Expr) -> str:
    """Returns the HashAlgorithm that an argument of v1model names."""
    if not isinstance(e.const, str) or e.const not in WIDTHS:
        raise unsupported(e, f"hash algorithm {e.const if e.const is not None else 'chosen at run time'}")
    return e.const


def hashed(low: Lowering, algorithm: str, data: ast.Expr, payload: bool = False) -> ir.Var:
    """Returns the hash of the data's fields one after the other; invalid headers contribute nothing."""
    return hash_of(low, algorithm, low.values.parts(low.value(data)), payload)


def hash_of(low: Lowering, algorithm: str | Crc, parts: list[Part], payload: bool = False) -> ir.Var:
    result = low.code.temp(WIDTHS[algorithm] if isinstance(algorithm, str) else algorithm.width, name="hash")
    if algorithm == "random":
        low.context.uses_random = True
        low.emit(operations.Random(targets=[result], args=[fold.const(0, 64), fold.const(0, 64)]))
        return result
    if sum(isinstance(part, Header) for part in parts) > MOST_BRANCHES:
        parts = [field for part in parts for field in (_optional(low, part) if isinstance(part, Header) else [part])]
    _hash_parts(low, result, algorithm, parts, [], payload)
    return result


def _fields(low: Lowering, header: Header) -> list[ir.Expr | Varbit]:
    """Returns the scalars and varbits of a header."""
    return [p for member in value_trees.members(header) for p in low.values.parts(member) if not isinstance(p, Header)]


def _optional(low: Lowering, header: Header) -> list[Part]:
    """Returns the fields of a header as varbits, of which no bit is in use while it is invalid."""
    optional: list[Part] = []
    for part in _fields(low, header):
        bits, size = (part.bits, part.size) if isinstance(part, Varbit) else (part, fold.const(part.width, 32))
        optional.append(Varbit(types.VarbitType(bits.width), bits, fold.cond(header.valid, size, fold.const(0, 32))))
    return optional


def _hash_parts(
    low: Lowering, result: ir.Var, algorithm: str | Crc, parts: list[Part], done: list[ir.Expr | Varbit], payload: bool
) -> None:
    """Hashes `done` and `parts`, in a branch for each combination of valid headers."""
    at = next((i for i, part in enumerate(parts) if isinstance(part, Header)), len(parts))
    done = done + [part for part in parts[:at] if not isinstance(part, Header)]
    if at < len(parts):
        header, rest = value_trees.header(parts[at]), parts[at + 1 :]
        fields = _fields(low, header)
        then = low.code.block(lambda: _hash_parts(low, result, algorithm, rest, done + fields, payload))
        without = low.code.block(lambda: _hash_parts(low, result, algorithm, rest, done, payload))
        low.emit(ir.If(header.valid, then, without))
        return
    args: list[ir.Expr] = []
    for part in done:
        args += [low.values.scalar(part.bits), low.values.scalar(part.size)] if isinstance(part, Varbit) else [part]
    shape = [isinstance(part, Varbit) for part in done]
    if payload:
        args.append(low.context.cursor)
    low.emit(operations.Hash(algorithm, shape, payload, targets=[result], args=args))


class Hash(ExternFunction):
    """base + hash mod max, or only base if max is 0: whole numbers of any size, of which the result has as many bits as fit, so
    that it is in base .. base + max - 1 (p4c's v1model.p4, and its bmv2 target of p4testgen). v1model.p4 has only bit<W> for base
    and max. Signed ones are what they are to BMv2, which converts both to 64 unsigned bits (simple_switch's primitives.cpp):
    a negative base counts down, a negative max is above every hash."""

    names = ("hash",)

    def lower(self, low: Lowering, call: ast.Call) -> None:
        target = low.result(call, 0)
        width, signed = shape_of(call.params[0].type, call)
        computed = hashed(low, algorithm_of(call.given(1)), call.given(3))
        base, limit = low.scalar(call.given(2)), low.scalar(call.given(4))
        wide = max(64, limit.width)
        base, limit, value = fold.cast(base, width), fold.cast(limit, wide), fold.cast(computed, wide)
        if isinstance(limit, ir.Const) and limit.value == 0:
            result: ir.Expr = base
        else:
            result = ir.Op("add", (base, fold.cast(ir.Op("mod", (value, limit), wide), width)), width)
            if not isinstance(limit, ir.Const):
                result = fold.cond(fold.eq(limit, fold.const(0, wide)), base, result)
        low.assign(target, fold.cast(result, width, signed), call)

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        wide = max(64, fixed_width(call.params[4].type) or 0)
        limit = args.number(4) & (1 << wide) - 1
        computed = digest(machine, args.text(1), args, 3)
        args.place(0).set(wrap(args.number(2) + computed % max(limit, 1), types.underlying(call.params[0].type)))


class UpdateChecksum(ExternFunction):
    """Sets a checksum if the condition holds."""

    names = ("update_checksum", "update_checksum_with_payload")

    def use(self, low: Lowering, call: ast.Call, checksum: Value, computed: ir.Expr) -> None:
        low.assign(checksum, computed, call)

    def lower(self, low: Lowering, call: ast.Call) -> None:
        condition = low.scalar(call.given(0))
        checksum = low.expressions.lvalue(call.given(2))
        width, signed = shape_of(call.params[2].type, call)
        condition = fold.land(condition, self.applies(low, call))

        def body() -> None:
            computed = hashed(low, algorithm_of(call.given(3)), call.given(1), call.decl.name.endswith("payload"))
            self.use(low, call, checksum, fold.cast(computed, width, signed))

        low.emit(ir.If(condition, low.code.block(body)))

    def applies(self, low: Lowering, call: ast.Call) -> ir.Expr:
        return fold.TRUE

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        if args.value(0):
            args.place(2).set(self._computed(machine, call, args))

    @staticmethod
    def _computed(machine: V1Machine, call: ast.Call, args: Arguments) -> int:
        payload = machine.packet.payload if call.decl.name.endswith("_with_payload") else b""
        return wrap(digest(machine, args.text(3), args, 1, payload), types.underlying(call.params[2].type))


class VerifyChecksum(UpdateChecksum):
    """Compares a checksum if the condition holds, unless the header that holds it is invalid (BMv2)."""

    names = ("verify_checksum", "verify_checksum_with_payload")

    def applies(self, low: Lowering, call: ast.Call) -> ir.Expr:
        checksum = call.given(2)
        if not isinstance(checksum, ast.Member) or checksum.kind != "field":
            return fold.TRUE
        if not isinstance(types.strip_new(checksum.base.type), types.HeaderType):
            return fold.TRUE
        return low.values.scalar(low.values.select(low.expressions.value(checksum.base), low.values.is_valid))

    def use(self, low: Lowering, call: ast.Call, checksum: Value, computed: ir.Expr) -> None:
        differs = ir.Op("ne", (low.values.scalar(checksum), computed), 1)
        low.emit(ir.If(differs, [ir.Assign(low.field("standard_metadata", "checksum_error"), fold.TRUE)]))

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        if args.value(0) and not _owner_invalid(args.expression(2), frame):
            machine.packet.checksum_error |= self._computed(machine, call, args) != args.value(2)


class Checksum16(ExternObject):
    names = ("Checksum16",)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> ir.Expr:
        return hashed(low, "csum16", call.given(0))

    def interpret(self, machine: V1Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> int:
        return csum16(to_bytes(args.value(0), args.type(0)))


@dataclass(frozen=True, slots=True)
class Sum:
    """The variables of a Checksum object: the sums of the 16-bit words that were added and subtracted, whether any were
    subtracted, and whether the list has an odd number of bytes yet."""

    added: ir.Var = field(default_factory=lambda: ir.Var("added", 64))
    subtracted: ir.Var = field(default_factory=lambda: ir.Var("subtracted", 64))
    less: ir.Var = field(default_factory=lambda: ir.Var("less", 1))
    odd: ir.Var = field(default_factory=lambda: ir.Var("odd", 1))


@dataclass(frozen=True, slots=True)
class Deposit:
    """A place that gets a residual at the end of parsing, by the last call that names it. `source`: 1 + the number of that call's
    object in `sums`, 0 before any call; `start`: the byte of the packet at the call; `odd`: that of the object then."""

    target: Value
    call: ast.Call
    sums: list[Sum] = field(default_factory=list)
    source: ir.Var = field(default_factory=lambda: ir.Var("deposit", 32))
    start: ir.Var = field(default_factory=lambda: ir.Var("start", 32))
    odd: ir.Var = field(default_factory=lambda: ir.Var("odd_before", 1))


@dataclass(slots=True)
class Sums:
    """TNA's Checksum objects in a phase, and the deposits of their residuals by place."""

    variables: dict[Instance, Sum] = field(default_factory=dict)
    deposits: dict[object, Deposit] = field(default_factory=dict)


class Checksum(ExternObject):
    """A ones' complement sum, less what is subtracted: the complement of the sum of that. What a parser adds and subtracts counts
    as one list: behind an odd number of bytes, the next one is the low half of its word (p4c's back end for Tofino,
    parde/extract_parser.cpp)."""

    names = ("Checksum",)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> ir.Expr | None:
        sums, args = low.state(Sums), call.named()
        total = sums.variables.setdefault(instance, Sum())
        match call.method:
            case "add":
                low.emit(ir.Assign(total.added, fold.add(total.added, self._next(low, call, total.odd))))
            case "subtract":
                low.emit(
                    ir.Assign(total.subtracted, fold.add(total.subtracted, self._next(low, call, total.odd))),
                    ir.Assign(total.less, fold.TRUE),
                )
            case "get":
                return _value(low, total.added, total.subtracted, total.less)
            case "verify":  # true: wrong
                return ir.Op("ne", (_value(low, total.added, total.subtracted, total.less), fold.const(0xFFFF, 16)), 1)
            case "subtract_all_and_deposit":
                if fixed_width(call.params[0].type) != 16:
                    raise unsupported(call, f"a residual of type {call.params[0].type}", "it has 16 bits")
                target = low.result(call, 0)
                if low.values.keys(target) & low.context.copies:
                    raise unsupported(call, "a residual in an argument that overlaps another one or is chosen at run time")
                _deposit_at_end(low, target, total, call)
            case "update":
                result = hashed(low, "csum16", call.given(0))
                if "zeros_as_ones" in args:
                    ones = fold.land(low.scalar(args["zeros_as_ones"]), fold.eq(result, fold.const(0, 16)))
                    return fold.cond(ones, fold.const(0xFFFF, 16), result)
                return result
        return None

    def _next(self, low: Lowering, call: ast.Call, odd: ir.Var) -> ir.Expr:
        """Returns the sum of the next fields of the object's list, and counts their bytes."""
        parts = low.values.parts(low.value(call.given(0)))
        added = _turned(low, ir.Op("not", (hash_of(low, "csum16", parts),), 16), odd)
        octets_odd = fold.slice_bits(fold.add(_bits(low, parts), fold.const(7, 32)), 3, 3)
        if not isinstance(octets_odd, ir.Const) or octets_odd.value:
            low.emit(ir.Assign(odd, ir.Op("xor", (odd, octets_odd), 1)))
        return fold.cast(added, 64)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> int | None:
        total = machine.phase.sums.setdefault(instance, WordSum())
        match call.method:
            case "add" | "subtract":
                data = to_bytes(args.value(0), args.type(0))
                words = sum_of_words(bytes(total.octets % 2) + data)
                total.octets += len(data)
                if call.method == "add":
                    total.added += words
                else:
                    total.subtracted, total.less = total.subtracted + words, True
            case "get":
                return total.value()
            case "verify":
                return total.value() != 0xFFFF
            case "subtract_all_and_deposit":
                if fixed_width(call.params[0].type) != 16:
                    raise InterpreterError(call, f"a residual of type {call.params[0].type}: it has 16 bits")
                at = machine.phase.packet.cursor // 8
                machine.phase.deposits.append(Residual(instance, args.place(0), at, total.octets % 2))
            case "update":
                checksum = csum16(to_bytes(args.value(0), args.type(0)))
                return 0xFFFF if checksum == 0 and args.number("zeros_as_ones", 0) else checksum
            case _:
                super().interpret(machine, instance, call, args, frame)
        return None


def _turned(low: Lowering, checksum: ir.Expr, odd: ir.Expr) -> ir.Expr:
    """Returns a checksum with its bytes exchanged if `odd`: that of the same bytes one place further on (RFC 1071, section 2)."""
    turned = fold.concat([fold.slice_bits(checksum, 7, 0), fold.slice_bits(checksum, 15, 8)])
    return low.code.stable(fold.cond(odd, turned, checksum))


def _bits(low: Lowering, parts: list[Part]) -> ir.Expr:
    """Returns the number of bits that `parts` contribute to a hash, modulo 16: a header of whole words counts 0, valid or not."""
    total: ir.Expr = fold.const(0, 32)
    for part in parts:
        size: ir.Expr
        if isinstance(part, Header):
            size = _bits(low, [*_fields(low, part)])
            if isinstance(size, ir.Const) and size.value % 16 == 0:
                continue
            size = fold.cond(part.valid, size, fold.const(0, 32))
        else:
            size = low.values.scalar(part.size) if isinstance(part, Varbit) else fold.const(part.width, 32)
        total = fold.add(total, size)
    return total


def _value(low: Lowering, added: ir.Expr, subtracted: ir.Expr, less: ir.Expr) -> ir.Expr:
    """Returns the ones' complement sum of what was added and, if anything was subtracted, of the complement of that sum."""
    complement, result = low.code.temp(16, name="complement"), low.code.temp(16, name="sum")
    low.emit(tna_operations.Complement(targets=[complement], args=[subtracted]))
    total = fold.add(added, fold.cast(fold.cond(less, complement, fold.const(0, 16)), 64))
    low.emit(tna_operations.Complement(targets=[result], args=[total]))
    return ir.Op("not", (result,), 16)


def _deposit_at_end(low: Lowering, place: Value, total: Sum, call: ast.Call) -> None:
    """Notes that a place gets the residual of a sum; of a place that is chosen at run time, the one that is chosen now."""
    deposits = low.state(Sums).deposits
    for condition, target in _places(place):
        deposit = deposits.setdefault(_key(target), Deposit(target, call))
        if total not in deposit.sums:
            deposit.sums.append(total)
        number = fold.const(deposit.sums.index(total) + 1, 32)
        note: list[ir.Stmt] = [
            ir.Assign(deposit.source, number),
            ir.Assign(deposit.start, low.context.cursor),
            ir.Assign(deposit.odd, total.odd),
        ]
        low.emit(ir.If(condition, note))


def _places(place: Value) -> Iterator[tuple[ir.Expr, Value]]:
    """Yields the places that a place may be, each with the condition that it is this one."""
    match place:
        case SliceOf():
            yield from ((condition, SliceOf(base, place.hi, place.lo)) for condition, base in _places(place.base))
        case Choice():
            for i, item in enumerate(place.items):
                chosen = fold.eq(place.index, fold.const(i, place.index.width))
                yield from ((fold.land(chosen, condition), target) for condition, target in _places(item))
        case _:
            yield fold.TRUE, place


def _key(place: Value) -> object:
    """Returns a key that is equal for the same place."""
    return (_key(place.base), place.hi, place.lo) if isinstance(place, SliceOf) else ir.key(value_trees.variable(place))


def deposit_residuals(low: Lowering) -> None:
    """Deposits, at the end of parsing, the sums that `subtract_all_and_deposit` asked for."""
    sums = low.state(Sums)
    for deposit in sums.deposits.values():

        def body(deposit: Deposit = deposit) -> None:
            complement = low.code.temp(16, name="parsed")
            low.emit(tna_operations.Complement(targets=[complement], args=[fold.const(0, 64), deposit.start, low.context.cursor]))
            parsed = fold.cast(_turned(low, ir.Op("not", (complement,), 16), deposit.odd), 64)
            added = _of_source(deposit, [total.added for total in deposit.sums])
            subtracted = fold.add(_of_source(deposit, [total.subtracted for total in deposit.sums]), parsed)
            low.assign(deposit.target, _value(low, added, subtracted, fold.TRUE), deposit.call)

        low.emit(ir.If(fold.lnot(fold.eq(deposit.source, fold.const(0, 32))), low.code.block(body)))
    if sums.deposits:  # the sums are those of the packet as it came
        for region in low.context.storage.regions:
            region.in_place = False
    sums.deposits.clear()


def _of_source(deposit: Deposit, variables: list[ir.Var]) -> ir.Expr:
    """Returns the variable of the object whose residual is deposited, of the `variables` of all that may be."""
    chosen: ir.Expr = variables[0]
    for number, variable in enumerate(variables[1:], 2):
        chosen = fold.cond(fold.eq(deposit.source, fold.const(number, 32)), variable, chosen)
    return chosen


def digest(machine: Machine, algorithm: str, args: Arguments, key: int, payload: bytes = b"") -> int:
    """Returns the digest of an argument, and of the payload behind it, by a member of v1model's HashAlgorithm."""
    data = to_bytes(args.value(key), args.type(key)) + payload
    return machine.random.next() if algorithm == "random" else ALGORITHMS[algorithm](data)


def _owner_invalid(field: ast.Expr, frame: Frame) -> bool:
    """Returns True for a field of an invalid header, whose checksum is not verified (BMv2)."""
    if not isinstance(field, ast.Member) or field.kind != "field" or not isinstance(field.base.type, types.HeaderType):
        return False
    return not evaluate_as(Record, field.base, frame).valid


def deposit(machine: TnaMachine) -> None:
    """Writes the checksums that `subtract_all_and_deposit` asked for, less the bytes that were parsed after the call."""
    packet = machine.phase.packet
    for residual in machine.phase.deposits:
        parsed = sum_of_words(bytes(residual.odd) + packet.data[residual.start : packet.cursor // 8])
        total = machine.phase.sums[residual.owner]
        residual.place.set(WordSum(total.added, total.subtracted + parsed, True).value())


# --- random numbers ---------------------------------------------------------------------------------------------------


def random_number(low: Lowering, first: ir.Expr, size: ir.Expr) -> ir.Var:
    """Returns one of `size` numbers from `first` on, 64 bits; `size` 0: of all 2^64."""
    low.context.uses_random = True
    result = low.code.temp(64, name="random")
    low.emit(operations.Random(targets=[result], args=[first, size]))
    return result


class RandomFunction(ExternFunction):
    names = ("random",)

    def lower(self, low: Lowering, call: ast.Call) -> None:
        target = low.result(call, 0)
        width, signed = shape_of(call.params[0].type, call)
        if width > 64:
            raise unsupported(call, "random values of more than 64 bits")
        first, last = low.scalar(call.given(1)), low.scalar(call.given(2))
        wide_first, wide_last = (fold.cast(fold.cast(v, width, signed), 64) for v in (first, last))
        empty = ir.Op("gt", (first, last), 1)
        size = ir.Op("add", (ir.Op("sub", (wide_last, wide_first), 64), fold.const(1, 64)), 64)  # 0: all 2^64
        result = random_number(low, wide_first, fold.cond(empty, fold.const(1, 64), size))
        low.assign(target, fold.cast(result, width, signed), call)

    def interpret(self, machine: Machine, call: ast.Call, args: Arguments, frame: Frame) -> None:
        args.place(0).set(machine.random.between(args.number(1), args.number(2)))


class Random(ExternObject):
    names = ("Random",)

    def lower(self, low: Lowering, call: ast.Call, instance: Instance) -> ir.Expr:
        width, signed = shape_of(call.type, call)
        if width > 64:
            raise unsupported(call, "random values of more than 64 bits")
        result = random_number(low, fold.const(0, 64), fold.const(1 << width if width < 64 else 0, 64))
        return fold.cast(result, width, signed)

    def interpret(self, machine: Machine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> int:
        return wrap(machine.random.between(0, (1 << (fixed_width(call.type) or 0)) - 1), underlying(call.type))
