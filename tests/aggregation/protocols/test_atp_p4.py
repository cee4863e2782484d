"""Behaviour of p4/atp.p4 for each packet, on every switch that runs it (tests/atp_targets.py)."""

from __future__ import annotations

import pytest
from atp_targets import (
    ANSWER,
    FLOAT_RESULT,
    FLOATS,
    OFFER,
    PARENT,
    PENDING,
    RESULT,
    SLOTS,
    TARGETS,
    VALUES,
    Job,
    World,
    close_targets,
    members,
    open_target,
    parse,
)
from marks import marked
from model_switch import ip_checksum
from switchml_targets import check_cut_before_its_header

from ina.aggregation.worker.config import ATP_SWITCH, SERVER
from ina.net.ports import Address
from ina.p4.runtime import Link
from ina.p4.runtime.entities import as_int

BIG = 2**31 - 1


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    close_targets()


@pytest.fixture(params=marked(TARGETS))
def world(request) -> World:
    return World(open_target(request.param))


@pytest.fixture
def job(world) -> Job:
    """Three workers at ports 0 to 2."""
    return world.admit([0b001, 0b010, 0b100])


def numbers(start: int, step: int = 1) -> list[int]:
    return [start + step * i for i in range(VALUES)]


def total(*vectors) -> list[int]:
    return [sum(v) % 2**32 for v in zip(*vectors, strict=True)]


def check_up(job: Job, sent, values, bitmap: int, sequence: int, **atp) -> dict:
    """`sent` is one frame to the parent that carries `values` of `bitmap`'s workers."""
    assert [port for port, _ in sent] == [job.parent.port]
    headers = parse(sent[0][1])
    above, own = job.parent.address, job.parent.own
    assert headers["ethernet"] == {"dst_addr": as_int(above.mac, 48, "mac"), "src_addr": as_int(own.mac, 48, "mac"),
                                   "ethertype": 0x0800}
    assert (headers["ipv4"]["src_addr"], headers["ipv4"]["dst_addr"]) == (as_int(own.ip, 32, "ip"), as_int(above.ip, 32, "ip"))
    assert headers["ipv4"]["ttl"] == 64 and ip_checksum(sent[0][1][14:34]) == 0
    assert ip_checksum(sent[0][1][42:70]) == 0 and headers["check"]["version"] == 2
    length = 36 + (0 if values is None else 4 * VALUES)
    assert headers["udp"] == {"src_port": own.port, "dst_port": above.port, "length": length, "checksum": 0}
    expected = {"msg_type": 1, "resend": 0, "collision": 0, "ecn": 0, "overflow": 0, "exponent": -96, "index": 3,
                "life": job.life, "job": job.number, "sequence": sequence % 2**40,
                "bitmap": bitmap}
    assert headers["atp"] == expected | atp
    assert headers["values"] == (None if values is None else [v % 2**32 for v in values])
    return headers


def test_all_workers_values_go_up_as_one_sum(world, job):
    for sequence in range(3):
        vectors = [numbers(1000 * w + sequence) for w in range(3)]
        for child in (0, 2):
            assert job.send(child, sequence, vectors[child], index=sequence) == []
        check_up(job, job.send(1, sequence, vectors[1], index=sequence), total(*vectors), 0b111, sequence, index=sequence)
    assert world.drops() == {}


def test_a_result_goes_to_every_worker(world, job):
    payload = bytes(range(128))
    sent = job.result(5, payload=payload, ecn=1, collision=1, exponent=7)
    assert [port for port, _ in sent] == [0, 1, 2]
    for port, frame in sent:
        headers, own = parse(frame), job.addresses[port]
        assert headers["ethernet"]["dst_addr"] == as_int(own.mac, 48, "mac")
        assert headers["ethernet"]["src_addr"] == as_int(ATP_SWITCH.mac, 48, "mac")
        assert headers["ipv4"]["dst_addr"] == as_int(own.ip, 32, "ip")
        assert headers["ipv4"]["src_addr"] == as_int(ATP_SWITCH.ip, 32, "ip") and ip_checksum(frame[14:34]) == 0
        assert headers["udp"] == {"src_port": ATP_SWITCH.port, "dst_port": own.port, "length": 164, "checksum": 0}
        assert frame[70:] == payload
        atp = headers["atp"]
        assert (atp["msg_type"], atp["ecn"], atp["collision"], atp["exponent"], atp["bitmap"]) == (RESULT, 1, 1, 7, 0b111)


