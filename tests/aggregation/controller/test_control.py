"""The switch process: its protocol and liveness, over a fake switch that keeps entities as P4Runtime would."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import child
import numpy as np
import pytest
from fake_target import FakeTarget
from waiting import LONG, until

from ina.aggregation import protocols
from ina.aggregation.control_socket.channel import Channel, listen
from ina.aggregation.controller import api as service_module
from ina.aggregation.controller.client import Client, ControlError, SwitchProcess, start_server
from ina.aggregation.controller.server import Server, main
from ina.aggregation.controller.worker_ports import Plug, frames_for, open_switch_port, open_worker_port
from ina.aggregation.worker import SWITCH, Endpoint, Worker, WorkerConfig
from ina.base import paths
from ina.net.ports import Address, bound_port
from ina.topology import load

pytestmark = pytest.mark.build


class FakeHost(FakeTarget):
    """A switch without a data plane: its ports are real."""

    topology = None
    links = None

    def __init__(self):
        super().__init__()
        self.targets = {"s1": self}
        self.outlives = False
        self.packet_lifetime = 0.0
        self.seats = None
        self.ports = {}
        self.closed = False

    def describe(self):
        return {"program": "fake.p4", "source_hash": "0", "values": 32, "slots": 64, "protocol": "switchml"}

    def host_of(self, pid, name):
        return ""

    def open_port(self, kind, job, index, host, control):
        number, address, frames = len(self.ports), job.addresses[index], frames_for(job.slots)
        port, offer, fds = open_switch_port(kind, address, SWITCH, protocols.frame_bytes("switchml", 32), frames, control)
        self.ports[number] = port
        return Plug(number, address, SWITCH, offer, fds)

    def close_port(self, number, job):
        self.ports.pop(number).close()

    def counters(self):
        return {"ports": {}}

    def close(self):
        self.closed = True


# ---- switch process


@pytest.fixture
def served(monkeypatch, request):
    """A server in a thread over a fake switch (or the test's own host): (socket name, host). Its starter leaves at the end;
    then it must end."""
    monkeypatch.setattr(service_module, "GRACE", 0.3)
    monkeypatch.setattr(service_module, "JOINING", LONG)
    name = f"ina-test-{uuid.uuid4().hex[:12]}"
    host = getattr(request, "param", FakeHost)()
    starter_end, alive = os.pipe()
    server = Server(listen(name), host, starter_end, job_slots=16)

    def run():
        server.run()
        server.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield name, host
    os.close(alive)
    until(lambda: not thread.is_alive(), "the server's end with its starter and clients")
    os.close(starter_end)
    assert host.closed
    assert name not in abstract_sockets()


def abstract_sockets() -> str:
    return os.fsdecode(Path("/proc/net/unix").read_bytes())  # any process may name sockets, with any bytes


def attach(name, job, worker, workers, **kwargs):
    client = Client(name, timeout=LONG)
    client.join(job, worker)
    client.admit(job, workers)
    return client, client.attach(job, worker, **kwargs)


def close_fds(*attachments):
    for attachment in attachments:
        for fd in attachment.fds:
            os.close(fd)


# Ethernet, IPv4, UDP and 22 bytes of payload
FRAME = bytes(12) + b"\x08\x00\x45" + bytes(8) + b"\x11" + bytes(14) + (30).to_bytes(2, "big") + bytes(24)


@pytest.mark.parametrize("kind", ["shm", "udp"])
def test_workers_get_one_job_and_ports_that_carry_frames(served, kind):
    name, host = served
    (first, a), (second, b) = attach(name, "job", 0, 2, port=kind), attach(name, "job", 1, 2, port=kind)
    assert (a.number, a.slots, a.values, a.workers) == (0, 16, 32, 2)
    assert (b.number, b.incarnation, b.life, b.worker) == (0, a.incarnation, a.life, 1)
    assert b.address == Address("00:00:00:00:00:02", "10.0.0.2", 4000)
    assert b.switch == Address("02:00:00:00:ff:fe", "10.0.255.254", 0xBEE0)
    with pytest.raises(ValueError, match="this attachment's port was opened before"):
        open_worker_port(a, own=lambda size: open_worker_port(a))  # another thread's, before the first one is open
    with open_worker_port(a) as port:
        assert port.send([FRAME]) == 1
        until(lambda: host.ports[0].receive(1), "the frame at the switch's end")
    with pytest.raises(ValueError, match="worker 0 of job 'job': this attachment's port was opened before"):
        open_worker_port(a)
    close_fds(a, b)
    first.release()
    until(lambda: second.poll() or second.left, "the news that worker 0 left")
    assert list(second.left) == [0] and not second.failure
    assert len(host.ports) == 2  # results may be under way until the last one leaves
    second.release()
    assert host.ports == {} and host.entities == {}
    first.close()
    second.close()


def test_a_udp_port_hears_its_own_worker_and_no_stranger_who_comes_first(served):
    name, host = served
    client, attachment = attach(name, "job", 0, 1, port="udp")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger, open_worker_port(attachment) as port:
        with contextlib.suppress(ConnectionRefusedError):
            stranger.connect(("127.0.0.1", bound_port(host.ports[0])))
            stranger.send(b"forged")
        assert port.send([FRAME])
        payload = until(lambda: host.ports[0].receive(), "the frame at the switch's end")[0][42:]
        assert payload == FRAME[42:64]
    close_fds(attachment)
    client.release()
    client.close()


def test_all_workers_get_the_same_refusal(served):
    name, host = served
    holder = Client(name)
    holder.admit("big", 2, slots=64)
    clients = [Client(name) for _ in range(3)]
    texts = set()
    for index, client in enumerate(clients):
        client.join("small", index)
        with pytest.raises(ControlError, match="no range of that size is free") as error:
            client.admit("small", 3)
        assert error.value.code == "full"
        texts.add(str(error.value))
        if index == 0:  # room that comes too late changes nothing
            holder.join("big", 0)
            holder.release()
    assert len(texts) == 1
    assert clients[0].admit("later", 3)["slots"] == 16
    for client in [*clients, holder]:
        client.close()


def test_two_ranks_alike(served):
    name, _ = served
    first, attachment = attach(name, "job", 0, 2)
    twin = Client(name)
    twin.join("job", 0)
    with pytest.raises(ControlError, match="both say that they are worker 0 of job 'job'; ranks must differ"):
        twin.admit("job", 2)
    close_fds(attachment)
    twin.close()
    first.close()


@pytest.mark.parametrize(("request_", "text"), [
    ({"op": "fly"}, "unknown operation 'fly'; expected one of ping, join, admit"),
    ({"op": "admit", "job": "x"}, "admit: workers is missing; expected an integer from 1 to 65536"),
    ({"op": "attach", "job": "x", "worker": 0}, "no job 'x'"),
    ({"op": "release"}, "joined no job"),
])
def test_bad_requests_get_an_answer(served, request_, text):
    client = Client(served[0])
    with pytest.raises(ControlError, match=text):
        client._call(**request_)
    assert client.ping()["slots"] == 64
    client.close()


def test_other_parameters_than_the_job_was_admitted_with(served):
    first, attachment = attach(served[0], "job", 0, 2)
    second = Client(served[0])
    with pytest.raises(ControlError, match="admitted with 2 workers, 16 slots, strict=True; this worker asks for 3"):
        second.admit("job", 3)
    with pytest.raises(ControlError, match="unknown kind of port 'carrier pigeon'"):
        second.attach("job", 1, port="carrier pigeon")
    close_fds(attachment)
    first.close()
    second.close()


def test_a_defect_below_the_operations_costs_one_connection(served, monkeypatch):
    monkeypatch.setattr("ina.aggregation.controller.http.answer", lambda *_: {}["defect"])
    monkeypatch.setattr("ina.aggregation.controller.server.HTTP_PATIENCE", 1e6)  # that is not why
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(LONG)
        sock.connect("\0" + served[0])
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert sock.recv(100) == b""
    client = Client(served[0])
    assert client.ping()["slots"] == 64
    client.close()


WORKER = """
import sys, time
from ina.aggregation.controller.client import Client
client = Client(sys.argv[1])
client.join("job", 1)
if sys.argv[2] == "attached":
    client.admit("job", 3)
    client.attach("job", 1)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("state", ["joined", "attached"])
def test_a_killed_worker_is_named_to_the_others(served, state):
    name, host = served
    clients = [attach(name, "job", index, 3) for index in (0, 2)]
    victim = subprocess.Popen([sys.executable, "-c", WORKER, name, state], stdout=subprocess.PIPE, text=True)
    try:
        assert victim.stdout.readline() == "ready\n"
        client = clients[0][0]
        assert client.ping() and not client.poll()
        victim.send_signal(signal.SIGKILL)
        until(client.poll, "the news")
        assert f"worker 1 of job 'job' (process {victim.pid}) is lost" in client.failure
        poller = select.poll()  # what the endpoint watches
        poller.register(client, 0)
        until(lambda: poller.poll(0), "the hang-up after the grace")
    finally:
        victim.kill()
        victim.wait()
        victim.stdout.close()
    late = Client(name)
    if state == "joined":  # not all have come: this may be one of them
        with pytest.raises(ControlError, match="worker 1 .* is lost"):
            late.admit("job", 3)
    for client, attachment in clients:
        close_fds(attachment)
        client.close()
    until(lambda: not host.ports and not host.entities, "the job's end")
    if state == "attached":  # the name is another run's
        assert late.admit("job", 5)["workers"] == 5
    late.close()


def test_all_that_a_process_sent_before_it_ended_is_heard(monkeypatch):
    """More than is read in one turn."""
    name = f"ina-test-{uuid.uuid4().hex}"
    server = Server(listen(name), FakeHost())
    lines = [b'{"op":"ping","more":"%s"}' % (b"x" * 20000), b'{"op":"ping"}']
    requests = []
    monkeypatch.setattr(server.service, "hear", lambda session, line: requests.append(line))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + name)
        server._accept(server.listener)
        sock.sendall(b"\n".join(lines) + b"\n")
        (client,) = server.clients.values()
        server._ended(client)
    assert requests == lines and not server.clients
    server.close()


