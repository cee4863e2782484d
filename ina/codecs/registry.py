"""Codecs by name: those of this package, those that a program registers, and those of installed packages, in the group
`ina.codecs` of entry points:

    [project.entry-points."ina.codecs"]
    halves = "my_package:Halves"
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from ina.codecs.ahead import OmniReduceAhead
from ina.codecs.auto_sparse import AutoSparse
from ina.codecs.block import Block
from ina.codecs.codec import Codec
from ina.codecs.fpisa import Fpisa
from ina.codecs.lanes import Lanes16
from ina.codecs.limbs import Block32, Block64, Block256, Exact, TwoLimb
from ina.codecs.microscaling import CODECS as NARROW
from ina.codecs.omnireduce import OmniReduce
from ina.codecs.powersgd import PowerSgd
from ina.codecs.quantised import IntSgd, Natural, Qsgd, Qsgd4, TernGrad
from ina.codecs.requantised import Lanes16To8
from ina.codecs.signs import Sign, SignVote
from ina.codecs.sketch import Sketch
from ina.codecs.thc import Thc, ThcLookup
from ina.codecs.topk import Dgc, TopK

GROUP = "ina.codecs"
DEFAULT = Block.name
_OWN: dict[str, Callable[[], Codec]] = {
    each.name: each
    for each in (
        *(Block, Block256, Block64, Block32, TwoLimb, Exact, Lanes16, Lanes16To8),
        *NARROW,
        *(Thc, ThcLookup, Fpisa),
        *(OmniReduce, OmniReduceAhead, AutoSparse, Sketch),
        *(Qsgd, Qsgd4, TernGrad, Natural, IntSgd, Sign, SignVote, TopK, Dgc, PowerSgd),
    )
}
_HALVES = ("bf16", "bfloat16", "fp16", "float16")  # types, for which some ask as if they were codecs
_REGISTERED: dict[str, Callable[[], Codec]] = {}


def register(name: str, codec: Callable[[], Codec]) -> None:
    """Registers ``codec``, a class or function that gives a new codec, in this process; every worker's needs it. ValueError: the
    name is taken."""
    if name in names():
        raise ValueError(f"codec {name!r}: expected a new name: there are {', '.join(names())}")
    _REGISTERED[name] = codec


def names() -> tuple[str, ...]:
    """Returns the names of all codecs, this package's first."""
    installed = sorted(entry_points(group=GROUP).names - _OWN.keys() - _REGISTERED.keys())
    return (*_OWN, *_REGISTERED, *installed)


@cache
def _installed(name: str) -> EntryPoint | None:  # looking through all packages takes milliseconds
    return next((entry for entry in entry_points(group=GROUP) if entry.name == name), None)


def named(name: str) -> Codec:
    """Returns a new codec of this name. ValueError: there is none, or its entry point gives something else."""
    make = _OWN.get(name) or _REGISTERED.get(name)
    if make is None:
        found = _installed(name)
        if found is None:
            halves = "; 'lanes-16' sums bfloat16 and float16 in 16 bits" if name in _HALVES else ""
            raise ValueError(f"codec {name!r}: expected one of {', '.join(names())} (a package adds one as an entry point in the "
                             f"group {GROUP}, a program with ina.codecs.register){halves}")
        make = found.load()
    codec = make()
    if not isinstance(codec, Codec):
        raise ValueError(f"codec {name!r}: {make!r} gives {codec!r}, expected an ina.codecs.Codec")
    return codec
