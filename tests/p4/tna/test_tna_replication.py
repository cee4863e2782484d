"""TNA's replication engine: trees, exclusion, pruning, groups that choose a member, backups."""

from __future__ import annotations

import pytest
from tna_probe import GROUP_A, HASH1, HASH2, PORTS, RID, XID1, XID2, drops, frame, ports_of, probe, step, switch

from ina.p4.runtime import (
    EntityError,
    MirrorSession,
    MulticastEcmp,
    MulticastGroupEntry,
    MulticastLag,
    MulticastNode,
    MulticastPort,
    MulticastPrune,
    MulticastTree,
    Replica,
    ReplicationConfig,
    Switch,
    delete,
    insert,
    modify,
)

pytestmark = pytest.mark.build
__all__ = ["probe", "switch"]  # fixtures


def tree(switch: Switch, *nodes: tuple[MulticastNode, int | None], group: int = 1) -> None:
    switch.write(insert(*(n for n, _ in nodes), MulticastTree(group, tuple((n.node_id, x) for n, x in nodes))))


def test_level_1_exclusion_leaves_a_branch_out(switch):
    tree(switch, (MulticastNode(1, 100, (1, 2)), 5), (MulticastNode(2, 200, (3, 128)), None))
    assert ports_of(step(switch, frame((GROUP_A, 1)))) == [1, 2, 3, 128]
    assert ports_of(step(switch, frame((GROUP_A, 1), (XID1, 5)))) == [3, 128]
    # exclusion id 0 is one like any other, for branches that have one
    switch.write(modify(MulticastTree(1, ((1, 0), (2, None)))))
    assert ports_of(step(switch, frame((GROUP_A, 1)))) == [3, 128]


def test_level_2_exclusion_prunes_ports_of_nodes_with_the_rid(switch):
    switch.write(modify(MulticastPrune(287, (1, 3))))
    switch.write(modify(ReplicationConfig(global_rid=0xFFFF)))
    tree(switch, (MulticastNode(1, 100, (1, 2)), None), (MulticastNode(2, 200, (1, 3)), None))
    assert ports_of(step(switch, frame((GROUP_A, 1), (XID2, 287)))) == [1, 1, 2, 3]
    assert ports_of(step(switch, frame((GROUP_A, 1), (XID2, 287), (RID, 100)))) == [1, 2, 3]
    assert ports_of(step(switch, frame((GROUP_A, 1), (XID2, 287), (RID, 0xFFFF)))) == [2]
    assert ports_of(step(switch, frame((GROUP_A, 1), (XID2, 288), (RID, 100)))) == [1, 1, 2, 3]
    switch.write(delete(MulticastPrune(287)))
    assert ports_of(step(switch, frame((GROUP_A, 1), (XID2, 287), (RID, 100)))) == [1, 1, 2, 3]


def test_an_ecmp_group_chooses_by_the_slot_of_its_members(switch):
    nodes = [MulticastNode(n, 100 + n, (port,)) for n, port in ((1, 1), (2, 2), (3, 3))]
    switch.write(insert(*nodes, MulticastEcmp(9, (1, 2, 3)), MulticastTree(1, (), ((9, None),))))

    def chosen(h: int) -> int:
        (sent,) = step(switch, frame((GROUP_A, 1), (HASH1, h)))
        return sent.port

    assert [chosen(h) for h in (0, 1, 2, 32, 3, 4, 5)] == [1, 2, 3, 1, 3 % 3 + 1, 4 % 3 + 1, 5 % 3 + 1]
    switch.write(modify(MulticastEcmp(9, (1, 3))))  # slot 1 is empty: the (h % 2)-th of the others
    assert [chosen(h) for h in (0, 1, 2, 3, 33)] == [1, 3, 3, 3, 3]
    switch.write(insert(MulticastNode(4, 104, (128,))))
    switch.write(modify(MulticastEcmp(9, (1, 3, 4))))  # takes the empty slot
    assert chosen(1) == 128
    switch.write(modify(MulticastNode(4, 104, (129,))))
    assert chosen(1) == 129
    switch.write(delete(MulticastEcmp(9)))
    assert step(switch, frame((GROUP_A, 1))) == []
    assert switch.read([MulticastTree(1)]) == [MulticastTree(1)]


