"""The key-value parameter server in virtual time: exact sums whatever servers die, leave and join; bounds, bytes and replays."""

import itertools
import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from capabilities import need

from ina.base.settings import ConfigError
from ina.cli import main
from ina.lab.kinds import parameters
from ina.lab.kinds.parameters import Parameters
from ina.lab.results import why
from ina.lab.results.record import load
from ina.lab.virtual import virtual_network
from ina.lab.virtual.parameter_server import ring
from ina.lab.virtual.parameter_server.cluster import Cluster, Shape
from ina.lab.virtual.parameter_server.mail import Mail, Stuck
from ina.lab.virtual.parameter_server.manager import LostRange, Manager, read_changes
from ina.lab.virtual.parameter_server.messages import COPY, STATE, state_bytes
from ina.lab.virtual.parameter_server.server import Rules, Server
from ina.lab.virtual.parameter_server.worker import Plan, StaleRead, Worker
from ina.lab.virtual.timeline import Timeline
from ina.lab.virtual.virtual_network import Diverged, WrongSum
from ina.net.ports import PS
from ina.worlds.virtual.network import EndOfTime

pytestmark = pytest.mark.build
need("cc")
BASE = Parameters(rate=1e9, workers=4, servers=4)
COMPUTING, DETECT = 1e-4, 3e-4  # s


@dataclass
class Trial:
    """A training whose pushes are whole numbers that hash which worker and iteration they are of, so that float32 sums are exact,
    and one that is lost, or counted twice, shows."""

    seed: int = 1
    workers: int = 4
    keys: int = 200
    steps: int = 5
    together: bool = True
    bound: int | None = 0
    shape: Shape = Shape(4, 1, 2)
    changes: str = ""
    blocks: int = 1
    filter: str = "none"
    threshold: float = 0.0
    loss: float = 0.0
    shrink: float = 0.0
    caching: bool = False
    divisor: float = 1.0
    lasted: float = field(default=0.0, init=False)  # s, of the latest run

    def pushed(self, worker: int, iteration: int) -> np.ndarray:
        return np.random.default_rng((self.seed, worker, iteration)).integers(1, 97, self.keys).astype(np.float32)

    @property
    def order(self) -> list[int]:
        return np.random.default_rng(self.seed).integers(self.blocks, size=self.steps).tolist()

    def right(self, cluster: Cluster | None = None) -> np.ndarray:
        """Returns the values with all pushes; of workers that have died in a ``cluster``, with those that its clocks say, from
        the first on without a gap, and no less than what they have had acknowledged."""
        values = np.zeros(self.keys, np.float32)
        there = np.full((self.workers, self.keys), self.steps)
        for worker in cluster.workers if cluster else []:
            if worker.died is not None:
                for part in cluster.layout.segments:
                    for begin, end, time in cluster.servers[part.chain[0]].clock.ranges(worker.number, part.begin, part.end):
                        there[worker.number, begin:end] = time
                assert np.all(worker.acknowledged <= there[worker.number]) and np.all(there[worker.number] <= worker.sent)
        for iteration, block in enumerate(self.order):
            begin, end = (self.keys * edge // self.blocks for edge in (block, block + 1))
            for worker in range(self.workers):
                values[begin:end] -= (self.pushed(worker, iteration) * (iteration < there[worker]))[begin:end]
        return values

    def run(self) -> tuple[Cluster, Mail, int]:
        """Returns the servers and workers at the end, what they have sent, and a digest of all that happened in the network."""
        config = replace(BASE, workers=self.workers, loss=self.loss, seed=self.seed).resolved()
        place = virtual_network.place(config, more=self.shape.servers + 2)
        names = [host.name for host in place.topology.hosts]
        edges = [self.keys * block // self.blocks for block in range(self.blocks + 1)]
        times = np.random.default_rng((self.seed, 9))
        with virtual_network.fabric(config, place) as network:
            mail = Mail(config, network)
            cluster = Cluster(
                mail, names[: self.workers], names[self.workers :], np.zeros(self.keys, np.float32), self.shape,
                Plan(list(zip(edges, edges[1:], strict=False)), self.order, self.bound, self.filter, self.threshold, self.shrink,
                     self.caching), Rules(self.workers, self.keys, self.together, self.divisor, self.shrink),
                lambda worker, iteration, _: self.pushed(worker, iteration),
                lambda worker: COMPUTING * times.exponential(),
                read_changes(self.changes, self.shape.servers, self.workers), DETECT, self.seed)
            cluster.run(Timeline())
            self.lasted = mail.now / PS
            digest = network.stats()["digest"]
            while not network.run():
                network.completions()
            network.check()
        return cluster, mail, digest


class Alike(Trial):
    """One in which all pushes are alike: each key's value is the key."""

    def pushed(self, worker: int, iteration: int) -> np.ndarray:
        return np.arange(self.keys, dtype=np.float32)


def drawn(seed: int) -> Trial:
    """Draws a training, and servers that die, leave and join at any time; as many die as there are copies, at most."""
    chance = random.Random(seed)
    servers, replicas, time = chance.choice((3, 4, 5)), chance.choice((1, 2)), 0.0
    there, changes, deaths = set(range(servers)), list[str](), 0
    for _ in range(chance.choice((1, 1, 2, 3))):
        time += chance.uniform(0, 1.2e-3)
        gone = [server for server in range(servers + 2) if server not in there]
        possible = ["join"] * bool(gone) + ["leave"] * (len(there) > replicas + 1) + ["die"] * (deaths < replicas)
        if not possible:
            continue
        event = chance.choice(possible)
        server = chance.choice(gone if event == "join" else sorted(there))
        there ^= {server}
        deaths += event == "die"
        changes.append(f"{time:.7f} {event} {server}")
    return Trial(seed, chance.choice((2, 3, 5)), chance.choice((40, 600)), together=chance.random() < 0.5,
                 bound=chance.choice((0, 1, 3, None)), shape=Shape(servers, replicas, 3), changes=", ".join(changes),
                 blocks=chance.choice((1, 3)), loss=chance.choice((0, 0, 0.01)))


def check(trial: Trial) -> Cluster:
    cluster, _, _ = trial.run()
    dead = {worker.number for worker in cluster.workers if worker.died is not None}
    assert cluster.values().tolist() == trial.right(cluster if dead else None).tolist(), trial
    assert all(worker.iteration == trial.steps for worker in cluster.workers if worker.number not in dead)
    assert trial.bound is None or max(max(worker.staleness) for worker in cluster.workers) <= trial.bound
    return cluster


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 63, 210])  # 63: a server dies when ranges are frozen; 210: copies for a dead one
def test_no_push_is_lost_or_counted_twice_when_servers_die_leave_and_join(seed):
    check(drawn(seed))


