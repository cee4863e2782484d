"""Links that fail in virtual time: frames are lost and counted, the controller notices, jobs move, and sums stay right."""

from __future__ import annotations

import numpy as np
import pytest

from ina import topology as topologies
from ina.aggregation import protocols
from ina.base import paths
from ina.net.ports import PS
from ina.p4.compiler.build import compile_program
from ina.topology import Topology, link_events
from ina.worlds.virtual import collectives
from ina.worlds.virtual.fabric import Fabric
from ina.worlds.virtual.link_failures import LinkFailures
from ina.worlds.virtual.moving import Finished, MovingJob
from ina.worlds.virtual.parameter_servers import Servers

pytestmark = pytest.mark.build
VALUES, SLOTS, ELEMENTS = 256, 64, 200_000
FAT_TREE = topologies.load("fat-tree", k=4, rate=100e9, delay=1e-6, queue=0)
HOSTS = ("h1", "h3", "h5", "h9")


@pytest.fixture(scope="module")
def programs():
    return {protocol: compile_program(paths.p4_dir() / f"{protocol}.p4", defines={"VALUES": str(VALUES), "SLOTS": "512"})
            for protocol in ("switchml", "atp")}


class Run:
    """One all-reduce over four hosts, with its sums checked. ``before``: trees of its job at the start."""

    def __init__(self, programs, lines, topology: Topology = FAT_TREE, hosts=HOSTS, protocol="switchml", server="h7",
                 seed=1, **options):
        rng = np.random.default_rng(seed)
        arrays = [rng.integers(-(2**28), 2**28, ELEMENTS).astype(np.int32) for _ in hosts]
        right = np.add.reduce(arrays)
        with Fabric(programs[protocol], topology, protocol=protocol, seed=seed) as fabric:
            servers = Servers(fabric) if protocol == "atp" else None
            if servers:
                servers.add(server)
            waits = {"rto_min": 100e-6, "rto_max": 1e-3, "timeout": 0.1}
            admitted = fabric.admit(hosts, SLOTS, VALUES, name="job", **waits)
            if servers:
                servers.serve(admitted, VALUES)
            finished = Finished(fabric)
            job = MovingJob(fabric, admitted, SLOTS, VALUES, finished, servers, **waits)
            failures = LinkFailures(fabric, link_events.events(topology, lines), jobs=[job], **options)
            job.submit(arrays, protocols.SUM)
            fabric.run()
            fabric.check()
            self.completions = job.completions()
            for completion in self.completions.values():
                assert completion.event.error() is None
            assert len(self.completions) == len(hosts) and all((array == right).all() for array in arrays), "a wrong sum"
            self.seconds = max(completion.time for completion in self.completions.values()) / PS
            self.before, self.after, self.incidents = admitted.jobs[0], job.job.jobs[0], failures.incidents()
            self.drops, self.digest, self.known = fabric.drops(), fabric.stats()["digest"], dict(fabric.controller.down_links)
            self.links = fabric.links()


def link(topology: Topology, name: str) -> int:
    return link_events.link_part(topology, name).link


def used(topology: Topology, job) -> str:
    """Returns the name of a link between two switches of the job's tree, the one below the root."""
    (number,) = [number for node, number in zip(job.tree.parent, job.tree.links, strict=True)
                 if job.tree.parent[node] == job.tree.root][:1]
    return topology.link_names()[number]


