"""p4/tofino/receivers.p4 inside: passes that are lost, the two ways of a result, pipes, versions."""

from __future__ import annotations

import random
from typing import TypeVar

import numpy as np
import pytest
from capabilities import need
from model_switch import ip_checksum
from switchml_kin import CHECK, made
from switchml_targets import SLOTS, CompiledTarget, TnaTarget, World
from test_receivers_switch import answer, packet
from test_tna_loss import Lossy, finish, lossy_world

from ina.aggregation.controller.admission import Controller
from ina.aggregation.wire import layout
from ina.aggregation.worker import Route
from ina.aggregation.worker.route import PIECE
from ina.base import paths

need("cc")
pytestmark = pytest.mark.build
VALUES = 64  # two passes' values
WIRE = layout.load(VALUES, paths.p4_dir() / "include/receivers/headers.p4")
BARE, WHOLE = 72, 72 + 4 * VALUES  # bytes of a packet without values, and with them
AnyWorld = TypeVar("AnyWorld", bound=World)


def routed(world: AnyWorld) -> AnyWorld:
    """The world with a controller and layout of jobs whose sums are for some workers."""
    world.wire = WIRE
    world.controller = Controller(world.target, SLOTS, protocol="receivers", chance=random.Random(1))
    return world


@pytest.mark.parametrize("seed", range(2))
def test_no_sum_along_a_route_is_ever_wrong(seed):
    """Sources and receivers of each piece at random, in turn with sums for all."""
    now, workers, count = 0, 3, 20
    world, machines, rng = lossy_world("receivers", VALUES, seed)
    chance = np.random.default_rng(seed)
    for _ in range(4):
        table = np.zeros(count, PIECE)
        table["count"] = chance.integers(1, 150, count)
        table["at"] = np.cumsum(table["count"]) - table["count"]
        table["sources"], table["receivers"] = chance.integers(0, 8, count), chance.integers(0, 8, count)
        arrays = [chance.integers(-1000, 1000, table["count"].sum()).astype(np.int32) for _ in machines]
        right = [array.copy() for array in arrays]
        for size, at, sources, receivers in table[["count", "at", "sources", "receivers"]].tolist():
            own = sources if sources.bit_count() == 1 else 0  # what one alone has sent does not go back to it
            for rank in (rank for rank in range(workers) if sources and (receivers & ~own) >> rank & 1):
                contributed = [arrays[source][at : at + size] for source in range(workers) if sources >> source & 1]
                right[rank][at : at + size] = sum(contributed)
        for machine, array in zip(machines, arrays, strict=True):
            machine.submit(array, now=now, route=Route.of(table))
        now = finish(world, machines, rng, now)
        assert all(np.array_equal(array, each) for array, each in zip(arrays, right, strict=True))
        arrays = [np.arange(500, dtype=np.int32) * (rank + 1) for rank in range(workers)]
        for machine, array in zip(machines, arrays, strict=True):
            machine.submit(array, now=now)
        now = finish(world, machines, rng, now)
        assert all(np.array_equal(array, np.arange(500) * 6) for array in arrays)
    assert world.lost > 20 and set(world.drops()) <= {"LOST", "STALE"}
    world.target.close()


