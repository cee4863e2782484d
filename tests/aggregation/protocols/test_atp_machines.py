"""ATP's worker and parameter server alone: frames in, frames out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_switch import ip_checksum

from ina.aggregation.ps.state_machine import ParameterServer, ServerConfig
from ina.aggregation.worker import Worker, WorkerConfig, worker_address
from ina.aggregation.worker.config import ATP_SWITCH, SERVER
from ina.aggregation.worker.offer import Offer

pytestmark = pytest.mark.build


def worker(index: int, workers: int, **options) -> Worker:
    options = {"slots": 4, "values": 32, "protocol": "atp", "switch": ATP_SWITCH} | options
    return Worker(WorkerConfig(index, workers, life=1, **options))


def server(workers: int, **options) -> ParameterServer:
    if options.get("direct"):
        options["worker_addresses"] = tuple(worker_address(0, i) for i in range(workers))
    return ParameterServer(ServerConfig(workers, life=1, **{"slots": 4, "values": 32} | options))


def relayed(frame: bytes) -> bytes:
    """A worker's frame as the switch passes it on to the server."""
    head = bytearray(frame)
    head[26:34] = bytes([10, 0, 255, 254, 10, 0, 255, 253])
    head[34:38] = ATP_SWITCH.port.to_bytes(2, "big") + SERVER.port.to_bytes(2, "big")
    return bytes(head)


def to_worker(frame: bytes, index: int) -> bytes:
    """A server's frame as the switch passes it on."""
    head, own = bytearray(frame), worker_address(0, index)
    head[26:34] = bytes([10, 0, 255, 254, *map(int, own.ip.split("."))])
    head[34:38] = ATP_SWITCH.port.to_bytes(2, "big") + own.port.to_bytes(2, "big")
    return bytes(head)


def test_a_plain_server_answers_each_worker_at_its_own_address():
    """No switch at all between them."""
    workers = [worker(i, 3, protocol="ps", server=SERVER) for i in range(3)]
    ps = server(3, direct=True)
    rows = np.random.default_rng(1).standard_normal((3, 1000)).astype(np.float32)
    expected = rows.astype(np.float64).sum(axis=0)
    for w, row in zip(workers, rows, strict=True):
        w.submit(row)
    for _ in range(100):
        for w in workers:
            for frame in w.frames_to_send(0):
                ps.receive(frame, 0)
        for frame in ps.frames_to_send(0):
            workers[frame[33] - 1].receive(frame, 0)
    assert [[e.code for e in w.events()] for w in workers] == [[0]] * 3
    np.testing.assert_allclose(rows[0], expected, atol=1e-6)
    stats = ps.stats
    assert stats["drop_foreign"] == stats["overlaps"] == 0 and stats["tx_packets"] == 3 * stats["results"]


def test_a_plain_server_hears_each_worker_only_from_its_own_address():
    ps, first = server(3, direct=True), worker(0, 3, protocol="ps", server=SERVER)
    first.submit(np.zeros(1, np.int32))
    frame = bytearray(first.frames_to_send(0)[0])
    frame[57] = 0b010
    ps.receive(resealed(frame), 0)
    frame[57] = 0b011
    ps.receive(resealed(frame), 0)
    assert ps.stats["drop_foreign"] == 2 and ps.frames_to_send(0) == []


def resealed(frame: bytes | bytearray) -> bytes:
    """The frame, changed in its headers, with a right checksum."""
    frame = bytearray(frame)
    frame[60:62] = bytes(2)
    frame[60:62] = ip_checksum(frame[42:70]).to_bytes(2, "big")
    return bytes(frame)


@pytest.mark.parametrize("padding", [b"", bytes(2), bytes([0x5A]) * 18])
def test_cut_frames_are_dropped_and_padded_ones_are_whole(padding):
    """Every prefix of every frame comes before it, into both machines; a datagram may be followed by Ethernet's padding."""
    ps, workers = server(2, direct=True), [worker(i, 2, protocol="ps", server=SERVER) for i in range(2)]
    arrays = [np.arange(70, dtype=np.int32) + 100 * i for i in range(2)]
    expected, cut = arrays[0] + arrays[1], {ps: 0, workers[0]: 0, workers[1]: 0}

    def receive(machine: Worker | ParameterServer, frame: bytes) -> None:
        for length in range(len(frame)):
            machine.receive(frame[:length], 0)
        cut[machine] += len(frame)
        machine.receive(frame + padding, 0)

    for w, array in zip(workers, arrays, strict=True):
        w.submit(array)
    for _ in range(5):
        for w in workers:
            for frame in w.frames_to_send(0):
                receive(ps, frame)
        for frame in ps.frames_to_send(0):
            receive(workers[frame[33] - 1], frame)
    assert [[e.code for e in w.events()] for w in workers] == [[0]] * 2
    assert (arrays[0] == expected).all() and (arrays[1] == expected).all()
    assert {machine: machine.stats["drop_malformed"] for machine in cut} == cut and ps.stats["results"] > 2