@pytest.mark.parametrize("kind", [RESULT, FLOAT_RESULT, PENDING])
def test_an_answer_to_one_worker_goes_to_it_alone(job, kind):
    payload = bytes(4) if kind == PENDING else bytes(128)
    sent = job.result(5, kind=kind, bitmap=0b010, payload=payload)
    assert [port for port, _ in sent] == [1]
    assert parse(sent[0][1])["ipv4"]["dst_addr"] == as_int(job.addresses[1].ip, 32, "ip")


def test_a_result_frees_the_aggregator(world, job):
    other = world.admit([0b01, 0b10], first_port=3, port=8)
    for sequence in range(3):
        vectors = [numbers(w) for w in range(3)]
        for child in (0, 1):
            assert job.send(child, sequence, vectors[child]) == []
        check_up(other, other.send(0, sequence, numbers(5)), numbers(5), 0b01, sequence, collision=1)
        check_up(job, job.send(2, sequence, vectors[2]), total(*vectors), 0b111, sequence)
        check_up(other, other.send(1, sequence, numbers(6)), numbers(6), 0b10, sequence, collision=1)  # held until the result
        job.result(sequence)
        assert other.send(0, sequence + 100, numbers(7)) == []
        check_up(other, other.send(1, sequence + 100, numbers(8)), total(numbers(7), numbers(8)), 0b11, sequence + 100)
        other.result(sequence + 100)


@pytest.mark.parametrize("kind", [PENDING, RESULT])
def test_only_its_own_result_frees_an_aggregator(world, job, kind):
    assert job.send(0, 7, numbers(1)) == []
    if kind == PENDING:
        job.result(7, kind=PENDING, payload=bytes(4))
    else:
        job.result(6)
        job.result(7, index=4)
    assert job.send(1, 7, numbers(2)) == []
    check_up(job, job.send(2, 7, numbers(3)), total(numbers(1), numbers(2), numbers(3)), 0b111, 7)


def test_a_repeated_packet_is_not_added_twice(world, job):
    assert job.send(0, 0, numbers(1)) == []
    assert job.send(0, 0, numbers(1)) == []
    assert world.drops() == {"REPEATED": 1}
    assert job.send(1, 0, numbers(2)) == []
    check_up(job, job.send(2, 0, numbers(3)), total(numbers(1), numbers(2), numbers(3)), 0b111, 0)
    assert job.send(2, 0, numbers(3)) == []
    assert world.drops() == {"REPEATED": 2}


def test_a_resend_takes_along_what_the_aggregator_holds(world, job):
    assert job.send(0, 0, numbers(1)) == []
    check_up(job, job.send(1, 0, numbers(2), resend=1), total(numbers(1), numbers(2)), 0b011, 0, resend=1)
    assert world.drops() == {}


def test_a_resend_of_what_it_holds_takes_it_along(job):
    assert job.send(0, 0, numbers(1)) == []
    assert job.send(1, 0, numbers(2)) == []
    check_up(job, job.send(0, 0, numbers(1), resend=1), total(numbers(1), numbers(2)), 0b011, 0, resend=1)


def test_after_an_eviction_packets_of_that_number_pass(world, job):
    """Late workers go to the server, where the others are, and do not wait in an aggregator that cannot complete."""
    assert job.send(0, 0, numbers(1)) == []
    job.send(0, 0, numbers(1), resend=1)
    check_up(job, job.send(1, 0, numbers(2)), numbers(2), 0b010, 0)
    check_up(job, job.send(0, 0, numbers(1), resend=1), numbers(1), 0b001, 0, resend=1)
    assert job.send(0, 1, numbers(4)) == []  # and the aggregator is free for another number


