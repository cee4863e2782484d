"""Random sequences of collectives with faults: a few dozens here, more with SEQUENCES=1000 in the environment."""

from __future__ import annotations

import os

import pytest
from ranks import ROOT, run, succeed

pytestmark = pytest.mark.build
pytest.importorskip("torch", reason="the back end needs torch")

SEQUENCES = int(os.environ.get("SEQUENCES", "40"))
FAULTS = "loss=0.01,dup=0.01,reorder=0.01,corrupt=0.005,seed=5"
BODY = f"""
sys.path.insert(0, {str(ROOT / "tests")!r})
import folders
import random_collectives as judge
rank, n = start()
made = judge.groups([ina.backend.Options(protocol="atp"), ina.backend.Options(slots=2), None])
"""


@pytest.mark.later
def test_random_sequences_are_right_with_faults(tmp_path):
    results = succeed(run(tmp_path, 3, BODY + f"""
say(wrong=judge.wrong(1000, {SEQUENCES}, made))
say(stats=ina.backend.stats())
dist.destroy_process_group()
""", timeout=600 + 10 * SEQUENCES, INA_FAULT=FAULTS, INA_VALUES="256"))
    for report in results:
        assert report["wrong"] == []
    calls = results[0]["stats"]["calls"]
    assert {"allreduce", "reduce", "broadcast", "allgather", "_allgather_base", "_reduce_scatter_base", "barrier"} <= set(calls)
    assert all(ways["switch"] for name, ways in calls.items() if "all_to_all" not in name and "alltoall" not in name), calls
    assert results[0]["stats"]["worker"]["retransmissions"] > 0, "no packet was lost: the faults were not there"


PLANTS = """
import torch
from ina.backend import sums
from ina.backend.process_group import InaProcessGroup
kept = {name: getattr(sums, name) for name in ("_decode", "_unkey", "placement", "_encode", "reduction", "Packing")}
def limbs(buffer, dtype):  # without the highest bits
    total = kept["_decode"](buffer, dtype)
    return total & 0xFFFFFFFFFF if dtype == torch.int64 else total
def rounded(source, result, size, average, factor=None, start=0):  # to the next bfloat16 below
    if source.dtype == torch.bfloat16:
        below = torch.nextafter(source, source - 1)
        source, result = (below, result) if result is not source else (source.copy_(below), source)
    return kept["reduction"](source, result, size, average, factor, start)
def order(key, dtype, largest):  # negative floats turned round
    return kept["_unkey"](key, dtype, largest) if dtype in judge.INTEGERS else key.view(torch.float32).to(dtype)
def shifted(mine, results, words, route):  # a piece too far, where there is room
    far = [(t, at if at + sums.words(t) >= words else at + 1) for t, at in mine]
    return kept["placement"](far, results, words, route)
def part(source, result, size, average, factor=None, start=0):  # of a reduce-scatter, always the first
    return kept["reduction"](source, result, size, average, factor, 0)
def divided(source, result, size, average, factor=None, start=0):  # by one rank too few
    fewer = average and source.dtype in judge.INTEGERS
    return kept["reduction"](source, result, size - fewer, average, factor, start)
def signs(flat, words):  # of small integers
    return kept["_encode"](flat.abs() if flat.dtype == torch.int16 else flat, words)
class narrow:  # lanes with room for one rank too few
    of = staticmethod(lambda dtype, ranks, wraps=False: kept["Packing"].of(dtype, ranks - 1, wraps))
judge.Sequence.objects = judge.Sequence.settle  # whose sizes a planted defect would make huge
for name, what in (("_decode", limbs), ("reduction", rounded), ("_unkey", order), ("placement", shifted), ("reduction", part),
                   ("reduction", divided), ("_encode", signs), ("Packing", narrow)):
    setattr(sums, name, what)
    found = []
    for seed in range(0, 60, 5):
        found += judge.wrong(seed, 5, made)
        enough = torch.tensor([len(found) + 1])
        dist.all_reduce(enough, op=dist.ReduceOp.PRODUCT)  # through Gloo: nothing of it is planted
        enough -= 1
        if enough: break
    setattr(sums, name, kept[name])
    say(**{what.__name__: enough.item()})
say(clean=judge.wrong(0, 5, made))
dist.destroy_process_group()
"""


@pytest.mark.judge
def test_the_judge_finds_planted_defects(tmp_path):
    for report in succeed(run(tmp_path, 3, BODY + PLANTS, timeout=800)):
        planted = ("limbs", "rounded", "order", "shifted", "part", "divided", "signs", "narrow")
        assert {name: report[name] > 0 for name in planted} == dict.fromkeys(planted, True)
        assert report["clean"] == []
