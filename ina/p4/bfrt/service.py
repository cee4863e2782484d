"""The gRPC server of BFRuntime for an embedded switch (Device).

A client subscribes on a stream of its own, then binds to the program; reads and writes of an unbound client name the program.
One client can be bound at a time. A batch that fails ends with UNKNOWN and one bfrt_proto.Error for each item in the trailers, as
the published clients expect. Digests and time-outs go to clients that asked for them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar

from ina.base import documents
from ina.base.extras import extra
from ina.p4.runtime import Closing

with extra("p4runtime"):
    import grpc

from ina.p4.bfrt.client import ALL_PIPES, ANY
from ina.p4.bfrt.description import PACKAGE
from ina.p4.bfrt.device import Device
from ina.p4.bfrt.info import Action
from ina.p4.bfrt.messages import Status, bfrt
from ina.p4.bfrt.missing_keys import Absent
from ina.p4.bfrt.rows import Row, Where, message_of, row_of
from ina.p4.rpc.connections import OPTIONS, Access
from ina.p4.rpc.errors import CODES, abort, check_enums
from ina.p4.runtime import Digest, EntityError

log = logging.getLogger(__name__)
T = TypeVar("T")

ENTITIES = 1000  # of a response
STREAMS = 64
PERIOD = 0.01  # s between checks for digests and idle notices
WAITS = 100  # updates, or reads, between checks whether the client still waits for the answer
WAITING = 10_000  # messages for a client that does not read


@dataclass(eq=False)
class Stream:
    """One client's stream: `messages` to send, None ends it; `notifications`: its Subscribe.Notifications."""

    client: int
    notifications: bfrt.Subscribe.Notifications
    messages: queue.Queue[bfrt.StreamMessageResponse | None] = field(default_factory=lambda: queue.Queue(WAITING))

    def offer(self, message: bfrt.StreamMessageResponse) -> None:
        try:
            self.messages.put_nowait(message)
        except queue.Full:
            log.warning("client %d reads too slowly: a message was dropped", self.client)

    def end(self) -> None:
        """Ends the stream at once, without waiting for a client that does not read."""
        while True:
            try:
                self.messages.put_nowait(None)
                return
            except queue.Full:
                with contextlib.suppress(queue.Empty):
                    self.messages.get_nowait()


