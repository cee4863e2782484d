"""Sweeps on a Ray cluster, and sweeps that are terminated."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import child
import pytest
from capabilities import need
from rich.console import Console
from waiting import until

from ina.base.extras import Missing
from ina.base.settings import ConfigError
from ina.lab import cluster, plan, sweep
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.results import compare
from ina.lab.results.record import finished, sources

pytestmark = pytest.mark.build
SMALL = """about = "small"
kind = "allreduce"
name = "small"
workers = 2
elements = 2000
values = 32
pool = 64

[sweep]
loss = [0.0, 0.01]
seed = [1, 2]
"""


def small(tmp_path: Path) -> plan.Plan:
    (tmp_path / "small.toml").write_text(SMALL)
    return plan.load(tmp_path / "small.toml")


@pytest.mark.gate
def test_a_local_ray_instance_gives_the_same_figures(tmp_path):
    """Points come back as files; what is there already is not run again; one that fails does not hide the others."""
    need("cc", "ray")
    chosen = small(tmp_path)
    here = sweep.sweep(chosen, tmp_path / "here", Console(quiet=True), tables=False)
    there = sweep.sweep(chosen, tmp_path / "there", Console(quiet=True), tables=False, ray="local")
    figures = [[point.summary for point in compare.points(folder)] for folder in (here, there)]
    assert figures[0] == figures[1] and len(figures[0]) == 4
    assert (there / "report.html").is_file()

    lost = there / chosen.points[2].folder(2)
    (lost / "metrics.json").unlink()
    (lost / "error.txt").write_text("of an attempt before")
    stamps = {place: (there / place / "metrics.json").stat().st_mtime_ns
              for place in (p.folder(i) for i, p in enumerate(chosen.points) if i != 2)}
    again = sweep.sweep(chosen, tmp_path / "there", Console(quiet=True), tables=False, ray="local")
    assert again == there and finished(lost) and not list(there.rglob("error.txt"))
    assert all((there / place / "metrics.json").stat().st_mtime_ns == stamp for place, stamp in stamps.items())


def test_a_node_with_another_program_says_so():
    need("cc")
    config = AllReduce(workers=2, elements=100, values=32)
    error, files = cluster.measured(config, sources(config) | {"worker": "another"})
    assert error == "the node has another worker than this machine: install the same ina there" and files == {}
    error, files = cluster.measured(config, sources(config))
    assert error == "" and {"metrics.json", "config.json", "environment.json", "report.html"} <= set(files)
    error, files = cluster.measured(AllReduce(workers=2, elements=100, values=32, timeout=1e-9), sources(config))
    assert "Timed out" in error and "metrics.json" not in files


def test_ray_is_missing_or_silent(tmp_path, monkeypatch):
    chosen = small(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Missing, match=r"--ray needs Ray: pip install 'ina\[ray\]'"):
        sweep.sweep(chosen, tmp_path, Console(quiet=True), ray="auto")
    (tmp_path / "local.toml").write_text(SMALL.replace("[sweep]", 'world = "local"\n[sweep]'))
    with pytest.raises(ConfigError, match="expected 'virtual' with --ray"):
        sweep.sweep(plan.load(tmp_path / "local.toml"), tmp_path, Console(quiet=True), ray="auto")
    assert sorted(path.read_text().split()[0] for path in tmp_path.glob("small-*/error.txt")) == ["--ray", "world"]


def test_a_head_that_takes_no_connection_is_refused_before_ray_tries(tmp_path):
    need("ray")
    with socket.socket() as closed:  # bound, and does not listen
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"--ray {address}: no Ray cluster answers there: .*refused"):
            sweep.sweep(small(tmp_path), tmp_path, Console(quiet=True), ray=address)


def children(pid: int) -> set[int]:
    """Descendants of a process."""
    pids = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            pids |= {int(stat.parent.name)} | children(int(stat.parent.name))
    return pids


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.later
@pytest.mark.parametrize(("world", "sign", "status"), [
    ("virtual", signal.SIGTERM, 143), ("virtual", signal.SIGKILL, -9), ("local", signal.SIGTERM, 143),
])
def test_a_sweep_that_is_told_to_end_leaves_no_process(tmp_path, world, sign, status):
    """Points that would take minutes; the processes end with their runner, in whatever way that ends."""
    need("cc")
    (tmp_path / "long.toml").write_text(SMALL.replace("elements = 2000", f'elements = 20_000_000\nworld = "{world}"'))
    command = [sys.executable, "-m", "ina.cli", "experiment", "run", str(tmp_path / "long.toml"), "--results", str(tmp_path),
               "--processes", "2"]
    root = str(Path(__file__).parent.parent.parent)
    runner = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": root}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
    try:
        folder = "000-loss=0.0,seed=1"
        until(lambda: list(tmp_path.glob(f"small-*/{folder}*/environment.json")) or runner.poll() is not None, "a point")
        until(lambda: len(children(runner.pid)) >= 2 or runner.poll() is not None, "two processes")
        assert runner.poll() is None, runner.stdout.read()
        started = children(runner.pid)
        runner.send_signal(sign)
        output, _ = child.output(runner)
        assert runner.returncode == status
        assert sign == signal.SIGKILL or "ina: terminated; every process of the run has been ended" in output
        until(lambda: not any(map(alive, started)), "the end of all processes")
    finally:
        runner.kill()
        runner.wait()
