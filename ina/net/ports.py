"""Ports: frames in and out of a world, from the Ethernet header on (``host/net/port.h``).

A :class:`Port` owns a port of the compiled part. Switches and endpoints drive ports in C; :meth:`Port.send` and
:meth:`Port.receive` copy frames as ``bytes`` and are for tests and tools. Times are seconds here, picoseconds in C.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ina.base.closing import Closing
from ina.base.native import CData, checked, ffi, lib

PS = 10**12  # picoseconds in a second
MIN_FRAME: int = lib.INA_PORT_MIN_FRAME
MAX_FRAME: int = lib.INA_PORT_MAX_FRAME
TAG: int = lib.INA_TAG_SIZE  # bytes behind the payload of a frame
_NEVER = 2**64 - 1
_BATCH = 64
SO_MEMINFO = 55  # Linux's value; the module socket lacks it


@dataclass(frozen=True)
class Faults:
    """Seeded faults of one direction. Probabilities are per packet; delays are seconds, drawn uniformly up to these.

    The same seed loses the same packets; a packet lost at a lower probability is lost at a higher one too.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    duplicate_delay: float = 0.0
    reorder_delay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder", "corrupt"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"faults: {name} is {getattr(self, name)!r}, expected a probability from 0 to 1")
        for name in ("duplicate_delay", "reorder_delay"):
            if not 0 <= getattr(self, name) < 1e6:
                raise ValueError(f"faults: {name} is {getattr(self, name)!r}, expected seconds from 0 to 10^6")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"faults: seed is {self.seed!r}, expected an unsigned 64-bit integer")

    def native(self) -> CData:
        """The ``struct ina_fault_config *`` of the compiled part."""
        return ffi.new(
            "struct ina_fault_config *",
            {
                "loss": self.loss,
                "duplicate": self.duplicate,
                "reorder": self.reorder,
                "corrupt": self.corrupt,
                "duplicate_delay_ps": round(self.duplicate_delay * PS),
                "reorder_delay_ps": round(self.reorder_delay * PS),
                "seed": self.seed,
            },
        )


@dataclass(frozen=True)
class FaultCounts:
    """Counters of a direction with faults; ``overflow``: frames lost because too many were delayed at once."""

    packets: int
    lost: int
    duplicated: int
    reordered: int
    corrupted: int
    overflow: int


@dataclass(frozen=True)
class CaptureCounts:
    """Frames ``captured`` in the file and ``missed`` after ``error`` (an errno, 0: none) stopped the capture."""

    captured: int
    missed: int
    error: int


@dataclass(frozen=True)
class LinkCounts:
    """Counters of a link in front of a port: frames and bytes (with Ethernet's overhead) transmitted, frames that found the queue
    full, seconds spent serialising, longest queue in bytes."""

    packets: int
    bytes: int
    tail_drops: int
    busy: float
    max_queue: int


@dataclass(frozen=True)
class Address:
    """Layers 2 to 4 of one end of a UDP flow."""

    mac: str
    ip: str
    port: int


def _overrun(fd: int) -> int:
    """Returns how many packets the socket has dropped: the last word of SO_MEMINFO (socket(7), linux/sock_diag.h)."""
    with socket.socket(fileno=os.dup(fd)) as sock:
        words: tuple[int, ...] = struct.unpack("9I", sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))
        return words[8]