class Server(Closing):
    """Serves `device` (Device) at `address` (HOST:PORT, port 0: any that is free; unix:PATH), to clients that `access` admits.
    `device` may be a function without arguments that returns the current device, or None while no program runs."""

    def __init__(self, device: Device | Callable[[], Device | None], address: str = "127.0.0.1:0", access: Access | None = None):
        self._device = device if callable(device) else lambda: device
        self._lock = threading.RLock()
        self._streams: dict[int, Stream] = {}
        self._bound: dict[int, str] = {}
        self._opening = 0  # streams whose clients have not subscribed yet
        self._lists = 0
        self._closed = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(STREAMS + 8, thread_name_prefix="bfrt"),
                                   options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
                                            *OPTIONS])
        unary, answers, streams = (grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler,
                                   grpc.stream_stream_rpc_method_handler)
        handlers = {
            name: kind(call, getattr(bfrt, f"{message}Request").FromString, getattr(bfrt, f"{message}Response").SerializeToString)
            for name, message, kind, call in (
                ("Write", "Write", unary, self._write), ("Read", "Read", answers, self._read),
                ("SetForwardingPipelineConfig", "SetForwardingPipelineConfig", unary, self._set_pipeline),
                ("GetForwardingPipelineConfig", "GetForwardingPipelineConfig", unary, self._get_pipeline),
                ("StreamChannel", "StreamMessage", streams, self._stream),
            )
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"{PACKAGE}.BfRuntime", handlers),))
        self.address = (access or Access()).serve(self._server, address)
        self._server.start()
        self._watcher = threading.Thread(target=self._watch, name="bfrt-digests", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        self._closed.set()
        with self._lock:
            for stream in self._streams.values():
                stream.end()
        self._server.stop(1).wait(60)
        self._watcher.join(60)

    close = stop

    # ---- calls

    def _current(self, device_id: int = 0) -> Device:
        device = self._device()
        if device is None:
            raise EntityError("the device runs no program", "FAILED_PRECONDITION")
        if device_id != device.device_id:
            raise EntityError(f"no device {device_id}: this is device {device.device_id}", "NOT_FOUND")
        return device

    def _device_of(self, request: bfrt.WriteRequest | bfrt.ReadRequest) -> Device:
        """The device, for a client that is bound to its program or names it."""
        device = self._current(request.target.device_id)
        with self._lock:
            name = request.p4_name or self._bound.get(request.client_id, "")
        if not name:
            raise EntityError(f"client {request.client_id} is bound to no program: bind it with SetForwardingPipelineConfig, or "
                              "give p4_name", "FAILED_PRECONDITION")
        if name != device.name:
            raise EntityError(f"program {name!r} does not run here: it is {device.name!r}", "NOT_FOUND")
        return device

    def _guarded(self, context: grpc.ServicerContext, call: Callable[[], T]) -> T:
        try:
            return call()
        except EntityError as error:
            abort(context, error.code, str(error))
        except TimeoutError as error:
            abort(context, "DEADLINE_EXCEEDED", str(error))
        except Exception as error:
            log.exception("a call failed")
            abort(context, "INTERNAL", f"{type(error).__name__}: {error}")

    def _write(self, request: bfrt.WriteRequest, context: grpc.ServicerContext) -> bfrt.WriteResponse:
        device = self._guarded(context, lambda: self._device_of(request))
        self._guarded(context, lambda: check_enums(request, skip="updates"))
        atomic = request.atomicity != bfrt.WriteRequest.CONTINUE_ON_ERROR
        metadata = _metadata(context)
        is_waiting = self._is_waiting(context, metadata)
        with self._lock, device.switch.batch():  # in this order, as everywhere
            errors = self._updates(device, request, atomic, metadata.get("ignore_not_found") == "1", is_waiting)
        if len(errors) < len(request.updates) and not any(e.canonical_code for e in errors):
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"{len(errors)} of {len(request.updates)} updates were made in time")
        if any(e.canonical_code for e in errors):  # whatever the metadata: clients look for the failure there
            _abort(context, errors)
        return bfrt.WriteResponse(status=errors if {"error_in_resp", "ignore_not_found"} & metadata.keys() else ())

    def _is_waiting(self, context: grpc.ServicerContext, metadata: dict[str, str]) -> Callable[[], bool]:
        """Returns a function that tells whether the client still waits for the answer, and the server runs."""
        deadline = self._deadline(metadata)
        return lambda: (context.is_active() and not self._closed.is_set()
                        and (deadline is None or time.monotonic() < deadline))

    @staticmethod
    def _deadline(metadata: dict[str, str]) -> float | None:
        """The client's deadline, from the seconds and nanoseconds that published clients send; None: it sets none."""
        try:
            seconds = float(metadata.get("deadline_sec", 0)) + float(metadata.get("deadline_nsec", 0)) / 1e9
        except ValueError:
            return None
        return time.monotonic() + seconds if seconds else None

    def _updates(
        self, device: Device, request: bfrt.WriteRequest, atomic: bool, ignore_not_found: bool, is_waiting: Callable[[], bool]
    ) -> list[bfrt.Error]:
        """Makes the updates in order while the client waits; returns the bfrt.Error of each."""
        errors: list[bfrt.Error] = []
        undo: list[tuple[str, Row, Where]] = []
        for number, update in enumerate(request.updates):
            if number % WAITS == 0 and not is_waiting():
                break
            try:
                errors.append(self._update(device, update, request.target, undo if atomic else None))
            except Exception as error:  # any input of one item: the others still get their answers
                errors.append(_error(error))
            if ignore_not_found and errors[-1].canonical_code == CODES["NOT_FOUND"]:  # then `code` reports it
                kind = device.info.table(update.entity.table_entry.table_id).kind  # of $PORT the published driver returns no code
                code = 0 if kind == "PortConfigure" else CODES["NOT_FOUND"]
                errors[-1] = bfrt.Error(code=code, message=errors[-1].message)
            if atomic and errors[-1].canonical_code:
                for type_, row, where in reversed(undo):
                    try:
                        device.write(type_, row, where)
                    except EntityError as error:  # still undo the rest
                        log.warning("an update could not be taken back: %s", error)
                break  # items after it get no status, those before it have theirs: as the published server does
        return errors

    def _update(
        self, device: Device, update: bfrt.Update, target: bfrt.TargetDevice, undo: list[tuple[str, Row, Where]] | None
    ) -> bfrt.Error:
        """Makes an update; returns its bfrt.Error, whose `code` tells if it modified an entry instead."""
        check_enums(update)
        kind = update.entity.WhichOneof("entity")
        if kind == "table_operation":
            operation = update.entity.table_operation
            device.operate(device.info.table(operation.table_id), operation.table_operations_type)
            return bfrt.Error()
        if kind == "table_attribute":
            device.attributes.write(update.entity.table_attribute, _where(None, target))
            return bfrt.Error()
        if kind != "table_entry":
            raise EntityError(f"{kind or 'an empty entity'} cannot be written", "UNIMPLEMENTED")
        entry = update.entity.table_entry
        type_ = bfrt.Update.Type.Name(update.type)
        row = row_of(entry, device.info)
        values = {name: value if isinstance(value, tuple) else (value,) for name, value in row.data.items()}
        if empty := next((name for name, parts in values.items() if None in parts), ""):
            raise EntityError(f"table {row.table}, field {empty}: without a value: only a Read asks so")
        if type_ == "MODIFY_INC" and (entry.table_flags.mod_del or entry.table_mod_inc_flag.type):
            type_ = "MODIFY_DEC"
        where = _where(entry, target)
        inverse = [(*change, where) for change in device.inverse(type_, row, where)] if undo is not None else []
        modified = False
        try:
            device.write("INSERT" if type_ == "INSERT_OR_MODIFY" else type_, row, where)
        except EntityError as error:
            if type_ != "INSERT_OR_MODIFY" or error.code != "ALREADY_EXISTS":
                raise
            device.write(type_, row, where)
            modified = True
        if undo is not None:
            undo += inverse
        return bfrt.Error(code=CODES["ALREADY_EXISTS"], message="it was there, and is modified") if modified else bfrt.Error()

    def _read(self, request: bfrt.ReadRequest, context: grpc.ServicerContext) -> Iterator[bfrt.ReadResponse]:
        device = self._guarded(context, lambda: self._device_of(request))
        entities: list[bfrt.Entity] = []
        errors: list[bfrt.Error] = []
        metadata = _metadata(context)
        absent = Absent(device, _where(None, request.target))
        is_waiting = self._is_waiting(context, metadata)
        for number, entity in enumerate(request.entities):
            if number % WAITS == 0 and not is_waiting():
                context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"{number} of {len(request.entities)} reads were made in time")
            if entity.HasField("table_entry") and (error := absent.error(entity.table_entry)) is not None:
                errors.append(error)
                continue
            try:
                entities += self._answers(device, entity, request.target)
                errors.append(bfrt.Error())
            except Exception as error:  # any input of one item: the others still get their answers
                errors.append(_error(error))
        in_response = metadata.get("error_in_resp") == "1"
        failed = any(e.canonical_code for e in errors)
        for at in range(0, len(entities), ENTITIES):
            yield bfrt.ReadResponse(entities=entities[at : at + ENTITIES])
        if failed and not in_response:
            _abort(context, errors)
        elif in_response:
            yield bfrt.ReadResponse(status=errors)

    def _answers(self, device: Device, entity: bfrt.Entity, target: bfrt.TargetDevice) -> list[bfrt.Entity]:
        check_enums(entity)
        kind = entity.WhichOneof("entity")
        if kind == "table_entry":
            entry = entity.table_entry
            pattern = row_of(entry, device.info)
            table = device.info.table(pattern.table)
            names = {
                table.field(f.field_id, table.action(pattern.action) if pattern.action else None).name for f in entry.data.fields
            }
            where = _where(entry, target, entry.table_flags.from_hw or entry.table_read_flag.from_hw)
            by_handle = entry.WhichOneof("value") == "handle_id"
            rows = device.read_handle(table, entry.handle_id, where) if by_handle else device.read(
                Row(pattern.table, pattern.key, is_default=pattern.is_default), where)
            if pattern.action and not pattern.is_default:  # only entries of this action
                rows, all_rows = [row for row in rows if row.action in ("", pattern.action)], rows
                if all_rows and not rows and (pattern.key or entry.handle_id):
                    raise EntityError(f"table {table.name}: the entry's action is {all_rows[0].action}, not {pattern.action}")
            if names:
                rows = [replace(row, data={k: v for k, v in row.data.items() if k in names}) for row in rows]
            return [bfrt.Entity(table_entry=message_of(row, device.info)) for row in rows]
        if kind == "table_usage":
            table = device.info.table(entity.table_usage.table_id)
            return [bfrt.Entity(table_usage=bfrt.TableUsage(table_id=table.id, usage=device.usage(table)))]
        if kind == "table_attribute":
            return [device.attributes.read(entity.table_attribute, _where(None, target))]
        if kind == "handle":
            table = device.info.table(entity.handle.table_id)
            row = row_of(bfrt.TableEntry(table_id=table.id, key=entity.handle.key), device.info)
            handle = bfrt.HandleId(table_id=table.id, handle_id=device.handle(row, _where(None, target)))
            return [bfrt.Entity(handle=handle)]
        if kind == "object_id":
            return [_object_id(device, entity.object_id)]
        raise EntityError(f"{kind or 'an empty entity'} cannot be read", "UNIMPLEMENTED")

    # ---- pipelines

    def _set_pipeline(
        self, request: bfrt.SetForwardingPipelineConfigRequest, context: grpc.ServicerContext
    ) -> bfrt.SetForwardingPipelineConfigResponse:
        def set_pipeline() -> bfrt.SetForwardingPipelineConfigResponse:
            check_enums(request)
            device = self._current(request.device_id)
            action = bfrt.SetForwardingPipelineConfigRequest.Action.Name(request.action)
            if action not in ("BIND", "VERIFY"):
                raise EntityError(f"{action}: this switch is started with its program, which is not replaced while it runs: it "
                                  "takes BIND and VERIFY", "UNIMPLEMENTED")
            if len(request.config) != 1:
                raise EntityError(f"{action} with {len(request.config)} programs: expected one")
            if request.config[0].p4_name != device.name:
                raise EntityError(f"program {request.config[0].p4_name!r} does not run here: it is {device.name!r}", "NOT_FOUND")
            if action == "VERIFY":
                self._verify(device, request.config[0])
                return bfrt.SetForwardingPipelineConfigResponse()
            with self._lock:
                if request.client_id not in self._streams:
                    raise EntityError(
                        f"client {request.client_id} has not subscribed: open a StreamChannel first", "FAILED_PRECONDITION"
                    )
                owner = next((client for client in self._bound if client != request.client_id), None)
                if owner is not None:
                    raise EntityError(f"client {request.client_id}: client {owner} owns this program already: name it in each "
                                      "request (p4_name) instead", "ALREADY_EXISTS")
                self._bound[request.client_id] = device.name
            return bfrt.SetForwardingPipelineConfigResponse()

        return self._guarded(context, set_pipeline)

    @staticmethod
    def _verify(device: Device, config: bfrt.ForwardingPipelineConfig) -> None:
        """Raises EntityError: the client's tables are not those of the running program."""
        try:
            tables = {str(t["name"]): t["id"] for t in documents.json_text(config.bfruntime_info or b"{}")["tables"]}
        except documents.Unreadable as error:
            raise EntityError(f"VERIFY: bfruntime_info: {error}") from None
        except (KeyError, TypeError):
            raise EntityError("VERIFY: bfruntime_info is no bfrt.json with tables") from None
        here = {t["name"]: t["id"] for t in json.loads(device.program_json)["tables"]}
        other = sorted(name for name in tables.keys() | here.keys() if tables.get(name) != here.get(name))
        if other:
            raise EntityError(f"VERIFY: table {other[0]} is not as it is in {device.name}, which runs here")

    def _get_pipeline(
        self, request: bfrt.GetForwardingPipelineConfigRequest, context: grpc.ServicerContext
    ) -> bfrt.GetForwardingPipelineConfigResponse:
        def get_pipeline() -> bfrt.GetForwardingPipelineConfigResponse:
            device = self._current(request.device_id)
            response = bfrt.GetForwardingPipelineConfigResponse()
            response.config.add(p4_name=device.name, bfruntime_info=device.program_json)
            response.non_p4_config.bfruntime_info = device.fixed_json
            return response

        return self._guarded(context, get_pipeline)

    # ---- streams

    def _stream(
        self, requests: Iterator[bfrt.StreamMessageRequest], context: grpc.ServicerContext
    ) -> Iterator[bfrt.StreamMessageResponse]:
        with self._lock:
            full = len(self._streams) + self._opening >= STREAMS
            self._opening += not full
        if full:  # each holds a thread, even before its client subscribes
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{STREAMS} streams are open, the most that are served")
        stream, answer = None, None
        try:
            for request in requests:  # a refused client may try again: published clients do, five times
                if request.WhichOneof("update") != "subscribe":
                    break
                stream, answer = self._subscribe(request)
                if stream is not None:
                    break
                yield answer
        finally:
            with self._lock:
                self._opening -= 1
        if stream is None or answer is None:
            if answer is not None:
                return  # its client has given up
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a stream begins with a subscription")
            return  # unreached: abort raises
        if not context.add_callback(stream.end):
            stream.end()
        threading.Thread(target=self._receive, args=(stream, requests, answer), name="bfrt-stream", daemon=True).start()
        try:
            yield answer
            while (message := stream.messages.get()) is not None:
                yield message
        finally:
            with self._lock:
                self._streams.pop(stream.client, None)
                self._bound.pop(stream.client, None)

    def _subscribe(self, request: bfrt.StreamMessageRequest) -> tuple[Stream | None, bfrt.StreamMessageResponse]:
        """The client's stream (None: it gets none), and the answer."""
        stream = Stream(request.client_id, request.subscribe.notifications)
        answer = bfrt.StreamMessageResponse(subscribe=request.subscribe)
        device = self._device()
        with self._lock:
            self._digests_so_far(device)
            if device is not None and request.subscribe.device_id != device.device_id:
                answer.subscribe.status.code = CODES["NOT_FOUND"]
                answer.subscribe.status.message = f"no device {request.subscribe.device_id}: this is device {device.device_id}"
            elif request.client_id in self._streams:
                answer.subscribe.status.code = CODES["INVALID_ARGUMENT"]
                answer.subscribe.status.message = f"client id {request.client_id} is in use"
            else:
                self._streams[request.client_id] = stream
                return stream, answer
        return None, answer

    def _receive(
        self, stream: Stream, requests: Iterator[bfrt.StreamMessageRequest], answer: bfrt.StreamMessageResponse
    ) -> None:
        try:
            for request in requests:
                if request.WhichOneof("update") == "subscribe":  # again: the client timed out before the answer
                    with self._lock:
                        self._digests_so_far(self._device())
                        stream.notifications = request.subscribe.notifications
                    stream.offer(answer)
        except Exception as error:  # gRPC ends the requests of a call that is over with a plain Exception
            log.debug("client %d: %s", stream.client, error)
        stream.end()

    def _watch(self) -> None:
        """Sends digests and idle notices to clients; runs in a thread of its own."""
        while not self._closed.wait(PERIOD):
            device = self._device()
            if device is None:
                continue
            try:
                if self._listeners("learn"):
                    self._notify_digests(device)
                self._notify_idle(device)
            except RuntimeError:  # the switch is closing
                continue

    def _listeners(self, kind: str) -> list[Stream]:
        with self._lock:
            return [s for s in self._streams.values() if getattr(s.notifications, f"enable_{kind}_notifications")]

    def _notify(self, kind: str, message: bfrt.StreamMessageResponse) -> None:
        for stream in self._listeners(kind):
            stream.offer(message)

    def _notify_digests(self, device: Device) -> None:
        if not device.info.learns:
            return
        with self._lock:  # until they are sent: who subscribes meanwhile gets none of them
            digests, lost = device.switch.digests()
            if lost and self._listeners("learn"):
                log.warning("%d digests were overwritten before they were read", lost)
            for digest in digests:
                self._notify("learn", self._digest(device, digest))

    def _digests_so_far(self, device: Device | None) -> None:
        """Gives the digests of packets so far to those who listen, before somebody else does."""
        if device is not None:
            with contextlib.suppress(RuntimeError):  # the switch is closing
                self._notify_digests(device)

    def _notify_idle(self, device: Device) -> None:
        with self._lock:
            notices = list(device.idle.sweep(device.clock()))
        for notice in notices:
            message = bfrt.StreamMessageResponse()
            notification = message.idle_timeout_notification
            notification.target.device_id, notification.target.prsr_id, notification.target.direction = device.device_id, ANY, ANY
            notification.target.pipe_id = ALL_PIPES if notice.pipe is None else notice.pipe
            notification.table_entry.CopyFrom(message_of(Row(notice.row.table, notice.row.key), device.info))
            notification.type = notification.ENTRY_ACTIVE if notice.active else notification.ENTRY_IDLE
            self._notify("entry_active" if notice.active else "idletimeout", message)

    def _digest(self, device: Device, digest: Digest) -> bfrt.StreamMessageResponse:
        learn: Action = next(a for a in device.info.learns.values() if a.name.endswith(digest.name))
        self._lists += 1
        message = bfrt.DigestList(digest_id=learn.id, list_id=self._lists)
        message.target.pipe_id = digest.ingress_port >> 7
        data = message.data.add()
        for f in learn.fields:
            to, value = data.fields.add(field_id=f.id), digest.fields[f.name]
            if f.type == "bool":
                to.bool_val = bool(value)
            else:
                to.stream = value.to_bytes(f.bytes, "big")
        return bfrt.StreamMessageResponse(digest=message)


