"""The drawing of the rooms of `ina/` and of the imports between them, read from the source (images/imports.svg).

A room stands above all that it imports. Of the imports those are drawn that no others imply: where a room imports another one
through a third, too, the way through the third is enough.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

SPLIT = ("p4", "aggregation", "worlds")  # wings whose folders are rooms of their own
DOOR = "#e8e1f4"
COLOURS = {"p4": "#dcebfa", "aggregation": "#e2f3dd", "codecs": "#e2f3dd", "worlds": "#fdeecf", "lab": "#f6dfe9", "cli": DOOR,
           "backend": DOOR, "experiment": DOOR, "virtual": DOOR, "protocol": DOOR}
GROUND = "#ececec"
BOX, GAP, ROW, MARGIN = 26, 18, 62, 14  # px: height of a box, between two of a floor, between floors, around all
LETTER = 7.2  # px, of a name


def room(module: str) -> str:
    """The room of a module: `ina.lab.plan` -> `lab`, `ina.p4.rpc.stub` -> `p4.rpc`."""
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts[0] in SPLIT else 1])


def imports(root: Path) -> dict[str, set[str]]:
    """The rooms that each room imports, anywhere in its files."""
    found: dict[str, set[str]] = {}
    files = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
             for path in sorted((root / "ina").glob("**/*.py"))}
    for module, path in files.items():
        if module == "ina":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [full if (full := f"{node.module}.{alias.name}") in files else node.module for alias in node.names]
            else:
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found.setdefault(room(module), set()).update(room(name) for name in names if name in files and name != "ina")
    tied = {name for room, others in found.items() if others - {room} for name in {room, *others}}
    return {name: found[name] - {name} for name in sorted(tied)}


def reached(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """All rooms that each room needs, the lowest first. Raises ValueError: imports run in a circle."""
    whole: dict[str, set[str]] = {}
    while len(whole) < len(graph):
        ready = [name for name in graph if name not in whole and graph[name] <= whole.keys()]
        if not ready:
            raise ValueError(f"imports run in a circle: {', '.join(sorted(graph.keys() - whole.keys()))}")
        whole |= {name: graph[name].union(*(whole[other] for other in graph[name])) for name in ready}
    return whole


def floors(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The rooms by floor, the ground first; on a floor each stands near those that it imports."""
    height: dict[str, int] = {}
    for name in reached(graph):
        height[name] = 1 + max((height[other] for other in graph[name]), default=-1)
    rows: list[list[str]] = [[] for _ in range(max(height.values()) + 1)]
    place: dict[str, float] = {}
    for level, row in enumerate(rows):
        members = [name for name in sorted(graph) if height[name] == level]
        middle = {name: sum(place[other] for other in graph[name]) / len(graph[name]) if graph[name] else 0.5 for name in members}
        row += sorted(members, key=lambda name: (middle[name], name))
        place |= {name: (number + 1) / (len(row) + 1) for number, name in enumerate(row)}
    return rows


def drawing(root: Path) -> str:
    """The drawing, as SVG."""
    graph = imports(root)
    whole = reached(graph)
    drawn = {name: others.difference(*(whole[other] for other in others)) for name, others in graph.items()}
    rows = floors(drawn)
    width = {name: LETTER * len(name) + 18 for name in graph}
    across = [sum(width[name] + GAP for name in row) - GAP for row in rows]
    total, depth = max(across) + 2 * MARGIN, ROW * (len(rows) - 1) + BOX + 2 * MARGIN
    place: dict[str, tuple[float, float]] = {}  # of the middle of the upper side
    for level, (row, length) in enumerate(zip(rows, across, strict=True)):
        x = (total - length) / 2
        for name in row:
            place[name] = x + width[name] / 2, depth - MARGIN - BOX - level * ROW
            x += width[name] + GAP
    lines = [f'<path d="M{place[name][0]:.0f} {place[name][1] + BOX:.0f}L{place[other][0]:.0f} {place[other][1]:.0f}"/>'
             for name in sorted(drawn) for other in sorted(drawn[name])]
    boxes = [f'<rect x="{x - width[name] / 2:.0f}" y="{y:.0f}" width="{width[name]:.0f}" height="{BOX}" rx="4" '
             f'fill="{COLOURS.get(name.partition(".")[0], GROUND)}"/><text x="{x:.0f}" y="{y + 17:.0f}">{escape(name)}</text>'
             for name, (x, y) in place.items()]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} {depth:.0f}" role="img" '
        'aria-label="rooms of ina and the imports between them">',
        "<!-- Written by docs/site/generate.py: run `make docs`. -->",
        f'<rect width="{total:.0f}" height="{depth:.0f}" fill="#fff"/>',
        '<g stroke="#9a9a9a" fill="none">', *lines, "</g>",
        '<g stroke="#777" font-family="monospace" font-size="12" text-anchor="middle">', *boxes, "</g>",
        "</svg>", "",
    ]).replace("<text ", '<text stroke="none" ')
