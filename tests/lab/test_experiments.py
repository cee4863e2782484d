"""experiments/: files that are plans, sweeps that go on where they were, and pages that compare; in virtual time."""

import html
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import child
import numpy as np
import pytest
from capabilities import need
from rich.console import Console
from waiting import until

from ina import cli
from ina.aggregation.worker.errors import JobTimeout
from ina.base.settings import ConfigError, keys
from ina.lab import plan, sweep
from ina.lab.kind import kinds
from ina.lab.kinds import allreduce
from ina.lab.kinds.allreduce import AllReduce, Reduction, in_processes
from ina.lab.kinds.training import Config, Run
from ina.lab.processes.crew import Crew
from ina.lab.results import compare, record, report, units
from ina.lab.training.launch import JobFailed, end

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = """
about = "a trial"
kind = "allreduce"
name = "trial"
workers = 2
elements = 3000
values = 32

[sweep]
jobs = [1, 2]
loss = [0.0, 0.05]
"""


@pytest.fixture
def trial(tmp_path):
    path = tmp_path / "trial.toml"
    path.write_text(SMALL)
    return path


def quiet() -> Console:
    return Console(file=open(os.devnull, "w"), width=200)  # noqa: SIM115


# ---- files -------------------------------------------------------------------------------------------------------


@pytest.mark.fast
def test_a_sweep_is_every_combination(trial):
    trials = plan.load(trial)
    assert [str(p) for p in trials.points] == ["jobs=1 loss=0.0", "jobs=1 loss=0.05", "jobs=2 loss=0.0", "jobs=2 loss=0.05"]
    assert [p.config.loss for p in trials.points] == [0.0, 0.05] * 2
    assert trials.about == "a trial" and trials.base.elements == 3000
    with pytest.raises(ConfigError, match=r"\[sweep\] of jobs, loss: run it with: ina experiment run"):
        _ = trials.single


@pytest.mark.fast
def test_the_command_line_overrides_keys_and_sweeps(trial):
    trials = plan.load(trial, {"jobs": "2", "elements": "10"}, {"loss": "[0.1, 0.2, 0.3]"})
    assert [(p.config.jobs, p.config.loss, p.config.elements) for p in trials.points] == [(2, x, 10) for x in (0.1, 0.2, 0.3)]
    assert list(trials.axes) == ["loss"]


@pytest.mark.fast
@pytest.mark.parametrize("count", ["0", "-2", "two"])
def test_a_number_of_processes_that_makes_no_sense(count, capsys):
    with pytest.raises(SystemExit):
        cli.main(["experiment", "run", "loss-sweep", "--processes", count])
    assert "expected" in (output := capsys.readouterr().err) and "--processes" in output and count in output
    assert " to 1,024" in output


