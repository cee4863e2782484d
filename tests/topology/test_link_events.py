"""Events of links as text: what a line means, and what is said of one that means nothing."""

from __future__ import annotations

import pytest

from ina import topology as topologies
from ina.topology import Link, Node, Topology, TopologyError
from ina.topology.link_events import Action, LinkEvent, check, events, link_part

pytestmark = pytest.mark.fast

NET = topologies.load("leaf-spine", leaves=2, spines=2, hosts=2, rate=100e9)
LINK = {name: number for number, name in enumerate(NET.link_names())}
PARALLEL = Topology("parallel", tuple(map(Node, ("h1", "h2", "s1", "s2"))), (
    Link("h1", "s1"), Link("h2", "s2"), Link("s1", "s2"), Link("s1", "s2"), Link("s2", "s1", simplex=True)))


def test_a_link_fails_and_heals_in_both_directions():
    assert events(NET, ["at 1ms heal s1-s3", "at 200us fail s1-s3"]) == (
        LinkEvent(200e-6, Action.FAIL, LINK["s1-s3"]), LinkEvent(1e-3, Action.HEAL, LINK["s1-s3"]))
    assert events(NET, ["at 200us fail s3-s1 for 800us"]) == events(NET, ["at 200us fail s1-s3", "at 1000us heal s1-s3"])


def test_one_direction_fails_alone():
    (there,), (back,) = events(NET, ["at 0s fail s1>s3"]), events(NET, ["at 0s fail s3>s1"])
    assert (there.link, there.directions, back.link, back.directions) == (LINK["s1-s3"], (0,), LINK["s1-s3"], (1,))


def test_a_flapping_link_is_up_in_the_end():
    for line, count in (("at 1ms flap s1-s3 every 50us for 300us", 6), ("at 1ms flap s1-s3 every 50us for 250us", 6),
                        ("at 1ms flap s1-s3 every 5ms for 1ms", 2)):
        flaps = events(NET, [line])
        assert [flap.action for flap in flaps] == [Action.FAIL, Action.HEAL] * (count // 2)
        assert [flap.at for flap in flaps][0] == 1e-3
    assert [flap.at for flap in events(NET, ["at 0us flap s1-s3 every 50us for 150us"])] == [0, 50e-6, 100e-6, 150e-6]


def test_a_slow_link_has_its_own_rate_again():
    assert events(NET, ["at 300us slow s1-h1 10G for 1ms"]) == (
        LinkEvent(300e-6, Action.SLOW, LINK["h1"], (0, 1), 10e9),
        LinkEvent(1300e-6, Action.SLOW, LINK["h1"], (0, 1), 100e9))


def test_links_have_names_from_both_ends():
    assert {link_part(NET, name).link for name in ("h1", "h1-s1", "s1-h1", "h1>s1", "s1>h1")} == {LINK["h1"]}
    assert [link_part(PARALLEL, name).link for name in ("s1-s2", "s1-s2:2", "s2-s1", "s2-s1:2")] == [2, 3, 4, 3]
    assert link_part(PARALLEL, "s2-s1").directions == (0,)
    assert link_part(PARALLEL, "s2>s1:2") == link_part(PARALLEL, "s2>s1:2")
    assert link_part(NET, "s3-s1").name == "s1-s3"


@pytest.mark.parametrize(("line", "expected"), [
    ("", "expected at TIME fail LINK [for TIME]; at TIME heal LINK"),
    ("fail s1-s3", "expected at TIME fail LINK"),
    ("at 5 fail s1-s3", "'5': expected a time such as 200us, with ps, ns, us, ms or s"),
    ("at -5us fail s1-s3", "'-5us': expected a time"),
    ("at 5us drop s1-s3", "'drop': expected fail, heal, flap or slow"),
    ("at 5us fail s1-s3 5us", "expected at TIME fail LINK [for TIME]"),
    ("at 5us heal s1-s3 for 5us", "expected at TIME heal LINK"),
    ("at 5us flap s1-s3 every 5us", "expected at TIME flap LINK every TIME for TIME"),
    ("at 5us flap s1-s3 every 0us for 5us", "'0us': expected a time above 0"),
    ("at 5us flap s1-s3 every 1ns for 1s", "it flaps 1,000,000,000 times, expected at most 100,000"),
    ("at 5us slow s1-s3", "expected at TIME slow LINK [RATE] [delay TIME] [for TIME]"),
    ("at 5us slow s1-s3 0G", "'0G': expected a rate such as 10G, above 0"),
    ("at 5us slow s1-s3 fast", "'fast': expected a rate"),
])
def test_a_line_that_means_nothing_is_quoted_with_what_was_expected(line: str, expected: str):
    with pytest.raises(TopologyError) as error:
        check([line])
    assert f"link event {line!r}: " in str(error.value)
    assert expected in str(error.value)


def test_an_unknown_link_is_reported_with_those_of_its_nodes():
    with pytest.raises(TopologyError, match=r"'at 5us fail s1-s2': there is no link 's1-s2' in leaf-spine; expected one of h1"):
        events(NET, ["at 5us fail s1-s2"])
    with pytest.raises(TopologyError, match="there is no link 'x'.*expected one of h1"):
        events(NET, ["at 5us fail x"])