@pytest.mark.parametrize("lost", ["ADD", "TELL", "LOAD", "FINISH"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_pass_of_a_sum_for_one_of_two_members_that_is_lost(lost, victim):
    """Worker 0 of three gets the sum of its own and worker 1's values. Whatever was lost, both hear of the end when they ask, and
    the third never does."""
    world = routed(Lossy(made("receivers", TnaTarget, VALUES, {})))
    job = world.admit(3)
    frames = [packet(job, worker, 0, 1, np.arange(VALUES) * (worker + 1), members=3) for worker in range(2)]
    out = []
    for worker, frame in enumerate(frames):
        world.lose = lambda stage, *_, mine=worker == victim: mine and stage == lost
        out += world.send(frame, worker)
    if (lost, victim) in {("TELL", 0), ("LOAD", 0), ("FINISH", 0)}:
        assert world.lost == 0  # the other's packet completes the phase
        assert [(port, len(frame)) for port, frame in out] == [(0, WHOLE), (1, BARE)]
    else:
        assert world.lost == 1 and [port for port, _ in out] == ([1] if lost in ("LOAD", "FINISH") else [])
    world.lose = lambda *_: False
    for _ in range(3):
        for worker, frame in enumerate(frames):
            out += world.send(frame, worker)
    assert {port for port, _ in out} == {0, 1}
    sums = [answer(frame, WIRE) for _, frame in out if frame[42] >> 4 != 2]
    assert all(each[:3] == (0, 1, 3) for each in sums)
    assert {values is None for *_, values in sums} == {False, True}
    assert all(values in (None, (np.arange(VALUES) * 3).tolist()) for *_, values in sums)
    assert {port for port, frame in out if len(frame) == WHOLE} == {0}
    assert set(world.drops()) <= {"LOST"}
    world.target.close()


def test_children_are_told_once_each_with_values_or_without():
    """By passes: two additions of each worker's packet; those without values hear a pass before both loads and the end."""
    world = routed(Lossy(made("receivers", TnaTarget, VALUES, {})))
    job, passes = world.admit(3), []
    world.lose = lambda name, *_: bool(passes.append(name))
    for members, ranks, sent, through in [
        (7, 7, [(0, WHOLE), (1, WHOLE), (2, WHOLE)], ["LOAD", "LOAD", "FINISH"]),
        (7, 2, [(0, BARE), (1, WHOLE), (2, BARE)], ["TELL", "LOAD", "LOAD", "FINISH"]),
        (7, 0, [(0, BARE), (1, BARE), (2, BARE)], ["FINISH"]),
        (6, 2, [(1, WHOLE), (2, BARE)], ["TELL", "LOAD", "LOAD", "FINISH"]),
        (6, 6, [(1, WHOLE), (2, WHOLE)], ["LOAD", "LOAD", "FINISH"]),
        (4, 4, [(2, WHOLE)], ["LOAD", "LOAD", "FINISH"]),
    ]:
        tsi, out = world.rounds, []
        workers = [worker for worker in range(3) if members >> worker & 1]
        for worker in workers:
            passes.clear()
            out += world.send(packet(job, worker, tsi, ranks, np.full(VALUES, 4**worker), members=members), worker)
        assert passes == ["ADD", "ADD", *through]
        assert [(port, len(frame)) for port, frame in sorted(out)] == sent
        total = [sum(4**worker for worker in workers)] * VALUES
        assert all(answer(frame, WIRE)[-1] == (total if len(frame) == WHOLE else None) for _, frame in out)
    assert world.drops() == {}
    world.target.close()


def test_a_sum_to_which_nobody_has_brought_values_takes_none_along():
    world = routed(Lossy(made("receivers", TnaTarget, VALUES, {})))
    job, passes = world.admit(2), []
    assert world.send(packet(job, 0, 0, 3, None, members=3), 0) == []
    world.lose = lambda name, *_: bool(passes.append(name))
    sent = world.send(packet(job, 1, 0, 3, None, members=3), 1)
    assert [(port, len(frame)) for port, frame in sent] == [(0, BARE), (1, BARE)] and passes == ["ADD", "ADD", "FINISH"]
    world.target.close()


def test_workers_in_two_pipes():
    world = routed(World(made("receivers", TnaTarget, VALUES, {}), ports=0))
    for port in (0, 130):
        world.target.switch.add_port(port)
    job = world.admit(2, ports=[0, 130])
    assert world.send(packet(job, 0, 0, 2, np.arange(VALUES), members=3), 0) == []
    sent = world.send(packet(job, 1, 0, 2, None, members=3), 130)
    assert [(port, answer(frame, WIRE)[-1]) for port, frame in sent] == [(0, None), (130, list(range(VALUES)))]
    world.target.close()


@pytest.mark.parametrize("version", [0, 3, 255])
@pytest.mark.parametrize("values", [np.arange(VALUES), None], ids=["values", "none"])
def test_a_packet_of_another_version_is_refused_without_its_header_and_values(version, values):
    answers = []
    for kind in (CompiledTarget, TnaTarget):
        world = routed(World(made("receivers", kind, VALUES, {})))
        job, end = world.admit(2), CHECK + 20
        head = bytearray(packet(job, 1, 0, 1, values, members=3))
        head[CHECK] = version
        head[CHECK + 2 : CHECK + 4] = ip_checksum(bytes(head[42 : CHECK + 2] + head[CHECK + 4 : end])).to_bytes(2, "big")
        answers.append(world.send(bytes(head), 1))
        assert world.drops() == {"VERSION": 1}
        world.target.close()
    assert answers[0] == answers[1] and [(port, frame[42] >> 4, len(frame)) for port, frame in answers[0]] == [(1, 4, BARE - 8)]
