"""Access control at the control socket: other users of this machine, other machines, pages of browsers, jobs of others."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import socket
import stat
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from capabilities import need
from control_process import connected, control_process, free_tcp_name
from rich.console import Console
from test_api import STRANGER, FakeNetwork, Someone, ask, joined
from test_control_attacks import lines, say
from waiting import LONG

from ina import cli
from ina import topology as topologies
from ina.aggregation.control_socket.channel import Channel, listen
from ina.aggregation.control_socket.greeting import Caller
from ina.aggregation.control_socket.messages import REQUESTS, printable
from ina.aggregation.controller.access import NOBODY, RULES, Access, Principal, Role, users
from ina.aggregation.controller.api import JOBS, Operations
from ina.aggregation.controller.client import Client, ControlError
from ina.aggregation.controller.server import SHARE, Server
from ina.base import tokens
from ina.cli.jobs import add_arguments
from ina.cli.running import counters_tables, jobs_table

ROOT = Path(__file__).resolve().parent.parent.parent.parent
UID = STRANGER.uid  # of nobody here


@pytest.fixture
def network():
    return FakeNetwork(topologies.load("leaf-spine", leaves=2, spines=1, hosts=2))


@pytest.fixture
def service(network):
    """A service of the user who runs the tests; nobody else may have jobs."""
    return Operations(network, job_slots=16)


# ---- the table


@pytest.mark.fast
def test_every_operation_has_a_rule_and_the_documentation_says_the_same():
    assert set(RULES) == set(REQUESTS.values())
    text = (ROOT / "docs/guide/control.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (anyone|users|owner)[^|]*\|$", text, re.MULTILINE))
    roles = {Role.ANYONE: "anyone", Role.USER: "users", Role.OWNER: "owner"}
    assert rows == {name: roles[RULES[kind].role] for name, kind in REQUESTS.items()}


MINIMAL = {"join": {"job": "job", "worker": 1}, "admit": {"job": "job", "workers": 1}, "attach": {"job": "job", "worker": 0},
           "end": {"job": "job"}}
LEAST = {**MINIMAL, "links": {"events": ["at 0s fail s1-s3"]}}


@pytest.mark.fast
@pytest.mark.parametrize("op", REQUESTS)
def test_who_is_nobody_here_may_only_look(service, op):
    (worker,) = joined(service, 1, token="secret")
    assert worker.ask("admit", job="job", workers=1, token="secret")["ok"]
    reply = Someone(service, 2, STRANGER).ask(op, **LEAST.get(op, {}))
    if RULES[REQUESTS[op]].role is Role.ANYONE:
        assert reply["ok"] and "secret" not in json.dumps(reply)
    else:
        assert reply["code"] == "denied" and f"{op}: user {UID} only looks at this switch; expected user " in reply["error"]
    assert not service.stopping and list(service.controller.jobs) == ["job"]


@pytest.mark.fast
def test_who_may_only_look_keeps_no_switch_alive(service):
    stranger, owner = Someone(service, 1, STRANGER), Someone(service, 2)
    assert not service.deserted()
    service.gone(owner, "")
    assert stranger.ask("ping")["ok"] and service.deserted()


@pytest.mark.fast
@pytest.mark.parametrize("named", [(), None], ids=["nobody", "everybody"])
def test_who_has_proved_nothing_over_tcp_keeps_no_switch_alive(network, named):
    access = Access(os.geteuid(), named)
    assert access.role(NOBODY) is Role.ANYONE
    with listen("tcp:127.0.0.1:0") as listener:
        server = Server(listener, network, token="t" * 32, access=access)
        try:
            with connected("tcp:{}:{}".format(*listener.getsockname())):
                server._accept(listener)
                assert len(server.service.sessions) == 1 and server.service.deserted()
        finally:
            server.close()


@pytest.mark.fast
def test_users_that_were_named_have_jobs_and_no_more(network):
    service = Operations(network, job_slots=16, access=Access(os.geteuid(), users([str(UID)])))
    someone = Someone(service, 1, STRANGER)
    for op in ("join", "admit", "attach"):
        assert someone.ask(op, **{**MINIMAL[op], "worker": 0} if op != "admit" else MINIMAL[op])["ok"], op
    assert "stop: user 4321 has jobs at this switch; expected user" in someone.ask("stop")["error"]
    assert someone.ask("serve")["code"] == "denied"
    assert Access(1, users(["everybody"])).role(Principal(77)) is Role.USER
    with pytest.raises(ValueError, match="--user: there is no user 'nobody-of-that-name' here"):
        users(["nobody-of-that-name"])


@pytest.mark.fast
def test_a_job_without_a_token_is_its_users(network):
    service = Operations(network, job_slots=16, access=Access(os.geteuid(), None))
    (worker,) = joined(service, 1)
    assert worker.ask("admit", job="job", workers=1)["ok"]
    other = Someone(service, 3, STRANGER)
    for op, fields in MINIMAL.items():
        reply = other.ask(op, **fields)
        assert reply["code"] == "token" and "job 'job' has no token: it is user" in reply["error"], op
    assert "you asked for it without a token" in Someone(service, 3).ask("join", job="job", worker=1, token="t")["error"]
    assert Someone(service, 3).ask("join", job="job", worker=1)["ok"]


@pytest.mark.fast
def test_the_switchs_owner_ends_any_job(network):
    service = Operations(network, job_slots=16, access=Access(os.geteuid(), None))
    theirs = Someone(service, 1, STRANGER)
    theirs.ask("join", job="job", worker=0, token="theirs")
    assert theirs.ask("admit", job="job", workers=1, token="theirs")["ok"]
    assert Someone(service, 2, Principal(77)).ask("end", job="job")["code"] == "token"
    assert Someone(service, 2).ask("attach", job="job", worker=1)["code"] == "token", "but is no member of it"
    assert Someone(service, 2).ask("end", job="job")["ok"]


@pytest.mark.fast
def test_one_user_cannot_have_all_jobs(service, network, monkeypatch):
    monkeypatch.setattr("ina.aggregation.controller.api.JOBS", 2)
    service.access = Access(os.geteuid(), None)
    for i in range(3):
        someone = Someone(service, 1, STRANGER)
        someone.ask("join", job=f"{i}", worker=0)
        reply = someone.ask("admit", job=f"{i}", workers=1, slots=1)
    assert reply["code"] == "full" and "user 4321 has 2 jobs already" in reply["error"] and JOBS < 256
    (worker,) = joined(service, 1)
    assert worker.ask("admit", job="job", workers=1, slots=1)["ok"]


@pytest.mark.fast
def test_jobs_keep_their_owners_when_the_controller_is_started_anew(network, tmp_path):
    from ina.aggregation.controller.state import StateFile

    everybody, state = Access(os.geteuid(), None), StateFile(tmp_path / "jobs.json")
    service = Operations(network, job_slots=16, state=state, access=everybody)
    someone = Someone(service, 1, STRANGER)
    someone.ask("join", job="job", worker=0)
    assert someone.ask("admit", job="job", workers=1)["ok"]
    again = Operations(network, job_slots=16, state=state, access=everybody)
    assert Someone(again, 1).ask("join", job="job", worker=0)["code"] == "token"
    assert Someone(again, 1, STRANGER).ask("join", job="job", worker=0)["ok"]


# ---- HTTP


@pytest.mark.fast
def test_http_is_for_the_same_people(service):
    assert ask(service, "GET", "/jobs", principal=STRANGER)[0] == 200
    for method, path, body in (("POST", "/jobs", {"job": "a", "workers": 1, "hosts": ["h1"]}), ("DELETE", "/jobs/a", None)):
        status, error = ask(service, method, path, body, principal=STRANGER)
        assert (status, error["code"]) == (403, "denied")


@pytest.mark.fast
@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"},
                                     {"Host": ""}, {"Host": "evil.example:5588"}])
def test_pages_of_browsers_may_not_ask(service, headers):
    for method, path in (("GET", "/jobs"), ("POST", "/jobs"), ("DELETE", "/jobs/a")):
        status, error = ask(service, method, path, headers=headers)
        assert (status, error["code"]) == (403, "denied") and next(iter(headers)) in error["error"]


@pytest.mark.fast
@pytest.mark.parametrize("host", ["ina", "localhost:80", "127.0.0.1:5588", "[::1]:5588", "[::1]", socket.gethostname()])
def test_names_that_only_we_have(service, host):
    assert ask(service, "GET", "/status", headers={"Host": host})[0] == 200


# ---- real users


@contextmanager
def as_user(uid: int):
    """A process of that user for ``run(function)``, which returns the function's result through JSON."""
    need("root")

    def run(function):
        ours, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                os.write(theirs, json.dumps(function()).encode())
            except BaseException as error:
                os.write(theirs, json.dumps(repr(error)).encode())
            finally:
                os._exit(0)
        os.close(theirs)
        with os.fdopen(ours) as stream:
            text = stream.read()
        os.waitpid(pid, 0)
        return json.loads(text)

    yield run


