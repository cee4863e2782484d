"""What comes to the controller: lines and HTTP on its socket, and its own state from an earlier life."""

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
    """An error that is logged with its traceback is a defect of ours, whatever was answered."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: BaseException | None = None
        logging.getLogger("ina").addHandler(self)
        logging.getLogger("ina").propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.seen = record.exc_info[1]

    def check(self) -> None:
        seen, self.seen = self.seen, None
        if seen is not None:
            raise seen


def messages() -> tuple[Any, ...]:
    """A line of the control socket; what it says is said again and understood the same."""
    from ina.aggregation.control_socket import messages

    def read(data: bytes) -> None:
        asked = messages.parse(messages.decode(data))
        again = json.dumps({"op": type(asked).__name__.lower(), **asdict(asked)}).encode()
        assert messages.parse(messages.decode(again)) == asked, again

    return read, messages.Malformed


def http() -> tuple[Any, ...]:
    """A request in HTTP, in one piece and cut in two."""
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
    """From the first byte of a connection to the answers: a server on the switches of a network without a data plane.

    how 1 | bytes: bit 0 of `how`: the client is not trusted yet; bits 1 to 7: where the bytes are cut in two
    """
    from test_service import FakeNetwork

    from ina import topology as topologies
    from ina.aggregation.controller import server as serving
    from ina.aggregation.controller.access import Principal

    ours = Ours()

    def serve(data: bytes) -> None:
        how, data = (data[0], data[1:]) if data else (0, b"")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"\0ina-fuzz-{uuid.uuid4()}")
        listener.listen(1)
        server = serving.Server(listener, FakeNetwork(topologies.load("star", hosts=2)), token="secret")
        try:
            near, far = socket.socketpair()
            far.setblocking(False)
            server._take(near, 0, Principal(os.geteuid()))
            (client,) = server.clients.values()
            client.trusted = not how & 1
            cut = (how >> 1) * len(data) // 128
            for part in (data[:cut], data[cut:]):
                while part and client in server.clients.values():
                    part = part[far.send(part) :]
                    server._serve(client)
                    server._tick()
                    server.service.tick()
            said = b""
            try:
                while more := far.recv(1 << 16):
                    said += more
            except (BlockingIOError, ConnectionResetError):
                pass
            far.close()
            if said.startswith(b"HTTP/1.1 "):
                said = said.partition(b"\r\n\r\n")[2].replace(b"\n", b"")
            for line in said.splitlines():
                assert json.loads(line).get("code") != "internal", line
        finally:
            server.close()
            ours.check()

    return (serve,)


def state() -> tuple[Any, ...]:
    """The state file that a controller begins with; what it then saves can be read again."""
    from test_service import FakeNetwork

    from ina import topology as topologies
    from ina.aggregation.controller.api import Operations
    from ina.aggregation.controller.state import StateError, StateFile

    ours = Ours()
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "state.json"

    def begin(data: bytes) -> None:
        assert folder  # it stays
        path.write_bytes(data)
        for _ in range(2):
            service = Operations(FakeNetwork(topologies.load("leaf-spine", leaves=2, spines=1, hosts=2)), state=StateFile(path))
            service.tick()
            service.watch.save()
            ours.check()

    return begin, StateError


def answers() -> tuple[Any, ...]:
    """What a worker is told by the switch process: answers and events.

    what 1 | lines: what % 4: ping, admit, attach, poll; then each that is left is an event
    """
    from ina.aggregation.control_socket.channel import listen
    from ina.aggregation.controller.client import Client, ControlError

    name = f"ina-fuzz-{uuid.uuid4()}"
    listener = listen(name)

    def ask(data: bytes) -> None:
        what, data = (data[0] % 4, data[1:]) if data else (3, b"")
        client = Client(name, timeout=5, host="h1")
        far, _ = listener.accept()
        try:
            far.sendall(data)
            far.shutdown(socket.SHUT_WR)
            calls = client.ping, lambda: client.admit("x", 1), lambda: client.attach("x", 0), client.poll
            try:
                calls[what]()
            finally:
                assert client.poll()
        finally:
            client.close()
            far.close()

    return ask, ControlError
