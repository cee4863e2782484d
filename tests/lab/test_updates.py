"""Trainings by updates that wait before a slow wire: ages against closed forms and a queue of one worker, sums and losses that
are wrong, and both queues where nothing waits."""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from capabilities import need
from small_sweep import quiet

from ina.base.settings import ConfigError
from ina.lab import library, plan, sweep
from ina.lab.kinds.updates import Trained, UpdateTraining, train
from ina.lab.results import compare
from ina.lab.virtual.merged_updates import Age, UpdateJudge, update_words, values_of
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import WrongSum
from ina.net.ports import PS
from ina.worlds.virtual.updates import Updates

pytestmark = pytest.mark.build
need("cc")

BASE = UpdateTraining(task="classes", width=4, updates=200, evaluate=10_000)
ALONE = replace(BASE, workers=1, clusters=1, distribution="constant", computing=0.01)


@cache
def trained(**keys) -> Trained:
    return replace(BASE, **keys).measure()[0]


def on_the_way(config: UpdateTraining) -> float:
    """Time of an update to the server if nothing waits, s."""
    return 8 * config.frame / config.rate + 2 * config.delay + 8 * config.frame / config.server_rate


@pytest.mark.parametrize("discipline", ["fifo", "merging"])
def test_what_never_waits_is_as_old_as_its_way_and_half_a_period(discipline):
    """One worker, an update each 10 ms, 5 ms on the slow wire: ages rise from the way to the way and a period."""
    config = replace(ALONE, discipline=discipline, server_rate=8 * ALONE.frame / 0.005)
    run = config.measure()[0]
    way = on_the_way(config)
    assert run.ages == pytest.approx([way + 0.005], rel=1e-9) and run.peaks == pytest.approx(199 * [way + 0.01], rel=1e-9)
    assert run.replaced == run.dropped == 0 and run.frames == run.came == 200


@pytest.mark.parametrize("service", [0.0241, 0.0173, 0.0437])
def test_one_worker_on_a_wire_that_is_too_slow_has_its_newest_update_go_or_its_oldest(service):
    """A queue of constant times, step by step: merging sends the latest update whenever the wire is free; first come, first
    served the oldest of those that found room, which is as many slots old as there are places."""
    places, period = 4, 0.01
    for discipline in ("merging", "fifo"):
        keys = {"server_rate": 8 * ALONE.frame / service, "queue": places * ALONE.frame}
        config = replace(ALONE, discipline=discipline, updates=60, **keys)
        free, waiting, came, at = 0.0, [], [], period
        while len(came) < 60:
            while waiting and free <= at:
                came.append((waiting.pop(0), free := free + service))
            if not waiting and free <= at:
                came.append((at, free := at + service))
            elif discipline == "merging":
                waiting = [at]
            elif len(waiting) < places:
                waiting.append(at)
            at += period
        came, ahead = came[:60], on_the_way(config) - service
        area = sum((till - since) * ((till + since) / 2 - made) for (made, since), (_, till) in itertools.pairwise(came))
        run = config.measure()[0]
        assert run.ages == pytest.approx([area / (came[-1][1] - came[0][1]) + ahead], rel=1e-4)  # of whole bit/s
        assert (run.replaced > 0, run.dropped > 0) == (discipline == "merging", discipline == "fifo")


def test_on_a_wire_that_is_fast_enough_both_queues_are_the_same_training():
    fast = {"server_rate": 10e9, "distribution": "constant", "straggler": 1.37}
    fifo, merging = (trained(discipline=discipline, updates=80, workers=3, **fast) for discipline in ("fifo", "merging"))
    assert fifo.frames == fifo.came == 80 <= fifo.sent < 80 + 3 and not fifo.dropped  # some were under way
    assert replace(merging, discipline="fifo", stats=fifo.stats, frames=fifo.frames, replaced=0) == fifo


def test_merging_halves_ages_and_loses_less_where_twice_as_many_updates_come_as_there_is_room_for():
    slow = {"server_rate": 8 * BASE.frame * 400}  # of 800 updates a second
    fifo, merging = trained(discipline="fifo", **slow), trained(discipline="merging", **slow)
    assert fifo.summary()["age_ms"] > 2 * merging.summary()["age_ms"] and fifo.summary()["merged"] == 1
    assert fifo.summary()["per_second"] == pytest.approx(400, rel=0.1)
    assert merging.summary()["per_second"] > 1.4 * fifo.summary()["per_second"]
    assert fifo.dropped / fifo.sent > 0.3 and merging.dropped == 0 and 0 < merging.replaced / merging.sent < 0.2
    assert merging.summary()["merged"] > 1.5


def test_the_same_keys_give_the_same_bits_and_more_clusters_merge_less():
    slow = {"server_rate": 8 * BASE.frame * 400}
    again = replace(BASE, **slow).measure()[0]
    assert again == trained(**slow) and again.scores == trained(**slow).scores
    runs = [trained(clusters=clusters, **slow).summary()["merged"] for clusters in (1, 2, 8)]
    assert runs[0] > runs[1] > runs[2] == 1


