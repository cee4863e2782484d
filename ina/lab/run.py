"""Runs an experiment, from its configuration to its report: any kind, alone or as a point of a sweep."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ina.aggregation.controller.job_records import AdmissionError
from ina.aggregation.worker.errors import JobError
from ina.base.settings import ConfigError
from ina.lab import cost_model
from ina.lab.experiment_keys import MODELS, AllReduce, Config, Keys, Sampled, Sharing, Trace, Workload
from ina.lab.kinds import allreduce, replay, sharing, workload
from ina.lab.kinds.timeline import Timeline
from ina.lab.results import report
from ina.lab.results.progress import Watch, say_where
from ina.lab.results.record import Folder, Measured, Reduction, Run, new_folder, reasoned
from ina.lab.testbed_hosts import described, hosts_of
from ina.lab.training import launch
from ina.worlds.virtual.fabric import Unbalanced

if TYPE_CHECKING:
    from ina.worlds.testbed.mininet import Network


WHOLE: dict[type[Keys], Callable] = {
    AllReduce: lambda config, timeline=None: _reduce(config, timeline),
    Workload: workload.train,
    Trace: replay.replay,
    Sharing: sharing.share,
}


def run(config: Keys, root: Path, console: Console) -> Path:
    """Runs one experiment in a new results folder, which it returns, and prints its table.

    Raises:
        launch.JobFailed, ina.aggregation.worker.JobError: a rank or a job failed; earlier results are in the folder.
    """
    path = new_folder(root, config.name)
    say_where(console, "Results go to", path)
    runs, comparison = measure(config, path, console)
    where = f"{config.workers} workers"
    if isinstance(config, Config):
        where += f", {runs[0].dataset}, {runs[0].parameters:,} parameters, {_where(config)}"
    console.print(f"{config.name}: {where}", highlight=False, soft_wrap=True)  # as a title of the table it would be wrapped
    console.print(report.table(config.kind, runs))
    for key, value in comparison.items():
        console.print(f"  {key}: {value:.3g}", highlight=False)
    say_where(console, "Report:", path / "report.html")
    return path


def _where(config: Config) -> str:
    if config.world == "local":
        return "one machine" + (", Tofino's program" if config.switch == "tna" else "")
    rate = f"{config.rate / 1e6:g} Mb/s" if config.rate else "no limit"
    rate += {"bmv2": ", BMv2", "tna": ", Tofino's program"}.get(config.switch, "")
    net = "" if config.topology == "star" else f"{config.topology}, "
    return f"{net}links of {rate}, MTU {config.mtu}" + (f", loss {config.loss:g}" if config.loss else "")


FAILURES = (launch.JobFailed, JobError, allreduce.WrongSum, Unbalanced, AdmissionError, ConfigError)


def attempt(config: Keys, path: Path, console: Console | None = None) -> str:
    """Runs one experiment like `measure`, for its folder only. Returns the error, or ""."""
    try:
        measure(config, path, console or Console(quiet=True))
    except FAILURES as error:
        return str(error)
    return ""


def measure(config: Keys, path: Path, console: Console) -> tuple[list, dict[str, float]]:
    """Runs one experiment in the folder ``path``. Returns its runs and their comparison. If it fails, the folder has the
    reason."""
    path.mkdir(parents=True, exist_ok=True)
    with reasoned(path):
        return _measure(config, Folder(path, config), console)


def _measure(config: Keys, folder: Folder, console: Console) -> tuple[list, dict[str, float]]:
    if type(config) in WHOLE:
        assert isinstance(config, Sampled)
        with Watch(console) as watch:
            timeline = Timeline(config.sample, watch)
            results = WHOLE[type(config)](config, timeline)
        if timeline.jobs:
            timeline.write(folder.path / "trace.json")
        _finish(folder, results, {}, timeline=timeline)
        return results, {}
    assert isinstance(config, Config)
    runs: list[Run] = []
    try:
        for own, backends in _worlds(config):
            with _world(own, console) as network:
                for backend in backends:
                    runs.append(_train(own, backend, folder, console, network))
                    folder.save(runs, {}, finished=False)
    finally:
        comparison = compare(config, folder, runs)
        if runs:
            _finish(folder, runs, comparison, finished=len(runs) == len(config.backends))
    return runs, comparison


def _reduce(config: AllReduce, timeline: Timeline | None) -> list[Reduction]:
    if config.world == "virtual":
        return allreduce.reduce(config, timeline)
    from ina.lab.kinds import processes

    return processes.reduce(config)


def _worlds(config: Config) -> list[tuple[Config, list[str]]]:
    """Returns groups of back ends that share a network: those of one protocol, and Gloo in the current one."""
    worlds: list[tuple[Config, list[str]]] = []
    for backend in config.backends:
        own = config.with_backend(backend)
        if worlds and (backend == "gloo" or worlds[-1][0].program_path == own.program_path):
            worlds[-1][1].append(backend)
        else:
            worlds.append((own, [backend]))
    return worlds


@contextmanager
def _world(config: Config, console: Console) -> Iterator[Network | None]:
    """Starts the testbed's network, if ``config`` runs there."""
    if config.world != "testbed":
        yield None
        return
    from ina.lab.kinds import testbed

    if config.switch == "bmv2" and not testbed.missing(config.switch):
        console.print(_forecast(config), highlight=False)
    with testbed.training(config) as network:
        switches, hosts = len(network.topology.switches), len(network.topology.hosts)
        many = f" and {switches} switches" if switches > 1 else ""
        console.print(f"Network {network.topology.name} of {hosts} hosts{many} is up after {network.up_seconds:.1f} s",
                      highlight=False)  # fmt: skip
        yield network
        began = time.monotonic()
        network.stop()
        console.print(f"Network is down after {time.monotonic() - began:.1f} s", highlight=False)


