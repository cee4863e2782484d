"""The door of the page: token, Host, Origin, sizes, headers, and the files behind it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlencode

import pytest
from capabilities import need
from waiting import LONG

need("bottle", "waitress")

import bottle  # noqa: E402
from dash_page import TOKEN, serving  # noqa: E402

from ina.dash import server  # noqa: E402
from ina.dash.server import LOCAL, MOST_BODY, address, names_of, normal  # noqa: E402

pytestmark = pytest.mark.fast
pytest_plugins = ("dash_page",)  # its fixtures


def own_routes(app):
    app.route("/api/echo", "POST", lambda: {"read": len(bottle.request.body.read())})
    app.route("/api/who", "GET", lambda: {"you": "in"})
    app.route("/api/broken", "GET", lambda: {}["no such key"])


VIEWS = [own_routes]
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def ask(served, path, method="GET", headers=None, body=None):
    """Returns (status, headers, body) of a request with these headers alone."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=LONG)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        headers = {"Host": f"127.0.0.1:{served.port}", **(headers or {})}
        if body is not None:
            headers.setdefault("Content-Length", str(len(body)))
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_the_token_of_the_address_becomes_a_cookie(served):
    status, headers, _ = ask(served, f"/?token={TOKEN}&a=1")
    cookie = headers["Set-Cookie"]
    assert status == 303 and headers["Location"] == "/?a=1"
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", f"ina-dash-{served.port}="))
    status, headers, body = ask(served, "/", headers={"Cookie": cookie.partition(";")[0]})
    assert status == 200 and b"<title>ina</title>" in body and TOKEN.encode() not in body


def test_any_token_of_a_file_fits_into_a_cookie():
    token = "of;a\"file,\\it=has%3B"
    with serving([own_routes], token=token) as served:
        status, headers, _ = ask(served, f"/?{urlencode({'token': token})}")
        assert status == 303
        cookie = headers["Set-Cookie"].partition(";")[0]
        assert ask(served, "/api/who", headers={"Cookie": cookie})[0] == 200
        assert ask(served, "/api/who", headers={"Cookie": cookie[:-1]})[0] == 401


@pytest.mark.parametrize("other", ['prefs={"a":1}', "x", "path=/", "n=\u00e9", "=", "", "a=b=c", "Expires=Mon, 1 Jan"])
def test_the_cookies_of_other_programs_hide_none(served, other):
    own = f"ina-dash-{served.port}={TOKEN}"
    for header in (f"{other}; {own}", f"{own}; {other}", f"{other};{own};{other}"):
        assert ask(served, "/api/who", headers={"Cookie": header.encode("latin-1")})[0] == 200, header


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "/%2F/evil.example"])
def test_the_redirect_stays_here(served, path):
    status, headers, _ = ask(served, f"{path}?token={TOKEN}")
    assert status == 303 and headers["Location"].startswith("/") and not headers["Location"].startswith(("//", "/\\"))


@pytest.mark.parametrize(("path", "headers"), [
    ("/", {}),
    ("/api/who", {}),
    ("/dash.js", {}),
    ("/nothing", {}),
    ("/?token=", {}),
    ("/?token=wrong", {}),
    (f"/?token={TOKEN}&token={TOKEN}", {}),
    (f"/?token={TOKEN}&token=wrong", {}),
    ("/", {"Authorization": "Bearer wrong"}),
    ("/", {"Authorization": f"Basic {TOKEN}"}),
    (f"/?token={TOKEN}", {"Authorization": "Bearer wrong"}),
    ("/", {"Authorization": "Bearer \u00e9"}),
    ("/", {"Cookie": f"ina-dash-1={TOKEN}"}),
    ("/", {"Cookie": "ina-dash-{port}=wrong"}),
    ("/", {"Cookie": "=;=;\u00e9"}),
])
def test_nothing_opens_without_the_token(served, path, headers):
    headers = {name: value.replace("{port}", str(served.port)).encode("latin-1") for name, value in headers.items()}
    status, _, body = ask(served, path, headers=headers)
    assert status == 401 and "token" in json.loads(body)["error"] and TOKEN.encode() not in body


def test_a_bearer_asks_without_a_cookie(served):
    status, headers, body = ask(served, "/api/who", headers=BEARER)
    assert status == 200 and json.loads(body) == {"you": "in"} and "Set-Cookie" not in headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "127.0.0.1:{port}.evil",
                                  "[::1", "127.0.0.2:{port}"])
def test_a_name_that_leads_here_is_refused(served, host):
    status, _, body = ask(served, "/api/who", headers={**BEARER, "Host": host.format(port=served.port)})
    assert status == 421 and "Host" in json.loads(body)["error"]


@pytest.mark.parametrize(("host", "written"), [
    ("NodeA", "nodea"), ("0:0:0:0:0:0:0:1", "[::1]"), ("FE80::1", "[fe80::1]"), ("127.1", "127.0.0.1"), ("0x7f.1", "127.0.0.1"),
    ("LOCALHOST", "localhost"), ("10.0.0.1", "10.0.0.1"), ("2001:DB8:0::1", "[2001:db8::1]"), ("0", "0.0.0.0")])
