"""Switch hosts, as the controller sees them: running switches to which workers connect. embedded.py here and switch_host.py of
ina/worlds/* are some."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, NotRequired, Protocol, TypedDict

from ina.aggregation.controller.job_records import Job
from ina.aggregation.controller.worker_ports import Plug
from ina.aggregation.port_kinds import LOCAL, Control, udp
from ina.aggregation.worker import SERVER
from ina.net.ports import Address
from ina.p4.runtime.entities import SwitchTarget
from ina.topology.topology import Topology


def plug_in(topology: Topology, host: str, own: Address, switch_port: int) -> Plug:
    """Returns the Plug of a process in ``host`` that sends from its ``own`` address to its switch's UDP ``switch_port``."""
    hop = topology.hops[host][0]
    end, switch = next(end for end in topology.ends[hop.link] if end.node == hop.node), topology.by_name[hop.node]
    offer = udp.KIND.offer((own.ip, own.port), (switch.ip, switch_port))
    return Plug(end.port, own, Address(switch.mac, switch.ip, switch_port), offer, [])


def plug_server_in(topology: Topology, host: str, switch_port: int) -> tuple[str, Plug]:
    """Returns the switch of a parameter server in ``host``, and the server's Plug there."""
    node = topology.by_name[host]
    return topology.switch_of(host), plug_in(topology, host, Address(node.mac, node.ip, SERVER.port), switch_port)


class Summary(TypedDict):
    """Programs that switches run. ``values``: per packet; ``slots``: of each switch's pool; ``source``: our program of the
    protocol, which names what counters count, where the switches run another."""

    program: str
    source_hash: str
    protocol: str
    values: int
    slots: int
    source: NotRequired[str]


class LinkNews(StrEnum):
    """News of a link. ``DOWN``, ``UP``: noticed, as anybody would; the others: by command (``ina net``), the present state:
    no direction is cut any more when it is ``MENDED``, and none is slow when it is ``SLOW`` without a reason."""

    DOWN = "down"
    UP = "up"
    CUT = "cut"
    SLOW = "slow"
    MENDED = "mended"


class LinkChange(NamedTuple):
    """News of a link, as Topology.link_names() names it. ``reason``: why it is down, or how slow it is, "": no longer; ``rate``:
    then, bit/s."""

    link: str
    news: LinkNews
    reason: str = ""
    rate: float = 0.0


class LinkWatch(Protocol):
    """Watch over a network's links."""

    def fileno(self) -> int:
        """Returns a descriptor that is readable when a link may have changed; -1: none."""

    def due(self) -> float | None:
        """Returns when ``changes`` is to be called, whatever has happened (monotonic seconds); None: never."""

    def changes(self) -> list[LinkChange]:
        """Returns the news since the last call."""

    def lost(self, link: str) -> int:
        """Returns the frames that were lost on a link while it was cut, so far."""

    def silence(self, host: str) -> float | None:
        """Returns for how many seconds nothing has come from a host; None: nothing ever has, or it is not known."""

    def plan(self, lines: Sequence[str]) -> None:
        """Changes links at times from now on, as the lines say (ina/topology/link_events.py). Raises TopologyError: there is no
        such link, or it is not ours to change."""


class SwitchHost(Protocol):
    """``targets``: the switches by name. ``topology``: of a network whose hosts workers are in; None: one switch, which makes
    ports for workers anywhere."""

    @property
    def targets(self) -> Mapping[str, SwitchTarget]: ...

    @property
    def topology(self) -> Topology | None: ...

    def describe(self) -> Summary: ...

    @property
    def links(self) -> LinkWatch | None:
        """Watch over the links between the switches and to the hosts; None: nothing is known of them."""

    def reroute(self, down: Collection[str]) -> None:
        """Makes forwarding tables go around links and switches that are ``down``. Switches that do not answer keep theirs."""

    @property
    def outlives(self) -> bool:
        """True if the switches, with their entries, outlive the controller's process."""

    @property
    def packet_lifetime(self) -> float:
        """Seconds after which no packet from before this process is in flight any more."""

    @property
    def seats(self) -> int | None:
        """Most workers of all jobs at a time; None: the switches set no limit but those of each job."""

    def host_of(self, pid: int, name: str) -> str:
        """Returns the host of process ``pid``; "": there are no hosts. ``name``: the process's own claim, for controllers that
        cannot see it.

        Raises ValueError: it is in none.
        """

    def open_port(self, kind: str, job: Job, index: int, host: str, control: Control = LOCAL) -> Plug:
        """Opens a port for worker ``index`` of the job, which is in ``host`` (``host_of``) and asks for it over ``control``: with
        tags, where this host has the attribute ``tags``, True.

        Raises ValueError for an unknown kind or place, OSError.
        """

    def close_port(self, number: int, job: int) -> None:
        """Closes the port of a worker of job number ``job`` that is gone."""

    def open_server_port(self, kind: str, pid: int, name: str) -> tuple[str, Plug]:
        """Opens a port for the parameter server, which is process ``pid`` in host ``name`` (``host_of``); returns the name of its
        switch, too. Raises as ``open_port``."""

    def close_server_port(self, number: int) -> None:
        """Closes the port of the parameter server, which is gone."""

    def protect(self, switch: str) -> None:
        """Writes ``switch``'s guard entries (forwarding.py) where they are missing or differ; for hosts with ``outlives``. Raises
        what its target raises."""

    def counters(self) -> dict[str, Any]:
        """Returns ``program``: cells (packets, bytes) by counter; ``ports``; further keys are the host's own."""

    def close(self) -> None: ...
