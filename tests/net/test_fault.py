"""Seeded faults: their statistics, their repeatability, and a faulted port that applies its decisions."""

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import LONG

from ina.base.native import ffi, lib
from ina.net import ports
from ina.net.ports import Faults

pytestmark = pytest.mark.fast
US = 10**6  # picoseconds


class Fault:
    def __init__(self, faults):
        self.state = ffi.new("struct ina_fault *")
        lib.ina_fault_init(self.state, faults.native())

    def decide(self):
        """Delays of the copies that arrive."""
        delays = ffi.new("uint64_t[2]")
        return tuple(delays[0 : lib.ina_fault_decide(self.state, delays)])

    def run(self, count):
        return [self.decide() for _ in range(count)]


def within(count, n, p):
    """Returns True if a binomial count is within six standard deviations of its mean."""
    return abs(count - n * p) <= 6 * (n * p * (1 - p)) ** 0.5


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**64 - 1), *[st.sampled_from([0.0, 0.001, 0.01, 0.1, 0.5, 1.0])] * 4)
def test_rates_are_those_asked_for(seed, loss, corrupt, duplicate, reorder):
    n = 20_000
    fault = Fault(Faults(loss, duplicate, reorder, corrupt, duplicate_delay=1e-6, reorder_delay=1e-6, seed=seed))
    copies = fault.run(n)
    state = fault.state
    arrived = n - state.lost - state.corrupted
    assert state.packets == n
    assert within(state.lost, n, loss)
    assert within(state.corrupted, n - state.lost, corrupt)
    assert within(state.reordered, arrived, reorder)
    assert within(state.duplicated, arrived, duplicate)
    assert sum(map(len, copies)) == arrived + state.duplicated
    assert sum(len(c) > 0 and c[0] > 0 for c in copies) == state.reordered
    late = [delay for c in copies for delay in c]
    assert all(delay <= US for delay in late)


def test_delays_are_uniform():
    fault = Fault(Faults(duplicate=1, reorder=1, duplicate_delay=1e-9, reorder_delay=1e-9, seed=1))
    first, second = zip(*fault.run(20_000), strict=True)
    assert min(first) == 1 and max(first) == 1000 and min(second) == 0 and max(second) == 1000
    for delays in (first, second):
        assert abs(sum(delays) / len(delays) - 500) < 6 * 1000 / (12 * len(delays)) ** 0.5
        assert within(sum(d <= 250 for d in delays), len(delays), 0.25)


def test_the_widest_delay_does_not_overflow():
    config = ffi.new("struct ina_fault_config *", {"duplicate": 1, "duplicate_delay_ps": 2**64 - 1, "seed": 4})
    state, delays = ffi.new("struct ina_fault *"), ffi.new("uint64_t[2]")
    lib.ina_fault_init(state, config)
    samples = []
    for _ in range(100):
        lib.ina_fault_decide(state, delays)
        samples.append(delays[1])
    assert max(samples) > 2**63 > min(samples)


