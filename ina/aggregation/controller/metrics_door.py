"""The switch process's socket for Prometheus: ``GET /metrics``, and nothing else.

    GET /metrics HTTP/1.1          where the socket has a token of its own: Authorization: Bearer TOKEN

Whoever reaches it may look, as anyone on this machine may look at the control socket, and can do nothing; so on another address
than the loopback's it needs a token, which is not the control socket's: that makes its holder an owner (access.py).
"""

from __future__ import annotations

import ipaddress
import socket
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from ina.aggregation.control_socket import messages
from ina.aggregation.controller import http
from ina.aggregation.controller.access import NOBODY
from ina.aggregation.controller.api import Operations, Session, explain
from ina.aggregation.controller.job_records import AdmissionError
from ina.aggregation.controller.metrics import CONTENT, Look, exposition
from ina.base import tokens

LOOPBACK = "127.0.0.1"
NO_TOKEN = "the token of --metrics-token-file is needed, in Authorization: Bearer TOKEN"
LOOKS = (messages.Ping, messages.Jobs, messages.Counters, messages.Switches)


@dataclass(frozen=True, eq=False)
class MetricsDoor:
    """``listener``: its socket. ``process``: name of the control socket, a label. ``token``: needed here; "": none."""

    listener: socket.socket
    process: str
    token: str = field(repr=False)

    @property
    def address(self) -> str:
        host, port = self.listener.getsockname()[:2]
        return f"http://{host}:{port}/metrics"


def opened(where: str, process: str, token_file: Path | None, control_token: str = "") -> MetricsDoor:
    """Listens at ``where``, ``[HOST:]PORT``. ``control_token``: the control socket's, if it has one. Raises ValueError, which
    TokenError is, and OSError."""
    host, colon, number = where.rpartition(":")
    host = host if colon else LOOPBACK
    if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < 65536):
        raise ValueError(f"--metrics {where}: {number!r} is no TCP port; expected such as 9560 or 10.0.0.1:9560")
    try:
        address = ipaddress.IPv4Address(host)
    except ValueError:
        raise ValueError(f"--metrics {where}: {host!r} is no IPv4 address; expected such as 9560 or 10.0.0.1:9560") from None
    if token_file is None and not address.is_loopback:
        raise ValueError(f"--metrics {where}: other machines reach this address: --metrics-token-file says which token they need")
    token = tokens.kept_in(token_file) if token_file is not None else ""
    if token and tokens.is_same(token, control_token):
        raise ValueError(f"--metrics-token-file {token_file}: this is the control socket's token, which opens everything, and "
                         "HTTP sends it in clear text: expected another one; name a file that does not exist, and it is made")
    try:
        listener = socket.create_server((host, int(number)), backlog=16)
    except OSError as error:
        raise OSError(error.errno, f"--metrics {where}: cannot listen there: {error.strerror}") from error
    listener.setblocking(False)
    return MetricsDoor(listener, process, token)


def prepare(service: Operations) -> None:
    """Makes one text for nobody: the first one parses the program, for the names of its counters' cells, and workers would wait
    for that later."""
    exposition({"": look(service, Session(0, lambda message, fds: None, NOBODY))})


def answer(door: MetricsDoor, service: Operations, session: Session, data: bytes) -> bytes | None:
    """Returns the response to the request in ``data``; None while it is not complete."""
    if len(data) > http.MAX_HEAD:
        return http.refused("invalid", f"a request longer than {http.MAX_HEAD} bytes")
    try:
        request = http.parse(data)
        if request is None:
            return None
        http.check_browser(request, {str(door.listener.getsockname()[0])})
    except AdmissionError as error:
        return http.refused(error.code, str(error))
    except ValueError as error:
        return http.refused("invalid", str(error))
    if door.token and not tokens.is_same(http.token_of(request.headers), door.token):
        return http.response(HTTPStatus.UNAUTHORIZED, {"code": "token", "error": NO_TOKEN}, "WWW-Authenticate: Bearer\r\n")
    if request.path != "/metrics":
        return http.refused("unknown", f"there is no {request.path[:64]!r} here; expected /metrics")
    if request.method != "GET":
        return http.refused("method", "/metrics: only GET")
    return http.text_response(exposition({door.process: look(service, session)}), CONTENT)


def look(service: Operations, session: Session) -> Look | None:
    """Returns the process's look at itself, as looks.sample does from outside; None: it has no answer to one of the questions."""
    start, replies = time.monotonic(), {}
    for kind in LOOKS:
        try:
            replies[kind.__name__.lower()] = service.call(session, [], kind())
        except Exception as error:
            explain(error, "metrics")  # logs a defect of ours
            return None
    return {**replies, "seconds": time.monotonic() - start}
