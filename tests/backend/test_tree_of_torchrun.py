"""Groups whose ranks say that they are on two machines, with two ranks each, and name no switch: the second machine gets a switch
process of its own below that of rank 0."""

from __future__ import annotations

import pytest
from capabilities import need

need("cc", "torch")

from ranks import EXACT_SUMS, run, succeed  # noqa: E402

from ina.backend import machine_switches  # noqa: E402

pytestmark = pytest.mark.build
APART = """
from ina.backend import rendezvous
here, machine = rendezvous.Place.here(), str(int(os.environ["RANK"]) // 2)
rendezvous.Place.here = lambda: rendezvous.Place(f"server{machine}", machine, here.network)
def total(group=None):
    values = torch.arange(5000) * (dist.get_rank() + 1)
    dist.all_reduce(values, group=group)
    assert torch.equal(values, values[1] * torch.arange(5000))
    torch.manual_seed(dist.get_rank())
    floats = torch.randn(3000)
    dist.all_reduce(floats, group=group)
    return int(values[1]), floats.sum().item().hex(), floats[7].item().hex()
"""
SUMS = APART + """
rank, n = start()
everybody = total()
groups = {ranks: dist.new_group(list(ranks)) for ranks in ((2, 3), (0, 3), (1, 2, 3), (0, 1, 2))}
say(sums={str(ranks): total(group) for ranks, group in groups.items() if rank in ranks}, everybody=everybody, again=total(),
    at=dist.group.WORLD.switch, under={str(ranks): groups[ranks].switch for ranks in groups if rank in ranks},
    switches=sorted(rendezvous._pids), trees=ina.backend.stats()["switch"]["trees"], used=ina.backend.stats()["switch"]["sums"])
meet()
dist.destroy_process_group()
say(left=[*rendezvous._pids, *rendezvous._below, *rendezvous._roots, *rendezvous._machines])
"""
KILLED = APART + """
rank, n = start()
total()
meet()
pids = {name: pid for name, pid in rendezvous._pids.items()}
if rank == KILLER: os.kill(pids[dist.group.WORLD.switch] if VICTIM == "switch" else os.getpid(), signal.SIGKILL)
try:
    while True: total()
except RuntimeError as error: say(error=str(error))
"""
NEAR = {"INA_LISTEN": "lo", "GLOO_SOCKET_IFNAME": "lo", "INA_TOKEN_FILE": "/nowhere/ina.token"}


def facts(ran):
    return [(report["sums"], report["everybody"], report["again"]) for report in succeed(ran)]


@pytest.mark.gate
def test_a_machine_with_two_ranks_gets_a_switch_process_below_that_of_rank_0(tmp_path):
    ran = run(tmp_path, 4, SUMS, INA_QUIET="false", **NEAR)
    sums, reports = facts(ran), [each.report for each in ran]
    root, child = reports[0]["at"], reports[2]["at"]
    assert root.startswith("tcp:127.0.0.1:") and not child.startswith("tcp:")
    assert [each["at"] for each in reports] == [root, root, child, child]
    assert reports[1]["under"] == {"(1, 2, 3)": root, "(0, 1, 2)": root}, "later groups use the same processes"
    local = reports[2]["under"].pop("(2, 3)")
    assert local not in (root, child) and not local.startswith("tcp:"), "packets in shared memory may be larger"
    assert reports[2]["under"] == {"(1, 2, 3)": child, "(0, 1, 2)": root}, "one rank of a machine goes to the root"
    assert [len(each["switches"]) for each in reports] == [1, 1, 3, 3]
    assert all(each["used"] > 0 and not each["left"] for each in reports)
    (own,), (upper,) = reports[2]["trees"], reports[0]["trees"]
    assert own.endswith(f"/{upper}") and reports[2]["trees"][own] == 2 and reports[0]["trees"][upper] == 1
    line, = [line for line in ran[0].errors.splitlines() if "4 ranks sum" in line]
    assert f"a switch of their own at {root}" in line and "256 int32 a packet" in line
    assert "1 switch process below it sums the 2 ranks of its machine first" in line
    alone = run(tmp_path, 4, SUMS, INA_TREE="false", **NEAR)
    assert facts(alone) == sums, "to the bit"
    assert {each.report["at"] for each in alone} == {alone[0].report["at"]} and not alone[3].report["trees"]


