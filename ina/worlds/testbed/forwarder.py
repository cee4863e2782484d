"""One switch of a network, in this process or in a process of its own.

    host's interface ──veth── s1-eth1 ──[ link up: rate, delay, queue, loss ]──> ingress
                                       <─[ link down: likewise ]──────────────── egress

    another switch's egress [ link: rate, delay, queue ] ──memory or veth──[ loss ]──> ingress

What the program does not aggregate is forwarded by MAC address, so everything else (TCP, ICMP, ...) crosses the same
switches and links.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Protocol

from ina.aggregation.worker.config import ETHERNET_OVERHEAD
from ina.base.closing import closing_on_error
from ina.net.ports import Port, memory_pair, open_packet
from ina.p4.runtime.embedded import Link, Switch
from ina.p4.runtime.entities import E, SwitchTarget, Update
from ina.p4.runtime.tna_entities import front_panel
from ina.worlds.testbed.description import Description, HostPort, Trunk, Wire
from ina.worlds.testbed.link_board import LinkBoard

NAP = 50e-6  # s: frames gather for so long; a wake-up for each would cost more than the frame
PRIORITY = -15  # nice
PATIENCE = 60.0  # s for another process to answer
PORT_ERRORS = ("errors", "tx_full", "rx_malformed", "tx_malformed", "rx_overrun")  # counters of a port
SWITCH_ERRORS = ("back_pressure", "too_long", "reentries", "no_memory")  # the switch's reasons for drops


@dataclass(frozen=True)
class PortCounts:
    """A port of a switch. ``rx``: the link that ends here, where this switch makes it (at a host); ``tx``: the one that
    begins here. Bytes have Ethernet's overhead. ``tail_drops``: at a full queue, ``buffer_drops``: for want of room in the buffer
    that the switch's ports share. ``lost``: by seeded loss at this end. ``errors``: faults of port and switch, by reason."""

    rx_packets: int
    rx_bytes: int
    rx_tail_drops: int
    tx_packets: int
    tx_bytes: int
    tx_tail_drops: int
    tx_buffer_drops: int
    lost: int
    errors: dict[str, int] = field(default_factory=dict)


class Forwarder(SwitchTarget, Protocol):
    """Interface of a running switch with its ports open and its layer 2 in place."""

    def counters(self) -> dict[str, list[list[int]]]:
        """Returns the program's counters by name: cells of packets and bytes."""

    def ports(self) -> dict[int, PortCounts]:
        """Returns the counters of its ports, by number."""

    def set_link(self, number: int, rate: float, delay: float, inbound: bool) -> None:
        """Changes rate and delay of the link at a port: of what it sends or, ``inbound``, of what it receives from a host."""

    def close(self) -> None:
        """Ends it and gives its interfaces back."""


class Cable:
    """Shared memory between two switches of one process."""

    def __init__(self, max_frame: int, frames: int = 1024) -> None:
        self._ends: list[Port | None] = [*memory_pair(frames, max_frame)]

    def open(self, side: int) -> Port:
        """Opens a side, once. The caller owns the port; a closed end cannot be opened again."""
        end, self._ends[side] = self._ends[side], None
        if end is None:
            raise ValueError(f"a cable's side {side} was opened before, or the cable is closed: each end has one owner, once")
        return end

    def close(self) -> None:
        """Closes the ends that nobody has opened; opened ports stay."""
        ends, self._ends = self._ends, [None, None]
        for end in ends:
            if end is not None:
                end.close()