@pytest.mark.later
@pytest.mark.parametrize("seed", range(5, 106))
def test_the_same_for_a_hundred_seeds(seed):
    check(drawn(seed))


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 100), marks=pytest.mark.later)], ids=str)
def test_a_server_that_is_killed_at_any_moment_of_a_hundred_trainings_costs_no_push(seeds):
    """One death in each, at a moment that is drawn from the time that the training takes without it."""
    for seed in seeds:
        trial, chance = replace(drawn(seed), changes=""), random.Random(1000 + seed)
        trial.run()
        server, moment = chance.randrange(trial.shape.servers), trial.lasted * chance.random()
        cluster = check(replace(trial, changes=f"{moment:.9f} die {server}"))
        assert server not in cluster.servers and cluster.manager.switches == 1, trial


FILTERED = [{"filter": "significant", "threshold": 60.0}, {"filter": "random", "threshold": 0.5},
            {"filter": "skip", "threshold": 0.5}, {"filter": "kkt", "threshold": 10.0, "shrink": 40.0, "together": True}]


def filtered(seed: int) -> Trial:
    """Draws one with a filter and bounded consistency, and without changes."""
    chance = random.Random(2000 + seed)
    return replace(drawn(seed), changes="", bound=chance.choice((1, 2, 3)), steps=8, caching=chance.random() < 0.5,
                   **FILTERED[seed % len(FILTERED)])


