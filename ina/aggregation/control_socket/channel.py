"""JSON lines with file descriptors over a Unix stream socket, between the switch process and its clients.

One message is one line of JSON; descriptors travel as SCM_RIGHTS ancillary data of the line's first byte and are handed out with
that line. Sockets are in the abstract name space, so no file is left behind; but abstract names are private to one network
namespace, so where clients are in others, the name is a path (it has a '/'). Where other machines reach the controller, the name
is "HOST:PORT" or "tcp:HOST:PORT": without descriptors, and authenticated by the socket's token (greeting.py), which also codes
each line.
"""

from __future__ import annotations

import array
import errno
import ipaddress
import json
import os
import re
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from ina.aggregation.control_socket import descriptors, liveness
from ina.aggregation.control_socket.greeting import Caller, Refused, Seal
from ina.aggregation.control_socket.messages import MAX_REPLY, Malformed, decode, printable
from ina.aggregation.control_socket.peers import check_server
from ina.base import tokens

MAX_FDS = 80  # a port of a shared switch has one for each of its seats
TCP = "tcp:"
HOST_PORT = re.compile(r"[^/:@\[\]\s]+:[0-9]+|\[[^/@\[\]\s]*:[^/@\[\]\s]*\]:[0-9]+")  # so no abstract name looks like it


class ChannelClosed(ConnectionError):
    """The other end hung up."""


class OutOfReach(ChannelClosed):
    """Nothing was heard from the other end's machine for too long (liveness.py)."""


class Channel:
    """One end of a connection. Not thread-safe: its owner serialises calls. ``longest``: bytes of a line. ``seal``: over TCP,
    after the greeting."""

    def __init__(self, sock: socket.socket, longest: int = MAX_REPLY, seal: Seal | None = None):
        self.sock, self.longest, self.seal = sock, longest, seal
        self._text = b""
        self._fds: list[int] = []

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: dict[str, Any], fds: list[int] | tuple[int, ...] = ()) -> None:
        """Sends one message. Raises ChannelClosed if the other end is gone."""
        line = json.dumps(message, separators=(",", ":")).encode()
        self.write(self.seal.close(line) if self.seal else line, fds)

    def write(self, line: bytes, fds: list[int] | tuple[int, ...] = ()) -> None:
        """Sends one line, whose end this adds. Raises ChannelClosed."""
        data = line + b"\n"
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            count = self.sock.sendmsg([data], ancillary, socket.MSG_NOSIGNAL)
            if count < len(data):
                self.sock.sendall(data[count:])
        except OSError as error:
            raise self._failed("send", error) from error

    def receive(self, deadline: float | None, waiting_for: str) -> tuple[dict[str, Any], list[int]]:
        """Returns the next message and its descriptors (the caller owns them).

        ``deadline`` is a ``time.monotonic()`` value; None takes only what has arrived already. Raises ChannelClosed on hang-up,
        and for a line that is too long or has another code than its seal's; TimeoutError (naming ``waiting_for``); Malformed for
        a line that is no message (the next one may be).
        """
        line, fds = self.line(deadline, waiting_for)
        try:
            return decode(self._opened(line)), fds
        except (ChannelClosed, ValueError):
            for fd in fds:
                os.close(fd)
            raise

    def _opened(self, line: bytes) -> bytes:
        try:
            return self.seal.open(line) if self.seal else line
        except ValueError as error:
            raise ChannelClosed(f"it carried {error}") from None

    def line(self, deadline: float | None, waiting_for: str) -> tuple[bytes, list[int]]:
        """Returns the next line as it came, without its end, and its descriptors. Raises as ``receive``, but for Malformed."""
        while b"\n" not in self._text:
            if len(self._text) > self.longest:
                raise ChannelClosed(f"a message of more than {self.longest} bytes")
            wait = 0.0 if deadline is None else max(0.0, deadline - time.monotonic())
            poller = select.poll()
            poller.register(self.sock, select.POLLIN)
            if not poller.poll(wait * 1000):
                raise TimeoutError(f"time-out while waiting for {waiting_for}")
            try:
                data, fds, _, _ = socket.recv_fds(self.sock, 65536, MAX_FDS, socket.MSG_CMSG_CLOEXEC)
            except OSError as error:
                raise self._failed("receive", error) from error
            self._fds += fds
            if not data:
                raise ChannelClosed("the other end hung up")
            self._text += data
        line, self._text = self._text.split(b"\n", 1)
        fds, self._fds = self._fds, []
        return line, fds

    def _failed(self, deed: str, error: OSError) -> ChannelClosed:
        if self.sock.family != socket.AF_UNIX and liveness.is_out_of_reach(error):
            return OutOfReach(liveness.verdict(self.sock))
        return ChannelClosed(f"cannot {deed}: {error.strerror}")

    def hang_up(self) -> None:
        """Shuts both directions: the peer sees POLLHUP at once, even while copies of the socket are open elsewhere."""
        with suppress(OSError):  # already gone: nothing to shut
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        self.sock.close()


