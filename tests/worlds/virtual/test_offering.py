"""Every interleaving of small jobs whose switch decides which workers a sum is of (p4/quorum.p4)."""

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from capabilities import need
from plants.planting import Plant, planted

from ina.base import paths
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import Link, Node, Topology, load
from ina.worlds.virtual.explorer import Report
from ina.worlds.virtual.offering import Part, offering

pytestmark = pytest.mark.build
need("cc")

PAIR, THREE = load("star", hosts=2), load("star", hosts=3)
LEAVES = load("leaf-spine", leaves=2, spines=1, hosts=1)
ODD = Topology(  # two workers at one leaf, one at the other
    "odd",
    tuple(map(Node, ("h1", "h2", "h3", "s1", "s2", "s3"))),
    (Link("h1", "s1"), Link("h2", "s1"), Link("h3", "s2"), Link("s1", "s3"), Link("s2", "s3")),
)
ONE, TWO = Part(1), Part(2)
LATER_ONE, LATER_TWO = (ONE, Part(1, "later")), (TWO, Part(2, "later"))


def compiled(folder: Path) -> Program:
    return Program(compile_program(folder / "quorum.p4", defines={"VALUES": "32", "SLOTS": "2"}, cflags=["-O1"]).so_path)


@pytest.fixture(scope="module")
def program():
    return compiled(paths.p4_dir())


@pytest.fixture(scope="module")
def twin():
    """The program for Tofino. Its states are more: rows have numbers that count what changes them."""
    return compiled(paths.p4_dir() / "tofino")


def check(report: Report, states: int) -> None:
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.states > states


@pytest.mark.parametrize(("parts", "states"), [
    ((ONE, ONE), 300),
    (LATER_ONE, 1_000),
    ((Part(1, "later"), Part(1, "later")), 3_000),
    ((Part(2, "later"), Part(2, "later")), 1_500),
    ((ONE, Part(1, "not")), 300),
    ((TWO, Part(2, "never")), 300),
    ((Part(2, "never"), Part(2, "never")), 300),
    ((Part(2, releases=True), Part(2, "later")), 3_000),
    ((Part(2, releases=True), Part(2, "not")), 800),
    ((Part(1, rivals=(1,)), Part(1, rivals=(0,))), 500),
    ((Part(2, rivals=(1,)), Part(2, rivals=(0,))), 500),
], ids=str)
def test_one_switch_whatever_two_workers_do(program, parts, states):
    """Any number of losses, duplicates and time-outs, in any order; every worker that may give later does so at any time, or
    never before the end."""
    report = offering(program, PAIR, parts).saturate()
    check(report, states)
    assert report.complete


@pytest.mark.parametrize(("options", "states"), [
    ({"elements": 8}, 200),  # in the open packet
    ({"dtype": np.float32, "elements": 96}, 2_000),
    ({"slots": 2, "elements": 96}, 20_000),
    ({"late": True, "elements": 8}, 200),
    ({"count": 2, "elements": 8}, 2_000),
    ({"first": 2**32 - 1}, 1_000),
], ids=str)
def test_what_follows_an_offer(program, options, states):
    check(offering(program, PAIR, LATER_ONE, **options).saturate(max_states=60_000), states)


@pytest.mark.parametrize(("topology", "parts"), [
    (THREE, (TWO, TWO, Part(2, "later"))),
    (THREE, (Part(2, rivals=(1,)), Part(2, rivals=(0,)), Part(2, "later"))),
    (LEAVES, LATER_ONE),
    (LEAVES, (Part(2, "never"), Part(2, "later"))),
    (ODD, (ONE, Part(1, "later"), Part(1, "not"))),
], ids=lambda each: each.name if isinstance(each, Topology) else str(each))
def test_more_workers_and_trees(program, topology, parts):
    check(offering(program, topology, parts, elements=8).saturate(max_states=40_000), 600)


@pytest.mark.parametrize("topology", [PAIR, LEAVES], ids=lambda topology: topology.name)
def test_no_wrong_sum_when_switches_lose_their_state(program, topology):
    """Then workers may be told other contributors than others: they do not agree on the sum that follows, which is an error."""
    walk = offering(program, topology, LATER_ONE, elements=8, restarts=True)
    report = walk.saturate(max_states=40_000, finish=False)
    check(report, 8_000)


