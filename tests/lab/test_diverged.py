"""Figures that are no finite numbers, such as the loss of a training that diverged: results with them can be read and shown."""

import csv
import io
import json
import math

import numpy as np
import pytest
from capabilities import need
from rich.console import Console
from small_sweep import SMALL, trial

from ina import cli
from ina.lab import plan, sweep
from ina.lab.kinds.training import Run, Training
from ina.lab.results import compare, plot, record, tabular, why

__all__ = ["trial"]  # a fixture
pytestmark = pytest.mark.build
LOSSES = [2.3, 1e30, math.inf, *3 * [math.nan]]


def trained(losses: list[float]) -> Run:
    seconds = [0.01] * len(losses)
    return Run("gloo", losses, seconds, seconds, [100] * len(losses), 0.1, 0.5, 0.1, "images", 10, workers=2)


def test_a_figure_that_is_not_finite_is_null_at_any_depth():
    figures = {"a": [1, np.float32("nan"), (math.inf, {"b": np.float64("-inf")})], "c": np.int64(3), "d": True, "e": "nan",
               "f": None, "g": np.float32(0.5)}
    assert record.finite(figures) == {"a": [1, None, [None, {"b": None}]], "c": 3, "d": True, "e": "nan", "f": None, "g": 0.5}


def test_no_file_has_a_number_that_its_reader_refuses(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        record.write_json(tmp_path / "a.json", {"a": math.nan})
    assert not list(tmp_path.iterdir())


def test_a_training_that_diverged_is_shown_beside_others(tmp_path, capsys):
    need("matplotlib")
    document = {"points": []}
    for number, (lr, losses) in enumerate([(0.05, [2.5, 2.0, 1.5, 2.5, 2.0, 1.5]), (1e6, LOSSES)]):
        config = Training(workers=2, steps=6, backends=("gloo",), lr=lr)
        folder = record.Folder(tmp_path / f"{number}", config)
        folder.save([trained(losses)], {"apart": math.nan}, True)
        assert record.finished(tmp_path / f"{number}")
        document["points"].append({"folder": f"{number}", "config": config.as_dict(), "sources": folder.environment["sources"]})
        assert "<svg" in config.figures([trained(losses)])[0][1], "its own report"
    record.write_json(tmp_path / "experiment.json", document)
    assert json.loads((tmp_path / "1" / "metrics.json").read_text())["runs"][0]["losses"] == [2.3, 1e30, None, None, None, None]
    results = compare.points(tmp_path)
    assert results[1].summary[0]["loss"] is None and math.isnan(results[1].runs[0]["losses"][-1])
    assert "<svg" in (page := compare.page("trial", "", results)) and "<td>—</td>" in page and "nan" not in page.lower()
    assert [row["figure_loss"] for row in csv.DictReader(io.StringIO(tabular.text(results)))] == ["2.0", ""]
    assert why.explain(results[1])[0].job == "gloo"
    assert list(plot.choose(results, "loss", "lr", (), "range", False).lines.values()) == [[(0.05, 2.0)]]
    for command in (["why", str(tmp_path)], ["report", str(tmp_path), "--output", str(tmp_path / "page.html")]):
        assert cli.main(command) in (0, None), capsys.readouterr().err


def test_a_point_that_cannot_be_read_is_named_and_the_rest_has_its_report(trial, tmp_path, monkeypatch):
    trials, save = plan.load(trial), record.Folder.save

    def spoiling(self, runs, comparison, finished):
        save(self, runs, comparison, finished)
        if self.config.jobs == 2:
            (self.path / "metrics.json").write_text('{"schema": NaN}')

    monkeypatch.setattr(record.Folder, "save", spoiling)
    console = Console(file=io.StringIO(), width=200)
    folder = sweep.sweep(trials, tmp_path / "results", console)
    output = console.file.getvalue()
    assert output.count("left out of the report: ") == 2 and "002-jobs=2,loss=0.0/metrics.json: NaN is no JSON number" in output
    assert len((folder / "results.csv").read_text().splitlines()) == 3
    assert (folder / "report.html").exists()


def test_each_point_says_that_it_begins_and_one_alone_does_not(trial, tmp_path):
    console = Console(file=io.StringIO(), width=200)
    sweep.sweep(plan.load(trial), tmp_path / "several", console)
    lines = console.file.getvalue().splitlines()
    at = lines.index("point 2 of 4: jobs=1 loss=0.05")
    assert lines[at - 1].startswith("1 of 4: jobs=1 loss=0.0") and lines[at + 1].startswith("2 of 4: jobs=1 loss=0.05")
    trial.write_text(SMALL.partition("[sweep]")[0])
    console = Console(file=io.StringIO(), width=200)
    sweep.sweep(plan.load(trial), tmp_path / "one", console)
    assert "point 1" not in console.file.getvalue()