def let_through(monkeypatch) -> list[tuple[int, int, np.ndarray]]:
    """Returns a list of all pushes yet to be made, as filters let them through: worker, iteration, values of all keys."""
    pushes, whole = list[tuple[int, int, np.ndarray]](), Worker._filtered

    def record(worker, push):
        sent = whole(worker, push)
        values = np.zeros_like(worker.values)
        values[sent.keys] = sent.values
        pushes.append((worker.number, sent.iteration, values))
        return sent

    monkeypatch.setattr(Worker, "_filtered", record)
    return pushes


def check_filtered(trial: Trial, pushes: list[tuple[int, int, np.ndarray]]) -> Cluster:
    """Runs it and compares the values with all pushes, each once: in the order of the iterations, since a step towards 0 follows
    each. What a filter holds back is in no push, and nothing else lacks."""
    pushes.clear()
    cluster, _, _ = trial.run()
    assert sorted(each[:2] for each in pushes) == [*itertools.product(range(trial.workers), range(trial.steps))]
    values = np.zeros(trial.keys, np.float32)
    for iteration, block in enumerate(trial.order):
        keys = slice(*(trial.keys * edge // trial.blocks for edge in (block, block + 1)))
        values[keys] -= sum(sent for _, step, sent in pushes if step == iteration)[keys]
        values[keys] = np.sign(values[keys]) * np.maximum(np.abs(values[keys]) - np.float32(trial.shrink), 0)
    assert cluster.values().tolist() == values.tolist(), trial
    if trial.filter in ("significant", "random"):
        rests = sum(worker._rest for worker in cluster.workers)
        assert (cluster.values() - rests).tolist() == trial.right().tolist() and np.any(rests), trial
    assert max(max(worker.staleness) for worker in cluster.workers) <= trial.bound
    return cluster


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 100), marks=pytest.mark.later)], ids=str)
def test_a_server_that_is_killed_at_any_moment_costs_no_push_that_a_filter_has_let_through(monkeypatch, seeds):
    pushes = let_through(monkeypatch)
    for seed in seeds:
        trial, chance = filtered(seed), random.Random(3000 + seed)
        check_filtered(trial, pushes)
        server, moment = chance.randrange(trial.shape.servers), trial.lasted * chance.random()
        cluster = check_filtered(replace(trial, changes=f"{moment:.9f} die {server}"), pushes)
        assert server not in cluster.servers and cluster.manager.switches == 1, trial


@pytest.mark.parametrize("changes", ["0.0002 die 0, 0.00021 join 0", "0.0001 join 4, 0.00011 die 4, 0.0009 leave 1",
                                     "0.0002 leave 2, 0.0002001 join 2", "0 die 3", "0.0001 join 4, 0.00012 die 1"])
@pytest.mark.parametrize("together", [True, False])
def test_servers_come_back_before_they_are_missed_and_die_during_a_change(changes, together):
    cluster = check(Trial(changes=changes, together=together, bound=1))
    assert cluster.manager.switches >= 1


@pytest.mark.parametrize("trial", [
    Trial(seed=2, workers=2, keys=300, steps=8, together=False, bound=None, shape=Shape(4, 1, 1),
          changes="0.0003 die 1, 0.0003 join 1, 0.0003 join 4"),
    Trial(seed=2, workers=2, keys=300, steps=8, bound=1, shape=Shape(4, 1, 1), changes="0.0003 die 1, 0.0003 join 1")])
def test_a_server_that_comes_back_serves_nothing_before_it_has_its_ranges_again(trial):
    check(trial)


def test_a_range_that_is_not_frozen_is_not_copied_over_newer_values():
    """It goes down its chain meanwhile, and packets are lost: a copy of the range for the new servers would come late."""
    check(Trial(seed=898, workers=3, keys=300, steps=3, together=False, bound=3, shape=Shape(5, 2, 2), changes="0.000061 join 5",
                loss=0.1))


