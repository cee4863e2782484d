"""The controller: numbers, slots, trees and entries, over switches that keep entities as P4Runtime would."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from fake_target import FakeTarget
from hypothesis import given, settings
from hypothesis import strategies as st

from ina import topology as topologies
from ina.aggregation import protocols
from ina.aggregation.controller.admission import AdmissionError, Controller
from ina.aggregation.controller.state import StateError
from ina.aggregation.entries import Parent, recognise
from ina.aggregation.entries.atp import ATP
from ina.aggregation.worker import worker_address
from ina.base.paths import p4_dir
from ina.net.ports import Address
from ina.p4.bfrt.info import Info, p4info_of
from ina.p4.bfrt.schema import bfrt_json
from ina.p4.compiler.frontend import load
from ina.p4.compiler.p4info.p4info import build as p4info
from ina.p4.runtime.entities import MulticastGroupEntry, Replica, TableEntry
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.p4info import P4Info
from ina.topology.topology import Node
from ina.topology.tree import Tree, aggregation_tree

pytestmark = pytest.mark.fast
FAT_TREE = topologies.load("fat-tree", k=4)


def test_entries_of_a_job():
    target = FakeTarget()
    controller = Controller(target, slots=512)
    controller.admit("other", 2, 64)
    job = controller.admit("training", 3, 128)
    for index, port in enumerate((7, 5, 9)):
        controller.attach(job, index, port)
    entry = next(e for e in target.table("job") if e.match == {"hdr.switchml.job": 1})
    assert entry.action == "set_job"
    assert entry.params == {"full": 0b111, "last": 2, "base": 128, "mask": 127, "incarnation": job.incarnation, "life": job.life,
                            "group": 2, "strict": 1, "parent": 0}
    worker = next(e for e in target.table("worker") if e.match["standard.ingress_port"] == 5)
    assert worker.match == {"hdr.switchml.job": 1, "hdr.ipv4.src_addr": "10.0.0.2", "hdr.udp.src_port": 4001,
                            "standard.ingress_port": 5}
    assert worker.params == {"worker": 0b10}
    replica = next(e for e in target.table("replica") if e.match["standard.egress_rid"] == 2)
    assert replica.params == {"mac": "00:00:00:00:00:03", "ip": "10.0.0.3", "port": 4001}
    assert MulticastGroupEntry(2, (Replica(7, 0), Replica(5, 1), Replica(9, 2))) in target.groups()
    controller.release("training")
    controller.release("other")
    assert target.entities == {}


def test_slots_are_first_fit_and_come_back():
    controller = Controller(FakeTarget(), slots=256)
    bases = [controller.admit(f"job{i}", 2, 64).slot_base for i in range(4)]
    assert bases == [0, 64, 128, 192]
    with pytest.raises(AdmissionError, match="no range of that size is free in the pool of 256") as error:
        controller.admit("late", 2, 1)
    assert error.value.code == "full"
    controller.release("job1")
    late = controller.admit("late", 2, 32)
    assert (late.slot_base, late.number) == (64, 4)


def test_a_refusal_names_some_jobs_that_hold_the_pool_and_counts_the_others():
    controller = Controller(FakeTarget(), slots=256)
    for i in range(8):
        controller.admit(f"job{i}", 2, 32)
    with pytest.raises(AdmissionError, match=r"held: job0: 32, job1: 32, job2: 32, job3: 32, and 128 by 4 more jobs\)"):
        controller.admit("late", 2, 1)


def test_jobs_need_a_port_for_each_worker():
    controller = Controller(FakeTarget(), slots=256, seats=6)
    controller.admit("first", 3, 1)
    controller.admit("second", 2, 1)
    with pytest.raises(AdmissionError, match="needs ports for 2 workers, but the 2 jobs that run have 5 of the 6") as error:
        controller.admit("late", 2, 1)
    assert error.value.code == "full"
    controller.release("second")
    controller.admit("late", 3, 1)


@pytest.mark.parametrize(("workers", "slots", "code", "text"), [
    (33, 64, "too_many_workers", "33 children at s1, workers or switches; a switch adds up at most 32"),
    (0, 64, "too_many_workers", "a switch job takes 1 to 1024"),
    (2, 48, "invalid", "48 slots; expected a power of two"),
    (2, 16384, "invalid", "from 1 to 8192"),
    (2, 1024, "full", "pool of 512"),
])
def test_refusals(workers, slots, code, text):
    target = FakeTarget()
    with pytest.raises(AdmissionError, match=text) as error:
        Controller(target, slots=512).admit("job", workers, slots)
    assert error.value.code == code
    assert target.entities == {}


def test_duplicates_are_refused():
    controller = Controller(FakeTarget(), slots=512)
    job = controller.admit("job", 2, 64)
    with pytest.raises(AdmissionError, match="already running"):
        controller.admit("job", 2, 64)
    controller.attach(job, 0, 0)
    with pytest.raises(AdmissionError, match="two processes have the same rank"):
        controller.attach(job, 0, 1)
    with pytest.raises(AdmissionError, match="workers 0 to 1; there is no 2"):
        controller.attach(job, 2, 1)
    with pytest.raises(AdmissionError, match="no job 'nobody'"):
        controller.release("nobody")


def test_a_protocol_that_there_is_not():
    with pytest.raises(ValueError, match="protocol: 'pigeon', expected one of switchml"):
        Controller(FakeTarget(), slots=512, protocol="pigeon")


def test_a_program_is_recognised_by_what_it_declares():
    def declared(**pairs):
        listed = [{"key": key, "value": {"int64Value": str(value)} if isinstance(value, int) else {"stringValue": value}}
                  for key, value in pairs.items()]
        return P4Info({"pkgInfo": {"structuredAnnotations": [{"name": "ina_program", "kvPairList": {"kvPairs": listed}}]}})

    program, sizes = recognise(declared(protocol="switchml", values=64, slots=32, wire=2))
    assert (program.name, sizes.values, sizes.slots, program.max_workers) == ("switchml", 64, 32, 1024)
    assert recognise(declared(protocol="switchml", values=64, slots=32, wire=2, workers=4))[0].max_workers == 4
    assert recognise(declared(protocol="pigeon", values=64, slots=32)) is None
    assert recognise(P4Info({})) is None
    for wrong in ({"protocol": "switchml", "values": 64}, {"protocol": "switchml", "values": 0, "slots": 1},
                  {"protocol": 1, "values": 64, "slots": 32}, {"protocol": "switchml", "values": 63, "slots": 32},
                  {"protocol": "switchml", "values": 64, "slots": 1 << 31},
                  {"protocol": "switchml", "values": 64, "slots": 32, "wire": 2, "workers": 0},
                  {"protocol": "switchml", "values": 64, "slots": 32, "colour": 1}):
        with pytest.raises(ValueError, match=r'expected @ina_program\[protocol="NAME", values=VALUES, .*wire=VERSION\]'):
            recognise(declared(**wrong))


@pytest.mark.parametrize(("wire", "message"), [
    ({}, "the program speaks wire version 1, this ina 2; the program is older: compile it"),
    ({"wire": 1}, "the program speaks wire version 1, this ina 2; the program is older: compile it"),
    ({"wire": 3}, "the program speaks wire version 3, this ina 2; this ina is older: upgrade it"),
    ({"wire": 3, "lane": 8}, "the program speaks wire version 3, this ina 2; this ina is older: upgrade it"),
])
def test_a_program_of_another_wire_version_is_refused(wire, message):
    pairs = ", ".join(f"{key}={value}" for key, value in wire.items())
    with pytest.raises(ValueError, match=message):
        recognise(stated_at_a_table(f'@ina_program(protocol="switchml", values=32, slots=8{", " if pairs else ""}{pairs})'))


def stated_at_a_table(*texts):
    """Returns P4Info of a program whose table has these annotations, as text."""
    return P4Info({"tables": [{"preamble": {"id": 1, "name": "job", "annotations": list(texts)}}]})


def test_a_statement_at_a_table_as_another_compiler_writes_it():
    """Literals only: the text of an expression is not evaluated here."""
    program, sizes = recognise(stated_at_a_table('@ina_program( protocol = "switchml", values=0x20,slots = 1_024,wire=2 )'))
    assert (program.name, sizes.values, sizes.slots) == ("switchml", 32, 1024)


@pytest.mark.parametrize(("body", "message"), [
    ('(protocol="switchml", values=32, slots=1<<3)', "expected pairs of a key and a literal"),
    ('(protocol="switchml", values=32, slots=2*4)', "expected pairs of a key and a literal"),
    ('(protocol="switchml", values=8w32, slots=8)', "values=8w32, expected a literal without a width"),
    ('(protocol="switchml", values=32.5, slots=8)', "expected pairs"),
    ('(protocol="switchml", values=32 slots=8)', "expected pairs"),
    ('(more protocol="switchml", values=32, slots=8)', "expected pairs"),
    ('(protocol="switchml", values=32, values=64, slots=8)', "'values' stands twice"),
    ("()", "expected pairs"),
    ("", "expected pairs"),
])
def test_a_statement_at_a_table_that_is_none(body, message):
    with pytest.raises(ValueError, match=message):
        recognise(stated_at_a_table("@ina_program" + body))


def test_two_statements_are_refused():
    text = '@ina_program(protocol="switchml", values=32, slots=8)'
    with pytest.raises(ValueError, match="@ina_program stands 2 times in the program, expected once"):
        recognise(stated_at_a_table(text, text))


@pytest.mark.parametrize("slots", ["1<<3", "2*4", "(8)", "0x8", "4+2*2"])
@pytest.mark.parametrize("folder", ["", "tofino"])
def test_stated_sizes_are_evaluated(folder, slots):
    """In P4Info, and in what BFRuntime's schema keeps of it."""
    defines = {"VALUES": "0x40", "SLOTS": slots}
    message = p4info(load(p4_dir() / folder / "switchml.p4", defines=defines, include_dirs=[p4_dir()]))
    for info in (P4Info(message), p4info_of(Info(bfrt_json(message)))):
        _, sizes = recognise(info)
        assert (sizes.values, sizes.slots) == (64, 8)


