"""Trials of the ways that a tensor may travel: two ranks that see different times choose alike."""

import threading
from types import SimpleNamespace

import pytest
from waiting import LONG

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ina.backend import planner  # noqa: E402
from ina.backend.ballot import Ballot  # noqa: E402
from ina.backend.counters import COUNTERS  # noqa: E402
from ina.backend.planner import AGAIN, LAG, TRIES, Planner  # noqa: E402
from ina.codecs.costs import Cost  # noqa: E402

pytestmark = pytest.mark.fast
RANKS = 2
NOW = 64.0  # seconds: all calls end at this time, and began before it


class Done:
    """A call that has ended."""

    def get_future(self):
        future = torch.futures.Future()
        future.set_result([])
        return future


class Failed:
    def get_future(self):
        future = torch.futures.Future()
        future.set_exception(RuntimeError("the job is over"))
        return future


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(planner, "time", SimpleNamespace(monotonic=lambda: NOW))


@pytest.fixture
def known(monkeypatch):
    """Costs of codecs, the same wherever they are asked for."""
    table = {"thc": Cost(8e-3, 100, 100, 2), "lanes-16": Cost(6e-3, 200, 200, 2)}
    monkeypatch.setattr(planner.costs, "cost", lambda name, values, workers: table[name])
    monkeypatch.setattr(planner, "worth_measuring", lambda names, elements, workers: names)
    COUNTERS.reset()
    yield table
    COUNTERS.reset()


def ballot(store, rank, seconds=LONG, ranks=RANKS):
    return Ballot(store, rank, ranks, lambda: seconds)


def calls(times, count, usable=lambda name: True, work=Done, rates=(0.0,) * RANKS, **link):
    """Returns the ways of ``count`` calls of one tensor, and the number of agreements. ``times``: by rank, seconds of a way;
    ``rates``: by rank."""
    store, ways, errors = torch.distributed.HashStore(), [[] for _ in range(RANKS)], []

    def rank(number):
        own = Planner(RANKS, ballot(store, number), lambda: 1e-3, usable, rates[number], **link)
        values = torch.zeros(100)
        try:
            for _ in range(count):
                way = own.way("tensor", ("thc", "lanes-16"), values)
                own.note("tensor", ("thc", "lanes-16"), way, NOW - times[number][way], work())
                ways[number].append(way)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    assert ways[0] == ways[1], "all ranks choose alike"
    return ways[0], store.num_keys() // RANKS


def test_the_ways_take_turns_and_then_the_fastest_is_used_by_all(known):
    fast, slow = {"block": 1.0, "gloo": 2.0, "thc": 0.4}, {"block": 1.2, "gloo": 0.1, "thc": 0.5}
    ways, agreements = calls([fast, slow], 15)
    turns = ["block", "gloo", "thc"]
    assert ways == ["block"] * 3 + turns * 3 + ["thc"] * 3, "the slowest rank's times count: thc 0.5, block 1.2, gloo 2.0 s"
    assert agreements == 2
    (reason,) = COUNTERS.snapshot()["plans"].values()
    assert reason.startswith("thc: measured: thc 500 ms, block 1.2e+03 ms, gloo 2e+03 ms; pays for its 8 ms")


def test_a_codec_that_turns_out_slow_on_one_rank_is_used_by_none(known):
    ways, _ = calls([{"block": 1.0, "gloo": 2.0, "thc": 0.4}, {"block": 1.0, "gloo": 2.0, "thc": 0.98}], 14)
    assert "thc" in ways and ways[12:] == ["block"] * 2


def test_codecs_that_do_not_pay_are_not_even_tried(known):
    ways, _ = calls([{"block": 5e-3, "gloo": 9.0}] * RANKS, 11)
    assert ways == ["block"] * 3 + ["block", "gloo"] * 3 + ["block"] * 2


def test_gloo_is_used_where_it_is_faster_and_the_reason_says_so(known):
    ways, _ = calls([{"block": 5e-3, "gloo": 1e-3}] * RANKS, 11)
    assert ways[9:] == ["gloo"] * 2
    assert COUNTERS.snapshot()["plans"]["tensor"].startswith("gloo: measured: gloo ")


def test_a_stated_rate_decides_what_is_tried(known):
    slow = {"block": 1.0, "gloo": 2.0, "thc": 0.1}
    assert "thc" in calls([slow] * RANKS, 6)[0]
    assert "thc" not in calls([slow] * RANKS, 6, rates=(1e12,) * RANKS, headers=1.05)[0]


def test_of_rates_that_differ_the_slowest_counts_and_none_where_one_is_missing(known):
    slow = {"block": 1.0, "gloo": 2.0, "thc": 0.1}
    assert "thc" in calls([slow] * RANKS, 6, rates=(1e12, 1e4))[0]
    assert "thc" in calls([slow] * RANKS, 6, rates=(1e12, 0.0))[0]


