"""Trainings over four and eight servers, each with one network card on a bridge, whose gradients a switch process sums.

Servers are network namespaces (server_networks.py). What is trained is judged against one machine, to the bit, and against the
bytes that each card must carry; what fails, by what each rank says of it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import child
import pytest
import tiers
from capabilities import need
from server_networks import CARD, Server, server_network
from waiting import until

need("cc", "torch", "root", "netns", "tc")

pytestmark = [pytest.mark.root, pytest.mark.later]
ROOT = Path(__file__).resolve().parent.parent.parent.parent
RANK = Path(__file__).with_name("server_rank.py")
TOKEN = "0123456789abcdef0123456789abcdef"
VALUES = 256  # of a packet
PORT = 5588


class Process:
    """A process whose output goes to files, so that it never waits for this test."""

    def __init__(self, folder: Path, name: str, command: Sequence[str], **environment: str):
        tiers.several_processes("starts switches and ranks")
        self.name, self.out, self.err = name, folder / f"{name}.out", folder / f"{name}.err"
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, cwd=ROOT, env=os.environ | environment)

    def lines(self) -> list[str]:
        """Complete lines of its output."""
        return self.out.read_text().rpartition("\n")[0].splitlines()

    def report(self) -> dict:
        """The last line of its output."""
        lines = self.lines()
        assert lines, f"{self.name} says nothing: {self.err.read_text()}"
        return json.loads(lines[-1])

    def status(self) -> int:
        return child.status(self.process, child.TRAINING)

    def says(self, text: str) -> None:
        until(lambda: text in self.out.read_text() or self.process.poll() is not None, f"{self.name} to say {text!r}",
              child.TRAINING)
        assert text in self.out.read_text(), f"{self.name}: {self.out.read_text()} {self.err.read_text()}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def started(*processes: Process) -> Iterator[None]:
    """Kills them at the end."""
    try:
        yield
    finally:
        for process in processes:
            process.end()


@contextmanager
def switch_process(folder: Path, server: Server, *arguments: str, name: str = "switch") -> Iterator[Process]:
    command = [sys.executable, "-m", "ina.cli", "switch", "run", *arguments, f"-DVALUES={VALUES}", "--listen", CARD]
    process = Process(folder, name, [*server.inside, *command], INA_TOKEN=TOKEN)
    with started(process):
        process.says("sums for workers")
        yield process


def ranks(folder: Path, servers: Sequence[Server], switch: Server, work: str, name: str = "rank", port: int = 29500,
          **environment: str) -> list[Process]:
    """A rank on each of the servers; only rank 0 knows where the switch is."""
    where = {"INA_SWITCH": f"{switch.address}:{PORT}", "INA_TOKEN": TOKEN}
    return [Process(folder, f"{name}{rank}", [*server.inside, sys.executable, str(RANK), work], RANK=str(rank),
                    WORLD_SIZE=str(len(servers)), LOCAL_RANK="0", MASTER_ADDR=servers[0].address, MASTER_PORT=str(port),
                    GLOO_SOCKET_IFNAME=CARD, **environment, **({} if rank else where))
            for rank, server in enumerate(servers)]


def reports(processes: Sequence[Process]) -> list[dict]:
    """Returns what each says at the end of its work."""
    with started(*processes):
        for process in processes:
            assert process.status() == 0, f"{process.name}: {process.err.read_text()}"
    return [json.loads(next(line for line in process.lines() if line.startswith("{"))) for process in processes]


def on_one_machine(folder: Path, count: int, work: str, **environment: str) -> list[dict]:
    """The same training with all ranks on this machine, in shared memory, with a switch of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "INA_VALUES": str(VALUES)}
    return reports([Process(folder, f"alone{rank}", [sys.executable, str(RANK), work], RANK=str(rank), LOCAL_RANK=str(rank),
                            **group, **environment) for rank in range(count)])


