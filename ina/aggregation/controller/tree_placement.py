"""Placement of a job's tree: on fast links, shallow, on links that carry little, through switches and links that work.

    fat-tree          the root is the workers' edge switch, an aggregation switch of their pod, or a core switch: the lowest that
                      reaches all of them, and of equals the one whose links other jobs use least
    direct connect    a spanning tree of least depth from the best root, within the degree that the graph has
    mixed rates       a tree goes around a link that is slower than its workers' own links, if it can, however far; unless other
                      jobs' share leaves no more of the fast way
    parameter server  the root is a switch with a server whose link is fast and up

A tree's links carry each tensor once up and once down, so a job weighs on a link with its share of the link's time: one over the
rate. Several trees (``stripes``) share the tensor; each is placed with the load of those before it. Where hosts have one link,
that link carries the whole tensor whatever the trees; stripes gain where a worker's switch has several links of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from ina.aggregation.controller.job_records import AdmissionError
from ina.topology.link_events import link_parts
from ina.topology.topology import Topology, TopologyError
from ina.topology.tree import Tree, aggregation_tree

NAMED = 8  # switches and links in an error


def place(
    topology: Topology, hosts: Sequence[str], free: Mapping[str, int], *, running: Iterable[Tree] = (),
    load: Mapping[int, float] | None = None, failed: Mapping[str, str] | None = None,
    failed_links: Mapping[str, str] | None = None, stripes: int = 1, roots: Collection[str] | Mapping[str, int | None] = (),
) -> tuple[Tree, ...]:
    """Returns ``stripes`` trees over the workers at ``hosts``.

    ``free``: by switch, for how many jobs of this one's slots it has room; switches that are left out are not ours. ``running``:
    trees of other jobs. ``load``: of links by number beyond that, as a share of their time. ``failed``: switches to avoid, and
    why. ``failed_links``: the same of links by name ("s1-s9"; "h3" for a host's). ``roots``: the trees' roots are among these;
    none: any switch; a mapping has the number of the link to each root's parameter server.

    Raises AdmissionError: ``full`` (where slots are missing, and how many fit), ``unreachable`` (failed switches or links, or no
    path at all), ``invalid`` (a host that is none, or is named twice).
    """
    if stripes < 1:
        raise AdmissionError("invalid", f"{stripes} stripes: expected at least 1")
    weight, room = _weights(topology), Counter(free)
    loads = {link: (load or {}).get(link, 0.0) + own for link, own in enumerate(weight)}  # with this job's own share
    for tree in running:
        for link in tree.links:
            loads[link] += weight[link]
    trees: list[Tree] = []
    for _ in range(stripes):
        closed = {name: ("unreachable", reason) for name, reason in (failed or {}).items()}
        closed |= {s.name: ("unreachable", "not ours") for s in topology.switches if s.name not in free}
        closed |= {name: ("full", "no slots left") for name in free if room[name] <= 0 and name not in closed}
        trees.append(_tree(topology, hosts, closed, failed_links or {}, loads, roots))
        room.subtract(trees[-1].switches)
        for link in trees[-1].links:
            loads[link] += weight[link]
    return tuple(trees)


def _weights(topology: Topology) -> list[float]:
    """Returns by link the cost of a tensor, 1 on the fastest; links without a limit cost nothing beside others."""
    fastest = max((link.rate for link in topology.links), default=0.0)
    return [fastest / link.rate if link.rate else 0.0 if fastest else 1.0 for link in topology.links]


def _tree(
    topology: Topology, hosts: Sequence[str], closed: Mapping[str, tuple[str, str]], failed_links: Mapping[str, str],
    load: Mapping[int, float], roots: Collection[str] | Mapping[str, int | None],
) -> Tree:
    """``closed``: code and reason by switch. Raises AdmissionError with the switch or link that is in the way, if it is one."""
    parts = link_parts(topology) if failed_links else {}
    down = {parts[name].link: f"{name}: {reason}" for name, reason in failed_links.items() if name in parts}
    for host in hosts:
        if host not in topology.hops:
            continue
        edge, link = topology.switch_of(host), topology.hops[host][0].link
        if edge in closed:
            code, reason = closed[edge]
            raise AdmissionError(code, f"{edge}, which {host} is connected to: {reason}")
        if link in down:
            raise AdmissionError("unreachable", f"the link of host {down[link]}")
    try:
        return aggregation_tree(topology, hosts, [*closed, *failed_links], load, roots)
    except TopologyError as error:
        try:
            unrestricted = aggregation_tree(topology, hosts, roots=roots)
        except TopologyError:
            code = "unreachable" if "reaches all" in str(error) else "invalid"
            raise AdmissionError(code, str(error)) from error
        levels = topology.levels()
        inner = [switch for switch in closed if levels[switch] > 1 or switch in unrestricted.switches]
        inner.sort(key=lambda switch: (switch not in unrestricted.switches, switch))
        links = sorted(down, key=lambda link: (link not in unrestricted.links, link))
        reasons = [*(f"{switch}: {closed[switch][1]}" for switch in inner), *(f"link {down[link]}" for link in links)]
        named = "; ".join(reasons[:NAMED]) + "; ..." * (len(reasons) > NAMED)
        code = "full" if any(closed[switch][0] == "full" for switch in inner) else "unreachable"
        raise AdmissionError(code, f"no tree reaches {', '.join(hosts)}: {named}") from error