def test_parts_that_overlap_are_not_added_and_a_resend_hears_whom_the_server_has():
    ps, workers = server(3), [worker(i, 3, options={"check": 0}) for i in range(3)]
    for w in workers:
        w.submit(np.ones(20, np.int32))
    frames = [relayed(w.frames_to_send(0)[0]) for w in workers]
    part = bytearray(frames[0])
    part[57] = 0b011
    ps.receive(resealed(part), 0)
    for resend in (0, 8):
        again = bytearray(frames[1])
        again[42] |= resend
        ps.receive(resealed(again), 0)
    (pending,) = ps.frames_to_send(0)
    assert pending[42] >> 4 == 5 and pending[54:58] == bytes([0, 0, 0, 0b010]) and pending[70:74] == bytes([0, 0, 0, 0b011])
    assert ps.stats["overlaps"] == 2 and ps.stats["merged_partial"] == 1
    ps.receive(frames[2], 0)
    (result,) = ps.frames_to_send(0)
    assert result[42] >> 4 == 3 and result[57] == 0b111
    again = bytearray(frames[1])
    again[42] |= 8
    ps.receive(resealed(again), 0)
    (repeated,) = ps.frames_to_send(0)
    assert repeated[:42] == result[:42] and repeated[57] == 0b010 and repeated[62:] == result[62:]


def test_a_packet_whose_check_words_do_not_fit_leaves_a_complete_row_as_it_is():
    """Were the row begun anew for it, late packets of the old phase would fill it in part, and no other would get it."""
    ps, workers = server(2), [worker(i, 2) for i in range(2)]
    for w in workers:
        w.submit(np.ones(20, np.int32))
    frames = [relayed(w.frames_to_send(0)[0]) for w in workers]
    for frame in frames:
        ps.receive(frame, 0)
    (result,) = ps.frames_to_send(0)
    later, floats = bytearray(frames[0]), bytearray(frames[0])
    later[53] = 2 * 4  # the next number of the row, of which these are not the words
    floats[42] = 0x28
    for frame in (later, floats):
        ps.receive(resealed(frame), 0)
    assert ps.stats["drop_corrupt"] == 2 and ps.frames_to_send(0) == []
    again = bytearray(frames[1])
    again[42] |= 8
    ps.receive(resealed(again), 0)
    (repeated,) = ps.frames_to_send(0)
    assert repeated[42] >> 4 == 3 and repeated[62:] == result[62:]


def test_a_worker_that_the_server_lacks_sends_again_at_once():
    w = worker(1, 3)
    w.submit(np.ones(20, np.int32))
    (frame,) = w.frames_to_send(0)
    pending = bytearray(to_worker(relayed(frame), 1)[:70] + bytes(4))
    pending[16:18], pending[38:40] = (60).to_bytes(2, "big"), (40).to_bytes(2, "big")
    pending[42] = 0x50
    for seen, dest, again in ((0b010, 0b111, 0), (0b001, 0b001, 0), (0b001, 0b010, 1), (0b101, 0b111, 1)):
        pending[57], pending[73] = dest, seen
        w.receive(resealed(pending), 0)
        sent = w.frames_to_send(0)
        assert [f[42] for f in sent] == [0x18] * again


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_bytes_are_dropped_and_counted(data):
    """Random bytes, and real frames with bytes changed, cut and grown, into both machines."""
    ps, workers = server(2), [worker(i, 2, reply_in_place=data.draw(st.booleans())) for i in range(2)]
    for w in workers:
        w.submit(np.zeros(100, np.float32), offer=data.draw(st.sampled_from([None, Offer(2)])))
    up = [relayed(f) for w in workers for f in w.frames_to_send(0)]
    down = []
    for frame in up:
        ps.receive(frame, 0)
        down += [to_worker(f, 0) for f in ps.frames_to_send(0)]
    before = ps.stats, workers[0].stats
    count = data.draw(st.integers(1, 10))
    for _ in range(count):
        frame = bytearray(data.draw(st.sampled_from(up + down) | st.binary(max_size=200)))
        for at in data.draw(st.lists(st.integers(0, 61), max_size=3)):
            if at < len(frame):
                frame[at] ^= 1 << data.draw(st.integers(0, 7))
        frame = bytes(frame[: data.draw(st.integers(0, len(frame)))] if data.draw(st.booleans()) else frame)
        ps.receive(frame, 1)
        workers[0].receive(frame, 1)
        ps.frames_to_send(1)
        workers[0].frames_to_send(1)
    outcomes = ("merged_raw", "merged_partial", "overlaps", "drop_malformed", "drop_foreign", "drop_stale", "drop_corrupt",
                "drop_version")
    assert sum(ps.stats[k] - before[0][k] for k in outcomes) == count
    drops = ("results", "duplicates", "pending_replies", "drop_malformed", "drop_foreign", "drop_stale", "drop_corrupt",
             "drop_version")
    mismatch = any(event.code for event in workers[0].events())  # a result whose fingerprint is another's ends the job
    assert sum(workers[0].stats[k] - before[1][k] for k in drops) + mismatch == count


