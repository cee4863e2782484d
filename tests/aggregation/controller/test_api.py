"""Answers of the controller's process, without sockets: several switches, tokens, mismatches; and the same in HTTP."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import time
import uuid
from dataclasses import replace

import pytest
from capabilities import need
from fake_target import FakeTarget
from hypothesis import given
from hypothesis import strategies as st
from waiting import LONG

from ina import topology as topologies
from ina.aggregation.control_socket.channel import listen
from ina.aggregation.controller import http
from ina.aggregation.controller.access import Access, Principal
from ina.aggregation.controller.api import JOINING, UNJOINED, Operations, Session
from ina.aggregation.controller.client import Client, ControlError
from ina.aggregation.controller.process_tree import ProcessTree
from ina.aggregation.controller.server import Server
from ina.aggregation.controller.state import StateFile, job_from_json, job_to_json
from ina.aggregation.controller.switch_host import plug_in
from ina.base.native import lib


class FakeNetwork:
    """Switches without a data plane, and hosts; a process's id says in which of them it is."""

    def __init__(self, topology, protocol="switchml"):
        self.topology, self.outlives, self.protocol = topology, True, protocol
        self.packet_lifetime = 0.0
        self.seats = None
        self.targets = {switch.name: FakeTarget() for switch in topology.switches}
        self.opened, self.protected = [], []
        self.links, self.routed_around = None, []

    def describe(self):
        return {"program": "fake.p4", "source_hash": "0", "values": 32, "slots": 64, "protocol": self.protocol}

    def host_of(self, pid, name):
        if f"h{pid}" not in {host.name for host in self.topology.hosts}:
            raise ValueError(f"process {pid} is in no host")
        return f"h{pid}"

    def open_port(self, kind, job, index, host, control):
        self.opened.append(host)
        return plug_in(self.topology, host, job.addresses[index], 0xBEE0)

    def close_port(self, number, job):
        self.opened.pop()

    def protect(self, switch):
        self.protected.append(switch)

    def reroute(self, down):
        self.routed_around.append(sorted(down))

    def counters(self):
        return {"program": {"drops": [[0, 0]]}}

    def close(self):
        pass


ME = Principal(os.geteuid())
STRANGER = Principal(4321)


class Someone(Session):
    """A client in host h<pid>; ``messages``: all messages to it."""

    def __init__(self, service, pid, principal=ME):
        self.messages = []
        super().__init__(pid, lambda message, fds: self.messages.append(message), principal)
        self.service = service
        service.sessions.append(self)

    def ask(self, op, **arguments):
        wire = {"wire": lib.INA_WIRE_VERSION} if op == "join" else {}
        self.service.answer(self, {"op": op, **wire, **arguments})
        self.service.retry()
        return self.messages[-1]


@pytest.fixture
def network():
    return FakeNetwork(topologies.load("leaf-spine", leaves=2, spines=1, hosts=2))


@pytest.fixture
def service(network):
    return Operations(network, job_slots=16, access=Access(os.geteuid(), [STRANGER.uid]))


def joined(service, *pids, job="job", **options):
    workers = [Someone(service, pid) for pid in pids]
    for index, worker in enumerate(workers):
        assert worker.ask("join", job=job, worker=index, **options)["ok"]
    return workers


# ---- names


@pytest.mark.fast
def test_workers_on_other_machines_are_named_by_their_address(service):
    first, second = joined(service, 1, 2)
    other = Someone(service, 3)
    first.peer, other.peer = "10.0.0.2:4001", "[fd00::3]:4003"
    again = other.ask("join", job="job", worker=0)["error"]
    assert "the process at 10.0.0.2:4001 and the process at [fd00::3]:4003 both say that they are worker 0" in again
    service.gone(first, "its connection closed")
    assert "worker 0 of job 'job' (the process at 10.0.0.2:4001) is lost: its conn" in second.messages[-1]["reason"]


# ---- places


