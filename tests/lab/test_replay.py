"""Chakra's execution traces, written by its own writer, replayed in virtual time."""

import gzip
import json
import re
import warnings

import pytest
from capabilities import need
from rich.console import Console

from ina import cli
from ina.base.settings import ConfigError
from ina.lab import run
from ina.lab.kinds.trace import Trace, replay
from ina.lab.results import why
from ina.lab.results.record import load
from ina.lab.virtual import chakra
from ina.lab.virtual.timeline import Timeline
from ina.worlds.virtual import collectives

need("chakra", "cc")
from chakra.schema.protobuf.et_def_pb2 import (  # noqa: E402
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    COMM_COLL_NODE,
    COMM_RECV_NODE,
    COMM_SEND_NODE,
    COMP_NODE,
    MEM_LOAD_NODE,
    METADATA_NODE,
    REDUCE_SCATTER,
    AttributeProto,
    BoolList,
    GlobalMetadata,
    Node,
)
from chakra.src.generator import generator  # noqa: E402
from chakra.src.third_party.utils.protolib import encodeMessage  # noqa: E402

pytestmark = pytest.mark.build
RATE = 10e9
MIB = 1 << 20


def node(number, kind, after=(), us=0, name="", **attributes):
    message = Node(id=number, name=name or f"n{number}", type=kind, data_deps=after, duration_micros=us)
    message.attr.append(AttributeProto(name="is_cpu_op", bool_val=attributes.pop("cpu", False)))
    for key, value in attributes.items():
        message.attr.append(AttributeProto(name=key, **{"string_val" if isinstance(value, str) else "int64_val": value}))
    return message


def write(folder, ranks, pack=lambda data: data):
    for rank, nodes in enumerate(ranks):
        path = folder / f"trace.{rank}.et"
        with path.open("wb") as file:
            encodeMessage(file, GlobalMetadata(version="0.0.4"))
            for each in nodes:
                encodeMessage(file, each)
        path.write_bytes(pack(path.read_bytes()))
    return str(folder / "trace")


def replayed(trace, timeline=None, **keys):
    (result,) = replay(Trace(trace=str(trace), **{"rate": RATE, "values": 256, **keys}), timeline)
    return result


def all_reduce(number, after=(), size=MIB, **attributes):
    return node(number, COMM_COLL_NODE, after, comm_type=ALL_REDUCE, comm_size=size, **attributes)


GENERATED = {
    "one_comm_coll_node_allreduce": "ALL_REDUCE", "one_comm_coll_node_alltoall": "ALL_TO_ALL",
    "one_comm_coll_node_allgather": "ALL_GATHER", "one_comm_coll_node_reducescatter": "REDUCE_SCATTER",
    "one_comm_coll_node_broadcast": "BROADCAST",
}


