"""Metadata of P4 programs in virtual time, on queues and on passes, against a queue computed in a few lines of Python; and
independent faults of each direction and each replica."""

import struct

import numpy as np
import pytest
from capabilities import need
from traffic import Datagram, Sender

from ina import topology as topologies
from ina.base import paths
from ina.net.ports import Faults
from ina.worlds.virtual.fabric import Fabric, Star
from ina.worlds.virtual.network import Wire

pytestmark = pytest.mark.build
need("cc")
RATE, US = 800e6, 1_000_000  # 100 bytes last a microsecond, which is what the metadata counts in
WIRE = 500


class Plain(Fabric):
    """Switches whose program does its own forwarding."""

    def _forward(self) -> None:
        pass


@pytest.fixture(scope="module")
def stamps():
    from pathlib import Path

    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime.embedded import Program

    return Program(compile_program(Path(__file__).parent.parent.parent / "programs" / "stamps.p4").so_path)


def stamp(data: bytes) -> dict[str, int]:
    names = ("number", "again", "passes", "ingress", "enqueued", "enq_depth", "waited", "deq_depth", "egress")
    raw = struct.unpack("!IBB6sIIII6s", data[:34])
    return {name: int.from_bytes(v, "big") if isinstance(v, bytes) else v for name, v in zip(names, raw, strict=True)}


def run(program, datagrams: list[Datagram], hosts: int = 4, latency: float = 0.0) -> dict[int, tuple[int, dict[str, int]]]:
    """Arrival time at h1 and stamp of each datagram, by number."""
    with Plain(program, topologies.load("star", hosts=hosts, rate=RATE, delay=1e-6), latency=latency) as fabric:
        senders = [Sender(fabric, f"h{i}", [d for d in datagrams if d.source == f"h{i}"]) for i in range(1, hosts + 1)]
        assert fabric.run()
        fabric.check()
        return {number: (time, stamp(senders[0].data[number])) for number, time in senders[0].arrivals.items()}


@pytest.mark.parametrize("latency", [0, 3])
def test_depths_and_times_of_the_queue_are_those_of_a_queue_worked_out_by_hand(stamps, latency):
    """Bursts of three hosts to one: arrivals are known, so is every departure (Lindley's recursion)."""
    service = 8 * WIRE / RATE * 1e6  # us
    rng = np.random.default_rng(1)
    datagrams, arrivals = [], []
    for host in (2, 3, 4):
        for start in np.sort(rng.choice(40, 6, replace=False)) * 100 + host:  # no two in one microsecond
            for i in range(4):
                number = len(datagrams) + 1
                datagrams.append(Datagram(int(start) * US, f"h{host}", "h1", WIRE, number, bytes(32)))
                arrivals.append((start + (i + 1) * service + 1 + latency, number))
    results = run(stamps, datagrams, latency=latency * 1e-6)
    free, starts = 0.0, []
    arrivals.sort()
    for arrived, number in arrivals:
        waiting, leaving = sum(begin > arrived for begin in starts), sum(begin == arrived for begin in starts)
        begin = max(arrived, free)
        starts.append(begin)
        free = begin + service
        depth = sum(arrived < other <= begin for other, _ in arrivals) if begin > arrived else 0
        time, meta = results[number]
        assert meta["ingress"] == meta["enqueued"] == arrived and meta["egress"] == begin and meta["waited"] == begin - arrived
        assert time == (free + 1) * US
        assert waiting <= meta["enq_depth"] <= waiting + leaving, "one that leaves in that very microsecond may count or not"
        assert meta["deq_depth"] in (depth, depth - 1), "nor need one that arrives then"
    assert max(meta["enq_depth"] for _, meta in results.values()) >= 3 and len(results) == len(datagrams)


def test_a_packet_that_recirculates_waits_again_and_its_stamps_are_those_of_the_last_pass(stamps):
    """Its passes take no time if it is alone; beside others it queues behind those that came meanwhile, once a pass."""
    alone = run(stamps, [Datagram(0, "h2", "h1", WIRE, 1, bytes([3]) + bytes(31))])
    once = run(stamps, [Datagram(0, "h2", "h1", WIRE, 1, bytes(32))])
    assert alone[1][1]["passes"] == 4 and once[1][1]["passes"] == 1 and alone[1][0] == once[1][0]
    crowd = [Datagram(0, f"h{host}", "h1", WIRE, 10 * host + i, bytes(32)) for host in (3, 4) for i in range(4)]
    results = run(stamps, [Datagram(2 * US, "h2", "h1", WIRE, 1, bytes([2]) + bytes(31)), *crowd])
    time, meta = results[1]
    assert meta["passes"] == 3 and meta["again"] == 0
    assert meta["enqueued"] > 2 + 5 + 1, "it came to the last queue later than to the switch"
    order = [number for number, _ in sorted(results.items(), key=lambda item: item[1][0])]
    plain = run(stamps, [Datagram(2 * US, "h2", "h1", WIRE, 1, bytes(32)), *crowd])
    assert order.index(1) > [n for n, _ in sorted(plain.items(), key=lambda item: item[1][0])].index(1)
    assert max(t for t, _ in results.values()) == max(t for t, _ in plain.values()), "recirculation takes none of the link's time"


