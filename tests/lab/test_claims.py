"""Claims of docs/guide/experiments.md about each method: measured again on all seeds of the experiment, pair by pair, with 95 %
intervals. A method without a row there fails; so does a row whose verdict is another one than that of its runs."""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from capabilities import need

from ina.base import documents
from ina.base.settings import keys
from ina.lab import library, plan
from ina.lab.kind import Experiment, Measured
from ina.lab.kinds.asynchronous import Asynchronous, Learned
from ina.lab.kinds.updates import UpdateTraining
from ina.lab.virtual.methods import METHODS

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "experiments.md").read_text()
# Quantile 0.975 of Student's t, by degrees of freedom (NIST/SEMATECH e-Handbook of Statistical Methods).
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
SEEDS = 5  # at least, of each experiment


class Claim(NamedTuple):
    """A figure of a run, whose ratio to that of the one beside it says whether a claim holds: of the latter over the former, or
    the inverse where ``more`` is better; without ``ratio`` their difference, in hundredths."""

    figure: str
    ratio: bool = True
    more: bool = False


CLAIMS = {
    "sooner": Claim("target_s"),
    "fewer sums": Claim("sums"),
    "more updates a second": Claim("per_second", more=True),
    "waits less": Claim("waiting", ratio=False),
    "as good at the end": Claim("score", ratio=False, more=True),
}
MARGIN = re.compile(r"^(as good at the end), to (\d+) points?$")
MEASURED = re.compile(r"^(-?[\d.]+) \((-?[\d.]+) – (-?[\d.]+)\)(?:, (\d) seeds)?$")


@dataclass(frozen=True)
class Row:
    """Row of the guide's table of claims."""

    run: str
    experiment: str
    claim: str
    beside: str
    measured: str
    holds: str

    @property
    def words(self) -> tuple[str, float]:
        """The claim in CLAIMS, and the least value at which it holds: 1 of a ratio, 0 of a difference, or less by the margin."""
        if margin := MARGIN.match(self.claim):
            return margin[1], -float(margin[2])
        return self.claim, float(CLAIMS[self.claim].ratio)


def section(title: str) -> str:
    """Returns the text under a heading of the guide, up to the next one of any level."""
    after = GUIDE.split(f" {title}\n")
    assert len(after) == 2, f"one heading {title!r}"
    return re.split(r"\n#+ ", after[1])[0]


