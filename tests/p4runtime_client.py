"""A plain gRPC client of P4Runtime for tests: requests exactly as in the specification."""

from __future__ import annotations

import queue
import threading
from typing import Any

import grpc
from waiting import LONG, TookTooLong

from ina.p4.p4runtime.messages import Status, p4
from ina.p4.p4runtime.program import encode
from ina.p4.rpc.connections import Access

SERVICE = "/p4.v1.P4Runtime/"


class Failure(Exception):
    """An RPC that failed: `code` (name), `message`, `details`: canonical code and message of each item."""

    def __init__(self, error: grpc.RpcError):
        super().__init__(f"{error.code().name}: {error.details()}")
        self.code = error.code().name
        self.message = error.details()
        trailers = dict(error.trailing_metadata() or ())
        self.details: list[tuple[int, str]] = []
        if "grpc-status-details-bin" in trailers:
            status = Status.FromString(trailers["grpc-status-details-bin"])
            assert (status.code, status.message) == (error.code().value[0], self.message)
            for packed in status.details:
                item = p4.Error()
                assert packed.Unpack(item)
                self.details.append((item.canonical_code, item.message))


class Stream:
    """A StreamChannel. `get` waits for the switch's next message."""

    def __init__(self, channel: grpc.Channel):
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._in: queue.SimpleQueue[Any] = queue.SimpleQueue()
        call = channel.stream_stream(SERVICE + "StreamChannel", p4.StreamMessageRequest.SerializeToString,
                                     p4.StreamMessageResponse.FromString)
        self._call = call(iter(self._out.get, None))
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        try:
            for message in self._call:
                self._in.put(message)
        except grpc.RpcError as error:
            self._in.put(Failure(error))

    def send(self, **update: Any) -> None:
        self._out.put(p4.StreamMessageRequest(**update))

    def arbitrate(self, election: int | None, device_id: int = 1, role: str | None = None, **more: Any) -> Any:
        message = p4.MasterArbitrationUpdate(device_id=device_id, **more)
        if role is not None:
            message.role.name = role
        if election is not None:
            message.election_id.high, message.election_id.low = election >> 64, election & (1 << 64) - 1
        self.send(arbitration=message)
        return self.get()

    def next(self) -> Any:
        try:
            message = self._in.get(timeout=LONG)
        except queue.Empty:
            raise TookTooLong(f"waited {LONG:g} s for a message") from None
        if isinstance(message, Failure):
            raise message
        return message

    def get(self, kind: str = "arbitration") -> Any:
        message = self.next()
        assert message.WhichOneof("update") == kind, message
        return getattr(message, kind)

    def quiet(self) -> bool:
        """True if no message is there; takes one that is."""
        try:
            self._in.get_nowait()
        except queue.Empty:
            return True
        return False

    def close(self) -> None:
        self._out.put(None)
        self._call.cancel()


class Client:
    """A client; by default its calls use device 1 and election id 1."""

    def __init__(self, address: str, access: Access | None = None):
        self.channel = (access or Access()).connect(address)
        self.streams: list[Stream] = []
        self.election = 1

    def stream(self) -> Stream:
        self.streams.append(Stream(self.channel))
        return self.streams[-1]

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
        self.channel.close()

    def call(self, name: str, request: Any) -> Any:
        method = self.channel.unary_unary(SERVICE + name, type(request).SerializeToString,
                                          getattr(p4, f"{name}Response").FromString)
        try:
            return method(request, timeout=LONG)
        except grpc.RpcError as error:
            raise Failure(error) from None

    def _identified(self, request: Any) -> Any:
        request.device_id = request.device_id or 1
        if not request.HasField("election_id"):
            request.election_id.low = self.election
        return request

    def write(self, *updates: Any, **fields: Any) -> None:
        self.call("Write", self._identified(p4.WriteRequest(updates=updates, **fields)))

    def set_pipeline(self, action: str, config: Any = None, **fields: Any) -> None:
        self.call("SetForwardingPipelineConfig", self._identified(
            p4.SetForwardingPipelineConfigRequest(action=action, config=config, **fields)))

    def read(self, *entities: Any, device_id: int = 1) -> list[Any]:
        method = self.channel.unary_stream(SERVICE + "Read", p4.ReadRequest.SerializeToString,
                                           p4.ReadResponse.FromString)
        read_entities: list[Any] = []
        try:
            for response in method(p4.ReadRequest(device_id=device_id, entities=entities), timeout=LONG):
                read_entities += response.entities
        except grpc.RpcError as error:
            failure = Failure(error)
            failure.entities = read_entities  # type: ignore[attr-defined]
            raise failure from None
        return read_entities


def update(type_: str, **entity: Any) -> Any:
    return p4.Update(type=type_, entity=p4.Entity(**entity))


class Names:
    """Builds messages from the names of a P4Info."""

    def __init__(self, p4info: Any):
        self.message = p4info
        sections = [f.name for f in p4info.DESCRIPTOR.fields if f.name not in ("pkg_info", "type_info")]
        objects = [o for s in sections for o in getattr(p4info, s)]
        self.ids = {o.preamble.alias: o.preamble.id for o in objects}
        self._fields = {t.preamble.alias: {f.name: f for f in t.match_fields} for t in p4info.tables}
        self._params = {a.preamble.alias: {p.name: p.id for p in a.params} for a in p4info.actions}

    def entry(self, table: str, match: dict[str, Any] | None = None, action: str = "", *,
              priority: int = 0, **params: Any) -> Any:
        """A table entry. Values are integers, or byte strings to be sent unchanged; pairs where the match kind takes two."""
        def octets(value: int | bytes) -> bytes:
            return value if isinstance(value, bytes) else encode(value)

        entry = p4.TableEntry(table_id=self.ids[table], priority=priority)
        for name, value in (match or {}).items():
            field = self._fields[table][name]
            kind = type(field).MatchType.Name(field.match_type).lower()
            m = entry.match.add(field_id=field.id)
            if kind in ("exact", "optional"):
                getattr(m, kind).value = octets(value)
            elif kind == "lpm":
                m.lpm.value, m.lpm.prefix_len = octets(value[0]), value[1]
            elif kind == "ternary":
                m.ternary.value, m.ternary.mask = octets(value[0]), octets(value[1])
            else:
                m.range.low, m.range.high = octets(value[0]), octets(value[1])
        if action:
            entry.action.action.action_id = self.ids[action]
            for name, value in params.items():
                entry.action.action.params.add(param_id=self._params[action][name], value=octets(value))
        return entry
