"""`ina switch run`: a switch process on UDP ports or interfaces, driven over P4Runtime."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import child
import pytest
from capabilities import need

need("cc", "p4runtime")

import grpc  # noqa: E402
from p4runtime_client import Client, Names, update  # noqa: E402
from waiting import LONG, until  # noqa: E402

from ina.cli import switch as cli  # noqa: E402
from ina.net.ports import open_packet  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.p4runtime import pipeline  # noqa: E402
from ina.p4.p4runtime.messages import p4  # noqa: E402
from ina.p4.rpc.connections import Access  # noqa: E402
from ina.p4.runtime import Program  # noqa: E402

ROOT = Path(__file__).parent.parent.parent.parent
SOURCE = ROOT / "tests/programs/served/controlled.p4"
DEADLINE = LONG
CLONE_NEWNET = 0x40000000


class Switch:
    """The process; `address`: of its P4Runtime server; `banner`: its first line of output."""

    def __init__(self, *arguments: str, grpc: str = "127.0.0.1:0"):
        command = [sys.executable, "-m", "ina.cli", "switch", "run", *arguments, "--grpc", grpc]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        self.banner = self.process.stdout.readline()
        assert self.banner.startswith("P4Runtime: "), self.process.stderr.read()
        self.address = self.banner.split()[1].rstrip(",")

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            until(lambda: self.process.poll() is not None, "the switch's end")
        finally:
            self.process.kill()
        assert self.process.returncode == 0, self.process.stderr.read()


@pytest.mark.build
def test_a_switch_process_on_udp_ports(tmp_path):
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
        s.settimeout(DEADLINE)
    peers = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    arguments = [f"-i{n}@udp:127.0.0.1:0,{peer}" for n, peer in enumerate(peers, 1)]
    with Switch(str(SOURCE), *arguments, "--pcap", str(tmp_path / "pcap"), "--device-id", "4") as switch:
        client = Client(switch.address)
        assert client.stream().arbitrate(1, device_id=4).status.code == 0
        config = client.call("GetForwardingPipelineConfig", p4.GetForwardingPipelineConfigRequest(device_id=4)).config
        names = Names(config.p4info)
        assert not config.HasField("cookie") and config.p4_device_config.startswith(b'{"compiled": "')
        forward = names.entry("l2", None, "forward", port=2)
        forward.is_default_action = True
        client.write(update("MODIFY", table_entry=forward), device_id=4)
        answer = client.read(p4.Entity(table_entry=p4.TableEntry(table_id=names.ids["l2"], is_default_action=True)), device_id=4)
        assert answer == [p4.Entity(table_entry=forward)]
        at = int(re.search(r"1@udp:127\.0\.0\.1:(\d+)", switch.banner)[1])
        sockets[0].sendto(b"payload of a datagram", ("127.0.0.1", at))
        assert sockets[1].recv(100) == b"payload of a datagram"
        client.close()
    assert "runs controlled.p4 with ports 1, 2\n" in switch.process.stderr.read()
    assert sorted(p.name for p in (tmp_path / "pcap").iterdir()) == ["port1.pcap", "port2.pcap"]
    for s in sockets:
        s.close()


@pytest.fixture
def cables():
    """Two veth pairs in a network namespace of this thread's own: a0-b0 and a1-b1, MTU 9000."""
    need("root", "netns")
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    assert libc.unshare(CLONE_NEWNET) == 0
    try:
        for i in range(2):
            subprocess.run(["ip", "link", "add", f"a{i}", "type", "veth", "peer", "name", f"b{i}"], check=True)
            for name in (f"a{i}", f"b{i}"):
                subprocess.run(["ip", "link", "set", name, "addrgenmode", "none", "mtu", "9000", "up"], check=True)
        yield
    finally:
        assert libc.setns(home, CLONE_NEWNET) == 0
        os.close(home)


@pytest.mark.root
def test_a_switch_process_on_interfaces_waits_for_its_program(cables, tmp_path):
    """The controller is outside of the switch's network namespace and connects by a Unix socket."""
    config = p4.ForwardingPipelineConfig(p4info=pipeline.message_of(Program(compile_program(SOURCE).so_path)),
                                         p4_device_config=SOURCE.read_bytes())
    names = Names(config.p4info)
    with open_packet("b0", 9018) as left, open_packet("b1", 9018) as right, \
            Switch("--no-p4", "-i1@a0", "-i2@a1", grpc=f"unix:{tmp_path}/p4runtime") as switch:
        client = Client(switch.address)
        primary = client.stream()
        primary.arbitrate(1)
        client.set_pipeline("VERIFY_AND_COMMIT", config)
        client.write(update("INSERT", table_entry=names.entry("l2", {"dst": 1}, "forward", port=2)),
                     update("INSERT", table_entry=names.entry("l2", {"dst": 2}, "punt", reason=3)))
        frames = [(1).to_bytes(6, "big") + bytes(6) + head + bytes(size) for head, size in (
            (b"\x88\xb5", 46), (b"\x88\xb5", 9000), (b"\x81\x00\xe0\x05\x88\xb5", 9000))]
        left.send([*frames, (2).to_bytes(6, "big") + bytes(60)])
        assert primary.get("packet").payload[:6] == (2).to_bytes(6, "big")
        received = []
        while len(received) < 3 and right.wait(LONG):
            received += right.receive()
        assert received == frames
        client.close()
    log = switch.process.stderr.read()
    assert "ports at a0, a1: no queueing discipline (tc)" in log and "ethtool -K IF tx off" in log


