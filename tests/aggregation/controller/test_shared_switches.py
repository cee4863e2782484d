"""Switches that the workers of a job run: sums, turns, workers that are killed in the middle of one, who may have one."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from capabilities import need
from ranks import alive
from test_api import ME, STRANGER, Someone
from tiers import several_processes
from waiting import LONG, until

from ina.aggregation import protocols
from ina.aggregation.controller.access import Access
from ina.aggregation.controller.api import Operations
from ina.aggregation.controller.embedded import EmbeddedSwitch
from ina.aggregation.controller.job_records import Job
from ina.aggregation.controller.shared_switches import SharedSwitches
from ina.aggregation.controller.worker_ports import open_offered_port
from ina.aggregation.entries import program_named
from ina.aggregation.worker import SWITCH, Endpoint, JobTimeout, WorkerConfig, worker_address
from ina.net.ports import Faults
from ina.p4.runtime import shared

pytestmark = pytest.mark.build
VALUES, SLOTS = 64, 16


@pytest.fixture(scope="module")
def host():
    need("cc")
    host = EmbeddedSwitch(protocols.program("switchml"), {"VALUES": str(VALUES), "SLOTS": "512"})
    yield host
    host.close()


@pytest.fixture
def service(host):
    return Operations(host, access=Access(os.geteuid(), users=None), job_slots=SLOTS)


class Worker(Someone):
    """A worker that asks to run its job's switch. ``attached``: the reply; ``fds``: its port's descriptors."""

    def __init__(self, service, job, index, workers, principal=ME, runs=True):
        super().__init__(service, os.getpid(), principal)
        self.fds = []
        self.send = self._take
        who = {"job": job, "worker": index, "token": "t"}
        self.ask("join", **who)
        self.ask("admit", job=job, workers=workers, token="t")
        self.attached = self.ask("attach", runs=runs, **who)

    def _take(self, message, fds):
        self.fds += [os.dup(fd) for fd in fds]
        self.messages.append(message)

    def endpoint(self, faults=None, **timing):
        reply = self.attached
        config = WorkerConfig(reply["worker"], reply["workers"], job=reply["number"], life=reply["life"], slots=reply["slots"],
                              values=reply["values"], check="off", **{"rto_min": 20.0, "rto_max": 20.0, "timeout": LONG} | timing)
        max_frame = protocols.frame_bytes("switchml", VALUES)
        port = open_offered_port(reply["port"], self.fds, worker_address(reply["number"], reply["worker"]), SWITCH, max_frame, 32)
        if faults:
            port.with_faults(*faults)
        self.port = port
        return Endpoint(config, port)

    def close(self):
        """Closes its descriptors; the job's other workers may go on."""
        for fd in self.fds:
            os.close(fd)
        self.fds = []


@contextmanager
def job(service, name, workers, faults=(), **timing):
    """Endpoints of a job whose workers run its switch."""
    members = [Worker(service, name, i, workers) for i in range(workers)]
    endpoints = [member.endpoint(faults, **timing) for member in members]
    try:
        yield members, endpoints
    finally:
        for endpoint, member in zip(endpoints, members, strict=True):
            endpoint.close()
            member.close()
            member.ask("release")
            service.gone(member, "")


def on_all(endpoints, work):
    """Runs ``work(number, endpoint)`` in a thread for each, and raises what one of them raises."""
    errors = []

    def attempt(i, endpoint):
        try:
            work(i, endpoint)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=attempt, args=pair) for pair in enumerate(endpoints)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


def rows(workers, count, seed):
    return np.random.default_rng(seed).standard_normal((workers, count)).astype(np.float32)


@pytest.mark.parametrize("workers", [2, 5])
def test_sums_are_those_of_the_switch_process_and_no_frame_waits_for_a_time_out(service, host, workers):
    """The time-out is longer than the test: a frame that everybody left to others would let it run out."""
    sums = {}
    for runs in (True, False):
        members = [Worker(service, f"job {runs}", i, workers, runs=runs) for i in range(workers)]
        endpoints = [member.endpoint(rto_fixed=True) for member in members]
        sums[runs] = [rows(workers, count, count) for count in (1, 61, 64, 5000) * 10]

        def work(i, endpoint, results=sums[runs]):
            for result in results:
                endpoint.run(result[i])

        on_all(endpoints, work)
        assert all(endpoint.stats["retransmissions"] == 0 for endpoint in endpoints)
        reply = members[0].ask("jobs")["jobs"][f"job {runs}"]
        assert reply["run_by"] == ("workers" if runs else "process")
        for endpoint, member in zip(endpoints, members, strict=True):
            endpoint.close()
            member.close()
        turns = [member.port.turns() for member in members] if runs else []
        if runs:
            ports = host.counters()["ports"]
            counted = [ports[number] for number in service.ports["job True"]]
            assert [port["turns"] for port in counted] == [turn.turns for turn in turns]
            assert sum(turn.packets for turn in turns) == sum(port["rx_packets"] for port in counted)
            assert all(port["tx_packets"] and not port["drops"]["back_pressure"] for port in counted)
        for member in members:
            service.gone(member, "")
    for ours, theirs in zip(sums[True], sums[False], strict=True):
        assert ours.tobytes() == theirs.tobytes()
    assert not host.shared.numbers