def test_a_lag_chooses_one_port_among_members_here_and_elsewhere(switch):
    switch.write(modify(MulticastLag(200, (128, 2, 1), remote_lsb=1, remote_msb=2)))
    tree(switch, (MulticastNode(1, 7, (), (200,)), None))

    def chosen(h: int) -> list[int]:
        return ports_of(step(switch, frame((GROUP_A, 1), (HASH2, h))))

    assert [chosen(h) for h in range(7)] == [[], [1], [2], [128], [], [], []]
    switch.write(modify(MulticastPort(2, up=False)))
    assert [chosen(h) for h in range(4)] == [[], [1], [1], [128]]
    assert chosen(8) == [1] and chosen(2) == [1]  # 8 % 6 is the port that is down; 8 % 2 is the first of the others
    switch.write(modify(MulticastPort(1, up=False), MulticastPort(128, up=False)))
    assert chosen(1) == [1]  # no port is up: the one that the hash chose


def test_the_backup_of_a_port_that_is_down(switch):
    tree(switch, (MulticastNode(1, 7, (1, 2)), None))
    switch.write(modify(MulticastPort(1, backup=5, up=False)))
    assert ports_of(step(switch, frame((GROUP_A, 1)))) == [1, 2]
    switch.write(modify(ReplicationConfig(port_protection=True)))
    assert ports_of(step(switch, frame((GROUP_A, 1)))) == [2, 5]


def test_a_node_that_goes_leaves_its_groups(switch):
    tree(switch, (MulticastNode(1, 7, (1, 2)), None), (MulticastNode(2, 8, (3,)), None))
    switch.write(delete(MulticastNode(1)))
    assert ports_of(step(switch, frame((GROUP_A, 1)))) == [3]
    switch.write(delete(MulticastTree(1)))
    assert step(switch, frame((GROUP_A, 1))) == []
    assert drops(switch, 0) == {"no_group": 1}


@pytest.mark.parametrize(("entity", "message"), [
    (MulticastNode(1, 1 << 16), "multicast node 1: rid: 65536 does not fit 16 bits"),
    (MulticastNode(1, 0, (1, 1)), "a port is given twice"),
    (MulticastNode(1, 0, (256,)), "port 256 is none of this switch's 2 pipes"),
    (MulticastTree(1, ((5, None),)), "multicast group 1: multicast node 5 is not there"),
    (MulticastEcmp(1, (5,)), "multicast node 5 is not there"),
    (MulticastLag(256), "LAG: 256 does not fit 8 bits"),
    (MulticastPrune(288), r"expected 0\.\.287"),
    (MirrorSession(0), r"mirror session 0: expected 1\.\.1023"),
    (MirrorSession(1, direction="SIDEWAYS"), "direction 'SIDEWAYS': expected INGRESS, EGRESS, BOTH"),
    (MirrorSession(1, queue=32), "mirror session 1: queue: 32 does not fit 5 bits"),
    (MulticastGroupEntry(1, (Replica(400),)), "port 400 is none of this switch's 2 pipes"),
])
def test_bad_entities_are_refused_whole(switch, entity, message):
    with pytest.raises(EntityError, match=message):
        switch.write(insert(MulticastNode(77, 7, (1,)), entity))
    assert switch.read([MulticastNode(77)]) == []


def test_a_tree_of_many_branches_and_more_copies_than_fit_at_once(switch):
    nodes = tuple(MulticastNode(n, n, PORTS) for n in range(1, 700))
    tree(switch, *((n, None) for n in nodes))
    sent = step(switch, frame((GROUP_A, 1), length=32))
    assert len(sent) == 699 * len(PORTS)
    assert sorted((s.port, s.rid) for s in sent) == sorted((p, n.rid) for n in nodes for p in PORTS)
    assert [s.first for s in sent].count(1) == 1
