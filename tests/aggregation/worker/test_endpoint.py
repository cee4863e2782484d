"""Endpoints over real ports, against the model switch in a thread: threads, waiting, failing, stopping.

Jobs have hours: a call that waits for a job's time-out, where it should not, ends by the test's limit.
"""

import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from capabilities import need
from model_switch import Job, ModelSwitch, binary
from test_switchml_worker import WORKER_SOURCES, run_c
from waiting import LONG, TookTooLong, until

from ina.aggregation import protocols
from ina.aggregation.worker import (
    Endpoint,
    JobAborted,
    JobError,
    JobMismatch,
    JobTimeout,
    PeerLost,
    TensorRefused,
    Worker,
    WorkerConfig,
    worker_address,
)
from ina.aggregation.worker.config import fill_tensor_at
from ina.aggregation.worker.offer import Offer
from ina.base.native import ffi, lib
from ina.net import ports
from ina.net.ports import Port

HOURS = 10_000.0  # seconds


class SwitchThread(threading.Thread):
    """The model switch on one end of each worker's port."""

    def __init__(self, ends: list[Port], values: int, slots: int, loss: float = 0.0):
        super().__init__(daemon=True)
        workers = [binary(worker_address(0, i)) for i in range(len(ends))]
        self.model = ModelSwitch([Job.of_workers(0, workers, slots)], values)
        self.ports, self.loss, self.closed = ends, loss, False
        self.heard: set[int] = set()  # workers from whom a frame has come
        self._random = np.random.default_rng(1)

    def run(self) -> None:
        while not self.closed:
            moved = 0
            for i, port in enumerate(self.ports):
                for frame in port.receive(16):
                    moved += 1
                    self.heard.add(i)
                    for to, reply in self.model.process(i, frame):
                        if self._random.random() >= self.loss:
                            self.ports[to].send([reply])
            if not moved and not any([port.arm() for port in self.ports]):
                for port in select.select(self.ports, [], [], 0.01)[0]:
                    port.drain()
        for port in self.ports:
            port.close()


def memory(max_frame: int) -> tuple[Port, Port]:
    return ports.memory_pair(256, max_frame)


def shared(max_frame: int) -> tuple[Port, Port]:
    memfd, bells = ports.create_segment(256, max_frame), ports.create_bells()
    pair = [ports.open_shared(memfd, side, *bells.of(side)) for side in range(2)]
    os.close(memfd)
    bells.close()
    return pair[0], pair[1]


@contextmanager
def job(workers: int, pair=shared, loss: float = 0.0, alive_fd: int = -1, **config) -> Iterator[list[Endpoint]]:
    with job_and_switch(workers, pair, loss, alive_fd, **config) as (endpoints, _):
        yield endpoints


@contextmanager
def job_and_switch(
    workers: int, pair=shared, loss: float = 0.0, alive_fd: int = -1, **config
) -> Iterator[tuple[list[Endpoint], SwitchThread]]:
    config = {"slots": 16, "values": 64, "timeout": HOURS, "rto_min": 2e-3} | config
    configs = [WorkerConfig(i, workers, life=1, **config) for i in range(workers)]
    pairs = [pair(c.frame_bytes) for c in configs]
    switch = SwitchThread([p[0] for p in pairs], config["values"], config["slots"], loss)
    endpoints = [Endpoint(c, p[1], alive_fd) for c, p in zip(configs, pairs, strict=True)]
    switch.start()
    try:
        yield endpoints, switch
    finally:
        for endpoint in endpoints:
            endpoint.close()
        switch.closed = True
        join(switch)


def join(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(LONG)
        if thread.is_alive():
            raise TookTooLong(f"waited {LONG:g} s for the end of {thread.name}")


def on_all(endpoints: list[Endpoint], call) -> list:
    """``call(rank, endpoint)`` in a thread each; returns results, or the exceptions that ended them."""
    results: list = [None] * len(endpoints)

    def body(i: int) -> None:
        try:
            results[i] = call(i, endpoints[i])
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=body, args=(i,), daemon=True) for i in range(len(endpoints))]
    for t in threads:
        t.start()
    join(*threads)
    return results


