"""Targets that read the controller's input: lines and HTTP on its socket, and its saved state."""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .registry import Function


class Ours(logging.Handler):
    """Log handler: an error logged with a traceback is a defect of ours, whatever the answer was."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.error: BaseException | None = None
        logging.getLogger("ina").addHandler(self)
        logging.getLogger("ina").propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.error = record.exc_info[1]

    def check(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error


def messages() -> tuple[Any, ...]:
    """A line of the control socket; the parsed message, encoded again, parses to the same."""
    from ina.aggregation.control_socket import messages

    def read(data: bytes) -> None:
        message = messages.parse(messages.decode(data))
        again = json.dumps({"op": type(message).__name__.lower(), **asdict(message)}).encode()
        assert messages.parse(messages.decode(again)) == message, again

    return read, messages.Malformed


def http() -> tuple[Any, ...]:
    """An HTTP request, whole and in two parts."""
    from ina.aggregation.controller import http
    from ina.aggregation.controller.job_records import AdmissionError

    def read(data: bytes) -> None:
        whole = http.parse(data)
        token = http.bearer(data)
        if whole is not None:
            assert token is not None and len(whole.body) <= http.MAX_REQUEST
            half = http.parse(data[: len(data) // 2])
            assert half is None or whole.headers == half.headers
            http.check_browser(whole, ())

    return read, ValueError, AdmissionError


def connection() -> tuple[Function, ...]:
    """A whole connection, from its first byte to the answers, with a server on the switches of a network without a data plane.

    options 1 | bytes: bit 0 of `options`: the client is not trusted yet; bits 1 to 7: position where the bytes are split
    """
    from test_api import FakeNetwork

    from ina import topology as topologies
    from ina.aggregation.controller import server as serving
    from ina.aggregation.controller.access import Principal

    ours = Ours()

    def serve(data: bytes) -> None:
        options, data = (data[0], data[1:]) if data else (0, b"")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"\0ina-fuzz-{uuid.uuid4()}")
        listener.listen(1)
        server = serving.Server(listener, FakeNetwork(topologies.load("star", hosts=2)), token="secret")
        try:
            near, far = socket.socketpair()
            far.setblocking(False)
            server._take(near, 0, Principal(os.geteuid()))
            (client,) = server.clients.values()
            client.trusted = not options & 1
            cut = (options >> 1) * len(data) // 128
            for part in (data[:cut], data[cut:]):
                while part and client in server.clients.values():
                    part = part[far.send(part) :]
                    server._serve(client)
                    server._tick()
                    server.service.tick()
            output = b""
            try:
                while more := far.recv(1 << 16):
                    output += more
            except (BlockingIOError, ConnectionResetError):
                pass
            far.close()
            if output.startswith(b"HTTP/1.1 "):
                output = output.partition(b"\r\n\r\n")[2].replace(b"\n", b"")
            for line in output.splitlines():
                assert line.startswith(b"ina2 ") or json.loads(line).get("code") != "internal", line
        finally:
            server.close()
            ours.check()

    return (serve,)


def state() -> tuple[Any, ...]:
    """The state file that a controller starts from; the state that it then saves can be read again."""
    from test_api import FakeNetwork

    from ina import topology as topologies
    from ina.aggregation.controller.api import Operations
    from ina.aggregation.controller.state import StateError, StateFile

    ours = Ours()
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "state.json"

    def begin(data: bytes) -> None:
        assert folder  # kept until the process ends
        path.write_bytes(data)
        for _ in range(2):
            service = Operations(FakeNetwork(topologies.load("leaf-spine", leaves=2, spines=1, hosts=2)), state=StateFile(path))
            service.tick()
            service.recovery.save()
            ours.check()

    return begin, StateError


def answers() -> tuple[Any, ...]:
    """Messages from the switch process to a worker: answers and events.

    call 1 | lines: call % 4: ping, admit, attach, poll; each further line is an event
    """
    from ina.aggregation.control_socket.channel import listen
    from ina.aggregation.controller.client import Client, ControlError

    name = f"ina-fuzz-{uuid.uuid4()}"
    listener = listen(name)

    def ask(data: bytes) -> None:
        call, data = (data[0] % 4, data[1:]) if data else (3, b"")
        client = Client(name, timeout=60, host="h1")
        far, _ = listener.accept()
        try:
            far.sendall(data)
            far.shutdown(socket.SHUT_WR)
            calls = client.ping, lambda: client.admit("x", 1), lambda: client.attach("x", 0), client.poll
            try:
                calls[call]()
            finally:
                assert client.poll()
        finally:
            client.close()
            far.close()

    return ask, ControlError