class Port(Closing):
    """One end of a link to the world. Close it, or use it as a context manager; one thread drives it at a time."""

    def __init__(self, handle: CData, name: str) -> None:
        self.name = name
        self._handle: CData | None = handle
        self._wrappers: dict[str, CData] = {}  # by what they add
        self._board: CData | None = None

    @property
    def handle(self) -> CData:
        """``struct ina_port *``, outermost wrapper first. ValueError after close or release."""
        if self._handle is None:
            raise ValueError(f"port {self.name} is closed")
        return self._handle

    @property
    def max_frame(self) -> int:
        """Longest frame, bytes."""
        return int(self.handle.max_frame)

    def fileno(self) -> int:
        """Returns a descriptor that is readable when frames wait and the port was armed."""
        return int(self.handle.fd)

    @property
    def stats(self) -> dict[str, int]:
        """Counters by name, see ``struct ina_port_stats``; of a port over a socket also ``rx_overrun``: messages that the
        kernel dropped because its buffer was full. Each was a frame; on a UDP port it may have been several, joined."""
        stats = self.handle.stats
        counters = {name: getattr(stats, name) for name, _ in ffi.typeof(stats).fields}
        if self.handle.fd >= 0 and not self.handle.bell:
            counters["rx_overrun"] = _overrun(self.handle.fd)
        return counters

    # ---- wrappers ----------------------------------------------------------------------------------------------

    def _wrap(self, kind: str, wrapped: CData, title: str) -> Port:
        """Makes a wrapper the port's handle. Raises OSError: there is none."""
        self._handle = self._wrappers[kind] = _opened(wrapped, f"port {self.name}: {title}")
        return self

    def _wrapper(self, kind: str) -> CData:
        if self._handle is None or kind not in self._wrappers:
            raise ValueError(f"port {self.name} has no {kind}: call with_{kind} first")
        return self._wrappers[kind]

    def with_faults(self, rx: Faults | None = None, tx: Faults | None = None, held: int = 4096) -> Port:
        """Applies faults to frames that this port receives and sends; at most ``held`` are delayed at once per direction."""
        configs = [faults.native() if faults else ffi.NULL for faults in (rx, tx)]
        wrapped = lib.ina_port_fault_wrap(self.handle, configs[0], configs[1], held)
        return self._wrap("faults", wrapped, f"faults with held={held} (1 to 65536 frames)")

    def with_tags(self, rx: bytes, tx: bytes) -> Port:
        """Adds a tag to each frame that this port sends, and drops received ones without a right one (host/net/tag.h). ``rx``,
        ``tx``: the key of each direction, 16 bytes, with which nobody has sent frames before. Frames are 16 bytes shorter.
        Raises ValueError, OSError.
        """
        for key in (rx, tx):
            if len(key) != lib.INA_TAG_KEY:
                raise ValueError(f"port {self.name}: a key of {len(key)} bytes, expected {lib.INA_TAG_KEY}")
        least = MIN_FRAME + TAG
        wrapped = lib.ina_port_tag_wrap(self.handle, rx, tx)
        return self._wrap("tags", wrapped, f"frames of {self.max_frame} bytes; tags need frames of {least} bytes or more")

    @property
    def tags(self) -> dict[str, int]:
        """Received frames that were dropped since :meth:`with_tags`: ``forged``, without a right tag; ``replayed``, with one that
        was taken before. {}: frames have no tags. ValueError after close or release."""
        stats = self.handle.stats  # the outermost port's, which has those below it
        if "tags" not in self._wrappers:
            return {}
        return {"forged": stats.rx_forged, "replayed": stats.rx_replayed}

    def with_link(self, rate: float, delay: float = 0.0, queue: int = 0) -> Port:
        """Puts a link in front of the receive side: bit/s (0: infinite), seconds, bytes of queue (0: no limit)."""
        config = {"rate_bps": round(rate), "delay_ps": round(delay * PS), "queue_bytes": queue, "ecn_bytes": 0}
        wrapped = lib.ina_port_link_wrap(self.handle, ffi.new("struct ina_link_config *", config))
        return self._wrap("link", wrapped, f"a link of {rate:g} bit/s")

    def set_link(self, rate: float, delay: float) -> None:
        """Changes rate and delay of the link of :meth:`with_link`, for frames that come from now on."""
        lib.ina_port_link_set(self._wrapper("link"), round(rate), round(delay * PS))

    def with_probes(self, board: memoryview, session: int, link: int, side: int) -> Port:
        """Makes this port side ``side`` of link ``link``, which is watched and can be cut (host/net/port_probe.h). ``board``: its
        words, in memory that stays until the port is closed. ``session``: the same at both ends."""
        config = ffi.new("struct ina_probe_config *", {"session": session, "link": link, "side": side})
        words = ffi.from_buffer("struct ina_probe_board *", board)
        self._wrap("probes", lib.ina_port_probe_wrap(self.handle, config, words), "probes")
        self._board = words  # which keeps the memory
        return self

    @property
    def link(self) -> LinkCounts:
        """Counters of the link since :meth:`with_link`."""
        stats = ffi.new("struct ina_link_stats *")
        lib.ina_port_link_report(self._wrapper("link"), stats)
        return LinkCounts(stats.packets, stats.bytes, stats.tail_drops, stats.busy_ps / PS, stats.max_queue_bytes)

    def with_capture(self, path: str | Path) -> Port:
        """Captures every frame, both directions, into a nanosecond pcap file at ``path``."""
        wrapped = lib.ina_port_pcap_wrap(self.handle, os.fsencode(path))
        if wrapped == ffi.NULL:
            raise OSError(ffi.errno, f"port {self.name}: cannot capture: {os.strerror(ffi.errno)}", str(path))
        self._handle = self._wrappers["capture"] = wrapped
        return self

    @property
    def faults(self) -> dict[str, FaultCounts]:
        """Counters of ``rx`` and ``tx`` faults since :meth:`with_faults`."""
        report = ffi.new("struct ina_fault_report *")
        lib.ina_port_fault_report(self._wrapper("faults"), report)
        return {
            side: FaultCounts(f.packets, f.lost, f.duplicated, f.reordered, f.corrupted, overflow)
            for side, f, overflow in (
                ("rx", report.rx, report.rx_overflow),
                ("tx", report.tx, report.tx_overflow),
            )
        }

    @property
    def capture(self) -> CaptureCounts:
        """State of the capture; a full disk stops it (``error`` is ENOSPC) and not the traffic."""
        report = ffi.new("struct ina_pcap_report *")
        lib.ina_port_pcap_report(self._wrapper("capture"), report)
        return CaptureCounts(report.captured, report.missed, report.error)

    # ---- frames ------------------------------------------------------------------------------------------------

    def send(self, frames: Iterable[bytes], now: int | None = None) -> int:
        """Sends frames in order; returns how many found room. ``now``: picoseconds, default the wall clock."""
        frames = list(frames)
        for i, frame in enumerate(frames):
            if not 0 < len(frame) <= self.max_frame:
                raise ValueError(f"port {self.name}: frame {i} has {len(frame)} bytes, expected 1 to {self.max_frame}")
        pkts, sent = ffi.new("struct ina_packet[]", _BATCH), 0
        while sent < len(frames):
            batch = frames[sent : sent + _BATCH]
            room = lib.ina_port_tx_get(self.handle, pkts, len(batch))
            for pkt, frame in zip(pkts[0:room], batch, strict=False):
                ffi.memmove(pkt.data, frame, len(frame))
                pkt.len = pkt.wire_len = len(frame)
            lib.ina_port_tx_put(self.handle, pkts, room, _time(now))
            sent += room
            if room < len(batch):
                break
        return sent

    def receive(self, limit: int = 1024, now: int | None = None) -> list[bytes]:
        """Returns waiting frames, at most ``limit``, oldest first. Never blocks: :meth:`wait` does."""
        pkts = ffi.new("struct ina_packet[]", _BATCH)
        frames: list[bytes] = []
        while len(frames) < limit:
            n = lib.ina_port_rx(self.handle, pkts, min(_BATCH, limit - len(frames)), _time(now))
            frames += [bytes(ffi.buffer(pkt.data, pkt.len)) for pkt in pkts[0:n]]
            lib.ina_port_rx_done(self.handle, n)
            if not n:
                break
        return frames

    def wait(self, timeout: float) -> bool:
        """Sleeps until there may be frames to receive (True) or ``timeout`` seconds are over (False)."""
        return bool(checked(lib.ina_port_wait(self.handle, round(timeout * PS)), f"port {self.name}: cannot wait"))

    def arm(self) -> bool:
        """Asks the peer to ring. True: frames wait already, do not sleep."""
        return bool(lib.ina_port_arm(self.handle))

    def drain(self) -> None:
        """Silences the bell after it has woken its owner."""
        lib.ina_port_drain(self.handle)

    def next_due(self) -> int | None:
        """Returns when a delayed frame is due, in picoseconds, or None."""
        due = lib.ina_port_next_due(self.handle)
        return None if due == _NEVER else due

    # ---- end ---------------------------------------------------------------------------------------------------

    def release(self) -> CData:
        """Hands the ``struct ina_port *`` to a caller who closes it from now on."""
        handle, self._handle = self.handle, None
        return handle

    def close(self) -> None:
        """Releases memory, sockets and files, and drops delayed frames. A second call does nothing."""
        if self._handle is not None:
            lib.ina_port_close(self.release())