@pytest.mark.parametrize("name", GENERATED)
def test_collectives_of_chakras_generator_take_what_their_cost_model_says(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    size, n = MIB, 4
    getattr(generator, name)(n, size)
    result = replayed(tmp_path / GENERATED[name])
    bits = 8 * size * 1116 / 1024 / RATE  # of what a rank puts in, with headers
    times = {"ALL_REDUCE": 1, "ALL_TO_ALL": (n - 1) / n, "ALL_GATHER": n - 1, "REDUCE_SCATTER": (n - 1) / n, "BROADCAST": 2}
    assert result.seconds == pytest.approx(times[GENERATED[name]] * bits, rel=0.12)
    assert result.nodes == n and result.workers == n and result.compute_by_rank == [0, 0, 0, 0]


def test_computation_and_barriers_of_chakras_generator(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator.two_comp_nodes_independent(2, 5)
    generator.two_comp_nodes_dependent(2, 5)
    generator.one_metadata_node_all_types(2)
    generator.one_comm_coll_node_barrier(8)
    assert replayed("two_comp_nodes_independent").seconds == 10e-6, "a rank has one GPU"
    assert replayed("two_comp_nodes_dependent", compute=2.0).seconds == 20e-6
    with pytest.raises(ConfigError, match="none of the 2 nodes communicates or takes time"):
        replayed("one_metadata_node_all_types")
    assert replayed("BARRIER").seconds < 50e-6


def training(folder, ranks=4, slow=1):
    """Forward, two backward parts, each with an all-reduce that goes on behind the next one; then the optimiser."""
    def rank(number):
        us = 2000 * (slow if number == 0 else 1)
        return [node(1, COMP_NODE, us=us, name="forward"), node(2, COMP_NODE, [1], us, "backward 2"),
                all_reduce(3, [2], name="bucket 0"), node(4, COMP_NODE, [2], us, "backward 1"),
                all_reduce(5, [4], name="bucket 1"), node(6, COMP_NODE, [3, 5], 100, "step")]

    return write(folder, [rank(number) for number in range(ranks)])


@pytest.mark.parametrize("keys", [{}, {"algorithm": "ring"}, {"protocol": "atp"}, {"protocol": "ps"}, {"stripes": 2, "pool": 256},
                                  {"topology": "fat-tree k=4", "placement": "spread"}, {"loss": 0.01}], ids=str)
def test_a_training_overlaps_with_and_without_the_network_in_every_way(tmp_path, keys):
    timeline = Timeline()
    result = replayed(training(tmp_path), timeline, **keys)
    spans = {name: (begin, end) for name, begin, end in timeline.jobs[0][1][1]}
    first, second = spans["all-reduce bucket 0"], spans["all-reduce bucket 1"]
    assert first[0] == spans["compute backward 1"][0] == 4e-3 and second[0] == 6e-3
    assert first[1] < 6e-3 or keys.get("protocol") == "ps", "hidden behind the backward pass"
    assert spans["compute step"][0] == pytest.approx(max(second[1], spans["compute step"][0]))
    assert result.compute_by_rank == [pytest.approx(6.1e-3)] * 4
    assert result.seconds == pytest.approx(max(end for rank in timeline.jobs[0][1] for _, _, end in rank))
    again = replayed(training(tmp_path), **keys)
    assert again == result, "two runs are equal to the bit"
    bare = replayed(training(tmp_path), payload=False, **keys)
    assert (bare.seconds, bare.stats["workers"], bare.checked) == (result.seconds, result.stats["workers"], False)


def test_all_reduces_of_one_group_keep_the_order_of_the_trace(tmp_path):
    """Rank 1 is ready for the second one first; it must not begin there before the first."""
    def rank(number):
        return [node(1, COMP_NODE, us=1000 if number else 10), all_reduce(2, [1], 4096), node(3, COMP_NODE, us=10, cpu=True),
                all_reduce(4, [3], 8192)]

    timeline = Timeline()
    replayed(write(tmp_path, [rank(0), rank(1)]), timeline)
    for spans in timeline.jobs[0][1]:
        begins = {name: begin for name, begin, _ in spans if "all-reduce" in name}
        assert begins["all-reduce n4"] >= begins["all-reduce n2"]
    assert min(begin for name, begin, _ in timeline.jobs[0][1][1] if name == "all-reduce n4") == 1e-3


def test_messages_go_through_a_pipeline_and_processors_work_side_by_side(tmp_path):
    size, us = 256 * 1024, 300
    ranks = [
        [node(1, COMP_NODE, us=us), node(2, COMM_SEND_NODE, [1], comm_size=size, comm_dst=1, comm_tag=7),
         node(3, COMP_NODE, us=us, cpu=True)],
        [node(1, COMM_RECV_NODE, comm_size=size, comm_src=0, comm_tag=7), node(2, COMP_NODE, [1], us),
         node(3, COMM_SEND_NODE, [2], comm_size=size, comm_dst=2)],
        [node(1, COMM_RECV_NODE, comm_size=size, comm_src=1), node(2, COMP_NODE, [1], us)],
    ]
    result = replayed(write(tmp_path, ranks))
    wire = 8 * size * 1116 / 1024 / RATE
    assert result.seconds == pytest.approx(3 * us * 1e-6 + 2 * wire, rel=0.05)
    assert result.compute_by_rank == pytest.approx([300e-6] * 3) and result.counts == {"send": 2}


@pytest.mark.parametrize("ranks", [[0, 99], [-1, 0], [0, 0], [0, 1, 2]])
def test_a_process_group_with_ranks_that_have_no_file(tmp_path, ranks):
    """Nobody uses the group."""
    trace, file = write(tmp_path, [[all_reduce(0)]] * 2), tmp_path / "groups.json"
    file.write_text(json.dumps({"0": [0, 1], "1": ranks}))
    with pytest.raises(ConfigError, match="groups.json: process group '1' has ranks .*, expected some of 0 to 1, each once"):
        replayed(trace, groups=str(file))
    metadata = node(1, METADATA_NODE, name="## process_group:init ##")
    metadata.inputs.values = "['" + json.dumps([{"pg_name": "1", "ranks": ranks}]) + "']"
    with pytest.raises(ConfigError, match="process group '1' has ranks .*, expected some of 0 to 1, each once"):
        replayed(write(tmp_path, [[metadata, all_reduce(0)]] * 2))


def test_process_groups_of_a_file_and_of_pytorchs_metadata(tmp_path):
    """Two groups of two reduce at once, each with slots of its own; then all four."""
    def rank(number, in_trace):
        metadata = node(9, METADATA_NODE)
        if in_trace:
            members = {"0": [], "7": [0, 1], "8": [2, 3]}
            groups = [{"pg_name": name, "ranks": ranks} for name, ranks in members.items()]
            metadata.inputs.values = "['" + json.dumps(groups) + "']"
        everyone = {"pg_name": "0"} if in_trace else {}
        return [metadata, all_reduce(1, pg_name="7" if number < 2 else "8"), all_reduce(2, [1], **everyone)]

    (tmp_path / "groups.json").write_text('{"7": [0, 1], "8": [2, 3]}')
    from_trace = replayed(write(tmp_path, [rank(i, True) for i in range(4)]))
    from_file = replayed(write(tmp_path, [rank(i, False) for i in range(4)]), groups=str(tmp_path / "groups.json"))
    assert from_trace.seconds == pytest.approx(from_file.seconds, rel=0.01)
    bits = 8 * MIB * 1116 / 1024 / RATE
    assert from_trace.seconds == pytest.approx(2 * bits, rel=0.05), "the pairs do not disturb each other"


def test_compressed_files_are_read(tmp_path):
    assert replayed(write(tmp_path, [[all_reduce(1)], [all_reduce(1)]], gzip.compress)).seconds > 0


def test_a_compressed_trace_that_is_broken_is_named(tmp_path):
    """The header, the deflated bytes, the sum: each has an error of its own in the library."""
    for at in (5, 14, -6):
        def broken(data, at=at):
            whole = bytearray(gzip.compress(data))
            whole[at] ^= 0xFF
            return bytes(whole[:-9]) if at == 5 else bytes(whole)

        with pytest.raises(ConfigError, match=r"\.et: "):
            replayed(write(tmp_path, [[all_reduce(1)], [all_reduce(1)]], broken))


def rooflines(operations, moved, peak, bandwidth):
    """Time by the roofline model, as in ASTRA-sim (Roofline::get_perf)."""
    return operations / min(peak, bandwidth * operations / moved)


@pytest.mark.parametrize(("operations", "moved"), [(10**12, 10**6), (10**6, 10**9), (3 * 10**9, 10**7)])
def test_nodes_without_a_duration_take_what_a_roofline_says(tmp_path, operations, moved):
    peak, bandwidth = 312e12, 2e12
    trace = write(tmp_path, [[node(1, COMP_NODE, num_ops=operations, tensor_size=moved), node(2, COMP_NODE, [1], us=5)]])
    keys = {"peak_flops": peak, "memory_bandwidth": bandwidth}
    expected = rooflines(operations, moved, peak, bandwidth)
    assert replayed(trace, **keys).seconds == pytest.approx(expected + 5e-6, abs=1e-12)
    assert replayed(trace, compute=0.5, **keys).seconds == pytest.approx((expected + 5e-6) / 2, abs=1e-12)


def test_one_bound_needs_one_key_and_a_measured_duration_none(tmp_path):
    def seconds(name, attributes, **keys):
        (tmp_path / name).mkdir()
        rank = [node(1, COMP_NODE, **attributes), node(2, COMP_NODE, us=1)]
        return replayed(write(tmp_path / name, [rank]), **keys).seconds - 1e-6

    assert seconds("operations", {"num_ops": 10**9}, peak_flops=1e12) == pytest.approx(1e-3)
    assert seconds("bytes", {"tensor_size": 10**9}, memory_bandwidth=1e12) == pytest.approx(1e-3)
    assert seconds("measured", {"num_ops": 10**9, "tensor_size": 10**9, "us": 7}) == pytest.approx(7e-6)
    assert seconds("nothing", {"num_ops": 0, "tensor_size": 0}) == 0


def test_attributes_without_a_meaning_here_are_told(tmp_path):
    rank = [node(1, COMP_NODE, us=1, stream=7, tid=3), all_reduce(2, comm_priority=1), all_reduce(3, [2], comm_priority=2)]
    assert replayed(write(tmp_path, [rank, rank])).stats["ignored attributes"] == {"comm_priority": 4, "stream": 2}
    whole = all_reduce(1)
    whole.attr.append(AttributeProto(name="involved_dim", bool_list=BoolList(values=[True, True])))
    assert replayed(write(tmp_path, [[whole], [whole]])).stats["ignored attributes"] == {}


def part_of_a_topology():
    message = all_reduce(1, name="tp")
    message.attr.append(AttributeProto(name="involved_dim", bool_list=BoolList(values=[True, False])))
    return message


def crossed(other):
    return [node(1, COMM_RECV_NODE, comm_size=8, comm_src=other), node(2, COMM_SEND_NODE, [1], comm_size=8, comm_dst=other)]


def endless():
    message = node(1, COMP_NODE)
    message.attr.append(AttributeProto(name="num_ops", double_val=float("inf")))
    return message


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([[node(5, MEM_LOAD_NODE, name="load")]], r"trace\.0\.et: node 5 \('load'\) is a MEM_LOAD_NODE, which cannot be"),
        ([[node(5, 0)]], "node 5 .* is a INVALID_NODE"),
        ([[node(5, COMP_NODE, name="mm", num_ops=10**9, tensor_size=4096)]], r"trace\.0\.et: node 5 \('mm'\) has num_ops = "
         r"1e\+09 and tensor_size = 4096, and no duration: .* the keys peak_flops and memory_bandwidth"),
        ([[node(5, COMP_NODE, tensor_size=4096)]], "node 5 .* the key memory_bandwidth of the rank's GPU"),
        ([[node(5, COMP_NODE, num_ops=-1)]], "node 5 .*num_ops is -1, expected a number of 0 or more"),
        ([[node(5, COMP_NODE, num_ops="many")]], "node 5 .*num_ops is 'many', expected a number of 0 or more"),
        ([[node(5, COMP_NODE, cpu=True, num_ops=10**9)]], "node 5 .* computes on the CPU .* expected duration_micros"),
        ([[part_of_a_topology()]], r"node 1 \('tp'\): involved_dim is \[True, False\]"),
        ([[node(1, COMM_COLL_NODE, comm_type=BROADCAST, comm_size=4, root=2)]], "node 1 .*root is 2: expected 0"),
        ([[node(1, COMM_SEND_NODE, comm_size=4, comm_src=1, comm_dst=1)], []], "node 1 .*send of rank 1, in the file of rank 0"),
        ([[node(1, COMM_SEND_NODE, comm_size=4, comm_dst=1, comm_tag="a")], []], "comm_tag is 'a', expected a number"),
        ([[all_reduce(1, [3])]], "node 1 .* comes after node 3, which is not there"),
        ([[all_reduce(1), all_reduce(1)]], "node 1 is there twice"),
        ([[node(1, COMM_COLL_NODE, comm_type=77, comm_size=4)]], "comm_type 77, expected one of ALL_REDUCE"),
        ([[node(1, COMM_COLL_NODE, comm_type=ALL_REDUCE)]], "comm_size is None, expected a number of 0 or more"),
        ([[node(1, COMM_SEND_NODE, comm_size=4, comm_dst=3)]], "send with rank 3, expected another of ranks 0 to 0"),
        ([[all_reduce(1, pg_name="tp")]], "no process group 'tp'"),
        ([[all_reduce(1)], [all_reduce(8, size=4)]], r"the 1. collective of process group '' is not the same on both sides: .*"
         r"trace\.0\.et: node 1 \('n1'\), all-reduce of 1048576 bytes; .*trace\.1\.et: node 8 \('n8'\), all-reduce of 4 bytes"),
        ([[all_reduce(1)], []], "there is none"),
        ([[node(1, COMM_SEND_NODE, comm_size=4, comm_dst=1)], []], "message from rank 0 to rank 1 with tag 0 is not the same"),
        ([[node(1, COMP_NODE, [2]), node(2, COMP_NODE, [1])]], r"trace\.0\.et: nodes .*1, .*wait for each other in a circle"),
        ([[node(1, COMP_NODE, [1]), all_reduce(2, [1])], [all_reduce(2)]], "nodes 1, 1 wait for each other in a circle"),
        ([[node(3, COMP_NODE, us=1), *crossed(1)], crossed(0)], r"trace\.0\.et: node 1 \('n1'\) never ends"),
        ([[node(1, COMP_NODE, us=2**63)]], r"trace\.0\.et: its nodes compute .* node 1 \('n1'\) the longest .* 1e\+06 s"),
        ([[endless()]], "node 1 .*num_ops is inf, expected a number of 0 or more"),
    ],
)
def test_what_cannot_be_replayed_names_the_node(tmp_path, ranks, message):
    with pytest.raises(ConfigError, match=message):
        replayed(write(tmp_path, ranks))