@pytest.mark.parametrize("path", [path for folder in ("", "tofino")
                                  for name in protocols.names()
                                  if (path := p4_dir() / folder / f"{name}.p4").is_file()])
def test_every_program_states_its_protocol_and_sizes(path):
    """In P4Info, and in what BFRuntime's schema keeps of it."""
    message = p4info(load(path, defines={"VALUES": "64", "SLOTS": "32"}, include_dirs=[p4_dir()]))
    for info in (P4Info(message), p4info_of(Info(bfrt_json(message)))):
        program, sizes = recognise(info)
        assert (program.name, sizes.values, sizes.slots) == (path.stem, 64, 32)


@pytest.mark.parametrize(("name", "register", "cells"), [
    ("switchml", "SwitchIngress.phase.incarnations", 2), ("tofino/switchml", "SwitchIngress.phase.tsis", 2),
    ("atp", "SwitchIngress.aggregator.owners", 1), ("tofino/atp", "SwitchIngress.aggregator.stamps", 1),
])
def test_more_slots_than_registers_have_are_refused(name, register, cells):
    message = p4info(load(p4_dir() / f"{name}.p4", defines={"VALUES": "64", "SLOTS": "32"}, include_dirs=[p4_dir()]))
    (text,) = (text for table in message["tables"] for text in table["preamble"].get("annotations", ()) if "ina_program" in text)
    for table in message["tables"]:
        if table["preamble"].get("annotations") == [text]:
            table["preamble"]["annotations"] = [text.replace("slots=32", "slots=33")]
    words = f"slots=33 .*register {re.escape(register)} has {32 * cells} cells, {cells} for each slot: expected slots=32 at most"
    with pytest.raises(ValueError, match=words):
        recognise(P4Info(message))


