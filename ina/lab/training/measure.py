"""Layers of a torch model as a workload: parameters, and compute times measured on this machine."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from ina.base.extras import extra

with extra("torch"):
    import torch
    from torch import nn

from ina.lab.training.models import MODELS
from ina.lab.virtual import layers


def measure_layers(model: nn.Module, batch: torch.Tensor, labels: torch.Tensor, repeats: int = 30) -> list[layers.Layer]:
    """Measures each module of a sequential model: medians over ``repeats`` training steps after three that do not count.

    A layer's backward time is from the gradient of its output, which is there when the layer after it is done, to that of its
    input.
    """
    leaves = list(model.named_children())
    marks: dict[str, dict[str, float]] = {name: {} for name, _ in leaves}
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name, _ in leaves}

    def mark(name: str, event: str) -> Callable[..., None]:
        return lambda *_: marks[name].__setitem__(event, time.perf_counter())

    hooks = []
    for name, module in leaves:
        hooks += [module.register_forward_pre_hook(mark(name, "in")), module.register_forward_hook(mark(name, "out"))]
    for name, module in leaves[1:]:  # the first layer's input needs no gradient: the pass ends with it
        hooks.append(module.register_full_backward_hook(mark(name, "done")))
    for turn in range(repeats + 3):
        model.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(batch), labels)
        before = time.perf_counter()
        loss.backward()
        marks[leaves[0][0]]["done"] = time.perf_counter()
        if turn < 3:
            continue
        for name, _ in reversed(leaves):
            own = marks[name]
            times[name][0].append(own["out"] - own["in"])
            times[name][1].append(own["done"] - before)
            before = own["done"]
    for hook in hooks:
        hook.remove()
    sizes = {name: sum(p.numel() for p in module.parameters()) for name, module in leaves}
    kinds = {name: f"{name}.{type(module).__name__.lower()}" for name, module in leaves}
    ps = {name: [round(1e12 * statistics.median(each)) for each in times[name]] for name, _ in leaves}
    return [layers.Layer(kinds[name], sizes[name], *ps[name]) for name, _ in leaves]


def write_fashion_mnist(path: Path, name: str = "cnn", batch: int = 64) -> list[layers.Layer]:
    """Measures the training's own model on random images, one thread, and writes its workload."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    images, labels = torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
    model = measure_layers(MODELS[name](), images, labels)
    layers.write(path, model, f"Model {name} of the Fashion-MNIST training, {batch} images a worker.\nTimes measured with torch "
                              f"{torch.__version__}, one thread, {platform.machine()}.")
    return model
