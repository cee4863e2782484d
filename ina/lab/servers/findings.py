"""Verdicts of ``ina cluster check``: what is wrong between the servers, and what summing by a switch process can win there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from ina.base.plurals import counted
from ina.lab.servers import outlook
from ina.lab.servers.hosts import Host
from ina.lab.servers.outlook import Placement
from ina.lab.servers.survey import SOCKET_BUFFER, Incast, Pair, Survey

SLOW = 0.5  # of the servers' median rate: less is named
LOST = 1e-3  # share of lost packets that is named
CLOCK = 1.0  # s between clocks that are named
DAY = 86400.0  # s: certificates for P4Runtime are valid from a day before they are made (ina/p4/rpc/certificates.py)


@dataclass(frozen=True)
class Problem:
    """A finding. ``necessary``: training over these servers fails because of it."""

    necessary: bool
    text: str


def needs_udp(hosts: Sequence[Host]) -> set[str]:
    """Returns the names of servers to and from which UDP is necessary: those that may run a switch process."""
    return {host.name for host in hosts if host.switch} or {host.name for host in hosts}


def problems(hosts: Sequence[Host], survey: Survey, failures: Iterable[str], packets: Mapping[int, int]) -> list[Problem]:
    """Returns what is wrong, the necessary first. ``failures``: of agents; ``packets``: bytes of IP packets by values."""
    found = [Problem(True, failure) for failure in failures]
    found += [Problem(True, f"{pair.source} to {pair.target}: {pair.error}") for pair in survey.pairs if pair.error]
    found += [Problem(False, f"incast at {each.target}: {each.error}") for each in survey.incasts if each.error]
    tcp = "TCP between all servers (port 5588 of the switch process, torch's 29500, any for Gloo)"
    udp = "UDP of any port between the switch process's server and the others"
    tried = {(pair.source, pair.target): pair for pair in survey.pairs}
    both = {key: ", ".join(dict.fromkeys((pair.tcp, pair.udp))) if pair.tcp and pair.udp else "" for key, pair in tried.items()}
    for kind, opened, reasons in (
        ("TCP and UDP", f"{tcp}, and {udp}", both),
        ("TCP", tcp, {key: "" if both[key] else pair.tcp for key, pair in tried.items()}),
        ("UDP", udp, {key: "" if both[key] else pair.udp for key, pair in tried.items()}),
    ):
        for text, blocked in grouped(reasons, kind):
            needed = kind != "UDP" or any(needs_udp(hosts) & set(pair) for pair in blocked)
            found.append(Problem(needed, f"{text}. A firewall, or no route? Let through {opened}"))
    found += _one_way(survey)
    found += _mtu(hosts, survey, packets)
    found += _slow(hosts, survey)
    lost = {(pair.source, pair.target): f"loses {pair.loss:.2%} of UDP packets of {pair.length} bytes at "
            f"{(pair.udp_rate or 0) / 1e6:.0f} Mb/s" for pair in survey.pairs if (pair.loss or 0) > LOST}
    found += [Problem(False, f"{source} to {target} {text}") for (source, target), text in lost.items()]
    found += _clocks(survey)
    return sorted(found, key=lambda problem: not problem.necessary)


def grouped(reasons: Mapping[tuple[str, str], str], kind: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns texts about pairs that are blocked, with these pairs: one for a server that nothing reaches, or that reaches
    nothing, if more than one pair shows it. ``reasons``: by source and target, "" where it is not blocked."""
    blocked = {pair: reason for pair, reason in reasons.items() if reason}
    texts, verb = [], "are" if " " in kind else "is"
    for at, form in ((1, "{kind} to {name} {verb} blocked, from all others ({reason})"),
                     (0, "{kind} from {name} {verb} blocked, to all others ({reason})")):
        for name in dict.fromkeys(pair[at] for pair in blocked):
            own = [pair for pair in reasons if pair[at] == name]
            if len(own) > 1 and all(pair in blocked for pair in own):
                why = ", ".join(dict.fromkeys(blocked.pop(pair) for pair in own))
                texts.append((form.format(kind=kind, name=name, verb=verb, reason=why), own))
    return texts + [(f"{kind} from {pair[0]} to {pair[1]} {verb} blocked ({reason})", [pair]) for pair, reason in blocked.items()]


