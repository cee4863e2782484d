"""Cached embeddings in virtual time: hits, staleness and bytes against an own reference, and every update at the servers."""

from collections import Counter, OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from capabilities import need

from ina.base.settings import ConfigError
from ina.cli import main
from ina.lab.kinds import embeddings
from ina.lab.kinds.embeddings import Embeddings, StaleEmbedding
from ina.lab.results import why
from ina.lab.results.record import load
from ina.lab.virtual.parameter_server.embeddings import MISSING, Cache, Table
from ina.lab.virtual.virtual_network import Diverged, WrongSum

pytestmark = pytest.mark.build
need("cc")
BASE = Embeddings(workers=3, servers=2, table=400, row_width=4, room=60, steps=12, batch=40, pull_bound=2, push_bound=1)


class Reference:
    """A cache that is told over again: for each embedding the updates that are in it, by whom."""

    def __init__(self, config: Embeddings):
        self.config = config
        self.server = [Counter() for _ in range(config.table)]  # updates by worker
        self.copies = [OrderedDict[int, Counter]() for _ in range(config.workers)]  # of others', when it was fetched
        self.kept = [Counter() for _ in range(config.workers)]  # own updates that are not sent
        self.evicted = [Counter() for _ in range(config.workers)]
        self.uses = [Counter() for _ in range(config.workers)]

    def asked(self, worker: int, keys: list[int]) -> list[int]:
        """Returns the keys that the server sends."""
        sent = []
        for key in keys:
            others = Counter({each: n for each, n in self.server[key].items() if each != worker})
            copy = self.copies[worker].get(key)
            if copy is None or (others - copy).total() > self.config.pull_bound:
                self.copies[worker][key] = others
                sent.append(key)
        return sent

    def read(self, worker: int, keys: list[int]) -> None:
        copies = self.copies[worker]
        for key in keys:
            copies.move_to_end(key)
            self.uses[worker][key] += 1
        while len(copies) > max(self.config.room, len(keys)):
            old = [key for key in copies if key not in keys]
            key = min(old, key=lambda key: self.uses[worker][key]) if self.config.policy == "lfu" else old[0]
            del copies[key], self.uses[worker][key]
            if own := self.kept[worker].pop(key, 0):
                self.evicted[worker][key] += own

    def updated(self, worker: int, keys: list[int]) -> dict[int, int]:
        """Returns the updates that the worker sends, by key."""
        sent = dict(self.evicted[worker])
        self.evicted[worker].clear()
        for key in keys:
            self.kept[worker][key] += 1
            if self.kept[worker][key] > self.config.push_bound or not self.config.room:
                sent[key] = self.kept[worker].pop(key)
        if not self.config.room:
            self.copies[worker].clear()
        return sent


@pytest.mark.parametrize("policy", ["lru", "lfu"])
@pytest.mark.parametrize(("room", "pull", "push"), [(0, 0, 0), (60, 2, 1), (60, 0, 0), (400, 5, 3), (1, 1, 1)])
def test_hits_and_what_is_sent_are_those_of_the_reference(monkeypatch, policy, room, pull, push):
    """The reference sees what happens in the order in which servers and workers do it."""
    config = replace(BASE, policy=policy, room=room, pull_bound=pull, push_bound=push)
    reference, caches, hits = Reference(config), dict[int, int](), Counter()
    ask, add, read, update = (embeddings._Training._ask, Table.add, Cache.read, Cache.update)

    def asked(training, server, worker, keys, clocks):
        caches.update({id(each.cache): each.number for each in training.workers})
        known = [key in reference.copies[worker] for key in keys.tolist()]
        words = ask(training, server, worker, keys, clocks)
        sent = reference.asked(worker, keys.tolist())
        assert [key for key in keys.tolist() if key in sent] == keys[words[1 : 1 + words[0]]].tolist()
        assert (clocks != MISSING).tolist() == known
        hits.update({"hit": len(keys) - len(sent), "missing": known.count(False), "read": len(keys)})
        return words

    def added(table, keys, updates, changes):
        add(table, keys, updates, changes)
        hits["sent"] += int(updates.sum())

    def reads(cache, keys):
        reference.read(caches[id(cache)], keys)
        return read(cache, keys)

    def updated(cache, keys, changes):
        result = update(cache, keys, changes)
        if keys:
            sent = reference.updated(caches[id(cache)], keys)
            assert dict(zip(result[0].tolist(), result[1].tolist(), strict=True)) == sent
        return result

    take = embeddings._Training._take

    def taken(training, server, worker, keys, numbers, changes):
        for key, number in zip(keys.tolist(), numbers.tolist(), strict=True):
            reference.server[key][worker] += number
        take(training, server, worker, keys, numbers, changes)

    monkeypatch.setattr(embeddings._Training, "_ask", asked)
    monkeypatch.setattr(embeddings._Training, "_take", taken)
    monkeypatch.setattr(Table, "add", added)
    monkeypatch.setattr(Cache, "read", reads)
    monkeypatch.setattr(Cache, "update", updated)
    (run,) = config.measure()
    assert run.reads == (hits["hit"], hits["read"] - hits["hit"] - hits["missing"], hits["missing"])
    assert hits["sent"] == hits["read"], "each read is an update, and all have arrived"
    assert bool(run.reads[0]) == bool(room)


