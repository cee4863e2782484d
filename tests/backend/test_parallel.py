"""The examples of parallel training compare their losses with those of one process, and end with an error if they differ."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import child
import pytest
from folders import files

pytestmark = pytest.mark.build
pytest.importorskip("torch", reason="the back end needs torch")

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples" / "parallel"
SCRIPTS = [path for path in files(EXAMPLES, "*.py") if path.stem not in ("common", "elastic", "replicas", "shrink")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
               "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "",  # unbuffered, lines of several ranks would mix
               "INA_CODEC": "block"}  # the switch by every call, without measured choices


@pytest.mark.later
@pytest.mark.timeout(1800)
def test_parallel_training_has_the_losses_of_one_process():
    run = child.run([sys.executable, "-m", "tests.forked", "2", *map(str, SCRIPTS)], 1700, cwd=ROOT, env=ENVIRONMENT)
    assert run.returncode == 0, run.stdout + run.stderr
    differences = re.findall(r"^(.+?) +loss .* (\S+)$", run.stdout, re.M)
    assert len(differences) == 22 and all(float(value) < 0.05 for _, value in differences), run.stdout
    ways = re.findall(r"^  (\w+) +(\d+) through the switch +(\d+) through Gloo$", run.stdout, re.M)
    sums = {"allreduce", "broadcast", "_allgather_base", "_reduce_scatter_base"}
    assert sums <= {name for name, _, _ in ways} and all(gloo == "0" for name, _, gloo in ways if name in sums)
    assert sum(int(switch) for _, switch, _ in ways) > 400


def test_a_wrong_loss_is_an_error():
    code = "import sys; sys.path.insert(0, 'examples/parallel'); import common; common.dist.get_rank = lambda: 1; " \
           "common.compare('x', [1.0, 2.0], [1.0, 2.1])"
    run = child.run([sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT)
    assert run.returncode == 1 and "are not those of one process" in run.stderr


@pytest.mark.parametrize("ranks", [1, 3, 6])
def test_servers_have_equal_numbers_of_ranks(ranks):
    run = child.run([sys.executable, str(EXAMPLES / "zeropp.py")], cwd=ROOT, env={**ENVIRONMENT, "WORLD_SIZE": str(ranks)})
    assert run.returncode == 1 and f"zeropp.py: {ranks} ranks, expected 2, 4, 8, ...: " in run.stderr, run.stderr


@pytest.mark.later
@pytest.mark.parametrize(("killed", "options"), [([1, 2], []), ([0, 3], ["--back"])])
def test_shrinking_and_growing_in_place(killed, options):
    """Two of four ranks are killed in DDP's backward pass; the others have the losses of one process, before and after, and so
    have those that come back."""
    command = [sys.executable, str(EXAMPLES / "shrink.py"), "--ranks", "4", "--kill", *map(str, killed), *options]
    run = child.run(command, cwd=ROOT, env=ENVIRONMENT)
    assert run.returncode == 0, run.stdout + run.stderr
    left = [rank for rank in range(4) if rank not in killed]
    for number, rank in enumerate(left):
        assert re.search(rf"^rank {rank} of 4 goes on after .* is lost: its connection closed$", run.stdout, re.M), run.stdout
        assert f"rank {rank} of 4 is rank {number} of 2 from step " in run.stdout
    for rank in range(4) if options else ():
        assert f"rank {rank} of 4 is rank {rank} of 4 from step 8 on" in run.stdout, run.stdout
    assert float(re.search(r"2 killed, \d at the end .* (\S+)$", run.stdout, re.M)[1]) < 1e-4


@pytest.mark.parametrize("killed", [["7"], ["0", "1", "2", "3"]])
def test_ranks_to_kill_must_exist_and_leave_one(killed):
    run = child.run([sys.executable, str(EXAMPLES / "shrink.py"), "--kill", *killed], cwd=ROOT, env=ENVIRONMENT)
    assert run.returncode == 2 and "expected ranks from 0 to 3, and not all of them" in run.stderr, run.stderr


@pytest.mark.later
def test_elastic_restart(tmp_path):
    """torchrun starts the ranks again after one was killed; training goes on from the checkpoint, over a new group."""
    run = child.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1",
         "--monitor-interval", "0.1", str(EXAMPLES / "elastic.py"), str(tmp_path / "checkpoint.pt"), "--kill", "1", "5"],
        cwd=ROOT, env=ENVIRONMENT)
    assert run.returncode == 0, run.stderr
    assert f"signal {int(signal.SIGKILL)}" in run.stderr or "SIGKILL" in run.stderr or "exitcode: -9" in run.stderr, run.stderr
    assert "restart 1: from step 5" in run.stdout, run.stdout
    assert float(re.search(r"elastic .* (\S+)$", run.stdout, re.M)[1]) < 1e-4
