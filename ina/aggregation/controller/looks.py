"""Looks at running switch processes from outside: their answers to questions, and rates between two looks."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from ina.aggregation.controller.client import Client

ANSWER = 10.0  # seconds
PHASES = ("ingress", "egress")  # reasons of drops in a switch that the program itself decides
WAYS = {"ports": {"in": "rx", "out": "tx"}, "links": {"up": "up", "down": "down"}}  # directions, and their counters' names


def ask(name: str, *operations: str, timeout: float = ANSWER) -> dict[str, dict[str, Any]]:
    """Returns the switch process's reply to each operation (api.py). ``timeout``: in seconds, for all of them together. Raises
    ControlError."""
    until = time.monotonic() + timeout
    replies = {}
    with closing(Client(name, timeout)) as client:
        for operation in operations:
            client.timeout = max(until - time.monotonic(), 0.0)
            replies[operation] = client.ask(operation)
    return replies


def sample(name: str, *more: str, timeout: float = ANSWER) -> dict[str, Any]:
    """Returns what a switch process says of itself: the replies to ``ping``, ``jobs``, ``counters``, ``switches`` and ``more``,
    and ``at``: when, in monotonic seconds. Raises ControlError."""
    return {**ask(name, "ping", "jobs", "counters", "switches", *more, timeout=timeout), "at": time.monotonic()}


def silent_words(one: dict[str, Any]) -> str:
    """Returns words about a worker from which nothing comes (``silent`` of the reply to ``switches``)."""
    return (f"nothing has come from {one['host']} (worker {one['worker']} of {one['job']}) for {one['seconds']:.0f} s, while "
            "others of its job send: it computes, it stands still, or its link loses everything")


def link_jobs_words(one: dict[str, Any]) -> list[str]:
    """Returns words about the jobs of a link's incident (link_recovery.py): those that moved, wait, or waited."""
    waiting = one.get("waiting", ())
    return [f"{job} moved to root {root}" for job, root in one["moved"].items()] + [
        f"{job} {'waits' if job in waiting else 'waited'}" for job in one["waited"] if job not in one["moved"]]


def clock(at: float | None) -> str:
    """Returns the local time of day, "" for None; ``at``: seconds as of time.time()."""
    return time.strftime("%H:%M:%S", time.localtime(at)) if at else ""


def workers_of(job: dict[str, Any]) -> tuple[int, int]:
    """Returns how many of a job's workers have attached at a switch process or at those below it, and how many are to: of a job
    in a tree of switch processes those below this one. ``job``: as `jobs` says."""
    below = {min(workers): len(workers) for workers in job.get("below", {}).values()}  # one member stands for all of these
    return sum(below.get(int(worker), 1) for worker in job["members"]), job.get("here", job["workers"])


def rates_between(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Returns rates. ``jobs``: by name, workers here and in all. ``faults``: links that are down or slow, if any. ``ports`` or
    ``links``: by name, per second: packets and bits of both directions (``in``: towards the switch, ``up``: from the host or the
    first switch), and drops."""
    seconds = max(new["at"] - old["at"], 1e-9)
    result: dict[str, Any] = {"jobs": {name: [*workers_of(job)] for name, job in new["jobs"]["jobs"].items()}}
    if faults := [one for one in new.get("switches", {}).get("links", []) if one["ended"] is None]:
        result["faults"] = faults
    for kind, ways in WAYS.items():
        rows = new["counters"].get(kind) or {}
        if not rows:
            continue
        result[kind] = {}
        for name, row in rows.items():
            now, before = flat(row), flat(old["counters"].get(kind, {}).get(name, {}))
            rate = {f"{way}_{unit}": scale * (now[f"{key}_{field}"] - before.get(f"{key}_{field}", 0)) / seconds
                    for way, key in ways.items() for unit, field, scale in (("packets", "packets", 1), ("bits", "bytes", 8))}
            lost = [key for key in now if key.endswith("drops") or key == "lost"]
            rate["drops"] = sum(now[key] - before.get(key, 0) for key in lost) / seconds
            result[kind][name] = rate
    return result


def flat(row: dict[str, Any]) -> dict[str, float]:
    """Returns the numbers of a port or link: of dictionaries in it the sum, enough while it is zero. Of a switch's drops,
    ``consumed`` are packets that ended in the program: added up, or dropped for a reason that it counts itself."""
    numbers: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, dict) and key == "drops":
            numbers["consumed"] = sum(value.get(phase, 0) for phase in PHASES)
            value = {reason: n for reason, n in value.items() if reason not in PHASES}
        numbers[key] = sum(value.values()) if isinstance(value, dict) else value
    return numbers
