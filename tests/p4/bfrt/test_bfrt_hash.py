"""Hashes of TNA programs that BFRuntime changes at run time: their input bits, their function, and the compute table."""

from __future__ import annotations

import binascii
import random
import zlib

import pytest
from capabilities import need
from tna_program import data, source

need("cc", "p4runtime")

from ina.p4.bfrt.device import Device  # noqa: E402
from ina.p4.bfrt.rows import Row, Where, message_of, row_of  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.runtime import EntityError, Switch  # noqa: E402

pytestmark = pytest.mark.build
PROGRAM = {
    "ingress_locals": """Hash<bit<32>>(HashAlgorithm_t.CRC32) h; Hash<bit<16>>(HashAlgorithm_t.XOR16) twice;
        Hash<bit<13>>(HashAlgorithm_t.IDENTITY) chooses;
        ActionProfile(16) profile; ActionSelector(profile, chooses, SelectorMode_t.FAIR, 8, 4) selector;
        action to(PortId_t port) { tm.ucast_egress_port = port; }
        table t { key = { hdr.data.e: exact; hdr.data.d: selector; } actions = { to; NoAction; } implementation = selector; }""",
    "ingress": """t.apply(); hdr.data.b = h.get({hdr.data.a, hdr.data.c, 8w7});
        hdr.data.c = twice.get({hdr.data.c}) ^ twice.get({hdr.data.a});""",
}
H = "pipe.I.h"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    path = tmp_path_factory.mktemp("hash") / "hash.p4"
    path.write_text(source(**PROGRAM))
    return compile_program(path)


@pytest.fixture
def switch(compiled):
    with Switch(compiled.so_path) as switch:
        for port in (1, 2, 3, 129):
            switch.add_port(port)
        yield switch


@pytest.fixture
def device(switch):
    return Device(switch)


def hashed(switch, a, c, port=1):
    ((_, frame),) = switch.step(data(a, 0, c), port)
    return int.from_bytes(frame[4:8], "big")


def piece(order, start=0, length=None):
    return {"order": order, "start_bit": start} | ({} if length is None else {"length": length})


def configure(device, **fields):
    """Sets the input slices of fields `a`, `c`; the constant is left out."""
    device.write("MODIFY", Row(f"{H}.configure", {}, {f"hdr.data.{f}": value for f, value in fields.items()}, is_default=True))


def algorithm(device, action="pre_defined", **values):
    device.write("MODIFY", Row(f"{H}.algorithm", {}, values, action, is_default=True))


def foretold(device, a, c):
    (row,) = device.read(Row(f"{H}.compute", {"hdr.data.a": a, "hdr.data.c": c}))
    return row.data["hash_value"]


PAIRS = [(random.Random(n).getrandbits(32), random.Random(-n).getrandbits(16)) for n in range(1, 6)]


def bits(a, c):
    return a.to_bytes(4, "big") + c.to_bytes(2, "big")


def test_at_first_it_is_what_the_program_says(device, switch):
    for a, c in PAIRS:
        assert hashed(switch, a, c) == zlib.crc32(bits(a, c) + b"\x07") == foretold(device, a, c)
    (row,) = device.read(Row(f"{H}.configure", is_default=True))
    assert row.data == {"hdr.data.a": [{"order": 1, "start_bit": 0, "length": 32}],
                        "hdr.data.c": [{"order": 2, "start_bit": 0, "length": 16}],
                        "constant0_8_7": [{"order": 3, "start_bit": 0, "length": 8}]}
    assert row_of(message_of(row, device.info), device.info) == row


def test_order_and_slices_of_fields(device, switch):
    configure(device, a=[piece(2)], c=[piece(1)])
    for a, c in PAIRS:
        assert hashed(switch, a, c) == zlib.crc32(c.to_bytes(2, "big") + a.to_bytes(4, "big")) == foretold(device, a, c)
    configure(device, a=[piece(1, 8, 16), piece(0, 0, 8)], c=[piece(2, 8)])  # a bit in the middle of a, the upper half of c
    for a, c in PAIRS:
        assert hashed(switch, a, c) == zlib.crc32(a.to_bytes(4, "big")[1:3] + c.to_bytes(2, "big")[:1]) == foretold(device, a, c)
    device.write("RESET", Row(f"{H}.configure", is_default=True))
    assert hashed(switch, *PAIRS[0], port=129) == zlib.crc32(bits(*PAIRS[0]) + b"\x07")


