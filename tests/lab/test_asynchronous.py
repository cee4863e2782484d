"""Asynchronous training in virtual time: rates and staleness against closed forms, bounds, copies and sums that are wrong, and
that every method learns."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from capabilities import need

from ina.aggregation import protocols
from ina.base.settings import ConfigError
from ina.lab import oracle, plan
from ina.lab.kinds.asynchronous import Asynchronous, Learned
from ina.lab.results import why
from ina.lab.results.record import load
from ina.lab.virtual.asynchronous.keys import TASKS
from ina.lab.virtual.asynchronous.run import Run
from ina.lab.virtual.judge import Judge, StaleSum
from ina.lab.virtual.learning import Task
from ina.lab.virtual.masks import Masks
from ina.lab.virtual.methods import METHODS, batches, further
from ina.lab.virtual.staleness import StalenessBound
from ina.lab.virtual.virtual_network import Diverged, WrongSum

pytestmark = pytest.mark.build
need("cc")

ROOT = Path(__file__).parents[2]
WORKERS = 8
BASE = Asynchronous(updates=800, evaluate=800, width=4, rate=10e9)  # one packet
HARMONIC = sum(1 / i for i in range(1, WORKERS + 1))


@cache
def learnt(**keys) -> Learned:
    return replace(BASE, **keys).measure()[0]


@pytest.mark.parametrize(("method", "rate"), [
    ("synchronous", WORKERS / HARMONIC), ("first", 6 / (HARMONIC - 1 - 1 / 2)), ("softsync", WORKERS), ("downpour", WORKERS / 2)])
def test_updates_come_as_fast_as_closed_forms_say(method, rate):
    """In means of a compute time: a step of all lasts H_n, until the first k are ready H_n - H_(n-k), and who never waits is
    always computing. Exponential times have no memory, so it is the same whether the late ones begin anew or carry on."""
    assert learnt(method=method).summary()["per_second"] == pytest.approx(100 * rate, rel=0.1)


def test_a_bound_of_0_makes_ssp_as_slow_as_a_sum_of_all_and_a_wide_one_as_fast_as_nobody_waiting():
    rates = [learnt(method="ssp", bound=bound).summary()["per_second"] for bound in (0, 3, 1000)]
    assert rates[0] == pytest.approx(100 * WORKERS / HARMONIC, rel=0.1)
    assert rates[0] < 0.7 * rates[1] < 0.7 * rates[2] and rates[2] == pytest.approx(100 * WORKERS, rel=0.1)


@pytest.mark.parametrize("splits", [1, 2, 4, 8])
def test_updates_of_n_softsync_are_n_sums_old(splits):
    """As published (arXiv 1511.05950: the mean staleness is n): a worker's update ends a mean time later, in which all others
    have made one each, n sums together."""
    assert learnt(method="softsync", splits=splits).summary()["staleness"] == pytest.approx(splits, rel=0.06)


def test_who_waits_for_his_own_sum_is_as_many_others_sums_behind():
    assert learnt(method="ssp", bound=1000).summary()["staleness"] == pytest.approx(WORKERS - 1, rel=0.06)
    assert learnt(method="downpour", local=1, fetch=1).summary()["staleness"] == pytest.approx(WORKERS, rel=0.06)


def test_a_copy_of_ones_own_is_as_stale_as_its_latest_fetch():
    """The first of `fetch` updates in a row is as stale as any, and each later one by n sums more."""
    for fetch in (2, 4):
        expected = WORKERS * (1 + (fetch - 1) / 2)
        assert learnt(method="downpour", local=1, fetch=fetch).summary()["staleness"] == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_no_update_is_staler_than_its_bound(bound):
    iswitch, ssp, dssp = (learnt(method=method, bound=bound, updates=400) for method in ("iswitch", "ssp", "dssp"))
    assert max(iswitch.staleness) == bound and iswitch.dropped > 0
    assert ssp.apart == bound < dssp.apart <= bound + 12 and not ssp.dropped


def test_an_adaptive_bound_waits_less_than_the_lower_one_and_is_nearer_than_the_upper_one():
    narrow, adaptive, wide = (learnt(method=method, bound=bound, upper=12, straggler=1.5, updates=400)
                              for method, bound in (("ssp", 3), ("dssp", 3), ("ssp", 12)))
    assert narrow.waited > adaptive.waited > wide.waited
    assert narrow.summary()["per_second"] < adaptive.summary()["per_second"] < wide.summary()["per_second"]


@pytest.mark.parametrize(("patience", "ended", "bounds"), [
    (0, "rrtr", [1, 1, 1, 1]),
    (2, "rtrttttt", [2, 2, 3, 2, 2, 1, 1, 1]),  # each second one in a sum narrows it, refused ones between them or not
    (1, "rrrrtttt", [2, 3, 4, 4, 3, 2, 1, 1]),  # at most 4, at least 1
])
def test_a_bound_widens_with_each_refusal_and_narrows_with_every_so_many_sums(patience, ended, bounds):
    bound, seen = StalenessBound(1, 4, patience), []
    for each in ended:
        (bound.refuse if each == "r" else bound.take)()
        seen.append(bound.now)
    assert seen == bounds


@pytest.mark.parametrize("patience", [4, 9, 19])
def test_between_its_limits_an_adaptive_bound_has_one_update_in_so_many_refused(patience):
    """Each refusal is a sum up, each `patience` updates in sums are one down: there are as many of both, but for what the bounds
    are wide. With exponential times a share of the updates is staler than any bound, so that none is wide enough for all."""
    run = learnt(method="iswitch", bound=0, upper=1000, patience=patience, updates=2400)
    down = len(run.staleness) / patience
    assert 0.95 * down <= run.dropped <= down + WORKERS * (max(run.allowed) + 1) < len(run.staleness) / 2
    assert all(stale <= most for stale, most in zip(run.staleness, run.allowed, strict=True))


def test_an_adaptive_bound_that_may_not_move_is_the_fixed_one():
    fixed, limited = learnt(method="iswitch", updates=400), learnt(method="iswitch", upper=3, patience=4, updates=400)
    assert set(limited.allowed) == {3} and (limited.scores, limited.dropped) == (fixed.scores, fixed.dropped)
    assert not fixed.allowed and fixed.summary()["allowed"] is None


def test_a_worker_that_is_always_slow_has_a_bound_of_its_own(monkeypatch):
    """Worker 0 takes four times as long as others, so that nearly all it computes is staler than 2; it alone needs a wide one."""
    runs, go_on = [], Run.go_on
    monkeypatch.setattr(Run, "go_on", lambda run, worker: runs.append(run) or go_on(run, worker))
    keys = {"method": "iswitch", "bound": 2, "straggler": 4.0, "distribution": "constant", "updates": 400}
    (fixed,), (adaptive,) = (replace(BASE, patience=patience, **keys).measure() for patience in (0, 1000))
    assert fixed.dropped > adaptive.dropped > 0
    bounds = [worker.bound.now for worker in runs[-1].workers]
    assert bounds[0] > max(bounds[1:]) and bounds == [bound.now for bound in runs[-1].judge.bounds]


@pytest.mark.parametrize("keys", [{"task": "cartpole"}, {"task": "images"}, {"loss": 0.02, "duplicate": 0.02, "reorder": 0.02}])
def test_an_adaptive_bound_has_the_same_bits_again(keys):
    first, again = (replace(BASE, method="iswitch", bound=1, patience=3, updates=160, evaluate=40, **keys).measure()
                    for _ in range(2))
    assert first == again and len(set(first[0].allowed)) > 1


@pytest.mark.parametrize(("own", "other", "more"), [
    ([0.0, 1.0], [0.0, 5.0], 9),    # 1 + 9 is when the slowest one's next update comes
    ([3.0, 4.0], [0.0, 3.5], 3),    # at 7 for the one at 7
    ([2.0, 6.0], [0.0, 6.0], 3),    # at 18 for that at 18
    ([0.0, 1.0], [0.0], 0),         # nothing is known of the slowest one
])
def test_dssp_goes_on_for_as_long_as_it_then_waits_least(own, other, more):
    assert further(own, other, most=11) == more


def test_a_synchronous_training_is_that_of_one_process():
    """The same steps on the same points; only the sums' numbers on the wire are rounded."""
    (run,) = replace(BASE, updates=400, evaluate=8).measure()
    task, rngs = Task(WORKERS, 4, 0.0, 1), [np.random.default_rng((1, 4, worker)) for worker in range(WORKERS)]
    parameters, scores = task.initial(), []
    for _ in range(50):
        parameters = parameters - np.mean([task.update(parameters, worker, rngs[worker], 16, 0.5, 1)
                                           for worker in range(WORKERS)], axis=0)
        scores.append(task.score(parameters))
    assert [score for *_, score in run.scores[1:]] == pytest.approx(scores, abs=0.002)