def rows_of(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


ROWS = [Row(*cells) for cells in rows_of(section("Claims that a test checks"))]


def code(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


@cache
def points(experiment: str, words: str) -> dict[object, Experiment]:
    """Returns an experiment's runs, by seed, whose swept keys have the values of ``words``, a cell of the table, and no others:
    `iswitch`, or `rate = 1e6`."""
    wanted = [tomllib.loads(word) if "=" in word else word for word in code(words)]
    found = {}
    for point in plan.load(library.find(experiment)).points:
        swept = {name: value for name, value in point.values.items() if name != "seed"}
        fits = all(any({name: value} == each or value == each for each in wanted) for name, value in swept.items())
        if fits and len(swept) == len(wanted):
            found[point.values["seed"]] = point.config
    return found


@cache
def run(config: Experiment) -> Measured:
    (measured,) = config.measure()
    if isinstance(config, Asynchronous):
        assert isinstance(measured, Learned)
        resolved = config.resolved()
        bound = resolved.way.stalest(resolved.terms)
        assert bound is None or max(measured.staleness) <= bound, config
    return measured


def figure(measured: Measured, name: str) -> float | None:
    return measured.summary()[name] if name in measured.summary() else getattr(measured, name)


def interval(values: list[float]) -> tuple[float, float, float]:
    """Returns the mean of some values, and the ends of its 95 % interval by Student's t."""
    mean, half = float(np.mean(values)), STUDENT[len(values) - 1] * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def measure(runs: dict[object, Experiment], others: dict[object, Experiment], claim: str) -> tuple[str, int]:
    """Returns the figure of a claim as the table has it, and in how many seeds the run has none where the one beside it has."""
    name, ratio, more = CLAIMS[claim]
    assert runs.keys() == others.keys() and len(runs) >= SEEDS, f"{len(runs)} seeds, {len(others)} beside them"
    pairs = [(figure(run(runs[seed]), name), figure(run(others[seed]), name)) for seed in runs]
    both = [(own, other) for own, other in pairs if own is not None and other is not None]
    values = [math.log(other / own) if ratio else 100 * (other - own) for own, other in both]
    ends = interval([-value for value in values] if more else values)
    shown = [f"{math.exp(end):.2f}" if ratio else f"{round(end, 1) + 0.0:.1f}" for end in ends]
    lacking = sum(own is None and other is not None for own, other in pairs)
    seeds = f", {len(both)} seeds" if len(both) < len(pairs) else ""
    return f"{shown[0]} ({shown[1]} – {shown[2]}){seeds}", lacking


def numbers(measured: str) -> list[float]:
    """Returns the mean of a figure in the table, and the ends of its interval."""
    match = MEASURED.match(measured)
    assert match, f"{measured!r}: expected a mean and its interval, as 1.43 (1.08 – 1.90)"
    return [float(number) for number in match.groups()[:3]]


def verdict(measured: str, least: float, lacking: int = 0) -> str:
    """Returns whether a claim holds by its figure: where the interval has ``least`` in it, that is chance."""
    _, low, high = numbers(measured)
    return "no" if high < least or lacking else "yes" if low > least else "chance"


@pytest.mark.fast
@pytest.mark.parametrize("method", [*METHODS, *keys(UpdateTraining)["discipline"].choices])
def test_every_method_has_a_claim_and_what_is_published_beside_it(method):
    if method in ("synchronous", "fifo"):  # what others are beside
        return
    assert any(code(row.run)[0] == method for row in ROWS), "a row of the table of claims"
    assert any(method in code(cells[0]) for cells in rows_of(section("Beside what is published"))), "what its paper says"


@pytest.mark.fast
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.experiment} {row.run} {row.claim} {row.beside}")
def test_a_claim_is_of_an_experiment_that_there_is_and_its_verdict_is_that_of_its_figure(row):
    (experiment,) = code(row.experiment)
    runs, others = points(experiment, row.run), points(experiment, row.beside)
    assert len(runs) >= SEEDS and runs.keys() == others.keys()
    assert row.holds in (verdict(row.measured, row.words[1]), "no"), "no: also where the target is missed"


@pytest.mark.fast
def test_the_table_of_methods_names_all_experiments_of_each():
    there: dict[str, set[str]] = {method: set() for method in METHODS}
    for path in library.available():
        if documents.document(path).content["kind"] == "asynchronous":
            for point in plan.load(path).points:
                there[point.config.method].add(library.named(path))
    _, header, table = section("Kind `asynchronous`: trainings that do not wait for everybody").partition("| method | a sum")
    shown = {code(cells[0])[0]: set(code(cells[5])) for cells in rows_of((header + table).partition("\n\n")[0])}
    assert shown == there


@pytest.mark.fast
def test_systems_of_other_kinds_have_an_experiment_and_say_what_is_not_modelled():
    rows, there = rows_of(section("Systems that are keys, or kinds, of their own")), {*map(library.named, library.available())}
    assert len(rows) >= 8 and all(len(cells) == 5 and code(cells[3]) and there.issuperset(code(cells[3])) for cells in rows)


@pytest.mark.fast
def test_intervals_and_verdicts():
    assert interval([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx((3, 3 - 1.9629, 3 + 1.9629), abs=1e-3)
    assert interval([2.0, 4.0, 3.0, 3.0])[2] == pytest.approx(3 + 3.182 * math.sqrt(2 / 3) / 2)
    assert verdict("1.43 (1.08 – 1.90)", 1) == "yes" and verdict("1.43 (1.08 – 1.90)", 1, lacking=1) == "no"
    assert verdict("1.02 (0.81 – 1.28), 4 seeds", 1) == verdict("1.00 (1.00 – 1.00)", 1) == "chance"
    assert verdict("0.37 (0.28 – 0.48)", 1) == "no" and verdict("-6.0 (-9.0 – -3.0)", -2) == "no"
    assert verdict("-0.4 (-1.5 – 0.7)", -2) == "yes" and verdict("-0.4 (-2.5 – 1.7)", -2) == "chance"


@pytest.mark.build
def test_who_does_not_wait_is_sooner_and_as_good_on_a_small_task():
    """The same as below, of two methods, in a training of a quarter of the updates."""
    need("cc")
    small = {"updates": "320", "evaluate": "40", "target": "0.4", "width": "8"}
    by_method: dict[str, dict[object, Experiment]] = {}
    for point in plan.load(library.find("heavy-tails"), small, {"method": '["synchronous", "iswitch"]'}).points:
        by_method.setdefault(str(point.values["method"]), {})[point.values["seed"]] = point.config
    sooner, lacking = measure(by_method["iswitch"], by_method["synchronous"], "sooner")
    assert verdict(sooner, 1, lacking) == "yes", sooner
    assert verdict(measure(by_method["synchronous"], by_method["iswitch"], "sooner")[0], 1) == "no"
    score, _ = measure(by_method["iswitch"], by_method["synchronous"], "as good at the end")
    assert verdict(score, -5) == "yes", score


@pytest.mark.build
@pytest.mark.later
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.experiment} {row.run} {row.claim} {row.beside}")
def test_a_claim_holds_or_not_as_the_guide_says(row):
    """Figures need not be equal to the last digit: other processors round products of matrices otherwise."""
    need("cc")
    (experiment,) = code(row.experiment)
    measured, lacking = measure(points(experiment, row.run), points(experiment, row.beside), row.words[0])
    assert verdict(measured, row.words[1], lacking) == row.holds, measured
    now, then = (numbers(text) for text in (measured, row.measured))
    assert now[1] - 0.05 <= then[0] <= now[2] + 0.05 and then[1] - 0.05 <= now[0] <= then[2] + 0.05, measured
