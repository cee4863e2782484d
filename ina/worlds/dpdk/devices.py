"""What both programs have in common: command lines in two halves, EAL, one pool, and devices with a port each."""

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
YIELDS = 50  # then the processor is given away so often before a nap: that is spinning where nobody wants it
ERRORS = ("rx_malformed", "rx_foreign", "tx_full", "tx_malformed", "errors")

log = logging.getLogger("ina.p4.runtime")


def halves(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """EAL's arguments and the program's own, which begin after ``--``. Without one all are the program's own."""
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
                            "processors; 1e6: never)")  # fmt: skip


def spin(asked: float | None, eal: Sequence[str]) -> float:
    """Seconds. Raises ValueError. On processors that others want, too, a thread that spins keeps those away whose frames it
    waits for: the scheduler lets it, for milliseconds."""
    if asked is not None and not 0 <= asked <= LONGEST:
        raise ValueError(f"--spin {asked:g}: expected 0 to {LONGEST:g} seconds")
    return asked if asked is not None else OWN if eal else SHARED


class Devices:
    """Started devices, by number; ``wanted``: what people say of each (``dpdk.device``). EAL is started unless it runs.

    ``shards``: claims of UDP ports by as many threads, each of which gets a port on every device (``ports``: lists): on a queue
    of its own where the device takes flow rules, else steered in software (``steering`` says which). One: ``ports`` are ports.
    ``eal``: its arguments; none: ``dpdk.arguments``. ``timeout``: seconds for the far end of a memif client to be there.
    Raises DpdkError, ValueError; then nothing is left open.
    """

    def __init__(self, wanted: Mapping[int, str], eal: Sequence[str], max_frame: int, server: bool, mbufs: int = 0,
                 descriptors: int = DESCRIPTORS, timeout: float = 0.0, shards: Sequence[Sequence[range]] = ((),)):
        if not 32 <= descriptors <= 32768:
            raise ValueError(f"--descriptors {descriptors}: expected 32 to 32768")
        mbufs = mbufs or CACHES + len(wanted) * len(shards) * (2 * descriptors + HELD)
        memory = 64 + mbufs * (max(max_frame + 1024, 2048) + 512) // 1_000_000 + 8 * len(wanted)
        dpdk.start(list(eal) or dpdk.arguments(list(wanted.values()), memory))
        self.opened: dict[int, dpdk.Device] = {}
        self.ports: dict[int, Any] = {}
        self.steering: dict[int, str] = {}
        self._bare: list[CData] = []
        self.pool = dpdk.Pool(mbufs, max_frame, wanted.values())
        left = [path for text in wanted.values() if server and (path := dpdk.memif_socket(text)) and path.is_socket()]
        try:
            for number, text in wanted.items():
                name = dpdk.device(text, number, server, max_frame)
                if len(shards) == 1:
                    self.opened[number] = dpdk.open_device(name, self.pool, 1, descriptors, timeout)
                    self.ports[number] = self.opened[number].port()
                else:
                    self.ports[number] = self._sharded(number, name, descriptors, shards)
                self._bare += [port.handle for port in self._flat(number)]
        except BaseException as error:
            self.close()
            if left and isinstance(error, dpdk.DpdkError):  # trying whether somebody listens would upset drivers of memif
                raise dpdk.DpdkError(f"{error}; {left[0]} was there before: another switch serves it, or one that was killed has "
                                     "left it, then remove it") from error
            raise

    def _sharded(self, number: int, name: str, descriptors: int, shards: Sequence[Sequence[range]]) -> list[Port]:
        """A port for each shard on one device: by flow rules if it takes them all, else in software."""
        if dpdk.PCI.match(name) or name.startswith("net_tap"):  # what may have more than a ring
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
        """Raises DpdkError: it has not so many queues, or takes no such rules."""
        device = self.opened[number] = dpdk.open_device(name, self.pool, len(shards), descriptors)
        for queue, claims in enumerate(shards):
            for ports in claims if queue else ():  # what no rule is for goes to queue 0
                for port in ports:
                    device.flow(port, queue)
        self.steering[number] = "flow rules"
        return [device.port(queue) for queue in range(len(shards))]

    def _flat(self, number: int) -> list[Port]:
        ports = self.ports[number]
        return ports if isinstance(ports, list) else [ports]

    def errors(self, number: int) -> dict[str, int]:
        """What the port counted that is no traffic, over all shards."""
        each = [port.stats for port in self._flat(number)]
        return {key: sum(stats[key] for stats in each) for key in ERRORS}

    def mbufs(self) -> dict[str, int]:
        """Of the pool: ``all``, ``in_use``, and of these ``held`` by ports that are open: lent, late, or ready to be lent. When
        nothing is under way the others are in devices' queues; a number of them that grows is a leak."""
        return {"all": self.pool.mbufs, "in_use": self.pool.in_use, "held": sum(map(dpdk.held, self._bare))}

    def close(self) -> None:
        """Twice is once."""
        self._bare.clear()
        for number in self.ports:
            for port in self._flat(number):
                port.close()
        for device in self.opened.values():
            device.close()
        self.ports.clear()
        self.opened.clear()
        self.pool.close()
