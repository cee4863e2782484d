"""The network of an experiment of virtual time, made real: the same topology, rates and switch program, in the testbed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ina.aggregation import protocols
from ina.lab.cost_model import ETHERNET
from ina.lab.virtual import virtual_network
from ina.lab.virtual.keys import Virtual
from ina.lab.virtual.virtual_network import Place
from ina.worlds.testbed.mininet import Network


def defines(config: Virtual) -> dict[str, str]:
    """Returns preprocessor definitions of the switches' program."""
    return {"VALUES": str(config.values), "SLOTS": str(max(virtual_network.LEAST_SLOTS, config.pool))}


def real_network(config: Virtual, place: Place, **options: Any) -> Network:
    """Returns the network of ``place``, not started, with the experiment's losses, and room for its frames. ``options``: of
    Network."""
    links = tuple(replace(link, loss=config.loss or link.loss) for link in place.topology.links)
    mtu = max(place.topology.mtu, protocols.frame_bytes(config.protocol, config.values) - ETHERNET)
    topology = replace(place.topology, links=links, mtu=mtu)
    return Network(topology, config.program_path, defines(config), seed=config.seed, kind=config.switch, **options)
