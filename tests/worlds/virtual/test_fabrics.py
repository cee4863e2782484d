"""Leaf-spine, fat-tree, the user's own: counts, bandwidth, routes, aggregation trees; and the drawings of them."""

import itertools
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stripes import striped_trees, tensors_per_link

from ina import cli
from ina import topology as topologies
from ina.topology import Link, Node, Topology, TopologyError, draw
from ina.topology.routes import route, tables
from ina.topology.tree import Tree, aggregation_tree

pytestmark = pytest.mark.fast
ROOT = Path(__file__).resolve().parent.parent.parent.parent


def graph(topology: Topology) -> networkx.DiGraph:
    directed = networkx.DiGraph()
    for node, hops in topology.hops.items():
        for hop in hops:
            directed.add_edge(node, hop.node, capacity=1)
    return directed


@st.composite
def fabrics(draw_from):
    kind = draw_from(st.sampled_from(["star", "leaf-spine", "fat-tree", "topoopt"]))
    number = st.integers(1, 5)
    if kind == "star":
        return topologies.load(kind, hosts=draw_from(st.integers(1, 20)))
    if kind == "leaf-spine":
        return topologies.load(kind, leaves=draw_from(number), spines=draw_from(number), hosts=draw_from(number))
    if kind == "fat-tree":
        return topologies.load(kind, k=draw_from(st.sampled_from([2, 4, 6])))
    return topologies.load(kind, servers=draw_from(st.integers(2, 24)), degree=draw_from(st.integers(2, 6)))


