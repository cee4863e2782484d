"""Behaviour of p4/switchml.p4 for each packet, on every switch that runs it (tests/switchml_targets.py)."""

from __future__ import annotations

import pytest
from marks import least, marked
from model_switch import ip_checksum
from switchml_job import check_pending, check_result, close, job, numbers, reduce, signed, total, world
from switchml_targets import SLOTS, TARGETS, Job, World, open_target

from ina.aggregation.controller.admission import Controller
from ina.aggregation.lane import DEFAULT
from ina.aggregation.wire import layout
from ina.aggregation.worker import worker_address

__all__ = ["close", "job", "world"]  # fixtures


BIG, SMALL = 2**31 - 1, -(2**31)
FREE = 9  # a port without a worker
WIDE = ("model", "compiled", "tna")  # those that are ready in no time, however many values there are
SIZES = [(name, values) for name in TARGETS for values in (DEFAULT.values if name in WIDE else (32, 64, 256))]


# ---- the conformance cases of SwitchML's retransmission scheme


def test_basic_reduction(world, job):
    reduce(job, 0)
    reduce(job, 1)
    assert world.drops() == {}


def test_retransmit_after_reduction(world, job):
    expected = reduce(job, 0)
    for worker in (1, 0, 2, 1):
        check_result(job, job.send(worker, 0, numbers(world, 7)), expected, 0, to=[worker])
    assert world.drops() == {}


def test_other_set(job):
    reduce(job, 4)


def test_both_sets(world, job):
    first, second = [numbers(world, 10 * w) for w in range(3)], [numbers(world, -100 * w, 3) for w in range(3)]
    for worker in (0, 1):
        assert job.send(worker, 0, first[worker]) == []
        assert job.send(worker, 4, second[worker]) == []
    check_result(job, job.send(2, 4, second[2]), total(*second), 4)
    check_result(job, job.send(2, 0, first[2]), total(*first), 0)


def maximum(job: Job, worker: int, tsi: int, values, **kwargs) -> list[tuple[int, bytes]]:
    headers = job.fields(worker, tsi, values, **kwargs)
    headers["switchml"]["msg_type"] = job.world.wire.constants["SWITCHML_MAXIMUM"]
    return job.world.send(job.world.bytes(headers), job.ports[worker])