def test_a_resend_that_finds_nothing_passes_and_claims_nothing(world, job):
    check_up(job, job.send(0, 0, numbers(1), resend=1), numbers(1), 0b001, 0, resend=1)
    assert job.send(1, 0, numbers(2)) == []
    assert job.send(0, 0, numbers(1)) == []


def test_a_late_packet_of_a_finished_number_claims_nothing(job):
    vectors = [numbers(w) for w in range(3)]
    for child in range(3):
        job.send(child, 5, vectors[child])
    job.result(5)
    check_up(job, job.send(0, 5, vectors[0]), vectors[0], 0b001, 5)
    check_up(job, job.send(0, 4, vectors[0]), vectors[0], 0b001, 4)  # nor does one of an older number
    assert job.send(0, 6, vectors[0]) == []


@pytest.mark.parametrize("start", [2**32 - 2, 2**39 - 2, 2**40 - 2])
def test_numbers_wrap(job, start):
    for sequence in range(start, start + 5):
        vectors = [numbers(1000 * w) for w in range(3)]
        for child in (0, 1):
            assert job.send(child, sequence, vectors[child]) == []
        check_up(job, job.send(2, sequence, vectors[2]), total(*vectors), 0b111, sequence)
        job.result(sequence)


def test_indices_are_taken_modulo_the_pool(job):
    assert job.send(0, 0, numbers(1), index=3) == []
    check_up(job, job.send(1, 1, numbers(2), index=3 + SLOTS), numbers(2), 0b010, 1, index=3 + SLOTS, collision=1)
    assert job.send(1, 0, numbers(2), index=3 + 4 * SLOTS) == []


def test_exponents_flags_and_overflow_of_a_sum(job):
    assert job.send(0, 0, [BIG, *numbers(0)[1:]], exponent=-5, ecn=1) == []
    assert job.send(1, 0, [1, *numbers(0)[1:]], exponent=100) == []
    sums = [BIG + 1, *total(numbers(0), numbers(0), numbers(0))[1:]]
    check_up(job, job.send(2, 0, [0, *numbers(0)[1:]], exponent=-128, collision=1), sums, 0b111, 0,
             exponent=100, ecn=1, collision=1, overflow=1)
    job.result(0)
    for child in range(2):
        assert job.send(child, 1, numbers(1), exponent=-128) == []
    check_up(job, job.send(2, 1, numbers(1), exponent=-127), total(*[numbers(1)] * 3), 0b111, 1, exponent=-127)


def test_an_overflow_below_is_kept(job):
    assert job.send(0, 0, numbers(1), overflow=1) == []
    assert job.send(1, 0, numbers(1)) == []
    check_up(job, job.send(2, 0, numbers(1)), total(*[numbers(1)] * 3), 0b111, 0, overflow=1)


def test_packets_without_values(world, job):
    assert job.send(0, 0, exponent=3) == []
    assert job.send(1, 0, numbers(0)) == []
    assert world.drops() == {"WRONG_SIZE": 1}
    assert job.send(1, 0, exponent=-3) == []
    check_up(job, job.send(2, 0, exponent=1), None, 0b111, 0, exponent=3)


def test_maxima(world, job):
    vectors = [[BIG, -1, 5, *numbers(7)[3:]], [-BIG, -2, 6, *numbers(-7)[3:]], [0, -(2**31), -6, *numbers(0)[3:]]]
    largest = [max(v) for v in zip(*vectors, strict=True)]
    for child in (0, 2):
        assert job.send(child, 0, vectors[child], msg_type=6) == []
    assert job.send(1, 0, vectors[1]) == []
    assert world.drops() == {"WRONG_SIZE": 1}, "sums and maxima do not mix"
    check_up(job, job.send(1, 0, vectors[1], msg_type=6), largest, 0b111, 0, msg_type=6)


def test_floats_are_passed_on(world, job):
    for child in range(3):
        sent = world.send(job.data(child, 0, numbers(child), msg_type=FLOATS), child)
        check_up(job, sent, numbers(child), 1 << child, 0, msg_type=FLOATS)


