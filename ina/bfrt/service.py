"""The gRPC server of BFRuntime before an embedded switch (Device).

A client subscribes on a stream of its own, then binds to the program; reads and writes of one that has not must name the program.
Unlike Intel's driver it lets several clients bind to one program. A batch that fails ends with UNKNOWN and one bfrt_proto.Error
for each item in the trailers, as the published clients expect. Digests go to clients that asked for them.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc

from ina.bfrt.client import CODES
from ina.bfrt.device import ALL_PIPES, Device
from ina.bfrt.info import Action
from ina.bfrt.messages import PACKAGE, Status, bfrt
from ina.bfrt.rows import Row, message_of, row_of
from ina.switch.p4info import EntityError

log = logging.getLogger(__name__)

NUMBERS = {name: number for number, name in CODES.items()}
ENTITIES = 1000  # of a response
STREAMS = 64
DIGEST_PERIOD = 0.01  # s between looks for digests
WAITING = 10_000  # messages for a client that does not read


@dataclass(eq=False)
class Stream:
    """One client's: what is to be sent to it; None ends it."""

    client: int
    learns: bool
    messages: queue.Queue[Any] = field(default_factory=lambda: queue.Queue(WAITING))

    def offer(self, message: Any) -> None:
        try:
            self.messages.put_nowait(message)
        except queue.Full:
            log.warning("client %d reads too slowly: a message was dropped", self.client)