@pytest.mark.fast
def test_where_a_worker_of_a_network_asks_from_does_not_matter(service):
    """Its frames have another way: the control connection may be translated, or IPv6's."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as control:
        (worker,) = joined(service, 1)
        worker.sock = control
        worker.ask("admit", job="job", workers=1)
        answer = worker.ask("attach", job="job", worker=0, port="udp@10.9.8.7:4000")
    assert answer["ok"] and answer["port"]["kind"] == "udp" and answer["port"]["bind"], answer


# ---- versions and check words


@pytest.mark.fast
@pytest.mark.parametrize(("wire", "older"), [
    ({"wire": lib.INA_WIRE_VERSION - 1}, "the worker's machine"),
    ({"wire": lib.INA_WIRE_VERSION + 1}, "the switch's machine, and load its program anew"),
])
def test_a_worker_of_another_wire_version_is_refused_when_it_joins(service, wire, older):
    worker, own = Someone(service, 1), lib.INA_WIRE_VERSION
    answer = worker.ask("join", job="job", worker=0, **wire)
    text = f"worker 0 of job 'job' speaks wire version {wire['wire']}, the switch's program {own}: upgrade ina on {older}"
    assert (answer["code"], answer["error"]) == ("version", text)
    assert not worker.job
    assert worker.ask("join", job="job", worker=0)["ok"], "the connection stays usable"
    assert worker.ask("ping")["wire"] == own


@pytest.mark.fast
def test_a_worker_without_a_wire_version_is_one_of_version_1(service):
    worker = Someone(service, 1)
    service.answer(worker, {"op": "join", "job": "job", "worker": 0})
    assert worker.messages[-1]["code"] == "version" and "speaks wire version 1" in worker.messages[-1]["error"]


@pytest.mark.fast
def test_a_controller_that_knows_no_wire_versions_is_the_older_side():
    name = f"ina-test-{uuid.uuid4()}"
    with listen(name) as listener:
        client = Client(name, timeout=LONG)
        far, _ = listener.accept()
        with far:
            client.join("job", 0)
            refusal = {"ok": False, "code": "invalid", "error": "join: unknown field 'wire'; expected job, worker, token, host"}
            far.sendall(2 * (json.dumps(refusal).encode() + b"\n"))  # of join, and of admit
            with pytest.raises(ControlError, match="speaks wire version 1, this worker 2: upgrade ina on the switch's") as error:
                client.admit("job", 1)
        client.close()
    assert error.value.code == "version"


@pytest.mark.fast
def test_workers_of_a_job_make_the_same_check_words(service):
    first, second = joined(service, 1, 3)
    assert first.ask("admit", job="job", workers=2, check="off")["check"] == "off"
    refusal = second.ask("admit", job="job", workers=2, check="sum")
    assert refusal["code"] == "mismatch" and "admitted with check='off'; this worker asks for 'sum'" in refusal["error"]
    assert second.ask("admit", job="job", workers=2)["check"] == "off", "it has no opinion"
    for index, worker in enumerate((first, second)):
        assert worker.ask("attach", job="job", worker=index, port="udp")["check"] == "off"
    assert first.ask("jobs")["jobs"]["job"]["check"] == "off"


@pytest.mark.fast
def test_a_worker_that_the_job_does_not_have_is_refused_before_its_port_is_opened(service, network):
    first, stranger = joined(service, 1)[0], Someone(service, 2)
    assert first.ask("admit", job="job", workers=1)["ok"]
    refusal = stranger.ask("attach", job="job", worker=1, port="udp")
    assert (refusal["code"], refusal["error"]) == ("invalid", "job 'job' has workers 0 to 0; there is no 1")
    assert network.opened == [] and first.ask("attach", job="job", worker=0, port="udp")["ok"], "the job goes on"


@pytest.mark.fast
def test_a_keyed_job_has_a_secret_that_only_its_workers_get(service):
    workers = joined(service, 1, 3)
    for worker in workers:
        assert "key" not in worker.ask("admit", job="job", workers=2, check="keyed")
    keys = {worker.ask("attach", job="job", worker=i, port="udp")["key"] for i, worker in enumerate(workers)}
    assert len(keys) == 1 and len(bytes.fromhex(keys.pop())) == 16
    admitted = service.controller.jobs["job"]
    answers = json.dumps([workers[0].ask(op) for op in ("jobs", "ping", "switches")])
    assert admitted.key.hex() not in answers and admitted.secret not in answers and admitted.secret not in repr(admitted)
    kept = job_from_json(json.loads(json.dumps(job_to_json(admitted))))
    assert kept.key == admitted.key, "a restarted controller knows it"
    assert replace(admitted, incarnation=admitted.incarnation + 1).key != admitted.key


@pytest.mark.fast
def test_check_words_that_a_protocol_does_not_have_are_refused(service):
    (worker,) = joined(service, 1)
    refusal = worker.ask("admit", job="job", workers=1, check="maybe")
    assert (refusal["code"], "check: 'maybe': the protocol 'switchml' has off, sum" in refusal["error"]) == ("invalid", True)


# ---- several switches


@pytest.mark.fast
def test_a_job_is_placed_when_all_its_workers_have_joined(service, network):
    first, second = Someone(service, 1), Someone(service, 3)
    first.ask("join", job="job", worker=0)
    first.ask("admit", job="job", workers=2)
    assert len(first.messages) == 1, "no answer before worker 1 has joined"
    second.ask("join", job="job", worker=1)
    assert first.messages[-1] == second.ask("admit", job="job", workers=2)
    assert service.pending == []
    admitted = service.controller.jobs["job"]
    assert first.messages[-1] == {"ok": True, "number": 0, "incarnation": admitted.incarnation, "life": admitted.life,
                                  "slot_base": 0, "slots": 16, "workers": 2, "check": "sum"}
    reply = second.ask("attach", job="job", worker=1)
    assert reply["address"] == ("00:00:00:00:00:03", "10.0.0.3", 4000)
    assert reply["switch"] == ("02:ff:00:00:00:02", "10.255.0.2", 0xBEE0)
    assert list(service.controller.jobs["job"].branches) == ["s3", "s1", "s2"]
    for worker in (first, second):
        worker.ask("release")
    assert network.opened == [] and all(target.entities == {} for target in network.targets.values())


@pytest.mark.fast
def test_who_waits_too_long_is_told_for_whom(service, monkeypatch):
    first, = joined(service, 1)
    first.ask("admit", job="job", workers=3)
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + JOINING)
    service.retry()
    assert first.messages[-1]["error"] == f"admit: waited {JOINING:g} s for workers 1, 2 of job 'job' to join"


@pytest.mark.fast
def test_who_waits_for_a_lost_worker_is_told(service):
    first, second = joined(service, 1, 2)
    first.ask("admit", job="job", workers=3)
    service.gone(second, "its process ended")
    assert first.messages[-1]["lost"] == 1
    assert first.messages[-1]["event"] == "failed" and "worker 1 of job 'job' (process 2) is lost" in first.messages[-1]["reason"]


@pytest.mark.fast
@pytest.mark.parametrize(("pids", "text"), [((1, 1), "h1 has a worker of this job already"),
                                            ((1, 9), "process 9 is in no host")])
def test_workers_that_have_no_place(service, pids, text):
    workers = [Someone(service, pid) for pid in pids]
    replies = [worker.ask("join", job="job", worker=i) for i, worker in enumerate(workers)]
    replies.append(workers[0].ask("admit", job="job", workers=2))
    assert any(re.search(text, reply.get("error", "")) for reply in replies)


@pytest.mark.fast
def test_all_workers_hear_which_switch_is_full(service):
    holder = joined(service, 3, job="big")[0]
    assert holder.ask("admit", job="big", workers=1, slots=64)["ok"]
    workers = joined(service, 1, 4)
    texts = {worker.ask("admit", job="job", workers=2)["error"] for worker in workers}
    assert texts == {"job 'job' asks for 16 slots: s2, which h4 is connected to: no slots left"}


@pytest.mark.fast
def test_admission_by_one_that_has_not_joined_needs_the_hosts(service):
    someone = Someone(service, 1)
    assert "or say hosts" in someone.ask("admit", job="job", workers=2)["error"]
    assert someone.ask("admit", job="job2", workers=2, hosts=["h1", "h3"])["ok"]


# ---- who may


@pytest.mark.fast
def test_a_jobs_token_is_needed_for_everything(service):
    (worker,) = joined(service, 1, token="secret")
    worker.ask("admit", job="job", workers=1, token="secret")
    for token, text in (("guess", "the token is wrong"), ("", "a token is needed")):
        for request in ({"op": "join", "worker": 1}, {"op": "admit", "workers": 1}, {"op": "attach", "worker": 0}, {"op": "end"}):
            reply = Someone(service, 2, STRANGER).ask(job="job", token=token, **request)
            assert reply["code"] == "token" and text in reply["error"]
    assert worker.ask("attach", job="job", worker=0, token="secret")["ok"]


@pytest.mark.fast
def test_the_name_of_a_failed_job_is_free_for_another_token(service):
    first, second = joined(service, 1, 3, token="one")
    for worker in (first, second):
        worker.ask("admit", job="job", workers=2, token="one")
    service.gone(second, "its process ended")
    service.gone(first, "")
    late = Someone(service, 1)
    assert "is lost" in late.ask("join", job="job", worker=0, token="one")["error"]
    old = first.messages[-2] if "number" in first.messages[-2] else first.messages[1]
    workers = joined(service, 1, 3, token="two")
    assert workers[0].ask("admit", job="job", workers=2, token="two")["incarnation"] != old["incarnation"]


@pytest.mark.fast
@pytest.mark.parametrize(("arguments", "text"), [
    ({"protocol": "atp"}, "worker 0 of job 'job' has protocol=atp, but the switch runs fake.p4 with protocol=switchml"),
    ({"values": 64}, "has values=64, but the switch runs fake.p4 with values=32"),
])
def test_workers_made_for_another_program(service, arguments, text):
    (worker,) = joined(service, 1)
    worker.ask("admit", job="job", workers=1)
    reply = worker.ask("attach", job="job", worker=0, **arguments)
    assert reply["code"] == "mismatch" and text in reply["error"]
    assert worker.ask("attach", job="job", worker=0, protocol="switchml", values=32)["ok"]


@pytest.mark.fast
def test_a_switch_that_refuses_is_named(service, network):
    workers = joined(service, 1, 3)
    network.targets["s2"].failing = TimeoutError("no answer within 5 s")
    for worker in workers:
        reply = worker.ask("admit", job="job", workers=2)
        assert reply["code"] == "switch" and reply["error"] == "switch s2: no answer within 5 s"
    assert Someone(service, 1).ask("switches")["switches"]["s2"]["state"] == "unsure"


# ---- what there is


@pytest.mark.fast
def test_what_there_is(service):
    workers = joined(service, 1, 3, token="t")
    for index, worker in enumerate(workers):
        worker.ask("admit", job="job", workers=2, token="t")
        worker.ask("attach", job="job", worker=index, token="t")
    job = workers[0].ask("jobs")["jobs"]["job"]
    assert job["root"] == "s3" and job["open"] is False
    assert job["switches"]["s2"] == {"slot_base": 0, "children": [1]}
    assert job["members"][1] == {"pid": 3, "host": "h3", "port": 1, "ip": "10.0.0.3"}
    switches = workers[0].ask("switches")["switches"]
    assert switches["s1"] == {"slots": 64, "free_slots": 48, "state": "up", "jobs": ["job"]}


@pytest.mark.fast
def test_the_end_of_a_job_by_hand(service):
    (worker,) = joined(service, 1)
    worker.ask("admit", job="job", workers=1)
    other = Someone(service, 2)
    assert other.ask("end", job="job")["ok"]
    assert worker.messages[-1] == {"event": "failed", "reason": "job 'job' was ended by process 2"} and worker.hang_up_at
    service.gone(worker, "")
    assert service.controller.jobs == {}
    assert other.ask("end", job="nobody")["code"] == "unknown"


# ---- HTTP


def ask(service, method, path, body=None, headers=None, principal=ME):
    data = json.dumps(body).encode() if body is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nContent-Length: {len(data)}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in {"Host": "ina", **(headers or {})}.items())
    session = Session(77, lambda message, fds: None, principal)
    status, _, rest = http.answer(service, session, head.encode() + b"\r\n" + data).partition(b"\r\n")
    return int(status.split()[1]), json.loads(rest.partition(b"\r\n\r\n")[2])


@pytest.mark.fast
def test_a_job_by_http(service, network):
    status, admission = ask(service, "POST", "/jobs", {"job": "a/b", "workers": 2, "hosts": ["h1", "h3"]})
    assert status == 200 and admission["slots"] == 16 and len(admission["token"]) == 32
    assert ask(service, "GET", "/jobs/a/b")[1]["root"] == "s3"
    status, error = ask(service, "DELETE", "/jobs/a/b", principal=STRANGER)
    assert (status, error["code"]) == (403, "token")
    bearer = {"Authorization": f"Bearer {admission['token']}"}
    assert ask(service, "DELETE", "/jobs/a/b", headers=bearer, principal=STRANGER) == (200, {})
    assert all(target.entities == {} for target in network.targets.values())


@pytest.mark.fast
@pytest.mark.parametrize(("method", "path", "body", "status", "text"), [
    ("GET", "/nothing", None, 404, "GET / says what there is"),
    ("GET", "/jobs/none", None, 404, "no job 'none'"),
    ("POST", "/switches", {}, 405, "only GET"),
    ("PUT", "/jobs", {}, 405, "GET, POST or DELETE"),
    ("POST", "/jobs", {"job": "a"}, 400, "admit: workers is missing; expected an integer from 1 to"),
    ("POST", "/jobs", [], 400, "expected a JSON object"),
    ("OPTIONS", "*", None, 400, "'*': expected a path that begins with /"),
    ("GET", "http://ina/jobs", None, 400, "'http://ina/jobs': expected a path that begins with /"),
    ("POST", "/jobs", {"job": "a", "workers": 2}, 400, "or say hosts"),
    ("POST", "/jobs", {"job": "a", "workers": 2, "hosts": ["h1", "h9"]}, 400, "there is no host 'h9'"),
    ("POST", "/jobs", {"job": "a", "workers": 1, "hosts": ["h1"], "slots": 128}, 503, "no slots left"),
])
def test_http_refusals(service, method, path, body, status, text):
    code, error = ask(service, method, path, body)
    assert code == status and text in error["error"]


@pytest.mark.fast
def test_http_takes_no_body_in_chunks(service):
    status, error = ask(service, "POST", "/jobs", {"job": "a"}, {"Transfer-Encoding": "chunked"})
    assert (status, error["error"]) == (400, "Transfer-Encoding: expected a body with Content-Length")


@pytest.mark.fast
def test_http_says_what_there_is(service):
    assert "GET /jobs" in ask(service, "GET", "/")[1]["requests"]
    assert ask(service, "GET", "/status")[1]["protocol"] == "switchml"
    assert set(ask(service, "GET", "/switches")[1]["switches"]) == {"s1", "s2", "s3"}
    assert ask(service, "GET", "/counters")[1] == {"program": {"drops": [[0, 0]]}}


@pytest.mark.fast
@given(st.binary(max_size=200), st.sampled_from([b"", b"GET ", b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length: "]))
def test_any_bytes_are_a_request_or_none(data, start):
    try:
        request = http.parse(start + data)
    except ValueError:
        return
    assert request is None or request.method in (start + data).decode("latin-1")


@pytest.fixture
def socket_name(network):
    """A server in a thread: the name of its socket."""
    name = f"ina-test-{uuid.uuid4().hex[:12]}"
    starter_end, alive = os.pipe()
    server = Server(listen(name), network, starter_end, job_slots=16)
    thread = threading.Thread(target=lambda: (server.run(), server.close()), daemon=True)
    thread.start()
    yield name
    os.close(alive)
    thread.join(5)
    assert not thread.is_alive()
    os.close(starter_end)


@pytest.mark.fast
def test_workers_and_people_at_one_socket(socket_name):
    client = Client(socket_name, timeout=60)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + socket_name)
        sock.sendall(b"GET /status HT")
        assert client.ping()["slots"] == 64, "it serves others meanwhile"
        sock.sendall(b"TP/1.1\r\n\r\n")
        response = b"".join(iter(lambda: sock.recv(65536), b""))
    assert response.startswith(b"HTTP/1.1 200 OK\r\n") and b'"slots": 64' in response
    with pytest.raises(ControlError, match="process .* is in no host"):
        client.attach("job", 0)
    client.close()


@pytest.mark.build
def test_curl(socket_name):
    need("curl")
    command = ["curl", "-sS", "--max-time", "5", "--abstract-unix-socket", socket_name, "http://ina/switches"]
    reply = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert reply["switches"]["s1"]["free_slots"] == 64


# ---- what fails half-way


class FullDisk:
    """A state file's disk, which is full or not."""

    def __init__(self, path):
        self.file, self.is_full = StateFile(path), False
        self.load, self.path = self.file.load, path

    def save(self, state):
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.file.save(state)


