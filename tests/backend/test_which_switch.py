"""Rank 0 says once which switch a group got, and nobody does where nobody wants it."""

from __future__ import annotations

import re

import pytest
from capabilities import need

need("cc", "torch")

from ranks import run, succeed  # noqa: E402

from ina.aggregation.controller.client import start_server  # noqa: E402
from ina.base import paths  # noqa: E402

pytestmark = pytest.mark.build
GROUPS = """
start()
dist.all_reduce(torch.ones(3))
first, second = dist.new_group([1, 2]), dist.new_group([0, 1])
meet()
"""
SIZES = {"INA_VALUES": "32", "INA_SLOTS": "8"}


def lines_of(results):
    succeed(results)
    return [[line for line in rank.errors.splitlines() if line.startswith("ina: ")] for rank in results]


@pytest.mark.gate
def test_a_switch_of_its_own(tmp_path):
    lines, *others = lines_of(run(tmp_path, 3, GROUPS, INA_QUIET="false", **SIZES))
    lines = [line for line in lines if "compiles" not in line]  # it may have to be
    assert len(lines) == 1 and re.fullmatch(
        r"ina: 3 ranks sum through a switch of their own, process \d+, which ends with them: switchml.p4 \(switchml\), "
        r"32 int32 a packet, 8 slots a job, frames by shm", lines[0])
    assert others == [[], []]


@pytest.mark.later
def test_one_that_runs_already(tmp_path):
    process = start_server(paths.p4_dir() / "switchml.p4", {"VALUES": "32", "SLOTS": "64"}, job_slots=8)
    try:
        body = GROUPS.replace("start()", "dist.init_process_group('ina', init_method="
                              "os.environ['INIT'], rank=int(os.environ['RANK']), world_size=3)")
        lines, *others = lines_of(run(tmp_path, 3, body, INA_QUIET="false", INA_SWITCH=process.name))
    finally:
        process.close()
    assert lines == [f"ina: 3 ranks sum through a switch that runs already at {process.name}, process {process.pid} "
                     "(INA_SWITCH): switchml, frames by shm"]
    assert others == [[], []]


@pytest.mark.later
def test_nothing_where_nobody_wants_it(tmp_path):
    config = tmp_path / "ina.toml"
    config.write_text("quiet = true\n")
    results = run(tmp_path, 2, "start(); dist.all_reduce(torch.ones(3)); meet()", INA_CONFIG=str(config), **SIZES)
    assert lines_of(results) == [[], []]
