"""Both ends of a worker's port to the switch process, whatever its kind (ina/aggregation/port_kinds).

The switch process makes the port, keeps its own end, and sends the worker an *offer* (JSON) and descriptors. Nothing
has a name in a file system, so nothing is left behind however a process ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ina.aggregation import protocols
from ina.aggregation.controller.client import Attachment
from ina.aggregation.port_kinds import LOCAL, Control, End, Opened, Tags, offered_kind, requested_kind
from ina.net.ports import Address, Faults, Port

SERVER_FRAMES = 1024  # per direction of a parameter server's port, which all jobs share


@dataclass(frozen=True)
class Plug:
    """Attachment point of a worker: the port's number at its switch, its own address and the switch's as frames have them, the
    offer for the worker, and descriptors for the worker (the caller closes them)."""

    number: int
    address: Address
    switch: Address
    offer: dict[str, Any]
    fds: list[int]


def frames_for(slots: int) -> int:
    """Returns the frames per direction of a worker's port: its window and as many repetitions are in flight at most.

    Small rings stay in the cache: every frame of a ring is used in turn.
    """
    return min(4096, max(32, 2 * slots))


def open_switch_port(kind: str, worker: Address, switch: Address, max_frame: int, frames: int,
                     control: Control = LOCAL) -> Opened:
    """Opens the switch's end of a new port of the requested kind, which holds ``frames`` of up to ``max_frame`` bytes each way.
    ``control``: the connection over which it was requested.

    Raises ValueError for an unknown kind or one that this process cannot open, OSError when the system refuses.
    """
    requested, place = requested_kind(kind)
    return requested.open_switch(End(worker, switch, max_frame, frames, control.tags), place, control)


def open_offered_port(
    offer: dict[str, Any], fds: list[int], own: Address, switch: Address, max_frame: int, frames: int, tags: Tags | None = None
) -> Port:
    """Opens the far end of a port, from the switch's offer; the descriptors stay the caller's. Raises OSError, and ValueError for
    an offer that this process cannot take.

    ``own`` and ``switch``: both ends, as frames have them; ``max_frame`` (bytes) and ``frames``: as ``open_switch_port``'s.
    """
    return offered_kind(offer).open_offered(offer, fds, End(own, switch, max_frame, frames, tags))


def open_worker_port(attachment: Attachment, faults: Faults | None = None,
                     own: Callable[[int], Port] | None = None) -> Port:
    """Opens the worker's end of the port in its attachment, once. Raises ValueError, OSError.

    ``faults`` apply in both directions; each worker and direction has its own random numbers. ``own``: opens a port of the
    worker's own for frames up to so many bytes. The descriptors of the attachment stay the caller's.
    """
    max_frame = protocols.frame_bytes(attachment.protocol, attachment.values)
    with attachment.lease():
        if own is not None:
            port = own(max_frame)
        else:
            port = open_offered_port(attachment.port, attachment.fds, attachment.address, attachment.switch, max_frame,
                                     frames_for(attachment.slots), attachment.tags)
    if faults is not None:
        seed = faults.seed * 1024 + 2 * attachment.worker
        try:
            port.with_faults(replace(faults, seed=seed), replace(faults, seed=seed + 1))
        except (OSError, ValueError):
            port.close()
            raise
    return port
