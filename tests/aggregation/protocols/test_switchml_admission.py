"""Packets that p4/switchml.p4 does not aggregate, on every switch that runs it: every reason to drop, and forwarding."""

from __future__ import annotations

import pytest
from switchml_job import close, job, numbers, reduce, world
from switchml_targets import Job, World, check_cut_before_its_header, drop_reasons

from ina.aggregation.worker import SWITCH

FREE = 9  # a port without a worker

__all__ = ["close", "job", "world"]  # fixtures


# ---- admission: every reason to drop


@pytest.mark.fast
def test_drop_reasons_are_all_tested():
    assert drop_reasons() == [
        "NONE", "MALFORMED", "WRONG_SIZE", "UNKNOWN_JOB", "WRONG_SOURCE", "OLD_LIFE", "WRONG_SLOT", "STALE",
        "REPEATED", "NO_PARENT", "LOST",
    ]  # fmt: skip


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
    for length in (51, 50):
        assert world.send(job.frame(0, 0, None)[:length], 0) == []
    assert world.drops() == {"MALFORMED": 2}


@pytest.mark.parametrize("bit", [0, 7, 15])
def test_wrong_ipv4_checksum(world, job, bit):
    right = int.from_bytes(job.frame(0, 0, numbers(world, 0))[24:26], "big")
    dropped(world, job, "MALFORMED", lambda h: h["ipv4"].update(hdr_checksum=right ^ 1 << bit))


@pytest.mark.parametrize("kind", [0, 2, 4, 8, 15])
def test_unknown_message_type(world, job, kind):
    dropped(world, job, "MALFORMED", lambda h: h["switchml"].update(msg_type=kind))


def test_reserved_bit(world, job):
    dropped(world, job, "MALFORMED", lambda h: h["switchml"].update(reserved=1))


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
)  # fmt: skip
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
