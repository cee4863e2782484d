"""A training whose workers are in one process: their gradients are summed by a codec as a switch gives it (ina.codecs.reduced).

The same trajectory as with ranks and a switch, without their processes: for accuracy against bytes, where time is that of
another world.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ina.base.extras import extra
from ina.base.plurals import counted

with extra("torch"):
    import torch
    from torch import nn

from ina import codecs
from ina.backend.optimizers import OneBitAdam, ZeroOneAdam
from ina.codecs.codec import Operation, Rounds
from ina.codecs.costs import Watched
from ina.lab.training import data
from ina.lab.training.models import MODELS, TRIED, right_answers
from ina.lab.virtual.virtual_network import WrongSum


@dataclass
class Trajectory:
    """``seconds``: compute of worker 0, and what the codec took of it, by step; ``rounds``: words of each round in a step, mean;
    ``own``: of them through a program's own operation."""

    parameters: int
    dataset: str
    losses: list[float] = field(default_factory=list)
    accuracies: list[tuple[int, float]] = field(default_factory=list)
    accuracy: float = 0.0
    compute_seconds: list[float] = field(default_factory=list)
    codec_seconds: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)
    own: list[bool] = field(default_factory=list)
    flushed: int = 0
    diverged: int = 0  # the step whose loss was infinite or NaN, which was the last; 0: none


class Listed(Watched):
    """A codec, with the words of each round."""

    def __init__(self, inner: codecs.Codec) -> None:
        super().__init__(inner)
        self.sizes: list[int] = []
        self.kinds: list[Operation] = []

    def reduce(self, values: np.ndarray, call: codecs.Call) -> Rounds:
        running, result, number = super().reduce(values, call), None, 0
        while True:
            try:
                coming = running.send(result)  # type: ignore[arg-type]  # the first is None
            except StopIteration as end:
                return end.value
            if number == len(self.sizes):
                self.sizes.append(0)
                self.kinds.append(coming.operation)
            self.sizes[number] += coming.words.size
            number += 1
            result = yield coming


class Exchanges:
    """Averages of the workers' tensors, which are rounded to ``dtype``: by a codec or as float32."""

    def __init__(self, coders: Sequence[codecs.Codec], dtype: str) -> None:
        self.coded = [Listed(codec) for codec in coders]
        self.plain = [Listed(codecs.named(codecs.DEFAULT)) for _ in coders]
        self.dtype = getattr(torch, dtype)

    def average(self, tensors: Sequence[torch.Tensor], step: int, by_codec: bool = True) -> torch.Tensor:
        """Returns the average of flat float32 tensors, one of each worker. WrongSum: the workers have different results."""
        coders = self.coded if by_codec else self.plain
        sent = [tensor.to(self.dtype).to(torch.float32).numpy() for tensor in tensors]
        averages = codecs.reduced(coders, sent, average=True, step=step)
        if any(not np.array_equal(average, averages[0], equal_nan=True) for average in averages):
            raise WrongSum(f"codec {coders[0].inner.name}: the workers have different results after {counted(step + 1, 'step')}")
        return torch.from_numpy(averages[0]).to(self.dtype).to(torch.float32)

    def rounds(self, steps: int) -> Iterator[tuple[float, bool]]:
        """Yields for each round a worker's words in a step, mean, and whether a program's own operation made the result."""
        for coder in (self.plain[0], self.coded[0]):
            for words, operation in zip(coder.sizes, coder.kinds, strict=True):
                yield words / max(1, steps), operation == Operation.OWN


def slow_down(optimizers: Sequence[torch.optim.Optimizer], share: float) -> None:
    """Makes the optimizers' rates this share of what they were."""
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["lr"] *= share


class Common:
    """One model for all workers. An optimizer of torch applies their gradients' average."""

    def __init__(self, model: nn.Module, workers: int, make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
                 codec: str, dtype: str) -> None:
        self.models = [model] * workers
        self.parameters = list(model.parameters())
        self.optimizer = make(self.parameters)
        self.optimizers = [self.optimizer]
        self.exchanges = Exchanges([codecs.named(codec) for _ in range(workers)], dtype)
        self.gradients: list[torch.Tensor] = []

    def take(self) -> None:
        """Takes the gradients of the next worker from the model."""
        self.gradients.append(torch.cat([p.grad.flatten() for p in self.parameters if p.grad is not None]))
        self.optimizer.zero_grad()

    def step(self, step: int) -> float:
        """Makes a step; returns the seconds of the update."""
        average, self.gradients = self.exchanges.average(self.gradients, step), []
        began = time.perf_counter()
        for parameter, part in zip(self.parameters, average.split([p.numel() for p in self.parameters]), strict=True):
            parameter.grad = part.view(parameter.shape)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - began