@pytest.mark.parametrize(("topology", "parts", "options", "states"), [
    (PAIR, LATER_ONE, {}, 1_000),
    (PAIR, (Part(2, "never"), Part(2, "never")), {}, 300),
    (PAIR, (Part(2, releases=True), Part(2, "later")), {}, 3_000),
    (PAIR, (Part(2, rivals=(1,)), Part(2, rivals=(0,))), {}, 500),
    (PAIR, LATER_ONE, {"count": 2, "elements": 8}, 4_000),
    (PAIR, LATER_ONE, {"first": 2**32 - 1}, 1_000),
    (THREE, (TWO, TWO, Part(2, "later")), {"elements": 8}, 10_000),
    (LEAVES, LATER_ONE, {"elements": 8}, 800),
    (ODD, (ONE, Part(1, "later"), Part(1, "not")), {"elements": 8}, 5_000),
], ids=lambda each: each.name if isinstance(each, Topology) else str(each))
def test_the_twin_for_tofino(twin, topology, parts, options, states):
    check(offering(twin, topology, parts, **options).saturate(max_states=40_000), states)


@pytest.mark.parametrize("topology", [PAIR, LEAVES], ids=lambda topology: topology.name)
def test_no_wrong_sum_when_tofinos_lose_their_state(twin, topology):
    explorer = offering(twin, topology, LATER_ONE, elements=8, restarts=True)
    check(explorer.saturate(max_states=40_000, finish=False), 8_000)


OFFERS = "p4/include/quorum/offers.p4"
ALL_HERE, ADDED = "seen == meta.full && ", "            if (!known && hdr.offer.state == OFFER_GIVE"
DEFECTS = {
    "contributors change when they are decided": (
        Plant(OFFERS, "if (left != 0) {\n            seen", "if (true) {\n            seen"), LATER_ONE, "agree|sum"),
    "it is decided before all have asked": (Plant(OFFERS, ALL_HERE, ""), LATER_ONE, "."),
    "whom rivals stand for contributes, too": (
        Plant(OFFERS, " && given & hdr.offer.rivals == 0", ""), (Part(2, rivals=(1,)), Part(2, rivals=(0,))), "rival"),
    "those that pass are waited for": (
        Plant(OFFERS, " || given | without == meta.full", ""), (TWO, Part(2, "never")), "does not finish"),
    "a phase begins with the count of an older one": (
        Plant(OFFERS, "            count = 0;\n", ""), LATER_TWO, "might"),
    "who has given counts once more": (
        Plant(OFFERS, "if (!known && hdr.offer.state == OFFER_GIVE", "if (hdr.offer.state == OFFER_GIVE"),
                                       LATER_TWO, "might"),
    "who gives after it has asked is not heard": (
        Plant(OFFERS, ADDED, "            if (!again && hdr.offer.state == OFFER_GIVE"), LATER_TWO, "might"),
    "a packet that asks again is answered as if it were decided": (
        Plant(OFFERS, "            if (left == 0) {\n                hdr.offer.state",
              "            if (true) {\n                hdr.offer.state"),
        LATER_TWO, "agree"),
    "the result of another phase is taken": (
        Plant("p4/include/switchml/phase.p4", "hdr.switchml.tsi != tsi", "!hdr.offer.isValid() && hdr.switchml.tsi != tsi"),
        LATER_ONE, "."),
    "workers do not compare contributors": (
        Plant("host/protocol/tensors.c", "contributors + 1) ^ ts->fingerprint", "1) ^ ts->fingerprint",
              protocol="quorum"), None, "sum"),
    "who is late sends its values": (
        Plant("host/protocol/tensors.c", "op->absent = !(contributors >> ts->worker & 1);",
              "op->absent = !(contributors >> ts->worker & 1) && !tensors[handle].in;", protocol="quorum"),
        LATER_ONE, "sum"),
}


@pytest.mark.judge
@pytest.mark.parametrize("name", DEFECTS)
def test_seeded_defects_are_found(name):
    defect, parts, violation = DEFECTS[name]
    forgetful = parts is None
    with tempfile.TemporaryDirectory() as folder, planted(defect, Path(folder)) as p4:
        report = offering(compiled(p4), PAIR, parts or LATER_ONE, restarts=forgetful, elements=8 if forgetful else 40,
                          count=1 if forgetful else 2).saturate(max_states=60_000, finish=not forgetful)
    assert report.violation is not None and re.search(violation, report.violation), report