def crowded(seed: int) -> Trial:
    """Draws one whose servers die and come back at the same moment, and whose packets are lost more often."""
    chance = random.Random(seed)
    servers, replicas, time = chance.choice(((2, 1), (3, 1), (4, 1), (4, 2), (5, 2))) + (0.0,)
    there, changes, deaths = set(range(servers)), list[str](), 0
    for _ in range(chance.choice((1, 2, 3, 4))):
        time += chance.choice((0.0, chance.uniform(0, 1e-4), chance.uniform(0, 8e-4)))
        gone = [server for server in range(servers + 2) if server not in there]
        possible = ["join"] * len(gone) + ["leave"] * (len(there) > replicas + 1) + ["die"] * (2 * (deaths < replicas))
        event = chance.choice(possible or ["join"])
        server = chance.choice(gone if event == "join" else sorted(there))
        there ^= {server}
        deaths += event == "die"
        changes.append(f"{time:.7f} {event} {server}")
    return Trial(seed, chance.choice((2, 3)), chance.choice((40, 300)), chance.choice((3, 6)), chance.random() < 0.5,
                 chance.choice((0, 1, 3, None)), Shape(servers, replicas, chance.choice((1, 2, 3))), ", ".join(changes),
                 chance.choice((1, 3)), loss=chance.choice((0, 0.01, 0.1)))


@pytest.mark.later
def test_no_push_is_lost_or_counted_twice_when_changes_crowd():
    for seed in range(200):
        check(crowded(seed))


DEATHS = "0.00035 die worker 1"


@pytest.mark.parametrize(("bound", "together"), [(0, True), (1, True), (3, True), (1, False), (None, True), (None, False)])
@pytest.mark.parametrize("changes", [DEATHS, "0.0001 die worker 0, 0.0001 die worker 2, 0.00013 die 1",
                                     "0.0002 die worker 0, 0.0002 join 4, 0.00025 die worker 3, 0.0006 leave 2"])
def test_workers_that_die_leave_their_pushes_whole_or_not_at_all(bound, together, changes):
    """The others go on, and do all iterations. Where servers do not change, each server has of every push all of its range."""
    trial = Trial(steps=8, bound=bound, together=together, changes=changes, shape=Shape(4, 1, 1))
    cluster = check(trial)
    dead = [worker for worker in cluster.workers if worker.died is not None]
    assert len(dead) == changes.count("worker") and all(worker.iteration < trial.steps for worker in dead)
    if changes == DEATHS:
        assert all(len(list(cluster.servers[part.chain[0]].clock.ranges(1, part.begin, part.end))) == 1
                   for part in cluster.layout.segments)
        assert bound is not None or max(cluster.workers[0].staleness) > 1


def test_a_push_that_is_half_sent_is_not_applied_and_one_that_has_come_is():
    """A message of 20,000 values is on its way for 640 us and more."""
    times = set()
    for moment in (5e-4, 1.5e-3):
        cluster = check(Trial(workers=2, keys=20_000, steps=2, shape=Shape(1, 0, 1), changes=f"{moment} die worker 1"))
        (time,) = {time for *_, time in cluster.servers[0].clock.ranges(1, 0, 20_000)}
        times.add((time, int(cluster.workers[1].sent[0])))
    assert times == {(0, 1), (1, 1)}, "sent and lost, sent and applied"


@pytest.mark.later
def test_no_push_is_lost_or_counted_twice_when_workers_die_too():
    for seed in range(200):
        trial, chance = crowded(seed), random.Random(seed)
        dead = chance.sample(range(trial.workers), chance.randint(1, trial.workers - 1))
        deaths = [f"{chance.uniform(0, 1e-3):.7f} die worker {worker}" for worker in dead]
        check(replace(trial, changes=", ".join(filter(None, (trial.changes, *deaths)))))


def test_a_range_without_a_living_copy_is_said_to_be_lost():
    with pytest.raises(LostRange, match=r"keys \d+ to \d+: all servers with copies have died; expected at most replicas = 1"):
        Trial(shape=Shape(3, 1, 2), changes="0.0001 die 0, 0.00012 die 1, 0.00014 join 3, 0.00014 die 2").run()


