"""State of extern objects: registers, counters, meters (v1model.p4; BMv2 where that leaves something open)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ina.p4.compiler.reference.hashes import SplitMix64
from ina.p4.compiler.reference.values import Value, copy, default_value
from ina.p4.compiler.types import Type

GREEN, YELLOW, RED = 0, 1, 2


class RegisterArray:
    """A `register<T>(size)`, all zero at first. Reads beyond the end give T's default value, writes there do nothing."""

    def __init__(self, name: str, t: Type, size: int) -> None:
        self.name, self.type = name, t
        self.values = [default_value(t) for _ in range(size)]

    def read(self, index: int) -> Value:
        return copy(self.values[index]) if 0 <= index < len(self.values) else default_value(self.type)

    def write(self, index: int, value: Value) -> None:
        if 0 <= index < len(self.values):
            self.values[index] = copy(value)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Value:
        return self.values[index]

    def __setitem__(self, index: int, value: Value) -> None:
        self.values[index] = value


@dataclass
class CounterArray:
    """A `counter(size, type)`: counts packets and octets whichever of them `type` exposes, and nothing beyond the end."""

    name: str
    size: int
    unit: str
    packets: list[int] = field(init=False)
    octets: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.packets, self.octets = [0] * self.size, [0] * self.size

    def count(self, index: int, octets: int) -> None:
        if 0 <= index < self.size:
            self.packets[index] += 1
            self.octets[index] += octets


@dataclass
class MeterState:
    """One two-rate three-colour marker, colour-blind (RFC 2698 §3). Rates in units per second, bursts in units."""

    peak_rate: float
    peak_burst: int
    committed_rate: float
    committed_burst: int
    peak_tokens: float = field(init=False)
    committed_tokens: float = field(init=False)
    last_ps: int = 0

    def __post_init__(self) -> None:
        self.peak_tokens, self.committed_tokens = float(self.peak_burst), float(self.committed_burst)

    def mark(self, amount: int, now_ps: int) -> int:
        elapsed = max(now_ps - self.last_ps, 0) / 1e12
        self.last_ps = max(now_ps, self.last_ps)
        self.peak_tokens = min(self.peak_tokens + elapsed * self.peak_rate, self.peak_burst)
        self.committed_tokens = min(self.committed_tokens + elapsed * self.committed_rate, self.committed_burst)
        if self.peak_tokens < amount:
            return RED
        self.peak_tokens -= amount
        if self.committed_tokens < amount:
            return YELLOW
        self.committed_tokens -= amount
        return GREEN

    def mark_aware(self, amount: int, now_ps: int, before: int) -> int:
        """Marks colour-aware, as TNA's meters do: a packet that was YELLOW or RED stays so."""
        if before == GREEN:
            return self.mark(amount, now_ps)
        elapsed = max(now_ps - self.last_ps, 0) / 1e12
        committed = min(self.committed_tokens + elapsed * self.committed_rate, self.committed_burst)
        color = self.mark(amount if before == YELLOW else 0, now_ps)
        self.committed_tokens = committed
        return RED if RED in (before, color) else YELLOW


class MeterArray:
    """A `meter(size, type)`: everything is green until the control plane configures an index."""

    def __init__(self, name: str, size: int, unit: str) -> None:
        self.name, self.size, self.unit = name, size, unit
        self.states: dict[int, MeterState] = {}

    def configure(self, index: int, committed_rate: float, committed_burst: int, peak_rate: float, peak_burst: int) -> None:
        """Sets rates per second and bursts, in the meter's unit: packets or bytes. Raises IndexError."""
        if not 0 <= index < self.size:
            raise IndexError(f"meter {self.name} has no index {index}, only 0..{self.size - 1}")
        self.states[index] = MeterState(peak_rate, peak_burst, committed_rate, committed_burst)

    def execute(self, index: int, octets: int, now_ps: int) -> int:
        """Returns the colour; out of range it is green, and no state changes."""
        state = self.states.get(index)
        return GREEN if state is None else state.mark(1 if self.unit == "packets" else octets, now_ps)


class FilterArray:
    """Cells of an Lpf or Wred: (mode, rise, fall, out, low, high) once configured, times in ns; the average and its time."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self.cells: dict[int, tuple[int, float, float, float, float, float]] = {}
        self.averages: dict[int, tuple[float, int]] = {}

    def average(self, index: int, sample: int, now_ps: int) -> float:
        mode, rise, fall = self.cells[index][:3]
        before, last = self.averages.get(index, (0.0, 0))
        constant = rise if sample > before else fall
        decay = math.exp(-max(now_ps - last, 0) / 1e3 / constant) if constant > 0 else 0.0
        after = before * decay + sample if mode == 2 else sample + (before - sample) * decay
        self.averages[index] = (after, max(now_ps, last))
        return after

    def smoothed(self, index: int, sample: int, now_ps: int) -> int:
        """Returns an Lpf's output: the sample itself until the cell is configured."""
        if index not in self.cells:
            return sample
        return min((1 << 32) - 1, int(self.average(index, sample, now_ps) * self.cells[index][3]))

    def drops(self, index: int, sample: int, now_ps: int, random: SplitMix64) -> bool:
        """Returns True if a Wred drops the packet."""
        if not 0 <= index < self.size:
            return False
        number = random.next()
        if index not in self.cells:
            return False
        average = self.average(index, sample, now_ps)
        *_, out, low, high = self.cells[index]
        if average < low or average >= high:
            return average >= high
        return (number >> 11) * 2.0**-53 < out * (average - low) / (high - low)
