"""Pages and tables that compare results, of one folder or of several."""

import io
import json
import re
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from capabilities import need
from rich.console import Console
from small_sweep import quiet, trial

from ina import cli
from ina.base.settings import keys
from ina.lab import plan, sweep
from ina.lab.kind import kinds
from ina.lab.kinds.allreduce import AllReduce, Reduction
from ina.lab.kinds.training import Run, Training
from ina.lab.results import compare, record, report, units

__all__ = ["trial"]  # a fixture
ROOT = Path(__file__).resolve().parent.parent.parent


def a_training(path: Path, name: str, backends=("ina", "gloo"), **keys) -> Path:
    config = Training(name=name, backends=backends, **keys)
    folder = record.Folder(path / name, config)
    runs = [
        Run(backend, [2.0, 1.0], [0.1, 0.2], [0.01, 0.02], [1000, 1000], 0.5, 0.3, 1.0, "data", 7) for backend in backends
    ]
    folder.save(runs, {}, finished=True)
    return folder.path


@pytest.mark.build
def test_any_folders_are_compared_in_one_page(trial, tmp_path, capsys):
    """Trainings with different faults, and a sweep of all-reduces: a table and plots for each kind."""
    need("cc", "matplotlib")
    faults = {"a": "", "b": "loss=0.01", "c": "dup=0.01"}
    folders = [a_training(tmp_path, name, faults=text) for name, text in faults.items()]
    folders.append(sweep.sweep(plan.load(trial, {"jobs": "1"}), tmp_path, quiet()))
    page_file = tmp_path / f"[b]{'long ' * 20}" / "page.html"
    page_file.parent.mkdir()
    assert cli.main(["report", *map(str, folders), "--output", str(page_file)]) == 0
    page = page_file.read_text()
    captions = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert page.count("<table>") >= 4 and page.count("<svg") == len(captions) == len(set(captions))
    assert {"training loss by step", "test accuracy, % by faults", "all-reduce, ms by loss"} < set(captions)
    assert "test accuracy, % by loss" not in captions, "each kind has its own"
    assert "loss=0.01" in page and "gloo (loopback)" in page
    assert f"Report: {page_file}\n" in capsys.readouterr().out, "in one line, and as it is"


@pytest.mark.build
def test_back_ends_are_named_by_rows_and_not_by_a_key(tmp_path):
    """A sweep may leave out a back end where a key means nothing to it: the others' lines go on there."""
    both = a_training(tmp_path, "a", ("quorum", "gloo"), complete="all")
    one = a_training(tmp_path, "b", ("quorum",), complete="k=3")
    (group,) = compare.grouped(compare.readable([both, one], print))
    assert group.keys == ["complete"]
    places = {name: [x for x, _ in line] for name, line in compare.lines_of(group, "complete", "step_ms").items()}
    assert sorted(places.values()) == [["all"], ["all", "k=3"]]


def a_reduction(path: Path, name: str, packets: int, **keys) -> record.Result:
    folder = record.Folder(path / name, AllReduce(name=name, **keys))
    stats = {"workers": {"tx_packets": packets, "retransmissions": 0}}
    seconds = 1234.5678 + packets % 10
    folder.save([Reduction("job 0", 8, 4_000_000, seconds, "h1>s1", 4_299_000, 0.994, 0.000588, stats)], {}, True)
    return record.load(folder.path)


@pytest.mark.build
@pytest.mark.parametrize("width", [None, 80, 36])
def test_a_table_never_cuts_a_figure(tmp_path, width):
    """A terminal gets the names of columns that do not fit below the table; a pipe, which counts as 80 wide, gets all columns."""
    results = [a_reduction(tmp_path, f"{index}", 10**7 + index, rate=rate, topology="fat-tree k=4", loss=0.0001 * index)
               for index, rate in enumerate((10e9, 25e9))]
    out = io.StringIO()
    compare.show(Console(file=out, width=width or 80, force_terminal=width is not None, color_system=None), "a title", results)
    output = out.getvalue()
    assert "…" not in output and "1234567.8000" in output and "25 Gb/s" in output
    assert "in all rows job: job 0" in " ".join(output.split()), "said once"
    assert max(len(row.rstrip()) for row in output.splitlines()) <= (width or 200)
    assert ("10,000,001" in output) == (width != 36) == ("only in the report" not in " ".join(output.split()))