@pytest.mark.fast
@pytest.mark.parametrize("pair", [memory, shared])
@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("mode", ["submit", "run"])
def test_sums(pair, loss, mode):
    rows = np.random.default_rng(1).integers(-(2**31), 2**31, (3, 2001)).astype(np.int32)
    floats = rows.astype(np.float32)
    expected = rows.sum(axis=0, dtype=np.int32)
    mean = floats.astype(np.float64).mean(axis=0)

    def worker(i: int, endpoint: Endpoint) -> int:
        if mode == "run":
            endpoint.run(rows[i])
            endpoint.run(floats[i], average=True, timeout=HOURS)
        else:
            tickets = [endpoint.submit(rows[i]), endpoint.submit(floats[i], average=True)]
            assert [endpoint.wait(t).code for t in tickets] == [0, 0]
        return endpoint.stats["retransmissions"]

    with job(3, pair, loss) as endpoints:
        again = on_all(endpoints, worker)
        assert all(isinstance(n, int) for n in again), again
        assert (sum(again) > 0) or not loss, "nothing else brings a sum whose packet the switch has dropped"
        assert [e.stats["tensors"] for e in endpoints] == [2, 2, 2]
        assert endpoints[0].port_stats["tx_packets"] == endpoints[0].stats["tx_packets"]
    assert (rows == expected).all()
    assert floats[0].tobytes() == floats[1].tobytes() == floats[2].tobytes()
    np.testing.assert_allclose(floats[0], mean, atol=3 * 2.0 ** (31 - 30 + 2), rtol=2**-21)


@pytest.mark.fast
def test_many_in_flight_from_many_threads_complete_in_order_of_completion():
    """300 tensors through a window of MAX_OPS; submit waits for room; next() gives each ticket once."""
    count = 300
    arrays = [[np.full(1 + t % 90, t + i, np.int32) for t in range(count)] for i in range(2)]

    def worker(i: int, endpoint: Endpoint) -> set[int]:
        finished: set[int] = set()

        def completion() -> None:
            while len(finished) < count:
                ticket, event = endpoint.next(LONG)
                assert event.code == 0 and ticket not in finished
                finished.add(ticket)

        thread = threading.Thread(target=completion, daemon=True)
        thread.start()
        for tag, array in enumerate(arrays[i]):
            endpoint.submit(array, tag=tag)
        join(thread)
        return finished

    with job(2) as endpoints:
        assert on_all(endpoints, worker) == [set(range(1, count + 1))] * 2
    for t in range(count):
        assert (arrays[0][t] == 2 * t + 1).all() and (arrays[1][t] == arrays[0][t]).all()


@pytest.mark.fast
def test_callers_and_the_thread_take_turns():
    """run() while submitted tensors are on their way, from one thread each, in the same order."""
    big = np.ones((2, 30000), np.float32)

    def worker(i: int, endpoint: Endpoint) -> list[float]:
        results = []
        for n in range(20):
            ticket = endpoint.submit(big[i])
            small = np.array([n], np.float32)
            endpoint.run(small)
            results.append(float(small[0]))
            endpoint.wait(ticket)
            big[i] /= 2
        return results

    with job(2, slots=64, values=256) as endpoints:
        assert on_all(endpoints, worker) == [[2.0 * n for n in range(20)]] * 2
    assert (big == 1).all()


@pytest.mark.build
@pytest.mark.parametrize("waits", [True, False], ids=["run", "submit"])
def test_a_tensor_that_the_protocol_does_not_take_ends_at_once(waits):
    """THC's look-ups are of int32. No deadline runs for what is not sent; and the job goes on."""
    with job(2, protocol="thc", timeout=HOURS) as endpoints:
        for _ in range(100):  # more than are in flight at a time
            with pytest.raises(TensorRefused, match="nothing of it was sent"):
                if waits:
                    endpoints[0].run(np.zeros(100, np.float32), reduction=protocols.OWN)
                else:
                    endpoints[0].wait(endpoints[0].submit(np.zeros(100, np.float32), reduction=protocols.OWN))
        assert endpoints[0].failure is None
        assert on_all(endpoints, lambda i, endpoint: endpoint.run(np.ones(100, np.int32)).code) == [0, 0]