def test_jobs_have_switches_of_their_own(service):
    with job(service, "a", 2) as (_, first), job(service, "b", 2) as (members, second):
        assert {member.attached["number"] for member in members} != {0}
        data = rows(4, 3000, 1)
        expected = [data[:2].sum(axis=0), data[2:].sum(axis=0)]
        on_all([*first, *second], lambda i, endpoint: endpoint.run(data[i]))
    assert all(np.allclose(data[i], expected[i // 2], atol=1e-5) for i in range(4))


def test_faults_are_survived(service):
    often = {"loss": 0.1, "duplicate": 0.1, "reorder": 0.1, "reorder_delay": 1e-3, "duplicate_delay": 1e-3}
    faults = [Faults(**often, seed=seed) for seed in (1, 2)]
    with job(service, "lossy", 3, faults, rto_min=2e-3, rto_max=0.1) as (_, endpoints):
        tables = [np.random.default_rng(i).integers(-9, 9, (3, 20000)).astype(np.int32) for i in range(3)]
        expected = [table.sum(axis=0) for table in tables]
        on_all(endpoints, lambda i, endpoint: [endpoint.run(table[i]) for table in tables])
        assert all((table == total).all() for table, total in zip(tables, expected, strict=True))
        assert all(endpoint.stats["retransmissions"] for endpoint in endpoints)


def test_attaching_without_descriptors_left_leaves_nothing(service, host):
    """The limit is reached at each of the descriptors that a switch with its first seat needs, in turn."""
    member = Worker(service, "full", 0, 3, runs=False)
    job = service.controller.jobs["full"]
    with no_gaps() as first:
        opened = len(os.listdir("/proc/self/fd"))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        refusals = 0
        while True:
            resource.setrlimit(resource.RLIMIT_NOFILE, (first + refusals, hard))
            try:
                plug = host.shared.open(job, 1)
                break
            except OSError as error:
                assert error.errno == errno.EMFILE
                refusals += 1
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert job.number not in host.shared._jobs and len(os.listdir("/proc/self/fd")) == opened
        for fd in plug.fds:
            os.close(fd)
        host.shared.close(plug.number, job.number)
        assert len(os.listdir("/proc/self/fd")) == opened
    member.close()
    service.gone(member, "")
    assert refusals > 10


@contextmanager
def no_gaps():
    """Takes the descriptors between those of this process, which other tests have left free: the system's limit is one of their
    numbers. Gives the number from which all are free."""
    with ExitStack() as taken:
        file = taken.enter_context(open(os.devnull))
        highest = max(map(int, os.listdir("/proc/self/fd")))
        while (fd := os.dup(file.fileno())) <= highest:
            taken.callback(os.close, fd)
        os.close(fd)
        yield fd


# ---- workers that are killed


@pytest.mark.later
def test_a_worker_killed_in_the_middle_of_a_turn_leaves_no_sum(service, host):
    """Workers are processes here. One is stopped, until that happens while it runs the switch, and killed then."""
    workers = 3
    members = [Worker(service, "doomed", i, workers) for i in range(workers)]
    switch = host.shared._jobs[members[0].attached["number"]].switch
    several_processes("forks workers")
    pids = [_fork(member, workers) for member in members]
    try:
        victim = None
        while victim is None:
            for i, pid in enumerate(pids):
                os.kill(pid, signal.SIGSTOP)
                until(lambda pid=pid: _state(pid) == "T", "a process to stop")
                if switch.holder() == i:
                    victim = i
                    break
                os.kill(pid, signal.SIGCONT)
        os.kill(pids[victim], signal.SIGKILL)
        ends = {i: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for i, pid in enumerate(pids)}
        assert ends.pop(victim) == -signal.SIGKILL
        assert set(ends.values()) == {TIMED_OUT}
        assert switch.holder() == victim
        service.gone(members[victim], "it ended before it released the job")
        news = members[(victim + 1) % workers].messages[-1]
        assert news["event"] == "failed"
        assert f"worker {victim}" in news["reason"] and "it ran the job's switch" in news["reason"]
    finally:
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        for member in members:
            member.close()
            if member in service.sessions:
                service.gone(member, "")
    with job(service, "next", workers) as (members, endpoints):  # another switch, fresh state
        data = rows(workers, 500, 3)
        expected = data.sum(axis=0)
        on_all(endpoints, lambda i, endpoint: endpoint.run(data[i]))
        assert np.allclose(data[0], expected, atol=1e-5)


def test_a_worker_that_writes_over_the_memory_spoils_no_other_job(service, host):
    """In a lock of @s the C library finds a kind for which it ends the process that tries it."""
    with job(service, "fine", 2) as (_, endpoints):
        wild = Worker(service, "wild", 0, 2)
        for page in range(4096, os.fstat(wild.fds[0]).st_size, 4096):  # the lock is at the beginning of one
            assert os.pwrite(wild.fds[0], b"@" * 40, page) == 40
        wild.close()
        service.gone(wild, "it ended before it released the job")
        data = rows(2, 500, 5)
        expected = data.sum(axis=0)
        on_all(endpoints, lambda i, endpoint: endpoint.run(data[i]))
        assert np.allclose(data[0], expected, atol=1e-5)
        assert host.counters()["ports"]


WRONG, TIMED_OUT = 3, 4


def _fork(member, workers) -> int:
    """Starts a process that sums for ever; it ends with WRONG or TIMED_OUT."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        endpoint = member.endpoint(rto_min=0.05, rto_max=0.1, timeout=20.0)
        for turn in range(1 << 30):
            row = np.arange(2000, dtype=np.int32) * (member.attached["worker"] + 1) + turn
            endpoint.run(row)
            if (row != np.arange(2000) * (workers * (workers + 1) // 2) + turn * workers).any():
                code = WRONG
                break
    except JobTimeout:
        code = TIMED_OUT
    finally:
        os._exit(code)


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


# ---- who may


def test_a_job_of_another_user_is_run_by_the_process(service, host):
    ours = Worker(service, "ours", 0, 2)
    theirs = Worker(service, "theirs", 0, 2, STRANGER)
    assert "program" in ours.attached["port"] and "program" not in theirs.attached["port"]
    late = Worker(service, "ours", 1, 2, STRANGER)
    assert not late.attached["ok"] and late.attached["code"] == "mismatch" and "INA_RUN_BY=process" in late.attached["error"]
    assert not late.fds
    for member in (ours, theirs, late):
        member.close()
        service.gone(member, "")


def test_workers_that_do_not_ask_are_served_by_the_process(service):
    first = Worker(service, "mixed", 0, 2, runs=False)
    second = Worker(service, "mixed", 1, 2)  # the first has decided
    assert "program" not in first.attached["port"] and "program" not in second.attached["port"]
    for member in (first, second):
        member.close()
        service.gone(member, "")


def test_a_job_whose_compiled_program_is_no_file_any_more_is_run_by_the_process(service, host, monkeypatch):
    monkeypatch.setattr(host.switch.program, "path", host.switch.program.path + ".gone")
    only = Worker(service, "only", 0, 1)
    assert only.attached["ok"] and "program" not in only.attached["port"]
    only.close()
    service.gone(only, "")


def test_a_job_with_a_parameter_server_is_run_by_the_process(host):
    switches = SharedSwitches(host.switch.program, program_named("atp"), SWITCH, 1024, lambda: 0)
    job = Job("job", 1, 1, 1, 2, 16, True, {})
    assert host.shared.takes(job, os.geteuid(), os.getpid())
    assert not switches.takes(job, os.geteuid(), os.getpid()) and "parameter server" in switches.unfit
    assert not host.shared.takes(job, STRANGER.uid, os.getpid()) and not host.shared.takes(job, None, os.getpid())


def test_programs_and_memory_that_do_not_fit_are_refused(service, host, tmp_path):
    with job(service, "fits", 2) as (members, _):
        number = members[0].attached["number"]
        memory, bell, *rings = members[0].fds
        with pytest.raises(OSError, match="seat 2"):
            shared.open_seat(host.switch.program.path, members[0].fds, 2)
        other = os.memfd_create("other", os.MFD_ALLOW_SEALING)
        os.truncate(other, 1 << 16)
        with pytest.raises(OSError, match="the same version of ina"):
            shared.open_seat(host.switch.program.path, [other, bell, *rings], 0)
        for fds in (members[0].fds[:-1], [memory]):  # a process near its limit is handed fewer, and would not wake its peers
            with pytest.raises((OSError, ValueError), match="ulimit"):
                shared.open_seat(host.switch.program.path, fds, 0)
        os.close(other)
        assert number in host.shared._jobs
        with pytest.raises(OSError):
            os.truncate(memory, 4096)  # sealed
