"""Ranks that name different switches: all of them hear so at once, unless the names are of one process."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest
from capabilities import need
from waiting import LONG

need("cc", "torch")

import torch.distributed as dist  # noqa: E402
from ranks import run, succeed  # noqa: E402
from test_apart import listening  # noqa: E402

from ina.aggregation.controller.client import start_server  # noqa: E402
from ina.backend import switch_names  # noqa: E402
from ina.backend.switch_names import Identity  # noqa: E402
from ina.base import paths  # noqa: E402

pytestmark = pytest.mark.build
TOKEN = "0123456789abcdef0123456789abcdef"
TRY = """
rank = int(os.environ["RANK"])
if name := json.loads(os.environ["NAMES"])[rank]: os.environ["INA_SWITCH"] = name
try:
    dist.init_process_group("ina", init_method=os.environ["INIT"], rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    values = torch.arange(5000)
    dist.all_reduce(values)
    say(total=int(values[1]))
    dist.barrier()
    dist.destroy_process_group()
except RuntimeError as error: say(error=str(error))
"""


def outcomes(tmp_path, *names, **env):
    return succeed(run(tmp_path, len(names), TRY, NAMES=json.dumps(names), **env))


@pytest.mark.gate
def test_two_processes_are_refused_on_all_ranks(tmp_path):
    first, second = (start_server(paths.p4_dir() / "switchml.p4", {"VALUES": "32", "SLOTS": "64"}, job_slots=8) for _ in range(2))
    try:
        results = outcomes(tmp_path, first.name, "", second.name)
        unnamed = outcomes(tmp_path, "", second.name)
    finally:
        first.close()
        second.close()
    other = f"INA_SWITCH={second.name} (process {second.pid}): name one switch process on all ranks, or on rank 0 only"
    for result in results:
        assert f"rank 0 has INA_SWITCH={first.name} (process {first.pid}), rank 2 {other}" in result["error"]
    for result in unnamed:
        assert ", without INA_SWITCH (process " in result["error"] and f"rank 1 {other}" in result["error"]


@pytest.mark.later
def test_several_names_of_one_process_are_one(tmp_path):
    with listening(TOKEN) as name:
        port = name.rpartition(":")[2]
        results = outcomes(tmp_path, name, f"tcp:{name}", f"localhost:{port}", INA_TOKEN=TOKEN)
    assert results == [{"total": 3}] * 3


@pytest.mark.later
def test_a_name_that_nobody_has_is_refused_on_all_ranks(tmp_path):
    process = start_server(paths.p4_dir() / "switchml.p4", {"VALUES": "32", "SLOTS": "64"}, job_slots=8)
    try:
        results = outcomes(tmp_path, process.name, "nobody-here")
    finally:
        process.close()
    for result in results:
        assert "rank 1 INA_SWITCH=nobody-here (no switch process at socket @nobody-here: Connection refused" in result["error"]


# ---- without processes


def test_processes_are_told_apart_by_number_and_start():
    about = {"pid": 7, "process": {"start_time_seconds": 1.5}}
    assert Identity.of(about) == Identity(7, 1.5) and Identity.of({"pid": 7}) == Identity(7)
    assert Identity(7, 1.5).is_same(Identity(7)) and Identity(7, 1.5).is_same(Identity(7, 1.5))
    assert not Identity(7, 1.5).is_same(Identity(7, 2.5)) and not Identity(7).is_same(Identity(8))


def check(store, rank, names, seconds=LONG):
    switch_names.check(store, rank, names, "10.0.0.9:5588", Identity(7, 1.5), "", timedelta(seconds=seconds))


def test_equal_names_need_no_answer():
    check(None, 0, ["10.0.0.9:5588", "tcp:10.0.0.9:5588", ""])


def test_all_ranks_raise_the_same(monkeypatch):
    monkeypatch.setattr(switch_names, "_difference", lambda name, *_: {"a": "", "b": "process 8"}[name])
    store, errors = dist.HashStore(), {}

    def of(rank):
        try:
            check(store, rank, ["", "a", "b"])
        except RuntimeError as error:
            errors[rank] = str(error)

    threads = [threading.Thread(target=of, args=[rank]) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert errors.keys() == {0, 1, 2} and len({*errors.values()}) == 1
    assert "rank 0 has 10.0.0.9:5588, without INA_SWITCH (process 7), rank 2 INA_SWITCH=b (process 8)" in errors[0]


def test_a_rank_that_does_not_say_is_named():
    with pytest.raises(RuntimeError, match=r"ranks \[1\] did not say within 0.1 s whether INA_SWITCH there means 10.0.0.9:5588"):
        check(dist.HashStore(), 0, ["", "elsewhere"], 0.1)
