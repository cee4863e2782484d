"""Addresses of a job's workers: those of the local world or of their hosts, decided in one place."""

from pathlib import Path

import pytest

from ina.aggregation.worker.addresses import addresses, port_address, taken, worker_address
from ina.net.ports import Address
from ina.topology.topology import Node

pytestmark = pytest.mark.fast
ROOT = Path(__file__).resolve().parents[3]


def test_workers_of_the_local_world_are_one_behind_the_other_and_a_job_has_a_port():
    assert addresses(3, 2, ()) == (Address("00:00:00:00:00:01", "10.0.0.1", 4003),
                                   Address("00:00:00:00:00:02", "10.0.0.2", 4003))
    assert port_address(1) == worker_address(0, 1)


def test_workers_in_hosts_have_their_hosts_addresses():
    hosts = [Node("h7"), Node("h2")]
    assert [(own.mac, own.ip, own.port) for own in addresses(3, 2, hosts)] == [(n.mac, n.ip, 4003) for n in hosts]


def test_a_host_has_one_worker_of_a_job():
    assert taken("h2", {0: "h1", 4: "h2"}) == \
        "h2 has a worker of this job already (4): each worker of a job needs a host of its own"
    assert taken("h2", {0: "h1"}) == taken("", {0: ""}) == ""


def test_nothing_else_computes_an_address():
    files = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "ina").rglob("*.py")}
    computing = {path for path, text in files.items() if "worker_address(" in text}
    assert computing == {
        "ina/aggregation/worker/addresses.py", "ina/aggregation/worker/config.py",  # of a worker without a controller
        "ina/aggregation/equal_scenarios.py"}  # jobs without one