def test_the_largest_of_each_value(world, job):
    """Signed maxima in any order; a retransmission gets them, a later sum in the same row starts anew."""
    vectors = [numbers(world, SMALL), numbers(world, -5, 3), [7, BIG, -BIG, SMALL] * (world.values // 4)]
    expected = [max(each) for each in zip(*vectors, strict=True)]
    assert maximum(job, 2, 0, vectors[2]) == maximum(job, 0, 0, vectors[0]) == []
    sent = maximum(job, 1, 0, vectors[1])
    again = maximum(job, 0, 0, vectors[1])
    assert [port for port, _ in sent] == job.ports and [port for port, _ in again] == job.ports[:1]
    for _, frame in (*sent, *again):
        headers = world.parse(frame)
        assert (headers["switchml"]["msg_type"], headers["switchml"]["overflow"]) == (3, 0)
        assert signed(headers["values"]["v"]) == expected
    reduce(job, 4)
    reduce(job, 8)
    assert world.drops() == {}


def test_sums_and_maxima_do_not_mix(world, job):
    assert job.send(0, 0, numbers(world, 1)) == []
    assert maximum(job, 1, 0, numbers(world, 5)) == []
    assert world.drops() == {"WRONG_SIZE": 1}


def test_slot_reuse(job):
    for tsi in (0, 4, 8, 12, 16, 24, 20):
        reduce(job, tsi)


def test_ignore_retransmissions(world, job):
    vectors = [numbers(world, w + 1) for w in range(3)]
    assert job.send(0, 0, vectors[0]) == []
    check_pending(job, job.send(0, 0, vectors[0]), 0, 0, 0b001)
    assert job.send(2, 0, vectors[2]) == []
    check_pending(job, job.send(0, 0, vectors[0]), 0, 0, 0b101)
    check_pending(job, job.send(2, 0, vectors[2]), 2, 0, 0b101)
    check_result(job, job.send(1, 0, vectors[1]), total(*vectors), 0)
    assert world.drops() == {}


def test_retransmit_from_previous_set(world, job):
    expected = reduce(job, 0)
    vectors = [numbers(world, 50 + w) for w in range(3)]
    assert job.send(0, 4, vectors[0]) == []
    check_result(job, job.send(1, 0, numbers(world, 3)), expected, 0, to=[1])
    assert job.send(1, 4, vectors[1]) == []
    check_result(job, job.send(2, 0, numbers(world, 3)), expected, 0, to=[2])
    check_result(job, job.send(2, 4, vectors[2]), total(*vectors), 4)


def test_slot_reuse_and_retransmit(world, job):
    reduce(job, 0)
    other = reduce(job, 4)
    vectors = [numbers(world, 5 * w) for w in range(3)]
    assert job.send(1, 8, vectors[1]) == []
    check_pending(job, job.send(1, 8, vectors[1]), 1, 8, 0b010)
    check_result(job, job.send(0, 4, vectors[0]), other, 4, to=[0])
    assert job.send(0, 8, vectors[0]) == []
    check_result(job, job.send(2, 8, vectors[2]), total(*vectors), 8)
    check_result(job, job.send(0, 8, vectors[0]), total(*vectors), 8, to=[0])


# ---- phases


def test_duplicate_late_by_two_phases_is_dropped(world, job):
    """The row has gone on to phase 8 when a copy of 0 arrives, which one version bit cannot tell."""
    reduce(job, 0)
    late = job.frame(0, 0, numbers(world, 10))
    reduce(job, 4)
    vectors = [numbers(world, 900 + w) for w in range(3)]
    assert job.send(1, 8, vectors[1]) == []
    assert world.send(late, job.ports[0]) == []
    assert world.drops() == {"STALE": 1}
    assert job.send(2, 8, vectors[2]) == []
    check_result(job, job.send(0, 8, vectors[0]), total(*vectors), 8)
    assert world.send(late, job.ports[0]) == []
    assert world.drops() == {"STALE": 2}


def test_incomplete_row_is_never_taken(world, job):
    vectors = [numbers(world, w) for w in range(3)]
    assert job.send(0, 0, vectors[0]) == []
    assert job.send(1, 8, vectors[1]) == []
    assert world.drops() == {"STALE": 1}
    assert job.send(1, 0, vectors[1]) == []
    check_result(job, job.send(2, 0, vectors[2]), total(*vectors), 0)


@pytest.mark.parametrize("start", [2**31 - 8, 2**32 - 8])
def test_packet_numbers_wrap(job, start):
    for tsi in range(start, start + 20, 4):
        reduce(job, tsi)


@pytest.mark.parametrize(
    ("ahead", "accepted"),
    [(1, True), (2**31 - 1, True), (2**31, False), (2**31 + 1, False), (2**32 - 1, False)],
)
@pytest.mark.parametrize("start", [0, 12, 2**31, 2**32 - 4])
def test_newer_in_serial_arithmetic(world, job, start, ahead, accepted):
    """RFC 1982: newer is ahead by less than half of the numbers."""
    for worker in range(3):
        job.send(worker, start, numbers(world, 1), slot=0, set_=0)
    assert job.send(0, start + ahead, numbers(world, 5), slot=0, set_=0) == []
    assert world.drops() == ({} if accepted else {"STALE": 1})
    again = job.send(1, start, numbers(world, 1), slot=0, set_=0)
    assert len(again) == (0 if accepted else 1)


def test_slots_are_apart(world, job):
    vectors = [[numbers(world, 100 * tsi + w) for w in range(3)] for tsi in range(8)]
    for worker in (0, 1):
        for tsi in range(8):
            assert job.send(worker, tsi, vectors[tsi][worker]) == []
    for tsi in (5, 0, 7, 3, 1, 2, 6, 4):
        check_result(job, job.send(2, tsi, vectors[tsi][2]), total(*vectors[tsi]), tsi)


# ---- sums, overflow, exponents, sizes


def fill(world: World, *head: int) -> list[int]:
    return [*head, *[0] * (world.values - len(head))]


def test_sums_wrap_and_say_so(world, job):
    job.send(0, 0, fill(world, BIG, SMALL, BIG))
    job.send(1, 0, fill(world, 1, -1, SMALL))
    check_result(job, job.send(2, 0, fill(world)), fill(world, SMALL, BIG, -1), 0, overflow=1)


@pytest.mark.parametrize("place", [0, 1, 31])
def test_overflow_stays_to_the_end_of_its_phase(world, job, place):
    vectors = [fill(world, *[0] * place, value) for value in (BIG, 1, -1)]
    job.send(0, 0, vectors[0])
    job.send(1, 0, vectors[1])
    check_result(job, job.send(2, 0, vectors[2]), vectors[0], 0, overflow=1)  # the sum is right again, the flag stays
    check_result(job, job.send(1, 0, vectors[1]), vectors[0], 0, overflow=1, to=[1])
    reduce(job, 4)
    reduce(job, 8)


def test_largest_sums_without_overflow(world, job):
    job.send(0, 0, fill(world, BIG, SMALL, SMALL))
    job.send(1, 0, fill(world, SMALL, BIG, 0))
    check_result(job, job.send(2, 0, fill(world, 1, 1, BIG)), fill(world, 0, 0, -1), 0)


@pytest.mark.parametrize("flagged", [0, 1, 2])
def test_overflow_flag_of_any_packet_stays(world, job, flagged):
    """The flag is that of a switch below, whose sum has overflowed; a packet without payload cannot overflow."""
    for values in (numbers(world, 1), None):
        for worker in range(3):
            headers = job.fields(worker, 0 if values else 1, values)
            headers["switchml"]["overflow"] = int(worker == flagged)
            sent = world.send(world.bytes(headers), worker)
        check_result(job, sent, total(values, values, values) if values else None, 0 if values else 1,
                     overflow=int(values is not None))


@pytest.mark.parametrize(
    "exponents",
    [(-96, -3, -50), (127, -1, 0), (-1, 0, 127), (-128, -127, -128), (-128, -128, -128), (5, 5, 4), (0, 1, -128)],
)
@pytest.mark.parametrize("with_values", [True, False])
def test_largest_exponent(world, job, exponents, with_values):
    values = numbers(world, 0, 0) if with_values else None
    for tsi, order in ((0, exponents), (8, exponents[::-1])):
        for worker, e0 in enumerate(order[:2]):
            assert job.send(worker, tsi, values, e0) == []
        check_result(job, job.send(2, tsi, values, order[2]), values, tsi, max(exponents))
        check_result(job, job.send(1, tsi, values, 3), values, tsi, max(exponents), to=[1])


def test_packets_without_payload(world, job):
    assert job.send(0, 0, None, -7) == []
    check_pending(job, job.send(0, 0, None, -7), 0, 0, 0b001, -7)
    assert job.send(1, 0, None, -9) == []
    check_result(job, job.send(2, 0, None, -8), None, 0, -7)
    check_result(job, job.send(0, 0, None, -7), None, 0, -7, to=[0])
    reduce(job, 8)  # a data phase in the same row
    for worker in range(2):
        assert job.send(worker, 16, None, 1) == []
    check_result(job, job.send(2, 16, None, 2), None, 16, 2)


@pytest.mark.parametrize("first", [True, False])
def test_all_packets_of_a_phase_have_one_size(world, job, first):
    reduce(job, 0)
    values = numbers(world, 3)
    assert job.send(0, 8, values if first else None) == []
    assert job.send(1, 8, None if first else values) == []
    assert job.send(0, 8, None if first else values) == []
    assert world.drops() == {"WRONG_SIZE": 2}
    assert job.send(1, 8, values if first else None) == []
    check_result(job, job.send(2, 8, values if first else None), total(values, values, values) if first else None, 8)
    assert job.send(2, 8, None if first else values) == []
    assert world.drops() == {"WRONG_SIZE": 3}


def size_marks(name: str, values: int) -> list[pytest.MarkDecorator]:
    """Compiled ones of the sizes that few use, some of which take a minute, run later."""
    mark = least(*TARGETS[name].needs)
    return [mark] if mark.name == "fast" or values in (64, 256) else [mark, pytest.mark.later]


@pytest.mark.parametrize(("name", "values"), [pytest.param(*size, marks=size_marks(*size)) for size in SIZES])
def test_payload_sizes(name, values):
    world = World(open_target(name, values))
    job = world.admit(2)
    step = 0x01010101
    vectors = [[signed([i * step + 7])[0] // 2 for i in range(values)], [i - values for i in range(values)]]
    assert job.send(0, 0, vectors[0]) == []
    check_result(job, job.send(1, 0, vectors[1], -3), total(*vectors), 0, -3)
    for other in layout.size_codes():
        headers = job.fields(0, 1, numbers(world, 0))
        if other != headers["switchml"]["size"]:
            headers["switchml"]["size"] = other
            assert world.send(world.bytes(headers), 0) == []
    assert world.drops() == {"WRONG_SIZE": 5}


@pytest.mark.parametrize("name", marked(TARGETS))
def test_one_worker(name):
    world = World(open_target(name, 32), ports=1)
    job = world.admit(1)
    for tsi in (0, 4, 8):
        check_result(job, job.send(0, tsi, numbers(world, tsi)), numbers(world, tsi), tsi)
    check_result(job, job.send(0, 8, numbers(world, 1)), numbers(world, 8), 8, to=[0])


@pytest.mark.parametrize("name", marked(TARGETS))
def test_thirty_two_workers(name):
    world = World(open_target(name, 32), ports=33)
    job = world.admit(32, ports=[(7 * i + 1) % 33 for i in range(32)])
    order = [(11 * i + 5) % 32 for i in range(32)]
    vectors = [numbers(world, 1 << (w % 28)) for w in range(32)]
    seen = 0
    for worker in order[:-1]:
        assert job.send(worker, 3, vectors[worker], worker - 40) == []
        seen |= 1 << worker
    check_pending(job, job.send(order[0], 3, vectors[0], 0), order[0], 3, seen, 0)
    check_result(job, job.send(order[-1], 3, vectors[order[-1]], -50), total(*vectors), 3, -9)
    check_result(job, job.send(31, 3, vectors[31]), total(*vectors), 3, -9, to=[31])
    assert world.drops() == {}


# ---- replies


def test_reply_keeps_what_is_the_flow_s_and_sets_what_is_its_own(world, job):
    """A worker may use any of SwitchML's 16 ports; odd header fields of the request do not spoil the reply."""
    for worker in range(3):
        headers = job.fields(worker, 0, numbers(world, 0))
        headers["ipv4"] |= {"tos": 0x2E, "identification": 0xABCD, "ttl": 1 + worker, "flags": 0}
        headers["udp"] |= {"dst_port": 0xBEE0 + 5 * worker, "checksum": 0x1234}
        sent = world.send(world.bytes(headers), worker)
    assert [port for port, _ in sent] == [0, 1, 2]
    for port, frame in sent:
        reply, own = world.parse(frame), worker_address(job.number, port)
        assert reply["udp"] == {"src_port": 0xBEEA, "dst_port": own.port, "length": 30 + 4 * world.values, "checksum": 0}
        assert (reply["ipv4"]["ttl"], reply["ipv4"]["tos"], reply["ipv4"]["identification"]) == (64, 0x2E, 0xABCD)
        assert ip_checksum(frame[14:34]) == 0


def test_ethernet_padding_is_no_payload(world, job):
    """A network card's padding is not taken for a bitmap or for values."""
    frames = [job.frame(worker, 0, None, worker) + bytes(8) for worker in range(3)]
    assert world.send(frames[0], 0) == []
    ((port, pending),) = world.send(frames[0], 0)
    check_pending(job, [(port, pending[:68])], 0, 0, 0b001, 0)
    assert pending[68:] == bytes(8)
    assert world.send(frames[1], 1) == []
    sent = world.send(frames[2], 2)
    check_result(job, [(p, frame[:64]) for p, frame in sent], None, 0, 2)


# ---- jobs


def test_a_new_incarnation_takes_over_used_slots(world):
    """A job ends with a complete and a half-finished phase; the next with its number and slots sees nothing of them."""
    old = world.admit(2)
    reduce(old, 0)
    old.send(0, 1, numbers(world, 10**6))
    late = old.frame(1, 1, numbers(world, 10**6))
    world.controller.release("job")
    world.controller._last_number = world.controller.program.max_jobs - 1  # numbers have gone round
    new = world.admit(2)
    assert (new.number, new.admitted.life) == (old.number, old.admitted.life % 255 + 1)
    assert world.send(late, 1) == []
    assert world.drops() == {"OLD_LIFE": 1}
    assert new.send(0, 1, numbers(world, 1)) == []
    check_pending(new, new.send(0, 1, numbers(world, 1)), 0, 1, 0b01)
    check_result(new, new.send(1, 1, numbers(world, 2)), total(numbers(world, 1), numbers(world, 2)), 1)
    reduce(new, 0)


def test_jobs_of_one_number_and_life_have_rows_of_their_own(world):
    """The second controller knows nothing of the first one: their incarnations differ."""
    old = world.admit(2)
    reduce(old, 0)
    old.send(0, 1, numbers(world, 10**6))
    world.controller.release("job")
    world.controller = Controller(world.target, SLOTS)
    world.controller.lives.use(0, (old.admitted.life + 253) % 255 + 1)
    new = world.admit(2)
    assert (new.number, new.admitted.life) == (old.number, old.admitted.life)
    reduce(new, 0)
    reduce(new, 1)


def test_the_lives_of_a_number_tell_254_jobs_apart(world):
    """One number is left to use, and numbers advance apart from lives."""
    old = world.admit(2)
    late = [old.frame(i, 0, numbers(world, 10**6)) for i in range(2)]
    for _ in range(254):
        world.controller.release("job")
        world.controller._last_number = world.controller.program.max_jobs - 1
        new = world.admit(2)
        assert new.number == old.number and new.admitted.life != old.admitted.life
    assert [world.send(frame, i) for i, frame in enumerate(late)] == [[], []]
    assert world.drops() == {"OLD_LIFE": 2}
    reduce(new, 0)


def test_a_released_job_is_unknown(world, job):
    reduce(job, 0)
    world.controller.release("job")
    assert job.send(0, 0, numbers(world, 0)) == []
    assert world.drops() == {"UNKNOWN_JOB": 1}


def test_two_jobs_do_not_meet(world):
    """Same slots and packet numbers, different workers; worker 0 of both is on one port."""
    first, second = world.admit(2, name="first"), world.admit(3, name="second", ports=[0, 5, 6])
    assert (first.admitted.slot_base, second.admitted.slot_base) == (0, 4)
    a, b = [numbers(world, 1 + w) for w in range(2)], [numbers(world, 1000 * w, 3) for w in range(3)]
    for tsi in range(12):
        assert second.send(2, tsi, b[2]) == first.send(1, tsi, a[1], -5) == second.send(0, tsi, b[0]) == []
        check_pending(second, second.send(0, tsi, b[0]), 0, tsi, 0b101)
        check_result(first, first.send(0, tsi, a[0]), total(*a), tsi, -5)
        check_result(second, second.send(1, tsi, b[1], -9), total(*b), tsi, -9)
    stranger = second.fields(1, 12, b[1])
    stranger["switchml"]["job"] = first.number
    assert world.send(world.bytes(stranger), 5) == []
    assert world.drops() == {"WRONG_SOURCE": 1}


def test_the_last_range_of_the_pool(world):
    """A job whose range ends where the registers end."""
    world.admit(1, SLOTS // 2, name="first")
    job = world.admit(2, SLOTS // 2, name="second")
    for tsi in (SLOTS // 2 - 1, SLOTS - 1):
        reduce(job, tsi)


# ---- unmodified SwitchML clients


def test_compatible_reduction(world):
    """Any number as tsi, two exponents, no pending replies."""
    job = world.admit(2, strict=False)
    for tsi, set_ in ((77, 0), (0x01000000, 1), (5, 0), (5, 1), (77, 0)):
        assert job.send(0, tsi, numbers(world, tsi), 3, slot=2, set_=set_, e1=-4) == []
        sent = job.send(1, tsi, numbers(world, 1), -3, slot=2, set_=set_, e1=100)
        check_result(job, sent, total(numbers(world, tsi), numbers(world, 1)), tsi, 3, e1=100, slot=2, set_=set_)
    assert world.drops() == {}


def test_compatible_retransmissions(world):
    job = world.admit(2, strict=False)
    assert job.send(0, 9, numbers(world, 1), slot=0, set_=0) == []
    assert job.send(0, 9, numbers(world, 1), slot=0, set_=0) == []
    assert world.drops() == {"REPEATED": 1}
    expected = total(numbers(world, 1), numbers(world, 2))
    check_result(job, job.send(1, 9, numbers(world, 2), slot=0, set_=0), expected, 9, slot=0, set_=0)
    again = job.send(0, 9, numbers(world, 5), slot=0, set_=0)
    check_result(job, again, expected, 9, to=[0], slot=0, set_=0)
    # worker 0 goes on; worker 1, which lost the result, still gets it from the other set
    assert job.send(0, 10, numbers(world, 0), slot=0, set_=1) == []
    again = job.send(1, 9, numbers(world, 2), slot=0, set_=0)
    check_result(job, again, expected, 9, to=[1], slot=0, set_=0)
    assert world.drops() == {"REPEATED": 1}


def test_one_version_bit_gives_the_known_wrong_sum(world):
    """A duplicate that is late by two phases is taken for a first write: the reason why the native mode stores packet numbers."""
    job = world.admit(2, strict=False)
    old, new, other = fill(world, 10), fill(world, 1000), fill(world, 2000)
    for tsi, set_ in ((0, 0), (4, 1)):
        job.send(0, tsi, old, slot=0, set_=set_)
        job.send(1, tsi, old, slot=0, set_=set_)
    assert job.send(0, 0, old, slot=0, set_=0) == []  # the duplicate
    assert job.send(0, 8, new, slot=0, set_=0) == []
    assert world.drops() == {"REPEATED": 1}
    sent = job.send(1, 8, other, slot=0, set_=0)
    check_result(job, sent, fill(world, 2010), 8, slot=0, set_=0)  # 3000 would be right


def test_the_same_duplicate_in_native_mode(world):
    job = world.admit(2)
    old, new, other = fill(world, 10), fill(world, 1000), fill(world, 2000)
    for tsi in (0, 4):
        job.send(0, tsi, old)
        job.send(1, tsi, old)
    assert job.send(1, 8, other) == []
    assert job.send(0, 0, old) == []
    check_result(job, job.send(0, 8, new), fill(world, 3000), 8)
    assert world.drops() == {"STALE": 1}