def _forecast(config: Config) -> str:
    """Returns a line that says how long BMv2 will take, before minutes of waiting."""
    from ina.lab.kinds import testbed
    from ina.p4.p4runtime.bmv2 import is_compiled

    parameters, topology = MODELS[config.model], described(config)
    hosts, cores = hosts_of(config, topology), len(os.sched_getaffinity(0))
    seconds = {name: config.steps * cost_model.bmv2_seconds(name, topology, hosts, parameters, config.values, config.mtu, cores)
               for name in config.backends}  # fmt: skip
    compiled = is_compiled(config.program_path, testbed.defines(config))
    shown = " and ".join(f"{max(1, round(seconds[name]))} s for {name}" for name in seconds)
    packet = 1e6 * (cost_model.BMV2_FRAME + cost_model.BMV2_VALUE * config.values)
    return (f"BMv2 takes some {packet:.0f} us for a packet of {config.values} integers: expect about {shown} ({config.steps} "
            f"steps, {parameters:,} parameters)" + ("" if compiled else ", and half a minute for p4c to compile the program"))


def _finish(
    folder: Folder, runs: Sequence[Measured], comparison: dict[str, float], finished: bool = True,
    timeline: Timeline | None = None,
) -> None:  # fmt: skip
    plots = timeline.plots() if timeline else []
    (folder.path / "report.html").write_text(report.page(folder, runs, comparison, plots))
    folder.save(runs, comparison, finished)


def _train(config: Config, backend: str, folder: Folder, console: Console, network: Network | None = None) -> Run:
    run = Run(backend)
    from ina.lab.kinds import testbed

    place = testbed.place(network, hosts_of(config, network.topology)) if network else None
    meter = testbed.Meter(network)
    began = time.time()
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        names = report.NAMES if network is None else report.TESTBED_NAMES
        task = progress.add_task(f"{names[backend]:<17}", total=None, note="starting")

        def on_message(message: dict) -> None:
            kind = message.pop("kind")
            if kind == "start":
                run.dataset, run.parameters = message["data"], message["parameters"]
                run.start_seconds = message["time"] - began
                console.print(f"Training on {message['source']}", highlight=False)
                progress.update(task, total=message["steps"])
                meter.start()
            elif kind == "step":
                run.losses.append(message["loss"])
                run.step_seconds.append(message["seconds"])
                run.allreduce_seconds.append(message["allreduce"])
                run.allreduce_bytes.append(message["bytes"])
                if message["step"] == message["steps"]:
                    run.network = {**meter.stop(), "switch": config.switch}
                progress.update(task, completed=message["step"], note=f"loss {message['loss']:.3f}")
            elif kind == "end":
                run.accuracy, run.seconds, run.stats = message["accuracy"], message["seconds"], message["stats"]
                progress.update(task, note=f"accuracy {run.accuracy:.2%}")

        config_file = folder.path / "config.json"
        command = ["-m", "ina.lab.training.rank", str(config_file), backend, str(folder.path)]
        launch.run(command, config.workers, folder.path, backend, config.timeout + 60, on_message, place)
    return run


def compare(config: Config, folder: Folder, runs: list[Run]) -> dict[str, float]:
    """Compares each back end's training with Gloo's; empty unless Gloo ran, too."""
    gloo = next((r for r in runs if r.backend == "gloo"), None)
    if gloo is None:
        return {}
    others = [r for r in runs if r is not gloo]
    figures: dict[str, float] = {}
    for ours in others:
        assert ours.accuracy is not None and gloo.accuracy is not None  # both have ended
        suffix = f", {ours.backend}" if len(others) > 1 else ""
        step = min(config.compare_step, len(ours.losses))
        a, b = (np.load(folder.path / f"parameters-{r.backend}-step{step}.npy") for r in (ours, gloo))
        apart = float(np.linalg.norm(a - b) / np.linalg.norm(b))
        figures |= {
            f"relative L2 distance of the parameters after {step} steps{suffix}": apart,
            f"test accuracy, {ours.backend} less gloo, points": 100 * (ours.accuracy - gloo.accuracy),
            f"time in all-reduce, whole run, gloo over {ours.backend}": sum(gloo.allreduce_seconds) / sum(ours.allreduce_seconds),
            **{f"{key}{suffix}": value for key, value in _gain(config.with_backend(ours.backend), ours, gloo).items()},
        }
    return figures


def _gain(config: Config, ours: Run, gloo: Run) -> dict[str, float]:
    """Returns, for the testbed, the cost model's prediction where the link is the bottleneck, and the share of it that was
    measured."""
    if config.world != "testbed":
        return {}
    predicted = cost_model.speed_up(config.workers, config.values, config.mtu, config.protocol)
    measured = sum(gloo.allreduce_seconds) / sum(ours.allreduce_seconds)
    figures = {"the same, predicted by the cost model (ring over in-network)": predicted}
    if not {"host-limited", "BMv2"} & {ours.summary()["bound"], gloo.summary()["bound"]}:
        figures["share of the predicted gain"] = (measured - 1) / (predicted - 1)
    return figures
