"""Whom a collective waits for: told while it waits, and counted."""

import warnings

import pytest
from ranks import run, succeed

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ina.backend import late  # noqa: E402
from ina.backend.counters import COUNTERS  # noqa: E402
from ina.backend.late import AFTER, FIRST, Late  # noqa: E402


class Clock:
    """A clock for late.py: it stands until somebody sets it."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(late, "time", clock)
    COUNTERS.reset()
    return clock


def texts(waits: Late, number: int = 7, *, waits_for: int = 0, packets: int = 5, results: int = 3) -> list[str]:
    """Returns what a look warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        waits.look(number, "allreduce of 8 float32", {"waits_for": waits_for, "rx_packets": packets, "results": results})
    return [str(each.message) for each in caught]


@pytest.mark.fast
def test_it_tells_after_most_of_a_second_and_then_ever_more_seldom(clock):
    waits, warned = Late(0, 4), []
    for tick in range(1001):
        clock.now = 100 + tick / 10
        warned += [(tick, text) for text in texts(waits, waits_for=0b1100, packets=tick)]
    assert [tick for tick, _ in warned] == pytest.approx([10 * AFTER, 100 * AFTER, 1000 * AFTER], rel=0.02)
    assert warned[0][1] == ("ina: rank 0 has waited for 0.7 s in collective #7 (allreduce of 8 float32): ranks 2, 3 are late, "
                            "stuck or dead")
    waits.done(7)
    assert COUNTERS.snapshot()["late"] == {2: {"waits": 1, "seconds": 100.0}, 3: {"waits": 1, "seconds": 100.0}}


@pytest.mark.fast
@pytest.mark.parametrize(("rank", "workers", "waits_for", "packets", "text"), [
    (1, 4, 0b1000, 6, ""), (1, 4, 0b1001, 6, "ranks 0, 3 are late"), (0, 4, 0b0010, 6, "rank 1 is late"),
    (0, 4, 0b0010, 5, "nothing has come from the switch"), (3, 4, 0, 5, "nothing has come from the switch"),
    (0, 4, 0, 6, ""), (0, 40, 0b11, 6, "children of some switch of the job's tree are late")])
def test_the_lowest_rank_that_is_not_late_tells(clock, rank, workers, waits_for, packets, text):
    waits = Late(rank, workers)
    assert texts(waits) == []
    clock.now += 1
    warned = texts(waits, waits_for=waits_for, packets=packets)
    assert len(warned) == bool(text) and all(text in each for each in warned)


@pytest.mark.fast
def test_ranks_that_are_being_started_have_longer(clock):
    waits = Late(0, 2)
    looks = []
    for _ in range(70):
        looks += [clock.now] * len(texts(waits, waits_for=0b10, results=0, packets=round(clock.now)))
        clock.now += 0.1
    assert looks == [pytest.approx(100 + FIRST, abs=0.11)]


@pytest.mark.fast
def test_short_waits_and_those_for_nobody_are_not_counted(clock):
    waits = Late(0, 4)
    waits.done(1)
    for number, seconds in ((2, 0.5), (3, 2.0)):
        texts(waits, number)
        clock.now += seconds
        texts(waits, number, packets=9)
        waits.done(number)
    assert COUNTERS.snapshot()["late"] == {}


@pytest.mark.build
@pytest.mark.later
@pytest.mark.parametrize("protocol", ["switchml", "atp"])
def test_ranks_name_the_one_that_is_late(tmp_path, protocol):
    """Rank 1 is two seconds late, then stands still for two in the middle of others' sums."""
    ranks = run(tmp_path, 3, """
rank, n = start()
ones = torch.ones(1000)
dist.all_reduce(ones)
if rank == 1:
    time.sleep(2)
dist.all_reduce(ones)
sums = [torch.ones(100_000) for _ in range(4)]
works = [dist.all_reduce(each, async_op=True) for each in sums[:2]]
if rank == 1:
    time.sleep(2)
works += [dist.all_reduce(each, async_op=True) for each in sums[2:]]
for work in works:
    work.wait()
say(late=ina.backend.stats()["late"])
meet()
dist.destroy_process_group()
""", INA_PROTOCOL=protocol)
    for rank, report in enumerate(succeed(ranks)):
        if rank == 1:
            assert report["late"] == {}
        else:
            assert report["late"].keys() == {"1"} and report["late"]["1"]["waits"] >= 2
            assert 2.5 < report["late"]["1"]["seconds"]
    assert ranks[0].errors.count("rank 1 is late, stuck or dead") >= 2
    assert all("late" not in ranks[rank].errors for rank in (1, 2)), "one tells for all"


@pytest.mark.build
@pytest.mark.later
def test_a_switch_that_stands_still_is_named(tmp_path):
    ranks = run(tmp_path, 2, """
rank, n = start()
dist.all_reduce(torch.ones(10))
pid, = rendezvous._pids.values()
meet()
if rank == 0:
    os.kill(pid, signal.SIGSTOP)
    meet()
    time.sleep(2)
    os.kill(pid, signal.SIGCONT)
    dist.all_reduce(torch.ones(10))
else:
    meet()
    dist.all_reduce(torch.ones(10))
say(late=ina.backend.stats()["late"])
meet()
dist.destroy_process_group()
""", INA_RUN_BY="process")
    succeed(ranks)
    assert "nothing has come from the switch" in ranks[1].errors