@pytest.fixture(scope="module")
def name():
    name = f"ina-test-{uuid.uuid4().hex[:12]}"
    with control_process(name):
        yield name


@pytest.mark.root
def test_another_user_of_the_machine_may_look_and_no_more(name):
    with as_user(UID) as run, connected(name) as mine:
        join = {"op": "join", "job": "mine", "worker": 0, "wire": 2}
        assert say(mine, join, {"op": "admit", "job": "mine", "workers": 1})[1]["ok"]

        def everything():
            with connected(name) as sock:
                return say(sock, *({"op": op, **LEAST.get(op, {}), **({"job": "mine"} if op in MINIMAL else {})}
                                   for op in REQUESTS))

        replies = dict(zip(REQUESTS, run(everything), strict=True))
        assert {op for op, reply in replies.items() if reply["ok"]} == {"ping", "jobs", "switches", "counters", "topology"}
        assert {reply["code"] for reply in replies.values() if not reply["ok"]} == {"denied"}

        def over_http():
            with connected(name) as sock:
                sock.sendall(b"DELETE /jobs/mine HTTP/1.1\r\nHost: ina\r\n\r\n")
                return b"".join(iter(lambda: sock.recv(65536), b"")).decode()

        assert run(over_http).startswith("HTTP/1.1 403")
        assert say(mine, {"op": "release"})[0]["ok"]