@pytest.mark.fast
@pytest.mark.parametrize("places", [(2, 4, 8), ("ring", "tree")])
def test_legends_cover_nothing(places):
    need("matplotlib")
    lines = {f"a line with a name of some length, {n}": [(x, 1 + n * i) for i, x in enumerate(places)] for n in range(12)}
    extents = []

    def draw(axes):
        compare._draw(axes, lines, "workers", "what is seen", {})
        axes.figure.canvas.draw()
        extents.append((axes.get_legend().get_window_extent().y1, axes.xaxis.get_tightbbox().y0))

    image = report.svg(draw)
    assert extents[0][0] <= extents[0][1], "it begins below the axes and their labels"
    assert image.count("a line with a name") == 12
    width, height = (float(re.search(rf'{name}="([0-9.]+)pt"', image)[1]) for name in ("width", "height"))
    assert height > 3.2 * 72, "the picture has grown by the legend"
    assert width < 5.7 * 72, "letters are not small on a narrow page"


@pytest.mark.fast
@pytest.mark.parametrize("kind", ["asynchronous", "parameters", "updates"])
def test_the_line_of_a_score_to_reach_has_its_name_in_the_legend(kind):
    need("matplotlib")
    module = import_module(f"ina.lab.kinds.{kind}")
    names = {"method": "m", "label": "m", "discipline": "m"}
    scores = [(0.0, 0.1), (1.0, 0.9)] if kind == "parameters" else [(0.0, 0, 0.1), (1.0, 8, 0.9)]
    runs = [SimpleNamespace(scores=scores, target=target, **names) for target in (0.625, 0.0, 0.625)]
    assert report.svg(partial(module._draw_scores, runs)).count("<!-- target, 62.5 % -->") == 1


@pytest.mark.fast
def test_bars_reach_from_the_least_to_the_most_of_the_repetitions():
    need("matplotlib")
    drawn = {}
    for places in ((2, 4), ("ring", "tree")):
        def draw(axes, places=places):
            compare._draw(axes, {"ina": [(x, y) for x in places for y in (1.0, 5.0, 2.0)]}, "workers", "seconds", {})
            bars = axes.containers if places == (2, 4) else axes.containers[1::2]
            drawn[places] = [segment[:, 1].tolist() for bar in bars for lines in bar[2] for segment in lines.get_segments()]

        report.svg(draw)
    assert drawn == {(2, 4): [[1.0, 5.0]] * 2, ("ring", "tree"): [[1.0, 5.0]] * 2}


@pytest.mark.build
def test_a_line_has_one_colour_in_all_plots_of_a_page(tmp_path, monkeypatch):
    """Gloo has its own, which no lossy run has, though not every figure is there for every line, nor every run at each place."""
    need("matplotlib")
    folders = [a_training(tmp_path, "a", ("gloo",)), a_training(tmp_path, "b", ("ina",), faults="loss=0.01"),
               a_training(tmp_path, "c", ("ina",)), a_training(tmp_path, "d", ("gloo",), faults="loss=0.01")]
    colours: dict[str, set[str]] = {"ina": set(), "gloo": set()}

    def drawn(draw, svg=report.svg):
        def noted(axes):
            draw(axes)
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                colour = handle.get_color() if hasattr(handle, "get_color") else handle.patches[0].get_facecolor()
                colours["gloo" if "gloo" in label else "ina"].add(colors.to_hex(colour))

        return svg(noted)

    from matplotlib import colors

    monkeypatch.setattr(report, "svg", drawn)
    page = compare.page("a page", "", compare.readable(folders, print))
    assert page.count("<figure>") > 4 and "training loss by step" in page
    assert colours == {name: {report.COLOURS[name]} for name in colours}


