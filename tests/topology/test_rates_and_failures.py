"""Routes and trees in networks with links of different rates, and with links that are down, against the shortest paths of
Bellman and Ford and a search of all thresholds."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ina import topology as topologies
from ina.aggregation.controller.job_records import AdmissionError
from ina.aggregation.controller.tree_placement import place
from ina.topology import Hop, Link, Node, Topology, TopologyError, routes
from ina.topology.alive import dead_directions
from ina.topology.topology import hop_counts
from ina.topology.tree import aggregation_tree

pytestmark = pytest.mark.fast
RATES = [1e9, 10e9, 25e9, 40e9, 100e9]


def with_rates(topology: Topology, rates: dict[str, float]) -> Topology:
    """Returns the topology with other rates of the links of these names."""
    links = [replace(link, rate=rates.get(name, link.rate))
             for link, name in zip(topology.links, topology.link_names(), strict=True)]
    return replace(topology, links=tuple(links))


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    """Draws connected switches, some with parallel or simplex links, and hosts."""
    count = draw(st.integers(1, 8))
    rate = st.sampled_from(RATES)
    links = [Link(f"s{draw(st.integers(1, i - 1))}", f"s{i}", draw(rate)) for i in range(2, count + 1)]
    if count > 1:
        for _ in range(draw(st.integers(0, 10))):
            a = draw(st.integers(1, count))
            b = draw(st.integers(1, count).filter(lambda b, a=a: b != a))
            links.append(Link(f"s{a}", f"s{b}", draw(rate), simplex=draw(st.booleans())))
    hosts = draw(st.integers(1, 6))
    links += [Link(f"h{i}", f"s{draw(st.integers(1, count))}", draw(rate)) for i in range(1, hosts + 1)]
    names = [f"h{i}" for i in range(1, hosts + 1)] + [f"s{i}" for i in range(1, count + 1)]
    return Topology("drawn", tuple(map(Node, names)), tuple(draw(st.permutations(links))))


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Topology, list[str]]:
    """Draws a network, and names of its links, their directions and switches that are down."""
    net = draw(networks())
    ways = [f"{link.a}>{link.b}" for link in net.links if not link.simplex]
    return net, draw(st.lists(st.sampled_from([*net.link_names(), *ways, *(s.name for s in net.switches)]), max_size=4))


def least_costs(net: Topology, host: str, dead: frozenset[tuple[int, int]]) -> dict[str, tuple[Fraction, int]]:
    """Returns for each switch that reaches ``host`` the sum of 1/rate, and the links, of the cheapest path to its switch."""
    edge, last = net.switch_of(host), net.hops[host][0].link
    if (last, int(net.links[last].a == host)) in dead:
        return {}
    cost = {edge: (Fraction(0), 0)}
    for _ in net.switches:
        for number, link in enumerate(net.links):
            for side, (a, b) in enumerate(((link.a, link.b), (link.b, link.a))[: 1 if link.simplex else 2]):
                if b in cost and not net.is_host(a) and (number, side) not in dead:
                    through = (cost[b][0] + 1 / Fraction(link.rate), cost[b][1] + 1)
                    cost[a] = min(cost.get(a, through), through)
    return cost


@given(damaged())
@settings(max_examples=100, deadline=None)
def test_routes_reach_all_that_can_be_reached_at_least_cost(drawn: tuple[Topology, list[str]]):
    net, down = drawn
    dead, ways = dead_directions(net, down), routes.tables(net, down)
    for host in net.hosts:
        costs = least_costs(net, host.name, dead)
        for switch in net.switches:
            if switch.name not in costs:
                assert host.name not in ways[switch.name]
                continue
            node, spent, steps = switch.name, Fraction(0), 0
            while node != host.name:
                hop = ways[node][host.name]
                link = net.links[hop.link]
                assert (hop.link, int(link.a != node)) not in dead and hop in net.hops[node]
                if hop.node != host.name:
                    spent, steps = spent + 1 / Fraction(link.rate), steps + 1
                assert steps <= len(net.switches), f"a loop at {node}"
                node = hop.node
            assert (spent, steps) == costs[switch.name]


@given(damaged())
@settings(max_examples=60, deadline=None)
def test_broadcasts_reach_each_reachable_host_once(drawn: tuple[Topology, list[str]]):
    net, down = drawn
    dead, ports = {link for link, _ in dead_directions(net, down)}, routes.flood_ports(net, down)
    graph: dict[str, list[str]] = {node.name: [] for node in net.nodes}
    for number, link in enumerate(net.links):
        if number not in dead and not link.simplex:
            graph[link.a].append(link.b)
            graph[link.b].append(link.a)
    far = {(end.node, end.port): (other.node, number)
           for number, pair in enumerate(net.ends) for end, other in (pair, pair[::-1])}
    for start in net.switches:
        visits: Counter[str] = Counter()
        frames: list[tuple[str, int | None]] = [(start.name, None)]
        for node, came in frames:
            visits[node] += 1
            assert visits[node] == 1, f"{node} gets a broadcast twice"
            for port in () if net.is_host(node) else ports[node]:
                target, link = far[node, port]
                assert link not in dead
                if link != came:
                    frames.append((target, link))
        assert set(visits) == hop_counts([start.name], graph.__getitem__).keys()


def best_bottleneck(net: Topology, workers: list[str], down: list[str]) -> float | None:
    """Returns the rate of the slowest link of the best tree, where the workers' own links count; None: there is no tree."""
    dead = {link for link, _ in dead_directions(net, down)}
    own = {net.hops[worker][0].link for worker in workers}
    if own & dead:
        return None
    for rate in sorted({link.rate for link in net.links}, reverse=True):
        graph: dict[str, list[str]] = {node.name: [] for node in net.nodes}
        for number, link in enumerate(net.links):
            if number not in dead and not link.simplex and link.rate >= rate:
                graph[link.a].append(link.b)
                graph[link.b].append(link.a)
        reached = hop_counts([workers[0]], graph.__getitem__)
        if all(worker in reached for worker in workers) and (len(workers) > 1 or len(reached) > 1):
            return rate
    return None