# ---- opening ---------------------------------------------------------------------------------------------------


def memory_pair(frames: int = 256, max_frame: int = 2048) -> tuple[Port, Port]:
    """Returns two ports of this process, connected to each other. ``frames``: per direction, a power of two."""
    _check_ring(frames, max_frame)
    pair = ffi.new("struct ina_port *[2]")
    checked(lib.ina_port_mem_pair(frames, max_frame, pair), "cannot open a pair of memory ports")
    return Port(pair[0], "memory 0"), Port(pair[1], "memory 1")


def create_segment(frames: int = 256, max_frame: int = 2048) -> int:
    """Creates shared memory for two ports: a sealed memfd, which has no name and which the caller closes."""
    _check_ring(frames, max_frame)
    return checked(lib.ina_shm_create(frames, max_frame), "cannot create shared memory for a port")


class Bells(NamedTuple):
    """Descriptors that wake the two sides of a segment (host/net/bell.h); the caller closes all three."""

    of_switch: int
    to_host: int
    of_host: int

    def of(self, side: int) -> tuple[int, int]:
        """Returns :func:`open_shared`'s two bells for ``side`` (0: switch, 1: host): the one that wakes it, and the peer's."""
        return (self.of_host, self.of_switch) if side else (self.of_switch, self.to_host)

    def close(self) -> None:
        for fd in self:
            os.close(fd)


