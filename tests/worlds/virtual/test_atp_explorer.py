"""Every interleaving of small ATP jobs that collide, over the real compiled program, workers and parameter servers."""

import re
import shutil
from dataclasses import dataclass

import numpy as np
import pytest
from atp_network import JobSpec, Network, fixed_point
from capabilities import need

from ina.base import paths
from ina.p4.runtime import Program
from ina.worlds.virtual.explorable import ServerMachine, SwitchMachine, WorkerMachine, tensors
from ina.worlds.virtual.explorer import Budget, Explorer, Report

pytestmark = pytest.mark.build
need("cc")

LIFETIME = 1e-3


class AgingSwitch(SwitchMachine):
    """Switch whose one timer is the aggregators' lifetime: when it expires, their contents are invalid."""

    timers = (0,)

    def __init__(self, name, switch):
        super().__init__(name, switch)
        self.now = 0

    def receive(self, port, frame):
        return self.switch.step(frame, port, self.now)

    def expire(self, timer):
        self.now += round(2 * LIFETIME * 1e12)
        return []

    def save(self):
        key, full = super().save()
        now = self.now.to_bytes(8, "big")
        return key + now, full + now

    def restore(self, saved):
        super().restore(saved[:-8])
        self.now = int.from_bytes(saved[-8:], "big")


@dataclass(frozen=True)
class Job:
    elements: int = 7  # 7: one packet; 32: two; 64: three
    dtype: type = np.int32
    workers: int = 2
    exponent: int | None = None  # of fixed point: 0 is too small for what is summed here, so that blocks go again as floats


def explorer(
    jobs: list[Job], *, pool: int = 1, slots: int = 1, leaves: int = 0, ages: bool = False, program: Program | None = None
) -> Explorer:
    """Jobs of a tensor each, built as tests/atp_network.py does."""
    options = {"rto_min": 1.0, "rto_max": 1.0, "timeout": 1e5, "check": "off",  # what is wrong shows
               "first_packet": 1}  # 0 is what empty aggregators say
    specs = [JobSpec(t.workers, slots, options=options | fixed_point(t.exponent)) for t in jobs]
    network = Network(specs, pool=pool, leaves=leaves, lifetime=LIFETIME, compiled=program)
    names = {"switch": "s{}", "worker": "job {} worker {}", "server": "server {}"}

    def name(node) -> str:
        return names[node[0]].format(*node[1:])

    machines = []
    for number, (tensor, job) in enumerate(zip(jobs, network.jobs, strict=True)):
        work = tensors(1, number, 1, tensor.workers, tensor.elements, tensor.dtype, network.values)
        for i, worker in enumerate(job.workers):
            machines.append(WorkerMachine(name(("worker", number, i)), worker, work[i]))
        machines.append(ServerMachine(name(("server", number, 0)), job.server))
    kind = AgingSwitch if ages else SwitchMachine
    machines += [kind(f"s{number}", switch) for number, switch in enumerate(network.switches)]
    return Explorer(machines, wires(network, name), describe)


def wires(network: Network, name):
    for (switch, port), node in network.wires.items():
        if node[0] != "switch":
            yield (f"s{switch}", port), (name(node), 0)
        elif switch == 0:
            yield ("s0", port), (f"s{node[1]}", node[2])


def describe(frame: bytes) -> str:
    kind = ("", "data", "floats", "result", "floats result", "pending")[frame[42] >> 4]
    flags = "".join(letter for bit, letter in ((8, "R"), (4, "C")) if frame[42] & bit)
    return f"{kind} {int.from_bytes(frame[49:54], 'big')}{flags} of {int.from_bytes(frame[54:58], 'big'):b}, job {frame[48]}"


def check(report: Report, states: int) -> None:
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.states > states, report


ONE, TWO, THREE = Job(7), Job(32), Job(64)