@given(damaged(), st.data())
@settings(max_examples=100, deadline=None)
def test_trees_have_the_fastest_slowest_link(drawn: tuple[Topology, list[str]], data: st.DataObject):
    net, down = drawn
    workers = data.draw(st.lists(st.sampled_from([host.name for host in net.hosts]), min_size=1, unique=True))
    best = best_bottleneck(net, workers, down)
    if best is None:
        with pytest.raises(TopologyError, match="no switch reaches all of"):
            aggregation_tree(net, workers, down)
        return
    tree = aggregation_tree(net, workers, down)
    assert set(tree.workers) == set(workers) and all(tree.path(worker)[-1] == tree.root for worker in workers)
    assert not set(tree.links) & {link for link, _ in dead_directions(net, down)}
    assert min(net.links[link].rate for link in tree.links) == best
    for node, link in zip(tree.parent, tree.links, strict=True):
        assert {net.links[link].a, net.links[link].b} == {node, tree.parent[node]} and not net.links[link].simplex


# ---- sixteen placements: two workers at leaves 1 and 2, each at one of four hosts, where two links have a tenth
# of the rate

LEAVES = topologies.load("leaf-spine", leaves=3, spines=3, hosts=4, rate=100e9)
SLOW = with_rates(LEAVES, {"s1-s4": 10e9, "s3-s5": 10e9})
PLACEMENTS = [(f"h{i}", f"h{j}") for i, j in itertools.product(range(1, 5), range(5, 9))]


def net_hop(net: Topology, switch: str, node: str) -> int:
    """Returns the number of the link from ``switch`` to ``node``."""
    return next(hop.link for hop in net.hops[switch] if hop.node == node)


def slow_links(net: Topology, links: Iterable[int]) -> set[int]:
    return {link for link in links if net.links[link].rate == 10e9}


def test_no_route_of_sixteen_placements_takes_a_slow_link():
    ways = routes.tables(SLOW)
    for source, destination in PLACEMENTS:
        nodes = routes.route(SLOW, ways, source, destination)
        hops = [next(hop for hop in SLOW.hops[a] if hop.node == b) for a, b in itertools.pairwise(nodes)]
        assert not slow_links(SLOW, [hop.link for hop in hops]), nodes


def test_a_route_goes_around_a_slow_link_that_is_shorter():
    direct = Topology("direct", tuple(map(Node, ("h1", "h2", "s1", "s2", "s3"))), (
        Link("h1", "s1", 100e9), Link("h2", "s2", 100e9), Link("s1", "s2", 10e9), Link("s1", "s3", 100e9),
        Link("s3", "s2", 100e9)))
    assert routes.route(direct, routes.tables(direct), "h1", "h2") == ["h1", "s1", "s3", "s2", "h2"]
    assert set(aggregation_tree(direct, ["h1", "h2"]).links) == {0, 1, 3, 4}
    assert routes.flood_ports(direct) == {"s1": [1, 3], "s2": [1, 3], "s3": [1, 2]}  # nor does a broadcast take it
    hosts_too = with_rates(direct, {"h1": 10e9})
    assert set(aggregation_tree(hosts_too, ["h1", "h2"]).links) == {0, 1, 2}  # a way around would not be faster


