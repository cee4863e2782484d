"""Every interleaving of small jobs, over the real compiled program and the real worker."""

import re
import shutil
from dataclasses import dataclass

import numpy as np
import pytest
from capabilities import need
from plants.explored import STATES, find, plant

from ina.aggregation.entries.switchml import PROGRAM as SWITCHML
from ina.base import paths
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import Link, Node, Topology, load
from ina.worlds.virtual.explorable import job, starts
from ina.worlds.virtual.explorer import Budget, Explorer, Machine, Report

pytestmark = pytest.mark.build
need("cc")


@pytest.fixture(scope="module")
def program():
    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "2"})
    return Program(built.so_path)


def check(report: Report, states: int) -> None:
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.states > states


PAIR = load("star", hosts=2)
LEAVES = load("leaf-spine", leaves=2, spines=1, hosts=1)
ODD = Topology(  # two workers at one leaf, of which one has the partial sum sent up again; one at the other
    "odd",
    tuple(map(Node, ("h1", "h2", "h3", "s1", "s2", "s3"))),
    (Link("h1", "s1"), Link("h2", "s1"), Link("h3", "s2"), Link("s1", "s3"), Link("s2", "s3")),
)


DEEP = Topology(  # root s2: a leaf s1; an inner switch s3 with a leaf s4 and a worker
    "three levels",
    tuple(map(Node, ("h1", "h2", "h3", "s1", "s2", "s3", "s4"))),
    (Link("h1", "s1"), Link("h2", "s4"), Link("h3", "s3"), Link("s1", "s2"), Link("s2", "s3"), Link("s3", "s4")),
)


