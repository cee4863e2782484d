"""Recorder of a training's computation, as a workload for virtual time.

    model = DistributedDataParallel(net)
    with Recorder(model) as recorder:
        for batch in batches:
            ...                                  # forward, backward, optimiser: as always
    recorder.write(Path("mine.csv"))             # on one rank

Every parameter becomes a layer: its backward time is from the gradient before it to its own, in the order of arrival, which is
the order in which DDP fills its buckets. The first one's also has the loss. A module's forward time stands at its first
parameter. Work of a back end on the same processors is included in these times.
"""

from __future__ import annotations

import platform
import statistics
import time
from pathlib import Path

from ina.base.extras import extra

with extra("torch"):
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

from ina.lab.virtual import layers
from ina.lab.virtual.layers import Layer

SKIPPED = 3  # steps: the first ones allocate, and DDP makes its buckets anew after the first
PS = 1e12


class RecordingFailed(RuntimeError):
    """No step was recorded from its forward pass to the last gradient; the message says what is missing."""


class Recorder:
    """Hooks on a model, plain or in DistributedDataParallel; removed at the end of the ``with`` block."""

    def __init__(self, model: nn.Module, skip: int = SKIPPED) -> None:
        self._model, self._skip = model, skip
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        self._names = {p: name for name, p in inner.named_parameters() if p.requires_grad}
        self._leaves = {name: module for name, module in inner.named_modules() if not list(module.children())}
        self._hooks: list = []
        self._steps: list[tuple[dict[str, float], list[tuple[str, float]]]] = []  # forward by module; gradients as they arrive
        self._forward: dict[str, float] = {}
        self._arrivals: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._forward_end = 0.0  # end of the forward pass

    def __enter__(self) -> Recorder:
        hooks = [self._model.register_forward_pre_hook(self._begin), self._model.register_forward_hook(self._end_forward)]
        for name, module in self._leaves.items():
            hooks += [module.register_forward_pre_hook(lambda *_, n=name: self._began.__setitem__(n, time.perf_counter())),
                      module.register_forward_hook(lambda *_, n=name: self._add_forward(n))]
        hooks += [p.register_post_accumulate_grad_hook(self._gradient) for p in self._names]
        self._hooks = hooks
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _begin(self, *_: object) -> None:
        self._forward, self._arrivals = {}, {}

    def _add_forward(self, name: str) -> None:
        self._forward[name] = self._forward.get(name, 0.0) + time.perf_counter() - self._began[name]

    def _end_forward(self, *_: object) -> None:
        self._forward_end = time.perf_counter()

    def _gradient(self, parameter: torch.Tensor) -> None:
        self._arrivals[self._names[parameter]] = time.perf_counter()
        if len(self._arrivals) == len(self._names):
            arrivals = sorted(self._arrivals.items(), key=lambda item: item[1])
            begins = [self._forward_end, *(when for _, when in arrivals)]
            durations = [(name, when - begin) for (name, when), begin in zip(arrivals, begins, strict=False)]
            self._steps.append((self._forward, durations))

    def layers(self) -> list[Layer]:
        """Returns medians over the steps that count, in the order of the forward pass: gradients arrive in reverse.

        Raises RecordingFailed.
        """
        steps = self._steps[self._skip :]
        if not steps:
            missing = ", ".join(sorted(set(self._names.values()) - set(self._arrivals))[:3])
            reason = f"; no gradient came for {missing}" if missing else ""
            raise RecordingFailed(f"{len(self._steps)} whole steps were recorded, expected more than the {self._skip} that do "
                                  f"not count{reason}")
        order = [name for name, _ in reversed(steps[-1][1])]
        backward = {name: statistics.median(dict(gradients)[name] for _, gradients in steps) for name in order}
        forward = {name: statistics.median(times.get(name, 0.0) for times, _ in steps) for name in self._leaves}
        sizes = {name: parameter.numel() for parameter, name in self._names.items()}
        measured = []
        for name in order:
            before = forward.pop(name.rpartition(".")[0], 0.0)
            measured.append(Layer(name, sizes[name], round(PS * before), round(PS * backward[name])))
        rest = [Layer(f"{name}.{type(self._leaves[name]).__name__.lower()}".strip("."), 0, round(PS * seconds), 0)
                for name, seconds in forward.items() if seconds]
        return rest + measured

    def write(self, path: Path) -> list[Layer]:
        """Writes the workload's file, for the key ``layers``. Raises RecordingFailed, OSError."""
        measured = self.layers()
        cap = getattr(self._model, "bucket_bytes_cap", None)
        buckets = f"; its DDP had bucket_mb = {cap / layers.MIB:g}" if cap else ""
        if cap and not getattr(self._model, "bucket_bytes_cap_default", True):  # then DDP's first bucket is not smaller
            buckets += f", first_bucket_mb = {cap / layers.MIB:g}"
        layers.write(path, measured, f"Recorded from {len(self._steps) - self._skip} steps of a training{buckets}.\n"
                                     f"torch {torch.__version__}, {platform.machine()}.")
        return measured