@pytest.mark.root
def test_another_user_cannot_take_all_connections(name):
    with as_user(UID) as run:
        def many():
            socks = [connected(name) for _ in range(SHARE + 1)]
            return lines(socks[-1])

        (refused,) = run(many)
        assert refused["code"] == "full" and f"user {UID} has {SHARE} connections, and may not have more" in refused["reason"]
        with connected(name) as sock:
            assert say(sock, {"op": "ping"})[0]["ok"]


@pytest.mark.root
def test_a_server_of_another_user_is_not_asked(monkeypatch, capsys):
    """Any user can listen at an abstract name, and wait for clients that trust it."""
    need("root")
    name = f"ina-{os.getpid()}-{uuid.uuid4().hex[:12]}"
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.setresuid(UID, UID, UID)
        listener = listen(name)
        os.write(theirs, b"ready")
        while True:
            listener.accept()
    try:
        assert os.read(ours, 5) == b"ready"
        with pytest.raises(ControlError, match=f"@{name} is a socket of user {UID}, who is neither you nor root; .* set "
                                               f"INA_SWITCH_USER={UID}") as error:
            Client(name)
        assert error.value.code == "denied"
        assert cli.main(["jobs"]) in (0, 1)
        assert f"@{name} is left out: @{name} is a socket of user {UID}" in capsys.readouterr().err
        assert cli.main(["ps", "--switch", name]) == 1
        assert "neither you nor root" in capsys.readouterr().err
        monkeypatch.setenv("INA_SWITCH_USER", str(UID))
        Client(name).close()
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(ours)
        os.close(theirs)


# ---- other machines