def _one_way(survey: Survey) -> Iterable[Problem]:
    """Yields pairs whose answers get lost, where neither direction is blocked for whoever sends first."""
    for pair in survey.pairs:
        back = survey.pair(pair.target, pair.source)
        if not pair.udp and not pair.error and pair.trip is None and back and not back.udp:
            yield Problem(True, f"UDP from {pair.source} arrives at {pair.target}, but no answer comes back. A firewall that "
                          "knows no replies of UDP?")


def _mtu(hosts: Sequence[Host], survey: Survey, packets: Mapping[int, int]) -> Iterable[Problem]:
    """Yields servers, else pairs, whose MTU is smaller than the largest between any two; and what carries no packet at all."""
    pairs = {(pair.source, pair.target): mtu for pair in survey.pairs
             if pair.source < pair.target and (mtu := survey.mtu(pair.source, pair.target))}
    most = max(pairs.values(), default=0)
    small = {pair: mtu for pair, mtu in pairs.items() if mtu < most}
    for host in hosts:
        own = [pair for pair in pairs if host.name in pair]
        if own and all(pair in small for pair in own) and len({small[pair] for pair in own}) == 1 and len(pairs) > 1:
            mtu = [small.pop(pair) for pair in own][0]
            yield Problem(False, f"packets of at most {mtu} bytes arrive at and from {host.name}, of {most} elsewhere: set its "
                          "card's and its port's MTU as the others'")
    for (one, other), mtu in small.items():
        yield Problem(False, f"packets of at most {mtu} bytes arrive between {one} and {other}, of {most} elsewhere")
    least = min(packets.values())
    for (one, other), mtu in pairs.items():
        if mtu < least and needs_udp(hosts) & {one, other}:
            yield Problem(True, f"packets of at most {mtu} bytes arrive between {one} and {other}: the shortest have {least}")


def _slow(hosts: Sequence[Host], survey: Survey) -> Iterable[Problem]:
    """Yields servers whose best rate out, or in, is less than SLOW of the servers' median."""
    for at, words in ((0, "sends"), (1, "receives")):
        best: dict[str, float] = {}
        for pair in survey.pairs:
            if pair.rate is not None:
                name = (pair.source, pair.target)[at]
                best[name] = max(best.get(name, 0.0), pair.rate)
        if len(best) > 2:
            middle = median(best.values())
            for name, rate in best.items():
                if rate < SLOW * middle:
                    yield Problem(False, f"{name} {words} at most {bits(rate)}, the servers' median is {bits(middle)}: a slower "
                                  "card, cable or port?")


def _clocks(survey: Survey) -> Iterable[Problem]:
    far = [pair for pair in survey.pairs if pair.source < pair.target and pair.offset is not None
           and abs(pair.offset) - (pair.uncertainty or 0) > CLOCK]
    for pair in far:
        offset = abs(pair.offset or 0)
        harm = "that harms no sum, only times in logs do not fit together"
        if offset > DAY:
            harm = "that harms no sum, but TLS certificates that one has made are not valid yet, or any more, for the other"
        ahead = "ahead of" if (pair.offset or 0) > 0 else "behind"
        yield Problem(False, f"the clock of {pair.target} is {offset:.1f} s {ahead} that of {pair.source}: {harm}")


# ---- what a switch process can win


def placements(hosts: Sequence[Host]) -> list[Placement]:
    """Returns the ways to place one switch process that are to be judged: on each server that is marked, else on the last; with
    its ranks, and, unless the file says their number of a marked one, without."""
    result = []
    for host in [host for host in hosts if host.switch] or [hosts[-1]]:
        others = tuple(1 if other.ranks is None else other.ranks for other in hosts if other != host and other.ranks != 0)
        if host.ranks != 0:
            own = host.ranks or 1
            result.append(Placement(host.name, (*others, own), own))
        if others and (host.ranks in (0, None) or not host.switch):
            result.append(Placement(host.name, others, 0))
    return [each for each in result if len(each.ranks) > 1]


