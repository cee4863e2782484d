"""Losses of ATP's passes inside a Tofino: no sum goes up that lacks a contribution of its bitmap."""

from __future__ import annotations

import random

import numpy as np
import pytest
from atp_targets import PARENT, VALUES, World, close_targets, open_target, parse
from test_tna_loss import RECIRCULATION, Lossy

pytestmark = pytest.mark.build


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    close_targets()


class LossyAtp(World):
    send, send_all = Lossy.send, Lossy.send_all

    def __init__(self):
        super().__init__(open_target("tna"))
        self.target.switch.add_port(RECIRCULATION)
        self.target.switch.set_port(RECIRCULATION, loopback=False)
        self.lose, self.rounds, self.lost = (lambda *_: False), 0, 0


def check(sent: list[tuple[int, bytes]], vectors: list[list[int]]) -> int:
    """Each frame that goes up has the sum of those that its bitmap names. Returns the workers of all of them."""
    bitmaps = 0
    for port, frame in sent:
        headers = parse(frame)
        bitmap = headers["atp"]["bitmap"]
        parts = [vector for worker, vector in enumerate(vectors) if bitmap >> worker & 1]
        assert port == PARENT and headers["values"] == [int(v) % 2**32 for v in np.sum(parts, axis=0)], bin(bitmap)
        bitmaps |= bitmap
    return bitmaps


@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize("ask", [0, 1, 2])
def test_an_addition_that_is_lost(victim, ask):
    """The sum is refused by name, and resent packets go up by themselves: the server has every contribution once."""
    world = LossyAtp()
    job = world.admit([1, 2, 4])
    vectors = [[worker * 100 + i for i in range(VALUES)] for worker in range(3)]
    sent = []
    for worker in range(3):
        world.lose = lambda name, *_, mine=worker == victim: mine and name == "ADD"
        sent += job.send(worker, 0, vectors[worker])
    world.lose = lambda *_: False
    assert sent == [] and world.lost == 1
    for worker in [ask, 0, 1, 2, 0, 1, 2]:
        sent += job.send(worker, 0, vectors[worker], resend=1)
    assert check(sent, vectors) == 0b111
    assert world.drops()["LOST"] >= 1 and set(world.drops()) <= {"LOST", "REPEATED"}


@pytest.mark.parametrize("seed", range(12))
def test_no_sum_is_ever_wrong(seed):
    """Workers that resend, through a switch that loses one pass in ten; the server answers when it has all."""
    rng = random.Random(seed)
    world = LossyAtp()
    job = world.admit([1, 2, 4])
    world.lose = lambda *_: rng.random() < 0.1
    for sequence in range(12):
        vectors = [[rng.randrange(-(2**20), 2**20) for _ in range(VALUES)] for _ in range(3)]
        bitmap, tries = 0, 0
        while bitmap != 0b111:
            tries += 1
            assert tries < 100
            frames = [(job.port(worker), job.data(worker, sequence, vectors[worker], resend=int(tries > 1)))
                      for worker in rng.sample(range(3), 3) if not bitmap >> worker & 1]
            bitmap |= check(world.send_all(frames), vectors)
        job.result(sequence)
    assert world.lost > 0
