"""DPDK: ports over Ethernet devices that DPDK drives (``host/dpdk/dpdk.h``).

    dpdk.start(["--no-huge", "-m", "256", "--no-pci"])        # EAL, once in a process; its own arguments
    with dpdk.Pool(4096, max_frame=1100) as pool, dpdk.open_device("net_memif0,role=client,socket=/run/ina.sock", pool) as device:
        port = device.port()                                  # a Port as any other

The library is compiled when it is first needed, against the DPDK that pkg-config finds, and cached under a hash of its sources
and flags; nothing else of ina needs or links DPDK.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cffi import FFI

from ina.base import abi, manifest, paths
from ina.base.closing import Closing
from ina.base.native import CData
from ina.base.native import ffi as native
from ina.net.ports import MAX_FRAME, MIN_FRAME, Port

INSTALL = "install DPDK 22.11 or newer with its headers (Debian and Ubuntu: apt install dpdk dpdk-dev libdpdk-dev pkg-config)"
PCI = re.compile(r"^([0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7](,|$)")
RING = 9  # log2 of the frames in a ring of memif: four jobs' windows; longer rings would not fit into the caches
_ERROR = 512


class DpdkError(OSError):
    """DPDK is missing, or refuses an operation; the text says why and what to do."""


# ---- the library ---------------------------------------------------------------------------------------------------


def missing() -> str:
    """Returns why this machine cannot build and load the library; "" where pkg-config finds it."""
    if not shutil.which("pkg-config"):
        return f"there is no pkg-config: {INSTALL}"
    process = subprocess.run(["pkg-config", "--atleast-version=22.11", "libdpdk"], capture_output=True, text=True)
    if process.returncode:
        return f"pkg-config finds no libdpdk of 22.11 or newer: {INSTALL}"
    return ""


def flags(option: str) -> list[str]:
    """Returns the output of pkg-config for libdpdk: ``--cflags`` or ``--libs``. Raises DpdkError."""
    if reason := missing():
        raise DpdkError(f"dpdk: {reason}")
    words = subprocess.run(["pkg-config", option, "libdpdk"], capture_output=True, text=True, check=True).stdout.split()
    # pkg-config does not list drivers whose functions we call, such as this one.
    return words + ["-lrte_net_ring"] if option == "--libs" else words


def sources() -> list[Path]:
    return manifest.files("dpdk")


def build() -> Path:
    """Returns the shared object, compiled unless it is in the cache. Raises DpdkError with the compiler's output."""
    from ina.base.cc import BuildError, shared_object

    march = os.environ.get("INA_MARCH", "native")
    extra = os.environ.get("INA_CFLAGS", "").split()
    command = ["-std=gnu11", "-O3", "-g1", "-Wall", "-Wextra", "-Wno-unused-parameter", *flags("--cflags"), f"-march={march}",
               *extra, *(f"-I{folder}" for folder in paths.host_dirs())]
    version = subprocess.run(["pkg-config", "--modversion", "libdpdk"], capture_output=True, text=True).stdout.strip()
    try:
        return shared_object("dpdk", command, sources(), flags("--libs"), also=version + abi.made_with())
    except ValueError as error:
        raise DpdkError(f"dpdk: {error}") from error
    except BuildError as error:
        raise DpdkError(f"dpdk: host/dpdk does not compile against DPDK {version}: {error}") from error


ffi = FFI()


@functools.cache
def library() -> Any:
    """Returns the functions of host/dpdk/dpdk.h: the library, loaded. Raises DpdkError."""
    (header,) = manifest.listed(["host/dpdk/dpdk.h"])
    ffi.cdef("\n".join(line for line in header.read_text().splitlines() if not line.startswith("#")))
    path = build()
    try:
        return ffi.dlopen(str(path))
    except OSError as error:
        raise DpdkError(f"dpdk: {path} does not load: {error}; {INSTALL}") from error


# ---- the environment -----------------------------------------------------------------------------------------------

_started: list[str] | None = None


