"""The main job, small: real training through the compiled switch, beside the same training over Gloo."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import child
import pytest
from capabilities import need
from waiting import until

need("cc", "torch", "matplotlib")
ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = [pytest.mark.build, pytest.mark.later]


def ina_run(folder: Path, *arguments: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "ina.cli", "run", "--results", str(folder), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("environment", {})}
    return child.run(command, child.TRAINING, cwd=ROOT, env=environment, **options)


def test_training_equals_gloo_s(tmp_path):
    """100 steps of DDP: parameters within 1e-3 (relative L2) of Gloo's, accuracy within half a point."""
    need("fashion-mnist")
    done = ina_run(tmp_path, "--steps", "100", "--workers", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = tmp_path.iterdir()
    metrics = json.loads((folder / "metrics.json").read_text())
    distance = next(v for k, v in metrics["comparison"].items() if "L2" in k)
    assert 0 < distance < 1e-3
    ours, gloo = metrics["summary"]
    assert ours["backend"] == "ina" and ours["packets"] > 0
    assert abs(ours["accuracy"] - gloo["accuracy"]) < 0.005
    assert ours["accuracy"] > 0.6, "it learns something"
    assert all(0 < run["network"]["processors"] <= 1 and run["network"]["links"] == {} for run in metrics["runs"])
    assert {ours["bound"], gloo["bound"]} <= {"host-limited", "neither"}
    for word in ("test accuracy", "retransmissions", "goodput", "ina (P4 switch)", "gloo (loopback)"):
        assert word in done.stdout
    assert (folder / "report.html").read_text().count("<svg") == 3


def test_gradients_travel_by_the_codec_that_the_configuration_names(tmp_path):
    need("fashion-mnist")
    own = ("--set", "codec=lanes-16", "--set", "model=small")
    done = ina_run(tmp_path, "--steps", "5", "--workers", "2", "--backends", "ina", *own)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = tmp_path.iterdir()
    counts = json.loads((folder / "metrics.json").read_text())["runs"][0]["stats"]["codecs"]["lanes-16"]
    assert counts["elements"] >= 5 * 39_000 and counts["words"] < 0.55 * counts["elements"]


def test_a_codec_that_remembers_is_made_for_each_bucket_and_the_time_to_an_accuracy_is_told(tmp_path):
    need("fashion-mnist")
    keys = ("codec=thc", "model=transformer", "bucket_mb=0.1", "evaluate=5", "batch=16", "target=0.05")
    own = [word for each in keys for word in ("--set", each)]
    done = ina_run(tmp_path, "--steps", "10", "--workers", "2", "--backends", "ina", *own)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = tmp_path.iterdir()
    metrics = json.loads((folder / "metrics.json").read_text())
    counts, (summary,) = metrics["runs"][0]["stats"]["codecs"], metrics["summary"]
    assert set(counts) == {"thc"} and counts["thc"]["sums"] > 20, "several buckets a step"
    assert counts["thc"]["elements"] == 10 * 71_370 and metrics["runs"][0]["stats"]["reasons"] == {}
    assert summary["up_kb"] == summary["down_kb"] < 0.25 * 4 * 71.37
    assert [step for step, _ in metrics["runs"][0]["accuracies"]] == [5, 10]
    assert summary["target_steps"] in (5, 10) and 0 < summary["target_s"] < summary["training_s"]
    assert "s to target" in done.stdout or "time to the target" in done.stdout


def test_a_codec_that_is_not_there_is_refused_with_the_names_of_those_that_are(tmp_path):
    done = ina_run(tmp_path, "--steps", "5", "--set", "codec=zip")
    assert done.returncode == 2 and "block-64, block-32, two-limb, exact, lanes-16" in done.stderr


def test_training_survives_faults(tmp_path):
    need("fashion-mnist")
    faults = "loss=0.01,dup=0.01,reorder=0.01,corrupt=0.001,seed=3"
    done = ina_run(tmp_path, "--steps", "10", "--workers", "2", "--backends", "ina,gloo", "--faults", faults)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = tmp_path.iterdir()
    metrics = json.loads((folder / "metrics.json").read_text())
    assert next(v for k, v in metrics["comparison"].items() if "L2" in k) < 1e-5
    assert metrics["summary"][0]["retransmissions"] > 0


def processes_with(marker: str) -> list[int]:
    """Processes of this user whose environment has the marker: everything that a run started."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "environ").read_bytes():
                    pids.append(int(entry.name))
            except OSError:
                continue  # gone, or somebody else's
    return pids


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_run_is_ended(tmp_path, sign):
    """Ctrl-C, SIGTERM and kill -9 of the runner while ranks and switch work: all of them end."""
    need("fashion-mnist")
    marker = f"INA_TEST_MARKER={os.getpid()}-{tmp_path}"
    name, value = marker.split("=")
    command = [sys.executable, "-m", "ina.cli", "run", "--results", str(tmp_path), "--backends", "ina", "--workers", "2", "--set",
               "compare_step=1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), name: value}
    runner = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        until(lambda: runner.poll() is not None or list(tmp_path.glob("*/parameters-ina-step1.npy")), "the first step")
        assert runner.poll() is None and len(processes_with(marker)) >= 4
        runner.send_signal(sign)
        child.status(runner)
        until(lambda: not processes_with(marker), "the end of all processes")
        if sign != signal.SIGKILL:
            message = b"ina: interrupted" if sign == signal.SIGINT else b"ina: terminated"
            assert runner.returncode == 128 + sign
            assert message + b"; every process of the run has been ended" in runner.stderr.read()
    finally:
        runner.kill()
        runner.stderr.close()


def small_files_only() -> None:
    """Limits the child's files to 512 bytes, as on a full disk; writing more fails with EFBIG."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))


def test_full_disk_is_a_clear_error(tmp_path):
    """A results folder that cannot take the file: the error names it; no traceback."""
    done = ina_run(tmp_path, preexec_fn=small_files_only)
    assert done.returncode == 1
    assert os.strerror(errno.EFBIG) in done.stderr and str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.gate
def test_results_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    done = ina_run(tmp_path / "file")
    assert done.returncode == 1 and str(tmp_path / "file") in done.stderr and "Traceback" not in done.stderr


@pytest.mark.gate
@pytest.mark.parametrize("full", [True, False], ids=["full disk", "not a folder"])
def test_a_cache_that_cannot_be_written_is_named(tmp_path, full):
    """`ina compile` with nowhere to put the program: an error that names the place, no traceback, nothing half-written."""
    place = tmp_path / "cache"
    if not full:
        place.write_text("")
    command = [sys.executable, "-m", "ina.cli", "compile", "p4/switchml.p4", "-D", "VALUES=32"]
    done = child.run(command, cwd=ROOT, env={**os.environ, "INA_CACHE": str(place)},
                     preexec_fn=small_files_only if full else None)
    assert done.returncode == 1 and str(place) in done.stderr and "set INA_CACHE" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not full or not list(place.rglob("*.so"))
