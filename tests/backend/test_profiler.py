"""torch's profiler around collectives; its execution trace has what that of torch's own back ends has."""

from __future__ import annotations

import json

import pytest
from capabilities import need
from ranks import run, succeed


@pytest.mark.build
@pytest.mark.later
def test_a_profile_may_end_before_what_it_has_seen_begin(tmp_path):
    """No thread of the back end touches anything of a profiler that has stopped."""
    succeed(run(tmp_path, 2, """
        rank, n = start()
        for turn in range(25):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                for _ in range(6):
                    dist.all_reduce(torch.ones(10))
                    dist.all_reduce(torch.ones(4, dtype=torch.bfloat16), async_op=True).wait()
                    dist.broadcast(torch.ones(7, dtype=torch.float64), 1)
                    dist.barrier()
                work = dist.all_reduce(torch.ones(10), async_op=True)
            work.wait()
        dist.destroy_process_group()
    """))

COLLECTIVES = """
from types import SimpleNamespace
from ina.backend import membership
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile
rank, n = start()
gloo = dist.new_group(backend="gloo")
pair = dist.new_group([1, 2], group_desc="pair")
def record(group, name):
    path = os.environ["TRACES"] + f"/{name}{rank}.json"
    observer = ExecutionTraceObserver().register_callback(path)
    with profile(activities=[ProfilerActivity.CPU], execution_trace_observer=observer):
        dist.all_reduce(torch.ones(2, 5), group=group)
        dist.all_reduce(torch.ones(4, dtype=torch.bfloat16), group=group, async_op=True).wait()
        dist.broadcast(torch.ones(7, dtype=torch.float64), 1, group=group)
        dist.all_gather([torch.ones(3, dtype=torch.int64) for _ in range(n)], torch.ones(3, dtype=torch.int64), group=group)
        dist.reduce(torch.ones(6), 0, group=group)
        if rank == 0: dist.send(torch.ones(8), 1, group=group)
        if rank == 1: dist.recv(torch.ones(8), 0, group=group)
        dist.barrier(group=group)
        if group is None:
            splits = [[1, 1, 1], [1, 2, 2], [1, 2, 4]][rank]
            dist.all_to_all_single(torch.ones(sum(splits)), torch.ones(sum(splits)), splits, splits)
            if rank: dist.all_reduce(torch.ones(9), group=pair)
record(gloo, "gloo")
record(None, "ina")
membership.lib = SimpleNamespace(INA_BITMAP_WORKERS=2)
record(dist.new_group([0, 1, 2]), "large")  # goes to Gloo whole
dist.destroy_process_group()
"""