@pytest.mark.parametrize("protocol", ["switchml", "atp"])
@pytest.mark.parametrize("microseconds", [0, 7, 40, 75])
def test_a_job_moves_away_from_a_link_that_is_cut(programs, protocol, microseconds):
    whole = Run(programs, [], protocol=protocol)
    name = used(FAT_TREE, whole.before)
    run = Run(programs, [f"at {microseconds}us fail {name}"], protocol=protocol)
    assert link(FAT_TREE, name) in whole.before.tree.links and link(FAT_TREE, name) not in run.after.tree.links
    assert run.after.incarnation != run.before.incarnation
    (incident,) = run.incidents
    assert incident.noticed == pytest.approx((microseconds // 100 + 3) * 100e-6), "three probes, each at a multiple of 100 us"
    assert incident.moved == {"job": run.after.tree.root} and incident.lost == run.drops["link down"] > 0
    assert incident.noticed - incident.began < incident.progress["job"] < incident.noticed - incident.began + 100e-6
    assert run.seconds < incident.noticed + 2 * whole.seconds
    assert run.known == {name: "3 probes in a row were not answered"}


def test_the_same_events_give_the_same_packets(programs):
    lines = ["at 7us flap s1-s9 every 20us for 200us", "at 30us slow s3-s11 10G for 100us"]
    assert Run(programs, lines).digest == Run(programs, lines).digest != Run(programs, []).digest


def test_a_short_cut_is_repaired_by_the_workers_alone(programs):
    name = used(FAT_TREE, Run(programs, []).before)
    run = Run(programs, [f"at 20us fail {name} for 150us"])
    (incident,) = run.incidents
    assert incident.noticed is None and incident.moved == {} and run.after is run.before
    assert (incident.began, incident.ended) == (20e-6, 170e-6) and incident.lost == run.drops["link down"] > 0 and not run.known


def test_one_direction_that_is_cut_loses_frames_of_that_direction_only(programs):
    name = used(FAT_TREE, Run(programs, []).before)
    a, b = name.split("-")
    run = Run(programs, [f"at 20us fail {a}>{b} for 150us"])
    down = {traffic.name for traffic in run.links if traffic.down}
    assert down == {f"{a}>{b}"} and run.incidents[0].link == f"{a}>{b}"


def test_a_flapping_link_is_noticed_when_probes_in_a_row_meet_it_down(programs):
    """It is down at multiples of 100 us, and up between them."""
    name = used(FAT_TREE, Run(programs, []).before)
    flaps = [f"at {begin}us fail {name} for 20us" for begin in (90, 190)]
    lines = ["at 0us slow h1 10G", *flaps]  # so that the run lasts
    assert [incident.noticed for incident in Run(programs, lines, misses=2).incidents] == [None, None, 200e-6]
    assert [incident.noticed for incident in Run(programs, lines, misses=3).incidents] == [None, None, None]


def test_a_job_without_another_tree_waits_for_the_link(programs):
    run = Run(programs, ["at 20us fail h1 for 2ms"])
    (incident,) = run.incidents
    assert incident.stayed == ["job"] and run.after is run.before and not run.known
    assert 2e-3 < incident.progress["job"] < 3.1e-3, "rto_max after it is back at most"


def test_a_job_that_had_no_other_tree_moves_when_there_is_one(programs):
    leaves = topologies.load("leaf-spine", leaves=2, spines=2, hosts=2, rate=100e9, delay=1e-6, queue=0)
    hosts = ("h1", "h2", "h3", "h4")
    name = used(leaves, Run(programs, [], leaves, hosts).before)
    (other,) = {"s1-s3", "s1-s4"} - {name}
    run = Run(programs, [f"at 10us fail {other} for 1ms", f"at 20us fail {name}"], leaves, hosts)
    assert run.after.tree.root == other.split("-")[1] and run.known.keys() == {name}
    assert run.incidents[1].moved == {"job": run.after.tree.root} and run.incidents[1].stayed == []
    assert 1e-3 < run.incidents[1].progress["job"] < 1.2e-3, "the next probe of the other link"


def test_a_slow_link_takes_its_time_and_is_told(programs):
    star = topologies.load("star", hosts=4, rate=100e9, delay=1e-6, queue=0)
    hosts = ("h1", "h2", "h3", "h4")
    whole = Run(programs, [], star, hosts)
    slow = Run(programs, ["at 0us slow h2 10G"], star, hosts)
    (incident,) = slow.incidents
    assert (incident.link, incident.rate, incident.ended, incident.lost) == ("h2", 10e9, None, 0)
    frame = protocols.frame_bytes("switchml", VALUES) + 24
    least = ELEMENTS // VALUES * frame * 8 / 10e9
    assert least < slow.seconds < 1.2 * least and slow.seconds > 4 * whole.seconds
    again = Run(programs, ["at 0us slow h2 10G for 20us"], star, hosts)
    assert again.incidents[0].ended == 20e-6 and again.seconds < whole.seconds + 40e-6


def test_after_a_link_became_slow_each_worker_has_results_of_what_it_sent_since(programs):
    """Frames that were under way fill the slow link first; results at the other workers are no progress of the job."""
    star = topologies.load("star", hosts=4, rate=100e9, delay=1e-6, queue=0)
    run = Run(programs, ["at 20us slow s1>h2 1G"], star, ("h1", "h2", "h3", "h4"))
    frame, flying = 8 * (protocols.frame_bytes("switchml", VALUES) + 24) / 1e9, 12
    assert (SLOTS + 1 - flying) * frame < run.incidents[0].progress["job"] < (SLOTS + 2) * frame + 10e-6


def incidents_of(run):
    return [(one.link, one.rate, one.began, one.ended) for one in run.incidents]


def test_down_and_slow_are_incidents_of_their_own(programs):
    run = Run(programs, ["at 20us fail h1 for 2ms", "at 500us slow h1 10G for 100us"])
    assert incidents_of(run) == [("h1", 0.0, 20e-6, 2.02e-3), ("h1", 10e9, 500e-6, 600e-6)]
    assert [one.lost for one in run.incidents] == [run.drops["link down"], 0]


def test_a_link_is_down_while_a_direction_of_it_is(programs):
    run = Run(programs, ["at 20us fail h1>s1", "at 30us fail s1>h1", "at 1ms heal h1>s1", "at 2ms heal s1>h1"])
    assert incidents_of(run) == [("h1", 0.0, 20e-6, 2e-3)] and run.incidents[0].lost == run.drops["link down"] > 0


def test_a_cut_of_a_link_that_is_known_to_be_down_is_noticed_at_once(programs):
    run = Run(programs, ["at 20us fail h1 for 345us", "at 370us fail h1 for 1ms"])
    assert [one.noticed for one in run.incidents] == [300e-6, 370e-6]
    assert [one.stayed for one in run.incidents] == [["job"], ["job"]], "each says who waited for the link"
    assert 1e-3 < run.incidents[1].progress["job"] < run.incidents[0].progress["job"] < 2.5e-3


def test_frames_between_hosts_are_routed_around_what_is_down(programs):
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-1000, 1000, ELEMENTS).astype(np.int32) for _ in HOSTS]
    right = np.add.reduce(arrays)
    with Fabric(programs["switchml"], FAT_TREE) as fabric:
        job = fabric.collective(HOSTS, collectives.ring([range(4)]), rto=100e-6)
        events = link_events.events(FAT_TREE, ["at 10us fail s1-s9", "at 10us fail s2-s10"])
        failures = LinkFailures(fabric, events)
        fabric.all_reduce(job, arrays).raise_failed()
        assert all((array == right).all() for array in arrays)
        assert all(incident.noticed == 300e-6 for incident in failures.incidents())
        fabric.check()
        assert fabric.drops()["link down"] > 0


def test_a_frame_is_lost_if_its_wire_is_down_while_it_flies(programs):
    """A frame of a rank leaves at once and flies for 10 ms: the wire is down for a moment meanwhile."""
    star = topologies.load("star", hosts=2, rate=100e9, delay=10e-3, queue=0)
    for line, lost in (("at 5ms fail h1>s1 for 1us", 1), ("at 5ms fail s1>h1 for 1us", 0), ("at 12ms fail h1>s1 for 1us", 0)):
        with Fabric(programs["switchml"], star) as fabric:
            fabric.collective(("h1", "h2"), collectives.parameter_server(2, 1, 1), values=VALUES, rto=1.0)
            job = fabric.collective(("h1", "h2"), collectives.ring([range(2)]), values=VALUES, rto=1.0)
            LinkFailures(fabric, link_events.events(star, [line]))
            for array, worker in ((np.ones(VALUES, np.int32), 0), (np.ones(VALUES, np.int32), 1)):
                fabric.submit_one(job, worker, array)
            fabric.run(round(15e-3 * PS))
            assert bool(fabric.stats()["down"]) == bool(lost), line
