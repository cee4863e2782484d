"""All points of a plan; what is finished is never run again. Points in virtual time run beside each other in processes.

    results/<name>-<time>/experiment.json     the plan, with the hashes of program and worker
    results/<name>-<time>/000-loss=0.0/       a run's folder (ina/lab/results/record.py); finished, or run again
    results/<name>-<time>/report.html         all points beside each other, as far as they are
    results/<name>-<time>/unfinished          there until the sweep came to its end, the report included
    results/<name>-<time>/error.txt           what failed, if anything did; so in a point's folder
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from pathlib import Path

from rich.console import Console

from ina.base.settings import ConfigError
from ina.lab import cluster, run
from ina.lab.config import Virtual
from ina.lab.kinds import virtual_network
from ina.lab.plan import Plan
from ina.lab.results import compare
from ina.lab.results.progress import say_where
from ina.lab.results.record import SCHEMA, ResultsError, finished, new_folder, read_json, reasoned, sources, write_json
from ina.lab.training import launch

UNFINISHED = "unfinished"


class SweepFailed(RuntimeError):
    """Points failed; the others are finished."""


class Held(ResultsError):
    """Another process works on this folder."""


def _document(plan: Plan) -> dict:
    points = [
        {"folder": point.folder(i), "values": point.values, "config": point.config.as_dict(), "sources": sources(point.config)}
        for i, point in enumerate(plan.points)
    ]
    document = {"schema": SCHEMA, "name": plan.base.name, "about": plan.about, "kind": plan.base.kind,
                "axes": plan.axes, "points": points}  # fmt: skip
    return json.loads(json.dumps(document))  # as it is read back: tuples are lists


def _same(known: dict, wanted: dict) -> str:
    """Why a folder's plan is not this one; empty if it is."""
    if known.get("schema") != SCHEMA:
        return f"its schema is {known.get('schema')!r}, expected {SCHEMA}"
    if [p["config"] for p in known["points"]] != [p["config"] for p in wanted["points"]]:
        return "its points are others"
    changed = {
        part
        for a, b in zip(known["points"], wanted["points"], strict=True)
        for part in a["sources"]
        if a["sources"][part] != b["sources"][part]
    }
    names = {"program": "the switch program", "worker": "the worker"}
    return f"{' and '.join(names[part] for part in sorted(changed))} changed since" if changed else ""