def test_a_packet_that_never_stops_recirculating_is_dropped_and_counted(stamps):
    with Plain(stamps, topologies.load("star", hosts=2, rate=RATE, delay=1e-6)) as fabric:
        sender = Sender(fabric, "h2", [Datagram(0, "h2", "h1", WIRE, 1, bytes([255]) + bytes(31))])
        assert fabric.run() and sender.arrivals == {}
        fabric.check()
        assert fabric.drops() == {"passes": 1}


@pytest.fixture(scope="module")
def switchml():
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime.embedded import Program

    return Program(compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "64"}).so_path)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_each_direction_and_each_replica_meets_its_own_faults(switchml, direction):
    """Loss on the way down hits single copies of a multicast, never all of them at once; the way up then loses nothing."""
    faulty, clean = Wire(rate=10e9, delay=1e-6, faults=Faults(loss=0.05, seed=1)), Wire(rate=10e9, delay=1e-6)
    up, down = (faulty, clean) if direction == "up" else (clean, faulty)
    with Star(switchml, hosts=4, up=up, down=down, pool=64) as star:
        job = star.admit(4, 64, 32, rto_min=1e-3)
        star.all_reduce(job, [np.ones(32 * 500, np.int32) for _ in range(4)]).raise_failed()
        star.check()
        lost = {name: [t.lost for t in star.links() if t.source[0] == name] for name in "hs"}
        mine, other = ("h", "s") if direction == "up" else ("s", "h")
        assert all(5 < count < 60 for count in lost[mine]) and len(set(lost[mine])) > 1, "each direction has a seed of its own"
        assert lost[other] == [0, 0, 0, 0]
        results = sum(star.worker_stats(machine)["results"] for machine in job.machines)
        assert results == 4 * 501, "the copies that were not lost arrived"


@pytest.mark.parametrize("cores", [0, 2])
def test_a_full_nic_holds_its_hosts_back_and_drops_nothing(stamps, cores):
    """The NIC has room for three frames: the machine hands over one as soon as one has left, so that the wire never idles."""
    arrivals = {}
    for room in (0, 3 * WIRE):
        with Plain(stamps, topologies.load("star", hosts=2, rate=RATE, delay=1e-6), nic=room) as fabric:
            if cores:
                fabric.set_cpu(fabric.host("h2"), packet=1e-9, cores=cores)
            sender = Sender(fabric, "h1", [])
            Sender(fabric, "h2", [Datagram(0, "h2", "h1", WIRE, i, bytes(32)) for i in range(200)])
            assert fabric.run()
            fabric.check()
            assert fabric.drops() == {} and sorted(sender.arrivals) == list(range(200))
            waits, queue = fabric.stats()["nic_held"], max(t.max_queue for t in fabric.links() if t.source == "h2")
            assert (waits, queue > 100 * WIRE) == (0, True) if not room else (waits > 100 and queue <= room)
            arrivals[room] = sender.arrivals
    assert arrivals[0] == arrivals[3 * WIRE], "to the picosecond"


def test_machines_of_a_host_take_turns_at_a_full_nic(stamps):
    """The second has as much of the wire as the first, though that would always have something to send."""
    with Plain(stamps, topologies.load("star", hosts=3, rate=RATE, delay=1e-6), nic=WIRE) as fabric:
        sinks = [Sender(fabric, f"h{i}", []) for i in (2, 3)]
        for i, (sink, port) in enumerate(zip(("h2", "h3"), (9, 10), strict=True)):
            Sender(fabric, "h1", [Datagram(0, "h1", sink, WIRE, 100 * i + n, bytes(32)) for n in range(50)], port=port)
        assert fabric.run()
        times = [sorted(sink.arrivals.values()) for sink in sinks]
        assert [len(t) for t in times] == [50, 50] and fabric.stats()["nic_held"] > 50
        assert all(abs(a - b) <= 5 * 8 * WIRE * 1e12 / RATE for a, b in zip(*times, strict=True))
