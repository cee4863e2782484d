"""torch's profiler around collectives."""

from __future__ import annotations

import pytest
from ranks import run, succeed


@pytest.mark.build
@pytest.mark.later
def test_a_profile_may_end_before_what_it_has_seen_begin(tmp_path):
    """Whatever a thread of the back end does later, it touches nothing of a profiler that has stopped."""
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
