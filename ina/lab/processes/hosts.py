"""Places of an experiment's workers in the testbed: its network, and their hosts there."""

from __future__ import annotations

from dataclasses import replace

from ina import topology as topologies
from ina.aggregation.entries import program_named
from ina.lab.kind import Experiment
from ina.topology.points import host_list
from ina.worlds.testbed import switch_kinds

SWITCHES = tuple(switch_kinds.KINDS)
SWITCH = ("testbed: embedded (all switches in one process), process (each in one) or bmv2 (BMv2); anywhere: tna (the program for "
          "Tofino, on the embedded switch)")  # help of the key `switch`
BMV2_WINDOW = 8  # BMv2 takes 0.1 ms and more for a packet: a longer queue only causes retransmissions


class Placed(Experiment):
    """An experiment that can be in the testbed."""

    topology: str
    hosts: str
    loss: float
    mtu: int


def described(config: Placed) -> topologies.Topology:
    """Returns the network of ``config``. Raises TopologyError."""
    number = {} if config.topology != "star" else {"hosts": config.workers + program_named(config.protocol).needs_server}
    topology = topologies.specified(config.topology, rate=config.rate, delay=config.delay, queue=config.queue,
                                    loss=config.loss, mtu=config.mtu, **number)
    topology = with_buffer(topology, config.buffer)
    if topology.mtu != config.mtu:
        raise topologies.TopologyError(f"{config.topology}: its mtu is {topology.mtu}, but the experiment's is {config.mtu}")
    return topology


def with_buffer(topology: topologies.Topology, buffer: int) -> topologies.Topology:
    """Returns the network with so many bytes of buffer in each switch; 0: unchanged. Raises TopologyError."""
    return replace(topology, buffer=buffer) if buffer else topology


def hosts_of(config: Placed, topology: topologies.Topology) -> list[str]:
    """Returns the ranks' hosts, in order. Raises TopologyError."""
    names = [host.name for host in topology.hosts]
    hosts = host_list(config.hosts) or names[: config.workers]
    for host in hosts:
        if host not in names:
            raise topologies.TopologyError(f"{topology.name}: there is no host {host!r}; there are {', '.join(names)}")
    if len(set(hosts)) != config.workers or len(hosts) != config.workers:
        raise topologies.TopologyError(f"{config.workers} workers need {config.workers} hosts, each its own; {topology.name} "
                                       f"gives them: {', '.join(hosts)}")
    return hosts


def server_host(config: Placed, topology: topologies.Topology) -> str:
    """Returns the parameter server's host: the first without a rank; "": the protocol has none. Raises TopologyError."""
    if not program_named(config.protocol).needs_server:
        return ""
    ranks = hosts_of(config, topology)
    for host in topology.hosts:
        if host.name not in ranks:
            return host.name
    raise topologies.TopologyError(f"{topology.name}: no host is left for the parameter server of {config.protocol}")