def create_bells() -> Bells:
    """Creates bells for two ports on one segment. Raises OSError."""
    bells = ffi.new("struct ina_bells *")
    checked(lib.ina_bells_create(bells), "cannot create bells for a port")
    return Bells(bells.of_switch, bells.to_host, bells.of_host)


def open_shared(memfd: int, side: int, bell: int = -1, peer_bell: int = -1) -> Port:
    """Opens the port on one side (0: switch, 1: host) of a segment. The caller keeps its descriptors and may close them."""
    if side not in (0, 1):
        raise ValueError(f"shared-memory port: side is {side!r}, expected 0 (switch) or 1 (host)")
    handle = lib.ina_port_shm_open(memfd, side, bell, peer_bell)
    if handle == ffi.NULL:
        if ffi.errno == errno.EPROTO:
            raise OSError(
                errno.EPROTO,
                "shared-memory port: the descriptor is no sealed segment of this version; "
                "do switch and worker run the same version of ina?",
            )
        if ffi.errno in (errno.EOPNOTSUPP, errno.ENOTSOCK, errno.EINVAL):
            raise OSError(ffi.errno, f"shared-memory port: descriptor {bell} is not the bell of side {side}, or this kernel is "
                                     "older than Linux 5.8")
    return Port(_opened(handle, "shared-memory port: cannot open"), f"shared memory side {side}")


class UdpPort(Port):
    """A port over a UDP socket."""

    def __init__(self, handle: CData, name: str) -> None:
        super().__init__(handle, name)
        self._socket = handle  # without wrappers

    def number_jobs(self, job_byte: int) -> None:
        """Adds the byte at ``job_byte`` of each received payload, the number of its job, to the source port that the frame gets;
        0: none. Not while a switch runs with this port."""
        if self._handle is None:
            raise ValueError(f"port {self.name} is closed")
        lib.ina_port_udp_jobs(self._socket, job_byte)


def open_udp(
    bind: tuple[str, int],
    peer: tuple[str, int],
    source: Address,
    destination: Address,
    max_frame: int = 2048,
    frames: int = 256,
) -> UdpPort:
    """Opens a port over a UDP socket at ``bind`` (port 0: any) that receives from ``peer`` only.

    Received frames carry ``source`` and ``destination`` in their headers. ``frames``: longest batch.
    """
    config = _udp_config(source, destination, max_frame, frames) | {
        "bind_ip": _ip(bind[0]), "bind_port": _port(bind[1]), "peer_ip": _ip(peer[0]), "peer_port": _port(peer[1])}
    handle = _opened(lib.ina_port_udp_open(ffi.new("struct ina_udp_config *", config)),
                     f"UDP port: cannot bind {bind[0]}:{bind[1]} for the peer {peer[0]}:{peer[1]}")
    return UdpPort(handle, f"udp:{bind[0]}:{lib.ina_port_udp_bound(handle)}")


def udp_pair() -> tuple[int, int]:
    """Returns two UDP sockets on loopback that receive from each other only; the caller closes them. Raises OSError."""
    fds = ffi.new("int[2]")
    checked(lib.ina_udp_pair(fds), "cannot make UDP sockets on loopback")
    return fds[0], fds[1]


