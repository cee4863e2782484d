"""Tiers and clusters of clients: rules one by one, clusters against scikit-learn's, and rounds of a training."""

from dataclasses import replace

import numpy as np
import pytest
from capabilities import need

from ina.base.settings import ConfigError
from ina.lab.kinds.asynchronous import Asynchronous
from ina.lab.virtual.asynchronous.run import Run
from ina.lab.virtual.client_tiers import Client, Rounds, clusters, dbscan, features, running_mean, selected, separation, weight
from ina.lab.virtual.judge import Judge
from ina.lab.virtual.learning import Task
from ina.lab.virtual.virtual_network import WrongSum

BASE = Asynchronous(method="fedlesscan", updates=1600, evaluate=1600, width=4, rate=10e9, straggler=4.0, distribution="constant")


@pytest.mark.fast
@pytest.mark.parametrize("seed", range(8))
def test_clusters_are_those_of_scikit_learn(seed):
    need("sklearn")
    from sklearn.cluster import DBSCAN
    from sklearn.metrics import calinski_harabasz_score

    rng = np.random.default_rng(seed)
    points = np.concatenate([rng.normal(centre, 0.3, (6, 2)) for centre in (0, 2, 5)])
    for radius in (0.05, 0.3, 0.9):
        labels = dbscan(points, radius)
        right = DBSCAN(eps=radius, min_samples=2).fit(points).labels_
        assert np.array_equal(labels[:, None] == labels[None], right[:, None] == right[None])
        assert np.array_equal(labels < 0, right < 0)
        if 1 < len(set(labels)) < len(points):
            assert separation(points, labels) == pytest.approx(calinski_harabasz_score(points, labels))


@pytest.mark.fast
def test_tiers_and_cooldowns():
    client = Client()
    assert client.tier(0) == "rookie"
    for number, cooldown in ((0, 1), (2, 2), (5, 4)):
        client.miss(number)
        assert client.cooldown == cooldown
        assert [client.tier(number + each) for each in range(1, cooldown + 2)] == cooldown * ["straggler"] + ["participant"]
    client.finish(2.0)
    assert client.cooldown == 0 and client.tier(6) == "participant"
    client.miss(7)
    client.finish_late(5.0, 7)
    assert client.missed == [0, 2, 5] and client.times == [2.0, 5.0] and client.cooldown == 1


@pytest.mark.fast
def test_means_and_costs():
    assert running_mean([], 0.5) == 0 and running_mean([4.0, 2.0, 1.0], 0.5) == 2.0
    points = features([Client([4.0, 2.0]), Client([1.0], [0, 3])], 4)
    assert points.tolist() == [[3.0, 0.0], [1.0, pytest.approx(1.5 * 4.0 * (0.2 * 1 / 4 + 0.8 * 4 / 4))]]
    assert weight(3, 3) == 1 and weight(1, 3) == 0.5


@pytest.mark.fast
def test_rookies_come_first_then_fast_clusters_then_slow_ones_and_stragglers_last():
    rng = np.random.default_rng(0)
    fast, slow = [Client([1.0 + each / 100]) for each in range(4)], [Client([9.0 + each / 100]) for each in range(3)]
    clients = fast + slow + [Client(), Client()]
    late = Client()
    late.miss(4)
    clients.append(late)
    assert set(clusters(features(fast + slow, 5)).tolist()) == {0, 1}
    assert set(selected(clients, 2, 5, 0.0, rng)) == {7, 8}
    assert selected(clients, 6, 5, 0.0, rng) == [0, 1, 2, 3, 7, 8]
    assert selected(clients, 5, 5, 1.0, rng) == [4, 5, 6, 7, 8], "at the end slow ones"
    assert selected(clients, 10, 5, 0.0, rng) == list(range(10)), "stragglers only where there is nobody else"
    assert 9 not in selected(clients, 9, 5, 0.5, rng) and 9 in selected(clients, 10, 5, 0.5, rng)
    fast[0].finish(1.0)
    assert selected(clients, 3, 5, 0.0, rng) == [1, 7, 8], "of a cluster those that have taken part least"


