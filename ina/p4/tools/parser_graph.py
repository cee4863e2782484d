"""A parser's states as a graph: text, and SVG drawn in layers (Sugiyama: layers, order by barycentre, splines).

Nodes are states, `accept` and `reject`; an edge carries the sets of a select that lead along it. Edges that would
point upwards (loops) are drawn dashed, on the right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import Instance

LINE, CHAR = 16, 7.2  # pixels: height of a line of text, width of a character
GAP_X, GAP_Y, MARGIN = 36, 56, 24


@dataclass(eq=False, slots=True)
class Node:
    """A state. `lines`: its statements, one each.

    Without a name: the bend of a long edge in a layer, `room` high; the first one is as wide as its label, `span`.
    """

    name: str
    lines: list[str] = field(default_factory=list)
    select: str = ""
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    room: float = 0.0
    span: float = 0.0

    @property
    def text(self) -> list[str]:
        return [*self.lines, *([f"select {self.select}"] if self.select else [])]

    @property
    def width(self) -> float:
        return max((len(t) for t in [self.name, *self.text]), default=0) * CHAR + 20 if self.name else self.span

    @property
    def height(self) -> float:
        return LINE * (1 + len(self.text)) + 12 if self.name else self.room


@dataclass(eq=False, slots=True)
class Edge:
    """`labels`: the sets of the select's cases, in order; empty for a direct transition."""

    source: Node
    target: Node
    labels: list[str] = field(default_factory=list)
    back: bool = False


@dataclass(slots=True)
class Graph:
    name: str
    nodes: list[Node]
    edges: list[Edge]


def graphs(parser: Instance) -> list[Graph]:
    """Returns the graphs of a parser and of all that it applies."""
    inner = [child for child in parser.children.values() if isinstance(child.decl, ast.ParserDecl)]
    return [graph(parser), *(g for child in inner for g in graphs(child))]


def graph(parser: Instance) -> Graph:
    nodes = {s.name: Node(s.name) for s in parser.decl.state_list}
    order = list(nodes)
    edges: dict[tuple[str, str], Edge] = {}

    def edge(source: str, target: str, label: str) -> None:
        if target not in nodes:
            nodes[target] = Node(target)
        link = edges.setdefault((source, target), Edge(nodes[source], nodes[target]))
        if label:
            link.labels.append(label)

    for state in parser.decl.state_list:
        node, transition = nodes[state.name], state.transition
        node.lines = [text for s in state.statements for text in _statement(s)]
        if transition is None:
            edge(state.name, "reject", "")
        elif transition.target_name is not None:
            edge(state.name, transition.target_name, "")
        else:
            node.select = ", ".join(shown(k) for k in transition.keys)
            for case in transition.cases:
                edge(state.name, case.target_name, _keys(case))
    return Graph(parser.name, [nodes[n] for n in order] + [n for k, n in nodes.items() if k not in order],
                 list(edges.values()))


def shown(e: ast.Expr) -> str:
    """Returns an expression as text, numbers without their widths."""
    return re.sub(r"\b\d+[ws](\d+)", lambda m: m[1] if int(m[1]) < 10 else hex(int(m[1])), ast.source_text(e))


def _keys(case: ast.SelectCase) -> str:
    if all(isinstance(k, ast.DontCare) for k in case.keys):
        return "default"
    keys = [shown(k) for k in case.keys]
    return keys[0] if len(keys) == 1 else f"({', '.join(keys)})"


def _statement(s: ast.Node) -> Iterator[str]:
    """Yields a statement of a state in a few words."""
    match s:
        case ast.CallStatement(call=call) if call.kind == "packet_in" and call.method == "extract":
            target = call.args[0]
            more = f", {shown(call.given(1))}" if len(call.args) > 1 else ""
            yield f"extract {'_' if target is None else shown(target)}{more}"
        case ast.CallStatement(call=call):
            yield shown(call)
        case ast.Assign():
            yield f"{shown(s.target)} {s.op.removesuffix('=')}= {shown(s.value)}"
        case ast.If():
            yield f"if ({shown(s.condition)}) ..."
        case ast.Block():
            for inner in s.statements:
                yield from _statement(inner)


