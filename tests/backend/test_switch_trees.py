"""Groups whose ranks send to switch processes of their own machines, which are a tree."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from capabilities import need
from waiting import LONG

need("cc", "torch")

import torch.distributed as dist  # noqa: E402
from listening_switch import TOKEN, listening  # noqa: E402
from ranks import run, succeed  # noqa: E402
from tree_processes import shown  # noqa: E402

from ina.backend import rendezvous, switch_trees  # noqa: E402
from ina.backend.settings import Settings  # noqa: E402
from ina.base import paths, tokens  # noqa: E402

pytestmark = pytest.mark.build
# Ranks 0 and 1 are on one machine, 2 and 3 on another.
APART = """
from ina.backend import rendezvous
machine = int(os.environ["RANK"]) // 2
here = rendezvous.Place.here()
rendezvous.Place.here = lambda: rendezvous.Place(f"server{machine}", str(machine), here.network)
os.environ["INA_SWITCH"] = os.environ["AT"].split()[machine]
"""
SUMS = """
def total(group=None):
    values = torch.arange(5000) * (dist.get_rank() + 1)
    dist.all_reduce(values, group=group)
    assert torch.equal(values, values[1] * torch.arange(5000))
    torch.manual_seed(dist.get_rank())
    floats = torch.randn(3000)
    dist.all_reduce(floats, group=group)
    return int(values[1]), floats.sum().item().hex(), floats[7].item().hex()
from ina.backend import rendezvous
rank = int(os.environ["RANK"])  # `run` awaits the end of switch processes that `start` has told of
dist.init_process_group("ina", init_method=os.environ["INIT"], rank=rank, world_size=4, timeout=timedelta(seconds=120))
groups = {ranks: dist.new_group(list(ranks)) for ranks in ((0, 1), (2, 3), (0, 3), (1, 2, 3))}
say(sums={str(ranks): total(group) for ranks, group in groups.items() if rank in ranks}, everybody=total(),
    used=ina.backend.stats()["switch"]["sums"], reasons=ina.backend.stats()["reasons"], at=sorted(rendezvous._pids))
meet()
dist.destroy_process_group()
"""


@pytest.fixture
def tree(tmp_path_factory):
    """Names of a root and of a switch process at a path for each of two machines."""
    folder = tmp_path_factory.mktemp("tree")
    with listening() as root, listening("--parent", shown(root.name), at=f"{folder}/one") as one, \
            listening("--parent", shown(root.name), at=f"{folder}/two") as two:
        yield root.name, one.name, two.name


def results(ran):
    return [(report["sums"], report["everybody"]) for report in succeed(ran)]


@pytest.mark.gate
def test_sums_of_two_machines_are_those_of_one_switch_to_the_bit(tree, tmp_path):
    root, *machines = tree
    ran = run(tmp_path, 4, APART + SUMS, AT=" ".join(machines), INA_TOKEN=TOKEN, INA_QUIET="false",
              GLOO_SOCKET_IFNAME="lo")  # they are on one machine
    trees = results(ran)
    assert [each.report["at"] for each in ran] == [[machines[rank // 2]] for rank in range(4)]
    assert all(each.report["used"] > 0 for each in ran)
    assert "one of 2 of a tree of switch processes" in ran[0].errors
    assert trees == results(run(tmp_path, 4, SUMS, INA_SWITCH=shown(root), INA_TOKEN=TOKEN))


BELOW = {"tree": ["b", "a"], "below": True}
PLACES = [{"place": [f"server{rank}", "kernel", 1]} for rank in range(3)]


@pytest.mark.parametrize(("trees", "expected"), [
    ([None, None, None], ()), ([["a"], ["a"], None], ()), ([["a"], ["b"], ["b"]], ()),
    ([["b", "a"], ["b", "a"], ["b", "a"]], ()), ([["b", "a"], ["c", "a"], ["a"]], ("b/a", "c/a", "a")),
])
def test_paths_are_known_where_ranks_are_at_several_switch_processes_of_a_tree(trees, expected):
    reports = [place | ({} if tree is None else {"tree": tree, "below": len(tree) > 1})
               for place, tree in zip(PLACES, trees, strict=True)]
    assert switch_trees.paths(reports) == expected


@pytest.mark.parametrize(("reports", "words"), [
    ([{}, {"tree": ["b", "a"], "below": True}, {}], r"rank 0 \(server0\) has no switch process"),
    ([BELOW, {"tree": ["c"], "below": False}, {}], "different trees"),
    ([BELOW, {"tree": ["c", "a"], "below": True}, {}], r"rank 2 \(server2\) names no switch process"),
    ([BELOW, {"tree": ["c"], "below": True, "tree_failure": "INA_SWITCH=x has lost"}, {}], "has lost"),
])
def test_ranks_of_no_tree_are_told_why(reports, words):
    with pytest.raises(RuntimeError, match=words):
        switch_trees.paths([place | report for place, report in zip(PLACES, reports, strict=True)])


def test_the_same_name_on_two_servers_is_of_two_processes(monkeypatch):
    """As with INA_SWITCH=127.0.0.1:5588 on each: what rank 0 says of its own holds for no other."""
    name, store = "127.0.0.1:5588", dist.HashStore()
    own = {"tree": ["c", "a"], "below": True}
    rank0 = {**PLACES[0], **BELOW, "address": "", "protocol": "", "switch": name, "runs": [False, 0, 0]}
    store.set("rank/0", json.dumps(rank0))
    store.set("switch", json.dumps({"switch": name, "pid": 99, "started": 1.0, "protocol": "switchml", "nonce": "1", "token": "t",
                                    "access": tokens.pass_for("token of server 0", "t")}))
    asked = []
    monkeypatch.setattr(switch_trees, "report", lambda switch, access: asked.append(access) or own)
    monkeypatch.setattr(rendezvous, "_about", lambda name, access="": {"pid": 7, "protocol": "switchml"})
    settings = Settings(program=paths.p4_dir() / "switchml.p4", protocol="", switch=name)
    for _ in range(2):  # groups, the second while the first is there
        agreed = rendezvous.agree(store, 1, 2, timedelta(seconds=LONG), settings)
        assert (agreed.switch, agreed.pid, agreed.access, agreed.paths) == (name, 7, "", ("b/a", "c/a"))
    assert asked == ["", ""] and rendezvous._pids[name] == 7
    for _ in range(2):
        rendezvous.release(name)
    assert name not in rendezvous._pids and name not in rendezvous._passes
