"""p4/requantised.p4: lanes of 16 bits up, their sums rounded to 8 bits down, recovered as SwitchML's sums are."""

from __future__ import annotations

import numpy as np
import pytest
from capabilities import need
from forger import sealed
from model_switch import ip_checksum
from switchml_kin import FAULTS, MANY, STAR, TREE, check_interleavings, check_maxima, check_plain_sums, check_switches_agree, made
from switchml_targets import Bmv2Target, CompiledTarget, InterpreterTarget

from ina import codecs
from ina.aggregation import protocols
from ina.aggregation.controller.admission import Controller
from ina.aggregation.entries.requantised import PROGRAM
from ina.aggregation.wire import layout
from ina.aggregation.worker import SWITCH, Worker, WorkerConfig
from ina.base import paths
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import load
from ina.worlds.virtual.fabric import Fabric

need("cc")
VALUES = 32
HEAD = layout.load(VALUES).size(layout.HEAD)
TYPE = 42  # the frame's byte of type, overflow and size
PENDING, LANES, BYTES = 2, 9, 10
MALFORMED, WRONG_SOURCE = 1, 4  # of the program's drops
OTHERS = [pytest.param(InterpreterTarget, 250, marks=pytest.mark.build, id="interpreter"),
          pytest.param(Bmv2Target, 3000, marks=pytest.mark.hardware, id="bmv2"),
          pytest.param(Bmv2Target, MANY, marks=[pytest.mark.hardware, pytest.mark.judge], id="bmv2, many")]


