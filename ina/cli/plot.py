"""``ina plot``: a figure for a paper, from results folders."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ina.cli.experiment import runs, say_skipped

if TYPE_CHECKING:
    from rich.console import Console


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Adds the command to ``ina``."""
    parser = commands.add_parser("plot")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="results folders, of runs or sweeps of one kind")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE",
                        help="a .pdf, .svg, .png or .csv file; without it, what can be plotted is listed")
    parser.add_argument("--y", default="", metavar="FIGURE", help="a figure of the results (default: the table's first)")
    parser.add_argument("--x", default="", metavar="KEY", help="key of the horizontal axis (default: with the most values)")
    parser.add_argument("--by", type=_names, default=[], metavar="KEY,KEY",
                        help="a line for each combination of these (default: all other keys in which the runs differ)")
    parser.add_argument("--cdf", action="store_true", help="the distribution of the figure over the runs of each line")
    parser.add_argument("--errors", choices=("range", "deviation", "none"), default="range",
                        help="bars over seeds: median with least and most, or mean with its standard deviation (default: range)")
    parser.add_argument("--log", type=_names, default=[], metavar="x,y", help="axes that are logarithmic")
    parser.add_argument("--size", choices=("column", "page", "slide"), default="column",
                        help="a column of a page of two (3.35 inches), the page's width (7), or a slide (default: column)")
    parser.add_argument("--style", default="", metavar="STYLE",
                        help="a style of matplotlib, such as grayscale, or a .mplstyle file (default: colours of the reports)")
    runs(parser, _plot)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: expected names with commas between them")
    return names


def _plot(args: argparse.Namespace, console: Console) -> None:
    from ina.lab.results import compare, plot
    from ina.lab.results.progress import say_where
    from ina.lab.results.record import ResultsError

    results = compare.readable(args.folders, say_skipped)
    if args.output is None:
        for what, name, about in plot.choices(results):
            console.print(f"{what:<7} {name:<18} {about}", highlight=False, soft_wrap=True)
        return
    if unknown := [name for name in args.log if name not in ("x", "y")]:
        raise ResultsError(f"--log {','.join(unknown)}: expected x, y or x,y")
    drawn = plot.choose(results, args.y, args.x, args.by, args.errors, args.cdf)
    plot.write(drawn, args.output, args.size, args.log, args.style)
    say_where(console, "Plot:", args.output)
