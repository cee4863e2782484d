"""The switch on DPDK as the controller knows it: its workers come with ports of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ina.aggregation import protocols
from ina.aggregation.controller.embedded import EmbeddedSwitch
from ina.aggregation.controller.job_incarnations import PACKET_LIFETIME
from ina.aggregation.controller.job_records import Job
from ina.aggregation.controller.worker_ports import Plug
from ina.aggregation.port_kinds import LOCAL, Control, dpdk, requested_kind
from ina.worlds.dpdk.devices import Devices


class DpdkSwitch(EmbeddedSwitch):
    """The switch whose ports are the devices of ``opened``. A worker that asks for ``dpdk`` gets the device whose place among
    them is its index, and with ``dpdk@N`` port N; the parameter server gets a port of shared memory.

    Raises ValueError: the program is of no known protocol, or its packets' frames are longer than the devices take.
    """

    packet_lifetime = PACKET_LIFETIME  # cables, NICs and workers were there before

    def __init__(self, program: Path, switch: Any, opened: Devices, shards: int = 1):
        super().__init__(program, {}, switch)
        self.seats = None  # jobs share devices
        needed = protocols.frame_bytes(self.protocol, self.values)
        if (longest := opened.pool.max_frame) < needed:
            raise ValueError(f"--max-frame: devices take frames of {longest} bytes; packets of {self.protocol} with "
                             f"{self.values} values have {needed}")
        self._opened = opened
        self._devices, self._shards = opened.ports, shards
        self._ports.update(opened.ports)
        self._owners: dict[tuple[int, int], int] = {}  # (job, port) -> worker

    def open_port(self, kind: str, job: Job, index: int, host: str, control: Control = LOCAL) -> Plug:
        requested, place = requested_kind(kind)
        if requested is not dpdk.KIND:
            return super().open_port(kind, job, index, host, control)
        number = self._number(place, index)
        if (other := self._owners.setdefault((job.number, number), index)) != index:
            raise ValueError(f"port {number} is worker {other}'s of this job already: worker {index} needs one of its own "
                             "(INA_PORT=dpdk@N:...)")
        options = {"shards": self._shards} if self._shards > 1 else {}  # of the workers
        return Plug(number, job.addresses[index], replace(self._address), dpdk.KIND.offer(options), [])

    def _number(self, place: str, index: int) -> int:
        numbers = sorted(self._devices)
        if not place:
            if index >= len(numbers):
                raise ValueError(f"worker {index} has no port: this switch has {len(numbers)} devices; say which one with "
                                 "INA_PORT=dpdk@N:..., or start the switch with more")
            return numbers[index]
        if not place.isdigit() or int(place) not in numbers:
            raise ValueError(f"there is no device at port {place}; there are {', '.join(map(str, numbers))}")
        return int(place)

    def close_port(self, number: int, job: int) -> None:
        if number in self._devices:
            self._owners.pop((job, number), None)
        else:
            self.close_server_port(number)

    def counters(self) -> dict[str, Any]:
        counted = super().counters()
        for number in self._devices:
            counted["ports"][number]["errors"] = self._opened.errors(number)
        return counted | {"mbufs": self._opened.mbufs()}

    def close(self) -> None:
        for number in [number for number in self._ports if number not in self._devices]:
            self.close_server_port(number)
        self._ports.clear()
