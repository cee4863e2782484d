"""Calls of a BFRuntime server: subscribe, write and read rows of a program.

Every request names its program, so the client binds to none: Intel's driver lets one client bind to a program, and any number
name it (open-p4studio, bf_rt_server_impl.cpp, Write and Read). So `ina deploy` can run while a controller is connected.

A batch of rows is one Write; the server makes each change that it can and returns an error for each of the others. `write` then
undoes the changes that were made (deletes inserted rows, restores others as they were read before) and raises the first failure,
so that a batch is applied whole or not at all, even by a server without transactions.
"""

from __future__ import annotations

import queue
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from ina.base.extras import extra
from ina.p4.runtime import Closing

with extra("p4runtime"):
    import grpc
    from google.protobuf.message import Message

from ina.p4.bfrt.description import SERVICE
from ina.p4.bfrt.entities import of_row
from ina.p4.bfrt.info import MATCH_TABLES, Info
from ina.p4.bfrt.messages import Status, bfrt
from ina.p4.bfrt.rows import Change, Row, inverse, message_of, row_of
from ina.p4.rpc.connections import Access
from ina.p4.rpc.errors import await_server, batch_failures, code_name, failure
from ina.p4.runtime import EntityError, Match, TableEntry

ALL_PIPES = 0xFFFF
ANY = 0xFF  # direction and parser
BATCH = 1000  # rows a Write
MANY = 16  # rows of a table that are read one by one
CALL = 60.0  # seconds at least that a call waits for its answer: the server is there, and may be busy


class WriteFailed(EntityError):
    """`update`: index of the first change that was refused; `failed`: code and message of each one, by index."""

    def __init__(self, changes: Sequence[Change], failed: dict[int, tuple[str, str]]):
        first = min(failed)
        code, message = failed[first]
        type_, row = changes[first]
        super().__init__(f"{type_.lower()} {row}: {message or code}", code, first)
        self.failed = failed