@pytest.mark.parametrize(
    "jobs, depth, budget",
    [
        ([ONE, ONE], 30, Budget(losses=1, duplicates=0, timeouts=1)),
        pytest.param([ONE, ONE], 13, Budget(losses=1, duplicates=1, timeouts=2), marks=pytest.mark.later),
        pytest.param([TWO, ONE], 13, Budget(losses=1, duplicates=0, timeouts=2), marks=pytest.mark.later),
        pytest.param([THREE], 24, Budget(losses=1, duplicates=1, timeouts=1), marks=pytest.mark.later),
    ],
)
def test_jobs_that_collide(jobs, depth, budget):
    check(explorer(jobs).explore(depth, budget, max_states=80_000), 5000)


@pytest.mark.later
def test_aggregators_that_are_taken_over():
    """Their lifetime passes at any time, as often as the budget of time-outs lets it."""
    check(explorer([ONE, ONE], ages=True).explore(13, Budget(losses=0, duplicates=1, timeouts=2), max_states=80_000), 5000)


@pytest.mark.later
def test_two_levels():
    check(explorer([Job(7, workers=3)], leaves=2).explore(14, Budget(losses=1, duplicates=1, timeouts=2), 80_000), 5000)


def test_windows_of_two():
    check(explorer([TWO, ONE], slots=2, pool=2).explore(11, Budget(losses=1, duplicates=0, timeouts=1), 80_000), 5000)


def test_floats_with_agreed_exponents():
    check(explorer([Job(32, np.float32)]).explore(16, Budget(losses=1, duplicates=1, timeouts=1), 80_000), 3000)


def test_blocks_that_go_again_as_floats():
    """One worker may have heard that integers did not do, another not, and a third phase may come before it has."""
    fixed = Job(32, np.float32, exponent=0)
    check(explorer([fixed]).explore(18, Budget(losses=1, duplicates=1, timeouts=1), 80_000), 3000)


# ---- what the walk finds when something is wrong


def spoiled(tmp_path, find: str, replace: str) -> Program:
    """The switch program with one change."""
    from ina.p4.compiler.build import compile_program

    shutil.copytree(paths.p4_dir(), tmp_path / "p4")
    file = tmp_path / "p4/include/atp/aggregator.p4"
    text, count = re.subn(re.escape(find), replace, file.read_text())
    assert count == 1
    file.write_text(text)
    return Program(compile_program(tmp_path / "p4/atp.p4", defines={"VALUES": "32", "SLOTS": "1"}).so_path)


@pytest.mark.judge
def test_it_finds_sums_that_overlap(tmp_path):
    """An aggregator adds a contribution that it has already."""
    program = spoiled(tmp_path, "held != 0 && held & bitmap == 0", "held != 0")
    report = explorer([ONE], program=program).explore(12, Budget(losses=0, duplicates=1, timeouts=0))
    assert report.violation and ("wrong sum" in report.violation or "failed" in report.violation), report
    assert any(step.startswith("duplicated: data 1") for step in report.steps)


@pytest.mark.judge
def test_it_finds_an_aggregator_that_is_believed_for_ever(tmp_path):
    """Nothing identifies the aggregator's job: another job's packets are added."""
    program = spoiled(tmp_path, "if (alive && owner == own) {", "if (alive && owner[31:0] == own[31:0]) {")
    report = explorer([ONE, ONE], program=program).explore(12, Budget(losses=0, duplicates=0, timeouts=0))
    assert report.violation is not None


@pytest.mark.judge
def test_it_finds_what_resends_are_for(tmp_path):
    """An aggregator that keeps its sum when a resend requests it: split or lost contributions are never recovered."""
    program = spoiled(tmp_path, "if (hdr.atp.resend == 1) {\n                            bitmap = held;",
                      "if (false) {\n                            bitmap = held;")
    report = explorer([ONE, ONE], program=program).explore(12, Budget(losses=1, duplicates=0, timeouts=0))
    assert report.violation and "does not finish" in report.violation, report
