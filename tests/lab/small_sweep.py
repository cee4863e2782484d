"""A sweep of small all-reduces, for tests of experiments and of what compares them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console

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
def trial(tmp_path: Path) -> Path:
    path = tmp_path / "trial.toml"
    path.write_text(SMALL)
    return path


def quiet() -> Console:
    return Console(file=open(os.devnull, "w"), width=200)  # noqa: SIM115