@pytest.fixture(scope="module")
def machine():
    """``tcp:`` name of a server's socket."""
    name = free_tcp_name()
    with control_process(name):
        yield name


def http(name, *headers, method="GET", path="/status", body=b""):
    with connected(name) as sock:
        head = "".join(f"{line}\r\n" for line in (f"{method} {path} HTTP/1.1", "Host: 127.0.0.1",
                                                 f"Content-Length: {len(body)}", *headers))
        sock.sendall(head.encode() + b"\r\n" + body)
        response = b"".join(iter(lambda: sock.recv(65536), b""))
    return int(response.split()[1]), json.loads(response.partition(b"\r\n\r\n")[2])


@pytest.mark.build
@pytest.mark.parametrize(("first", "code", "words"), [
    *((first, "token", "the token of this socket is needed")
      for first in (b'{"op":"ping"}', b"", b"\xff", b"[" * 200, b'{"op":"stop"}', b"inane", b"ina2x")),
    *((first, "version", "greeting is of version 1, .* upgrade ina on the client's machine")
      for first in (b"ina ", b"ina wrong", b"ina " + b"x" * 64)),
    (b"ina3 something", "version", "greeting is of version 3, .* 2: upgrade ina on the switch's machine"),
    *((first, "invalid", "expected a public key of 64 hexadecimal digits") for first in (b"ina2", b"ina2 " + b"x" * 64)),
])
def test_without_the_token_nothing_is_looked_at(machine, first, code, words):
    with connected(machine) as sock:
        sock.sendall(first + b"\n" + b'{"op":"ping"}\n')
        (reply,) = [json.loads(line) for line in b"".join(iter(lambda: _received(sock), b"")).splitlines()]
        assert (reply["event"], reply["code"]) == ("refused", code) and re.search(words, reply["reason"])
    with connected(machine) as sock:
        sock.sendall(b"x" * 100_000)
        assert _received(sock) == b"", "it is not kept, either"


def _received(sock) -> bytes:
    try:
        return sock.recv(65536)
    except ConnectionResetError:
        return b""


@pytest.mark.build
def test_with_the_token_a_machine_is_the_owner(machine):
    file = tokens.path()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and re.fullmatch(r"[0-9a-f]{64}\n", file.read_text())
    client = Client(machine)
    assert client.ping()["slots"] == 64 and client.admit("job", 1)["workers"] == 1
    client.close()
    with pytest.raises(ControlError, match="the token of this socket is needed") as error:
        Client(machine, access="y" * 64)
    assert error.value.code == "token"


@pytest.mark.build
@pytest.mark.parametrize("port", ["shm", "udp"])
def test_descriptors_do_not_come_to_other_machines(machine, port):
    for _ in range(2):  # the first attempt has left nothing
        client = Client(machine)
        client.join("job", 0)
        client.admit("job", 1)
        with pytest.raises(ControlError, match="descriptors, which no TCP connection carries: name its Unix socket") as error:
            client._call("attach", job="job", worker=0, port=port)
        assert error.value.code == "invalid"
        client.release()
        client.close()


@pytest.mark.build
def test_http_of_other_machines(machine):
    bearer = f"Authorization: Bearer {tokens.find()}"
    for headers in ([], ["Authorization: Bearer x"], ["Authorization: Basic eA=="]):
        for method, path in (("GET", "/status"), ("POST", "/jobs"), ("DELETE", "/jobs/a")):
            status, error = http(machine, *headers, method=method, path=path)
            assert (status, error["code"]) == (401, "token")
    assert http(machine, bearer)[1]["slots"] == 64
    assert http(machine, bearer, "Origin: https://evil.example")[0] == 403
    assert http(machine, bearer, method="POST", path="/jobs", body=b'{"job":"a","workers":1}')[0] == 200
    assert http(machine, bearer, method="DELETE", path="/jobs/a") == (200, {})