@pytest.mark.parametrize(("example", "count"), [("ddp", 4), ("fsdp", 4), ("experts", 4)])
def test_an_example_has_the_losses_of_one_machine_to_the_bit(example, count, tmp_path):
    work, program = f"examples/parallel/{example}.py", ["receivers"] if example == "experts" else []
    alone = on_one_machine(tmp_path, count, work)
    with server_network(tmp_path, count + 1) as (*servers, last), switch_process(tmp_path, last, *program):
        apart = reports(ranks(tmp_path, servers, last, work))
    assert all(each["sums"] > 0 for each in apart)
    assert [each["losses"] for each in apart] == [each["losses"] for each in alone]


def test_each_card_carries_the_values_once_up_and_once_down(tmp_path):
    """A packet has 256 values of 4 bytes, headers (Ethernet 14, IPv4 20, UDP 8, SwitchML 8, exponents 2, check words 12) and a
    tag of 16 bytes. The rest is little: a packet that describes each part of a sum, two barriers, signs of life."""
    frame = 4 * VALUES + 64 + 16
    with server_network(tmp_path, 5, whole=False) as (*servers, last), switch_process(tmp_path, last):
        apart = reports(ranks(tmp_path, servers, last, "bytes", INA_CODEC="block"))
    for each in apart:
        assert each["sums"] > 0
        once = each["values"] / VALUES * frame
        for way in ("received", "sent"):
            assert once <= each[way] <= 1.02 * once + each["again"] * frame, (way, each)


class Training:
    """Ranks that train until something fails, and their switch process."""

    def __init__(self, folder: Path, servers: Sequence[Server], switch: Process, processes: Sequence[Process]):
        self.folder, self.servers, self.switch, self.ranks = folder, servers, switch, processes

    def reasons(self, since: float, *without: int) -> dict[int, str]:
        """Returns what each rank, but for those ``without``, says of its end; it ends by itself."""
        reasons = {}
        for number, process in enumerate(self.ranks):
            if number not in without:
                assert process.status() != 0
                report = process.report()
                assert "error" in report, f"{process.name} ended without a reason: {process.err.read_text()}"
                reasons[number] = report["error"]
                print(f"rank {number} after {report['at'] - since:.2f} s: {report['error'].splitlines()[0]}")
        return reasons


@pytest.fixture
def training(tmp_path):
    """Four ranks that have made some steps; the switch process runs on a fifth server."""
    with server_network(tmp_path, 5) as servers, switch_process(tmp_path, servers[-1]) as switch:
        processes = ranks(tmp_path, servers[:-1], servers[-1], "on")
        with started(*processes):
            for process in processes:
                process.says('"step": 3')
            yield Training(tmp_path, servers, switch, processes)


@pytest.mark.parametrize("victim", [2, 0])
def test_ranks_name_a_rank_that_is_killed(victim, training):
    since = time.monotonic()
    training.ranks[victim].process.kill()
    for reason in training.reasons(since, victim).values():
        assert re.search(rf"worker {victim} .*\(the process at 10.0.0.{victim + 1}:\d+\) is lost: ", reason), reason


def test_ranks_name_the_switch_process_that_is_killed(training):
    since = time.monotonic()
    training.switch.process.kill()
    for reason in training.reasons(since).values():
        assert re.search("switch process .* ended", reason), reason


@pytest.mark.parametrize("victim", [2, 0])
def test_both_ends_of_a_cut_link_say_so(victim, training):
    since = time.monotonic()
    training.servers[victim].link("down")
    for rank, reason in training.reasons(since).items():
        assert "its machine has answered nothing for 4 s: it is off, or a link between here and there is cut" in reason, reason
        assert (f"worker {victim} " in reason) == (rank != victim), reason


def test_all_ranks_say_that_the_link_of_the_switch_is_cut(training):
    since = time.monotonic()
    training.servers[-1].link("down")
    for reason in training.reasons(since).values():
        assert re.search("switch process .* is lost .*its machine has answered nothing for 4 s", reason), reason