@pytest.mark.build
def test_timeout_names_the_missing_worker():
    """It takes the three seconds, by which the switch must have answered for once."""
    with job(2, timeout=3.0) as endpoints:
        with pytest.raises(JobTimeout, match="worker 1") as caught:
            endpoints[0].run(np.zeros(100, np.int32))
        assert caught.value.event.missing == (1,) and "after 3 s" in str(caught.value)
        assert endpoints[0].failure == caught.value.event
        with pytest.raises(JobTimeout, match="worker 1"):
            endpoints[0].submit(np.zeros(1, np.int32))


@pytest.mark.fast
def test_wait_with_a_shorter_timeout_leaves_the_tensor_in_flight():
    array = np.ones(10, np.int32)
    with job(2) as endpoints:
        ticket = endpoints[0].submit(array)
        with pytest.raises(TimeoutError, match="still in flight"):
            endpoints[0].wait(ticket, 0.05)
        with pytest.raises(ValueError, match="never given"):
            endpoints[0].wait(99)
        endpoints[1].run(np.ones(10, np.int32))
        endpoints[0].wait(ticket)
        with pytest.raises(TimeoutError, match="still in flight"):
            endpoints[1].run(array, timeout=0.05)
    assert (array == 2).all()


@pytest.mark.fast
def test_mismatch_on_every_rank():
    with job(3) as endpoints:
        errors = on_all(endpoints, lambda i, e: e.run(np.zeros(100 + i, np.float32)))
        assert [type(e) for e in errors] == [JobMismatch] * 3, errors


@pytest.mark.fast
def test_abort_and_close_wake_waiters():
    with job_and_switch(2) as (endpoints, switch):
        for worker, stop in enumerate((lambda e: e.abort(), lambda e: e.close())):
            endpoint = endpoints.pop(0)
            caught: list[Exception] = []

            def wait(endpoint=endpoint, caught=caught) -> None:
                try:
                    endpoint.run(np.zeros(1000, np.int32))
                except JobError as error:
                    caught.append(error)

            thread = threading.Thread(target=wait, daemon=True)
            thread.start()
            until(lambda worker=worker: worker in switch.heard, "a packet of the tensor")
            stop(endpoint)
            join(thread)
            assert isinstance(caught[0], JobAborted)
            with pytest.raises(JobAborted):
                endpoint.submit(np.zeros(1, np.int32))
            endpoint.close()
            endpoint.close()
            with pytest.raises(BrokenPipeError):
                while endpoint.next(LONG):
                    pass


@pytest.mark.fast
def test_end_of_the_switch_process_fails_everything_at_once():
    ours, theirs = socket.socketpair()
    with job(2, alive_fd=ours.fileno()) as endpoints:
        tickets = [endpoints[0].submit(np.zeros(100, np.int32)) for _ in range(5)]
        theirs.send(b"a message is not a hang-up")
        with pytest.raises(TimeoutError):
            endpoints[0].wait(tickets[0], 0.05)
        theirs.close()
        for ticket in tickets:
            with pytest.raises(PeerLost):
                endpoints[0].wait(ticket)
        for _ in range(5):  # what the other worker had sent may still be summed, and more is not
            with suppress(PeerLost):
                endpoints[1].run(np.zeros(100, np.int32))
        with pytest.raises(PeerLost):
            endpoints[1].run(np.zeros(100, np.int32))
    assert ours.recv(100) == b"a message is not a hang-up"
    ours.close()


@pytest.mark.fast
def test_nothing_is_left_behind():
    def tally() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def once() -> None:
        with job(2) as endpoints:
            on_all(endpoints, lambda i, e: e.run(np.ones(1000, np.float32)))
            endpoints[0].submit(np.zeros(5, np.int32))

    once()
    before = tally()  # perhaps with the last threads: Python's outlive their join() for a moment
    for _ in range(5):
        once()
    until(lambda: all(now <= was for now, was in zip(tally(), before, strict=True)), f"{before} descriptors and threads")