@pytest.mark.build
@pytest.mark.parametrize(("busy", "times"), [(0.95, 1), (0.5, 0)])
def test_a_table_says_where_processors_were_the_limit(tmp_path, capsys, busy, times):
    need("matplotlib")
    folder = record.Folder(tmp_path / "a", Training(backends=("ina",)))
    run = Run("ina", [2.0, 1.0], [0.1, 0.2], [0.01, 0.02], [1000, 1000], 0.5, 0.3, 1.0, "data", 7)
    run.network = {"links": {}, "processors": busy, "seconds": 1.0}
    folder.save([run], {}, finished=True)
    assert cli.main(["report", str(folder.path)]) == 0
    words = "host-limited: the processors were the limit, so this is no result about the network"
    assert " ".join(capsys.readouterr().out.split()).count(words) == times
    assert (folder.path / "comparison.html").read_text().count(words) == times


@pytest.mark.build
def test_a_single_point_has_no_plot(tmp_path):
    one = compare.page("a page", "", [a_reduction(tmp_path, "a", 10)])
    assert "<figure>" not in one and "<table>" in one
    two = compare.page("a page", "", [a_reduction(tmp_path, name, 10, loss=loss) for name, loss in (("b", 0.1), ("c", 0.2))])
    assert "<figcaption>all-reduce, ms by loss</figcaption>" in two


@pytest.mark.fast
def test_values_are_said_with_their_units():
    assert [units.format_value(value, "rate") for value in (1e11, 2.5e10, 0.0)] == ["100 Gb/s", "25 Gb/s", "0"]
    assert [units.format_value(value, "rto_min") for value in (1e-4, 0.25, 2.0)] == ["100 us", "250 ms", "2 s"]
    assert units.format_value(0.0001, "loss") == "0.0001"
    assert (units.format_value(524288, "queue"), units.format_value(512, "pool")) == ("524.288 kB", "512")
    assert (units.axis("pool"), units.axis("rate"), units.axis("workers")) == ("pool, slots", "rate", "workers")
    for key in {name for kind in kinds().values() for name in keys(kind)}:  # a key means the same in every kind
        assert len({keys(kind)[key].unit for kind in kinds().values() if key in keys(kind)}) == 1, key


@pytest.mark.build
def test_equal_configurations_are_told_apart_by_their_folders(tmp_path):
    need("matplotlib")
    results = [record.load(a_training(tmp_path, name)) for name in ("before", "after")]
    results[1].environment["commit"] = "another"
    page = compare.page("two runs", "", results)
    assert "<td>before</td>" in page and "<td>after</td>" in page
    assert "These runs differ in commit." in page


@pytest.mark.build
def test_what_cannot_be_compared_is_named(tmp_path, capsys):
    assert cli.main(["report", str(tmp_path)]) == 1
    assert f"{tmp_path}: neither experiment.json" in capsys.readouterr().err
    folder = a_training(tmp_path, "old")
    metrics = json.loads((folder / "metrics.json").read_text())
    for change, message in (({"schema": 1}, "schema 1, expected 2"), ({"finished": False}, "no run in it is finished")):
        (folder / "metrics.json").write_text(json.dumps(metrics | change))
        assert cli.main(["report", str(folder)]) == 1
        assert message in capsys.readouterr().err
    for name, text, message in (("metrics.json", "{", "metrics.json"), ("metrics.json", "[1]", "expected an object"),
                                ("metrics.json", '{"schema": 2}', "has no key 'summary'"),
                                ("experiment.json", "{}", "has no key 'points'")):
        (folder / name).write_text(text)
        assert cli.main(["report", str(folder)]) == 1
        assert message in capsys.readouterr().err
