"""`python -m bench.soak_servers`: a short run, and that it would see what is wrong."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import child
import numpy as np
import pytest
import tiers
from capabilities import need

from bench import soak_rank, soak_servers

ROOT = Path(__file__).resolve().parent.parent.parent.parent


@pytest.mark.build
@pytest.mark.later
def test_jobs_come_and_go_while_much_goes_wrong(tmp_path):
    need("cc")
    tiers.several_processes("starts switch processes and ranks")
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench.soak_servers", "--minutes", 0.2, "--seed", 3, "--json", figures]
    done = child.run(command, 600, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(figures.read_text())
    assert report["sums"] > 0 and report["jobs"] and report["restarts"] >= 1 and sum(report["strangers"].values()) > 0
    assert report["errors"] == [] and report["growth"]["steady"]["jobs"] == 0
    assert "all right" in done.stdout and "steady: growth of memory" in done.stdout


@pytest.mark.fast
def test_a_sum_of_its_own_wraps_as_32_bits_do():
    wide = sum(soak_rank.values(5, 2, rank, 1000).astype(object) for rank in range(4))
    assert [(int(value) + 2**31) % 2**32 - 2**31 for value in wide] == soak_rank.expected(5, 2, 4, 1000).tolist()
    assert np.abs(wide).max() > 2**31


class Switch:
    name, lives = "steady", 1


class Ended:
    """A process that has ended."""

    def __init__(self, status=0):
        self.exitcode = status

    def close(self):
        pass


def judged(folder, *results, bad="", victim=-1, life=1, late=0.5):
    """The errors of a job whose ranks have ended so; the victim with a kill, and the others ``late`` seconds after it."""
    soak = soak_servers.Soak(1, 1, folder, lambda text: None)
    paths, processes, ended = [], [], {}
    for rank, result in enumerate(results):
        paths.append(folder / f"{rank}.json")
        if result is not None:
            paths[-1].write_text(json.dumps({"sums": 3, "wrong": 0, "forged": 0, "failure": ""} | result))
        processes.append(Ended(-signal.SIGKILL if rank == victim else 0))
        ended[rank] = 100.0 + (0 if rank == victim else late)
    soak._judge(soak_servers.Job("job 1", Switch(), life, bad, victim, processes, paths, 99.0, ended))
    return soak.report.errors


LOST = {"failure": "JobError: worker 1 is lost"}


@pytest.mark.fast
@pytest.mark.parametrize(("results", "more", "words"), [
    (({}, {}), {}, None),
    (({}, {"wrong": 2}), {}, "2 wrong sums at rank 1"),
    (({}, LOST), {}, "should have ended in peace"),
    (({}, LOST), {"life": 0}, None),
    (({}, None), {}, "rank 1 ended with status 0 and no result"),
    ((LOST, None, LOST), {"bad": "kill", "victim": 1}, None),
    ((LOST, None, {}), {"bad": "kill", "victim": 1}, "1 ranks did not hear that rank 1 was lost by kill"),
    ((LOST, None, LOST), {"bad": "reset", "victim": 1, "late": 11.0}, "ranks heard of a lost one 11.0 s later; expected 10 s"),
    ((LOST, None, LOST), {"bad": "kill", "victim": 1, "late": 11.0, "life": 0}, None),
])
def test_a_job_that_ends_otherwise_than_it_should_is_wrong(tmp_path, results, more, words):
    errors = judged(tmp_path, *results, **more)
    assert len(errors) == bool(words) and (not words or words in errors[0]), errors


@pytest.mark.fast
@pytest.mark.parametrize(("remains", "grown", "words"), [
    ({"jobs": 0, "ports": 0, "slots": 0, "descriptors": 0}, 0, []),
    ({"jobs": 1, "ports": 0, "slots": 32, "descriptors": 0}, 0, ["1 jobs remain", "32 slots remain"]),
    ({"jobs": 0, "ports": 2, "slots": 0, "descriptors": 3}, 9 << 20,
     ["2 ports remain", "3 descriptors remain", "grew by 9216 KiB"]),
])
def test_what_remains_and_what_grows_is_wrong(tmp_path, monkeypatch, remains, grown, words):
    soak = soak_servers.Soak(1, 1, tmp_path, lambda text: None)
    soak.switches = [SimpleNamespace(name="steady", lives=1, awake=lambda: True, remains=lambda: dict(remains),
                                     grown=lambda since: grown, measure=lambda: 1 << 20)]
    monkeypatch.setattr(soak_servers, "ENDED", 0.0)
    soak._settle()
    assert len(soak.report.errors) == len(words)
    assert all(word in error for word, error in zip(words, soak.report.errors, strict=True)), soak.report.errors
    assert soak_servers.LIMITS["memory"] == 8 << 20


@pytest.mark.fast
def test_one_that_is_not_ready_in_time_for_a_look_is_waited_for_and_looked_at(tmp_path, monkeypatch):
    def switch(name, looks, jobs):
        ready = iter(looks)
        return SimpleNamespace(name=name, lives=2, awake=lambda: next(ready, True), remains=lambda: {"jobs": jobs},
                               grown=lambda since: 0, measure=lambda: 1 << 20)

    soak = soak_servers.Soak(1, 1, tmp_path, lambda text: None)
    soak.switches = [switch("steady", [], 0), switch("restarted", [False, False], 1)]
    monkeypatch.setattr(soak_servers, "ENDED", 0.0)
    monkeypatch.setattr(soak_servers, "LOOK", 0.0)
    soak._settle()
    assert soak.report.errors == ["restarted: 1 jobs remain 0 s after its last job"]


@pytest.mark.fast
def test_growth_is_what_stays_and_no_peak(monkeypatch):
    switch = object.__new__(soak_servers.Switch)
    begin = 100.0
    switch.memory = [(begin + i, size << 20) for i, size in enumerate((90, 10, 12, 11, 50, 13, 40, 12))]
    assert switch.grown(begin + 1) == 0 and switch.grown(begin + 6) == 0
    switch.memory += [(begin + 10 + i, size << 20) for i, size in enumerate((40, 41, 60))]
    assert switch.grown(begin + 1) == 28 << 20
