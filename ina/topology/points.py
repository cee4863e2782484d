"""Places of a network by name: capture points (ports, hosts, links, switches), and lists of hosts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from ina.topology.topology import Topology, TopologyError


def points(topology: Topology, names: Iterable[str]) -> list[str]:
    """Returns the interfaces that ``names`` stand for, in their order, each once.

        s1-eth2     port 2 of s1: frames that the switch receives and sends
        h3          h3-eth0: frames that the host sends (before losses on its link) and receives (after them)
        h3-s1       a link: both its ends; any order, the first of several between two switches
        s1          every port of the switch
        all         every port of every switch

    Raises TopologyError that names the nearest point.
    """
    interfaces: dict[str, list[str]] = {"all": []}
    for a, b in topology.ends:
        for here, there in ((a, b), (b, a)):
            interfaces[here.name] = [here.name]
            interfaces.setdefault(here.node, []).append(here.name)
            interfaces.setdefault(f"{here.node}-{there.node}", [a.name, b.name])
            if here.node[0] == "s":
                interfaces["all"].append(here.name)
    result: dict[str, None] = {}
    for name in names:
        if name not in interfaces:
            near = get_close_matches(name, interfaces, 1, 0)
            raise TopologyError(f"{topology.name}: there is no port, link, host or switch {name!r}; the nearest is {near[0]}")
        result.update(dict.fromkeys(interfaces[name]))
    return list(result)


def host_list(text: str) -> list[str]:
    """Parses ``h1,h3`` or ``h1-h8,h12``; does not check that the hosts exist."""
    hosts: list[str] = []
    for item in filter(None, (word.strip() for word in text.split(","))):
        if span := re.fullmatch(r"h(\d{1,4})-h?(\d{1,4})", item):
            hosts += [f"h{i}" for i in range(int(span[1]), int(span[2]) + 1)]
        else:
            hosts.append(item)
    return hosts