@pytest.mark.parametrize("reaped", [True, False])
def test_a_worker_that_ends_before_the_switch_has_heard_it_is_named_to_the_others(served, reaped):
    """The switch process is busy while the worker connects, joins and ends."""
    name, host = served
    client, attachment = attach(name, "job", 0, 2)
    request, resume, describe = threading.Event(), threading.Event(), host.describe

    def busy():
        request.set()
        assert resume.wait(LONG)
        return describe()

    host.describe = busy
    asking = threading.Thread(target=Client(name).ping)
    asking.start()
    assert request.wait(LONG)
    victim = subprocess.Popen([sys.executable, "-c", WORKER.replace("time.sleep(600)", ""), name, "joined"])
    os.waitid(os.P_PID, victim.pid, os.WEXITED | (0 if reaped else os.WNOWAIT))
    host.describe = describe
    resume.set()
    until(client.poll, "the news")
    reason = "its connection" if reaped else "its process ended"  # of a process that is no more nothing else is known
    assert f"worker 1 of job 'job' (process {victim.pid}) is lost: {reason}" in client.failure
    victim.wait()
    asking.join(LONG)
    close_fds(attachment)
    client.close()


def test_the_end_of_the_switch_process_is_a_clear_error():
    name = f"ina-test-{uuid.uuid4().hex[:12]}"
    listener = listen(name)
    client = Client(name)
    sock, _ = listener.accept()
    Channel(sock).close()
    with pytest.raises(ControlError, match="switch process .* ended") as error:
        client.ping()
    assert error.value.code == "gone"
    assert "ended" in client.poll() and client.gone
    client.close()
    with pytest.raises(OSError, match="is another switch process using that name"):
        listen(name)
    listener.close()
    with pytest.raises(ControlError, match="no switch process at socket @"):
        Client(name)


