"""Arithmetic of `ina cluster check`, against flows that are counted one by one; what it says of them."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from ina.lab.servers import findings, outlook
from ina.lab.servers.hosts import Host
from ina.lab.servers.outlook import Placement
from ina.lab.servers.survey import Incast, Pair, Survey, Volley, packets

pytestmark = pytest.mark.fast
RANKS = [(1, 1), (1,) * 4, (1,) * 8, (2, 2), (8, 8, 8, 8), (1, 3, 2)]


def ring(ranks):
    """Most bytes that a card sends, for each byte of the tensor, from the steps of a ring through all ranks."""
    places = [server for server, count in enumerate(ranks) for _ in range(count)]
    total, sent = len(places), dict.fromkeys(range(len(ranks)), Fraction(0))
    for _step in range(2 * (total - 1)):
        for rank, server in enumerate(places):
            if places[(rank + 1) % total] != server:
                sent[server] += Fraction(1, total)
    return max(sent.values())


def star(ranks, own_server, switches):
    """Most bytes that a training server's card sends, and a switch process's card receives; ``own_server``: that of the switch
    process, None: it is on another."""
    sent, received = dict.fromkeys(range(len(ranks)), Fraction(0)), dict.fromkeys(range(switches), Fraction(0))
    for server, count in enumerate(ranks):
        for _rank, switch in itertools.product(range(count), range(switches)):
            if server != own_server:
                sent[server] += Fraction(1, switches)
                received[switch] += Fraction(1, switches)
    return max(sent.values()), max(received.values())


@pytest.mark.parametrize("ranks", RANKS)
def test_bytes_are_those_of_the_flows(ranks):
    assert outlook.ring_bytes(sum(ranks)) == pytest.approx(float(ring(ranks)))
    for switches in (1, 3):
        assert outlook.switch_bytes(ranks, 0, switches) == pytest.approx(float(star(ranks, None, switches)[1]))
    assert outlook.switch_bytes(ranks, ranks[-1]) == pytest.approx(float(star(ranks, len(ranks) - 1, 1)[1]))


@pytest.mark.parametrize("switches", [1, 3])
@pytest.mark.parametrize("ranks", RANKS)
def test_a_card_as_fast_as_needed_makes_large_sums_as_quick_as_a_ring(ranks, switches):
    own, received = star(ranks, None, switches)
    if own > ring(ranks):
        assert outlook.needed(ranks, 0, switches) == math.inf
    else:
        assert received / Fraction(outlook.needed(ranks, 0, switches)) == pytest.approx(ring(ranks))


@pytest.mark.parametrize("n", [2, 4, 8, 100])
def test_with_a_rank_a_server_the_needed_card_is_the_closed_form(n):
    assert outlook.needed((1,) * n) == pytest.approx(n * n / (2 * (n - 1)))
    assert outlook.needed((1,) * n, 0, 5) == pytest.approx(n * n / (2 * 5 * (n - 1)))
    assert outlook.needed((1,) * n, 1) == pytest.approx(n / 2)
    assert outlook.ring_trips((1,) * n) == n - 1


def test_the_figures_of_the_guide():
    assert outlook.needed((1, 1)) == 2 and round(outlook.needed((1,) * 8), 1) == 4.6


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("ratio", [0.4, 1.0, 2.0, 3.5])
def test_bits_are_the_most_that_are_as_quick(ranks, ratio):
    own, received = star(ranks, None, 1)
    quick = [bits for bits in range(1, 33) if Fraction(bits, 32) * max(own, received / Fraction(ratio)) <= ring(ranks)]
    assert outlook.most_bits(ranks, ratio) == max(quick, default=0)


def test_sums_of_the_even_size_take_as_long_as_by_a_ring():
    ranks, rate, switch_rate, trip = (1, 1, 1, 1), 1e9, 2e9, 1e-4
    even = outlook.even_size(ranks, rate, switch_rate, trip)
    by_ring = 3 * trip + even * 1.5 * 8 / rate
    by_switch = trip + max(even * 8 / rate, 4 * even * 8 / switch_rate)
    assert even > 1000 and by_ring == pytest.approx(by_switch)
    assert outlook.even_size((1, 1), rate, rate, trip) == 0
    assert outlook.even_size(ranks, rate, 4 * rate, trip) == math.inf


def test_steps_within_a_server_are_no_round_trips():
    assert outlook.ring_trips((2, 2)) == 1.5  # of 6 steps of half a round trip, every second one is between servers
    assert outlook.ring_trips((4,)) == 0


@pytest.mark.parametrize(("buffer", "frame", "slots"), [(0, 100, 0), (99, 100, 0), (100, 100, 1), (799, 100, 4), (800, 100, 8)])
def test_slots_that_fit_are_a_power_of_two(buffer, frame, slots):
    assert outlook.slots_for(buffer, frame) == slots


def test_values_that_fit_an_mtu():
    sizes = packets("switchml")
    assert sizes[256] == 50 + 16 + 4 * 256 and outlook.fitting(1500, sizes) == 256 and outlook.fitting(9000, sizes) == 2048
    assert outlook.fitting(sizes[64] - 1, sizes) == 32 and outlook.fitting(min(sizes.values()) - 1, sizes) == 0


# ---- verdicts

SIZES = {32: 178, 256: 1074, 2048: 8242}
HOSTS = [Host(f"node{n}", f"10.0.0.{n}") for n in (1, 2, 3)]


def pair(source, target, **figures):
    whole = {"mtu": 1500, "trip": 1e-4, "least": 9e-5, "offset": 0.0, "uncertainty": 5e-5, "rate": 1e9, "loss": 0.0,
             "length": 1074, "udp_rate": 1e8}
    return Pair(source, target, **whole | figures)


def survey(hosts=HOSTS, **changes):
    """Measurements of all pairs, with ``node1_node2={...}`` for those that differ."""
    names = [host.name for host in hosts]
    return Survey([pair(a, b, **changes.get(f"{a}_{b}", {})) for a in names for b in names if a != b])


def texts(measured, hosts=HOSTS):
    return [(problem.necessary, problem.text) for problem in findings.problems(hosts, measured, [], SIZES)]


def test_nothing_is_wrong():
    assert texts(survey()) == []


UNKNOWN = {"mtu": 0, "trip": None, "offset": None, "uncertainty": None, "rate": None, "loss": None}


@pytest.mark.parametrize(("changes", "necessary", "words"), [
    ({"node1_node2": {"udp": "nothing arrives"}}, True, ["UDP from node1 to node2 is blocked (nothing arrives)"]),
    ({"node1_node2": {"tcp": "no answer"}, "node3_node2": {"tcp": "refused"}}, True,
     ["TCP to node2 is blocked, from all others (no answer, refused)"]),
    ({"node1_node2": {"tcp": "x", "udp": "y"}, "node1_node3": {"tcp": "x", "udp": "y"}}, True,
     ["TCP and UDP from node1 are blocked, to all others (x, y)"]),
    ({"node1_node2": {"trip": None}}, True, ["UDP from node1 arrives at node2, but no answer comes back"]),
    ({"node1_node2": {"mtu": 1400}, "node3_node2": {"mtu": 1400}}, False, ["at most 1400 bytes arrive at and from node2, of"]),
    ({"node1_node2": {"mtu": 1400}}, False, ["at most 1400 bytes arrive between node1 and node2, of 1500"]),
    ({"node1_node2": {"rate": 4e8}, "node1_node3": {"rate": 3e8}}, False, ["node1 sends at most 400 Mb/s, the servers' median"]),
    ({"node1_node2": {"rate": 4e8}, "node3_node2": {"rate": 3e8}}, False, ["node2 receives at most 400 Mb/s"]),
    ({"node1_node2": {"rate": 4e8}}, False, []),  # each sends and receives at 1 Gb/s with another
    ({"node1_node2": {"loss": 0.02}}, False, ["node1 to node2 loses 2.00% of UDP packets of 1074 bytes at 100 Mb/s"]),
    ({"node1_node2": {"offset": -1.2}}, False, ["the clock of node2 is 1.2 s behind that of node1: that harms no sum, only"]),
    ({"node1_node2": {"offset": 1e5}}, False, ["100000.0 s ahead of that of node1: that harms no sum, but TLS certificates"]),
    ({"node1_node2": {"offset": 1.2, "uncertainty": 0.3}}, False, []),
    ({"node1_node2": {"error": "node1: the agent ended"}}, True, ["node1 to node2: node1: the agent ended"]),
])
def test_what_is_wrong_is_named_and_nothing_else(changes, necessary, words):
    found = texts(survey(**changes))
    assert len(found) == len(words), found
    for (is_necessary, text), expected in zip(found, words, strict=True):
        assert expected in text and is_necessary == necessary


def test_an_mtu_that_carries_no_packet_is_necessary_only_at_a_switch_process():
    small = {"node1_node2": {"mtu": 150}}
    assert any(need and "the shortest have 178" in text for need, text in texts(survey(**small)))
    hosts = [*HOSTS[:2], Host("node3", "10.0.0.3", switch=True)]
    assert not any(need for need, _ in texts(survey(**small), hosts))
    blocked = {"node1_node2": {"udp": "nothing arrives"}}
    assert [need for need, _ in texts(survey(**blocked), hosts)] == [False]


def test_the_necessary_comes_first():
    measured = survey(node1_node2={"loss": 0.5}, node2_node3={"tcp": "refused"})
    assert [need for need, _ in texts(measured)] == [True, False]


@pytest.mark.parametrize(("switch", "ranks", "placed"), [
    (False, None, [((1, 1, 1), 1), ((1, 1), 0)]), (False, 4, [((1, 1, 4), 4), ((1, 1), 0)]), (False, 0, [((1, 1), 0)]),
    (True, None, [((1, 1, 1), 1), ((1, 1), 0)]), (True, 4, [((1, 1, 4), 4)]), (True, 0, [((1, 1), 0)]),
])
def test_placements_are_those_that_the_file_leaves_open(switch, ranks, placed):
    hosts = [*HOSTS[:2], Host("node3", "10.0.0.3", switch, ranks)]
    assert findings.placements(hosts) == [Placement("node3", *each) for each in placed]


def test_ranks_of_one_server_need_no_network():
    assert findings.placements([Host("node1", "10.0.0.1"), Host("node2", "10.0.0.2", True, 0)]) == []


def expected(ranks, own, measured, hosts=HOSTS):
    return findings.expectation(Placement("node3", ranks, own), hosts, measured, SIZES)


def test_a_faster_card_wins_and_an_equal_one_does_not():
    def judged(rate):
        measured = survey()
        measured.incasts.append(Incast("node3", ["node1", "node2"], rate, 2 * (1 << 20), 1074, [Volley(128, 100, 100, 1e-3)]))
        e = expected((1, 1), 0, measured)
        return e, " ".join(findings.words(e))

    e, text = judged(2e9)
    assert e.needed == e.ratio == 2 and "as quick as a ring or quicker" in text and "Gloo" not in text
    e, text = judged(1e9)
    assert e.ratio == 1 and "leave them to Gloo or NCCL" in text and "A codec of at most 16 bits" in text
    assert "nothing is won there, either" in text  # two servers: a ring takes one round trip, too
    assert "-D VALUES=256" in text and "--job-slots 128 (2 ranks x 128 packets are 268.5 KiB" in text


def test_several_ranks_of_a_server_are_to_be_summed_there_first():
    hosts = [Host(f"node{n}", f"10.0.0.{n}", ranks=8) for n in (1, 2)] + [Host("node3", "10.0.0.3", True, 0)]
    e = expected((8, 8), 0, survey(hosts), hosts)
    text = " ".join(findings.words(e))
    assert e.needed == math.inf and e.within == 2 and e.json()["needed"] is None
    assert "no card is fast enough" in text and "Sum within each server first" in text and "2.00 times as fast a card." in text
    assert "Mark node3 with `switch`" in text


@pytest.mark.parametrize(("volleys", "granted", "words"), [
    ([(128, 1, 1), (256, 1, 1), (512, 2, 1)], 1 << 22,
     "--job-slots 256 (2 ranks x 256 packets are 537.0 KiB at a time, which arrived whole; of 512 some got lost)"),
    ([(128, 1, 1), (256, 1, 1), (512, 1, 1)], 1 << 22,
     "--job-slots 512 (2 ranks x 512 packets are 1.0 MiB at a time, which arrived whole; the most that was tried)"),
    ([(128, 1, 1), (256, 1, 1), (512, 1, 1)], 425984,
     "--job-slots 128 (2 ranks x 128 packets are 268.5 KiB at a time, which arrived whole; a socket's buffer holds 128: sysctl"),
    ([(1, 2, 1)], 425984, "Packets get lost however few ranks send at a time"),
    ([(1, 1, 1)], 1000, "Not one packet fits a socket's buffer"),
])
def test_the_window_is_what_arrived_whole_and_fits_a_socket(volleys, granted, words):
    measured = survey()
    measured.incasts.append(Incast("node3", ["node1", "node2"], 1e9, granted, 1074, [Volley(*each, 0.0) for each in volleys]))
    assert words in " ".join(findings.words(expected((1, 1), 0, measured)))


def test_what_was_not_measured_is_not_guessed():
    measured = survey(node1_node3=UNKNOWN | {"tcp": "x", "udp": "x"}, node1_node2={"rate": None}, node2_node1={"rate": None},
                      node2_node3={"rate": None}, node3_node2={"rate": None}, node3_node1={"rate": None})
    text = " ".join(findings.words(expected((1, 1), 0, measured)))
    assert "Not all rates are known" in text and "Round trips are not known" in text
