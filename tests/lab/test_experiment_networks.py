"""Topologies and algorithms of all-reduce experiments in virtual time, and sweeps of several tables."""

import pytest
from capabilities import need

from ina.base.settings import ConfigError
from ina.lab import library, plan
from ina.lab.kinds import allreduce, workload
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.kinds.workload import Workload
from ina.lab.virtual import virtual_network
from ina.worlds.virtual.fabric import Fabric

SMALL = {"workers": 4, "elements": 6000, "values": 32, "pool": 64}


@pytest.mark.build
@pytest.mark.parametrize("algorithm", ["in-network", "ring", "halving-doubling", "tree", "parameter-server"])
@pytest.mark.parametrize("topology", ["star", "leaf-spine hosts=2", "fat-tree k=4", "topoopt servers=8 degree=4"])
def test_every_algorithm_runs_in_every_topology(topology, algorithm):
    need("cc")
    (run,) = allreduce.reduce(AllReduce(topology=topology, algorithm=algorithm, dtype="float32", **SMALL))
    assert 0 < run.link_use <= 1
    assert run.busiest_bytes > 0.4 * 4 * SMALL["elements"]
    assert run.stats["drops"] == {} and run.stats["workers"]["retransmissions"] == 0
    assert run.ring_model_seconds is None or topology == "star"


@pytest.mark.build
def test_stripes_are_trees_rings_and_servers():
    need("cc")
    seconds = {}
    for algorithm in ("in-network", "ring", "parameter-server"):
        for stripes in (1, 4):
            config = AllReduce(topology="topoopt servers=8 degree=4", algorithm=algorithm, stripes=stripes, workers=8,
                               elements=256 * 400, slots=64, dtype="int32")
            seconds[algorithm, stripes] = allreduce.reduce(config)[0].seconds
    for algorithm in ("in-network", "ring", "parameter-server"):
        assert seconds[algorithm, 4] < 0.7 * seconds[algorithm, 1]


@pytest.mark.build
def test_two_jobs_share_a_fat_tree_and_are_both_counted():
    need("cc")
    runs = allreduce.reduce(AllReduce(topology="fat-tree k=4", jobs=2, placement="spread", **SMALL))
    assert [run.job for run in runs] == ["job 0", "job 1"]
    assert runs[0].busiest_link == runs[1].busiest_link


@pytest.mark.fast
def test_workers_are_packed_or_spread():
    config = AllReduce(topology="fat-tree k=4", workers=4, jobs=2)
    assert virtual_network.place(config).hosts(config) == [["h1", "h2", "h3", "h4"], ["h5", "h6", "h7", "h8"]]
    config = AllReduce(topology="fat-tree k=4", workers=4, jobs=2, placement="spread")
    assert virtual_network.place(config).hosts(config) == [["h1", "h3", "h5", "h7"], ["h9", "h11", "h13", "h15"]]


@pytest.mark.fast
def test_links_are_as_the_experiment_says_unless_the_topology_does():
    config = AllReduce(topology="leaf-spine uplink=4e9", rate=1e9, delay=2e-6, queue=1000)
    links = virtual_network.place(config).topology.links
    assert {link.rate for link in links} == {1e9, 4e9} and {link.delay for link in links} == {2e-6}
    assert {link.queue for link in links} == {1000}


@pytest.mark.fast
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"topology": "fat-three"}, "no topology 'fat-three'"),
        ({"topology": "fat-tree n=4"}, "has no parameter 'n'; it has: k, rate"),
        ({"topology": "fat-tree k=four"}, "k is 'four', expected int"),
        ({"topology": "fat-tree k=3"}, "k is 3, expected an even number"),
        ({"topology": "fat-tree k=2", "workers": 3}, "has 2 hosts, expected 3"),
        ({"topology": "fat-tree", "algorithm": "ring", "stripes": 3, "workers": 4}, "at most 2, the rings of fat-tree"),
    ],
)
def test_networks_that_do_not_fit_are_refused(keys, message):
    config = AllReduce(**keys)
    with pytest.raises(ConfigError, match=message):
        place = virtual_network.place(config)
        (hosts,) = place.hosts(config)
        virtual_network.schedule(config, place, hosts)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"algorithm": "rings"}, "algorithm = 'rings': expected 'in-network' or 'ring'"),
        ({"algorithm": "tree", "stripes": 2}, "stripes = 2: expected 1 with tree"),
        ({"algorithm": "halving-doubling", "workers": 6}, "workers = 6: expected a power of two"),
        ({"algorithm": "parameter-server", "workers": 2, "stripes": 3}, "no more servers than workers"),
        ({"transport": "dctcp"}, "ecn = 0: expected more than 0"),
        ({"pool": 64, "slots": 64, "stripes": 2}, "pool = 64: expected room for 2"),
    ],
)
def test_keys_that_do_not_fit_each_other_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        AllReduce(**keys)


