"""v1model for the reference interpreter: pipeline, replication and externs as in BMv2's simple_switch.

Sources: v1model.p4's comments, and simple_switch.md of the behavioral model ("Pseudocode for what happens at the
end of ingress and egress processing"). Where those leave something open:
- `packet_length` is the frame's length when this pass began, in ingress and egress;
- timestamps are microseconds of the caller's clock; queues are empty, so queueing metadata is zero but `enq_timestamp`;
- resubmitted and recirculated packets keep `ingress_port` and `ingress_global_timestamp`;
- `egress_spec` reads 0 when egress begins; writing 511 (`mark_to_drop`) drops;
- the smallest `truncate` length wins and is applied to the deparsed frame;
- a packet is dropped and counted after MAX_PASSES passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.instances import field_list
from ina.p4.compiler.reference.expressions import ExitSignal, Frame, InterpreterError, PacketFailed
from ina.p4.compiler.reference.hashes import ALGORITHMS, MASK64, SplitMix64, to_bytes
from ina.p4.compiler.reference.packet import PacketIn, PacketOut, ParserError
from ina.p4.compiler.reference.tables import ActionProfile, Entry, Table
from ina.p4.compiler.reference.v1model_objects import CounterArray, MeterArray, RegisterArray
from ina.p4.compiler.reference.values import Record, copy, default_value, leaves, store_part, wrap
from ina.p4.compiler.types import HeaderType, RecordType, underlying

if TYPE_CHECKING:
    from ina.p4.compiler.reference.interpreter import Interpreter

DROP_PORT = 511
MAX_PASSES = 64

NORMAL, INGRESS_CLONE, EGRESS_CLONE, _COALESCED, RECIRCULATED, REPLICATION, RESUBMITTED = range(7)  # instance_type
KINDS = ("normal", "ingress clone", "egress clone", "", "recirculated", "replica", "resubmitted")


@dataclass
class Requests:
    """Requests that externs made during one control, with the metadata to preserve; the last call of each kind wins."""

    clone: tuple[int, Any] | None = None
    resubmit: tuple[Any] | None = None
    recirculate: tuple[Any] | None = None
    digest: Digest | None = None


@dataclass
class WorkItem:
    """A packet before the parser (`stage` "ingress"; `port`: where it came from) or before egress (`port`: where it goes)."""

    stage: str
    port: int
    frame: bytes = b""
    now_ps: int = 0
    instance_type: int = NORMAL
    preserved: list[tuple[tuple[str, ...], Any]] = field(default_factory=list)
    passes: int = 0
    headers: Any = None
    metadata: Any = None
    standard: Any = None
    payload: bytes = b""
    truncate: int | None = None
    length: int = 0

    @property
    def title(self) -> str:
        if self.stage == "ingress":
            return f"ingress ({KINDS[self.instance_type]})"
        standard = self.standard.fields
        return f"egress to port {self.port}, rid {standard['egress_rid']} ({KINDS[standard['instance_type']]})"


@dataclass(frozen=True)
class Output:
    """A frame that leaves the switch."""

    port: int
    frame: bytes


@dataclass(frozen=True)
class CloneSession:
    """The targets of clones: one port, a multicast group, or both."""

    port: int | None = None
    group: int | None = None


@dataclass(frozen=True)
class Digest:
    """A digest message: `name` of the struct type (or "digest"), `values` of its leaves in order."""

    name: str
    values: tuple[Any, ...]


class V1Model:
    """One switch. `interpreter` runs parsers and controls; this class does everything around and below them."""

    keeps_fields = False  # a header that becomes valid has all fields zero
    this: Instance | None = None  # v1model has no abstract methods

    def __init__(self, interpreter: Interpreter, seed: int) -> None:
        self.interpreter = interpreter
        blocks = [v for v in interpreter.program.package.args.values() if isinstance(v, Instance)]
        self.parser, self.verify, self.ingress_control, self.egress_control, self.compute, self.deparser = blocks
        params = self.parser.decl.params
        self.header_type, self.metadata_type, self.standard_type = (p.type for p in params[1:4])
        self.random = SplitMix64(seed)
        self.objects: dict[Instance, Any] = {}
        self.multicast_groups: dict[int, list[tuple[int, int]]] = {}
        self.clone_sessions: dict[int, CloneSession] = {}
        self.digests: list[Digest] = []
        self.log: list[str] = []
        self.drops: Counter[str] = Counter()
        self._item = WorkItem("ingress", 0)
        self._requests = Requests()
        self._colors: dict[Any, int] = {}
        self._checksum_error = False
        self._payload = b""
        self._frame = Frame(None)
        self._functions: dict[str, Callable[..., Any]] = {
            name.removeprefix("_x_"): getattr(self, name) for name in dir(self) if name.startswith("_x_")
        }

    # --- objects --------------------------------------------------------------------------------------------------

    def create(self, instance: Instance) -> Any:
        """Returns the state of an extern instance; None for those without."""
        args = instance.args
        match instance.decl.name:
            case "register":
                state: Any = RegisterArray(instance.name, instance.type.args[0], args["size"])
            case "counter":
                state = CounterArray(instance.name, args["size"], args["type"])
            case "meter":
                state = MeterArray(instance.name, args["size"], args["type"])
            case "direct_counter" | "direct_meter":
                state = args["type"]
            case "action_profile":
                state = ActionProfile(instance.name, args["size"], None, self.random.next)
            case "action_selector":
                state = ActionProfile(instance.name, args["size"], args["algorithm"], self.random.next)
            case _:
                return None
        self.objects[instance] = state
        return state

    def attach(self, table: Table, name: str, instance: Instance) -> None:
        """Attaches the object of a table property `implementation`, `counters` or `meters`.

        An entry's direct meter is configured by its handle: `table.meter_states.configure(handle, ...)`.
        """
        if name == "implementation":
            profile: ActionProfile = self.objects[instance]
            table.profile = profile
            profile.tables.append(table)
        elif name == "counters":
            table.direct_counter = instance
        elif name == "meters":
            table.direct_meter = instance
            table.meter_states = MeterArray(instance.name, 1 << 32, self.objects[instance])

    def table_applied(self, table: Table, entry: Entry | None) -> None:
        """Runs direct counters and meters on every hit, whether or not the action calls them (v1model.p4)."""
        if entry is None:
            return
        entry.packets += 1
        entry.octets += self._item.length
        if table.direct_meter is not None and table.meter_states is not None:
            color = table.meter_states.execute(entry.handle, self._item.length, self._item.now_ps)
            self._colors[table.direct_meter] = color

    # --- pipeline -------------------------------------------------------------------------------------------------

    @staticmethod
    def item(frame: bytes, port: int, now_ps: int) -> WorkItem:
        """Returns the item for a frame that comes in."""
        return WorkItem("ingress", port, frame, now_ps)

    def ingress(self, item: WorkItem) -> list[WorkItem]:
        """Runs parser, checksums, ingress; then clone, digest, resubmit, multicast, drop or unicast, in this order."""
        self._begin(item, len(item.frame))
        headers, metadata, standard, payload = self._parse(item)
        self._requests = Requests()
        self._run(self.ingress_control, headers, metadata, standard)
        std = standard.fields
        out = []
        ready = replace(
            item, stage="egress", headers=headers, metadata=metadata, standard=standard, payload=payload, preserved=[],
            frame=b"", truncate=self._item.truncate, length=len(item.frame),
        )  # fmt: skip
        if self._requests.clone is not None:
            out += self._clone_ingress(item, metadata, standard, *self._requests.clone)
        if self._requests.digest is not None:
            self.digests.append(self._requests.digest)
        if self._requests.resubmit is not None:
            preserved = self._preserve(self._requests.resubmit[0], metadata, standard)
            again = replace(item, instance_type=RESUBMITTED, preserved=preserved, passes=item.passes + 1)
            return out + self._again(again)
        if std["mcast_grp"]:
            std["instance_type"] = REPLICATION
            return out + self._multicast(ready, std["mcast_grp"])
        if std["egress_spec"] == DROP_PORT:
            self.drops["ingress"] += 1
            return out
        std["instance_type"] = NORMAL
        return [*out, replace(ready, port=std["egress_spec"])]

    def egress(self, item: WorkItem) -> list[WorkItem | Output]:
        """Runs egress; then clones, drops, or computes checksums, deparses, and recirculates or sends."""
        self._begin(item, item.length)
        headers, metadata, standard = item.headers, item.metadata, item.standard
        self._set(
            standard, egress_port=item.port, egress_spec=0, packet_length=item.length, deq_timedelta=0,
            egress_global_timestamp=item.now_ps // 1_000_000, enq_timestamp=item.now_ps // 1_000_000,
        )  # fmt: skip
        self._requests = Requests()
        self._run(self.egress_control, headers, metadata, standard)
        out: list[WorkItem | Output] = []
        if self._requests.clone is not None:
            session, data = self._requests.clone
            fresh = default_value(self.standard_type)
            self._set(fresh, instance_type=EGRESS_CLONE)
            clone = replace(item, headers=copy(headers), metadata=default_value(self.metadata_type), standard=fresh)
            clone.truncate, clone.passes = None, item.passes + 1
            self._restore(clone.metadata, clone.standard, self._preserve(data, metadata, standard))
            out += self._again(*self._clone_to(session, clone))
        if standard.fields["egress_spec"] == DROP_PORT:
            self.drops["egress"] += 1
            return out
        self._run(self.compute, headers, metadata, payload=item.payload)
        packet = PacketOut()
        self._run(self.deparser, packet, headers)
        frame = packet.data() + item.payload
        if self._item.truncate is not None:
            frame = frame[: self._item.truncate]
        if self._requests.recirculate is not None:
            preserved = self._preserve(self._requests.recirculate[0], metadata, standard)
            port = standard.fields["ingress_port"]
            again = WorkItem("ingress", port, frame, item.now_ps, RECIRCULATED, preserved, item.passes + 1)
            return out + self._again(again)
        return [*out, Output(item.port, frame)]

    def _begin(self, item: WorkItem, length: int) -> None:
        self._item = replace(item, length=length)
        self._colors = {}

    def _parse(self, item: WorkItem) -> tuple[Any, Any, Any, bytes]:
        headers, metadata = default_value(self.header_type), default_value(self.metadata_type)
        standard = default_value(self.standard_type)
        self._restore(metadata, standard, item.preserved)
        self._set(
            standard, ingress_port=item.port, packet_length=len(item.frame), instance_type=item.instance_type,
            ingress_global_timestamp=item.now_ps // 1_000_000,
        )  # fmt: skip
        packet = PacketIn(item.frame)
        try:
            self._run(self.parser, packet, headers, metadata, standard)
            error = "NoError"
        except ParserError as e:
            error = e.error
            self.interpreter.observer.parser_failed(error)
        payload = packet.payload()
        self._checksum_error = False
        self._run(self.verify, headers, metadata, payload=payload)
        self._set(standard, parser_error=error, checksum_error=int(self._checksum_error))
        return headers, metadata, standard, payload

    def _run(self, instance: Instance, *args: Any, payload: bytes | None = None) -> None:
        """Runs one programmable block on the architecture's own objects, by reference. `exit` ends the block (§12.5)."""
        if payload is not None:
            self._payload = payload
        frame = Frame(instance)
        frame.vars = dict(zip(instance.decl.params, args, strict=True))
        try:
            if isinstance(instance.decl, ast.ParserDecl):
                self.interpreter.run_parser(instance, frame)
            else:
                self.interpreter.run_control(instance, frame)
        except ExitSignal:
            return

    @staticmethod
    def _set(standard: Record, **values: Any) -> None:
        standard.fields.update(values)

    # --- replication ----------------------------------------------------------------------------------------------

    def _multicast(self, item: WorkItem, group: int) -> list[WorkItem]:
        """Returns one copy per (port, rid) of the group; they share nothing."""
        if group not in self.multicast_groups:
            self.drops["multicast_group"] += 1
        out = []
        for port, rid in self.multicast_groups.get(group, []):
            copied = replace(
                item, port=port, headers=copy(item.headers), metadata=copy(item.metadata), standard=copy(item.standard)
            )
            copied.standard.fields["egress_rid"] = rid
            out.append(copied)
        return out

    def _clone_ingress(
        self, item: WorkItem, metadata: Record, standard: Record, session: int, data: Any
    ) -> list[WorkItem]:
        """Returns clones of the packet as it entered this ingress, parsed again, their metadata reset except for the field
        list."""
        preserved = self._preserve(data, metadata, standard)
        requests, truncate = self._requests, self._item.truncate
        headers, _, _, payload = self._parse(replace(item, instance_type=NORMAL, preserved=[]))
        self._requests, self._item.truncate = requests, truncate
        fresh = default_value(self.standard_type)
        self._set(fresh, instance_type=INGRESS_CLONE)
        clone = replace(
            item, stage="egress", headers=headers, metadata=default_value(self.metadata_type), standard=fresh,
            payload=payload, preserved=[], frame=b"", truncate=None, length=len(item.frame),
        )  # fmt: skip
        self._restore(clone.metadata, clone.standard, preserved)
        return self._clone_to(session, clone)

    def _clone_to(self, session: int, clone: WorkItem) -> list[WorkItem]:
        target = self.clone_sessions.get(session)
        if target is None:
            self.drops["clone_session"] += 1
            return []
        out = [] if target.group is None else self._multicast(clone, target.group)
        return out if target.port is None else [*out, replace(clone, port=target.port)]

    def _again(self, *items: WorkItem) -> list[WorkItem]:
        """Returns the items that may start another pass, without those at the limit."""
        out = [item for item in items if item.passes < MAX_PASSES]
        self.drops["pass_limit"] += len(items) - len(out)
        return out

    def _preserve(self, data: Any, metadata: Record, standard: Record) -> list[tuple[tuple[str, ...], Any]]:
        """Returns final values of the metadata to preserve. `data`: a field list's index, a list of paths, or None."""
        if data is None:
            return []
        if isinstance(data, int):
            data = [("meta", *p) for p in field_list(self.interpreter.program, self.metadata_type, data)]
        preserved = []
        for root, *path in data:
            value: Any = metadata if root == "meta" else standard
            for name in path:
                value = value.fields[name]
            preserved.append(((root, *path), copy(value)))
        return preserved

    @staticmethod
    def _restore(metadata: Record, standard: Record, preserved: list[tuple[tuple[str, ...], Any]]) -> None:
        for (root, *path), value in preserved:
            record = metadata if root == "meta" else standard
            if not path:
                record.fields.update(copy(value).fields)
                continue
            for name in path[:-1]:
                record = record.fields[name]
            store_part(record.fields, path[-1], copy(value))

    def _metadata_paths(self, e: ast.Expr | None) -> list[tuple[str, ...]]:
        """Returns the metadata fields that the data of clone3, resubmit or recirculate names, as (root, field, ...)."""
        if isinstance(e, ast.ListExpr | ast.StructInit):
            return [path for value in e.values for path in self._metadata_paths(value)]
        path: list[str] = []
        while isinstance(e, ast.Cast | ast.Member):
            if isinstance(e, ast.Member):
                path.insert(0, e.member)
                e = e.base
            else:
                e = e.operand
        if isinstance(e, ast.Name) and e.type is self.metadata_type:
            return [("meta", *path)]
        if isinstance(e, ast.Name) and e.type is self.standard_type:
            return [("standard", *path)]
        return []

    # --- externs --------------------------------------------------------------------------------------------------

    def call_function(self, name: str, call: ast.Call, args: list[Any], frame: Frame) -> Any:
        function = self._functions.get(name)
        if function is None:
            raise InterpreterError(call, f"v1model has no extern function '{name}'")
        self._frame = frame
        self.interpreter.observer.function_called(name, args)
        return function(call, *args)

    def call_method(self, instance: Instance, method: str, call: ast.Call, args: list[Any], frame: Frame) -> Any:
        state: Any = self.objects.get(instance)
        self.interpreter.observer.method_called(instance, method, args, state)
        match instance.decl.name, method:
            case "register", "read":
                args[0].set(state.read(args[1]))
            case "register", "write":
                state.write(args[0], args[1])
            case "counter", "count":
                state.count(args[0], self._item.length)
            case "meter", "execute_meter":
                args[1].set(state.execute(args[0], self._item.length, self._item.now_ps))
            case "direct_counter", "count":
                return None  # the table has counted
            case "direct_meter", "read":
                args[0].set(self._colors.get(instance, 0))
            case "Checksum16", "get":
                return ALGORITHMS["csum16"](to_bytes(args[0], call.given(0).type))
            case _:
                raise InterpreterError(call, f"v1model has no method '{instance.decl.name}.{method}'")
        return None

    def _x_mark_to_drop(self, call: ast.Call, standard: Any = None) -> None:
        if standard is None:
            raise InterpreterError(call, "mark_to_drop() needs its standard_metadata argument")
        standard.get().fields.update(egress_spec=DROP_PORT, mcast_grp=0)

    def _x_random(self, call: ast.Call, result: Any, low: int, high: int) -> None:
        result.set(self.random.between(low, high))

    def _digest_of(self, algorithm: str, data: Any, call: ast.Call, arg: int, payload: bytes = b"") -> int:
        data_bytes = to_bytes(data, call.given(arg).type) + payload
        if algorithm == "random":
            return self.random.next()
        return ALGORITHMS[algorithm](data_bytes)

    def _x_hash(self, call: ast.Call, result: Any, algorithm: str, base: int, data: Any, limit: int) -> None:
        """Sets base + hash mod max, or base alone if max is 0, cut to the result's width."""
        value = (self._digest_of(algorithm, data, call, 3) % max(limit, 1) + base) & MASK64
        result.set(wrap(value, underlying(call.params[0].type)))

    def _x_verify_checksum(
        self, call: ast.Call, condition: bool, data: Any, checksum: int, algorithm: str, *, payload: bytes = b""
    ) -> None:
        """Verifies a checksum, unless the header that holds it is invalid (BMv2)."""
        if not condition or self._owner_invalid(call.given(2)):
            return
        if self._cut(self._digest_of(algorithm, data, call, 1, payload), call) != checksum:
            self._checksum_error = True

    def _owner_invalid(self, field: ast.Expr) -> bool:
        if not isinstance(field, ast.Member) or field.kind != "field" or not isinstance(field.base.type, HeaderType):
            return False
        return not self.interpreter.evaluate(field.base, self._frame).valid

    def _x_update_checksum(
        self, call: ast.Call, condition: bool, data: Any, checksum: Any, algorithm: str, *, payload: bytes = b""
    ) -> None:
        if condition:
            checksum.set(self._cut(self._digest_of(algorithm, data, call, 1, payload), call))

    def _x_verify_checksum_with_payload(self, call: ast.Call, *args: Any) -> None:
        self._x_verify_checksum(call, *args, payload=self._payload)

    def _x_update_checksum_with_payload(self, call: ast.Call, *args: Any) -> None:
        self._x_update_checksum(call, *args, payload=self._payload)

    @staticmethod
    def _cut(value: int, call: ast.Call) -> int:
        return wrap(value, underlying(call.params[2].type))

    def _x_digest(self, call: ast.Call, receiver: int, data: Any) -> None:
        t = call.given(1).type
        name = t.name if isinstance(t, RecordType) and t.name else "digest"
        self._requests.digest = Digest(name, tuple(leaf for leaf, _ in leaves(data, t)))

    def _x_clone(self, call: ast.Call, kind: str, session: int) -> None:
        self._requests.clone = (session, None)

    def _x_clone3(self, call: ast.Call, kind: str, session: int, data: Any) -> None:
        self._requests.clone = (session, self._metadata_paths(call.args[2]))

    def _x_clone_preserving_field_list(self, call: ast.Call, kind: str, session: int, index: int) -> None:
        self._requests.clone = (session, index)

    def _x_resubmit(self, call: ast.Call, data: Any) -> None:
        self._requests.resubmit = (self._metadata_paths(call.args[0]),)

    def _x_resubmit_preserving_field_list(self, call: ast.Call, index: int) -> None:
        self._requests.resubmit = (index,)

    def _x_recirculate(self, call: ast.Call, data: Any) -> None:
        self._requests.recirculate = (self._metadata_paths(call.args[0]),)

    def _x_recirculate_preserving_field_list(self, call: ast.Call, index: int) -> None:
        self._requests.recirculate = (index,)

    def _x_truncate(self, call: ast.Call, length: int) -> None:
        shortest = self._item.truncate
        length = max(length, 1)  # a frame has at least one byte
        self._item.truncate = length if shortest is None else min(length, shortest)

    def _x_assert(self, call: ast.Call, check: bool) -> None:
        """Ends the packet if the check fails (BMv2 ends itself)."""
        if not check:
            raise PacketFailed("assertion", f"{call.span}: {call.decl.name} failed")

    _x_assume = _x_assert

    def _x_log_msg(self, call: ast.Call, message: str, data: Any = None) -> None:
        """Logs a message, in which each `{}` stands for the next value of the data."""
        values = [] if data is None else [leaf for leaf, _ in leaves(data, call.given(1).type)]
        for value in values:
            message = message.replace("{}", str(value), 1)
        self.log.append(message)
