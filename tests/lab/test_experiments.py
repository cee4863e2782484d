"""experiments/: files that are plans, sweeps that go on where they were, and pages that compare; in virtual time."""

import html
import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import child
import numpy as np
import pytest
from capabilities import need
from small_sweep import SMALL, quiet, trial
from waiting import until

from ina import cli
from ina.aggregation.worker.errors import JobTimeout
from ina.base.settings import ConfigError
from ina.lab import library, plan, sweep
from ina.lab.kind import kinds
from ina.lab.kinds import allreduce
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.kinds.training import Training
from ina.lab.results import compare, record

__all__ = ["trial"]  # a fixture
ROOT = Path(__file__).resolve().parent.parent.parent


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
        ('kind = "allreduced"', "expected 'allreduce' or 'asynchronous' or 'byteps' or 'compression' or 'embeddings' or"),
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
def test_points_are_counted_before_any_is_resolved(trial, monkeypatch):
    monkeypatch.setattr(plan, "MOST_POINTS", 4)
    trial.write_text('kind = "allreduce"\n[[sweep]]\nworkers = [2, 3, 4]\n[[sweep]]\nworkers = [3, 4, 5]')
    assert [point.config.workers for point in plan.load(trial).points] == [2, 3, 4, 5]
    monkeypatch.setattr(AllReduce, "resolved", lambda self: pytest.fail("a point was resolved"))
    trial.write_text('kind = "allreduce"\n[[sweep]]\nworkers = [2, 3, 4]\n[[sweep]]\nworkers = [4, 5, 6]')
    with pytest.raises(ConfigError, match="more than 4 points"):
        plan.load(trial)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "topology=fat-tre k=4"], "topology = 'fat-tre k=4': there is no topology 'fat-tre'; there are: fat-tree"),
        (["--set", "topology=fat-tree k=3"], "topology = 'fat-tree k=3': fat-tree: k is 3, expected an even number"),
        (["--set", "topology=fat-tree k=2", "--sweep", "jobs=[1, 2]"], "topology = 'fat-tree k=2': it has 2 hosts, expected 4, "
         "one for each of workers = 2 in jobs = 2"),
        (["--set", "rate=2e12"], "command line: rate = 2000000000000.0: expected 0 to 1e+12 (bit/s of a topology's link"),
        (["--set", "queue=1073741825"], "command line: queue = 1073741825: expected 0 to 1,073,741,824 (bytes of a topology's"),
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
    lines = path.read_text().splitlines()
    assert lines[0] == f"# {kinds()[kind].guidance()}"
    assert [line.split()[0] for line in lines[1:]] == list(kinds()[kind].__dataclass_fields__)


@pytest.mark.fast
def test_a_shown_experiment_is_the_experiment(trial, tmp_path):
    path = tmp_path / "shown.toml"
    path.write_text(plan.show(AllReduce, plan.load(trial)))
    assert plan.load(path) == plan.load(trial)


@pytest.mark.fast
def test_a_shown_sweep_keeps_what_only_some_of_its_points_decide(tmp_path):
    """Keys that other keys decide point by point, and a key with a value of its own where a table does not sweep it."""
    path, shown = tmp_path / "sweep.toml", tmp_path / "shown.toml"
    path.write_text('kind = "allreduce"\nloss = 0.01\nworkers = 4\n[[sweep]]\nloss = [0.0, 0.02]\n[[sweep]]\npool = [16, 64]\n')
    given = plan.load(path)
    shown.write_text(plan.show(AllReduce, given))
    assert plan.load(shown) == given and [point.config.loss for point in given.points] == [0.0, 0.02, 0.01, 0.01]


@pytest.mark.fast
@pytest.mark.parametrize("path", library.available(), ids=library.named)
def test_every_shown_file_is_the_experiment(tmp_path, path):
    given, shown = plan.load(path), tmp_path / path.name
    shown.write_text(plan.show(type(given.base), given))
    assert plan.load(shown) == given


@pytest.mark.fast
def test_documented_keys_are_the_keys():
    text = (ROOT / "docs" / "reference" / "keys.md").read_text()
    for name, kind in kinds().items():
        assert plan.markdown(kind) in text, f"docs/reference/keys.md: the table of {name} should be:\n{plan.markdown(kind)}"