def test_ranks_go_on_after_their_switch_process_was_stopped_for_longer_than_a_cut_link_is(training):
    """A kernel's probes, one a second, tell how long it is stopped."""
    server = training.servers[0]
    training.switch.process.send_signal(signal.SIGSTOP)
    before = probes(server)
    until(lambda: probes(server) >= before + 8, "eight probes of the first server's kernel")
    steps = [len(rank.lines()) for rank in training.ranks]
    training.switch.process.send_signal(signal.SIGCONT)
    for rank, count in zip(training.ranks, steps, strict=True):
        until(lambda rank=rank, count=count: len(rank.lines()) > count + 2, f"{rank.name} to go on")
        assert "error" not in rank.out.read_text(), rank.report()


def test_a_switch_process_in_the_place_of_another_serves_the_ranks_that_start_again(training):
    """Those that it finds in the middle of a training end with the reason, as no switch has the sums of another."""
    since = time.monotonic()
    training.switch.process.kill()
    training.switch.process.wait()
    *servers, last = training.servers
    with switch_process(training.folder, last, name="replacement"):
        for reason in training.reasons(since).values():
            assert re.search("switch process .* ended", reason), reason
        again = ranks(training.folder, servers, last, "bytes", name="again", port=29501)
        assert all(each["sums"] > 0 for each in reports(again))


def probes(server: Server) -> int:
    """Probes of control and other connections that the server's kernel has sent."""
    text = child.run([*server.inside, "cat", "/proc/net/netstat"], check=True).stdout
    names, values = [line.split() for line in text.splitlines() if line.startswith("TcpExt:")]
    return dict(zip(names[1:], map(int, values[1:]), strict=True))["TCPKeepAlive"]


def test_a_job_goes_on_while_another_one_at_the_same_switch_process_trains_and_fails(training):
    *servers, last = training.servers
    first, second = other = ranks(training.folder, servers[:2], last, "on", name="other", port=29501)
    with started(*other):
        for process in other:
            process.says('"step": 3')
        second.process.kill()
        assert first.status() != 0
        assert "worker 1 " in first.report()["error"], first.report()
    steps = [len(rank.lines()) for rank in training.ranks]
    for rank, count in zip(training.ranks, steps, strict=True):
        until(lambda rank=rank, count=count: len(rank.lines()) > count + 2, f"{rank.name} to go on")
        assert "error" not in rank.out.read_text(), rank.report()


def test_torchrun_alone_trains_on_four_servers(tmp_path):
    """Nobody names a switch: rank 0 starts one on its server."""
    with server_network(tmp_path, 4) as servers:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "4", "--nproc-per-node", "1", "--master-addr",
                    servers[0].name, "--master-port", "29500"]
        apart = reports([Process(tmp_path, f"launcher{n}", [*server.inside, *torchrun, "--node-rank", str(n), str(RANK), "bytes"],
                                 GLOO_SOCKET_IFNAME=CARD, INA_CODEC="block") for n, server in enumerate(servers)])
    assert all(each["sums"] > 0 and each["values"] == apart[0]["values"] for each in apart)


def test_torchrun_alone_sums_the_ranks_of_a_server_there(tmp_path):
    """Rank 0's switch process has one below it on the other server, which sums its two ranks."""
    with server_network(tmp_path, 2) as servers:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", "--master-addr",
                    servers[0].name, "--master-port", "29500"]
        launchers = [Process(tmp_path, f"launcher{n}", [*server.inside, *torchrun, "--node-rank", str(n), str(RANK), "bytes"],
                             GLOO_SOCKET_IFNAME=CARD, INA_CODEC="block", INA_QUIET="false") for n, server in enumerate(servers)]
        results = reports(launchers)
    assert all(each["sums"] > 0 and each["values"] == results[0]["values"] for each in results)
    assert "1 switch process below it sums the 2 ranks of its machine first" in launchers[0].err.read_text()