def start(arguments: Sequence[str]) -> int:
    """Starts EAL with its own command line; returns how many of ``arguments`` it took. Raises DpdkError.

    Once in a process: later calls with the same arguments do nothing, with others they are errors.
    """
    global _started
    lib = library()
    if _started is not None:
        if list(arguments) != _started:
            raise DpdkError(f"dpdk: EAL runs already in this process with {' '.join(_started)!r}; it cannot be started again "
                            f"with {' '.join(arguments)!r}")
        return len(_started)
    argv = [ffi.new("char[]", text.encode()) for text in ("ina", *arguments)]
    error = ffi.new("char[]", _ERROR)
    count: int = lib.ina_dpdk_init(len(argv), ffi.new("char *[]", argv), error, _ERROR)
    if count < 0:
        raise DpdkError(f"dpdk: {_text(error)} (arguments: {' '.join(arguments) or 'none'}; what it says of it stands above)")
    _started = list(arguments)
    return count


def arguments(devices: Sequence[str], megabytes: int) -> list[str]:
    """Returns EAL's default command line: huge pages if enough are free, of PCI only the ``devices``, one lcore.

    ``megabytes``: memory of pools and devices' queues.
    """
    pci = [device.partition(",")[0] for device in devices if PCI.match(device)]
    allowed = [word for address in pci for word in ("-a", address)] or ["--no-pci"]
    return [*memory(megabytes), *allowed, "-l", str(min(os.sched_getaffinity(0))), "--no-telemetry", "--log-level", "error"]


def memory(megabytes: int) -> list[str]:
    """Returns EAL's arguments for so much memory: in huge pages if as many are free."""
    if free_huge_pages() >= megabytes:
        return ["--in-memory", "--single-file-segments", "-m", str(megabytes)]
    return ["--no-huge", "-m", str(megabytes), "--no-shconf"]


def free_huge_pages(sys: Path = Path("/sys")) -> int:
    """Returns the free MiB in huge pages of any size. ``sys``: the mount point of sysfs."""
    free = 0
    for pages in (sys / "kernel/mm/hugepages").glob("hugepages-*kB"):
        size = int(pages.name.removeprefix("hugepages-").removesuffix("kB"))
        free += int((pages / "free_hugepages").read_text()) * size
    return free // 1024


def version() -> str:
    return _text(library().ina_dpdk_version())


def cpus() -> list[int]:
    """Processors of the lcores that EAL was given."""
    ids = ffi.new("int[]", 1024)
    return list(ids[0 : library().ina_dpdk_cpus(ids, 1024)])


def _text(error: CData) -> str:
    text: bytes = ffi.string(error)
    return text.decode(errors="replace")


# ---- pools and devices -----------------------------------------------------------------------------------------------


class Pool(Closing):
    """mbufs that the ports of a process share: ``mbufs`` of frames up to ``max_frame`` bytes. Raises DpdkError.

    ``devices``: the devices as users name them (``device``), where they are known. memif's buffers are as long as frames; NICs
    need longer ones.
    """

    def __init__(self, mbufs: int, max_frame: int, devices: Iterable[str] = ()):
        if not MIN_FRAME <= max_frame <= MAX_FRAME:
            raise ValueError(f"dpdk: max_frame is {max_frame}, expected {MIN_FRAME} to {MAX_FRAME}")
        error, names = ffi.new("char[]", _ERROR), list(devices)
        buffer = memif_buffer(max_frame) if names and all(map(memif_socket, names)) else 0
        self.pointer = library().ina_dpdk_pool_create(mbufs, max_frame, buffer, error, _ERROR)
        if self.pointer == ffi.NULL:
            raise DpdkError(f"dpdk: {_text(error)}")
        self.mbufs, self.max_frame = mbufs, max_frame

    @property
    def in_use(self) -> int:
        """mbufs that are not in the pool: in devices' queues, lent, or ready to be lent."""
        return int(library().ina_dpdk_pool_in_use(self.pointer))

    def close(self) -> None:
        """Frees the pool; devices that use it are closed before. A second call does nothing."""
        pointer, self.pointer = self.pointer, ffi.NULL
        library().ina_dpdk_pool_free(pointer)