# ---- counts and bandwidth


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_a_fat_tree_has_what_the_paper_counts(k):
    """Al-Fares SIGCOMM'08 §2.2: k^3/4 hosts, 5k^2/4 switches of k ports, k pods, (k/2)^2 of them core."""
    tree = topologies.load("fat-tree", k=k)
    levels = Counter(tree.levels().values())
    assert levels == {0: k**3 // 4, 1: k * k // 2, 2: k * k // 2, 3: k * k // 4}
    assert {len(tree.hops[switch.name]) for switch in tree.switches} == {k}
    assert {hop.port for switch in tree.switches for hop in tree.hops[switch.name]} == set(range(1, k + 1))
    for core in (s.name for s in tree.switches if tree.levels()[s.name] == 3):
        pods = [(int(hop.node[1:]) - 1 - k * k // 2) // (k // 2) for hop in tree.hops[core]]
        assert pods == list(range(k))


@given(half=st.permutations(range(1, 17)))
@settings(max_examples=15, deadline=None)
def test_any_half_of_a_fat_tree_can_send_to_the_other_at_full_rate(half):
    flow = graph(topologies.load("fat-tree", k=4))
    flow.add_edges_from(("from", f"h{i}", {"capacity": 1}) for i in half[:8])
    flow.add_edges_from((f"h{i}", "to", {"capacity": 1}) for i in half[8:])
    assert networkx.maximum_flow_value(flow, "from", "to") == 8


def test_leaf_spine():
    net = topologies.load("leaf-spine", leaves=3, spines=2, hosts=5, rate=1e9, uplink=4e9)
    assert len(net.hosts) == 15 and len(net.switches) == 5 and len(net.links) == 15 + 6
    assert net.switch_of("h6") == "s2" and [h.node for h in net.hops["s5"]] == ["s1", "s2", "s3"]
    assert {link.rate for link in net.links[:15]} == {1e9} and {link.rate for link in net.links[15:]} == {4e9}


@pytest.mark.parametrize(("name", "keys"), [("fat-tree", {"k": 16}), ("topoopt", {"servers": 1000})])
def test_a_thousand_hosts_are_built_and_checked(name, keys):
    net = topologies.load(name, **keys)
    assert len(net.hosts) >= 1000
    assert len({host.ip for host in net.hosts}) == len({host.mac for host in net.hosts}) == len(net.hosts)


@given(fabrics())
@settings(max_examples=30, deadline=None)
def test_all_reach_each_other_and_names_imply_addresses(net):
    assert networkx.is_strongly_connected(graph(net))
    for host in net.hosts:
        assert host.ip == f"10.0.{host.number // 256}.{host.number % 256}" and host.mac.endswith(f"{host.number % 256:02x}")
    names = [end.name for pair in net.ends for end in pair]
    assert len(set(names)) == len(names) == 2 * len(net.links)


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("fat-tree", {"k": 3}, "fat-tree: k is 3, expected an even number"),
        ("fat-tree", {"k": 0}, "expected an even number"),
        ("leaf-spine", {"spines": 0}, "leaf-spine: spines is 0"),
        ("topoopt", {"degree": 1}, "degree is 1, expected at least 2 with undirected rings"),
        ("topoopt", {"servers": 1}, "servers is 1"),
        ("topoopt", {"rings": "both"}, "rings is 'both', expected directed or undirected"),
        ("topoopt", {"k": 4}, "no parameter 'k'; it has: servers, degree"),
    ],
)
def test_bad_parameters_are_named(name, keys, message):
    with pytest.raises(TopologyError, match=message):
        topologies.load(name, **keys)


def test_simplex_links_lead_one_way():
    nodes = tuple(map(Node, ("h1", "s1", "s2", "s3")))
    one_way = [Link("s1", "s2", simplex=True), Link("s2", "s3", simplex=True), Link("s3", "s1", simplex=True)]
    ring = Topology("ring", nodes, (Link("h1", "s1"), *one_way))
    assert [hop.node for hop in ring.hops["s2"]] == ["s3"] and ring.distances("s2")["s1"] == 2
    assert ring.sources["s2"] == ["s1"] and ring.sources["s1"] == ["h1", "s3"]
    with pytest.raises(TopologyError, match="no way from s2, s3 to h1"):
        Topology("ring", nodes, (Link("h1", "s1"), *one_way[:2]))
    with pytest.raises(TopologyError, match="link h1-s1: a host's link carries both directions"):
        Topology("ring", nodes, (Link("h1", "s1", simplex=True), *one_way))


# ---- routes


@given(fabrics())
@settings(max_examples=20, deadline=None)
def test_routes_are_shortest_and_without_loops(net):
    way = tables(net)
    for a in net.hosts[:6]:
        shortest = net.distances(a.name)
        for b in net.hosts:
            if a != b:
                path = route(net, way, a.name, b.name)
                assert path[0] == a.name and path[-1] == b.name and len(set(path)) == len(path)
                assert len(path) - 1 == shortest[b.name]
                assert all(there in {hop.node for hop in net.hops[here]} for here, there in zip(path, path[1:], strict=False))


def test_routes_of_a_fat_tree_use_all_core_switches_alike():
    net = topologies.load("fat-tree", k=4)
    way, used = tables(net), Counter()
    for a, b in itertools.permutations(net.hosts, 2):
        used.update(route(net, way, a.name, b.name))
    assert [used[core] for core in ("s17", "s18", "s19", "s20")] == [16 * 12 // 4] * 4


# ---- aggregation trees


def check(net: Topology, tree: Tree, workers: list[str]) -> None:
    """A tree of the topology's own links: every worker is a leaf below the root, and no switch is there for nothing."""
    assert set(tree.workers) == set(workers) and tree.root in {s.name for s in net.switches}
    assert len(tree.links) == len(tree.parent) == len(set(tree.links))
    for (node, up), number in zip(tree.parent.items(), tree.links, strict=True):
        link = net.links[number]
        assert {node, up} == {link.a, link.b} and not link.simplex and up[0] == "s"
    for worker in workers:
        assert tree.path(worker)[-1] == tree.root
    assert all(tree.children(switch) for switch in tree.switches)
    least = min(max(far[w] for w in workers) for far in (net.distances(s.name) for s in net.switches))
    assert tree.depth == least


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_trees_reach_all_workers_at_the_least_depth(data):
    net = data.draw(fabrics())
    names = [host.name for host in net.hosts]
    workers = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=16, unique=True))
    tree = aggregation_tree(net, workers)
    check(net, tree, workers)
    assert tree == aggregation_tree(net, workers[::-1]) or set(tree.links) == set(aggregation_tree(net, workers[::-1]).links)


