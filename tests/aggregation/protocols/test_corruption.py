"""Bits that change on the way, past every link's checksum: no sum may be wrong, and each job must end."""

from __future__ import annotations

import atp_network
import model_network
import numpy as np
import pytest
from switchml_targets import World, close_targets, open_target

from ina.aggregation.wire import layout
from ina.aggregation.worker import JobCorrupt, VersionRefused, Worker, WorkerConfig
from ina.base.native import lib

WORKERS = 2
CHECKS: dict[str, dict] = {"sum": {"check": "sum"}, "keyed": {"check": "keyed", "key": bytes(range(16))}}
KINDS = {"int32": np.int32, "float32": np.float32}
VALUES = 8 * 56  # the check words, then values: bits in front of them are compared at each hop


def rows(dtype, count: int = 70) -> np.ndarray:
    values = np.random.default_rng(1).standard_normal((WORKERS, count)) * 1000
    return values.astype(dtype)


class Flipping:
    """A network that flips one bit of the frame number `at`, counted from 0. `bits`: the length of that frame."""

    at, bit, bits = -1, 0, 0

    def flipped(self, number: int, frame: bytes) -> bytes:
        if number != self.at:
            return frame
        self.bits = 8 * len(frame)
        changed = bytearray(frame)
        changed[self.bit // 8 % len(frame)] ^= 0x80 >> self.bit % 8
        return bytes(changed)


class SwitchML(Flipping, model_network.Network):
    def __init__(self, **options):
        super().__init__(WORKERS, slots=4, values=32, rto_min=40e-6, rto_max=1e-3, **options)

    def _send(self, worker, port, frame):
        super()._send(worker, port, self.flipped(self.frames, frame))

    def reduce(self, tensor: np.ndarray) -> list[int]:
        for worker, row in zip(self.workers, tensor, strict=True):
            worker.submit(row, now=self.now)
        return [event.code for events in self.run() for event in events]

    def corrupt(self) -> int:
        return self.counted("drop_corrupt")

    def counted(self, counter: str) -> int:
        return sum(worker.stats[counter] for worker in self.workers)


class Running:
    """A job on the program on an embedded switch, in the place of a model switch."""

    def __init__(self, target: str):
        self.world = World(open_target(target, 32), ports=WORKERS)
        self.job = self.world.admit(WORKERS, slots=4)

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        return self.world.send(frame, port)


class Compiled(SwitchML):
    target = "compiled"

    def __init__(self, **options):
        running = Running(self.target)
        super().__init__(life=running.job.admitted.life, **options)
        self.switch = running


class Twin(Compiled):
    target = "tna"


class ATP(Flipping, atp_network.Network):
    plain, leaves, source = False, 0, "atp.p4"

    def __init__(self, **options):
        spec = atp_network.JobSpec(WORKERS, slots=4, plain=self.plain, options=options)
        super().__init__([spec], leaves=self.leaves, compiled=atp_network.program(16, source=self.source))

    def _send(self, source, to, frame):
        super()._send(source, to, self.flipped(self.frames, frame))

    def reduce(self, tensor: np.ndarray) -> list[int]:
        self.submit(0, tensor)
        return [event.code for events in self.run()[0] for event in events]

    def corrupt(self) -> int:
        return self.counted("drop_corrupt") + self.jobs[0].server.stats["drop_corrupt"]

    def counted(self, counter: str) -> int:
        return sum(worker.stats[counter] for worker in self.jobs[0].workers)


class TwoLevels(ATP):
    leaves = 2


class Server(ATP):
    plain = True


class TwinATP(ATP):
    source = "tofino/atp.p4"


NETWORKS = {"switchml": SwitchML, "compiled": Compiled, "tna": Twin,
            "atp": ATP, "atp-tree": TwoLevels, "ps": Server, "atp-tna": TwinATP}
STRIDES = {"switchml": 79, "atp-tree": 293, "atp-tna": 587}
ADDING = {"switchml", "compiled", "tna"}  # without looking


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    close_targets()


BUILD, LATER = [pytest.mark.build], [pytest.mark.build, pytest.mark.later]
MARKS = {"switchml": [pytest.mark.fast], "tna": BUILD, "atp": BUILD}
MARKED = [pytest.param(name, marks=MARKS.get(name, LATER)) for name in NETWORKS]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", MARKED)
def test_no_flipped_bit_makes_a_wrong_sum(name, dtype, check):
    """One bit of one frame, of every frame: a prime stride over its bits, so that together all places of a byte come.

    A server drops what does not fit, and the workers' resends mend it. A switch of SwitchML adds without looking, so the sum is
    spoilt: then the job fails. Every other flip is mended there, too. With a key a server does not look at integers either; a
    sum of theirs may be wrong if it says that it does not fit in 32 bits: the flip of a highest bit is no more than that.
    """
    right = rows(KINDS[dtype])
    whole = NETWORKS[name](**CHECKS[check])
    assert whole.reduce(right) == [0] * WORKERS
    noticed = 0
    for at in range(whole.frames):
        for bit in range(at, 8 * 200, STRIDES.get(name, 193)):
            network, result = NETWORKS[name](**CHECKS[check]), rows(KINDS[dtype])
            network.at, network.bit = at, bit
            codes = network.reduce(result)
            spoilt = (name in ADDING or check == "keyed") and bit >= VALUES and set(codes) == {lib.INA_ERR_CORRUPT}
            assert codes == [0] * WORKERS or spoilt, (at, bit, codes)
            wrapped = dtype == "int32" and check == "keyed" and network.counted("overflows") > 0
            assert spoilt or wrapped or result.tobytes() == right.tobytes(), (at, bit)
            noticed += network.corrupt() > 0
    assert noticed > whole.frames


@pytest.mark.parametrize("name", MARKED)
def test_without_check_words_a_flipped_value_is_a_wrong_sum(name):
    wrong = 0
    for word, found in ((0, 0), (1, None)):
        network, result = NETWORKS[name](check=("off", "sum")[word]), rows(np.int32)
        network.at, network.bit = 2, 8 * 100 + 31
        codes = network.reduce(result)
        right = result.tobytes() == rows(np.int32).sum(axis=0, dtype=np.int32).tobytes() * WORKERS
        wrong += codes == [0] * WORKERS and not right
        assert word or network.corrupt() == found
    assert wrong == 1


class Spoiling(SwitchML):
    """A switch whose memory changes a value of each result of one packet."""

    def _send(self, worker, port, frame):
        if worker is not None and frame[47] == 2 and len(frame) > 100:
            frame = frame[:80] + bytes([frame[80] ^ 1]) + frame[81:]
        super()._send(worker, port, frame)


@pytest.mark.fast
def test_a_spoilt_row_fails_the_job_and_names_the_packet():
    network = Spoiling()
    network.reduce(rows(np.int32))
    errors = [event.error() for events in network.events for event in events]
    assert len(errors) == WORKERS and all(isinstance(error, JobCorrupt) for error in errors)
    assert all("packet (tsi) 2, slot 2" in str(error) for error in errors)
    assert network.corrupt() == 3 * WORKERS


def forged(frame: bytes, version: int) -> bytes:
    """The switch's refusal of a packet: its addresses turned, type 4, the switch's version."""
    wire = layout.load(32)
    headers = wire.unpack(frame, layout.HEAD)
    ip, udp = headers["ipv4"], headers["udp"]
    ip["src_addr"], ip["dst_addr"], ip["total_len"] = ip["dst_addr"], ip["src_addr"], 50
    udp["src_port"], udp["dst_port"], udp["length"] = udp["dst_port"], udp["src_port"], 30
    headers["switchml"].update(msg_type=4, size=7)
    headers["check"] = {"version": version}
    headers["check"]["headers"] = layout.checksum(wire.pack(**headers)[42:])
    return wire.pack(**headers)


@pytest.mark.fast
@pytest.mark.parametrize(("version", "older"), [(1, "the switch's machine"), (3, "the worker's machine")])
def test_a_worker_that_is_refused_says_which_side_is_older(version, older):
    worker = Worker(WorkerConfig(0, 1, life=1, slots=4, values=32))
    worker.submit(np.zeros(1000, np.int32), now=0)
    worker.receive(forged(worker.frames_to_send(0)[0], version), 1)
    (event,) = worker.events()
    error = event.error()
    assert isinstance(error, VersionRefused)
    assert f"the switch speaks wire version {version}, this worker 2: upgrade ina on {older}" in str(error)


@pytest.mark.fast
def test_wire_versions_agree():
    assert layout.load().constants["WIRE_VERSION"] == layout.load_atp().constants["WIRE_VERSION"] == lib.INA_WIRE_VERSION
