"""Measurements between servers: reachability, MTU, round trips, clocks, rates and loss of each pair, then incast at some servers.

One pair at a time, so that no measurement disturbs another. UDP is counted where it arrives, and the count comes by the agent's
connection: so each direction is known by itself, also where the other one is blocked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ina.aggregation import protocols
from ina.aggregation.wire.layout import size_codes
from ina.lab.servers import agent
from ina.lab.servers.outlook import fitting, slots_for
from ina.lab.servers.session import AgentError, Session
from ina.net.ports import TAG

COMMON = (128, 576, 1280, 1400, 1500, 9000)  # bytes of IP packets that are tried at first
COPIES = 3  # of each packet that tries an MTU: one that arrives is enough
STEPS = 16  # lengths that are tried at a time
SETTLE = 0.1  # s in which the last packets arrive
ETHERNET = 14  # bytes of a frame before its IP packet
WAIT = 0.5  # s for an answer to a probe
SOCKET_BUFFER = 8 << 20  # bytes, as the switch process asks for (host/net/port_udp.c)
FIRST_SLOTS, MOST_SLOTS = 128, 512  # of a job, and of the whole pool of a switch process, where nobody says otherwise
MOST_FRAMES = 1 << 15  # of all volleys at a time


@dataclass(frozen=True)
class Options:
    """Lengths of the measurements. ``seconds``: of each rate and loss; ``probes``: round trips of a pair; ``udp_rate``: bit/s;
    ``rounds``: of an incast."""

    seconds: float = 1.0
    probes: int = 100
    udp_rate: float = 100e6
    rounds: int = 20

    @classmethod
    def quick(cls, udp_rate: float = udp_rate) -> Options:
        return cls(0.2, 20, udp_rate, 5)

    def lifetime(self, servers: int) -> float:
        """Returns seconds after which an agent ends in any case: four times what all takes at least, and some more."""
        each = 3 * self.seconds + self.probes * 1e-3 + 5 * WAIT + 2
        return 120 + 4 * (servers * (servers - 1) * each + servers * (self.seconds + 12 * (self.rounds * WAIT + 1)))

    def about(self, servers: int) -> float:
        """Returns the seconds that all takes where nothing is blocked and round trips are short, about."""
        return servers * (servers - 1) * (2 * self.seconds + 0.7) + 3


@dataclass
class Pair:
    """Measurements from one server to another. ``tcp``, ``udp``: "", or why nothing gets there; ``error``: why it was not
    measured to the end. ``mtu``: bytes of the longest IP packet that arrives whole, 0: unknown. ``trip``: median, and ``least``,
    s; ``offset``: how far the other clock is ahead, s, within ``uncertainty``. ``rate``: bit/s of one TCP connection, without
    headers. ``loss``: share of UDP packets of ``length`` bytes at ``udp_rate`` bit/s, as they were sent."""

    source: str
    target: str
    tcp: str = ""
    udp: str = ""
    error: str = ""
    mtu: int = 0
    trip: float | None = None
    least: float | None = None
    offset: float | None = None
    uncertainty: float | None = None
    rate: float | None = None
    loss: float | None = None
    length: int = 0
    udp_rate: float | None = None


@dataclass
class Volley:
    """Volleys of ``slots`` packets from each rank, all at the same time: packets ``sent`` and ``arrived``, and the median time of
    those that were complete, s (0: none was)."""

    slots: int
    sent: int
    arrived: int
    seconds: float


@dataclass
class Incast:
    """Measurements at one server while all ``sources`` send to it. ``rate``: bit/s of TCP, one connection from each; ``granted``:
    bytes that the kernel accounts to one socket's buffer at most; ``length``: bytes of an IP packet of the volleys."""

    target: str
    sources: list[str]
    rate: float | None = None
    granted: int = 0
    length: int = 0
    volleys: list[Volley] = field(default_factory=list)
    error: str = ""

    @property
    def whole(self) -> int:
        """Slots of the largest volleys that arrived without loss, 0: of none."""
        return max((each.slots for each in self.volleys if each.sent and each.arrived >= each.sent), default=0)


@dataclass
class Survey:
    """Everything that was measured."""

    pairs: list[Pair] = field(default_factory=list)
    incasts: list[Incast] = field(default_factory=list)

    def pair(self, source: str, target: str) -> Pair | None:
        return next((pair for pair in self.pairs if (pair.source, pair.target) == (source, target)), None)

    def mtu(self, one: str, other: str) -> int:
        """Returns bytes of the longest IP packet that arrives in both directions, as far as it is known; 0: in neither."""
        return min((pair.mtu for pair in (self.pair(one, other), self.pair(other, one)) if pair and pair.mtu), default=0)

    def json(self) -> dict[str, Any]:
        return {"pairs": [asdict(pair) for pair in self.pairs],
                "incasts": [{**asdict(each), "whole": each.whole} for each in self.incasts]}


