"""ZeRO-3, and ZeRO++ (arXiv 2306.10209) over the same group, with the bytes of both: parameters are gathered in 8 bits, in the
backward pass within each server only; gradients are exchanged in 4 bits."""

import os
from collections import Counter

import common
import torch
import torch.distributed as dist
from common import BATCH, CLASSES, STEPS, WIDTH, batch
from torch import nn
from torch.nn.functional import linear

import ina.backend
from ina import codecs

SERVERS, HIDDEN, RATE = 2, 512, 0.1
WEIGHTS, GRADIENTS = codecs.named("qsgd-8"), codecs.named("qsgd-4")  # 127 or 7 levels of each sign in 512 values, by chance


class Zero3:
    """A linear layer of which each rank keeps a piece of the parameters."""

    def __init__(self, layer: nn.Linear, local: dist.ProcessGroup, carried: Counter):
        self.rank, self.ranks, self.local = dist.get_rank(), dist.get_world_size(), local
        self.shape, self.carried, self.calls = layer.weight.shape, carried, 0
        flat = torch.cat([layer.weight.detach().flatten(), layer.bias.detach()])
        self.elements = flat.numel()
        self.piece = self.padded(flat).chunk(self.ranks)[self.rank].clone().requires_grad_()

    def padded(self, flat: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(flat, (0, -flat.numel() % self.ranks))

    def parameters(self, flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns weight and bias."""
        return flat[: self.shape.numel()].view(self.shape), flat[self.shape.numel() : self.elements]

    def collective(self, phase: str, call, *args, **kwargs) -> None:
        """Makes a collective, and counts what this rank's link carries, headers included."""
        before = ina.backend.stats()["worker"]
        call(*args, **kwargs)
        after = ina.backend.stats()["worker"]
        for way in ("tx", "rx"):
            self.carried[phase, way] += after[f"{way}_bytes"] - before[f"{way}_bytes"]

    def gather(self, phase: str, piece: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
        whole = piece.new_empty(piece.numel() * dist.get_world_size(group))
        self.collective(phase, dist.all_gather_into_tensor, whole, piece, group=group)
        return whole

    def forward(self) -> torch.Tensor:
        return self.gather("forward", self.piece.detach())

    def backward(self) -> torch.Tensor:
        return self.gather("backward", self.piece.detach())

    def reduce(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns the ranks' average of this rank's piece."""
        own = torch.empty_like(self.piece)
        self.collective("gradients", dist.reduce_scatter_tensor, own, self.padded(gradient), op=dist.ReduceOp.AVG)
        return own


class ZeroPP(Zero3):
    """The same with messages of few bits. A server's ranks keep all parameters together, as the forward pass has them."""

    def write(self, codec: codecs.Codec, piece: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(codecs.write(codec, piece.detach().numpy(), self.calls * self.ranks + self.rank).copy())

    def read(self, codec: codecs.Codec, messages: torch.Tensor) -> list[torch.Tensor]:
        """Returns the values of each rank's message."""
        return [torch.from_numpy(codecs.read(codec, message.numpy(), self.piece.numel(), self.calls * self.ranks + rank))
                for rank, message in enumerate(messages.chunk(self.ranks))]

    def forward(self) -> torch.Tensor:
        whole = torch.cat(self.read(WEIGHTS, self.gather("forward", self.write(WEIGHTS, self.piece))))
        local = dist.get_world_size(self.local)
        self.secondary = nn.functional.pad(whole, (0, -whole.numel() % local)).chunk(local)[dist.get_rank(self.local)].clone()
        return whole

    def backward(self) -> torch.Tensor:
        alone = dist.get_world_size(self.local) == 1
        return self.secondary if alone else self.gather("backward", self.secondary, self.local)

    def reduce(self, gradient: torch.Tensor) -> torch.Tensor:
        sent = torch.cat([self.write(GRADIENTS, piece) for piece in self.padded(gradient).chunk(self.ranks)])
        received = torch.empty_like(sent)
        self.collective("gradients", dist.all_to_all_single, received, sent)
        average = torch.stack(self.read(GRADIENTS, received)).mean(0)
        self.calls += 1
        return average


class Layer(torch.autograd.Function):
    """Gathers a layer's parameters in both passes, and keeps none between them."""

    @staticmethod
    def forward(ctx, inputs, piece, layer):
        ctx.save_for_backward(inputs)
        ctx.layer = layer
        return linear(inputs, *layer.parameters(layer.forward()))

    @staticmethod
    def backward(ctx, gradient):
        (inputs,) = ctx.saved_tensors
        weight, _ = ctx.layer.parameters(ctx.layer.backward())
        own = ctx.layer.reduce(torch.cat([(gradient.T @ inputs).flatten(), gradient.sum(0)]))
        return gradient @ weight, own, None


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def train(kind: type[Zero3], local: dist.ProcessGroup) -> tuple[list[torch.Tensor], Counter]:
    """Trains; returns this rank's losses, and the bytes of its link by phase and way."""
    carried: Counter = Counter()
    layers = [kind(layer, local, carried) for layer in model() if isinstance(layer, nn.Linear)]
    optimizer = torch.optim.SGD([layer.piece for layer in layers], lr=RATE)
    losses = []
    for step in range(STEPS):
        values, labels = batch(step, dist.get_rank(), dist.get_world_size())
        for layer in layers:
            values = Layer.apply(values.relu() if layer is not layers[0] else values, layer.piece, layer)
        loss = nn.functional.cross_entropy(values, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, carried


if __name__ == "__main__":
    os.environ.setdefault("INA_PROTOCOL", "receivers")  # with others, gathers and reduce-scatters are sums for all
    os.environ.setdefault("INA_VALUES", "256")
    if (ranks := int(os.environ["WORLD_SIZE"])) % SERVERS or BATCH % ranks:
        raise SystemExit(f"zeropp.py: {ranks} ranks, expected 2, 4, 8, ...: as many on each of {SERVERS} servers, with equal "
                         f"shares of {BATCH} samples; torchrun --nproc-per-node has the number")
    rank, _ = common.start()
    local, _ = dist.new_subgroups(ranks // SERVERS)
    expected = common.alone(model(), rate=RATE)
    for name, kind, tolerance in (("ZeRO-3", Zero3, 1e-4), ("ZeRO++", ZeroPP, 2e-3)):
        losses, carried = train(kind, local)
        common.compare(name, [common.mean(loss) for loss in losses], expected, tolerance)
        if rank == 0:
            for phase in ("forward", "backward", "gradients"):
                up, down = (carried[phase, way] / STEPS / 1e3 for way in ("tx", "rx"))
                print(f"  {phase:30} {up:8.1f} KB up {down:8.1f} KB down in a step", flush=True)
    common.finish()
