"""Updates that are merged where they wait: what leaves the switch's queue, and when, against a model of the rule."""

import numpy as np
import pytest
from capabilities import need

from ina import topology as topologies
from ina.base import paths
from ina.net.ports import PS
from ina.p4.compiler.build import compile_program
from ina.worlds.virtual.fabric import Fabric
from ina.worlds.virtual.updates import HEAD, OVERHEAD, Updates

pytestmark = pytest.mark.build
need("cc")

HOSTS = 6
WORDS = HEAD + HOSTS + 3
FAST, SLOW, DELAY = 100e9, 1e8, 1e-6
ROOM = 5  # frames that the queue has room for
BYTES = 4 * WORDS + OVERHEAD
SLOT = round(8 * BYTES / SLOW * PS)  # ps that one takes on the slow wire
ARRIVAL = round(8 * BYTES / FAST * PS) + round(DELAY * PS)  # ps from a host to the switch


@pytest.fixture(scope="module")
def program():
    return compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "64"}).so_path


def traffic(seed, load, groups):
    """Updates as (ps at the host, sender, words), of senders in so many groups, 0 among them if there are more than three."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.integers(1, round(2 * SLOT / load), 400)) + 10 * SLOT
    made = [0] * HOSTS
    for at in times:
        sender = int(rng.integers(HOSTS))
        made[sender] += 1
        words = rng.integers(-(2**31), 2**31, WORDS).astype(np.int32)
        words[:HEAD + HOSTS] = 0
        words[0], words[1], words[HEAD + sender] = (sender % groups + (groups <= 3)), 1 << sender, made[sender]
        yield int(at), sender, words


class Model:
    """The rule of updates.h, and a wire that sends one after the other: (ps of arrival, words) of what leaves."""

    def __init__(self, merging):
        self.merging, self.waiting, self.left, self.free = merging, [], [], 0
        self.added = self.replaced = self.dropped = 0

    def advance(self, now):
        while self.waiting and self.free <= now:
            self.free = max(self.free, self.waiting[0][0]) + SLOT
            self.left.append((self.free, self.waiting.pop(0)[1]))

    def take(self, now, words):
        self.advance(now)
        latest = next((held for _, held in reversed(self.waiting) if held[0] == words[0]), None) if words[0] else None
        if not self.waiting and self.free <= now:
            self.waiting.append((now, words.copy()))
            self.advance(now)
        elif self.merging and latest is not None and latest[1] == words[1]:
            latest[:] = words
            self.replaced += 1
        elif self.merging and latest is not None and not latest[1] & words[1]:
            latest[1:] += words[1:]  # as numbers: senders are disjoint
            self.added += 1
        elif len(self.waiting) == ROOM:
            self.dropped += 1
        else:
            self.waiting.append((now, words.copy()))


def measured(program, merging, sent):
    topology = topologies.load("star", hosts=HOSTS + 1, rate=FAST, delay=DELAY, queue=ROOM * BYTES)
    *senders, server = [host.name for host in topology.hosts]
    came = []
    with Fabric(program, topology) as fabric:
        updates = Updates(fabric, [*senders, server], WORDS)
        fabric.set_rate(updates.port_before(server), SLOW)
        queue = updates.merge_before(server) if merging else None
        fabric.stop_at_completions()
        expected = dict(updates.expect(server) for _ in range(8))
        for at, sender, words in sent:
            updates.send(senders[sender], server, words, at)
        idle = False
        while not idle:
            idle = fabric.run()
            for completion in fabric.completions():
                completion.raise_failed()
                if (words := expected.pop(completion.ticket, None)) is not None:
                    came.append((completion.time, words))
                    ticket, more = updates.expect(server)
                    expected[ticket] = more
        fabric.check()
        dropped = fabric.wire_stats(updates.port_before(server))["link_tail_drops"]
        return came, (queue.added, queue.replaced, dropped) if queue else (0, 0, dropped)


@pytest.mark.parametrize("merging", [False, True])
@pytest.mark.parametrize(("load", "groups"), [(0.4, 2), (1.5, 2), (4.0, 1), (4.0, 3), (3.0, 6)])
def test_what_leaves_the_queue_is_what_the_rule_says_to_the_bit_and_to_the_picosecond(program, merging, load, groups):
    sent = list(traffic(1, load, groups))
    model = Model(merging)
    for at, _, words in sent:
        model.take(at + ARRIVAL, words)
    model.advance(2**62)
    came, counts = measured(program, merging, sent)
    assert counts == (model.added, model.replaced, model.dropped)
    assert len(came) == len(model.left) == len(sent) - sum(counts)
    for (time, words), (left, right) in zip(came, model.left, strict=True):
        assert time == left + round(DELAY * PS) and np.array_equal(words, right)
    if load > 1:
        assert model.dropped > 0 or merging and model.added > 0
    if merging and load > 1 and groups == 2:
        assert model.replaced > 0


def test_a_queue_whose_frames_have_no_values_does_not_merge(program):
    topology = topologies.load("star", hosts=2, rate=FAST, delay=DELAY)
    with Fabric(program, topology, payload=False) as fabric:
        updates = Updates(fabric, ["h1", "h2"], WORDS)
        with pytest.raises(OSError, match="^.*queue before h2: Invalid argument$"):
            updates.merge_before("h2")


def test_an_update_that_nobody_expects_is_counted_and_gone(program):
    topology = topologies.load("star", hosts=2, rate=FAST, delay=DELAY)
    with Fabric(program, topology) as fabric:
        updates = Updates(fabric, ["h1", "h2"], WORDS)
        first, words = updates.expect("h2")
        for number in (1, 2):
            updates.send("h1", "h2", np.full(WORDS, number, np.int32))
        while not fabric.run():
            pass
        assert [completion.ticket for completion in fabric.completions()].count(first) == 1
        assert words.tolist() == WORDS * [1] and updates.dropped("h2") == 1