def test_the_experiment_has_a_table_for_both_queues(tmp_path):
    need("matplotlib")
    small = {"task": "classes", "width": "4", "updates": "80"}
    trials = plan.load(library.find("merging-queue"), small, {"server_rate": "[1e6]", "seed": "[1]"})
    rows = [row for result in compare.points(sweep.sweep(trials, tmp_path, quiet())) for row in result.summary]
    assert [row["job"] for row in rows] == ["fifo", "merging"] and rows[0]["age_ms"] > rows[1]["age_ms"]


@pytest.mark.parametrize(("change", "message"), [
    (lambda words: words.__setitem__(-1, words[-1] + 1), "^an update of group 1 is not the sum of the updates .* that it names$"),
    (lambda words: words.__setitem__(1, words[1] | 4), "^an update of group 1 names the senders 111, and the numbers"),
    (lambda words: words.__setitem__(2, 7), "^update 7 of worker 0 came, which was not sent, or after number 0$"),
    (lambda words: words.__setitem__(0, 2), "^an update of group 2 has updates of other groups: of the workers .0, 1.$")])
def test_the_judge_notices_what_is_not_the_sum_that_it_names(change, message):
    judge, values = UpdateJudge(3), np.array([0.5, -1.25], np.float32)
    both = [update_words(1, sender, 1, 3, values) for sender in (0, 1)]
    for sender, words in enumerate(both):
        judge.send(sender, 1, words, 0, 0)
    merged = both[0] + both[1]
    merged[0] = 1
    assert np.array_equal(values_of(merged, 3), 2 * values)
    change(merged)
    with pytest.raises(WrongSum, match=message):
        judge.receive(merged)


def test_the_judge_notices_an_update_that_comes_twice_and_one_that_is_missing():
    judge = UpdateJudge(2)
    words = update_words(1, 0, 1, 2, np.ones(1, np.float32))
    judge.send(0, 1, words, 0, 0)
    with pytest.raises(WrongSum, match="^of 1 updates 0 came; the queue replaced 0 and dropped 0, so 1 should have$"):
        judge.check_lost(0, 0)
    judge.check_lost(1, 0)
    judge.receive(words)
    with pytest.raises(WrongSum, match="^update 1 of worker 0 came, which was not sent, or after number 1$"):
        judge.receive(words)


def test_a_queue_that_loses_an_update_is_noticed_in_a_run(monkeypatch):
    """A server that misses one frame of a run that loses none."""
    expect, calls = Updates.expect, []

    def forgetful(updates, host, at=None):
        ticket, words = expect(updates, host, at)
        calls.append(host)
        return -ticket if host == updates.hosts[-1] and calls.count(host) == 1 else ticket, words

    monkeypatch.setattr(Updates, "expect", forgetful)
    with pytest.raises(WrongSum, match="should have$"):
        train(replace(ALONE, server_rate=1e9, updates=60).resolved(), Timeline())


def test_ages_are_the_time_since_the_newest_was_sent():
    age = Age()
    for sent, came in ((0, 2), (1, 3), (7, 8), (5, 9)):  # the last one is older than what is known
        age.know(sent * PS, came * PS)
    assert age.peaks == [3.0, 7.0]
    # 2..3: 2 to 3; 3..8: 2 to 7; 8..10: 1 to 3
    assert age.mean(10 * PS) == pytest.approx((2.5 + 5 * 4.5 + 2 * 2) / 8)
    assert Age().mean(5) is None


@pytest.mark.parametrize(("keys", "message"), [
    ({"loss": 0.1}, "loss = 0.1: expected 0: updates are sent once, and only the queue may lose any"),
    ({"queue": 100}, r"queue = 100: expected 0, or \d+ or more: room for an update"),
    ({"width": 4096}, "width = 4096: expected less: an update is one frame of .* bytes, expected at most 9,216"),
    ({"clusters": 9}, "clusters = 9: expected at most 8, the workers"),
    ({"server_rate": 0.0}, "server_rate = 0.0: expected more than 0"),
    ({"payload": False}, "payload = False: expected true: values are real"),
    ({"batch": 12, "task": "cartpole"}, "batch = 12: expected a multiple of 8"), ({"topology": "fat-tree k=4"}, "topology")])
def test_keys_that_make_no_sense_are_refused_by_name(keys, message):
    with pytest.raises(ConfigError, match=message):
        replace(BASE, **keys)


def test_ages_of_a_run_that_ends_with_the_first_update_are_none():
    (trained,) = UpdateTraining(clusters=8, server_rate=1e8, updates=1, task="classes", width=1, evaluate=1).measure()
    assert trained.summary()["age_ms"] is trained.summary()["peak_age_ms"] is None
    assert "of a cluster the server knows nothing for any time" in UpdateTraining().why({}, trained.summary()).shown


def test_a_rate_of_learning_whose_sums_do_not_fit_is_refused():
    with pytest.raises(ConfigError, match="^lr: an update has a value of 5000, expected less than 4096 with 8 workers; give a "):
        update_words(1, 0, 1, 8, np.array([5000.0], np.float32))
