"""Elastic training: a rank dies, torchrun starts all again, and training goes on from the last checkpoint.

    torchrun --standalone --nproc-per-node 2 --max-restarts 1 examples/parallel/elastic.py /tmp/checkpoint.pt --kill 1 5

``--kill RANK STEP``: that rank kills itself in that step of the first life, like a machine that fails.
"""

import argparse
import os
import signal
from pathlib import Path

import common
import torch
from common import RATE, STEPS, batch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("checkpoint", type=Path)
parser.add_argument("--kill", type=int, nargs=2, metavar=("RANK", "STEP"))
options = parser.parse_args()

rank, ranks = common.start()
life = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
net = DistributedDataParallel(common.model())
optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
losses: list[float] = []
if options.checkpoint.exists():
    saved = torch.load(options.checkpoint)
    net.module.load_state_dict(saved["model"])
    losses = saved["losses"]
if rank == 0:
    print(f"restart {life}: from step {len(losses)}", flush=True)
for step in range(len(losses), STEPS):
    if life == 0 and options.kill == [rank, step]:
        os.kill(os.getpid(), signal.SIGKILL)
    inputs, labels = batch(step, rank, ranks)
    loss = nn.functional.cross_entropy(net(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(common.mean(loss))
    if rank == 0:
        scratch = options.checkpoint.with_suffix(".new")
        torch.save({"model": net.module.state_dict(), "losses": losses}, scratch)
        scratch.replace(options.checkpoint)
common.compare("elastic", losses, common.alone())
common.finish()
