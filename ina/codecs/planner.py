"""Choice of how a tensor travels: by a codec, uncompressed through the switch, or through Gloo.

    propose     estimates from costs: which ways are worth a trial          settle      decides by measured times

Both are functions of figures that all ranks have agreed on, so all ranks decide alike. A way is taken in place of the
uncompressed sum (`block`) only if it is at least 5 % faster, so by the figures of the decision the choice is never slower. As in
HiPress (SOSP'21), compression has to pay for its own time: it seldom does on fast links.

The model of a codec, for n workers on links of rate R with round trips of a seconds:

    seconds of the codec  +  8 (the larger of the bytes up and down) h / R  +  rounds a        h: headers, as a factor

and of Gloo, whose ring moves 2(n-1)/n of the tensor: 8 * 2(n-1)/n S h / R + 2(n-1) a. Not in it: other buckets on the same link,
and rounds that overlap with other pieces of a long tensor. The trial has both.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from ina.aggregation.lane import INT32
from ina.codecs.costs import Cost
from ina.codecs.registry import DEFAULT, named, names

AUTO = "auto"
GLOO = "gloo"
SWITCH = "switch"  # as it is, where there are no codecs to choose from
LISTED = 4  # codecs in a reason
LEAST_VALUES = 32  # of a packet: what is harmless there is so in longer ones
GAIN = 0.05  # a way must be faster than the uncompressed sum by this share of its time


@dataclass(frozen=True)
class Link:
    """``rate``: bit/s of a worker's link, each way; ``latency``: seconds of a round through the switch that carries little;
    ``headers``: bytes of frames over bytes of values."""

    rate: float
    latency: float
    headers: float = 1.0

    def seconds(self, size: float) -> float:
        """Returns the time in which ``size`` bytes of values pass."""
        return 8 * size * self.headers / self.rate

    @classmethod
    def measured(cls, size: int, seconds: float, latency: float) -> Link:
        """Returns the link on which an uncompressed sum of ``size`` bytes took ``seconds``: processors included."""
        return cls(8 * size / max(seconds - latency, 1e-9), latency)


@dataclass(frozen=True)
class Plan:
    """``way``: a codec's name, DEFAULT, SWITCH or GLOO; ``reason``: a sentence; ``seconds``: by way, the one to beat first."""

    way: str
    reason: str
    seconds: Mapping[str, float]


EITHER = Plan(SWITCH, "", {SWITCH: 0.0, GLOO: 0.0})  # of which nothing is estimated


def allowed(text: str, values: int = LEAST_VALUES) -> tuple[str, ...] | None:
    """Returns the codecs that "auto" or "auto:thc,lanes-16" may choose: those that are harmless where a packet has so many
    ``values``, and those named. None: the text is a codec's name. ValueError: one that is named does not exist."""
    word, colon, rest = text.partition(":")
    if word != AUTO:
        return None
    chosen = [each.strip() for each in rest.split(",")] if colon else []
    for each in chosen:
        if each not in names():
            raise ValueError(f"{text}: codec {each!r}: expected some of {', '.join(names())}")
    return tuple(dict.fromkeys([*harmless(values), *chosen]))