def test_a_score_is_measured_with_what_living_servers_have():
    """A server that comes back, and has not got its ranges again, has the first values of them; of a range that nobody has there
    is no score."""
    (trained,) = Parameters(workers=4, servers=4, replicas=1, steps=60, evaluate=1, detect=0.05, rate=1e6,
                          changes="0.6 die 1, 0.602 join 1").measure()
    during = [score for seconds, score in trained.scores if 0.602 < seconds < 0.64]
    assert during == [pytest.approx(0.22)], "with the first values of 119 keys it was 0.202"
    with pytest.raises(LostRange, match=r"keys 6 to 23: all servers that had them have died; give more replicas"):
        Parameters(workers=2, servers=3, replicas=0, aggregate="each", consistency="eventual", steps=30, width=2, batch=4,
                   evaluate=1, detect=0.05, changes="0.05 die 1").measure()


def test_the_judges_find_what_they_are_for(monkeypatch):
    """A clock that does not travel with a copy, a push that is applied again, and a worker that does not wait."""
    with monkeypatch.context() as patch, pytest.raises(WrongSum, match=r"server \d: keys \d+ to \d+ lack a push"):
        patch.setattr(Server, "take", lambda server, head, pieces, values: server.values[head.begin : head.end].__setitem__(
            slice(None), values))
        Trial().run()
    trial, lacks = Trial(together=False, bound=None, changes="0.0001 join 4"), Manager._freeze
    with monkeypatch.context() as patch:  # copies do not wait for what has changed meanwhile
        patch.setattr(Manager, "_freeze", lambda manager, new: manager._switch(new, [(0, 200)]))
        with pytest.raises((AssertionError, WrongSum)):
            check(trial)
    assert Manager._freeze is lacks
    with monkeypatch.context() as patch, pytest.raises(StaleRead, match="without a push of 2 iterations ago, expected at most 1"):
        patch.setattr(Worker, "finished", 10**6)
        Trial(bound=1, steps=8).run()
    with monkeypatch.context() as patch, pytest.raises(Stuck, match="hosts still wait"):
        patch.setattr(Server, "_answer", lambda server, head: None)
        Trial().run()


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("bound", [0, 1, 2, 5])
def test_no_values_are_staler_than_the_bound_and_some_are_as_stale(bound, blocks):
    cluster = check(Trial(bound=bound, blocks=blocks, steps=20))
    assert max(max(worker.staleness) for worker in cluster.workers) == bound or blocks > 1


@pytest.mark.parametrize("replicas", [0, 1, 3])
@pytest.mark.parametrize("points", [1, 3])
def test_copies_after_aggregation_take_as_many_bytes_as_one_workers_pushes_would_each_by_itself(replicas, points):
    """Section 4.4: k copies of each sum, so k/n of k copies of each of n pushes."""
    trial = Trial(shape=Shape(4, replicas, points), bound=1)
    sent = [replace(trial, together=together).run()[1].bytes[COPY] for together in (True, False)]
    parts = ring.segments(trial.keys, range(4), replicas, points)
    one = sum(replicas * state_bytes(part.end - part.begin, trial.workers) for part in parts)
    assert sent[0] == trial.steps * one
    assert sent[0] <= sent[1] <= trial.workers * sent[0] * 1.2, "clocks of pushes that come one by one have as many pieces"
    assert sent[1] == trial.workers * sent[0]


def test_a_filter_keeps_back_what_it_does_not_send():
    trial = Trial(filter="significant", threshold=60.0, bound=1)
    cluster, mail, _ = trial.run()
    rests = sum(worker._rest for worker in cluster.workers)
    assert (cluster.values() - rests).tolist() == trial.right().tolist() and np.any(rests)
    assert all(np.all(np.abs(worker._rest) <= 60) for worker in cluster.workers)
    entries = sum(worker.entries for worker in cluster.workers)
    assert mail.bytes["push"] == 32 * mail.messages["push"] + 8 * entries
    assert 0 < entries < sum(worker.possible for worker in cluster.workers) == trial.workers * trial.steps * trial.keys


