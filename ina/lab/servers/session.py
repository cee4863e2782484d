"""Agents on servers, each behind a command such as ssh: start, commands with deadlines, end.

The agent needs no more than a Python there: its source goes through the command's standard input, and so does everything that it
is told. When that ends, for whatever reason, so does the agent.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import select
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from ina.aggregation.control_socket.messages import Malformed, decode, printable
from ina.base.settings import ConfigError
from ina.lab.servers import agent
from ina.lab.servers.hosts import Host

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 {host}"
LONGEST = 1 << 20  # bytes of a reply
BANNER = 200  # lines that a server's shell may print before the agent speaks
START, ANSWER = 30.0, 30.0  # s, for the agent, and for a reply beyond what its command takes
BOOT = ("import sys;sys.version_info>=(3,9) or sys.exit('expected Python 3.9 or newer, this is '+sys.version.split()[0]);"
        "exec(compile(sys.stdin.buffer.read({size}),'agent','exec'))")


class AgentError(Exception):
    """An agent that did not start, has ended, or does not answer; the text names its server. ``lost``: it answers no more."""

    def __init__(self, message: str, lost: bool = True):
        super().__init__(message)
        self.lost = lost


def transport(template: str, host: Host) -> list[str]:
    """Returns the words of the command that runs one more word, a shell's command, on the host. Raises ConfigError."""
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ConfigError(f"--ssh {template}: {error}: expected a command such as '{SSH}'") from None
    if not any("{host}" in word for word in words) or "{host}" in words[0]:
        raise ConfigError(f"--ssh {template}: expected a command with {{host}} in one of its arguments, such as '{SSH}'")
    return [word.replace("{host}", host.name) for word in words]


class Session:
    """An agent. ``facts``: what it has said of its server: ports, Python, MTU, ...; "" ``failure`` as long as it answers."""

    def __init__(self, host: Host, words: Sequence[str], python: str):
        """Starts the agent. Raises OSError: there is no such command as ``words`` begins with."""
        self.host, self.failure, self.facts = host, "", dict[str, Any]()
        self._source = Path(agent.__file__).read_bytes()
        self._errors = tempfile.TemporaryFile()
        self._buffer, self._number = b"", 0
        remote = f'{python} -c "{BOOT.format(size=len(self._source))}"'
        try:
            self._process = subprocess.Popen([*words, remote], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                                             start_new_session=True, bufsize=0)
        except BaseException:
            self._errors.close()
            raise

    def greet(self, peers: Sequence[str], secret: bytes, lifetime: float) -> None:
        """Sends the agent its source, and what it needs to know at first. Raises AgentError."""
        self._write(self._source)
        self._send({"address": self.host.address, "peers": [*peers], "secret": secret.hex(), "lifetime": lifetime})

    def ready(self, deadline: float) -> None:
        """Waits for the agent. Raises AgentError."""
        about: Any = None
        for _ in range(BANNER):
            with suppress(Malformed):  # a banner of the server's shell
                about = decode(self._line(deadline, "the agent did not start in time")).get("agent")
            if isinstance(about, dict):
                break
        else:
            self._lose(f"more than {BANNER} lines before the agent's own: expected a shell that is silent without a terminal")
        if "error" in about:
            self._lose(str(about["error"]))
        self.facts = {key: about.get(key) for key in ("udp_port", "tcp_port", "rmem_max", "mtu", "speed", "card", "python")}
        for key in ("udp_port", "tcp_port", "rmem_max", "mtu", "speed"):
            if type(self.facts[key]) is not int:
                self._lose(f"answers with {key} = {self.facts[key]!r}, expected a whole number")

    def ask(self, do: str, takes: float = 0.0, **args: Any) -> dict[str, Any]:
        """Returns the result of a command, which ``takes`` so many seconds by itself. Raises AgentError."""
        return self.result(self.send(do, **args), takes)

    def send(self, do: str, **args: Any) -> int:
        """Gives a command; returns its number. Commands are carried out one after the other. Raises AgentError."""
        self._number += 1
        self._send({"id": self._number, "do": do, **args})
        return self._number

    def result(self, number: int, takes: float = 0.0) -> dict[str, Any]:
        """Waits for a command's result. Raises AgentError: also, not ``lost``, where the system refuses the command."""
        deadline = time.monotonic() + takes + ANSWER
        while True:
            try:
                reply = decode(self._line(deadline, f"no answer in {takes + ANSWER:.0f} s"))
            except Malformed as error:
                self._lose(f"an answer that makes no sense: {error}")
            own = reply.get("id")
            if type(own) is not int or own > number:
                self._lose(f"an answer to command {own!r}, expected {number}")
            if own == number:  # else it is of a command that nobody waits for any more
                break
        if "failed" in reply:
            raise AgentError(printable(reply["failed"]), lost=False)
        if not isinstance(reply.get("result"), dict):
            self._lose(f"refuses: {printable(reply.get('refused', 'no result'))}")
        return reply["result"]

    def _send(self, message: dict[str, Any]) -> None:
        self._write(json.dumps(message).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        if self.failure:
            raise AgentError(self.failure)
        assert self._process.stdin is not None
        deadline, view = time.monotonic() + START, memoryview(data)
        os.set_blocking(self._process.stdin.fileno(), False)
        while view:
            if not select.select([], [self._process.stdin], [], max(0.0, deadline - time.monotonic()))[1]:
                self._lose("takes no commands")
            try:
                view = view[os.write(self._process.stdin.fileno(), view) :]
            except BlockingIOError:
                continue
            except OSError:
                self._lose(self._end())

    def _line(self, deadline: float, late: str) -> bytes:
        if self.failure:
            raise AgentError(self.failure)
        assert self._process.stdout is not None
        while b"\n" not in self._buffer:
            if len(self._buffer) > LONGEST:
                self._lose(f"a line of more than {LONGEST} bytes")
            if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self._lose(late)
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                self._lose(self._end())
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _lose(self, why: str) -> NoReturn:
        self.failure = f"{self.host.name}: {printable(why)}"
        raise AgentError(self.failure)

    def _end(self) -> str:
        """Returns why the command has ended: the last words of its standard error, and its status."""
        try:
            status = f"exit status {self._process.wait(2)}"
        except subprocess.TimeoutExpired:
            status = "it has closed its output"
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 2000))
        words = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        return f"the agent ended ({status}){': ' + words[-1] if words else ''}"

    def close(self, wait: float = 2.0) -> None:
        """Ends the agent: it sees the end of its input. The command, and what it has started here, is killed if it goes on."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(wait)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        finally:
            self._errors.close()


@contextmanager
def opened(hosts: Sequence[Host], template: str, python: str, lifetime: float) -> Iterator[list[Session]]:
    """Agents on all hosts, started beside each other; those that fail to start have a ``failure``. Ends all of them.

    Raises ConfigError: no such template; OSError: there is no such command.
    """
    secret, sessions = secrets.token_bytes(16), list[Session]()
    commands = [transport(template, host) for host in hosts]
    with ExitStack() as stack:
        for host, words in zip(hosts, commands, strict=True):
            try:
                sessions.append(session := Session(host, words, python))
            except FileNotFoundError:
                raise ConfigError(f"--ssh {template}: there is no command {words[0]!r}: expected one such as '{SSH}'") from None
            stack.callback(session.close)
        deadline = time.monotonic() + START
        for session in sessions:
            with suppress(AgentError):
                session.greet([host.address for host in hosts if host != session.host], secret, math.ceil(lifetime))
        for session in sessions:
            with suppress(AgentError):
                session.ready(deadline)
        yield sessions
