"""Switches that ranks run, and that the switch process runs: the same bits; two jobs of one process, one of each."""

import pytest
import ranks

pytestmark = [pytest.mark.build, pytest.mark.later]

BOTH = """
rank, size = start()  # the ranks run its switch
os.environ["INA_RUN_BY"] = "process" if rank == 1 else "ranks"  # one of them is enough
groups = [dist.group.WORLD, dist.new_group(backend="ina")]
def results(group):
    torch.manual_seed(rank)
    kinds = (torch.float32, 1), (torch.float32, 40_001), (torch.int32, 5000), (torch.bfloat16, 777), (torch.int64, 100)
    for dtype, count in kinds:
        data = (torch.randn(count) * 100).to(dtype)
        total, piece, everything = data.clone(), torch.empty_like(data), torch.empty(size * count, dtype=dtype)
        dist.all_reduce(total, group=group); yield total
        dist.all_gather_into_tensor(everything, data, group=group); yield everything
        dist.reduce_scatter_tensor(piece, everything, group=group); yield piece
        dist.broadcast(data, 1, group=group); yield data
        parts = [total.clone() for _ in range(5)]
        works = [dist.all_reduce(part, async_op=True, group=group) for part in parts]
        [work.wait() for work in works]; yield torch.stack(parts)
ours, theirs = ([*results(group)] for group in groups)
assert len(ours) == 25
say(same=all(a.dtype == b.dtype and a.view(torch.uint8).equal(b.view(torch.uint8)) for a, b in zip(ours, theirs)))
stats = ina.backend.stats()
say(run_by=stats["run_by"], again=stats["worker"]["retransmissions"], switches=len(rendezvous._pids))
ina.backend.reset_stats()
say(reset=ina.backend.stats()["run_by"])
meet()
dist.destroy_process_group()
say(after=ina.backend.stats()["run_by"]["ranks"]["jobs"])
"""


@pytest.mark.parametrize("fault", [pytest.param("", marks=pytest.mark.gate), "loss=0.02,dup=0.02,reorder=0.02,seed=3"])
def test_ranks_and_switch_process_give_the_same_bits(tmp_path, fault):
    reports = ranks.succeed(ranks.run(tmp_path, 3, BOTH, **({"INA_FAULT": fault} if fault else {})))
    for report in reports:
        assert report["same"] and report["switches"] == 1
        assert report["run_by"]["ranks"]["jobs"] == report["run_by"]["process"]["jobs"] == 1
        assert report["reset"] == {"ranks": {"jobs": 1, "turns": 0, "packets": 0}, "process": {"jobs": 1}}
        assert report["after"] == 1
        assert bool(report["again"]) or not fault
    packets = [report["run_by"]["ranks"]["packets"] for report in reports]
    assert sum(packets) > 500