@pytest.mark.parametrize(("ranks", "message"), [
    ([[], []], r"trace\.\*\.et: none of the 0 nodes communicates or takes time: there is nothing to replay"),
    ([[node(1, METADATA_NODE), node(2, COMP_NODE, us=0, name="aten::add")], [node(1, COMP_NODE)]],
     r"none of the 3 nodes communicates or takes time"),
])
def test_a_trace_in_which_nothing_happens_is_an_error(tmp_path, ranks, message):
    """A job that was recorded without its collectives and times would be as quick as it can be."""
    with pytest.raises(ConfigError, match=message):
        replayed(write(tmp_path, ranks))


def test_without_compute_nothing_is_said_to_hide_behind_it(tmp_path):
    need("matplotlib")
    trace = training(tmp_path)
    assert replayed(trace).summary()["efficiency"] > 0
    folder = run.run(Trace(trace=trace, compute=0, rate=RATE), tmp_path / "results", Console(quiet=True))
    finding = why.explain(load(folder))[0]
    assert finding.bound == "link" and finding.shown.startswith("no rank computes: ")
    assert [result["efficiency"] for result in load(folder).summary] == [None]


def test_compute_0_leaves_nothing_of_a_trace_that_only_computes(tmp_path):
    trace = write(tmp_path, [[node(1, COMP_NODE, us=5)], [node(1, COMP_NODE, us=7)]])
    assert replayed(trace).summary()["efficiency"] == 1
    with pytest.raises(ConfigError, match=r"compute = 0: with it none of the 2 nodes of .*trace\.\*\.et takes time"):
        replayed(trace, compute=0)


