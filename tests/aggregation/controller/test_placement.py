"""Placement: a job's tree by network, links in use and closed switches; and the reason if there is none."""

from __future__ import annotations

from collections import Counter

import pytest
from fake_target import FakeTarget
from hypothesis import given, settings
from hypothesis import strategies as st
from stripes import tensors_per_link

from ina import topology as topologies
from ina.aggregation.controller.admission import AdmissionError, Controller
from ina.aggregation.controller.tree_placement import place
from ina.p4.runtime.entity_error import EntityError

pytestmark = pytest.mark.fast
FAT_TREE = topologies.load("fat-tree", k=4)  # s1 to s8 edge, s9 to s16 aggregation, s17 to s20 core; two hosts at each edge
ROOM = {switch.name: 4 for switch in FAT_TREE.switches}


def free(**changes):
    return ROOM | changes


@pytest.mark.parametrize(("hosts", "switches"), [
    (("h1", "h2"), ("s1",)),
    (("h1", "h2", "h3"), ("s9", "s1", "s2")),  # the first aggregation switch of the first pod
    (("h13", "h15", "h16"), ("s15", "s7", "s8")),
    (("h1", "h5"), ("s17", "s1", "s3", "s9", "s11")),
])
def test_the_root_is_as_low_as_the_workers_allow(hosts, switches):
    (tree,) = place(FAT_TREE, hosts, ROOM)
    assert tree.switches == switches and set(tree.workers) == set(hosts)


def test_the_root_can_be_chosen():
    """A parameter server is at one switch: the tree's root is there, as deep as it may be."""
    (tree,) = place(FAT_TREE, ("h1", "h3"), ROOM, roots=["s2"])
    assert tree.root == "s2" and set(tree.children("s2")) == {"h3", "s9"} and tree.parent["h1"] == "s1"
    with pytest.raises(AdmissionError, match="s2, which h3 is connected to: no slots left"):
        place(FAT_TREE, ("h1", "h3"), free(s2=0), roots=["s2"])


def test_closed_switches_are_gone_round():
    hosts = ("h1", "h3")
    assert place(FAT_TREE, hosts, free(s9=0))[0].root == "s10"
    assert place(FAT_TREE, hosts, ROOM, failed={"s9": "it does not answer"})[0].root == "s10"


def test_links_of_running_jobs_are_left_to_them():
    hosts, running = ("h1", "h3"), []
    for _ in range(4):
        running += place(FAT_TREE, hosts, ROOM, running=running)
    assert Counter(tree.root for tree in running) == {"s9": 2, "s10": 2}
    (uplink,) = [i for i, link in enumerate(FAT_TREE.links) if (link.a, link.b) == ("s1", "s9")]
    assert place(FAT_TREE, hosts, ROOM, load={uplink: 0.5})[0].root == "s10"


def test_slow_links_weigh_more(tmp_path):
    """Two spines; the links to the first have half the rate."""
    path = tmp_path / "net.toml"
    ends = [("h1", "s1", 1e9), ("h2", "s2", 1e9), ("s1-s2", "s3", 5e8), ("s1-s2", "s4", 1e9)]
    path.write_text("".join(f'[[link]]\nends = ["{a}", "{b}"]\nrate = {rate}\n' for a, b, rate in ends))
    topology = topologies.load(str(path))
    room = {s.name: 9 for s in topology.switches}
    running = []
    for _ in range(3):
        running += place(topology, ("h1", "h2"), room, running=running)
    assert [tree.root for tree in running] == ["s4", "s3", "s4"]


@pytest.mark.parametrize(("closed", "code", "text"), [
    ({"s2": 0}, "full", "^s2, which h3 is connected to: no slots left$"),
    ({"s9": 0, "s10": 0}, "full", "^no tree reaches h1, h3: s9: no slots left; s10: no slots left$"),
    ({"s9": 0, "s10": None}, "full", "s9: no slots left; s10: not ours"),
    ({"s9": None, "s10": None}, "unreachable", "s9: not ours; s10: not ours"),
    ({"s1": None}, "unreachable", "s1, which h1 is connected to: not ours"),
])
def test_refusals_name_the_switch(closed, code, text):
    room = {name: n for name, n in free(**closed).items() if n is not None}
    with pytest.raises(AdmissionError, match=text) as error:
        place(FAT_TREE, ("h1", "h3"), room)
    assert error.value.code == code


