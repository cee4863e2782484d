"""ATP in virtual time: links with rates and queues, trees over several switches, and what it does to throughput."""

import errno
import random

import numpy as np
import pytest
from capabilities import need
from forger import sealed

from ina.aggregation import protocols
from ina.aggregation.entries.atp import ATP
from ina.aggregation.worker import Worker, WorkerConfig
from ina.aggregation.worker.config import ATP_SWITCH
from ina.base.native import ffi
from ina.net.ports import Address, Faults
from ina.topology import load
from ina.worlds.virtual.fabric import Fabric
from ina.worlds.virtual.network import Wire
from ina.worlds.virtual.parameter_servers import Servers
from ina.worlds.virtual.shared_switch import Shared

pytestmark = pytest.mark.build
need("cc")

VALUES = 32


@pytest.fixture(scope="module")
def program():
    from ina.base.paths import p4_dir
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime import Program

    programs = {}

    def compiled(pool: int) -> Program:
        if pool not in programs:
            built = compile_program(p4_dir() / "atp.p4", defines={"VALUES": str(VALUES), "SLOTS": str(pool)})
            programs[pool] = Program(built.so_path)
        return programs[pool]

    return compiled


def rows_of(workers: int, count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, (workers, count)).astype(np.int32)


@pytest.mark.parametrize("pool", [4096, 8])
@pytest.mark.parametrize("faults", [Faults(), Faults(loss=0.003, duplicate=0.003, reorder=0.003)])
def test_two_jobs_over_racks_and_a_spine(program, pool, faults):
    """The server's rack is the root; the other rack's sums come over the spine, as one packet for each number."""
    topology = load("leaf-spine", leaves=2, spines=1, hosts=5, rate=10e9, delay=1e-6)
    with Fabric(program(pool), topology, pool=pool, protocol="atp", faults=faults, seed=4) as fabric:
        servers = Servers(fabric)
        servers.add("h5")
        jobs, rows = [], []
        for n in range(2):
            hosts = [f"h{2 * n + 1}", f"h{2 * n + 2}", f"h{2 * n + 6}", f"h{2 * n + 7}"]
            jobs.append(fabric.admit(hosts, 32, VALUES, rto_min=200e-6, rto_max=5e-3))
            servers.serve(jobs[-1], VALUES)
            rows.append(rows_of(4, 20_000, n))
        expected = [r.sum(axis=0, dtype=np.int32) for r in rows]
        for job, r in zip(jobs, rows, strict=True):
            fabric.submit_all(job, list(r))
        assert fabric.run()
        assert all(c.event.code == 0 for c in fabric.completions())
        assert all((r == e).all() for r, e in zip(rows, expected, strict=True))
        fabric.check()
        if pool == 4096 and faults == Faults():
            numbers = 1 + 20_000 // VALUES
            up = next(t for t in fabric.links() if t.name == "s2>s3")
            assert up.packets == 2 * numbers, "one packet up from the other rack for each number of each job"
            assert [servers.stats(j.jobs[0].number)["merged_partial"] for j in jobs] == [numbers] * 2


def goodput(program, jobs: int, pool: int, *, aggregates: bool = True, rounds: int = 4) -> list[float]:
    """bit/s of each job in the last of some rounds, 4 workers and a server each, links of 10 Gb/s."""
    protocol = ATP(ecn_depth=16, lifetime=5e-3)
    protocol.aggregates = aggregates
    count = 16_000
    with Shared(program(pool), protocol, hosts=5 * jobs, wire=Wire(rate=10e9, delay=1e-6), pool=pool) as network:
        admitted = [network.admit(f"job {i}", 4, 64, VALUES, rto_min=200e-6, rto_max=5e-3) for i in range(jobs)]
        rates = [0.0] * jobs
        for _ in range(rounds):
            began = network.now
            for job in admitted:
                for machine in job.machines:
                    network.submit(machine, np.ones(count, np.int32), at=began)
            network.run()
            ends = {c.machine: c.time for c in network.completions()}
            rates = [count * 32e12 / (max(ends[m] for m in job.machines) - began) for job in admitted]
    return rates


def test_throughput_declines_gracefully_to_that_of_the_servers(program):
    """Fewer aggregators than the jobs use: less goodput, never less than without any, and fairly shared."""
    alone = goodput(program, 1, 64)[0]
    plain = min(goodput(program, 3, 64, aggregates=False))
    shares = [goodput(program, 3, pool) for pool in (16, 64, 256)]
    means = [sum(rates) / 3 for rates in shares]
    assert plain < means[0] < means[1] < means[2] <= alone
    assert all(min(rates) > 0.9 * plain for rates in shares)
    assert all(min(rates) > 0.6 * max(rates) for rates in shares)
    assert means[2] > 0.8 * alone