def test_a_tree_goes_no_higher_than_it_must():
    net = topologies.load("fat-tree", k=4)
    assert aggregation_tree(net, ["h1", "h2"]) == Tree("s1", {"h1": "s1", "h2": "s1"}, (0, 1))
    pod = aggregation_tree(net, ["h1", "h2", "h3"])
    assert (pod.root, pod.depth, pod.switches) == ("s9", 2, ("s9", "s1", "s2"))
    across = aggregation_tree(net, ["h1", "h3", "h5"])
    assert (across.root, across.depth) == ("s17", 3)
    assert across.children("s17") == ("s9", "s11") and across.children("s9") == ("s1", "s2") and across.children("s2") == ("h3",)
    assert aggregation_tree(net, ["h1", "h3", "h5"], without={"s17"}).root == "s18"
    assert aggregation_tree(net, ["h1", "h3"], without={"s9"}).root == "s10"


@pytest.mark.parametrize("k", [4, 6])
def test_a_tree_over_a_whole_fat_tree_has_one_switch_a_pod(k):
    net = topologies.load("fat-tree", k=k)
    tree = aggregation_tree(net, [host.name for host in net.hosts])
    assert len(tree.switches) == 1 + k + k * k // 2 and len(tree.children(tree.root)) == k


def test_a_tree_stays_away_from_loaded_links():
    net = topologies.load("fat-tree", k=4)
    first = aggregation_tree(net, ["h1", "h5"])
    second = aggregation_tree(net, ["h2", "h6"], load=dict.fromkeys(first.links, 1))
    assert first.switches == ("s17", "s1", "s3", "s9", "s11") and second.switches == ("s19", "s1", "s3", "s10", "s12")
    nodes = tuple(map(Node, ("h1", "h2", "s1", "s2")))
    cables = Topology("cables", nodes, (Link("h1", "s1"), Link("h2", "s2"), Link("s1", "s2"), Link("s1", "s2")))
    assert aggregation_tree(cables, ["h1", "h2"]).links == (2, 0, 1)
    assert aggregation_tree(cables, ["h1", "h2"], load={2: 0.5}).links == (3, 0, 1)


