"""The links of a network as its switch process sees and changes them: carrier of their interfaces, probes between switches, and
changes by command, such as a cut."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from ina.aggregation.controller.switch_host import LinkChange, LinkNews
from ina.net.ports import PS
from ina.topology import link_events
from ina.topology.link_events import Action, LinkEvent
from ina.worlds.testbed.carrier import Carrier
from ina.worlds.testbed.description import Description
from ina.worlds.testbed.forwarder import Forwarder
from ina.worlds.testbed.link_board import HEARD, HEARD_AT, INTERVAL, LOOKED_AT, LOST, SENT, SENT_AT, LinkBoard
from ina.worlds.testbed.link_detector import DirectionDetector, LinkHealth, Sight


class Links:
    """The watch over the links of ``description``, with their ``board``, at ``switches``. A link's interfaces are those at the
    switches; links of memory have none. Links between switches have probes, unless ``description.link_probe`` is 0."""

    def __init__(self, description: Description, board: LinkBoard, switches: Mapping[str, Forwarder]):
        self._board, self._description, self._switches = board, description, switches
        self._names = description.topology.link_names()
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._interfaces = {port.interface: port.host.name for port in description.ports}
        if description.cables == "veth":
            for trunk in description.trunks:
                self._interfaces |= {trunk.a_interface: trunk.name, trunk.b_interface: trunk.name}
        self._health = {name: LinkHealth() for name in self._names}
        self._detectors = {trunk.number: {direction: DirectionDetector() for direction in ((0,) if trunk.simplex else (0, 1))}
                           for trunk in description.trunks} if description.link_probe else {}
        self._next = time.monotonic()
        self._planned: list[tuple[float, int, LinkEvent]] = []  # a heap, by time (monotonic seconds) and order
        self._order = itertools.count()
        self._slow: dict[tuple[int, int], tuple[float, str]] = {}  # by link and direction: rate, and how it is slow
        self._carrier = Carrier(self._interfaces)

    def fileno(self) -> int:
        return self._carrier.fileno()

    def due(self) -> float | None:
        times = [self._next] if self._detectors else []
        times += [self._planned[0][0]] if self._planned else []
        times += [due for health in self._health.values() if (due := health.due()) is not None]
        return min(times, default=None)

    def changes(self) -> list[LinkChange]:
        now, faults, news = time.monotonic(), dict[str, str](), list[LinkChange]()
        while self._planned and self._planned[0][0] <= now:
            news += self._apply(heapq.heappop(self._planned)[2])
        for interface, reason in sorted(self._carrier.without().items()):
            faults.setdefault(self._interfaces[interface], f"{interface}: {reason}")
        if self._detectors:
            if now >= self._next:
                self._observe()
                self._next = now + self._description.link_probe / 2
            for link, fault in self._missing():
                faults.setdefault(self._names[link], fault)
        return news + [LinkChange(name, LinkNews.DOWN if health.reason else LinkNews.UP, health.reason)
                       for name, health in self._health.items() if health.update(now, faults.get(name, ""))]

    # ---- by command

    def plan(self, lines: Sequence[str]) -> None:
        now = time.monotonic()
        for event in link_events.events(self._description.topology, lines):
            heapq.heappush(self._planned, (now + event.at, next(self._order), event))

    def lost(self, link: str) -> int:
        number = self._numbers[link]
        return int(self._board.words[2 * number : 2 * number + 2, LOST].sum())

    def silence(self, host: str) -> float | None:
        number = self._numbers[host]
        port = next(port for port in self._description.ports if port.link == number)
        heard_at = int(self._board.words[2 * number + port.side, HEARD_AT])
        return time.monotonic() - heard_at / PS if heard_at else None

    def _apply(self, event: LinkEvent) -> list[LinkChange]:
        link, name, before = self._description.topology.links[event.link], self._names[event.link], self._slowness(event.link)
        for direction in event.directions:
            if event.action is not Action.SLOW:
                far = self._description.topology.ends[event.link][1 - direction].node
                self._board.cut(event.link, direction, event.action is Action.FAIL, self._description.topology.is_host(far))
            if event.action is not Action.FAIL:
                rate = event.rate if event.action is Action.SLOW else link.rate
                delay = link.delay if event.delay is None else event.delay
                self._set_link(event.link, direction, rate, delay)
                self._slow[event.link, direction] = rate, ", ".join(
                    [f"{rate / 1e9:g} Gb/s"] * (rate != link.rate) + [f"delay {1e3 * delay:g} ms"] * (delay != link.delay))
        changes = []
        if event.action is not Action.SLOW:
            changes.append(LinkChange(name, LinkNews.CUT if self._board.is_cut(event.link) else LinkNews.MENDED))
        if (slowness := self._slowness(event.link)) != before:
            rate, how = slowness
            changes.append(LinkChange(name, LinkNews.SLOW, how, rate))
        return changes

    def _slowness(self, link: int) -> tuple[float, str]:
        """Returns the lowest rate of the directions that are slow by command, and how they are; "": none is."""
        slow = {how: rate for (number, _), (rate, how) in self._slow.items() if number == link and how}
        return min(slow.values(), default=0.0), "; ".join(slow)

    def _set_link(self, number: int, direction: int, rate: float, delay: float) -> None:
        """Sets a direction: at the switch that sends or, from a host, at the one that receives."""
        near, far = self._description.topology.ends[number][:: 1 - 2 * direction]
        at, inbound = (far, True) if self._description.topology.is_host(near.node) else (near, False)
        with suppress(OSError):  # its process is gone
            self._switches[at.node].set_link(at.port, rate, delay, inbound)

    # ---- by probes

    def _observe(self) -> None:
        words = self._board.words.copy().tolist()
        for link, detectors in self._detectors.items():
            for direction, detector in detectors.items():
                near, far = words[2 * link + direction], words[2 * link + 1 - direction]
                if near[SENT] > far[HEARD] or detector.missed:
                    detector.observe(Sight(near[SENT], near[SENT_AT] / PS, far[HEARD], far[HEARD_AT] / PS, far[LOOKED_AT] / PS))

    def _missing(self) -> Iterator[tuple[int, str]]:
        """Yields the links on which probes are missing."""
        for link, detectors in self._detectors.items():
            for direction, detector in detectors.items():
                if detector.missed >= self._description.link_misses:
                    a, b = (end.node for end in self._description.topology.ends[link][:: 1 - 2 * direction])
                    yield link, f"{self._description.link_misses} probes in a row from {a} have not come to {b}"
                    break

    def close(self) -> None:
        self._carrier.close()


def probed(description: Description) -> LinkBoard:
    """Returns the boards of a network's links, with the interval of those between switches set."""
    board = LinkBoard(len(description.topology.links))
    for trunk in description.trunks:
        board.words[2 * trunk.number : 2 * trunk.number + 2, INTERVAL] = round(description.link_probe * PS)
    return board
