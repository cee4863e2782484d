"""Messages of P4Runtime and BFRuntime: from the wire to the service's methods, without gRPC.

method 1 | message
"""

from __future__ import annotations

import threading
from typing import Any

from .control import Ours

CODES = {"INTERNAL", "UNKNOWN"}  # codes of the RPC that without details are defects of ours


class Aborted(Exception):
    pass


class Context:
    """The parts of grpc.ServicerContext that a service uses."""

    def __init__(self) -> None:
        self.code: Any = None

    def abort(self, code: Any, details: str) -> None:
        self.code, self.details = code, details
        raise Aborted

    def abort_with_status(self, status: Any) -> None:
        self.abort(status.code, status.details)

    def invocation_metadata(self) -> tuple[Any, ...]:
        return ()

    def set_trailing_metadata(self, metadata: Any) -> None:
        pass

    def add_callback(self, callback: Any) -> bool:
        return True

    def is_active(self) -> bool:
        return True

    def time_remaining(self) -> float:
        return 60.0

    def peer(self) -> str:
        return "unix:"


def _call(method: Any, request: Any, ours: Ours) -> None:
    context = Context()
    try:
        answer = method(request, context)
        if hasattr(answer, "__next__"):
            for _ in answer:
                pass
    except Aborted:
        assert context.code is not None and context.details, (context.code, context.details)
        assert context.code.name != "INTERNAL", context.details
    ours.check()


def p4runtime() -> tuple[Any, ...]:
    """Write, Read, SetForwardingPipelineConfig and GetForwardingPipelineConfig of a device with a program."""
    from google.protobuf.message import DecodeError
    from test_p4runtime_fuzz import P4

    from ina.p4.compiler.build import compile_program
    from ina.p4.p4runtime import service as serving
    from ina.p4.p4runtime.arbitration import Arbitration
    from ina.p4.p4runtime.device import Device
    from ina.p4.p4runtime.messages import p4
    from ina.p4.runtime import Program

    ours = Ours()
    program = Program(compile_program(P4 / "controlled.p4").so_path)
    service = object.__new__(serving.Server)
    service.device = Device(device_id=1)
    service.device.load(program)
    service._arbitration = Arbitration(1)
    service._lock = threading.RLock()
    service._streams = {}
    service._arbitration.check = lambda request: None  # any client may become the primary
    methods = [
        (service._write, p4.WriteRequest),
        (service._read, p4.ReadRequest),
        (service._set_pipeline, p4.SetForwardingPipelineConfigRequest),
        (service._get_pipeline, p4.GetForwardingPipelineConfigRequest),
    ]

    def call(data: bytes) -> None:
        method, message = methods[data[0] % 4 if data else 0]
        request = message.FromString(data[1:])
        request.device_id = 1
        _call(method, request, ours)

    return call, DecodeError


def bfrt() -> tuple[Any, ...]:
    """Write, Read, SetForwardingPipelineConfig and GetForwardingPipelineConfig of a device with a program."""
    from google.protobuf.message import DecodeError
    from test_p4runtime_fuzz import P4

    from ina.p4.bfrt import service as serving
    from ina.p4.bfrt.device import Device
    from ina.p4.bfrt.messages import bfrt
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime import Switch

    ours = Ours()
    switch = Switch(compile_program(P4 / "bfrt.p4"))
    switch.add_port(1)
    server = serving.Server(Device(switch), "127.0.0.1:0")
    methods = [
        (server._write, bfrt.WriteRequest),
        (server._read, bfrt.ReadRequest),
        (server._set_pipeline, bfrt.SetForwardingPipelineConfigRequest),
        (server._get_pipeline, bfrt.GetForwardingPipelineConfigRequest),
    ]

    def call(data: bytes) -> None:
        method, message = methods[data[0] % 4 if data else 0]
        request = message.FromString(data[1:])
        if method in (server._write, server._read):
            request.p4_name, request.target.device_id = "bfrt", 0
        _call(method, request, ours)

    return call, DecodeError


def bfrt_json() -> tuple[Any, ...]:
    """The bfrt.json that a switch sends to a client: the program's, then the fixed tables'."""
    from ina.p4.bfrt.info import Info
    from ina.p4.runtime.entity_error import EntityError

    def read(data: bytes) -> None:
        for parts in ((data, None), (b"{}", data)):
            info = Info(*parts)
            for table in info.tables.values():
                assert info.table(table.name).name == table.name

    return read, EntityError


def device_config() -> tuple[Any, ...]:
    """P4Runtime's p4_device_config, up to the program that would be compiled (target p4-source)."""
    from ina.p4.p4runtime import pipeline
    from ina.p4.runtime import EntityError

    def compiled(source: str, name: str, defines: dict[str, str]) -> None:
        assert isinstance(source, str) and isinstance(name, str) and isinstance(defines, dict)

    pipeline._sent = compiled  # type: ignore[assignment]
    return lambda data: pipeline._program(data, {}), EntityError
