"""Configuration of a worker: addresses, its place in the job, window and timers; and tensors in their C form."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address
from typing import Any

import numpy as np

from ina.aggregation import completion, protocols
from ina.aggregation.lane import DEFAULT, DTYPES, FLOATS, INTEGERS, Lane, dtype_name
from ina.aggregation.worker.addresses import worker_address
from ina.base.native import CData, ffi, lib
from ina.base.once import Once
from ina.net.ports import PS, Address

HEADERS = 64  # bytes: Ethernet 14, IPv4 20, UDP 8, SwitchML 8, exponents 2, check 12
ETHERNET_OVERHEAD: int = lib.INA_ETHERNET_OVERHEAD
MAX_SLOTS = 8192
KEY_BYTES: int = lib.INA_KEY_BYTES
MAX_OPS: int = lib.INA_MAX_OPS

SWITCH = Address("02:00:00:00:ff:fe", "10.0.255.254", 0xBEE0)
ATP_SWITCH = Address(SWITCH.mac, SWITCH.ip, 0xBEF0)
SERVER = Address("02:00:00:00:ff:fd", "10.0.255.253", 0xBED0)  # its port is not the switches': plain frames are forwarded


@dataclass(frozen=True)
class WorkerConfig:
    """``struct ina_worker_config`` with times in seconds; addresses default to those of the local world.

    Its lease, the life of a job's number, is good for one worker: a second one would number its packets from ``first_packet``
    again, and switches would take them for the first one's and answer with its sums. So a configuration begins one Endpoint,
    Worker or worker in virtual time, and the next one needs a life from another admission.
    """

    worker: int
    workers: int
    job: int = 0
    life: int = field(kw_only=True)  # of the job's number, from its admission: 1..255, ATP 1..65535; no default
    slots: int = 64
    values: int = 256
    lane: Lane = DEFAULT  # what they are, as the switch's program was compiled for
    rto_min: float = 1e-3
    rto_max: float = 0.1
    rto_fixed: bool = False  # every packet has a time-out of rto_min, and no other recovery: as published (SwitchML)
    timeout: float = 30.0
    address: Address | None = None
    switch: Address = SWITCH
    server: Address | None = None  # the job's parameter server, for protocols that have one
    reply_in_place: bool = False
    protocol: str = protocols.DEFAULT
    first_packet: int = 0  # number of the job's first packet: not 0 only in tests of its wrap
    options: Mapping[str, int] = field(default_factory=dict)  # the protocol's own (protocols.options), by name
    check: str = ""  # of protocols.CHECKS, the same for all workers; "": the protocol's default
    rule: str = completion.DEFAULT  # the job's completion rule
    key: bytes = field(default=b"", repr=False)  # of the job's attachment: KEY_BYTES of them with "keyed"
    _once: Once = field(default_factory=Once, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        most = protocols.named(self.protocol).max_workers or lib.INA_BITMAP_WORKERS
        check_numbers(self, workers=(1, most), worker=(0, self.workers - 1), first_packet=(0, 2**63 - 1))
        if not 0 < self.rto_min <= self.rto_max or not math.isfinite(self.rto_max):
            raise ValueError(f"rto_min, rto_max: {self.rto_min}, {self.rto_max} s, expected 0 < rto_min <= rto_max")
        if not 0 < self.timeout < 1e6:
            raise ValueError(f"timeout: {self.timeout} s, expected a positive number of seconds below 1e6")
        completion.named(self.rule)
        protocols.check_options(self.protocol, self.options)
        if self.check:
            protocols.check_check(self.protocol, self.check)
            if "check" in self.options:
                raise ValueError(f"check: {self.check!r}, and again as an option: {self.options['check']}; expected one of them")
        if len(self.key) != (KEY_BYTES if self.check == "keyed" else 0):
            raise ValueError(f"key: {len(self.key)} bytes, expected {KEY_BYTES} with check 'keyed', and none without")

    @cached_property
    def frame_bytes(self) -> int:
        """Longest frame, from the Ethernet header on."""
        return int(protocols.named(self.protocol).frame_size(self.to_c()))

    @contextmanager
    def lease(self) -> Iterator[CData]:
        """Gives the C form to the worker that begins in the block; one that does not begin there raises, and uses nothing up.
        Raises ValueError: a worker has begun with it before, or begins in another thread."""
        with self._once.use(f"worker {self.worker} of job {self.job} has begun with this configuration (life {self.life}) "
                            "before: another one would get that one's sums; admit a job anew for it"):
            yield self.to_c()

    def to_c(self) -> CData:
        """Returns a new ``struct ina_worker_config *``."""
        c = ffi.new("struct ina_worker_config *")
        own = self.address or worker_address(self.job, self.worker)
        for end, address in ((c.self, own), (c.peer, self.switch), (c.server, self.server)):
            fill_address(end, address)
        c.job, c.life, c.worker, c.workers = self.job, self.life, self.worker, self.workers
        c.slots, c.values, c.lane = self.slots, self.values, self.lane.number
        c.rto_min_ps, c.rto_max_ps = max(1, round(self.rto_min * PS)), max(1, round(self.rto_max * PS))
        c.timeout_ps, c.rto_fixed = round(self.timeout * PS), self.rto_fixed
        c.reply_in_place, c.first_packet = self.reply_in_place, self.first_packet
        values = dict(self.options)
        if self.check and len(protocols.checks(self.protocol)) > 1:
            values["check"] = protocols.CHECKS.index(self.check)
        c.key = self.key.ljust(KEY_BYTES, b"\0")
        completion.named(self.rule).to_c(c.rule)
        declared = protocols.options(self.protocol) if values else {}
        for name, value in values.items():
            c.options_set |= 1 << declared[name].index
            c.option[declared[name].index] = value
        return c


def check_numbers(config: Any, **ranges: tuple[int, int]) -> None:
    """Checks fields of a WorkerConfig or ServerConfig: those with ``ranges``, and numbers that both have. Raises ValueError."""
    ranges |= {"job": (0, 255), "life": (1, 2**16 - 1), "slots": (1, MAX_SLOTS)}
    for name, (low, high) in ranges.items():
        value = getattr(config, name)
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not whole or not low <= value <= high:
            raise ValueError(f"{name}: {value!r}, expected {'' if whole else 'a whole number, '}{low}..{high}")
    if config.slots & (config.slots - 1):
        raise ValueError(f"slots: {config.slots}, expected a power of two")
    if config.values not in config.lane.values:
        raise ValueError(f"values: {config.values}, expected one of {config.lane.values}")


def fill_address(c: CData, address: Address | None) -> None:
    """Writes a ``struct ina_address``; None: all zero."""
    if address is not None:
        c.mac = bytes.fromhex(address.mac.replace(":", ""))
        c.ip, c.port = int(IPv4Address(address.ip)), address.port


def either(dtypes: Iterable[np.dtype]) -> str:
    """Returns the names of dtypes for messages, "int32 or float32"."""
    return " or ".join(map(dtype_name, dtypes))


def slots_for(rate_bps: float, rtt_s: float, frame_bytes: int) -> int:
    """Returns the slots that keep a link of ``rate_bps`` busy for a round trip of ``rtt_s``: the bandwidth-delay product in
    frames, rounded up to a power of two (SwitchML NSDI'21 §3.6); 24 B of Ethernet overhead count."""
    if rate_bps <= 0 or rtt_s <= 0 or frame_bytes <= 0:
        raise ValueError(f"rate {rate_bps} b/s, rtt {rtt_s} s, frame {frame_bytes} B: all must be positive")
    frames = rate_bps * rtt_s / (8 * (frame_bytes + ETHERNET_OVERHEAD))
    return min(MAX_SLOTS, 1 << max(0, math.ceil(math.log2(max(1.0, frames)))))


def fill_tensor(
    c: CData, source: np.ndarray, out: np.ndarray, average: bool, tag: int, reduction: int = protocols.SUM
) -> None:
    """Checks the arrays and describes them in a ``struct ina_tensor``; the caller keeps both alive."""
    if reduction == protocols.MAX and source.dtype not in INTEGERS:
        raise ValueError(f"maximum: only of {either(INTEGERS)}")
    for name, array in (("input", source), ("out", out)):
        if array.dtype not in DTYPES:
            raise TypeError(f"{name}: dtype {array.dtype}, expected {either(DTYPES)}")
        if not array.flags.c_contiguous:
            raise ValueError(f"{name}: not contiguous; make it so with numpy.ascontiguousarray() first")
    if out.dtype != source.dtype or out.size != source.size:
        raise ValueError(f"out: {out.dtype} x {out.size}, expected {source.dtype} x {source.size} as the input")
    if not out.flags.writeable:
        raise ValueError("out: read-only array")
    if average and source.dtype not in FLOATS:
        raise ValueError("average: only of floats; divide integer sums yourself")
    if average and reduction != protocols.SUM:
        raise ValueError("average: only of sums")
    fill_tensor_at(c, source.ctypes.data, out.ctypes.data, source.size, source.dtype, average, tag, reduction)


def set_source(c: CData, source: int) -> None:
    """Sets the address of the input in a ``struct ina_tensor``; 0: it is not there yet."""
    setattr(c, "in", ffi.cast("void *", source))  # noqa: B010 (a keyword of Python)


def fill_tensor_at(
    c: CData, source: int, out: int, count: int, dtype: np.dtype, average: bool, tag: int, reduction: int
) -> None:
    """Describes ``count`` contiguous elements at two addresses in a ``struct ina_tensor``. Raises TypeError: of no such dtype;
    ValueError: not at multiples of an element's size, as C needs."""
    if dtype not in DTYPES:
        raise TypeError(f"dtype {dtype}, expected {either(DTYPES)}")
    if (source | out) % dtype.itemsize:
        raise ValueError(f"{dtype} at addresses {source:#x} and {out:#x}: expected multiples of {dtype.itemsize}; copy it first")
    set_source(c, source)
    c.part = lib.INA_PART_PLAIN
    c.out, c.reduction = ffi.cast("void *", out), reduction
    c.count, c.dtype, c.average, c.tag = count, DTYPES[dtype], average, tag & (2**64 - 1)
