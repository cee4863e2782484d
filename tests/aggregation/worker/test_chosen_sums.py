"""Endpoints whose switch decides which workers a sum is of, over the compiled program in a thread."""

import random
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from capabilities import need
from waiting import LONG

from ina.aggregation.controller.admission import Controller, switch_address
from ina.aggregation.entries.quorum import PROGRAM
from ina.aggregation.lane import BFLOAT16
from ina.aggregation.worker import Endpoint, JobMismatch
from ina.aggregation.worker.offer import Offer
from ina.base import paths
from ina.net import ports
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program, Switch

pytestmark = pytest.mark.build
need("cc")
VALUES, WINDOW = 64, 8


@pytest.fixture(scope="module")
def program():
    built = compile_program(paths.p4_dir() / "quorum.p4", defines={"VALUES": str(VALUES), "SLOTS": "16"})
    return Program(built.so_path)


class SwitchThread(threading.Thread):
    """The compiled switch on one end of each worker's port."""

    def __init__(self, switch: Switch, ends: list[ports.Port], loss: float):
        super().__init__(daemon=True)
        self.switch, self.ports, self.loss, self.closed = switch, ends, loss, False
        self._random = random.Random(1)

    def run(self) -> None:
        while not self.closed:
            frames = [(i, frame) for i, port in enumerate(self.ports) for frame in port.receive(16)]
            for i, frame in frames:
                for to, reply in self.switch.step(frame, i, 0):
                    if self._random.random() >= self.loss:
                        self.ports[to].send([reply])
            if not frames and not any([port.arm() for port in self.ports]):
                for port in select.select(self.ports, [], [], 0.01)[0]:
                    port.drain()


@contextmanager
def job(program: Program, workers: int, loss: float = 0.0, check: str = "sum") -> Iterator[list[Endpoint]]:
    switch = Switch(program)
    controller = Controller({"s1": switch}, 16, protocol="quorum", chance=random.Random(1))
    admitted = controller.admit("job", workers, WINDOW, True, check=check)
    configs = []
    for worker in range(workers):
        switch.add_port(worker)
        controller.attach(admitted, worker, worker)
        configs.append(admitted.config(worker, switch_address("s1", PROGRAM.udp_port), values=VALUES, rto_min=2e-3, rto_max=0.05,
                                       timeout=LONG, protocol="quorum"))
    pairs = [ports.memory_pair(256, config.frame_bytes) for config in configs]
    thread = SwitchThread(switch, [pair[0] for pair in pairs], loss)
    endpoints = [Endpoint(config, pair[1]) for config, pair in zip(configs, pairs, strict=True)]
    thread.start()
    try:
        yield endpoints
    finally:
        for endpoint in endpoints:
            endpoint.close()
        thread.closed = True
        thread.join(LONG)


def begin(endpoint: Endpoint, out: np.ndarray, offer: Offer, source: np.ndarray | None = None, average: bool = False,
          tag: int = 0) -> int:
    return endpoint.submit_at(0 if source is None else source.ctypes.data, out.ctypes.data, out.size, out.dtype, (source, out),
                              average=average, offer=offer, tag=tag)


def rows(workers: int, elements: int, dtype: np.dtype, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-100, 100, elements).astype(dtype) for _ in range(workers)]


def coded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype is not BFLOAT16:
        return values.astype(dtype)
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(dtype)


def decoded(values: np.ndarray) -> np.ndarray:
    if values.dtype != BFLOAT16:
        return values.astype(float)
    return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(float)


@pytest.mark.parametrize("check", ["off", "sum"])
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float16, BFLOAT16])
@pytest.mark.parametrize("elements", [0, 5, 1000])
def test_a_sum_does_not_wait_for_the_slowest(program, dtype, elements, check):
    """A worker asks only; when it gives, it is too late. The others have the average of theirs, and so has it."""
    average, whole = dtype is not np.int32, rows(3, elements, np.dtype(np.int32))
    given = [coded(row, dtype) for row in whole]
    with job(program, 3, check=check) as endpoints:
        outs = [coded(np.full(elements, 77), dtype) for _ in range(3)]
        tickets = [begin(endpoint, out, Offer(2), given[i] if i else None, average)
                   for i, (endpoint, out) in enumerate(zip(endpoints, outs, strict=True))]
        events = [endpoint.wait(ticket, LONG) for endpoint, ticket in zip(endpoints, tickets, strict=True)]
        assert [event.contributors for event in events] == [(1, 2)] * 3
        right = (whole[1] + whole[2]) / (2 if average else 1)
        for out in outs:
            np.testing.assert_allclose(decoded(out), right, atol=0.5 if dtype is BFLOAT16 else 1e-2 if average else 0)
        with pytest.raises(ValueError, match="it is over"):
            endpoints[0].amend(tickets[0], given[0].ctypes.data, given[0])


