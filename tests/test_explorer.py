"""Every interleaving of small jobs, over the real compiled program and the real worker."""

import numpy as np
import pytest
from capabilities import need

from ina import paths
from ina.emulator.explorable import job
from ina.emulator.explorer import Budget, Explorer, Machine, Report
from topologies import Link, Node, Topology, load

need("cc")


@pytest.fixture(scope="module")
def program():
    from ina.compiler.build import compile_program
    from ina.switch.embedded import Program

    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "2"})
    return Program(built.so_path)


def check(report: Report, states: int) -> None:
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.states > states


PAIR = load("star", hosts=2)
LEAVES = load("leaf-spine", leaves=2, spines=1, hosts=1)


@pytest.mark.parametrize(
    "slots, depth, budget",
    [
        (1, 20, Budget(losses=1, duplicates=1, timeouts=2)),
        (1, 16, Budget(losses=2, duplicates=2, timeouts=2)),
        (2, 11, Budget(losses=1, duplicates=1, timeouts=1)),
    ],
)
def test_one_switch(program, slots, depth, budget):
    check(job(program, PAIR, slots=slots).explore(depth, budget), 1000)


@pytest.mark.parametrize("budget", [Budget(1, 0, 1), Budget(0, 1, 1)])
def test_two_leaves_and_a_root(program, budget):
    check(job(program, LEAVES).explore(18, budget), 1000)


def test_the_whole_space_of_one_loss_and_one_time_out(program):
    """No bound on the depth: there are no more states."""
    report = job(program, LEAVES).explore(100, Budget(1, 0, 1))
    check(report, 1000)
    assert report.complete


@pytest.mark.parametrize("topology", [PAIR, LEAVES], ids=["one switch", "tree"])
def test_exponents_agree_ahead(program, topology):
    """float32: packets without payload, and blocks that wait for their exponent."""
    check(job(program, topology, dtype=np.float32).explore(12, Budget(1, 1, 1)), 1000)


def test_a_tensor_in_one_packet(program):
    report = job(program, LEAVES, elements=7).explore(100, Budget(2, 1, 2))
    check(report, 500)
    assert report.complete


def test_leaves_of_different_size(program):
    """Two workers at one leaf, of which one has the partial sum sent up again; one at the other."""
    nodes = tuple(map(Node, ("h1", "h2", "h3", "s1", "s2", "s3")))
    links = (Link("h1", "s1"), Link("h2", "s1"), Link("h3", "s2"), Link("s1", "s3"), Link("s2", "s3"))
    check(job(program, Topology("odd", nodes, links)).explore(11, Budget(1, 0, 1)), 1000)


def test_the_explorer_finds_what_one_version_bit_lets_through(program):
    """Without the tsi check a duplicate that is late by two phases is taken for a first write."""
    report = job(program, PAIR, strict=False).explore(16, Budget(losses=0, duplicates=1, timeouts=1))
    assert report.violation is not None and ("wrong sum" in report.violation or "failed" in report.violation)
    assert any(step.startswith("duplicated") or step.startswith("times out") for step in report.steps)


# ---- the walk itself, over machines that are easy to see through


class Caller(Machine):
    """Sends a question until it is answered; must not be answered twice."""

    name, timers = "caller", (0,)

    def __init__(self):
        self.answers = 0

    def start(self):
        return [(0, b"?")]

    def receive(self, port, frame):
        self.answers += 1
        return []

    def expire(self, timer):
        return None if self.answers else [(0, b"?")]

    def save(self):
        return bytes([self.answers]), bytes([self.answers])

    def restore(self, saved):
        self.answers = saved[0]

    def violation(self):
        return "answered twice" if self.answers > 1 else None

    def done(self):
        return self.answers > 0


class Oracle(Machine):
    """Answers up to ``patience`` questions."""

    name = "oracle"

    def __init__(self, patience=255):
        self.left = patience

    def receive(self, port, frame):
        if not self.left:
            return []
        self.left -= 1
        return [(port, b"!")]

    def save(self):
        return bytes([self.left]), bytes([self.left])

    def restore(self, saved):
        self.left = saved[0]


def call(patience: int, budget: Budget) -> Report:
    return Explorer([Caller(), Oracle(patience)], [(("caller", 0), ("oracle", 3))], bytes.decode).explore(50, budget)


def test_all_states_are_seen_and_counted():
    report = call(255, Budget(losses=0, duplicates=0, timeouts=0))
    assert (report.violation, report.states, report.depth, report.complete) == (None, 3, 3, True)
    assert report.local == {"caller": 2, "oracle": 2}


def test_a_violation_comes_with_a_shortest_way_to_it():
    report = call(255, Budget(losses=1, duplicates=1, timeouts=0))
    assert report.violation == "answered twice" and not report.complete
    assert report.steps == ("arrives: ?, caller to oracle", "duplicated: !, oracle to caller",
                            "arrives: !, oracle to caller", "arrives: !, oracle to caller")  # fmt: skip


def test_a_dead_end_comes_with_the_way_to_it():
    report = call(1, Budget(losses=1, duplicates=0, timeouts=0))
    assert "does not finish" in report.violation
    assert report.steps == ("arrives: ?, caller to oracle", "lost: !, oracle to caller")


def test_frames_go_where_wires_lead():
    with pytest.raises(ValueError, match="port 0, which has no wire"):
        Explorer([Caller(), Oracle()], [])
    with pytest.raises(ValueError, match="two wires"):
        Explorer([Caller(), Oracle()], [(("caller", 0), ("oracle", port)) for port in (1, 2)])
