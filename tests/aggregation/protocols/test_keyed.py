"""Check words of mode keyed: published vectors, a model of the tags, many workers, sums that wrap, and forged results."""

from __future__ import annotations

import random

import model_network
import numpy as np
import pytest
from siphash_model import MASK, siphash

from ina.aggregation.wire import layout
from ina.aggregation.worker import JobCorrupt, Worker, WorkerConfig
from ina.base.native import lib
from ina.net.ports import Address

KEY = bytes(range(16))
WIRE = layout.load(32)
HEADERS = WIRE.size(layout.HEAD)

# SipHash-2-4 of 00 01 02 ... with the key 00 01 ... 0f, by length (Aumasson and Bernstein's reference: vectors.h)
VECTORS = {8: "6224939a79f5f593", 15: "e545be4961ca29a1", 16: "db9bc2577fcc2a3f"}


def word(number: int, use: int, exponent: int = 0, index: int = 0) -> int:
    return siphash(KEY, number.to_bytes(8, "little") + (use << 56 | (exponent & 0xFF) << 40 | index).to_bytes(8, "little"))


def tag(number: int, worker: int, values: list[int], exponent: int = 0, own: bool = False) -> int:
    pads = [word(number, 0, exponent, index) if index else 0 for index in (worker, worker + 1)]
    hashed = sum(word(i, 1) * value for i, value in enumerate(values))
    return (hashed + pads[0] - pads[1] + (word(number, 2, exponent) if own else 0)) & MASK


def machines(workers: int, values: int = 32, **options) -> list[Worker]:
    own = [Address(f"02:00:00:00:{i >> 8:02x}:{i & 255:02x}", f"10.1.{i >> 8}.{i & 255}", 4000) for i in range(workers)]
    return [Worker(WorkerConfig(i, workers, life=1, slots=4, values=values, check="keyed", key=KEY, address=address, **options))
            for i, address in enumerate(own)]


def words(frame: bytes) -> tuple[int, np.ndarray]:
    """The frame's tag and its values."""
    check = WIRE.unpack(frame, layout.HEAD)["check"]
    return check["check1"] << 32 | check["check0"], np.frombuffer(frame, ">i4", offset=HEADERS)


def result(frame: bytes, tag_: int | tuple[int, int], values: np.ndarray, overflow: bool = False, **fields) -> bytes:
    """A frame of the switch to the sender of `frame`: its addresses turned, with other values and check words."""
    headers = WIRE.unpack(frame, layout.HEAD)
    ip, udp = headers["ipv4"], headers["udp"]
    ip["src_addr"], ip["dst_addr"] = ip["dst_addr"], ip["src_addr"]
    udp["src_port"], udp["dst_port"] = udp["dst_port"], udp["src_port"]
    headers["switchml"].update(overflow=int(overflow))
    high, low = tag_ if isinstance(tag_, tuple) else (tag_ >> 32, tag_)
    headers["check"] |= {"check0": low & 0xFFFFFFFF, "check1": high & 0xFFFFFFFF, "headers": 0}
    headers["check"]["headers"] = layout.checksum(WIRE.pack(**headers)[42:HEADERS])
    return WIRE.pack(**headers)[:HEADERS] + values.astype(">i4").tobytes()


def added(frames: list[bytes]) -> tuple[tuple[int, int], np.ndarray, bool]:
    """A switch's sum: each check word and value by itself, modulo 2^32."""
    tags, values = zip(*map(words, frames), strict=True)
    high, low = sum(t >> 32 for t in tags) & 0xFFFFFFFF, sum(t & 0xFFFFFFFF for t in tags) & 0xFFFFFFFF
    exact = np.sum([v.astype(np.int64) for v in values], axis=0)
    sums = exact.astype(np.int32)
    return (high, low), sums, bool((sums != exact).any())


@pytest.mark.fast
@pytest.mark.parametrize("length", VECTORS)
def test_the_model_computes_published_vectors(length):
    assert siphash(KEY, bytes(range(length))) == int.from_bytes(bytes.fromhex(VECTORS[length]), "little")


@pytest.mark.fast
def test_tags_are_the_models():
    values = np.random.default_rng(1).integers(-(2**31), 2**31, 200, np.int32)
    for index, worker in enumerate(machines(3)):
        worker.submit(values, now=0)
        frames = worker.frames_to_send(0)
        for number, frame in enumerate(frames):
            sent, carried = words(frame)
            assert sent == tag(number, index, carried.tolist())
        assert len(frames) == 4


