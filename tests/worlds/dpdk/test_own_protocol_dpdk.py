"""A protocol that `ina protocol new` has written, as it is: it trains over DPDK."""

import json

import pytest
from capabilities import need
from dpdk_programs import switch
from test_dpdk_torch import launch
from voting_ranks import RANK, STEPS

from ina import cli

pytestmark = [pytest.mark.hardware, pytest.mark.later]
need("dpdk", "cc", "torch")


def test_a_training_by_majority_vote_over_dpdk(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["protocol", "new", "vote", "--operation", "majority"]) == 0
    program, script = tmp_path / "vote/vote.p4", tmp_path / "rank.py"
    script.write_text(RANK)
    ports = [word for i in range(3) for word in ("--port", f"{i}=memif:{tmp_path}/ports.sock")]
    with switch("--program", program, "-D", "VALUES=64", *ports, "--control", tmp_path / "control") as running:
        done = launch(3, script, INA_SWITCH=str(tmp_path / "control"), INA_PROTOCOL=str(program),
                      INA_PORT=f"dpdk@{{rank}}:memif:{tmp_path}/ports.sock", INA_FAULT="loss=0.01,dup=0.01,seed=3",
                      INA_DPDK="--no-huge -m 96 --no-shconf --no-pci --no-telemetry -l 0 --log-level error")
        assert done.returncode == 0, done.stdout + done.stderr
        running.stop()
    ends = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(ends) == 3 and {end["own"] for end in ends} == {STEPS} and len({end["end"] for end in ends}) == 1
    assert all(end["last"] < 0.7 * end["first"] for end in ends), "it learns"