class Client(Closing):
    """A connection to the server at `address` (HOST:PORT) for the program `program` (default: the first that the device runs).
    `client_id` (default: a random number) serves one connection at a time; a driver takes it as in use until it learns that the
    connection has ended.

    Raises TimeoutError: no server within `timeout` s; EntityError: it refuses; OSError: there are no certificates (`access`).
    """

    def __init__(self, address: str, client_id: int | None = None, device_id: int = 0, program: str = "", *,
                 timeout: float = 30.0, access: Access | None = None):
        self.address, self.device_id, self.timeout, self.patience = address, device_id, timeout, max(timeout, CALL)
        self.client_id = secrets.randbelow(1 << 31) + 1 if client_id is None else client_id
        self._requests: queue.SimpleQueue[bfrt.StreamMessageRequest | None] = queue.SimpleQueue()
        self._access = access or Access()
        self._channel = self._access.connect(address, [
            ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.max_metadata_size", 1 << 24),
        ])
        try:
            await_server(self._channel, timeout, f"no BFRuntime server answers at {address} within {timeout:g} s: is the driver "
                         f"(bf_switchd) or `ina switch run --bfrt` up, and the port reachable?{self._access.hint(address)}")
            self._subscribe()
            self.program, self.info = self._programs(program)
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """True until the client learns that the connection is lost."""
        return bool(self._stream.is_active())

    def close(self) -> None:
        self._requests.put(None)
        self._channel.close()

    # ---- session

    def _subscribe(self) -> None:
        call = self._channel.stream_stream(f"{SERVICE}StreamChannel", bfrt.StreamMessageRequest.SerializeToString,
                                           bfrt.StreamMessageResponse.FromString)
        request = bfrt.StreamMessageRequest(client_id=self.client_id)
        request.subscribe.device_id = self.device_id
        self._requests.put(request)
        self._stream = call(iter(self._requests.get, None))
        try:
            # The stream lives as long as the connection, so it takes no deadline of gRPC.
            status = self._first(self._stream).subscribe.status
        except grpc.RpcError as error:
            raise failure(error, self.address) from None
        if status.code:
            raise EntityError(
                f"{self.address}: client {self.client_id} cannot subscribe: {status.message}", code_name(status.code)
            )

    def _first(self, stream: Iterator[bfrt.StreamMessageResponse]) -> bfrt.StreamMessageResponse:
        answer: queue.SimpleQueue[bfrt.StreamMessageResponse | Exception] = queue.SimpleQueue()

        def receive() -> None:
            try:
                answer.put(next(stream))
                for _ in stream:  # notifications: ignored, none are enabled
                    pass
            except (grpc.RpcError, StopIteration) as error:
                answer.put(error)

        threading.Thread(target=receive, name="bfrt-stream", daemon=True).start()
        try:
            response = answer.get(timeout=self.timeout)
        except queue.Empty:
            raise TimeoutError(f"{self.address} does not answer a subscription within {self.timeout:g} s") from None
        if isinstance(response, StopIteration):
            raise EntityError(f"{self.address} ended the stream of client {self.client_id}", "UNAVAILABLE")
        if isinstance(response, Exception):
            raise response
        return response

    def _programs(self, program: str) -> tuple[str, Info]:
        request = bfrt.GetForwardingPipelineConfigRequest(device_id=self.device_id, client_id=self.client_id)
        response = self._call("GetForwardingPipelineConfig", request)
        names = [c.p4_name for c in response.config]
        for config in response.config:
            if program in ("", config.p4_name):
                return config.p4_name, Info(config.bfruntime_info, response.non_p4_config.bfruntime_info)
        if not names:
            raise EntityError(f"{self.address}: device {self.device_id} runs no program", "FAILED_PRECONDITION")
        raise EntityError(
            f"{self.address}: device {self.device_id} does not run {program!r}; it runs {', '.join(names)}", "NOT_FOUND"
        )

    # ---- rows

    def write(self, changes: Iterable[Change]) -> None:
        """Makes all changes in order, or none. Raises WriteFailed, EntityError, TimeoutError."""
        changes = list(changes)
        before = self._before(changes)
        indices: list[int] = []
        try:
            for at in range(0, len(changes), BATCH):
                failed = self._write(changes[at : at + BATCH])
                indices += [at + i for i in range(len(changes[at : at + BATCH])) if i not in failed]
                if failed:
                    raise WriteFailed(changes, {at + i: cause for i, cause in failed.items()})
        except (EntityError, TimeoutError):
            with suppress(EntityError, TimeoutError):  # the first error is the one to report
                self._write([reverse for i in reversed(indices) if (reverse := inverse(changes[i], before[i])) is not None])
            raise

    def _write(self, changes: Sequence[Change]) -> dict[int, tuple[str, str]]:
        """Code and message of each refused change, by its index."""
        if not changes:
            return {}
        request = bfrt.WriteRequest(client_id=self.client_id, p4_name=self.program, target=self._target())
        for i, (type_, row) in enumerate(changes):
            update = request.updates.add(type=bfrt.Update.Type.Value(type_))
            try:
                update.entity.table_entry.CopyFrom(message_of(row, self.info))
            except EntityError as error:
                raise EntityError(str(error), error.code, i) from None
        try:
            self._method("Write")(request, timeout=self.patience)
        except grpc.RpcError as error:
            failed = _details(error)
            if failed:
                return failed
            raise failure(error, self.address) from None
        return {}

    def _before(self, changes: Sequence[Change]) -> list[Row | None]:
        """The row that each change replaces. Reads all rows of a table at once if many of them change."""
        counts = Counter(row.table for type_, row in changes if type_ != "INSERT" and not row.is_default)
        rows: dict[str, dict[tuple[frozenset[tuple[str, Match]], int], Row]] = {}
        for name, count in counts.items():
            if count > MANY and self.info.table(name).kind in MATCH_TABLES:
                rows[name] = {self._signature(row): row for row in self.read([Row(name)])}
        return [
            rows[row.table].get(self._signature(row)) if row.table in rows and type_ != "INSERT" and not row.is_default
            else self._row_before((type_, row)) for type_, row in changes
        ]

    def _signature(self, row: Row) -> tuple[frozenset[tuple[str, Match]], int]:
        """A value that is equal for all forms of one key."""
        entry = of_row(row_of(message_of(Row(row.table, row.key), self.info), self.info), self.info)
        assert isinstance(entry, TableEntry)  # MATCH_TABLES have no others
        return frozenset(entry.match.items()), entry.priority

    def _row_before(self, change: Change) -> Row | None:
        type_, row = change
        if type_ == "INSERT":
            return None
        try:
            return next(iter(self.read([Row(row.table, row.key, is_default=row.is_default)])), None)
        except EntityError:
            return None

    def read(self, patterns: Sequence[Row], hardware: bool = True) -> list[Row]:
        """The row of each pattern with a key; for one without, all rows of its table (or the default). Raises EntityError."""
        request = bfrt.ReadRequest(client_id=self.client_id, p4_name=self.program, target=self._target())
        for pattern in patterns:
            message = message_of(Row(pattern.table, pattern.key, is_default=pattern.is_default), self.info)
            message.table_flags.from_hw = hardware
            request.entities.add().table_entry.CopyFrom(message)
        call = self._channel.unary_stream(f"{SERVICE}Read", bfrt.ReadRequest.SerializeToString, bfrt.ReadResponse.FromString)
        try:
            return [
                row_of(e.table_entry, self.info) for response in call(request, timeout=self.patience) for e in response.entities
            ]
        except grpc.RpcError as error:
            failed = _details(error)
            if failed:
                i, (code, text) = min(failed.items())
                raise EntityError(f"{patterns[i].table}: {text or code}", code, i) from None
            raise failure(error, self.address) from None

    def matching(self, pattern: Row) -> list[Row]:
        """The rows that match; none where the server answers NOT_FOUND."""
        try:
            return self.read([pattern])
        except EntityError as error:
            if error.code == "NOT_FOUND":
                return []
            raise

    def _target(self) -> bfrt.TargetDevice:
        return bfrt.TargetDevice(device_id=self.device_id, pipe_id=ALL_PIPES, direction=ANY, prsr_id=ANY)

    # ---- calls

    def _method(self, name: str) -> Any:
        serialize, parse = getattr(bfrt, f"{name}Request").SerializeToString, getattr(bfrt, f"{name}Response").FromString
        return self._channel.unary_unary(SERVICE + name, serialize, parse)

    def _call(self, name: str, request: Message) -> Any:
        try:
            return self._method(name)(request, timeout=self.patience)
        except grpc.RpcError as error:
            raise failure(error, self.address) from None


def _details(error: Any) -> dict[int, tuple[str, str]]:
    """The failures of a batch, by number: code and message."""
    return {i: (code_name(one.canonical_code), one.message) for i, one in batch_failures(error, Status, bfrt.Error).items()}