@pytest.mark.build
def test_who_brings_no_token_keeps_nobody_out(machine):
    mute = [connected(machine) for _ in range(SHARE + 8)]
    client = Client(machine)
    assert client.ping()["slots"] == 64
    client.close()
    assert _received(mute[0]) == b"", "the oldest have gone"
    for sock in mute:
        sock.close()


@pytest.mark.build
def test_who_only_connects_ends_no_greeting_and_greetings_have_a_bound_of_their_own():
    name, caller = free_tcp_name(), Caller(tokens.find())
    with control_process(name, SHARE=2), ExitStack() as stack:
        def another():
            return stack.enter_context(connected(name))

        def greeting():
            sock = another()
            sock.sendall(caller.hello() + b"\n")
            return sock, sock.makefile("rb").readline().strip()

        sock, line = greeting()
        idle = [another() for _ in range(3)]
        assert _received(idle[0]) == b"", "it made room"
        proof, _ = caller.proof(line)
        sock.sendall(proof + b"\n")
        caller.check(sock.makefile("rb").readline().strip())
        first, _ = greeting()
        more = [greeting() for _ in range(2)]
        assert all(line.startswith(b"ina2 ") for _, line in more)
        assert _received(first) == b"", "the oldest greeting made room"


@pytest.mark.build
def test_who_brings_no_token_is_waited_for_a_while_only():
    name = free_tcp_name()
    with control_process(name, GREETING=0.2), connected(name) as mute:
        assert _received(mute) == b""


@pytest.mark.fast
def test_a_socket_of_other_machines_has_a_token(network):
    with listen("tcp:127.0.0.1:0") as listener, pytest.raises(ValueError, match="it needs a token"):
        Server(listener, network)


@pytest.mark.fast
@pytest.mark.parametrize(("make", "text"), [
    (lambda path: None, "no token: there is no file .*ina.token; copy that of the user who started the server, or set INA_TOKEN"),
    (lambda path: (path.write_text("x" * 32), path.chmod(0o640)), "can be read by others: chmod 600"),
    (lambda path: (path.write_text("short"), path.chmod(0o600)), "expected a token of 16 to 255 printable characters"),
    (lambda path: path.mkdir(), "expected a file with a token"),
])
def test_files_that_have_no_token(tmp_path, monkeypatch, make, text):
    path = tmp_path / "ina.token"
    monkeypatch.setenv("INA_TOKEN_FILE", str(path))
    make(path)
    with pytest.raises(tokens.TokenError, match=text):
        tokens.find()


