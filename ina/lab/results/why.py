"""Bottleneck of a run: `ina why FOLDER` names it, with the figures that show it.

    link        the busiest link sent most of the time: fewer bytes, more links or a higher rate would help
    processor   a host's cores worked most of the time: larger packets, more cores
    compute     a training's steps are compute: a faster network changes nothing
    straggler   one worker computes longer than the others, and all wait for it
    recovery    packets were lost, and their slots or flows stood still for a time-out
    pool        every slot of the job had its packet under way, or packets found no free aggregator: more of them would help
    window      so had every flow between two hosts
    latency     the tensor is over in a few round trips: nothing is full
"""

from __future__ import annotations

from collections.abc import Sequence

from ina.lab.kind import Finding
from ina.lab.results.record import Result

BUSY = 0.85  # of the time: the bottleneck


def explain(result: Result) -> list[Finding]:
    """Returns a finding for each job or back end; `unknown` where a run has no figures."""
    return [result.config.why(run, summary) for run, summary in zip(result.runs, result.summary, strict=True)]


def measured(world: str, summary: dict) -> Finding:
    """Explains a run of processes: links were measured, processors only in trainings."""
    name, use = str(summary.get("backend", summary.get("job"))), summary.get("link_use")
    if summary.get("bound") is not None:
        text = f", the busiest link was used for {use:.0%} of it" if use is not None else ""
        return Finding(name, str(summary["bound"]), f"{summary['allreduce_ms']:.2f} ms a step in all-reduce{text}")
    if use is None:
        return Finding(name, "unknown", f"no link or processor was measured in world {world}")
    text = f"the busiest link was used for {use:.0%} of the time"
    if use >= BUSY:
        return Finding(name, "link", text)
    if summary["retransmissions"]:
        return Finding(name, "recovery", f"{summary['retransmissions']} of {summary['packets']} packets were sent again; {text}")
    return Finding(name, "unknown", f"{text}, and no processor was measured in world {world}")


def lines(results: Sequence[Result], names: Sequence[str]) -> list[str]:
    """Returns one line for each finding; ``names``: of the results."""
    return [f"{name + ': ' if name else ''}{finding.job}: {finding.bound} — {finding.shown}"
            for name, result in zip(names, results, strict=True) for finding in explain(result)]  # fmt: skip
