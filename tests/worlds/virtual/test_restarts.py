"""Jobs one after the other, over the real compiled program, worker and controller: none gets values of an earlier one."""

import random
import re
import shutil

import numpy as np
import pytest
from atp_network import US, Faults, JobSpec, Network
from capabilities import need

from ina.aggregation.controller.admission import Controller
from ina.aggregation.controller.job_incarnations import Incarnations, Lives
from ina.base import paths
from ina.cli import main
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import load
from ina.worlds.virtual.explorable import SwitchMachine
from ina.worlds.virtual.restarts import ControllerMachine, jobs

pytestmark = pytest.mark.build
need("cc")

PAIR = load("star", hosts=2)
LEAVES = load("leaf-spine", leaves=2, spines=1, hosts=1)
WRONG = "finished with a wrong sum|failed: workers do not agree"


@pytest.fixture(scope="module")
def program():
    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "2"})
    return Program(built.so_path)


def alike(number):
    """Random numbers of a controller that begins with the state of the one before it, as if from an older file."""
    return random.Random(1)


@pytest.mark.parametrize(("between", "elements", "states"), [
    (["next"], 32, 2414), (["lost"], 32, 2414), (["old"], 32, 2414), (["lost", "lost"], 7, 2354), (["next", "old"], 7, 2354),
    (["gone"], 32, 100),
])
def test_no_job_gets_the_sums_of_the_one_before(program, between, elements, states):
    """Every frame that was ever sent may arrive at any time, and hosts, switches and controller may restart at any time."""
    report = jobs(program, PAIR, between, elements=elements).saturate()
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.complete and report.states >= states


@pytest.mark.parametrize(("between", "elements", "restarts", "states"), [
    (["lost"], 32, False, 2414), (["lost", "next"], 7, True, 14_310),
])
def test_the_twin_for_tofino(between, elements, restarts, states):
    """The number of states is the same if registers stay."""
    sizes = {"VALUES": "32", "SLOTS": "2"}
    built = compile_program(paths.p4_dir() / "tofino" / "switchml.p4", defines=sizes, include_dirs=[paths.p4_dir()])
    report = jobs(Program(built.so_path), PAIR, between, elements=elements, restarts=restarts).saturate(finish=not restarts)
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.complete and report.states == states


def test_in_a_tree_whose_switches_change_at_different_times(program):
    report = jobs(program, LEAVES, ["lost"], elements=7).saturate()
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.complete and report.states > 1000


@pytest.mark.parametrize("between", [["next"], ["lost", "old"]])
def test_switches_that_lose_their_registers_too(program, between):
    report = jobs(program, PAIR, between, elements=7, restarts=True).saturate(finish=False)
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.complete and report.states > 1000


STEPS = ["next", "lost", "old", "gone"]


@pytest.mark.parametrize("restarts", [False, True], ids=["registers stay", "registers may go"])
@pytest.mark.parametrize("topology", [load("star", hosts=3), LEAVES], ids=["one switch", "tree"])
@pytest.mark.parametrize("seed", range(4))
def test_random_walks_of_larger_jobs(seed, topology, restarts):
    """Five jobs of many packets in four slots, on random paths: faults, and ends of controllers, hosts and registers."""
    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "4"})
    chance = random.Random(seed)
    explorer = jobs(Program(built.so_path), topology, chance.choices(STEPS, k=4), slots=4, elements=300, restarts=restarts,
                    chance=lambda number: random.Random(10 * seed + number))
    report = explorer.wander(chance, 1500, timeout=0.05, finish=not restarts)
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.local["controller"] > 2, "no other job has begun"


@pytest.mark.judge
def test_random_walks_find_incarnations_that_go_on_from_a_file(program):
    """Walks like those above, with controllers that begin where the first one did."""
    violations = [jobs(program, PAIR, ["lost", "lost"], elements=7, chance=alike).wander(random.Random(seed), 300).violation
                  for seed in range(40)]
    assert any(violations)


def atp(seed, incarnations):
    """ATP jobs of two numbers, one of which is given to another job now and then, on an event clock with losses, duplicates and
    delays; switches may lose their registers. Returns the errors."""
    chance = random.Random(seed)
    jobs = [JobSpec(3, 8, options={"check": "off"}), JobSpec(2, 8, options={"check": "off"})]
    network = Network(jobs, pool=8, leaves=chance.choice([0, 2]), seed=seed,
                      faults=Faults(0.02, 0.05, 0.05))
    lives, tensors, wrong = Lives(2**16 - 1, chance), {0: [], 1: []}, []
    machines = [SwitchMachine("", switch, restarts=True) for switch in network.switches]

    def check(number):
        for index, events in enumerate(network.events[number]):
            if any(event.code for event in events):
                wrong.append(f"job {number}, worker {index} failed")
            elif len(events) == len(tensors[number]):
                wrong.extend(f"job {number}, worker {index}" for rows, sums in tensors[number] if (rows[index] != sums).any())

    for _ in range(8):
        for number in tensors:
            values = [[chance.randrange(-(2**31), 2**31) for _ in range(500)] for _ in network.jobs[number].workers]
            rows = np.array(values, np.int32)
            tensors[number].append((rows, rows.sum(axis=0, dtype=np.int32)))
            network.submit(number, rows)
        network.run(until=network.now + chance.randrange(5, 300) * US)
        if chance.random() < 0.3:
            chance.choice(machines).expire(0)
        number = chance.randrange(2)
        check(number)
        tensors[number].clear()
        network.renew(number, incarnations.give(), lives.give(number))
    network.run()
    for number, job in tensors.items():
        assert all(len(events) == len(job) for events in network.events[number])
        check(number)
    return wrong


