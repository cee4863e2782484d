"""Bottlenecks of runs in virtual time, where every link, processor and slot is measured."""

from __future__ import annotations

import statistics

from ina.aggregation import protocols
from ina.aggregation.entries import program_named
from ina.aggregation.worker.config import ETHERNET_OVERHEAD
from ina.base.plurals import counted
from ina.lab.kind import Finding
from ina.lab.results.why import BUSY
from ina.lab.virtual.keys import Virtual
from ina.lab.virtual.timeline import is_compute

CROWDED = 0.10  # of the packets without an aggregator: the pool is too small
FEW = 4  # windows of a tensor: below, round trips decide


def crowded_pool(protocol: str, worker: dict) -> str | None:
    """Returns a text if too many packets found their aggregator taken, for a protocol whose jobs share them; else None."""
    if program_named(protocol).reserves or worker["collided"] <= CROWDED * worker["results"]:
        return None
    share = worker["collided"] / worker["results"]
    return f"{share:.0%} of the packets found their aggregator taken and went to the server as they were"


def straggler(run: dict) -> str | None:
    """Returns a text on the worker that computes longest, if by a tenth longer than the median; else None."""
    spans = run.get("spans", ())
    compute = run.get("compute_by_rank") or [sum(b - a for name, a, b in own if is_compute(name)) for own in spans]
    slowest, median = max(compute), statistics.median(compute)
    if slowest <= 1.1 * median or len(compute) < 3:
        return None
    return f"worker {compute.index(slowest)} computes {slowest / median:.2f} times as long as the median"


def network(config: Virtual, run: dict, share: float, milliseconds: float) -> Finding:
    """Explains a network's run. ``share``: of the run in which an all-reduce was under way, and how long it was altogether."""
    job, worker = run["job"], run["stats"]["workers"]
    link, cpu = (run["link_use"] or 0) / share, run["stats"].get("hosts", {}).get("cpu_use", 0) / share
    resent = worker["retransmissions"] / max(1, worker["tx_packets"])
    lost = run["stats"]["network"]["lost"] + run["stats"]["network"]["corrupted"] + sum(run["stats"]["drops"].values())
    each = worker["tx_packets"] / config.workers
    window = config.window * config.stripes if config.algorithm == "in-network" else config.flow
    facts = [f"the busiest link, {run['busiest_link']}, sent for {link:.0%} of the time", f"hosts' cores worked for {cpu:.0%}"]
    if cpu >= BUSY and cpu >= link:
        return Finding(job, "processor", "; ".join(reversed(facts)))
    if config.algorithm == "in-network" and (crowded := crowded_pool(config.protocol, worker)) is not None:
        return Finding(job, "pool", f"{crowded}, of which there are {config.pool}; {facts[0]}")
    if link >= BUSY:
        return Finding(job, "link", facts[0])
    if lost and worker["retransmissions"]:
        needless = f", {worker['spurious']} of them needlessly" if "spurious" in worker else ""
        again = f"{resent:.2%} of the packets were sent again{needless}"
        shown = f"{counted(lost, 'packet was lost', 'packets were lost')}, {counted(worker['timeouts'], 'time-out')}, {again}"
        return Finding(job, "recovery", f"{shown}; {facts[0]}")
    if each < FEW * window:
        return Finding(job, "latency", f"a worker sends {each:.0f} packets, and may have {window} under way; {facts[0]}")
    if config.algorithm == "in-network" and config.rate:
        seconds = 1e-3 * milliseconds
        answered = window * seconds / each
        frame = protocols.frame_bytes(config.protocol, config.values) + ETHERNET_OVERHEAD
        needed = answered * config.rate / (8 * frame)
        shown = f"each of {window} slots waits {1e6 * answered:.1f} us for its answer; {needed:.0f} of them would fill a link"
        return Finding(job, "pool", f"{shown}; {facts[0]}")
    return Finding(job, "window", f"{facts[0]}, and nothing was lost: flows of {window} packets, or the order of the steps")