class Device(Closing):
    """A started Ethernet device. Close its ports before it, and it before its pool."""

    def __init__(self, pointer: CData, name: str, pool: Pool):
        self.pointer, self.name, self.pool = pointer, name, pool

    def port(self, queue: int = 0) -> Port:
        """Returns a port on one of its queues, driven by one thread at a time. Raises DpdkError."""
        pointer = library().ina_dpdk_port(self.pointer, queue)
        if pointer == ffi.NULL:
            raise DpdkError(f"dpdk: device {self.name} has no queue {queue}")
        return _port(pointer, self.name)

    def share(self, number: int, claims: Sequence[range] = ()) -> Port:
        """Returns a port that shares queue 0 with others (``number`` 0..63), each driven by a thread of its own: it gets the
        frames to the UDP ports that it claims, and the lowest-numbered port those that nobody claims. Raises DpdkError."""
        pointer = library().ina_dpdk_share(self.pointer, number)
        if pointer == ffi.NULL:
            raise DpdkError(f"dpdk: device {self.name}, share {number}: {os.strerror(ffi.errno)}")
        for ports in claims:
            if library().ina_dpdk_claim(pointer, ports.start, len(ports)):
                _port(pointer, self.name).close()
                raise DpdkError(f"dpdk: device {self.name}: UDP ports {ports.start} to {ports.stop - 1} are another share's")
        return _port(pointer, f"{self.name} share {number}")

    def free_shares(self) -> Iterator[int]:
        """Numbers from 0 that no port of the device has."""
        return (i for i in range(library().INA_DPDK_SHARES) if not library().ina_dpdk_has_share(self.pointer, i))

    def flow(self, udp_port: int, queue: int) -> None:
        """Makes the device put frames to a UDP port into one of its queues (rte_flow). Raises DpdkError with DPDK's reason."""
        error = ffi.new("char[]", _ERROR)
        if library().ina_dpdk_flow(self.pointer, udp_port, queue, error, _ERROR):
            raise DpdkError(f"dpdk: {_text(error)}")

    @property
    def up(self) -> bool:
        """State of the link; memif: whether the peer is connected."""
        return bool(library().ina_dpdk_link_up(self.pointer))

    @property
    def stats(self) -> dict[str, int]:
        """The device's own counters (``struct ina_dpdk_device_stats``)."""
        raw = ffi.new("struct ina_dpdk_device_stats *")
        library().ina_dpdk_stats(self.pointer, raw)
        return {name: getattr(raw, name) for name, _ in ffi.typeof(raw).item.fields}

    def close(self) -> None:
        """Stops it, and removes it if it is a virtual one. A second call does nothing."""
        pointer, self.pointer = self.pointer, ffi.NULL
        library().ina_dpdk_close(pointer)


def _port(pointer: CData, name: str) -> Port:
    return Port(native.cast("struct ina_port *", int(ffi.cast("uintptr_t", pointer))), name)


def held(handle: CData) -> int:
    """Returns how many mbufs a port holds. ``handle``: its ``struct ina_port *`` as the device made it, without wrappers."""
    return int(library().ina_dpdk_port_held(ffi.cast("struct ina_port *", int(native.cast("uintptr_t", handle)))))


def device(text: str, number: int, server: bool, max_frame: int) -> str:
    """Translates a user's device name into ``open_device``'s: ``memif:SOCKET`` is connection ``number`` of the memif socket at
    that path (``memif:SOCKET,key=value`` adds driver arguments); a PCI address without a domain gets domain 0000; others stay.
    ``server``: this end makes the socket."""
    if not text.startswith("memif:"):
        return f"0000:{text}" if PCI.match(text) and text.count(":") == 1 else text  # the bus's full name
    path, comma, more = text.removeprefix("memif:").partition(",")
    if not path:
        raise ValueError(f"dpdk: {text!r}: expected memif:SOCKET, such as memif:/run/ina.sock")
    ring = "" if "rsize=" in more else f",rsize={RING}"
    return (f"net_memif{number},role={'server' if server else 'client'},id={number},socket={path},socket-abstract=no,"
            f"bsize={memif_buffer(max_frame)}{ring}{comma}{more}")


