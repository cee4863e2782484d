"""`ina why` names what bounds a run: runs that are bound by one thing each."""

import pytest
from capabilities import need
from rich.console import Console

from ina import cli
from ina.experiment import layers, run, why
from ina.experiment.config import AllReduce, Workload
from ina.experiment.layers import Layer
from ina.experiment.record import Result

MS = 10**9  # ps


def explained(config) -> why.Finding:
    runs = run.WHOLE[type(config)](config)
    result = Result(None, config, {}, [r.summary() for r in runs], {}, [r.__dict__ for r in runs], True)
    (finding,) = why.explain(result)
    return finding


def reduction(**keys):
    return explained(AllReduce(**{"workers": 4, "elements": 200_000, "values": 64, "rate": 10e9, "pool": 128, **keys}))


@pytest.mark.parametrize(
    ("keys", "bound", "shown"),
    [
        ({}, "link", "the busiest link, "),
        ({"algorithm": "ring"}, "link", "the busiest link, "),
        ({"pool": 4}, "window", "each of 4 slots waits"),
        ({"host_packet": 2e-6}, "processor", "hosts' cores worked for "),
        ({"loss": 0.01, "rto_min": 1e-3}, "recovery", "time-outs"),
        ({"elements": 2000, "delay": 10e-6}, "latency", "a worker sends 33 packets"),
        ({"algorithm": "ring", "flow": 2, "delay": 50e-6, "elements": 800_000}, "window", "flows of 2 packets"),
    ],
)
def test_what_bounds_an_all_reduce_is_named(keys, bound, shown):
    need("cc")
    found = reduction(**keys)
    assert found.bound == bound and shown in found.shown, found


@pytest.mark.parametrize(
    ("keys", "bound", "shown"),
    [
        ({}, "compute", "of 20."),
        ({"compute": 0.01}, "link", "exposed all-reduce; the busiest link"),
        ({"slow_worker": 2.0}, "straggler", "worker 0 computes 2.00 times"),
        ({"compute": 0.0, "pool": 2}, "window", "each of 2 slots waits"),
    ],
)
def test_what_bounds_a_training_is_named(tmp_path, keys, bound, shown):
    need("cc")
    path = tmp_path / "model.csv"
    layers.write(path, [Layer("a", 200_000, 10 * MS, 5 * MS), Layer("b", 200_000, 0, 5 * MS)], "a test")
    found = explained(Workload(layers=str(path), workers=4, rate=10e9, steps=2, first_bucket_mb=0.1, **keys))
    assert found.bound == bound and shown in found.shown, found


def test_the_command_explains_folders(tmp_path, capsys):
    need("cc", "matplotlib")
    folder = run.run(AllReduce(workers=2, elements=100_000), tmp_path, Console(quiet=True))
    assert cli.main(["why", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("job 0: link — the busiest link, ")
    assert cli.main(["why", str(tmp_path)]) == 1
    assert "neither experiment.json" in capsys.readouterr().err
