"""A real DistributedDataParallel run, recorded, and replayed in virtual time."""

import itertools

import pytest
from capabilities import need

from ina import cli
from ina.base.settings import ConfigError
from ina.lab.kinds import workload
from ina.lab.kinds.training import Training
from ina.lab.kinds.workload import Workload
from ina.lab.virtual import layers

need("torch")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from ina.lab.training import recording  # noqa: E402
from ina.lab.training.recording import Recorder, RecordingFailed  # noqa: E402

pytestmark = pytest.mark.build


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Clock:
    """The time module for the recorder: time passes only where the sleeper says so."""

    now = 0.0

    @classmethod
    def perf_counter(cls):
        return cls.now


class Slow(torch.autograd.Function):
    """Module that takes 2 ms forward and 5 ms backward by Clock."""

    @staticmethod
    def forward(context, x):
        Clock.now += 0.002
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        Clock.now += 0.005
        return gradient


class Sleeper(nn.Module):
    def forward(self, x):
        return Slow.apply(x)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(300, 400), Sleeper(), nn.Linear(400, 500), nn.Sequential(nn.GELU(), nn.Linear(500, 7)))


def steps(model, recorder, count=8):
    with recorder:
        for _ in range(count):
            model(torch.randn(4, 300)).sum().backward()


def test_buckets_of_the_recording_are_those_that_ddp_made(group, tmp_path):
    need("cc")
    model, buckets = DistributedDataParallel(net(), bucket_cap_mb=0.5), []

    def hook(_state, bucket):
        buckets.append((bucket.index(), bucket.buffer().numel()))
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    hook.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}
    model.register_comm_hook(None, hook)
    recorder = Recorder(model)
    steps(model, recorder)
    recorder.write(tmp_path / "mine.csv")
    rows = layers.read(tmp_path / "mine.csv")
    assert "its DDP had bucket_mb = 0.5, first_bucket_mb = 0.5" in (tmp_path / "mine.csv").read_text()
    assert sum(layer.elements for layer in rows) == sum(p.numel() for p in model.parameters())
    last = list(itertools.takewhile(lambda b: b[0] or not buckets.index(b), reversed(buckets)))
    sizes = [size for _, size in buckets[-len(last) - 1 :]]
    ours = layers.buckets(rows, 0.5 * layers.MIB, 0.5 * layers.MIB)
    assert [bucket.elements for bucket in ours] == sizes and len(sizes) >= 2
    keys = {"layers": str(tmp_path / "mine.csv"), "bucket_mb": 0.5, "first_bucket_mb": 0.5}
    (training,) = workload.train(Workload(**keys, workers=2, steps=1))
    assert training.buckets == len(sizes)


def test_times_stand_where_they_were_spent(group, monkeypatch):
    monkeypatch.setattr(recording, "time", Clock)
    model = net()
    recorder = Recorder(model)
    steps(model, recorder)
    by_name = {layer.name: layer for layer in recorder.layers()}
    ms = 10**9
    assert by_name["1.sleeper"].elements == 0
    assert {name: layer.forward for name, layer in by_name.items() if layer.forward} == {"1.sleeper": pytest.approx(2 * ms)}
    first = by_name["0.weight"].backward + by_name["0.bias"].backward
    assert first == pytest.approx(5 * ms), "the sleeper's way back is what the first layer's gradients wait for"
    assert model(torch.randn(1, 300)).shape == (1, 7) and not recorder._hooks, "the hooks are gone"


def test_what_was_not_recorded_is_said():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return self.used(x)

    model = Unused()
    recorder = Recorder(model)
    with recorder:
        for _ in range(5):
            model(torch.randn(2, 3)).sum().backward()
    with pytest.raises(RecordingFailed, match=r"0 whole steps .*; no gradient came for spare\.bias, spare\.weight"):
        recorder.layers()


@pytest.mark.later
def test_a_training_records_itself(tmp_path, capsys):
    """Two real ranks over Gloo; then the same training in virtual time, beside a ring."""
    need("cc", "matplotlib", "sklearn")
    path = tmp_path / "recorded.csv"
    common = ["--workers", "2", "--results", str(tmp_path)]
    assert cli.main(["run", "--world", "local", "--backends", "gloo", "--steps", "10", "--set", "model=small",
                     "--set", f"record={path}", *common]) == 0
    rows = layers.read(path)
    assert sum(layer.elements for layer in rows) == 39_418 and all(layer.backward > 0 for layer in rows if layer.elements)
    replayed = ["run", "--world", "virtual", "--steps", "1", "--set", f"layers={path}", "--set", "bucket_mb=0.5"]
    assert cli.main([*replayed, *common]) == 0
    assert "in-network" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="record = 'x.txt': expected a path that ends with .csv"):
        Training(record="x.txt")