@pytest.mark.parametrize("seed", range(6))
def test_random_walks_of_atp_jobs(seed):
    assert atp(seed, Incarnations(random.Random(seed))) == []


def test_random_walks_find_aggregators_of_another_job():
    """All jobs have one incarnation, and lives do not meet: only the aggregators' contents are mistaken."""

    class Same:
        def give(self):
            return 5

    assert any(atp(seed, Same()) for seed in range(100))


@pytest.mark.parametrize(("file", "old", "new", "violation"), [
    ("phase.p4", "incarnation == meta.incarnation && seen != 0", "seen != 0", f"{WRONG}|does not finish"),  # other lives: stuck
    ("admission.p4", "meta.strict == 1 && (bit<8>)hdr.exponents.e1 != own_life", "false", WRONG),
], ids=["rows are told by nothing", "lives are not compared"])
@pytest.mark.parametrize("between", [["next"], ["lost"]])
def test_what_programs_must_compare(tmp_path, file, old, new, violation, between):
    folder = shutil.copytree(paths.p4_dir(), tmp_path / "p4")
    text = (folder / "include/switchml" / file).read_text()
    assert text.count(old) == 1
    (folder / "include/switchml" / file).write_text(text.replace(old, new))
    built = compile_program(folder / "switchml.p4", defines={"VALUES": "32", "SLOTS": "2"}, cflags=["-O1"])
    report = jobs(Program(built.so_path), PAIR, between).saturate(max_states=20_000)
    assert report.violation is not None and re.search(violation, report.violation), report


class OneLife(random.Random):
    """Random numbers by which unknown lives always begin at the same one; incarnations do not."""

    def randint(self, a, b):
        return 7 if b < 2**16 else super().randint(a, b)


def told_by_lives_only(folder):
    """A program whose rows have lives in place of incarnations."""
    folder = shutil.copytree(paths.p4_dir(), folder / "p4")
    admission = folder / "include/switchml/admission.p4"
    admission.write_text(admission.read_text().replace("meta.incarnation = incarnation;", "meta.incarnation = (bit<32>)life;"))
    built = compile_program(folder / "switchml.p4", defines={"VALUES": "32", "SLOTS": "2"}, cflags=["-O1"])
    return Program(built.so_path)


def test_a_life_that_nobody_knew_of_may_be_the_same_again(program, tmp_path, monkeypatch):
    """A life may recur once all packets have died out, if rows are told apart by incarnations."""
    report = jobs(program, PAIR, ["gone"], chance=OneLife).saturate()
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.complete and report.states > 200
    assert re.search(WRONG, jobs(told_by_lives_only(tmp_path), PAIR, ["gone"], chance=OneLife).saturate().violation)
    monkeypatch.setattr(ControllerMachine, "quiet", ())  # it does not wait
    assert re.search(WRONG, jobs(program, PAIR, ["gone"], chance=OneLife).saturate().violation)


def test_incarnations_that_go_on_from_a_file(program):
    """Two controllers after another that knew nothing of the first: the rows of the first job are still there."""
    report = jobs(program, PAIR, ["lost", "lost"], elements=7, chance=alike).saturate()
    assert report.violation is not None and re.search(WRONG, report.violation)


def test_lives_that_are_not_learnt_from_switches(program, monkeypatch):
    monkeypatch.setattr(Controller, "_learn", lambda self, there: None)
    report = jobs(program, PAIR, ["lost"], chance=alike).saturate()
    assert report.violation is not None and re.search(WRONG, report.violation)


def test_the_command(capsys):
    assert main(["explore", "--elements", "7", "--then", "lost", "--then", "next"]) == 0
    assert "all of them" in (out := capsys.readouterr().out) and "no wrong sum; the job can finish" in out
    assert main(["explore", "--elements", "7", "--then", "old", "--forgetful"]) == 0
    assert capsys.readouterr().out.endswith("no wrong sum\n")
    assert main(["explore", "--then", "lost", "--published"]) == 2
    assert "--then: jobs of one int32 tensor only" in capsys.readouterr().err