@pytest.mark.fast
def test_list_and_show(capsys):
    assert cli.main(["experiment", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    there = {library.named(path) for path in (*library.available(), *library.large())}
    assert {line.split()[0] for line in lines} == there >= {"loss-sweep", "two-jobs"}
    assert cli.main(["experiment", "show", "two-jobs"]) == 0
    assert "jobs = [1, 2]" in capsys.readouterr().out
    assert cli.main(["experiment", "show", "two-job"]) == 2
    assert "did you mean 'two-jobs'" in capsys.readouterr().err


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
    assert page.count("<svg") == 5 and "a trial" in page and "<script" not in page
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
    skipped: list[record.ResultsError] = []
    open_folder = partial(sweep.open_folder, chosen, root, new=False, skipped=skipped.append)
    folder, hold = open_folder(None)
    try:
        other, other_hold = open_folder(None)
        os.close(other_hold)
        assert other != folder
        with pytest.raises(sweep.Held, match="another process"):
            open_folder(folder)
    finally:
        os.close(hold)
    assert not skipped


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
    overrides = {"elements": "50000", "workers": "4", "seed": "1"}
    trials = plan.load(library.find("loss-sweep"), overrides, {"loss": "[0.0, 0.01, 0.1]"})
    folder = sweep.sweep(trials, tmp_path, quiet())
    goodput, again = figures(folder, "goodput_gbps"), figures(folder, "retransmissions")
    assert goodput == sorted(goodput, reverse=True) and again == sorted(again) and again[0] == 0 < again[1]


@pytest.mark.build
def test_worker_scaling(tmp_path):
    """All-reduce time does not depend on the number of workers; a ring's does."""
    need("cc", "matplotlib")
    trials = plan.load(library.find("worker-scaling"), {"elements": "100000"}, {"workers": "[2, 16]"})
    folder = sweep.sweep(trials, tmp_path, quiet())
    times, ring = figures(folder, "time_ms"), figures(folder, "ring_model_ms")
    assert times[1] == pytest.approx(times[0], rel=0.01) and ring[1] > 1.3 * ring[0]


@pytest.mark.build
def test_four_ways(tmp_path):
    """A link carries the tensor once with the switch, nearly twice with a ring, once a worker at a server; ATP uses both."""
    need("cc", "matplotlib")
    overrides = {"elements": "100000", "delay": "0.1e-6"}
    folder = sweep.sweep(plan.load(library.find("four-ways"), overrides, {"workers": "[8]"}), tmp_path, quiet())
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
    trials = plan.load(library.find("two-jobs"), {"elements": "50000"}, {"pool": "[16, 128]"})
    folder = sweep.sweep(trials, tmp_path, quiet())
    narrow, wide, *both = figures(folder, "time_ms")
    assert both[0] == pytest.approx(both[1]) and both[0] > 1.5 * narrow
    assert both[2] == pytest.approx(wide, rel=0.02) and both[3] == pytest.approx(wide, rel=0.02)


@pytest.mark.build
@pytest.mark.gate
def test_lossy_training(tmp_path):
    """Real ranks: losses change the time of a sum, not its value. The parameters are the same to the bit."""
    need("cc", "torch", "matplotlib", "fashion-mnist")
    trials = plan.load(library.find("lossy-training"), {"steps": "3", "backends": "ina"}, {"faults": '["", "loss=0.02,seed=1"]'})
    folder = sweep.sweep(trials, tmp_path, quiet())
    clean, lossy = compare.points(folder)
    parameters = [np.load(result.path / "parameters-ina-step3.npy") for result in (clean, lossy)]
    np.testing.assert_array_equal(*parameters)
    assert lossy.summary[0]["retransmissions"] > 0, "on a busy machine the other run has some, too"
    page = (folder / "report.html").read_text()
    assert "training loss by step" in page and "<td>loss=0.02,seed=1</td>" in page


@pytest.mark.fast
@pytest.mark.parametrize(("keys", "message"), [
    ({"complete": "k=5"}, "'k=1' to 'k=4'"), ({"complete": "most"}, "'k=1' to 'k=4'"),
    ({"complete": "k=3"}, "a protocol that has it"), ({"complete": "k=2", "least": 3, "deadline": 1.0}, "at most 2"),
    ({"complete": "dynamic", "least": 5}, "at most 4"), ({"least": 2}, "1, without 'dynamic' or a deadline"),
    ({"complete": "k=3", "backends": ("quorum",), "check": "keyed"}, "a protocol that has it"),
    ({"complete": "k=3", "backends": ("quorum",), "codec": "exact"}, "block with complete"), ({"deadline": 1.0}, "for deadline"),
])
def test_averages_of_the_ready_need_a_protocol_that_has_them(keys, message):
    with pytest.raises(ConfigError, match=message):
        Training(**{"workers": 4, **keys})
    assert Training(workers=4, complete="k=3", backends=("quorum", "gloo")).chooses("quorum")
    assert not Training(workers=4, complete="k=3", backends=("quorum", "gloo")).chooses("gloo")
