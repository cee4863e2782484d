"""Runs all points of a plan; finished ones are never run again. Points in virtual time run in parallel processes.

    results/<name>-<time>/experiment.json     the plan, with the hashes of program and worker
    results/<name>-<time>/000-loss=0.0/       a run's folder (ina/lab/results/record.py); finished, or run again
    results/<name>-<time>/report.html         comparison of all finished points
    results/<name>-<time>/results.csv         their keys and figures, a row a back end or job (ina/lab/results/tabular.py)
    results/<name>-<time>/progress.jsonl      while it runs: points done of all (ina/lab/results/journal.py)
    results/<name>-<time>/unfinished          there until the sweep has ended, the report included
    results/<name>-<time>/error.txt           what failed, if anything; also in a point's folder
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path

from rich.console import Console

from ina.base import signals
from ina.base.plurals import counted
from ina.base.settings import ConfigError
from ina.lab import cluster, run
from ina.lab.plan import Plan
from ina.lab.results import compare, journal, report, tabular
from ina.lab.results.progress import kept, say_where
from ina.lab.results.record import (
    SCHEMA,
    Result,
    ResultsError,
    finished,
    new_folder,
    read_plan,
    reasoned,
    sources,
    write_json,
)
from ina.lab.training import launch

Skipped = Callable[[ResultsError], None]
UNFINISHED = "unfinished"
SILENCE = 10.0  # seconds after which a sweep whose points run in several processes says that it is alive


class SweepFailed(RuntimeError):
    """Points failed; the others are finished."""


class Held(ResultsError):
    """Another process runs a sweep in this folder."""


def _document(plan: Plan) -> dict:
    points = [
        {"folder": point.folder(i), "values": point.values, "config": point.config.as_dict(), "sources": sources(point.config)}
        for i, point in enumerate(plan.points)
    ]
    document = {"schema": SCHEMA, "name": plan.base.name, "about": plan.about, "kind": plan.base.kind,
                "axes": plan.axes, "points": points}
    return json.loads(json.dumps(document))  # as when read back: tuples become lists


def _same(old: dict, new: dict) -> str:
    """Returns why a folder's plan is not this one; empty: it is."""
    if old.get("schema") != SCHEMA:
        return f"its schema is {old.get('schema')!r}, expected {SCHEMA}"
    if [p["config"] for p in old["points"]] != [p["config"] for p in new["points"]]:
        return "its points are others"
    changed = {
        part
        for a, b in zip(old["points"], new["points"], strict=True)
        for part in a["sources"]
        if a["sources"][part] != b["sources"][part]
    }
    names = {"program": "the switch program", "worker": "the worker"}
    return f"{' and '.join(names[part] for part in sorted(changed))} changed since" if changed else ""