@pytest.fixture
def disk(tmp_path):
    return FullDisk(tmp_path / "jobs.json")


@pytest.mark.fast
def test_what_cannot_be_remembered_is_not_done(network, disk):
    service = Operations(network, job_slots=16, state=disk)
    workers = joined(service, 1, 3)
    disk.is_full = True
    for worker in workers:  # all get the same answer
        assert worker.ask("admit", job="job", workers=2)["code"] == "system"
    assert service.controller.jobs == {} and all(target.entities == {} for target in network.targets.values())
    disk.is_full = False
    assert workers[0].ask("admit", job="job", workers=2)["ok"]
    before = {name: dict(target.entities) for name, target in network.targets.items()}
    disk.is_full = True
    assert workers[0].ask("attach", job="job", worker=0) == {"ok": False, "code": "system",
                                                             "error": "attach: No space left on device"}
    assert network.opened == [] and before == {name: target.entities for name, target in network.targets.items()}
    disk.is_full = False
    assert [worker.ask("attach", job="job", worker=i)["ok"] for i, worker in enumerate(workers)] == [True, True]
    disk.is_full = True
    assert workers[0].ask("release")["code"] == "system" and not workers[1].messages[-1].get("event")
    for worker in workers:  # a connection's end cannot be refused
        service.gone(worker, "")
    assert service.controller.jobs == {} and len(disk.load()["controller"]["jobs"]) == 1
    disk.is_full = False
    service.recovery._checked_at = 0.0
    service.tick()
    assert disk.load()["controller"]["jobs"] == [], "it is remembered as soon as it can be"