@cache
def harmless(values: int = LEAST_VALUES) -> tuple[str, ...]:
    """Returns the codecs whose stated error is nowhere above that of the uncompressed sum, in packets of so many ``values``, and
    which remember nothing: judged by their bounds for samples of usual magnitudes, and of very different ones from value to value
    and from one 32 to the next."""
    rng, size = np.random.default_rng(1), 4 * max(256, values)
    usual = [rng.standard_normal(size, np.float32) for _ in range(4)]
    uneven = [each * np.exp(rng.uniform(-20, 20, size)).astype(np.float32) for each in usual]
    stepped = [each * np.repeat(np.exp(rng.uniform(-20, 20, size // 32)), 32).astype(np.float32) for each in usual]
    return tuple(name for name in names() if name != DEFAULT and _is_harmless(name, values, (usual, uneven, stepped)))


def _is_harmless(name: str, values: int, samples: tuple[list[np.ndarray], ...]) -> bool:
    """Returns False also for one that fails, perhaps the user's own, and warns of it."""
    try:
        codec = named(name)
        return (not codec.remembers and "float32" in codec.dtypes
                and all(bool(np.all(codec.bound(sample) <= _uncompressed(sample, values))) for sample in samples))
    except Exception as error:
        warnings.warn(f"ina: codec 'auto' leaves out {name}: {type(error).__name__}: {error}", stacklevel=2)
        return False


def _uncompressed(tensors: list[np.ndarray], values: int) -> np.ndarray:
    """Returns the bound of the uncompressed sum in packets of so many values."""
    dense, size = named(DEFAULT), tensors[0].size
    return np.concatenate([dense.bound([each[at : at + values] for each in tensors]) for at in range(0, size, values)])


def worth_measuring(names: tuple[str, ...], elements: int, workers: int) -> tuple[str, ...]:
    """Returns those codecs that may travel in fewer bytes than float32; their costs are worth knowing. One without room for so
    many workers is none."""
    return tuple(name for name in names if name != DEFAULT and _may_be_smaller(name, elements, workers))


def _may_be_smaller(name: str, elements: int, workers: int) -> bool:
    try:
        traffic = named(name).traffic(elements, workers)
    except ValueError:
        return False
    return not traffic.exact or max(traffic.up, traffic.down) < INT32.bytes(elements)


def estimates(elements: int, workers: int, costs: Mapping[str, Cost], link: Link) -> dict[str, float]:
    """Returns estimated seconds by way: uncompressed, Gloo's ring, and the codecs that have costs."""
    size = INT32.bytes(elements)
    ring = 2 * (workers - 1)
    return {
        DEFAULT: link.seconds(size) + link.latency,
        GLOO: link.seconds(ring / workers * size) + ring * link.latency,
        **{name: cost.seconds + link.seconds(max(cost.up, cost.down)) + cost.rounds * link.latency
           for name, cost in costs.items()},
    }


def propose(elements: int, workers: int, costs: Mapping[str, Cost], link: Link) -> Plan:
    """Returns the way that is estimated to be fastest; ``seconds``: of the ways that are worth a trial, which are the
    uncompressed sum, Gloo, whose time depends on more than links, and that way."""
    seconds = estimates(elements, workers, costs, link)
    base = seconds[DEFAULT]
    fastest = min(seconds, key=lambda name: (seconds[name], name))
    way = fastest if seconds[fastest] <= (1 - GAIN) * base else DEFAULT
    tried = {name: seconds[name] for name in dict.fromkeys([DEFAULT, GLOO, way])}
    codecs = sorted(costs, key=lambda name: (seconds[name], name))
    if way in costs:
        why = f"pays for its {_ms(costs[way].seconds)} of encoding and decoding"
    elif codecs:
        why = f"no codec pays: {codecs[0]} takes {_ms(costs[codecs[0]].seconds)} to encode and decode"
    else:
        why = "no codec that is allowed has fewer bytes"
    listed = ", ".join(f"{name} {_ms(seconds[name])}" for name in [DEFAULT, GLOO, *codecs[:LISTED]])
    return Plan(way, f"{way}: {why}; estimated: {listed} ({_rate(link.rate)}, {_ms(link.latency)} a round)", tried)


def settle(proposal: Plan, measured: Mapping[str, float]) -> Plan:
    """Returns the way that was measured to be fastest; the proposal's first, where none is 5 % faster."""
    first = next(iter(proposal.seconds))
    fastest = min(measured, key=lambda name: (measured[name], name))
    way = fastest if measured[fastest] <= (1 - GAIN) * measured[first] else first
    listed = ", ".join(f"{name} {_ms(value)}" for name, value in sorted(measured.items(), key=lambda item: item[1]))
    why, _, estimated = proposal.reason.partition(": ")[2].partition("; ")
    reasons = [f"measured: {listed}", why if way == proposal.way else "", estimated]
    return Plan(way, f"{way}: {'; '.join(filter(None, reasons))}", dict(measured))


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _rate(rate: float) -> str:
    return f"{1e-9 * rate:.3g} Gb/s" if rate >= 1e9 else f"{1e-6 * rate:.3g} Mb/s"