def pushes(monkeypatch) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """Returns a list of all pushes with keys that are yet to be sent: worker, range, keys."""
    sent, words = list[tuple[int, int, int, tuple[int, ...]]](), Worker._words

    def record(worker, number, part):
        if part.keys is not None:
            sent.append((worker.number, part.begin, part.end, tuple(part.keys.tolist())))
        return words(worker, number, part)

    monkeypatch.setattr(Worker, "_words", record)
    return sent


@pytest.mark.parametrize("changes", ["", "0.0003 die 1, 0.0003 join 1, 0.0006 join 4", "0.0002 join 5, 0.0004 die worker 1"])
@pytest.mark.parametrize("threshold", [0.0, 40.0])
def test_keys_that_are_those_of_the_push_before_are_not_sent_again(monkeypatch, threshold, changes):
    """32 bytes and 8 an entry; or, with a signature, 36 and 4. Servers that change forget the lists of ranges that change."""
    trial = Trial(filter="significant", threshold=threshold, steps=8, bound=1, changes=changes, loss=0.01)
    sent = pushes(monkeypatch)
    plain, again = trial.run(), list(sent)
    sent.clear()
    cluster, mail, _ = replace(trial, caching=True).run()
    before, least = dict[tuple[int, int, int], tuple[int, ...]](), 0
    for worker, begin, end, keys in sent:
        same = len(keys) > 1 and before.get((worker, begin, end)) == keys
        least += 36 + 4 * len(keys) if same else 32 + 8 * len(keys)
        before[worker, begin, end] = keys
    if not changes:
        assert sorted(sent) == sorted(again) and plain[0].values().tolist() == cluster.values().tolist()
        assert mail.bytes["push"] == least <= plain[1].bytes["push"] * (1 if threshold else 0.65)
    else:
        assert mail.bytes["push"] >= least
    if not threshold:
        assert cluster.values().tolist() == trial.right(cluster).tolist(), "all entries are more than 0, so that all are sent"


def test_a_list_of_keys_that_the_server_does_not_have_is_an_error(monkeypatch):
    monkeypatch.setattr(Server, "_push", lambda server, *rest, push=Server._push: server._lists.clear() or push(server, *rest))
    with pytest.raises(WrongSum, match=r"push \d+ of worker \d: the server does not have its list of keys"):
        Trial(filter="significant", caching=True).run()


def test_the_random_skip_filter_drops_entries_and_is_right_on_average():
    """A mean of 800 pushes of each key's value, of which half are sent: within five times the standard error, 1/sqrt(800)."""
    cluster, mail, _ = Alike(workers=4, keys=50, steps=200, filter="skip", threshold=0.5, shape=Shape(2, 0, 1)).run()
    assert np.all(cluster.values()[1:] % (2 * np.arange(1, 50)) == 0), "1 / (1 - 0.5) times each"
    assert np.all(np.abs(cluster.values()[1:] / -np.arange(1, 50) / 800 - 1) < 5 / np.sqrt(800))
    assert not any(np.any(worker._rest) for worker in cluster.workers)
    entries = sum(worker.entries for worker in cluster.workers)
    assert mail.bytes["push"] == 32 * mail.messages["push"] + 8 * entries and 0.48 < entries / 40_000 < 0.52


@pytest.mark.parametrize("together", [True, False])
def test_the_kkt_filter_leaves_out_what_would_leave_zeros_zero(together):
    """All pushes of a key are alike, between 0 and 96: 0 remains 0 exactly where they are within the shrinking step."""
    trial = Alike(workers=3, keys=97, steps=6, bound=1, together=together, shape=Shape(3, 1, 1), shrink=40.0, divisor=3.0)
    every, mail, _ = trial.run()
    assert not np.any(every.values()[:41]) and np.all(every.values()[41:] < 0)
    for delta, sent in ((0.0, 56), (10.0, 66), (40.0, 96)):  # of each push: those of more than 40 - delta
        some, mail, _ = replace(trial, filter="kkt", threshold=delta).run()
        assert some.values().tolist() == every.values().tolist()
        assert mail.bytes["push"] == 32 * mail.messages["push"] + 8 * 3 * 6 * sent