def memif_buffer(max_frame: int) -> int:
    """Bytes of memif's buffers, and of the mbufs that are copied to and from them: the driver is fastest where both are equally
    long. Whole cache lines, so that no two frames share one; an odd number of them, so that frames spread over the cache's sets;
    and no more than frames need, since each buffer of a ring is used in turn and all of them pass through the caches. But room
    for a standard frame, since the driver copies as many bytes as the peer declares into an mbuf without checking its size."""
    return -(-max(max_frame, 1518) // 64) * 64 | 64


def memif_socket(text: str) -> Path | None:
    """Returns the path of ``memif:SOCKET``; None for another device."""
    return Path(text.removeprefix("memif:").partition(",")[0]) if text.startswith("memif:") else None


def open_device(name: str, pool: Pool, queues: int = 1, descriptors: int = 0, timeout: float = 0.0) -> Device:
    """Starts a device: a PCI address that EAL may use, or a virtual device with its arguments, ``net_memif0,role=server``.

    ``descriptors`` of each queue: 0 takes 1024. ``timeout``: seconds to retry while a memif's server is not there yet. Raises
    DpdkError.
    """
    if not re.match(r"^[^,\s]+(,[^\s]*)?$", name):
        raise ValueError(f"dpdk: {name!r} names no device; expected a PCI address, or a virtual device with its arguments, such "
                         "as net_memif0,role=client,socket=/run/ina.sock")
    config = ffi.new("struct ina_dpdk_config *", {"queues": queues, "rx_desc": descriptors, "tx_desc": descriptors})
    error, deadline = ffi.new("char[]", _ERROR), time.monotonic() + timeout
    while (pointer := library().ina_dpdk_open(name.encode(), pool.pointer, config, error, _ERROR)) == ffi.NULL:
        if "role=client" not in name or time.monotonic() >= deadline:
            waited = f"; its server was not there for {timeout:g} s" if "role=client" in name else ""
            raise DpdkError(f"dpdk: {_text(error)}{waited}")
        time.sleep(0.05)
    return Device(pointer, name.partition(",")[0], pool)


def ring_pair(name: str, pool: Pool, frames: int = 1024) -> tuple[Device, Device]:
    """Returns two devices of this process, connected by rte_rings of ``frames`` (a power of two) each way. Raises DpdkError."""
    pair, error = ffi.new("struct ina_dpdk_device *[2]"), ffi.new("char[]", _ERROR)
    if library().ina_dpdk_ring_pair(name.encode(), pool.pointer, frames, pair, error, _ERROR):
        raise DpdkError(f"dpdk: {_text(error)}")
    return Device(pair[0], f"{name}_a", pool), Device(pair[1], f"{name}_b", pool)


# ---- ports of jobs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plug:
    """Attachment point of a job's process: its device, and the port of the switch that the device leads to."""

    device: str
    at: int


def plug(text: str, number: int) -> Plug:
    """Parses ``dpdk:DEVICE``, or ``dpdk@PORT:DEVICE`` where the port of the switch is not the process's ``number``; ``{rank}`` in
    either stands for ``number``. Raises ValueError."""
    match = re.fullmatch(r"dpdk(?:@([^:]*))?:(.+)", text.replace("{rank}", str(number)))
    if not match or (match[1] is not None and not match[1].isdigit()):
        raise ValueError("expected dpdk:DEVICE or dpdk@PORT:DEVICE, such as dpdk:memif:/run/ina.sock, dpdk@0:0000:17:00.0 or "
                         "dpdk:net_af_packet0,iface=eth{rank}")
    return Plug(match[2], number if match[1] is None else int(match[1]))


_devices: dict[str, Device] = {}  # of this process's jobs; they stay open until it ends, for the next job
_opening = threading.Lock()


def job_port(point: Plug, udp_port: int, max_frame: int, eal: Sequence[str], timeout: float) -> Port:
    """Returns a port for one job of this process, whose frames come to ``udp_port``; all its jobs share the device.

    ``eal``: as ``start``'s; none: ``arguments``. ``timeout``: seconds for the link to come up. Raises DpdkError, ValueError.
    """
    with _opening:
        if point.device not in _devices:
            longest = max(max_frame, 1514)
            mbufs = 8192
            start(list(eal) or arguments([point.device], 64 + mbufs * (max(longest + 1024, 2048) + 512) // 1_000_000))
            name, pool = device(point.device, point.at, False, longest), Pool(mbufs, longest, [point.device])
            try:
                _devices[point.device] = open_device(name, pool, timeout=timeout)
            except BaseException:
                pool.close()
                raise
        dev = _devices[point.device]
        if dev.pool.max_frame < max_frame:
            raise DpdkError(f"dpdk: device {dev.name} was opened for frames of {dev.pool.max_frame} bytes, a later job of this "
                            f"process needs {max_frame}")
        deadline = time.monotonic() + timeout
        while not dev.up:
            if time.monotonic() >= deadline:
                raise DpdkError(f"dpdk: device {dev.name}: no link for {timeout:g} s: is the switch there?")
            time.sleep(0.01)
        return dev.share(next(iter(dev.free_shares()), 0), [range(udp_port, udp_port + 1)])


if __name__ == "__main__":
    try:
        path = build()
        print(f"{version()}: {path}")
    except DpdkError as problem:
        raise SystemExit(f"error: {problem}") from None
