"""BMv2's simple_switch_grpc as one of our switches: programs that p4c compiles for it, and its process.

BMv2 takes frames from network interfaces, and its Thrift server binds a fixed port on every address. So each runs in a network
namespace of its own, with one veth pair for each port; a packet socket of this process is at the pair's other end, in the same
namespace. The namespace ends with the process and the sockets: nothing has a name outside, nothing is left behind.
P4Runtime is served at a Unix socket's path, which other namespaces can reach.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ina.base import cache, documents, tool
from ina.base.cc import BuildError
from ina.net.namespaces import own_namespace
from ina.net.ports import Port, longest_frame, open_packet
from ina.p4.compiler.build import source_hash
from ina.p4.compiler.front.preprocess import preprocess
from ina.p4.p4runtime.remote_switch import RemoteSwitch
from ina.p4.runtime import Closing
from ina.p4.runtime.p4info import P4Info

SWITCH = ("INA_SIMPLE_SWITCH_GRPC", "simple_switch_grpc")
COMPILER = ("INA_P4C", "p4c-bm2-ss")
INSTALL = (
    "BMv2 and p4c are in no distribution; install p4lang's packages p4lang-bmv2 and p4lang-p4c, which there are for Ubuntu 20.04 "
    "and newer and for Debian 11 (https://github.com/p4lang/behavioral-model#installing-bmv2 says how), or build both from source"
)
COMPILE_DEADLINE = 600.0  # seconds
START_DEADLINE = 120.0


class Bmv2Missing(RuntimeError):
    """No BMv2 or p4c on this machine; the message names which, and how to install it."""


class Bmv2Failed(OSError):
    """BMv2 did not start, or has ended; the message has the end of its output."""


def missing() -> str:
    """The reason why there is no BMv2 here; empty: there is."""
    for program in (SWITCH, COMPILER):
        try:
            _path(program)
        except Bmv2Missing as error:
            return str(error)
    return ""


def _path(command: tuple[str, str]) -> str:
    variable, name = command
    program = os.environ.get(variable) or name
    path = shutil.which(program)
    if path is None:
        raise Bmv2Missing(f"there is no {program} ({variable} can name one). {INSTALL}")
    return path


@functools.cache
def versions() -> dict[str, str]:
    """The versions that BMv2 and p4c report. Raises Bmv2Missing."""
    return {name[1]: _version(_output_of(_path(name), "--version")) for name in (SWITCH, COMPILER)}


@functools.cache
def _output_of(command: str, option: str) -> str:
    child = subprocess.run([command, option], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=START_DEADLINE)
    return child.stdout


def _version(output: str) -> str:
    match = re.search(r"\d+(\.\d+)+( \(SHA: \w+)?", output)
    return match[0].replace(" (SHA: ", "-") if match else "unknown"


# ---- programs


@dataclass(frozen=True)
class Bmv2Program:
    """A program compiled by p4c: BMv2's JSON, and P4Info. `source_hash`: as of the embedded switch's programs."""

    config: Path
    p4info: P4Info
    source_hash: str


def compile_bmv2(path: Path, defines: Mapping[str, str] | None = None) -> Bmv2Program:
    """Compiles the v1model program at `path` with p4c, or finds it in the cache of compiled programs.

    Raises Bmv2Missing, BuildError (p4c refuses, with its output) and CompileError (the preprocessor's).
    """
    digest, config = _cached(path, defines)
    info, record = config.with_suffix(".p4info"), config.with_suffix(".record")
    if cache.read_record(record) is None:
        with tempfile.TemporaryDirectory(dir=config.parent, prefix=f".{config.name}.") as folder:
            output, output_info = Path(folder, config.name), Path(folder, "p4info.json")
            flags = [f"-D{name}={value}" if value else f"-D{name}" for name, value in (defines or {}).items()]
            _run_p4c([*flags, "--Wdisable=unused", "--p4runtime-files", str(output_info), "-o", str(output), str(path)])
            os.replace(output_info, info)
            os.replace(output, config)
        cache.write_record(record, {}, [info, config])
    return Bmv2Program(config, P4Info(documents.json_of(info)), digest)


def is_compiled(path: Path, defines: Mapping[str, str] | None = None) -> bool:
    """True if the cache has the program, so that `compile_bmv2` need not run p4c. Raises Bmv2Missing and CompileError."""
    return cache.read_record(_cached(path, defines)[1].with_suffix(".record")) is not None


def _cached(path: Path, defines: Mapping[str, str] | None) -> tuple[str, Path]:
    """The program's source hash, and the path of BMv2's JSON of it in the cache."""
    digest = source_hash(preprocess(path, defines=defines)[0])
    key = hashlib.sha256(f"{digest}\n{versions()[COMPILER[1]]}".encode()).hexdigest()[:32]
    return digest, cache.folder() / f"{path.stem}-{key}.bmv2.json"


def _run_p4c(arguments: list[str]) -> None:
    command = [_path(COMPILER), *arguments]
    try:
        process = tool.run(command, COMPILE_DEADLINE)
    except subprocess.TimeoutExpired:
        raise BuildError(f"p4c did not finish {arguments[-1]} within {COMPILE_DEADLINE:g} s") from None
    if process.returncode:
        raise BuildError(f"p4c refuses {arguments[-1]}:\n{process.stderr.strip()[-4000:]}")


# ---- the process


def make_interfaces(ports: Iterable[int], mtu: int) -> None:
    """Makes a veth pair far1, port1 for port 1, and so on, up and quiet; call in a new namespace."""
    for scope in ("all", "default"):  # no neighbour discovery of the kernel among the frames
        quiet = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if quiet.exists():
            quiet.write_text("1")
    lines = ["link set lo up"]
    for n in ports:
        lines += [f"link add far{n} mtu {mtu} type veth peer name port{n} mtu {mtu}", f"link set far{n} up",
                  f"link set port{n} up"]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True, capture_output=True)


class Bmv2(Closing):
    """A running simple_switch_grpc, still without a program: `remote` loads one.

    `ports`: their numbers; `port(n)` is the far end of each, which the caller may hand to a switch of his own. `socket`: the path
    at which P4Runtime is served, as `address` writes it. `mtu`: largest IP packet. `cpu_port`: of packet-in and packet-out; 0:
    none. Needs root. Raises Bmv2Missing, Bmv2Failed and OSError. The process is killed when the thread that made it ends, however
    it ends.
    """

    def __init__(self, ports: Iterable[int], socket: Path, *, mtu: int = 1500, device_id: int = 1, cpu_port: int = 0,
                 frames: int = 256):
        self.device_id = device_id
        self.address = f"unix:{socket}"
        self._socket = socket
        self._ports: dict[int, Port] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._log = os.memfd_create("bmv2-log")
        socket.unlink(missing_ok=True)
        try:
            command = self._command(sorted(ports)) + (["--cpu-port", str(cpu_port)] if cpu_port else [])
            with own_namespace():
                make_interfaces(sorted(ports), mtu)
                for number in sorted(ports):
                    self._ports[number] = open_packet(f"far{number}", longest_frame(mtu), frames)
                # A session of its own: a Ctrl-C at the terminal ends the job first.
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                                                 cwd="/", start_new_session=True)
            self._wait_ready()
        except BaseException:
            self.close()
            raise

    def _command(self, ports: list[int]) -> list[str]:
        options = [part for n in ports for part in ("-i", f"{n}@port{n}")]
        if "--notifications-addr" in _output_of(_path(SWITCH), "--help"):  # a build with nanomsg: its default is a file in /tmp
            options += ["--notifications-addr", f"ipc://{self._socket}.notifications"]
        return [
            "setpriv", "--pdeathsig", "KILL", _path(SWITCH), "--device-id", str(self.device_id), "--no-p4",
            "-L", "off", "--log-console", *options, "--", "--grpc-server-addr", self.address,
        ]

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_DEADLINE
        while not self._socket.exists():
            self.check()
            if time.monotonic() > deadline:
                raise Bmv2Failed(f"simple_switch_grpc does not serve P4Runtime at {self._socket} after {START_DEADLINE:g} s"
                                 + self._log_tail())
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def port(self, number: int) -> Port:
        """The far end of port `number`: the switch receives there what is sent here. Closed with the switch."""
        return self._ports[number]

    def check(self, patience: float = 0.0) -> None:
        """Raises Bmv2Failed if the process has ended, or does within `patience` seconds."""
        status = None
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(patience) if self._process else None
        if status is not None:
            raise Bmv2Failed(f"simple_switch_grpc has ended with status {status}{self._log_tail()}")

    def _log_tail(self) -> str:
        size = os.fstat(self._log).st_size
        lines = os.pread(self._log, 4096, max(0, size - 4096)).decode(errors="replace").strip().splitlines()[-12:]
        return "".join(f"\n  bmv2| {line}" for line in lines)

    def remote(self, program: Bmv2Program | None = None, timeout: float = START_DEADLINE) -> RemoteSwitch:
        """A primary controller of the switch; loads `program` first. The caller closes it."""
        self.check()
        remote = RemoteSwitch(self.address, self.device_id, timeout=timeout)
        try:
            if program is not None:
                remote.set_pipeline(program.p4info.message, program.config.read_bytes())
        except BaseException:
            remote.close()
            raise
        return remote

    def close(self) -> None:
        """Ends the process, and with it its namespace and interfaces. May be called twice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for port in self._ports.values():
            port.close()
        self._ports.clear()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
        for path in (self._socket, Path(f"{self._socket}.notifications")):
            with suppress(FileNotFoundError):
                path.unlink()
