"""Drawings of a topology, with the aggregation tree of a job on it: text for the terminal, SVG for pages."""

from __future__ import annotations

import math
from html import escape

from ina.base.plurals import counted
from ina.topology.topology import Topology
from ina.topology.tree import Tree

STYLE = """
text{font:11px sans-serif;text-anchor:middle;dominant-baseline:central;fill:#222}
.link{stroke:#b8bec6;fill:none}.tree{stroke:#d9480f;stroke-width:3;fill:none}
rect{fill:#e7eefb;stroke:#4a6fa5}circle{fill:#f4f4f4;stroke:#777}
.on{fill:#ffe8cc;stroke:#d9480f;stroke-width:2}.root{fill:#d9480f;stroke:#d9480f}.root+text{fill:#fff}
""".replace("\n", "")


def text(topology: Topology, tree: Tree | None = None) -> str:
    """Lists the switches with the neighbour at each port, by level; then the tree, root first."""
    hosts, switches = topology.hosts, topology.switches
    between = [link for link in topology.links if "h" not in (link.a[0], link.b[0])]
    simplex = sum(link.simplex for link in between)
    lines = [
        f"{topology.name}: {counted(len(hosts), 'host')}, {counted(len(switches), 'switch', 'switches')}, "
        f"{counted(len(between), 'link')} between switches"
        + (f" ({simplex} of them simplex)" if simplex else "") + f", MTU {topology.mtu}",
        "", f"{'switch':8}{'level':>6}{'ports':>7}  port:neighbour",
    ]
    levels = topology.levels()
    peers: dict[str, list[tuple[int, str]]] = {switch.name: [] for switch in switches}
    for link, (a, b) in zip(topology.links, topology.ends, strict=True):
        for here, there, arrow in ((a, b, ">" if link.simplex else ""), (b, a, "<" if link.simplex else "")):
            if here.node in peers:
                peers[here.node].append((here.port, arrow + there.node))
    for switch in sorted(switches, key=lambda s: (levels[s.name], s.number)):
        at = sorted(peers[switch.name])
        names = " ".join(f"{port}:{name}" for port, name in at)
        lines.append(f"{switch.name:8}{levels[switch.name]:6}{len(at):7}  {names}")
    if tree is not None:
        lines += ["", f"aggregation tree of {counted(len(tree.workers), 'worker')}: depth {tree.depth}, "
                  f"{counted(len(tree.links), 'link')}", tree.root]
        lines += _branches(tree, tree.root, "")
    return "\n".join(lines) + "\n"


def _branches(tree: Tree, node: str, indent: str) -> list[str]:
    lines = []
    children = tree.children(node)
    for child in children:
        last = child == children[-1]
        lines.append(f"{indent}{'└─ ' if last else '├─ '}{child}")
        lines += _branches(tree, child, indent + ("   " if last else "│  "))
    return lines


def placed(topology: Topology) -> tuple[dict[str, tuple[float, float]], float, float]:
    """Returns the place of each node in a drawing, (x, y) from the top left in pixels, and the drawing's width and height."""
    levels = topology.levels()
    flat = any(levels[link.a] == levels[link.b] for link in topology.links)
    return _circle(topology) if flat else _rows(topology, levels)


def svg(topology: Topology, tree: Tree | None = None) -> str:
    """Draws one SVG file without external references. Levels are rows; if switches of one level are linked, a circle."""
    place, width, height = placed(topology)
    on_tree = set(tree.links) if tree else set()
    plain: list[str] = []
    arrows: list[str] = []
    coloured: list[str] = []
    for number, link in enumerate(topology.links):
        (x1, y1), (x2, y2) = place[link.a], place[link.b]
        step = f"M{x1:.0f} {y1:.0f}L{x2:.0f} {y2:.0f}"
        (coloured if number in on_tree else arrows if link.simplex else plain).append(step)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">'
        f"<title>{escape(topology.name)}</title><style>{STYLE}</style>",
        '<rect width="100%" height="100%" style="fill:#fff;stroke:none"/>',
    ]
    if arrows:  # the marker stands in the middle of each: the ends are under the nodes
        parts.append(
            '<marker id="a" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="#8a929c"/></marker>'
        )
        parts += [f'<path class="link" marker-mid="url(#a)" d="{_middle(step)}"/>' for step in arrows]
    parts += [f'<path class="{kind}" d="{"".join(steps)}"/>' for kind, steps in (("link", plain), ("tree", coloured)) if steps]
    members = {tree.root, *tree.parent} if tree else set()
    for node in topology.nodes:
        x, y = place[node.name]
        mark = ' class="root"' if tree and node.name == tree.root else ' class="on"' if node.name in members else ""
        if node.is_host:
            parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="13"{mark}/>')
        else:
            parts.append(f'<rect x="{x - 17:.0f}" y="{y - 11:.0f}" width="34" height="22" rx="4"{mark}/>')
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}">{node.name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _middle(step: str) -> str:
    start, end = step[1:].split("L")
    (x1, y1), (x2, y2) = (tuple(map(float, point.split())) for point in (start, end))
    return f"M{start}L{(x1 + x2) / 2:.0f} {(y1 + y2) / 2:.0f}L{end}"


Place = dict[str, tuple[float, float]]


def _rows(topology: Topology, levels: dict[str, int]) -> tuple[Place, float, float]:
    """Places hosts in the bottom row, in the order of their switches, which are of level 1; above them one row for each level."""
    rows: list[list[str]] = [[] for _ in range(max(levels.values()) + 1)]
    for switch in topology.switches:
        rows[levels[switch.name]].append(switch.name)
    for row in rows:
        row.sort(key=lambda name: topology.by_name[name].number)
    rows[0] = [host.name for switch in rows[1] for host, _, _ in topology.host_links(switch)]
    width = max(len(row) * (32 if number == 0 else 48) for number, row in enumerate(rows)) + 24
    height = 90 * (len(rows) - 1) + 60
    place: Place = {
        name: (12 + (width - 24) * (i + 0.5) / len(row), height - 30 - 90 * number)
        for number, row in enumerate(rows) for i, name in enumerate(row)
    }
    return place, width, height


def _circle(topology: Topology) -> tuple[Place, float, float]:
    """Places switches on a circle, clockwise from the top; the hosts of each outside, fanned out."""
    switches = sorted(topology.switches, key=lambda node: node.number)
    most = max(len(topology.host_links(switch.name)) for switch in switches)
    radius = max(110.0, len(switches) * (18 + 14 * most) / math.tau)
    centre = radius + 70
    place: Place = {}
    for i, switch in enumerate(switches):
        angle = math.tau * i / len(switches) - math.pi / 2
        place[switch.name] = (centre + radius * math.cos(angle), centre + radius * math.sin(angle))
        hosts = topology.host_links(switch.name)
        for j, (host, _, _) in enumerate(hosts):
            turn = angle + (j - (len(hosts) - 1) / 2) * 30 / (radius + 50)
            place[host.name] = (centre + (radius + 50) * math.cos(turn), centre + (radius + 50) * math.sin(turn))
    return place, 2 * centre, 2 * centre