class PortedSwitch:
    """An embedded switch in this process at the ports of switch ``name`` of ``description``, with their links; not started.

    ``board``: of all links. ``cables``: those of memory, by trunk. Raises what loading the program and opening ports raise.
    """

    def __init__(self, name: str, program: Any, description: Description, board: LinkBoard,
                 cables: dict[Trunk, Cable] | None = None):
        self._description, self._board = description, board
        self._opened: dict[int, Port] = {}
        self._from_host: set[int] = set()
        self._lossy: set[int] = set()
        self._load(program)
        numbers = [port.number for port in description.ports if port.switch == name]
        numbers += [number for trunk in description.trunks for _, number, _ in trunk.ends(name)]
        if self.switch.pipes and (none := sorted(set(numbers).difference(front_panel(self.switch.pipes)))):
            raise ValueError(f"{name} has port {none[0]}: on the front panel a Tofino's pipes have ports 0..63, 128..191, ...")
        with closing_on_error(self.close):
            for port in description.ports:
                if port.switch == name:
                    self._from_host.add(port.number)
                    self._add(port.number, self._host_port(port), port.interface, port.wire)
            for trunk in description.trunks:
                for side, number, interface in trunk.ends(name):
                    opened = cables[trunk].open(side) if cables else open_packet(interface, description.max_frame, self._ring)
                    opened.with_probes(board.end(trunk.number, side), board.session, trunk.number, side)
                    if trunk.wire.loss:
                        opened.with_faults(rx=trunk.wire.faults(side))
                    self._add(number, opened, interface, trunk.wire)

    @property
    def switch(self) -> Switch:
        return self._switch

    def _load(self, program: Any) -> None:
        self._switch = self._make(program)

    def _make(self, program: Any) -> Switch:
        return Switch(program, buffer=self._description.topology.buffer, max_frame=self._description.max_frame)

    def start(self) -> None:
        self._prefer()
        self.switch.start(yields=0, nap=NAP)

    @staticmethod
    def _prefer() -> None:
        """Gives the network processors first, so that links are not slower while hosts compute."""
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)  # this thread and those that it starts

    @property
    def _ring(self) -> int:
        return 1024 if self._description.max_frame < 2048 else 256

    def _host_port(self, port: HostPort) -> Port:
        wire, description = port.wire, self._description
        opened = open_packet(port.interface, description.max_frame, self._ring)
        with closing_on_error(opened.close):
            opened.with_probes(self._board.end(port.link, port.side), self._board.session, port.link, port.side)
            if path := description.captures.get(f"{port.host.name}-eth0"):  # as the host sees it: before this switch's links
                opened.with_capture(path)
            opened.with_link(wire.rate, wire.delay, wire.queue)
            if wire.loss:
                opened.with_faults(rx=wire.faults(0), tx=wire.faults(1))
        return opened

    def _add(self, number: int, port: Port, interface: str, wire: Wire) -> None:
        self._opened[number] = port
        if wire.loss:
            self._lossy.add(number)
        if path := self._description.captures.get(interface):
            port.with_capture(path)
        self._plug(number, port, wire.egress)

    def _plug(self, number: int, port: Port, egress: Link) -> None:
        self.switch.add_port(number, port.handle, egress)

    def set_link(self, number: int, rate: float, delay: float, inbound: bool) -> None:
        if inbound:
            self._opened[number].set_link(rate, delay)
        else:
            self._set_egress(number, rate, delay)

    def _set_egress(self, number: int, rate: float, delay: float) -> None:
        self.switch.set_link(number, rate, delay)

    def ports(self) -> dict[int, PortCounts]:
        return {number: self._counts(number, port) for number, port in self._opened.items()}

    def _counts(self, number: int, port: Port) -> PortCounts:
        out, stats = self.switch.port_stats(number), port.stats
        if number in self._from_host:
            link = port.link
            received = link.packets, link.bytes, link.tail_drops
        else:  # its link is at the other end
            received = stats["rx_packets"], stats["rx_bytes"] + ETHERNET_OVERHEAD * stats["rx_packets"], 0
        return PortCounts(
            *received, out.tx_packets, out.tx_bytes + ETHERNET_OVERHEAD * out.tx_packets, out.drops["tail"],
            out.drops["no_buffer"],
            lost=sum(side.lost for side in port.faults.values()) if number in self._lossy else 0,
            errors={key: stats.get(key, 0) for key in PORT_ERRORS} | {key: out.drops[key] for key in SWITCH_ERRORS},
        )

    def close(self) -> None:
        self._unload()
        for port in self._opened.values():
            port.close()
        self._opened.clear()

    def _unload(self) -> None:
        self.switch.close()


