"""Links: time from a cut, a flap or a loss of rate under load until the controller knows it, and until every worker has results.

In virtual time for each protocol, with the event at several times of the all-reduce, and in a Mininet network of two leaves and
two spines. Every sum is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bench.common import Cell, Figure, Measurement, computing, console
from ina.lab.kinds.allreduce import AllReduce, Reduction, in_processes
from ina.lab.processes import testbed
from ina.lab.processes.moving import STALL

TURNS = 3
BUSY = 4  # processes
LINK = "s1-s3"  # of the tree: s3 is the root that is chosen where both spines are alike
CUT, FLAP = f"at 200ms fail {LINK}", f"at 200ms flap {LINK} every 300ms for 900ms"
SLOWED = f"at 200ms slow {LINK} 5M for 2s"
ROWS = (("embedded", "cut", CUT, 0), ("process", "cut", CUT, 0), ("embedded", "flap", FLAP, 0), ("process", "flap", FLAP, 0),
        ("embedded", "slowed", SLOWED, 0), ("process", "slowed", SLOWED, 0), ("embedded", "cut", CUT, BUSY))
VIRTUAL = (("cut", "fail {}"), ("flap", "flap {} every 400us for 1200us"), ("slowed", "slow {} 10G for 300us"))
TIMES = range(50, 450, 40)  # us: of the event, of some 700 us that an all-reduce takes


def measure() -> Iterator[Measurement]:
    """Yields each table when it is complete: an error in a testbed does not cost the other."""
    yield _virtual()
    if reason := testbed.missing():
        console.print(f"links in a testbed: not measured: {reason}", highlight=False)
    else:
        yield _testbed()


def _progress(incident: dict[str, Any], unnoted: float) -> float:
    if incident["rate"] and unnoted and not incident["progress"]:
        return unnoted  # no silence was longer
    return max(incident["progress"].values())


def _row(event: str, runs: list[Reduction], unit: float, unnoted: float = 0.0) -> list[Cell]:
    """Returns the row's figures: of each run, those of its first incident that was noticed or was a slow link. Times of the
    all-reduce and of noticing in ``unit`` s; ``unnoted``: s without a result up to which a silence is not recorded."""
    incidents: list[dict[str, Any]] = [
        next(one for one in run.stats["links"]["incidents"] if one["noticed"] is not None or one["rate"])
        for run in runs
    ]
    noticed: Cell = "never" if event == "slowed" else Figure.of([(one["noticed"] - one["began"]) / unit for one in incidents])
    return [len(runs), sum(bool(one["moved"]) for one in incidents), Figure.of([run.seconds / unit for run in runs]), noticed,
            Figure.of([_progress(one, unnoted) for one in incidents])]


def _virtual() -> Measurement:
    result = Measurement(
        "links in virtual time: 4 workers in two leaves and two spines, 2,000,000 elements at 100 Gb/s, probes of 100 us",
        ["protocol", "event", "runs", "moved", "all-reduce us", "noticed us", "results s"],
        "seconds from the event until every worker had a result of a packet that it sent since", "1 s at most, no wrong sum",
        keys=2,
    )
    for protocol in ("switchml", "atp"):
        base = AllReduce(protocol=protocol, topology="leaf-spine leaves=2 spines=2 hosts=3", workers=4, placement="spread",
                         elements=2_000_000, values=256, slots=64, pool=512, rate=100e9)
        for name, event in VIRTUAL:
            runs = [replace(base, link_events=(f"at {at}us {event.format(LINK)}",), seed=at).measure()[0] for at in TIMES]
            assert all(run.checked for run in runs)
            result.add(protocol, name, *_row(name, runs, 1e-6))
    return result


def _testbed() -> Measurement:
    result = Measurement(
        "links in a testbed: SwitchML, 4 workers in two leaves and two spines, 2,000,000 elements at 50 Mb/s, probes of 50 ms",
        ["switches", "event", "busy", "runs", "moved", "all-reduce ms", "noticed ms", "results s"],
        "seconds from the event until every worker had its next result", "1 s at most on an idle machine, no wrong sum", keys=3,
    )
    base = AllReduce(world="testbed", topology="leaf-spine leaves=2 spines=2 hosts=2", workers=4, elements=2_000_000, values=256,
                     slots=64, pool=512, rate=50e6)
    for switch, name, event, beside in ROWS:
        with computing(beside):
            runs = [in_processes(replace(base, switch=switch, link_events=(event,), seed=seed))[0] for seed in range(TURNS)]
        result.add(switch, name, beside, *_row(name, runs, 1e-3, STALL))
    return result