@pytest.mark.build
@pytest.mark.parametrize("text, message", [
    ("veth0", "expected PORT@INTERFACE"), ("x@veth0", "expected"), ("511@veth0", "0..510"), ("1@", "expected"),
    ("1@udp:127.0.0.1", "HOST:PORT"), ("1@udp:127.0.0.1:5", "expected two addresses"),
    ("1@udp:a:1,b:2,c:3", "expected two addresses"),
])
def test_interfaces_that_are_wrong(text, message):
    with pytest.raises(ValueError, match=message):
        cli.parse_interface(text)


@pytest.mark.build
def test_interfaces():
    assert cli.parse_interface("3@veth0") == (3, "veth0")
    assert cli.parse_interface("0@udp:127.0.0.1:5,10.0.0.1:6") == (0, (("127.0.0.1", 5), ("10.0.0.1", 6)))


@pytest.mark.build
@pytest.mark.parametrize("arguments, message", [
    (["no-such.p4"], "no-such.p4"),
    ([str(SOURCE), "-i", "1@no-such-interface"], "no-such-interface"),
    ([str(SOURCE), "--grpc", "nonsense"], "nonsense"),
    ([str(SOURCE), "-i", "510@lo"], "-i 510@lo: this port is for packet-in"),
    ([str(SOURCE), "--device-id", "-1"], "--device-id: -1: expected 0"),
    (["program.so", "--externs", "own.py"], "--externs own.py: it belongs to a P4 source"),
    (["examples/own_extern/average.p4", "--externs", "own.py"], "own.py"),
])
def test_what_is_wrong_is_told(arguments, message):
    command = [sys.executable, "-m", "ina.cli", "switch", "run", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert process.returncode in (1, 2) and message in process.stderr and "Traceback" not in process.stderr


@pytest.mark.build
@pytest.mark.parametrize(("options", "reason"), [
    (["--grpc", "127.0.0.1:{taken}"], "127.0.0.1:{taken}: nothing can be served there: Address already in use"),
    (["--grpc", "unix:{folder}/grpc", "--bfrt", "localhost:{taken}"], "localhost:{taken}: nothing can be served there: Address"),
    (["--grpc", "203.0.113.1:9559"], "203.0.113.1:9559: nothing can be served there: Cannot assign requested address"),
    (["--grpc", "no-such-host.invalid:9559"], "no-such-host.invalid:9559: nothing can be served there: "),
    (["--grpc", "unix:{folder}/none/grpc"], "unix:{folder}/none/grpc: nothing can be served there: No such file or directory"),
    (["--grpc", "unix-abstract:{name}"], "unix-abstract:{name}: nothing can be served there: Address already in use"),
], ids=["taken", "bfrt", "elsewhere", "unknown", "folder", "abstract"])
def test_an_address_that_cannot_be_had_is_told_in_one_line(options, reason, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("")  # the system chooses a name
        places = {"taken": server.getsockname()[1], "folder": tmp_path, "name": abstract.getsockname()[1:].decode()}
        command = [sys.executable, "-m", "ina.cli", "switch", "run", "--no-p4", "--tls", str(tmp_path / "tls"),
                   *(option.format(**places) for option in options)]
        process = child.run(command, cwd=ROOT)
    assert process.returncode == 1 and process.stdout == ""
    (line,) = process.stderr.splitlines()
    assert line.startswith(f"ina: {reason.format(**places)}")


@pytest.mark.build
def test_a_signal_as_soon_as_it_serves_ends_it():
    """Before the main thread waits for it: the switch's other threads are there already, and could take it."""
    code = ("import builtins, os, sys\nfrom ina import cli\nsay = print\n"
            f"builtins.print = lambda *words, **options: (say(*words, **options), os.kill(os.getpid(), {int(signal.SIGTERM)}))\n"
            "sys.exit(cli.main(sys.argv[1:]))\n")
    done = child.run([sys.executable, "-c", code, "switch", "run", "--no-p4", "--grpc", "127.0.0.1:0", "-L", "warn"], cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("P4Runtime: ")


@pytest.mark.build
def test_a_program_with_externs_of_its_own_is_served():
    folder = ROOT / "examples/own_extern"
    with Switch(str(folder / "average.p4"), "--externs", str(folder / "average.py")) as switch:
        request = p4.GetForwardingPipelineConfigRequest(device_id=1)
        config = Client(switch.address).call("GetForwardingPipelineConfig", request).config
        assert config.p4_device_config.startswith(b'{"compiled": "')


@pytest.mark.build
def test_a_message_that_is_none_is_worth_a_line():
    """Clients can send any bytes: they neither end the server nor fill its log with tracebacks."""
    with Switch("--no-p4") as switch:
        with Access().connect(switch.address) as channel, pytest.raises(grpc.RpcError) as error:
            channel.unary_unary("/p4.v1.P4Runtime/Write")(b"\x0a\xff\xff\xff\xff\x0f", timeout=DEADLINE)
        assert error.value.code() is grpc.StatusCode.INTERNAL
        switch.process.send_signal(signal.SIGTERM)
        _, log = child.output(switch.process)
        assert "Exception deserializing message!" in log and "Traceback" not in log and len(log.splitlines()) == 1, log
