"""BMv2's simple_switch with a program, in a network namespace of its own, driven by entities and frames.

A thread unshares its network, makes a veth pair for each port and starts the switch and its command-line client there;
sockets opened in that namespace stay in it, so frames can be sent from anywhere. When the thread ends, so do the
processes, and with them the namespace and its interfaces.

`send` needs no waiting time: after a frame, one marker for each port goes in through the same port. Ingress and every
output port are first in, first out, so whatever the frame caused has left a port when that port's marker comes out.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from capabilities import tool
from waiting import LONG, TookTooLong, until

from ina.p4.runtime.entities import MulticastGroupEntry, TableEntry, Update, as_int, insert

CLONE_NEWNET = 0x40000000
SOL_PACKET, PACKET_AUXDATA = 263, 8
VLAN_VALID, VLAN_TYPE_VALID = 0x10, 0x40  # bits of a frame's status (linux/if_packet.h)
MARKER_TYPE = b"\x88\xb5"  # EtherType for local experiments
MARKER_SOURCE = "00:00:00:00:00:00"
BURST = 16  # frames at once: libpcap's ring of 2 MiB has room for 32 of the largest size
SHORTEST = 14  # bytes: a packet socket sends nothing shorter than an Ethernet header


def _listens() -> bool:
    """True if the switch takes commands."""
    try:
        socket.create_connection(("127.0.0.1", 9090), 1).close()
    except OSError:
        return False
    return True


class Bmv2Error(Exception):
    """BMv2 refused a command, or ended."""


class Silent(Bmv2Error, TookTooLong):
    """BMv2 did not answer in time."""


def compile_p4(source: Path, out: Path, **defines: int) -> Path:
    """BMv2's JSON of the program `source`, at `out`. Raises Bmv2Error with the compiler's messages."""
    flags = [f"-D{key}={value}" for key, value in defines.items()]
    process = subprocess.run([tool("INA_P4C", "p4c-bm2-ss"), "--Wdisable=unused", *flags, "-o", out, source],
                             capture_output=True, text=True)
    if process.returncode:
        raise Bmv2Error(f"{source}: {process.stderr}")
    return out


class Bmv2:
    """A running simple_switch with ports 0 .. `ports`-1.

    `marker_table`: an exact table on the Ethernet destination address, `marker_action`: its action that takes a port.
    Without such a table (None) frames go through `exchange`, and the program keeps the entries that it came with.
    """

    def __init__(self, config: Path, ports: int, marker_table: str | None = "l2", marker_action: str = "forward"):
        self.program = json.loads(config.read_text())
        self._markers = (marker_table, marker_action)
        self._guarded = any(t["name"].endswith("forwarding.host") for p in self.program["pipelines"] for t in p["tables"])
        self._tokens = itertools.count(1)
        self._handles: dict[tuple, int] = {}  # of table entries, by (table, match)
        self._nodes: dict[int, dict[tuple[int, int], int]] = {}  # of multicast groups: (port, rid) -> handle
        self._sockets: list[socket.socket] = []
        self._switch = self._cli = None
        self._folder, self._log = tempfile.TemporaryDirectory(prefix="bmv2-"), tempfile.TemporaryFile()
        self._output = b""
        self._closing, started, problem = threading.Event(), threading.Event(), []

        def home():
            try:
                self._start(config, ports)
            except Exception as error:
                problem.append(error)
            started.set()
            self._closing.wait()

        self._thread = threading.Thread(target=home, name="bmv2", daemon=True)
        self._thread.start()
        started.wait()
        if problem:
            self.close()
            raise problem[0]
        self.active: list[int] = []
        if marker_table is not None:
            self.reset()

    def __enter__(self) -> Bmv2:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in (self._cli, self._switch):
            if process is not None:
                process.send_signal(signal.SIGKILL)
                process.wait(LONG)
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        pipe.close()
        for s in self._sockets:
            s.close()
        self._sockets, self._switch, self._cli = [], None, None
        self._closing.set()
        self._log.close()
        self._folder.cleanup()

    def _start(self, config: Path, ports: int) -> None:
        """Runs in the thread that owns the namespace."""
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot make a network namespace")
        for scope in ("all", "default"):  # no neighbour discovery of the kernel among the frames
            switch = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
            if switch.exists():
                switch.write_text("1")
        lines = ["link set lo up"]
        for i in range(ports):
            lines.append(f"link add h{i} mtu 9500 type veth peer name s{i} mtu 9500")
            lines += [f"link set h{i} up", f"link set s{i} up"]
        subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True, capture_output=True)
        for i in range(ports):
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
            self._sockets.append(s)
            s.setsockopt(SOL_PACKET, 23, 1)  # PACKET_IGNORE_OUTGOING
            s.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            s.bind((f"h{i}", 0))
            s.setblocking(False)
        alone = ["setpriv", "--pdeathsig", "KILL"]
        interfaces = [part for i in range(ports) for part in ("-i", f"{i}@s{i}")]
        options = ["--log-file", "/dev/null", "-L", "off", "--thrift-port", "9090", *interfaces]
        switch = tool("INA_SIMPLE_SWITCH", "simple_switch")
        if "--notifications-addr" in subprocess.run([switch, "--help"], capture_output=True, text=True).stdout:
            # A build with nanomsg: its default is a file of the device id's in /tmp, which two switches would both bind.
            options += ["--notifications-addr", f"ipc://{self._folder.name}/notifications"]
        streams = {"stdin": subprocess.DEVNULL, "stdout": self._log, "stderr": subprocess.STDOUT}
        self._switch = subprocess.Popen([*alone, switch, *options, str(config)], **streams)
        until(lambda: _listens() or self._switch.poll() is not None, f"simple_switch to start with {config}")
        if self._switch.poll() is not None:
            self._log.seek(0)
            log = self._log.read().decode(errors="replace")[-2000:]
            raise Bmv2Error(f"simple_switch did not start with {config} (exit {self._switch.poll()}): {log}")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._cli = subprocess.Popen(
            [*alone, tool("INA_SIMPLE_SWITCH_CLI", "simple_switch_CLI"), "--thrift-port", "9090"],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            **pipes,
        )

    @property
    def alive(self) -> bool:
        return self._switch is not None and self._switch.poll() is None

    # ---- control plane

    def command(self, *lines: str) -> str:
        """Output of the switch's client for these commands."""
        token = f"end{next(self._tokens)}"
        self._cli.stdin.write(("\n".join([*lines, token]) + "\n").encode())
        self._cli.stdin.flush()
        stop, end = f"*** Unknown syntax: {token}\n".encode(), time.monotonic() + LONG
        while stop not in self._output:
            ready, _, _ = select.select([self._cli.stdout], [], [], max(0.0, end - time.monotonic()))
            more = os.read(self._cli.stdout.fileno(), 1 << 16) if ready else b""
            if not more:
                error = Bmv2Error if ready else Silent
                raise error(f"simple_switch_CLI: no answer to {lines}: {self._output.decode()[-500:]}")
            self._output += more
        text, _, self._output = self._output.partition(stop)
        return text.decode().replace("RuntimeCmd: ", "")

    def _number(self, pattern: str, line: str) -> int:
        text = self.command(line)
        match = re.search(pattern, text)
        if not match:
            raise Bmv2Error(f"{line}: {text.strip()}")
        return int(match[1])

    def reset(self, ports: int = 0) -> None:
        """Restores the initial state: no entries, registers and counters zero. Markers go to ports 0 .. `ports`-1."""
        self.command("reset_state")
        self._handles, self._nodes, self.active = {}, {}, []
        self.activate(range(ports))

    def activate(self, ports: range | list[int]) -> None:
        """Adds these ports to those that `send` watches."""
        table, action = self._markers
        for port in ports:
            if port not in self.active:
                self._empty(self._sockets[port])
                self._number(r"handle (-?\d+)", f"table_add {table} {action} {_marker_address(port).hex(':')} => {port}")
                if self._guarded:
                    here = {"standard.ingress_port": port, "hdr.ethernet.src_addr": MARKER_SOURCE, "source": 0}
                    self.write(insert(TableEntry("host", here, "is_here")))
                self.active.append(port)

    @staticmethod
    def _empty(inlet: socket.socket) -> None:
        """Discards the frames of a port that was not watched."""
        while select.select([inlet], [], [], 0)[0]:
            inlet.recv(1 << 16)

    def write(self, updates: list[Update]) -> None:
        for update in updates:
            entity = update.entity
            if isinstance(entity, TableEntry):
                self._write_entry(update.type, entity)
            elif isinstance(entity, MulticastGroupEntry):
                self._write_group(update.type, entity)
            else:
                raise Bmv2Error(f"{entity}: only table entries and multicast groups can be written")

    def _write_entry(self, kind: str, entry: TableEntry) -> None:
        table = _named(t for p in self.program["pipelines"] for t in p["tables"])(str(entry.table))
        if entry.is_default:
            text = self.command(f"table_set_default {table['name']} {_named(self.program['actions'])(str(entry.action))['name']}")
            if "Invalid" in text:
                raise Bmv2Error(text)
            return
        match = tuple(as_int(entry.match[key["name"]], 64, key["name"]) for key in table["key"])
        if kind == "DELETE":
            text = self.command(f"table_delete {table['name']} {self._handles.pop((table['name'], match))}")
            if "Invalid" in text:
                raise Bmv2Error(text)
            return
        action = _named(self.program["actions"])(str(entry.action))
        params = " ".join(str(as_int(entry.params[p["name"]], 64, p["name"])) for p in action["runtime_data"])
        names = f"{table['name']} {action['name']}"
        if kind == "MODIFY":
            text = self.command(f"table_modify {names} {self._handles[table['name'], match]} {params}")
            if "Invalid" in text:
                raise Bmv2Error(text)
            return
        line = f"table_add {names} {' '.join(map(str, match))} => {params}"
        self._handles[table["name"], match] = self._number(r"handle (-?\d+)", line)

    def _write_group(self, kind: str, group: MulticastGroupEntry) -> None:
        number = group.group_id
        if kind == "INSERT":
            self.command(f"mc_mgrp_create {number}")
            self._nodes[number] = {}
        old, new = self._nodes[number], {(r.port, r.rid) for r in group.replicas} if kind != "DELETE" else set()
        for replica in sorted(set(old) - new):
            node = old.pop(replica)
            self.command(f"mc_node_dissociate {number} {node}", f"mc_node_destroy {node}")
        for port, rid in sorted(new - set(old)):
            old[port, rid] = self._number(r"handle (-?\d+)", f"mc_node_create {rid} {port}")
            self.command(f"mc_node_associate {number} {old[port, rid]}")
        if kind == "DELETE":
            self.command(f"mc_mgrp_destroy {number}")
            del self._nodes[number]

    def counter(self, name: str, size: int) -> list[int]:
        """Packets counted in cells 0 .. `size`-1."""
        text = self.command(*(f"counter_read {name} {i}" for i in range(size)))
        cells = re.findall(r"\[(\d+)\]=\s*\((\d+) bytes, (\d+) packets\)", text)
        if [int(i) for i, _, _ in cells] != list(range(size)):
            raise Bmv2Error(f"counter {name}: {text}")
        return [int(packets) for _, _, packets in cells]

    # ---- data plane

    def exchange(self, frame: bytes, port: int, count: int, patience: float = LONG) -> list[tuple[int, bytes]]:
        """Sends a frame, then receives `count` frames from any ports, fewer after `patience` seconds."""
        if frame:
            self._sockets[port].send(frame)
        frames, end = [], time.monotonic() + patience
        while len(frames) < count:
            ready, _, _ = select.select(self._sockets, [], [], max(0.0, end - time.monotonic()))
            if not ready:
                break
            frames += [(self._sockets.index(s), receive(s)) for s in ready]
        return frames

    def send(self, frame: bytes, port: int) -> list[tuple[int, bytes]]:
        """Frames that come out of active ports because `frame` went into `port`, by port and in their order there."""
        inlet = self._sockets[port]
        inlet.send(frame)
        frames: dict[int, list[bytes]] = {out: [] for out in self.active}
        for i in range(0, len(self.active), BURST):
            self._drain(inlet, set(self.active[i : i + BURST]), frames)
        return [(out, data) for out in sorted(frames) for data in frames[out]]

    def _drain(self, inlet: socket.socket, waiting: set[int], frames: dict[int, list[bytes]]) -> None:
        """Sends a marker to each port of `waiting` and collects the frames that leave there before it."""
        token, end = next(self._tokens).to_bytes(8, "big"), time.monotonic() + LONG
        for out in waiting:
            inlet.send(_marker_address(out) + bytes.fromhex(MARKER_SOURCE.replace(':', '')) + MARKER_TYPE + token)
        while waiting:
            ready, _, _ = select.select([self._sockets[p] for p in waiting], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                state = self._switch.poll()
                message = f"no marker out of ports {sorted(waiting)} within {LONG:g} s; switch's exit: {state}"
                raise Silent(message) if state is None else Bmv2Error(message)
            for out in [p for p in waiting if self._sockets[p] in ready]:
                data = receive(self._sockets[out])
                if data[12:14] == MARKER_TYPE and data[14:22] == token:
                    waiting.discard(out)
                else:
                    frames[out].append(data)


def receive(inlet: socket.socket) -> bytes:
    """A frame as it was on the wire: the kernel strips VLAN tags and reports them separately (packet(7), PACKET_AUXDATA)."""
    data, extra, _, _ = inlet.recvmsg(1 << 16, socket.CMSG_SPACE(20))
    for level, kind, value in extra:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, _, _, _, _, tag, type_ = struct.unpack("=IIIHHHH", value[:20])
            if status & VLAN_VALID:
                type_ = type_ if status & VLAN_TYPE_VALID else 0x8100
                data = data[:12] + struct.pack("!HH", type_, tag) + data[12:]
    return data


def _marker_address(port: int) -> bytes:
    return b"\x02\xbe\xef\x00\x00" + bytes([port])


def _named(objects):
    """Returns a function that finds one of `objects` by its name or a suffix of it."""
    candidates = list(objects)

    def find(name: str) -> dict:
        matches = [o for o in candidates if o["name"] == name or o["name"].endswith("." + name)]
        if len(matches) != 1:
            raise Bmv2Error(f"{name!r} names {len(matches)} objects of the program")
        return matches[0]

    return find
