"""Protocols without sums: the reductions that they declare go through the switch, all else another way; experiments check them.

Each is examples/lockstep with another line for the switch's operation on two values.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ranks import ROOT, run, succeed

from ina.aggregation import protocols
from ina.aggregation.worker import Worker, WorkerConfig
from ina.base.settings import ConfigError
from ina.lab.kinds import allreduce, sharing
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.kinds.sharing import Sharing
from ina.lab.kinds.training import Training
from ina.lab.virtual.virtual_network import WrongSum

pytestmark = pytest.mark.build
LOCKSTEP = ROOT / "examples" / "lockstep"
ADD = "old + hdr.values.v##i"
LARGEST = "(int<LANE_BITS>)old > (int<LANE_BITS>)hdr.values.v##i ? old : hdr.values.v##i"
REDUCED = "\n    def reduced(self, tensors):\n        return tensors.min(axis=0)\n\n\nPROGRAM = Lockstep()"


def lockstep(folder, operation=ADD, declared="1 << INA_SUM", idempotent=False, entries="\nPROGRAM = Lockstep()") -> str:
    """The path of a program whose rows combine values by ``operation``, and whose worker declares ``declared``."""
    folder.mkdir()
    text = {suffix: (LOCKSTEP / f"lockstep{suffix}").read_text() for suffix in (".p4", ".c", ".py")}
    assert ADD in text[".p4"] and ".reductions = 1 << INA_SUM" in text[".c"] and "\nPROGRAM = Lockstep()" in text[".py"]
    begin = "ina_tensors_init(&st->tensors, &st->config, INA_EXP_AGREED, 0);"
    assert begin in text[".c"]
    (folder / "lockstep.p4").write_text(text[".p4"].replace(ADD, operation))
    (folder / "lockstep.c").write_text(text[".c"].replace("1 << INA_SUM", declared)
                                       .replace(begin, begin + " ina_tensors_idempotent(&st->tensors);" * idempotent))
    (folder / "lockstep.py").write_text(text[".py"].replace("\nPROGRAM = Lockstep()", entries))
    return str(folder / "lockstep.p4")


@pytest.fixture
def maxima(tmp_path):
    return lockstep(tmp_path / "maxima", LARGEST, "1 << INA_MAX", idempotent=True)


@pytest.fixture
def minima(tmp_path):
    return lockstep(tmp_path / "minima", LARGEST.replace(" > ", " < "), "1 << INA_OWN", idempotent=True, entries=REDUCED)


@pytest.fixture
def nothing(tmp_path):
    return lockstep(tmp_path / "nothing", declared="0")


COLLECTIVES = """
rank, n = start()
tensor = torch.full((300,), rank + 1); dist.broadcast(tensor, 1); assert (tensor == 2).all()
tensor = torch.tensor([float("nan"), -0.0, 1.0]) if rank == 0 else torch.full((3,), -5.0); dist.broadcast(tensor, 0)
assert tensor[0].isnan() and torch.signbit(tensor[1]) and tensor[2] == 1
rows = [torch.zeros(4) for _ in range(n)]; dist.all_gather(rows, torch.full((4,), -1.0 - rank))
assert [row[0].item() for row in rows] == [-1.0 - r for r in range(n)]
objects = [None] * n; dist.all_gather_object(objects, {"rank": rank}); assert objects == [{"rank": r} for r in range(n)]
for op, wanted in ((dist.ReduceOp.SUM, n * (n + 1) // 2), (dist.ReduceOp.MAX, n), (dist.ReduceOp.MIN, 1)):
    tensor = torch.full((500,), rank + 1); dist.all_reduce(tensor, op=op); assert (tensor == wanted).all(), (op, tensor)
tensor = torch.full((500,), rank + 1).int(); dist.all_reduce(tensor, op=dist.ReduceOp.MAX); assert (tensor == n).all()
tensor = torch.full((500,), 127 - 2 * rank).to(torch.int8); dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
assert (tensor == 126).all()
dist.barrier()
for dtype in (torch.int32, torch.float32):
    own = torch.arange(700).sub(350).mul(rank * 2 - 1).to(dtype)
    try:
        ina.backend.all_reduce_own(own)
        assert torch.equal(own, torch.arange(700).sub(350).abs().neg().to(dtype)), own
        say(own=True)
    except ValueError as error: say(own=str(error))
stats = ina.backend.stats()
say(reasons=sorted(stats["reasons"]), calls=stats["calls"])
"""


@pytest.mark.gate
def test_maxima_go_through_a_switch_that_has_them_and_nothing_else_does(tmp_path, maxima):
    pytest.importorskip("torch")
    results = run(tmp_path, 2, COLLECTIVES + """
dist.all_reduce(torch.zeros(0, dtype=torch.int32), op=dist.ReduceOp.MAX)  # takes part with a word, which is no sum
try: dist.all_reduce(torch.zeros(5 + rank, dtype=torch.int32), op=dist.ReduceOp.MAX)
except RuntimeError as error: say(disagree=str(error))
""", INA_PROTOCOL=maxima, INA_VALUES="64")
    for report in succeed(results):
        refusals = {f"{name}: its protocol has no sums" for name in ("allgather", "allreduce", "barrier", "broadcast")}
        assert refusals <= set(report["reasons"]), report["reasons"]
        assert report["calls"]["broadcast"] == {"switch": 0, "gloo": 2} and report["calls"]["barrier"]["switch"] == 0
        assert report["calls"]["allreduce"]["switch"] == 1
        assert "no reduction of its own" in report["own"]
        assert "do not agree" in report["disagree"]


@pytest.mark.later
def test_a_protocol_that_forgets_to_say_that_it_does_not_add_up_is_told(tmp_path):
    """The ranks agree; the switch's maximum of their fingerprints is not the sum that is expected where nothing else is said."""
    pytest.importorskip("torch")
    forgetful = lockstep(tmp_path / "forgetful", LARGEST, "1 << INA_MAX")
    results = run(tmp_path, 2, """
        rank, n = start()
        for name in ("first", "again"):
            try: dist.all_reduce(torch.full((500,), rank + 1).int(), op=dist.ReduceOp.MAX)
            except RuntimeError as error: say(**{name: str(error)})
        if rank == 0: dist.all_reduce(torch.zeros(5, dtype=torch.int32), op=dist.ReduceOp.MAX)
    """, INA_PROTOCOL=forgetful, INA_VALUES="64")
    for rank in results:
        for text in (rank.report["first"], rank.report["again"]):
            assert "do not agree" not in text and "all ranks are in allreduce MAX" in text, text
            assert "does not add up" in text and "ina_tensors_idempotent" in text and "new-protocol.md" in text
    assert results[0].code == 1 and results[0].errors.count("Traceback (most recent call last)") == 1, results[0].errors


@pytest.mark.later
def test_a_reduction_of_its_own_is_asked_for_by_name(tmp_path, minima):
    pytest.importorskip("torch")
    for report in succeed(run(tmp_path, 2, COLLECTIVES + "dist.destroy_process_group()", INA_PROTOCOL=minima, INA_VALUES="64")):
        assert report["own"] is True
        assert {name: ways["switch"] for name, ways in report["calls"].items() if ways["switch"]} == {"allreduce_own": 2}


@pytest.mark.later
def test_a_protocol_that_declares_nothing_gets_nothing(tmp_path, nothing):
    pytest.importorskip("torch")
    for report in succeed(run(tmp_path, 2, COLLECTIVES + "dist.destroy_process_group()", INA_PROTOCOL=nothing, INA_VALUES="64")):
        assert "no reduction of its own" in report["own"]
        assert not any(ways["switch"] for ways in report["calls"].values())


# ---- experiments


def test_virtual_time_judges_by_what_the_protocol_declares(maxima, minima, nothing, tmp_path):
    for name in (maxima, minima):
        (result,) = sharing.share(Sharing(protocol=name, jobs=2, workers=3, window=16, elements=5_000))
        assert len(result.goodputs) == 2
        (result,) = allreduce.reduce(AllReduce(protocol=name, workers=3, elements=5_000, values=64, pool=64))
        assert result.checked
    wrong = lockstep(tmp_path / "wrong", LARGEST, "1 << INA_OWN", idempotent=True, entries=REDUCED)
    with pytest.raises(WrongSum, match="off by"):
        allreduce.reduce(AllReduce(protocol=wrong, workers=3, elements=5_000, values=64, pool=64))


def test_experiments_refuse_what_the_protocol_does_not_declare(maxima, nothing, tmp_path):
    silent = lockstep(tmp_path / "silent", LARGEST, "1 << INA_OWN", idempotent=True)
    for keys, message in (
        ({"protocol": nothing}, "declares no reduction of int32"),
        ({"protocol": maxima, "dtype": "float32"}, "declares no reduction of float32"),
        ({"protocol": silent}, "do not say what that gives"),
    ):
        with pytest.raises(ConfigError, match=message):
            AllReduce(workers=3, **keys)
    assert AllReduce(workers=3, protocol=silent, payload=False).reduction == protocols.OWN
    with pytest.raises(ConfigError, match="has no sums: it declares maxima"):
        Training(protocol=maxima)


def test_workers_refuse_what_the_protocol_does_not_declare(maxima, nothing):
    config = WorkerConfig(0, 2, life=1, protocol=maxima)
    Worker(config).submit(np.zeros(9, np.int32), reduction=protocols.MAX)
    with pytest.raises(ValueError, match="has no sums: it declares maxima"):
        Worker(replace(config)).submit(np.zeros(9, np.int32))
    with pytest.raises(ValueError, match="has no sums: it declares nothing"):
        Worker(WorkerConfig(0, 2, life=1, protocol=nothing)).submit(np.zeros(9, np.int32))
    with pytest.raises(ValueError, match="'switchml' has no reduction of its own: it declares sums and maxima"):
        Worker(WorkerConfig(0, 2, life=1)).submit(np.zeros(9, np.int32), reduction=protocols.OWN)
