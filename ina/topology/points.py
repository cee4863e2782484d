"""Places by name: where packets can be looked at (ports, hosts, links, switches), and lists of hosts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from ina.topology.topology import Topology, TopologyError


def points(topology: Topology, names: Iterable[str]) -> list[str]:
    """The interfaces that ``names`` mean, in their order, each once.

        s1-eth2     port 2 of s1: what the switch receives and sends
        h3          h3-eth0: what the host sends and receives (before its link loses any, and after)
        h3-s1       a link: both its ends; any order, the first of several between two switches
        s1          every port of the switch
        all         every port of every switch

    Raises TopologyError that names the nearest point.
    """
    known: dict[str, list[str]] = {"all": []}
    for a, b in topology.ends:
        for here, there in ((a, b), (b, a)):
            known[here.name] = [here.name]
            known.setdefault(here.node, []).append(here.name)
            known.setdefault(f"{here.node}-{there.node}", [a.name, b.name])
            if here.node[0] == "s":
                known["all"].append(here.name)
    found: dict[str, None] = {}
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1, 0)
            raise TopologyError(f"{topology.name}: there is no port, link, host or switch {name!r}; the nearest is {near[0]}")
        found.update(dict.fromkeys(known[name]))
    return list(found)


def host_list(text: str) -> list[str]:
    """``h1,h3`` or ``h1-h8,h12``; whether there are such hosts is not checked."""
    hosts: list[str] = []
    for item in filter(None, (word.strip() for word in text.split(","))):
        if span := re.fullmatch(r"h(\d{1,4})-h?(\d{1,4})", item):
            hosts += [f"h{i}" for i in range(int(span[1]), int(span[2]) + 1)]
        else:
            hosts.append(item)
    return hosts