@pytest.mark.fast
def test_tags_name_a_worker_whose_exponent_was_agreed():
    """Worker 1's values are larger: the block's exponent is its own."""
    group = machines(2)
    for scale, worker in zip((1, 16), group, strict=True):
        worker.submit(np.full(40, scale, np.float32), now=0)
    for _ in range(2):
        frames = [worker.frames_to_send(0) for worker in group]
        for both in zip(*frames, strict=True):
            sums, values, overflow = added(list(both)) if len(both[0]) > HEADERS else ((0, 0), np.zeros(0), False)
            exponent = max(WIRE.unpack(frame, layout.HEAD)["exponents"]["e0"] for frame in both)
            for worker, frame in zip(group, both, strict=True):
                edited = edit_exponent(frame, exponent)
                worker.receive(result(edited, sums, values, overflow), 1)
    blocks = [worker.frames_to_send(0) or sent for worker, sent in zip(group, frames, strict=True)]
    sent = [words(frames[0]) for frames in blocks]
    owners = [tag(2, index, values.tolist(), 4, own) == number
              for index, (own, (number, values)) in enumerate(zip((False, True), sent, strict=True))]
    assert owners == [True, True]


def edit_exponent(frame: bytes, exponent: int) -> bytes:
    headers = WIRE.unpack(frame, layout.HEAD)
    headers["exponents"]["e0"] = exponent
    return WIRE.pack(**headers)[:HEADERS] + frame[HEADERS:]


@pytest.mark.fast
@pytest.mark.parametrize("workers", [1, 2, 33, 1024])
@pytest.mark.parametrize("wraps", [False, True])
def test_sums_of_many_workers_fit(workers, wraps):
    """Carries between the words are lost in switches: there are up to n - 1."""
    rng, most = np.random.default_rng(workers), 2**31 if wraps else 2**20
    group = machines(workers)
    tensors = rng.integers(-most, most, (workers, 70), np.int32)
    outs = np.zeros_like(tensors)
    for worker, row, out in zip(group, tensors, outs, strict=True):
        worker.submit(row, out, now=0)
    for frames in zip(*(worker.frames_to_send(0) for worker in group), strict=True):
        sums, values, overflow = added(list(frames))
        for worker, frame in zip(group, frames, strict=True):
            worker.receive(result(frame, sums, values, overflow), 1)
    assert (outs == tensors.sum(axis=0, dtype=np.int32)).all()
    assert all(worker.stats["drop_corrupt"] == 0 for worker in group)


class Attacker:
    """It sees every frame, of all workers and phases, and sends results to one worker, whose state is restored after each."""

    def __init__(self, dtype, workers: int = 3, phases: int = 12, seed: int = 1):
        rng = np.random.default_rng(seed)
        self.random = random.Random(seed)
        self.group = machines(workers)
        self.tensors = (rng.standard_normal((workers, 32 * phases)) * 1000).astype(dtype)
        for worker, row in zip(self.group, self.tensors, strict=True):
            worker.submit(row, now=0)
        self.seen: list[list[bytes]] = []  # of each phase the workers' frames
        while True:
            rounds = list(zip(*(worker.frames_to_send(0) for worker in self.group), strict=True))
            for frames in rounds:
                if len(frames[0]) > HEADERS:
                    self.seen.append(list(frames))
            if len(self.seen) >= phases:
                break
            for frames in rounds:
                self.answer(list(frames))
        self.victim, self.frame = self.group[0], self.seen[-1][0]
        self.before = self.victim.snapshot()
        self.template, self.overflown = (bytearray(result(self.frame, 0, np.zeros(0), flag)) for flag in (False, True))
        for head in (self.template, self.overflown):
            head[HEADERS - 10 : HEADERS - 8] = bytes(2)

    def answer(self, frames: list[bytes]) -> None:
        exponent = max(WIRE.unpack(frame, layout.HEAD)["exponents"]["e0"] for frame in frames)
        sums, values, overflow = added(frames) if len(frames[0]) > HEADERS else ((0, 0), np.zeros(0), False)
        for worker, frame in zip(self.group, frames, strict=True):
            worker.receive(result(edit_exponent(frame, exponent), sums, values, overflow), 1)

    def is_accepted(self, sums: tuple[int, int], values: np.ndarray, overflow: bool = False) -> bool:
        before = self.victim.stats
        head = bytearray(self.overflown if overflow else self.template)
        head[HEADERS - 8 :] = sums[1].to_bytes(4, "big") + sums[0].to_bytes(4, "big")
        head[HEADERS - 10 : HEADERS - 8] = layout.checksum(bytes(head[42:])).to_bytes(2, "big")
        self.victim.receive(bytes(head) + values.astype(">i4").tobytes(), 2)
        after = self.victim.stats
        if after["results"] == before["results"]:
            assert after["drop_corrupt"] == before["drop_corrupt"] + 1
        self.victim.restore(self.before)
        return after["results"] != before["results"]

    def attempt(self) -> tuple[tuple[int, int], np.ndarray]:
        """A forged result that differs from the right one, made of what was seen."""
        sums, right, _ = added(self.seen[-1])
        values, kind = right.astype(np.int64).copy(), self.random.randrange(6)
        place = self.random.randrange(len(values))
        if kind == 0:  # a guess
            values[place] += self.random.randrange(1, 2**32)
            sums = self.random.getrandbits(32), self.random.getrandbits(32)
        elif kind == 1:  # another value, or only its highest bit, with the right tag
            values[place] += self.random.choice([1, -1, 2**31, 2**30, 2**16])
        elif kind == 2:  # another number's result
            sums, other, _ = added(self.random.choice(self.seen[:-1]))
            values = other.astype(np.int64)
        elif kind == 3:  # the difference of two workers' packets of this number, values and tags
            (a, first), (b, second) = (words(frame) for frame in self.random.sample(self.seen[-1], 2))
            sums = combined(sums, a, b)
            values += first.astype(np.int64) - second
        elif kind == 4:  # the difference of two earlier results
            (a, first, _), (b, second, _) = (added(frames) for frames in self.random.sample(self.seen[:-1], 2))
            sums = combined(sums, a[0] << 32 | a[1], b[0] << 32 | b[1])
            values += first.astype(np.int64) - second
        else:  # the same once more, or nothing
            factor = self.random.choice([0, 2, 3, -1])
            sums = sums[0] * factor & 0xFFFFFFFF, sums[1] * factor & 0xFFFFFFFF
            values *= factor
        return sums, values.astype(np.int32)