@pytest.mark.later
@pytest.mark.parametrize(("victim", "killer", "words"), [("rank", 3, "worker 3 of job"), ("switch", 2, "switch process")])
def test_all_hear_why_a_job_of_the_tree_is_over(tmp_path, victim, killer, words):
    ran = run(tmp_path, 4, f"VICTIM, KILLER = {victim!r}, {killer}" + KILLED, **NEAR)
    for rank, each in enumerate(ran):
        if (victim, rank) != ("rank", killer):
            assert words in each.report["error"], (rank, each.report)


@pytest.mark.later
@pytest.mark.parametrize(("dead", "same"), [(1, True), (2, False)])
def test_those_who_are_left_use_the_switch_processes_that_are_left(tmp_path, dead, same):
    """Rank 2 has started that of its machine; rank 3 without it is alone there."""
    ran = run(tmp_path, 4, APART + EXACT_SUMS + f"""
rank, n = start()
sums()
before = dist.group.WORLD.switch
meet()
if rank == {dead}: os.kill(os.getpid(), signal.SIGKILL)
try:
    while True: dist.all_reduce(torch.ones(10_000))
except RuntimeError as error: say(error=str(error))
ina.backend.shrink_group()
sums()
say(before=before, after=dist.group.WORLD.switch, roots=[*rendezvous._roots.values()])
dist.destroy_process_group()
say(left=[*rendezvous._pids, *rendezvous._below, *rendezvous._roots, *rendezvous._machines])
""", **NEAR)
    left = succeed([each for rank, each in enumerate(ran) if rank != dead])
    root = left[0]["before"]
    assert [each["after"] for each in left] == ([each["before"] for each in left] if same else 3 * [root])
    assert [each["roots"] for each in left] == [[], *[[root] if same else []] * 2]
    assert not any(each["left"] for each in left)


@pytest.mark.later
def test_all_go_on_at_the_root_where_no_other_switch_process_can_be_started(tmp_path):
    ran = run(tmp_path, 4, """
    from ina.backend import machine_switches
    def started(*args, **options): raise OSError("no processes are left")
    machine_switches.SwitchProcess = started
    """.replace("\n    ", "\n") + SUMS, INA_QUIET="false", **NEAR)
    reports = succeed(ran)
    assert {each["at"] for each in reports} == {reports[0]["at"]}
    assert ran[0].errors.count("no switch process could be started on rank 2's machine (server1): no processes are left") == 1


ROOT = machine_switches.Root("tcp:10.0.0.1:5", "", "switchml", ["a", 1])


def reports(*kernels, **changes):
    return [{"trees": True, "below_roots": {}, "switch": "", "place": ["host", kernel, 1], "runs": [True, 0, 1]} | changes
            for kernel in kernels]


@pytest.mark.parametrize(("ranks", "expected"), [
    (reports(*"aabb"), {2: (2, 3)}), (reports(*"bab"), {0: (0, 2)}), (reports(*"aab"), {}),
    (reports(*"bbcc"), {0: (0, 1), 2: (2, 3)}), (reports("b") + reports("b", runs=[True, 7, 1]), {}),
    (reports(*"bb", trees=False) + reports(*"cc"), {}), (reports(*"bb", switch="here"), {}),
    (reports("b") + reports("b", below_roots={ROOT.name: "one"}), {1: (0, 1)}),
    (reports("b") + reports("b", below_roots={ROOT.name: ""}), {}),
])
def test_the_first_of_a_machine_leads_there_unless_another_has_its_switch_process(ranks, expected):
    assert machine_switches.leaders(ranks, ROOT) == expected