def words(workers: int, count: int, seed: int = 0) -> list[np.ndarray]:
    """Lanes whose sums have room in 16 bits, the largest included."""
    rng = np.random.default_rng(seed)
    most = 0xFFFF // workers
    lanes = rng.integers(0, most, (workers, 2 * count), np.uint16, endpoint=True)
    lanes[:, : count // 8] = most
    return [each.view(np.int32) for each in lanes]


def rounded_sums(arrays: list[np.ndarray]) -> list[int]:
    """The definition, lane by lane."""
    sums = [sum(int(each) for each in lanes) for lanes in zip(*(array.view(np.uint16) for array in arrays), strict=True)]
    return [256 * min(255, int(np.floor(each / 256 + 0.5))) for each in sums]


@pytest.fixture(scope="module")
def program():
    return Program(compile_program(paths.p4_dir() / "requantised.p4", defines={"VALUES": str(VALUES), "SLOTS": "16"}).so_path)


def admitted(fabric: Fabric, hosts: list[str], timeout: float = 60.0):
    return fabric.admit(hosts, 8, VALUES, rto_min=50e-6, rto_max=2e-3, timeout=timeout)


@pytest.mark.build
def test_every_sum_of_16_bits_is_rounded_as_defined(program):
    """All 65,536, in both lanes, by one worker at the compiled switch."""
    every = np.arange(1 << 16, dtype=np.uint16)
    array = np.stack([every, every[::-1]], axis=1).reshape(-1).view(np.int32)
    expected = rounded_sums([array])
    assert PROGRAM.reduced(np.array([array])).view(np.uint16).tolist() == expected
    star = load("star", hosts=1)
    with Fabric(program, star, pool=16, protocol="requantised") as fabric:
        fabric.all_reduce(admitted(fabric, ["h1"]), [array], reduction=protocols.OWN).raise_failed()
    assert array.view(np.uint16).tolist() == expected


@pytest.mark.build
@pytest.mark.parametrize("topology", [STAR, TREE], ids=["star", "tree"])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_sums_are_rounded_once(program, topology, faults):
    """In a tree at the root: the leaf switches send sums of 16 bits up."""
    hosts = [host.name for host in topology.hosts]
    with Fabric(program, topology, pool=16, faults=faults, seed=3, protocol="requantised") as fabric:
        job = admitted(fabric, hosts)
        for seed in range(3):
            arrays = words(len(hosts), 5000 + seed, seed)
            expected = rounded_sums(arrays)
            fabric.all_reduce(job, arrays, reduction=protocols.OWN).raise_failed()
            assert all(array.view(np.uint16).tolist() == expected for array in arrays)
            check_maxima(fabric, job)
            check_plain_sums(fabric, job)


def worker(rank: int = 0, **options) -> Worker:
    return Worker(WorkerConfig(rank, 2, life=1, slots=2, values=VALUES, protocol="requantised", **options))


@pytest.mark.build
@pytest.mark.parametrize("options", [{"check": "keyed", "key": bytes(range(16))}, {}], ids=["keyed", "float32"])
def test_what_has_no_lanes_is_refused(options):
    with pytest.raises(OSError):
        worker(**options).submit(np.zeros(VALUES, np.int32 if options else np.float32), reduction=protocols.OWN)


def shortened(frame: bytes, payload: int, kind: int, size: int) -> bytes:
    """The worker's own frame of lanes as one of another kind and size, with right lengths and checksums."""
    data = bytearray(frame[: HEAD + payload])
    data[TYPE] = kind << 4 | size
    for at in (16, 38):
        data[at : at + 2] = (int.from_bytes(data[at : at + 2], "big") - len(frame) + len(data)).to_bytes(2, "big")
    data[24:26] = bytes(2)
    data[24:26] = ip_checksum(bytes(data[14:34])).to_bytes(2, "big")
    return sealed(bytes(data), HEAD - 12)


@pytest.mark.build
def test_lanes_come_from_below_and_bytes_from_above():
    """A worker's bytes would stand for a sum, and be multicast as the result. Lanes have values, and as many as there are."""
    switch = made("requantised", CompiledTarget, VALUES, {})
    switch.reset(4)
    controller = Controller(switch, 16, protocol="requantised")
    job = controller.admit("job", 2, 2)
    child = [controller.attach(job, rank, rank) for rank in range(2)][0]
    sender = Worker(WorkerConfig(0, 2, job=job.number, life=job.life, slots=2, values=VALUES, protocol="requantised",
                                 address=child.address, switch=SWITCH))
    sender.submit(words(1, VALUES)[0], reduction=protocols.OWN)
    (frame,) = (each for each in sender.frames_to_send(0) if each[TYPE] >> 4 == LANES)
    assert len(frame) == HEAD + 4 * VALUES
    for wrong, reason in ((shortened(frame, 2 * VALUES, BYTES, 0), WRONG_SOURCE), (shortened(frame, 0, LANES, 7), MALFORMED),
                          (shortened(frame, 0, BYTES, 7), MALFORMED)):
        before = switch.drops()
        assert not switch.send(wrong, 0)
        more = [count - was for count, was in zip(switch.drops(), before, strict=True)]
        assert {number for number, count in enumerate(more) if count} == {reason}
    assert not switch.send(frame, 0), "it is taken, and waits for the other's"
    assert switch.send(frame, 0)[0][1][TYPE] >> 4 == PENDING


@pytest.mark.build
@pytest.mark.parametrize("tree", [False, True], ids=["star", "tree"])
def test_interleavings_of_two_workers(tree):
    check_interleavings(PROGRAM, tree, lambda workers: words(workers, 2 * VALUES))


@pytest.mark.parametrize(("other", "packets"), OTHERS)
def test_switches_agree_on_all_packets(other, packets):
    check_switches_agree("requantised", other, packets, lambda seed: words(3, 6 * VALUES, seed))


@pytest.mark.build
def test_the_codec_sums_as_numpy_does(program):
    """Its words through the switch, and its results."""
    rng = np.random.default_rng(4)
    tensors = [rng.standard_normal(3000).astype(np.float32) for _ in range(4)]
    codec = codecs.named("lanes-16-8")
    expected = codecs.reduced(codec, tensors)
    running = [codec.reduce(tensor, codecs.Call(4, rank)) for rank, tensor in enumerate(tensors)]
    results: list[np.ndarray] = []
    with Fabric(program, TREE, pool=16, protocol="requantised") as fabric:
        job = admitted(fabric, [host.name for host in TREE.hosts])
        sent: list[np.ndarray | None] = [None] * 4
        while not results:
            rounds = []
            for generator, words_back in zip(running, sent, strict=True):
                try:
                    rounds.append(generator.send(words_back))
                except StopIteration as end:
                    results.append(end.value)
            if rounds:
                sent = [each.words for each in rounds]
                fabric.all_reduce(job, sent, reduction=int(rounds[0].operation)).raise_failed()
    assert all(np.array_equal(own, each) for own, each in zip(results, expected, strict=True))
    assert np.all(np.abs(expected[0] - np.sum(tensors, axis=0, dtype=np.float64)) <= codec.bound(tensors))
