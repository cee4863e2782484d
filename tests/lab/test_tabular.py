"""Results as one flat table: from Python, of `ina report --output FILE.csv`, and in a sweep's folder."""

import csv
import io
import json

import pytest
from capabilities import need
from small_sweep import quiet, trial

import ina.experiment
from ina import cli
from ina.base import settings
from ina.lab import plan, sweep
from ina.lab.kind import kinds
from ina.lab.kinds.training import Run, Training
from ina.lab.results import record

__all__ = ["trial"]  # a fixture
pytestmark = pytest.mark.build  # a results folder has the hash of the preprocessed program


def texts(rows: list[dict]) -> list[dict]:
    return [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]


def read(text: str) -> list[dict]:
    return list(csv.DictReader(io.StringIO(text)))


def a_training(path, **keys):
    run = Run("ina", [2.0, 1.0], [0.1, 0.2], [0.01, 0.02], [1000, 1000], 0.5, 0.3, 1.0, "data", 7)
    folder = record.Folder(path, Training(backends=("ina",), **keys))
    folder.save([run], {}, finished=True)
    return folder.path


def test_a_sweep_leaves_a_row_for_each_job_of_each_point(trial, tmp_path):
    need("cc", "matplotlib")
    folder = sweep.sweep(plan.load(trial), tmp_path, quiet())
    rows = ina.experiment.table(folder)
    assert [(row["jobs"], row["loss"]) for row in rows] == [(1, 0.0), (1, 0.05), (2, 0.0), (2, 0.0), (2, 0.05), (2, 0.05)]
    for row in rows:
        point = folder / row["path"].rpartition("/")[2]
        summaries = json.loads((point / "metrics.json").read_text())["summary"]
        (summary,) = [summary for summary in summaries if summary["job"] == row["job"]]
        keys = json.loads((point / "config.json").read_text())
        figures = {f"figure_{name}" if f"figure_{name}" in row else name: value for name, value in summary.items()}
        assert len(row) == 1 + len(keys) + len(summary) and row.items() >= figures.items()
        assert all(row[key] == value for key, value in keys.items() if not isinstance(value, list))
    assert read((folder / "results.csv").read_text()) == texts(rows)


def test_figures_and_keys_of_one_name_have_columns_of_their_own(tmp_path):
    folder = a_training(tmp_path / "a", loss=0.25, faults="loss=0.01,dup=0.01")
    (row,) = ina.experiment.table(folder)
    assert (row["loss"], row["figure_loss"], row["backend"], row["accuracy"]) == (0.25, 1.5, "ina", 0.5)
    assert (row["backends"], row["faults"], row["link_mb"]) == ("ina", "loss=0.01,dup=0.01", None)


def test_a_report_as_csv_has_all_kinds_and_each_folder_once(trial, tmp_path, capsys):
    need("cc", "matplotlib")
    folders = [a_training(tmp_path / "a"), sweep.sweep(plan.load(trial, {"jobs": "1"}), tmp_path, quiet())]
    target = tmp_path / "all.csv"
    assert cli.main(["report", *map(str, [*folders, *folders]), "--output", str(target)]) == 0
    assert f"Report: {target}\n" in capsys.readouterr().out
    rows = read(target.read_text())
    assert rows == texts(ina.experiment.table(*folders))
    assert [row["kind"] for row in rows] == ["training", "allreduce", "allreduce"]
    assert [row["time_ms"] != "" for row in rows] == [False, True, True]


def test_a_cell_with_the_end_of_a_line_stays_one(tmp_path, capsys):
    folder, target = a_training(tmp_path / "a", name="a\rb\n"), tmp_path / "all.csv"
    for command in (["report", str(folder), "--output"], ["plot", str(folder), "--by", "name", "-o"]):
        assert cli.main([*command, str(target)]) == 0
        with target.open(newline="") as file:
            (row,) = csv.DictReader(file)
        assert "a\rb\n" in (row.get("name"), row.get("line", "").removeprefix("name ").removesuffix(", ina (P4 switch)"))
    capsys.readouterr()


def test_a_run_beside_its_sweep_counts_once_in_every_table(trial, tmp_path, capsys):
    need("cc", "matplotlib")
    folder = sweep.sweep(plan.load(trial, {"jobs": "1"}), tmp_path, quiet())
    point = next(path.parent for path in folder.glob("*/metrics.json"))
    assert len(ina.experiment.table(folder, point, folder)) == 2
    page = tmp_path / "all.html"
    assert cli.main(["report", str(folder), str(point), "--output", str(page)]) == 0
    assert page.read_text().count("<td>job 0</td>") == 2
    assert cli.main(["why", str(folder), str(point)]) == 0
    assert capsys.readouterr().out.count("job 0: ") == 2


def test_a_column_means_one_thing_over_all_kinds_and_a_run_counts_once(tmp_path):
    """`bound` is a figure of trainings, and a key of asynchronous ones; `accuracy` is a key of none."""
    one = a_training(tmp_path / "a", world="local", name="a")
    (row,) = ina.experiment.table(one, one)
    assert "figure_bound" in row and "bound" not in row and row["accuracy"] == 0.5
    named = {name for kind in kinds().values() for name in settings.keys(kind)}
    figures = {row.key for kind in kinds().values() for row in kind.rows}
    assert {"steps", "loss", "bound", "least"} <= named & figures, "or this test shows nothing"


def test_a_report_of_another_ending_is_refused(tmp_path, capsys):
    one = a_training(tmp_path / "a")
    assert cli.main(["report", str(one), "--output", str(tmp_path / "x.xlsx")]) == 1
    assert "expected a name that ends in .html or .csv" in capsys.readouterr().err and not (tmp_path / "x.xlsx").exists()