@dataclass(frozen=True)
class Expectation:
    """Figures of a placement. Rates in bit/s: ``rate`` of the slowest pair that trains, ``switch_rate`` into the switch process's
    server; ``ratio`` of them, ``needed`` for large sums to be as quick as a ring's; ``within``: needed after sums within each
    server. ``most_bits``: of a value, with which they are as quick then. ``trip``: s, of the slowest server; ``ring_trips``:
    round trips of a small sum in a ring; ``even``: bytes up to which a sum is as quick. ``values``: of a packet (0: none fits),
    ``packet``: its bytes; ``slots``: whose packets arrived whole, None: not measured; ``buffer_slots``: that fit a socket's
    buffer. None: not measured; infinite: as in outlook."""

    placement: Placement
    ring_bytes: float
    switch_bytes: float
    rate: float | None
    switch_rate: float | None
    needed: float
    within: float
    most_bits: int | None
    trip: float | None
    ring_trips: float
    even: float | None
    values: int
    packet: int
    slots: int | None
    buffer_slots: int | None
    tried: int

    @property
    def ratio(self) -> float | None:
        return self.switch_rate / self.rate if self.rate and self.switch_rate else None

    def json(self) -> dict[str, Any]:
        """Returns the figures; None in place of what is infinite."""
        figures = {**asdict(self), "ratio": self.ratio}
        return {key: None if isinstance(value, float) and math.isinf(value) else value for key, value in figures.items()}


def expectation(placement: Placement, hosts: Sequence[Host], survey: Survey, packets: Mapping[int, int]) -> Expectation:
    server = placement.server
    training = [host.name for host in hosts if host.ranks != 0 and (host.name != server or placement.own)]
    senders = [name for name in training if name != server]
    rates = [pair.rate for pair in survey.pairs if {pair.source, pair.target} <= set(training) and pair.rate]
    to_switch = [pair for name in senders if (pair := survey.pair(name, server))]
    incast = next((each for each in survey.incasts if each.target == server), None)
    into = [incast.rate] if incast and incast.rate and len(incast.sources) > 1 else [pair.rate for pair in to_switch if pair.rate]
    rate, switch_rate = min(rates, default=None), min(into, default=None)
    trips = [pair.trip for pair in to_switch if pair.trip is not None]
    trip = max(trips) if len(trips) == len(senders) else None
    mtu = min((survey.mtu(name, server) for name in senders), default=0)
    values = outlook.fitting(mtu, dict(packets))
    packet = packets.get(values, 0)
    ranks, own, within = placement.ranks, placement.own, placement.within
    ratio = switch_rate / rate if rate and switch_rate else None
    return Expectation(
        placement, outlook.ring_bytes(sum(ranks)), outlook.switch_bytes(ranks, own), rate, switch_rate,
        outlook.needed(ranks, own), outlook.needed(within.ranks, within.own),
        None if ratio is None else outlook.most_bits(within.ranks, ratio, within.own), trip, outlook.ring_trips(ranks),
        outlook.even_size(ranks, rate, switch_rate, trip, own) if rate and switch_rate and trip is not None else None,
        values, packet, *_slots(incast, packet))