def test_without_a_cache_as_many_bytes_as_the_baseline_and_with_one_fewer():
    (none,), (some,), (all_,) = (replace(BASE, **changes).measure() for changes in (
        {"room": 0}, {}, {"room": 400, "pull_bound": 1000, "push_bound": 1000}))
    assert sum(none.sent.values()) == none.plain_bytes == some.plain_bytes == all_.plain_bytes, "the same samples"
    assert sum(all_.sent.values()) < sum(some.sent.values()) < some.plain_bytes
    assert none.reads[0] == 0 == all_.reads[1] and sum(none.reads) == sum(all_.reads)
    assert none.error < 0.95


def test_a_worker_alone_reads_the_same_to_rounding_whatever_its_cache_keeps_back():
    """Its own updates are in what it reads, sent or not, evicted or not; and all are at the server at the end."""
    runs = []
    for room, push in ((0, 0), (5, 0), (5, 2), (30, 100)):
        table, cache, rng, reads = Table(np.zeros((30, 2), np.float32)), Cache(room, "lru", push), np.random.default_rng(1), []
        for _ in range(50):
            keys = np.unique(rng.integers(30, size=4))
            places = table.outdated(keys, cache.clocks(keys.tolist()), 0)
            cache.fetched(keys[places].tolist(), table.clocks[keys[places]].tolist(), table.values[keys[places]])
            reads.append(cache.read(keys.tolist()))
            change = np.float32(0.1) * (keys[:, None].astype(np.float32) - reads[-1])
            table.add(*cache.update(keys.tolist(), change))
        if len((rest := cache.rest())[0]):
            table.add(*rest)
        runs.append(np.concatenate([*reads, table.values]))
    for run in runs[1:]:
        assert run == pytest.approx(runs[0], rel=1e-5)


@pytest.mark.parametrize(("pull", "push", "room"), [(0, 0, 20), (0, 2, 7), (3, 0, 20), (2, 2, 7), (2, 2, 0)])
def test_no_copy_lacks_more_than_is_allowed_when_it_is_checked(monkeypatch, pull, push, room):
    """Updates of 1 count themselves in the values. Where packets are lost, workers that wait read what has got older
    meanwhile."""
    config = replace(BASE, workers=4, pull_bound=pull, push_bound=push, table=20, room=room, batch=16, steps=40, loss=0.05,
                     rto_min=1e-2, computing=1e-5)
    made, checked, caches = np.zeros(20, int), np.zeros((4, 20), int), dict[int, int]()
    most, lacked, servers = [0], [0], [0]
    ask, read, update = embeddings._Training._ask, Cache.read, Cache.update

    def asked(training, server, worker, keys, clocks):
        caches.update({id(each.cache): each.number for each in training.workers})
        checked[worker, keys] = made[keys]
        copies = training.workers[worker].cache.copies
        words = ask(training, server, worker, keys, clocks)
        fresh = set(words[1 : 1 + words[0]].tolist())
        for place, key in enumerate(keys.tolist()):
            if place not in fresh:  # what the server has, and the worker has not sent, of what is in the copy
                table = training.tables[server].values[key - training.edges[server]][0]
                servers[0] = max(servers[0], int(table + copies[key].unsent[0] - copies[key].values[0]))
        return words

    def reads(cache, keys):
        values = read(cache, keys)
        most[0] = max(most[0], int((made[keys] - values[:, 0]).max()))
        lacked[0] = max(lacked[0], int((checked[caches[id(cache)], keys] - values[:, 0]).max()))
        return values

    def updated(cache, keys, changes):
        made[keys] += 1
        return update(cache, keys, np.ones_like(changes))

    monkeypatch.setattr(embeddings._Training, "_ask", asked)
    monkeypatch.setattr(Cache, "read", reads)
    monkeypatch.setattr(Cache, "update", updated)
    (run,) = config.measure()
    assert (run.lacking[1], run.checked) == (most[0], lacked[0])
    assert servers[0] <= (pull if room else 0) and lacked[0] <= run.allowed
    assert run.allowed == (pull + 3 * (push + 1) if room else 3) < most[0], "answers that are late are beyond the bounds"


