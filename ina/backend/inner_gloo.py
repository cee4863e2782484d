"""The Gloo inside a group.

A device of Gloo's is an event loop: a thread that wakes up a hundred times a second, and a socket that listens. torch gives each
group one of its own, so that a hundred groups that do nothing take a tenth of a processor; here a process has a few, and its
groups share them.
"""

from __future__ import annotations

import itertools
import os
from datetime import timedelta

import torch.distributed as dist

from ina.backend import gloo_address

LOOPS = 4  # most of a process, for each choice of interfaces or address

Devices = list[dist.ProcessGroupGloo.Device]
# By process (a forked one has none of its parent's threads), interfaces, and address:
_loops: dict[tuple[int, str, str], list[Devices]] = {}
_turns = itertools.count()


def inner_gloo(store: dist.Store, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroupGloo:
    """Makes a group of Gloo, on the interfaces that GLOO_SOCKET_IFNAME names, as torch does, or else where ranks of other
    machines reach this one (gloo_address.py). RuntimeError: no such interface or address; or the other ranks do not come within
    ``timeout``."""
    address = gloo_address.choose(dist.PrefixStore("address", store), rank, size, timeout)
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # torch has it, its stubs do not
    options._timeout = timeout
    options._devices = _next_devices(os.environ.get("GLOO_SOCKET_IFNAME", ""), address)
    options._threads = 2 * len(options._devices)
    return dist.ProcessGroupGloo(store, rank, size, options)


def _next_devices(interfaces: str, address: str) -> Devices:
    """Returns a device for each of the interfaces, or one at an address: new ones for the first groups, then theirs in turn."""
    loops = _loops.setdefault((os.getpid(), interfaces, address), [])
    if len(loops) == LOOPS:
        return loops[next(_turns) % LOOPS]
    make = dist.ProcessGroupGloo.create_device
    loops.append([make(hostname=address)] if address else [_device(name) for name in interfaces.split(",")])
    return loops[-1]


def _device(interface: str) -> dist.ProcessGroupGloo.Device:
    make = dist.ProcessGroupGloo
    return make.create_device(interface=interface) if interface else make.create_default_device()