def adopt_udp(fd: int, source: Address, destination: Address, max_frame: int = 2048, frames: int = 256) -> UdpPort:
    """Opens a port like :func:`open_udp`, over a socket that is connected to its peer, such as one of a :func:`udp_pair`. The
    caller keeps its descriptor and may close it."""
    config = _udp_config(source, destination, max_frame, frames)
    handle = _opened(lib.ina_port_udp_adopt(ffi.new("struct ina_udp_config *", config), fd),
                     f"UDP port: descriptor {fd} is no connected UDP socket")
    return UdpPort(handle, f"UDP {lib.ina_port_udp_bound(handle)}")


def _udp_config(source: Address, destination: Address, max_frame: int, frames: int) -> dict[str, object]:
    if not MIN_FRAME <= max_frame <= MAX_FRAME:
        raise ValueError(f"UDP port: max_frame is {max_frame}, expected {MIN_FRAME} to {MAX_FRAME}")
    if not 1 <= frames <= 4096:
        raise ValueError(f"UDP port: frames is {frames}, expected 1 to 4096")
    config: dict[str, object] = {"max_frame": max_frame, "frames": frames}
    for prefix, address in (("src", source), ("dst", destination)):
        config |= {
            f"{prefix}_ip": _ip(address.ip),
            f"{prefix}_port": _port(address.port),
            f"{prefix}_mac": _mac(address.mac),
        }
    return config


def longest_frame(mtu: int) -> int:
    """Returns the longest frame of an interface with that MTU, in bytes: with its header and a VLAN tag, 18 bytes."""
    return min(mtu + 18, MAX_FRAME)


def open_packet(interface: str, max_frame: int = 1518, frames: int = 256) -> Port:
    """Opens a port over a network interface (AF_PACKET): it receives every frame. ``frames``: lent per direction.

    ``max_frame``: ``longest_frame`` of the interface's MTU, or less; longer frames are counted as malformed. What is sent passes
    no queueing discipline (tc). Received frames have the checksums that their senders left to the hardware, which on a veth is
    none: ``ethtool -K IF tx off`` at the other end. Needs root.
    """
    if not MIN_FRAME <= max_frame <= MAX_FRAME:
        raise ValueError(f"port {interface}: max_frame is {max_frame}, expected {MIN_FRAME} to {MAX_FRAME}")
    if not 1 <= frames <= 4096:
        raise ValueError(f"port {interface}: frames is {frames}, expected 1 to 4096")
    handle = lib.ina_port_packet_open(interface.encode(), max_frame, frames)
    return Port(_opened(handle, f"port {interface}: cannot open a packet socket there"), interface)


def bound_port(port: Port) -> int:
    """Returns the UDP port number at which a port from :func:`open_udp` receives."""
    return lib.ina_port_udp_bound(port.handle)


def _opened(handle: CData, title: str) -> CData:
    """Returns a port of the compiled part. Raises OSError: it could not be opened."""
    if handle == ffi.NULL:
        raise OSError(ffi.errno, f"{title}: {os.strerror(ffi.errno)}")
    return handle


def _check_ring(frames: int, max_frame: int) -> None:
    if not 1 <= frames <= lib.INA_PORT_MAX_FRAMES or frames & (frames - 1):
        raise ValueError(f"port: frames is {frames}, expected a power of two up to {lib.INA_PORT_MAX_FRAMES}")
    if not MIN_FRAME <= max_frame <= MAX_FRAME:
        raise ValueError(f"port: max_frame is {max_frame}, expected {MIN_FRAME} to {MAX_FRAME} bytes")


def _time(now: int | None) -> int:
    return lib.ina_now() if now is None else now


def _ip(text: str) -> int:
    try:
        return int(ipaddress.IPv4Address(text))
    except ipaddress.AddressValueError as error:
        raise ValueError(f"UDP port: {text!r} is no IPv4 address, expected four numbers such as 127.0.0.1") from error


def _port(number: int) -> int:
    if not 0 <= number <= 0xFFFF:
        raise ValueError(f"UDP port: port number is {number!r}, expected 0 to 65535")
    return number


def _mac(text: str) -> list[int]:
    try:
        mac = list(bytes.fromhex(text.replace(":", "")))
    except ValueError:
        mac = []
    if len(mac) != 6:
        raise ValueError(f"UDP port: {text!r} is no MAC address, expected six bytes such as 02:00:00:00:ff:fe")
    return mac
