"""The public modules at work: a switch packet by packet, networks in virtual time, experiments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from capabilities import need
from public_api import ROOT

import ina
from ina.aggregation.entries import program_named
from ina.p4 import (
    CloneSessionEntry,
    EntityError,
    MulticastGroupEntry,
    ProfileGroup,
    ProfileMember,
    RegisterEntry,
    Replica,
    Switch,
    TableEntry,
)
from ina.virtual import Fabric, Faults, JobError, Star, Wire
from ina.worlds.virtual import explorable, restarts
from ina.worlds.virtual.shared_switch import Shared

pytestmark = pytest.mark.build
need("cc")

LEARN = next(ROOT.glob("examples/**/learn.p4"))
FRAME = bytes.fromhex("000000000002" "000000000001" "0800") + b"hello"
TO_2 = TableEntry("addresses", {"hdr.ethernet.dst": "00:00:00:00:00:02"}, "forward", {"port": 2})
FAST = Wire(rate=100e9, delay=1e-6)


@pytest.fixture
def switch():
    with Switch(ina.p4.compile(LEARN)) as switch:
        yield switch


@pytest.fixture(scope="module")
def switchml():
    return ina.p4.compile(ROOT / "p4/switchml.p4", defines={"VALUES": 32})


def test_a_packet_goes_where_its_entry_says(switch):
    switch.insert(TO_2)
    assert switch.process(510, FRAME) == [(2, FRAME)]
    assert switch.register("changes").tolist()[510] == 1 and switch.register("last").dtype == np.uint64
    assert switch.read(RegisterEntry("last", 510)) == [RegisterEntry("Forward.last", 510, 1)]
    assert [entry.params for entry in switch.read(TableEntry("addresses"))] == [{"port": 2}]


def test_entries_change_and_go(switch):
    switch.insert(TO_2, MulticastGroupEntry(1, (Replica(3), Replica(4))))
    switch.modify(TableEntry("addresses", TO_2.match, "forward", {"port": 7}))
    assert switch.process(1, FRAME) == [(7, FRAME)]
    switch.delete(TO_2)
    assert switch.process(1, FRAME) == [(3, FRAME), (4, FRAME)]


def test_a_write_is_atomic_and_its_error_names_the_entity(switch):
    with pytest.raises(EntityError, match="update 1: .*tabels"):
        switch.insert(TO_2, TableEntry("tabels"))
    assert switch.read(TableEntry("addresses")) == []
    with pytest.raises(EntityError, match="no action 'forwrad'|forwrad"):
        switch.insert(TableEntry("addresses", TO_2.match, "forwrad"))


def test_drops_have_their_reasons(switch):
    assert switch.drops() == {}
    assert switch.process(1, FRAME) == []  # flooded to group 1, which is not there
    assert switch.drops() == {"no_group": 1}


def test_what_cannot_be_sent_is_refused(switch):
    with pytest.raises(ValueError, match="port 511 is not there"):
        switch.process(511, FRAME)
    with pytest.raises(ValueError, match="frame of 10000 bytes"):
        switch.process(1, bytes(10_000))


def test_compiling_names_the_place_of_an_error(tmp_path):
    (tmp_path / "wrong.p4").write_text("header h { bit<8 x; }")
    with pytest.raises(ina.p4.CompileError, match=r"wrong\.p4:1:1"):
        ina.p4.compile(tmp_path / "wrong.p4")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ina.p4.compile(tmp_path / "nowhere.p4")


def test_a_tofino_program_has_the_ports_of_its_pipes():
    program = ina.p4.compile(ROOT / "p4/tofino/switchml.p4", defines={"VALUES": 32})
    with Switch(program) as switch:
        assert switch.register("SwitchIngress.phase.missing.set0").ndim == 2
        with pytest.raises(ValueError, match=r"lives is of pairs: expected \S+lives\.\w+ or \S+lives\.\w+"):
            switch.register("lives")
        with pytest.raises(ValueError, match="port 256 is not there"):
            switch.process(256, FRAME)


@pytest.mark.parametrize("pipes", [1, 4])
def test_a_tofino_switch_has_up_to_four_pipes(pipes):
    with Switch(ina.p4.compile(ROOT / "tests/programs/tna_forward.p4"), pipes=pipes) as switch:
        last = min(pipes * 128, 511) - 1
        switch.process(last, FRAME)
        with pytest.raises(ValueError, match=f"port {last + 1} is not there"):
            switch.process(last + 1, FRAME)


def test_digests_that_were_kept_come_after_the_loss_is_told():
    with Switch(ina.p4.compile(ROOT / "tests/programs/digests.p4")) as switch:
        for number in range(257):
            switch.process(0, bytes(6) + number.to_bytes(6, "big") + b"\0\1" + bytes(10))
        with pytest.raises(OverflowError, match="1 digests were lost.*the 256 kept"):
            switch.digests()
        assert [digest.fields["address"] for digest in switch.digests()] == list(range(1, 257))
        assert switch.digests() == []


@pytest.mark.parametrize(("size", "weight", "limit"), [("32w16", 1 << 31, 16), ("32w16", 17, 16), ("32w0", 65_536, 65_535)])
def test_the_weights_of_a_group_have_a_limit(tmp_path, size, weight, limit):
    text = (ROOT / "tests/programs/selector.p4").read_text().replace("crc16, 32w16", f"crc16, {size}")
    path = tmp_path / "selector.p4"
    path.write_text(text)
    with Switch(ina.p4.compile(path, include_dirs=[ROOT / "tests/programs"])) as switch:
        member = ProfileMember("selector", 1, "send", {"port": 1, "mark": 2})
        with pytest.raises(EntityError, match=f"weights add up to {weight}, at most {limit} are possible") as error:
            switch.insert(member, ProfileGroup("selector", 1, ((1, weight),)))
        assert error.value.code == "RESOURCE_EXHAUSTED"
        switch.insert(member, ProfileGroup("selector", 1, ((1, limit),)), TableEntry("chosen", {"hdr.data.kind": 1}, group=1))


def test_entities_that_were_read_or_written_are_copies():
    with Switch(ina.p4.compile(ROOT / "tests/programs/selector.p4", include_dirs=[ROOT / "tests/programs"])) as switch:
        params, match, replicas = {"port": 3, "mark": 0}, {"hdr.data.kind": 0x800}, [Replica(3)]
        stored = (ProfileMember("Body.selector", 1, "Body.send", params), TableEntry("Body.chosen", match, member=1),
                  MulticastGroupEntry(1, replicas))
        switch.insert(*stored)
        switch.read(ProfileMember("selector", 1))[0].params["port"] = 9
        switch.read(TableEntry("chosen"))[0].match.clear()
        switch.read(TableEntry("chosen", match))[0].match.clear()
        params["port"] = 9
        replicas.append(Replica(4))
        switch.insert(TableEntry("chosen", {"hdr.data.kind": 1}, member=1))  # makes a new image
        assert [port for port, _ in switch.process(1, FRAME + bytes(30))] == [3]
        assert switch.read(ProfileMember("selector", 1))[0].params == {"port": 3, "mark": 0}
        assert switch.read(TableEntry("chosen"))[0].match == {"hdr.data.kind": 0x800}
        assert switch.read(MulticastGroupEntry(1))[0].replicas == (Replica(3),)


@pytest.mark.parametrize("length", [-1, 1 << 16, (1 << 32) + 5, 1 << 32])
def test_a_clones_length_has_16_bits(switch, length):
    with pytest.raises(EntityError, match="clone session 5: packet_length.*0..65535"):
        switch.insert(CloneSessionEntry(5, (Replica(4),), length))


@pytest.mark.parametrize("average", [False, True])
def test_a_star_sums(switchml, average):
    with Star(switchml, hosts=4, up=FAST, down=FAST) as star:
        job = star.admit(workers=4, slots=8)
        arrays = [np.full(1000, rank + 0.5, np.float32) for rank in range(4)]
        outcome = star.all_reduce(job, arrays, average=average)
        star.check()
    assert all(np.allclose(array, 2 if average else 8, rtol=1e-6) for array in arrays)
    assert job.hosts == ("h1", "h2", "h3", "h4") and len(outcome.finished) == 4
    assert outcome.seconds == max(outcome.finished) > 4e-6


def test_each_worker_has_a_start_of_its_own(switchml):
    with Star(switchml, hosts=2, up=FAST, down=FAST) as star:
        job = star.admit(workers=2, slots=8)
        outcome = star.all_reduce(job, [np.ones(32, np.int32) for _ in range(2)], starts=[1e-3, 2e-3])
        assert 1e-3 < outcome.seconds < 1.1e-3 and star.now > 2e-3


def test_a_tree_and_a_ring_sum_alike(switchml):
    topology = ina.topology.load("leaf-spine", leaves=2, hosts=2, rate=100e9, delay=1e-6)
    with Fabric(switchml, topology) as fabric:
        for job in (fabric.admit(["h1", "h2", "h3", "h4"], slots=8), fabric.ring(["h1", "h2", "h3", "h4"], values=32)):
            arrays = [np.arange(4096, dtype=np.int32) + rank for rank in range(4)]
            assert fabric.all_reduce(job, arrays).seconds > 0
            assert all((array == 4 * np.arange(4096) + 6).all() for array in arrays)
        assert fabric.drops() == {} and sum(link.bytes for link in fabric.links()) > 4096 * 4 * 4
        with pytest.raises(ValueError, match="there is no host 'h9'"):
            fabric.admit(["h1", "h9"])


def test_a_worker_that_gives_up_is_an_error(switchml):
    with Star(switchml, hosts=2, up=Wire(faults=Faults(loss=1.0)), down=FAST) as star:
        job = star.admit(workers=2, slots=8, timeout=0.01)
        with pytest.raises(JobError):
            star.all_reduce(job, [np.ones(32, np.int32) for _ in range(2)])
        with pytest.raises(ValueError, match="expected one for each of 2 workers"):
            star.all_reduce(job, [np.ones(32, np.int32)])


def test_a_pool_beyond_the_programs_slots_is_refused(switchml):
    """The slots beyond would be given to jobs that never get an answer."""
    refusal = pytest.raises(ValueError, match="pool of 1024 slots.*compiled for 512.*SLOTS=1024")
    with refusal:
        Star(switchml, hosts=4, pool=1024)
    with refusal:
        Fabric(switchml, ina.topology.load("star", hosts=4), pool=1024)
    with refusal:
        Shared(switchml.so_path, program_named("switchml"), hosts=4, wire=FAST, pool=1024)
    with refusal:
        explorable.job(switchml.so_path, ina.topology.load("star", hosts=2), slots=1024)
    with refusal:
        restarts.jobs(switchml.so_path, ina.topology.load("star", hosts=2), ["next"], slots=1024)


def test_jobs_fill_a_pool_of_all_the_programs_slots():
    program = ina.p4.compile(ROOT / "p4/switchml.p4", defines={"VALUES": 32, "SLOTS": 16})
    with Star(program, hosts=4, up=FAST, down=FAST) as star:
        for job in [star.admit(workers=2, slots=8) for _ in range(2)]:
            arrays = [np.full(1000, 3, np.int32) for _ in range(2)]
            star.all_reduce(job, arrays)
            assert all((array == 6).all() for array in arrays)


@pytest.mark.parametrize("protocol", ["atp", "ps"])
def test_a_protocol_with_a_parameter_server_is_refused_by_name(protocol):
    """The face has no parameter server to put above the job's tree; experiments have."""
    program = ina.p4.compile(ROOT / f"p4/{protocol}.p4", defines={"VALUES": 32})
    with pytest.raises(ValueError, match=f"{protocol}.*parameter server"):
        Fabric(program, ina.topology.load("star", hosts=2), protocol=protocol)


