"""Runs an experiment, from its configuration to its report: any kind, alone or as a point of a sweep."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ina.aggregation.controller.job_records import AdmissionError
from ina.aggregation.worker.errors import JobError
from ina.base.settings import ConfigError
from ina.lab.kind import Experiment, Outcome
from ina.lab.results import report
from ina.lab.results.progress import kept, say_where
from ina.lab.results.record import Folder, new_folder, reasoned
from ina.lab.training import launch
from ina.lab.virtual.virtual_network import Diverged, WrongSum
from ina.worlds.virtual.fabric import Unbalanced

FAILURES = (launch.JobFailed, JobError, WrongSum, Diverged, Unbalanced, AdmissionError, ConfigError)


def run(config: Experiment, root: Path, console: Console) -> Path:
    """Runs one experiment in a new results folder, which it returns, and prints its table.

    Raises one of FAILURES: earlier results are in the folder.
    """
    path = new_folder(root, config.name)
    say_where(console, "Results go to", path)
    outcome = measure(config, path, console)
    title = config.title(outcome.results)
    console.print(f"{config.name}: {title}", highlight=False, soft_wrap=True)  # as a title of the table it would be wrapped
    console.print(report.table(type(config), outcome.results))
    for key, value in outcome.comparison.items():
        console.print(f"  {key}: {value:.3g}", highlight=False)
    if text := report.caution([result.summary() for result in outcome.results]):
        console.print(f"  {text}", highlight=False, soft_wrap=True)
    report.say_page(console, "Report:", path / "report.html")
    return path


def attempt(config: Experiment, path: Path, console: Console | None = None) -> str:
    """Runs one experiment like `measure`, for its folder only. Returns the error, or ""."""
    try:
        measure(config, path, console or Console(quiet=True))
    except FAILURES as error:
        return str(error)
    return ""


def measure(config: Experiment, path: Path, console: Console) -> Outcome:
    """Runs one experiment in the folder ``path``. Returns its results. If it fails, the folder has the reason, and what was
    measured before."""
    path.mkdir(parents=True, exist_ok=True)
    outcome = Outcome([])
    with reasoned(path), kept(path, console, kind=config.kind, name=config.name):
        folder = Folder(path, config)
        for outcome in folder.config.run(path, console):
            page = report.page(folder, outcome.results, outcome.comparison, outcome.plots)
            (path / "report.html").write_text(page)
            folder.save(outcome.results, outcome.comparison, outcome.finished)
    return outcome