def test_entries_of_a_job_with_a_parameter_server():
    target, server = FakeTarget(), Address("02:00:00:00:ff:fd", "10.0.255.253", 0xBED0)
    controller = Controller(target, slots=64, protocol=ATP(ecn_depth=8, lifetime=0.2))
    with pytest.raises(AdmissionError, match="needs a parameter server at s1, and there is none"):
        controller.admit("early", 2, 64)
    controller.servers["s1"] = Parent(3, server, Address("02:00:00:00:ff:fe", "10.0.255.254", 0xBEF0))
    controller.admit("other", 2, 64)
    job = controller.admit("training", 2, 64)  # aggregators are shared: no job holds any
    assert controller.free_slots() == 64
    for index, port in enumerate((7, 5)):
        controller.attach(job, index, port)
    assert TableEntry("job", {"hdr.atp.job": 1}, "set_job", {
        "full": 0b11, "incarnation": job.incarnation, "life": job.life, "group": 2, "aggregate": 1, "ecn_depth": 8,
        "lifetime": 200_000}) in target.table("job")
    above = {"hdr.atp.job": 1, "hdr.ipv4.src_addr": server.ip, "hdr.udp.src_port": server.port, "standard.ingress_port": 3}
    assert TableEntry("worker", above, "set_parent", {}) in target.table("worker")
    one = next(e for e in target.table("one") if e.match["hdr.atp.bitmap"] == 0b10)
    own = worker_address(1, 1)
    assert one.params == {"port": 5, "mac": own.mac, "ip": own.ip, "udp_port": own.port}
    assert next(e for e in target.table("parent")).params["own_port"] == 0xBEF0
    controller.release("training")
    controller.release("other")
    assert target.entities == {}


