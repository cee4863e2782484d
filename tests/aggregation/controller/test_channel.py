"""Names of control sockets: abstract ones, paths, and TCP for other machines."""

from __future__ import annotations

import os
import socket
import time

import pytest
from waiting import LONG

from ina.aggregation.control_socket import channel
from ina.aggregation.controller.client import Client, ControlError

pytestmark = pytest.mark.fast


def test_a_connection_over_tcp():
    with channel.listen("tcp:127.0.0.1:0") as listener:
        port = listener.getsockname()[1]
        with channel.new_socket("x") as other:
            assert channel.address("x") == "\0x" and other.family == socket.AF_UNIX
        near = channel.Channel(channel.new_socket(f"tcp:127.0.0.1:{port}"))
        near.sock.connect(channel.address(f"tcp:127.0.0.1:{port}"))
        far = channel.Channel(listener.accept()[0])
        near.send({"op": "ping", "much": "x" * 100_000})
        message, fds = far.receive(time.monotonic() + LONG, "a message")
        assert message["op"] == "ping" and len(message["much"]) == 100_000 and fds == []
        near.hang_up()
        with pytest.raises(channel.ChannelClosed):
            far.receive(time.monotonic() + LONG, "the end")
        near.close()
        far.close()


def test_names_that_other_machines_reach():
    for name, place in (("tcp:host:80", ("host", 80)), ("host:80", ("host", 80)), ("10.0.0.1:5588", ("10.0.0.1", 5588)),
                        ("tcp:[fd00::1]:80", ("fd00::1", 80)), ("[fd00::1%eth0]:80", ("fd00::1%eth0", 80))):
        assert channel.elsewhere(name) and channel.address(name) == place and channel.shown(name) == name
    for name in ("ina-7-0123456789ab", "host", "host:", ":80", "host:80:", "a:b:80", "/run/host:80", "./host:80", "[host]:80",
                 "@host:80", "host:eighty"):
        assert not channel.elsewhere(name)


@pytest.mark.parametrize(("name", "words"), [
    ("tcp:", "missing"), ("tcp:host", "the host, or the port, is missing"), ("tcp:host:", "'' is no port of 1 to 65535"),
    ("tcp:host:00000065536", "'00000065536' is no port of 1 to 65535"),
    ("tcp:host:99999", "'99999' is no port"), ("host:99999999999999999999", "is no port"), ("tcp::80", "missing"),
    ("host:99999", "'99999' is no port"), ("tcp:host:eighty", "'eighty' is no port"), ("tcp:/run/host", "a path needs no tcp:"),
    ("10.0.0.1", "the port is missing: such as 10.0.0.1:5588"), ("10.0.0.1:", "such as 10.0.0.1:5588"),
    ("tcp:10.0.0.1", "such as 10.0.0.1:5588"), ("::1", r"such as \[::1\]:5588"), ("[fd00::1]", r"such as \[fd00::1\]:5588"),
    ("[fd00::1]:", r"such as \[fd00::1\]:5588"), ("tcp:a:b:80", r"has brackets: \[a:b\]:80"),
])
def test_a_name_that_is_none(name, words):
    with pytest.raises(ValueError, match=f"expected tcp:HOST:PORT.*{words}"):
        channel.address(name)
    with pytest.raises(ControlError, match=words) as refused:
        Client(name)
    assert refused.value.code == "invalid"


def test_nobody_listens():
    with pytest.raises(ControlError, match="no switch process at socket tcp:127.0.0.1:1: Connection refused"):
        Client("tcp:127.0.0.1:1", timeout=LONG)


ADDRESS = '["02:00:00:00:00:01", "10.0.0.1", 5]'


@pytest.mark.parametrize("line", [
    '{"ok": true}', '{"ok": true, "address": 5, "switch": 5}',
    f'{{"ok": true, "address": {ADDRESS}, "switch": {ADDRESS}, "colour": 1}}',
    '{"event": "left"}', '{"event": "moved", "incarnation": "x"}', '{"event": "left", "worker": []}',
])
def test_a_switch_process_of_another_version_is_told_so(line):
    name = f"ina-test-{os.getpid()}-{time.monotonic_ns()}"
    with channel.listen(name) as listener:
        client = Client(name, timeout=LONG)
        other, _ = listener.accept()
        with other:
            other.sendall(line.encode() + b"\n")
            with pytest.raises(ControlError, match="what is no (attachment|event): ") as refused:
                client.attach("job", 0)
            assert refused.value.code == "invalid"
            if "event" in line:
                other.sendall(line.encode() + b"\n")
                assert client.poll()
        client.close()


def test_the_socket_of_a_killed_process_is_replaced_and_that_of_a_running_one_is_not(tmp_path):
    name = str(tmp_path / "control")
    channel.listen(name).close()  # as after kill -9: the file stays
    in_use = pytest.raises(OSError, match="cannot listen at socket .*in use")
    with channel.listening(name), in_use, channel.listening(name):
        pass
    assert not (tmp_path / "control").exists()