def test_addresses_are_as_browsers_write_them(host, written):
    own = normal(host)
    assert address(own, 80, "t") == f"http://{written}:80/?token=t"
    names = names_of(own)
    assert (names is None) == (written == "0.0.0.0") and (names is None or written in names)
    assert (names == LOCAL) == (written in LOCAL)


def test_an_address_in_any_spelling_answers_at_the_one_that_browsers_send():
    with serving(VIEWS, names=names_of(normal("127.1"))) as served:
        assert ask(served, "/api/who", headers=BEARER)[0] == 200


def test_localhost_is_this_server_too(served):
    assert ask(served, "/api/who", headers={**BEARER, "Host": f"localhost:{served.port}"})[0] == 200


def test_a_server_of_all_addresses_takes_addresses_and_no_names():
    with serving(VIEWS, names=None) as served:
        for host, status in (("10.1.2.3", 200), ("[fe80::1]", 200), ("evil.example", 421), ("localhost", 421)):
            assert ask(served, "/api/who", headers={**BEARER, "Host": f"{host}:{served.port}"})[0] == status


@pytest.mark.parametrize(("headers", "status"), [
    ({**BEARER}, 200),
    ({**BEARER, "Origin": "http://evil.example"}, 403),
    ({**BEARER, "Origin": "null"}, 403),
    ({"Cookie": "ina-dash-{port}={token}", "Origin": "http://127.0.0.1:{port}"}, 200),
    ({"Cookie": "ina-dash-{port}={token}"}, 403),
    ({"Cookie": "ina-dash-{port}={token}", "Origin": "http://evil.example"}, 403),
    ({"Cookie": "ina-dash-{port}={token}", "Origin": "https://127.0.0.1:{port}"}, 403),
])
def test_a_post_comes_from_this_page_or_with_a_bearer(served, headers, status):
    headers = {name: value.format(port=served.port, token=TOKEN) for name, value in headers.items()}
    assert ask(served, "/api/echo", "POST", headers, b"x" * 100)[0] == status


def test_a_body_is_bounded(served):
    assert json.loads(ask(served, "/api/echo", "POST", BEARER, b"x" * MOST_BODY)[2]) == {"read": MOST_BODY}
    status, _, body = ask(served, "/api/echo", "POST", BEARER, b"x" * (MOST_BODY + 1))
    assert status == 413 and "1,048,576" in json.loads(body)["error"]
    assert ask(served, "/api/echo", "POST", {**BEARER, "Content-Length": "1" + "0" * 12}, b"")[0] == 413


@pytest.mark.parametrize("path", ["/../server.py", "/..%2fserver.py", "/%2e%2e/server.py", "/page/../../server.py", "/server.py",
                                  "/.", "/..", "/index.html%00.js", "/%2fetc%2fpasswd"])
def test_only_the_pages_files_are_files(served, path):
    status, _, body = ask(served, path, headers=BEARER)
    assert status == 404 and json.loads(body)["error"]


def test_every_answer_keeps_other_pages_and_caches_out(served):
    for path, headers in (("/", BEARER), ("/api/who", BEARER), ("/", {}), ("/nothing", BEARER), ("/api/broken", BEARER)):
        _, answered, _ = ask(served, path, headers=headers)
        assert answered["Content-Security-Policy"].startswith("default-src 'self'") and "unsafe" not in answered[
            "Content-Security-Policy"]
        assert answered["X-Content-Type-Options"] == "nosniff" and answered["Cache-Control"] == "no-store"


def test_errors_are_words_in_json(served, capfd):
    for path, method, status in (("/nothing", "GET", 404), ("/api/who", "POST", 405), ("/api/broken", "GET", 500),
                                 ("/", "DELETE", 405)):
        got, headers, body = ask(served, path, method, {**BEARER, "Content-Length": "0"})
        assert got == status and headers["Content-Type"] == "application/json"
        assert json.loads(body)["error"] and b"Traceback" not in body and b"no such key" not in body
    assert "no such key" in capfd.readouterr().err, "the terminal says what went wrong"


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: ", b"POST /api/echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf"])
def test_half_requests_lock_nobody_out_and_end_no_answer(monkeypatch, sent):
    """Nor do those that never end: no connection is closed for its silence here."""
    monkeypatch.setattr(server, "SILENCE", 10**6)
    begun, end = threading.Event(), threading.Event()

    def wait():
        begun.set()
        assert end.wait(LONG)
        return {"waited": True}

    with serving([own_routes, lambda app: app.route("/api/wait", "GET", wait)]) as served, ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(end.set)
        slow = pool.submit(ask, served, "/api/wait", headers=BEARER)
        assert begun.wait(LONG)
        for count in range(3 * server.CONNECTIONS):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=LONG))
            half.sendall(sent)
            if count % 50 == 49:
                assert ask(served, "/api/who", headers=BEARER)[0] == 200
        end.set()
        assert slow.result(LONG)[0] == 200


def test_a_head_has_no_body(served):
    assert ask(served, "/", "HEAD", BEARER)[::2] == (200, b"")
    assert ask(served, "/", "HEAD")[::2] == (401, b"")
