"""The gRPC service p4.v1.P4Runtime in front of a `Device`."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

from ina.base.extras import extra
from ina.p4.runtime import Closing

with extra("p4runtime"):
    import grpc

from ina.p4.p4runtime.arbitration import Arbitration, Controller
from ina.p4.p4runtime.device import PIPELINE_ACTIONS, BatchError, Device
from ina.p4.p4runtime.messages import Status, p4
from ina.p4.rpc.connections import OPTIONS, Access
from ina.p4.rpc.errors import CODES, DETAILS, abort, check_enums
from ina.p4.runtime import EntityError

log = logging.getLogger(__name__)
T = TypeVar("T")
VERSION = "1.5.0"  # of the API that is served: what 1.6 adds to it, an action of a group, is UNIMPLEMENTED
STREAMS = 32  # open ones; each takes a thread
CALLS = 32  # unary calls and reads at once
WAITING = 4096  # messages to a controller that reads too slowly; packet-ins and digests beyond are dropped
ENTITIES = 512  # in one ReadResponse
MAX_MESSAGE = 256 << 20  # bytes: a compiled program travels in one message


class Stream:
    """One controller's StreamChannel: a queue of messages for it."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[p4.StreamMessageResponse | EntityError | None] = queue.SimpleQueue()
        self.dropped = 0
        self.controller = Controller(self._waiting.put)

    def offer(self, message: p4.StreamMessageResponse) -> None:
        """Sends a message if the controller keeps up, else drops and counts it."""
        if self._waiting.qsize() < WAITING:
            self._waiting.put(message)
        else:
            self.dropped += 1

    def end(self, refused: EntityError | None = None) -> None:
        self._waiting.put(refused)

    def messages(self) -> Iterator[p4.StreamMessageResponse]:
        """Yields messages until the end. Raises EntityError: the stream ends with an error."""
        while (item := self._waiting.get()) is not None:
            if isinstance(item, EntityError):
                raise item
            yield item


