"""Groups whose ranks say that they are on several machines: rank 0 starts a switch process on a TCP port for them, unless
INA_SWITCH names one; groups of some of them need no token of it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager

import child
import pytest
import tiers
from capabilities import need
from control_process import free_tcp_name

need("cc", "torch")

from ranks import run, succeed  # noqa: E402

from ina.aggregation.controller.client import start_server  # noqa: E402
from ina.base import paths  # noqa: E402

pytestmark = pytest.mark.build
# Ranks 1 and 2 share a machine.
APART = """
from ina.backend import rendezvous
here, machine = rendezvous.Place.here(), "0112"[int(os.environ["RANK"])]
rendezvous.Place.here = lambda: rendezvous.Place(f"server{machine}", machine, here.network)
def total(group=None):
    values = torch.arange(5000) * (dist.get_rank() + 1)
    dist.all_reduce(values, group=group)
    assert torch.equal(values, values[1] * torch.arange(5000))
    return int(values[1])
"""
GROUPS = APART + """
rank, n = start()
total()
groups = {ranks: dist.new_group(list(ranks)) for ranks in ((0, 1), (1, 2), (1, 3), (0, 3), (2, 3))}
sums = {str(ranks): total(group) for ranks, group in groups.items() if rank in ranks}
say(sums=sums, everybody=total(), switches=sorted(rendezvous._pids), used=ina.backend.stats()["switch"]["sums"])
meet()
dist.destroy_process_group()
"""
# No token here, and no sum by Gloo, which "block" by itself may choose.
NEAR = {"GLOO_SOCKET_IFNAME": "lo"}  # they are on one machine, and there is no store with an address
ALONE = {"INA_TOKEN_FILE": "/nowhere/ina.token", "INA_CODEC": "block", **NEAR}


def judge(results):
    succeed(results)
    for rank, result in enumerate(results):
        groups = {(0, 1): 3, (1, 2): 5, (1, 3): 6, (0, 3): 5, (2, 3): 7}
        assert result.report["everybody"] == 10 and result.report["used"] == 2 + len(result.report["sums"])
        assert result.report["sums"] == {str(ranks): total for ranks, total in groups.items() if rank in ranks}
    return [result.report["switches"] for result in results]


@contextmanager
def listening(token):
    tiers.several_processes("starts a switch process")
    name = free_tcp_name()
    command = [sys.executable, "-m", "ina.cli", "switch", "run", "-DVALUES=64", "--listen", name.removeprefix("tcp:")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"INA_TOKEN": token})
    try:
        assert "sums for workers" in process.stdout.readline()
        yield name.removeprefix("tcp:")
    finally:
        process.terminate()
        child.status(process)
        process.stdout.close()


@pytest.mark.gate
def test_rank_0_starts_a_switch_that_all_reach(tmp_path):
    results = run(tmp_path, 4, GROUPS, INA_LISTEN="lo", INA_QUIET="false", **ALONE)
    zero, one, two, three = judge(results)
    (first,) = zero
    assert first.startswith("tcp:127.0.0.1:") and first in one and first in two and first in three
    assert len(one) == len(two) == 3, "that, one of their machine below it, and one for the group that lies there"
    assert one == two and sum(name.startswith("tcp:") for name in one) == 1
    assert len(three) == 1, "groups that others' rank 0 leads find the same switch"
    assert f"4 ranks sum through a switch of their own at {first}, process " in results[0].errors
    assert "256 int32 a packet" in results[0].errors and "frames by udp" in results[0].errors


@pytest.mark.gate
def test_one_that_runs_already_needs_one_token(tmp_path):
    token = "0123456789abcdef0123456789abcdef"
    body = f"if os.environ['RANK'] == '0': os.environ |= {{'INA_SWITCH': os.environ['AT'], 'INA_TOKEN': {token!r}}}\n" + GROUPS
    body = body.replace("rank, n = start()", "rank = int(os.environ['RANK']); dist.init_process_group('ina', init_method="
                        "os.environ['INIT'], rank=rank, world_size=4)")  # `run` awaits the end of what `start` has
    with listening(token) as name:
        switches = judge(run(tmp_path, 4, body, AT=name, **ALONE))
    assert all(name in names for names in switches)


@pytest.mark.gate
def test_nobody_knows_where_the_others_reach_rank_0(tmp_path):
    results = run(tmp_path, 2, APART + """
from ina.backend import places
places.address_towards = lambda host: "127.0.1.1"
try: start()
except RuntimeError as error: say(error=str(error))
    """, **NEAR)
    for result in results:
        assert "set INA_LISTEN to its network interface or address there, or INA_SWITCH=HOST:PORT" in result.report["error"]


@pytest.mark.later
@pytest.mark.parametrize(("variable", "value", "words"), [
    ("INA_LISTEN", "nowhere0", "network interface nowhere0"),
    ("INA_LISTEN", "wlan-of-16-bytes", "it has 16 bytes, expected 1 to 15"),
    ("INA_LISTEN", "0.0.0.0", "expected that of one network interface"),
    ("INA_PORT", "shm", "set INA_PORT=udp"), ("INA_SWITCH", "127.0.0.1:1", "no switch process at socket 127.0.0.1:1"),
])
def test_what_is_wrong_is_said_on_all_ranks(tmp_path, variable, value, words):
    settings = {"INA_LISTEN": "lo", **NEAR, variable: value}
    results = run(tmp_path, 2, APART + """
try: start(); total()
except RuntimeError as error: say(error=str(error))
    """, **settings)
    for result in results:
        assert words in result.report["error"]


@pytest.mark.later
def test_a_switch_of_one_machine_is_none_for_several(tmp_path):
    process = start_server(paths.p4_dir() / "switchml.p4", {"VALUES": "32", "SLOTS": "64"}, job_slots=8)
    try:
        results = run(tmp_path, 2, APART + """
try: start()
except RuntimeError as error: say(error=str(error))
        """, INA_SWITCH=process.name, **NEAR)
    finally:
        process.close()
    for result in results:
        assert "ranks 0 and 1 are on different machines (server0 and server1)" in result.report["error"]
        assert f"INA_SWITCH={process.name} is reached from one of them only" in result.report["error"]


@pytest.mark.later
def test_atp_with_more_values_where_they_are_asked_for(tmp_path):
    results = run(tmp_path, 4, GROUPS, INA_LISTEN="127.0.0.1", INA_PROTOCOL="atp", INA_VALUES="1024", INA_QUIET="false", **ALONE)
    judge(results)
    assert "1024 int32 a packet" in results[0].errors