def test_the_real_switch_process_sums():
    """Two endpoints in this process, the switch in its own, as in the back end."""
    process = start_server(paths.p4_dir() / "switchml.p4", {"VALUES": "64", "SLOTS": "32"}, job_slots=16)
    try:
        clients, endpoints = [], []
        for worker in range(2):
            client, attachment = attach(process.name, "job", worker, 2)
            config = WorkerConfig(worker=worker, workers=2, job=attachment.number, life=attachment.life,
                                  slots=attachment.slots, values=attachment.values, rto_min=5.0, rto_max=5.0,
                                  timeout=LONG)  # counters are compared
            assert (attachment.values, attachment.slots) == (64, 16)
            endpoints.append(Endpoint(config, open_worker_port(attachment), client.fileno()))
            close_fds(attachment)
            clients.append(client)
        arrays = [np.arange(10_000, dtype=np.int32) + worker for worker in range(2)]
        tickets = [endpoint.submit(array) for endpoint, array in zip(endpoints, arrays, strict=True)]
        for endpoint, ticket in zip(endpoints, tickets, strict=True):
            endpoint.wait(ticket, LONG)
        assert all(np.array_equal(array, 2 * np.arange(10_000) + 1) for array in arrays)
        counters = clients[0].counters()
        assert {name: cells for name, cells in counters["program"].items() if any(map(any, cells))} == {}  # drops
        assert all(port["rx_packets"] >= 10_000 // 64 for port in counters["ports"].values())
        for endpoint, client in zip(endpoints, clients, strict=True):
            endpoint.close()
            client.release()
        probe = Client(process.name)
        assert probe.ping()["free_slots"] == 32 and probe.counters()["ports"] == {}
        for client in [*clients, probe]:
            client.close()
    finally:
        process.close(LONG)
    assert process.process.returncode == 0
    assert process.name not in abstract_sockets()


def test_a_worker_that_fills_its_bells_stops_nobody_else():
    """It has descriptors of what wakes it and of what it wakes the switch by, and so their flags, which it clears."""
    process = start_server(paths.p4_dir() / "switchml.p4", {"VALUES": "32", "SLOTS": "32"}, job_slots=16)
    try:
        hostile, attachment = attach(process.name, "hostile", 0, 1)
        config = WorkerConfig(worker=0, workers=1, job=attachment.number, life=attachment.life, slots=16, values=32)
        with open_worker_port(attachment) as port:
            for fd in attachment.fds[1:]:
                os.set_blocking(fd, True)
                with contextlib.suppress(OSError):
                    os.write(fd, (2**64 - 2).to_bytes(8, sys.byteorder))  # all that an eventfd holds
            worker = Worker(config)
            worker.submit(np.ones(32, np.int32))
            assert not port.arm()
            assert port.send(worker.frames_to_send(0, 1)) == 1  # the switch's answer rings
            job, good = [], []
            for number in range(2):
                client, own = attach(process.name, "good", number, 2)
                config = WorkerConfig(worker=number, workers=2, job=own.number, life=own.life, slots=16, values=32)
                good.append(Endpoint(config, open_worker_port(own), client.fileno()))
                close_fds(own)
                job.append(client)
            arrays = [np.ones(1000, np.int32) for _ in good]
            tickets = [endpoint.submit(array) for endpoint, array in zip(good, arrays, strict=True)]
            for endpoint, ticket in zip(good, tickets, strict=True):
                endpoint.wait(ticket, LONG)
            assert all((array == 2).all() for array in arrays)
            assert receive_one(port)
            for endpoint in good:
                endpoint.close()
        close_fds(attachment)
        for client in (hostile, *job):
            client.close()
    finally:
        process.close(LONG)
    assert process.process.returncode == 0


def receive_one(port):
    return until(lambda: port.receive(1), "a frame")


def test_a_program_that_does_not_compile_is_told_to_everyone(tmp_path):
    program = tmp_path / "broken.p4"
    program.write_text("control C() { apply { x = ; } }\n")
    process = SwitchProcess(program)
    try:
        for _ in range(2):
            client = Client(process.name, timeout=LONG)
            with pytest.raises(ControlError, match=r"cannot run .*broken\.p4(.|\n)*expected an expression"):
                client.admit("job", 2)
            client.close()
        assert "switch| control C() { apply { x = ; } }" in process.log_tail().replace("    ", "")
    finally:
        process.close(LONG)
    assert process.process.returncode == 1
    with pytest.raises(ControlError, match=r"cannot run .*broken\.p4(.|\n)*expected an expression") as once:
        start_server(program, timeout=LONG)
    assert str(once.value).count("expected an expression") == 1, "the process has logged what it answers"
    assert process.name not in abstract_sockets()


# ---- networks


class FakeNetwork(FakeHost):
    """Two switches and a spine; every process is in the next host."""

    def __init__(self):
        super().__init__()
        self.topology = load("leaf-spine", leaves=2, spines=1, hosts=1)
        self.targets = {name: FakeTarget() for name in ("s1", "s2", "s3")}
        self.hosts = iter(("h1", "h2"))

    def host_of(self, pid, name):
        return next(self.hosts)


@pytest.mark.parametrize("served", [FakeNetwork], indirect=True)
def test_a_job_in_a_network_gets_a_tree_when_all_its_workers_are_there(served, monkeypatch):
    name, host = served
    monkeypatch.setattr(service_module, "JOINING", 0.2)
    first, second = Client(name, timeout=LONG), Client(name, timeout=LONG)
    with pytest.raises(ControlError, match="its workers join before they are admitted"):
        first.admit("job", 2)
    first.join("job", 0)
    with pytest.raises(ControlError, match="admit: waited 0.2 s for workers 1 of job 'job' to join"):
        first.admit("job", 2)
    second.join("job", 1)
    assert second.admit("job", 2)["number"] == first.admit("job", 2)["number"] == 0
    assert [len(host.targets[switch].table("job")) for switch in ("s1", "s2", "s3")] == [1, 1, 1]
    first.close()
    second.close()


def test_who_finds_its_program_in_the_cache_does_not_load_the_compiler(tmp_path):
    """A switch process imports what is here: the compiler would take it half of the time until it serves."""
    code = ("import sys\nimport ina.aggregation.controller.server\nfrom ina.base import paths\n"
            "from ina.aggregation.controller.embedded import EmbeddedSwitch\n"
            "EmbeddedSwitch(paths.p4_dir() / 'switchml.p4', {'VALUES': '32', 'SLOTS': '4'}).close()\n"
            "print(*(name for name in sys.modules if name.startswith('ina.p4.compiler.')))\n"
            "print(*sorted({'torch', 'grpc', 'matplotlib', 'scapy', 'rich', 'networkx'} & set(sys.modules)))\n")
    environment = {**os.environ, "INA_CACHE": str(tmp_path)}
    first, second = (child.run([sys.executable, "-c", code], child.TRAINING, env=environment, check=True) for _ in range(2))
    assert "ina.p4.compiler.lower.lower" in first.stdout.split()
    ours, theirs = second.stdout.splitlines()
    assert {*ours.split()} == {f"ina.p4.compiler.{name}" for name in ("build", "compiled", "errors")}
    assert theirs == ""


def test_a_program_that_cannot_be_run_is_one_message_without_a_trace(caplog):
    def make(program, defines, args):
        raise ValueError(f"{program} is no aggregation program")

    assert main(["--program", "patch.p4", "--name", f"ina-test-{uuid.uuid4()}"], make=make) == 1
    (record,) = caplog.records
    assert record.getMessage() == "the switch process cannot run patch.p4: patch.p4 is no aggregation program"
    assert not record.exc_info
