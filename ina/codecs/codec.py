"""The interface of codecs: see the package's description."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np

from ina.aggregation.lane import INT32
from ina.base.native import lib


class Operation(IntEnum):
    """Operation of the switch in a round; the numbers are those of the worker's reductions (host/protocol/protocol.h)."""

    ADD = lib.INA_SUM
    MAXIMUM = lib.INA_MAX
    OWN = lib.INA_OWN


ADD, MAXIMUM, OWN = Operation.ADD, Operation.MAXIMUM, Operation.OWN


@dataclass(frozen=True)
class Round:
    """One round through the switch: contiguous words, which the results replace, of int32, or of float32 in the protocol's own
    code, whose results may be `average`s, rounded once. As many on all workers.

    ``meanwhile``: computes what the codec needs next and the results do not change. It may be called while the words are on
    their way, where there is a way; so the codec calls it behind them, too, and `functools.cache` keeps what it has computed."""

    words: np.ndarray
    operation: Operation = ADD
    average: bool = False
    meanwhile: Callable[[], object] | None = None


@dataclass(frozen=True)
class Call:
    """The reduction that a codec takes part in. ``rank``: for seeds that differ; ``step``: the number of the codec's calls before
    this one, for seeds that are common to all workers and fresh; ``in_place``: the result may be written over the values."""

    workers: int
    rank: int = 0
    average: bool = False
    step: int = 0
    in_place: bool = False

    @property
    def divisor(self) -> int:
        """The number of workers for averages, else 1."""
        return self.workers if self.average else 1


@dataclass(frozen=True)
class Traffic:
    """Bytes of values that a worker sends and gets for a tensor, without headers; ``exact``: else an upper bound, as they depend
    on the values."""

    up: int
    down: int
    exact: bool = True


def both_ways(words: int, exact: bool = True) -> Traffic:
    """Returns the traffic of so many words up, and as many down."""
    return Traffic(INT32.bytes(words), INT32.bytes(words), exact)


Rounds = Generator[Round, np.ndarray, np.ndarray]


@cache
def _signature(kind: type) -> inspect.Signature:
    return inspect.signature(kind.__init__)  # type: ignore[misc]  # of a class that no subclass stands for


class Codec(ABC):
    """A codec, with what it remembers between calls: `named` gives a new one each time.

    ``rounds``: at most, of a call. ``dtypes``: of values that it takes; bfloat16 comes as uint16, its bits. A tensor of
    16-bit floats comes as float32 to a codec that does not name its type. ``remembers``: it keeps state between calls (error
    feedback, warm starts), so each tensor needs one of its own. ``protocol``: the one whose program `Operation.OWN` means.
    ``accumulator``: what the switch adds the values up in, for people (docs/guide/codecs.md).
    ``flushed``: values other than zero that became zero on their way, so far.
    ``reason``: why the last call went as it did, of a codec that chooses.
    """

    name: ClassVar[str]
    rounds: ClassVar[int] = 1
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)
    operations: ClassVar[frozenset[Operation]] = frozenset({ADD})
    remembers: ClassVar[bool] = False
    protocol: ClassVar[str] = ""
    accumulator: ClassVar[str] = "32-bit integers"
    _parameters: tuple[object, ...]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        codec = super().__new__(cls)
        given = _signature(cls).bind(codec, *args, **kwargs)
        given.apply_defaults()
        _, *parameters = given.arguments.values()
        codec._parameters = tuple(parameters)
        return codec

    def __init__(self) -> None:
        self.flushed = 0
        self.reason = ""

    @property
    def title(self) -> str:
        """The name and the parameters that it was made with, in which all workers have to agree."""
        return f"{self.name} {self._parameters}" if self._parameters else self.name

    @abstractmethod
    def reduce(self, values: np.ndarray, call: Call) -> Rounds:
        """Yields the rounds of one reduction, and returns the sum or average as an array like ``values`` (which stay unchanged
        but for a call that is `in_place`, and may be that array).

        ``values``: flat and contiguous, of one of ``dtypes``. The result of each `yield` is that round's words, reduced over all
        workers: the same on all of them, and so is what is returned.
        """

    @abstractmethod
    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        """Returns how far a result may be from the exact one, for each element; ``tensors``: the workers', finite. Infinities
        aside: where the exact result is no further than the bound from the largest number, a result may be one. A lossy codec
        with no such bound returns infinities, and says so in its description."""

    @abstractmethod
    def traffic(self, elements: int, workers: int) -> Traffic:
        """Returns the bytes of values for a tensor of finite ones."""

    def why_not(self, protocol: str) -> str:
        """Returns "", or why a switch with the program of ``protocol`` does something else in `Operation.OWN` than it needs."""
        if OWN not in self.operations or self.protocol == protocol:
            return ""
        return f"its protocol is {protocol}, codec {self.name} needs {self.protocol or 'one that its `protocol` names'}"

    def own(self, words: Sequence[np.ndarray]) -> np.ndarray:
        """Returns what the protocol's program makes of the workers' words in a round of `Operation.OWN`; only for `reduced`."""
        raise ValueError(f"codec {self.name}: a program's own operation: expected its method `own` to say what it gives")


class Feedback(Codec):
    """A codec whose workers add what a call misses to their next values: right in the long run, not in a step."""

    remembers = True

    def bound(self, tensors: Sequence[np.ndarray], average: bool = False) -> np.ndarray:
        """Returns infinities."""
        return np.full(tensors[0].shape, np.inf)


def rounding(exact: np.ndarray, dtype: str = "float32") -> np.ndarray:
    """Returns the largest error of rounding once to ``dtype``: half of the last place (all of float64's smallest: its half is no
    float64)."""
    limits = np.finfo(dtype)
    smallest = float(limits.smallest_subnormal)
    return np.maximum(np.abs(exact) * 2.0 ** -(limits.nmant + 1), smallest / 2 or smallest)
