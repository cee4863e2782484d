"""Bounds of a JobProgram's values: those of a user's own are checked when its file is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ina.aggregation.entries.base import BITMAP, JobProgram
from ina.aggregation.lane import DEFAULT
from ina.aggregation.worker.config import MAX_SLOTS
from ina.base.bounds import outside
from ina.base.native import lib

JOBS = 256  # numbers of jobs: a byte in the frames of all protocols
WHOLE = {  # name -> lowest and highest value
    "max_workers": (1, lib.INA_MAX_WORKERS), "max_children": (1, BITMAP), "max_jobs": (1, JOBS), "max_slots": (1, MAX_SLOTS),
    "last_life": (1, 2**16 - 1), "number_bits": (8, 63), "udp_port": (1, 2**16 - 1), "job_byte": (0, 2**16 - 1), "pipes": (0, 4),
}
PORT = 0, 2**32 - 1
LIFETIME = 1e6  # seconds
FLAGS = [name for name, kind in JobProgram.__annotations__.items() if kind == "bool"]


def problem(program: JobProgram) -> str:
    """Returns what is wrong with the first such value of a JobProgram, "number_bits: 64, expected 8 to 63"; "" if nothing is."""
    for name in ("name", "title"):
        if not _is_text(value := getattr(program, name)):
            return f"{name}: {value!r}, expected text"
    if not _is_list(program.tables) or not program.tables or not all(map(_is_text, program.tables)):
        return f"tables: {program.tables!r}, expected names of tables, that of the jobs first"
    for name, (low, high) in WHOLE.items():
        if wrong := _whole(value := getattr(program, name), low, high):
            return f"{name}: {value!r}, {wrong}"
    if program.max_slots & program.max_slots - 1:
        return f"max_slots: {program.max_slots}, expected a power of two"
    for name in FLAGS:
        if not isinstance(value := getattr(program, name), bool):
            return f"{name}: {value!r}, expected True or False"
    if not isinstance(program.lifetime, (int, float)) or outside(program.lifetime, 0, LIFETIME):
        return f"lifetime: {program.lifetime!r}, expected seconds, at most {LIFETIME:g}"
    for name in ("ports", "loopback"):
        if not _is_list(value := getattr(program, name)) or any(_whole(port, *PORT) for port in value):
            return f"{name}: {value!r}, expected numbers of ports"
    if not _is_list(program.payloads) or not set(program.payloads) <= set(DEFAULT.values):
        return f"payloads: {program.payloads!r}, expected some of {', '.join(map(str, DEFAULT.values))}"
    registers = program.slot_registers
    if not isinstance(registers, Mapping) or any(not _is_text(key) or _whole(registers[key], 1, 2**31) for key in registers):
        return f"slot_registers: {registers!r}, expected ends of registers' names, each with its cells for a slot"
    return ""


def _whole(value: Any, low: int, high: int) -> str:
    """Returns text with the expected range, or "" if ``value`` is a whole number in it."""
    if isinstance(value, bool) or not isinstance(value, int):
        return f"expected a whole number from {low:,} to {high:,}"
    return outside(value, low, high)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