class EmbeddedForwarder(PortedSwitch):
    """The embedded switch that runs the network's program, with its layer 2 in place."""

    def __init__(self, name: str, program: Any, description: Description, board: LinkBoard,
                 cables: dict[Trunk, Cable] | None = None):
        super().__init__(name, program, description, board, cables)
        with closing_on_error(self.close):
            description.fill(name, program.p4info, self.write)
            self.start()

    def write(self, updates: Iterable[Update]) -> None:
        self.switch.write(updates)

    def read(self, entities: Sequence[E]) -> list[E]:
        return self.switch.read(entities)

    def counters(self) -> dict[str, list[list[int]]]:
        return {name: cells.tolist() for name, cells in self.switch.counters().items()}


class ForkedForwarder:
    """A forwarder that ``make`` makes in a child of this process, which must have no threads yet. It ends when this process does.

    Usable after ``wait_ready``. Raises what the forwarder's methods raise; OSError when its process has ended, TimeoutError
    when it does not answer.
    """

    def __init__(self, name: str, make: Callable[[], Forwarder]):
        self.name = name
        self._channel, theirs = Pipe()
        self.pid = os.fork()
        if not self.pid:
            _serve(name, theirs, make)  # never returns
        theirs.close()

    def wait_ready(self) -> None:
        self._answer("being ready")

    def write(self, updates: Iterable[Update]) -> None:
        self._call("write", list(updates))

    def read(self, entities: Sequence[E]) -> list[E]:
        answer: list[E] = self._call("read", list(entities))
        return answer

    def counters(self) -> dict[str, list[list[int]]]:
        counters: dict[str, list[list[int]]] = self._call("counters")
        return counters

    def ports(self) -> dict[int, PortCounts]:
        ports: dict[int, PortCounts] = self._call("ports")
        return ports

    def set_link(self, number: int, rate: float, delay: float, inbound: bool) -> None:
        self._call("set_link", number, rate, delay, inbound)

    def close(self) -> None:
        """Asks the process to end, waits up to PATIENCE, and kills it."""
        if not self.pid:
            return
        pid, self.pid = self.pid, 0
        with suppress(OSError):
            self._channel.send(("close", ()))
            self._channel.poll(PATIENCE)
        self._channel.close()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)

    def _call(self, method: str, *arguments: object) -> Any:
        try:
            self._channel.send((method, arguments))
        except OSError as error:
            raise OSError(f"switch {self.name} (process {self.pid}) is gone: {error}") from error
        return self._answer(method)

    def _answer(self, question: str) -> Any:
        if not self._channel.poll(PATIENCE):
            raise TimeoutError(f"switch {self.name} (process {self.pid}) does not answer: {question}, after {PATIENCE:g} s")
        try:
            ok, answer = self._channel.recv()
        except (EOFError, ConnectionError):  # a reset, if it ended with the question unread
            raise OSError(f"switch {self.name} (process {self.pid}) ended: {question}") from None
        if not ok:
            raise answer
        return answer


def _serve(name: str, channel: Connection, make: Callable[[], Forwarder]) -> None:
    """Runs a forked switch's process until its parent's end of the channel is closed, or it receives 'close'."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        keep = channel.fileno()  # close inherited sockets and pipes, so that their peers notice when the parent ends
        os.closerange(3, keep)
        os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))
        Path("/proc/self/comm").write_text(f"ina-{name}")
        forwarder = _attempt(channel, make)
        while forwarder is not None:
            method, arguments = channel.recv()
            if method == "close":
                break
            _attempt(channel, lambda: getattr(forwarder, method)(*arguments), answer=True)  # noqa: B023
        if forwarder is not None:
            forwarder.close()
            channel.send((True, None))
            status = 0
    except (EOFError, OSError):  # the network's process is gone
        pass
    finally:
        os._exit(status)


def _attempt(channel: Connection, do: Callable[[], Any], answer: bool = False) -> Any:
    """Calls ``do`` and sends the outcome: its result if ``answer``, else None, or the exception."""
    try:
        result = do()
    except Exception as error:
        channel.send((False, error))
        return None
    channel.send((True, result if answer else None))
    return result
