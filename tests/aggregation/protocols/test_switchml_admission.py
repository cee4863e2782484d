"""Packets that p4/switchml.p4 does not aggregate, on every switch that runs it: every reason to drop, and forwarding."""

from __future__ import annotations

import pytest
from switchml_job import close, job, numbers, reduce, world
from switchml_targets import Job, World, check_cut_before_its_header, drop_reasons

from ina.aggregation.wire import layout
from ina.aggregation.worker import SWITCH

FREE = 9  # a port without a worker

__all__ = ["close", "job", "world"]  # fixtures


# ---- admission: every reason to drop


@pytest.mark.fast
def test_drop_reasons_are_all_tested():
    assert drop_reasons() == [
        "NONE", "MALFORMED", "WRONG_SIZE", "UNKNOWN_JOB", "WRONG_SOURCE", "OLD_LIFE", "WRONG_SLOT", "STALE",
        "REPEATED", "NO_PARENT", "LOST", "CORRUPT", "VERSION",
    ]


def dropped(world: World, job: Job, reason: str, change, worker: int = 0, port: int | None = None) -> None:
    """A packet that `change` (of its headers) makes wrong is dropped for `reason`, and leaves no trace."""
    before = world.drops().get(reason, 0)
    headers = job.fields(worker, 0, numbers(world, 1000))
    change(headers)
    assert world.send(world.bytes(headers), job.ports[worker] if port is None else port) == []
    assert world.drops() == {reason: before + 1}
    reduce(job, 0)
    assert world.drops() == {reason: before + 1}


@pytest.mark.parametrize("length", [42, 43, 49, 50, 51, 52, 53, 179])
def test_truncated_in_or_after_the_switchml_header(world, job, length):
    assert world.send(job.frame(0, 0, numbers(world, 0))[:length], 0) == []
    assert world.drops() == {"MALFORMED": 1}
    reduce(job, 0)


def test_truncated_before_the_switchml_header_is_not_aggregation(world, job):
    check_cut_before_its_header(world, job.frame(0, 0, numbers(world, 0)), SWITCH.mac, 4)


def test_truncated_without_payload(world, job):
    for length in (63, 50):
        assert world.send(job.frame(0, 0, None)[:length], 0) == []
    assert world.drops() == {"MALFORMED": 2}


@pytest.mark.parametrize("bit", [0, 7, 15])
def test_wrong_ipv4_checksum(world, job, bit):
    right = int.from_bytes(job.frame(0, 0, numbers(world, 0))[24:26], "big")
    dropped(world, job, "CORRUPT", lambda h: h["ipv4"].update(hdr_checksum=right ^ 1 << bit))