def test_two_slices_of_one_order_may_change_places(device, switch):
    configure(device, a=[piece(1, 0, 16), piece(1, 16, 16)], c=[piece(2)])
    for a, c in PAIRS:
        swapped = (a >> 16) | (a & 0xFFFF) << 16
        assert hashed(switch, a, c) == hashed(switch, swapped, c) == foretold(device, swapped, c) != hashed(switch, a ^ 1, c)


@pytest.mark.parametrize("name, expected", [
    ("CRC_32", zlib.crc32),
    ("jamcrc", lambda data: zlib.crc32(data) ^ 0xFFFFFFFF),
    ("XMODEM", lambda data: binascii.crc_hqx(data, 0)),
    ("crc_ccitt_false", lambda data: binascii.crc_hqx(data, 0xFFFF)),
    ("IDENTITY", lambda data: int.from_bytes(data, "big") & 0xFFFFFFFF),
    ("XOR", lambda data: int.from_bytes(data[:2], "big") ^ int.from_bytes(data[2:], "big")),
])
def test_functions_by_name(device, switch, name, expected):
    configure(device, a=[piece(1)], c=[piece(2)])
    algorithm(device, algorithm_name=name)
    for a, c in PAIRS:
        assert hashed(switch, a, c) == expected(bits(a, c)) == foretold(device, a, c)
    (row,) = device.read(Row(f"{H}.algorithm", is_default=True))
    assert (row.action, row.data["algorithm_name"], row.data["seed"]) == ("pre_defined", name.upper(), 0)


def test_a_crc_of_ones_own_seed_rotation_extension(device, switch):
    configure(device, a=[piece(1)], c=[piece(2)])
    own = {"polynomial": 0x1021, "hash_bit_width": 16, "init": 0xFFFF, "final_xor": 0x1234}
    algorithm(device, "user_defined", **own)
    for a, c in PAIRS:
        once = binascii.crc_hqx(bits(a, c), 0xFFFF) ^ 0x1234
        algorithm(device, "user_defined", **own)
        assert hashed(switch, a, c) == once == foretold(device, a, c)
        algorithm(device, "user_defined", extend=True, rotate=4, seed=0x0F, **own)
        twice = once << 16 | once
        assert hashed(switch, a, c) == ((twice << 4 | twice >> 28) & 0xFFFFFFFF) ^ 0x0F == foretold(device, a, c)
    reverse = {"polynomial": 0x04C11DB7, "reverse": True, "hash_bit_width": 32, "init": 0xFFFFFFFF, "final_xor": 0xFFFFFFFF}
    algorithm(device, "user_defined", **reverse)
    assert hashed(switch, *PAIRS[0]) == zlib.crc32(bits(*PAIRS[0]))
    algorithm(device, algorithm_name="CRC_64", msb=True)
    high = hashed(switch, *PAIRS[0])
    algorithm(device, algorithm_name="CRC_64")
    assert hashed(switch, *PAIRS[0]) != high == foretold_high(device)


def foretold_high(device):
    algorithm(device, algorithm_name="CRC_64", msb=True)
    result = foretold(device, *PAIRS[0])
    algorithm(device, algorithm_name="CRC_64")
    return result


def test_what_is_refused_changes_nothing(device, switch):
    for fields, reason in (
        ({"a": [piece(1, 3, 4), piece(2, 1, 9)]}, "slices overlap at bit 3"),
        ({"a": [piece(1, 37, 53)]}, "start_bit 37: it has 32 bits"),
        ({"a": [piece(1, 0, 5), piece(1, 5, 5), piece(1, 10, 5)]}, "order 1: at most two"),
        ({"a": [piece(1, 0, 3)], "c": [piece(1, 5, 5)]}, "order 1: at most two slices, which are then as long"),
    ):
        with pytest.raises(EntityError, match=reason):
            configure(device, **fields)
    for values, reason in (({"polynomial": 0x11021, "hash_bit_width": 16}, "does not fit 16 bits"), ({}, "polynomial is missing"),
                           ({"polynomial": 3, "hash_bit_width": 4}, "expected 8..64")):
        with pytest.raises(EntityError, match=reason):
            algorithm(device, "user_defined", **values)
    assert hashed(switch, *PAIRS[0]) == zlib.crc32(bits(*PAIRS[0]) + b"\x07")


def test_a_hash_of_several_calls_has_no_tables(device):
    assert not any("twice" in name for name in device.info.tables)


