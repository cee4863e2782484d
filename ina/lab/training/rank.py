"""One rank of a training job: ``python -m ina.lab.training.rank CONFIG.json BACKEND FOLDER`` with torchrun's variables.

Rank 0 reports to the runner in JSON lines on standard output; everything else goes to standard error.
(No postponed annotations here: torch inspects the hook's.)
"""

import contextlib
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np

from ina.base.extras import extra

with extra("torch"):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

from ina.lab.kind import from_dict
from ina.lab.kinds.training import Config
from ina.lab.training import data
from ina.lab.training.launch import die_with_parent, leave, say_where_on_request
from ina.lab.training.recording import Recorder


def say(kind: str, **fields: object) -> None:
    print(json.dumps({"kind": kind, **fields}), flush=True)


def cnn(channels: int, hidden: int) -> nn.Module:
    """Two convolutions, of ``channels`` and twice as many, and two linear layers with ``hidden`` units between them.

    Smooth on purpose: with ReLU and max pooling, differences of one rounding grow ten-thousandfold within 100 steps
    (measured), and comparing the back ends' parameters would say nothing about their sums.
    """
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(2 * channels * 7 * 7, hidden), nn.GELU(), nn.Linear(hidden, 10),
    )  # fmt: skip


MODELS = {"cnn": (16, 256), "small": (8, 48)}  # kinds/training.py has their numbers of parameters


class AllReduceClock:
    """DDP communication hook: averages buckets as DDP itself does, and notes when each starts and ends."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.spans: list[list[float]] = []
        self.bytes = 0

    def hook(self, _state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        span = [time.perf_counter(), 0.0]
        self.spans.append(span)
        tensor = bucket.buffer().div_(self.workers)
        self.bytes += tensor.numel() * tensor.element_size()
        future = dist.all_reduce(tensor, async_op=True).get_future()

        def done(result: torch.futures.Future) -> torch.Tensor:
            span[1] = time.perf_counter()
            return result.value()[0]

        return future.then(done)

    def take(self) -> tuple[float, int]:
        """Returns seconds in which at least one all-reduce was under way, and bytes reduced, since the last call."""
        total = 0.0
        end = 0.0
        for start, stop in sorted(self.spans):
            total += max(0.0, stop - max(start, end))
            end = max(end, stop)
        amount, self.bytes, self.spans = self.bytes, 0, []
        return total, amount


@torch.no_grad()
def accuracy(model: nn.Module, dataset: data.Dataset) -> float:
    hits = 0
    for start in range(0, len(dataset.test_labels), 1000):
        images = torch.from_numpy(dataset.normalised(dataset.test_images[start : start + 1000]))
        hits += int((model(images).argmax(1).numpy() == dataset.test_labels[start : start + 1000]).sum())
    return hits / len(dataset.test_labels)


def train(config: Config, backend: str, folder: Path) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset, source = data.load(config.data)
    count = len(dataset.train_labels)
    steps_per_epoch = count // (config.batch * world)
    if steps_per_epoch == 0:
        raise SystemExit(f"batch = {config.batch} times {world} workers is more than the {count} training images")
    total = min(config.steps or steps_per_epoch * config.epochs, steps_per_epoch * config.epochs)

    torch.manual_seed(config.seed)
    model = DistributedDataParallel(cnn(*MODELS[config.model]), bucket_cap_mb=config.bucket_mb)
    clock = AllReduceClock(world)
    model.register_comm_hook(None, clock.hook)
    optimiser = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=config.momentum)
    criterion = nn.CrossEntropyLoss()
    if rank == 0:
        parameters = sum(p.numel() for p in model.parameters())
        say("start", steps=total, data=dataset.name, source=source, parameters=parameters, time=time.time())

    recorder = Recorder(model) if config.record and rank == 0 and backend == config.backends[0] else None
    began = time.perf_counter()
    step = 0
    with recorder or contextlib.nullcontext():
        while step < total:
            order = np.random.default_rng([config.seed, step // steps_per_epoch]).permutation(count)
            for index in range(min(steps_per_epoch, total - step)):
                start = time.perf_counter()
                base = (index * world + rank) * config.batch
                batch = order[base : base + config.batch]
                images = torch.from_numpy(dataset.normalised(dataset.train_images[batch]))
                optimiser.zero_grad()
                loss = criterion(model(images), torch.from_numpy(dataset.train_labels[batch]))
                loss.backward()
                optimiser.step()
                step += 1
                seconds = time.perf_counter() - start
                reduce_seconds, amount = clock.take()
                if rank == 0:
                    say("step", step=step, steps=total, loss=loss.item(), seconds=seconds, allreduce=reduce_seconds, bytes=amount)
                    if step == min(config.compare_step, total):
                        flat = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
                        np.save(folder / f"parameters-{backend}-step{step}.npy", flat)
    seconds = time.perf_counter() - began
    if recorder is not None:
        recorder.write(Path(config.record))
    model.eval()
    if rank == 0:
        say("end", accuracy=accuracy(model.module, dataset), seconds=seconds, stats=backend_stats(backend))
    dist.barrier()


def backend_stats(backend: str) -> dict[str, object]:
    """Returns this rank's operations by path, and its worker's counters; empty for a back end without counters."""
    if backend == "gloo":
        return {}
    import ina.backend

    return ina.backend.stats()


def main() -> None:
    die_with_parent()
    say_where_on_request()
    torch.set_num_threads(1)
    config_path, backend, folder = sys.argv[1:]
    whole = from_dict(json.loads(Path(config_path).read_text()))
    assert isinstance(whole, Config)  # only trainings have ranks
    config = whole.with_backend(backend)
    os.environ["INA_PROTOCOL"] = config.protocol
    os.environ["INA_PROGRAM"] = str(config.program_path.absolute())
    os.environ["INA_VALUES"], os.environ["INA_SLOTS"] = str(config.values), str(config.slots)
    if config.faults:
        os.environ["INA_FAULT"] = config.faults
    if config.pcap:
        os.environ["INA_CAPTURE"] = config.pcap
    if backend != "gloo":
        import ina.backend

        ina.backend.register()  # needed where the package is not installed, only checked out
    dist.init_process_group("gloo" if backend == "gloo" else "ina", timeout=timedelta(seconds=config.timeout))
    try:
        train(config, backend, Path(folder))
    finally:
        dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    main()