@pytest.mark.fast
def test_a_round_that_has_ended_is_what_its_results_say():
    rounds = Rounds(4, 3, 100, seed=1)
    rounds.choose(0, 0)
    one, two, three = rounds.chosen
    (other,) = set(range(4)) - {one, two, three}
    rounds.end(0, {one: (1.0, 0), two: (2.0, 0)})
    assert rounds.clients[three].missed == [0] and rounds.first is None
    rounds.choose(1, 2)
    assert rounds.chosen == sorted([one, two, other]) and rounds.first == 2, "who has missed a round cools down"
    rounds.end(1, {one: (1.0, 1), three: (3.0, 0), other: (2.0, 1)})
    assert rounds.clients[three] == Client([3.0], [], 1) and rounds.clients[two] == Client([2.0], [1], 1)
    rounds.choose(2, 5)
    assert rounds.chosen == sorted([one, three, other])


@pytest.mark.build
def test_those_who_are_chosen_compute_and_late_models_weigh_less(monkeypatch):
    """With constant times the slow worker misses each round that it is chosen for; rounds are as long as others compute."""
    need("cc")
    chosen, began, weights, alone = {}, [], [], {}
    choose, begin, offer, update = Judge.choose, Judge.begin, Judge.offer, Task.update

    def compute(task, parameters, worker, *rest):
        alone[worker] = update(task, parameters, worker, *rest)
        return alone[worker]

    def compare(judge, number, worker, version, values, plain):
        assert np.allclose(values[: len(alone[worker])], alone[worker] * (version + 1) / (number + 1), rtol=1e-5, atol=1e-9)
        behind = values[len(alone[worker]) :].reshape(2, 8)
        assert behind[:, worker] == pytest.approx([0.32 if worker == 0 else 0.08, number - version])
        assert np.count_nonzero(behind) == 1 + (number > version), "beside zeros of the others"
        weights.append((number, worker, version))
        offer(judge, number, worker, version, values, plain)

    monkeypatch.setattr(Task, "update", compute)
    monkeypatch.setattr(Judge, "choose", lambda judge, version, worker, who: chosen.setdefault(version, who) and choose(
        judge, version, worker, who))
    monkeypatch.setattr(Judge, "begin", lambda judge, version, worker: began.append((version, worker)) or begin(
        judge, version, worker))
    monkeypatch.setattr(Judge, "offer", compare)
    (run,) = BASE.measure()
    assert run.sums > 30 and all(len(who) == 6 for who in chosen.values())
    assert all(worker in chosen[version] for version, worker in began) and {worker for _, worker in began} == set(range(8))
    slow = [number - version for number, worker, version in weights if worker == 0]
    assert len(slow) >= 3 and set(slow) == {3}, "rounds late"
    assert run.seconds / run.sums == pytest.approx(0.08, rel=0.01), "nobody waits for it"
    assert run == BASE.measure()[0], "a replay has the same bits"


@pytest.mark.build
def test_models_that_are_too_late_are_not_sent():
    need("cc")
    (run,) = replace(BASE, bound=2).measure()
    assert run.dropped >= 3 and max(run.staleness) == 1, "3 rounds late is the slow worker, 1 the sixth of six"


@pytest.mark.build
def test_a_worker_that_chooses_otherwise_is_noticed_and_one_that_was_not_chosen(monkeypatch):
    need("cc")
    choose = Rounds.choose

    def other(rounds, number, done):
        choose(rounds, number, done)
        if number == 2 and not others.setdefault(number, 0):
            others[number], rounds.chosen = 1, [each for each in range(8) if each != rounds.chosen[0]][:6]

    others = {}
    with monkeypatch.context() as patch:
        patch.setattr(Rounds, "choose", other)
        with pytest.raises(WrongSum, match="version 2: the workers .* compute for worker"):
            BASE.measure()
    monkeypatch.setattr(Run, "_may_begin", lambda run, worker: True)
    with pytest.raises(WrongSum, match=r"sum \d has an update of version 0 by worker \d, expected one of \["):
        BASE.measure()


@pytest.mark.fast
@pytest.mark.parametrize(("keys", "expected"), [
    ({"chosen": 9}, "chosen = 9: expected at most 8"), ({"chosen": 4, "least": 5}, "least = 5: expected at most 4"),
    ({"damping": "inverse"}, "damping = 'inverse': expected none with fedlesscan"),
    ({"masked": True}, "masked = True: expected false"),
    ({"masked": True, "shares": 5}, "shares = 5: expected 0 with fedlesscan"),
])
def test_wrong_keys_are_refused(keys, expected):
    with pytest.raises(ConfigError, match=expected):
        replace(BASE, **keys)
