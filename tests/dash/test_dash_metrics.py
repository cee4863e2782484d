"""``/metrics``, as Prometheus's own client library reads it."""

from __future__ import annotations

import copy
import urllib.request
from contextlib import closing

import pytest
from capabilities import need
from waiting import LONG

need("bottle", "waitress", "prometheus_client")

from dash_page import TOKEN, serving  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

from ina.aggregation.controller.client import ControlError, start_server  # noqa: E402
from ina.aggregation.controller.metrics import CONTENT, exposition  # noqa: E402
from ina.base import paths  # noqa: E402
from ina.dash.metrics import Metrics  # noqa: E402

LOOK = {
    "seconds": 0.25,
    "ping": {"program": "none.p4", "pid": 1},
    "switches": {"switches": {"s1": {"slots": 64, "free_slots": 48, "state": "up", "jobs": ["a"]},
                              "s2": {"slots": 64, "free_slots": 64, "state": "it has no carrier", "jobs": []}},
                 "links": [{"link": "h2", "ended": None, "state": "down"}, {"link": "h1", "ended": 5.0, "state": "down"}]},
    "jobs": {"jobs": {"a": {"members": {"0": {}, "1": {}}, "workers": 3, "slots": 16}}},
    "counters": {
        "program": {"Ingress.packets": [[7, 700], [0, 0]]},
        "ports": {"0": {"device": "veth0", "up": True, "rx_packets": 101, "rx_bytes": 9000, "tx_packets": 3, "tx_bytes": 9,
                        "drops": {"ingress": 5, "tail": 2}, "turns": 4}},
        "links": {"h1": {"rate": 1e8, "up_packets": 1, "up_bytes": 2, "up_tail_drops": 3, "down_packets": 4, "down_bytes": 5,
                         "down_buffer_drops": 6, "lost": 8, "errors": {"too_long": 9}},
                  "h2": {"rate": None, "up_packets": 0, "up_bytes": 0, "down_packets": 0, "down_bytes": 0}},
        "server": {"jobs": {"0": {"sums": 12}}},
    },
}


def read(text):
    """Values by metric and labels; no metric, and no labels of one, may come twice."""
    values, families = {}, []
    for family in text_string_to_metric_families(text):
        families.append(family.name)
        assert family.documentation and family.type in ("counter", "gauge"), family.name
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total"), sample.name
            key = sample.name, frozenset(sample.labels.items())
            assert key not in values, key
            values[key] = sample.value
    assert len(families) == len(set(families))
    return values


def at(values, metric, **labels):
    return values[metric, frozenset({"process": "@s", **labels}.items())]


@pytest.mark.fast
def test_every_counter_has_its_name_and_unit():
    values = read(exposition({"s": LOOK}))
    assert at(values, "ina_up") == 1 and at(values, "ina_scrape_duration_seconds") == 0.25
    assert [at(values, "ina_switch_up", switch=name) for name in ("s1", "s2")] == [1, 0]
    assert at(values, "ina_switch_free_slots", switch="s1") == 48
    assert [at(values, f"ina_job_{name}", job="a") for name in ("workers", "workers_asked", "slots")] == [2, 3, 16]
    cell = {"switch": "", "counter": "Ingress.packets", "cell": "0"}
    assert at(values, "ina_program_packets_total", **cell) == 7 and at(values, "ina_program_bytes_total", **cell) == 700
    assert at(values, "ina_program_packets_total", **{**cell, "cell": "1"}) == 0, "a zero is a figure"
    assert at(values, "ina_port_packets_total", port="0", direction="in") == 101
    assert at(values, "ina_port_bytes_total", port="0", direction="out") == 9
    assert [at(values, "ina_port_drops_total", port="0", reason=reason) for reason in ("ingress", "tail")] == [5, 2]
    assert at(values, "ina_port_count_total", port="0", field="turns") == 4
    assert [at(values, "ina_link_packets_total", link="h1", direction=way) for way in ("up", "down")] == [1, 4]
    assert at(values, "ina_link_bytes_total", link="h1", direction="down") == 5
    assert at(values, "ina_link_drops_total", link="h1", direction="up", reason="tail") == 3
    assert at(values, "ina_link_drops_total", link="h1", direction="down", reason="buffer") == 6
    assert at(values, "ina_link_drops_total", link="h1", reason="lost") == 8
    assert at(values, "ina_link_count_total", link="h1", field="errors too_long") == 9
    assert at(values, "ina_link_rate_bits_per_second", link="h1") == 1e8
    assert [at(values, "ina_link_up", link=name) for name in ("h1", "h2")] == [1, 0]
    assert at(values, "ina_server_count_total", job="0", field="sums") == 12
    assert len(values) == 38, "and nothing else"