def test_the_same_seed_gives_the_same_bits_under_loss_and_failures():
    trial = Trial(loss=0.02, changes="0.0003 die 1, 0.0008 join 4", bound=None, together=False)
    (one, _, first), (two, _, again), (_, _, other) = trial.run(), trial.run(), replace(trial, seed=2).run()
    assert first == again != other and one.values().tobytes() == two.values().tobytes()


def synchronous(config: Parameters) -> np.ndarray:
    """Returns the values after all iterations, each by a loop over the workers: an own reference."""
    task = config.task
    values = task.initial()
    data = [np.random.default_rng((config.seed, 3, worker)) for worker in range(config.workers)]
    for _ in range(config.steps):
        updates = [task.update(values, worker, data[worker], config.batch, config.lr, 1) for worker in range(config.workers)]
        total = updates[0]
        for update in updates[1:]:
            total = total + update
        values = values - total / np.float32(config.workers)
    return values


@pytest.mark.parametrize("changes", ["", "0.02 die 1, 0.05 join 4"])
def test_sequential_consistency_is_the_synchronous_sum_to_the_bit(monkeypatch, changes):
    config = replace(BASE, steps=8, changes=changes, loss=0.001)
    last, make = list[np.ndarray](), Cluster.values
    monkeypatch.setattr(Cluster, "values", lambda cluster: last.append(make(cluster)) or last[-1])
    (run,) = config.measure()
    assert last[-1].tobytes() == synchronous(config).tobytes()
    assert set(run.staleness) == {0} and len(run.staleness) == 32 and run.switches == (2 if changes else 0)


def test_a_training_beside_the_switch_and_what_it_says():
    """With times that do not vary, an iteration is the compute time and a few messages."""
    (run,) = replace(BASE, steps=5, distribution="constant").measure()
    assert 5 * BASE.computing < run.switch_seconds < run.seconds < 5 * (BASE.computing + 2e-3)
    summary = run.summary()
    assert summary["entries"] == 1 and summary["clocks"] == 4 * len(ring.segments(BASE.task.parameters, range(4), 1, 1))
    assert run.sent[STATE] == run.sent[COPY] * 4 and summary["switches"] == 0
    (eventual,) = replace(BASE, steps=30, consistency="eventual", aggregate="each").measure()
    assert eventual.switch_seconds is None and max(eventual.staleness) > 3
    assert eventual.summary()["waiting"] < 0.3


@pytest.mark.parametrize("consistency", ["sequential", "bounded", "eventual"])
def test_a_training_goes_on_without_workers_that_die(consistency):
    config = replace(BASE, steps=12, evaluate=3, consistency=consistency, changes="0.03 die worker 0, 0.05 die worker 2")
    (run,) = config.measure()
    assert run.switch_seconds is None and run.lived == pytest.approx(0.08 + 2 * run.seconds)
    assert 0 < run.summary()["waiting"] < 1 and len(run.scores) >= 4, "the next worker's iterations measure the score"
    assert run.seconds > 0.05


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_sums_in_the_switch_begin_when_a_worker_has_computed_whatever_is_lost(loss):
    """A sum ends after the last worker's part; a worker that gets it late, after a retransmission, begins late, and no other."""
    config = replace(BASE, steps=25, loss=loss, computing=1e-3, straggler=2.0)
    times = [np.random.default_rng((config.seed, 4, worker)).exponential(size=config.steps) for worker in range(config.workers)]
    least = 1e-3 * sum(max(2 * one, *others) for one, *others in zip(*times, strict=True))
    seconds = parameters._in_switch(config.resolved(), virtual_network.place(config.resolved()))
    assert least < seconds < least + config.steps * (1e-4 if not loss else 2e-2)
    assert config.measure()[0].switch_seconds == seconds, "the same, whatever else is in the network's topology"