def test_a_job_knows_the_addresses_of_its_workers():
    nodes = {"h2": Node("h2", own_ip="192.168.7.9", own_mac="aa:bb:cc:00:00:01")}
    star = topologies.load("star", hosts=3)
    network = replace(star, nodes=tuple(nodes.get(node.name, node) for node in star.nodes))
    controller = Controller(FakeTarget(), slots=64, topology=network)
    controller.admit("other", 2, 8)
    local = controller.admit("local", 3, 8)
    assert local.addresses == tuple(worker_address(1, worker) for worker in range(3))
    at = Address("00:00:00:00:00:03", "10.0.0.3", 4002), Address("aa:bb:cc:00:00:01", "192.168.7.9", 4002)
    (tree,) = controller.place("tree", ["h3", "h2"], 8)
    tree = controller.admit("tree", 2, 8, tree=tree, hosts=["h3", "h2"])
    lone = controller.admit("lone", 2, 8, hosts=["h3", "h2"])  # without a tree, too
    assert tree.addresses == at and lone.addresses == tuple(replace(each, port=4003) for each in at)
    assert controller.attach(tree, 1).address == at[1] and controller.attach(lone, 0, 2).address == lone.addresses[0]
    snapshot = json.loads(json.dumps(controller.snapshot()))
    again = Controller(FakeTarget(), slots=64, topology=network)
    again.restore(snapshot)
    assert again.jobs == controller.jobs
    for job in snapshot["jobs"]:
        del job["addresses"]  # an older version's
    again.restore(snapshot)
    assert again.jobs == controller.jobs
    snapshot["jobs"][0]["addresses"] = [{"mac": "00:00:00:00:00:01", "ip": "10.0.0.1", "port": 4000}]
    with pytest.raises(StateError, match="addresses of job 'other' is"):
        again.restore(snapshot)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.tuples(st.just("admit"), st.integers(1, 8), st.integers(0, 7)),
                          st.tuples(st.just("release"), st.integers(0, 30))), max_size=40))
def test_jobs_never_share_anything(steps):
    target = FakeTarget()
    controller = Controller(target, slots=256)
    incarnations = []
    for number, step in enumerate(steps):
        if step[0] == "admit":
            try:
                job = controller.admit(f"job{number}", step[1], 1 << step[2])
            except AdmissionError as error:
                assert error.code == "full"
                continue
            incarnations.append(job.incarnation)
            for index in range(job.workers):
                controller.attach(job, index, 8 * number + index)
        elif controller.jobs:
            controller.release(sorted(controller.jobs)[step[1] % len(controller.jobs)])
        jobs = list(controller.jobs.values())
        used = [slot for job in jobs for slot in range(job.slot_base, job.slot_base + job.slots)]
        assert len(used) == len(set(used)) <= 256
        assert max(used, default=0) < 256
        assert len({job.number for job in jobs}) == len(jobs)
        assert all(job.slot_base % job.slots == 0 for job in jobs)
        assert len(target.table("job")) == len(target.groups()) == len(jobs)
        assert len(target.table("worker")) == len(target.table("replica")) == sum(job.workers for job in jobs)
    assert len(incarnations) == len(set(incarnations))
    for name in list(controller.jobs):
        controller.release(name)
    assert target.entities == {}


# ---- trees


def leaf_spine_controller(slots=512, **options):
    """Two leaves of two hosts under one spine, s3: (topology, targets, controller)."""
    topology = topologies.load("leaf-spine", leaves=2, spines=1, hosts=2)
    targets = {switch.name: FakeTarget() for switch in topology.switches}
    return topology, targets, Controller(targets, slots, topology=topology, **options)