@contextmanager
def waiting_job() -> Iterator[list[str]]:
    """A job whose worker 0 waits for the other one's tensor; gives the endpoints' threads."""
    with job(2) as endpoints:
        on_all(endpoints, lambda i, e: e.run(np.ones(1000, np.float32)))
        ticket = endpoints[0].submit(np.zeros(1, np.int32))
        yield [t for t in os.listdir("/proc/self/task") if comm(t) == "ina-endpoint"]
        endpoints[1].run(np.zeros(1, np.int32))
        endpoints[0].wait(ticket)


@pytest.mark.fast
def test_idle_endpoint_sleeps():
    with waiting_job() as threads:
        assert len(threads) == 2
        until(lambda: all(stat_of(t)[0] == "S" for t in threads), "all endpoints asleep")


@pytest.mark.build
@pytest.mark.machine
@pytest.mark.judge
def test_idle_endpoint_uses_no_time():
    """It probes and sleeps."""
    with waiting_job() as threads:
        before = sum(cpu_ticks(t) for t in threads)
        threading.Event().wait(1.0)
        assert sum(cpu_ticks(t) for t in threads) - before <= 4  # of 10 ms


def comm(task: str) -> str:
    try:
        return Path(f"/proc/self/task/{task}/comm").read_text().strip()
    except FileNotFoundError:
        return "ended meanwhile"


def stat_of(task: str) -> list[str]:
    """Its fields from the state on (proc(5))."""
    return Path(f"/proc/self/task/{task}/stat").read_text().rsplit(")", 1)[1].split()


def cpu_ticks(task: str) -> int:
    fields = stat_of(task)
    return int(fields[11]) + int(fields[12])


@pytest.mark.fast
def test_counters_show_how_far_a_long_tensor_is():
    """The switch answers one frame between two looks at them, and two are on their way at most: none jumps by more."""
    values = np.ones(64 * 64, np.int32)
    config = WorkerConfig(0, 1, life=1, values=64, slots=2, timeout=HOURS)
    far, near = memory(config.frame_bytes)
    model = ModelSwitch([Job.of_workers(0, [binary(worker_address(0, 0))], config.slots)], config.values)
    seen = set()
    with far, Endpoint(config, near) as endpoint:
        endpoint.submit(values, values)
        while not endpoint.next(1e-3):
            seen.add(endpoint.stats["results"])
            far.send([reply for frame in far.receive(1) for _, reply in model.process(0, frame)])
        assert endpoint.stats["results"] >= 64
    assert len(seen) > 16


@pytest.mark.fast
def test_deadline_when_the_port_is_full():
    """A switch that takes no frames: more to send than the ring has room for, and still an end."""
    near, far = ports.memory_pair(4, 400)
    with far, Endpoint(WorkerConfig(0, 2, life=1, values=64, slots=16, timeout=0.2), near) as endpoint:
        with pytest.raises(JobTimeout, match="no packet ever came"):
            endpoint.run(np.zeros(5000, np.int32))
        assert endpoint.stats["tx_packets"] == 4
        assert endpoint.port_stats["tx_full"] > 0


@pytest.mark.fast
def test_ring_that_is_smaller_than_the_window():
    def tiny(max_frame: int) -> tuple[Port, Port]:
        return ports.memory_pair(4, max_frame)

    rows = np.ones((2, 5000), np.int32)
    with job(2, tiny, slots=64) as endpoints:
        on_all(endpoints, lambda i, e: e.run(rows[i]))
    assert (rows == 2).all()


@pytest.mark.fast
def test_port_that_is_too_small():
    near, far = memory(200)
    with near, far, pytest.raises(OSError, match="port takes frames of 200 bytes, 320 are needed"):
        Endpoint(WorkerConfig(0, 2, life=1, values=64), near)


@pytest.mark.fast
def test_a_lease_is_good_for_one_worker():
    """Another one would number its packets from 0 again: the switch would answer 20 + 1 for 200 + 1."""
    config = WorkerConfig(0, 2, life=1, values=64)
    small, far = memory(200)
    with small, far, pytest.raises(OSError, match="port takes frames of 200 bytes"):
        Endpoint(config, small)  # uses nothing up
    near, far = memory(2000)
    with far, Endpoint(config, near):
        pass
    starts = {"endpoint": lambda port: Endpoint(config, port), "machine": lambda port: Worker(config)}
    for start in starts.values():
        near, far = memory(2000)
        with near, far, pytest.raises(ValueError, match=r"worker 0 of job 0 has begun with this configuration \(life 1\) before"):
            start(near)
    Worker(replace(config, life=2))