@pytest.mark.fast
def test_attach_that_fails_joins_nothing(service):
    someone = Someone(service, 1)
    assert someone.ask("attach", job="job", worker=0)["code"] == "unknown"
    assert someone.job == "" and service.tokens == {}


@pytest.mark.fast
def test_a_defect_costs_one_connection_and_its_job(service, network, monkeypatch):
    (worker,), (other,) = joined(service, 1), joined(service, 3, job="other")
    for each in (worker, other):
        assert each.ask("admit", job=each.job, workers=1)["ok"]
    monkeypatch.setattr(network, "open_port", lambda *_: {}["defect"])
    worker.ask("attach", job="job", worker=0)
    refusal, news = worker.messages[-2:]
    assert refusal["code"] == "internal" and "KeyError: 'defect'" in refusal["error"]
    assert "a request of worker 0 of job 'job' failed: attach: the switch process has a defect" in news["reason"]
    assert worker.hang_up_at and not other.hang_up_at
    monkeypatch.undo()
    service.gone(worker, "")
    assert list(service.controller.jobs) == ["other"] and other.ask("attach", job="other", worker=0)["ok"]


@pytest.mark.fast
def test_one_request_of_a_connection_waits_at_a_time(service):
    (first,) = joined(service, 1)
    for _ in range(1000):
        first.ask("admit", job="job", workers=2)
    assert len(service.pending) == 1
    assert "an earlier request of this connection still waits for its answer" in first.messages[-1]["error"]


