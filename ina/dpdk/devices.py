"""What both programs have in common: command lines in two halves, EAL, one pool, and devices with a port each."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from ina.transport import dpdk
from ina.transport.ports import Port

HELD = 1024  # mbufs of a port that are lent, staged or late
CACHES = 4096  # mbufs in the caches of threads
DESCRIPTORS = 1024


def halves(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """EAL's arguments and the program's own, which begin after ``--``. Without one all are the program's own."""
    words = list(argv)
    if "--" not in words:
        return [], words
    at = words.index("--")
    return words[:at], words[at + 1 :]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("devices")
    group.add_argument("--mbufs", type=int, default=0, metavar="N",
                       help="of all devices together (default: as many as they may hold)")
    group.add_argument("--descriptors", type=int, default=DESCRIPTORS, metavar="N", help="of each queue (default: %(default)s)")
    group.add_argument("--spin", type=float, default=1e-3, metavar="SECONDS",
                       help="look at the devices for so long after the last frame before sleeping 50 us between looks (default: "
                            "%(default)g; a processor of its own: 1e6)")  # fmt: skip


class Devices:
    """Started devices, by number; ``wanted``: what people say of each (``dpdk.device``). EAL is started unless it runs.

    ``eal``: its arguments; none: ``dpdk.arguments``. ``timeout``: seconds for the far end of a memif client to be there.
    Raises DpdkError, ValueError; then nothing is left open.
    """

    def __init__(self, wanted: Mapping[int, str], eal: Sequence[str], max_frame: int, server: bool, mbufs: int = 0,
                 descriptors: int = DESCRIPTORS, timeout: float = 0.0):
        if not 32 <= descriptors <= 32768:
            raise ValueError(f"--descriptors {descriptors}: expected 32 to 32768")
        mbufs = mbufs or CACHES + len(wanted) * (2 * descriptors + HELD)
        memory = 64 + mbufs * (max(max_frame, 2048) + 512) // 1_000_000 + 8 * len(wanted)
        dpdk.start(list(eal) or dpdk.arguments(list(wanted.values()), memory))
        self.opened: dict[int, dpdk.Device] = {}
        self.ports: dict[int, Port] = {}
        self._bare: list[object] = []
        self.pool = dpdk.Pool(mbufs, max_frame)
        try:
            for number, text in wanted.items():
                name = dpdk.device(text, number, server, max_frame)
                self.opened[number] = dpdk.open_device(name, self.pool, 1, descriptors, timeout)
                self.ports[number] = self.opened[number].port()
                self._bare.append(self.ports[number].handle)
        except BaseException:
            self.close()
            raise

    def mbufs(self) -> dict[str, int]:
        """Of the pool: ``all``, ``in_use``, and of these ``held`` by ports that are open: lent, late, or ready to be lent. When
        nothing is under way the others are in devices' queues; a number of them that grows is a leak."""
        return {"all": self.pool.mbufs, "in_use": self.pool.in_use, "held": sum(map(dpdk.held, self._bare))}

    def close(self) -> None:
        """Twice is once."""
        self._bare.clear()
        for port in self.ports.values():
            port.close()
        for device in self.opened.values():
            device.close()
        self.ports.clear()
        self.opened.clear()
        self.pool.close()
