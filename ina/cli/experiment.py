"""``ina run``, ``ina experiment`` and ``ina report``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ina.base import signals
from ina.base.bounds import whole
from ina.base.error_text import line
from ina.base.settings import ConfigError
from ina.cli.errors import is_expected

if TYPE_CHECKING:
    from rich.console import Console

RUN_KEYS = (  # keys with flags of their own
    "switch", "protocol", "workers", "epochs", "steps", "backends", "data", "seed", "name", "faults", "pcap",
)


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Adds the commands to ``ina``; each sets ``main``, a function of the parsed arguments."""
    run = commands.add_parser("run")
    run.add_argument(
        "config", nargs="?", type=Path, help="TOML file with an experiment's keys (default: Fashion-MNIST, 4 workers)"
    )
    run.add_argument(
        "--world",
        choices=("auto", "local", "testbed", "virtual"),
        help="where: auto is the testbed where this machine can make one, else local; virtual replays the model's layers on the "
        "event clock, beside a ring (default: as the configuration says)",
    )
    run.add_argument(
        "--switch",
        type=_switch, metavar="KIND",
        help="of the testbed: embedded (the default), process (each in one of its own), bmv2 (BMv2's simple_switch_grpc); in any "
        "world: tna, the program for Tofino on the embedded switch",
    )
    run.add_argument("--workers", type=whole(1, 1024), help="number of ranks")
    run.add_argument("--epochs", type=whole(1, 10**6), help="passes over the training set (default: 2)")
    run.add_argument("--steps", type=whole(0, 10**9),
                     help="stop after this many steps (default: whole epochs; in the testbed, without CONFIG and --epochs, 100)")
    run.add_argument("--protocol", help="what switch and workers speak (default: switchml)")
    run.add_argument("--backends", help="comma-separated: ina,gloo, or protocols by name")
    run.add_argument("--data", help="folder with Fashion-MNIST's IDX files")
    run.add_argument("--seed", type=whole(0, 2**63 - 1))
    run.add_argument("--name", help="the results folder's name begins with it")
    run.add_argument("--faults", help="e.g. loss=0.01,dup=0.01,reorder=0.01,seed=1: on every worker's port")
    run.add_argument("--pcap", metavar="FOLDER", help="capture each worker's packets there, one file a worker")
    _common(run)
    runs(run, _run)

    experiment = commands.add_parser("experiment")
    verbs = experiment.add_subparsers(title="commands", metavar="COMMAND", required=True)
    verbs.add_parser("list", help="the experiments, each in one line").set_defaults(main=_list)
    show = verbs.add_parser("show", help="every key: an experiment's values, or without NAME the defaults")
    show.add_argument("name", nargs="?", help="an experiment's name, or a TOML file")
    runs(show, _show)
    start = verbs.add_parser("run", help="run an experiment; an interrupted one goes on where it was")
    start.add_argument("name", help="an experiment's name, or a TOML file")
    start.add_argument("--world", help="where: the same as --set world=...")
    start.add_argument("--switch", type=_switch, metavar="KIND", help="the same as --set switch=...")
    start.add_argument(
        "--sweep", action="append", default=[], metavar="KEY=[...]", help="values to sweep, in place of the file's"
    )
    folder = start.add_mutually_exclusive_group()
    folder.add_argument("--resume", type=Path, metavar="FOLDER", help="go on in this folder (default: newest unfinished)")
    folder.add_argument("--new", action="store_true", help="a new folder, even if an unfinished one is there")
    start.add_argument("--processes", type=whole(1, 1024), default=os.cpu_count() or 1, metavar="N",
                       help="points in virtual time that run at once (default: one a processor)")
    start.add_argument("--ray", metavar="ADDRESS", default="",
                       help="run points in virtual time on a Ray cluster (extra ray): host:port of its head, auto, or local")
    _common(start)
    runs(start, _experiment, RESUME)
    both = verbs.add_parser("agree", help="run an experiment under Mininet and in virtual time, and say whether they agree")
    both.add_argument("name", help="an all-reduce experiment's name, or a TOML file; ten-megabits is made for it")
    both.add_argument("--sweep", action="append", default=[], metavar="KEY=[...]", help="values to sweep, in place of the file's")
    both.add_argument("--processes", type=whole(1, 1024), default=os.cpu_count() or 1, metavar="N",
                      help="of virtual time, at once")
    _common(both)
    runs(both, _agree, RESUME)
    meter = verbs.add_parser("measure", help="write the training's layers, timed on this machine, as a workload for virtual time")
    meter.add_argument("file", type=Path, help="a .csv file, which the key `layers` takes")
    meter.add_argument("--model", default="cnn", help="one of the training's models (default: cnn)")
    meter.add_argument("--batch", type=whole(1, 65536), default=64, help="images of a step (default: 64)")
    runs(meter, _measure)
    all_ = verbs.add_parser("all", help="run every experiment in virtual time, one after the other; all of them are small")
    all_.add_argument("--processes", type=whole(1, 1024), default=os.cpu_count() or 1, metavar="N",
                      help="points that run at once")
    all_.add_argument("--results", type=Path, default=Path("results"), help="where the results folders are made")
    runs(all_, _all, RESUME)

    figures = commands.add_parser("figures")
    figures.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all)")
    figures.add_argument("--processes", type=whole(1, 1024), default=os.cpu_count() or 1, metavar="N",
                       help="points that run at once")
    figures.add_argument("--results", type=Path, default=Path("results"), help="where the results folders are made")
    runs(figures, _figures, RESUME)

    report = commands.add_parser("report")
    report.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    report.add_argument("--output", type=Path, metavar="FILE",
                        help="a page, or with .csv all keys and figures, a row a back end or job (default: comparison.html, in "
                        "the folder or beside several)")
    runs(report, _report)

    why = commands.add_parser("why")
    why.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="results folders, of runs or sweeps")
    runs(why, _why)