def test_which_member_a_hash_chooses(device, switch):
    device.write("INSERT", Row("pipe.I.profile", {"$ACTION_MEMBER_ID": 5}, {"port": 2}, "I.to"))
    device.write("INSERT", Row("pipe.I.profile", {"$ACTION_MEMBER_ID": 6}, {"port": 3}, "I.to"))
    group = {"$ACTION_MEMBER_ID": [6, 5], "$ACTION_MEMBER_STATUS": [True, True]}
    device.write("INSERT", Row("pipe.I.selector", {"$SELECTOR_GROUP_ID": 1}, group))
    device.write("INSERT", Row("pipe.I.t", {"hdr.data.e": 0}, {"$SELECTOR_GROUP_ID": 1}))
    for number in range(4):
        key = {"$SELECTOR_GROUP_ID": 1, "hash_value": number}
        (row,) = device.read(Row("pipe.I.selector_get_member", key))
        ((port, _),) = switch.step(data(1, 0, 0, number), 1)
        assert {5: 2, 6: 3}[row.data["$ACTION_MEMBER_ID"]] == port
    with pytest.raises(EntityError, match="group 2 is not there"):
        device.read(Row("pipe.I.selector_get_member", {"$SELECTOR_GROUP_ID": 2, "hash_value": 0}))


def test_a_group_is_as_it_was_said_and_has_no_more_than_it_has_room_for(device):
    device.write("INSERT", Row("pipe.I.profile", {"$ACTION_MEMBER_ID": 5}, {"port": 2}, "I.to"))
    device.write("INSERT", Row("pipe.I.profile", {"$ACTION_MEMBER_ID": 6}, {"port": 3}, "I.to"))
    key = {"$SELECTOR_GROUP_ID": 1}
    group = {"$ACTION_MEMBER_ID": [6, 5, 6], "$ACTION_MEMBER_STATUS": [True, True, False], "$MAX_GROUP_SIZE": 4}
    device.write("INSERT", Row("pipe.I.selector", key, {}))
    with pytest.raises(EntityError, match="group 1 has no members"):
        device.write("INSERT", Row("pipe.I.t", {"hdr.data.e": 0}, {"$SELECTOR_GROUP_ID": 1}))
    device.write("MODIFY", Row("pipe.I.selector", key, group))
    with pytest.raises(EntityError, match="not supported there") as error:
        device.write("MODIFY", Row("pipe.I.t", {}, {"$SELECTOR_GROUP_ID": 1}, is_default=True))
    assert error.value.code == "UNIMPLEMENTED"
    device.write("INSERT", Row("pipe.I.t", {"hdr.data.e": 0}, {"$SELECTOR_GROUP_ID": 1}))
    with pytest.raises(EntityError, match="group 1 is in use"):
        device.write("MODIFY", Row("pipe.I.selector", key, {"$ACTION_MEMBER_ID": [5], "$ACTION_MEMBER_STATUS": [False]}))
    assert device.read(Row("pipe.I.selector", key))[0].data == group
    with pytest.raises(EntityError, match="9: at most 8"):
        device.write("MODIFY", Row("pipe.I.selector", key, {"$MAX_GROUP_SIZE": 9}))
    with pytest.raises(EntityError, match="5 members, the group has room for 4"):
        device.write("MODIFY", Row("pipe.I.selector", key, {"$ACTION_MEMBER_ID": [5] * 5, "$ACTION_MEMBER_STATUS": [True] * 5}))
    with pytest.raises(EntityError, match="all pipes have the same groups"):
        device.write("MODIFY", Row("pipe.I.selector", key, {"$MAX_GROUP_SIZE": 2}), Where(0))
    assert device.read(Row("pipe.I.selector", key))[0].data == group


def test_symmetric_fields_of_the_program_enter_as_compiled_with_another_function(tmp_path):
    """The same CRC by its name in BFRuntime changes nothing, though the two fields are no neighbours."""
    path = tmp_path / "hash.p4"
    path.write_text(source(ingress_locals='@symmetric("hdr.data.a", "hdr.data.b") Hash<bit<32>>(HashAlgorithm_t.CRC32) h;',
                           ingress="hdr.data.b = h.get({hdr.data.a, hdr.data.d, hdr.data.b});"))
    with Switch(compile_program(path).so_path) as switch:
        switch.add_port(1)
        device = Device(switch)
        for name in ("", "CRC_32", "IDENTITY"):
            if name:
                algorithm(device, algorithm_name=name)
            ((_, frame),) = switch.step(data(0x01020304, 0x0A0B0C0D, 0, 9), 1)
            entered = bytes(4) + b"\x09" + (0x01020304 ^ 0x0A0B0C0D).to_bytes(4, "big")
            expected = int.from_bytes(entered[5:], "big") if name == "IDENTITY" else zlib.crc32(entered)
            assert int.from_bytes(frame[4:8], "big") == expected
