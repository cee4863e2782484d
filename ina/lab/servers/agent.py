"""Agent of ``ina cluster check`` on a server: answers probes of the other servers, and sends probes that the controller asks for.

It needs Python 3.9 and nothing else there: this source comes over standard input, then one JSON object a line; replies leave by
standard output. It ends with its standard input, and after its ``lifetime`` in any case.

Nobody else gets traffic out of it. It listens at one address, hears only the servers that the controller has named, only with
the run's secret, and only for a stream that the controller has announced. An answer is never longer than what it answers; all
else that it sends, the controller has asked for, with a bound, to one of these servers.

    datagram, and the first bytes of a TCP connection; both may be longer
     0       4                    20     21        25        29         37          45
     | magic | secret of this run | kind | stream  | number  | received | answered  |     (the last two: ns, of an answer)
"""

from __future__ import annotations

import errno
import fcntl
import hmac
import json
import os
import select
import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

Args = dict[str, Any]

HEAD = struct.Struct("!4s16sBIIqq")
MAGIC = b"inaC"
ECHO, ANSWER, COUNT, HELLO, GO, BULK = range(6)  # kinds
END = 0xFFFFFFFF  # number of the last GO
LONGEST = 65507  # bytes of a datagram over IPv4
HEADERS = 28  # bytes of IPv4 and UDP
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3  # linux/in.h: sets "don't fragment", and heeds no cached MTU of the path
SO_RCVBUFFORCE = 33  # asm-generic/socket.h
SIOCGIFADDR, SIOCGIFMTU = 0x8915, 0x8921  # linux/sockios.h
SECONDS = 60  # of one command, at most
SILENCE = 5.0  # s, after which a connection without bytes is given up
CONNECTIONS = 128  # that are served at a time


class Refused(Exception):
    """A command that makes no sense, or is beyond a bound; its text goes to the controller."""


def whole(args: Args, key: str, low: int, high: int) -> int:
    """Returns the whole number ``args[key]``. Raises Refused."""
    value = args.get(key)
    if type(value) is not int or not low <= value <= high:
        raise Refused(f"{key}: {value!r}, expected a whole number from {low} to {high}")
    return value


def real(args: Args, key: str, low: float, high: float) -> float:
    """Returns the number ``args[key]``. Raises Refused."""
    value: Any = args.get(key)
    if type(value) not in (int, float) or not low <= value <= high:
        raise Refused(f"{key}: {value!r}, expected a number from {low:g} to {high:g}")
    return value


def wholes(args: Args, key: str, low: int, high: int, most: int) -> list[int]:
    """Returns the list ``args[key]`` of at least one and at most ``most`` whole numbers. Raises Refused."""
    values = args.get(key)
    if not isinstance(values, list) or not 1 <= len(values) <= most:
        raise Refused(f"{key}: {values!r}, expected a list of 1 to {most}")
    return [whole({key: value}, key, low, high) for value in values]


def reason(error: OSError) -> str:
    """Returns the text of a system's error."""
    if isinstance(error, socket.timeout):
        return "no answer"
    return error.strerror or str(error)


class Stream:
    """Counts of what has arrived of one stream, and when, in seconds of ``time.perf_counter``."""

    def __init__(self, peer: str):
        self.peer, self.count, self.bytes, self.first, self.last = peer, 0, 0, 0.0, 0.0
        self.lengths: set[int] = set()  # of IP packets

    def add(self, length: int, now: float) -> None:
        if not self.count:
            self.first = now
        self.count, self.bytes, self.last = self.count + 1, self.bytes + length, now

    def report(self) -> Args:
        return {"count": self.count, "bytes": self.bytes, "first": self.first, "last": self.last,
                "lengths": sorted(tuple(self.lengths))}