def test_an_experiment_runs_from_python(tmp_path):
    need("matplotlib")
    experiment = ina.experiment.load("switchml-loss", workers=2, loss=[0.0, 0.01], rto="fixed", seed=1, elements=20_000)
    assert [point["loss"] for point in experiment.points] == [0.0, 0.01]
    results = ina.experiment.run(experiment, tmp_path, quiet=True)
    assert [result.keys["loss"] for result in results] == [0.0, 0.01]
    assert all(result.figures and result.path.parent.parent == tmp_path for result in results)
    assert ina.experiment.results(results[0].path.parent) == results


@pytest.mark.parametrize(("name", "keys", "message"), [
    ("switchml-los", {}, "did you mean 'switchml-loss'"),
    ("switchml-loss", {"worker": 3}, "did you mean 'workers'"),
    ("switchml-loss", {"workers": None}, "workers = None: expected"),
    ("switchml-loss", {"workers": "many"}, "workers = 'many': expected a whole number"),
    ("nowhere.toml", {}, "nowhere.toml: No such file"),
    ("no\0where.toml", {}, "no name of a file"),
    ("switchml-loss", {"workers": [np.int64(2)]}, "expected a list of texts, numbers and booleans"),
])
def test_a_wrong_experiment_is_named(name, keys, message):
    with pytest.raises(ina.experiment.ConfigError, match=message):
        ina.experiment.load(name, **keys)


def test_names_are_those_of_the_files():
    assert {"loss-sweep", "scale/fat-tree"} <= set(ina.experiment.names())
    with pytest.raises(ina.experiment.ResultsError, match="nowhere"):
        ina.experiment.results("nowhere")


def test_swept_texts_may_be_paths_and_any_characters():
    points = ina.experiment.load("switchml-loss", loss=0.0, topology=[Path("there.toml"), "\U0001f600.toml"]).points
    assert sorted({point["topology"] for point in points}) == ["there.toml", "\U0001f600.toml"]