def test_xoshiro_and_splitmix_are_the_published_ones():
    """Seeding with 0 gives splitmix64's published sequence; a packet is six steps of xoshiro256**, here in Python."""
    fault = Fault(Faults(seed=0))
    assert list(fault.state.rng) == [
        0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    mask, s = 2**64 - 1, list(fault.state.rng)
    for _ in range(6):  # draws per packet
        t = s[1] << 17 & mask
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = (s[3] << 45 | s[3] >> 19) & mask
    fault.decide()
    assert list(fault.state.rng) == s


def test_same_seed_same_fate_and_more_loss_only_adds_to_it():
    some = Fault(Faults(loss=0.01, duplicate=0.1, reorder=0.1, duplicate_delay=1e-6, reorder_delay=1e-6, seed=42))
    more = Fault(Faults(loss=0.1, duplicate=0.1, reorder=0.1, duplicate_delay=1e-6, reorder_delay=1e-6, seed=42))
    again = Fault(Faults(loss=0.01, duplicate=0.1, reorder=0.1, duplicate_delay=1e-6, reorder_delay=1e-6, seed=42))
    other = Fault(Faults(loss=0.01, duplicate=0.1, reorder=0.1, duplicate_delay=1e-6, reorder_delay=1e-6, seed=43))
    fates, worse = some.run(5000), more.run(5000)
    assert again.run(5000) == fates != other.run(5000)
    assert all(w == f or w == () for f, w in zip(fates, worse, strict=True))


@given(st.binary(max_size=300))
def test_crc_is_that_of_ethernet(data):
    assert lib.ina_crc32(data, len(data)) == zlib.crc32(data)


@given(st.binary(min_size=1, max_size=300), st.integers(0, 2**64 - 1))
def test_flips_damage_one_to_seven_bits(data, seed):
    buffer = ffi.new("uint8_t[]", data)
    lib.ina_fault_flip(Fault(Faults(seed=seed)).state, buffer, len(data))
    changed = sum((a ^ b).bit_count() for a, b in zip(data, bytes(buffer)[: len(data)], strict=True))
    assert 1 <= changed <= 7
    assert bytes(buffer)[len(data) :] == b"\0"


@pytest.mark.parametrize("wrong", [{"loss": -0.1}, {"corrupt": 1.01}, {"duplicate": float("nan")}, {"seed": -1},
                                   {"reorder_delay": -1e-9}, {"duplicate_delay": float("inf")}])
def test_a_wrong_configuration_names_the_field(wrong):
    with pytest.raises(ValueError, match=f"faults: {next(iter(wrong))} is .*expected"):
        Faults(**wrong)


# ---- on a port -------------------------------------------------------------------------------------------------


def frames(count, start=0):
    return [b"%08d" % i + bytes(52 + i % 900) for i in range(start, start + count)]


def expected(faults, sent):
    """(arrival, order, frame) of each arrival if the i-th frame is sent at time i us."""
    fault, out = Fault(faults), []
    for i, frame in enumerate(sent):
        corrupted = fault.state.corrupted
        out += [(i * US + delay, len(out) + k, frame) for k, delay in enumerate(fault.decide())]
        if fault.state.corrupted != corrupted:  # the flips draw too
            lib.ina_fault_flip(fault.state, ffi.new("uint8_t[]", len(frame) + 4), len(frame) + 4)
    return [frame for _, _, frame in sorted(out)], fault.state


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["rx", "tx"]),
    st.builds(
        Faults, *[st.sampled_from([0.0, 0.1, 0.3])] * 4, duplicate_delay=st.sampled_from([0, 1e-9, 2e-5]),
        reorder_delay=st.sampled_from([0, 1e-9, 2e-5]), seed=st.integers(0, 1000)),
)
def test_a_faulted_port_does_what_was_decided(direction, faults):
    a, b = ports.memory_pair(64, 1024)
    with a, b:
        faulted = (b if direction == "rx" else a).with_faults(**{direction: faults})
        sent, received = frames(200), []
        for i, frame in enumerate(sent):
            assert a.send([frame], now=i * US) == 1
            received += b.receive(now=i * US)
            while (due := faulted.next_due()) is not None and due < (i + 1) * US:
                a.receive(now=due)
                received += b.receive(now=due)
        while (due := faulted.next_due()) is not None:
            a.receive(now=due)
            received += b.receive(now=due)
        arrivals, state = expected(faults, sent)
        counts = faulted.faults[direction]
        assert received == arrivals
        assert (counts.packets, counts.lost, counts.corrupted) == (200, state.lost, state.corrupted)
        assert (counts.duplicated, counts.reordered, counts.overflow) == (state.duplicated, state.reordered, 0)
        assert faulted.stats["rx_malformed"] == (state.corrupted if direction == "rx" else 0)


def test_directions_are_independent():
    a, b = ports.memory_pair(256, 1024)
    with a, b:
        b.with_faults(rx=Faults(loss=1), tx=Faults(duplicate=1))
        a.send(frames(10))
        b.send(frames(10))
        assert b.receive() == []
        assert a.receive() == [frame for frame in frames(10) for _ in range(2)]
        assert b.faults["rx"].lost == 10 and b.faults["tx"].duplicated == 10


def test_too_many_delayed_frames_are_counted_and_lost():
    a, b = ports.memory_pair(64, 1024)
    with a, b:
        b.with_faults(rx=Faults(reorder=1, reorder_delay=1, seed=1), held=8)
        a.send(frames(20))
        assert b.receive(now=0) == []
        assert b.faults["rx"].overflow == 12
        assert len(b.receive(now=2 * ports.PS)) == 8


def test_a_full_inner_port_pushes_back_and_loses_nothing():
    a, b = ports.memory_pair(16, 1024)
    with a, b:
        a.with_faults(tx=Faults(duplicate=1))
        assert a.send(frames(16), now=5) == 16  # 32 copies, 16 places
        assert a.send(frames(1), now=5) == 0
        assert a.stats["tx_full"] > 0 and a.next_due() == 5
        received = b.receive(now=6)
        a.receive(now=6)
        received += b.receive(now=6)
        assert received == [frame for frame in frames(16) for _ in range(2)]


def test_waiting_ends_when_a_delayed_frame_is_due():
    a, b = ports.memory_pair(16, 1024)
    with a, b:
        b.with_faults(rx=Faults(reorder=1, reorder_delay=5e-3, seed=1))
        a.send(frames(1))
        received = []
        while not received:
            received = b.receive()
            assert received or b.wait(LONG)
        assert received == frames(1) and b.faults["rx"].reordered == 1


def test_reports_need_the_wrapper():
    a, b = ports.memory_pair()
    with a, b:
        with pytest.raises(ValueError, match="call with_faults first"):
            _ = a.faults
        with pytest.raises(OSError, match="held=0"):
            a.with_faults(rx=Faults(), held=0)
        assert a.send(frames(1)) == 1  # still usable
