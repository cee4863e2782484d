"""Trainings by a codec with the time on links of several rates: kind `compression`."""

import json

import numpy as np
import pytest
from capabilities import need
from rich.console import Console

from ina import codecs
from ina.base.settings import ConfigError
from ina.lab import kind, run
from ina.lab.kinds.compression import Compression, Exchange
from ina.lab.virtual.virtual_network import WrongSum

need("torch", "matplotlib")


def an_exchange(**figures):
    given = {"compute_seconds": 5e-3, "codec_seconds": 1e-3, "network_seconds": 4e-3, "dense_seconds": 15e-3}
    figures = {"up": 1e3, "down": 2e3, **figures}
    return Exchange("10 Gb/s", "thc", [2.0, 1.0], [(1, 0.4), (2, 0.6)], 0.65, 0.5, **{**given, **figures})


@pytest.mark.fast
def test_time_to_accuracy_is_steps_of_compute_codec_and_network():
    summary = an_exchange().summary()
    assert (summary["target_steps"], summary["target_s"]) == (2, pytest.approx(2 * 10e-3))
    assert (summary["faster"], summary["network_faster"]) == (pytest.approx(3), pytest.approx(15 / 4))
    assert Compression().why(vars(an_exchange()), summary).bound == "compute"
    slow = an_exchange(codec_seconds=30e-3)
    finding = Compression().why(vars(slow), slow.summary())
    assert finding.bound == "processor" and "thc does not pay" in finding.shown


@pytest.mark.fast
@pytest.mark.parametrize("keys, text", [
    ({"codec": "zip"}, "codec = 'zip': expected one of block"), ({"rates": ()}, "rates = \\(\\)"),
    ({"rates": ("fast",)}, "rates = .*: expected rates in bit/s such as 10G"), ({"target": 0.5, "evaluate": 0}, "evaluate = 0"),
])
def test_wrong_keys_are_named(keys, text):
    with pytest.raises(ConfigError, match=text):
        Compression(**keys)


def measured(tmp_path, **keys):
    need("fashion-mnist", "cc")
    config = Compression(**{"steps": 12, "evaluate": 6, "workers": 2, "rates": ("100M", "100G"), **keys})
    folder = run.run(config, tmp_path, Console(quiet=True))
    assert kind.from_dict(json.loads((folder / "config.json").read_text())) == config
    return json.loads((folder / "metrics.json").read_text())


@pytest.mark.build
def test_a_training_by_a_codec_and_its_bytes_and_times(tmp_path):
    dense, thc = (measured(tmp_path, codec=codec) for codec in ("block", "thc"))
    for metrics in (dense, thc):
        slow, fast = metrics["summary"]
        assert slow["network_ms"] > 100 * fast["network_ms"] > 0 and slow["loss"] == fast["loss"] < 2.3
        assert [step for step, _ in metrics["runs"][0]["accuracies"]] == [6, 12]
    elements, traffic = 39_418, codecs.named("thc").traffic(39_418, 2)
    assert dense["summary"][0]["up_kb"] == pytest.approx(4e-3 * elements) and dense["summary"][0]["faster"] == pytest.approx(1)
    assert thc["summary"][0]["down_kb"] == pytest.approx(1e-3 * traffic.down)
    assert thc["summary"][0]["network_faster"] > 4, "five values in a word with two workers"
    assert thc["runs"][0]["losses"] != dense["runs"][0]["losses"]


@pytest.mark.build
@pytest.mark.parametrize(("codec", "protocol"), [("thc-lookup", "thc"), ("lanes-16-8", "requantised")])
def test_bytes_of_a_programs_own_packets_are_those_of_each_way(tmp_path, codec, protocol):
    traffic = codecs.named(codec).traffic(39_418, 2)
    assert traffic.up != traffic.down
    for row in measured(tmp_path, codec=codec, protocol=protocol)["summary"]:
        assert (row["up_kb"], row["down_kb"]) == pytest.approx((1e-3 * traffic.up, 1e-3 * traffic.down))