class Mean:
    """A machine that sends a frame every ``gap`` ps, whatever it receives: numbers of its own job that never complete, in all
    aggregators, and garbage with its job's or the victim's number."""

    def __init__(self, network: Shared, job, victim: int, gap: int):
        self.gap, self.due, self.sent, self._random = gap, 0, 0, random.Random(1)
        host = next(h for h in network.topology.hosts if h.name == job.hosts[0])
        worker = Worker(WorkerConfig(0, 2, job=job.job.number, life=job.job.life, slots=64, values=VALUES,
                                     protocol="atp", switch=ATP_SWITCH,
                                     address=Address(host.mac, host.ip, 4000 + job.job.number)))
        worker.submit(np.zeros(1, np.int32))
        (self._own,) = worker.frames_to_send(0)
        self._victim = victim
        functions = {"next_handle": lambda state: -errno.EINVAL, "receive": lambda *_: 0, "events": lambda *_: 0,
                     "frames_to_send": self._send, "next_timer": lambda state: self.due}
        types = dict(ffi.typeof("struct ina_protocol").fields)
        self._callbacks = {name: ffi.callback(types[name].type, function) for name, function in functions.items()}
        self.protocol = ffi.new("struct ina_protocol *", self._callbacks | {"reductions": 1 << protocols.SUM})
        self.state = ffi.new("uint64_t[]", 8)
        self.machine = network.add_machine(network.host(job.hosts[0]), self.protocol, self.state, 9, 2)
        network.submit(self.machine, np.zeros(1, np.int32))  # it refuses, but has been woken

    def _send(self, state, tensors, packets, n, now) -> int:
        if now < self.due or not n:
            return 0
        self.due, self.sent = now + self.gap, self.sent + 1
        frame = bytearray(self._own)
        frame[44:46] = self._random.randbytes(2)
        frame[49:54] = self.sent.to_bytes(5, "big")
        if self.sent % 8 == 0:
            frame[48] = self._victim
        if self.sent % 8 == 1:
            frame[42:58] = self._random.randbytes(16)
        ffi.memmove(packets[0].data, sealed(bytes(frame), 58), len(frame))  # where its check header begins
        packets[0].len = packets[0].wire_len = len(frame)
        packets[0].tailroom -= len(frame)
        return 1


def test_a_flood_leaves_others_the_rate_of_their_servers(program):
    """A third of its link's rate in packets that take every aggregator and never release it."""
    rates = {}
    for pool, mean in ((16, False), (16, True), (0, True)):
        protocol = ATP(ecn_depth=16, lifetime=1.0)
        protocol.aggregates = pool > 0
        with Shared(program(16), protocol, hosts=8, wire=Wire(rate=10e9, delay=1e-6), pool=16) as network:
            victim = network.admit("victim", 4, 64, VALUES, rto_min=200e-6, rto_max=5e-3)
            bad = network.admit("bad", 2, 64, VALUES)
            if mean:
                flood = Mean(network, bad, victim.job.number, gap=500_000)
                network.run(until=100 * 10**6)  # it has them all when the victim comes
            rows = rows_of(4, 32_000)
            expected = rows.sum(axis=0, dtype=np.int32)
            began = network.now
            for machine, row in zip(victim.machines, rows, strict=True):
                network.submit(machine, row)
            network.run(until=began + 10**10)
            done = [c for c in network.completions() if c.machine in victim.machines]
            assert len(done) == 4 and all(c.event.code == 0 for c in done)
            assert (rows == expected).all()
            rates[pool, mean] = 32_000 * 32e12 / (max(c.time for c in done) - began)
            if mean:
                assert flood.sent > 1000
    assert rates[16, True] > 0.9 * rates[0, True] and rates[16, True] < rates[16, False], rates


def test_ecn_keeps_queues_short(program):
    """Without marks the servers' queues grow to the window; with them they stay near the depth."""
    longest = {}
    for depth in (0, 16):
        protocol = ATP(ecn_depth=depth, lifetime=5e-3)
        protocol.aggregates = False
        with Shared(program(64), protocol, hosts=5, wire=Wire(rate=10e9, delay=1e-6), pool=64) as network:
            job = network.admit("job", 4, 64, VALUES, rto_min=1e-3, rto_max=5e-3, options={"window": 4})
            for machine in job.machines:
                network.submit(machine, np.ones(64_000, np.int32))
            network.run()
            assert all(c.event.code == 0 for c in network.completions())
            longest[depth] = next(t.max_queue for t in network.links() if t.target == job.server)
            assert (network.worker_stats(job.machines[0])["marked"] > 0) == (depth > 0)
    assert longest[16] < longest[0] / 2, longest
