"""Shared parts of both programs: command lines in two halves, EAL, one pool, and devices with a port each."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ina.base.bounds import real, whole
from ina.base.native import CData
from ina.net import dpdk
from ina.net.ports import Port

HELD = 1024  # mbufs of a port that are lent, staged or late
CACHES = 4096  # mbufs in the caches of threads
DESCRIPTORS = 1024
SHARED, OWN, LONGEST = 0.0, 1e-3, 1e6  # seconds to spin: beside other threads, on a processor of its own, and at most
YIELDS = 50  # calls of sched_yield after spinning, before a nap; they cost nothing where no other thread wants the processor
ERRORS = ("rx_malformed", "rx_foreign", "tx_full", "tx_malformed", "errors")

log = logging.getLogger(__name__)


def halves(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits a command line into EAL's arguments and the program's own after ``--``. Without ``--`` all are the program's own."""
    words = list(argv)
    if "--" not in words:
        return [], words
    at = words.index("--")
    return words[:at], words[at + 1 :]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("devices")
    group.add_argument("--mbufs", type=whole(0, 1 << 24, "each is 2 KB and more of huge pages"), default=0, metavar="N",
                       help="of all devices together (default: as many as they may hold)")
    group.add_argument("--descriptors", type=whole(64, 32768), default=DESCRIPTORS, metavar="N",
                       help="of each queue (default: %(default)s)")
    group.add_argument("--spin", type=real(0, LONGEST), metavar="SECONDS",
                       help="look at the devices for so long after the last frame before giving the processor away, and then "
                            f"sleeping 50 us between looks (default: {SHARED:g}; {OWN:g} if EAL's arguments say which "
                            "processors; 1e6: never)")


def spin(seconds: float | None, eal: Sequence[str]) -> float:
    """Returns the seconds to spin. On a shared processor the default is not to: for milliseconds a spinning thread would keep the
    threads from running whose frames it waits for."""
    return seconds if seconds is not None else OWN if eal else SHARED


class Devices:
    """Started devices, by number; ``names``: of each, as people write it (``dpdk.device``). Starts EAL unless it runs.

    ``shards``: claims of UDP ports by as many threads, each of which gets a port on every device (``ports``: lists): on a queue
    of its own where the device takes flow rules, else steered in software (``steering`` says which). One: ``ports`` are ports.
    ``eal``: its arguments; none: ``dpdk.arguments``. ``timeout``: seconds for the far end of a memif client to be there.
    Raises DpdkError; then nothing is left open.
    """

    def __init__(self, names: Mapping[int, str], eal: Sequence[str], max_frame: int, server: bool, mbufs: int = 0,
                 descriptors: int = DESCRIPTORS, timeout: float = 0.0, shards: Sequence[Sequence[range]] = ((),)):
        mbufs = mbufs or CACHES + len(names) * len(shards) * (2 * descriptors + HELD)
        memory = 64 + mbufs * (max(max_frame + 1024, 2048) + 512) // 1_000_000 + 8 * len(names)
        dpdk.start(list(eal) or dpdk.arguments(list(names.values()), memory))
        self.opened: dict[int, dpdk.Device] = {}
        self.ports: dict[int, Any] = {}
        self.steering: dict[int, str] = {}
        self._bare: list[CData] = []
        self.pool = dpdk.Pool(mbufs, max_frame, names.values())
        stale = [path for text in names.values() if server and (path := dpdk.memif_socket(text)) and path.is_socket()]
        try:
            for number, text in names.items():
                device = dpdk.device(text, number, server, max_frame)
                if len(shards) == 1:
                    self.opened[number] = dpdk.open_device(device, self.pool, 1, descriptors, timeout)
                    self.ports[number] = self.opened[number].port()
                else:
                    self.ports[number] = self._sharded(number, device, descriptors, shards)
                self._bare += [port.handle for port in self._flat(number)]
        except BaseException as error:
            self.close()
            if stale and isinstance(error, dpdk.DpdkError):  # a probe of the socket would upset drivers of memif
                raise dpdk.DpdkError(f"{error}; {stale[0]} was there before: another switch serves it, or one that was killed "
                                     "has left it, then remove it") from error
            raise

    def _sharded(self, number: int, name: str, descriptors: int, shards: Sequence[Sequence[range]]) -> list[Port]:
        """Opens a port for each shard on one device: by flow rules if it takes them all, else in software."""
        if dpdk.PCI.match(name) or name.startswith("net_tap"):  # devices that may have several queues
            try:
                return self._ruled(number, name, descriptors, shards)
            except dpdk.DpdkError as error:
                log.info("%s", error)
                if number in self.opened:
                    self.opened.pop(number).close()
        device = self.opened[number] = dpdk.open_device(name, self.pool, 1, descriptors)
        self.steering[number] = "software"
        opened: list[Port] = []
        try:
            for shard, claims in enumerate(shards):
                opened.append(device.share(shard, claims if shard else ()))
        except BaseException:
            for port in opened:
                port.close()
            raise
        return opened

    def _ruled(self, number: int, name: str, descriptors: int, shards: Sequence[Sequence[range]]) -> list[Port]:
        """Opens a queue for each shard, with flow rules. Raises DpdkError if the device lacks queues or refuses the rules."""
        device = self.opened[number] = dpdk.open_device(name, self.pool, len(shards), descriptors)
        for queue, claims in enumerate(shards):
            for ports in claims if queue else ():  # frames without a rule go to queue 0
                for port in ports:
                    device.flow(port, queue)
        self.steering[number] = "flow rules"
        return [device.port(queue) for queue in range(len(shards))]

    def _flat(self, number: int) -> list[Port]:
        ports = self.ports[number]
        return ports if isinstance(ports, list) else [ports]

    def errors(self, number: int) -> dict[str, int]:
        """Returns the port's error counters, summed over all shards."""
        each = [port.stats for port in self._flat(number)]
        return {key: sum(stats[key] for stats in each) for key in ERRORS}

    def mbufs(self) -> dict[str, int]:
        """Returns the pool's counts: ``all``, ``in_use``, and of these ``held`` by open ports: lent, late, or ready to be lent.
        Without traffic the others are in devices' queues; if their number grows, there is a leak."""
        return {"all": self.pool.mbufs, "in_use": self.pool.in_use, "held": sum(map(dpdk.held, self._bare))}

    def close(self) -> None:
        """Closes everything. Idempotent."""
        self._bare.clear()
        for number in self.ports:
            for port in self._flat(number):
                port.close()
        for device in self.opened.values():
            device.close()
        self.ports.clear()
        self.opened.clear()
        self.pool.close()