def packets(protocol: str) -> dict[int, int]:
    """Returns bytes of the protocol's longest IP packet, with its tag, by the values in it: all numbers that programs have."""
    return {values: protocols.frame_bytes(protocol, values) - ETHERNET + TAG for values in sorted(size_codes().values())}


class Surveyor:
    """Measures. ``packets``: bytes of an IP packet of the protocol by the values in it; ``note``: is told what is done now, and
    how much of how much is done."""

    def __init__(self, sessions: Sequence[Session], options: Options, packets: Mapping[int, int],
                 note: Callable[[int, int, str], None] = lambda done, total, words: None):
        self.sessions, self.options, self.packets, self._note = sessions, options, dict(packets), note
        self._stream = 0

    def survey(self, switches: Sequence[Session]) -> Survey:
        """Measures all pairs of agents that answer, and the incast at those of ``switches``."""
        result = Survey()
        pairs = [(a, b) for a in self.sessions for b in self.sessions if a is not b]
        total = len(pairs) + len(switches)
        for done, (source, target) in enumerate(pairs):
            self._note(done, total, f"{source.host.name} to {target.host.name}")
            if not source.failure and not target.failure:
                result.pairs.append(self._pair(source, target))
        for done, switch in enumerate(switches, start=len(pairs)):
            self._note(done, total, f"all to {switch.host.name}")
            sources = [each for each in self.sessions if each is not switch and not each.failure and each.host.ranks != 0
                       and (pair := result.pair(each.host.name, switch.host.name)) and not pair.tcp and not pair.udp]
            if sources and not switch.failure:
                result.incasts.append(self._incast(sources, switch, result))
        self._note(total, total, "done")
        return result

    def _expect(self, source: Session, target: Session) -> dict[str, Any]:
        """Announces a new stream; returns what its sender needs to know."""
        self._stream += 1
        target.ask("expect", stream=self._stream, peer=source.host.address)
        return {"stream": self._stream, "peer": target.host.address}

    @staticmethod
    def _arrived(target: Session, to: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what has arrived of a stream. Raises AgentError: an answer that makes no sense."""
        result = target.ask("arrived", stream=to["stream"])
        figures: dict[str, Any] = {key: number(result, key, target) for key in ("count", "bytes", "first", "last")}
        return figures | {"lengths": numbers(result, "lengths", target)}

    def _pair(self, source: Session, target: Session) -> Pair:
        pair = Pair(source.host.name, target.host.name)
        try:
            self._reach_tcp(source, target, pair)
            self._reach_udp(source, target, pair)
            if not pair.udp:
                pair.mtu = self._path_mtu(source, target)
                self._flood(source, target, pair)
            if not pair.tcp:
                to = self._expect(source, target)
                seconds = self.options.seconds
                source.ask("bulk", seconds + agent.SILENCE, port=target.facts["tcp_port"], seconds=seconds, **to)
                pair.rate = _rate([self._arrived(target, to)])
        except AgentError as error:
            pair.error = str(error)
        return pair

    def _reach_tcp(self, source: Session, target: Session, pair: Pair) -> None:
        to = self._expect(source, target)
        try:
            source.ask("connect", 4 * WAIT, port=target.facts["tcp_port"], wait=4 * WAIT, **to)
        except AgentError as error:
            if error.lost:
                raise
            pair.tcp = str(error)
        self._arrived(target, to)

    def _reach_udp(self, source: Session, target: Session, pair: Pair) -> None:
        """Measures round trips, and the clock; what arrives counts, if no answer comes back, too."""
        to, count = self._expect(source, target), self.options.probes
        limit = 5 * WAIT + count * 0.05
        try:
            echo = source.ask("echo", limit + WAIT, port=target.facts["udp_port"], count=count, wait=WAIT, seconds=limit, **to)
        except AgentError as error:
            if error.lost:
                raise
            echo = {"error": str(error)}
        if not self._arrived(target, to)["count"]:
            pair.udp = str(echo.get("error") or "nothing arrives")
        elif echo.get("answered"):
            pair.trip, pair.least, pair.offset = (number(echo, key, source) for key in ("median", "least", "offset"))
            pair.uncertainty = max(pair.least, 0.0) / 2  # each way takes no less than nothing

    def _path_mtu(self, source: Session, target: Session) -> int:
        """Returns the longest IP packet that arrives: among lengths between one that does and one that does not, again and
        again."""
        top = min(source.facts["mtu"] or 1 << 16, agent.LONGEST + agent.HEADERS)
        low, high, lengths = 0, top + 1, sorted({top, *(length for length in COMMON if length < top)})
        while lengths:
            to = self._expect(source, target)
            sent = source.ask("ladder", 1.0, port=target.facts["udp_port"], lengths=lengths, copies=COPIES, **to)
            time.sleep(SETTLE)
            arrived = set(self._arrived(target, to)["lengths"]).intersection(lengths)
            if not arrived and not low:
                return 0
            low = max(arrived | {low})
            high = min([high, *(length for length in lengths if length > low), *numbers(sent, "refused", source)])
            between = range(low + 1, high)
            places = {round(step * (len(between) - 1) / (STEPS - 1)) for step in range(STEPS)} if between else set()
            lengths = [between[place] for place in sorted(places)]
        return low

    def _flood(self, source: Session, target: Session, pair: Pair) -> None:
        pair.length = self._packet(pair.mtu)
        to = self._expect(source, target)
        flood = source.ask("flood", self.options.seconds, port=target.facts["udp_port"], length=pair.length - agent.HEADERS,
                           rate=self.options.udp_rate, seconds=self.options.seconds, **to)
        time.sleep(SETTLE)
        sent, seconds = number(flood, "sent", source), number(flood, "seconds", source)
        arrived = self._arrived(target, to)["count"]
        if sent and seconds > 0:
            pair.loss, pair.udp_rate = max(0.0, 1 - arrived / sent), sent * 8 * pair.length / seconds

    def _packet(self, mtu: int) -> int:
        """Returns bytes of the IP packet of the most values that the MTU carries, or of the smallest probe."""
        values = fitting(mtu, self.packets)
        return self.packets[values] if values else max(agent.HEAD.size + agent.HEADERS, min(mtu, COMMON[0]))

    # ---- incast

    def _incast(self, sources: Sequence[Session], target: Session, survey: Survey) -> Incast:
        names = [source.host.name for source in sources]
        result = Incast(target.host.name, names)
        try:
            streams = [self._expect(source, target) for source in sources]
            asked = [source.send("bulk", port=target.facts["tcp_port"], seconds=self.options.seconds, **to)
                     for source, to in zip(sources, streams, strict=True)]
            for source, command in zip(sources, asked, strict=True):
                source.result(command, self.options.seconds + agent.SILENCE)
            result.rate = _rate([self._arrived(target, to) for to in streams])
            result.length = self._packet(min(survey.mtu(name, target.host.name) for name in names))
            sockets = {source.host.address: source.host.ranks or 1 for source in sources}
            opened = target.ask("open_incast", sockets=sockets, buffer=SOCKET_BUFFER)
            result.granted = int(number(opened, "granted", target))
            if not isinstance(opened.get("ports"), dict):
                raise AgentError(f"{target.host.name}: answers without ports for the servers")
            ports = {address: numbers(opened["ports"], address, target) for address in sockets}
            most, tried = min(MOST_SLOTS, slots_for(MOST_FRAMES, sum(sockets.values()))), set[int]()
            slots = min(FIRST_SLOTS, most)
            while 1 <= slots <= most and slots not in tried:
                tried.add(slots)
                result.volleys.append(self._volley(sources, target, ports, slots, result.length))
                slots = 2 * slots if result.whole == slots else slots // 2
            target.ask("open_incast", sockets={}, buffer=1)
        except AgentError as error:
            result.error = str(error)
        return result

    def _volley(self, sources: Sequence[Session], target: Session, ports: Mapping[str, Sequence[int]], slots: int,
                length: int) -> Volley:
        self._stream += 1
        rounds, limit = self.options.rounds, 2.0 + self.options.rounds * WAIT
        asked = [source.send("volley", stream=self._stream, peer=target.host.address, ports=ports[source.host.address],
                             frames=slots, length=length - agent.HEADERS, rounds=rounds, seconds=limit + 1) for source in sources]
        expected = slots * sum(len(ports[source.host.address]) for source in sources)
        run = target.ask("run_incast", limit, stream=self._stream, rounds=rounds, expected=expected, wait=SETTLE, seconds=limit)
        if missing := run.get("missing"):
            raise AgentError(f"{target.host.name}: nothing arrives at more UDP ports than one from {str(missing)[:200]}")
        sent = sum(int(number(source.result(command, limit + 1), "sent", source))
                   for source, command in zip(sources, asked, strict=True))
        return Volley(slots, sent, int(number(run, "arrived", target)), number(run, "seconds", target))


def number(result: Mapping[str, Any], key: str, session: Session) -> float:
    """Returns a number of an agent's answer. Raises AgentError."""
    value = result.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e18:
        raise AgentError(f"{session.host.name}: answers with {key} = {str(value)[:100]!r}, expected a number")
    return value


def numbers(result: Mapping[str, Any], key: str, session: Session) -> list[int]:
    """Returns a list of whole numbers of an agent's answer. Raises AgentError."""
    values = result.get(key)
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise AgentError(f"{session.host.name}: answers with {key} = {str(values)[:100]!r}, expected a list of whole numbers")
    return values


def _rate(streams: Sequence[Mapping[str, Any]]) -> float | None:
    """Returns bit/s that have arrived of some streams together, or None: hardly anything has."""
    begun = [stream for stream in streams if stream["count"]]
    if not begun:
        return None
    seconds = max(stream["last"] for stream in begun) - min(stream["first"] for stream in begun)
    return 8 * sum(stream["bytes"] for stream in begun) / seconds if seconds > 0 else None
