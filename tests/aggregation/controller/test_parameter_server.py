"""The parameter server on a port, and as a process of its own; its machine alone is tests/test_atp*.py."""

import io
import sys

import child
import numpy as np
import pytest
from fake_target import FakeTarget
from rich.console import Console
from waiting import LONG, until

from ina.aggregation.controller.admission import Controller
from ina.aggregation.controller.client import Client, start_server
from ina.aggregation.controller.ps_client import PsClient
from ina.aggregation.controller.worker_ports import open_worker_port
from ina.aggregation.entries.atp import ATP
from ina.aggregation.ps.server import Server, ServerConfig
from ina.aggregation.worker import SERVER, Endpoint, WorkerConfig, worker_address
from ina.base import paths
from ina.cli.running import counters_tables
from ina.net.ports import memory_pair

pytestmark = pytest.mark.build


def config(job: int, **changes) -> ServerConfig:
    """Configuration of a plain parameter server for one worker; the sums are the worker's own values."""
    defaults = {"workers": 1, "life": 1, "job": job, "values": 32, "direct": True, "worker_addresses": (worker_address(job, 0),)}
    return ServerConfig(**{**defaults, **changes})


def worker(job: int, timeout: float = LONG) -> WorkerConfig:
    """Its RTO is long: packets are counted."""
    return WorkerConfig(0, 1, life=1, job=job, values=32, protocol="ps", server=SERVER, timeout=timeout, rto_min=5.0, rto_max=5.0)


def test_jobs_come_and_go_while_it_serves():
    far, near = memory_pair(frames=256, max_frame=512)
    with Server(near) as server:
        server.add(config(3))
        with pytest.raises(OSError, match="job 3: File exists"):
            server.add(config(3))
        with pytest.raises(OSError, match="job 4: Message too long"):
            server.add(config(4, values=2048))
        with Endpoint(worker(3), far) as endpoint:
            for length in (1, 100, 5000):
                array = np.arange(length, dtype=np.int32)
                endpoint.run(out := array.copy())
                assert np.array_equal(out, array)
            assert endpoint.stats["results"] > 100
            until(lambda: server.stats(3)["results"] == endpoint.stats["results"], "the count of all results")
        server.remove(3)
        assert server.jobs == []
        with pytest.raises(OSError, match="job 3"):
            server.stats(3)
    with pytest.raises(BrokenPipeError, match="closed"):
        server.add(config(3))
    server.close()


def test_frames_of_no_job_are_counted():
    far, near = memory_pair(frames=256, max_frame=512)
    with Server(near) as server, Endpoint(worker(5, timeout=0.3), far) as endpoint:
        with pytest.raises(Exception, match="Timed out after 0.3 s"):
            endpoint.run(np.ones(10, np.int32))
        assert endpoint.stats["tx_packets"] > 0
        until(lambda: server.port_stats["strangers"] == endpoint.stats["tx_packets"], "the count of all frames")


@pytest.mark.later
def test_a_switch_process_has_one_parameter_server_at_most():
    """A server that the protocol does not need, or a second one, is refused with the reason."""

    def serve(name):
        command = [sys.executable, "-m", "ina.cli", "ps", "--switch", name]
        return child.run(command)

    for protocol, reason in (("switchml", "the protocol 'switchml' has no parameter server"),
                             ("atp", "is the parameter server already")):
        process = start_server(paths.p4_dir() / f"{protocol}.p4", {"VALUES": "32", "SLOTS": "32"})
        try:
            done = serve(process.name)
            assert done.returncode == 1 and reason in done.stderr, done
        finally:
            process.close()
    done = serve("ina-nobody")
    assert done.returncode == 1 and "no switch process at socket" in done.stderr


@pytest.mark.later
def test_the_server_is_among_the_counters():
    """`ina counters` shows the server's counters by job."""
    process = start_server(paths.p4_dir() / "atp.p4", {"VALUES": "32", "SLOTS": "32"})
    client = Client(process.name)
    try:
        client.join("job", 0)
        number = client.admit("job", 2, 4)["number"]
        counters = client.counters()
        assert counters["server"]["jobs"][str(number)]["rx_packets"] == 0
        assert client.ping()["server"] > 0
        console = Console(width=400, file=io.StringIO())
        console.print(counters_tables(counters, client.ping()))
        assert "server's job" in console.file.getvalue() and "merged_partial" in console.file.getvalue()
        client.release()
        assert client.counters()["server"]["jobs"] == {}
    finally:
        client.close()
        process.close()


def test_a_server_that_cannot_start_is_not_started_again_and_again(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    welcomed = []
    upstream = PsClient(Controller(FakeTarget(), 64, protocol=ATP()), 32, lambda sock, pid: welcomed.append(sock) or sock, True)
    assert upstream.expected() and len(welcomed) == 1
    upstream.lost()  # as the switch process finds out from its connection
    assert not upstream.expected() and upstream.failure == f"the parameter server (process {upstream.pid}) ended before it served"
    upstream.close()
    welcomed[0].close()


@pytest.mark.parametrize("check", ["sum", "keyed"])
def test_the_server_gets_its_jobs_key(check):
    """Sums of floats that integers cannot represent are the server's own: workers take them only with its check words."""
    process = start_server(paths.p4_dir() / "atp.p4", {"VALUES": "32", "SLOTS": "64"}, job_slots=16)
    clients, endpoints, outs = [], [], []
    try:
        clients = [Client(process.name) for _ in range(2)]
        for index, client in enumerate(clients):
            client.join("job", index)
        for client in clients:
            assert client.admit("job", 2, check=check)["check"] == check
        for index, client in enumerate(clients):
            grant = client.attach("job", index)
            settings = WorkerConfig(
                index, 2, job=grant.number, life=grant.life, slots=grant.slots, values=grant.values, protocol=grant.protocol,
                address=grant.address, switch=grant.switch, server=grant.switch, check=grant.check, key=grant.key,
                rto_min=0.05, rto_max=1.0, options=grant.port.get("options", {}),
            )
            endpoints.append(Endpoint(settings, open_worker_port(grant, None), client.fileno()))
        source = np.resize(np.array([1e30, 1e-30, np.inf, 3.0], np.float32), 500)
        tickets = []
        for endpoint in endpoints:
            outs.append(np.zeros_like(source))
            tickets.append(endpoint.submit(source, outs[-1]))
        for endpoint, ticket in zip(endpoints, tickets, strict=True):
            endpoint.wait(ticket, 30)
        stats = [endpoint.stats for endpoint in endpoints]
    finally:
        for each in (*endpoints, *clients, process):
            each.close()
    assert all((out == 2 * source).all() for out in outs)
    assert all(each["float_blocks"] > 0 and each["drop_corrupt"] == 0 for each in stats)
