"""The controller's HTTP interface: HTTP/1.1 with JSON (RFC 9112), for curl and scripts.

    curl --unix-socket /run/ina/switch.sock http://ina/jobs             (a path)
    curl --abstract-unix-socket ina-1234-0123456789ab http://ina/jobs   (an abstract name)

    GET    /            list of requests
    GET    /status      program, protocol, free slots
    GET    /jobs        jobs with their switches, slots and workers
    GET    /switches    switches with their pools
    GET    /counters    counters of the program, and of ports or links
    GET    /topology    the network of the switches
    POST   /jobs        admit a job: {"job": "a", "workers": 4, "slots": 64, "hosts": ["h1", ...]}; the reply has its token
    DELETE /jobs/NAME   end a job; with "Authorization: Bearer TOKEN" where it has one

Over TCP every request has the socket's token there instead. access.py defines permissions; pages in browsers have none. Each
connection takes one request. Workers use JSON lines on the same socket instead (server.py): their connection is a session whose
end means that the worker is lost, replies carry descriptors of shared memory, and the server sends events.
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import socket
from collections.abc import Collection
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from ina.aggregation.control_socket import messages
from ina.aggregation.control_socket.messages import MAX_REQUEST
from ina.aggregation.controller.api import Operations, Session, explain
from ina.aggregation.controller.job_records import AdmissionError, NotYet

MAX_HEAD = 1 << 13  # bytes that are parsed of a client before it has sent a token
NO_TOKEN = "a token is needed: ina.token of the user who started this (ina/base/tokens.py), in Authorization: Bearer TOKEN"
ROUTES = {"status": "ping", "jobs": "jobs", "switches": "switches", "counters": "counters", "topology": "topology"}
STATUS = {
    "invalid": HTTPStatus.BAD_REQUEST, "internal": HTTPStatus.INTERNAL_SERVER_ERROR, "system": HTTPStatus.INTERNAL_SERVER_ERROR,
    "too_many_workers": HTTPStatus.BAD_REQUEST, "token": HTTPStatus.FORBIDDEN, "denied": HTTPStatus.FORBIDDEN,
    "unknown": HTTPStatus.NOT_FOUND, "method": HTTPStatus.METHOD_NOT_ALLOWED, "duplicate": HTTPStatus.CONFLICT,
    "mismatch": HTTPStatus.CONFLICT, "failed": HTTPStatus.GONE, "switch": HTTPStatus.BAD_GATEWAY,
    "full": HTTPStatus.SERVICE_UNAVAILABLE, "unreachable": HTTPStatus.SERVICE_UNAVAILABLE,
}


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes


def looks_like(first: int) -> bool:
    """True if a connection that begins with the byte ``first`` speaks HTTP: methods are capital letters, JSON begins with {."""
    return ord("A") <= first <= ord("Z")


def parse(data: bytes) -> Request | None:
    """Parses the request in ``data``; None while it is not complete. Raises ValueError for an invalid one."""
    head, blank, body = data.partition(b"\r\n\r\n")
    if not blank:
        if len(data) > MAX_REQUEST:
            raise ValueError(f"a request head longer than {MAX_REQUEST} bytes")
        return None
    parts, headers = _head(head)
    if not parts[1].startswith("/"):
        raise ValueError(f"{parts[1][:64]!r}: expected a path that begins with /")
    if "transfer-encoding" in headers:
        raise ValueError("Transfer-Encoding: expected a body with Content-Length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 10) or int(length) > MAX_REQUEST:
        raise ValueError(f"Content-Length {length[:32]!r}: expected a number up to {MAX_REQUEST}")
    if len(body) < int(length):
        return None
    return Request(parts[0], unquote(parts[1].partition("?")[0]), headers, body[: int(length)])


def _head(head: bytes) -> tuple[list[str], dict[str, str]]:
    """Returns method, path and version; headers, each of which is there once. Raises ValueError."""
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise ValueError(f"not a request line: {first[:64]!r}")
    headers: dict[str, str] = {}
    for name, _, value in (line.partition(":") for line in lines):
        if headers.setdefault(name.strip().lower(), value.strip()) != value.strip():
            raise ValueError(f"the header {name[:64]!r} is there twice")
    return parts, headers


def answer(service: Operations, session: Session, data: bytes, names: Collection[str] = ()) -> bytes | None:
    """Returns the response to the request in ``data``, which ``session`` sent; None while it is not complete. ``names``: of this
    server, beside those of ``check_browser``."""
    try:
        request = parse(data)
        if request is None:
            return None
        check_browser(request, names)
    except AdmissionError as error:
        return refused(error.code, str(error))
    except ValueError as error:
        return refused("invalid", str(error))
    client = Session(session.pid, lambda message, fds: None, session.principal, peer=session.peer)
    try:
        return response(HTTPStatus.OK, _answer(service, request, client))
    except NotYet as error:
        return refused("invalid", f'the answer would wait for {error}; say "hosts", one for each worker')
    except Exception as error:
        return refused(*explain(error, f"{request.method} {request.path[:64]!r}"))


def bearer(data: bytes) -> str | None:
    """Returns the token in the head of the request in ``data``; None while that is not complete. Raises ValueError."""
    head, blank, _ = data.partition(b"\r\n\r\n")
    if not blank and len(data) <= MAX_HEAD:
        return None
    return token_of(_head(head)[1]) if len(head) <= MAX_HEAD else ""


def token_of(headers: dict[str, str]) -> str:
    return headers.get("authorization", "").removeprefix("Bearer ").strip()


def unauthorised() -> bytes:
    return response(HTTPStatus.UNAUTHORIZED, {"code": "token", "error": NO_TOKEN}, "WWW-Authenticate: Bearer\r\n")


def check_browser(request: Request, names: Collection[str]) -> None:
    """Refuses requests that a page in a browser makes: browsers send the page's origin, and the name by which they reached us.
    Raises AdmissionError."""
    if origin := request.headers.get("origin"):
        raise AdmissionError("denied", f"Origin: {origin[:64]!r}: pages of browsers may not ask")
    host = request.headers.get("host", "")
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    if name.lower() in {"ina", "localhost", socket.gethostname().lower(), *(n.lower() for n in names)}:
        return
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        raise AdmissionError("denied", f"Host: {host[:64]!r}: expected ina, localhost, an address, or the name of this machine "
                                       "(a page of a browser may have any other)") from None


def _answer(service: Operations, request: Request, session: Session) -> dict[str, Any]:
    _, first, *rest = request.path.split("/")
    name = "/".join(rest)
    if request.method == "GET" and not first:
        return {"requests": [f"GET /{route}" for route in ROUTES] + ["POST /jobs", "DELETE /jobs/NAME"]}
    if first not in ROUTES:
        raise AdmissionError("unknown", f"there is no {request.path[:64]!r}; GET / says what there is")
    if request.method == "GET":
        reply = service.call(session, [], messages.parse({"op": ROUTES[first]}))
        if first == "jobs" and name:
            if name not in reply["jobs"]:
                raise AdmissionError("unknown", f"there is no job {name[:256]!r}")
            job: dict[str, Any] = reply["jobs"][name]
            return job
        return reply
    if first != "jobs" or request.method not in ("POST", "DELETE"):
        allowed = "GET, POST or DELETE" if first == "jobs" else "only GET"
        raise AdmissionError("method", f"/{first}: {allowed}")
    if request.method == "POST":
        admission = messages.parse({**messages.decode(request.body or b"{}"), "op": "admit"})
        assert isinstance(admission, messages.Admit)
        admission = admission if admission.token else replace(admission, token=secrets.token_hex(16))
        return {**service.call(session, [], admission), "token": admission.token}
    token = "" if session.principal.uid is None else token_of(request.headers)  # else it is the socket's
    return service.call(session, [], messages.parse({"op": "end", "job": name, "token": token}))


def refused(code: str, text: str) -> bytes:
    """Formats the response to a request that is refused."""
    return response(STATUS.get(code, HTTPStatus.BAD_REQUEST), {"code": code, "error": text})


def response(status: HTTPStatus, content: dict[str, Any], more: str = "") -> bytes:
    """Formats a response. ``more``: headers."""
    return _formatted(status, json.dumps(content, indent=2) + "\n", "application/json", more)


def text_response(text: str, kind: str) -> bytes:
    """Formats a response with a text of a content type."""
    return _formatted(HTTPStatus.OK, text, kind, "")


def _formatted(status: HTTPStatus, text: str, kind: str, more: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return (head + more).encode() + b"Connection: close\r\n\r\n" + body
