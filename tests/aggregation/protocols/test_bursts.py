"""Frames that a worker receives and fills in bursts, as drivers do, against the same frames one by one."""

import random
from dataclasses import replace

import numpy as np
import pytest
from model_network import US, Network

from ina.aggregation.worker import Worker, WorkerConfig
from ina.base.native import ffi

pytestmark = pytest.mark.fast
BURST = 16
ESTIMATES = {"srtt_ps", "rttvar_ps", "rto_ps"}  # a burst is one sample of the round trip


def packets(worker: Worker, frames: list[bytes]) -> tuple[object, list[object]]:
    """Descriptors of frames with room for the worker's longest one, and their memory."""
    room = worker.config.frame_bytes
    buffers = [ffi.new("uint8_t[]", frame + bytes(max(0, room - len(frame)))) for frame in frames]
    pkts = ffi.new("struct ina_packet[]", len(frames))
    for pkt, frame, buffer in zip(pkts, frames, buffers, strict=True):
        pkt.data, pkt.len, pkt.wire_len, pkt.tailroom = buffer, len(frame), len(frame), max(0, room - len(frame))
    return pkts, buffers


def contents(pkts, count: int) -> list[bytes]:
    return [bytes(ffi.buffer(pkts[i].data, pkts[i].len)) for i in range(count)]


def receive(worker: Worker, frames: list[bytes], now: int) -> list[bytes]:
    pkts, _buffers = packets(worker, frames)
    return contents(pkts, worker._protocol.receive(worker._state, worker._tensors, pkts, len(frames), now))


def frames_to_send(worker: Worker, now: int) -> list[bytes]:
    frames = []
    while True:
        pkts, _buffers = packets(worker, [b""] * BURST)
        filled = worker._protocol.frames_to_send(worker._state, worker._tensors, pkts, BURST, now)
        frames += contents(pkts, filled)
        if filled < BURST:
            return frames


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("slots", [1, 2, 8, 128])
def test_a_burst_is_worth_its_frames(slots, in_place):
    """Losses, duplicates, disorder, garbage and time-outs give the same frames, behaviour, timers and counters."""
    rng = random.Random(slots)
    config = WorkerConfig(0, 1, life=1, slots=slots, values=64, reply_in_place=in_place, rto_min=1e-3)
    one, many = Worker(config), Worker(replace(config))
    switch = Network(1, slots=slots, values=64).switch
    rows = [[np.arange(count).astype(dtype) for _ in (one, many)]
            for count, dtype in ((5000, np.float32), (3, np.float32), (3000, np.int32), (64, np.float32), (9001, np.float32))]
    for mine, others in rows:
        one.submit(mine, now=0)
        many.submit(others, now=0)
    expected = [mine.copy() for mine, _ in rows]
    now, done, sent = 1, 0, []
    while done < len(rows):
        frames = one.frames_to_send(now)
        assert frames == frames_to_send(many, now)
        assert one.behaviour() == many.behaviour() and one.next_timer() == many.next_timer()
        sent += frames
        results = [result for frame in sent for _, result in switch.process(0, frame) if rng.random() > 0.1]
        results += [rng.randbytes(100)] * (rng.random() < 0.1)
        if rng.random() < 0.3:
            rng.shuffle(results)
        again = [result for result in results if rng.random() < 0.1]
        now, sent = now + US, []
        for burst in (results, again):
            answers = [answer for result in burst if (answer := one.receive(result, now)) is not None]
            assert answers == receive(many, burst, now)
            assert one.behaviour() == many.behaviour()
            sent += answers
        if not sent and rng.random() < 0.1:
            slot = rng.randrange(slots)
            assert one.expire(slot, now) == many.expire(slot, now)
        events = one.events()
        assert events == many.events()
        done += len(events)
        if not results:
            now = max(now, one.next_timer() or 0)
    counters = [{name: value for name, value in w.stats.items() if name not in ESTIMATES} for w in (one, many)]
    assert counters[0] == counters[1]
    assert one.stats["retransmissions"] and one.stats["duplicates"] and one.stats["drop_malformed"]
    for (mine, others), before in zip(rows, expected, strict=True):
        np.testing.assert_allclose(mine, before, rtol=1e-5)
        assert mine.tobytes() == others.tobytes()
