"""The server of the page: a door with a token, the page's files, and the views' routes.

    request --Host, token, Origin, length--> bottle's routes: files of page/, and those that each view adds
    answer  <--headers that keep other pages, frames and caches out--

The token comes as ``?token=`` (the answer keeps it in a cookie, and leads to the same address without it), as that cookie, or as
``Authorization: Bearer``. A name that leads here from another site's page (DNS rebinding) is refused: Host must be an address
that this server listens on.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from ina.base import tokens
from ina.base.extras import extra

with extra("dash"):
    import bottle
    import waitress.channel
    import waitress.server

PAGE = Path(__file__).parent / "page"
LOOPBACK = "127.0.0.1"
LOCAL = (LOOPBACK, "localhost", "[::1]")
MOST_BODY = 1 << 20  # bytes of a request's body: a program is far smaller
MOST_HEAD = 1 << 14  # bytes of a request's head
THREADS = 8  # requests at a time
SILENCE = 30  # seconds after which a connection without a request is closed
CONNECTIONS = 64  # that are open at a time; one more ends the idle one that has done least
METHODS = ("GET", "HEAD", "POST")
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
POLICY = "Content-Security-Policy"
HEADERS = {
    POLICY: "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; "
                               "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
}
NO_TOKEN = ("a token is needed: open the address that ina dash has printed, which has it, or send it as Authorization: Bearer "
            "TOKEN")

View = Callable[[Any], None]  # adds its routes to the application, a bottle.Bottle
Environ = dict[str, Any]
Start = Callable[..., Any]


class Refused(Exception):
    """A request that does not reach the routes; ``status``: such as 401; ``headers``: more of them."""

    def __init__(self, status: int, words: str, headers: Collection[tuple[str, str]] = ()):
        super().__init__(words)
        self.status, self.headers = status, list(headers)


class Application(bottle.Bottle):
    """The routes behind the door. ``token``: the one that opens it. ``names``: hosts in the addresses of this server, without
    port; None: any literal address, for a server that listens at all of this machine's."""

    def __init__(self, token: str, names: Collection[str] | None = LOCAL):
        super().__init__()
        self._token, self._names = token, names

    def __call__(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        """Answers a request as WSGI (PEP 3333) has it."""

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            policy = [(name, value) for name, value in headers if name.title() == POLICY]  # of an answer that is no page of ours
            own = [(name, value) for name, value in headers if name.title() not in HEADERS]
            ours = [(name, value) for name, value in HEADERS.items() if name != POLICY or not policy]
            return start_response(status, [*own, *policy, *ours], *rest)

        try:
            self._check(environ)
        except Refused as refused:
            body = _error_body(str(refused))
            status = f"{refused.status} {bottle.HTTP_CODES[refused.status]}"
            start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *refused.headers])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]
        answer: Iterable[bytes] = super().__call__(environ, start)
        return answer

    def default_error_handler(self, error: bottle.HTTPError) -> str:
        """Returns the body of an error that a route raised: JSON with the words."""
        bottle.response.content_type = "application/json"
        return _error_body("the server failed; its terminal says more" if error.status_code == 500 else str(error.body)).decode()

    def _check(self, environ: Environ) -> None:
        """Raises Refused."""
        method, host = environ["REQUEST_METHOD"], environ.get("HTTP_HOST", "")
        if not self._is_own(host, environ["SERVER_PORT"]):
            raise Refused(421, f"Host {host[:100]!r} is no address that this server listens on: open the one that it has printed")
        if method not in METHODS:
            raise Refused(405, f"{method[:20]}: expected one of {', '.join(METHODS)}", [("Allow", ", ".join(METHODS))])
        bearer = self._check_token(environ, method)
        origin = environ.get("HTTP_ORIGIN")
        if method == "POST" and origin != f"http://{host}" and not (origin is None and bearer):
            raise Refused(403, "a POST from another page, or from none: expected an Origin of this server's own, or none and "
                               "Authorization: Bearer TOKEN")
        length = environ.get("CONTENT_LENGTH") or "0"
        if not (length.isascii() and length.isdigit()) or int(length) > MOST_BODY:
            raise Refused(413, f"a body of {length[:20]} bytes; expected up to {MOST_BODY:,}")

    def _is_own(self, host: str, port: str) -> bool:
        """Returns True for a Host header with an address of this server."""
        name, colon, number = host.rpartition(":")
        if not colon or host.endswith("]"):
            name, number = host, "80"
        if number != port:
            return False
        if self._names is not None:
            return name.lower() in self._names
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _check_token(self, environ: Environ, method: str) -> bool:
        """Returns True: the token came as Bearer, False: as a cookie. Raises Refused: wrong, missing, or in the address, from
        where a redirect takes it into the cookie."""
        if (authorization := environ.get("HTTP_AUTHORIZATION")) is not None:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() != "bearer" or not self._fits(token.strip()):
                raise Refused(401, "the token in Authorization is wrong: expected Bearer TOKEN, with that of the address that "
                                   "ina dash has printed", [("WWW-Authenticate", "Bearer")])
            return True
        pairs = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True, encoding="latin-1")
        name = f"ina-dash-{environ['SERVER_PORT']}"  # browsers send a cookie to all ports of a host
        if given := [value for key, value in pairs if key == "token"]:
            if len(given) > 1 or not self._fits(given[0]) or method == "POST":
                raise Refused(401, "the token in the address is wrong, or is there twice: expected ?token=TOKEN of the "
                                   "address that ina dash has printed")
            rest = urlencode([pair for pair in pairs if pair[0] != "token"], encoding="latin-1")
            path = "/" + quote(environ.get("PATH_INFO", "/").lstrip("/"), encoding="latin-1")  # never //, another host's
            raise Refused(303, "the token is in a cookie now", [
                ("Location", path + (f"?{rest}" if rest else "")),
                ("Set-Cookie", f"{name}={quote(self._token, safe='')}; Path=/; HttpOnly; SameSite=Strict")])
        if not self._fits(_cookie(environ.get("HTTP_COOKIE", ""), name)):
            raise Refused(401, NO_TOKEN, [("WWW-Authenticate", "Bearer")])
        return False

    def _fits(self, token: str) -> bool:
        return tokens.is_same(self._token, token)


