"""Trainings in virtual time: layers, DDP's buckets, overlap, and a timeline."""

import json

import pytest
from capabilities import need
from rich.console import Console

from ina import cli
from ina.aggregation.worker.config import ETHERNET_OVERHEAD, HEADERS
from ina.base.settings import ConfigError
from ina.lab import plan, run
from ina.lab.kinds import workload
from ina.lab.kinds.workload import Workload
from ina.lab.results import why
from ina.lab.results.record import load
from ina.lab.virtual import layers
from ina.lab.virtual.layers import Bucket, Layer
from ina.lab.virtual.timeline import Timeline

pytestmark = pytest.mark.build
MS = 10**9  # ps
RATE = 10e9


def model(tmp_path, rows):
    path = tmp_path / "model.csv"
    layers.write(path, [Layer(f"l{i}", *row) for i, row in enumerate(rows)], "a test")
    return str(path)


def train(tmp_path, rows, **keys):
    config = Workload(layers=model(tmp_path, rows), **{"workers": 2, "rate": RATE, "rto_min": 1e-3, "first_bucket_mb": 0.001,
                                                      "bucket_mb": 0.001, **keys})
    (training,) = workload.train(config)
    return training


def reduce_ms(elements):
    """S/R, and the packet ahead; latencies are small beside it."""
    return 1e3 * 8 * (elements / 256 + 1) * (1024 + HEADERS + ETHERNET_OVERHEAD) / RATE


def test_what_is_written_is_read_again(tmp_path):
    rows = [(10, MS, 2 * MS), (0, 3 * MS, 0)]
    model_layers = layers.read(plan.Path(model(tmp_path, rows)))
    assert [(layer.elements, layer.forward, layer.backward) for layer in model_layers] == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "expected the columns name,elements,forward_ns,backward_ns in the first line"),
        ("# c\nname,elements,forward_ns,backward_ns\nx,1,2\n", r"w\.csv:3: 'x,1,2': expected a name and three numbers"),
        ("name,elements,forward_ns,backward_ns\nx,-1,2,3\n", r"w\.csv:2: .*numbers of 0 or more"),
        ("name,elements,forward_ns,backward_ns\nx,0,2,3\n", "no layer has elements"),
    ],
)
def test_files_that_are_no_workload_are_refused(tmp_path, text, message):
    path = tmp_path / "w.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        layers.read(path)


def test_buckets_are_filled_from_the_last_layer_on():
    model = [Layer("a", 100, 0, 5), Layer("b", 0, 0, 7), Layer("c", 300, 0, 11), Layer("d", 200, 0, 13), Layer("e", 50, 0, 17)]
    assert layers.buckets(model, 4 * 50, 4 * 400) == [Bucket(50, 17), Bucket(500, 41), Bucket(100, 53)]
    assert layers.buckets(model, 4 * 51, 4 * 10_000) == [Bucket(250, 30), Bucket(400, 53)]
    assert layers.buckets(model, 1e9, 1e9) == [Bucket(650, 53)]


def test_shipped_workloads_are_the_models():
    sizes = {name: sum(layer.elements for layer in layers.read(Workload(layers=name).layers_path))
             for name in ("fashion-mnist", "resnet18")}
    assert sizes == {"fashion-mnist": 409_034, "resnet18": 11_689_512}


def test_what_is_behind_the_backward_pass_costs_nothing(tmp_path):
    """The last layer's gradients are reduced in 3 ms, the first one takes 5 ms: only that one's own 0.02 ms are exposed."""
    need("cc")
    last, first = 256 * 3400, 256 * 24
    training = train(tmp_path, [(first, MS, 5 * MS), (last, MS, MS)], steps=3)
    assert 2 < reduce_ms(last) < 4 and training.buckets == 2
    assert training.summary()["compute_ms"] == pytest.approx(8)
    assert training.summary()["exposed_ms"] == pytest.approx(reduce_ms(first), rel=0.25)
    assert training.step_seconds == pytest.approx([training.step_seconds[0]] * 3, rel=1e-3)


def test_what_is_longer_is_exposed(tmp_path):
    """The same, with no backward pass to overlap with."""
    need("cc")
    last, first = 256 * 3400, 256 * 24
    training = train(tmp_path, [(first, MS, 0), (last, MS, MS)], steps=2)
    assert training.summary()["exposed_ms"] == pytest.approx(reduce_ms(last + first), rel=0.05)
    assert training.summary()["reduce_ms"] == pytest.approx(reduce_ms(last + first), rel=0.05)


def test_without_compute_nothing_is_said_to_hide_behind_it(tmp_path):
    need("cc", "matplotlib")
    config = Workload(layers=model(tmp_path, [(50_000, MS, MS)]), workers=2, steps=1, compute=0, rate=RATE)
    folder = run.run(config, tmp_path / "results", Console(quiet=True))
    assert [summary["efficiency"] for summary in load(folder).summary] == [None]
    assert why.explain(load(folder))[0].shown.startswith("no worker computes: ")


@pytest.mark.parametrize("algorithm", ["in-network", "ring", "parameter-server"])
def test_all_wait_for_a_slow_worker(tmp_path, algorithm):
    need("cc")
    training = train(tmp_path, [(5000, MS, MS)], workers=4, slow_worker=3.0, steps=2, algorithm=algorithm, jitter=0.1)
    assert 6 <= training.summary()["compute_ms"] <= 6.6
    assert training.summary()["step_ms"] == pytest.approx(training.summary()["compute_ms"], rel=0.05)