def _slots(incast: Incast | None, packet: int) -> tuple[int | None, int | None, int]:
    """Returns the slots whose packets arrived whole, those that fit a socket's buffer, and the most that were tried."""
    if incast is None or not incast.volleys or not packet:
        return None, None, 0
    data = min(SOCKET_BUFFER, incast.granted // 2)  # the kernel doubles what a socket asks for, for its bookkeeping (socket(7))
    return incast.whole, outlook.slots_for(data, packet), max(each.slots for each in incast.volleys)


def words(e: Expectation) -> list[str]:
    """Returns what to expect of a placement: its heading, then sentences."""
    place, total = e.placement, sum(e.placement.ranks)
    several = max(place.ranks) > 1
    heading = (f"{place.server} runs the switch process{', and trains' if place.own else ' alone'}: "
               f"{counted(total, 'rank')} on {counted(len(place.ranks), 'server')}")
    lines = [heading]
    if e.rate is None or e.switch_rate is None or e.ratio is None:
        lines.append("Not all rates are known: nothing is said about large tensors.")
    else:
        lines.append(
            f"Large tensors: for each byte a ring sends {e.ring_bytes:.2f} over each card ({bits(e.rate)} here), and the switch "
            f"process's card receives and sends {e.switch_bytes:g} ({bits(e.switch_rate)} here, {e.ratio:.2f} times that).")
        lines += _large(e, several)
    if e.trip is None:
        lines.append("Round trips are not known: nothing is said about small tensors.")
    else:
        ring = f"{e.ring_trips:.3g} round trips ({micro(e.ring_trips * e.trip)})"
        lines.append(f"Small tensors: one round trip ({micro(e.trip)}) and the switch program's time, where a ring takes {ring} "
                     "at least." + _even(e))
    return lines + _settings(e, total)


def _large(e: Expectation, several: bool) -> list[str]:
    """Returns sentences about large tensors."""
    assert e.ratio is not None
    lines = []
    if e.needed <= e.ratio:
        return [f"The switch process is as quick as a ring or quicker: it needs {e.needed:.2f} times as fast a card."]
    if math.isinf(e.needed):
        lines.append("With several ranks on a server no card is fast enough: each rank's bytes cross its server's card, a ring's "
                     "only once.")
    else:
        lines.append(f"It would need {e.needed:.2f} times as fast a card, so large tensors are slower than by a ring: leave them "
                     "to Gloo or NCCL.")
    if several:
        lines.append("Sum within each server first (a process group of each, over NCCL or Gloo), then one rank of each through "
                     f"the switch: that needs {e.within:.2f} times as fast a card{', as it is' if e.within <= e.ratio else ''}.")
    if e.within > e.ratio and e.most_bits:
        lines.append(f"A codec of at most {counted(e.most_bits, 'bit')} a value makes up for it, where a loss of accuracy is "
                     "fine (docs/guide/codecs.md).")
    elif e.within > e.ratio:
        lines.append("No codec makes up for it.")
    return lines


def _even(e: Expectation) -> str:
    if e.even is None or math.isinf(e.even):
        return ""
    return f" Sums up to about {size(e.even)} are as quick as in a ring." if e.even >= 1 else " So nothing is won there, either."


def _settings(e: Expectation, total: int) -> list[str]:
    """Returns sentences about VALUES and slots."""
    if not e.values:
        return []
    line = f"Packets: -D VALUES={e.values} fits the MTU ({e.packet} bytes from IPv4 on)."
    if e.slots is None or e.buffer_slots is None:
        return [f"{line} Mark {e.placement.server} with `switch` to measure how many packets at a time arrive whole."]
    if not e.slots:
        return [f"{line} Packets get lost however few ranks send at a time: see the losses above."]
    slots, ranks = min(e.slots, e.buffer_slots), total - e.placement.own
    if not slots:
        return [f"{line} Not one packet fits a socket's buffer: sysctl -w net.core.rmem_max={SOCKET_BUFFER} on "
                f"{e.placement.server}."]
    if e.buffer_slots < e.slots:
        why = f"a socket's buffer holds {e.buffer_slots}: sysctl -w net.core.rmem_max={SOCKET_BUFFER} there allows more"
    else:
        why = "the most that was tried" if e.slots == e.tried else f"of {2 * e.slots} some got lost"
    return [line, f"Window: --job-slots {slots} ({ranks} ranks x {slots} packets are {size(ranks * slots * e.packet)} at a time, "
            f"which arrived whole; {why})."]


# ---- figures in words


def bits(rate: float) -> str:
    """Returns a rate in Mb/s or Gb/s."""
    return f"{rate / 1e9:.2f} Gb/s" if rate >= 1e9 else f"{rate / 1e6:.3g} Mb/s"


def micro(seconds: float) -> str:
    """Returns a time in µs or ms."""
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def size(number: float) -> str:
    """Returns a number of bytes in B, KiB or MiB."""
    if number < 1024:
        return f"{number:.0f} B"
    return f"{number / 1024:.1f} KiB" if number < 1 << 20 else f"{number / (1 << 20):.1f} MiB"


def is_whole(pair: Pair) -> bool:
    """Returns True if everything was measured between a pair."""
    return not (pair.tcp or pair.udp or pair.error) and pair.trip is not None