def _cookie(header: str, name: str) -> str:
    """Returns a cookie's value, "": there is none. Other programs at this host have cookies of any form in the same header."""
    pairs = (each.strip().partition("=") for each in header.split(";"))
    return next((unquote(value.strip()) for key, _, value in pairs if key.strip() == name), "")


def _error_body(words: str) -> bytes:
    return json.dumps({"error": words}).encode()


def application(token: str, views: Sequence[View], names: Collection[str] | None = LOCAL) -> Application:
    """Makes the application: the page's files, and the routes that each of ``views`` adds. ``names``: as Application's."""
    app = Application(token, names)

    def file(name: str = "index.html") -> Any:
        path = PAGE / name
        if path.suffix not in KINDS or path.parent != PAGE or not path.is_file():
            raise bottle.HTTPError(404, f"there is no page {name[:100]!r}")
        return bottle.HTTPResponse(path.read_bytes(), headers={"Content-Type": f"{KINDS[path.suffix]}; charset=utf-8"})

    app.route("/", "GET", file)
    app.route("/<name>", "GET", file)
    for add_routes in views:
        add_routes(app)
    return app


class Channel(waitress.channel.HTTPChannel):
    """A connection. One that comes when CONNECTIONS are open ends an idle one, so whoever opens many and sends no request, or
    half of one, keeps nobody out: a connection is never ended while its request is answered."""

    asked = False  # it has sent a whole request

    def __init__(self, server: Any, sock: socket.socket, *rest: Any, **options: Any):
        channels = [each for each in server.active_channels.values() if not each.will_close]
        idle = [each for each in channels if not each.requests and not each.total_outbufs_len]
        if len(channels) >= CONNECTIONS and idle:
            min(idle, key=lambda each: (each.asked, each.creation_time)).will_close = True
        super().__init__(server, sock, *rest, **options)

    def received(self, data: bytes) -> bool:
        """Takes bytes of requests."""
        whole: bool = super().received(data)
        self.asked = self.asked or bool(self.requests)
        return whole


def normal(host: str) -> str:
    """Returns an address to listen on as browsers write it in Host: names in lower case, addresses in their usual form, and
    such as 127.1 as the four numbers that they stand for. Raises ValueError: it is empty."""
    if not host:
        raise ValueError("expected an address: 0.0.0.0 listens at all of this machine's")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return host.lower()


def listen(app: Application, host: str = LOOPBACK, port: int = 0) -> Any:
    """Returns a waitress server that listens at ``host`` and ``port``, 0: any that is free; its ``effective_port`` says which.
    Raises OSError, and ValueError for an address that is none of this machine's."""
    logging.getLogger("waitress").setLevel(logging.ERROR)  # it warns of each request that waits for a thread
    server = waitress.server.create_server(
        app, host=host, port=port, threads=THREADS, ident=None, max_request_body_size=2 * MOST_BODY,
        max_request_header_size=MOST_HEAD, channel_timeout=SILENCE, connection_limit=4 * CONNECTIONS)
    for each in [*(server.map if isinstance(server, waitress.server.MultiSocketServer) else server._map).values()]:
        if isinstance(each, waitress.server.BaseWSGIServer):  # one for each address
            each.channel_class = Channel
    return server


def names_of(host: str) -> Collection[str] | None:
    """Returns Application's ``names`` for a server that listens at ``host``, which is normal."""
    if host in (LOOPBACK, "localhost", "::1"):
        return LOCAL
    return None if host in ("0.0.0.0", "::") else (_in_address(host),)


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def address(host: str, port: int, token: str) -> str:
    """Formats the address with the token."""
    return f"http://{_in_address(host)}:{port}/?token={quote(token)}"