class Server:
    """Serves `device` (Device) at `address` (HOST:PORT, port 0: any that is free). `device` may be a function of no arguments
    that gives the device of the moment, or None while no program runs."""

    def __init__(self, device: Device | Callable[[], Device | None], address: str = "127.0.0.1:0"):
        self._device = device if callable(device) else lambda: device
        self._lock = threading.RLock()
        self._streams: dict[int, Stream] = {}
        self._bound: dict[int, str] = {}
        self._lists = 0
        self._closed = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(STREAMS + 8, thread_name_prefix="bfrt"),
                                   options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
                                            ("grpc.so_reuseport", 0)])  # fmt: skip
        unary, answers, streams = (grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler,
                                   grpc.stream_stream_rpc_method_handler)  # fmt: skip
        handlers = {
            name: kind(call, getattr(bfrt, f"{message}Request").FromString, getattr(bfrt, f"{message}Response").SerializeToString)
            for name, message, kind, call in (
                ("Write", "Write", unary, self._write), ("Read", "Read", answers, self._read),
                ("SetForwardingPipelineConfig", "SetForwardingPipelineConfig", unary, self._set_pipeline),
                ("GetForwardingPipelineConfig", "GetForwardingPipelineConfig", unary, self._get_pipeline),
                ("StreamChannel", "StreamMessage", streams, self._stream),
            )
        }  # fmt: skip
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"{PACKAGE}.BfRuntime", handlers),))
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError:
            port = 0
        if not port:
            raise OSError(f"BFRuntime cannot be served at {address}: is the port taken, or the address another machine's?")
        self.address = address if address.startswith("unix") else f"{address.rpartition(':')[0]}:{port}"
        self._server.start()
        self._watcher = threading.Thread(target=self._watch, name="bfrt-digests", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        self._closed.set()
        with self._lock:
            for stream in self._streams.values():
                stream.messages.put(None)
        self._server.stop(1).wait(5)
        self._watcher.join(5)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- calls

    def _current(self, device_id: int = 0) -> Device:
        device = self._device()
        if device is None:
            raise EntityError("the device runs no program", "FAILED_PRECONDITION")
        if device_id != device.device_id:
            raise EntityError(f"no device {device_id}: this is device {device.device_id}", "NOT_FOUND")
        return device

    def _named(self, request: Any) -> Device:
        """The device, for a client that is bound to its program or names it."""
        device = self._current(request.target.device_id)
        with self._lock:
            name = request.p4_name or self._bound.get(request.client_id, "")
        if not name:
            raise EntityError(f"client {request.client_id} is bound to no program: bind it with SetForwardingPipelineConfig, or "
                              "give p4_name", "FAILED_PRECONDITION")  # fmt: skip
        if name != device.name:
            raise EntityError(f"program {name!r} does not run here: it is {device.name!r}", "NOT_FOUND")
        return device

    def _guarded(self, context: Any, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except EntityError as error:
            context.abort(grpc.StatusCode[error.code], str(error))
        except TimeoutError as error:
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(error))
        except Exception as error:
            log.exception("a call failed")
            context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

    def _write(self, request: Any, context: Any) -> Any:
        device = self._guarded(context, lambda: self._named(request))
        atomic = request.atomicity != bfrt.WriteRequest.CONTINUE_ON_ERROR
        metadata = dict(context.invocation_metadata() or ())
        with device.switch.batch():
            errors = self._updates(device, request, atomic, metadata.get("ignore_not_found") == "1")
        if any(e.canonical_code for e in errors):  # whatever the metadata say: clients look for the failure there
            _abort(context, errors)
        return bfrt.WriteResponse(status=errors if {"error_in_resp", "ignore_not_found"} & metadata.keys() else ())

    def _updates(self, device: Device, request: Any, atomic: bool, ignore_not_found: bool) -> list[Any]:
        """Makes them in order; what became of each."""
        errors: list[Any] = []
        undo: list[tuple[str, Row]] = []
        for update in request.updates:
            try:
                with self._lock:
                    errors.append(self._update(device, update, request.target, undo if atomic else None))
            except EntityError as error:
                errors.append(_error(error.code, str(error)))
            except Exception as error:  # one item's, whatever a stranger sent: the others get their answers
                errors.append(_internal(error))
            if ignore_not_found and errors[-1].canonical_code == NUMBERS["NOT_FOUND"]:  # then `code` tells of it
                errors[-1] = bfrt.Error(code=NUMBERS["NOT_FOUND"], message=errors[-1].message)
            if atomic and errors[-1].canonical_code:
                for type_, row in reversed(undo):
                    device.write(type_, row)
                break  # those after it have no status, those before it have theirs: as the published server tells it
        return errors

    def _update(self, device: Device, update: Any, target: Any, undo: list[tuple[str, Row]] | None) -> Any:
        """Makes one; its bfrt.Error, whose `code` may say how."""
        kind = update.entity.WhichOneof("entity")
        if kind == "table_operation":
            operation = update.entity.table_operation
            table = device.info.table(operation.table_id)
            if operation.table_operations_type not in table.operations:
                raise EntityError(f"table {table.name} has no operation {operation.table_operations_type!r}; "
                                  f"it has: {', '.join(table.operations) or 'none'}")  # fmt: skip
            return bfrt.Error()  # reads always look at the data plane: there is nothing to synchronise
        if kind == "table_attribute":
            _check_attribute(device, update.entity.table_attribute)
            return bfrt.Error()
        if kind != "table_entry":
            raise EntityError(f"{kind or 'an empty entity'} cannot be written", "UNIMPLEMENTED")
        entry = update.entity.table_entry
        type_ = bfrt.Update.Type.Name(update.type)
        row = row_of(entry, device.info)
        if type_ == "MODIFY_INC" and (entry.table_flags.mod_del or entry.table_mod_inc_flag.type):
            type_ = "MODIFY_DEC"
        pipe = _pipe_of(entry, target)
        back = device.inverse(type_, row) if undo is not None else []
        modified = False
        try:
            device.write("INSERT" if type_ == "INSERT_OR_MODIFY" else type_, row, pipe)
        except EntityError as error:
            if type_ != "INSERT_OR_MODIFY" or error.code != "ALREADY_EXISTS":
                raise
            device.write(type_, row, pipe)
            modified = True
        if undo is not None:
            undo += back
        return bfrt.Error(code=NUMBERS["ALREADY_EXISTS"], message="it was there, and is modified") if modified else bfrt.Error()

    def _read(self, request: Any, context: Any) -> Iterator[Any]:
        device = self._guarded(context, lambda: self._named(request))
        found: list[Any] = []
        errors: list[Any] = []
        for entity in request.entities:
            try:
                found += self._answers(device, entity, request.target)
                errors.append(bfrt.Error())
            except EntityError as error:
                errors.append(_error(error.code, str(error)))
            except Exception as error:  # one item's, whatever a stranger sent: the others get their answers
                errors.append(_internal(error))
        in_response = dict(context.invocation_metadata() or ()).get("error_in_resp") == "1"
        failed = any(e.canonical_code for e in errors)
        for at in range(0, len(found), ENTITIES):
            yield bfrt.ReadResponse(entities=found[at : at + ENTITIES])
        if failed and not in_response:
            _abort(context, errors)
        elif in_response:
            yield bfrt.ReadResponse(status=errors)

    def _answers(self, device: Device, entity: Any, target: Any) -> list[Any]:
        kind = entity.WhichOneof("entity")
        if kind == "table_entry":
            entry = entity.table_entry
            asked = row_of(entry, device.info)
            table = device.info.table(asked.table)
            wanted = {
                table.field(f.field_id, table.action(asked.action) if asked.action else None).name for f in entry.data.fields
            }
            made = []
            for row in device.read(Row(asked.table, asked.key, is_default=asked.is_default), _pipe_of(entry, target)):
                data = {k: v for k, v in row.data.items() if not wanted or k in wanted}
                made.append(
                    bfrt.Entity(table_entry=message_of(Row(row.table, row.key, data, row.action, row.is_default), device.info))
                )
            return made
        if kind == "table_usage":
            table = device.info.table(entity.table_usage.table_id)
            return [bfrt.Entity(table_usage=bfrt.TableUsage(table_id=table.id, usage=device.usage(table)))]
        if kind == "table_attribute":
            return [_attribute(device, entity.table_attribute)]
        if kind == "object_id":
            return [_object_id(device, entity.object_id)]
        raise EntityError(f"{kind or 'an empty entity'} cannot be read", "UNIMPLEMENTED")

    # ---- pipelines

    def _set_pipeline(self, request: Any, context: Any) -> Any:
        def set_pipeline() -> Any:
            device = self._current(request.device_id)
            action = bfrt.SetForwardingPipelineConfigRequest.Action.Name(request.action)
            if action != "BIND":
                raise EntityError(f"{action}: this switch is started with its program; it only takes BIND", "UNIMPLEMENTED")
            if len(request.config) != 1:
                raise EntityError(f"BIND with {len(request.config)} programs: expected one")
            if request.config[0].p4_name != device.name:
                raise EntityError(f"program {request.config[0].p4_name!r} does not run here: it is {device.name!r}", "NOT_FOUND")
            with self._lock:
                if request.client_id not in self._streams:
                    raise EntityError(
                        f"client {request.client_id} has not subscribed: open a StreamChannel first", "FAILED_PRECONDITION"
                    )
                self._bound[request.client_id] = device.name
            return bfrt.SetForwardingPipelineConfigResponse()

        return self._guarded(context, set_pipeline)

    def _get_pipeline(self, request: Any, context: Any) -> Any:
        def get_pipeline() -> Any:
            device = self._current(request.device_id)
            response = bfrt.GetForwardingPipelineConfigResponse()
            response.config.add(p4_name=device.name, bfruntime_info=device.program_json)
            response.non_p4_config.bfruntime_info = device.fixed_json
            return response

        return self._guarded(context, get_pipeline)

    # ---- streams

    def _stream(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        first = next(iter(requests), None)
        if first is None or first.WhichOneof("update") != "subscribe":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a stream begins with a subscription")
        stream = Stream(first.client_id, first.subscribe.notifications.enable_learn_notifications)
        answer = bfrt.StreamMessageResponse(subscribe=first.subscribe)
        device = self._device()
        with self._lock:
            if device is not None and first.subscribe.device_id != device.device_id:
                answer.subscribe.status.code = NUMBERS["NOT_FOUND"]
                answer.subscribe.status.message = f"no device {first.subscribe.device_id}: this is device {device.device_id}"
            elif first.client_id in self._streams or len(self._streams) >= STREAMS:
                answer.subscribe.status.code = NUMBERS["ALREADY_EXISTS"]
                answer.subscribe.status.message = f"client id {first.client_id} is in use, or {STREAMS} clients are there"
            else:
                self._streams[first.client_id] = stream
        if answer.subscribe.status.code:
            yield answer
            return
        if not context.add_callback(lambda: stream.messages.put(None)):
            stream.messages.put(None)
        threading.Thread(target=self._receive, args=(stream, requests, answer), name="bfrt-stream", daemon=True).start()
        try:
            yield answer
            yield from iter(stream.messages.get, None)
        finally:
            with self._lock:
                self._streams.pop(stream.client, None)
                self._bound.pop(stream.client, None)

    @staticmethod
    def _receive(stream: Stream, requests: Iterator[Any], answer: Any) -> None:
        try:
            for request in requests:
                if request.WhichOneof("update") == "subscribe":  # again: a client that waited too short for the answer
                    stream.learns = request.subscribe.notifications.enable_learn_notifications
                    stream.offer(answer)
        except Exception as error:  # gRPC ends the requests of a call that is over with a plain Exception
            log.debug("client %d: %s", stream.client, error)
        stream.messages.put(None)

    def _watch(self) -> None:
        """The thread that brings digests to the clients."""
        while not self._closed.wait(DIGEST_PERIOD):
            with self._lock:
                streams = [s for s in self._streams.values() if s.learns]
            device = self._device() if streams else None
            if device is None or not device.info.learns:
                continue
            try:
                digests, lost = device.switch.digests()
            except RuntimeError:  # the switch is closing
                continue
            if lost:
                log.warning("%d digests were overwritten before they were read", lost)
            for digest in digests:
                message = self._digest(device, digest)
                for stream in streams:
                    stream.offer(message)

    def _digest(self, device: Device, digest: Any) -> Any:
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


def _pipe_of(entry: Any, target: Any) -> int:
    pipe = entry.entry_tgt.pipe_id if entry.HasField("entry_tgt") else target.pipe_id
    return ALL_PIPES if pipe >= ALL_PIPES else pipe


def _check_attribute(device: Device, attribute: Any) -> None:
    table = device.info.table(attribute.table_id)
    kind = attribute.WhichOneof("attribute")
    if kind == "entry_scope":
        scope = attribute.entry_scope.pipe_scope
        if scope.WhichOneof("scope") == "predef" and scope.predef == bfrt.Mode.ALL or scope.WhichOneof("scope") is None:
            return
        raise EntityError(
            f"table {table.name}: entries of single pipes are not supported: every pipe has the same", "UNIMPLEMENTED"
        )
    if kind == "pre_device_config" and table.kind == "PreMgid":
        asked, change = attribute.pre_device_config, {}
        if asked.HasField("pre_global_rid"):
            change["global_rid"] = asked.pre_global_rid.global_rid
        if asked.HasField("pre_port_protection"):
            change["port_protection"] = asked.pre_port_protection.enable
        device.replication.config(change)  # the rest tunes the driver, and changes nothing here
        return
    if kind in ("intvl_ms", "port_status_notify") and not getattr(attribute, kind).ListFields():
        return
    if kind == "byte_count_adj" and attribute.byte_count_adj.byte_count_adjust == 0:
        return
    raise EntityError(f"table {table.name}: attribute {kind or 'none'} is not supported", "UNIMPLEMENTED")


def _attribute(device: Device, asked: Any) -> Any:
    table = device.info.table(asked.table_id)
    if asked.WhichOneof("attribute") == "pre_device_config" and table.kind == "PreMgid":
        made, now = bfrt.Entity(), device.replication.config()
        made.table_attribute.table_id = table.id
        config = made.table_attribute.pre_device_config
        config.pre_global_rid.global_rid = now.global_rid
        config.pre_port_protection.enable = now.port_protection
        config.pre_fast_failover.enable = False
        return made
    if asked.WhichOneof("attribute") != "entry_scope":
        raise EntityError(f"table {table.name}: attribute {asked.WhichOneof('attribute')} is not supported", "UNIMPLEMENTED")
    made = bfrt.Entity()
    made.table_attribute.table_id = table.id
    for scope in ("gress_scope", "pipe_scope", "prsr_scope"):
        getattr(made.table_attribute.entry_scope, scope).predef = bfrt.Mode.ALL
    return made


def _object_id(device: Device, asked: Any) -> Any:
    if asked.WhichOneof("object") != "table_object":
        learn = device.info.learns.get(asked.learn_object.learn_name)
        if learn is None:
            raise EntityError(f"no digest {asked.learn_object.learn_name!r}", "NOT_FOUND")
        return bfrt.Entity(object_id=bfrt.ObjectId(id=learn.id))
    said = asked.table_object
    table = device.info.table(said.table_name)
    kind = said.WhichOneof("names")
    if kind == "action_name":
        number = table.action(said.action_name.action).id
    elif kind == "key_field_name":
        number = table.key(said.key_field_name.field).id
    elif kind == "data_field_name":
        action = table.action(said.data_field_name.action) if said.data_field_name.action else None
        number = table.field(said.data_field_name.field, action).id
    else:
        number = table.id
    return bfrt.Entity(object_id=bfrt.ObjectId(id=number))


def _internal(error: Exception) -> Any:
    if not isinstance(error, (OSError, TimeoutError)):
        log.exception("an item of a call failed")
    return _error("INTERNAL", f"{type(error).__name__}: {error}")


def _error(code: str, message: str) -> Any:
    return bfrt.Error(canonical_code=NUMBERS[code], message=message, space="ina")


def _abort(context: Any, errors: list[Any]) -> None:
    failed = [i for i, e in enumerate(errors) if e.canonical_code not in (0, NUMBERS["ABORTED"])]
    first = failed[0]
    status = Status(code=NUMBERS["UNKNOWN"], message=f"number {first} of {len(errors)}: {errors[first].message}")
    for error in errors:
        status.details.add().Pack(bfrt.Error(canonical_code=error.canonical_code, message=error.message[:400], space=error.space))
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, status.message)