def test_entries_of_a_tree():
    topology, targets, controller = leaf_spine_controller()
    hosts = ("h4", "h1", "h2")  # worker 0 is alone at s2
    tree = aggregation_tree(topology, hosts)
    job = controller.admit("job", 3, 64, tree=tree, hosts=hosts)
    for worker in range(3):
        controller.attach(job, worker)

    (root,) = targets["s3"].table("job")
    assert root.params == {"full": 0b111, "last": 1, "base": 0, "mask": 63, "incarnation": job.incarnation, "life": job.life,
                           "group": 1, "strict": 1, "parent": 0}
    assert targets["s3"].table("parent") == []
    below = {e.match["hdr.ipv4.src_addr"]: (e.match["standard.ingress_port"], e.match["hdr.udp.src_port"], e.params)
             for e in targets["s3"].table("worker")}
    assert below == {"10.255.0.1": (1, 0xBEE0, {"worker": 0b110}), "10.255.0.2": (2, 0xBEE0, {"worker": 0b001})}
    assert targets["s3"].groups() == [MulticastGroupEntry(1, (Replica(1, 0), Replica(2, 1)))]

    (leaf,) = targets["s1"].table("job")
    assert leaf.params == {**root.params, "full": 0b110, "parent": 1}
    (up,) = targets["s1"].table("parent")
    assert up.action == "to_parent"
    assert up.params == {"port": 3, "mac": "02:ff:00:00:00:03", "ip": "10.255.0.3", "udp_port": 0xBEE0,
                         "own_mac": "02:ff:00:00:00:01", "own_ip": "10.255.0.1", "own_port": 0xBEE0}
    sources = {(e.match["hdr.ipv4.src_addr"], e.match["standard.ingress_port"]): (e.action, e.params)
               for e in targets["s1"].table("worker")}
    assert sources == {("10.255.0.3", 3): ("set_parent", {}), ("10.0.0.1", 1): ("set_worker", {"worker": 0b010}),
                       ("10.0.0.2", 2): ("set_worker", {"worker": 0b100})}
    replicas = {e.match["standard.egress_rid"]: e.params["ip"] for e in targets["s3"].table("replica")}
    assert replicas == {0: "10.255.0.1", 1: "10.255.0.2"}
    assert targets["s2"].groups() == [MulticastGroupEntry(1, (Replica(2, 0),))]
    controller.release("job")
    assert all(target.entities == {} for target in targets.values())


def test_a_worker_that_is_detached_can_be_attached_again():
    topology, targets, controller = leaf_spine_controller()
    job = controller.admit("job", 2, 64, tree=aggregation_tree(topology, ("h1", "h3")))
    controller.attach(job, 1)
    whole = dict(targets["s2"].entities)
    controller.detach(job, 1)
    assert targets["s2"].groups() == [MulticastGroupEntry(1, ())] and job.attached == {}
    with pytest.raises(AdmissionError, match="worker 1 of job 'job' is not attached"):
        controller.detach(job, 1)
    controller.attach(job, 1)
    assert targets["s2"].entities == whole


def test_jobs_start_at_other_slots_at_each_switch():
    topology, _, controller = leaf_spine_controller(slots={"s1": 64, "s2": 256, "s3": 256})
    first = controller.admit("first", 2, 64, tree=aggregation_tree(topology, ("h3", "h4")))
    assert list(first.branches) == ["s2"]
    second = controller.admit("second", 2, 64, tree=aggregation_tree(topology, ("h1", "h3")))
    assert {name: branch.slot_base for name, branch in second.branches.items()} == {"s3": 0, "s1": 0, "s2": 64}
    with pytest.raises(AdmissionError, match="no range of that size is free in the pool of 64 at s1") as error:
        controller.admit("third", 2, 64, tree=aggregation_tree(topology, ("h2", "h4")))
    assert error.value.code == "full"
    assert controller.free_slots() == controller.free_slots("s1") == 0 and controller.free_slots("s2") == 128


def test_all_switches_or_none():
    topology, targets, controller = leaf_spine_controller()
    controller.admit("there", 2, 64, tree=aggregation_tree(topology, ("h1", "h3")))
    before = {name: dict(target.entities) for name, target in targets.items()}
    tree = aggregation_tree(topology, ("h1", "h2", "h3", "h4"))
    targets["s2"].failing = EntityError("table worker: full", "RESOURCE_EXHAUSTED")
    with pytest.raises(AdmissionError, match="switch s2: table worker: full") as error:
        controller.admit("job", 4, 64, tree=tree)
    assert error.value.code == "switch"
    assert {name: target.entities for name, target in targets.items()} == before
    assert "job" not in controller.jobs and controller.unsure == set()
    targets["s2"].failing = None
    assert controller.admit("job", 4, 64, tree=tree).number == 1


