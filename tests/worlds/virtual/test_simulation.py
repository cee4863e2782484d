"""Kills, restarts and lost memory in virtual time, over the compiled program, the real workers and the real controller; and the
simulator itself, which must find every defect that is planted into a copy of what it runs."""

import re
import shutil

import pytest
from capabilities import need
from plants import explored, simulated
from plants.simulated import find, plant, simulate

from ina import cli
from ina.base import paths
from ina.worlds.virtual import simulation
from ina.worlds.virtual.fabric import Fabric

need("cc")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.build]
KILLED = {"switches killed", "workers killed", "controllers killed", "killed in a write", "lost states", "links cut",
          "links that are slow"}
SERVED = {"parameter servers killed", "parameter servers' sums forgotten", "calls without an answer"}


def run(seed, protocol="switchml", events=20_000):
    return simulate(paths.p4_dir(), seed, protocol, events)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.later) for seed in range(2, 5))])
def test_no_kill_no_restart_and_no_lost_state_makes_a_wrong_sum_or_leaks(seed):
    report = run(seed)
    assert report.violation is None, report
    assert report.events >= 20_000 and report.tensors > 50
    assert set(report.faults) >= KILLED


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.later) for seed in range(2, 6))])
def test_nor_where_switches_decide_which_workers_a_sum_is_of(seed):
    report = run(seed, "quorum")
    assert report.violation is None, report
    assert report.events >= 20_000 and report.tensors > 50
    assert set(report.faults) >= KILLED
    assert report.faults["of some"] > 20 and report.faults["of all"]


LATER = [pytest.param(*each, marks=pytest.mark.later) for each in (("atp", 2), ("ps", 1))]


@pytest.mark.parametrize("protocol, seed", [("atp", 1), *LATER])
def test_nor_does_a_parameter_server_that_ends_or_forgets(protocol, seed):
    report = run(seed, protocol)
    assert report.violation is None, report
    assert report.events >= 20_000 and report.tensors > 50
    assert set(report.faults) >= KILLED | SERVED
    assert report.faults["of some"] > 20 and report.faults["of all"]


@pytest.mark.later
def test_the_command_says_what_was_done_and_names_the_seed(capsys, tmp_path):
    assert cli.main(["simulate", "--seed", "3", "--events", "40000", "--length", "2000"]) == 0
    report = re.search(r"seeds 3 to (\d+): [\d,]+ events, [\d,]+ sums.*\n.*\nno wrong sum", capsys.readouterr().out)
    assert report and int(report[1]) > 3
    copy = shutil.copytree(paths.p4_dir(), tmp_path / "p4")
    defect = plant("atp: what overlaps is added")
    (tmp_path / defect.file).write_text(defect.text())
    program = str(copy / "atp.p4")
    assert cli.main(["simulate", "--protocol", "atp", "--program", program, "--length", "5000"]) == 1
    assert re.match(r"seed (\d+): .*\n(.*\n)*again: ina simulate --protocol atp --seed \1 ", capsys.readouterr().out)
    assert cli.main(["simulate", "--program", program]) == 2
    assert "its annotation @ina_program does not say that it is the protocol switchml's" in capsys.readouterr().err
    assert cli.main(["simulate", "--protocol", "smoke-signals"]) == 2
    assert "protocol: 'smoke-signals', expected one of" in capsys.readouterr().err


@pytest.mark.parametrize("protocol", ["switchml", "atp", "quorum"])
def test_a_seed_repeats_to_the_event(protocol):
    assert run(3, protocol, 3000) == run(3, protocol, 3000) != run(4, protocol, 3000)


def test_jobs_begin_at_packet_0_and_shortly_before_each_wrap_of_its_number(monkeypatch):
    firsts, add_worker = set(), Fabric.add_worker

    def noted(fabric, host, config):
        firsts.add(config.first_packet)
        return add_worker(fabric, host, config)

    monkeypatch.setattr(Fabric, "add_worker", noted)
    assert run(1, events=6000).violation is None
    assert {round(first / 2**31) for first in firsts} == {0, 1, 2}
    assert all(0 <= -first % 2**31 <= 16 for first in firsts) and len(firsts) > 5


def test_a_seed_that_does_not_end_is_named(monkeypatch):
    monkeypatch.setattr(simulation, "SETTLING", 100)
    assert re.match(r"seed 7: no end: 100 events without a fault, and job0 .*; it has \d of 5 results", str(run(7, events=1000)))


# Those that take little: each kind of thing that has a defect, by each kind of what is found.
OFTEN = (
    "a packet is added to any phase", "overflows of an earlier phase are told", "maxima are added",
    "workers take a result of another phase", "workers do not wait for a block's exponent",
    "rows of another incarnation are used", "a job that ends keeps its entries", "slots are given twice",
    "a new controller asks no switch", "a moved job keeps its incarnation", "a tree goes over a dead link",
    "a route goes over a dead link", "a route goes to a host whose link is dead",
    "quorum: contributors change when they are decided", "quorum: whom rivals stand for contributes, too",
    "quorum: a phase begins with the count of an older one", "quorum: who gives after it has asked is not heard",
    "quorum: more are needed than are enough", "quorum: who is late sends its values", "quorum: averages are over all workers",
    "quorum: what is new of an offer waits for a time-out that is over", "quorum: those that pass are waited for",
    "atp: what overlaps is added", "atp: results free no aggregator", "atp: overflows are not told", "atp: maxima are added",
    "atp: workers take a result of another number", "atp: workers do not say that they send again",
    "atp: who is told to wait asks again at once",
    "atp: the server answers from a previous life", "atp: the server adds what it has",
    "atp: the server answers before all are in", "atp: the server is not told that a job is over",
    "atp: a server that is lost is still a root", "atp: the server lets rivals contribute",
    "atp: the server waits for those that pass", "atp: the server takes fewer than are enough",
)


@pytest.mark.judge
@pytest.mark.parametrize("name", OFTEN)
def test_planted_defects_are_found_and_their_seeds_are_named(name):
    """`python -m tests.plants simulate` runs all of them."""
    report = find(name)
    assert report.violation and re.search(plant(name).violation, report.violation), report
    assert str(report).startswith(f"seed {report.seed}: ") and report.story


@pytest.mark.parametrize("plants", [explored, simulated], ids=["explored", "simulated"])
def test_every_plant_applies_to_the_code_as_it_is(plants):
    """All plants apply, even those that no test here runs: a plant that changes nothing would show nothing."""
    for name in plants.PLANTS:
        text = plants.plant(name).text()
        assert text != (paths.root() / plants.plant(name).file).read_text(), name
