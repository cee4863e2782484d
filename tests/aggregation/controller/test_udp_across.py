"""Workers whose control socket is TCP: each has a UDP socket of its own, and the switch process one for each."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from contextlib import closing, contextmanager
from types import SimpleNamespace

import child
import numpy as np
import pytest
import tiers
from capabilities import need
from control_process import free_tcp_name
from waiting import LONG

need("cc")

from ina.aggregation.controller.access import Principal  # noqa: E402
from ina.aggregation.controller.api import Session  # noqa: E402
from ina.aggregation.controller.client import Client, ControlError  # noqa: E402
from ina.aggregation.controller.worker_ports import open_worker_port  # noqa: E402
from ina.aggregation.port_kinds import Control, End, kinds  # noqa: E402
from ina.aggregation.worker import SWITCH, Endpoint  # noqa: E402
from ina.aggregation.worker.addresses import worker_address  # noqa: E402

pytestmark = [pytest.mark.build, pytest.mark.gate]
TOKEN = "0123456789abcdef0123456789abcdef"
END = End(worker_address(0, 0), SWITCH, 1000, 32)


@pytest.fixture(scope="module")
def machine():
    """``tcp:`` name of a switch process at one of the loopback's addresses, which is not the one that the kernel prefers."""
    tiers.several_processes("starts a switch process")
    with listening("127.0.0.2", "--job-slots", "32") as name:
        yield name


@contextmanager
def listening(ip, *options):
    """Yields the ``tcp:`` name of a switch process at an address of this machine."""
    name = free_tcp_name(ip)
    command = [sys.executable, "-m", "ina.cli", "switch", "run", "-DVALUES=64", "--listen", name.removeprefix("tcp:"), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"INA_TOKEN": TOKEN})
    try:
        line = process.stdout.readline()
        assert "switchml.p4 (switchml, 64 values a packet, 16384 slots) sums for workers" in line
        assert f"with INA_SWITCH={name.removeprefix('tcp:')} and the token in INA_TOKEN" in line
        yield name
    finally:
        process.terminate()
        child.status(process)
        process.stdout.close()


def joined(machine, worker, job):
    client = Client(machine, access=TOKEN)
    client.join(job, worker)
    client.admit(job, 2)
    return client


def test_workers_of_a_job_sum_over_udp(machine):
    clients, endpoints = [], []
    for worker in range(2):
        client = joined(machine, worker, "sum")
        attachment = client.attach("sum", worker)
        assert attachment.slots == 32 and attachment.port["kind"] == "udp"
        assert attachment.port["to"][0] == "127.0.0.2", "where it reached the switch"
        config = attachment.config(rto_min=0.5, rto_max=5.0, timeout=LONG)
        endpoints.append(Endpoint(config, open_worker_port(attachment), client.fileno()))
        for fd in attachment.fds:
            os.close(fd)
        clients.append(client)
    arrays = [np.arange(10_000, dtype=np.int32) * (worker + 1) for worker in range(2)]
    tickets = [endpoint.submit(array) for endpoint, array in zip(endpoints, arrays, strict=True)]
    for endpoint, ticket in zip(endpoints, tickets, strict=True):
        endpoint.wait(ticket, LONG)
    assert all(np.array_equal(array, 3 * np.arange(10_000)) for array in arrays)
    for endpoint, client in zip(endpoints, clients, strict=True):
        endpoint.close()
        client.release()
        client.close()


@pytest.mark.parametrize(("port", "words"), [
    ("shm", "no TCP connection carries: .* or set INA_PORT=udp"),
    ("udp@10.9.8.7:4000", "asked for from 127.0.0.1: expected a socket there"),
    ("udp@127.0.0.1:0", "expected udp@ADDRESS:PORT"),
    ("udp@127.0.0.1:65536", "expected udp@ADDRESS:PORT"),
    ("udp@127.0.0.1", "expected udp@ADDRESS:PORT"),
    ("udp@:4000", "expected an IPv4 address"),
    ("udp@localhost:4000", "expected an IPv4 address"),
    ("udp@224.0.0.1:4000", "expected the address of one machine"),
    ("udp@255.255.255.255:4000", "expected the address of one machine"),
])
def test_a_place_is_a_socket_of_the_machine_that_asks(machine, port, words):
    with closing(joined(machine, 0, job := f"refused {port}")) as client:
        with pytest.raises(ControlError, match=words):
            client.attach(job, 0, port=port)
        assert client.counters()["ports"] == {}, "nothing is left of it"


def test_a_process_of_this_machine_names_no_place():
    with pytest.raises(ValueError, match="asked for from this machine"):
        kinds()["udp"].open_switch(END, "127.0.0.1:4000")


def test_over_ipv6_there_is_no_place_and_a_switch_process_that_needs_one_says_so():
    own = kinds()["udp"].bring(SimpleNamespace(family=socket.AF_INET6))
    assert own == ("udp", []), "a controller of switches elsewhere needs none"
    with pytest.raises(ValueError, match="name the switch process by an IPv4 address"):
        kinds()["udp"].open_switch(END, control=Control("2001:db8::1", "2001:db8::2"))


@pytest.mark.parametrize(("switch", "worker"), [
    ("::ffff:10.0.0.9", "::ffff:10.0.0.2"), ("10.0.0.9", "10.0.0.2"), ("2001:db8::9", "2001:db8::2"),
])
def test_a_control_connection_of_ipv4_has_addresses_of_ipv4(switch, worker):
    sock = SimpleNamespace(family=socket.AF_INET6, getsockname=lambda: (switch, 5588), getpeername=lambda: (worker, 4000))
    control = Session(0, lambda message, fds: None, Principal(None), sock).control()
    assert control == Control(switch.removeprefix("::ffff:"), worker.removeprefix("::ffff:"))


def test_both_ends_hear_each_other_only():
    udp, end = kinds()["udp"], END
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as control:
        request, own = udp.bring(control)
    place = request.partition("@")[2]
    opened = udp.open_switch(end, place, Control("127.0.0.1", "127.0.0.1"))
    with opened.port, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(b"early", ("127.0.0.1", int(place.rpartition(":")[2])))
        with udp.open_offered(opened.offer, own, end) as port:
            for fd in own:
                os.close(fd)
            for to in (opened.offer["to"][1], int(place.rpartition(":")[2])):
                stranger.sendto(b"late", ("127.0.0.1", to))
            opened.port.send([frame(end.switch, end.worker, b"down")])
            port.send([frame(end.worker, end.switch, b"up")])
            for at, last in ((port, b"down"), (opened.port, b"up")):
                assert at.wait(LONG)
                assert [each[42:] for each in at.receive()] in ([last], []), "of strangers nothing"


def frame(source, destination, payload):
    """An Ethernet frame with IPv4 and UDP, of which a port sends the payload only."""
    udp = struct.pack("!4H", source.port, destination.port, 8 + len(payload), 0)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0, 0, 64, 17, 0, socket.inet_aton(source.ip),
                     socket.inet_aton(destination.ip))
    macs = bytes.fromhex(f"{destination.mac}{source.mac}".replace(":", ""))
    return macs + b"\x08\x00" + ip + udp + payload