def elsewhere(name: str) -> bool:
    """Returns True if clients of other machines reach ``name``."""
    return name.startswith(TCP) or HOST_PORT.fullmatch(name) is not None


def address(name: str) -> str | tuple[str, int]:
    """Returns the socket address of ``name``: a path, an abstract name, or TCP's. Raises ValueError: as ``fault`` says."""
    if wrong := fault(name):
        raise ValueError(f"{name}: {wrong}")
    if not elsewhere(name):
        return name if "/" in name else "\0" + name
    host, _, port = name.removeprefix(TCP).rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def fault(name: str) -> str:
    """Returns what is wrong with a name that is meant for TCP: it has no host, no port, or one that is none; "": nothing."""
    place, wrong = name.removeprefix(TCP), ""
    host, _, port = place.rpartition(":")
    if "/" in place:
        wrong = "a path needs no tcp:" if name != place else ""
    elif HOST_PORT.fullmatch(place):
        wrong = "" if len(port) < 6 and int(port) < 65536 else f"{port!r} is no port of 1 to 65535"
    elif (ip := _ip(place)) is not None:
        wrong = "the port is missing: such as " + (f"[{ip}]:5588" if ip.version == 6 else f"{ip}:5588")
    elif name != place and not host:
        wrong = "the host, or the port, is missing"
    elif name != place:
        wrong = f"an address of IPv6 has brackets: [{host}]:{port}" if ":" in host else f"{port!r} is no port of 1 to 65535"
    return f"expected tcp:HOST:PORT, HOST:PORT or [ADDRESS]:PORT: {wrong}" if wrong else ""