@given(net=fabrics(), count=st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_striped_trees_are_least_deep_trees_of_all_workers(net, count):
    workers = [host.name for host in net.hosts[:12]]
    trees = striped_trees(net, workers, count)
    for tree in trees:
        check(net, tree, workers)
    carried = tensors_per_link(trees)
    assert max(carried.values()) <= 1 and sum(carried.values()) == pytest.approx(sum(len(t.links) for t in trees) / count)


@pytest.mark.parametrize(
    ("servers", "degree", "count", "busiest"), [(8, 4, 1, 1), (8, 4, 4, 0.5), (8, 2, 8, 0.875), (16, 4, 16, 0.5)]
)
def test_striping_uses_more_links(servers, degree, count, busiest):
    """No better than an even spread: servers - 1 tree links' tensors over servers * degree / 2 links."""
    net = topologies.load("topoopt", servers=servers, degree=degree)
    carried = tensors_per_link(striped_trees(net, [host.name for host in net.hosts], count))
    between = {link: tensors for link, tensors in carried.items() if net.links[link].a[0] == "s"}
    assert max(between.values()) == busiest >= (servers - 1) / (servers * degree / 2)


@pytest.mark.parametrize(
    ("workers", "without", "message"),
    [
        ([], (), "at least one worker"),
        (["h17"], (), "no host 'h17'; hosts are h1 to h16"),
        (["h1", "h2", "h1"], (), "h1 is named twice"),
        (["h1", "h3"], ("s9", "s10"), "no switch reaches all of h1, h3"),
        (["h1"], ("s1",), "no switch reaches all of h1"),
    ],
)
def test_impossible_jobs_are_refused(workers, without, message):
    with pytest.raises(TopologyError, match=message):
        aggregation_tree(topologies.load("fat-tree"), workers, without)


def test_trees_need_duplex_links():
    with pytest.raises(TopologyError, match="over duplex links; rings=undirected"):
        aggregation_tree(topologies.load("topoopt", degree=2, rings="directed"), ["h1", "h2"])


# ---- files


TWO_RACKS = """
name = "two-racks"
mtu = 9000
[every-link]
rate = 10e9
[[link]]
ends = ["h1-h4", "s1"]
[[link]]
ends = ["h5-h8", "s2"]
delay = 1e-6
[[link]]
ends = ["s1", "s2"]
rate = 40e9
"""


def test_a_file_says_links_and_their_nodes(tmp_path):
    path = tmp_path / "racks.toml"
    path.write_text(TWO_RACKS)
    net = topologies.load(str(path))
    assert net.name == "two-racks" and net.mtu == 9000 and len(net.hosts) == 8 and len(net.links) == 9
    assert net.links[0] == Link("h1", "s1", rate=10e9) and net.links[8] == Link("s1", "s2", rate=40e9)
    assert net.links[4].delay == 1e-6 and net.switch_of("h7") == "s2"
    assert aggregation_tree(net, ["h1", "h8"]).depth == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('name = "two', 'nam = "two'), r"racks\.toml:2: unknown key 'nam'; did you mean 'name'\?"),
        (("mtu = 9000", 'mtu = "big"'), r"racks\.toml:3: mtu = 'big': expected a whole number"),
        (("rate = 10e9", "rate = true"), r"racks\.toml:5: rate = True: expected a number"),
        (("delay = 1e-6", "dely = 1e-6"), r"racks\.toml:10: unknown key 'dely'; did you mean 'delay'\?"),
        (("delay = 1e-6", "delay = 11"), r"racks\.toml:10: link h5-s2: delay is 11.0, expected seconds"),
        (("rate = 10e9", "rate = -1"), r"racks\.toml:5: link h1-s1: rate is -1.0, expected bit/s"),
        (('["s1", "s2"]', '["s1"]'), r"racks\.toml:12: ends = \['s1'\]: expected two nodes"),
        (('["s1", "s2"]', '["s1", "x2"]'), r"racks\.toml:12: node 'x2': expected h1, h2"),
        (("h5-h8", "h8-h5"), r"racks\.toml:9: nodes 'h8-h5': expected a range"),
        (("h5-h8", "h4-h8"), r"racks\.toml: two-racks: host h4 has 2 links"),
        (('["s1", "s2"]', '["s1", "s3"]'), r"racks\.toml: two-racks: no way from h1 to h5"),
        (("[every-link]", "[every-link"), r"racks\.toml: .*at line 4"),
        (("[every-link]", "[[every-link]]"), r"racks\.toml:4: every-link: expected a table"),
    ],
)
def test_errors_in_a_file_are_located(tmp_path, change, message):
    assert change[0] in TWO_RACKS
    path = tmp_path / "racks.toml"
    path.write_text(TWO_RACKS.replace(*change, 1))
    with pytest.raises(TopologyError, match=message):
        topologies.load(str(path))


def test_all_problems_of_a_file_are_told_at_once(tmp_path):
    path = tmp_path / "racks.toml"
    path.write_text(TWO_RACKS.replace("mtu = 9000", "mtu = 9e3").replace("delay = 1e-6", "dely = 1e-6").replace('"s2"]', '"x2"]'))
    with pytest.raises(TopologyError) as caught:
        topologies.load(str(path))
    lines = str(caught.value).splitlines()
    assert [line.removeprefix(f"{path}:").split(":")[0] for line in lines] == ["3", "10", "9", "12"]


def test_files_that_are_none(tmp_path):
    with pytest.raises(TopologyError, match="none.toml: No such file"):
        topologies.load(str(tmp_path / "none.toml"))
    empty = tmp_path / "empty.toml"
    empty.touch()
    with pytest.raises(TopologyError, match=r"empty.toml: link: expected one or more tables"):
        topologies.load(str(empty))
    empty.write_bytes(b"\xff\xfe")
    with pytest.raises(TopologyError, match="not a text file"):
        topologies.load(str(empty))


