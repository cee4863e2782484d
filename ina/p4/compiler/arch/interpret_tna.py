"""TNA for the reference interpreter: the path of a packet through one pipe, and the switch around it.

Source: Intel, "Tofino Native Architecture - Public Version". Where it leaves something open, this follows `lower_tna*.py`;
numbers are computed here from their definitions (a CRC bit by bit), so that the two can be compared. The traffic manager is the
smallest that shows a packet's path: one unicast copy, groups and mirror sessions that name ports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ina.p4.compiler import ast
from ina.p4.compiler.arch.architecture import sets_mirror_type
from ina.p4.compiler.arch.tna_machine import Nothing, Phase, TnaMachine, Unset
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.externs.hashes import deposit
from ina.p4.compiler.instances import instances_below, walk
from ina.p4.compiler.reference.blocks import run_block
from ina.p4.compiler.reference.machine import Architecture, Frame, Item, Output, Semantics
from ina.p4.compiler.reference.packet import PacketIn, PacketOut
from ina.p4.compiler.reference.signals import ParserError
from ina.p4.compiler.reference.values import Record, Value, default_record, number
from ina.p4.compiler.types import ExternType, strip_new

EGRESS_FRONT = 27
DROP, UNICAST, RESUBMIT = 0, 1, 3
MAX_PASSES = 255  # through ingress, as in the embedded switch
RECIRCULATION = range(68, 72)  # ports of each pipe that lead back to ingress
PARSER_ERRORS = {"NoError": 0, "NoMatch": 1, "PacketTooShort": 0x22, "CounterRange": 4}
VALID_FIELDS = {"ucast_egress_port": "has_ucast", "mcast_grp_a": "has_mcast_a", "mcast_grp_b": "has_mcast_b"}
VALID_FOR_DEPARSER = (("digest_type", "resubmit_type"), ("mirror_type",))  # ingress, egress


@dataclass
class WorkItem(Item):
    """A packet before ingress or egress; `front`: the bytes that the hardware puts before it, a mirror header included."""

    egress: bool
    port: int
    frame: bytes
    now_ps: int
    front: bytes
    kind: str = "normal"
    rid: int = 0
    passes: int = 0

    @property
    def title(self) -> str:
        pipe = self.port >> 7
        if self.egress:
            return f"egress of pipe {pipe} to port {self.port}, rid {self.rid} ({self.kind})"
        return f"ingress of pipe {pipe} ({self.kind})"


@dataclass(frozen=True)
class Result:
    """The result of one phase. `frame`: None if nothing leaves. `requests`: the fields of struct ina_tna that are not zero."""

    verdict: int
    frame: bytes | None
    requests: dict[str, int]
    mirror: bytes | None = None
    resubmit: bytes | None = None
    digest: tuple[int, tuple[Value, ...]] | None = None


class Tna(Architecture):
    """One switch; each pipeline of its program runs in one pipe."""

    def __init__(self, program: CheckedProgram, externs: Semantics, seed: int) -> None:
        self.machine: TnaMachine = TnaMachine(program, externs, seed)

    # --- one phase --------------------------------------------------------------------------------------------------

    def run(self, egress: bool, front: bytes, frame: bytes, now_ps: int = 0, pipeline: int = 0) -> Result:
        """Runs one phase. `front`: intrinsic metadata and what follows them; a mirror header is part of the frame."""
        machine = self.machine
        parser, control, deparser = [
            _block(b) for b in list(machine.pipelines[pipeline].args.values())[3 * egress : 3 * egress + 3]
        ]
        packet = PacketIn(front + frame)
        machine.phase = Phase(egress, len(frame) + 4, now_ps, packet)  # objects count the FCS
        side = "egress" if egress else "ingress"
        intrinsic = {
            name: default_record(t)
            for name, t in machine.program.types.items()
            if name.startswith(f"{side}_intrinsic_metadata")
        }
        headers, metadata = (default_record(p.type) for p in parser.decl.params[1:3])
        if not egress:
            intrinsic["ingress_intrinsic_metadata_for_tm_t"].set(**{f: Unset() for f in VALID_FIELDS})
        for_deparser = intrinsic[f"{side}_intrinsic_metadata_for_deparser_t"]
        for_deparser.set(**{f: Unset() for f in VALID_FOR_DEPARSER[egress]})
        if not egress and not sets_mirror_type(machine.program):
            for_deparser.set(mirror_type=Unset())
        error = "NoError"
        try:
            self._run(parser, packet, headers, metadata, intrinsic)
        except ParserError as failed:
            error = failed.error
            machine.observer.parser_failed(error)
        deposit(machine)
        intrinsic[f"{side}_intrinsic_metadata_from_parser_t"].set(
            global_tstamp=now_ps // 1000 & (1 << 48) - 1, parser_err=PARSER_ERRORS.get(error, 0x40)
        )
        if not egress and error != "NoError" and (error == "NoMatch" or not _reads_error(control, deparser)):
            machine.drops["parser"] += 1
            return Result(DROP, None, {"parser_drop": 1})
        self._run(control, None, headers, metadata, intrinsic)
        for_deparser.set(**{f: Nothing(v) for f, v in for_deparser.fields.items() if isinstance(v, Unset)})
        out = PacketOut()
        self._run(deparser, out, headers, metadata, intrinsic)
        whole = out.data() + packet.payload()
        ask = _numbers(for_deparser)
        return self._egress_end(whole, ask, intrinsic) if egress else self._ingress_end(whole, ask, intrinsic)

    def _run(
        self,
        block: Instance,
        packet: PacketIn | PacketOut | None,
        headers: Record,
        metadata: Record,
        intrinsic: dict[str, Record],
    ) -> None:
        params = block.decl.params
        first = [packet] if isinstance(strip_new(params[0].type), ExternType) else []
        values: list[Value] = [*first, headers, metadata]
        values += [intrinsic[str(strip_new(p.type))] for p in params[len(values) :]]
        frame = Frame(self.machine, block)
        frame.vars = dict(zip(params, values, strict=True))
        run_block(block, frame)

    def _ingress_end(self, frame: bytes, ask: dict[str, int], intrinsic: dict[str, Record]) -> Result:
        phase, tm = self.machine.phase, intrinsic["ingress_intrinsic_metadata_for_tm_t"]
        requests = {**phase.requests, **{name: int(value) for name, value in _numbers(tm).items()}, **ask}
        requests |= {flag: int(not isinstance(tm.fields[name], Unset)) for name, flag in VALID_FIELDS.items()}
        for name in ("disable_ucast_cutthru", "enable_mcast_cutthru"):
            requests.pop(name)
        if ask["drop_ctl"] & 1:
            requests |= {"has_ucast": 0, "has_mcast_a": 0, "has_mcast_b": 0}
            phase.resubmit = None
        if ask["drop_ctl"] & 2:
            requests["copy_to_cpu"] = 0
        requests["resubmit"] = int(phase.resubmit is not None)
        if phase.resubmit is not None:
            phase.mirror, requests["mirror"] = None, 0
        forwarded = requests["has_ucast"] or requests["has_mcast_a"] or requests["has_mcast_b"] or requests["copy_to_cpu"]
        verdict = RESUBMIT if phase.resubmit is not None else UNICAST if forwarded else DROP
        return self._result(verdict, frame if verdict == UNICAST else None, requests)

    def _egress_end(self, frame: bytes, ask: dict[str, int], intrinsic: dict[str, Record]) -> Result:
        phase = self.machine.phase
        requests = {**phase.requests, **ask, **_numbers(intrinsic["egress_intrinsic_metadata_for_output_port_t"])}
        if ask["drop_ctl"] & 4:
            phase.mirror, requests["mirror"] = None, 0
        dropped = bool(ask["drop_ctl"] & 1)
        output = None if dropped and phase.mirror is None else frame
        return self._result(DROP if dropped else UNICAST, output, requests)

    def _result(self, verdict: int, frame: bytes | None, requests: dict[str, int]) -> Result:
        phase = self.machine.phase
        return Result(verdict, frame, {k: v for k, v in requests.items() if v}, phase.mirror, phase.resubmit, phase.digest)

    # --- the switch around it -----------------------------------------------------------------------------------------

    def item(self, frame: bytes, port: int, now_ps: int) -> WorkItem:
        return WorkItem(False, port, frame, now_ps, ingress_front(port, now_ps))

    def step(self, item: Item) -> Sequence[Item | Output]:
        assert isinstance(item, WorkItem)
        pipeline = (item.port >> 7) % len(self.machine.pipelines)
        result = self.run(item.egress, item.front, item.frame, item.now_ps, pipeline)
        return self._egress(item, result) if item.egress else self._ingress(item, result)

    def _ingress(self, item: WorkItem, result: Result) -> list[Item | Output]:
        machine, requests = self.machine, result.requests
        out: list[Item | Output] = []
        if result.mirror is not None:
            out += self._mirrored(item, requests.get("mirror_session", 0), result.mirror, item.frame)
        if result.resubmit is not None:
            if item.kind == "resubmitted":
                machine.drops["resubmitted twice"] += 1
                return []
            front = ingress_front(item.port, item.now_ps, result.resubmit, resubmitted=True)
            return [replace(item, front=front, kind="resubmitted", passes=item.passes + 1)]
        if result.frame is None:
            machine.drops["ingress"] += not requests.get("parser_drop") and not out
            return out
        copies = [(requests.get("ucast_egress_port", 0), 0)] if requests.get("has_ucast") else []
        for name in ("a", "b"):
            if requests.get(f"has_mcast_{name}"):
                group = requests.get(f"mcast_grp_{name}", 0)
                if group not in machine.multicast_groups:
                    machine.drops["multicast_group"] += 1
                copies += machine.multicast_groups.get(group, [])
        for port, rid in copies:
            if requests.get("bypass_egress"):
                out += self._send(item, port, result.frame)
            else:
                front = egress_front(port, item.now_ps, rid, len(result.frame))
                out.append(WorkItem(True, port, result.frame, item.now_ps, front, item.kind, rid, item.passes))
        return out

    def _egress(self, item: WorkItem, result: Result) -> list[Item | Output]:
        out: list[Item | Output] = []
        if result.mirror is not None:
            assert result.frame is not None  # a dropped packet has one for its mirrored copy
            out += self._mirrored(item, result.requests.get("mirror_session", 0), result.mirror, result.frame)
        if result.verdict == DROP or result.frame is None:
            self.machine.drops["egress"] += 1
            return out
        return out + self._send(item, item.port, result.frame)

    def _send(self, item: WorkItem, port: int, frame: bytes) -> list[Item | Output]:
        """Sends a frame out of a port; recirculation ports lead back."""
        if port & 0x7F not in RECIRCULATION:
            return [Output(port, frame)]
        if item.passes + 1 >= MAX_PASSES:
            self.machine.drops["pass_limit"] += 1
            return []
        return [replace(self.item(frame, port, item.now_ps), kind="recirculated", passes=item.passes + 1)]

    def _mirrored(self, item: WorkItem, session: int, header: bytes, frame: bytes) -> list[Item]:
        target = self.machine.clone_sessions.get(session)
        if target is None or target.port is None:
            self.machine.drops["mirror_session"] += 1
            return []
        whole = header + frame
        front = egress_front(target.port, item.now_ps, 0, len(whole))
        return [WorkItem(True, target.port, whole, item.now_ps, front, "mirrored", 0, item.passes)]


def _numbers(record: Record) -> dict[str, int]:
    """Returns the fields of intrinsic metadata, by name."""
    return {name: number(value) for name, value in record.fields.items()}


def _block(block: Instance) -> Instance:
    """Returns a pipeline's block; of several parsers the first."""
    return block if not isinstance(block.decl, ast.PackageDecl) else next(iter(block.args.values()))


def _reads_error(*blocks: Instance) -> bool:
    """Returns True if the program reads parser_err behind the parser."""
    controls = (i.decl for block in blocks for i in instances_below(block) if isinstance(i.decl, ast.ControlDecl))
    nodes = (node for decl in controls for node in walk([*decl.locals, decl.body]))
    return any(isinstance(node, ast.Member) and node.member == "parser_err" for node in nodes)


def ingress_front(port: int, now_ps: int = 0, data: bytes = bytes(8), *, resubmitted: bool = False) -> bytes:
    """Returns ingress intrinsic metadata, then `data`: port metadata or resubmit data."""
    stamp = now_ps // 1000 & (1 << 48) - 1
    return (int(resubmitted) << 15 | port).to_bytes(2, "big") + stamp.to_bytes(6, "big") + data


def egress_front(port: int, now_ps: int, rid: int, length: int) -> bytes:
    """Returns the egress intrinsic metadata of a packet that found empty queues."""
    bits = port << 200 | (now_ps // 1000 & (1 << 18) - 1) << 136
    return (bits | rid << 48 | 1 << 40 | length & 0xFFFF).to_bytes(EGRESS_FRONT, "big")