def test_states_are_values():
    """Snapshots taken at any time go on to the same bytes."""
    ps, workers = server(2), [worker(i, 2, options={"window": 2}) for i in range(2)]
    outs = [np.zeros(3000, np.float32) for _ in workers]
    for i, w in enumerate(workers):
        w.submit(np.arange(3000, dtype=np.float32) + i, outs[i])

    def run(rounds: int) -> list[bytes]:
        sent = []
        for _ in range(rounds):
            for w in workers:
                for frame in w.frames_to_send(0):
                    sent.append(frame)
                    ps.receive(relayed(frame), 0)
            for frame in ps.frames_to_send(0):
                sent.append(frame)
                for i, w in enumerate(workers):
                    w.receive(to_worker(frame, i), 0)
        return sent

    run(5)
    saved = [m.snapshot() for m in (ps, *workers)]
    once, states = run(40), [m.snapshot() for m in (ps, *workers)]
    for machine, snapshot in zip((ps, *workers), saved, strict=True):
        machine.restore(snapshot)
    assert run(40) == once and [m.snapshot() for m in (ps, *workers)] == states
    assert len(once) > 30 and [e.code for e in workers[0].events()] == [0]
    with pytest.raises(ValueError, match="of another configuration"):
        ps.restore(saved[1])


def test_the_congestion_window():
    """It grows by a packet a result, halves once for what was on its way together, and never ends."""
    ps, w = server(1, slots=64), worker(0, 1, slots=64, options={"window": 4})
    w.submit(np.zeros(32 * 3000, np.int32))
    windows = []
    for n in range(30):
        frames = w.frames_to_send(0)
        windows.append(len(frames))
        for frame in frames:
            ps.receive(relayed(frame), 0)
        for frame in ps.frames_to_send(0):
            marked = bytearray(to_worker(frame, 0))
            marked[42] |= 2 * (n in (5, 6, 20))
            w.receive(resealed(marked), 0)
    assert windows[:6] == [4, 8, 16, 32, 64, 64]
    assert windows[6] == 32 and windows[7] == 16 and windows[8:13] == [16, 17, 18, 19, 20]
    assert windows[21] == windows[20] // 2 and w.stats["marked"] > 3


@pytest.mark.parametrize(
    ("config", "text"),
    [({"workers": 33}, "workers: 33"), ({"slots": 3}, "power of two"), ({"values": 100}, "values: 100"),
     ({"job": 256}, "job: 256"), ({"worker_addresses": (SERVER,)}, "worker_addresses: 1, expected 0"),
     ({"direct": True}, "worker_addresses: 0, expected 2")],
)
def test_configuration_is_checked(config, text):
    with pytest.raises(ValueError, match=text):
        ServerConfig(**{"workers": 2, "life": 1} | config)
    with pytest.raises(ValueError, match="window: 9000"):
        WorkerConfig(0, 2, life=1, protocol="atp", options={"window": 9000})
    with pytest.raises(ValueError, match="exponent: 127"):
        WorkerConfig(0, 2, life=1, protocol="atp", options={"exponent": 127})