@pytest.mark.parametrize(
    "slots, depth, budget",
    [
        (1, 20, Budget(losses=1, duplicates=1, timeouts=2)),
        (1, 13, Budget(losses=2, duplicates=2, timeouts=2)),
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


@pytest.mark.parametrize(
    "topology, slots, elements, dtype, states",
    [
        (PAIR, 1, 128, np.int32, 829), (PAIR, 2, 64, np.int32, 1217), (LEAVES, 1, 64, np.int32, 538),
        (LEAVES, 2, 32, np.float32, 200), (ODD, 1, 64, np.int32, 14_635), (DEEP, 1, 32, np.int32, 4958),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_any_number_of_faults(program, topology, slots, elements, dtype, states):
    """No bound on anything: every frame that was ever sent may come at any time, any number of times, or never."""
    report = job(program, topology, slots=slots, elements=elements, dtype=dtype).saturate()
    check(report, states - 1)
    assert report.complete


@pytest.mark.parametrize("first", starts(SWITCHML, 1))
def test_packet_numbers_wrap(program, first):
    """Rows are used again on the other side of a wrap: the same states as from packet 0, and each can finish."""
    explorer = job(program, PAIR, elements=96, first=first)
    report = explorer.saturate()
    check(report, 300)
    assert report.complete and report.states == job(program, PAIR, elements=96).saturate().states


def test_maxima(program):
    report = job(program, LEAVES, maximum=True).saturate()
    check(report, 500)
    assert report.complete


def test_rows_that_hold_maxima_then_sums(program):
    report = job(program, PAIR, elements=40, count=2, maximum=True).saturate()
    check(report, 1000)
    assert report.complete


@pytest.mark.parametrize("slots, states", [(1, 556), (2, 3000)])
def test_answers_between_a_time_out_and_the_next_transmission(program, slots, states):
    report = job(program, PAIR, slots=slots, late=True).saturate()
    check(report, states - 1)
    assert report.complete


@pytest.mark.parametrize("due, violation", [(None, "h1 has a packet in flight, but no timer runs"),
                                            (0, "h1 has no packet in flight, but a timer runs")])
def test_a_timer_that_does_not_fit_what_is_in_flight_is_a_violation(program, monkeypatch, due, violation):
    """The walk expires timers by itself, so it would not notice."""
    explorer = job(program, PAIR, elements=7)
    monkeypatch.setattr(explorer.machines[0].worker, "next_timer", lambda: due)
    assert explorer.saturate().violation == violation


def test_a_worker_that_sends_without_end_is_a_violation(program, monkeypatch):
    explorer = job(program, PAIR, elements=7)
    monkeypatch.setattr(explorer.machines[0].worker, "frames_to_send", lambda now, limit=1000: [bytes(64)] * limit)
    assert "frames at one time, and has more" in explorer.saturate().violation


@pytest.mark.parametrize("topology, elements", [(PAIR, 64), (LEAVES, 7)], ids=["one switch", "tree"])
def test_no_wrong_sum_when_switches_lose_their_state(program, topology, elements):
    """The job may be stuck then, and has to begin again with another incarnation; but what it gets is right."""
    explorer = job(program, topology, elements=elements, restarts=True)
    report = explorer.saturate(finish=False)
    check(report, 1000)
    assert report.complete
    assert "does not finish" in explorer.saturate().violation


def test_the_explorer_finds_what_one_version_bit_lets_through(program):
    """Without the tsi check a duplicate that is late by two phases is taken for a first write."""
    report = job(program, PAIR, strict=False).explore(16, Budget(losses=0, duplicates=1, timeouts=1))
    assert report.violation is not None and ("wrong sum" in report.violation or "failed" in report.violation)
    assert any(step.startswith("duplicated") or step.startswith("times out") for step in report.steps)


# ---- seeded defects: the walks are worth something because they find these


@dataclass(frozen=True)
class Defect:
    """A defect: `old` in p4/include/switchml/`file` becomes `new`; `violation`: a regular expression for the walk's violation."""

    file: str
    old: str
    new: str
    violation: str
    topology: Topology = LEAVES


WRONG, STUCK = "finished with a wrong sum|failed: workers do not agree", "does not finish"
DEFECTS = {
    "a new phase keeps the bits of the old one": Defect("phase.p4", "seen = 0;", "", STUCK, PAIR),
    "a duplicate is added": Defect("phase.p4", "if (seen & meta.worker != 0)", "if (false)", WRONG, PAIR),
    "an older packet takes a row": Defect("phase.p4", "(int<32>)(hdr.switchml.tsi - tsi) > 0", "true", STUCK, PAIR),
    "a packet is added to any phase": Defect("phase.p4", "hdr.switchml.tsi != tsi", "false", WRONG, PAIR),
    "a new phase adds to the old sum": Defect("aggregation.p4", "if (meta.first == 1) {\n                store",
                                              "if (false) {\n                store", WRONG, PAIR),
    "a result of another phase is taken": Defect("phase.p4", "hdr.switchml.tsi != tsi",
                                                 "meta.worker != 0 && hdr.switchml.tsi != tsi", WRONG),
    "a result of another phase is taken while collecting": Defect(
        "phase.p4", "bool fresh = !used;",
        "bool fresh = !used; if (meta.worker == 0 && left > 0) { left = 1; tsi = hdr.switchml.tsi; }", WRONG),
    "the partial sum stays in the row": Defect("aggregation.p4", "if (meta.first == 1) {\n                store",
                                               "if (meta.first == 1 && meta.worker != 0) {\n                store", WRONG),
    "children get the partial sum": Defect("phase.p4", "} else if (left == 0) {\n                    meta.complete",
                                           "} else if (left <= 1) {\n                    meta.complete", WRONG, ODD),
    "nobody has the partial sum sent up again": Defect("phase.p4", "meta.worker & EXPECTED & -EXPECTED != 0", "false", STUCK),
    "the result from above is not remembered": Defect("phase.p4", "missing.write(meta.row, 0);", "", STUCK),
    "what goes up is the last packet": Defect("phase.p4", "meta.parent == 1) {\n                    meta.complete = 1;",
                                              "meta.parent == 1) {", WRONG, ODD),
}


@pytest.mark.judge
@pytest.mark.parametrize("name", DEFECTS)
def test_seeded_defects_are_found(name, tmp_path):
    defect = DEFECTS[name]
    folder = shutil.copytree(paths.p4_dir(), tmp_path / "p4")
    file = folder / "include/switchml" / defect.file
    text = file.read_text()
    assert text.count(defect.old) == 1
    file.write_text(text.replace(defect.old, defect.new))
    built = compile_program(folder / "switchml.p4", defines={"VALUES": "32", "SLOTS": "2"}, cflags=["-O1"])
    report = job(Program(built.so_path), defect.topology).saturate(max_states=20_000)
    assert report.violation is not None and re.search(defect.violation, report.violation), report
    assert report.steps or defect.violation == STUCK  # a network may be stuck from the start


@pytest.mark.judge
@pytest.mark.parametrize("name", [
    "the largest exponent is that of the first", "the largest exponent may be that of an earlier phase",
    "a result has the sender's exponent", "a switch below the root answers with its own exponent",
    "an overflow at a switch below is lost", "an overflow is lost on the answer", "an overflow of an earlier phase is told",
    "an overflow above is not told below", "workers do not compare lives", "packet numbers are compared without the wrap",
    "packet numbers are compared as they are signed", "workers compare whole packet numbers", "maxima are added",
    "a row has the kind of the other set", "a row keeps the kind that it had first", "a result stops no timer",
    "who is told to wait when a timer has expired asks no more",
])
def test_planted_defects_of_exponents_flags_and_lives_are_found(name):
    """`python -m tests.plants explore` runs the rest of them."""
    report = find(name)
    assert report.violation is not None and re.search(plant(name).violation, report.violation), report
    assert report.states < STATES and (report.steps or plant(name).violation == STUCK)  # it may be stuck from the start


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
        self.remaining = patience

    def receive(self, port, frame):
        if not self.remaining:
            return []
        self.remaining -= 1
        return [(port, b"!")]

    def save(self):
        return bytes([self.remaining]), bytes([self.remaining])

    def restore(self, saved):
        self.remaining = saved[0]


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
                            "arrives: !, oracle to caller", "arrives: !, oracle to caller")


def test_a_dead_end_comes_with_the_way_to_it():
    report = call(1, Budget(losses=1, duplicates=0, timeouts=0))
    assert "does not finish" in report.violation
    assert report.steps == ("arrives: ?, caller to oracle", "lost: !, oracle to caller")


def test_any_number_of_faults_without_counting_them():
    """Any number of frames is in flight: a frame that was sent may arrive again, or may never have arrived."""
    wires = [(("caller", 0), ("oracle", 3))]
    report = Explorer([Caller(), Oracle(9)], wires, bytes.decode).saturate()
    assert report.violation == "answered twice"
    assert report.steps == ("arrives: ?, caller to oracle",) + 2 * ("arrives: !, oracle to caller",)

    class Patient(Caller):
        violation = Machine.violation

        def receive(self, port, frame):
            self.answers = 1
            return []

    report = Explorer([Patient(), Oracle(3)], wires, bytes.decode).saturate()
    assert "does not finish" in report.violation and report.states == 7  # 0 to 3 answers left, 0 to 2 when one came
    assert report.steps == 3 * ("arrives: ?, caller to oracle",)


def test_frames_go_where_wires_lead():
    with pytest.raises(ValueError, match="port 0, which has no wire"):
        Explorer([Caller(), Oracle()], [])
    with pytest.raises(ValueError, match="two wires"):
        Explorer([Caller(), Oracle()], [(("caller", 0), ("oracle", port)) for port in (1, 2)])


# ---- the command


def explore(*args: str) -> int:
    from ina.cli import main

    return main(["explore", *args])


def test_the_command_walks_and_says_what_it_saw(capsys):
    assert explore("--topology", "leaf-spine leaves=2 spines=1 hosts=1") == 0
    out = capsys.readouterr().out
    assert "2 workers, 3 switches; any number of faults" in out and "538 states (all of them)" in out
    assert explore("--losses", "1", "--timeouts", "1", "--depth", "9") == 0
    out = capsys.readouterr().out
    assert "1 loss, 0 duplicates, 1 time-out" in out and "not all of them, 9 steps deep" in out
    assert out.endswith("the job can finish from every one of these states\n")


def test_the_command_begins_at_packet_0_and_before_each_wrap_of_its_number(capsys):
    assert explore("--slots", "2", "--elements", "7") == 0
    starts = re.findall(r"from packet (\d+): (\d+) states \(all of them\)", capsys.readouterr().out)
    assert [int(first) for first, _ in starts] == [0, 2**31 - 2, 2**32 - 2] and len({states for _, states in starts}) == 1
    assert explore("--first", "7", "--elements", "7") == 0
    assert re.findall(r"from packet (\d+)", capsys.readouterr().out) == ["7"]


def test_the_command_walks_through_several_tensors(capsys):
    assert explore("--elements", "7", "--tensors", "3") == 0
    assert "181 states (all of them)" in capsys.readouterr().out
    assert explore("--tensors", "2", "--then", "next") == 2
    assert "--then: jobs of one int32 tensor only" in capsys.readouterr().err


def test_the_command_walks_through_maxima_and_late_workers(capsys):
    assert explore("--maxima", "--tensors", "2", "--elements", "40", "--first", "0") == 0
    assert explore("--late", "--first", "0") == 0
    out = capsys.readouterr().out
    assert "556 states (all of them)" in out and out.count("no wrong sum; the job can finish from every state") == 2
    assert explore("--late", "--then", "next") == explore("--maxima", "--dtype", "float32") == 2
    err = capsys.readouterr().err
    assert "--then: neither with --maxima nor with --late" in err and "--maxima: of int32 only" in err


def test_the_command_says_how_it_went_wrong(capsys):
    assert explore("--published") == 1
    out = capsys.readouterr().out
    assert "violation: h2 finished with a wrong sum\n  1. arrives: packet 0, h1 to s1\n" in out


@pytest.mark.parametrize("args, message", [
    (("--topology", "ring"), "no topology 'ring'"),
    (("--slots", "3"), "a power of two"),
    (("--published", "--topology", "leaf-spine leaves=2 spines=1 hosts=1"), "no tree"),
    (("--program", "nowhere.p4"), "nowhere.p4"),
    (("--program", str(paths.p4_dir() / "atp.p4")), "the protocol ATP has a parameter server, and no walk is made of one"),
    (("--program", "examples/learn/learn.p4"), "learn.p4: no protocol's program, by its annotation"),
    (("--protocol", "fpisa", "--then", "next"), "--then, --published: of the protocol switchml only"),
    (("--protocol", "fpisa", "--program", str(paths.p4_dir() / "switchml.p4")), "does not say that it is the protocol fpisa's"),
])
def test_the_command_refuses_what_makes_no_sense(capsys, args, message):
    assert explore(*args) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("args, message", [
    (("--elements", "0"), "0: expected 1 to 1,000,000"),
    (("--depth", "0"), "0: expected 1 to 1,000,000"),
    (("--losses", "-1"), "-1: expected 0 to 1,000"),
    (("--max-states", "0"), "0: expected 1 to 1,000,000,000"),
])
def test_the_command_has_bounds(capsys, args, message):
    with pytest.raises(SystemExit) as ended:
        explore(*args)
    assert ended.value.code == 2 and f"{args[0]}: {message}" in capsys.readouterr().err


@pytest.mark.parametrize("network", [PAIR, LEAVES], ids=["pair", "leaves"])
def test_check_words_change_nothing_that_happens(program, network):
    """The same states are reached whatever the words are, and no sum is wrong."""
    reports = [job(program, network, dtype=np.float32, check=check).explore(6, Budget(losses=1, duplicates=1, timeouts=1))
               for check in ("off", "sum", "keyed")]
    assert [report.violation for report in reports] == [None] * 3
    assert len({report.states for report in reports}) == 1 and reports[0].states > 20