class Server(Closing):
    """Serves `device` at `address` ("host:port", port 0: any; "unix:path"), to clients that `access` admits. Raises OSError: it
    cannot listen there."""

    def __init__(self, device: Device, address: str = "127.0.0.1:9559", access: Access | None = None):
        self.device = device
        self._arbitration = Arbitration(device.device_id)
        self._lock = threading.RLock()  # arbitration, and writes: a new primary waits for those under way
        self._streams: dict[Controller, Stream] = {}
        device.on_packet_in = lambda packet: self._publish(p4.StreamMessageResponse(packet=packet))
        device.on_digests = lambda digests: self._publish(p4.StreamMessageResponse(digest=digests))
        self._server = grpc.server(
            ThreadPoolExecutor(STREAMS + CALLS, "p4runtime"),
            options=[("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", -1), *OPTIONS],
        )
        self._server.add_generic_rpc_handlers([self._handlers()])
        self.address = (access or Access()).serve(self._server, address)
        self._server.start()

    def _handlers(self) -> Any:
        def unary(method: Any, request: str, response: str) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                method, getattr(p4, request).FromString, getattr(p4, response).SerializeToString
            )

        return grpc.method_handlers_generic_handler("p4.v1.P4Runtime", {
            "Write": unary(self._write, "WriteRequest", "WriteResponse"),
            "Read": grpc.unary_stream_rpc_method_handler(
                self._read, p4.ReadRequest.FromString, p4.ReadResponse.SerializeToString),
            "SetForwardingPipelineConfig": unary(
                self._set_pipeline, "SetForwardingPipelineConfigRequest", "SetForwardingPipelineConfigResponse"),
            "GetForwardingPipelineConfig": unary(
                self._get_pipeline, "GetForwardingPipelineConfigRequest", "GetForwardingPipelineConfigResponse"),
            "StreamChannel": grpc.stream_stream_rpc_method_handler(
                self._stream, p4.StreamMessageRequest.FromString, p4.StreamMessageResponse.SerializeToString),
            "Capabilities": unary(self._capabilities, "CapabilitiesRequest", "CapabilitiesResponse"),
        })

    def stop(self) -> None:
        """Ends every stream and call."""
        for stream in list(self._streams.values()):
            stream.end()
        self._server.stop(grace=1.0).wait()

    close = stop

    # ---- calls

    def _write(self, request: p4.WriteRequest, context: grpc.ServicerContext) -> p4.WriteResponse:
        def write() -> p4.WriteResponse:
            check_enums(request, skip="updates")
            with self._lock:
                self._arbitration.check(request)
                self.device.write(request.updates, request.atomicity != p4.WriteRequest.CONTINUE_ON_ERROR)
            return p4.WriteResponse()

        return self._guarded(context, write)

    def _read(self, request: p4.ReadRequest, context: grpc.ServicerContext) -> Iterator[p4.ReadResponse]:
        def read() -> tuple[list[p4.Entity], BatchError | None]:
            self._arbitration.check_device(request)
            return self.device.read(request.entities)

        entities, failure = self._guarded(context, read)
        for at in range(0, len(entities), ENTITIES):
            yield p4.ReadResponse(entities=entities[at : at + ENTITIES])
        if failure is not None:
            _abort(context, failure)

    def _set_pipeline(
        self, request: p4.SetForwardingPipelineConfigRequest, context: grpc.ServicerContext
    ) -> p4.SetForwardingPipelineConfigResponse:
        def set_pipeline() -> p4.SetForwardingPipelineConfigResponse:
            check_enums(request, skip="config")
            action = p4.SetForwardingPipelineConfigRequest.Action.Name(request.action)
            with self._lock:
                self._arbitration.check(request)
            if action not in PIPELINE_ACTIONS:
                raise EntityError(f"action {action}: expected one of {', '.join(PIPELINE_ACTIONS)}")
            if (action == "COMMIT") == request.HasField("config"):
                raise EntityError(f"{action} {'takes no config' if action == 'COMMIT' else 'needs a config'}")
            # A compiler may run for long: controllers can come and go meanwhile.
            pipeline = self.device.verify(request.config) if action != "COMMIT" else None
            with self._lock:
                self._arbitration.check(request)
                self.device.set_pipeline(action, pipeline)
            return p4.SetForwardingPipelineConfigResponse()

        return self._guarded(context, set_pipeline)

    def _get_pipeline(
        self, request: p4.GetForwardingPipelineConfigRequest, context: grpc.ServicerContext
    ) -> p4.GetForwardingPipelineConfigResponse:
        def get_pipeline() -> p4.GetForwardingPipelineConfigResponse:
            check_enums(request)
            self._arbitration.check_device(request)
            response = p4.GetForwardingPipelineConfigResponse()
            config = self.device.config()
            if config is None:
                return response
            response.config.SetInParent()
            kind = p4.GetForwardingPipelineConfigRequest.ResponseType.Name(request.response_type)
            if config.HasField("cookie"):
                response.config.cookie.CopyFrom(config.cookie)
            if kind in ("ALL", "P4INFO_AND_COOKIE"):
                response.config.p4info.CopyFrom(config.p4info)
            if kind in ("ALL", "DEVICE_CONFIG_AND_COOKIE"):
                response.config.p4_device_config = config.p4_device_config
            return response

        return self._guarded(context, get_pipeline)

    def _capabilities(self, request: p4.CapabilitiesRequest, context: grpc.ServicerContext) -> p4.CapabilitiesResponse:
        def capabilities() -> p4.CapabilitiesResponse:
            if request.device_id:  # 0: the server's
                self._arbitration.check_device(request)
            return p4.CapabilitiesResponse(p4runtime_api_version=VERSION)

        return self._guarded(context, capabilities)

    @staticmethod
    def _guarded(context: grpc.ServicerContext, call: Callable[[], T]) -> T:
        """The call's result; an exception becomes the RPC's status (§11)."""
        try:
            return call()
        except EntityError as error:
            abort(context, error.code, str(error))
        except BatchError as error:
            _abort(context, error)
        except Exception as error:
            log.exception("a call failed")
            abort(context, "INTERNAL", f"{type(error).__name__}: {error}")

    # ---- streams

    def _stream(
        self, requests: Iterator[p4.StreamMessageRequest], context: grpc.ServicerContext
    ) -> Iterator[p4.StreamMessageResponse]:
        stream = Stream()
        with self._lock:
            if len(self._streams) >= STREAMS:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{STREAMS} streams are open, the most that are served")
            self._streams[stream.controller] = stream
        if not context.add_callback(stream.end):
            stream.end()
        threading.Thread(target=self._receive, args=(stream, requests), name="p4runtime-stream", daemon=True).start()
        try:
            yield from stream.messages()
        except EntityError as refused:
            self._leave(stream)
            abort(context, refused.code, str(refused))
        finally:
            self._leave(stream)

    def _leave(self, stream: Stream) -> None:
        with self._lock:
            if self._streams.pop(stream.controller, None) is not None:
                self._arbitration.leave(stream.controller)
                if stream.dropped:
                    log.warning("a controller read too slowly: %d messages were dropped", stream.dropped)

    def _receive(self, stream: Stream, requests: Iterator[p4.StreamMessageRequest]) -> None:
        """Handles one controller's messages, until it closes its side."""
        try:
            for request in requests:
                self._handle(stream, request)
        except EntityError as refused:
            stream.end(refused)
        except grpc.RpcError:  # the connection is gone
            stream.end()
        except Exception as error:
            # gRPC ends the iterator of a call that is over with a plain Exception.
            if type(error) is not Exception:
                log.exception("a stream failed")
            stream.end(EntityError(f"{type(error).__name__}: {error}", "INTERNAL"))
        else:
            stream.end()

    def _handle(self, stream: Stream, request: p4.StreamMessageRequest) -> None:
        kind = request.WhichOneof("update")
        if kind == "arbitration":
            with self._lock:
                before = self._arbitration.primaries()
                self._arbitration.update(stream.controller, request.arbitration)
                if self._arbitration.primaries() != before:
                    self.device.new_primary()
            return
        try:
            with self._lock:
                if not self._arbitration.is_primary(stream.controller):
                    raise EntityError("only a primary may send this", "PERMISSION_DENIED")
            if kind == "packet":
                self.device.packet_out(request.packet)
            elif kind == "digest_ack":
                self.device.acknowledge(request.digest_ack.digest_id, request.digest_ack.list_id)
            else:
                raise EntityError(f"{kind or 'an empty message'}: this switch does not know such messages", "UNIMPLEMENTED")
        except EntityError as error:
            response = p4.StreamMessageResponse()
            response.error.canonical_code, response.error.message = CODES[error.code], str(error)
            if kind == "packet":
                response.error.packet_out.packet_out.CopyFrom(request.packet)
            elif kind == "digest_ack":
                response.error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
            else:
                response.error.other.SetInParent()
            stream.offer(response)

    def _publish(self, message: p4.StreamMessageResponse) -> None:
        with self._lock:
            for controller in self._arbitration.primaries():
                self._streams[controller].offer(message)


def _abort(context: grpc.ServicerContext, failure: BatchError) -> NoReturn:
    """Ends the RPC with UNKNOWN and one p4.v1.Error for each item (§11.3)."""
    status = Status(code=CODES["UNKNOWN"])
    room = max(0, DETAILS - 64 * len(failure.errors)) // max(1, sum(e.canonical_code != 0 for e in failure.errors))
    for error in failure.errors:
        short = p4.Error(canonical_code=error.canonical_code, space=error.space, message=error.message[:room])
        status.details.add().Pack(short)
    abort(context, "UNKNOWN", str(failure), status)
