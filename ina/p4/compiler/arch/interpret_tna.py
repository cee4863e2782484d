"""TNA for the reference interpreter: the path of a packet through one pipe, and the objects of TNA programs.

Source: Intel, "Tofino Native Architecture - Public Version". Where it leaves something open, this follows `lower_tna*.py`;
numbers are computed here from their definitions (a CRC bit by bit), so that the two can be compared. The traffic manager is the
smallest that shows a packet's path: one unicast copy, groups and mirror sessions that name ports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ina.p4.compiler import ast
from ina.p4.compiler.arch.interpret_v1model import CloneSession, Digest, Output
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.instances import calls_in
from ina.p4.compiler.reference.expressions import ExitSignal, Frame, InterpreterError
from ina.p4.compiler.reference.hashes import SplitMix64
from ina.p4.compiler.reference.packet import PacketIn, PacketOut, ParserError
from ina.p4.compiler.reference.tables import Entry, Table
from ina.p4.compiler.reference.tna_objects import OBJECTS, Nothing, ObjectMethods, Phase, Unset
from ina.p4.compiler.reference.v1model_objects import MeterArray
from ina.p4.compiler.reference.values import Record, copy, default_value, leaves
from ina.p4.compiler.types import ExternType, Type, strip_new

if TYPE_CHECKING:
    from ina.p4.compiler.reference.interpreter import Interpreter

INGRESS_FRONT, EGRESS_FRONT = 16, 27
DROP, UNICAST, RESUBMIT = 0, 1, 3
MAX_PASSES = 255  # through ingress, as in the embedded switch
RECIRCULATION = range(68, 72)  # ports of each pipe that lead back to ingress
PARSER_ERRORS = {"NoError": 0, "NoMatch": 1, "PacketTooShort": 2, "CounterRange": 4}
VALID_FIELDS = {"ucast_egress_port": "has_ucast", "mcast_grp_a": "has_mcast_a", "mcast_grp_b": "has_mcast_b"}
VALID_FOR_DEPARSER = (("digest_type", "resubmit_type"), ("mirror_type",))  # ingress, egress


@dataclass
class WorkItem:
    """A packet before ingress or egress; `front`: the bytes that the hardware puts before it, a mirror header included."""

    stage: str
    port: int
    frame: bytes = b""
    now_ps: int = 0
    front: bytes = b""
    kind: str = "normal"
    rid: int = 0
    passes: int = 0

    @property
    def title(self) -> str:
        pipe = self.port >> 7
        if self.stage == "ingress":
            return f"ingress of pipe {pipe} ({self.kind})"
        return f"egress of pipe {pipe} to port {self.port}, rid {self.rid} ({self.kind})"


@dataclass(frozen=True)
class Result:
    """The result of one phase. `frame`: None if nothing leaves. `requests`: the fields of struct ina_tna that are not zero."""

    verdict: int
    frame: bytes | None
    requests: dict[str, int]
    mirror: bytes | None = None
    resubmit: bytes | None = None
    digest: tuple[int, tuple[Any, ...]] | None = None


class Tna(ObjectMethods):
    """One switch; each pipeline of its program runs in one pipe. `interpreter` runs parsers and controls."""

    keeps_fields = True  # a header that becomes valid keeps the values last written to its fields

    def __init__(self, interpreter: Interpreter, seed: int) -> None:
        super().__init__(interpreter)
        self.pipelines = [a for a in interpreter.program.package.args.values() if isinstance(a, Instance)]
        self.random = SplitMix64(seed)
        self.multicast_groups: dict[int, list[tuple[int, int]]] = {}
        self.clone_sessions: dict[int, CloneSession] = {}
        self.digests: list[Digest] = []
        self.log: list[str] = []
        self.drops: Counter[str] = Counter()
        self.phase = Phase(False, 0, 0)
        self._digest_numbers: dict[int, int] = {}
        for pipeline in self.pipelines:
            self._number_digests(pipeline)

    # --- objects ----------------------------------------------------------------------------------------------------

    def create(self, instance: Instance) -> Any:
        """Returns the state of an extern instance; None for those without."""
        make = OBJECTS.get(instance.decl.name)
        if make is None:
            return None
        self.objects[instance] = state = make(self, instance)
        return state

    def attach(self, table: Table, name: str, instance: Instance) -> None:
        if name == "implementation":
            state = self.objects.get(instance)
            if state is not None:  # no Alpm, no Atcam
                table.profile = state
                state.tables.append(table)
        elif instance.decl.name.startswith("Direct"):
            table.attached.append(instance)
            state = self.objects[instance]
            if isinstance(state, MeterArray):
                table.meter_states = state

    def table_applied(self, table: Table, entry: Entry | None) -> None:
        for instance in table.attached:
            self.phase.entries[instance] = entry

    def _number_digests(self, pipeline: Instance) -> None:
        """Numbers digests in the order of their calls in the deparser's text."""
        deparser = list(pipeline.args.values())[2]
        calls = [c for c in calls_in(deparser.decl.body) if c.kind == "method" and c.method == "pack"]
        self._digest_numbers |= {id(c): i for i, c in enumerate(calls, 1)}

    def digest_number(self, call: ast.Call) -> int:
        return self._digest_numbers[id(call)]

    # --- one phase --------------------------------------------------------------------------------------------------

    def run(self, egress: bool, front: bytes, frame: bytes, now_ps: int = 0, pipeline: int = 0) -> Result:
        """Runs one phase. `front`: intrinsic metadata and what follows them; a mirror header is part of the frame."""
        parser, control, deparser = [
            self._block(b) for b in list(self.pipelines[pipeline].args.values())[3 * egress : 3 * egress + 3]
        ]
        self.phase = Phase(egress, len(frame) + 4, now_ps)  # objects count the FCS
        side = "egress" if egress else "ingress"
        intrinsic = {
            name: default_value(t)
            for name, t in self.interpreter.program.types.items()
            if name.startswith(f"{side}_intrinsic_metadata")
        }
        headers, metadata = (default_value(p.type) for p in parser.decl.params[1:3])
        if not egress:
            intrinsic["ingress_intrinsic_metadata_for_tm_t"].fields.update({f: Unset() for f in VALID_FIELDS})
        for_deparser = intrinsic[f"{side}_intrinsic_metadata_for_deparser_t"].fields
        for_deparser.update({f: Unset() for f in VALID_FOR_DEPARSER[egress]})
        packet = PacketIn(front + frame)
        error = "NoError"
        try:
            self._run(parser, packet, headers, metadata, intrinsic)
        except ParserError as failed:
            error = failed.error
            self.interpreter.observer.parser_failed(error)
        self.deposit(packet.payload())
        from_parser = intrinsic[f"{side}_intrinsic_metadata_from_parser_t"].fields
        from_parser.update(global_tstamp=now_ps // 1000 & (1 << 48) - 1, parser_err=PARSER_ERRORS.get(error, 0x40))
        if not egress and error != "NoError" and (error == "NoMatch" or not self._reads_error(control, deparser)):
            self.drops["parser"] += 1
            return Result(DROP, None, {"parser_drop": 1})
        self._run(control, None, headers, metadata, intrinsic)
        for_deparser.update({f: Nothing(v) for f, v in for_deparser.items() if isinstance(v, Unset)})
        out = PacketOut()
        self._run(deparser, out, headers, metadata, intrinsic)
        whole = out.data() + packet.payload()
        return self._egress_end(whole, for_deparser, intrinsic) if egress else self._ingress_end(whole, for_deparser, intrinsic)

    @staticmethod
    def _block(block: Instance) -> Instance:
        return block if not isinstance(block.decl, ast.PackageDecl) else next(iter(block.args.values()))

    @staticmethod
    def _reads_error(*blocks: Instance) -> bool:
        """Returns True if the program reads parser_err behind the parser."""

        def names(node: Any) -> bool:
            if isinstance(node, ast.Member) and node.member == "parser_err":
                return True
            if isinstance(node, list | tuple):
                return any(names(n) for n in node)
            if isinstance(node, ast.Node):
                return any(names(getattr(node, f)) for f in node.__dataclass_fields__ if node.__dataclass_fields__[f].init)
            return False

        waiting, seen = list(blocks), set()
        while waiting:
            block = waiting.pop()
            if block in seen or not isinstance(block.decl, ast.ControlDecl):
                continue
            seen.add(block)
            if names([*block.decl.locals, block.decl.body]):
                return True
            waiting += block.children.values()
        return False

    def _run(self, block: Instance, packet: Any, headers: Any, metadata: Any, intrinsic: dict[str, Record]) -> None:
        frame = Frame(block)
        first = [packet] if isinstance(strip_new(block.decl.params[0].type), ExternType) else []
        values = [*first, headers, metadata]
        values += [intrinsic[str(strip_new(p.type))] for p in block.decl.params[len(values) :]]
        frame.vars = dict(zip(block.decl.params, values, strict=True))
        try:
            if isinstance(block.decl, ast.ParserDecl):
                self.interpreter.run_parser(block, frame)
            else:
                self.interpreter.run_control(block, frame)
        except ExitSignal:
            return

    def _ingress_end(self, frame: bytes, deparser: dict[str, Any], intrinsic: dict[str, Record]) -> Result:
        phase, tm = self.phase, intrinsic["ingress_intrinsic_metadata_for_tm_t"].fields
        requests = {**phase.requests, **{k: int(v) for k, v in tm.items()}, **deparser}
        requests |= {flag: int(not isinstance(tm[name], Unset)) for name, flag in VALID_FIELDS.items()}
        for name in ("disable_ucast_cutthru", "enable_mcast_cutthru"):
            requests.pop(name)
        if deparser["drop_ctl"] & 1:
            requests |= {"has_ucast": 0, "has_mcast_a": 0, "has_mcast_b": 0}
            phase.resubmit = None
        if deparser["drop_ctl"] & 2:
            requests["copy_to_cpu"] = 0
        requests["resubmit"] = int(phase.resubmit is not None)
        if phase.resubmit is not None:
            phase.mirror = requests["mirror"] = None
        forwarded = requests["has_ucast"] or requests["has_mcast_a"] or requests["has_mcast_b"] or requests["copy_to_cpu"]
        verdict = RESUBMIT if phase.resubmit is not None else UNICAST if forwarded else DROP
        return self._result(verdict, frame if verdict == UNICAST else None, requests)

    def _egress_end(self, frame: bytes, deparser: dict[str, Any], intrinsic: dict[str, Record]) -> Result:
        phase = self.phase
        port = intrinsic["egress_intrinsic_metadata_for_output_port_t"].fields
        requests = {**phase.requests, **deparser, **port}
        if deparser["drop_ctl"] & 4:
            phase.mirror = requests["mirror"] = None
        dropped = bool(deparser["drop_ctl"] & 1)
        output = None if dropped and phase.mirror is None else frame
        return self._result(DROP if dropped else UNICAST, output, requests)

    def _result(self, verdict: int, frame: bytes | None, requests: dict[str, Any]) -> Result:
        phase = self.phase
        return Result(verdict, frame, {k: v for k, v in requests.items() if v}, phase.mirror, phase.resubmit, phase.digest)

    # --- the switch around it -----------------------------------------------------------------------------------------

    def item(self, frame: bytes, port: int, now_ps: int) -> WorkItem:
        """Returns the item for a frame that comes in."""
        return WorkItem("ingress", port, frame, now_ps, ingress_front(port, now_ps))

    def ingress(self, item: WorkItem) -> list[WorkItem | Output]:
        result = self.run(False, item.front, item.frame, item.now_ps, self._pipeline(item.port))
        requests = result.requests
        out: list[WorkItem | Output] = []
        if result.mirror is not None:
            out += self._mirrored(item, requests["mirror_session"], result.mirror, item.frame)
        if result.resubmit is not None:
            if item.kind == "resubmitted":
                self.drops["resubmitted twice"] += 1
                return []
            front = ingress_front(item.port, item.now_ps, result.resubmit, resubmitted=True)
            return [replace(item, front=front, kind="resubmitted", passes=item.passes + 1)]
        if result.frame is None:
            self.drops["ingress"] += not requests.get("parser_drop") and not out
            return out
        copies = [(requests.get("ucast_egress_port", 0), 0)] if requests.get("has_ucast") else []
        for name in ("a", "b"):
            if requests.get(f"has_mcast_{name}"):
                group = requests.get(f"mcast_grp_{name}", 0)
                if group not in self.multicast_groups:
                    self.drops["multicast_group"] += 1
                copies += self.multicast_groups.get(group, [])
        for port, rid in copies:
            if requests.get("bypass_egress"):
                out += self._send(item, port, result.frame)
            else:
                front = egress_front(port, item.now_ps, rid, len(result.frame))
                out.append(WorkItem("egress", port, result.frame, item.now_ps, front, item.kind, rid, item.passes))
        return out

    def egress(self, item: WorkItem) -> list[WorkItem | Output]:
        result = self.run(True, item.front, item.frame, item.now_ps, self._pipeline(item.port))
        out: list[WorkItem | Output] = []
        if result.mirror is not None:
            assert result.frame is not None  # a dropped packet has one for its mirrored copy
            out += self._mirrored(item, result.requests["mirror_session"], result.mirror, result.frame)
        if result.verdict == DROP or result.frame is None:
            self.drops["egress"] += 1
            return out
        return out + self._send(item, item.port, result.frame)

    def _pipeline(self, port: int) -> int:
        return (port >> 7) % len(self.pipelines)

    def _send(self, item: WorkItem, port: int, frame: bytes) -> list[WorkItem | Output]:
        """Sends a frame out of a port; recirculation ports lead back."""
        if port & 0x7F not in RECIRCULATION:
            return [Output(port, frame)]
        if item.passes + 1 >= MAX_PASSES:
            self.drops["pass_limit"] += 1
            return []
        again = self.item(frame, port, item.now_ps)
        return [replace(again, kind="recirculated", passes=item.passes + 1)]

    def _mirrored(self, item: WorkItem, session: int, header: bytes, frame: bytes) -> list[WorkItem]:
        target = self.clone_sessions.get(session)
        if target is None or target.port is None:
            self.drops["mirror_session"] += 1
            return []
        whole = header + frame
        front = egress_front(target.port, item.now_ps, 0, len(whole))
        return [WorkItem("egress", target.port, whole, item.now_ps, front, "mirrored", 0, item.passes)]

    # --- messages -------------------------------------------------------------------------------------------------------

    def header_bytes(self, value: Any, t: Type) -> bytes:
        """Returns the bytes of a mirror or resubmit header."""
        out = PacketOut()
        whole = copy(value)
        whole.valid = True
        out.emit(whole, t)
        return out.data()

    def packed(self, call: ast.Call, instance: Instance, data: Any) -> None:
        values = tuple(int(leaf) for leaf, _ in leaves(data, call.given(0).type))
        self.phase.digest = (self.digest_number(call), values)
        self.digests.append(Digest(instance.name, values))

    def call_function(self, name: str, call: ast.Call, args: list[Any], frame: Frame) -> Any:
        function: Callable[..., Any] | None = getattr(self, f"x_{name}", None)
        if function is None:
            raise InterpreterError(call, f"TNA has no extern function '{name}'")
        self.interpreter.observer.function_called(name, args)
        return function(call, frame, *args)


def ingress_front(port: int, now_ps: int = 0, data: bytes = bytes(8), *, resubmitted: bool = False) -> bytes:
    """Returns ingress intrinsic metadata, then `data`: port metadata or resubmit data."""
    stamp = now_ps // 1000 & (1 << 48) - 1
    return (int(resubmitted) << 15 | port).to_bytes(2, "big") + stamp.to_bytes(6, "big") + data


def egress_front(port: int, now_ps: int, rid: int, length: int) -> bytes:
    """Returns the egress intrinsic metadata of a packet that found empty queues."""
    bits = port << 200 | (now_ps // 1000 & (1 << 18) - 1) << 136
    return (bits | rid << 48 | 1 << 40 | length & 0xFFFF).to_bytes(EGRESS_FRONT, "big")