def _switch(name: str) -> str:
    """Checks a kind of switch; their names are not worth all that they import before one is given."""
    from ina.lab.processes.hosts import SWITCHES

    if name not in SWITCHES:
        raise argparse.ArgumentTypeError(f"{name!r}: expected {' or '.join(SWITCHES)}")
    return name


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of the configuration")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="where the results folder is made (default: results)"
    )


def _pairs(items: list[str], flag: str) -> dict[str, str]:
    pairs = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(f"{flag} {item!r}: expected key=value")
        pairs[key] = value
    return pairs


RESUME = "; the same command goes on with what is missing"


def _guarded(args: argparse.Namespace) -> int:
    """Runs the command's ``action``; errors that a user can act on become one message and an exit status."""
    from rich.console import Console

    try:
        args.action(args, Console())
    except ConfigError as error:
        print("\n".join(f"ina: {problem.text}" for problem in error.problems), file=sys.stderr)
        return 2
    except Exception as error:
        if not is_expected(error):
            raise
        text = line(error)
        if isinstance(error, OSError) and error.strerror and not error.filename:  # not ours, which are of its kind, too
            text = f"{getattr(args, 'results', '')}: {text}"
        print(f"ina: {text}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        status, word = (signals.STATUS, "terminated") if isinstance(error, signals.Terminated) else (130, "interrupted")
        print(f"ina: {word}; every process of the run has been ended{args.then}", file=sys.stderr)
        return status
    return 0


def runs(parser: argparse.ArgumentParser, action: Callable[[argparse.Namespace, Console], None], then: str = "") -> None:
    """Sets what a command of results does. ``then``: what to do after an interrupt."""
    parser.set_defaults(main=_guarded, action=action, then=then)


def _run(args: argparse.Namespace, console: Console) -> None:
    from ina.lab import plan, run

    overrides = _pairs(args.set, "--set")
    overrides |= {key: str(value) for key in RUN_KEYS if (value := getattr(args, key)) is not None}
    if args.world == "virtual":
        from ina.lab import sweep

        sweeps = {"algorithm": '["in-network", "ring"]'} if "algorithm" not in overrides else {}
        virtual = plan.load(args.config, {"kind": "workload", **overrides}, sweeps)
        virtual.base.check_packages()
        sweep.sweep(virtual, args.results, console, new=True)
        return
    if args.world or args.switch == "bmv2":
        overrides["world"] = _world(args.world or "auto", args.switch)
    if args.config is None and _is_brief(overrides):
        overrides["steps"] = str(FIRST_STEPS)
        print(f"The first {FIRST_STEPS} steps of each training; all of them: --epochs 2, with make ARGS='--epochs 2'", flush=True)
    config = plan.load(args.config, overrides).single
    config.check_packages()
    run.run(config, args.results, console)


FIRST_STEPS = 100  # of `ina run` in the testbed: the parameters are compared after as many


def _is_brief(overrides: dict[str, str]) -> bool:
    """Returns True for a training in the testbed whose length nobody has given. BMv2 has a shorter one of its own."""
    own = {"steps", "epochs", "target", "record"} & set(overrides)
    trains = overrides.get("kind", "training") == "training" and overrides.get("switch") != "bmv2"
    return trains and overrides.get("world") == "testbed" and not own


def _world(world: str, switch: str | None) -> str:
    """Returns the world of the command line, or local, with a message, where this machine cannot make a testbed."""
    if world == "local" or switch == "bmv2":  # BMv2 runs nowhere else; the testbed says why it cannot
        return "local" if world == "local" else "testbed"
    from ina.worlds.testbed.mininet import missing

    if not (reason := missing()):
        return "testbed"
    print(f"The testbed (a Mininet network around the switch, links of 100 Mb/s) cannot be made: {reason}.\n"
          "Running in the local world instead: ranks as processes, shared memory to the switch.", flush=True)
    return "local"


def _experiment(args: argparse.Namespace, console: Console) -> None:
    from ina.lab import library, plan, sweep

    overrides = _pairs(args.set, "--set")
    if args.switch == "bmv2":
        overrides["world"] = "testbed"
    overrides |= {key: value for key in ("world", "switch") if (value := getattr(args, key))}
    experiment = plan.load(library.find(args.name), overrides, _pairs(args.sweep, "--sweep"))
    experiment.base.check_packages()
    sweep.sweep(experiment, args.results, console, args.resume, args.new, args.processes, ray=args.ray)


def _agree(args: argparse.Namespace, console: Console) -> None:
    from ina.lab import agree, library

    agree.AllReduce.check_packages()
    overrides, sweeps = _pairs(args.set, "--set"), _pairs(args.sweep, "--sweep")
    agree.agree(library.find(args.name), overrides, sweeps, args.results, console, args.processes)


def _figures(args: argparse.Namespace, console: Console) -> None:
    from ina.lab.results import figures

    figures.AllReduce.check_packages()
    names = [figure.name for figure in figures.FIGURES]
    for name in args.names:
        if name not in names:
            raise ConfigError(f"no figure {name!r}; there are: {', '.join(names)}")
    figures.make(args.results, console, args.names, args.processes)


def _measure(args: argparse.Namespace, console: Console) -> None:
    from ina.lab.kinds.training import MODELS, Training

    Training.check_packages()
    if args.model not in MODELS:
        raise ConfigError(f"--model {args.model!r}: expected {' or '.join(MODELS)}")
    from ina.lab.training import measure

    for layer in measure.write_fashion_mnist(args.file, args.model, args.batch):
        print(f"{layer.name:<14} {layer.elements:>8} parameters {layer.forward / 1e6:>9.1f} us forward "
              f"{layer.backward / 1e6:>9.1f} us backward")


def _all(args: argparse.Namespace, console: Console) -> None:
    from ina.lab import library, plan, sweep

    for path in library.available():
        experiment = plan.load(path)
        if experiment.base.world == "virtual":
            experiment.base.check_packages()
            console.rule(path.stem)
            sweep.sweep(experiment, args.results, console, processes=args.processes)


def _list(_args: argparse.Namespace) -> int:
    from ina.lab import library

    paths = [*library.available(), *library.large()]
    width = max(len(library.named(path)) for path in paths)
    for path in paths:
        print(f"{library.named(path):<{width}} {library.summary(path)}")
    return 0


def _show(args: argparse.Namespace, console: Console) -> None:
    from ina.lab import library, plan
    from ina.lab.kind import kinds

    if args.name is None:
        print("\n\n".join(f"# ---- {name}\n{plan.show(kind)}" for name, kind in kinds().items()))
    else:
        experiment = plan.load(library.find(args.name))
        print(plan.show(type(experiment.base), experiment))


def _why(args: argparse.Namespace, console: Console) -> None:
    from ina.lab.results import compare, why

    results = compare.readable(args.folders, say_skipped)
    bases = args.folders if len(args.folders) == 1 else [folder.parent for folder in args.folders]  # of several, all have a name
    names = [str(result.path.relative_to(next(base for base in bases if result.path.is_relative_to(base)))) for result in results]
    print("\n".join(why.lines(results, ["" if name == "." else name for name in names], say_skipped)))


def say_skipped(error: Exception) -> None:
    print(f"ina: skipped: {error}", file=sys.stderr)


def _report(args: argparse.Namespace, console: Console) -> None:
    from ina.lab.results import compare, report, tabular
    from ina.lab.results.progress import say_where
    from ina.lab.results.record import ResultsError

    results = compare.readable(args.folders, say_skipped)
    single = args.folders[0] if len(args.folders) == 1 else None
    output = args.output or (single / "comparison.html" if single else args.folders[0].parent / "comparison.html")
    title = single.name if single else "Comparison"
    is_table = output.suffix.lower() == ".csv"
    if not is_table and output.suffix.lower() not in (".html", ".htm"):
        raise ResultsError(f"--output {output}: expected a name that ends in .html or .csv")
    output.write_text(tabular.text(results) if is_table else compare.page(title, "", results))
    compare.show(console, title, results)
    (say_where if is_table else report.say_page)(console, "Report:", output)