def test_offers_and_answers_are_passed_on(world, job):
    """No aggregator is touched, one that holds something of the number included."""
    assert job.send(0, 5, numbers(1)) == []
    for child in range(3):
        for resend in (0, 1):
            sent = world.send(job.data(child, 5, msg_type=OFFER, index=0x0102, resend=resend), child)
            check_up(job, sent, None, 1 << child, 5, msg_type=OFFER, index=0x0102, resend=resend)
    assert [port for port, _ in job.result(7, kind=ANSWER, payload=b"", index=0x0400)] == [0, 1, 2]
    assert [port for port, _ in job.result(7, kind=ANSWER, payload=b"", index=0x0300, bitmap=0b010)] == [1]
    check_up(job, job.send(1, 5, numbers(2), resend=1), total(numbers(1), numbers(2)), 0b011, 5, resend=1)


def test_without_aggregation_everything_is_passed_on(world):
    job = world.admit([0b01, 0b10], aggregate=False)
    for child in (0, 1, 0):
        check_up(job, job.send(child, 0, numbers(child)), numbers(child), 1 << child, 0)


def test_one_worker_needs_no_aggregator(world):
    job = world.admit([0b1])
    check_up(job, job.send(0, 0, numbers(1)), numbers(1), 0b1, 0)
    check_up(job, job.send(0, 0, numbers(1)), numbers(1), 0b1, 0)


# ---- two levels


@pytest.fixture
def tree(world) -> Job:
    """The job at its root: racks of workers 0, 2 and 1, 3 below."""
    return world.admit([0b0101, 0b1010])


def test_sums_of_racks_are_added(tree):
    assert tree.send(0, 0, numbers(1)) == []
    check_up(tree, tree.send(1, 0, numbers(5)), total(numbers(1), numbers(5)), 0b1111, 0)


def test_parts_of_racks_are_added(tree):
    assert tree.send(0, 0, numbers(1), bitmap=0b0100) == []
    assert tree.send(1, 0, numbers(2), bitmap=0b1010) == []
    check_up(tree, tree.send(0, 0, numbers(3), bitmap=0b0001), total(numbers(1), numbers(2), numbers(3)), 0b1111, 0)


def test_what_overlaps_but_is_more_is_passed_on(world, tree):
    assert tree.send(0, 0, numbers(1), bitmap=0b0100) == []
    check_up(tree, tree.send(0, 0, numbers(9), bitmap=0b0101), numbers(9), 0b0101, 0)
    check_up(tree, tree.send(0, 0, numbers(9), bitmap=0b0101, resend=1), numbers(9), 0b0101, 0, resend=1)
    check_up(tree, tree.send(0, 0, numbers(1), bitmap=0b0100, resend=1), numbers(1), 0b0100, 0, resend=1)


def test_a_leaf_sends_its_rack_up_and_a_worker_s_answer_down(world):
    root, leaf = ATP_SWITCH, Address("02:ff:00:00:00:01", "10.255.0.1", 0xBEF0)
    job = world.admit([0b0010, 0b1000], above=root, own=leaf)
    assert job.send(0, 0, numbers(1)) == []
    check_up(job, job.send(1, 0, numbers(2)), total(numbers(1), numbers(2)), 0b1010, 0)
    frame = bytearray(job.down(0, bitmap=0b1000))
    sent = world.send(bytes(frame), PARENT)
    assert [port for port, _ in sent] == [1]
    assert [port for port, _ in world.send(job.down(1, bitmap=0b1111), PARENT)] == [0, 1]


# ---- admission: every reason to drop


@pytest.mark.fast
def test_drop_reasons_are_all_tested():
    assert members("Drop") == ["NONE", "MALFORMED", "WRONG_SIZE", "UNKNOWN_JOB", "WRONG_SOURCE", "WRONG_WORKERS",
                               "OLD_LIFE", "REPEATED", "LOST", "CORRUPT", "VERSION"]