def text(g: Graph) -> Iterator[str]:
    """Yields states in order of declaration with their statements and successors."""
    for node in g.nodes:
        out = [e for e in g.edges if e.source is node]
        if not out:
            continue
        yield f"state {node.name}"
        yield from (f"    {line}" for line in node.lines)
        if node.select:
            yield f"    select {node.select}"
            yield from (f"        {label} -> {e.target.name}" for e in out for label in e.labels)
        else:
            yield f"    -> {out[0].target.name}"


# --- drawing --------------------------------------------------------------------------------------------------------


def _layers(g: Graph) -> list[list[Node]]:
    """Marks edges that close a cycle as `back`, and puts each node one layer below the lowest that leads to it."""
    out = {n: [e for e in g.edges if e.source is n] for n in g.nodes}
    order: list[Node] = []
    active: set[Node] = set()

    def visit(start: Node) -> None:
        stack = [(start, iter(out[start]))]
        active.add(start)
        seen.add(start)
        while stack:
            node, rest = stack[-1]
            e = next(rest, None)
            if e is None:
                stack.pop()
                active.discard(node)
                order.append(node)
            elif e.target in active:
                e.back = True
            elif e.target not in seen:
                seen.add(e.target)
                active.add(e.target)
                stack.append((e.target, iter(out[e.target])))

    seen: set[Node] = set()
    for node in g.nodes:
        if node not in seen:
            visit(node)
    for node in reversed(order):  # a topological order
        for e in out[node]:
            if not e.back:
                e.target.layer = max(e.target.layer, node.layer + 1)
    final = [n for n in g.nodes if not out[n]]
    deepest = max(n.layer for n in g.nodes)
    for node in final:
        node.layer = deepest
    layers: list[list[Node]] = [[] for _ in range(deepest + 1)]
    for node in g.nodes:
        layers[node.layer].append(node)
    return layers


def _routes(g: Graph, layers: list[list[Node]]) -> list[tuple[Edge, list[Node]]]:
    """Returns each forward edge with the nodes that it passes, a bend in each layer between its ends."""
    routes = []
    for e in g.edges:
        if not e.back:
            bends = [Node("", layer=i) for i in range(e.source.layer + 1, e.target.layer)]
            for bend in bends:
                layers[bend.layer].append(bend)
            if bends:
                bends[0].span = max(map(len, e.labels), default=0) * CHAR
            routes.append((e, [e.source, *bends, e.target]))
    return routes


def _order(layers: list[list[Node]], routes: list[tuple[Edge, list[Node]]]) -> None:
    """Orders each layer by the mean place of the neighbours above, then below, a few times."""
    above: dict[Node, list[Node]] = {}
    below: dict[Node, list[Node]] = {}
    for _, path in routes:
        for upper, lower in zip(path, path[1:], strict=False):
            above.setdefault(lower, []).append(upper)
            below.setdefault(upper, []).append(lower)
    for _ in range(4):
        for near, sweep in ((above, layers), (below, layers[::-1])):
            for layer in sweep:
                place = {n: i / max(len(row), 1) for row in layers for i, n in enumerate(row)}
                mean = {
                    n: sum(place[m] for m in near[n]) / len(near[n]) if near.get(n) else place[n] for n in layer
                }
                layer.sort(key=mean.__getitem__)


def _place(layers: list[list[Node]], top: float) -> tuple[float, float]:
    """Sets the coordinates of centres; returns width and the lower edge."""
    widths = [sum(n.width for n in layer) + GAP_X * (len(layer) - 1) for layer in layers]
    full = max(widths)
    y = top
    for layer, width in zip(layers, widths, strict=True):
        height = max(n.height for n in layer)
        x = MARGIN + (full - width) / 2
        for node in layer:
            node.room = height
            node.x, node.y = x + node.width / 2, y + height / 2
            x += node.width + GAP_X
        y += height + GAP_Y
    return full + 2 * MARGIN, y - GAP_Y


