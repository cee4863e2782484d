"""Shared memory between the switch process and a worker of the same machine: two rings, and a bell for each end."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ina.aggregation.port_kinds import LOCAL, Control, End, Opened, PortKind
from ina.net.ports import Port, create_bells, create_segment, open_shared


class SharedMemory(PortKind):
    name = "shm"
    help = "shm (shared memory)"
    # Shared memory loses nothing, so there a time-out is nearly always a rank or switch that did not get a processor: it must be
    # longer than a few time slices. Where packets can be lost, waiting that long would cost.
    rto_min = 100e-3
    yields = 100e-6  # two wake-ups of a sleeping processor, and more than what lies between two small collectives
    check_words = "off"  # values never leave memory; check words would take a quarter of the speed

    def open_switch(self, end: End, place: str = "", control: Control = LOCAL) -> Opened:
        memory = create_segment(end.frames, end.max_frame)
        try:
            bells = create_bells()
            try:
                port = open_shared(memory, 0, *bells.of(0))
            except OSError:
                bells.close()
                raise
        except OSError:
            os.close(memory)
            raise
        os.close(bells.to_host)  # the port has its own; the worker must not have it
        return Opened(port, {"kind": self.name}, [memory, *bells.of(1)])

    def shared_offer(self, program: str, seat: int) -> dict[str, Any]:
        """Returns the offer of a seat at a switch that workers run (ina/p4/runtime/shared.py). ``program``: path of the compiled
        one."""
        return {"kind": self.name, "program": program, "seat": seat}

    def open_offered(self, offer: Mapping[str, Any], fds: Sequence[int], end: End) -> Port:
        if program := offer.get("program"):
            from ina.p4.runtime.shared import open_seat  # commands that only list kinds of ports import no switch

            return open_seat(program, fds, offer["seat"])
        return open_shared(fds[0], 1, *fds[1:])


KIND = SharedMemory()
