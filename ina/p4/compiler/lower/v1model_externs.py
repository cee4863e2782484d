"""Lowering of v1model's functions and objects, with the semantics of BMv2's simple_switch."""

from __future__ import annotations

from typing import Any

from ina.p4.compiler import ast, fold, ir, types
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.instances import field_list, instances_of
from ina.p4.compiler.lower import value_trees
from ina.p4.compiler.lower.tables import Tables

DROP_PORT = 511
NO_LIST = 0xFFFFFFFF  # field list of a clone that preserves nothing
FIRST_VALUE_LIST = 0x10000  # numbers of lists written as values, beyond those of @field_list
HASHES = {
    "crc32": 32,
    "crc32_custom": 32,
    "crc16": 16,
    "crc16_custom": 16,
    "csum16": 16,
    "xor16": 16,
    "identity": 64,
    "random": 64,
}


class Externs(Tables):
    """Lowers externs. Subclasses provide the metadata places, `flags`, and the tables of objects."""

    meta: Any
    standard: Any
    flags: dict[str, ir.Var]
    registers: dict[int, list[ir.Register]]
    counters: dict[int, ir.Counter]
    meters: dict[int, ir.Meter]
    direct_colors: dict[int, ir.Var]
    messages: list[tuple[str, str, ir.Counter]]
    digests: list[dict[str, Any]]
    preserved: dict[int, list[Any]]
    lists_with_headers: dict[int, int]
    payload_at: ir.Var
    length: ir.Var
    used: set[str]
    uses_random: bool
    needs_original: bool
    in_egress: bool

    def flag(self, name: str, width: int = 32) -> ir.Var:
        """Returns a variable that tells the runtime what the program requests, zero at first; ingress and egress have their
        own."""
        key = f"{'egress' if self.in_egress else 'ingress'}_{name}"
        if key not in self.flags:
            self.flags[key] = ir.Var(key, width)
        return self.flags[key]

    def _list(self, e: ast.Expr) -> ir.Const:
        """Returns the number of a field list and notes the fields that it preserves: `@field_list` of the metadata, or
        (deprecated) the fields in the call."""
        fields: list[Any] = []
        if isinstance(types.strip_new(e.type), types.BitType | types.InfIntType):
            if e.const is None:
                raise self.unsupported(e, "a field list chosen at run time")
            number = e.const
            for path in field_list(self.program, self.meta.type, number):
                place = self.meta
                for name in path:
                    place = place.fields[name]
                fields += value_trees.scalars(place)
        else:
            number = FIRST_VALUE_LIST + len(self.preserved)
            fields = list(value_trees.scalars(self.read(self.value(e))))
            if not all(isinstance(f, ir.Var | ir.Elem) for f in fields):
                raise self.unsupported(e, "preserving a value that is not a field of the metadata")
        self.preserved[number] = fields
        return fold.const(number, 32)

    # --- functions --------------------------------------------------------------------------------------------------

    def extern_function(self, e: ast.Call) -> Any:
        name = e.decl.name
        match name:
            case "mark_to_drop":
                standard = self.lvalue(e.given(0)) if e.args else self.standard  # v1model's older form has no argument
                self.assign(standard.fields["egress_spec"], fold.const(DROP_PORT, 9), e)
                self.assign(standard.fields["mcast_grp"], fold.const(0, 16), e)
            case "verify":
                self._verify(e)
            case "verify_checksum" | "verify_checksum_with_payload":
                self._checksum(
                    e,
                    lambda checksum, computed: self.emit(
                        ir.If(
                            ir.Op("ne", (self.read(checksum), computed), 1),
                            [ir.Assign(self.standard.fields["checksum_error"], fold.TRUE)],
                        )
                    ),
                )
            case "update_checksum" | "update_checksum_with_payload":
                self._checksum(e, lambda checksum, computed: self.assign(checksum, computed, e))
            case "hash":
                self._hash(e)
            case "random":
                self._random(e)
            case "digest":
                self._digest(e)
            case "clone" | "clone_preserving_field_list" | "clone3":
                self._clone(e)
            case "resubmit" | "recirculate" | "resubmit_preserving_field_list" | "recirculate_preserving_field_list":
                self._again(e, name.split("_")[0])
            case "truncate":
                self.emit(ir.Extern("truncate", [], [self.scalar(e.given(0))]))
            case "log_msg":
                counter = ir.Counter(f"log {len(self.messages)}", "packets", 1)
                self.messages.append((str(e.given(0).const), f"{e.span.file}:{e.span.line}", counter))
                self.emit(ir.Extern("count", [], [fold.const(0, 32)], counter))
            case "assert" | "assume":
                self.emit(ir.If(fold.lnot(self.scalar(e.given(0))), [ir.Extern("fail", [], [])]))
            case "static_assert":
                return fold.TRUE
            case _:
                raise self.unsupported(e, f"the function '{name}'")
        return None

    def _verify(self, e: ast.Call) -> None:
        condition, error = self.scalar(e.given(0)), self.scalar(e.given(1))
        if not self.reject_label:
            raise self.unsupported(e, "verify outside of a parser")
        self.emit(ir.If(fold.lnot(condition), [ir.Assign(self.parser_error, error), ir.Goto(self.reject_label)]))

    def algorithm(self, e: ast.Expr) -> str:
        if not isinstance(e.const, str) or e.const not in HASHES:
            raise self.unsupported(e, f"hash algorithm {e.const if e.const is not None else 'chosen at run time'}")
        return e.const

    def hashed(self, algorithm: str, data: ast.Expr, payload: bool = False) -> ir.Var:
        """Returns the hash of the data's fields one after the other; invalid headers contribute nothing."""
        return self.hash_of(algorithm, self._parts(self.read(self.value(data))), payload)

    def hash_of(self, algorithm: Any, parts: list[Any], payload: bool = False) -> ir.Var:
        width = HASHES[algorithm] if isinstance(algorithm, str) else algorithm.width
        result = self.temp(width, name="hash")
        if algorithm == "random":
            self.uses_random = True
            self.emit(ir.Extern("random", [result], [fold.const(0, 64), fold.const(0, 64)]))
            return result
        self._hash_parts(result, algorithm, parts, [], payload)
        return result

    def _parts(self, value: Any) -> list[Any]:
        """Returns the scalars and headers of a value, in order."""
        if isinstance(value, ir.Expr | value_trees.Header | value_trees.Varbit):
            return [value]
        if isinstance(value, value_trees.Choice | value_trees.SliceOf):
            return self._parts(self.read(value))
        return [part for member in value_trees.members(value) for part in self._parts(member)]

    def _hash_parts(
        self, result: ir.Var, algorithm: Any, parts: list[Any], done: list[Any], payload: bool
    ) -> None:
        at = next((i for i, part in enumerate(parts) if isinstance(part, value_trees.Header)), len(parts))
        done = done + parts[:at]
        if at < len(parts):
            rest, fields = parts[at + 1 :], [p for member in value_trees.members(parts[at]) for p in self._parts(member)]
            then = self.block(lambda: self._hash_parts(result, algorithm, rest, done + fields, payload))
            without = self.block(lambda: self._hash_parts(result, algorithm, rest, done, payload))
            self.emit(ir.If(parts[at].valid, then, without))
            return
        args: list[ir.Expr] = []
        for part in done:
            args += [self.read(part.bits), self.read(part.size)] if isinstance(part, value_trees.Varbit) else [self.read(part)]
        shape = [isinstance(part, value_trees.Varbit) for part in done]
        if payload:
            args.append(self.cursor)
        self.emit(ir.Extern("hash", [result], args, (algorithm, shape, payload)))

    def _owner_valid(self, e: ast.Expr) -> ir.Expr:
        """Returns the validity of the header that a field belongs to; true for anything else."""
        if (
            isinstance(e, ast.Member)
            and e.kind == "field"
            and isinstance(types.strip_new(e.base.type), types.HeaderType)
        ):
            valid: ir.Expr = self.read(self.select(self.value(e.base), lambda h: h.valid))
            return valid
        return fold.TRUE

    def _checksum(self, e: ast.Call, use: Any) -> None:
        condition = self.scalar(e.given(0))
        checksum = self.lvalue(e.given(2))
        width, signed = self.shape(e.params[2].type, e)
        if e.decl.name.startswith("verify"):
            condition = fold.land(condition, self._owner_valid(e.given(2)))

        def body() -> None:
            computed = self.hashed(self.algorithm(e.given(3)), e.given(1), e.decl.name.endswith("payload"))
            use(checksum, fold.cast(computed, width, signed))

        self.emit(ir.If(condition, self.block(body)))

    def _hash(self, e: ast.Call) -> None:
        """Lowers hash(): base + hash mod max, or only base if max is 0."""
        target = self.result(e, 0)
        width, signed = self.shape(e.params[0].type, e)
        hashed = self.hashed(self.algorithm(e.given(1)), e.given(3))
        base, limit = self.scalar(e.given(2)), self.scalar(e.given(4))
        wide = max(64, base.width, limit.width)
        base, limit, value = (fold.cast(fold.cast(v, v.width), wide) for v in (base, limit, hashed))
        if isinstance(limit, ir.Const) and limit.value == 0:
            result: ir.Expr = base
        else:
            rest = ir.Op("mod", (value, limit), wide)
            result = ir.Op("add", (base, rest), wide)
            if not isinstance(limit, ir.Const):
                result = fold.cond(fold.eq(limit, fold.const(0, wide)), base, result)
        self.assign(target, fold.cast(result, width, signed), e)

    def _random(self, e: ast.Call) -> None:
        self.uses_random = True
        target = self.result(e, 0)
        width, signed = self.shape(e.params[0].type, e)
        if width > 64:
            raise self.unsupported(e, "random values of more than 64 bits")
        low, high = self.scalar(e.given(1)), self.scalar(e.given(2))
        wide_low, wide_high = (fold.cast(fold.cast(v, width, signed), 64) for v in (low, high))
        empty = ir.Op("gt", (low, high), 1)
        size = ir.Op("add", (ir.Op("sub", (wide_high, wide_low), 64), fold.const(1, 64)), 64)  # 0: all 2^64
        result = self.temp(64, name="random")
        self.emit(ir.Extern("random", [result], [wide_low, fold.cond(empty, fold.const(1, 64), size)]))
        self.assign(target, fold.cast(result, width, signed), e)

    def _digest(self, e: ast.Call) -> None:
        if self.in_egress:
            raise self.unsupported(e, "digest in egress")
        number = len(self.digests) + 1
        value = self.read(self.value(e.given(1)))
        names = list(e.params[1].type.fields) if isinstance(e.params[1].type, types.RecordType) else []
        fields = []
        for i, leaf in enumerate(value_trees.scalars(value)):
            variable = ir.Var(f"digest{number}_{i}", leaf.width, leaf.signed)
            self.emit(ir.Assign(variable, leaf))
            fields.append({"name": names[i] if i < len(names) else f"f{i}", "width": leaf.width, "var": variable})
        self.emit(ir.Assign(self.flag("digest"), fold.const(number, 32)))
        name = (
            str(e.params[1].type)
            if isinstance(e.params[1].type, types.RecordType) and e.params[1].type.name
            else f"digest_{number}"
        )
        self.digests.append({"name": name, "number": number, "fields": fields})

    def _clone(self, e: ast.Call) -> None:
        kind = "E2E" if self.in_egress else "I2E"
        if e.given(0).const != kind:
            raise self.unsupported(e, f"a clone other than {kind} in {'egress' if self.in_egress else 'ingress'}")
        self.used.add(kind)
        self.needs_original |= not self.in_egress
        self.emit(ir.Assign(self.flag("clone"), fold.const(1, 32)))
        self.emit(ir.Assign(self.flag("clone_session"), fold.cast(self.scalar(e.given(1)), 32)))
        list_number = self._list(e.given(2)) if len(e.args) > 2 else fold.const(NO_LIST, 32)
        if self.in_egress:
            list_number = self._with_headers(list_number)
        self.emit(ir.Assign(self.flag("clone_list"), list_number))

    def _with_headers(self, list_number: ir.Const) -> ir.Const:
        """Returns the list that also preserves all headers."""
        if list_number.value not in self.lists_with_headers:
            number = self.lists_with_headers[list_number.value] = FIRST_VALUE_LIST + len(self.preserved)
            headers = [v for v in value_trees.leaves(self.cloned_headers()) if isinstance(v, ir.Var | ir.Elem)]
            self.preserved[number] = [*self.preserved.get(list_number.value, []), *headers, self.payload_at, self.length]
        return fold.const(self.lists_with_headers[list_number.value], 32)

    def cloned_headers(self) -> Any:
        raise TypeError("defined in arch/lower_v1model.py")

    def _again(self, e: ast.Call, kind: str) -> None:
        if (kind == "recirculate") != self.in_egress:
            raise self.unsupported(e, f"{kind} in {'egress' if self.in_egress else 'ingress'}")
        self.needs_original |= kind == "resubmit"
        self.emit(ir.Assign(self.flag(kind), fold.const(1, 32)))
        self.emit(ir.Assign(self.flag(f"{kind}_list"), self._list(e.given(0))))

    # --- objects ----------------------------------------------------------------------------------------------------

    def extern_method(self, e: ast.Call, instance: Instance) -> Any:
        match instance.decl.name, e.method:
            case "register", "read":
                self._register_read(e, instance)
            case "register", "write":
                index = self._index32(e.given(0))
                value = self.read(self.value(e.given(1)))
                cells = self._register(instance, e.params[1].type, e)
                if len(cells) > 1:
                    index = self.stable(index)
                for register, part in zip(cells, value_trees.scalars(value), strict=True):
                    self.emit(ir.RegWrite(register, index, part))
            case "counter", "count":
                self.emit(ir.Extern("count", [], [self._index32(e.given(0))], self.counter(instance)))
            case "direct_counter", "count":
                pass  # the table counts every hit (BMv2)
            case "meter", "execute_meter":
                self._execute_meter(e, self.meter(instance))
            case "direct_meter", "read":
                self.assign(self.result(e, 0), fold.cast(self.color(instance), *self.shape(e.params[0].type, e)), e)
            case "Checksum16", "get":
                return self.hashed("csum16", e.given(0))
            case kind, method:
                raise self.unsupported(e, f"{kind}.{method}")
        return None

    def _index32(self, e: ast.Expr) -> ir.Expr:
        index = self.scalar(e)
        if index.width > 64:
            raise self.unsupported(e, "an index of more than 64 bits")
        return fold.cast(index, index.width)

    def _register(self, instance: Instance, element: types.Type, node: ast.Node) -> list[ir.Register]:
        """Returns one register for each scalar of the element: `r`, or `r.x` and `r.y.z`."""
        registers = self.registers.get(id(instance))
        if registers is None:
            registers = self.registers[id(instance)] = [
                ir.Register(f"{instance.name}{path}", width, int(instance.args["size"]), signed)
                for path, width, signed in self._scalars_of(element, "", node)
            ]
        return registers

    def _scalars_of(self, t: types.Type, path: str, node: ast.Node) -> list[tuple[str, int, bool]]:
        t = types.strip_new(t)
        shape = value_trees.scalar_shape(t)
        if shape is not None:
            return [(path, *shape)]
        if isinstance(t, types.StructType):
            return [s for f in t.fields.values() for s in self._scalars_of(f.type, f"{path}.{f.name}", node)]
        if isinstance(t, types.TupleType):
            return [s for i, part in enumerate(t.elements) for s in self._scalars_of(part, f"{path}.f{i}", node)]
        raise self.unsupported(node, f"a register of {t}")

    def _register_read(self, e: ast.Call, instance: Instance) -> None:
        cells = self._register(instance, e.params[0].type, e)
        target = self.lvalue(e.args[0]) if e.args[0] is not None else None
        index = self._index32(e.given(1))
        if isinstance(target, ir.Var | ir.Elem):
            self.emit(ir.RegRead(target, cells[0], index))
            return
        if len(cells) > 1:
            index = self.stable(index)
        result = self.storage.place(e.params[0].type, "cell")
        for register, part in zip(cells, value_trees.scalars(result), strict=True):
            self.emit(ir.RegRead(part, register, index))
        if target is not None:
            self.assign(target, result, e)

    def meter(self, instance: Instance, size: int | None = None) -> ir.Meter:
        meter = self.meters.get(id(instance))
        if meter is None:
            size = size if size is not None else int(instance.args["size"])
            meter = self.meters[id(instance)] = ir.Meter(instance.name, instance.args["type"], size)
        return meter

    def color(self, instance: Instance) -> ir.Var:
        """Returns the last colour of a direct meter; green at first."""
        return self.direct_colors.setdefault(id(instance), ir.Var("color", 32))

    def _execute_meter(self, e: ast.Call, meter: ir.Meter) -> None:
        target, index = self.result(e, 1), self._index32(e.given(0))
        color = self.temp(32, name="color")
        self.emit(ir.Extern("meter", [color], [index], meter))
        self.assign(target, fold.cast(color, *self.shape(e.params[1].type, e)), e)

    def unused_objects(self) -> None:
        """Creates registers, counters and meters that no statement uses."""
        for instance in instances_of(self.program):
            match instance.decl.name:
                case "register":
                    self._register(instance, instance.type.args[0], instance.site or self.program.package.decl)
                case "counter":
                    self.counter(instance)
                case "meter":
                    self.meter(instance)

    def counter(self, instance: Instance, size: int | None = None) -> ir.Counter:
        counter = self.counters.get(id(instance))
        if counter is None:
            kind = instance.args["type"]
            counter = ir.Counter(instance.name, kind, size if size is not None else int(instance.args["size"]))
            self.counters[id(instance)] = counter
        return counter