def test_the_judges_find_what_they_are_for(monkeypatch):
    had, were = (f"updates of others that {name} when it was checked, expected at most" for name in ("servers had", "there were"))
    with monkeypatch.context() as patch, pytest.raises(StaleEmbedding, match=f"{had} 2"):
        patch.setattr(Table, "outdated", lambda table, keys, clocks, bound: np.flatnonzero(clocks == MISSING))
        replace(BASE, table=20, steps=30).measure()
    with monkeypatch.context() as patch, pytest.raises(StaleEmbedding, match=f"{were} 6"):
        patch.setattr(Cache, "update", lambda cache, keys, changes: (np.empty(0, int), np.empty(0, int), changes[:0]))
        replace(BASE, table=20, steps=30).measure()
    with monkeypatch.context() as patch, pytest.raises(WrongSum, match=r"embedding \d+: servers have \d+ updates, workers have"):
        patch.setattr(Cache, "rest", lambda cache: (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)))
        replace(BASE, push_bound=5).measure()


def test_a_training_that_diverges_says_so():
    config = Embeddings(workers=6, servers=1, table=2, row_width=16, skew=4, room=0, policy="lfu", pull_bound=5, push_bound=1,
                        steps=30, batch=1, lr=0.9, computing=1e-6, seed=634, delay=1e-3)
    with pytest.raises(Diverged, match="the training diverged: an embedding of .* its learning rate is 0.9: give a smaller lr"):
        config.measure()


def test_the_same_seed_gives_the_same_bits():
    one, again, other = (replace(BASE, loss=0.01, seed=seed).measure()[0] for seed in (1, 1, 2))
    assert one.stats["network"]["digest"] == again.stats["network"]["digest"] != other.stats["network"]["digest"]
    assert one.error == again.error != other.error


@pytest.mark.parametrize(("changes", "message"), [
    ({"servers": 401}, "servers = 401: expected at most 400, the embeddings"), ({"lr": 1.0}, "lr"), ({"steps": 0}, "steps"),
    ({"policy": "fifo"}, "policy = 'fifo': expected 'lru' or 'lfu'"), ({"protocol": "ps"}, "protocol = 'ps'"),
    ({"topology": "leaf-spine"}, "topology"), ({"jobs": 2}, "jobs"), ({"stripes": 2}, "stripes"), ({"payload": False}, "payload"),
    ({"check": "keyed"}, "check")])
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(BASE, **changes)


def test_the_experiment_runs_from_the_command_line(tmp_path, capsys):
    file = tmp_path / "own.toml"
    file.write_text('kind = "embeddings"\nworkers = 2\nservers = 1\ntable = 50\nsteps = 5\nbatch = 10\nrow_width = 4\n')
    assert main(["experiment", "run", str(file), "--results", str(tmp_path)]) == 0
    assert "reads of copies that are new enough" in " ".join(capsys.readouterr().out.split())
    folder = next(tmp_path.rglob("metrics.json")).parent
    (finding,) = why.explain(load(folder))
    assert "reads are in its cache" in finding.shown and (folder / "report.html").exists()
