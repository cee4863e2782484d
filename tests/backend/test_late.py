"""Whom a collective waits for: told while it waits, and counted."""

import warnings

import pytest
from ranks import run, succeed

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ina.backend import late  # noqa: E402
from ina.backend.counters import COUNTERS  # noqa: E402
from ina.backend.late import AFTER, FIRST, GAP, SILENT, Late  # noqa: E402


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


class Waiting:
    """Waits of a rank for collectives, of which it looks at one every 0.1 s, as the back end does."""

    def __init__(self, clock: Clock, rank: int = 0, workers: int = 4, ranks=range):
        self.clock, self.late = clock, Late(rank, workers, lambda: ranks(workers))
        self.stats = {"waits_for": 0, "rx_packets": 5, "results": 3, "pending_replies": 0}

    def wait(self, seconds: float, *late: int, number: int = 7, answers: bool = True,
             runner: int | None = None) -> list[tuple[float, str]]:
        """Returns when it warned, of what. ``late``: ranks, as each answer says; there is one a look."""
        found = []
        for _ in range(round(10 * seconds)):
            self.stats["pending_replies"] += answers
            self.stats["rx_packets"] += answers
            self.stats["waits_for"] = sum(1 << rank for rank in late) if answers else self.stats["waits_for"]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.late.look(number, "allreduce of 8 float32", self.stats, runner)
            found += [(self.clock.now - 100, str(each.message)) for each in caught]
            self.clock.now = round(self.clock.now + 0.1, 6)
        return found


@pytest.mark.fast
def test_it_tells_after_half_a_second_and_then_ever_more_seldom(clock):
    waiting = Waiting(clock)
    warned = waiting.wait(60, 2, 3)
    assert [at for at, _ in warned] == pytest.approx([AFTER, 10 * AFTER, 100 * AFTER], rel=0.05)
    assert warned[0][1] == ("ina: rank 0 has waited for 0.5 s in collective #7 (allreduce of 8 float32): ranks 2, 3 are late, "
                            "stuck or dead")
    waiting.late.done(7)
    counts = COUNTERS.snapshot()["late"]
    assert counts == {rank: {"waits": 1, "seconds": pytest.approx(59.9)} for rank in (2, 3)}


@pytest.mark.fast
@pytest.mark.parametrize(("rank", "workers", "late", "text"), [
    (1, 4, [3], ""), (1, 4, [0, 3], "ranks 0, 3 are late"), (0, 4, [1], "rank 1 is late"), (0, 4, [], ""),
    (0, 40, [0, 1], "children of some switch of the job's tree are late")])
def test_the_lowest_rank_that_is_not_late_tells(clock, rank, workers, late, text):
    warned = Waiting(clock, rank, workers).wait(1, *late)
    assert len(warned) == bool(text) and all(text in each for _, each in warned)


@pytest.mark.fast
def test_only_a_new_answer_says_who_is_late(clock):
    """Rank 2 comes after the first answers, and rank 1 goes on being late; each is counted for its own time."""
    waiting = Waiting(clock)
    assert waiting.wait(0.4, 1, 2) == waiting.wait(0.4, answers=False) == []
    ((_, text),) = waiting.wait(4, 1)
    assert "rank 1 is late" in text
    waiting.late.done(7)
    assert COUNTERS.snapshot()["late"].keys() == {1, 2}
    assert COUNTERS.snapshot()["late"][2]["seconds"] < 1 < 4 < COUNTERS.snapshot()["late"][1]["seconds"]


@pytest.mark.fast
@pytest.mark.parametrize("late", [(), (2,)])
def test_silence_is_told_by_each_rank(clock, late):
    waiting = Waiting(clock, rank=3)
    waiting.stats["waits_for"] = sum(1 << rank for rank in late)
    ((at, text),) = waiting.wait(5, answers=False)
    assert at == pytest.approx(SILENT, abs=0.11) and "nothing has come from the switch" in text


@pytest.mark.fast
@pytest.mark.parametrize("answers", (False, True))
def test_who_keeps_the_others_from_running_the_switch_is_named_while_nothing_comes(clock, answers):
    waiting = Waiting(clock, rank=3, ranks=lambda workers: range(10, 10 + workers))
    warned = waiting.wait(5, answers=answers, runner=2)
    assert [text.split(": ")[2] for _, text in warned] == ([] if answers else [
        "rank 12 stands still while it runs the job's switch"])


@pytest.mark.fast
def test_ranks_that_are_being_started_have_longer(clock):
    waiting = Waiting(clock)
    waiting.stats["results"] = 0
    assert [at for at, _ in waiting.wait(7, 1)] == [pytest.approx(FIRST, abs=0.11)]


@pytest.mark.fast
def test_nobody_is_late_while_results_come(clock):
    waiting = Waiting(clock)
    assert waiting.wait(2, 1)
    for _ in range(100):
        waiting.stats["results"] += 1
        assert waiting.wait(0.4, 2) == []
    waiting.late.done(7)
    assert COUNTERS.snapshot()["late"] == {1: {"waits": 1, "seconds": pytest.approx(1.9)}}


@pytest.mark.fast
def test_ranks_of_a_group_have_the_names_of_the_default_group(clock):
    waiting = Waiting(clock, workers=3, ranks=lambda count: [10, 20, 30])
    ((_, text),) = waiting.wait(1, 1)
    assert text.startswith("ina: rank 10 has waited") and "rank 20 is late" in text
    waiting.late.done(7)
    assert COUNTERS.snapshot()["late"].keys() == {20}


@pytest.mark.fast
def test_time_in_which_nobody_waits_is_none(clock):
    """A wait that is given up, and begun again later; short ones; and waits that nobody ends."""
    waiting = Waiting(clock)
    assert waiting.wait(0.4, 1) == []
    clock.now += 50 + GAP
    assert waiting.wait(0.4, 1) == []
    waiting.late.done(7)
    waiting.late.done(8)
    assert COUNTERS.snapshot()["late"] == {}
    for number in range(1000):
        waiting.wait(0.2, 1, number=number)
    assert len(waiting.late._waits) < 100


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
