"""Operations of the run-time environment that programs of any architecture use; those of one architecture are in `arch/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ina.p4.compiler import ir
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.errors import Span
from ina.p4.compiler.lower.value_trees import Header


@dataclass(frozen=True, slots=True)
class Crc:
    """A CRC. `poly` without its top bit; `reversed`: bits enter least significant first; `init`: the register's initial value."""

    width: int
    poly: int
    reversed: bool
    init: int
    xor: int


@dataclass(eq=False, slots=True)
class Hash(ir.Operation):
    """A hash of `args`. `varbits`: true for those that are varbits, which their size follows; `payload`: the last one is where
    the rest of the frame begins, which is hashed too."""

    algorithm: str | Crc
    varbits: list[bool]
    payload: bool = False
    lasting: ClassVar[bool] = False
    propagates: ClassVar[bool] = True


@dataclass(eq=False, slots=True)
class Random(ir.Operation):
    """A random number of `args`: the lowest, and how many there are (0: all of 64 bits)."""

    propagates: ClassVar[bool] = True


@dataclass(eq=False, slots=True)
class Count(ir.Operation):
    """Counts the packet in the cell that `args` begin with; bytes that do not count may follow."""

    counter: ir.Counter
    propagates: ClassVar[bool] = True


@dataclass(eq=False, slots=True)
class Measure(ir.Operation):
    """Runs a meter on the packet. `args`: the cell; a TNA meter's bytes that do not count, and the colour so far."""

    meter: ir.Meter


@dataclass(eq=False, slots=True)
class Fail(ir.Operation):
    """Ends the packet and cancels its clones and digests."""

    verdict: str = "INA_FAILED"


@dataclass(eq=False, slots=True)
class LeaveFastPath(ir.Operation):
    """Starts the packet again in the general version."""

    lasting: ClassVar[bool] = False


# --- headers ----------------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class OfRegion(ir.Operation):
    """An operation that moves a header in wire order."""

    region: ir.Region

    def regions(self) -> tuple[ir.Region, ...]:
        return (self.region,)


@dataclass(eq=False, slots=True)
class ExtractRegion(OfRegion):
    """Takes the header off the frame, at the byte in `args`."""

    @property
    def lasts(self) -> bool:
        return not self.region.in_place


@dataclass(eq=False, slots=True)
class FreshRegion(OfRegion):
    """Gives the header its own buffer, all zero."""


@dataclass(eq=False, slots=True)
class KeepRegion(OfRegion):
    """Makes the header valid with its old content: where it lies, or in its own buffer, all zero."""


@dataclass(eq=False, slots=True)
class ClearRegion(OfRegion):
    """Makes the header one that was never extracted."""

    lasting: ClassVar[bool] = False


@dataclass(eq=False, slots=True)
class CopyRegion(ir.Operation):
    """Copies a header and its validity."""

    to: ir.Region
    source: ir.Region

    def regions(self) -> tuple[ir.Region, ...]:
        return (self.to, self.source)


@dataclass(eq=False, slots=True)
class ExtractBits(ir.Operation):
    """Takes a varbit off the frame. `args`: the byte and the number of bits; `bit`: the first one behind the byte."""

    bit: int
    lasting: ClassVar[bool] = False


@dataclass(eq=False, slots=True)
class Deparse(ir.Operation):
    """Gives the frame its new headers. `args`: the old headers' length, the new ones', and the place of each of `headers`."""

    headers: list[Header]


# --- notes of lowering to itself --------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Emitted(ir.Operation):
    """Marks where the deparser emitted its header `number`."""

    number: int


@dataclass(eq=False, slots=True)
class Access(ir.Operation):
    """Marks an access to a Register (arch/lower_tna.py)."""

    register: Instance
    span: Span


# --- C code of the user's own -----------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class CallC(ir.Operation):
    """Calls a C function with `state`'s address, if it has one, and `args`; `pointers`: true for those that it writes, which are
    variables. `returns`: the first target is its result."""

    function: str
    pointers: list[bool]
    returns: bool
    state: ir.Register | None