def test_no_tree_of_sixteen_placements_takes_a_slow_link_to_the_parameter_server():
    """The server is at h9 of leaf 3; with two, the one that has a slow link of its own is left."""
    own = {host: net_hop(SLOW, SLOW.switch_of(host), host) for host in ("h9", "h12")}
    room = {switch.name: 9 for switch in SLOW.switches}
    for hosts in PLACEMENTS:
        (tree,) = place(SLOW, hosts, room, roots={"s3": own["h9"]})
        assert tree.root == "s3" and not slow_links(SLOW, tree.links), tree
    slow_server = with_rates(SLOW, {"h1": 10e9})
    near = {"s1": net_hop(SLOW, "s1", "h1"), "s3": own["h12"]}
    assert {place(SLOW, ("h2", "h5"), room, roots=near)[0].root, place(slow_server, ("h2", "h5"), room, roots=near)[0].root} == {
        "s1", "s3"}


def test_a_job_that_shares_a_fast_link_leaves_it_when_a_slow_one_is_as_good():
    """The third job finds the fast spine's links used twice: one of a third of the rate has as much left for it."""
    net = with_rates(topologies.load("leaf-spine", leaves=2, spines=2, hosts=3, rate=30e9), {"s1-s3": 10e9, "s2-s3": 10e9})
    running = []
    for i in range(3):
        running += place(net, (f"h{i + 1}", f"h{i + 4}"), {s.name: 9 for s in net.switches}, running=running)
    assert [tree.root for tree in running] == ["s4", "s4", "s3"]


@pytest.mark.parametrize(("name", "parameters"), [("star", {}), ("leaf-spine", {}), ("fat-tree", {"k": 4}), ("topoopt", {})])
def test_equal_rates_leave_shortest_routes_by_digit(name: str, parameters: dict[str, int]):
    """The port of a host is that of its digit among those that are one link nearer to it."""
    for rate in (0.0, 10e9):
        net = topologies.load(name, **parameters, rate=rate)
        levels, ways = net.levels(), routes.tables(net)
        for host in net.hosts:
            distance = hop_counts([net.switch_of(host.name)], net.sources.__getitem__)
            for switch in net.switches:
                nearer: list[Hop] = [hop for hop in net.hops[switch.name] if distance.get(hop.node, 99) < distance[switch.name]]
                if switch.name != net.switch_of(host.name):
                    digit = host.number // len(nearer) ** (levels[switch.name] - 1)
                    assert ways[switch.name][host.name] == nearer[digit % len(nearer)]


# ---- what is down


def test_routes_go_around_what_is_down():
    net = topologies.load("fat-tree", k=4)
    for down in ("s1-s9", "s9", "s9-s1"):
        assert {routes.tables(net, [down])["s1"][f"h{i}"].node for i in range(3, 17)} == {"s10"}
    assert "h1" not in routes.tables(net, ["h1"])["s1"] and "h2" in routes.tables(net, ["h1"])["s1"]
    assert routes.tables(net, ["s1>s9"])["s9"]["h1"].node == "s1"  # the other direction works
    with pytest.raises(TopologyError, match="'s1-s2' is down: there is no such switch or link"):
        routes.tables(net, ["s1-s2"])


def test_a_placement_goes_around_dead_links_and_names_them_where_there_is_no_way():
    net = topologies.load("fat-tree", k=4)
    room = {switch.name: 4 for switch in net.switches}
    assert place(net, ("h1", "h3"), room, failed_links={"s1-s9": "no carrier"})[0].root == "s10"
    with pytest.raises(AdmissionError, match=r"^the link of host h3: no carrier$") as error:
        place(net, ("h1", "h3"), room, failed_links={"h3": "no carrier"})
    assert error.value.code == "unreachable"
    down = {"s1-s9": "no carrier", "s1-s10": "silent"}
    assert place(net, ("h1", "h3"), room, failed_links={"s1-s9": "", "s2-s10": ""})[0].root == "s3"  # of another pod
    with pytest.raises(AdmissionError, match="^no tree reaches h1, h3: link s1-s9: no carrier; link s1-s10: silent$") as error:
        place(net, ("h1", "h3"), room, failed_links=down)
    assert error.value.code == "unreachable"
    (up,) = (hop.link for hop in net.hops["s2"] if hop.node == "h4")
    with pytest.raises(AdmissionError, match="no tree reaches h1, h3: link h4: cut"):
        place(net, ("h1", "h3"), room, failed_links={"h4": "cut"}, roots={"s2": up})  # the parameter server's own link