@pytest.mark.parametrize(("name", "type_", "doubt"), [
    ("COMM_COLL_NODE_BROADCAST", ALL_REDUCE, "broadcast"), ("COMM_COLL_NODE_NONE", ALL_REDUCE, "none"),
    ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", ALL_GATHER, "reduce-scatter"), ("nccl:all_to_all", BROADCAST, "all-to-all"),
    ("COMM_COLL_NODE_ALL_REDUCE", ALL_REDUCE, ""), ("ncclDevKernel_AllGather_RING_LL", ALL_GATHER, ""),
    ("layer 3", BROADCAST, ""), ("gloo:_reduce_scatter_base", REDUCE_SCATTER, ""),
    ("AllReduce of a broadcast layer", ALL_REDUCE, ""),
])
def test_a_name_and_a_type_that_disagree_are_told(tmp_path, name, type_, doubt):
    """Chakra's text converter makes all-reduces of broadcasts, and of nodes without any communication."""
    nodes = [node(1, COMM_COLL_NODE, name=name, comm_type=type_, comm_size=4096),
             node(2, COMM_COLL_NODE, (1,), name=name, comm_type=type_, comm_size=4096)]
    path = write(tmp_path, [nodes, nodes])
    if not doubt:
        with warnings.catch_warnings(action="error"):
            replayed(path)
        return
    with pytest.warns(RuntimeWarning, match=re.escape(f"trace.0.et: node 1 ({name!r}) is ")) as caught:
        replayed(path)
    (text,) = (str(each.message) for each in caught)
    kind = chakra.COLLECTIVES[type_]
    assert f"is {kind} by its comm_type, but {doubt} by its name: replayed as {kind} (so are 4 nodes in all)" in text


