"""The embedded switch in the switch process: a compiled program, its data-plane thread, and workers' ports."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from ina.aggregation import protocols
from ina.aggregation.controller.client import Attachment
from ina.aggregation.controller.job_records import Job
from ina.aggregation.controller.shared_switches import SharedSwitches
from ina.aggregation.controller.switch_host import Summary
from ina.aggregation.controller.switch_setup import make_switch
from ina.aggregation.controller.worker_ports import SERVER_FRAMES, Plug, frames_for, open_switch_port, open_worker_port
from ina.aggregation.entries import ANNOTATION, JobProgram, Sizes, programs, recognise
from ina.aggregation.port_kinds import LOCAL, Control
from ina.aggregation.worker import SERVER, SWITCH
from ina.base import paths
from ina.net.ports import Address, Port
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Switch
from ina.p4.runtime.entities import SwitchTarget
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.p4info import P4Info
from ina.p4.runtime.tna_entities import front_panel

PORTS = 510  # the CPU port and the drop port are beyond


def job_program_of(program: Path, p4info: P4Info) -> tuple[JobProgram, Sizes]:
    """Returns the JobProgram of ``program``, and its compiled sizes. Raises ValueError: no known protocol."""
    match = recognise(p4info, program)
    if match is None:
        names = [program.stem] if protocols.is_own(str(program)) else [each.name for each in programs()]
        raise ValueError(f"{program} is no aggregation program that the controller knows: its `main` needs the annotation "
                         f"{ANNOTATION}, where NAME is {' or '.join(names)} (docs/guide/new-protocol.md)")
    return match


def payload(program: JobProgram, sizes: Sizes, defines: dict[str, str]) -> int:
    """Returns the values of a packet: the program's or, where it takes several numbers, VALUES. Raises ValueError."""
    if not program.payloads:
        return sizes.values
    count = int(defines.get("VALUES", program.payloads[0]))
    if count not in program.payloads:
        raise ValueError(f"VALUES={count}: {program.title} takes {' or '.join(map(str, program.payloads))} values in a packet")
    return count


class EmbeddedSwitch:
    """A running switch to which ports can be added. Raises what compiling and loading the program raise.

    ``switch``: that of the program at ``program``, where it has been made already; started and closed by its owner.
    """

    topology = None
    links = None  # its ports end at processes
    outlives = False
    tags = True  # it can check those of frames
    in_trees = True  # other switch processes may be above and below
    packet_lifetime = 0.0  # no packet is older than the switch

    def __init__(self, program: Path, defines: dict[str, str], switch: Switch | None = None):
        self._owned = switch is None
        if switch is None:
            loaded = Program(compile_program(program, defines=defines, include_dirs=[paths.p4_dir()]).so_path)
        else:
            loaded = switch.program
        self.job_program, sizes = job_program_of(program, loaded.p4info)
        self.protocol = self.job_program.name
        self.values, self.slots = payload(self.job_program, sizes, defines), sizes.slots
        self.switch = make_switch(loaded, self.job_program) if switch is None else switch
        self._address = replace(SWITCH, port=self.job_program.udp_port)
        self._program = str(program)
        self._ports: dict[int, Port] = {}
        self._numbers = self.job_program.ports or (front_panel(self.switch.pipes) if self.switch.pipes else range(PORTS))
        self._last = len(self._numbers) - 1
        self.seats: int | None = len(self._numbers) - self.job_program.needs_server
        self._max_frame = protocols.frame_bytes(self.protocol, self.values)
        # Entries that a P4Runtime client writes to a switch of another's would not reach those of jobs.
        self.shared = (SharedSwitches(loaded, self.job_program, self._address, self._max_frame, self._take_number)
                       if self._owned else None)
        if self._owned:
            self.switch.start()

    def describe(self) -> Summary:
        return {"program": self._program, "source_hash": self.switch.program.source_hash, "values": self.values,
                "slots": self.slots, "protocol": self.protocol}

    @property
    def targets(self) -> dict[str, SwitchTarget]:
        return {"s1": self.switch}

    def host_of(self, pid: int, name: str) -> str:
        return ""

    def open_port(self, kind: str, job: Job, index: int, host: str, control: Control = LOCAL) -> Plug:
        return self._open(kind, job.addresses[index], frames_for(job.slots), control)

    def open_server_port(self, kind: str, pid: int, name: str) -> tuple[str, Plug]:
        return "s1", self._open(kind, SERVER, SERVER_FRAMES)

    def open_above(self, attachment: Attachment) -> int:
        """Opens the port of a job towards the switch process above, which has offered it; returns its number. Raises OSError,
        ValueError."""
        number = self._take_number()
        port = open_worker_port(attachment)
        try:
            self.switch.add_port(number, port.handle)
        except BaseException:
            port.close()
            raise
        self._ports[number] = port
        return number

    def _take_number(self) -> int:
        """Returns the number of a free port: one that has been free for long. Raises ValueError."""
        count, taken = len(self._numbers), self._ports.keys() | (self.shared.numbers if self.shared else set())
        place = next((n for i in range(count) if self._numbers[n := (self._last + 1 + i) % count] not in taken), None)
        if place is None:
            raise ValueError(f"all {count} ports of the switch are in use")
        self._last = place
        return self._numbers[place]

    def _open(self, kind: str, address: Address, frames: int, control: Control = LOCAL) -> Plug:
        number = self._take_number()
        port, offer, fds = open_switch_port(kind, address, self._address, self._max_frame, frames, control)
        self.switch.add_port(number, port.handle)
        self._ports[number] = port
        return Plug(number, address, self._address, offer, fds)

    def close_port(self, number: int, job: int) -> None:
        if self.shared and number in self.shared.numbers:
            self.shared.close(number, job)
        else:
            self.close_server_port(number)

    def close_server_port(self, number: int) -> None:
        self.switch.remove_port(number)
        self._ports.pop(number).close()

    def protect(self, switch: str) -> None:
        """No-op: guard entries end with this process."""

    def reroute(self, down: Collection[str]) -> None:
        """No-op: one switch has no routes."""

    def counters(self) -> dict[str, Any]:
        cells, (shared, ports) = self.switch.counters(), self.shared.counters() if self.shared else ([], {})
        program = {name: sum((each[name] for each in shared), own).tolist() for name, own in cells.items()}
        for number, port in self._ports.items():
            stats = self.switch.port_stats(number)
            ports[number] = {"rx_packets": stats.rx_packets, "rx_bytes": stats.rx_bytes,
                             "tx_packets": stats.tx_packets, "tx_bytes": stats.tx_bytes, "drops": stats.drops | port.tags}
        return {"program": program, "ports": ports}

    def close(self) -> None:
        if self.shared:
            self.shared.close_all()
        if self._owned:
            self.switch.close()
        for port in self._ports.values():
            port.close()
        self._ports.clear()
