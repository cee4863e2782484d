"""The published SwitchML's controller as a process, and the workers' side of its gRPC sessions.

`INA_P4APP_SWITCHML` names a checkout of p4app-switchML, unedited in the folders of TREES; `INA_P4STUDIO` and
`INA_PTF_PYTHON` as in bfrt_client.py, the Python with pyyaml and ansicolors too.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import bfrt_client
import child

COMMIT = "b5c74a04fa66faa82acab154a4e21c8f76d913f2"
TREES = {  # git's hashes of the folders of dev_root, in that commit
    "controller": "c9d1e79f63aeff9933408278bd33953b5af122f0",
    "p4": "f8a9b56fd64e6398c7adb5e7d41c9046d640cf2e",
    "protos": "1965127ffe7f37b3ac43232c3687e7ba2b57e1b5",
}
SESSIONS = 50099  # the controller's fixed port for workers
MAC, IP = "00:11:22:33:44:55", "10.0.0.254"  # the switch's
PROMPT = "SwitchML>"
START = 60  # seconds
LEFT_BY_RUNS = ("__pycache__", "switchml_pb2.py", "switchml_pb2_grpc.py")

# Joins a session as several workers (rank, MAC and address of each); prints the controller's answers.
JOIN = """
import sys
import grpc, switchml_pb2, switchml_pb2_grpc
size, *workers = sys.argv[1:]
stub = switchml_pb2_grpc.SessionStub(grpc.insecure_channel("127.0.0.1:SESSIONS"))
for rank, worker in enumerate(workers):
    mac, ip = (int(part, 16) for part in worker.split("/"))
    answer = stub.UdpSession(switchml_pb2.UdpSessionRequest(
        session_id=7, rank=rank, num_workers=len(workers), mac=mac, ipv4=ip, packet_size=int(size)), timeout=30)
    print(f"{answer.session_id} {answer.mac:012x} {answer.ipv4:08x}")
""".replace("SESSIONS", str(SESSIONS))


def tree_hash(folder: Path) -> str:
    """Git's tree hash of a folder, without the files that a run leaves there."""
    entries = []
    for path in folder.iterdir():
        if path.name in LEFT_BY_RUNS:
            continue
        if path.is_dir():
            mode, name, digest = "40000", path.name + "/", tree_hash(path)
        else:
            content, name = path.read_bytes(), path.name
            mode = "100755" if os.access(path, os.X_OK) else "100644"
            digest = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        entries.append((name.encode(), b"%s %s\0" % (mode.encode(), path.name.encode()) + bytes.fromhex(digest)))
    content = b"".join(entry for _, entry in sorted(entries))
    return hashlib.sha1(b"tree %d\0" % len(content) + content).hexdigest()


def missing() -> str:
    """Reason why the controller cannot run here; "" if it can."""
    if not (checkout := os.environ.get("INA_P4APP_SWITCHML")):
        return "INA_P4APP_SWITCHML does not name a checkout of p4app-switchML"
    for name, expected in TREES.items():
        folder = Path(checkout, "dev_root", name)
        if not folder.is_dir():
            return f"INA_P4APP_SWITCHML={checkout}: there is no dev_root/{name}"
        if (digest := tree_hash(folder)) != expected:
            return f"{folder} is not as commit {COMMIT[:12]} has it: its tree is {digest}, expected {expected}"
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("::", SESSIONS))
        except OSError as error:
            return f"port {SESSIONS}, which the controller takes: {error.strerror}"
    return ""


class Controller:
    """switchml.py, started with `arguments` as a client of the BFRuntime server at `address`, whose device is called SwitchML.
    `macs`: of the machines at front panel ports 1/0, 2/0, ... `scratch`: an empty folder."""

    def __init__(self, address: str, macs: list[str], scratch: Path, *arguments: str):
        folder = Path(os.environ["INA_P4APP_SWITCHML"], "dev_root")
        self._python, self._log = os.environ["INA_PTF_PYTHON"], scratch / "console"
        sdk = scratch / "sde/lib/python3/site-packages/tofino"  # where an SDE installs the client
        sdk.mkdir(parents=True)
        bfrt_client.package(sdk)
        stubs = scratch / "stubs"
        stubs.mkdir()
        child.run([self._python, "-m", "grpc_tools.protoc", "-I", folder / "protos", f"--python_out={stubs}",
                   f"--grpc_python_out={stubs}", "switchml.proto"], START, check=True)
        ports = scratch / "ports.yaml"
        ports.write_text("ports:\n" + "".join(f'    {n}/0: {{speed: "100G", fec: "{"rs" if n == 2 else "none"}", mac: "{mac}"}}\n'
                                              for n, mac in enumerate(macs, 1)))
        self._environment = os.environ | {"SDE_INSTALL": str(scratch / "sde"), "PYTHONPATH": str(stubs),
                                          "PYTHONDONTWRITEBYTECODE": "1"}
        host, _, port = address.rpartition(":")
        command = [self._python, "-u", str(folder / "controller/switchml.py"), "--bfrt-ip", host, "--bfrt-port", port,
                   "--switch-mac", MAC, "--switch-ip", IP, "--ports", str(ports), *arguments]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=scratch, env=self._environment, stdin=subprocess.PIPE, stdout=log,
                                             stderr=subprocess.STDOUT)

    def __enter__(self) -> Controller:
        try:
            self._answer(0)
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Tells the controller to exit, which it does by a signal to itself."""
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(b"exit\n")
            self._process.stdin.close()
            self._process.wait(START)
        finally:
            self._process.kill()
            self._process.wait(5)

    def _answer(self, begin: int) -> str:
        """Console output from there on, until the prompt for the next command."""
        until = time.monotonic() + START
        while True:
            text = self._log.read_text(errors="replace")[begin:]
            if text.rstrip().endswith(PROMPT):
                return re.sub(r"\x1b\[\d+m", "", text.rstrip().removesuffix(PROMPT))
            if self._process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the controller does not ask for a command: exit status {self._process.poll()}: {text}")
            time.sleep(0.02)

    def command(self, line: str) -> str:
        """Output of a console command."""
        begin = len(self._log.read_text(errors="replace"))
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()
        return self._answer(begin)

    def join(self, size: int, workers: list[tuple[str, str]]) -> list[str]:
        """Joins a session as `workers` (MAC, address) with packets of a size code; returns the controller's answers."""
        addresses = [f"{mac.replace(':', '')}/{bytes(map(int, ip.split('.'))).hex()}" for mac, ip in workers]
        command = [self._python, "-c", JOIN, str(size), *addresses]
        process = child.run(command, START, env=self._environment)
        assert process.returncode == 0, process.stderr + self._log.read_text(errors="replace")
        return process.stdout.splitlines()
