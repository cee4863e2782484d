"""Progress of runs: seldom redrawn on a terminal, a line every few seconds in a pipe, and nothing twice."""

import io

import pytest
from capabilities import need
from rich.console import Console
from small_sweep import trial

from ina.lab import plan, sweep
from ina.lab.results import progress

__all__ = ["trial"]  # a fixture


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    return clock


@pytest.mark.fast
def test_a_pipe_gets_a_line_every_few_seconds_and_the_last_one_once(clock):
    out = io.StringIO()
    with progress.Steps(Console(file=out, width=80), "ina (P4 switch)") as bar:
        for step in range(0, 121):
            bar.update(step, 120, f"loss {1 / (1 + step):.3f}")
            clock.now += 0.125
        clock.now += 10
        for _ in range(2):
            bar.update(120, 120, "accuracy 70.00%")
    lines = out.getvalue().splitlines()
    assert lines == ["ina (P4 switch): 32 of 120 steps, loss 0.030", "ina (P4 switch): 64 of 120 steps, loss 0.015",
                     "ina (P4 switch): 96 of 120 steps, loss 0.010", "ina (P4 switch): 120 of 120 steps, accuracy 70.00%"]


@pytest.mark.fast
def test_a_pipe_hears_of_a_start_and_of_a_step_that_take_long(clock):
    """Ranks import torch and read the images before their first step, and measure the accuracy after the last one."""
    out = io.StringIO()
    with progress.Steps(Console(file=out, width=80), "ina (P4 switch)") as bar:
        for begins in (True, False):
            for _ in range(36):  # 9 s
                clock.now += 0.25
                bar.waiting()
            if begins:
                bar.update(1, 3, "loss 2.000")
        clock.now += 3
        bar.update(2, 3, "loss 1.000")
        bar.waiting()
    assert out.getvalue().splitlines() == [
        "ina (P4 switch): starting, 4 s", "ina (P4 switch): starting, 8 s", "ina (P4 switch): 1 of 3 steps, loss 2.000, 3 s ago",
        "ina (P4 switch): 1 of 3 steps, loss 2.000, 7 s ago", "ina (P4 switch): 2 of 3 steps, loss 1.000"]


@pytest.mark.fast
def test_a_terminal_is_redrawn_once_a_second_and_not_after_the_end():
    """The bar of 10,000 steps that take no time is drawn when it begins and when it ends."""
    out = io.StringIO()
    with progress.Steps(Console(file=out, width=80, force_terminal=True), "ina (P4 switch)") as bar:
        for step in range(10_000):
            bar.update(step, 10_000, "")
        bar.update(10_000, 10_000, "accuracy 70.00%")
    size = len(out.getvalue())
    assert "10000/10000" in out.getvalue() and "accuracy" in out.getvalue()
    assert size < 5000 and bar._bar.live.refresh_per_second <= 1
    assert not bar._bar.live.is_started, "nothing draws any longer"


@pytest.mark.build
@pytest.mark.later
def test_a_sweep_whose_points_take_long_says_that_it_is_alive(trial, tmp_path, monkeypatch):
    need("cc", "matplotlib")
    out = io.StringIO()
    monkeypatch.setattr(sweep, "SILENCE", 0.01)
    sweep.sweep(plan.load(trial), tmp_path, Console(file=out, width=200), processes=2)
    lines = out.getvalue().splitlines()
    assert any(line.startswith("2 points under way, 0 s so far") for line in lines)
    assert [line.split(":")[0] for line in lines if " of 4" in line] == [f"{count} of 4" for count in range(1, 5)]