class Each:
    """A model and an optimizer for each worker, which says itself what is exchanged (ina.backend.optimizers)."""

    def __init__(self, model: nn.Module, workers: int, make: Callable[[list[nn.Parameter]], OneBitAdam], dtype: str) -> None:
        self.models = [model, *(copy.deepcopy(model) for _ in range(workers - 1))]
        self.optimizers = [make(list(own.parameters())) for own in self.models]
        self.exchanges = Exchanges([own.codec for own in self.optimizers], dtype)

    def take(self) -> None:
        """Leaves gradients where they are."""

    def step(self, step: int) -> float:
        """Makes a step; returns the seconds of a worker's update."""
        began, exchanged = time.perf_counter(), 0.0
        running = [optimizer.advance() for optimizer in self.optimizers]
        sent = [own for own in (next(each, None) for each in running) if own is not None]
        if sent:
            before = time.perf_counter()
            average = self.exchanges.average([own.values for own in sent], sent[0].step, sent[0].codec is not None)
            exchanged = time.perf_counter() - before
            for each in running:
                with contextlib.suppress(StopIteration):
                    each.send(average.clone())
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        return (time.perf_counter() - began - exchanged) / len(self.models)


def _way(model: nn.Module, workers: int, optimizer: str, codec: str, dtype: str, lr: float, momentum: float,
         warm_up: int) -> Common | Each:
    match optimizer:
        case "sgd":
            return Common(model, workers, lambda own: torch.optim.SGD(own, lr=lr, momentum=momentum), codec, dtype)
        case "adam":
            return Common(model, workers, lambda own: torch.optim.Adam(own, lr=lr), codec, dtype)
    kind = {"1-bit-adam": OneBitAdam, "0-1-adam": ZeroOneAdam}[optimizer]
    return Each(model, workers, lambda own: kind(own, lr=lr, warm_up=warm_up, codec=codec), dtype)


def train(model: str, codec: str, workers: int, steps: int, batch: int, *, lr: float, momentum: float, seed: int, evaluate: int,
          folder: str = "", optimizer: str = "sgd", warm_up: int = 1,
          dtype: str = "float32", decay: bool = False) -> Iterator[Trajectory]:
    """Trains; yields the trajectory after each step, and last with the accuracy of the whole test set. ``decay``: the rate goes
    down from ``lr`` to 0 in equal steps.

    Raises data.DataError, WrongSum: the workers' results differ; and what a codec raises.
    """
    torch.set_num_threads(1)
    dataset, _ = data.load(folder)
    torch.manual_seed(seed)
    way = _way(MODELS[model](), workers, optimizer, codec, dtype, lr, momentum, warm_up)
    net, coder = way.models[0], way.exchanges.coded[0]
    criterion = nn.CrossEntropyLoss()
    run = Trajectory(sum(p.numel() for p in net.parameters()), dataset.name)
    count = len(dataset.train_labels)
    each = max(1, count // (batch * workers))
    order, first, seconds = np.empty(0, np.int64), 0.0, 0.0
    for step in range(steps):
        if step % each == 0:
            order = np.random.default_rng([seed, step // each]).permutation(count)
        for rank, own in enumerate(way.models):
            base = (step % each * workers + rank) * batch
            chosen = order[base : base + batch]
            began = time.perf_counter()
            images = torch.from_numpy(dataset.normalised(dataset.train_images[chosen]))
            loss = criterion(own(images), torch.from_numpy(dataset.train_labels[chosen]))
            loss.backward()
            way.take()
            if rank == 0:
                first, seconds = loss.item(), time.perf_counter() - began
        if not math.isfinite(first):
            run.diverged = step + 1
            break
        run.losses.append(first)
        before = coder.seconds
        run.compute_seconds.append(seconds + way.step(step))
        run.codec_seconds.append(coder.seconds - before)
        if decay:
            slow_down(way.optimizers, (steps - step - 1) / (steps - step))
        if evaluate and (step + 1) % evaluate == 0:
            run.accuracies.append((step + 1, accuracy(net, dataset, TRIED)))
        yield run
    for words, by_program in way.exchanges.rounds(len(run.losses)):
        run.rounds.append(words)
        run.own.append(by_program)
    run.flushed = coder.inner.flushed
    run.accuracy = accuracy(net, dataset)
    yield run


def accuracy(model: nn.Module, dataset: data.Dataset, count: int | None = None) -> float:
    """Returns the share of right answers among the first ``count`` test images (None: all)."""
    return right_answers(model, dataset, slice(count)) / len(dataset.test_labels[:count])