EVERY = """
from torch.profiler import ProfilerActivity, profile
rank, n = start()
groups = {"gloo": dist.new_group(backend="gloo"), "ina": None}
def collectives(group):
    def once(): return torch.ones(4)
    def whole(): return torch.ones(4 * n)
    dist.all_reduce(once(), group=group); dist.broadcast(once(), 1, group=group); dist.reduce(once(), 0, group=group)
    dist.all_gather([once() for _ in range(n)], once(), group=group); dist.all_gather_into_tensor(whole(), once(), group=group)
    dist.reduce_scatter(once(), [once() for _ in range(n)], group=group)
    dist.reduce_scatter_tensor(once(), whole(), group=group); dist.all_to_all_single(whole(), whole(), group=group)
    dist.gather(once(), [once() for _ in range(n)] if rank == 0 else None, group=group)
    dist.scatter(once(), [once() for _ in range(n)] if rank == 0 else None, group=group); dist.barrier(group=group)
def shown(name): return name.startswith(("gloo:", "ina:")) and " " not in name and "::" not in name  # no steps, no operators
seen = {}
for backend, group in groups.items():
    with profile(activities=[ProfilerActivity.CPU]) as profiled: collectives(group)
    seen[backend] = [event.name.split(":", 1)[1] for event in sorted(profiled.events(), key=lambda event: event.time_range.start)
                     if shown(event.name) and event.name.startswith(backend)]
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        if rank: dist.recv(torch.ones(4), 0, group=group)
        else: dist.send(torch.ones(4), 1, group=group)
    seen[f"message, {backend}"] = [event.name for event in profiled.events() if shown(event.name)]
say(seen=seen, reasons=ina.backend.stats()["reasons"])
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.build
@pytest.mark.later
@pytest.mark.parametrize("protocol", ["switchml", "receivers"])
def test_spans_of_all_collectives_have_the_names_that_torch_gives_them(tmp_path, protocol):
    """Gloo makes some collectives of others, and shows those; messages go through it in any group, so their spans are its own."""
    for rank, report in enumerate(succeed(run(tmp_path, 2, EVERY, INA_PROTOCOL=protocol))):
        seen = report["seen"]
        assert seen["ina"] == ["all_reduce", "broadcast", "reduce", "all_gather", "_all_gather_base", "reduce_scatter",
                               "_reduce_scatter_base", "all_to_all", "gather", "scatter", "barrier"]
        assert {"all_reduce", "broadcast", "reduce", "all_gather", "all_to_all", "gather", "scatter",
                "barrier"} <= set(seen["gloo"]) <= set(seen["ina"])
        message = ("send", "recv")[rank]
        assert seen["message, ina"] == seen["message, gloo"] == [f"gloo:{message}"]
        assert report["reasons"][f"{message}: a message between two ranks, for which the switch has nothing to do"] == 1


def nodes(path):
    return json.loads(path.read_text())["nodes"]


@pytest.mark.build
@pytest.mark.later
def test_collectives_have_sizes_types_and_groups(tmp_path):
    succeed(run(tmp_path, 3, COLLECTIVES, TRACES=str(folder(tmp_path))))
    for rank in range(3):
        theirs = [(node["inputs"]["shapes"], node["inputs"]["types"]) for node in nodes(tmp_path / f"traces/gloo{rank}.json")
                  if node["name"].startswith("gloo:") and node["inputs"]["shapes"]]
        records = [node["inputs"] for node in nodes(tmp_path / f"traces/ina{rank}.json")
                   if node["name"] == "ina::record_param_comms"]
        ours = [(each["shapes"][0], [each["types"][0].removeprefix("GenericList[").removesuffix("]")])
                for each in records if each["shapes"][0] and each["values"][4] not in ("all_to_all", "barrier")
                and each["values"][2][1] != "pair"]
        assert ours == theirs and len(ours) == 5 + (rank < 2)
        kinds = [each["values"][4] for each in records]
        assert kinds == ["all_reduce", "all_reduce", "broadcast", "all_gather", "reduce",
                         *[["send"], ["recv"], []][rank], "barrier", "all_to_all", *["all_reduce"] * (rank > 0)]
        first, number = records[0]["values"], [each["values"][1] for each in records]
        assert first[3] == rank and first[7:] == [0, 1, 3, False] and records[1]["values"][10]
        messages = int(rank < 2)
        assert number == [*([i, False] for i in range(1, 6)), *[[1, True]] * messages, [6, False], [7, False],
                          *[[1, False]] * (rank > 0)]
        large = [node["inputs"]["values"] for node in nodes(tmp_path / f"traces/large{rank}.json")
                 if node["name"] == "ina::record_param_comms"]
        assert [each[1] for each in large] == number[: 6 + messages] and [each[4] for each in large] == kinds[: 6 + messages]
        splits = [[1, 1, 1], [1, 2, 2], [1, 2, 4]][rank]
        assert [each["values"][5:7] for each in records if each["values"][4] == "all_to_all"] == [[splits, splits]]
        if rank:
            assert records[-1]["values"][2][1] == "pair" and records[-1]["values"][7:10] == [1, 1, 2]


@pytest.mark.build
@pytest.mark.later
def test_chakras_converter_knows_them(tmp_path):
    need("chakra")
    node_class = pytest.importorskip("chakra.src.converter.pytorch_node").PyTorchNode
    succeed(run(tmp_path, 2, """
        from torch.profiler import ExecutionTraceObserver, profile
        rank, n = start()
        observer = ExecutionTraceObserver().register_callback(os.environ["TRACES"] + f"/{rank}.json")
        with profile(execution_trace_observer=observer):
            dist.all_reduce(torch.ones(1000))
            dist.all_reduce(torch.ones(1000, dtype=torch.float16))
        dist.destroy_process_group()
    """, TRACES=str(folder(tmp_path))))
    trace = json.loads((tmp_path / "traces/0.json").read_text())
    read = [node_class(trace["schema"], node) for node in trace["nodes"]]
    assert [node.comm_size for node in read if node.is_record_param_comms_op()] == [4000, 2000]


def folder(tmp_path):
    path = tmp_path / "traces"
    path.mkdir()
    return path
