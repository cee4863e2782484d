"""Training over DPDK: torch ranks whose frames go by memif to ina-dpdk-switch."""

import os
import re
import sys

import child
import pytest
from capabilities import need
from dpdk_programs import ROOT, switch

pytestmark = [pytest.mark.hardware, pytest.mark.later]
need("dpdk", "cc", "torch")

GROUPS = """
import torch, torch.distributed as dist
dist.init_process_group("ina")
rank, size = dist.get_rank(), dist.get_world_size()
groups = [dist.new_group([0, 1]), dist.new_group([1, 2])]    # jobs of their own, on the same device
x = torch.arange(5000, dtype=torch.int32) * (rank + 1)
dist.all_reduce(x)
assert torch.equal(x, torch.arange(5000, dtype=torch.int32) * 6), x
for turn in range(5):
    works = []
    for first, group in enumerate(groups):
        if rank - first in (0, 1):
            y = torch.full((3000 + turn,), float(rank + 1))
            works.append((dist.all_reduce(y, group=group, async_op=True), y, 2 * first + 3))
    for work, y, wanted in works:
        work.wait()
        assert torch.equal(y, torch.full_like(y, wanted)), (rank, y, wanted)
print("all right", flush=True)
dist.destroy_process_group()
"""


def launch(ranks, script, **environment):
    """The script's ranks, as torchrun would start them."""
    command = [sys.executable, "-m", "tests.forked", str(ranks), str(script)]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("INA_") or key == "INA_CACHE"}
    return child.run(command, child.TRAINING, cwd=ROOT,
                     env=dict(inherited, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1", **environment))


def served(folder, ranks):
    ports = [word for i in range(ranks) for word in ("--port", f"{i}=memif:{folder}/ports.sock")]
    return switch("--program", ROOT / "p4/switchml.p4", "-D", "VALUES=256", *ports, "--control", folder / "control")


def test_training_with_two_ranks(tmp_path):
    with served(tmp_path, 2) as running:
        done = launch(2, ROOT / "examples/train/train.py", INA_SWITCH=str(tmp_path / "control"),
                        INA_PORT=f"dpdk:memif:{tmp_path}/ports.sock")
        assert done.returncode == 0, done.stdout + done.stderr
        losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", done.stdout)]
        assert len(losses) == 4 and losses[-1] < losses[0]
        summary = running.stop()
    assert all(port["rx_packets"] > 200 * 20 for port in summary["ports"].values())
    assert summary["mbufs"]["in_use"] <= 128


def test_groups_of_one_process_share_its_device_under_loss(tmp_path):
    script = tmp_path / "groups.py"
    script.write_text(GROUPS)
    with served(tmp_path, 3) as running:
        done = launch(3, script, INA_SWITCH=str(tmp_path / "control"), INA_FAULT="loss=0.01,dup=0.01,seed=3",
                        INA_PORT=f"dpdk@{{rank}}:memif:{tmp_path}/ports.sock",
                        INA_DPDK="--no-huge -m 96 --no-shconf --no-pci --no-telemetry -l 0 --log-level error")
        assert done.returncode == 0 and done.stdout.count("all right") == 3, done.stdout + done.stderr
        summary = running.stop()
    assert all(port["rx_packets"] > 100 for port in summary["ports"].values())


@pytest.mark.parametrize(("environment", "message"), [
    ({"INA_PORT": "dpdk:memif:/tmp/x"}, "set INA_SWITCH"),
    ({"INA_PORT": "dpdk@x:memif:/tmp/x"}, "expected dpdk:DEVICE"),
    ({"INA_PORT": "dpdk"}, "expected dpdk:DEVICE"),
    ({"INA_PORT": "memif:/tmp/x"}, "expected shm, udp or dpdk:DEVICE"),
    ({"INA_DPDK": "-l '0"}, "no command line"),
])
def test_wrong_settings_are_named(monkeypatch, environment, message):
    from ina.backend.settings import Settings

    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(ValueError, match=message) as wrong:
        Settings.read()
    assert next(iter(environment)) in str(wrong.value)
