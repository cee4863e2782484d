"""World ``testbed``: processes in the hosts of a Mininet network, and measurements of its links."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TypedDict

from ina import topology as topologies
from ina.aggregation.port_kinds import udp
from ina.base import paths, signals
from ina.base.settings import ConfigError
from ina.lab import processors
from ina.lab.training.launch import Place, end
from ina.net.state import Busy
from ina.worlds.testbed.mininet import MininetMissing, Network, missing

__all__ = ["Meter", "Use", "missing", "opened", "place"]

SERVER_START = 60.0  # seconds
STORE_PORT = 29500  # the same in every host: each has its own ports
UNLIMITED = 1e15  # bit/s of a link without a limit, to compare it with others
LINK_BOUND, HOST_BOUND = 0.8, 0.9  # use of links, and of processors, from which on they are the bottleneck


class Use(TypedDict, total=False):
    """Use of links and processors between two moments (Meter)."""

    links: dict[str, dict[str, float]]  # by name: rate, and differences of counters
    processors: float  # share of the time that they were busy
    seconds: float
    switch: str  # of which kind it is


def bottleneck(link_use: float | None, processors: float, bmv2: bool = False) -> str:
    """Returns what bounds a run: the link, if it was used for 80 % and more; else BMv2 where that is the switch, which is slower
    than links; else this machine (host-limited), if its processors were busy for 90 % and more: then the run says nothing of a
    network; else neither. ``link_use``: None for links without a rate."""
    if link_use is not None and link_use >= LINK_BOUND:
        return "link"
    if bmv2:
        return "BMv2"
    return "host-limited" if processors >= HOST_BOUND else "neither"


@contextmanager
def opened(network: Network, server_host: str = "") -> Iterator[Network]:
    """Starts ``network``, with a parameter server in ``server_host``. SIGTERM takes it down as Ctrl-C does.

    Raises ConfigError where it cannot be made, with the reason.
    """
    server = None
    with signals.terminable():
        try:
            try:
                network.start()
                if network.cleaned:
                    print(f"ina: {network.cleanup_message}", file=sys.stderr)
                server = _parameter_server(network, server_host)
            except (MininetMissing, Busy, topologies.TopologyError) as error:
                raise ConfigError(f"world = 'testbed': {error}") from error
            yield network
        finally:
            if server is not None:
                end([server])
            network.stop()


def _parameter_server(network: Network, host: str) -> subprocess.Popen | None:
    """Starts ``ina ps`` in ``host`` and waits until it serves; None: ``host`` is empty. Raises ConfigError with its output."""
    if not host:
        return None
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", "ina.aggregation.controller.ps_process", "--switch", network.socket, "--port",
                   udp.KIND.name]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(paths.PACKAGE.parent), os.environ.get("PYTHONPATH", "")])}
        server = subprocess.Popen(network.command(host, command), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                  env=environment)
        network.adopt(server.pid)
        deadline = time.monotonic() + SERVER_START
        while not _ping(network)["server"]:
            if server.poll() is not None or time.monotonic() > deadline:
                end([server])
                log.seek(0)
                raise ConfigError(f"the parameter server in {host} does not serve: {log.read().decode(errors='replace')[-2000:]}")
            time.sleep(0.05)
    return server


def _ping(network: Network) -> dict:
    with closing(network.client()) as client:
        return client.ping()


def place(network: Network, hosts: Sequence[str] = ()) -> Place:
    """Places rank i in the i-th of ``hosts`` (default: all): Gloo and the store on its interface, the switch at the network's
    socket."""
    hosts = hosts or [host.name for host in network.topology.hosts]
    common = {"MASTER_ADDR": topologies.Node(hosts[0]).ip, "MASTER_PORT": str(STORE_PORT), "INA_SWITCH": network.socket}
    return Place(
        environment=lambda rank: {**common, "GLOO_SOCKET_IFNAME": f"{hosts[rank]}-eth0"},
        command=lambda rank, argv: network.command(hosts[rank], argv),
        started=network.adopt,
    )


@dataclass
class Meter:
    """Meter of links and processors between two moments: bytes on the wire by host, share of busy processor time.

    ``network``: None in the local world, which has no links.
    """

    network: Network | None

    def start(self) -> None:
        self._links, self._cpu, self._began = self._counters(), processors.ticks(), time.monotonic()

    def stop(self) -> Use:
        """Returns ``links``: by name their rate and the differences of the counters; ``processors``: 0..1; ``seconds``."""
        links = {
            host: {"rate": now["rate"],
                   **{key: now[key] - self._links[host][key] for key in now if key.startswith(("up_", "down_", "lost"))}}
            for host, now in self._counters().items()
        }
        busy, total = (b - a for a, b in zip(self._cpu, processors.ticks(), strict=True))
        return {"links": links, "processors": busy / total if total else 0.0, "seconds": time.monotonic() - self._began}

    def _counters(self) -> dict[str, dict]:
        links = self.network.counters()["links"] if self.network else {}
        assert isinstance(links, dict)
        return links
