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

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ina.aggregation import protocols
from ina.aggregation.entries import program_named
from ina.aggregation.worker.config import ETHERNET_OVERHEAD
from ina.lab.experiment_keys import Sharing, Trace, Virtual, Workload
from ina.lab.kinds.timeline import is_compute
from ina.lab.results.record import Result

BUSY = 0.85  # of the time: the bottleneck
CROWDED = 0.10  # of the packets without an aggregator: the pool is too small
FEW = 4  # windows of a tensor: below, round trips decide


@dataclass(frozen=True)
class Finding:
    """A bottleneck. ``bound``: one of the words above, or of record.py's for real time; ``shown``: the figures."""

    job: str
    bound: str
    shown: str


def explain(result: Result) -> list[Finding]:
    """Returns a finding for each job or back end; `unknown` where a run has no figures."""
    config = result.config
    if isinstance(config, Sharing):
        return [_sharing(config, run, summary) for run, summary in zip(result.runs, result.summary, strict=True)]
    if isinstance(config, Virtual) and config.world == "virtual":
        return [_virtual(config, run, summary) for run, summary in zip(result.runs, result.summary, strict=True)]
    return [_real(config.world, summary) for summary in result.summary]


def _real(world: str, summary: dict) -> Finding:
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


def _sharing(config: Sharing, run: dict, summary: dict) -> Finding:
    """Explains all jobs of the run together: they are alike."""
    name, worker = summary["job"], run["stats"]["workers"]
    rates = summary["goodput_gbps"], summary["straggler_gbps"]
    if rates[1] is not None and rates[1] < 0.9 * rates[0]:
        text = f"the wire of worker 0 of job 0 is {config.straggler:g} times as slow: that job runs at {rates[1]:.1f} Gb/s"
        return Finding(name, "straggler", f"{text}, the others at {rates[0]:.1f}")
    busiest = f"the busiest link, {run['busiest_link']}, sent for {run['link_use']:.0%} of the time"
    if (crowded := _crowded(config.protocol, worker)) is not None:
        return Finding(name, "pool", f"{crowded}, of which there are {config.pool}; {busiest}")
    if run["link_use"] >= BUSY:
        return Finding(name, "link", busiest)
    if worker["timeouts"]:
        text = f"{worker['timeouts']} time-outs, {worker['retransmissions']} packets sent again"
        return Finding(name, "recovery", f"{text}; {busiest}")
    each = worker["tx_packets"] / (config.workers * config.jobs * config.tensors)
    if config.period or each < FEW * config.slots:
        text = f"a worker sends {each:.0f} packets of a tensor, and may have {config.slots} under way"
        return Finding(name, "latency", f"{text}; {busiest}")
    return Finding(name, "pool", f"each job has {config.slots} slots of the switch's {config.pool}; {busiest}")


def _crowded(protocol: str, worker: dict) -> str | None:
    """Returns a text if too many packets found their aggregator taken, for a protocol whose jobs share them; else None."""
    if program_named(protocol).reserves or worker["collided"] <= CROWDED * worker["results"]:
        return None
    share = worker["collided"] / worker["results"]
    return f"{share:.0%} of the packets found their aggregator taken and went to the server as they were"


def _virtual(config: Virtual, run: dict, summary: dict) -> Finding:
    if isinstance(config, Trace):
        return _trace(config, run, summary)
    if isinstance(config, Workload):
        step, exposed = summary["step_ms"], summary["exposed_ms"]
        computing = f"{summary['compute_ms']:.3f} of {step:.3f} ms a step are compute"
        if (slow := _straggler(run)) is not None:
            return Finding(run["job"], "straggler", f"{computing}; {slow}")
        if summary["efficiency"] >= BUSY:
            return Finding(run["job"], "compute", f"{computing}, {exposed:.3f} ms of all-reduce are not hidden behind it")
        inner = _network(config, run, summary, summary["reduce_ms"] / step)
        return Finding(run["job"], inner.bound, f"{exposed:.3f} of {step:.3f} ms a step are exposed all-reduce; {inner.shown}")
    return _network(config, run, summary, 1.0)