def test_a_negative_view_is_tried_as_its_values(known):
    values = torch.imag(torch.ones(100, dtype=torch.complex64).conj())
    own = Planner(1, ballot(torch.distributed.HashStore(), 0, ranks=1), lambda: 1e-3, lambda name: True)
    for _ in range(6):
        way = own.way("tensor", ("thc", "lanes-16"), values)
        own.note("tensor", ("thc", "lanes-16"), way, NOW - 1.0, Done())


def test_what_the_protocol_cannot_do_is_left_out(known):
    slow = {"block": 1.0, "gloo": 2.0, "lanes-16": 0.1}
    ways, _ = calls([slow] * RANKS, 13, usable=lambda name: name != "thc")
    assert ways[-1] == "lanes-16"


def test_a_codec_that_fails_on_a_rank_is_left_out_on_all_with_a_warning(known, monkeypatch):
    failed = threading.Lock()

    def cost(name, values, workers):
        if name == "thc" and failed.acquire(blocking=False):  # the first rank that asks
            raise MemoryError("no room")
        return known[name]

    monkeypatch.setattr(planner.costs, "cost", cost)
    with pytest.warns(UserWarning, match="codec 'auto' leaves out thc: MemoryError: no room"):
        ways, _ = calls([{"block": 1.0, "gloo": 2.0, "lanes-16": 0.1}] * RANKS, 13)
    assert ways[-1] == "lanes-16"


def test_a_call_that_failed_raises_in_the_decision(known):
    with pytest.raises(RuntimeError, match="the job is over"):
        calls([{"block": 1.0}] * RANKS, 4, work=Failed)


def test_a_tensor_is_tried_anew_after_many_calls(known, monkeypatch):
    monkeypatch.setattr(planner, "AGAIN", 12)
    ways, agreements = calls([{"block": 5e-3, "gloo": 9.0}] * RANKS, 24)
    assert AGAIN >= 1000 and agreements == 4
    assert ways == 2 * (["block"] * 3 + ["block", "gloo"] * 3 + ["block"] * 3)


def test_one_call_that_was_disturbed_decides_nothing(known):
    late = iter([9.0] + [0.4] * 8)

    class Disturbed(dict):
        def __getitem__(self, way):
            return next(late) if way == "thc" else dict.__getitem__(self, way)

    times = {"block": 1.0, "gloo": 2.0, "thc": 0.4}
    assert calls([Disturbed(times), times], 14)[0][-1] == "thc"


def test_between_the_switch_and_gloo_no_rank_waits_for_another():
    """Ranks may make asynchronous calls in a row, while another waits for something else of theirs."""
    store, title, futures = torch.distributed.HashStore(), "broadcast", []
    ranks = [Planner(RANKS, ballot(store, rank), lambda: 1e-3, lambda name: True) for rank in range(RANKS)]

    class Pending:
        def get_future(self):
            futures.append(torch.futures.Future())
            return futures[-1]

    def call(own, work):
        way = own.way(title, (), None)
        own.note(title, (), way, NOW - (0.1 if way == "gloo" else 1.0), work)
        return way

    trial, waiting = ["switch", "gloo"] * TRIES, ["block"] * LAG
    assert [call(ranks[0], Pending()) for _ in range(2 * TRIES + LAG + 1)] == [*trial, *waiting, "block"], "not yet"
    for future in futures[: 2 * TRIES]:
        future.set_result([])
    assert [call(ranks[1], Done()) for _ in range(2 * TRIES + LAG + 1)] == [*trial, *waiting, "block"], "as the first said"
    assert [call(own, Done()) for own in ranks for _ in range(LAG - 1)] == (["block"] * (LAG - 1)) * RANKS
    chosen = [call(own, Done()) for own in ranks]
    assert chosen == ["gloo"] * RANKS


@pytest.mark.parametrize(("gloo", "chosen"), [((0.1, 0.5), "gloo"), ((0.1, 2.0), "switch")])
def test_between_the_switch_and_gloo_the_slowest_ranks_times_count(gloo, chosen):
    store = torch.distributed.HashStore()
    ranks = [Planner(RANKS, ballot(store, rank), lambda: 1e-3, lambda name: True) for rank in range(RANKS)]
    for _ in range(2 * TRIES + LAG):
        ways = [own.way("broadcast", (), None) for own in ranks]
        for own, way, seconds in zip(ranks, ways, gloo, strict=True):
            own.note("broadcast", (), way, NOW - (seconds if way == "gloo" else 1.0), Done())
    assert [own.way("broadcast", (), None) for own in ranks] == [chosen] * RANKS
