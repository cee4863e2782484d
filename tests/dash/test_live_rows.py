"""Rows of the view "Live", against looks that are made up, that make no sense, or that never come."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import dash_looks
import pytest
from waiting import until

from ina import topology as topologies
from ina.aggregation.control_socket import messages
from ina.aggregation.controller.api import Operations
from ina.aggregation.controller.client import ControlError
from ina.base import paths
from ina.dash import live
from ina.dash.live import MOST, Live
from ina.dash.live_rows import row

pytestmark = pytest.mark.fast
EVIL = '<img src=x onerror=alert(1)>\x1b[31m\u202e'


def test_a_local_switch_is_a_star_of_its_ports():
    shown = row(dash_looks.local(12.0, 300), dash_looks.local(10.0, 100))
    assert [node[0] for node in shown["drawing"]["nodes"]] == ["s1", "port 0", "port 1"]
    assert shown["drawing"]["ends"] == [[1, 0], [2, 0]]
    busy, idle = shown["links"]
    assert (busy["up"], busy["down"], busy["packets"]) == (80_000, 40_000, 200), "20,000 and 10,000 bytes, 400 packets in 2 s"
    assert busy["share"] == 1 and idle["share"] == 0, "ports have no rate: the highest is the whole"
    assert shown["jobs"][0]["links"] == ["0", "1"] and shown["jobs"][0]["nodes"] == ["s1", "port 0", "port 1"]
    assert ["port 0", "drops: tail", 3, 0] in shown["drops"]
    assert not any("ingress" in reason for _, reason, _, _ in shown["drops"]), "what a program adds up is no loss"


def test_links_of_a_network_are_shares_of_their_rate_and_the_tree_is_the_jobs():
    shown = row(dash_looks.network(11.0, 625_000, faults=["h2"]), dash_looks.network(10.0))
    net = topologies.specified("leaf-spine leaves=2 spines=1 hosts=2")
    links = {link["name"]: link for link in shown["links"]}
    assert list(links) == net.link_names() and links["h1"]["share"] == pytest.approx(0.5), "5 of 10 Gb/s"
    assert links["h2"]["state"] == "down" and links["h1"]["state"] == "up"
    (job,) = shown["jobs"]
    assert set(job["links"]) == set(net.link_names()) and job["root"] in job["nodes"]
    nodes = [node[0] for node in shown["drawing"]["nodes"]]
    assert [{nodes[a], nodes[b]} for a, b in shown["drawing"]["ends"]] == [{link.a, link.b} for link in net.links]
    assert ["link h1", "lost", 5, 0] in shown["drops"] and ["link h1", "errors: tx_full", 1, 0] in shown["drops"]
    (words,) = [one["words"] for one in shown["incidents"]]
    assert words.startswith("link h2 is down since ") and words.endswith(": it has no carrier; 12 frames lost there; a waits")
    assert shown["silent"] == ["nothing has come from h2 (worker 1 of a) for 5 s, while others of its job send: it computes, it "
                               "stands still, or its link loses everything"]


def test_cells_have_the_programs_names():
    look = dash_looks.local()
    look["ping"]["program"] = str(paths.p4_dir() / "switchml.p4")
    look["counters"]["program"] = {"SwitchIngress.drops": [[0, 0], [4, 400]] + [[0, 0]] * 11}
    shown = row(look, None)
    assert shown["counters"] == [["", "SwitchIngress.drops", "malformed", 4, 400, 0]]
    assert ["program", "malformed", 4, 0] in shown["drops"]


def test_another_process_at_the_same_name_has_no_negative_rates():
    shown = row(dash_looks.local(12.0, 1, pid=78), dash_looks.local(10.0, 1000))
    assert all(link["up"] == 0 for link in shown["links"])


def test_the_controllers_topology_comes_as_it_is():
    """Over the wire and back: names that are no samples, and a simplex link."""
    net = topologies.Topology("n", (topologies.Node("a", like="h1"), topologies.Node("tor", like="s1"), topologies.Node("s2")),
                              (topologies.Link("a", "tor", rate=1e9), topologies.Link("tor", "s2", simplex=True),
                               topologies.Link("s2", "tor", simplex=True)))
    service = SimpleNamespace(controller=SimpleNamespace(topology=net))
    reply = json.loads(json.dumps(Operations.topology(service, None, [], messages.Topology())))
    look = {**dash_looks.local(), "topology": reply}
    shown = row(look, None)
    assert shown["topology"] == "n" and [link["name"] for link in shown["links"]] == net.link_names()
    service.controller.topology = None
    assert Operations.topology(service, None, [], messages.Topology()) == {"topology": None}


def test_names_of_others_are_printable_and_bounded():
    look = dash_looks.local(name=EVIL + "x" * 10**6)
    text = json.dumps(row(look, None), ensure_ascii=False)
    assert "\x1b" not in text and "\u202e" not in text and len(text) < 20_000


@pytest.mark.parametrize("path", ["ping", "jobs", "counters", "switches", "topology"])
@pytest.mark.parametrize("nonsense", [{}, [], None, 7, "x", {"jobs": [], "switches": 3, "topology": {"name": 1}}])
def test_a_reply_that_makes_no_sense_is_said_to_be_one(path, nonsense):
    if path == "counters" and nonsense == {}:
        nonsense = {"ports": {"0": 3}}
    view = Live(look=lambda name: {**dash_looks.local(), path: nonsense}, discover=lambda: ["a"])
    rows = until(lambda: [one for one in view.answer()["switches"] if one["error"]], "a row")
    assert "makes no sense" in rows[0]["error"] and "about" not in rows[0]


@pytest.mark.parametrize("nonsense", [None, "x", True, [5], {"a": 1}, 1.5])
@pytest.mark.parametrize("keys", [("ping", "slots"), ("ping", "free_slots"), ("ping", "pid"), ("ping", "values"),
                                  ("jobs", "jobs", "a", "slots"), ("jobs", "jobs", "a", "workers"),
                                  ("switches", "switches", "s1", "slots"), ("switches", "switches", "s1", "free_slots"),
                                  ("switches", "switches", "s1", "jobs")])
def test_a_value_of_another_type_is_no_row(keys, nonsense):
    look = dash_looks.local()
    part = look
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = nonsense
    with pytest.raises(TypeError, match=keys[-1]):
        row(look, None)


def test_a_thousand_links_and_64_jobs():
    names = [f"job {i}" for i in range(64)]
    look = dash_looks.network(spec="leaf-spine leaves=32 spines=8 hosts=24", names=names)
    shown = row(look, None)
    assert len(shown["links"]) >= 1000 and len(shown["jobs"]) == 64
    assert json.dumps(shown)


def test_one_that_never_answers_blocks_nobody():
    hold = threading.Event()
    asked = []

    def look(name):
        asked.append(name)
        if name == "hangs":
            hold.wait()
        if name == "stale":
            raise ControlError("gone", "no switch process at socket @stale: Connection refused")
        return dash_looks.local()

    view = Live(["stale"], look, lambda: ["hangs", "works"])
    try:
        def rows():
            return {one["name"]: one for one in view.answer()["switches"]}

        def all_told():
            now = rows()
            return now if "about" in now["@works"] and now["@stale"]["error"] and now["@hangs"]["error"] else None

        shown = until(all_told, "all three rows")
        assert shown["@works"]["error"] == "" and shown["@stale"]["error"].startswith("no answer: no switch process at socket")
        assert shown["@hangs"]["error"].startswith("it has not answered for ")
        rows()
        assert asked.count("hangs") == 1, "asked again only when its question is over"
    finally:
        hold.set()


def test_more_processes_than_are_asked_are_counted():
    view = Live(look=lambda name: dash_looks.local(), discover=lambda: [str(i) for i in range(MOST + 5)])
    reply = view.answer()
    assert len(reply["switches"]) == MOST and reply["unasked"] == 5


def test_a_process_that_ends_is_shown_as_ended_and_then_forgotten(monkeypatch):
    names = ["a"]
    view = Live(look=lambda name: dash_looks.local(), discover=lambda: names)
    until(lambda: "about" in view.answer()["switches"][0], "its row")
    names = []
    (shown,) = view.answer()["switches"]
    assert shown["error"].startswith("it has ended") and shown["about"]["pid"] == 77
    monkeypatch.setattr(live, "KEPT", -1.0)
    assert view.answer()["switches"] == []