def svg(drawings: list[Graph]) -> str:
    """Draws the graphs below each other, on a page of their own: dark where the viewer prefers it."""
    parts: list[str] = []
    width, top = 0.0, float(MARGIN)
    for g in drawings:
        parts.append(f'<text class="title" x="{MARGIN}" y="{top + LINE:.0f}">{escape(g.name)}</text>')
        layers = _layers(g)
        routes = _routes(g, layers)
        _order(layers, routes)
        w, bottom = _place(layers, top + 2 * LINE)
        labels: list[str] = []
        backs = [e for e in g.edges if e.back]
        for e, path in routes:
            parts.append(_curve(path))
            near = path[1]
            if near.name:
                labels += _label(e, (path[0].x + near.x) / 2, (_bottom(path[0]) + _top(near)) / 2)
            else:
                labels += _label(e, near.x, near.y)
        for i, e in enumerate(backs):
            x = w + 12 * i
            a, b = e.source, e.target
            parts.append(
                f'<path class="back" d="M{a.x + a.width / 2:.0f},{a.y:.0f} C{x:.0f},{a.y:.0f} {x:.0f},{b.y:.0f}'
                f' {b.x + b.width / 2:.0f},{b.y:.0f}"/>'
            )
            labels += _label(e, min(x, w) - 8, (a.y + b.y) / 2)
        parts += [part for n in g.nodes for part in _box(n)] + labels
        width, top = max(width, w + 12 * len(backs)), bottom + 2 * MARGIN
    style = (
        "svg{color:#1d2733}.page{fill:#fff;stroke:none}"
        "text{font:12px monospace;fill:currentColor;text-anchor:middle}.title{text-anchor:start;font-weight:bold}"
        ".name{font-weight:bold}rect,path{fill:none;stroke:currentColor}.back{stroke-dasharray:4 3}"
        ".label{font-size:11px;paint-order:stroke;stroke:#fff;stroke-width:4px;fill:#205090}"
        "@media(prefers-color-scheme:dark){svg{color:#e6eaf0}.page{fill:#14181d}.label{stroke:#14181d;fill:#9cc4ff}}"
    )
    arrow = (
        '<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" style="fill:currentColor"/></marker></defs>'
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {top:.0f}" width="{width:.0f}">'
    page = '<rect class="page" width="100%" height="100%"/>'
    return "\n".join([head, f"<style>{style}</style>", arrow, page, *parts, "</svg>", ""])


def _top(n: Node) -> float:
    return n.y - n.height / 2


def _bottom(n: Node) -> float:
    return n.y + n.height / 2


def _curve(path: list[Node]) -> str:
    d = f"M{path[0].x:.0f},{_bottom(path[0]):.0f}"
    for a, b in zip(path, path[1:], strict=False):
        middle = (_bottom(a) + _top(b)) / 2
        d += f" C{a.x:.0f},{middle:.0f} {b.x:.0f},{middle:.0f} {b.x:.0f},{_top(b):.0f}"
        if not b.name:
            d += f" V{_bottom(b):.0f}"
    return f'<path d="{d}" marker-end="url(#to)"/>'


def _label(e: Edge, x: float, y: float) -> list[str]:
    lines = e.labels if len(e.labels) <= 4 else [*e.labels[:3], f"... {len(e.labels) - 3} more"]
    first = y - LINE * (len(lines) - 1) / 2
    return [
        f'<text class="label" x="{x:.0f}" y="{first + LINE * i:.0f}">{escape(label)}</text>'
        for i, label in enumerate(lines)
    ]


def _box(n: Node) -> Iterator[str]:
    radius = 14 if n.name in ("accept", "reject") else 4
    yield (
        f'<rect x="{n.x - n.width / 2:.0f}" y="{_top(n):.0f}" width="{n.width:.0f}" height="{n.height:.0f}"'
        f' rx="{radius}"/>'
    )
    for i, line in enumerate([n.name, *n.text]):
        kind = ' class="name"' if i == 0 else ""
        yield f'<text{kind} x="{n.x:.0f}" y="{_top(n) + 18 + LINE * i:.0f}">{escape(line)}</text>'
