"""TopoOpt (NSDI'23): rings are distinct Hamiltonian cycles, no server exceeds the degree, routes are short and loop-free."""

import itertools
import math
from collections.abc import Sequence

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ina import topology as topologies
from ina.topology import TopologyError
from ina.topology.routes import route

pytestmark = pytest.mark.fast
topoopt = topologies.module("topoopt")
MODES = topoopt.MODES
Fabric = topoopt.Fabric
Group = topoopt.Group
Traffic = topoopt.Traffic
as_topology = topoopt.as_topology
coin_change = topoopt.coin_change
find_topology = topoopt.find_topology
read_traffic = topoopt.read_traffic
select_steps = topoopt.select_steps
split_degree = topoopt.split_degree
totients = topoopt.totients

modes = st.sampled_from(MODES)
sizes = st.integers(3, 80)
degrees = st.integers(1, 8)


def most_hops(n: int, steps: Sequence[int], rings: str = "directed") -> int:
    """Returns an upper bound on the hops of coin-change routes, for steps that begin with 1: greedy, largest coin first.

    Below step p_(i+1) at most (p_(i+1) - 1) / p_i coins p_i are used. With x = n^(1/d), steps 1, x, x^2, ... give d (x - 1), the
    paper's bound O(d n^(1/d)) on the diameter. Undirected rings are entered in the shorter direction: half the distance.
    """
    bounds = (*steps, (n if rings == "directed" else n // 2 + 1))
    return sum((above - 1) // step for step, above in zip(steps, bounds[1:], strict=True))


@st.composite
def fabrics(draw):
    n = draw(st.integers(3, 16))
    servers = st.integers(1, n)
    groups = st.lists(servers, min_size=2, max_size=n, unique=True).map(tuple)
    volume = st.integers(0, 10**12)
    some = draw(st.lists(st.tuples(groups, volume), max_size=3))
    pairs = draw(st.dictionaries(st.tuples(servers, servers).filter(lambda p: p[0] != p[1]), volume, max_size=20))
    traffic = Traffic(((tuple(range(1, n + 1)), draw(volume)), *some), pairs)
    return find_topology(n, draw(st.integers(2, 8)), traffic, draw(modes)), traffic


def all_reduce(n: int) -> Traffic:
    return Traffic(((tuple(range(1, n + 1)), 1),))


# ---- rings


def is_hamiltonian(cycle: list[int], n: int) -> bool:
    return sorted(cycle) == list(range(n))


@given(n=st.integers(2, 60))
def test_exactly_the_coprime_steps_are_hamiltonian_cycles(n):
    cycles = {p: [i * p % n for i in range(n)] for p in range(1, n)}
    assert [p for p, cycle in cycles.items() if is_hamiltonian(cycle, n)] == totients(n)


@given(n=sizes, count=degrees, rings=modes)
def test_rings_are_distinct_hamiltonian_cycles(n, count, rings):
    group = Group(tuple(range(n)), select_steps(n, count, rings), rings)
    assert all(is_hamiltonian(cycle, n) for cycle in group.cycles)
    edges = [frozenset(zip(cycle, [*cycle[1:], cycle[0]], strict=True)) for cycle in group.cycles]
    assert all(not a & b for i, a in enumerate(edges) for b in edges[:i])  # no two share even a single circuit
    available = len(totients(n)) // (1 if rings == "directed" else 2)
    assert len(group.steps) == min(count, available) and len(group.cycles) == len(group.steps) * (1 + (rings != "directed"))
    assert group.steps[0] == 1


def test_eight_servers_have_four_directed_and_two_undirected_rings():
    assert totients(8) == [1, 3, 5, 7]
    assert select_steps(8, 9, "directed") == (1, 3, 5, 7) and select_steps(8, 9, "undirected") == (1, 3)
    assert Group(tuple(range(8)), (1, 3), "undirected").coins == (1, 3, 5, 7)
    directed, undirected = (find_topology(8, 4, all_reduce(8), rings) for rings in ("directed", "undirected"))
    assert directed.circuits == undirected.circuits  # all four, so each ring has its reverse
    assert [find_topology(8, 2, all_reduce(8), rings).groups[0].steps for rings in MODES] == [(1, 3), (1,)]


def test_steps_are_near_a_geometric_sequence():
    assert select_steps(128, 4) == (1, 3, 11, 39)  # x = 128^(1/4) = 3.36: 1, 3.36, 11.3, 38.1
    assert select_steps(128, 2, "undirected") == (1, 7)  # to 64 both ways: x = 8


# ---- coin change


@given(n=sizes, count=degrees, rings=modes)
def test_coin_change_uses_the_fewest_coins_within_the_bound(n, count, rings):
    steps = select_steps(n, count, rings)
    coins = Group(tuple(range(n)), steps, rings).coins
    ways = coin_change(n, coins)
    circulant = networkx.DiGraph([(i, (i + coin) % n) for i in range(n) for coin in coins])
    shortest = networkx.single_source_shortest_path_length(circulant, 0)
    for distance, way in enumerate(ways):
        assert sum(way) % n == distance and set(way) <= set(coins) and len(way) == shortest[distance]
        assert not way or ways[(distance - way[0]) % n] == way[1:]  # the rest of a way is the way of the rest
    assert max(map(len, ways)) <= most_hops(n, steps, rings)


@given(n=st.integers(3, 300), count=degrees, rings=modes)
def test_the_bound_is_of_the_order_that_the_paper_gives(n, count, rings):
    """Diameter O(d n^(1/d)), with d the number of steps: within a third, where coprime steps leave the geometric ones."""
    steps = select_steps(n, count, rings)
    reach = n if rings == "directed" else n / 2
    assert most_hops(n, steps, rings) <= 4 / 3 * len(steps) * reach ** (1 / len(steps)) + 1


def test_coins_that_do_not_reach_all_are_refused():
    with pytest.raises(TopologyError, match=r"steps \[2, 4\] do not lead everywhere in a ring of 8"):
        coin_change(8, (4, 2))


# ---- the topology finder


def degree_of(net, switch):
    """Returns the interfaces of a switch towards others, each a transmitter and a receiver."""
    sends, receives = [hop.node for hop in net.hops[switch]], net.sources[switch]
    return max(sum(not net.is_host(node) for node in nodes) for nodes in (sends, receives))


@given(fabrics())
@settings(max_examples=60, deadline=None)
def test_no_server_exceeds_the_degree(made):
    fabric, _ = made
    net = as_topology(fabric)
    for server in range(1, fabric.servers + 1):
        assert fabric.interfaces(server) <= fabric.degree
        assert degree_of(net, f"s{server}") == fabric.interfaces(server)
        assert [hop.node for hop in net.hops[f"s{server}"] if hop.node[0] == "h"] == [f"h{server}"]


@given(fabrics())
@settings(max_examples=40, deadline=None)
def test_links_are_the_circuits_and_pairs_of_circuits_are_duplex(made):
    fabric, _ = made
    again = fabric.circuits - fabric.circuits
    for a, b, simplex in fabric.links():
        again.update([(a, b)] if simplex else [(a, b), (b, a)])
    assert again == fabric.circuits
    one_way = {(a, b) for a, b, simplex in fabric.links() if simplex}
    assert not any((b, a) in one_way for a, b in one_way)
    if all(group.rings == "undirected" for group in fabric.groups):
        assert not one_way


@given(fabrics())
@settings(max_examples=40, deadline=None)
def test_routes_are_loop_free_use_circuits_and_keep_the_bound(made):
    fabric, _ = made
    for group in fabric.groups:
        n = len(group.members)
        for source in group.members[:3]:
            for destination in group.members:
                path = group.route(source, destination)
                assert path[0] == source and path[-1] == destination and len(set(path)) == len(path)
                assert all(fabric.circuits[pair] for pair in zip(path, path[1:], strict=False))
                assert len(path) - 1 <= most_hops(n, group.steps, group.rings)


@given(fabrics())
@settings(max_examples=20, deadline=None)
def test_forwarding_tables_follow_the_coin_change_routes(made):
    fabric, _ = made
    net = as_topology(fabric)
    way = fabric.tables(net)
    everyone = next(group for group in fabric.groups if len(group.members) == fabric.servers)
    for source, destination in itertools.permutations(range(1, fabric.servers + 1), 2):
        path = route(net, way, f"h{source}", f"h{destination}")
        assert path[1:-1] == [f"s{server}" for server in everyone.route(source, destination)]
        for here, there in zip(path[1:], path[2:], strict=False):
            hop = way[here][f"h{destination}"]
            assert hop.node == there and hop in net.hops[here]


@given(fabrics())
@settings(max_examples=40, deadline=None)
def test_matchings_are_matchings_of_demand(made):
    fabric, traffic = made
    for matching in fabric.matchings:
        ends = [server for pair in matching for server in pair]
        assert len(set(ends)) == len(ends)
        for a, b in matching:
            assert traffic.model_parallel.get((a, b), 0) + traffic.model_parallel.get((b, a), 0) > 0


def test_the_heaviest_pairs_get_links():
    matrix = [[0] * 6 for _ in range(6)]
    matrix[0][3], matrix[3][0], matrix[1][4], matrix[2][5], matrix[0][1] = 60, 40, 80, 70, 110
    fabric = find_topology(6, 4, Traffic.from_matrix(matrix, 400), "directed")
    # 400 of 760 bytes: ceil(4 * 0.53) = 3 interfaces, but six servers have two rings; the third goes to the matchings.
    assert fabric.groups[0].steps == (1, 5)
    # 100 + 80 + 70 are more than 110 + 70; then these demands are halved, and 110 + 35 is the most.
    assert fabric.matchings == (((1, 4), (2, 5), (3, 6)), ((1, 2), (3, 6)))
    assert max(map(fabric.interfaces, range(1, 7))) == 4


def test_the_degree_is_split_by_bytes():
    def split(degree, reduce, parallel, rings="directed"):
        return split_degree(degree, Traffic((((1, 2), reduce),), {(1, 2): parallel} if parallel else {}), rings)

    assert split(4, 100, 0) == (4, 0)
    assert split(4, 100, 100) == (2, 2)
    assert split(4, 1, 10**15) == (1, 3)  # one ring stays: all are connected
    assert split(6, 50, 100) == (2, 4)
    assert split(6, 51, 99) == (3, 3)
    assert split(6, 51, 99, "undirected") == (4, 2)
    assert split(3, 100, 0, "undirected") == (2, 1)
    assert split(3, 1, 10**15, "undirected") == (2, 1)


def test_groups_share_the_degree_by_bytes():
    everyone, half = tuple(range(1, 9)), (1, 3, 5, 7)
    fabric = find_topology(8, 4, Traffic(((everyone, 3), (half, 1))), "directed")
    assert fabric.groups == (Group(everyone, (1, 3, 5), "directed"), Group(half, (1,), "directed"))
    assert [fabric.interfaces(server) for server in (1, 2)] == [4, 3]
    with pytest.raises(TopologyError, match="no way from h1 to .*an all-reduce group of all servers would connect them"):
        as_topology(find_topology(8, 2, Traffic(((everyone[:4], 1), (everyone[4:], 1)))))


def test_a_small_share_of_all_servers_still_connects_them():
    everyone, most = tuple(range(1, 9)), (1, 2, 3, 4, 5, 6)
    fabric = find_topology(8, 2, Traffic(((everyone, 1), (most, 10**9))), "directed")
    assert fabric.groups == (Group(most, (1,), "directed"), Group(everyone, (1,), "directed"))
    assert find_topology(8, 2, Traffic(((everyone, 1), (most, 10**9)))).groups == (Group(everyone, (1,), "undirected"),)


def test_two_servers_and_one_interface():
    for rings in MODES:
        assert list(find_topology(2, 1, all_reduce(2), rings).links()) == [(1, 2, False)]


@pytest.mark.parametrize("degree", [3, 4])
@pytest.mark.parametrize("rings", MODES)
def test_every_server_is_a_host_with_its_own_element(degree, rings):
    net = topologies.load("topoopt", servers=8, degree=degree, rings=rings, rate=1e9)
    assert len(net.hosts) == len(net.switches) == 8
    assert all(net.switch_of(f"h{i}") == f"s{i}" and net.hops[f"s{i}"][0].port == 1 for i in range(1, 9))
    assert {degree_of(net, f"s{i}") for i in range(1, 9)} == {degree - (rings == "undirected") * (degree % 2)}
    assert {link.rate for link in net.links if link.a[0] == "s"} == {1e9} and {link.rate for link in net.links[:8]} == {0}


# ---- traffic


def test_traffic_from_a_file(tmp_path):
    path = tmp_path / "traffic.toml"
    path.write_text("all_reduce = 100\nmatrix = [[0, 5, 0], [0, 0, 0], [7, 0, 0]]\n")
    assert read_traffic(path, 3) == Traffic((((1, 2, 3), 100),), {(1, 2): 5, (3, 1): 7})
    path.write_text("all_reduce = [{servers = [1, 3], bytes = 9}]\n")
    assert read_traffic(path, 3) == Traffic((((1, 3), 9),), {})
    path.write_text("all_reduce = 1\n")
    net = topologies.load("topoopt", servers=3, degree=4, rings="directed", traffic=str(path))
    assert [(link.a, link.b) for link in net.links[3:]] == [("s1", "s2"), ("s1", "s3"), ("s2", "s3")]  # two rings: +1 and +2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reduce = 1", "unknown key 'reduce'; expected all_reduce, matrix"),
        ("matrix = [[0, 1], [1, 0]]", "matrix: expected 3 rows of 3 numbers"),
        ("matrix = [[0, 1], [1, 0], [0, 0]]", "expected 3 rows of 3 numbers"),
        ("matrix = [[0, 1, 0], [1, 5, 0], [0, 0, 0]]", "from 2 to 2: expected two different servers of 1..3"),
        ("matrix = [[0, -1, 0], [1, 0, 0], [0, 0, 0]]", "from 1 to 2: -1 is not a whole number of bytes"),
        ("matrix = [[0, 1.5, 0], [1, 0, 0], [0, 0, 0]]", "from 1 to 2: 1.5 is not a whole number of bytes"),
        ("all_reduce = [{servers = [1, 4], bytes = 9}]", r"group \(1, 4\): expected two or more different servers of 1..3"),
        ("all_reduce = [{servers = [1, 2]}]", "expected bytes or a list of"),
        ("all_reduce = 1.5", "expected bytes or a list of"),
        ("all_reduce = ", "traffic.toml: Invalid value"),
    ],
)
def test_bad_traffic_is_refused(text, message, tmp_path):
    path = tmp_path / "traffic.toml"
    path.write_text(text)
    with pytest.raises(TopologyError, match=message):
        read_traffic(path, 3)


@given(st.integers(2, 40))
def test_phi_is_the_number_of_rings(n):
    """Euler's totient by its product formula."""
    primes = [p for p in range(2, n + 1) if n % p == 0 and all(p % q for q in range(2, math.isqrt(p) + 1))]
    phi = n
    for p in primes:
        phi = phi // p * (p - 1)
    assert len(totients(n)) == phi


def test_a_fabric_is_plain_data():
    assert find_topology(4, 2, all_reduce(4)) == Fabric(4, 2, (Group((1, 2, 3, 4), (1,), "undirected"),), ())