# ---- jobs that nobody joins


@pytest.mark.fast
def test_a_job_that_nobody_joins_is_over_after_a_while(service, network, monkeypatch):
    status, _ = ask(service, "POST", "/jobs", {"job": "a", "workers": 2, "hosts": ["h1", "h3"], "token": "t"})
    assert status == 200 and list(service.controller.jobs) == ["a"]
    due = service.leases["a"].until
    assert service.due() <= due
    monkeypatch.setattr(time, "monotonic", lambda: due)
    service.tick()
    assert service.controller.jobs == {} and all(target.entities == {} for target in network.targets.values())


@pytest.mark.fast
def test_a_job_that_was_joined_stays(service, monkeypatch):
    ask(service, "POST", "/jobs", {"job": "a", "workers": 2, "hosts": ["h1", "h3"], "token": "t"})
    joined(service, 1, job="a", token="t")
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 1e6)
    service.tick()
    assert list(service.controller.jobs) == ["a"] and service.leases == {}


@pytest.mark.fast
def test_jobs_that_nobody_has_joined_are_few(service, network):
    for i in range(UNJOINED):
        assert ask(service, "POST", "/jobs", {"job": f"{i}", "workers": 1, "hosts": ["h1"], "slots": 1})[0] == 200
    status, error = ask(service, "POST", "/jobs", {"job": "x", "workers": 1, "hosts": ["h1"], "slots": 1})
    assert status == 503 and f"{UNJOINED} jobs have been admitted that nobody has joined" in error["error"]
    (worker,) = joined(service, 1, job="mine")
    assert worker.ask("admit", job="mine", workers=1)["ok"], "who joins first needs no lease"
    other = Someone(service, 3, STRANGER)
    assert other.ask("admit", job="other", workers=1, slots=1, hosts=["h3"])["ok"], "one user's are not another's"


@pytest.mark.fast
def test_a_process_whose_parent_has_not_heard_of_the_end_of_all_jobs_is_not_deserted(network, monkeypatch):
    service = Operations(network, tree=ProcessTree(network))
    assert service.deserted()
    monkeypatch.setattr(service.tree, "_ending", ["a job that is over here"])
    assert not service.deserted()