@pytest.mark.fast
def test_one_of_two_workers_that_begin_at_a_time_gets_the_lease():
    config = WorkerConfig(0, 2, life=1, values=64)
    with config.lease(), pytest.raises(ValueError, match="worker 0 of job 0 has begun with this configuration"):
        Worker(config)  # another thread's, before the first one has begun


ENDPOINT_SOURCES = [*WORKER_SOURCES, "endpoint.c", "idle.c", "port.c", "port_mem.c", "segment.c", "bell.c"]


@pytest.mark.build
@pytest.mark.later
@pytest.mark.parametrize("kind", ["thread", "address,undefined"])
def test_threads_are_clean_under_sanitizers(tmp_path, kind):
    need("cc", "thread-sanitizer" if kind == "thread" else "sanitizers")
    # -Wno-tsan: it does not model the fences of the memory ports
    flags = ["-Wno-tsan"] if kind == "thread" else ["-fno-sanitize-recover=all"]
    run_c(tmp_path, "endpoint_threads", ENDPOINT_SOURCES, f"-fsanitize={kind}", *flags)


class Amended:
    """A protocol with one tensor that never ends, whose offer a caller changes in the driver's ``at``-th call for frames in which
    nothing is due: ``rests`` has for each such change whether the driver went to rest before it asked for frames again."""

    def __init__(self, at: int):
        self.at, self.idle, self.due, self.rests = at, 0, False, []
        functions = {
            "state_size": lambda config: 4096, "stats_offset": lambda config: 0, "frame_size": lambda config: 64,
            "init": lambda *_: 0, "next_handle": lambda state: 0, "submit": lambda *_: 0, "receive": lambda *_: 0,
            "events": lambda *_: 0, "abort": lambda *_: 0, "amend": self._amend, "frames_to_send": self._send,
            "next_timer": self._rest}
        types = dict(ffi.typeof("struct ina_protocol").fields)
        self._callbacks = {name: ffi.callback(types[name].type, function) for name, function in functions.items()}
        self.protocol = ffi.new("struct ina_protocol *", self._callbacks | {"offers": 1, "reductions": 1 << protocols.SUM})
        self._port, self._other = memory(64)
        self._endpoint = lib.ina_endpoint_start(self.protocol, WorkerConfig(0, 2, life=1).to_c(), self._port.handle, -1)
        self._port.release()

    def run(self) -> None:
        """Runs it until a change has been seen, or the driver rests before its ``at``-th call."""
        self._out = np.zeros(1, np.int32)
        tensor = ffi.new("struct ina_tensor *")
        fill_tensor_at(tensor, 0, self._out.ctypes.data, 1, self._out.dtype, False, 0, protocols.SUM)
        Offer(2).fill(tensor, 2, 0, False)
        assert lib.ina_endpoint_submit(self._endpoint, tensor) == 1  # the ticket
        until(lambda: self.rests, "the driver to rest, or to be told of a change")
        lib.ina_endpoint_close(self._endpoint)
        lib.ina_endpoint_stop(self._endpoint)
        self._other.close()

    def _send(self, *_) -> int:
        if self.due:
            self.due = False
            self.rests.append(False)
        self.idle += 1
        if self.idle == self.at:
            offer = ffi.new("struct ina_offer *", {"state": lib.INA_OFFER_ASK, "least": 1})
            assert lib.ina_endpoint_amend(self._endpoint, 1, offer, ffi.NULL) == 0
        return 0

    def _amend(self, *_) -> int:
        self.due = True
        return 0

    def _rest(self, state) -> int:
        self.rests.append(self.due)
        return 2**63


@pytest.mark.fast
def test_what_a_caller_says_while_the_driver_looks_for_frames_is_sent_before_it_rests():
    """An offer is changed in the driver's first idle call for frames, in its second, and so on, up to the last one before it
    rests. No timer would wake it: what is new would wait for the job's time-out."""
    for at in range(1, 10):
        amended = Amended(at)
        amended.run()
        assert not amended.rests[0], f"it rests after idle call {at} with something to send"