@pytest.mark.fast
def test_switches_that_answer_for_themselves_have_cells_of_their_own():
    look = copy.deepcopy(LOOK)
    look["counters"]["switches"] = {"s1": {"program": {"n": [[1, 0]]}}, "s2": {"program": {}, "error": "timeout"}}
    values = read(exposition({"s": look}))
    assert at(values, "ina_program_packets_total", switch="s1", counter="n", cell="0") == 1


@pytest.mark.fast
@pytest.mark.parametrize("name", ['a"b', "a\\", "a\nb", '\\"\n\\n', "}", 'x",process="other', "é\u2028\x00\r", " ", ""])
def test_names_of_others_stay_names(name):
    look = copy.deepcopy(LOOK)
    look["jobs"]["jobs"] = {name: look["jobs"]["jobs"]["a"]}
    look["counters"]["links"] = {name: look["counters"]["links"]["h1"]}
    values = read(exposition({"s": look}))
    assert at(values, "ina_job_slots", job=name) == 16 and at(values, "ina_link_bytes_total", link=name, direction="up") == 2


@pytest.mark.fast
def test_a_name_that_is_no_text_is_readable():
    job = LOOK["jobs"]["jobs"]["a"]
    jobs = {name: {**job, "slots": slots} for name, slots in zip(("\ud800", "\udfff", "?"), (16, 17, 18), strict=True)}
    look = {**LOOK, "jobs": {"jobs": jobs}}
    values = read(exposition({"s": look}))
    assert [at(values, "ina_job_slots", job=name) for name in (r"\ud800", r"\udfff", "?")] == [16, 17, 18]


@pytest.mark.fast
def test_names_that_are_written_alike_are_one():
    job = LOOK["jobs"]["jobs"]["a"]
    look = {**LOOK, "jobs": {"jobs": dict.fromkeys(("\ud800", r"\ud800"), job)}}
    assert at(read(exposition({"s": look})), "ina_job_slots", job=r"\ud800") == 16


@pytest.mark.fast
@pytest.mark.parametrize("broken", [None, {**LOOK, "counters": []}, {**LOOK, "jobs": {"jobs": {"a": 5}}},
                                    {**LOOK, "counters": {"program": {"n": [["1 # HELP", 2]]}}},
                                    {**LOOK, "switches": {"switches": {"s1": {"slots": True, "free_slots": 1, "state": "up"}}}},
                                    {**LOOK, "counters": {"program": {"n": [[10**5000, 2]]}}}])
def test_a_process_that_does_not_answer_is_down_and_has_no_figures(broken):
    values = read(exposition({"s": broken, "t": LOOK}))
    assert at(values, "ina_up") == 0
    assert [key for key in values if dict(key[1])["process"] == "@s"] == [("ina_up", frozenset({("process", "@s")}))]
    assert at(values, "ina_up", process="@t") == 1


def scrape(served):
    request = urllib.request.Request(f"{served.origin}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=LONG) as answer:
        assert answer.headers["Content-Type"] == CONTENT
        return read(answer.read().decode())


@pytest.mark.fast
def test_prometheus_scrapes_with_the_token():
    def sample(name, timeout):
        if name == "gone":
            raise ControlError("timeout", "no answer")
        return LOOK

    with serving([Metrics(["gone"], sample, lambda: ["s"]).add_routes]) as served:
        values = scrape(served)
        assert at(values, "ina_up") == 1 and at(values, "ina_up", process="@gone") == 0
    with serving([Metrics((), sample, list).add_routes]) as served:
        assert scrape(served) == {}, "nothing runs"


@pytest.mark.build
def test_a_real_switch_process_is_scraped():
    with closing(start_server(paths.p4_dir() / "switchml.p4", {"VALUES": "64", "SLOTS": "32"}, job_slots=16)) as process:
        with serving([Metrics([process.name], discover=list).add_routes]) as served:
            values = scrape(served)
    own = {"process": f"@{process.name}"}
    assert at(values, "ina_up", **own) == 1 and at(values, "ina_switch_free_slots", switch="s1", **own) == 32
    cells = [dict(labels) for metric, labels in values if metric == "ina_program_packets_total"]
    assert cells and all(cell["counter"] and cell["cell"] for cell in cells)