# ---- drawings and the command line


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_drawings_show_every_node_apart_and_inside(data):
    net = data.draw(fabrics())
    workers = [host.name for host in net.hosts[:8]]
    tree = aggregation_tree(net, workers)
    picture = ElementTree.fromstring(draw.svg(net, tree))
    space = {"s": "http://www.w3.org/2000/svg"}
    _, _, width, height = map(float, picture.get("viewBox").split())
    places = [(float(t.get("x")), float(t.get("y"))) for t in picture.findall("s:text", space)]
    assert [t.text for t in picture.findall("s:text", space)] == [node.name for node in net.nodes]
    assert all(13 <= x <= width - 13 and 11 <= y <= height - 11 for x, y in places)
    assert min((abs(a - c) + abs(b - d) for (a, b) in places for (c, d) in places if (a, b) != (c, d)), default=99) >= 24
    assert len(set(places)) == len(places)
    marked = [path for path in picture.findall("s:path", space) if path.get("class") == "tree"]
    assert marked[0].get("d").count("M") == len(tree.links)
    assert len(picture.findall("*[@class='root']")) == 1
    assert len(picture.findall("*[@class='on']")) == len(tree.parent)


DRAWN = {
    "fat-tree.svg": ["fat-tree", "--k", "4", "--job", "h1-h8"],
    "topoopt.svg": ["topoopt", "--servers", "8", "--degree", "4", "--job", "h1-h8"],
    "topoopt-directed.svg": ["topoopt", "--servers", "8", "--degree", "3", "--rings", "directed"],
    "leaf-spine.svg": ["leaf-spine", "--job", "h1,h2,h5,h9"],
}


@pytest.mark.parametrize("name", DRAWN)
def test_drawings_of_the_documentation_are_what_the_command_draws(name, tmp_path, capsys):
    assert cli.main(["topo", "show", *DRAWN[name], "--svg", str(tmp_path / name)]) == 0
    assert f"ina topo show {' '.join(DRAWN[name])} --svg {name}" in (ROOT / "docs/guide/topologies.md").read_text()
    assert (tmp_path / name).read_text() == (ROOT / "docs/guide/topologies" / name).read_text()


@pytest.mark.parametrize(("degree", "rings", "free"), [(4, "undirected", 0), (40, "undirected", 36), (7, "directed", 3)])
def test_interfaces_without_a_link_are_told(capsys, degree, rings, free):
    assert cli.main(["topo", "show", "topoopt", "--servers", "8", "--degree", str(degree), "--rings", rings]) == 0
    message = "of each server's interfaces are free"
    out = capsys.readouterr().out
    assert (f"{free} {message}" in out) if free else (message not in out)


def test_show_prints_switches_and_tree(capsys):
    assert cli.main(["topo", "show", "fat-tree", "--k", "4", "--job", "h1,h3,h5"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("fat-tree: 16 hosts, 20 switches, 32 links between switches, MTU 1500\n")
    assert "s17          3      4  1:s9 2:s11 3:s13 4:s15\n" in out
    assert out.endswith(
        "aggregation tree of 3 workers: depth 3, 8 links\ns17\n├─ s9\n│  ├─ s1\n│  │  └─ h1\n│  └─ s2\n│     └─ h3\n"
        "└─ s11\n   └─ s3\n      └─ h5\n"
    )


def test_list_names_topologies_and_their_parameters(capsys):
    assert cli.main(["topo", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in topologies.names()) and "--k 4 --rate" in out and "--rings undirected" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["torus"], "ina: there is no topology 'torus'; there are: fat-tree"),
        (["star", "--k", "4"], "ina: topology 'star' has no parameter 'k'"),
        (["star", "--job", "h1,h9"], "ina: star: there is no host 'h9'; hosts are h1 to h4"),
        (["none.toml"], "ina: none.toml: No such file"),
        (["star", "--svg", "no/such/folder/a.svg"], "ina: no/such/folder/a.svg: No such file"),
    ],
)
def test_what_show_cannot_do_is_said(arguments, message, capsys):
    assert cli.main(["topo", "show", *arguments]) in (1, 2)
    assert message in capsys.readouterr().err
