"""A switch behind P4Runtime, with the same interface as the embedded one."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

from ina.base.extras import extra
from ina.p4.runtime import Closing

with extra("p4runtime"):
    import grpc
    from google.protobuf import json_format
    from google.protobuf.message import Message

from ina.p4.p4runtime.messages import Status, p4
from ina.p4.p4runtime.translate import RemoteEntities
from ina.p4.rpc.connections import ELECTION_ID, Access
from ina.p4.rpc.errors import CODES, await_server, batch_failures, code_name, failure
from ina.p4.runtime import (
    CloneSessionEntry,
    E,
    Entity,
    EntityError,
    MulticastGroupEntry,
    P4Info,
    ProfileGroup,
    ProfileMember,
    SwitchTarget,
    TableEntry,
    Update,
)

SERVICE = "/p4.v1.P4Runtime/"
RESTORED = (TableEntry, MulticastGroupEntry, CloneSessionEntry, ProfileMember, ProfileGroup)
HIGHEST = (1 << 128) - 1  # election id
ELECTIONS = 8  # at most: others may come and leave meanwhile
METADATA = 1 << 20  # bytes of error details that are accepted


class RemoteSwitch(SwitchTarget, Closing):
    """The primary controller of device `device_id` at `address`, with `election_id`; None: a read-only one.

    A switch remembers the highest election id that it has seen: where the controller that had it has left, this one goes above
    it. It never takes the switch from a live controller with a higher id: until that one leaves, writes are refused.

    Raises EntityError: the switch refuses (PERMISSION_DENIED: there is a primary with a higher id); TimeoutError: it does
    not answer within `timeout` seconds; OSError: there are no certificates (`access`). If a server
    lacks ROLLBACK_ON_ERROR (BMv2's answers UNIMPLEMENTED), the client itself undoes the updates of a batch that failed.
    """

    def __init__(
        self, address: str, device_id: int = 1, election_id: int | None = ELECTION_ID, *, timeout: float = 30.0,
        access: Access | None = None,
    ):
        self.address = address
        self.device_id = device_id
        self._stream: _Stream | None = None
        self._election: p4.Uint128 | None = None
        self._asked = election_id or 0  # also of a switch that is started anew, and remembers none
        self._rollback = True  # False once the server has refused ROLLBACK_ON_ERROR
        self._access = access or Access()
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_metadata_size", METADATA)]
        self._channel = self._access.connect(address, options)
        self._entities: RemoteEntities | None = None
        try:
            absent = f"no P4Runtime server answers at {address} within {timeout} s{self._access.hint(address)}"
            await_server(self._channel, timeout, absent)
            if election_id is not None:
                self._arbitrate(election_id)
        except BaseException:
            self.close()
            raise

    def _arbitrate(self, election: int | None) -> None:
        """Opens a stream, and becomes the primary with `election`, or above those who have left; None: only above them."""
        stream = _Stream(self._channel)
        try:
            answer = stream.arbitrate(self.device_id, election)
            for _ in range(ELECTIONS):
                if answer.status.code != CODES["NOT_FOUND"]:  # there is a primary
                    break
                election = min(max(self._asked, _number(answer.election_id) + 1), HIGHEST)
                answer = stream.arbitrate(self.device_id, election)
        except grpc.RpcError as error:
            raise self._failure(error) from None
        except StopIteration:
            raise EntityError(f"{self.address}: the switch has ended the stream", "UNAVAILABLE") from None
        if answer.status.code == CODES["NOT_FOUND"]:
            stream.close()
            raise EntityError(f"{self.address}: the switch has no primary, but refuses election id {election}, above all that it "
                              "names", "PERMISSION_DENIED")
        if answer.status.code or election is None:
            stream.close()
            raise EntityError(f"{self.address}: not the primary: the controller with election id {_number(answer.election_id)} "
                              "is", "PERMISSION_DENIED")
        if self._stream is not None:
            self._stream.close()
        self._stream, self._election = stream, _message(election)

    @property
    def alive(self) -> bool:
        """True until the client learns that the connection is lost."""
        return self._stream is None or self._stream.alive

    def close(self) -> None:
        """Ends the stream, and with it the role of primary."""
        if self._stream is not None:
            self._stream.close()
        self._channel.close()

    # ---- pipeline

    def set_pipeline(self, p4info: dict[str, Any], device_config: bytes, timeout: float = 600.0) -> None:
        """Loads a program; `p4info` in protobuf's JSON mapping, `device_config` in the switch's own form."""
        request = p4.SetForwardingPipelineConfigRequest(
            device_id=self.device_id, election_id=self._election,
            action=p4.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        )
        json_format.ParseDict(p4info, request.config.p4info)
        request.config.p4_device_config = device_config
        self._change("SetForwardingPipelineConfig", request, timeout)
        self._entities = None

    @property
    def entities(self) -> RemoteEntities:
        """Entities of the switch's program, which is read once. Raises EntityError (FAILED_PRECONDITION) if it has none."""
        if self._entities is None:
            request = p4.GetForwardingPipelineConfigRequest(
                device_id=self.device_id, response_type=p4.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE
            )
            response = self._call("GetForwardingPipelineConfig", request, 60.0)
            if not response.HasField("config"):
                raise EntityError(f"{self.address}: no program is loaded", "FAILED_PRECONDITION")
            message = response.config.p4info
            self._entities = RemoteEntities(P4Info(json_format.MessageToDict(message)), message)
        return self._entities

    @property
    def p4info(self) -> P4Info:
        return self.entities.info

    # ---- entities

    def write(self, updates: Iterable[Update], timeout: float = 60.0) -> None:
        updates = list(updates)
        if self._rollback:
            try:
                self._write(updates, p4.WriteRequest.ROLLBACK_ON_ERROR, timeout)
                return
            except EntityError as error:
                if error.code != "UNIMPLEMENTED" or error.update is not None:
                    raise
                self._rollback = False
        before = [self._before(update) for update in updates]
        try:
            self._write(updates, p4.WriteRequest.CONTINUE_ON_ERROR, timeout)
        except _BatchFailed as failed:
            pairs = [pair for i, pair in enumerate(zip(updates, before, strict=True)) if i not in failed.updates]
            undo = [reverse for update, old in reversed(pairs) if (reverse := _inverse(update, old)) is not None]
            with suppress(_BatchFailed):  # updates that cannot be undone stay, and the first error is the one to report
                self._write(undo, p4.WriteRequest.CONTINUE_ON_ERROR, timeout)
            raise

    def _write(self, updates: list[Update], atomicity: int, timeout: float) -> None:
        request = p4.WriteRequest(device_id=self.device_id, election_id=self._election, atomicity=atomicity)
        for i, update in enumerate(updates):
            try:
                request.updates.add(type=update.type, entity=self.entities.message(update.entity))
            except EntityError as error:
                raise EntityError(f"update {i}: {error}", error.code, i) from None
        if updates:
            self._change("Write", request, timeout)

    def _before(self, update: Update) -> Entity | None:
        """The entity that a MODIFY or DELETE replaces, if it can be restored; None: there is none, or it cannot be read."""
        if update.type == "INSERT" or not isinstance(update.entity, RESTORED):
            return None
        try:
            return next(iter(self.read([update.entity])), None)
        except EntityError:
            return None

    def read(self, entities: Sequence[E], timeout: float = 60.0) -> list[E]:
        request = p4.ReadRequest(device_id=self.device_id, entities=[self.entities.message(e) for e in entities])
        method = self._channel.unary_stream(
            SERVICE + "Read", p4.ReadRequest.SerializeToString, p4.ReadResponse.FromString
        )
        answers: list[Any] = []
        try:
            for response in method(request, timeout=timeout):
                answers += map(self.entities.entity, response.entities)
        except grpc.RpcError as error:
            raise self._failure(error) from None
        return answers

    # ---- calls

    def _change(self, name: str, request: p4.WriteRequest | p4.SetForwardingPipelineConfigRequest, timeout: float) -> None:
        """A call that only the primary may make. A former one is it again if whoever took the switch has left."""
        try:
            self._call(name, request, timeout)
        except EntityError as error:
            if self._election is None or error.code != "PERMISSION_DENIED" or error.update is not None:
                raise
            try:
                self._arbitrate(None)
            except EntityError:
                raise error from None
            request.election_id.CopyFrom(self._election)
            self._call(name, request, timeout)

    def _call(self, name: str, request: Message, timeout: float) -> Any:
        method = self._channel.unary_unary(
            SERVICE + name, type(request).SerializeToString, getattr(p4, f"{name}Response").FromString
        )
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            raise self._failure(error) from None

    def _failure(self, error: Any) -> Exception:
        """The exception for an RPC's status; of a batch, its first error."""
        failures = batch_failures(error, Status, p4.Error)
        failed = {i: item for i, item in failures.items() if item.canonical_code != CODES["ABORTED"]}
        return _BatchFailed(failed) if failed else failure(error, self.address)


class _Stream:
    """A StreamChannel, of which only answers to arbitration are read."""

    def __init__(self, channel: grpc.Channel):
        self._requests: queue.SimpleQueue[p4.StreamMessageRequest | None] = queue.SimpleQueue()
        method = channel.stream_stream(
            SERVICE + "StreamChannel", p4.StreamMessageRequest.SerializeToString, p4.StreamMessageResponse.FromString
        )
        self._call: Any = method(iter(self._requests.get, None))

    def arbitrate(self, device_id: int, election: int | None) -> p4.MasterArbitrationUpdate:
        """The answer to an election id. Raises grpc.RpcError; StopIteration: the switch has ended the stream."""
        update = p4.MasterArbitrationUpdate(device_id=device_id, election_id=None if election is None else _message(election))
        self._requests.put(p4.StreamMessageRequest(arbitration=update))
        while not (message := next(self._call)).HasField("arbitration"):
            pass
        return cast("p4.MasterArbitrationUpdate", message.arbitration)

    @property
    def alive(self) -> bool:
        return bool(self._call.is_active())

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()


def _message(election: int) -> p4.Uint128:
    return p4.Uint128(high=election >> 64, low=election & (1 << 64) - 1)


def _number(election: p4.Uint128) -> int:
    return int(election.high << 64 | election.low)


class _BatchFailed(EntityError):
    """A batch that failed. `updates`: indices of those that failed; text, code and index are the first one's."""

    def __init__(self, failed: dict[int, p4.Error]):
        first = min(failed)
        super().__init__(f"update {first}: {failed[first].message}", code_name(failed[first].canonical_code), first)
        self.updates = set(failed)


def _inverse(update: Update, before: Entity | None) -> Update | None:
    """The update that undoes `update`, which replaced the entity `before`; None: it cannot be undone."""
    if update.type == "INSERT":
        return Update("DELETE", update.entity)
    return Update("INSERT" if update.type == "DELETE" else "MODIFY", before) if before is not None else None