@pytest.mark.parametrize("copies", [2, 4])
def test_backups_train_as_one_process_in_the_time_of_the_faster_of_each(copies):
    """The same steps on the same batches, whoever is first; and each group is ready when its first is: the least of `copies`
    exponential times, of which the largest takes H_(n/copies)/copies means."""
    groups = WORKERS // copies
    run = learnt(method="backup", copies=copies, updates=400, evaluate=groups)
    task, parameters, scores = Task(groups, 4, 0.0, 1), Task(groups, 4, 0.0, 1).initial(), []
    for version in range(400 // groups):
        parameters = parameters - np.mean([
            task.update(parameters, group, np.random.default_rng((1, 4, group, version)), 16, 0.5, 1)
            for group in range(groups)], axis=0)
        scores.append(task.score(parameters))
    assert [score for *_, score in run.scores[1:]] == pytest.approx(scores, abs=0.002)
    mean = sum(1 / each for each in range(1, groups + 1)) / copies
    assert run.seconds / run.sums == pytest.approx(0.01 * mean, rel=0.15) and max(run.staleness) == 0


def test_one_copy_of_each_is_a_sum_of_all_and_two_of_a_group_are_noticed(monkeypatch):
    alone, synchronous = learnt(method="backup", copies=1, updates=80), learnt(updates=80)
    assert alone.seconds == synchronous.seconds and alone.staleness == synchronous.staleness
    monkeypatch.setattr(Run, "_rivals", lambda run, worker: [])
    with pytest.raises(WrongSum, match="expected one of each 2 that compute the same$"):
        replace(BASE, method="backup", updates=400).measure()


def test_batches_are_as_large_as_workers_are_fast():
    assert batches(np.array([1.0, 1.0, 1.0, 1.0]), 64) == [16, 16, 16, 16]
    assert batches(np.array([1.0, 3.0]), 10) == [3, 7] and batches(np.array([0.0, 1.0]), 10) == [1, 9]
    assert batches(np.array([2.0, 5.0, 1.0]), 3) == [1, 1, 1]
    for seed in range(20):
        speeds = np.random.default_rng(seed).exponential(size=7)
        sizes = batches(speeds, 100)
        assert sum(sizes) == 100 and np.all(np.abs(sizes - (1 + 93 * speeds / speeds.sum())) < 1)


def test_balanced_batches_take_a_slow_worker_out_of_the_way_but_not_a_slow_wire():
    """With constant times and one worker four times slower, a step of equal batches takes four means, and one of balanced ones
    the points over all speeds, 8/7.25, or as much longer as whole points and one each make it. On wires that take a step's time
    many times over there is nothing to win."""
    keys = {"distribution": "constant", "straggler": 4.0, "updates": 160}
    equal, balanced = (learnt(method=method, **keys) for method in ("synchronous", "balanced"))
    assert equal.seconds / equal.sums == pytest.approx(0.04, rel=0.01)
    settled = (balanced.seconds - 0.04) / (balanced.sums - 1)  # the first batches are equal
    assert 0.01 * 8 / 7.25 <= settled <= 0.0131 and max(balanced.staleness) == 0
    slow = {"rate": 2e5, "rto_min": 0.5, "updates": 40}
    equal, balanced = (learnt(method=method, **keys | slow) for method in ("synchronous", "balanced"))
    assert 1 < equal.seconds / balanced.seconds < 1.2


def test_updates_of_balanced_batches_weigh_as_many_points_as_they_have(monkeypatch):
    """A sum is that of all its points: the mean over workers of each update times its part of a mean batch."""
    update, offer, own = Task.update, Judge.offer, []

    def record(task, parameters, worker, rng, batch, lr, steps):
        own.append((worker, batch, update(task, parameters, worker, rng, batch, lr, steps)))
        return own[-1][2]

    def compare(judge, number, worker, version, values, plain):
        _, batch, alone = next(each for each in own[::-1] if each[0] == worker)
        assert np.array_equal(values[: len(alone)], np.float32(batch / 16) * alone)
        assert np.flatnonzero(values[len(alone) :]).tolist() == [worker], "its speed among zeros"
        offer(judge, number, worker, version, values, plain)

    monkeypatch.setattr(Task, "update", record)
    monkeypatch.setattr(Judge, "offer", compare)
    (run,) = replace(BASE, method="balanced", straggler=3.0, distribution="constant", updates=160).measure()
    steps = [own[first : first + WORKERS] for first in range(0, WORKERS * run.sums, WORKERS)]
    assert all(sum(batch for _, batch, _ in step) == 16 * WORKERS for step in steps)
    assert np.mean([batch for worker, batch, _ in own[WORKERS:] if worker == 0]) < 10


def test_one_local_step_is_a_synchronous_training():
    synchronous, local = learnt(updates=400, evaluate=80), learnt(method="local", local=1, updates=400, evaluate=80)
    assert synchronous.scores == local.scores and synchronous.staleness == local.staleness


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_and_a_replay_is_the_same(method):
    keys = {"updates": 1200, "width": 16, "evaluate": 80, "target": 0.66, "lr": 0.8}
    summary = learnt(method=method, **keys).summary()
    assert summary["score"] > 0.64 and summary["target_s"], "a tenth is what guessing reaches"
    if method == "synchronous":
        assert replace(BASE, method=method, **keys).measure() == [learnt(method=method, **keys)]
    else:
        assert summary["target_s"] < learnt(method="synchronous", **keys).summary()["target_s"]


@pytest.mark.parametrize("method", [name for name, way in METHODS.items() if name != "synchronous"
                                    and not (way.backups or way.balances or way.layered or way.foresees)])
def test_a_pole_is_balanced_sooner_than_by_sums_of_all(method):
    keys = {"task": "cartpole", "updates": 640, "evaluate": 40, "width": 16}
    reached, synchronous = (learnt(method=each, **keys).summary()["target_s"] for each in (method, "synchronous"))
    assert reached and synchronous and reached < synchronous


REFUSED = {  # methods that a task has no meaning for, and why
    ("backup", "cartpole"): "a worker keeps its poles", ("balanced", "cartpole"): "a worker keeps its poles",
    ("foresight", "cartpole"): "cartpole has no loss that falls"}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", METHODS)
def test_a_replay_of_each_task_by_each_method_has_the_same_bits(method, task):
    keys = {"method": method, "task": task, "updates": 96, "evaluate": 32, "width": 4}
    if why := REFUSED.get((method, task)):
        with pytest.raises(ConfigError, match=why):
            replace(BASE, **keys)
        return
    first, again = (replace(BASE, **keys).measure() for _ in range(2))
    assert first == again and first[0].scores[-1][1] * first[0].scores[-1][0] > 0
    assert replace(BASE, seed=2, **keys).measure() != first


@pytest.mark.parametrize("method", [name for name, way in METHODS.items() if not (way.layered or way.foresees)])
def test_a_deep_network_is_learnt_sooner_than_by_sums_of_all(method):
    keys = {"task": "images", "updates": 640, "evaluate": 40, "width": 16, "straggler": 2.0, "target": 0.5}
    run = learnt(method=method, **keys)
    reached, synchronous = run.summary()["target_s"], learnt(method="synchronous", **keys).summary()["target_s"]
    assert reached and (reached < synchronous or method == "synchronous"), "a tenth is what guessing reaches"


@pytest.mark.parametrize("method", METHODS)
def test_the_guide_has_a_row_of_what_it_does_and_one_of_what_it_reached(method):
    guide = (ROOT / "docs" / "guide" / "experiments.md").read_text()
    assert guide.count(f"\n| `{method}` |") >= 2, "the table of methods, and those of five seeds"


@pytest.mark.parametrize("method", METHODS)
def test_losses_change_nothing_but_the_time(method):
    """Every sum is compared with what it names, on copies that stay equal."""
    (run,) = replace(BASE, method=method, updates=160, width=16, loss=0.02, duplicate=0.02, reorder=0.02).measure()
    assert run.stats["workers"]["timeouts"] + run.stats["workers"]["fast_resends"] > 0 and run.scores[-1][1] >= 10


@pytest.mark.parametrize("protocol", ["atp", "ps"])
def test_a_parameter_server_decides_as_a_switch_does(protocol):
    (run,) = replace(BASE, method="iswitch", protocol=protocol, updates=160).measure()
    assert max(run.staleness) <= 3 and run.summary()["per_second"] == pytest.approx(
        learnt(method="iswitch", updates=160).summary()["per_second"], rel=0.1)


def test_weights_of_stale_updates_and_memories_of_sums_make_a_difference():
    plain = learnt(method="softsync", updates=400, evaluate=80).scores
    for keys in ({"damping": "inverse"}, {"damping": "exponential"}, {"outer_momentum": 0.5}, {"outer_lr": 0.5},
                 {"outer": "adagrad", "outer_lr": 0.05}):
        run = learnt(method="softsync", updates=400, evaluate=80, **keys)
        assert [point[:2] for point in run.scores] == [point[:2] for point in plain], "times are the same"
        assert run.scores != plain and run.scores[-1][2] > 0.3


@pytest.mark.parametrize("keys", [{"local": 1, "fetch": 1}, {"local": 2, "fetch": 3}])
def test_adagrad_has_a_rate_of_each_parameter_over_the_root_of_its_squares_so_far(monkeypatch, keys):
    """The rates of Dean et al. (NIPS 2012, section 4.1), of all averages at once, in double precision."""
    seen, step = [], Run._step
    monkeypatch.setattr(Run, "_step", lambda run, worker, average: seen.append((run, worker, average)) or step(
        run, worker, average))
    replace(BASE, method="downpour", updates=160, outer="adagrad", outer_lr=0.05, **keys).measure()
    run, first = seen[0][0], Task(WORKERS, 4, 0.0, 1).initial()
    averages = np.array([average for _, worker, average in seen if worker.number == 0], np.float64)
    rates = 0.05 / np.sqrt(np.cumsum(averages**2, axis=0) + 1e-12)
    assert len(averages) == run.workers[0].version >= 160 / keys["local"]
    assert run.workers[0].parameters == pytest.approx(first - np.sum(rates * averages, axis=0), abs=2e-5)


def test_a_large_batch_learns_as_many_small_ones_if_the_learning_rate_grows_with_it():
    """The linear scaling rule: with eight times as many points in a step, and an eighth of the steps, the same points teach the
    same at a rate that is eight times larger (Goyal et al., arXiv 1706.02677, section 2.1), and less at the same one."""
    keys = {"lr": 0.05, "width": 16, "evaluate": 20}
    small = learnt(batch=4, updates=3200, **keys).scores[-1][2]
    large, unscaled = (learnt(batch=32, updates=400, lr_points=points, **keys).scores[-1][2] for points in (32, 0))
    assert large == pytest.approx(small, abs=0.03) and unscaled < small - 0.1


@pytest.mark.parametrize(("done", "rate"), [(0, 0.1), (100, 0.1 + 0.3 / 4), (400, 0.4), (4000, 0.4)])
def test_a_learning_rate_rises_by_equal_amounts_to_the_scaled_one(done, rate):
    config = replace(BASE, lr=0.1, batch=16, lr_points=32, warmup=400)  # eight workers' points are four times as many
    assert config.rate_at(done) == pytest.approx(rate)
    assert replace(config, warmup=0).rate_at(0) == pytest.approx(0.4) and replace(BASE, lr=0.1).rate_at(done) == 0.1


def test_workers_begin_at_the_rate_of_the_warm_up(monkeypatch):
    rates, update = [], Task.update
    monkeypatch.setattr(Task, "update", lambda task, *rest: rates.append(rest[4]) or update(task, *rest))
    replace(BASE, lr=0.1, lr_points=32, warmup=16, updates=24).measure()
    assert rates[:24] == pytest.approx(8 * [0.1] + 8 * [0.25] + 8 * [0.4])


@pytest.mark.parametrize("keys", [{}, {"method": "local", "local": 4, "loss": 0.02, "duplicate": 0.02}, {"protocol": "ps"}])
def test_masks_cancel_in_the_switch_and_training_is_that_without_them(monkeypatch, keys):
    """The judge compares each sum with that of the unmasked numbers, to the bit; training differs from that with floats by
    rounding."""
    sent, offer = [], Judge.offer
    monkeypatch.setattr(Judge, "offer", lambda judge, *rest: sent.append(rest) or offer(judge, *rest))
    masked, floats = (replace(BASE, updates=320, evaluate=80, masked=on, **keys).measure()[0] for on in (True, False))
    assert [score for *_, score in masked.scores] == pytest.approx([score for *_, score in floats.scores], abs=0.02)
    covered = [(values, plain) for *_, values, plain in sent if plain is not None]
    assert len(covered) >= masked.sums * WORKERS and all(values.dtype == np.int32 for values, _ in covered)
    assert all(np.mean(values == plain) < 0.01 for values, plain in covered)


def test_masks_of_workers_that_drop_out_are_taken_off(monkeypatch):
    """Worker 0 is away for the whole training: sums of the six first of the others are those without masks, to the bit, and so
    are training's results but for rounding. The judge compares each sum with that of the unmasked numbers."""
    keys = {"method": "first", "straggler": 1000.0, "distribution": "half", "updates": 320, "evaluate": 80}
    cleared, check = [], Judge.check_clear
    monkeypatch.setattr(Judge, "check_clear", lambda judge, *rest: cleared.append(rest[2]) or check(judge, *rest))
    masked = replace(BASE, masked=True, shares=5, **keys).measure()[0]
    assert len(cleared) > 300 and all(len(each) >= 6 and 0 not in each for each in cleared)
    floats = replace(BASE, **keys).measure()[0]
    assert [score for *_, score in masked.scores] == pytest.approx([score for *_, score in floats.scores], abs=0.02)


def test_masks_that_stay_are_noticed(monkeypatch):
    monkeypatch.setattr(Run, "_clear", lambda run, number, total, contributors: total)
    with pytest.raises(WrongSum, match="sum 0: masks of the workers .* do not cancel"):
        replace(BASE, method="first", masked=True, shares=5, updates=80).measure()


def test_masks_that_do_not_cancel_are_noticed(monkeypatch):
    cover = Masks.cover
    monkeypatch.setattr(Masks, "cover", lambda masks, worker, number, values: cover(
        masks, worker, number + (worker == 5), values))
    with pytest.raises(WrongSum, match="sum 0: masks of the workers .* do not cancel"):
        replace(BASE, masked=True, updates=80).measure()


def test_workers_with_classes_of_their_own_drift_apart_in_local_steps():
    alike, own = (learnt(method="local", local=32, own=part, updates=2560, width=16).summary() for part in (0.0, 1.0))
    assert alike["score"] > own["score"] + 0.03


def test_a_slow_worker_whose_updates_are_always_too_stale_is_in_no_sum_of_iswitch(monkeypatch):
    """While it computes for 40 ms, seven others make an update each 10 ms: 28, seven sums of four, and the bound is three."""
    offer, offered = Run._offer, list[tuple[int, bool]]()

    def noted(run, worker, update):
        before = run.dropped
        offer(run, worker, update)
        offered.append((worker.number, run.dropped == before))

    monkeypatch.setattr(Run, "_offer", noted)
    replace(BASE, method="iswitch", straggler=4.0, distribution="constant").measure()
    assert offered.count((0, False)) > 20 and {number for number, sent in offered if sent} == set(range(1, WORKERS))


def test_workers_with_few_classes_drift_apart_in_local_steps():
    alike, few = (learnt(method="local", local=32, concentration=each, updates=2560, width=16).summary() for each in (0.0, 0.05))
    assert alike["score"] > few["score"] + 0.03


def test_a_late_update_of_who_waits_is_not_hidden(monkeypatch):
    offer = Run._offer

    def older(run, worker, update):
        update.version -= worker.version > 2
        offer(run, worker, update)

    monkeypatch.setattr(Run, "_offer", older)
    with pytest.raises(StaleSum, match="an update of staleness 1 by worker ., expected at most 0 with synchronous"):
        replace(BASE, updates=80).measure()


@pytest.mark.parametrize("method", ["iswitch", "ssp", "dssp"])
def test_a_bound_that_is_not_kept_is_noticed(monkeypatch, method):
    if method == "iswitch":
        offer = Run._offer

        def stale(run, worker, update):
            worker.bound, known = None, worker.bound
            offer(run, worker, update)
            worker.bound = known

        monkeypatch.setattr(Run, "_offer", stale)
    else:
        monkeypatch.setattr(Run, "_may_begin", lambda run, worker: True)
    with pytest.raises(StaleSum, match=f"expected at most .* with {method}"):
        replace(BASE, method=method, bound=1, upper=2).measure()


@pytest.mark.parametrize(("by", "message"), [(1, "expected at most [1-9] with"), (-1, "refuses an update .* expected one above")])
def test_a_worker_whose_bound_is_another_than_the_rule_has_it_is_noticed(monkeypatch, by, message):
    """The judge has bounds of its own, which it carries on by the sums."""
    offer = Run._offer

    def otherwise(run, worker, update):
        worker.bound.now += by
        offer(run, worker, update)
        worker.bound.now -= by

    monkeypatch.setattr(Run, "_offer", otherwise)
    with pytest.raises(StaleSum, match=message):
        replace(BASE, method="iswitch", bound=1, patience=4, updates=400).measure()


def test_wrong_sums_and_copies_that_differ_are_noticed(monkeypatch):
    check, apply = Judge.check_sum, Run._apply
    monkeypatch.setattr(Judge, "check_sum", lambda judge, worker, number, out, contributors: check(
        judge, worker, number, out + np.float32(1e-3) * (worker == 5), contributors))
    with pytest.raises(WrongSum, match="sum 0: worker 5 has another one"):
        replace(BASE, updates=80).measure()
    monkeypatch.setattr(Judge, "check_sum", check)

    def apply_otherwise(run, worker, time):
        worker.parameters = worker.parameters + np.float32(1e-6) * (worker.number == 5)
        apply(run, worker, time)

    monkeypatch.setattr(Run, "_apply", apply_otherwise)
    with pytest.raises(WrongSum, match="version 1 of worker [0-9] is another one"):
        replace(BASE, updates=80).measure()


@pytest.mark.parametrize(("keys", "expected"), [
    ({"workers": 33}, "^workers = 33: expected 0 to 32"),
    ({"method": "fastest"}, "method = 'fastest'"), ({"least": 9}, "least = 9: expected at most 8"),
    ({"method": "softsync", "splits": 9}, "splits = 9: expected at most 8"),
    ({"method": "dssp", "bound": 5, "upper": 4}, "upper = 4: expected 5 or more"),
    ({"method": "iswitch", "patience": 4, "bound": 9, "upper": 8}, "upper = 8: expected 9 or more, the bound"),
    ({"method": "ssp", "patience": 4}, "patience = 4: expected 0 with ssp: its bound stays"),
    ({"outer": "adagrad", "outer_momentum": 0.5}, "outer_momentum = 0.5: expected 0 with adagrad"),
    ({"task": "cartpole", "own": 0.5}, "own = 0.5: expected 0 with cartpole"),
    ({"task": "cartpole", "batch": 20}, "batch = 20: expected a multiple of 8"),
    ({"warmup": 5}, "warmup = 5: expected 0 without lr_points"),
    ({"lr_points": 16, "method": "local", "local": 2}, "lr_points = 16: expected 0 with more than one local step"),
    ({"method": "backup", "copies": 3}, "copies = 3: expected a divisor of 8"),
    ({"method": "backup", "task": "cartpole"}, "task = 'cartpole': expected classes or images with backup: a worker keeps its"),
    ({"masked": True, "method": "first"}, "masked = True: expected false with sums of 6 of 8, or shares: masks"),
    ({"shares": 5}, "shares = 5: expected 0 with synchronous, or without masked"),
    ({"masked": True, "method": "first", "shares": 4}, "shares = 4: expected more than half of 8"),
    ({"masked": True, "method": "first", "shares": 7}, "shares = 7: expected more than half of 8, .* and at most 6"),
    ({"masked": True, "method": "fedsa", "shares": 5}, "shares = 5: expected 0 with fedsa"),
    ({"masked": True, "method": "ssp", "shares": 5}, "shares = 5: expected 0 with sums of 1 of 8, not more than half$"),
    ({"masked": True, "method": "ssp"}, "masked = True: expected false with sums of 1 of 8: masks"),
    ({"concentration": 0.5, "own": 0.5}, "concentration = 0.5: expected 0 with cartpole, and with own"),
    ({"method": "balanced", "computing": 0.0}, "computing = 0.0: expected more than 0 with balanced"),
    ({"updates": 7}, "updates = 7: expected 8 or more"), ({"task": "go"}, "task = 'go'"),
    ({"payload": False}, "payload = False: expected true"), ({"jobs": 2}, "jobs = 2: expected 1"),
    ({"algorithm": "ring"}, "algorithm = 'ring': expected in-network"), ({"own": 1.5}, "own = 1.5"),
])
def test_wrong_keys_are_refused(keys, expected):
    with pytest.raises(ConfigError, match=expected):
        replace(BASE, **keys)


@pytest.mark.parametrize("method", METHODS)
def test_a_key_that_a_method_does_not_take_changes_nothing(method):
    other = {"least": 3, "splits": 2, "bound": 2, "upper": 9, "patience": 3, "noise": 1.0, "budget": 50.0, "chosen": 4, "loop": 4,
             "deep": 3, "copies": 4, "fetch": 3, "gamma": 0.3, "counter_noise": 2.0}
    config = replace(BASE, method=method, updates=160)
    unused = {key: value for key, value in other.items() if key in config.unused()}
    assert set(other) - set(unused) == set(METHODS[method].takes) - ({"upper"} if method == "iswitch" else set())
    unused.pop("patience", None)  # it is refused in Python, too
    (run,), (again,) = config.measure(), replace(config, **unused).measure()
    assert (run.scores, run.staleness, run.enough) == (again.scores, again.staleness, again.enough)


def test_a_key_that_no_point_takes_is_refused_with_file_line_and_who_takes_it(tmp_path):
    path = tmp_path / "own.toml"

    def refused(text: str, *overrides: tuple[str, str]) -> str:
        path.write_text(f'kind = "asynchronous"\n{text}')
        with pytest.raises(ConfigError) as error:
            plan.load(path, dict(overrides))
        return str(error.value)

    assert refused("bound = 5\nsplits = 2\n").splitlines() == [
        f"{path}:2: bound = 5: nothing uses it here; expected no such key, or method = iswitch or ssp or dssp or fedlesscan",
        f"{path}:3: splits = 2: nothing uses it here; expected no such key, or method = softsync"]
    assert f"{path}:5: upper = 20: nothing uses it here; expected no such key, or patience, or method = dssp" in refused(
        'method = "iswitch"\n[[sweep]]\nbound = [1, 2]\nupper = [20, 30]\n')
    assert "command line: fetch = 3: nothing uses it here" in refused("", ("fetch", "3"))
    for text in ('bound = 5\n[sweep]\nmethod = ["synchronous", "ssp"]\n', "bound = 3\nleast = 8\n",
                 'method = "iswitch"\npatience = 2\nupper = 20\n', "[sweep]\nbound = [3]\n"):
        path.write_text(f'kind = "asynchronous"\n{text}')
        assert plan.load(path).points
    path.write_text('kind = "asynchronous"\nmethod = "ssp"\nbound = 5\n')
    assert plan.load(path, {"method": "synchronous"}).points, "the file's bound has a use without the command line"


@pytest.mark.parametrize(("text", "message"), [
    ('kind = "stragglers"\ngamma = 0.1', "gamma = 0.1: nothing uses it here; expected no such key, or predict = nurd"),
    ('kind = "parameters"\nbound = 9', "bound = 9: nothing uses it here; expected no such key, or consistency = bounded")])
def test_other_kinds_refuse_keys_that_change_nothing(tmp_path, text, message):
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(ConfigError, match=f"own.toml:2: {message}"):
        plan.load(tmp_path / "own.toml")


def test_a_run_of_the_command_has_a_table_a_report_and_a_reason(tmp_path, monkeypatch, capsys):
    from ina.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text('kind = "asynchronous"\nmethod = "ssp"\nbound = 0\nupdates = 160\nwidth = 4\n')
    assert main(["experiment", "run", "own.toml"]) == 0
    assert "updates that were too stale to be sent" in capsys.readouterr().out
    folder = next((tmp_path / "results").rglob("metrics.json")).parent
    (finding,) = why.explain(load(folder))
    assert "Staleness" in (folder / "report.html").read_text()
    assert finding.bound == "straggler" and "updates are" in finding.shown


@pytest.mark.parametrize("lr", [100.0, 1e6])
@pytest.mark.parametrize("method", ["synchronous", "balanced", "downpour"])
def test_a_training_that_diverges_says_so_and_blames_no_switch(method, lr):
    with pytest.raises(Diverged, match=f"the training diverged: update .* its learning rate is {lr:g}".replace("+", r"\+")):
        replace(BASE, lr=lr, method=method).measure()


@pytest.mark.parametrize("method", ["synchronous", "first", "balanced", "layerwise"])
def test_updates_that_only_their_sum_is_too_large_of_blame_no_switch(monkeypatch, method):
    """Each is a float that a packet can carry; eight of them, or six, are beyond all floats."""
    huge = np.float32(2.0**125.7)
    monkeypatch.setattr(Task, "update", lambda task, *rest: np.full(task.parameters, huge, np.float32))
    with pytest.raises(Diverged, match="update 1 of worker 0 is infinite, NaN, or beyond 1.06338e"):
        replace(BASE, method=method, updates=80).measure()


def test_updates_of_a_few_sums_add_up_to_too_much_for_the_deep_layers(monkeypatch):
    monkeypatch.setattr(Task, "update", lambda task, *rest: np.full(task.parameters, np.float32(2.0**122.5), np.float32))
    with pytest.raises(Diverged, match="the change of the deep layers up to update 2 of worker 0 is infinite"):
        replace(BASE, method="layerwise", updates=192).measure()


def test_a_loss_that_is_no_float_blames_no_switch(monkeypatch):
    """Losses travel in the sums of `foresight`: one may be infinite where the update is not."""
    monkeypatch.setattr(Task, "loss", lambda task, *rest: np.inf)
    with pytest.raises(Diverged, match="the training diverged: the loss before update .* its learning rate is 0.25"):
        replace(BASE, method="foresight", lr=0.25, updates=200).measure()


@pytest.mark.parametrize("method", ["foresight", "fedlesscan"])
def test_an_update_so_large_that_the_staleness_beside_it_would_be_rounded_is_refused(monkeypatch, method):
    """Up to the limit each worker reads the staleness that the others have sent; beyond it the training ends by name."""
    keys = {"method": method, "updates": 160, "local": 1, "bound": 5, "straggler": 4.0}
    limit, apply, read = np.float32(2.0**26), Run._apply, []  # of 32 bits: less two, three for eight workers, and one

    def applies(run, worker, time):
        number = worker.version
        stale = worker.outs[number][-run.config.workers :]
        for each in worker.arrived[number]:
            assert number - round(float(stale[each])) == run.judge.versions[number, each]
            read.append(round(float(stale[each])))
        apply(run, worker, time)

    monkeypatch.setattr(Run, "_apply", applies)
    monkeypatch.setattr(Task, "update", lambda task, *rest: np.full(task.parameters, limit, np.float32))
    replace(BASE, **keys).measure()
    assert max(read) > 0
    monkeypatch.setattr(Task, "update", lambda task, *rest: np.full(task.parameters, 2 * limit, np.float32))
    with pytest.raises(Diverged, match="an update of worker ., or its .*, is 1.34218e.08, beside which whole numbers"):
        replace(BASE, **keys).measure()


@pytest.mark.parametrize("speeds", [[0, 0, 0], [np.inf, 1, 1], [np.nan, 1, 1]])
def test_batches_are_equal_where_no_speed_is_known(speeds):
    assert batches(np.array(speeds, float), 10) == [4, 3, 3]


def test_a_sum_of_zeros_is_exact():
    right, error = oracle.expected([np.zeros(4, np.float32)] * 2, 2, "switchml", protocols.SUM)
    assert error == 0 and not right.any()