def dropped(world: World, job: Job, reason: str, frame: bytes, port: int = 0) -> None:
    """The frame is dropped for `reason`, and leaves no trace."""
    before = world.drops()
    assert world.send(frame, port) == []
    assert world.drops() == before | {reason: before.get(reason, 0) + 1}
    vectors, sequence = [numbers(10 * w) for w in range(3)], sum(before.values())
    for child in (0, 1):
        assert job.send(child, sequence, vectors[child]) == []
    check_up(job, job.send(2, sequence, vectors[2]), total(*vectors), 0b111, sequence)
    job.result(sequence)


@pytest.mark.parametrize("length", [42, 43, 49, 50, 57, 58, 69, 70, 71, 100, 69 + 4 * VALUES])
def test_truncated_in_or_after_the_atp_header(world, job, length):
    dropped(world, job, "MALFORMED", job.data(0, 0, numbers(1))[:length])


@pytest.mark.parametrize("bit", range(8 * 42, 8 * 70, 3))
def test_any_bit_of_the_checked_headers(world, job, bit):
    frame = bytearray(job.data(0, 0, numbers(1)))
    frame[bit // 8] ^= 0x80 >> bit % 8
    dropped(world, job, "CORRUPT", bytes(frame))


@pytest.mark.parametrize("version", [0, 1, 3, 255])
def test_another_version_is_refused(world, job, version):
    headers = job.fields(job.addresses[0], 1, 0, 0b001, 0)
    headers["check"]["version"] = version
    sent = world.send(world.bytes(headers), 0)
    assert [(port, parse(frame)["atp"]["msg_type"], parse(frame)["check"]["version"]) for port, frame in sent] == [(0, 7, 2)]
    assert parse(sent[0][1])["ipv4"]["dst_addr"] == as_int(job.addresses[0].ip, 32, "ip")
    assert ip_checksum(sent[0][1][42:70]) == 0 and world.drops() == {"VERSION": 1}
    headers["atp"]["msg_type"] = 7
    assert world.send(world.bytes(headers), 0) == []
    assert world.drops() == {"VERSION": 2}


def test_check_words_are_added_like_values(world, job):
    def up(child, **rest):
        return job.send(child, 5, numbers(child), **rest)

    assert up(0) == [] and up(1) == []
    check = parse(up(2)[0][1])["check"]
    packets = [parse(job.data(child, 5, numbers(child)))["check"] for child in range(3)]
    for word in ("check0", "check1"):
        assert check[word] == sum(packet[word] for packet in packets) % 2**32


def test_truncated_before_the_atp_header_is_not_aggregation(world, job):
    check_cut_before_its_header(world, job.data(0, 0, numbers(1)), ATP_SWITCH.mac, 7)


def test_truncated_without_payload(world, job):
    for length in (42, 57, 69):
        dropped(world, job, "MALFORMED", job.data(0, 0)[:length])


@pytest.mark.parametrize(("kind", "payload"), [(RESULT, 128), (FLOAT_RESULT, 128), (RESULT, 0), (PENDING, 4)])
def test_truncated_from_above(world, job, kind, payload):
    whole = job.down(7, kind=kind, bitmap=0b001, payload=bytes(payload))
    for length in {42, 69, len(whole) - 1}:
        dropped(world, job, "MALFORMED", whole[:length], port=PARENT)


def test_ethernet_padding_is_no_payload(world, job):
    """A frame without payload may be followed by padding: bytes behind the datagram are ignored, up and down."""
    padding = bytes.fromhex("5a5a")
    for child in (0, 2):
        assert world.send(job.data(child, 0) + padding, child) == []
    sent = world.send(job.data(1, 0) + padding, 1)
    check_up(job, [(port, frame[:70]) for port, frame in sent], None, 0b111, 0)
    answered = world.send(job.down(0, payload=b"") + padding, PARENT)
    assert [port for port, _ in answered] == [0, 1, 2]
    for _, frame in answered:
        assert parse(frame[:70])["atp"]["msg_type"] == RESULT and frame[70:] in (b"", padding)
    assert world.drops() == {}


@pytest.mark.parametrize(("payload", "reason"), [(5, "WRONG_SIZE"), (91, "WRONG_SIZE"), (128, "MALFORMED")])
def test_a_short_frame_of_no_size_of_ours_is_counted_alike(world, job, payload, reason):
    """A Tofino's ingress does not know a frame's length: if its parser needs no more bytes, it does not notice missing ones."""
    address = job.addresses[0]
    frame = world.bytes(job.fields(address, 1, 0, 0b001, payload))
    assert len(frame) == 70
    dropped(world, job, reason, frame)


def test_short_frames_between_whole_ones_change_no_sum(world, job):
    """Every prefix of every kind of frame, between the packets of one sum."""
    vectors = [numbers(1000 * w) for w in range(3)]
    whole = [(0, job.data(0, 0, vectors[0])), (1, job.data(1, 0)), (0, job.data(0, 0, vectors[0], resend=1)),
             (PARENT, job.down(0)), (PARENT, job.down(0, kind=PENDING, bitmap=0b001, payload=bytes(4)))]
    step = 1 if world.target.name in ("compiled", "tna") else 13
    for child in (0, 1, 2):
        for port, frame in whole:
            for length in range(world.target.shortest, len(frame), step):
                assert world.send(frame[:length], port) == [], (port, length)
        sent = job.send(child, 0, vectors[child])
    check_up(job, sent, total(*vectors), 0b111, 0)
    assert set(world.drops()) == {"MALFORMED"}


@pytest.mark.parametrize(
    ("header", "field", "value"),
    [("ipv4", "total_len", 171), ("ipv4", "total_len", 4000), ("atp", "msg_type", 0),
     ("atp", "msg_type", 7), ("atp", "msg_type", 10), ("atp", "msg_type", 15)],
)
def test_malformed(world, job, header, field, value):
    headers = job.fields(job.addresses[0], 1, 0, 1, 4 * VALUES)
    headers["values"] = {"v": numbers(0)}
    headers[header][field] = value
    dropped(world, job, "MALFORMED", world.bytes(headers))


@pytest.mark.parametrize("payload", [4, 64, 132])
def test_other_sizes(world, job, payload):
    frame = world.bytes(job.fields(job.addresses[0], 1, 0, 1, payload)) + bytes(payload)
    dropped(world, job, "WRONG_SIZE", frame)


def test_unknown_job(world, job):
    dropped(world, job, "UNKNOWN_JOB", job.data(0, 0, numbers(1), job=99))


def test_nobody_speaks_for_another(world, job):
    other = world.admit([0b01, 0b10], first_port=3, port=8)
    dropped(world, job, "WRONG_SOURCE", job.data(1, 0, numbers(1)), port=0)  # the address of another worker
    dropped(world, job, "WRONG_SOURCE", job.data(0, 0, numbers(1)), port=3)  # from another job's port
    forged = other.data(0, 0, numbers(1), job=job.number, life=job.life, bitmap=1)
    dropped(world, job, "WRONG_SOURCE", forged, port=3)  # a member of one job forges another's number
    dropped(world, job, "WRONG_WORKERS", job.data(0, 0, numbers(1), bitmap=0b010))
    dropped(world, job, "WRONG_WORKERS", job.data(0, 0, numbers(1), bitmap=0b011))
    dropped(world, job, "WRONG_WORKERS", job.data(0, 0, numbers(1), bitmap=0))
    dropped(world, job, "WRONG_WORKERS", job.data(0, 0, bitmap=0b010, msg_type=OFFER))


def test_only_what_is_above_sends_results(world, job):
    for kind, payload in ((RESULT, 128), (FLOAT_RESULT, 128), (PENDING, 4), (ANSWER, 0)):
        frame = world.bytes(job.fields(job.addresses[0], kind, 0, 7, payload)) + bytes(payload)
        dropped(world, job, "WRONG_SOURCE", frame)
        dropped(world, job, "WRONG_SOURCE", job.down(0, kind=kind, payload=bytes(payload)), port=0)
    for kind in (1, OFFER):
        dropped(world, job, "WRONG_SOURCE", world.bytes(job.fields(SERVER, kind, 0, 1, 0)), port=PARENT)


def test_old_lives(world, job):
    dropped(world, job, "OLD_LIFE", job.data(0, 0, numbers(1), life=job.life - 1))
    dropped(world, job, "OLD_LIFE", job.down(0, life=job.life ^ 0x100), port=PARENT)


def test_other_frames_are_forwarded(world, job):
    world.forward(SERVER.mac, 7)
    plain = bytearray(job.data(0, 0, numbers(1)))
    plain[:6] = bytes.fromhex(SERVER.mac.replace(":", ""))
    plain[36:38] = SERVER.port.to_bytes(2, "big")  # to a plain parameter server
    assert world.send(bytes(plain), 0) == [(7, bytes(plain))]


# ---- time


TIMED = pytest.mark.parametrize("name", ["compiled", "tna"])


@pytest.mark.build
@TIMED
def test_what_is_too_old_makes_room(name):
    """A dead job's aggregator is another job's after the lifetime, with its sum thrown away; and not before."""
    world = World(open_target(name))
    switch, ms = world.target.switch, 10**9
    dead, alive = world.admit([0b01, 0b10], lifetime=0.01), world.admit([0b01, 0b10], first_port=3, port=8, lifetime=0.01)
    assert switch.step(dead.data(0, 0, numbers(1)), 0, 1 * ms) == []
    assert len(switch.step(alive.data(0, 0, numbers(5)), 3, 10 * ms)) == 1, "collides"
    assert switch.step(alive.data(0, 1, numbers(5)), 3, 12 * ms) == [], "takes it over"
    check_up(dead, switch.step(dead.data(1, 0, numbers(2)), 1, 13 * ms), numbers(2), 0b10, 0, collision=1)
    check_up(alive, switch.step(alive.data(1, 1, numbers(6)), 4, 14 * ms), total(numbers(5), numbers(6)), 0b11, 1)
    assert world.target.switch.counter("fates")[8 * alive.number + 6, 0] == 1


@pytest.mark.build
@TIMED
def test_an_old_record_of_the_same_number_is_not_believed(name):
    """After 2^40 packets a number comes again: the record of the first must not be used for the second."""
    world = World(open_target(name))
    switch, ms = world.target.switch, 10**9
    job = world.admit([0b01, 0b10], lifetime=0.01)
    assert switch.step(job.data(0, 0, numbers(1)), 0, 0) == []
    assert switch.step(job.data(1, 0, numbers(2)), 1, 20 * ms) == []
    check_up(job, switch.step(job.data(0, 0, numbers(3)), 0, 21 * ms), total(numbers(2), numbers(3)), 0b11, 0)


@pytest.mark.build
@TIMED
@pytest.mark.parametrize("depth", [0, 3])
def test_long_queues_are_marked(depth, name):
    """A packet with `ecn_depth` others queued at its port is marked, and so are results on their way down."""
    world = World(open_target(name))
    job = world.admit([0b1], aggregate=False, ecn_depth=depth)
    switch = world.target.switch
    for frame, port, out in ((job.data(0, 0, numbers(1)), 0, PARENT), (job.down(0), PARENT, 0)):
        switch.remove_port(out)
        switch.add_port(out, link=Link(rate=1e9))
        now = 10**12
        for _ in range(6):
            assert switch.step(frame, port, now) == []
        sent = []
        while switch.next_due() < 2**63:
            now = switch.next_due()
            sent += switch.poll(now)
            if len(sent) == 6:
                break
        # the first is on the wire at once, so the fifth is the first that finds three in the queue; a Tofino's depth is in
        # cells of 80 bytes, and three packets of the size that `ecn_depth` is meant in have six: the fourth finds eight
        marked = [0, 0, 0, 0, 1, 1] if name == "compiled" else [0, 0, 0, 1, 1, 1]
        assert [parse(frame)["atp"]["ecn"] for _, frame in sent] == (marked if depth else [0] * 6)