@pytest.mark.build
@pytest.mark.parametrize("decay", [False, True])
def test_the_trajectory_is_that_of_the_average_gradient(decay):
    """Beside torch alone: one process with the whole batch. Two workers' mean is that of all images."""
    import torch

    from ina.lab.training import data, together
    from ina.lab.training.models import MODELS

    need("fashion-mnist")
    *_, ours = together.train("small", "exact", 2, 4, 8, lr=0.05, momentum=0.9, seed=3, evaluate=0, decay=decay)
    dataset, _ = data.load("")
    torch.manual_seed(3)
    net = MODELS["small"]()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1, 0 if decay else 1, 4)
    order = np.random.default_rng([3, 0]).permutation(len(dataset.train_labels))
    for step in range(4):
        chosen = order[16 * step : 16 * step + 16]
        images, labels = (torch.from_numpy(x[chosen]) for x in (dataset.normalised(dataset.train_images), dataset.train_labels))
        first = torch.nn.functional.cross_entropy(net(images[:8]), labels[:8]).item()
        assert ours.losses[step] == pytest.approx(first, rel=1e-4)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        optimiser.step()
        schedule.step()


@pytest.mark.build
def test_a_training_that_diverges_ends_and_says_so(tmp_path):
    metrics = measured(tmp_path, lr=1e6, steps=30)
    diverged = metrics["runs"][0]["stats"]["codec"]["diverged"]
    assert 1 < diverged < 30 and len(metrics["runs"][0]["losses"]) == diverged - 1
    assert metrics["summary"][0]["loss"] is None and metrics["summary"][0]["accuracy"] < 0.5


@pytest.mark.build
def test_workers_that_differ_are_an_error(monkeypatch):
    from ina.lab.training import together

    need("fashion-mnist")

    class Own(codecs.Codec):
        name = "differing"

        def reduce(self, values, call):
            total = yield codecs.Round(values.copy())
            return total + call.rank

        def bound(self, tensors, average=False):
            return np.full(tensors[0].shape, np.inf)

        def traffic(self, elements, workers):
            return codecs.Traffic(4 * elements, 4 * elements)

    monkeypatch.setattr(together.codecs, "named", lambda name: Own())
    with pytest.raises(WrongSum, match="codec differing: the workers have different results after 1 step"):
        list(together.train("small", "differing", 2, 1, 8, lr=0.05, momentum=0.9, seed=3, evaluate=0))


@pytest.mark.build
@pytest.mark.parametrize("optimizer", ["1-bit-adam", "0-1-adam"])
def test_an_optimizer_of_bits_is_adam_in_its_warm_up_and_sends_bits_then(optimizer):
    from ina.lab.training import together

    need("fashion-mnist")
    given = {"lr": 1e-3, "momentum": 0.0, "seed": 3, "evaluate": 0}
    *_, adam = together.train("small", "exact", 2, 4, 8, optimizer="adam", **given)
    *_, ours = together.train("small", "sign-vote", 2, 8, 8, optimizer=optimizer, warm_up=4, **given)
    assert ours.losses[:4] == pytest.approx(adam.losses, rel=1e-3) and len(ours.losses) == 8
    full, *bits = ours.rounds
    assert full == ours.parameters / 2, "half of the steps"
    assert sum(bits) == pytest.approx(codecs.named("sign-vote").traffic(ours.parameters, 2).up / 4 / 2, rel=0.01)


@pytest.mark.fast
def test_gradients_of_a_type_and_their_average_are_rounded_to_it():
    import torch

    from ina.lab.training.together import Exchanges

    third = torch.full((5,), 1 / 3)
    exchanges = Exchanges([codecs.named("exact"), codecs.named("exact")], "bfloat16")
    assert torch.equal(exchanges.average([third, torch.zeros(5)], 0), third.bfloat16().float() / 2)
    assert torch.equal(exchanges.average([third.bfloat16().float(), torch.full((5,), 2.0**-8)], 1),
                       ((third.bfloat16() + torch.full((5,), 2.0**-8)) / 2).bfloat16().float())
