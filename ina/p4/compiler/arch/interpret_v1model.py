"""v1model for the reference interpreter: pipeline and replication as in BMv2's simple_switch.

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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ina.p4.compiler.arch.v1model_machine import DROP_PORT, Pass, Path, Requests, V1Machine
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.reference.blocks import run_block
from ina.p4.compiler.reference.machine import Architecture, Frame, Item, Output, Semantics
from ina.p4.compiler.reference.packet import PacketIn, PacketOut
from ina.p4.compiler.reference.signals import ParserError
from ina.p4.compiler.reference.values import Record, Value, copy, default_record, number, store_part

MAX_PASSES = 64

NORMAL, INGRESS_CLONE, EGRESS_CLONE, _COALESCED, RECIRCULATED, REPLICATION, RESUBMITTED = range(7)  # instance_type
KINDS = ("normal", "ingress clone", "egress clone", "", "recirculated", "replica", "resubmitted")
Preserved = list[tuple[Path, Value]]
"""Fields of metadata that a copy brings along, with their values."""


@dataclass
class Arrival(Item):
    """A packet before the parser; `port`: where it came from."""

    port: int
    frame: bytes
    now_ps: int
    instance_type: int = NORMAL
    preserved: Preserved = field(default_factory=list)
    passes: int = 0

    @property
    def title(self) -> str:
        return f"ingress ({KINDS[self.instance_type]})"


@dataclass
class Departure(Item):
    """A packet before egress; `port`: where it goes."""

    port: int
    now_ps: int
    headers: Record
    metadata: Record
    standard: Record
    payload: bytes
    length: int
    truncate: int | None = None
    passes: int = 0

    @property
    def title(self) -> str:
        standard = self.standard.fields
        kind = KINDS[number(standard["instance_type"])]
        return f"egress to port {self.port}, rid {standard['egress_rid']} ({kind})"


class V1Model(Architecture):
    """One switch."""

    def __init__(self, program: CheckedProgram, externs: Semantics, seed: int) -> None:
        self.machine: V1Machine = V1Machine(program, externs, seed)
        blocks = [v for v in program.package.args.values() if isinstance(v, Instance)]
        self.parser, self.verify, self.ingress_control, self.egress_control, self.compute, self.deparser = blocks

    def item(self, frame: bytes, port: int, now_ps: int) -> Arrival:
        return Arrival(port, frame, now_ps)

    def step(self, item: Item) -> Sequence[Item | Output]:
        if isinstance(item, Arrival):
            return self.ingress(item)
        assert isinstance(item, Departure)
        return self.egress(item)

    # --- passes ---------------------------------------------------------------------------------------------------

    def ingress(self, item: Arrival) -> list[Item]:
        """Runs parser, checksums, ingress; then clone, digest, resubmit, multicast, drop or unicast, in this order."""
        machine = self.machine
        packet = machine.packet = Pass(default_record(machine.standard_type), len(item.frame), item.now_ps)
        headers, metadata, standard = self._parse(item)
        packet.requests = requests = Requests()
        self._run(self.ingress_control, headers, metadata, standard)
        ready = Departure(
            item.port, item.now_ps, headers, metadata, standard, packet.payload, packet.length, packet.truncate, item.passes
        )
        out: list[Item] = []
        if requests.clone is not None:
            session, paths = requests.clone
            out += self._clone_ingress(item, session, _preserve(paths, metadata, standard))
        if requests.digest is not None:
            machine.digests.append(requests.digest)
        if requests.resubmit is not None:
            preserved = _preserve(requests.resubmit, metadata, standard)
            again = replace(item, instance_type=RESUBMITTED, preserved=preserved, passes=item.passes + 1)
            return out + self._again(again)
        group, port = number(standard.fields["mcast_grp"]), number(standard.fields["egress_spec"])
        if group:
            standard.set(instance_type=REPLICATION)
            return out + self._multicast(ready, group)
        if port == DROP_PORT:
            machine.drops["ingress"] += 1
            return out
        standard.set(instance_type=NORMAL)
        return [*out, replace(ready, port=port)]

    def egress(self, item: Departure) -> list[Item | Output]:
        """Runs egress; then clones, drops, or computes checksums, deparses, and recirculates or sends."""
        machine = self.machine
        packet = machine.packet = Pass(item.standard, item.length, item.now_ps, item.truncate)
        requests, headers, metadata, standard = packet.requests, item.headers, item.metadata, item.standard
        standard.set(
            egress_port=item.port, egress_spec=0, packet_length=item.length, deq_timedelta=0,
            egress_global_timestamp=item.now_ps // 1_000_000, enq_timestamp=item.now_ps // 1_000_000,
        )
        self._run(self.egress_control, headers, metadata, standard)
        out: list[Item | Output] = []
        if requests.clone is not None:
            session, paths = requests.clone
            clone = replace(item, headers=headers.copy(), metadata=default_record(machine.metadata_type))
            clone.standard, clone.truncate, clone.passes = default_record(machine.standard_type), None, item.passes + 1
            clone.standard.set(instance_type=EGRESS_CLONE)
            _restore(clone.metadata, clone.standard, _preserve(paths, metadata, standard))
            out += self._again(*self._clone_to(session, clone))
        if standard.fields["egress_spec"] == DROP_PORT:
            machine.drops["egress"] += 1
            return out
        packet.payload = item.payload
        self._run(self.compute, headers, metadata)
        emitted = PacketOut()
        self._run(self.deparser, emitted, headers)
        frame = emitted.data() + item.payload
        if packet.truncate is not None:
            frame = frame[: packet.truncate]
        if requests.recirculate is not None:
            preserved = _preserve(requests.recirculate, metadata, standard)
            port = number(standard.fields["ingress_port"])
            return out + self._again(Arrival(port, frame, item.now_ps, RECIRCULATED, preserved, item.passes + 1))
        return [*out, Output(item.port, frame)]

    def _parse(self, item: Arrival) -> tuple[Record, Record, Record]:
        machine = self.machine
        headers, metadata = default_record(machine.header_type), default_record(machine.metadata_type)
        standard = machine.packet.standard
        _restore(metadata, standard, item.preserved)
        standard.set(
            ingress_port=item.port, packet_length=len(item.frame), instance_type=item.instance_type,
            ingress_global_timestamp=item.now_ps // 1_000_000,
        )
        packet = PacketIn(item.frame)
        try:
            self._run(self.parser, packet, headers, metadata, standard)
            error = "NoError"
        except ParserError as e:
            error = e.error
            machine.observer.parser_failed(error)
        machine.packet.payload, machine.packet.checksum_error = packet.payload(), False
        self._run(self.verify, headers, metadata)
        standard.set(parser_error=error, checksum_error=int(machine.packet.checksum_error))
        return headers, metadata, standard

    def _run(self, instance: Instance, *args: Value) -> None:
        """Runs one programmable block on the architecture's own objects, by reference."""
        frame = Frame(self.machine, instance)
        frame.vars = dict(zip(instance.decl.params, args, strict=True))
        run_block(instance, frame)

    # --- replication ----------------------------------------------------------------------------------------------

    def _multicast(self, item: Departure, group: int) -> list[Item]:
        """Returns one copy per (port, rid) of the group; they share nothing."""
        machine = self.machine
        if group not in machine.multicast_groups:
            machine.drops["multicast_group"] += 1
        out: list[Item] = []
        for port, rid in machine.multicast_groups.get(group, []):
            headers, metadata, standard = item.headers.copy(), item.metadata.copy(), item.standard.copy()
            standard.set(egress_rid=rid)
            out.append(replace(item, port=port, headers=headers, metadata=metadata, standard=standard))
        return out

    def _clone_ingress(self, item: Arrival, session: int, preserved: Preserved) -> list[Item]:
        """Returns clones of the packet as it entered this ingress, parsed again, their metadata reset except for the field
        list."""
        machine, before = self.machine, self.machine.packet
        machine.packet = Pass(default_record(machine.standard_type), len(item.frame), item.now_ps)
        headers, _, _ = self._parse(replace(item, instance_type=NORMAL, preserved=[]))
        metadata, standard = default_record(machine.metadata_type), default_record(machine.standard_type)
        standard.set(instance_type=INGRESS_CLONE)
        _restore(metadata, standard, preserved)
        clone = Departure(
            item.port, item.now_ps, headers, metadata, standard, machine.packet.payload, len(item.frame), None, item.passes
        )
        machine.packet = before
        return self._clone_to(session, clone)

    def _clone_to(self, session: int, clone: Departure) -> list[Item]:
        target = self.machine.clone_sessions.get(session)
        if target is None:
            self.machine.drops["clone_session"] += 1
            return []
        out = [] if target.group is None else self._multicast(clone, target.group)
        return out if target.port is None else [*out, replace(clone, port=target.port)]

    def _again(self, *items: Item) -> list[Item]:
        """Returns the items that may start another pass, without those at the limit."""
        out = [item for item in items if isinstance(item, Arrival | Departure) and item.passes < MAX_PASSES]
        self.machine.drops["pass_limit"] += len(items) - len(out)
        return [*out]


def _part(record: Record, path: Sequence[str]) -> Value:
    part: Value = record
    for name in path:
        assert isinstance(part, Record)
        part = part.fields[name]
    return part


def _preserve(paths: list[Path], metadata: Record, standard: Record) -> Preserved:
    """Returns the final values of the metadata to preserve."""
    return [((root, *path), copy(_part(metadata if root == "meta" else standard, path))) for root, *path in paths]


def _restore(metadata: Record, standard: Record, preserved: Preserved) -> None:
    for (root, *path), value in preserved:
        record = metadata if root == "meta" else standard
        if not path:
            assert isinstance(value, Record)
            record.set(**value.copy().fields)
            continue
        inner = _part(record, path[:-1])
        assert isinstance(inner, Record)
        store_part(inner.fields, path[-1], copy(value))
