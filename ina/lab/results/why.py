"""Bottleneck of a run: `ina why FOLDER` names it, with the figures that show it.

    link        the busiest link sent most of the time: fewer bytes, more links or a higher rate would help
    processor   a host's cores worked most of the time: larger packets, more cores
    compute     a training's steps are compute: a faster network changes nothing
    straggler   one worker computes longer than the others, and all wait for it
    preemption  workers were taken away: steps were begun again, and fewer compute
    recovery    packets were lost, and their slots or flows waited until they were sent again
    pool        every slot of the job had its packet under way, or packets found no free aggregator: more of them would help
    window      so had every flow between two hosts
    latency     the tensor is over in a few round trips: nothing is full
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ina.base.plurals import counted
from ina.lab.kind import Finding
from ina.lab.results.record import Result, ResultsError

BUSY = 0.85  # of the time: the bottleneck
SPOILT = {  # counters of struct ina_worker_stats: of what, and what became of it
    "drop_corrupt": ("frame", "did not fit the checksum or check words: something on the way changes bits"),
    "drop_version": ("frame", "came with another wire version: a machine nearby has another ina"),
    "refusals": ("packet", "refused by a switch of another wire version"),
}


def explain(result: Result) -> list[Finding]:
    """Returns a finding for each job or back end; `unknown` where a run has no figures. Frames that failed a check are named with
    it, values that were flushed to zero, ranks that others waited for, and what codec = "auto" chose.

    Raises ResultsError: the figures are not those of such a run; a kind relies on more of them than tables do."""
    try:
        findings = [result.config.why(run, summary) for run, summary in zip(result.runs, result.summary, strict=True)]
        return [replace(finding, shown=finding.shown + "".join(f"; {text}" for text in texts(run)))
                for finding, run in zip(findings, result.runs, strict=True)]
    except KeyError as error:
        raise ResultsError(f"{result.path / 'metrics.json'}: has no figure {error}, which explains runs of kind "
                           f"{result.config.kind}; run it again") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ResultsError(f"{result.path / 'metrics.json'}: expected all figures of kind {result.config.kind}: "
                           f"{type(error).__name__}: {error}; run it again") from error


def texts(run: dict) -> Iterator[str]:
    """Yields what else there is to say of a run."""
    for each in (spoilt, flushed, late, planned):
        yield from each(run)


def spoilt(run: dict) -> list[str]:
    """Returns a text for each kind of frame that workers dropped because it was spoilt, or of another version."""
    stats = run.get("stats") or {}
    worker = stats.get("workers") or stats.get("worker") or {}
    return [f"{counted(worker[name], noun)} {text}" for name, (noun, text) in SPOILT.items() if worker.get(name)]


def flushed(run: dict) -> list[str]:
    """Returns a text if values became zero on their way, far below the largest of their block."""
    stats = run.get("stats") or {}
    counts = [stats.get("worker", {}), stats.get("workers", {}), *stats.get("codecs", {}).values()]
    values = sum(each.get("flushed", 0) for each in counts)
    text = (f"{counted(values, 'value')} other than zero became zero, which codec = 'exact' prevents, and 'two-limb' where they "
            "are less far below the largest of their block")
    return [text] if values else []


def late(run: dict) -> list[str]:
    """Returns a text for each rank that others waited for, for half a second or longer."""
    waits = (run.get("stats") or {}).get("late", {})
    return [f"{counted(each['waits'], 'collective')} waited for rank {rank}, {each['seconds']:.1f} s together"
            for rank, each in waits.items()]


def planned(run: dict) -> list[str]:
    """Returns a text for each tensor whose way was chosen by measured times."""
    return [f"{tensor} by {reason}" for tensor, reason in (run.get("stats") or {}).get("plans", {}).items()]


def repeated(summary: dict) -> str:
    """Returns a text about packets that were sent again, and how many of them needlessly; "": none was."""
    if not summary.get("retransmissions"):
        return ""
    again = f"{summary['retransmissions']} of {summary['packets']} packets were sent again"
    needless = f", {summary['spurious']} needlessly" if summary.get("spurious") is not None else ""
    delays = summary.get("delays") if summary.get("spurious") else 0
    return f"{again}{needless}" + (f"; processors are busy: {counted(delays, 'time')} a process ran too late" if delays else "")


def measured(world: str, summary: dict) -> Finding:
    """Explains a run of processes: links were measured, processors only in trainings."""
    name, use = str(summary.get("backend", summary.get("job"))), summary.get("link_use")
    again = repeated(summary)
    if summary.get("bound") is not None:
        text = f", the busiest link was used for {use:.0%} of it" if use is not None else ""
        text += f"; {again}" if again else ""
        return Finding(name, str(summary["bound"]), f"{summary['allreduce_ms']:.2f} ms a step in all-reduce{text}")
    if use is None:
        return Finding(name, "unknown", f"no link or processor was measured in world {world}")
    text = f"the busiest link was used for {use:.0%} of the time"
    if use >= BUSY:
        return Finding(name, "link", text)
    if again:
        return Finding(name, "recovery", f"{again}; {text}")
    return Finding(name, "unknown", f"{text}, and no processor was measured in world {world}")


def lines(results: Sequence[Result], names: Sequence[str], skipped: Callable[[ResultsError], None]) -> list[str]:
    """Returns one line for each finding; ``names``: of the results. ``skipped`` hears of those that cannot be explained. Raises
    ResultsError: none of the results can."""
    explained: list[str] = []
    for name, result in zip(names, results, strict=True):
        try:
            explained += [f"{name + ': ' if name else ''}{finding.job}: {finding.bound} — {finding.shown}"
                          for finding in explain(result)]
        except ResultsError as error:
            if len(results) == 1:
                raise
            skipped(error)
    if not explained:
        raise ResultsError("none of these runs has figures that can be explained")
    return explained
