"""One rank of a training job: ``python -m ina.lab.training.rank CONFIG.json BACKEND FOLDER`` with torchrun's variables.

Rank 0 reports to the runner in JSON lines on standard output; everything else goes to standard error.
(No postponed annotations here: torch inspects the hook's.)
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np

from ina.base.extras import extra

with extra("torch"):
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

from ina import codecs
from ina.lab.kind import from_dict
from ina.lab.kinds.training import Training
from ina.lab.training import data
from ina.lab.training.launch import die_with_parent, leave, say_where_on_request
from ina.lab.training.models import MODELS, TRIED, right_answers
from ina.lab.training.recording import Recorder


def say(kind: str, **fields: object) -> None:
    print(json.dumps({"kind": kind, **fields}), flush=True)


Reduce = Callable[[dist.GradBucket], torch.futures.Future[torch.Tensor]]


def averaged(bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket as DDP itself does."""
    tensor = bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(tensor, async_op=True).get_future().then(lambda future: future.value()[0])


def coded(codec: str) -> Reduce:
    """Returns what averages a bucket by a codec of its own."""
    from ina.backend.hooks import Choice, per_bucket

    choice = Choice(codec=codec)
    return lambda bucket: per_bucket(lambda _: choice, bucket)


def of_the_ready(config: Training) -> tuple[Reduce, Callable[[], None]]:
    """Returns what averages a bucket over the ranks that are ready, and what ends that."""
    from ina.backend.ready import Buckets, average_ready

    buckets = Buckets(config.complete, late=config.late, deadline=config.deadline or None, least=config.least)
    return lambda bucket: average_ready(buckets, bucket), buckets.close


class AllReduceClock:
    """DDP communication hook: averages buckets by ``reduce``, and notes when each starts and ends."""

    def __init__(self, reduce: Reduce) -> None:
        self.reduce = reduce
        self.spans: list[list[float]] = []
        self.bytes = 0

    def hook(self, _state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        span = [time.perf_counter(), 0.0]
        self.spans.append(span)
        gradients = bucket.buffer()
        self.bytes += gradients.numel() * gradients.element_size()

        def done(result: torch.futures.Future) -> torch.Tensor:
            span[1] = time.perf_counter()
            return result.value()

        return self.reduce(bucket).then(done)

    def take(self) -> tuple[float, int]:
        """Returns seconds in which at least one all-reduce was under way, and bytes reduced, since the last call."""
        total = 0.0
        end = 0.0
        for start, stop in sorted(self.spans):
            total += max(0.0, stop - max(start, end))
            end = max(end, stop)
        amount, self.bytes, self.spans = self.bytes, 0, []
        return total, amount


def accuracy(model: nn.Module, dataset: data.Dataset, count: int | None = None) -> float:
    """Returns the share of right answers among the first ``count`` test images (None: all); each rank tries a part."""
    right = torch.tensor([right_answers(model, dataset, slice(dist.get_rank(), count, dist.get_world_size()))])
    dist.all_reduce(right)
    return int(right) / len(dataset.test_labels[:count])


def train(config: Training, backend: str, folder: Path) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset, source = data.load(config.data)
    count = len(dataset.train_labels)
    steps_per_epoch = count // (config.batch * world)
    if steps_per_epoch == 0:
        raise SystemExit(f"batch = {config.batch} times {world} workers is more than the {count} training images")
    total = min(config.steps or steps_per_epoch * config.epochs, steps_per_epoch * config.epochs)

    torch.manual_seed(config.seed)
    model = DistributedDataParallel(MODELS[config.model](), bucket_cap_mb=config.bucket_mb)
    reduce: Reduce = averaged
    end: Callable[[], None] | None = None
    if config.chooses(backend):
        reduce, end = of_the_ready(config)
    elif backend != "gloo" and config.for_buckets:
        reduce = coded(config.codec)
    clock = AllReduceClock(reduce)
    pauses = np.random.default_rng((config.seed, rank))
    model.register_comm_hook(None, clock.hook)
    optimiser = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=config.momentum)
    criterion = nn.CrossEntropyLoss()
    if rank == 0:
        parameters = sum(p.numel() for p in model.parameters())
        say("start", steps=total, data=dataset.name, source=source, parameters=parameters, time=time.time())
        sys.stdin.readline()  # what is measured from the first step on is measured now
    dist.barrier()

    recorder = Recorder(model) if config.record and rank == 0 and backend == config.backends[0] else None
    if backend != "gloo":
        import ina.backend

        ina.backend.reset_stats()  # DDP has sent the parameters
    began = time.perf_counter()
    trials = 0.0  # seconds of measuring accuracy, which do not count
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
                if config.pause:
                    time.sleep(pauses.exponential(config.pause))
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
                if config.evaluate and step % config.evaluate == 0:
                    start = time.perf_counter()
                    found = accuracy(model.module, dataset, TRIED)
                    trials += time.perf_counter() - start
                    if rank == 0:
                        say("accuracy", step=step, accuracy=found)
    seconds = time.perf_counter() - began - trials
    if end is not None:
        end()
    if recorder is not None:
        recorder.write(Path(config.record))
    stats = {} if backend == "gloo" else ina.backend.stats()  # operations by path, and the worker's counters
    found = accuracy(model.module, dataset)
    if rank == 0:
        say("end", accuracy=found, seconds=seconds, stats=stats)
    dist.barrier()


def main() -> None:
    die_with_parent()
    say_where_on_request()
    torch.set_num_threads(1)
    config_path, backend, folder = sys.argv[1:]
    whole = from_dict(json.loads(Path(config_path).read_text()))
    assert isinstance(whole, Training)  # only trainings have ranks
    config = whole.with_backend(backend)
    os.environ["INA_PROTOCOL"] = config.protocol
    os.environ["INA_CODEC"] = codecs.DEFAULT if config.for_buckets else config.codec
    os.environ["INA_PROGRAM"] = str(config.program_path.absolute())
    os.environ["INA_VALUES"], os.environ["INA_SLOTS"] = str(config.values), str(config.slots)
    if config.check:
        os.environ["INA_CHECK"] = config.check
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
