"""Every interleaving of small ATP jobs whose parameter server decides which workers a sum is of."""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from atp_network import JobSpec, Network
from capabilities import need
from plants.planting import Plant, planted

from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.worlds.virtual.explorable import ServerMachine, SwitchMachine
from ina.worlds.virtual.explorer import Budget, Explorer, Report
from ina.worlds.virtual.offering import Chosen, ForgetfulMachine, OfferingMachine, Part
from ina.worlds.virtual.samples import exact

pytestmark = pytest.mark.build
need("cc")
VALUES = 32
ONE, TWO = Part(1), Part(2)
RIVALS = (Part(2, rivals=(1,)), Part(2, rivals=(0,)))
LATER_ONE, LATER_TWO = (ONE, Part(1, "later")), (TWO, Part(2, "later"))


@dataclass
class ForgetfulServer(ServerMachine):
    """A parameter server that may lose its state at any time; a timer stands for that."""

    timers = (0,)

    def __post_init__(self):
        self._new = self.server.snapshot()

    def expire(self, timer):
        self.server.restore(self._new)
        return []


def describe(frame: bytes) -> str:
    kinds = ("", "data", "floats", "result", "floats result", "pending", "maxima", "refused", "offer", "answer")
    about = f" {frame[44]}, {int.from_bytes(frame[62:66], 'big'):b}," if frame[42] >> 4 in (8, 9) else ""
    return f"{kinds[frame[42] >> 4]} {int.from_bytes(frame[49:54], 'big')}{about} of {int.from_bytes(frame[54:58], 'big'):b}"


def offering(
    parts, *, leaves: int = 0, slots: int = 1, elements: int = 8, dtype: type = np.int32, count: int = 1, first: int = 1,
    forgets: bool = False, compiled: Program | None = None,
) -> Explorer:
    """One job, of ``count`` sums, at a switch, or at ``leaves`` below one. ``forgets``: its server may lose its state."""
    options = {"rto_min": 1.0, "rto_max": 1.0, "timeout": 1e5, "check": "off", "first_packet": first}
    network = Network([JobSpec(len(parts), slots, options=options)], pool=2, leaves=leaves, compiled=compiled)
    (job,) = network.jobs
    samples = [exact(1, number, len(parts), elements, dtype, VALUES) for number in range(count)]
    worker_kind, server_kind = (ForgetfulMachine, ForgetfulServer) if forgets else (OfferingMachine, ServerMachine)
    machines = [server_kind("server", job.server)]
    for number, worker in enumerate(job.workers):
        work = [Chosen(sample.rows[number], np.zeros(0), sample=sample, parts=parts) for sample in samples]
        machines.append(worker_kind(f"worker {number}", worker, work))
    machines += [SwitchMachine(f"s{number}", switch) for number, switch in enumerate(network.switches)]
    wires = []
    for (switch, port), node in network.wires.items():
        if node[0] != "switch":
            wires.append(((f"s{switch}", port), ("server" if node[0] == "server" else f"worker {node[2]}", 0)))
        elif switch == 0:
            wires.append((("s0", port), (f"s{node[1]}", node[2])))
    return Explorer(machines, wires, describe)


def check(report: Report, states: int) -> None:
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.states > states, report


@pytest.mark.parametrize(("parts", "states"), [
    ((ONE, ONE), 300),
    (LATER_ONE, 1_000),
    ((Part(2, "later"), Part(2, "later")), 1_000),
    ((ONE, Part(1, "not")), 300),
    ((TWO, Part(2, "never")), 300),
    ((Part(2, "never"), Part(2, "never")), 300),
    ((Part(2, releases=True), Part(2, "later")), 1_000),
    ((Part(2, releases=True), Part(2, "not")), 300),
    ((Part(1, rivals=(1,)), Part(1, rivals=(0,))), 300),
    (RIVALS, 300),
], ids=str)
def test_whatever_two_workers_do(parts, states):
    check(offering(parts).saturate(max_states=12_000), states)


@pytest.mark.parametrize(("parts", "options", "states"), [
    (LATER_ONE, {"dtype": np.float32, "elements": 40}, 2_000),
    (LATER_ONE, {"slots": 2, "elements": 40}, 2_000),
    (LATER_ONE, {"count": 2}, 2_000),
    (LATER_ONE, {"first": 2**40 - 1}, 1_000),
    ((TWO, TWO, Part(2, "later")), {}, 2_000),
    ((*RIVALS, Part(2, "later")), {}, 2_000),
    (LATER_ONE, {"leaves": 2}, 2_000),
], ids=str)
def test_what_follows_an_offer_and_more_workers_and_trees(parts, options, states):
    check(offering(parts, **options).saturate(max_states=12_000), states)


def test_no_wrong_sum_when_the_server_loses_its_state():
    """Then workers may be told other contributors than others: they do not agree on the sum that follows, which is an error."""
    check(offering(LATER_ONE, forgets=True).saturate(max_states=20_000, finish=False), 5_000)


SERVER, TENSORS = "host/protocol/ps.c", "host/protocol/tensors.c"
REPEATED = "        stats->repeated++;\n        answer(st, number, view->bitmap);"
ABSENT = "op->absent = !(contributors >> ts->worker & 1);"
DEFECTS = {  # what is changed, parts of the workers, and what is seen of it
    "contributors change when they are decided": (
        Plant(SERVER, "    if (row->decided) {\n        stats->overlaps++;", "    if (0) {\n        stats->overlaps++;"),
        LATER_ONE, "."),
    "it is decided before all have asked": (
        Plant(SERVER, "row->bitmap == st->full && (enough", "(enough"), LATER_ONE, "."),
    "whom rivals stand for contributes, too": (
        Plant(SERVER, " && !(row->offers.contributors & view->check0)", ""), RIVALS, "rival"),
    "those that pass are waited for": (
        Plant(SERVER, "(enough || (row->offers.contributors | row->offers.passed) == st->full)", "enough"),
        (TWO, Part(2, "never")), "does not finish"),
    "who gives after it has asked is not heard": (
        Plant(SERVER, "    if (!known && state == INA_OFFER_GIVE", "    if (!again && state == INA_OFFER_GIVE"),
        LATER_TWO, "might"),
    "one fewer than are enough": (
        Plant(SERVER, " >= ina_atp_least(view);", " + 1 >= ina_atp_least(view);"), LATER_TWO, "might"),
    "who asks again is told that it is decided": (
        Plant(SERVER, "row->decided ? INA_OFFER_DECIDED : INA_OFFER_OPEN", "INA_OFFER_DECIDED"), LATER_TWO, "agree|might|sum"),
    "what is decided is told once": (
        Plant(SERVER, REPEATED, "        stats->repeated++;"), LATER_ONE, "does not finish"),
    "who is late sends its values": (
        Plant(TENSORS, ABSENT, f"{ABSENT[:-1]} && !tensors[handle].in;", protocol="atp"), LATER_ONE, "sum"),
}


@pytest.mark.judge
@pytest.mark.parametrize("name", DEFECTS)
def test_seeded_defects_are_found(name):
    defect, parts, violation = DEFECTS[name]
    few = Budget(losses=0, duplicates=0, timeouts=1)
    with tempfile.TemporaryDirectory() as folder, planted(defect, Path(folder)) as p4:
        built = compile_program(p4 / "atp.p4", defines={"VALUES": str(VALUES), "SLOTS": "2"}, cflags=["-O1"])
        walk = offering(parts, count=2, compiled=Program(built.so_path))
        report = walk.saturate(60_000) if defect.file == SERVER else walk.explore(40, few, 100_000)
    assert report.violation is not None and re.search(violation, report.violation), report