def _hold(folder: Path) -> int:
    """An exclusive hold on the folder, which the kernel ends with this process. Raises Held."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Held(f"{folder}: another process is running this sweep") from None
    return descriptor


def unfinished(root: Path, document: dict) -> list[Path]:
    """Folders of this plan, newest first, in which points are missing or whose sweep was interrupted."""
    found = []
    for path in sorted(root.glob(f"{document['name']}-*/experiment.json"), reverse=True):
        known, folder = read_json(path), path.parent
        missing = not all(finished(folder / p["folder"]) for p in known["points"])
        if not _same(known, document) and (missing or (folder / UNFINISHED).exists()):
            found.append(folder)
    return found


def open_folder(plan: Plan, root: Path, resume: Path | None, new: bool) -> tuple[Path, int]:
    """The folder to work in and the hold on it: ``resume``, else the newest unfinished one, else a new one.

    Raises:
        ResultsError: ``resume`` is no folder of this plan, or another process works on it.
    """
    document = _document(plan)
    if resume is not None:
        reason = _same(read_json(resume / "experiment.json"), document)
        if reason:
            raise ResultsError(f"{resume} cannot be resumed: {reason}; start anew with --new")
        return resume, _hold(resume)
    for folder in [] if new else unfinished(root, document):
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
) -> Path:  # fmt: skip
    """Runs what is not finished, also writes the report when interrupted; returns the results folder.

    ``tables``: printed at the end. ``processes``: points in virtual time that run at once; others run one by one. ``ray``: the
    address of a cluster that runs them instead (ina/lab/cluster.py).

    Raises:
        ConfigError: a point's network is none, or has too few hosts; nothing was run.
        ResultsError: ``resume`` does not fit.
        SweepFailed: points failed; all others were run.
    """
    _check_networks(plan)
    folder, hold = open_folder(plan, root, resume, new)
    try:
        with reasoned(folder):
            _sweep(plan, folder, console, processes, tables, ray)
    finally:
        os.close(hold)
    return folder


def _sweep(plan: Plan, folder: Path, console: Console, processes: int, tables: bool, ray: str) -> None:
    say_where(console, "Results go to", folder)
    (folder / UNFINISHED).touch()  # points under way may all end after Ctrl-C: nothing is missing then but the end
    places = [folder / point.folder(i) for i, point in enumerate(plan.points)]
    todo = [i for i, place in enumerate(places) if not finished(place)]
    if len(todo) < len(places):
        console.print(f"{len(places) - len(todo)} of {len(places)} points are there already", highlight=False)
    try:
        with launch.terminable():
            failures = _run(plan, places, todo, console, processes, ray)
    except launch.Terminated:
        _end_points()
        raise
    finally:  # also of what there is when it was interrupted
        if any(map(finished, places)):
            results = compare.points(folder)
            (folder / "report.html").write_text(compare.page(plan.base.name, plan.about, results))
    if tables and any(map(finished, places)):
        compare.show(console, plan.base.name, results)
        say_where(console, "Report:", folder / "report.html")
    (folder / UNFINISHED).unlink()
    if failures:
        head = f"{len(failures)} of {len(places)} points failed; the same command tries them again"
        raise SweepFailed("\n".join([head, *failures]))


def _check_networks(plan: Plan) -> None:
    """What only a network can tell, which is too much work for every configuration that is read. Raises ConfigError."""
    places: dict[str, virtual_network.Place] = {}
    for point in plan.points:
        config = point.config
        if isinstance(config, Virtual) and config.topology != "star":  # which has as many hosts as are wanted
            if config.topology not in places:
                places[config.topology] = virtual_network.place(config)
            places[config.topology].hosts(config)


def _run(plan: Plan, places: list[Path], todo: list[int], console: Console, processes: int, ray: str) -> list[str]:
    """Runs points; returns what failed."""
    at_once = min(processes, len(todo)) if plan.base.world == "virtual" else 1
    failures, began = [], time.monotonic()
    if ray:
        if plan.base.world != "virtual":
            raise ConfigError(f"world = {plan.base.world!r}: expected 'virtual' with --ray, which runs points anywhere")
        some = cluster.finished(ray, {index: plan.points[index].config for index in todo}, places, console)
    else:
        some = _finished(plan, places, todo, console, at_once)
    for done, (index, error) in enumerate(some, start=1):
        point, left = plan.points[index], (time.monotonic() - began) / done * (len(todo) - done)
        note = f", about {left:.0f} s to go" if done < len(todo) else ""
        name = f": {point}" if point.values else ""
        console.print(f"[bold]{len(places) - len(todo) + done} of {len(places)}[/bold]{name}{note}", highlight=False)
        if error:
            failures.append(f"{point}: {error}")
            console.print(f"  failed: {error}", highlight=False, markup=False)
    return failures


def _finished(
    plan: Plan, places: list[Path], todo: list[int], console: Console, at_once: int
) -> Iterator[tuple[int, str]]:
    """Points as they get done, each with what went wrong."""
    if at_once < 2:
        for index in todo:
            yield index, run.tried(plan.points[index].config, places[index], console)
        return
    for config in (point.config for point in plan.points):
        if isinstance(config, Virtual):
            virtual_network.program(config)  # before processes ask for it at once
    pool = ProcessPoolExecutor(at_once, get_context("spawn"), _begin, (os.getpid(),))
    try:
        under_way = {pool.submit(run.tried, plan.points[index].config, places[index]): index for index in todo}
        for future in as_completed(under_way):
            yield under_way[future], future.result()
    except launch.Terminated:
        _end_points()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_points() -> None:
    for process in active_children():
        process.terminate()


def _begin(runner: int) -> None:
    """Ctrl-C goes to all processes: this one finishes its point, and the one that waits begins no more. When that one goes
    away, so does this one, however it went."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    launch.die_with_parent(runner)