@pytest.mark.parametrize(("changes", "message"), [
    ({"replicas": 4}, "replicas = 4: expected less than 4, the servers"),
    ({"aggregate": "each"}, "aggregate = 'each': expected all with consistency = 'sequential'"),
    ({"blocks": 4000}, "blocks = 4000: expected at most 506, the keys"),
    ({"threshold": 0.5}, "threshold = 0.5: expected 0 without"),
    ({"filter": "skip", "threshold": 1.0}, "threshold = 1.0: expected less than 1 with filter = 'skip'"),
    ({"filter": "kkt"}, "l1 = 0.0: expected more than 0 with filter = 'kkt'"), ({"key_cache": True}, "key_cache"),
    ({"filter": "kkt", "l1": 0.1, "lr": 0.5, "threshold": 0.06}, "threshold = 0.06: expected at most 0.05, lr times l1"),
    ({"filter": "random", "threshold": 1.0}, "threshold = 1.0: expected less than 1"), ({"payload": False}, "payload"),
    ({"protocol": "ps"}, "protocol = 'ps'"), ({"topology": "leaf-spine"}, "topology"), ({"jobs": 2}, "jobs"),
    ({"computing": 0.0}, "computing"), ({"steps": 0}, "steps"), ({"stripes": 2}, "stripes"), ({"check": "keyed"}, "check"),
    ({"changes": "1 die"}, r"changes = '1 die': '1 die': expected a time in s, die, leave or join"),
    ({"changes": "1 fall 2"}, "expected a time in s"), ({"changes": "-1 die 2"}, "expected a time in s"),
    ({"changes": "1 leave worker 2"}, "expected a time in s"), ({"changes": "1 die worker"}, "expected a time in s"),
    ({"changes": "1 die worker 4"}, "at 1 s worker 4 is not there; expected one of the 4 workers"),
    ({"changes": "1 die worker 1, 2 die worker 1"}, "at 2 s worker 1 is not there"),
    ({"workers": 2, "changes": "1 die worker 1, 2 die worker 0"}, "at 2 s no worker is left; let one live"),
    ({"changes": "1 die 7"}, "at 1 s server 7 is not there"), ({"changes": "1 join 2"}, "at 1 s server 2 is there already"),
    ({"servers": 1, "replicas": 0, "changes": "1 leave 0"}, "at 1 s no server is left; let another join before")])
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(BASE, **changes)


def test_a_training_that_takes_longer_than_time_lasts_says_so():
    with pytest.raises(EndOfTime, match=r"virtual time .* s: expected at most 9.223e\+06 s"):
        replace(BASE, steps=40, computing=1e6, consistency="eventual", aggregate="each").measure()


def test_a_lost_range_is_an_error_of_the_command(tmp_path, capsys):
    small = ["steps=10", "workers=2", "servers=3", "changes=0.02 die 1, 0.021 die 2"]
    file = tmp_path / "own.toml"
    file.write_text('kind = "parameters"\nwidth = 4\n')
    assert main(["experiment", "run", str(file), "--results", str(tmp_path),
                 *(word for each in small for word in ("--set", each))]) == 1
    assert "all servers with copies have died; expected at most replicas = 1 deaths" in " ".join(capsys.readouterr().err.split())


def test_the_experiment_runs_from_the_command_line(tmp_path, capsys):
    small = ["steps=10", "workers=2", "servers=2", "consistency=bounded", "seed=3", "changes=0.05 die 1"]
    file = tmp_path / "own.toml"
    file.write_text('kind = "parameters"\nwidth = 4\n')
    assert main(["experiment", "run", str(file), "--results", str(tmp_path),
                 *(word for each in small for word in ("--set", each))]) == 0
    assert "part of the time in which a worker waits" in " ".join(capsys.readouterr().out.split())
    folder = next(tmp_path.rglob("metrics.json")).parent
    (finding,) = why.explain(load(folder))
    assert finding.job == "bounded by 3" and "iterations old on average" in finding.shown
    assert (folder / "report.html").exists() and parameters.KIND is Parameters


@pytest.mark.parametrize("keys", [{"lr": 1e6}, {"lr": 1e6, "filter": "significant", "threshold": 0.1}, {"lr": 100.0}])
def test_a_training_that_diverges_says_so(keys):
    """NaN would travel as any other value, and a filter would hold it back for ever."""
    message = f"the training diverged: the update of worker .* in iteration .* its learning rate is {keys['lr']:g}: give"
    with pytest.raises(Diverged, match=message.replace("+", r"\+")):
        replace(BASE, steps=20, width=4, **keys).measure()
