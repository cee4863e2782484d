"""Unmodified P4Runtime clients drive our server, and BMv2's with the same scripts: finsy and p4runtime-shell, each from a Python
of its own (their requirements exclude each other; see tests/capabilities.py for how to name the interpreters)."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from capabilities import need

need("cc", "p4runtime")

from controlled import arrived  # noqa: E402
from google.protobuf import json_format, text_format  # noqa: E402
from waiting import LONG, TookTooLong, until  # noqa: E402

from ina.net.ports import memory_pair  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.compiler.sandbox import to_send  # noqa: E402
from ina.p4.p4runtime import pipeline  # noqa: E402
from ina.p4.p4runtime.bmv2 import Bmv2, compile_bmv2  # noqa: E402
from ina.p4.p4runtime.device import Device  # noqa: E402
from ina.p4.p4runtime.messages import config  # noqa: E402
from ina.p4.p4runtime.service import Server  # noqa: E402
from ina.p4.rpc.connections import Access  # noqa: E402
from ina.p4.runtime import Program  # noqa: E402

TESTS = Path(__file__).parent.parent.parent
SOURCE = TESTS / "programs/served/controlled.p4"
MAC = 0x0200_0000_0001
CLIENTS = {
    "finsy": ("INA_FINSY_PYTHON", "finsy_session.py"),
    "p4runtime-shell": ("INA_P4RUNTIME_SHELL_PYTHON", "shell_session.py"),
}


class Session:
    """A client's process; `step` waits for its next report."""

    def __init__(self, name: str, *args: str):
        variable, script = CLIENTS[name]
        self._process = subprocess.Popen(
            [os.environ[variable], str(TESTS / "p4runtime_clients" / script), *args], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._errors = ""
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _read_errors(self) -> None:
        self._errors = self._process.stderr.read()

    def step(self, name: str) -> dict:
        try:
            line = self._lines.get(timeout=LONG)
        except queue.Empty:
            raise TookTooLong(f"waited {LONG:g} s for the client's step {name!r}") from None
        if not line:
            self._readers[1].join()
            pytest.fail(f"the client ended before step {name!r}: {self._errors}")
        report = json.loads(line)
        assert report.pop("step") == name, report
        return report

    def go_on(self) -> None:
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        try:
            if failed is None:
                until(lambda: self._process.poll() is not None, "the client's end")
                assert self._process.returncode == 0, self._errors
        finally:
            self._process.kill()
            self._process.wait()
            for reader in self._readers:
                reader.join()


def frame(dst: int, src: int = 0xA) -> bytes:
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + b"\x88\xb5" + bytes(46)


@pytest.fixture
def ours(tmp_path):
    """Address, far ends of ports 1 to 3, and the files that a client loads: P4Info, program, and the folder of certificates."""
    with serving(tmp_path, Access()) as served:
        yield served


@pytest.fixture
def insecure(tmp_path):
    """The same without certificates."""
    with serving(tmp_path, Access(insecure=True)) as served:
        yield served


@contextmanager
def serving(tmp_path, access):
    compiled = compile_program(SOURCE)
    p4info, blob = tmp_path / "controlled.p4info.txtpb", tmp_path / "controlled.device.json"
    p4info.write_text(text_format.MessageToString(pipeline.message_of(Program(compiled.so_path))))
    blob.write_bytes(to_send(SOURCE))
    pairs = {number: memory_pair() for number in (1, 2, 3)}
    with Device(device_id=1) as device:
        for number, (inside, _) in pairs.items():
            device.add_port(number, inside)
        with Server(device, "127.0.0.1:0", access) as server:
            files = (str(p4info), str(blob), *([] if access.insecure else [str(access.certificates)]))
            yield server.address, {n: far for n, (_, far) in pairs.items()}, files
    for pair in pairs.values():
        for port in pair:
            port.close()


@pytest.fixture
def bmv2(tmp_path):
    """The same for BMv2's simple_switch_grpc."""
    need("root", "netns", "simple_switch_grpc", "p4c")
    compiled, p4info = compile_bmv2(SOURCE), tmp_path / "controlled.p4info.txtpb"
    message = json_format.ParseDict(compiled.p4info.message, config.P4Info())
    p4info.write_text(text_format.MessageToString(message))
    with Bmv2((1, 2, 3), tmp_path / "bmv2", cpu_port=510) as switch:
        yield switch.address, {n: switch.port(n) for n in (1, 2, 3)}, (str(p4info), str(compiled.config))


@pytest.mark.parametrize("server", [pytest.param("ours", marks=[pytest.mark.build, pytest.mark.gate]),
                                    pytest.param("insecure", marks=[pytest.mark.build, pytest.mark.later]),
                                    pytest.param("bmv2", marks=[pytest.mark.hardware, pytest.mark.later])])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_whole_session(name, server, request):
    need(name)
    finsy, our = name == "finsy", server != "bmv2"
    address, ports, files = request.getfixturevalue(server)
    with Session(name, address, *files) as session:
        connected = session.step("connected")
        assert ("1.5.0" if our else "1.") in connected["version"] and connected.get("primary", True)
        entries = session.step("entries")
        assert entries["same"] and entries["const"] == 2 and entries["groups"] == 2
        assert entries["found"] == (5 if finsy else 4)
        assert entries.get("marked_const", 2) == 2 or not our, "BMv2 does not say of entries that they are const"
        assert entries["default"] == ("only_default" if finsy else [0])
        assert session.step("errors")["details"] == ({"0": "ALREADY_EXISTS", "2": "NOT_FOUND"} if finsy else [6, 5])

        session.step("send")
        ports[1].send([frame(MAC + 1)])
        packet = session.step("packet")
        assert bytes.fromhex(packet["payload"]) == frame(MAC + 1)
        assert packet["metadata"] == ({"ingress_port": 1, "reason": 9} if finsy else ["01", "09"])
        assert session.step("digest")["data"] == ([{"mac": 10, "port": 1}] if finsy else ["0a", "01"])
        assert arrived(ports[3], 1) == [frame(MAC + 1)]  # the packet-out
        ports[1].send([frame(MAC)] * 4)
        assert len(arrived(ports[2], 4)) == 4
        session.go_on()
        state = session.step("state")
        assert (state["seen"], state["direct"], state["five"]) == (5, 4, [5])
        if finsy:
            served = {"register": 1, "cut clones": 1}
            assert session.step("extras") == (served if our else {"register": "UNIMPLEMENTED", "cut clones": "UNKNOWN"})
            assert session.step("backup") == {"primary": False, "refused": "PERMISSION_DENIED"}
        assert session.step("end")["left"] == 0
