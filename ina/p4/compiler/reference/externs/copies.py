"""A packet's fate, and copies of it: v1model's mark_to_drop, truncate, clone, resubmit, recirculate; TNA's Mirror and
Resubmit."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.arch.tna_machine import TnaMachine
from ina.p4.compiler.arch.v1model_machine import DROP_PORT, Path, V1Machine
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.instances import field_list
from ina.p4.compiler.reference.arguments import Arguments
from ina.p4.compiler.reference.externs.extern import ExternFunction, ExternObject
from ina.p4.compiler.reference.machine import Frame
from ina.p4.compiler.reference.packet import PacketOut
from ina.p4.compiler.reference.signals import InterpreterError
from ina.p4.compiler.reference.values import Record, Value
from ina.p4.compiler.types import RecordType


class MarkToDrop(ExternFunction):
    names = ("mark_to_drop",)

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        if 0 not in args:
            raise InterpreterError(call, "mark_to_drop() needs its standard_metadata argument")
        args.record(0).set(egress_spec=DROP_PORT, mcast_grp=0)
        return None


class Truncate(ExternFunction):
    names = ("truncate",)

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        packet, length = machine.packet, max(args.number(0), 1)  # a frame has at least one byte
        packet.truncate = length if packet.truncate is None else min(length, packet.truncate)
        return None


class Clone(ExternFunction):
    names = ("clone", "clone3", "clone_preserving_field_list")

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        machine.packet.requests.clone = (args.number(1), _preserved(machine, args, 2))
        return None


class V1Resubmit(ExternFunction):
    names = ("resubmit", "resubmit_preserving_field_list")

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        machine.packet.requests.resubmit = _preserved(machine, args, 0)
        return None


class Recirculate(ExternFunction):
    names = ("recirculate", "recirculate_preserving_field_list")

    def interpret(self, machine: V1Machine, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        machine.packet.requests.recirculate = _preserved(machine, args, 0)
        return None


def _preserved(machine: V1Machine, args: Arguments, key: int) -> list[Path]:
    """Returns the metadata that a copy keeps: fields of a field list, or those that the data name; none without the argument."""
    if key not in args:
        return []
    if not args.call.decl.name.endswith("_preserving_field_list"):
        return _metadata_paths(machine, args.expression(key))
    metadata = machine.metadata_type
    assert isinstance(metadata, RecordType)
    return [("meta", *path) for path in field_list(machine.program, metadata, args.number(key))]


def _metadata_paths(machine: V1Machine, e: ast.Expr) -> list[Path]:
    if isinstance(e, ast.ListExpr | ast.StructInit):
        return [path for value in e.values for path in _metadata_paths(machine, value)]
    path: list[str] = []
    while isinstance(e, ast.Cast | ast.Member):
        if isinstance(e, ast.Member):
            path.insert(0, e.member)
            e = e.base
        else:
            e = e.operand
    if isinstance(e, ast.Name) and e.type is machine.metadata_type:
        return [("meta", *path)]
    if isinstance(e, ast.Name) and e.type is machine.standard_type:
        return [("standard", *path)]
    return []


class Mirror(ExternObject):
    names = ("Mirror",)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        phase = machine.phase
        phase.mirror = _header_bytes(args)
        phase.requests |= {"mirror": 1, "mirror_session": args.number("session_id"), "mirror_len": len(phase.mirror)}
        return None


class Resubmit(ExternObject):
    names = ("Resubmit",)

    def interpret(self, machine: TnaMachine, instance: Instance, call: ast.Call, args: Arguments, frame: Frame) -> Value:
        machine.phase.resubmit = _header_bytes(args).ljust(8, b"\0")
        return None


def _header_bytes(args: Arguments) -> bytes:
    """Returns the bytes of the header that a copy begins with."""
    if "hdr" not in args:
        return b""
    header = args.value("hdr")
    assert isinstance(header, Record)
    header.valid = True
    out = PacketOut()
    out.emit(header, header.type)
    return out.data()