@pytest.mark.fast
def test_where_tokens_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("INA_TOKEN_FILE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    token = tokens.make()
    assert (tmp_path / "config" / "ina.token").stat().st_mode & 0o777 == 0o600
    assert tokens.make() == tokens.find() == token, "there is one, whoever starts"
    monkeypatch.setenv("INA_TOKEN", "z" * 32)
    assert tokens.make() == tokens.find() == "z" * 32 and tokens.where() == "INA_TOKEN"
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", unset)
        assert tokens.path() == tmp_path / ".config" / "ina.token"


def denied(do) -> str:
    """Returns the code with which a request is refused."""
    with pytest.raises(ControlError) as error:
        do()
    return error.value.code


@pytest.mark.build
def test_a_pass_is_good_for_its_job_and_nothing_else(machine):
    own = tokens.pass_for(tokens.find(), "token of one")

    def client(token="token of one", access=own):
        clients.append(Client(machine, token=token, access=access))
        return clients[-1]

    clients: list[Client] = []
    try:
        other = client("token of another", tokens.find())
        other.join("another", 0)
        other.admit("another", 1)
        worker = client()
        worker.join("one", 0)
        assert worker.admit("one", 1)["workers"] == 1 and worker.ping()["slots"] == 64
        for name in ("stop", "serve", "jobs", "switches", "counters"):
            assert denied(lambda name=name: client()._call(name)) == "denied", name
        assert denied(lambda: client()._call("links", events=[])) == "denied"
        for token in ("", "token of another", "a third token"):
            assert denied(lambda token=token: client(token)._call("end", job="another", token=token)) == "token"
            assert denied(lambda token=token: client(token).admit("new", 1)) == "token"
        assert denied(lambda: client().admit("another", 1)) == "denied", "the job of this pass is another one"
        assert denied(lambda: client().admit("new", 1)) == "denied"
        worker.release()
        worker.close()
        assert denied(lambda: client().admit("new", 1)) == "denied", "also when its job is over"
        assert other.ask("jobs")["jobs"].keys() == {"another"}
    finally:
        for each in clients:
            each.close()


@pytest.mark.build
def test_a_pass_is_good_for_groups_of_its_jobs_workers(machine):
    first = tokens.pass_for(tokens.find(), "token of all")
    second = tokens.further(tokens.said_in(first))
    assert second.startswith("token of all.") and second != tokens.further("token of all")

    def client(token):
        clients.append(Client(machine, token=token, access=first))
        return clients[-1]

    clients: list[Client] = []
    try:
        for job, token in (("some", second), ("all", "token of all"), ("few", tokens.further(second))):
            worker = client(token)
            worker.join(job, 0)
            assert worker.admit(job, 1)["workers"] == 1
        for token in ("token of", "token of al", "token of all2", "token of all2.1", "token of", ".", ""):
            assert denied(lambda token=token: client(token).admit("new", 1)) == "token", token
        assert denied(lambda: client(second).admit("new", 1)) == "denied", "that token is another job's"
        assert denied(lambda: client(tokens.further("token of all")).admit("all", 1)) == "token", "that job has another token"
    finally:
        for each in clients:
            each.close()


@pytest.mark.build
@pytest.mark.parametrize("forged", [
    tokens.pass_for("of another socket", "job"), "job:job:" + "0" * 64, "job::" + "0" * 64, "job:", "job:job",
    tokens.pass_for("", "job"), "job:\u00e9:" + "0" * 64,
])
def test_a_forged_pass_is_none(machine, forged):
    assert denied(lambda: Client(machine, access=forged)) == "token"


@pytest.mark.build
def test_a_pass_is_none_of_anothers_job_and_not_for_http(machine):
    own = tokens.pass_for(tokens.find(), "job")
    changed = own.replace(":job:", ":other:")
    assert denied(lambda: Client(machine, access=changed)) == "token"
    assert http(machine, f"Authorization: Bearer {own}")[0] == 401


class Store(dict):
    set = dict.__setitem__

    def wait(self, keys, timeout):
        assert all(key in self for key in keys)

    def multi_get(self, keys):
        return [self[key] for key in keys]


@pytest.mark.build
def test_ranks_get_a_pass_of_their_job_by_the_store(machine, monkeypatch):
    need("torch")
    from datetime import timedelta

    from ina.backend import rendezvous
    from ina.backend.job import Job
    from ina.backend.settings import Settings

    settings = Settings(program=Path("p4/switchml.p4"), protocol="", switch=machine)
    store = Store()
    agreed = rendezvous.agree(store, 0, 1, timedelta(seconds=60), settings)
    rendezvous.release(agreed.switch)
    assert tokens.find() not in "".join(store.values()), "whoever reaches the store could stop the switch process"
    assert denied(lambda: Client(machine, token=agreed.token, access=agreed.access).ask("stop")) == "denied"
    monkeypatch.setenv("INA_TOKEN_FILE", "/nowhere/ina.token")  # as on another machine
    with pytest.raises(RuntimeError, match="no token: there is no file /nowhere/ina.token"):
        Job(machine, agreed.pid, "group", 1, 2, 60.0, settings, agreed.token)
    Job(machine, agreed.pid, "group", 1, 2, 60.0, settings, agreed.token, access=agreed.access).close(in_peace=True)


# ---- what others wrote


EVIL = "\x1b[2J\x1b]0;gone\x07[red]\u202ename\r\n"


@pytest.mark.fast
def test_what_others_wrote_moves_no_cursor():
    assert printable(EVIL) == "\\x1b[2J\\x1b]0;gone\\x07[red]\\u202ename\\r\\n"
    assert printable("two\nlines\x1b", "\n") == "two\nlines\\x1b"
    job = {"number": 0, "workers": 1, "slots": 1, "switches": {EVIL: {}}, "root": EVIL,
           "members": {"0": {"host": EVIL, "pid": 1, "port": 1}}}
    out = io.StringIO()
    Console(file=out, width=1000).print(jobs_table({"jobs": {EVIL: job}}, {}))
    assert "\x1b" not in out.getvalue() and "\u202e" not in out.getvalue() and "[red]" in out.getvalue()


@pytest.mark.fast
def test_counters_of_others_move_no_cursor():
    counters = {"program": {EVIL: [[1, 2]]}, "ports": {EVIL: {EVIL: 1}}}
    out = io.StringIO()
    Console(file=out, width=1000).print(counters_tables(counters, {"program": EVIL}))
    assert not set(out.getvalue()) & {"\x1b", "\x07", "\u202e"} and out.getvalue().count("[red]") == 3


@pytest.mark.build
def test_an_answer_that_makes_no_sense_is_no_traceback(machine, monkeypatch, capsys):
    monkeypatch.setattr("ina.cli.running.ask", lambda name, *operations: {each: {} for each in operations})
    args = argparse.ArgumentParser()
    add_arguments(args.add_subparsers())
    args = args.parse_args(["jobs", "--switch", machine])
    assert args.main(args) == 1
    assert "an answer that makes no sense (KeyError: 'pid'); does a switch" in capsys.readouterr().err


@pytest.mark.fast
def test_errors_of_others_move_no_cursor():
    """A server's texts end up in exceptions and warnings."""
    name = f"ina-test-{uuid.uuid4().hex[:12]}"

    def answer():
        channel = Channel(listener.accept()[0])
        channel.receive(time.monotonic() + LONG, "a request")
        channel.send({"event": "failed", "reason": EVIL})
        channel.send({"ok": False, "code": "invalid", "error": EVIL})

    with listen(name) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        client = Client(name)
        with pytest.raises(ControlError) as error:
            client.ping()
        thread.join(LONG)
    assert "\x1b" not in str(error.value) and "\x1b" not in client.failure and "\\x1b[2J" in client.failure
    client.close()


@pytest.mark.fast
def test_nothing_of_this_is_the_name_of_a_job(service):
    assert "cannot be printed" in Someone(service, 1).ask("join", job=EVIL, worker=0)["error"]


@pytest.mark.build
def test_a_pass_of_a_switch_process_that_was_replaced_is_forgotten(machine, monkeypatch):
    need("torch")
    from datetime import timedelta

    from ina.backend import rendezvous
    from ina.backend.settings import Settings

    monkeypatch.setitem(rendezvous._passes, machine, tokens.pass_for("the token before", "job"))
    settings = Settings(program=Path("p4/switchml.p4"), protocol="", switch=machine)
    rendezvous.release(rendezvous.agree(Store(), 0, 1, timedelta(seconds=60), settings).switch)
    assert machine not in rendezvous._passes


@pytest.mark.build
def test_a_pass_of_a_replaced_process_is_no_new_group_s_while_an_old_one_is_there(machine, monkeypatch):
    need("torch")
    from datetime import timedelta

    from ina.backend import rendezvous
    from ina.backend.settings import Settings

    stale = tokens.pass_for("the token before", "job")
    for table, value in ((rendezvous._passes, stale), (rendezvous._users, 1), (rendezvous._pids, 1), (rendezvous._started, 1.0),
                         (rendezvous._protocols, "switchml")):  # of a group that is there still
        monkeypatch.setitem(table, machine, value)
    assert not rendezvous._answers(machine) and machine not in rendezvous._passes
    rendezvous._passes[machine] = stale
    settings = Settings(program=Path("p4/switchml.p4"), protocol="", switch=machine)
    agreed = rendezvous.agree(Store(), 0, 1, timedelta(seconds=60), settings)
    Client(machine, token=agreed.token, access=agreed.access).close()
    assert agreed.pid == rendezvous._pids[machine] != 1 and machine not in rendezvous._passes