def _where(entry: bfrt.TableEntry | None, target: bfrt.TargetDevice, fresh: bool = True) -> Where:
    if entry is not None and entry.HasField("entry_tgt"):
        target = entry.entry_tgt
    all_but = ((target.pipe_id, ALL_PIPES - 1), (target.direction, 1), (target.prsr_id, ANY - 1))
    pipe, direction, parser = (None if number > last else number for number, last in all_but)
    return Where(pipe, direction, parser, fresh)


def _metadata(context: grpc.ServicerContext) -> dict[str, str]:
    """The call's metadata, without binary values."""
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


def _object_id(device: Device, request: bfrt.ObjectId) -> bfrt.Entity:
    if request.WhichOneof("object") != "table_object":
        learn = device.info.learns.get(request.learn_object.learn_name)
        if learn is None:
            raise EntityError(f"no digest {request.learn_object.learn_name!r}", "NOT_FOUND")
        return bfrt.Entity(object_id=bfrt.ObjectId(id=learn.id))
    names = request.table_object
    table = device.info.table(names.table_name)
    kind = names.WhichOneof("names")
    if kind == "action_name":
        number = table.action(names.action_name.action).id
    elif kind == "key_field_name":
        number = table.key(names.key_field_name.field).id
    elif kind == "data_field_name":
        action = table.action(names.data_field_name.action) if names.data_field_name.action else None
        number = table.field(names.data_field_name.field, action).id
    else:
        number = table.id
    return bfrt.Entity(object_id=bfrt.ObjectId(id=number))


def _error(error: Exception) -> bfrt.Error:
    if isinstance(error, EntityError):
        return bfrt.Error(canonical_code=CODES[error.code], message=str(error), space="ina")
    if not isinstance(error, (OSError, TimeoutError)):
        log.exception("an item of a call failed")
    return bfrt.Error(canonical_code=CODES["INTERNAL"], message=f"{type(error).__name__}: {error}", space="ina")


def _abort(context: grpc.ServicerContext, errors: list[bfrt.Error]) -> NoReturn:
    failed = [i for i, e in enumerate(errors) if e.canonical_code not in (0, CODES["ABORTED"])]
    first = failed[0]
    status = Status(code=CODES["UNKNOWN"])
    for error in errors:
        status.details.add().Pack(bfrt.Error(canonical_code=error.canonical_code, message=error.message[:400], space=error.space))
    abort(context, "UNKNOWN", f"number {first} of {len(errors)}: {errors[first].message}", status)