def test_jobs_and_stripes_keep_their_buckets_apart(tmp_path):
    need("cc")
    config = Workload(layers=model(tmp_path, [(3000, MS, MS), (700, 0, MS), (0, 0, 0), (9000, MS, MS)]), workers=4, jobs=2,
                      stripes=2, topology="topoopt servers=8 degree=4", steps=3, bucket_mb=0.01, first_bucket_mb=0.001,
                      loss=0.01)
    trainings = workload.train(config)
    assert [training.job for training in trainings] == ["job 0", "job 1"]
    assert all(len(training.step_seconds) == 3 for training in trainings)
    assert workload.train(config) == trainings


def test_a_run_has_a_timeline(tmp_path):
    need("cc", "matplotlib")
    config = Workload(layers=model(tmp_path, [(3000, MS, MS), (5000, MS, MS)]), workers=2, steps=2, first_bucket_mb=0.001)
    folder = run.run(config, tmp_path / "results", Console(quiet=True))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    compute = [event for event in events if event["ph"] == "X"]
    assert len(compute) == 2 * 2 * 2 and {event["tid"] for event in compute} == {0, 1}
    assert sum(event["dur"] for event in compute) == pytest.approx(2 * 2 * 4e3)
    begins = {event["id"]: event for event in events if event["ph"] == "b"}
    ends = {event["id"]: event for event in events if event["ph"] == "e"}
    assert len(begins) == 2 * 2 * 2 and all(ends[i]["ts"] > begins[i]["ts"] for i in begins)


def test_sampling_links_shows_them_and_changes_nothing(tmp_path):
    need("cc", "matplotlib")
    keys = {"layers": model(tmp_path, [(30_000, MS, MS), (50_000, MS, MS)]), "workers": 2, "steps": 2, "rate": RATE}
    timeline, none = Timeline(20e-6), Timeline()
    (plain,), (sampled,) = workload.train(Workload(**keys), none), workload.train(Workload(**keys), timeline)
    assert none.links == {} == none.pools and plain == sampled
    for samples in timeline.links.values():
        assert len(samples) > 100 and samples[-1][0] >= sum(sampled.step_seconds)
        spans = [end - begin for (end, _, _), begin in zip(samples, [0.0, *(end for end, _, _ in samples)], strict=False)]
        carried = sum(use * span for (_, use, _), span in zip(samples, spans, strict=True))
        assert all(-1e-9 <= use <= 1.05 for _, use, _ in samples), "a packet of 0.9 us counts where its sending begins"
        assert carried == pytest.approx(sampled.link_use * sum(sampled.step_seconds), rel=0.01), "all carry the same here"
    folder = run.run(Workload(**keys, sample=20e-6), tmp_path / "results", Console(quiet=True))
    counters = [e for e in json.loads((folder / "trace.json").read_text())["traceEvents"] if e["ph"] == "C"]
    assert {event["name"] for event in counters} >= {"h1>s1 use", "s1>h2 packets waiting", "s1 slots held by job 0"}
    assert (folder / "report.html").read_text().count("<svg") == 3, "use, queues and pools over time"


def test_make_run_in_virtual_time_compares_with_a_ring(tmp_path, capsys):
    need("cc", "matplotlib")
    assert cli.main(["run", "--world", "virtual", "--workers", "2", "--steps", "1", "--results", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "in-network" in output and "ring" in output and "compute's share of the step" in " ".join(output.split())
    assert cli.main(["run", "--world", "virtual", "--epochs", "2", "--results", str(tmp_path)]) == 2
    assert "unknown key 'epochs'" in capsys.readouterr().err


def test_the_model_can_be_measured(tmp_path, capsys):
    need("cc", "torch")
    path = tmp_path / "mine.csv"
    assert cli.main(["experiment", "measure", str(path), "--model", "small", "--batch", "2"]) == 0
    model_layers = layers.read(path)
    assert sum(layer.elements for layer in model_layers) == 39_418
    assert all(layer.forward > 0 for layer in model_layers) and "us forward" in capsys.readouterr().out


def test_without_payload_a_training_takes_the_same_time(tmp_path):
    need("cc")
    keys = {"layers": model(tmp_path, [(30_000, MS, MS), (50_000, MS, MS)]), "workers": 4, "steps": 2, "rate": RATE}
    for algorithm in ("in-network", "ring"):
        (checked,), (bare,) = (workload.train(Workload(**keys, algorithm=algorithm, payload=p)) for p in (True, False))
        assert bare.step_seconds == checked.step_seconds and bare.stats["workers"] == checked.stats["workers"]
        assert checked.checked and not bare.checked


def test_a_scaled_model_takes_its_share_of_time(tmp_path):
    """A quarter of elements, times, buckets and delays: a quarter of the time."""
    need("cc")
    path = model(tmp_path, [(300_000, MS, MS), (500_000, 0, MS)])
    keys = {"layers": path, "workers": 4, "steps": 1, "rate": RATE, "values": 64, "slots": 128}
    (whole,) = workload.train(Workload(**keys, delay=4e-6, bucket_mb=1.0))
    (small,) = workload.train(Workload(**keys, scale=0.25, delay=1e-6, bucket_mb=0.25, first_bucket_mb=0.25))
    assert 4 * small.bytes == whole.bytes and small.buckets == whole.buckets
    assert 4 * small.step_seconds[0] == pytest.approx(whole.step_seconds[0], rel=0.01)