class Agent:
    """Sockets at ``address``; ``peers``: the addresses of the other servers; ``secret``: 16 bytes. Raises OSError."""

    def __init__(self, address: str, peers: Iterable[str], secret: bytes):
        self.address, self.peers, self.secret = address, frozenset(peers), secret
        self.streams: dict[int, Stream] = {}
        self.incast: list[tuple[socket.socket, str]] = []  # sockets, and the peers who send to them
        self.udp, self.tcp = self.datagrams(), socket.socket()
        self.tcp.bind((address, 0))
        self.tcp.listen(CONNECTIONS)
        self.places = threading.BoundedSemaphore(CONNECTIONS)
        self.lock = threading.Lock()  # held from a datagram's receipt until it is counted

    def datagrams(self, buffer: int = 1 << 22) -> socket.socket:
        """Returns a UDP socket at the address, whose datagrams nobody fragments, with as much of ``buffer`` bytes as it gets."""
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, buffer)
        except OSError:  # beyond the system's limit only as root
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
        sock.bind((self.address, 0))
        return sock

    def packed(self, kind: int, stream: int, number: int = 0, received: int = 0, answered: int = 0) -> bytes:
        return HEAD.pack(MAGIC, self.secret, kind, stream, number, received, answered)

    def parsed(self, data: bytes, sender: str) -> list[int] | None:
        """Returns kind, stream, number and times of bytes from an address, or None: not of this run."""
        if sender not in self.peers or len(data) < HEAD.size:
            return None
        magic, secret, *rest = HEAD.unpack_from(data)
        return rest if magic == MAGIC and hmac.compare_digest(secret, self.secret) else None

    # ---- what others send

    def datagram(self, data: bytes, sender: str, received: int) -> bytes | None:
        """Takes note of a datagram; returns the answer, or None. ``received``: ns of ``time.time_ns``."""
        fields = self.parsed(data, sender)
        stream = self.streams.get(fields[1]) if fields else None
        if not fields or stream is None or stream.peer != sender or fields[0] not in (ECHO, COUNT):
            return None
        stream.add(len(data), time.perf_counter())
        if len(stream.lengths) < 4096:
            stream.lengths.add(len(data) + HEADERS)
        return self.packed(ANSWER, fields[1], fields[2], received, time.time_ns()) if fields[0] == ECHO else None

    def serve_datagrams(self) -> None:
        while True:
            select.select([self.udp], [], [])
            with self.lock:
                try:
                    data, place = self.udp.recvfrom(65536, socket.MSG_DONTWAIT)
                    answer = self.datagram(data, place[0], time.time_ns())
                    if answer:
                        self.udp.sendto(answer, place)
                except OSError:  # an answer that cannot be sent counts as lost
                    continue

    def serve_connections(self) -> None:
        while True:
            try:
                connection, place = self.tcp.accept()
            except OSError:  # it was given up before
                continue
            if place[0] in self.peers and self.places.acquire(blocking=False):
                threading.Thread(target=self.serve, args=(connection, place[0]), daemon=True).start()
            else:
                connection.close()

    def serve(self, connection: socket.socket, sender: str) -> None:
        """Reads one connection to its end: its head is answered once."""
        try:
            with connection:
                connection.settimeout(SILENCE)
                head = b""
                while len(head) < HEAD.size:
                    data = connection.recv(HEAD.size - len(head))
                    if not data:
                        return
                    head += data
                fields = self.parsed(head, sender)
                stream = self.streams.get(fields[1]) if fields else None
                if not fields or stream is None or stream.peer != sender or fields[0] != BULK:
                    return
                connection.sendall(MAGIC)
                buffer = memoryview(bytearray(1 << 20))
                while True:
                    count = connection.recv_into(buffer)
                    if not count:
                        return
                    stream.add(count if stream.count else 0, time.perf_counter())  # the time runs from the first bytes on
        except OSError:  # ended by the sender, or silent
            return
        finally:
            self.places.release()

    # ---- what the controller asks for

    def peer(self, args: Args) -> str:
        if args.get("peer") not in self.peers:
            raise Refused(f"peer: {args.get('peer')!r}, expected one of the servers named at first")
        return args["peer"]

    def place(self, args: Args) -> tuple[str, int]:
        return self.peer(args), whole(args, "port", 1, 65535)

    def expect(self, args: Args) -> Args:
        """Announces a stream of a peer."""
        if len(self.streams) >= 4096:
            raise Refused("too many streams at a time: ask with arrived for those that are over")
        self.streams[whole(args, "stream", 1, END)] = Stream(self.peer(args))
        return {}

    def arrived(self, args: Args) -> Args:
        """Ends a stream, and reports it. What the kernel has received already is counted first, for a second at most."""
        until = time.perf_counter() + 1
        while time.perf_counter() < until:
            with self.lock:
                if not select.select([self.udp], [], [], 0)[0]:
                    break
            time.sleep(0.001)
        stream = self.streams.pop(whole(args, "stream", 1, END), None)
        if stream is None:
            raise Refused(f"stream: {args['stream']!r}, expected one that was announced")
        return stream.report()

    def connect(self, args: Args) -> Args:
        """Connects to a peer, and waits for its answer."""
        began = time.perf_counter()
        with self.connection(args, real(args, "wait", 0, SECONDS)):
            return {"seconds": time.perf_counter() - began}

    def connection(self, args: Args, wait: float) -> socket.socket:
        sock = socket.socket()
        try:
            sock.settimeout(wait)
            sock.bind((self.address, 0))
            sock.connect(self.place(args))
            sock.sendall(self.packed(BULK, whole(args, "stream", 1, END)))
            if sock.recv(len(MAGIC), socket.MSG_WAITALL) != MAGIC:
                raise OSError(errno.ECONNRESET, "closed at once, maybe by something between that answers for it")
            return sock
        except BaseException:
            sock.close()
            raise

    def bulk(self, args: Args) -> Args:
        """Sends bytes over a connection, so many seconds long; what is not on its way then is dropped."""
        seconds, sent, block = real(args, "seconds", 0, SECONDS), 0, bytes(1 << 18)
        with self.connection(args, SILENCE) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            began = time.perf_counter()
            while time.perf_counter() - began < seconds:
                sent += sock.send(block)
        return {"sent": sent}

    def echo(self, args: Args) -> Args:
        """Sends probes one after the other; of the answers the median and least round trip, s, and of the quickest one the
        offset of the peer's clock, s (RFC 5905 section 8). Gives up after five without any answer."""
        place, stream = self.place(args), whole(args, "stream", 1, END)
        count, wait = whole(args, "count", 1, 10000), real(args, "wait", 0, SECONDS)
        sent, failure = 0, ""
        trips: list[tuple[int, float]] = []  # ns
        end = time.perf_counter() + real(args, "seconds", 0, SECONDS)
        with self.datagrams() as sock:
            sock.connect(place)
            for number in range(count):
                if time.perf_counter() > end or (number == 5 and not trips):
                    break
                try:
                    sock.settimeout(wait)
                    first, began = time.time_ns(), time.perf_counter_ns()
                    sock.send(self.packed(ECHO, stream, number))
                    sent += 1
                    until = time.perf_counter() + wait
                    while True:
                        data = sock.recv(65536)
                        now = time.perf_counter_ns()
                        fields = self.parsed(data, place[0])
                        if fields and fields[:3] == [ANSWER, stream, number]:
                            received, answered = fields[3:]
                            trip = now - began - (answered - received)
                            trips.append((trip, ((received - first) + (answered - (first + now - began))) / 2))
                            break
                        sock.settimeout(max(1e-3, until - time.perf_counter()))
                except socket.timeout:  # noqa: UP041 (it is no TimeoutError before Python 3.10)
                    continue
                except OSError as error:
                    failure = reason(error)
        result: Args = {"sent": sent, "answered": len(trips), "error": failure}
        if trips:
            trips.sort()
            result.update(median=trips[len(trips) // 2][0] / 1e9, least=trips[0][0] / 1e9, offset=trips[0][1] / 1e9)
        return result

    def ladder(self, args: Args) -> Args:
        """Sends IP packets of several lengths that nobody may fragment, some copies of each; returns the lengths that this
        machine refuses to send."""
        place, stream, copies = self.place(args), whole(args, "stream", 1, END), whole(args, "copies", 1, 10)
        lengths, refused, failure = wholes(args, "lengths", HEAD.size + HEADERS, LONGEST + HEADERS, 64), set(), ""
        with self.datagrams() as sock:
            for copy in range(copies):
                for length in lengths:
                    try:
                        sock.sendto(self.packed(COUNT, stream, copy).ljust(length - HEADERS, b"\0"), place)
                    except OSError as error:
                        if error.errno == errno.EMSGSIZE:
                            refused.add(length)
                        else:
                            failure = reason(error)
                    time.sleep(0.001)  # no burst: a short queue would drop some of them
        return {"refused": sorted(refused), "error": failure}

    def flood(self, args: Args) -> Args:
        """Sends datagrams of ``length`` bytes at ``rate`` bit/s of IP packets, so many seconds long."""
        place, stream = self.place(args), whole(args, "stream", 1, END)
        length, rate = whole(args, "length", HEAD.size, LONGEST), real(args, "rate", 1, 1e12)
        seconds, sent, failure = real(args, "seconds", 0, SECONDS), 0, ""
        each = 8 * (length + HEADERS) / rate
        total, data = int(seconds / each), self.packed(COUNT, stream).ljust(length, b"\0")
        with self.datagrams() as sock:
            began = time.perf_counter()
            while sent < total and time.perf_counter() - began < seconds:
                due = min(total, int((time.perf_counter() - began) / each) + 1)
                if due <= sent:
                    time.sleep(min(each, 0.001))
                for _ in range(min(due - sent, 32)):
                    try:
                        sock.sendto(data, place)
                        sent += 1
                    except OSError as error:
                        failure = reason(error)
                        if error.errno != errno.ECONNREFUSED:
                            return {"sent": sent, "seconds": time.perf_counter() - began, "error": failure}
            return {"sent": sent, "seconds": time.perf_counter() - began, "error": failure}

    def open_incast(self, args: Args) -> Args:
        """Opens ``sockets[address]`` sockets for each peer, as a switch process has one for each rank; returns their ports, by
        peer, and the bytes of buffer that one of them has got."""
        self.close_incast()
        sockets, buffer = args.get("sockets"), whole(args, "buffer", 1, 1 << 30)
        if not isinstance(sockets, dict) or not set(sockets) <= self.peers:
            raise Refused(f"sockets: {sockets!r}, expected a number for each of the servers named at first")
        ports: dict[str, list[int]] = {}
        granted = 0
        for peer in sockets:
            for _ in range(whole(sockets, peer, 1, 256)):
                sock = self.datagrams(buffer)
                self.incast.append((sock, peer))
                granted = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
                ports.setdefault(peer, []).append(sock.getsockname()[1])
        return {"ports": ports, "granted": granted}

    def close_incast(self) -> None:
        while self.incast:
            self.incast.pop()[0].close()

    def run_incast(self, args: Args) -> Args:
        """Lets all peers send a volley at the same time, ``rounds`` times; each volley ends when ``expected`` datagrams are
        there, or none comes any more. Returns how many have arrived, of how many rounds, and the median time of a complete one,
        s."""
        stream, rounds = whole(args, "stream", 1, END), whole(args, "rounds", 1, 1000)
        expected, wait = whole(args, "expected", 1, 1 << 20), real(args, "wait", 0, SECONDS)
        end = time.perf_counter() + real(args, "seconds", 0, SECONDS)
        places: dict[str, tuple[socket.socket, tuple[str, int]]] = {}
        arrived, done, times = 0, 0, []
        peers = {peer for _, peer in self.incast}
        with selectors.DefaultSelector() as selector:
            for sock, peer in self.incast:
                selector.register(sock, selectors.EVENT_READ, (sock, peer))

            def received(timeout: float) -> list[int] | None:
                """Returns the numbers of COUNT datagrams among those that have come, None: none has; notes where HELLO comes
                from."""
                numbers, events = [], selector.select(timeout)
                for key, _ in events:
                    sock, peer = key.data
                    while True:
                        try:
                            data, place = sock.recvfrom(65536, socket.MSG_DONTWAIT)
                        except OSError:  # none is left, or an earlier GO was refused
                            break
                        fields = self.parsed(data, place[0])
                        if fields and place[0] == peer and fields[1] == stream:
                            if fields[0] == HELLO:
                                places.setdefault(peer, (sock, place))
                            elif fields[0] == COUNT:
                                numbers.append(fields[2])
                return numbers if events else None

            def go(number: int) -> None:
                for sock, place in places.values():
                    try:
                        sock.sendto(self.packed(GO, stream, number), place)
                    except OSError:  # nobody there any more: nothing arrives from it
                        continue

            while set(places) != peers and time.perf_counter() < end:
                received(0.1)
            missing = sorted(peers - set(places))
            if not missing:
                for number in range(rounds):
                    if time.perf_counter() > end:
                        break
                    began, own = time.perf_counter(), 0
                    go(number)
                    while own < expected:
                        numbers = received(wait)
                        if numbers is None:
                            break
                        arrived, own = arrived + len(numbers), own + numbers.count(number)
                    done += 1
                    if own >= expected:
                        times.append(time.perf_counter() - began)
            for _ in range(3):
                go(END)
                time.sleep(0.01)
            arrived += len(received(0) or [])
        times.sort()
        return {"arrived": arrived, "rounds": done, "missing": missing, "seconds": times[len(times) // 2] if times else 0.0}

    def volley(self, args: Args) -> Args:
        """Sends ``frames`` datagrams of ``length`` bytes to each of a peer's ``ports`` as often as it says GO; returns how many
        it has sent. Ends when the peer says so, or says nothing for a while."""
        peer, stream = self.peer(args), whole(args, "stream", 1, END)
        places = [(peer, port) for port in wholes(args, "ports", 1, 65535, 256)]
        frames, length = whole(args, "frames", 1, 8192), whole(args, "length", HEAD.size, LONGEST)
        rounds, end = whole(args, "rounds", 1, 1000), time.perf_counter() + real(args, "seconds", 0, SECONDS)
        last, sent, failure, done = -1, 0, "", 0
        with self.datagrams(1 << 23) as sock:
            sock.settimeout(0.05)
            while time.perf_counter() < end:
                try:
                    if last < 0:
                        sock.sendto(self.packed(HELLO, stream), places[0])
                    data, place = sock.recvfrom(65536)
                except socket.timeout:  # noqa: UP041 (it is no TimeoutError before Python 3.10)
                    continue
                except OSError as error:
                    failure = reason(error)
                    time.sleep(0.05)
                    continue
                fields = self.parsed(data, place[0])
                if not fields or place[0] != peer or fields[:2] != [GO, stream]:
                    continue
                if fields[2] == END:
                    break
                if fields[2] > last and done < rounds:
                    last, done = fields[2], done + 1
                    data = self.packed(COUNT, stream, last).ljust(length, b"\0")
                    try:
                        for _ in range(frames):
                            for each in places:
                                sock.sendto(data, each)
                                sent += 1
                    except OSError as error:
                        failure = reason(error)
        return {"sent": sent, "rounds": done, "error": failure}

    COMMANDS: dict[str, Callable[[Agent, Args], Args]] = {
        "expect": expect, "arrived": arrived, "connect": connect, "bulk": bulk, "echo": echo, "ladder": ladder,
        "flood": flood, "open_incast": open_incast, "run_incast": run_incast, "volley": volley,
    }

    def reply(self, line: bytes) -> Args:
        """Carries out one line of the controller; returns the reply."""
        number = None
        try:
            args = json.loads(line)
            if not isinstance(args, dict):
                raise Refused("expected a JSON object")
            number = args.get("id")
            if args.get("do") not in self.COMMANDS:
                raise Refused(f"do: {args.get('do')!r}, expected one of {', '.join(self.COMMANDS)}")
            return {"id": number, "result": self.COMMANDS[args["do"]](self, args)}
        except OSError as error:
            return {"id": number, "failed": reason(error)}
        except (Refused, ValueError, TypeError, RecursionError) as error:
            return {"id": number, "refused": str(error) or type(error).__name__}


def number_in(path: str) -> int:
    """Returns the whole number in a file of the kernel's, or 0."""
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def card(address: str) -> Args:
    """Returns the name, the MTU and the speed, Mb/s (0: unknown), of the interface that has an address, as far as it is known."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                if socket.inet_ntoa(fcntl.ioctl(sock, SIOCGIFADDR, request)[20:24]) == address:
                    mtu = struct.unpack_from("i", fcntl.ioctl(sock, SIOCGIFMTU, request), 16)[0]
                    return {"card": name, "mtu": mtu, "speed": max(0, number_in(f"/sys/class/net/{name}/speed"))}
            except OSError:  # it has no IPv4 address
                continue
    return {"card": "", "mtu": 0, "speed": 0}


def main() -> None:
    """Serves the controller until it ends."""
    out = os.dup(1)
    os.dup2(2, 1)  # no other line gets among the replies

    def say(message: Args) -> None:
        os.write(out, json.dumps(message).encode() + b"\n")

    first = json.loads(sys.stdin.buffer.readline())
    timer = threading.Timer(first["lifetime"], os._exit, (1,))
    timer.daemon = True
    timer.start()
    try:
        agent = Agent(first["address"], first["peers"], bytes.fromhex(first["secret"]))
    except OSError as error:
        say({"agent": {"error": f"cannot listen at {first['address']}: {reason(error)}"}})
        return
    for target in (agent.serve_datagrams, agent.serve_connections):
        threading.Thread(target=target, daemon=True).start()
    say({"agent": {"udp_port": agent.udp.getsockname()[1], "tcp_port": agent.tcp.getsockname()[1],
                   "python": sys.version.split()[0], "rmem_max": number_in("/proc/sys/net/core/rmem_max"),
                   **card(first["address"])}})
    lines: list[bytes] = []
    more = threading.Condition()

    def work() -> None:
        while True:
            with more:
                while not lines:
                    more.wait()
                line = lines.pop(0)
            say(agent.reply(line))

    threading.Thread(target=work, daemon=True).start()
    for line in sys.stdin.buffer:
        with more:
            lines.append(line)
            more.notify()
    os._exit(0)  # the controller has gone: a command that is under way ends, too


if __name__ == "__main__":
    main()