def test_a_switch_that_does_not_answer_is_remembered():
    topology, targets, controller = leaf_spine_controller()
    job = controller.admit("job", 2, 64, tree=aggregation_tree(topology, ("h1", "h3")))
    targets["s2"].failing = TimeoutError("no answer within 5 s")
    with pytest.raises(AdmissionError, match="switch s2: no answer within 5 s"):
        controller.attach(job, 1)
    assert job.attached == {} and controller.unsure == {"s2"}
    controller.release("job")
    assert controller.jobs == {} and targets["s1"].entities == targets["s3"].entities == {}


@pytest.mark.parametrize(("change", "code", "text"), [
    ({"tree": None}, "invalid", "job 'job' has no tree over the switches s1, s2, s3"),
    ({"hosts": ("h1", "h4")}, "invalid", "2 workers at h1, h4, but the tree reaches h1, h3"),
    ({"hosts": ("h1", "h1")}, "invalid", "expected one worker at each of them"),
    ({"workers": 3}, "invalid", "3 workers at h1, h3"),
    ({"strict": False}, "invalid", "published clients .* without a tree"),
    ({"tree": Tree("s9", {"h1": "s9", "h3": "s9"}, (0, 1))}, "switch", "goes through s9, which this controller does not drive"),
    ({"tree": Tree("s3", {"s1": "s3", "s2": "s3", "h1": "s1", "h3": "s2"}, (0, 1, 2, 3))}, "invalid",
     "link 0 is not between s1 and s3 in leaf-spine"),
])
def test_trees_that_make_no_sense(change, code, text):
    topology, targets, controller = leaf_spine_controller()
    arguments = {"workers": 2, "slots": 64, "tree": aggregation_tree(topology, ("h1", "h3")), **change}
    with pytest.raises(AdmissionError, match=text) as error:
        controller.admit("job", **arguments)
    assert error.value.code == code
    assert all(target.entities == {} for target in targets.values()) and not controller.jobs


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_trees_hold_and_give_back(data):
    """Any jobs on any hosts of a fat-tree, switches that fail at any write: the entries are those of the running jobs."""
    topology = FAT_TREE
    targets = {switch.name: FakeTarget() for switch in topology.switches}
    controller = Controller(targets, 128, topology=topology)
    hosts = [host.name for host in topology.hosts]
    for step in range(data.draw(st.integers(1, 8), "steps")):
        chosen = tuple(data.draw(st.lists(st.sampled_from(hosts), min_size=1, max_size=5, unique=True), "hosts"))
        failing = data.draw(st.sets(st.sampled_from(sorted(targets)), max_size=4), "failing")
        for name in failing:
            targets[name].failing = EntityError("no", "INTERNAL")
        try:
            tree = aggregation_tree(topology, chosen)
            job = controller.admit(f"job{step}", len(chosen), 1 << data.draw(st.integers(3, 6)), tree=tree, hosts=chosen)
            for worker in range(len(chosen)):
                controller.attach(job, worker)
        except AdmissionError as error:
            assert error.code in ("full", "switch")
        for name in failing:
            targets[name].failing = None
        if controller.jobs and data.draw(st.booleans(), "release"):
            controller.release(data.draw(st.sampled_from(sorted(controller.jobs))))
        for name, target in targets.items():
            here = [job for job in controller.jobs.values() if name in job.branches]
            assert len(target.table("job")) == len(target.groups()) == len(here)
            ranges = [range(j.branches[name].slot_base, j.branches[name].slot_base + j.slots) for j in here]
            assert len({slot for r in ranges for slot in r}) == sum(len(r) for r in ranges) == 128 - controller.free_slots(name)
            for job in here:  # no child's bits are another's, and all together are the workers below
                bits = [e.params["worker"] for e in target.table("worker") if e.match["hdr.switchml.job"] == job.number
                        and e.action == "set_worker"]
                assert sum(bits).bit_count() == sum(b.bit_count() for b in bits) <= len(job.branches[name].workers)
    for name in list(controller.jobs):
        controller.release(name)
    assert all(target.entities == {} for target in targets.values())
