"""What the benchmarks run is right, at any speed."""

import pytest
from capabilities import need

from bench import complete


@pytest.mark.parametrize("values", [64, 1024])
@pytest.mark.parametrize("watch", [False, True])
def test_run_to_completion_counts_and_verifies_every_packet(values, watch, tmp_path):
    need("cc")
    rig = complete.in_memory(values, *complete.compiled(tmp_path), watch=watch, count=3)
    blocks = complete.ELEMENTS // values
    # Each tensor's first packet has values too; its other packets without a block carry exponents alone.
    assert rig.c.packets == 3 * complete.WORKERS * (blocks + 1)
    assert rig.c.bare == 3 * complete.WORKERS * (min(blocks, complete.SLOTS) - 1)
    assert rig.c.wrong == 0 and rig.c.elapsed_ps > 0 and rig.limit() > 0
    assert all(cycles > 0 for cycles in rig.cycles()[:1]) and (rig.cycles()[2] > 0) == watch


def test_a_wrong_sum_ends_a_benchmark(tmp_path):
    need("cc")
    bench, native = complete.compiled(tmp_path)
    ports = complete.memory_ports(64)
    rig = complete.Rig(64, ports, bench, native)
    rig.c.count = 1
    rig.c.work[1] = rig.c.work[0]  # two workers on one tensor
    with pytest.raises(SystemExit, match="wrong|nothing moved"):
        rig.run()
    rig.close()