@pytest.mark.fast
@pytest.mark.parametrize(
    "text, message",
    [
        ('kind = "allreduce"\nelement = 3', r"trial\.toml:2: unknown key 'element'; did you mean 'elements'"),
        ('kind = "training"\njobs = 2', r"trial\.toml:2: unknown key 'jobs'"),
        ('kind = "allreduced"', "expected 'allreduce' or 'sharing' or 'trace' or 'training' or 'workload'"),
        ("about = 3", "about = 3: expected a line of text"),
        ("sweep = 3", "sweep = 3: expected a table"),
        ("sweep = []", r"trial\.toml:1: sweep = \[\]: expected a table"),
        ("workers" + 200 * ".a" + " = 1", r"trial\.toml: tables are nested deeper than 100 levels"),
        ('kind = "training"\nvalues = 33', r"^[^\n]*trial\.toml:2: values = 33: expected 32, 64, 128, 256, 1024, 2048$"),
        ("[sweep]\nworker = [1]", r"\[sweep\]: unknown key 'worker'; did you mean 'workers'"),
        ('workers = "4"', r"trial\.toml:1: workers = '4': expected a whole number"),
        ("[sweep]\nworkers = ['4']", r"trial\.toml:2: \[sweep\]: workers = '4': expected a whole number"),
        ("[sweep]\nworkers = 4", r"\[sweep\] workers = 4: expected a list"),
        ("[sweep]\nworkers = []", r"\[sweep\] workers = \[\]: expected a list"),
        ("[sweep]\nworkers = [2, 2]", "expected each value once"),
        ("[sweep]\nworkers = [2, 99]", "workers = 99: expected 1 to 32"),
        ('[sweep]\nname = ["a"]', "cannot be swept"),
        ('[sweep]\nkind = ["training"]', "cannot be swept"),
        ("[sweep]\nsteps = [" + ",".join(map(str, range(1001))) + "]", "more than 1000 points"),
        ('kind = "allreduce"\nworld = "moon"', "world = 'moon': expected 'virtual' or 'local' or 'testbed'"),
        ('kind = "allreduce"\npool = 64\nslots = 64\njobs = 2', "pool = 64: expected room for 2 jobs"),
        ('kind = "allreduce"\nrto_min = 1.0', "no more than rto_max"),
        ('kind = "allreduce"\nloss = 1.0', "a probability below 1"),
    ],
)
def test_wrong_files_are_refused_before_anything_runs(trial, text, message):
    trial.write_text(text)
    with pytest.raises(ConfigError, match=message):
        plan.load(trial)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "topology=fat-tre k=4"], "topology = 'fat-tre k=4': there is no topology 'fat-tre'; there are: fat-tree"),
        (["--set", "topology=fat-tree k=3"], "topology = 'fat-tree k=3': fat-tree: k is 3, expected an even number"),
        (["--set", "topology=fat-tree k=2", "--sweep", "jobs=[1, 2]"], "topology = 'fat-tree k=2': it has 2 hosts, expected 4, "
         "one for each of workers = 2 in jobs = 2"),
        (["--set", "elements=-4"], "command line: elements = -4: expected 1 to 1,000,000,000,000,000 (4 bytes each"),
        (["--sweep", "loss=[0.1, 5]"], "--sweep: loss = 5.0: expected 0 to 1 (a probability)"),
    ],
)
def test_points_that_cannot_run_are_refused_before_any_runs(trial, tmp_path, capsys, arguments, message):
    need("matplotlib")
    assert cli.main(["experiment", "run", str(trial), "--results", str(tmp_path / "results"), *arguments]) == 2
    assert f"ina: {message}" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.fast
@pytest.mark.parametrize("kind", kinds())
def test_show_prints_every_key_as_a_file_that_says_the_same(tmp_path, kind):
    """The defaults, printed and read again, are the defaults: no key is missing, none is misprinted."""
    path, required = tmp_path / "shown.toml", {"trace": str(tmp_path / "x")} if kind == "trace" else {}
    (tmp_path / "x.0.et").touch()  # the only kind that needs a file of the user's
    path.write_text(plan.show(kinds()[kind]))
    assert plan.load(path, required).single == kinds()[kind](**required).resolved()
    assert len(path.read_text().splitlines()) == len(kinds()[kind].__dataclass_fields__)


@pytest.mark.fast
def test_a_shown_experiment_is_the_experiment(trial, tmp_path):
    path = tmp_path / "shown.toml"
    path.write_text(plan.show(AllReduce, plan.load(trial)))
    assert plan.load(path) == plan.load(trial)


@pytest.mark.fast
def test_documented_keys_are_the_keys():
    text = (ROOT / "docs" / "reference" / "keys.md").read_text()
    for name, kind in kinds().items():
        assert plan.markdown(kind) in text, f"docs/reference/keys.md: the table of {name} should be:\n{plan.markdown(kind)}"