@pytest.mark.fast
def test_several_sweeps_follow_each_other(tmp_path):
    path = tmp_path / "trial.toml"
    path.write_text(
        'kind = "allreduce"\n[[sweep]]\nalgorithm = ["ring"]\nstripes = [1, 2]\n'
        '[[sweep]]\nalgorithm = ["in-network"]\nstripes = [1, 4]\n'
    )
    trials = plan.load(path)
    assert [str(point) for point in trials.points] == [
        "algorithm=ring stripes=1", "algorithm=ring stripes=2",
        "algorithm=in-network stripes=1", "algorithm=in-network stripes=4",
    ]
    assert trials.axes == {"algorithm": ["ring", "in-network"], "stripes": [1, 2, 4]}
    copy = tmp_path / "shown.toml"
    copy.write_text(plan.show(AllReduce, trials))
    assert plan.load(copy) == trials
    one = plan.load(path, {"stripes": "1"})
    assert [str(point) for point in one.points] == ["algorithm=ring", "algorithm=in-network"]
    same = plan.load(path, {"algorithm": "ring", "stripes": "1"})
    assert len(same.points) == 1 and same.sweeps == [], "points that have become one are run once"


@pytest.mark.build
def test_baselines_have_as_many_workers_as_the_network_has_hosts():
    need("cc")
    config = AllReduce(topology="topoopt servers=48 degree=4", algorithm="ring", stripes=4, workers=48, elements=50_000)
    (run,) = allreduce.reduce(config)
    assert run.stats["workers"]["retransmissions"] == 0
    with pytest.raises(ConfigError, match="workers = 48: expected 1 to 32"):
        AllReduce(topology="topoopt servers=48 degree=4", workers=48, protocol="atp")
    with pytest.raises(ConfigError, match="workers = 1025: expected 0 to 1,024"):
        AllReduce(topology="fat-tree k=32", workers=1025)


@pytest.mark.build
@pytest.mark.parametrize("protocol", ["atp", "ps"])
@pytest.mark.parametrize(
    "keys",
    [
        {"stripes": 2},
        {"stripes": 2, "topology": "leaf-spine leaves=2 spines=2 hosts=4", "placement": "spread"},
        {"jobs": 3, "pool": 16, "slots": 16},
        {"jobs": 2, "topology": "fat-tree k=4", "dtype": "float32", "loss": 0.01},
        {"topology": "topoopt servers=8 degree=4", "stripes": 3},
    ],
    ids=lambda keys: " ".join(keys),
)
def test_jobs_with_parameter_servers_reduce_and_train_wherever_others_do(protocol, keys):
    """Jobs are striped, and share too few aggregators for all, in every kind of network: sums are checked in the run."""
    need("cc")
    common = {"protocol": protocol, "workers": 3, **keys}
    reductions = allreduce.reduce(AllReduce(elements=9000, **common))
    assert len(reductions) == common.get("jobs", 1)
    trainings = workload.train(Workload(layers="fashion-mnist", steps=1, compute=0.01, **common))
    assert len(trainings) == len(reductions) and all(len(t.step_seconds) == 1 for t in trainings)


@pytest.mark.build
def test_jobs_of_a_fabric_share_several_parameter_servers():
    """Four jobs over all edge switches of a fat-tree, with a quarter of the aggregators that they want, and four servers."""
    options = {"topology": "fat-tree k=4", "protocol": "atp", "jobs": 4, "workers": 3, "placement": "spread", "values": 32,
               "elements": 6000, "pool": 16, "slots": 16, "rto_min": 200e-6}
    runs = {servers: allreduce.reduce(AllReduce(**options, servers=servers)) for servers in (1, 4)}
    assert all(len(results) == 4 for results in runs.values())
    assert max(run.seconds for run in runs[4]) < max(run.seconds for run in runs[1]), "one server's link is not in the way"
    with pytest.raises(ConfigError, match="servers = 9: topology = 'fat-tree k=4' has 4 switches with a host left"):
        allreduce.reduce(AllReduce(**options, servers=9))


@pytest.mark.build
def test_what_jobs_have_in_common_is_written_and_counted_once(monkeypatch):
    """Common entries and figures are most of the work for a thousand hosts at 320 switches: forwarding to every host, though
    no host sends to another, and figures of every link."""
    need("cc")
    calls, forwarded = [], []
    links = Fabric.links
    monkeypatch.setattr(Fabric, "links", lambda fabric: calls.append(fabric) or links(fabric))
    monkeypatch.setattr("ina.worlds.virtual.fabric.forwarding", lambda ports: forwarded.append(ports) or [])
    keys = {**SMALL, "workers": 3, "pool": 128}
    runs = allreduce.reduce(AllReduce(topology="fat-tree k=4", protocol="atp", jobs=3, servers=2, placement="spread", **keys))
    assert len(runs) == 3 and len({(run.busiest_link, run.busiest_bytes) for run in runs}) == 1
    assert len(calls) == 1 and not forwarded


@pytest.mark.fast
def test_experiments_of_scale_are_found_by_name():
    assert [library.named(path) for path in library.large()] == ["scale/atp", "scale/fat-tree", "scale/topoopt-training"]
    for path in library.large():
        assert library.find(library.named(path)) == path and plan.load(path).points
