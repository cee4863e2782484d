"""The kernel's notices of network interfaces, as the switch process reads them."""

import struct

import pytest

from ina.worlds.testbed.carrier import IFF_RUNNING, IFF_UP, RTM_DELLINK, RTM_NEWLINK, notices

pytestmark = pytest.mark.fast


def notice(name, flags, kind=RTM_NEWLINK):
    text = name.encode() + b"\0"
    attributes = struct.pack("=HHI", 8, 4, 1500) + struct.pack("=HH", 4 + len(text), 3) + text + b"\0" * (-len(text) % 4)
    return struct.pack("=IHHIIBxHiII", 32 + len(attributes), kind, 0, 0, 0, 0, 1, 7, flags, 0) + attributes


def test_notices_say_why_an_interface_carries_nothing():
    data = (notice("s1-eth1", IFF_UP | IFF_RUNNING) + notice("s1-eth22", IFF_UP) + notice("s2-eth1", 0)
            + notice("s3-eth3", IFF_UP | IFF_RUNNING, RTM_DELLINK))
    assert notices(data) == [("s1-eth1", ""), ("s1-eth22", "it has no carrier"), ("s2-eth1", "it is set down"),
                             ("s3-eth3", "it is gone")]


def test_other_messages_and_cut_ones_are_passed_over():
    end_of_dump = struct.pack("=IHHIIi", 20, 3, 2, 0, 0, 0)
    assert notices(end_of_dump + notice("s1-eth1", 0)) == [("s1-eth1", "it is set down")]
    assert notices(notice("s1-eth1", 0)[:30]) == [] and notices(struct.pack("=IHHII", 0, 16, 0, 0, 0)) == []