@pytest.mark.parametrize("bit", range(8 * 42, 8 * 64))
def test_any_bit_of_the_checked_headers(world, job, bit):
    frame = bytearray(job.frame(0, 0, numbers(world, 0)))
    frame[bit // 8] ^= 0x80 >> bit % 8
    assert world.send(bytes(frame), 0) == []
    assert len(world.drops()) == 1 and sum(world.drops().values()) == 1
    reduce(job, 0)


@pytest.mark.parametrize("kind", [0, 2, 4, 5, 8, 15])
def test_unknown_message_type(world, job, kind):
    dropped(world, job, "MALFORMED", lambda h: h["switchml"].update(msg_type=kind))


def refusals(world, sent) -> list[tuple[int, int, int]]:
    """Port, type and version of each frame in `sent`."""
    parsed = [(port, world.wire.unpack(frame, layout.HEAD)) for port, frame in sent]
    assert all(layout.checksum(frame[42:64]) == 0 for _, frame in sent)
    assert all(h["ipv4"]["total_len"] == 50 and h["udp"]["length"] == 30 for _, h in parsed)
    return [(port, h["switchml"]["msg_type"], h["check"]["version"]) for port, h in parsed]


@pytest.mark.parametrize("version", [0, 1, 3, 255])
@pytest.mark.parametrize("values", [True, False])
def test_another_version_is_refused(world, job, version, values):
    headers = job.fields(0, 0, numbers(world, 0) if values else None)
    headers["check"]["version"] = version
    assert refusals(world, world.send(world.bytes(headers), 0)) == [(0, 4, 2)]
    assert world.drops() == {"VERSION": 1}
    reduce(job, 0)


def test_a_frame_of_another_version_may_have_other_lengths_types_and_sizes(world, job):
    headers = job.fields(1, 0, numbers(world, 0))
    headers["check"]["version"] = 3
    headers["switchml"].update(msg_type=9, size=6)
    headers["ipv4"]["total_len"] += 5
    assert refusals(world, world.send(world.bytes(headers), 1)) == [(1, 4, 2)]
    assert world.drops() == {"VERSION": 1}


def test_a_packet_without_check_header_is_version_1(world, job):
    headers = job.fields(0, 0, numbers(world, 0))
    del headers["check"]
    headers["switchml"]["checked"] = 0
    headers["ipv4"]["total_len"] -= 12
    headers["udp"]["length"] -= 12
    assert refusals(world, world.send(world.bytes(headers), 0)) == [(0, 4, 2)]
    assert world.drops() == {"VERSION": 1}
    reduce(job, 0)


def test_refusals_are_not_answered(world, job):
    headers = job.fields(0, 0, None)
    headers["check"]["version"] = 3
    headers["switchml"]["msg_type"] = 4
    assert world.send(world.bytes(headers), 0) == []
    assert world.drops() == {"VERSION": 1}


def test_strangers_are_not_told_a_version(world, job):
    headers = job.fields(0, 0, None)
    headers["check"]["version"] = 3
    assert world.send(world.bytes(headers), FREE) == []
    assert world.drops() == {"WRONG_SOURCE": 1}


@pytest.mark.parametrize(("header", "field"), [("ipv4", "total_len"), ("udp", "length")])
@pytest.mark.parametrize("change", [-1, 1, -128])
def test_lengths_that_do_not_fit(world, job, header, field, change):
    dropped(world, job, "MALFORMED", lambda h: h[header].update({field: h[header][field] + change}))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
def test_wrong_size(world, job, size):
    dropped(world, job, "WRONG_SIZE", lambda h: h["switchml"].update(size=size))


@pytest.mark.parametrize("number", [1, 128, 255])
def test_unknown_job(world, job, number):
    dropped(world, job, "UNKNOWN_JOB", lambda h: h["switchml"].update(job=number))


@pytest.mark.parametrize(
    ("header", "field", "value"),
    [
        ("ipv4", "src_addr", 0x0A000002),
        ("ipv4", "src_addr", 0x0B000001),
        ("udp", "src_port", 4001),
        ("udp", "src_port", 0),
    ],
)
def test_wrong_source(world, job, header, field, value):
    dropped(world, job, "WRONG_SOURCE", lambda h: h[header].update({field: value}))


@pytest.mark.parametrize("port", [1, 2, FREE])
def test_nobody_speaks_for_another(world, job, port):
    """Worker 0's packet, perfect in every field, from another port of the switch."""
    dropped(world, job, "WRONG_SOURCE", lambda h: None, port=port)


@pytest.mark.parametrize("change", [1, -1, 64])
def test_old_life(world, job, change):
    dropped(world, job, "OLD_LIFE", lambda h: h["exponents"].update(e1=(h["exponents"]["e1"] + change + 128) % 256 - 128))


@pytest.mark.parametrize("slot", [4, 5, 8, 15, 2**13, 2**14 - 1])
def test_wrong_slot(world, job, slot):
    dropped(world, job, "WRONG_SLOT", lambda h: h["switchml"].update(slot=slot))


def test_the_first_reason_counts(world, job):
    headers = job.fields(0, 0, numbers(world, 0), slot=9, e1=99)
    headers["switchml"]["job"] = 7
    assert world.send(world.bytes(headers), FREE) == []
    headers["switchml"]["job"] = 0
    assert world.send(world.bytes(headers), FREE) == []
    assert world.send(world.bytes(headers), 0) == []
    assert world.drops() == {"UNKNOWN_JOB": 1, "WRONG_SOURCE": 1, "OLD_LIFE": 1}


# ---- forwarding of everything else

ARP = bytes.fromhex("ffffffffffff0000000000010806000108000604000100000000000a0a0000010000000000000a000002")


def test_known_destination(world):
    world.forward("00:00:00:00:00:02", 3)
    frame = bytes.fromhex("000000000002000000000001") + b"\x08\x00" + b"anything at all"
    assert world.send(frame, 0) == [(3, frame)]


def test_unknown_destination_is_dropped(world):
    assert world.send(ARP, 0) == []
    assert world.drops() == {}


@pytest.mark.parametrize("port", [0, 2, 4])
def test_broadcast_goes_everywhere_but_back(world, port):
    world.flood("ff:ff:ff:ff:ff:ff", 1000, range(5))
    assert world.send(ARP, port) == [(p, ARP) for p in range(5) if p != port]


@pytest.mark.parametrize(
    ("header", "field", "value"),
    [
        ("udp", "dst_port", 0xBEDF), ("udp", "dst_port", 0xBEF0), ("ipv4", "protocol", 6), ("ipv4", "frag_offset", 1),
        ("ipv4", "ihl", 6), ("ipv4", "version", 6), ("ethernet", "ethertype", 0x86DD),
    ],
)
def test_what_is_not_aggregation_passes_unchanged(world, job, header, field, value):
    """A wrong IPv4 checksum passes, too: a switch of layer 2 does not check it."""
    world.forward(SWITCH.mac, 3)
    headers = job.fields(0, 0, numbers(world, 0))
    headers[header][field] = value
    headers["ipv4"]["hdr_checksum"] = 0x5555
    frame = world.bytes(headers)
    assert world.send(frame, 0) == [(3, frame)]
    assert world.drops() == {}


def test_aggregation_is_never_forwarded(world, job):
    """An aggregation packet with any error does not reach another host through layer 2."""
    world.forward(SWITCH.mac, 3)
    headers = job.fields(0, 0, numbers(world, 0))
    headers["switchml"]["job"] = 9
    assert world.send(world.bytes(headers), 0) == []
    assert world.drops() == {"UNKNOWN_JOB": 1}
