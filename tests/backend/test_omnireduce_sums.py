"""Sums by look-ahead in the switch, in real ranks."""

import pytest
from ranks import run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")


def test_look_ahead_is_the_sum_with_the_bytes_of_the_blocks(tmp_path):
    """omnireduce-ahead as the codec of a group: embeddings' gradients, of which each rank has few rows."""
    for report in succeed(run(tmp_path, 2, """
        rank, n = start()
        mine = torch.zeros(64 * 1000)
        mine[64 * 100 * rank:][:128] = torch.arange(1., 129) * (rank + 1)
        mine[:64] = 0.5
        expected = mine.clone()
        dist.all_reduce(expected, group=dist.new_group(backend="gloo"))
        before = ina.backend.stats()["worker"]["tx_bytes"]
        dist.all_reduce(mine)
        stats = ina.backend.stats()
        say(equal=bool(torch.equal(mine, expected)), sent=stats["worker"]["tx_bytes"] - before, reasons=stats["reasons"])
        dist.destroy_process_group()
    """, INA_PROTOCOL="omnireduce", INA_CODEC="omnireduce-ahead", INA_VALUES="64")):
        assert report["equal"] and report["reasons"] == {}
        assert report["sent"] < 0.2 * 4 * 64 * 1000