@pytest.mark.parametrize(("hosts", "stripes", "text"), [
    (("h1", "h99"), 1, "there is no host 'h99'"), (("h1", "h1"), 1, "h1 is named twice"), ((), 1, "at least one worker"),
    (("h1",), 0, "0 stripes"),
])
def test_requests_that_make_no_sense(hosts, stripes, text):
    with pytest.raises(AdmissionError, match=text) as error:
        place(FAT_TREE, hosts, ROOM, stripes=stripes)
    assert error.value.code == "invalid"


def test_stripes_share_the_links_of_a_direct_connection():
    """Eight servers of degree 4: one tree puts the whole tensor on 7 of 16 links; no trees could put less than 7/16 on each."""
    topology = topologies.load("topoopt", servers=8, degree=4, rate=1e9)
    hosts, room = [host.name for host in topology.hosts], {s.name: 9 for s in topology.switches}
    between = [i for i, link in enumerate(topology.links) if link.a[0] == link.b[0] == "s"]

    def busiest(stripes):
        carried = tensors_per_link(place(topology, hosts, room, stripes=stripes))
        return max(carried.get(i, 0) for i in between)

    assert busiest(1) == 1.0
    assert busiest(4) == 0.5


def test_stripes_need_slots_for_each():
    with pytest.raises(AdmissionError, match="s1, which h1 is connected to: no slots left"):
        place(FAT_TREE, ("h1", "h3"), free(s1=1), stripes=2)


@settings(max_examples=50, deadline=None)
@given(st.integers(5, 16), st.sampled_from([2, 4]), st.data())
def test_direct_connections_get_shallow_trees_within_the_degree(n, degree, data):
    topology = topologies.load("topoopt", servers=n, degree=degree)
    hosts = data.draw(st.lists(st.sampled_from([h.name for h in topology.hosts]), min_size=2, unique=True))
    (tree,) = place(topology, hosts, {s.name: 1 for s in topology.switches})
    for switch in tree.switches:
        inner = [child for child in tree.children(switch) if child[0] == "s"]
        assert len(inner) + (switch != tree.root) <= degree
    edges = {topology.switch_of(host) for host in hosts}
    deepest = min(max(topology.distances(s.name)[edge] for edge in edges) for s in topology.switches)
    assert tree.depth == deepest + 1


def test_the_controller_places_by_what_it_knows():
    targets = {switch.name: FakeTarget() for switch in FAT_TREE.switches}
    controller = Controller(targets, 128, topology=FAT_TREE)
    hosts = ("h1", "h3")
    for i in range(2):
        (tree,) = controller.place(f"job{i}", hosts, 64)
        controller.admit(f"job{i}", 2, 64, tree=tree, hosts=hosts)
    assert [job.tree.root for job in controller.jobs.values()] == ["s9", "s10"]
    with pytest.raises(AdmissionError, match="^job 'late' asks for 64 slots: s1, which h1 is connected to: no slots left"):
        controller.place("late", hosts, 64)
    controller.release("job0")
    (tree,) = controller.place("job2", hosts, 64)
    assert tree.root == "s9"
    targets["s9"].failing = TimeoutError("silence")
    with pytest.raises(AdmissionError, match="switch s9: silence"):
        controller.admit("job2", 2, 64, tree=tree)
    assert controller.place("job2", hosts, 64)[0].root == "s10"
    with pytest.raises(AdmissionError, match="without a topology"):
        Controller(FakeTarget(), 128).place("job", hosts, 64)


def test_a_switch_that_refuses_is_not_avoided():
    """It answers, so it may accept the next job."""
    targets = {switch.name: FakeTarget() for switch in FAT_TREE.switches}
    controller = Controller(targets, 128, topology=FAT_TREE)
    targets["s9"].failing = EntityError("table full", "RESOURCE_EXHAUSTED")
    (tree,) = controller.place("job", ("h1", "h3"), 64)
    with pytest.raises(AdmissionError, match="table full"):
        controller.admit("job", 2, 64, tree=tree)
    assert controller.place("job", ("h1", "h3"), 64)[0].root == "s9"
