"""p4/atp_routes.p4 alone: sums from and for some workers, on hostile and on right packets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from atp_network import JobSpec, Network
from atp_routed_frames import BARE, RESULT, TO, VALUES, contents, routed
from capabilities import need
from plants.planting import Plant, planted

from ina.aggregation.worker import worker_address
from ina.aggregation.worker.config import ATP_SWITCH, SERVER
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import Program

pytestmark = pytest.mark.build
need("cc")
WORKERS, POOL, LIFE = 3, 2, 7
FULL = (1 << WORKERS) - 1


@dataclass
class Cell:
    """Expected content of an aggregator: the sum of one number."""

    sequence: int
    sets: tuple[int, int]  # receivers, members
    held: int = 0
    brought: bool = False
    exponent: int = -128
    collision: int = 0
    words: np.ndarray = field(default_factory=lambda: np.zeros(2, np.uint32))
    values: np.ndarray = field(default_factory=lambda: np.zeros(VALUES, np.int32))


class Reference:
    """The rules (docs/design/protocol-atp.md) of an aggregator that does not age, in NumPy."""

    def __init__(self) -> None:
        self.cells: dict[int, Cell] = {}
        self.fates: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()

    def up(self, worker: int, sequence: int, sets: tuple[int, int], values: np.ndarray | None, words: tuple[int, int],
           exponent: int, resend: int, collision: int) -> tuple | None:
        """Returns what goes up because of a packet, or None."""
        bit, (_, members) = 1 << worker, sets
        cell = self.cells.get(sequence % POOL)
        if not members & bit:
            self.drops["wrong workers"] += 1
            return None
        as_it_is = (bit, *sets, words, exponent, None if values is None else values.tolist()), collision
        if cell is not None and cell.sequence == sequence:
            if not cell.held:
                return self.done("passed", as_it_is)
            if cell.sets != sets:
                self.drops["wrong size"] += 1
                return None
            if cell.held & bit:
                if not resend:
                    self.drops["repeated"] += 1
                    return None
                cell.collision |= collision
                return self.done("evicted", self.let_go(cell))
            self.add(cell, bit, values, words, exponent, collision)
            if resend:
                return self.done("evicted", self.let_go(cell))
            return self.done("completed", self.sum_of(cell)) if cell.held == members & FULL else self.done("merged", None)
        if cell is not None and cell.held:
            return self.done("collided", (as_it_is[0], 1))
        if resend or bit == members & FULL or (cell is not None and sequence < cell.sequence):
            return self.done("passed", as_it_is)
        self.cells[sequence % POOL] = Cell(sequence, sets)
        self.add(self.cells[sequence % POOL], bit, values, words, exponent, collision)
        return self.done("claimed", None)

    def done(self, fate: str, sent: tuple | None) -> tuple | None:
        self.fates[fate] += 1
        return sent

    @staticmethod
    def add(cell: Cell, bit: int, values: np.ndarray | None, words: tuple[int, int], exponent: int, collision: int) -> None:
        cell.held |= bit
        cell.words = cell.words + np.array(words, np.uint32)
        cell.exponent, cell.collision = max(cell.exponent, exponent), cell.collision | collision
        if values is not None:
            cell.values, cell.brought = cell.values + values, True

    @staticmethod
    def sum_of(cell: Cell) -> tuple:
        values = cell.values.tolist() if cell.brought else None
        return (cell.held, *cell.sets, tuple(map(int, cell.words)), cell.exponent, values), cell.collision

    def let_go(self, cell: Cell) -> tuple:
        sent = self.sum_of(cell)
        cell.held = 0
        return sent

    def down(self, sequence: int, bitmap: int, sets: tuple[int, int], values: np.ndarray | None) -> dict[int, list | None]:
        """Returns whom a result reaches, and what it has there."""
        cell = self.cells.get(sequence % POOL)
        if cell is not None and cell.sequence == sequence:
            cell.held = 0
        whole = None if values is None else values.tolist()
        if bitmap != FULL:
            return {bitmap.bit_length() - 1: whole}
        return {worker: whole if sets[0] >> worker & 1 else None for worker in range(WORKERS) if sets[1] >> worker & 1}


def send(network: Network, node: tuple[str, int, int], frame: bytes) -> list[tuple[tuple[str, int, int], bytes]]:
    switch, port = network._ports[node]
    return [(network.wires[switch, out], each) for out, each in network.switches[switch].step(frame, port, 0)]


@pytest.mark.parametrize("seed", range(4))
def test_what_a_switch_sends_is_what_the_definition_says_whatever_comes(seed):
    compare(seed)


PARTS = "p4/include/atp_routes"
DEFECTS = {  # which the walks do not see, since who misses something asks the server
    "receivers get nothing": Plant(f"{PARTS}/pruning.p4", "hdr.receivers.ranks & below == 0", "hdr.receivers.ranks & below != 0"),
    "all get values": Plant(f"{PARTS}/pruning.p4", "hdr.receivers.ranks & below == 0", "false"),
    "those without values are not told": Plant(
        f"{PARTS}/pruning.p4", "hdr.receivers.members & below == 0", "hdr.receivers.ranks & below == 0"),
    "all workers are waited for": Plant(
        f"{PARTS}/headers.p4", "hdr.receivers.members & meta.full : meta.full)", "meta.full : meta.full)"),
    "other sets are of the same number": Plant(f"{PARTS}/headers.p4", "hdr.receivers.ranks ++ hdr.receivers.members", "64w0"),
    "others than members are added": Plant(f"{PARTS}/pruning.p4", "hdr.atp.bitmap & ~hdr.receivers.members != 0", "false"),
    "what the number before brought counts": Plant(f"{PARTS}/zeros.p4", "any = brings;", "any = any | brings;"),
    "a sum without values has zeros": Plant(f"{PARTS}/zeros.p4", "if (meta.load == 1 && any == 0)", "if (false)"),
    "sets are not checked": Plant(
        f"{PARTS}/headers.p4", "hdr.check.check1, hdr.receivers.ranks, hdr.receivers.members }", "hdr.check.check1 }"),
}


@pytest.mark.judge
@pytest.mark.parametrize("name", DEFECTS)
def test_seeded_defects_differ_from_the_definition(name, tmp_path):
    with planted(DEFECTS[name], tmp_path) as p4:
        built = compile_program(p4 / "atp_routes.p4", defines={"VALUES": str(VALUES), "SLOTS": str(POOL)}, cflags=["-O1"])
        with pytest.raises(AssertionError):
            compare(0, Program(built.so_path))


def compare(seed: int, compiled: Program | None = None) -> None:
    """Compares sets, values and numbers at random; resends, repetitions, numbers that are late or meet in an aggregator; results
    for one and for all; frames that are cut, or with a bit changed."""
    rng, reference, counts = np.random.default_rng(seed), Reference(), Counter()
    network = Network([JobSpec(WORKERS)], pool=POOL, routes=True, lifetime=60.0, compiled=compiled)
    server, newest = ("server", 0, 0), 0
    for _ in range(1500):
        newest += rng.random() < 0.1
        sequence = max(0, newest - int(rng.integers(3)))
        result, cell = rng.random() < 0.15, reference.cells.get(int(rng.integers(POOL)))
        if result and cell is not None and rng.random() < 0.7:
            sequence = cell.sequence
        receivers, members = sequence * 5 % (FULL + 1), (sequence * 3 + 1) % (FULL + 1) or FULL
        if rng.random() < 0.03:
            receivers, members = (int(each) for each in rng.integers(2**32, size=2))
        values = rng.integers(-(2**31), 2**31, VALUES).astype(np.int32) if rng.random() < 0.5 else None
        words, exponent = (int(rng.integers(2**32)), int(rng.integers(2**32))), int(rng.integers(-96, 127))
        if result:
            bitmap = FULL if rng.random() < 0.6 else 1 << int(rng.integers(WORKERS))
            frame = routed(RESULT, SERVER, ATP_SWITCH, sequence, bitmap, receivers, members, values, words, life=LIFE,
                           index=sequence % POOL, exponent=exponent)
            expected = reference.down(sequence, bitmap, (receivers, members), values)
            arrived = {node[2]: contents(each) for node, each in send(network, server, frame)}
            assert arrived == {worker: (bitmap, receivers, members, words, exponent, own) for worker, own in expected.items()}
            counts.update("down" if own is None else "values down" for own in expected.values())
            continue
        worker, resend, collision = int(rng.integers(WORKERS)), int(rng.random() < 0.2), int(rng.random() < 0.1)
        frame = routed(TO, worker_address(0, worker), ATP_SWITCH, sequence, 1 << worker, receivers, members, values, words,
                       life=LIFE, index=sequence % POOL, exponent=exponent, resend=resend, collision=collision)
        kind = rng.random()
        if kind < 0.1:
            changed = bytearray(frame)
            changed[int(rng.choice([*range(14, 36), 38, 39, *range(42, BARE)]))] ^= 1 << int(rng.integers(8))
            assert send(network, ("worker", 0, worker), bytes(changed)) == []
            continue
        if kind < 0.15:
            assert send(network, ("worker", 0, worker), frame[: int(rng.integers(42, len(frame)))]) == []
            continue
        with np.errstate(over="ignore"):
            sent = reference.up(worker, sequence, (receivers, members), values, words, exponent, resend, collision)
        arrived = [(node, contents(each), each[42] >> 2 & 1) for node, each in send(network, ("worker", 0, worker), frame)]
        assert arrived == ([] if sent is None else [(server, *sent)]), (worker, sequence)
        counts.update([] if sent is None else ["short up" if sent[0][-1] is None else "values up"])
    assert {name: network.fates(0)[name] for name in reference.fates} == dict(reference.fates)
    drops = network.drops()
    assert {name: drops.get(name, 0) for name in reference.drops} == dict(reference.drops)
    assert set(reference.fates) == {"claimed", "merged", "completed", "collided", "passed", "evicted"}
    assert min(counts.values()) > 30
    assert {"wrong workers", "wrong size", "repeated"} == set(reference.drops)