def _trace(config: Trace, run: dict, summary: dict) -> Finding:
    whole, exposed = summary["time_ms"], summary["exposed_ms"]
    computing = f"the rank that computes longest does so for {summary['compute_ms']:.3f} of {whole:.3f} ms"
    if (slow := _straggler(run)) is not None:
        return Finding(run["job"], "straggler", f"{computing}; {slow}")
    if summary["efficiency"] >= BUSY:
        return Finding(run["job"], "compute", f"{computing}, and {exposed:.3f} ms are not")
    inner = _network(config, run, summary, max(exposed / whole, 1e-9))
    return Finding(run["job"], inner.bound, f"{exposed:.3f} of {whole:.3f} ms are not compute; {inner.shown}")


def _straggler(run: dict) -> str | None:
    """Returns a text on the worker that computes longest, if by a tenth longer than the median; else None."""
    spans = run.get("spans", ())
    compute = run.get("compute_by_rank") or [sum(b - a for name, a, b in own if is_compute(name)) for own in spans]
    slowest, median = max(compute), statistics.median(compute)
    if slowest <= 1.1 * median or len(compute) < 3:
        return None
    return f"worker {compute.index(slowest)} computes {slowest / median:.2f} times as long as the median"


def _network(config: Virtual, run: dict, summary: dict, share: float) -> Finding:
    """Explains a network's run. ``share``: of the run in which an all-reduce was under way."""
    job, worker = run["job"], run["stats"]["workers"]
    link, cpu = (run["link_use"] or 0) / share, run["stats"].get("hosts", {}).get("cpu_use", 0) / share
    resent = worker["retransmissions"] / max(1, worker["tx_packets"])
    lost = run["stats"]["network"]["lost"] + run["stats"]["network"]["corrupted"] + sum(run["stats"]["drops"].values())
    each = worker["tx_packets"] / config.workers
    window = config.window * config.stripes if config.algorithm == "in-network" else config.flow
    facts = [f"the busiest link, {run['busiest_link']}, sent for {link:.0%} of the time", f"hosts' cores worked for {cpu:.0%}"]
    if cpu >= BUSY and cpu >= link:
        return Finding(job, "processor", "; ".join(reversed(facts)))
    if config.algorithm == "in-network" and (crowded := _crowded(config.protocol, worker)) is not None:
        return Finding(job, "pool", f"{crowded}, of which there are {config.pool}; {facts[0]}")
    if link >= BUSY:
        return Finding(job, "link", facts[0])
    if lost and worker["timeouts"]:
        shown = f"{lost} packets were lost, {worker['timeouts']} time-outs, {resent:.2%} of the packets were sent again"
        return Finding(job, "recovery", f"{shown}; {facts[0]}")
    if each < FEW * window:
        return Finding(job, "latency", f"a worker sends {each:.0f} packets, and may have {window} under way; {facts[0]}")
    if config.algorithm == "in-network" and config.rate:
        whole = summary["reduce_ms"] * config.steps if isinstance(config, Workload) else summary["time_ms"]
        seconds = 1e-3 * whole
        answered = window * seconds / each
        frame = protocols.frame_bytes(config.protocol, config.values) + ETHERNET_OVERHEAD
        needed = answered * config.rate / (8 * frame)
        shown = f"each of {window} slots waits {1e6 * answered:.1f} us for its answer; {needed:.0f} of them would fill a link"
        return Finding(job, "pool", f"{shown}; {facts[0]}")
    return Finding(job, "window", f"{facts[0]}, and nothing was lost: flows of {window} packets, or the order of the steps")


def lines(results: Sequence[Result], names: Sequence[str]) -> list[str]:
    """Returns one line for each finding; ``names``: of the results."""
    return [f"{name + ': ' if name else ''}{finding.job}: {finding.bound} — {finding.shown}"
            for name, result in zip(names, results, strict=True) for finding in explain(result)]  # fmt: skip
