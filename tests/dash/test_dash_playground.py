"""The playground's routes: errors, graph and explanation of a program, packets through it, and programs that mean harm."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request

import pytest
from capabilities import need
from waiting import LONG, until

need("bottle", "waitress")

from dash_page import TOKEN, serving  # noqa: E402

from ina.base import paths  # noqa: E402
from ina.dash.playground import Playground  # noqa: E402
from ina.p4.compiler.sandbox import Limits  # noqa: E402

LEARN = (paths.root() / "examples/learn/learn.p4").read_text()
ENTRIES = (paths.root() / "examples/learn/learn.stf").read_text()
KNOWN = "0000000000020000000000010800aabb"


def ask(served, request, path="check"):
    """Returns (status, reply)."""
    body = json.dumps({"run": "a", **request}).encode()
    wanted = urllib.request.Request(f"{served.origin}/api/playground/{path}", body, {"Authorization": f"Bearer {TOKEN}"})
    try:
        with urllib.request.urlopen(wanted, timeout=LONG) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def served():
    with serving([Playground(Limits(seconds=100, memory=2 << 30, output=8 << 20), patience=LONG).add_routes]) as served:
        yield served


@pytest.mark.build
def test_errors_have_their_line_and_column(served):
    broken = LEARN.replace("apply {", "apply { nothing(); ", 1)
    line = next(i for i, text in enumerate(broken.splitlines(), start=1) if "nothing();" in text)
    column = broken.splitlines()[line - 1].index("nothing") + 1
    status, reply = ask(served, {"text": broken})
    (error,) = [one for one in reply["diagnostics"] if one["severity"] == "error"]
    assert (status, error["line"], error["column"]) == (200, line, column) and "nothing" in error["message"]
    assert "graph" not in reply


@pytest.mark.build
def test_a_program_is_drawn_and_explained(served):
    _, reply = ask(served, {"text": LEARN})
    assert reply["diagnostics"] == [] and reply["graph"].startswith("<svg") and ">start<" in reply["graph"]
    assert "tables" in reply["explanation"]
    (ethernet,) = [header for header in reply["headers"] if header["name"] == "ethernet"]
    assert [field["bits"] for field in ethernet["fields"]] == [48, 48, 16]


@pytest.mark.build
def test_a_packet_goes_its_way(served):
    _, reply = ask(served, {"text": LEARN, "packets": f"{KNOWN}\n{KNOWN.replace('02', '03', 1)}", "port": 1, "entries": ENTRIES})
    text = "\n".join(reply["trace"])
    first, second = text.split("packet 2:")
    assert first.startswith("packet 1: 16 bytes into port 1") and "hit entry" in first
    assert f"out of port 2: 16 bytes, unchanged\n    {KNOWN}" in first and "out of port 0" not in first
    assert "miss" in second and "out of port 0" in second and "out of port 2" in second and "out of port 1" not in second


@pytest.mark.build
def test_a_shipped_program_finds_its_headers(served):
    name = "tofino/ps"
    request = urllib.request.Request(f"{served.origin}/api/playground/programs/{name}",
                                     headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=LONG) as answer:
        text = json.loads(answer.read())["text"]
    _, reply = ask(served, {"text": text, "like": name})
    assert [one for one in reply["diagnostics"] if one["severity"] == "error"] == [] and reply["graph"]


@pytest.mark.build
@pytest.mark.parametrize(("text", "words"), [
    ('#include "program.p4"\n', "not found"),
    ('#include "/etc/passwd"\n', "/etc/passwd"),
    ('#include "../../../../etc/passwd"\n', "etc/passwd"),
    ("const bit<8> a = " + "(" * 20000 + "1" + ")" * 20000 + ";", "deep"),
    ("\u202e\ud800 \u00e9\U0001f600", ""),
    ("", "main"),
])
def test_harmful_text_is_an_error_in_words(served, text, words):
    status, reply = ask(served, {"text": text})
    spoken = reply.get("refused", "") + " ".join(one["message"] for one in reply["diagnostics"])
    assert status == 200 and spoken and words in spoken and "root:" not in json.dumps(reply)


@pytest.mark.build
@pytest.mark.parametrize(("more", "words"), [
    ({"packets": "xy"}, "hexadecimal"), ({"packets": ""}, "1 to 64"), ({"packets": "00\n" * 65}, "1 to 64"),
    ({"packets": "00" * 14, "entries": "add nothing a:1 b()"}, "nothing"),
])
def test_packets_and_entries_that_do_not_fit_are_refused_in_words(served, more, words):
    status, reply = ask(served, {"text": LEARN, **more})
    assert status == 200 and words in reply["refused"]


@pytest.mark.build
@pytest.mark.parametrize(("request_", "words"), [
    ({"text": 5}, "text (str)"), ({"wrong": 1}, "wrong"), ({}, "'text' is missing"), ({"text": "", "defines": "1=2"}, "1=2"),
    ({"text": "", "packets": "", "port": 512}, "0 to 511"), ({"text": "", "packets": "", "port": True}, "port"),
])
def test_requests_that_make_no_sense_are_refused(served, request_, words):
    status, reply = ask(served, request_)
    assert status == 400 and words in reply["error"]


ENDLESS = "".join(f"#define A{i} A{i + 1} A{i + 1} A{i + 1} A{i + 1}\n" for i in range(40)) + "A0\n"


@pytest.mark.build
def test_a_program_without_an_end_is_ended():
    with serving([Playground(Limits(seconds=3, memory=1 << 30, output=1 << 20)).add_routes]) as served:
        status, reply = ask(served, {"text": ENDLESS})
        assert status == 422 and ("within 3 s" in reply["error"] or "limits" in reply["error"])


@pytest.mark.build
def test_a_page_that_goes_ends_its_check():
    playground = Playground(Limits(seconds=100, memory=8 << 30, output=1 << 20))
    with serving([playground.add_routes]) as served:
        replies = []
        thread = threading.Thread(target=lambda: replies.append(ask(served, {"text": ENDLESS})))
        thread.start()
        until(lambda: playground._children, "the process")
        (child,) = playground._children.values()
        assert ask(served, {}, "cancel") == (200, {"ended": True})
        thread.join(LONG)
        assert replies[0][0] == 422 and "cancelled" in replies[0][1]["error"] and child.returncode == -9
        assert ask(served, {}, "cancel") == (200, {"ended": False})


@pytest.mark.build
def test_others_wait_for_a_while_and_are_told():
    playground = Playground(Limits(seconds=100, memory=8 << 30, output=1 << 20), patience=0.2)
    with serving([playground.add_routes]) as served:
        threads = [threading.Thread(target=ask, args=(served, {"text": ENDLESS, "run": name})) for name in ("b", "c")]
        for thread in threads:
            thread.start()
        until(lambda: len(playground._children) == 2, "two processes")
        status, reply = ask(served, {"text": ""})
        assert status == 503 and "try again" in reply["error"]
        for name in ("b", "c"):
            ask(served, {"run": name}, "cancel")
        for thread in threads:
            thread.join(LONG)
