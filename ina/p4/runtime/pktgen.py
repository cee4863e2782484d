"""The packet generators of an embedded TNA switch (Tofino Native Architecture, 7.17; tna_pktgen.c)."""

from __future__ import annotations

from dataclasses import dataclass

from ina.base.native import ffi, lib
from ina.p4.runtime.command import Command
from ina.p4.runtime.p4info import EntityError
from ina.p4.runtime.switch_part import SwitchPart

TRIGGERS = {"one_shot": lib.INA_TNA_ONE_SHOT, "periodic": lib.INA_TNA_PERIODIC, "port_down": lib.INA_TNA_PORT_DOWN,
            "pattern": lib.INA_TNA_PATTERN}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PktgenApp:
    """An application of a pipe's generator. Each `trigger` ("one_shot", "periodic", "port_down", "pattern") sends `batches` of
    `packets` of `length` bytes at `at` in the pipe's buffer, with 6 bytes in front. Times in ns: of the timer, and from one
    packet or batch to the next (never less than a packet lasts at 100 Gb/s). `pattern` under `mask`: compared with a
    recirculated packet's first 32 bits.
    """

    trigger: str = "one_shot"
    enabled: bool = False
    timer: int = 0
    batches: int = 1
    packets: int = 1
    packet_gap: int = 0
    batch_gap: int = 0
    length: int = 0
    at: int = 0
    pattern: int = 0
    mask: int = 0
    port: int = 68
    increment: bool = False


class Generators(SwitchPart):
    """The part of `Switch` for generators: each pipe has one, with 8 applications and 16 KiB for packets."""

    def _run_command(self, command: Command) -> None:
        with self._lock:
            if not self.pipes:
                raise EntityError("packet generators are TNA's", "UNIMPLEMENTED")
            try:
                self._execute([command])
            except OSError as error:
                raise EntityError(f"packet generator: {error.strerror}") from None

    def set_app(self, pipe: int, number: int, app: PktgenApp) -> None:
        if app.trigger not in TRIGGERS or not 0 <= number < lib.INA_TNA_APPS:
            raise EntityError(f"application {number}, triggered by {app.trigger}: expected 0..7, {', '.join(TRIGGERS)}")
        data = ffi.new("struct ina_tna_app *", {
            "timer_ps": app.timer * 1000, "packet_gap_ps": app.packet_gap * 1000, "batch_gap_ps": app.batch_gap * 1000,
            "batches": app.batches, "packets": app.packets, "length": app.length, "at": app.at, "pattern": app.pattern,
            "mask": app.mask, "port": app.port, "trigger": TRIGGERS[app.trigger], "enabled": app.enabled,
            "increment": app.increment,
        })  # fmt: skip
        self._run_command({"op": lib.INA_TNA_SET_APP, "id": 8 * pipe + number, "data": data})

    def app_counters(self, pipe: int, number: int) -> tuple[int, int, int]:
        """Triggers, batches, packets."""
        counters = ffi.new("struct ina_tna_app_counters *")
        self._run_command({"op": lib.INA_TNA_READ_APP, "id": 8 * pipe + number, "data": counters})
        return counters.triggers, counters.batches, counters.packets

    def set_app_counters(self, pipe: int, number: int, triggers: int, batches: int, packets: int) -> None:
        data = ffi.new("struct ina_tna_app_counters *", [triggers, batches, packets])
        self._run_command({"op": lib.INA_TNA_READ_APP, "id": 8 * pipe + number, "data": data, "count": 1})

    def set_pktgen_buffer(self, pipe: int, at: int, packet: bytes) -> None:
        data = ffi.new("uint8_t[]", packet or b"\0")
        self._run_command({"op": lib.INA_TNA_SET_PKTGEN_BUFFER, "id": pipe, "offset": at, "count": len(packet), "data": data})

    def set_pktgen_port(self, port: int, sends: bool = False, patterns: bool = False, clear: bool = False) -> None:
        """Configures a port. `sends`: port 68 sends generated packets; `patterns`: packets that recirculate at 68 to 71 may
        trigger; `clear`: the next time that the port goes down triggers, once."""
        flags = sends * lib.INA_TNA_PKTGEN_ENABLE | patterns * lib.INA_TNA_PKTGEN_PATTERN | clear * lib.INA_TNA_PKTGEN_CLEAR
        self._run_command({"op": lib.INA_TNA_SET_PKTGEN_PORT, "id": port, "count": flags})