def test_who_asks_may_give_and_fewer_may_be_enough(program):
    given = rows(3, 300, np.dtype(np.int32))
    with job(program, 3) as endpoints:
        outs = [np.zeros(300, np.int32) for _ in range(3)]
        tickets = [begin(endpoint, out, Offer(3)) for endpoint, out in zip(endpoints, outs, strict=True)]
        assert endpoints[0].amend(tickets[0], given[0].ctypes.data, given[0])
        assert endpoints[2].amend(tickets[2], given[2].ctypes.data, given[2])
        with pytest.raises(TimeoutError):
            endpoints[0].wait(tickets[0], 0.3)
        with pytest.raises(ValueError, match="have been said"):
            endpoints[0].amend(tickets[0], given[1].ctypes.data, given[1])
        assert endpoints[0].amend(tickets[0], least=2)
        events = [endpoint.wait(ticket, LONG) for endpoint, ticket in zip(endpoints, tickets, strict=True)]
        assert [event.contributors for event in events] == [(0, 2)] * 3
        assert all(np.array_equal(out, given[0] + given[2]) for out in outs)


def test_nobody_waits_for_who_never_gives(program):
    given = rows(2, 300, np.dtype(np.float32))
    with job(program, 2) as endpoints:
        outs = [np.ones(300, np.float32) for _ in range(2)]
        for never in ((1,), (0, 1)):
            tickets = [begin(endpoint, out, Offer(2, never=i in never), None if i in never else given[i], True)
                       for i, (endpoint, out) in enumerate(zip(endpoints, outs, strict=True))]
            for endpoint, ticket in zip(endpoints, tickets, strict=True):
                assert endpoint.wait(ticket, LONG).contributors == tuple({0, 1} - {*never})
            assert all(np.array_equal(out, given[0] if 0 not in never else np.zeros(300)) for out in outs)


def test_one_of_rivals_is_enough(program):
    """Pairs of workers have the same values: whichever comes first, the sum is the same to the bit."""
    pairs = rows(2, 300, np.dtype(np.float32))
    with job(program, 4) as endpoints:
        for turn in range(6):
            outs = [np.zeros(300, np.float32) for _ in range(4)]
            tickets = [begin(endpoint, out, Offer(2, rivals=[i ^ 1]))
                       for i, (endpoint, out) in enumerate(zip(endpoints, outs, strict=True))]
            for i in random.Random(turn).sample(range(4), 4):
                endpoints[i].amend(tickets[i], pairs[i // 2].ctypes.data, pairs[i // 2])
            for endpoint, ticket in zip(endpoints, tickets, strict=True):
                who = endpoint.wait(ticket, LONG).contributors
                assert {worker // 2 for worker in who} == {0, 1} and len(who) == 2
            assert all(np.array_equal(out, pairs[0] + pairs[1]) for out in outs)


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_whatever_workers_do_a_sum_is_of_those_that_it_names(program, loss):
    """Many sums under way at a time; workers give at once, later, or never, in an order of their own."""
    workers, rounds, elements = 3, 120, 150
    given = [rows(workers, elements, np.dtype(np.int32), turn) for turn in range(rounds)]
    outs = np.zeros((workers, rounds, elements), np.int32)
    sets: list[list[tuple[int, ...]]] = [[] for _ in range(workers)]

    with job(program, workers, loss) as endpoints:
        def work(worker: int) -> None:
            chance, endpoint = random.Random(worker), endpoints[worker]
            for first in range(0, rounds, 8):
                turns, late, tickets = range(first, first + 8), [], {}
                for turn in turns:
                    how = chance.choice(("at once", "later", "never"))
                    tickets[turn] = begin(endpoint, outs[worker][turn], Offer(2, never=how == "never"),
                                          given[turn][worker] if how == "at once" else None, tag=turn)
                    late += [turn] * (how == "later")
                for turn in chance.sample(late, len(late)):
                    try:
                        endpoint.amend(tickets[turn], given[turn][worker].ctypes.data, given[turn][worker])
                    except ValueError as error:
                        assert "it is over" in str(error)
                for turn in turns:
                    sets[worker].append(endpoint.wait(tickets[turn], LONG).contributors)

        threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
    assert sets[0] == sets[1] == sets[2] and len(sets[0]) == rounds
    for turn, who in enumerate(sets[0]):
        right = sum((given[turn][worker] for worker in who), np.zeros(elements, np.int32))
        assert all(np.array_equal(outs[worker][turn], right) for worker in range(workers))
    assert len({*sets[0]}) >= 4


def test_workers_that_mean_other_tensors_do_not_agree(program):
    with job(program, 2) as endpoints:
        outs = [np.zeros(300, np.int32) for _ in range(2)]
        tickets = [begin(endpoint, outs[i], Offer(2), outs[i], tag=i) for i, endpoint in enumerate(endpoints)]
        for endpoint, ticket in zip(endpoints, tickets, strict=True):
            with pytest.raises(JobMismatch):
                endpoint.wait(ticket, LONG)


@pytest.mark.parametrize(("offer", "message"), [
    (Offer(0), "least = 0, expected 1..2"), (Offer(3), "least = 3, expected 1..2"),
    (Offer(1, rivals=[0]), "rivals .0. of worker 0"), (Offer(1, rivals=[2]), "rivals .2. of worker 0"),
    (Offer(1, never=True), "values of a worker that never"),
])
def test_wrong_offers_are_refused_where_they_are_made(program, offer, message):
    with job(program, 2) as endpoints:
        values = np.zeros(8, np.int32)
        with pytest.raises(ValueError, match=message):
            begin(endpoints[0], values, offer, values)
        with pytest.raises(ValueError, match="source: 0"):
            endpoints[0].submit_at(0, values.ctypes.data, 8, values.dtype, values)
        with pytest.raises(ValueError, match="no sum with an offer"):
            endpoints[0].amend(1)