@pytest.mark.fast
def test_list_and_show(capsys):
    assert cli.main(["experiment", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    there = {plan.named(path) for path in (*plan.available(), *plan.large())}
    assert {line.split()[0] for line in lines} == there >= {"loss-sweep", "two-jobs"}
    assert cli.main(["experiment", "show", "two-jobs"]) == 0
    assert "jobs = [1, 2]" in capsys.readouterr().out
    assert cli.main(["experiment", "show", "two-job"]) == 2
    assert "did you mean 'two-jobs'" in capsys.readouterr().err


# ---- processes


@pytest.mark.build
@pytest.mark.later
def test_reductions_by_processes_are_checked_and_counted():
    need("cc")
    reductions = in_processes(AllReduce(world="local", workers=2, jobs=2, elements=5000, values=32, loss=0.05, pool=64))
    assert [(r.job, r.workers, r.bytes, r.busiest_link) for r in reductions] == [("job 0", 2, 20000, ""), ("job 1", 2, 20000, "")]
    for reduction in reductions:
        summary = reduction.summary()
        assert summary["packets"] - summary["retransmissions"] >= 2 * 5000 // 32 and summary["retransmissions"] > 0
        assert summary["link_use"] is summary["link_mb"] is summary["ring_model_ms"] is None
    assert set(summary) == set(allreduce.reduce(AllReduce(elements=100, workers=2))[0].summary()), "one schema"


@pytest.mark.build
@pytest.mark.later
def test_a_worker_that_fails_is_named():
    need("cc")
    # The other one may be told of the end of the first before its own time-out.
    message = r"process \d \(pid \d+\) exited with status 1; its log ends:\n(.*\n)*.*(JobTimeout: Timed out|PeerLost: )"
    with pytest.raises(JobFailed, match=message):
        in_processes(AllReduce(world="local", workers=2, elements=50_000, values=32, loss=0.9, pool=64, timeout=0.5))


@pytest.mark.build
@pytest.mark.later
def test_processes_that_are_waited_for_say_where_they_are(tmp_path):
    code = """
import pathlib, sys, time
from ina.lab.training.launch import say_where_on_request
def in_the_way():
    pathlib.Path(sys.argv[2]).touch()
    time.sleep(3600)
say_where_on_request()
if sys.argv[1] == "0":
    print("{}", flush=True)
in_the_way()
"""
    logs, marks = ([tmp_path / f"{number}.{end}" for number in range(2)] for end in ("log", "here"))
    crew = []
    try:
        for number, log in enumerate(logs):
            with log.open("wb") as errors:
                crew.append(subprocess.Popen([sys.executable, "-c", code, str(number), marks[number]], stdout=subprocess.PIPE,
                                             stderr=errors, text=True))  # fmt: skip
        expected = r"waited 0 s for processes 1 to be ready:\nprocess 1 \(pid \d+\) runs; its log ends:"
        until(lambda: all(mark.exists() for mark in marks), "both to be in the way")
        assert select.select([crew[0].stdout], [], [], 0)[0]
        with pytest.raises(JobFailed, match=expected) as caught:
            Crew(crew, logs).answers(0, "ready")
        assert "in in_the_way" in str(caught.value)
    finally:
        end(crew)
        for process in crew:
            process.stdout.close()


@pytest.mark.fast
@pytest.mark.parametrize(("key", "value"), [("algorithm", "ring"), ("stripes", 2), ("latency", 1e-6), ("ecn", 9000)])
def test_what_processes_cannot_do_is_refused(key, value):
    with pytest.raises(ConfigError, match=f"{key} = {value!r}: expected .* in world = 'testbed'"):
        AllReduce(world="testbed", **{key: value})


# ---- virtual time ------------------------------------------------------------------------------------------------


@pytest.mark.build
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_reductions_are_deterministic_and_counted(dtype):
    need("cc")
    config = AllReduce(workers=3, jobs=2, elements=5000, values=32, loss=0.02, reorder=0.02, duplicate=0.02, dtype=dtype)
    first, again = allreduce.reduce(config), allreduce.reduce(config)
    assert first == again and [r.job for r in first] == ["job 0", "job 1"]
    other = allreduce.reduce(AllReduce(**{**config.as_dict(), "seed": 2}))
    assert other[0].stats["network"]["digest"] != first[0].stats["network"]["digest"]
    assert first[0].stats["workers"]["retransmissions"] > 0


@pytest.mark.build
def test_time_is_what_the_wires_allow():
    """Without faults a tensor takes its bytes at the rate of the wire, and a window below a round trip takes longer."""
    need("cc")
    config = AllReduce(workers=4, elements=256 * 1000, values=256, rate=10e9, delay=1e-6, pool=64)
    (run,) = allreduce.reduce(config)
    frame_bits = 8 * (14 + 20 + 8 + 8 + 2 + 4 * 256 + 24)
    assert run.seconds == pytest.approx(1000 * frame_bits / 10e9, rel=0.02)
    assert 0.95 < run.link_use <= 1.0
    (narrow,) = allreduce.reduce(AllReduce(**{**config.as_dict(), "pool": 2}))
    assert narrow.seconds > 1.5 * run.seconds
    assert run.summary()["ring_model_ms"] == pytest.approx(6e3 * (8 * 1024e3 / 4 / 10e9 + 2e-6))


@pytest.mark.build
def test_the_whole_pool_is_used():
    """A window of 1024 slots, more than the program has by default: that many packets are under way at once."""
    need("cc")
    config = AllReduce(workers=2, elements=32 * 3000, values=32, delay=100e-6, pool=1024, rto_min=1e-3)
    (run,) = allreduce.reduce(config)
    assert run.seconds == pytest.approx(3 * 2e-4, rel=0.1), "3000 packets in three windows: three round trips"
    assert run.stats["workers"]["retransmissions"] == 0, "the switch holds what its links carry"


@pytest.mark.build
def test_a_wrong_sum_is_found(monkeypatch):
    need("cc")
    right = allreduce.expected
    monkeypatch.setattr(allreduce, "expected", lambda *arguments: (right(*arguments)[0] + 1, 0.0))
    with pytest.raises(allreduce.WrongSum, match="job 0: worker 0's result is off by 1"):
        allreduce.reduce(AllReduce(workers=2, elements=10, values=32))


# ---- sweeps ------------------------------------------------------------------------------------------------------


@pytest.mark.build
def test_a_sweep_has_a_folder_a_point_and_one_page(trial, tmp_path):
    need("cc", "matplotlib")
    folder = sweep.sweep(plan.load(trial), tmp_path / "results", quiet())
    results = compare.points(folder)
    assert [(r.config.jobs, r.config.loss) for r in results] == [(1, 0.0), (1, 0.05), (2, 0.0), (2, 0.05)]
    for result in results:
        assert result.finished and len(result.summary) == result.config.jobs
        metrics = json.loads((result.path / "metrics.json").read_text())
        assert metrics["schema"] == record.SCHEMA and metrics["seed"] == 1 and metrics["kind"] == "allreduce"
        assert {"commit", "cpu", "cores", "kernel", "python", "numpy", "ina", "sources"} <= set(result.environment)
        assert (result.path / "report.html").exists()
    page = (folder / "report.html").read_text()
    assert page.count("<svg") == 4 and "a trial" in page and "<script" not in page
    for heading in ("jobs", "loss", *(heading for key, heading, _, _ in AllReduce.rows if key != "sums")):
        assert f"<th>{html.escape(heading)}</th>" in page
    assert page.count("<td>job 1</td>") == 2


@pytest.mark.build
def test_same_seed_same_figures(trial, tmp_path):
    need("cc", "matplotlib")
    chosen = plan.load(trial, {"jobs": "2"})
    a, b = (sweep.sweep(chosen, tmp_path / "results", quiet(), new=True) for _ in range(2))
    assert a != b
    for one, other in zip(compare.points(a), compare.points(b), strict=True):
        assert (one.path / "metrics.json").read_bytes() == (other.path / "metrics.json").read_bytes()


@pytest.mark.build
def test_finished_points_are_not_run_again(trial, tmp_path, monkeypatch):
    """Interrupted at the third of four points; the next run does that and the last one, in the same folder."""
    need("cc", "matplotlib")
    real, points = allreduce.reduce, []

    def reduce(config, timeline):
        points.append((config.jobs, config.loss))
        if len(points) == 3:
            raise KeyboardInterrupt
        return real(config)

    monkeypatch.setattr(allreduce, "reduce", reduce)
    chosen, root = plan.load(trial), tmp_path / "results"
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(chosen, root, quiet())
    (folder,) = root.iterdir()
    assert len(compare.points(folder)) == 2 and (folder / "report.html").exists()
    before = {p: p.stat().st_mtime_ns for p in folder.glob("00[01]-*/metrics.json")}
    assert sweep.sweep(chosen, root, quiet()) == folder
    assert points[2:] == [(2, 0.0), (2, 0.0), (2, 0.05)] and len(compare.points(folder)) == 4
    assert before == {p: p.stat().st_mtime_ns for p in before}
    assert sweep.sweep(chosen, root, quiet(), resume=folder) == folder and len(points) == 5
    assert sweep.sweep(chosen, root, quiet()) != folder, "nothing is unfinished: a new folder"


@pytest.mark.build
def test_another_plan_or_worker_is_not_resumed(trial, tmp_path, monkeypatch):
    need("cc", "matplotlib")
    root = tmp_path / "results"
    folder = sweep.sweep(plan.load(trial), root, quiet())
    (folder / "000-jobs=1,loss=0.0" / "metrics.json").unlink()
    with pytest.raises(record.ResultsError, match="cannot be resumed: its points are others"):
        sweep.sweep(plan.load(trial, {"elements": "10"}), root, quiet(), resume=folder)
    monkeypatch.setattr(record, "worker_hash", lambda: "0" * 64)
    with pytest.raises(record.ResultsError, match="the worker changed since"):
        sweep.sweep(plan.load(trial), root, quiet(), resume=folder)
    assert sweep.sweep(plan.load(trial), root, quiet()) != folder
    with pytest.raises(record.ResultsError, match=r"experiment\.json: No such file"):
        sweep.sweep(plan.load(trial), root, quiet(), resume=tmp_path)


@pytest.mark.build
def test_two_processes_do_not_share_a_folder(trial, tmp_path):
    need("cc", "matplotlib")
    chosen, root = plan.load(trial), tmp_path / "results"
    folder, hold = sweep.open_folder(chosen, root, None, False)
    try:
        other, other_hold = sweep.open_folder(chosen, root, None, False)
        os.close(other_hold)
        assert other != folder
        with pytest.raises(sweep.Held, match="another process"):
            sweep.open_folder(chosen, root, folder, False)
    finally:
        os.close(hold)


@pytest.mark.build
def test_a_failed_point_is_named_and_tried_again(trial, tmp_path, monkeypatch):
    """A deadline shorter than a round trip: the points fail, the sweep says so, and the next run tries them again."""
    need("cc", "matplotlib")
    real = allreduce.reduce

    def reduce(config, timeline):
        return real(AllReduce(**{**config.as_dict(), "timeout": 1e-7}) if config.loss else config)

    monkeypatch.setattr(allreduce, "reduce", reduce)
    root = tmp_path / "results"
    with pytest.raises(sweep.SweepFailed, match=r"2 of 4 points failed.*\njobs=1 loss=0\.05: "):
        sweep.sweep(plan.load(trial), root, quiet())
    (folder,) = root.iterdir()
    assert {r.config.loss for r in compare.points(folder)} == {0.0}
    assert "Timed out" in (folder / "001-jobs=1,loss=0.05" / "error.txt").read_text()
    assert (folder / "error.txt").read_text().startswith("2 of 4 points failed") and len(list(folder.rglob("error.txt"))) == 3
    monkeypatch.setattr(allreduce, "reduce", real)
    assert sweep.sweep(plan.load(trial), root, quiet()) == folder and len(compare.points(folder)) == 4
    assert not list(folder.rglob("error.txt"))
    with pytest.raises(JobTimeout):
        real(AllReduce(workers=2, elements=10, values=32, timeout=1e-7))


@pytest.mark.build
def test_a_run_that_is_refused_late_says_why_in_its_folder(tmp_path, capsys):
    """A leaf has no free host for the server, which only building the network shows."""
    need("cc")
    (tmp_path / "late.toml").write_text(
        'kind = "allreduce"\nname = "late"\nprotocol = "atp"\ntopology = "leaf-spine leaves=2 spines=1 hosts=2"\nworkers = 4\n')
    assert cli.main(["run", str(tmp_path / "late.toml"), "--results", str(tmp_path / "results")]) == 2
    (reason,) = tmp_path.glob("results/late-*/error.txt")
    assert "a host left for a parameter server of atp" in reason.read_text()
    assert capsys.readouterr().err == f"ina: {reason.read_text()}"


@pytest.mark.build
@pytest.mark.later
def test_ctrl_c_ends_it_and_the_same_command_goes_on(trial, tmp_path):
    need("cc", "matplotlib")
    trial.write_text(SMALL.replace("elements = 3000", "elements = 600_000").replace("[0.0, 0.05]", "[0.0, 0.001, 0.002, 0.003]"))
    command = [sys.executable, "-m", "ina.cli", "experiment", "run", str(trial), "--results", str(tmp_path / "results")]
    command += ["--processes", "8"]  # points under way are ended: all of them may be
    runner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: list(tmp_path.glob("results/*/*/metrics.json")) or runner.poll() is not None, "a point to be finished")
        assert runner.poll() is None
        runner.send_signal(signal.SIGINT)
        _, output = child.output(runner)
    finally:
        runner.kill()
    assert runner.returncode == 130 and "the same command goes on" in output and "Traceback" not in output, output
    done = child.run(command, child.TRAINING, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert re.search(r"[1-8] of 8 points are there already", done.stdout), done.stdout
    assert len(list(tmp_path.glob("results/*"))) == 1 and len(list(tmp_path.glob("results/*/*/metrics.json"))) == 8


@pytest.mark.build
def test_a_sweep_interrupted_at_its_report_is_gone_on_with(trial, tmp_path, monkeypatch):
    need("cc", "matplotlib")

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(compare, "page", interrupt)
        sweep.sweep(plan.load(trial), tmp_path, quiet())
    (folder,) = tmp_path.glob("*/")
    written = {path: path.stat().st_mtime_ns for path in folder.glob("*/metrics.json")}
    assert len(written) == 4 and not (folder / "report.html").exists()
    assert sweep.sweep(plan.load(trial), tmp_path, quiet()) == folder and (folder / "report.html").exists()
    assert written == {path: path.stat().st_mtime_ns for path in written}  # none was run again
    assert sweep.sweep(plan.load(trial), tmp_path, quiet()) != folder  # it is finished now


@pytest.mark.build
@pytest.mark.later
def test_points_in_processes_are_the_same_points(trial, tmp_path):
    need("cc", "matplotlib")
    one = sweep.sweep(plan.load(trial), tmp_path / "one", quiet())
    two = sweep.sweep(plan.load(trial), tmp_path / "two", quiet(), processes=2)
    for a, b in zip(compare.points(one), compare.points(two), strict=True):
        assert a.config == b.config
        assert (a.path / "metrics.json").read_bytes() == (b.path / "metrics.json").read_bytes()


# ---- the experiments of the repository, smaller ------------------------------------------------------------------


def figures(folder: Path, key: str) -> list[float]:
    return [row[key] for result in compare.points(folder) for row in result.summary]


@pytest.mark.build
def test_loss_sweep(tmp_path):
    """More loss: more retransmissions, less goodput."""
    need("cc", "matplotlib")
    trials = plan.load(plan.find("loss-sweep"), {"elements": "50000", "workers": "4", "seed": "1"}, {"loss": "[0.0, 0.01, 0.1]"})
    folder = sweep.sweep(trials, tmp_path, quiet())
    goodput, again = figures(folder, "goodput_gbps"), figures(folder, "retransmissions")
    assert goodput == sorted(goodput, reverse=True) and again == sorted(again) and again[0] == 0 < again[1]


@pytest.mark.build
def test_worker_scaling(tmp_path):
    """All-reduce time does not depend on the number of workers; a ring's does."""
    need("cc", "matplotlib")
    trials = plan.load(plan.find("worker-scaling"), {"elements": "100000"}, {"workers": "[2, 16]"})
    folder = sweep.sweep(trials, tmp_path, quiet())
    times, ring = figures(folder, "time_ms"), figures(folder, "ring_model_ms")
    assert times[1] == pytest.approx(times[0], rel=0.01) and ring[1] > 1.3 * ring[0]


@pytest.mark.build
def test_four_ways(tmp_path):
    """A link carries the tensor once with the switch, nearly twice with a ring, once a worker at a server; ATP uses both."""
    need("cc", "matplotlib")
    overrides = {"elements": "100000", "delay": "0.1e-6"}
    folder = sweep.sweep(plan.load(plan.find("four-ways"), overrides, {"workers": "[8]"}), tmp_path, quiet())
    rows = [(r.config.algorithm, r.config.protocol, r.summary[0]["time_ms"]) for r in compare.points(folder)]
    times = {protocol if algorithm == "in-network" else algorithm: ms for algorithm, protocol, ms in rows}
    assert times["switchml"] < times["atp"] < 1.5 * times["switchml"] < times["ring"] < 2.5 * times["switchml"]
    assert 6 * times["switchml"] < times["ps"] < 10 * times["switchml"]


@pytest.mark.build
def test_a_parameter_server_needs_a_host():
    with pytest.raises(ConfigError, match="has 0 switches with a host left for a parameter server of atp"):
        allreduce.reduce(AllReduce(protocol="atp", topology="leaf-spine leaves=2 spines=1 hosts=2", workers=4, elements=1000))


@pytest.mark.build
def test_two_jobs(tmp_path):
    """Two jobs are each as fast as one alone while the slots suffice, and not below."""
    need("cc", "matplotlib")
    trials = plan.load(plan.find("two-jobs"), {"elements": "50000"}, {"pool": "[16, 128]"})
    folder = sweep.sweep(trials, tmp_path, quiet())
    narrow, wide, *both = figures(folder, "time_ms")
    assert both[0] == pytest.approx(both[1]) and both[0] > 1.5 * narrow
    assert both[2] == pytest.approx(wide, rel=0.02) and both[3] == pytest.approx(wide, rel=0.02)


@pytest.mark.build
@pytest.mark.gate
def test_lossy_training(tmp_path):
    """Real ranks: losses change the time of a sum, not its value. The parameters are the same to the bit."""
    need("cc", "torch", "matplotlib", "fashion-mnist")
    trials = plan.load(plan.find("lossy-training"), {"steps": "3", "backends": "ina"}, {"faults": '["", "loss=0.02,seed=1"]'})
    folder = sweep.sweep(trials, tmp_path, quiet())
    clean, lossy = compare.points(folder)
    parameters = [np.load(result.path / "parameters-ina-step3.npy") for result in (clean, lossy)]
    np.testing.assert_array_equal(*parameters)
    assert lossy.summary[0]["retransmissions"] > 0, "on a busy machine the other run has some, too"
    page = (folder / "report.html").read_text()
    assert "training loss by step" in page and "<td>loss=0.02,seed=1</td>" in page


# ---- comparing ---------------------------------------------------------------------------------------------------


def a_training(path: Path, name: str, backends=("ina", "gloo"), **keys) -> Path:
    config = Config(name=name, backends=backends, **keys)
    folder = record.Folder(path / name, config)
    runs = [
        Run(backend, [2.0, 1.0], [0.1, 0.2], [0.01, 0.02], [1000, 1000], 0.5, 0.3, 1.0, "data", 7) for backend in backends
    ]
    folder.save(runs, {}, finished=True)
    return folder.path


@pytest.mark.build
def test_any_folders_are_compared_in_one_page(trial, tmp_path, capsys):
    """Trainings with different faults, and a sweep of all-reduces: a table and plots for each kind."""
    need("cc", "matplotlib")
    faults = {"a": "", "b": "loss=0.01", "c": "dup=0.01"}
    folders = [a_training(tmp_path, name, faults=text) for name, text in faults.items()]
    folders.append(sweep.sweep(plan.load(trial, {"jobs": "1"}), tmp_path, quiet()))
    page_file = tmp_path / f"[b]{'long ' * 20}" / "page.html"
    page_file.parent.mkdir()
    assert cli.main(["report", *map(str, folders), "--output", str(page_file)]) == 0
    page = page_file.read_text()
    assert page.count("<table>") >= 4 and page.count("<svg") == 6 + 4
    assert "loss=0.01" in page and "gloo (loopback)" in page
    assert f"Report: {page_file}\n" in capsys.readouterr().out, "in one line, and as it is"


def a_reduction(path: Path, name: str, packets: int, **keys) -> record.Result:
    folder = record.Folder(path / name, AllReduce(name=name, **keys))
    stats = {"workers": {"tx_packets": packets, "retransmissions": 0}}
    seconds = 1234.5678 + packets % 10
    folder.save([Reduction("job 0", 8, 4_000_000, seconds, "h1>s1", 4_299_000, 0.994, 0.000588, stats)], {}, True)
    return record.load(folder.path)


@pytest.mark.build
@pytest.mark.parametrize("width", [None, 80, 36])
def test_a_table_never_cuts_a_figure(tmp_path, width):
    """A terminal gets the names of columns that do not fit below the table; a pipe, which counts as 80 wide, gets all columns."""
    results = [a_reduction(tmp_path, f"{index}", 10**7 + index, rate=rate, topology="fat-tree k=4", loss=0.0001 * index)
               for index, rate in enumerate((10e9, 25e9))]  # fmt: skip
    out = io.StringIO()
    compare.show(Console(file=out, width=width or 80, force_terminal=width is not None, color_system=None), "a title", results)
    output = out.getvalue()
    assert "…" not in output and "1234567.8000" in output and "25 Gb/s" in output
    assert "in all rows job: job 0" in " ".join(output.split()), "said once"
    assert max(len(row.rstrip()) for row in output.splitlines()) <= (width or 200)
    assert ("10,000,001" in output) == (width != 36) == ("only in the report" not in " ".join(output.split()))


@pytest.mark.fast
@pytest.mark.parametrize("places", [(2, 4, 8), ("ring", "tree")])
def test_legends_cover_nothing(places):
    need("matplotlib")
    lines = {f"a line with a name of some length, {n}": [(x, 1 + n * i) for i, x in enumerate(places)] for n in range(12)}
    extents = []

    def draw(axes):
        compare._draw(axes, lines, "workers", "what is seen")
        axes.figure.canvas.draw()
        extents.append((axes.get_legend().get_window_extent().x0, axes.get_window_extent().x1))

    image = report.svg(draw)
    assert extents[0][0] >= extents[0][1] and image.count("a line with a name") == 12
    width = float(re.search(r'width="([0-9.]+)pt"', image)[1])
    assert width > 6.4 * 72, "the picture has grown by the legend"


@pytest.mark.fast
def test_values_are_said_with_their_units():
    assert [units.format_value(value, "rate") for value in (1e11, 2.5e10, 0.0)] == ["100 Gb/s", "25 Gb/s", "0"]
    assert [units.format_value(value, "rto_min") for value in (1e-4, 0.25, 2.0)] == ["100 us", "250 ms", "2 s"]
    assert units.format_value(0.0001, "loss") == "0.0001"
    assert (units.format_value(524288, "queue"), units.format_value(512, "pool")) == ("524.288 kB", "512")
    assert (units.axis("pool"), units.axis("rate"), units.axis("workers")) == ("pool, slots", "rate", "workers")
    for key in {name for kind in kinds().values() for name in keys(kind)}:  # a key means the same in every kind
        assert len({keys(kind)[key].unit for kind in kinds().values() if key in keys(kind)}) == 1, key


@pytest.mark.build
def test_equal_configurations_are_told_apart_by_their_folders(tmp_path):
    need("matplotlib")
    results = [record.load(a_training(tmp_path, name)) for name in ("before", "after")]
    results[1].environment["commit"] = "another"
    page = compare.page("two runs", "", results)
    assert "<td>before</td>" in page and "<td>after</td>" in page
    assert "These runs differ in commit." in page


@pytest.mark.build
def test_what_cannot_be_compared_is_named(tmp_path, capsys):
    assert cli.main(["report", str(tmp_path)]) == 1
    assert f"{tmp_path}: neither experiment.json" in capsys.readouterr().err
    folder = a_training(tmp_path, "old")
    metrics = json.loads((folder / "metrics.json").read_text())
    for change, message in (({"schema": 1}, "schema 1, expected 2"), ({"finished": False}, "no run in it is finished")):
        (folder / "metrics.json").write_text(json.dumps(metrics | change))
        assert cli.main(["report", str(folder)]) == 1
        assert message in capsys.readouterr().err
    for name, text, message in (("metrics.json", "{", "metrics.json"), ("metrics.json", "[1]", "expected an object"),
                                ("metrics.json", '{"schema": 2}', "has no key 'summary'"),
                                ("experiment.json", "{}", "expected 'points'")):  # fmt: skip
        (folder / name).write_text(text)
        assert cli.main(["report", str(folder)]) == 1
        assert message in capsys.readouterr().err
