"""Published figures: the points of each comparison, and a small run of one."""

import pytest
from capabilities import need
from rich.console import Console

from ina import cli
from ina.lab import library, plan
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.results import figures
from ina.lab.results.record import Result

pytestmark = pytest.mark.build


def result(**keys):
    return Result(None, AllReduce(**keys), {}, [{"time_ms": keys["elements"] / 1e6}], {}, [], True)


def test_every_figure_is_of_an_experiment_and_has_an_explanation():
    for figure in figures.FIGURES:
        trials = plan.load(library.find(figure.experiment))
        assert figure.source and figure.why
        if figure.made:
            continue
        assert {figure.across, *figure.by} <= set(trials.axes)
        lines = {tuple(figures.format_value(getattr(p.config, key), key) for key in figure.by) for p in trials.points}
        assert set(figure.published) <= lines, "published lines are lines of the plot"
        for line in figure.published.values():
            assert set(line) <= {getattr(p.config, figure.across) for p in trials.points}


def test_repetitions_are_medians_and_ratios_are_to_one_point():
    published = {("2",): {0.1: 4.0}}
    figure = figures.Figure("f", "F", "e", "loss", ("workers",), "ms", figures.milliseconds, published, relative_to=0.0)
    runs = [result(loss=x, seed=seed, workers=2, elements=n)
            for x, seed, n in ((0.0, 1, 1000), (0.1, 1, 1000), (0.1, 2, 3000), (0.1, 3, 90_000))]
    points = figures.points(figure, runs)
    assert [(p.across, p.ours, p.published) for p in points] == [(0.0, 1.0, None), (0.1, 3.0, 4.0)]
    assert points[1].deviation == -0.25
    assert figures.rows(figure, points)[1][1] == ["2", "0.1", "3", "4", "-25.0%"]


def test_topoopt_is_compared_with_the_fat_tree_that_costs_as_much():
    experiment = plan.load(library.find("scale/topoopt-training"))
    times = {"topoopt": 2.0, "fat-tree": 3.0}
    runs = [Result(None, point.config, {}, [{"step_ms": times[point.config.topology.split()[0]]}], {}, [], True)
            for point in experiment.points]
    (figure,) = (figure for figure in figures.FIGURES if figure.name == "topoopt")
    points = figures.points(figure, runs)
    assert len(points) == 12 and {point.across for point in points} == {4, 6}
    assert {point.line for point in points} == {(m, b) for m in ("vgg16", "resnet50", "bert-base") for b in ("40", "100")}
    assert all(point.ours == 1.5 for point in points)


def test_prices_make_the_rates_of_similar_cost():
    """Dollars a server, in proportion between the rates that have prices: figures.SIMILAR_COST says where they are from."""
    interface, transceiver, port = {40: 354, 100: 678, 200: 815}, {40: 39, 100: 99, 200: 198}, {40: 144, 100: 187, 200: 374}
    tree = {rate: interface[rate] + 6 * transceiver[rate] + 5 * port[rate] for rate in interface}
    for (degree, rate), similar in figures.SIMILAR_COST.items():
        price = degree * (interface[rate / 1e9] + transceiver[rate / 1e9] + 100)
        low, high = (40, 100) if price < tree[100] else (100, 200)
        assert low + (high - low) * (price - tree[low]) / (tree[high] - tree[low]) == pytest.approx(similar / 1e9, rel=0.01)
        assert similar < degree * rate, "less than what it stands for"


def test_the_ceiling_is_the_known_one():
    ceilings = {(10e9, 32): 185, (10e9, 64): 233, (10e9, 256): 288, (100e9, 32): 1852, (100e9, 64): 2326, (100e9, 256): 2878}
    assert {key: round(figures.ceiling(*key)) for key in ceilings} == ceilings


def test_a_figure_is_made(tmp_path, monkeypatch):
    need("cc", "matplotlib")
    small = plan.load(library.find("switchml-ring"), {"elements": "100000"}, {"workers": "[4]"})
    monkeypatch.setattr(plan, "load", lambda path: small)
    folder = figures.make(tmp_path, Console(quiet=True), ["switchml-ring"])
    page = (folder / "index.html").read_text()
    assert page.count("<svg") == 1 and "NCCL" in page and "2830" in page
    assert (folder / "switchml-ring.svg").exists() and "| ring | 4 |" in (folder / "switchml-ring.md").read_text()


def test_a_figure_that_cannot_be_made_says_why_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "load", lambda path: (_ for _ in ()).throw(ValueError("no such plan")))
    with pytest.raises(ValueError, match="no such plan"):
        figures.make(tmp_path, Console(quiet=True), ["switchml-ring"])
    assert [path.read_text() for path in tmp_path.glob("figures-*/error.txt")] == ["no such plan\n"]


def test_unknown_figures_are_refused(capsys):
    need("matplotlib")
    assert cli.main(["figures", "switchml"]) == 2
    assert "there are: switchml-rate" in capsys.readouterr().err