def test_what_is_no_trace_says_so(tmp_path):
    with pytest.raises(ConfigError, match=r"trace = 'x': expected a path with which x\.0\.et begins"):
        Trace(trace="x")
    (tmp_path / "trace.0.et").write_bytes(b"\xff" * 20)
    with pytest.raises(ConfigError, match=r"trace\.0\.et: byte \d+: .*no Chakra trace"):
        replayed(tmp_path / "trace")
    write(tmp_path, [[all_reduce(1)]])
    whole = (tmp_path / "trace.0.et").read_bytes()
    (tmp_path / "trace.0.et").write_bytes(whole[:-3])
    with pytest.raises(ConfigError, match="a message of .* bytes, but only"):
        replayed(tmp_path / "trace")
    with pytest.raises(ConfigError, match="workers = 3: expected 0, or 1"):
        Trace(trace=str(tmp_path / "trace"), workers=3)


def test_the_command_replays_a_trace_and_why_names_what_bounds_it(tmp_path, capsys):
    need("matplotlib")
    trace = training(tmp_path, slow=3)
    keys = f'kind = "trace"\ntrace = "{trace}"\nrate = 10e9'
    (tmp_path / "x.toml").write_text(f'{keys}\n[sweep]\nalgorithm = ["in-network", "ring"]\n')
    assert cli.main(["experiment", "run", str(tmp_path / "x.toml"), "--results", str(tmp_path / "r"), "--processes", "1"]) == 0
    assert "compute" in capsys.readouterr().out
    folder = run.run(Trace(trace=trace, rate=RATE), tmp_path / "one", Console(quiet=True))
    assert load(folder).config.workers == 4
    assert why.explain(load(folder))[0].bound == "straggler"
    (tmp_path / "n").mkdir()
    fast = run.run(Trace(trace=training(tmp_path / "n"), compute=0.01, rate=RATE), tmp_path / "two", Console(quiet=True))
    assert why.explain(load(fast))[0].bound == "link"


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_schedules_of_other_collectives_move_what_they_should(n):
    """Schedules are executed by hand, step by step: each rank's parts in the end, and the ranks whose sums they are."""
    for make, check in (
        (collectives.all_gather, lambda state, n: all(state[r][p] == {p} for r in range(n) for p in range(n))),
        (collectives.reduce_scatter, lambda state, n: all(state[r][r] == set(range(n)) for r in range(n))),
        (collectives.all_to_all, lambda state, n: all(state[j][i * n + j] == {i} for i in range(n) for j in range(n) if i != j)),
        (lambda n: collectives.broadcast(n, 2), lambda state, n: all(state[r][p] == {0} for r in range(n) for p in range(2))),
        (lambda n: collectives.reduce(n, 2), lambda state, n: all(state[0][p] == set(range(n)) for p in range(2))),
        (collectives.gather, lambda state, n: all(state[0][p] == {p} for p in range(n))),
        (collectives.scatter, lambda state, n: all(state[r][r] == {0} for r in range(n))),
    ):
        schedule = make(n)
        state = [[{rank} for _ in range(schedule.parts)] for rank in range(n)]
        gates = [[0] * schedule.gates for _ in range(n)]
        for rank, transfers in enumerate(schedule.transfers):
            for transfer in transfers:
                if transfer.kind != collectives.SEND:
                    for gate in range(transfer.gate, transfer.last_gate + 1):
                        gates[rank][gate] += 1
        sends = {rank: [t for t in ts if t.kind == collectives.SEND] for rank, ts in enumerate(schedule.transfers)}
        receives = {rank: [t for t in ts if t.kind != collectives.SEND] for rank, ts in enumerate(schedule.transfers)}
        while any(sends.values()):
            moved = False
            for rank in range(n):
                for send in list(sends[rank]):
                    if gates[rank][send.gate]:
                        continue
                    there = next(t for t in receives[send.peer] if t.peer == rank)
                    assert (there.first, there.last) == (send.first, send.last)
                    for part in range(send.first, send.last):
                        came = state[rank][part]
                        assert there.kind == collectives.COPY or not came & state[send.peer][part], "nothing is added twice"
                        state[send.peer][part] = came | (state[send.peer][part] if there.kind == collectives.ADD else set())
                    for gate in range(there.gate, there.last_gate + 1):
                        gates[send.peer][gate] -= 1
                    sends[rank].remove(send)
                    receives[send.peer].remove(there)
                    moved = True
            assert moved, schedule.name
        assert check(state, n), schedule.name