def _hold(folder: Path) -> int:
    """Takes an exclusive lock on the folder, which the kernel releases when this process ends. Raises Held."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Held(f"{folder}: another process is running this sweep") from None
    return descriptor


def unfinished(root: Path, document: dict, skipped: Skipped) -> list[Path]:
    """Returns folders of this plan, newest first, in which points are missing or whose sweep was interrupted; ``skipped`` hears
    of those whose plan cannot be read."""
    folders = []
    for path in sorted(root.glob(f"{document['name']}-*/experiment.json"), reverse=True):
        try:
            old, folder = read_plan(path), path.parent
        except ResultsError as error:
            skipped(error)
            continue
        missing = not all(finished(folder / p["folder"]) for p in old["points"])
        if not _same(old, document) and (missing or (folder / UNFINISHED).exists()):
            folders.append(folder)
    return folders


def open_folder(plan: Plan, root: Path, resume: Path | None, new: bool, skipped: Skipped) -> tuple[Path, int]:
    """Returns the folder to work in and the lock on it: ``resume``, else the newest unfinished one, else a new one. ``skipped``
    hears of folders that cannot be read.

    Raises:
        ResultsError: ``resume`` is no folder of this plan, or another process works on it.
    """
    document = _document(plan)
    if resume is not None:
        reason = _same(read_plan(resume / "experiment.json"), document)
        if reason:
            raise ResultsError(f"{resume} cannot be resumed: {reason}; start anew with --new")
        return resume, _hold(resume)
    for folder in [] if new else unfinished(root, document, skipped):
        try:
            return folder, _hold(folder)
        except Held:
            continue
    folder = new_folder(root, plan.base.name)
    hold = _hold(folder)
    write_json(folder / "experiment.json", document)
    return folder, hold


def sweep(
    plan: Plan, root: Path, console: Console, resume: Path | None = None, new: bool = False, processes: int = 1,
    tables: bool = True, ray: str = "",
) -> Path:
    """Runs unfinished points and writes the report, also when interrupted; returns the results folder.

    ``tables``: printed at the end. ``processes``: points in virtual time that run at once; others run one by one. ``ray``: the
    address of a cluster that runs them instead (ina/lab/cluster.py).

    Raises:
        ConfigError: a point's network is none, or has too few hosts; nothing was run.
        ResultsError: ``resume`` does not fit.
        SweepFailed: points failed; all others were run.
    """
    type(plan.base).check_networks([point.config for point in plan.points])
    folder, hold = open_folder(plan, root, resume, new, partial(_say_skipped, console, "not resumed"))
    try:
        with reasoned(folder), kept(folder, console, kind=plan.base.kind, name=plan.base.name, points=len(plan.points)):
            _sweep(plan, folder, console, processes, tables, ray)
    finally:
        os.close(hold)
    return folder


def _sweep(plan: Plan, folder: Path, console: Console, processes: int, tables: bool, ray: str) -> None:
    say_where(console, "Results go to", folder)
    (folder / UNFINISHED).touch()  # after Ctrl-C all points may be finished, but not the sweep
    places = [folder / point.folder(i) for i, point in enumerate(plan.points)]
    todo = [i for i, place in enumerate(places) if not finished(place)]
    if len(todo) < len(places):
        console.print(f"{len(places) - len(todo)} of {len(places)} points are there already", highlight=False)
    try:
        with signals.terminable():
            failures = _run(plan, folder, places, todo, console, processes, ray)
    except signals.Terminated:
        _end_points()
        raise
    finally:  # also after an interrupt, of the finished points
        if results := _results(folder, console):
            (folder / "results.csv").write_text(tabular.text(results))
            (folder / "report.html").write_text(compare.page(plan.base.name, plan.about, results))
    if tables and results:
        compare.show(console, plan.base.name, results)
        report.say_page(console, "Report:", folder / "report.html")
    (folder / UNFINISHED).unlink()
    if failures:
        head = f"{len(failures)} of {len(places)} points failed; the same command tries them again"
        raise SweepFailed("\n".join([head, *failures]))


def _say_skipped(console: Console, result: str, error: ResultsError) -> None:
    console.print(f"{result}: {error}", highlight=False, markup=False, soft_wrap=True)


def _results(folder: Path, console: Console) -> list[Result]:
    """Returns finished points; names those that cannot be read."""
    try:
        return compare.points(folder, partial(_say_skipped, console, "left out of the report"))
    except ResultsError:  # no point is finished
        return []


def _run(plan: Plan, folder: Path, places: list[Path], todo: list[int], console: Console, processes: int, ray: str) -> list[str]:
    """Runs points; returns the failures."""
    at_once = min(processes, len(todo)) if plan.base.world == "virtual" else 1
    failures: list[str] = []
    began, keeper = time.monotonic(), journal.of(folder)
    if keeper:
        keeper.note("", len(places) - len(todo), len(places))
    if ray:
        if plan.base.world != "virtual":
            raise ConfigError(f"world = {plan.base.world!r}: expected 'virtual' with --ray, which runs points anywhere")
        ended = cluster.run_points(ray, {index: plan.points[index].config for index in todo}, places, console)
    else:
        ended = _run_here(plan, places, todo, console, at_once)
    for count, (index, error) in enumerate(ended, start=1):
        point, remaining = plan.points[index], (time.monotonic() - began) / count * (len(todo) - count)
        note = f", about {remaining:.0f} s to go" if count < len(todo) else ""
        name = f": {point}" if point.values else ""
        console.print(f"[bold]{len(places) - len(todo) + count} of {len(places)}[/bold]{name}{note}", highlight=False)
        if keeper:
            keeper.note("", len(places) - len(todo) + count, len(places), f"{len(failures) + bool(error)} failed")
        if error:
            failures.append(f"{point}: {error}")
            console.print(f"  failed: {error}", highlight=False, markup=False)
    return failures


def _run_here(
    plan: Plan, places: list[Path], todo: list[int], console: Console, at_once: int
) -> Iterator[tuple[int, str]]:
    """Runs points; yields the number of each as it ends, with its error or ""."""
    if at_once < 2:
        for index in todo:
            if len(places) > 1:  # its end may be a minute away, when programs are compiled
                console.print(f"point {index + 1} of {len(places)}: {plan.points[index]}", highlight=False, markup=False)
            yield index, run.attempt(plan.points[index].config, places[index], console)
        return
    for point in plan.points:
        point.config.prepare()
    pool = ProcessPoolExecutor(at_once, get_context("spawn"), _begin, (os.getpid(),))
    try:
        under_way = {pool.submit(run.attempt, plan.points[index].config, places[index]): index for index in todo}
        began = time.monotonic()
        while under_way:
            done, _ = wait(under_way, SILENCE, FIRST_COMPLETED)
            if not done:
                count = counted(min(at_once, len(under_way)), "point")
                console.print(f"{count} under way, {time.monotonic() - began:.0f} s so far", highlight=False)
            for future in done:
                yield under_way.pop(future), future.result()
    except signals.Terminated:
        _end_points()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_points() -> None:
    for process in active_children():
        process.terminate()


def _begin(runner: int) -> None:
    """Sets up a process of the pool. Ctrl-C reaches all processes: this one finishes its point, and the runner begins no more.
    This process ends with the runner, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    launch.die_with_parent(runner)