def _ip(place: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Returns the IP address that ``place`` is, perhaps in brackets or with an empty port; None: it is another name."""
    host = place.removesuffix(":") if place.count(":") == 1 or place.endswith("]:") else place
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def shown(name: str) -> str:
    """Formats ``name`` for messages: abstract names with an @."""
    return name if "/" in name or elsewhere(name) else "@" + name


def new_socket(name: str) -> socket.socket:
    """Returns a socket that can connect to ``name``, or listen there, and refuses descriptors."""
    if not elsewhere(name):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        descriptors.allow(sock, False)
        return sock
    sock = socket.socket(socket.AF_INET6 if ":" in address(name)[0] else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return sock


def connect(name: str, timeout: float, access: str = "") -> Channel:
    """Connects to the server at ``name`` and authenticates; ``timeout`` in seconds, until it accepts the connection and, over
    TCP, has answered the greeting.

    ``access``: the socket's token or a pass, where it is TCP; default: ina/base/tokens.py finds it. Raises OSError that names the
    socket, Refused, ValueError for an invalid name, and where there is no token.
    """
    sock = new_socket(name)
    channel = Channel(sock)
    try:
        if elsewhere(name):
            deadline = time.monotonic() + timeout
            sock.settimeout(timeout)
            sock.connect(address(name))  # watched only from now on: a server whose queue is full answers no first packet
            sock.settimeout(None)
            liveness.watch(sock)
            channel.seal = _greet(channel, name, access or tokens.find(), deadline)
        else:
            _connect(sock, name, timeout)
            check_server(sock, shown(name))
            descriptors.allow(sock, True)
    except PermissionError as error:
        descriptors.close(sock)
        if error.errno is None:  # raised by check_server
            raise
        raise OSError(error.errno, f"no way to socket {shown(name)}: {error.strerror}") from error
    except TimeoutError as error:
        descriptors.close(sock)
        raise OSError(errno.ETIMEDOUT, f"no switch process at socket {shown(name)}: {error.strerror or error}") from error
    except OSError as error:
        descriptors.close(sock)
        raise OSError(error.errno, f"no switch process at socket {shown(name)}: {error.strerror}") from error
    except ValueError:
        descriptors.close(sock)
        raise
    return channel


def _greet(channel: Channel, name: str, access: str, deadline: float) -> Seal:
    """Greets the server over TCP. Raises Refused, TimeoutError, OSError: it hung up."""
    caller = Caller(access)
    try:
        channel.write(caller.hello())
        line, _ = channel.line(deadline, "an answer to the greeting")
        if line.startswith(b"{"):
            refused = _refusal(line)
            if refused.code == "token":  # so version 1 answers, to which all else is a wrong token
                raise Refused("version", f"{name} takes version 1 of the greeting only, in which the token itself travels, and "
                                         "this client sends it to nobody: upgrade ina on the switch's machine")
            raise refused
        proof, seal = caller.proof(line)
        channel.write(proof)
        line, _ = channel.line(deadline, "the proof that it has the token")
        if line.startswith(b"{"):
            raise _refusal(line)
        caller.check(line)
    except ChannelClosed as error:
        raise OSError(errno.ECONNRESET, f"it ended the greeting: {error}") from None
    return seal


def _refusal(line: bytes) -> Refused:
    """Returns the refusal in an answer to the greeting."""
    try:
        message = decode(line)
    except Malformed as error:
        return Refused("invalid", f"an answer to the greeting that is none: {error}")
    return Refused(str(message.get("code")), printable(message.get("reason", "no reason given"), "\n"))


def _connect(sock: socket.socket, name: str, timeout: float) -> None:
    """Connects to a Unix socket within ``timeout`` seconds. The kernel waits SO_SNDTIMEO for room in a full queue, by default for
    ever, and any user can listen at a name and accept nobody. Raises OSError."""
    whole = max(0, int(timeout))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", whole, max(1, int((timeout - whole) * 1e6))))
    try:
        sock.connect(address(name))
    except BlockingIOError:
        raise OSError(errno.ETIMEDOUT, f"it has taken no connection for {timeout:g} s") from None
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 0))


def listen(name: str, everybody: bool = False) -> socket.socket:
    """Returns a listening socket at ``name``. OSError (EADDRINUSE) if it is taken; ValueError. The caller removes a path's file;
    ``everybody`` may connect to it, else those whom the umask lets."""
    if elsewhere(name):
        liveness.silence()  # a wrong INA_SILENCE is said here, not where the first worker comes
    sock = new_socket(name)
    try:
        sock.bind(address(name))
        if everybody and "/" in name and not elsewhere(name):
            os.chmod(name, 0o666)
        sock.listen(128)
    except OSError as error:
        sock.close()
        hint = "; is another switch process using that name?" if error.errno == errno.EADDRINUSE else ""
        raise OSError(error.errno, f"cannot listen at socket {shown(name)}: {error.strerror}{hint}") from error
    return sock


@contextmanager
def own_path(name: str) -> Iterator[None]:
    """Removes a path's file at the end, and at the beginning one that a killed process has left, but not where somebody listens.
    """
    path = Path(name) if "/" in name and not elsewhere(name) else None
    if path is not None and path.is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(name)
            except ConnectionRefusedError:
                path.unlink()
            else:  # it is another's
                path = None
    try:
        yield
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


@contextmanager
def listening(name: str, everybody: bool = False) -> Iterator[socket.socket]:
    """Listens as `listen` does, with the file of ``own_path``; where somebody listens, that is an OSError (EADDRINUSE)."""
    with own_path(name), closing(listen(name, everybody)) as listener:
        yield listener
