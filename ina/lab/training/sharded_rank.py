"""One rank of a sharded training: ``python -m ina.lab.training.sharded_rank CONFIG.json WAY FOLDER`` with torchrun's variables.

    ina      gathers and reduce-scatters go through the switch
    rings    they go round rings: Gloo's gather, and a reduce-scatter of Gloo's messages
    gloo     they are Gloo's own, whose reduce-scatter is an all-reduce: with n ranks it sends 2 (1 - 1/n) S for S bytes

The training is torch's own FSDP2. Its layers multiply parameters by what is drawn for each rank and step, which takes next to no
time, so a step is its communication. Each rank writes its times to a file of its own, since messages would be bytes on the links.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from ina.base.extras import extra

with extra("torch"):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard
    from torch.distributed.tensor import DTensor

from ina import codecs
from ina.lab.kind import from_dict
from ina.lab.kinds.sharded import START, Sharded
from ina.lab.training.launch import die_with_parent, leave, say_where_on_request
from ina.lab.training.rank import say
from ina.lab.virtual.virtual_network import WrongSum

WARM = 1  # steps before what is measured: torch and the back end make their memory
ALLOWED = 1e-6  # of a parameter after a step: sums of small whole numbers are exact, thirds of them are rounded
NEEDED = "set_separate_reduce_scatter_group"  # of torch's FSDPModule


def slopes(config: Sharded, step: int, layer: int, rank: int, part: slice) -> torch.Tensor:
    """Returns a rank's gradients of a part of a layer, float32: whole numbers from -8 to 8, whose sums are exact in any order."""
    index = torch.arange(part.start, part.stop)
    return ((31 * index + 7 * step + 5 * layer + (3 + index % 11) * rank + config.seed) % 17 - 8).float()


class Layer(nn.Module):
    """A layer whose gradients are ``slopes``, and whose output depends on all parameters."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(elements))

    def forward(self, x: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        return x + (self.weight * slopes).sum()


class Model(nn.Module):
    """Layers, one after the other."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, slopes: Sequence[torch.Tensor]) -> torch.Tensor:
        x = torch.zeros(())
        for layer, own in zip(self.layers, slopes, strict=True):
            x = layer(x, own)
        return x


class Ring:
    """Reduce-scatter round a ring: in n - 1 turns each rank adds a piece that comes from the one before it, and passes it on. Of
    the interface that torch's FSDPModule.set_custom_reduce_scatter expects."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, op: dist.ReduceOp,
                 async_op: bool = False) -> None:
        n, rank = group.size(), group.rank()
        pieces, incoming = input_tensor.chunk(n), torch.empty_like(output_tensor)
        for turn in range(1, n):
            sent = dist.isend(pieces[(rank - turn) % n], group=group, group_dst=(rank + 1) % n)
            dist.recv(incoming, group=group, group_src=(rank - 1) % n)
            assert sent is not None  # it is for ranks outside the group
            sent.wait()
            pieces[(rank - turn - 1) % n].add_(incoming)
        output_tensor.copy_(pieces[rank])
        if op == dist.ReduceOp.AVG:
            output_tensor.div_(n)


def sharded(config: Sharded, way: str) -> tuple[Model, list[Layer]]:
    """Returns the model and its layers, each sharded by itself. Raises SystemExit: this torch is too old."""
    if not hasattr(FSDPModule, NEEDED):
        raise SystemExit(f"world = 'testbed': torch {torch.__version__} has no FSDPModule.{NEEDED}; expected 2.13 or newer")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layers = [Layer(config.elements // config.layers) for _ in range(config.layers)]
    for layer in layers:
        sharded = fully_shard(layer, mesh=mesh)
        if way == "rings":
            sharded.set_custom_reduce_scatter(Ring())  # type: ignore[arg-type]  # its class is in a private module
    model = Model(layers)
    whole = fully_shard(model, mesh=mesh)  # the same object, of another class
    if config.overlap:
        whole.set_separate_reduce_scatter_group()
        whole._set_unshard_async_op(True)
    return model, layers


def train(config: Sharded, way: str) -> list[tuple[float, float]]:
    """Trains, with a word to the launcher before and after what is measured. Returns begin and end of each step, s of the
    machine's monotonic clock. Raises WrongSum: this rank has other parameters than it should."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model, layers = sharded(config, way)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    size = config.elements // config.layers
    own = slice(rank * size // world, (rank + 1) * size // world)
    times = []
    for step in range(WARM + config.steps):
        given = [slopes(config, step, layer, rank, slice(0, size)) for layer in range(config.layers)]
        dist.barrier()
        if step == WARM:
            if rank == 0:
                say("start")
                sys.stdin.readline()
            dist.barrier()
        began = time.monotonic()
        model(given).backward()
        ended = time.monotonic()
        if step >= WARM:
            times.append((began, ended))
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    if rank == 0:
        say("end")
    for number, layer in enumerate(layers):
        right = -sum(slopes(config, step, number, each, own) for step in range(WARM + config.steps) for each in range(world))
        assert isinstance(layer.weight, DTensor)
        deviation = float((layer.weight.to_local() - right / world).abs().max())
        if deviation > ALLOWED * (WARM + config.steps):
            raise WrongSum(f"{way}: layer {number}: rank {rank}'s parameters are off by {deviation:g}, expected at most "
                           f"{ALLOWED * (WARM + config.steps):g}")
    return times


def main() -> None:
    die_with_parent()
    say_where_on_request()
    torch.set_num_threads(1)
    config_path, way, folder = sys.argv[1:]
    config = from_dict(json.loads(Path(config_path).read_text()))
    assert isinstance(config, Sharded)  # only these have such ranks
    if way == "ina":
        import ina.backend

        ina.backend.register()  # needed where the package is not installed, only checked out
        os.environ["INA_CHECK"] = config.check
        os.environ["INA_CODEC"] = codecs.DEFAULT  # so that the switch does all that it can, and no times choose a way
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, rank == 0, timedelta(seconds=START))
    dist.init_process_group("ina" if way == "ina" else "gloo", store=store, rank=rank, world_size=world,
                            timeout=timedelta(seconds=config.timeout))
    try:
        times = train(config, way)
        stats = ina.backend.stats() if way == "ina" else {}
        path = Path(folder) / f"{way}-rank{rank}.json"
        path.write_text(json.dumps({"steps": times, "stats": stats}))
    finally:
        dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    main()
