"""The compiled p4/switchml.p4 in the embedded switch's own thread, real endpoints on its ports: sums are NumPy's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from waiting import LONG, TookTooLong

from ina.aggregation.worker import Endpoint, WorkerConfig, worker_address
from ina.base import paths
from ina.net.ports import Faults, memory_pair
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import Link, MulticastGroupEntry, Program, Replica, Switch, TableEntry, insert

pytestmark = pytest.mark.build
VALUES, SLOTS = 32, 16


@pytest.fixture(scope="module")
def program() -> Program:
    defines = {"VALUES": str(VALUES), "SLOTS": "64"}
    return Program(compile_program(paths.p4_dir() / "switchml.p4", defines=defines).so_path)


def admit(switch: Switch, job: int, life: int, incarnation: int, workers: int, base: int = 0) -> None:
    """A job's slots, workers (worker i on port i), multicast group and reply addresses."""
    head = {"full": (1 << workers) - 1, "last": workers - 1, "base": base, "mask": SLOTS - 1}
    rest = {"incarnation": incarnation, "life": life, "group": job + 1, "strict": 1}
    entities = [
        TableEntry("job", {"hdr.switchml.job": job}, "set_job", head | rest | {"parent": 0}),
        MulticastGroupEntry(job + 1, tuple(Replica(i, i) for i in range(workers))),
    ]
    for i in range(workers):
        address = worker_address(job, i)
        match = {
            "hdr.switchml.job": job,
            "hdr.ipv4.src_addr": address.ip,
            "hdr.udp.src_port": address.port,
            "standard.ingress_port": i,
        }
        to = {"mac": address.mac, "ip": address.ip, "port": address.port}
        entities.append(TableEntry("worker", match, "set_worker", {"worker": 1 << i}))
        entities.append(TableEntry("replica", {"hdr.switchml.job": job, "standard.egress_rid": i}, "to_worker", to))
    switch.write(insert(*entities))


@contextmanager
def job(
    program: Program, workers: int, faults: Faults | None = None, link: Link | None = None
) -> Iterator[tuple[Switch, list[Endpoint]]]:
    # Where nothing is lost nothing is sent again either, however busy the machine: then counts can be compared.
    rto = 5.0 if faults is None and link is None else 2e-3
    configs = [
        WorkerConfig(
            i, workers, job=3, life=5, slots=SLOTS, values=VALUES, rto_min=rto, rto_max=max(rto, 0.1), timeout=LONG
        )
        for i in range(workers)
    ]
    pairs = [memory_pair(64, c.frame_bytes) for c in configs]
    endpoints: list[Endpoint] = []
    with Switch(program) as switch:
        for i, (port, _) in enumerate(pairs):
            if faults is not None:
                seeds = [Faults(**{**vars(faults), "seed": 2 * i + k}) for k in range(2)]
                port.with_faults(rx=seeds[0], tx=seeds[1])
            switch.add_port(i, port, link)
        admit(switch, 3, 5, 7, workers, base=16)
        switch.start()
        try:
            endpoints += [Endpoint(c, host) for c, (_, host) in zip(configs, pairs, strict=True)]
            yield switch, endpoints
        finally:
            for e in endpoints:
                e.close()
    for port, _ in pairs:
        port.close()


def all_reduce(endpoints: list[Endpoint], arrays: list[np.ndarray]) -> list[np.ndarray]:
    results = [a.copy() for a in arrays]
    errors: list[BaseException] = []

    def one(endpoint: Endpoint, array: np.ndarray) -> None:
        try:
            endpoint.run(array)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=pair, daemon=True) for pair in zip(endpoints, results, strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(LONG)
        if t.is_alive():
            raise TookTooLong(f"waited {LONG:g} s for an all-reduce")
    assert not errors, errors
    return results


def check_sums(endpoints: list[Endpoint], sizes: tuple[int, ...], seed: int = 0) -> None:
    random = np.random.default_rng(seed)
    for size in sizes:
        arrays = [random.integers(-(2**31), 2**31, size, dtype=np.int32) for _ in endpoints]
        expected = np.sum(arrays, axis=0, dtype=np.int32)
        for result in all_reduce(endpoints, arrays):
            assert np.array_equal(result, expected)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_sums_wrap_as_numpy_does(program, workers):
    with job(program, workers) as (switch, endpoints):
        check_sums(endpoints, (1, 31, 32, 33, 5000))
        assert switch.counter("drops").sum() == 0
        stats = [switch.port_stats(i) for i in range(workers)]
        sent, again = [s.tx_packets for s in stats], sum(endpoint.stats["retransmissions"] for endpoint in endpoints)
        assert max(sent) - min(sent) <= again, "each is answered alone"
        # What ingress absorbs is the program's verdict; nothing else is dropped.
        assert all(set(k for k, v in s.drops.items() if v) <= {"ingress"} for s in stats)


def test_sums_survive_faults(program):
    faults = Faults(loss=0.02, duplicate=0.02, reorder=0.02, duplicate_delay=5e-3, reorder_delay=1e-3)
    with job(program, 3, faults) as (switch, endpoints):
        check_sums(endpoints, (1, 2000, 20000), seed=1)
        assert sum(e.stats["retransmissions"] for e in endpoints) > 0, "nothing else replaces the packets that were lost"


def test_sums_through_slow_links(program):
    with job(program, 2, link=Link(rate=1e9, delay=100e-6, queue=64 * 1024)) as (_, endpoints):
        start = time.monotonic()
        check_sums(endpoints, (3200,), seed=2)
        # 101 packets of one worker's results, at most 16 in flight: seven trips of 100 us at least
        assert time.monotonic() - start > 7 * 100e-6


def test_control_plane_while_a_job_runs(program):
    with job(program, 2) as (switch, endpoints):
        stop = threading.Event()
        random = np.random.default_rng(4)

        def other_jobs() -> None:
            while not stop.is_set():
                number = int(random.integers(10, 200))
                if not switch.read([TableEntry("job", {"hdr.switchml.job": number})]):
                    switch.write(insert(TableEntry("job", {"hdr.switchml.job": number}, "NoAction")))
                switch.register("incarnations")

        thread = threading.Thread(target=other_jobs)
        thread.start()
        try:
            check_sums(endpoints, (10000,) * 5, seed=3)
        finally:
            stop.set()
            thread.join(LONG)
        assert not thread.is_alive()
        assert int(switch.register("incarnations").max()) == 7