def combined(sums: tuple[int, int], plus: int, minus: int) -> tuple[int, int]:
    return (sums[0] + (plus >> 32) - (minus >> 32)) & 0xFFFFFFFF, (sums[1] + plus - minus) & 0xFFFFFFFF


@pytest.mark.fast
@pytest.mark.parametrize(("dtype", "attempts"), [(np.int32, 2_000), (np.float32, 2_000)])
def test_no_forged_result_is_accepted(dtype, attempts):
    forge(dtype, attempts)


@pytest.mark.build
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_no_forged_result_of_many_is_accepted(dtype):
    forge(dtype, 10_000)


def forge(dtype, attempts: int) -> None:
    attacker = Attacker(dtype)
    sums, right, overflow = added(attacker.seen[-1])
    for _ in range(attempts):
        forged, values = attacker.attempt()
        if not np.array_equal(values, right):
            assert not attacker.is_accepted(forged, values), (forged, values - right)
    assert attacker.is_accepted(sums, right, overflow), "the right one is"


@pytest.mark.fast
def test_the_flag_of_an_overflow_does_not_help_with_floats():
    attacker = Attacker(np.float32)
    sums, right, _ = added(attacker.seen[-1])
    for place in range(32):
        flipped = right ^ np.where(np.arange(32) == place, -(2**31), 0).astype(np.int32)
        assert not attacker.is_accepted(sums, flipped, overflow=True)


@pytest.mark.fast
def test_an_exponent_that_no_worker_has_fails_the_job():
    """Somebody enlarges the exponents on their way up: all workers would round their values away."""
    network = Raising(2, slots=4, values=32, check="keyed", key=KEY)
    values = np.random.default_rng(1).standard_normal((2, 400)).astype(np.float32)
    for worker, row in zip(network.workers, values, strict=True):
        worker.submit(row, now=0)
    errors = [event.error() for events in network.run() for event in events]
    assert errors and all(isinstance(error, JobCorrupt) for error in errors)


class Raising(model_network.Network):
    def _send(self, worker, port, frame):
        if worker is None and frame[50] != 0x80:
            headers = WIRE.unpack(frame, layout.HEAD)
            headers["exponents"]["e0"] = 60
            headers["check"]["headers"] = 0
            headers["check"]["headers"] = layout.checksum(WIRE.pack(**headers)[42:HEADERS])
            frame = WIRE.pack(**headers)[:HEADERS] + frame[HEADERS:]
        super()._send(worker, port, frame)


@pytest.mark.fast
def test_any_bytes_are_safe():
    attacker, rng = Attacker(np.int32), random.Random(2)
    sums, right, overflow = added(attacker.seen[-1])
    frame = result(attacker.frame, sums, right, overflow)
    for _ in range(3_000):
        hostile = bytearray(frame[: rng.choice([len(frame), rng.randrange(len(frame))])])
        for _ in range(rng.randrange(1, 4)):
            if hostile:
                hostile[rng.randrange(len(hostile))] = rng.randrange(256)
        before = attacker.victim.stats["results"]
        attacker.victim.receive(bytes(hostile), 2)
        is_same = bytes(hostile[42:]) == frame[42:]  # a worker does not need Ethernet, nor all of IPv4 and UDP
        assert attacker.victim.stats["results"] == before or is_same
        attacker.victim.restore(attacker.before)


@pytest.mark.fast
def test_a_key_is_needed_and_no_maxima_are_taken():
    for key in (b"", bytes(15), bytes(16)):
        with pytest.raises(ValueError, match="key: .* bytes, expected 16|bad|refuses"):
            Worker(WorkerConfig(0, 1, life=1, check="keyed", key=key))
    with pytest.raises(ValueError, match="none without"):
        WorkerConfig(0, 1, life=1, check="sum", key=KEY)
    (worker,) = machines(1)
    with pytest.raises(OSError, match="submit refused"):
        worker.submit(np.zeros(3, np.int32), reduction=lib.INA_MAX)
    assert KEY.hex() not in repr(worker.config) and repr(KEY) not in repr(worker.config)
