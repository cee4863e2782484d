"""Kinds of experiments: one class each, found by its name; users' own by an entry point."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from capabilities import need
from rich.console import Console

from ina import cli
from ina.base.bounds import Range
from ina.base.settings import ConfigError, Key, key, keys
from ina.lab import kind, plan, run
from ina.lab.kind import Experiment, Finding, Outcome, Row, kinds
from ina.lab.results import compare, units, why


@dataclass
class Count:
    job: str
    total: int
    stats: dict

    def summary(self) -> dict[str, object]:
        return {"job": self.job, "total": self.total}


@dataclass(frozen=True)
class Counting(Experiment):
    """A user's own kind: it counts."""

    kind: str = key("counting", "what is done: counting", choices=("counting",))
    name: str = key("counting", "the results folder's name begins with it")
    world: str = key("here", "where", choices=("here",))
    workers: int = key(2, "who count", Range(1, 9))
    protocol: str = key("switchml", "none is spoken")
    program: str = key("", "none is run")
    switch: str = key("embedded", "there is none")
    values: int = key(256, "of a packet")
    seed: int = key(1, "of nothing")
    timeout: float = key(1.0, "s", unit="s")
    upto: int = key(3, "counts to this", Range(1, 100, "fingers", "fingers"))

    rows = (Row("total", "counted", "n", "{:,}"),)

    def run(self, folder: Path, console: Console) -> Iterator[Outcome]:
        counts = []
        for worker in range(self.workers):
            counts.append(Count(f"worker {worker}", sum(range(self.upto)), {}))
            yield Outcome(counts, {"fingers": float(self.upto)}, finished=len(counts) == self.workers)

    def why(self, run: dict, summary: dict) -> Finding:
        return Finding(run["job"], "fingers", f"there are {self.upto}")

    def describe(self, results) -> str:
        return "It counts."


@pytest.fixture
def counting(monkeypatch) -> None:
    point = metadata.EntryPoint("counting", f"{__name__}:Counting", kind.GROUP)
    monkeypatch.setattr(kind, "_entry_points", lambda: [point])


@pytest.mark.fast
def test_each_kind_is_a_file_of_its_name():
    assert list(kinds()) == sorted(path.stem for path in (Path(kind.__file__).parent / "kinds").glob("[a-z]*.py"))
    for name, each in kinds().items():
        assert each.kind == name and each.__module__ == f"ina.lab.kinds.{name}" and each.rows and each.__doc__


@pytest.mark.fast
def test_no_other_file_compares_the_name_of_a_kind():
    comparison = re.compile(rf"""kind (==|!=|in|is) .*["'](?:{'|'.join(kinds())})["']""")
    for path in Path(kind.__file__).parent.parent.glob("**/*.py"):
        if path.parent.name != "kinds":
            assert not comparison.search(path.read_text()), path


@pytest.mark.build
def test_a_users_own_kind_is_run_reported_and_explained(counting, tmp_path, capsys):
    need("matplotlib")
    path = tmp_path / "mine.toml"
    path.write_text('kind = "counting"\n[sweep]\nupto = [3, 4]\n')
    assert cli.main(["experiment", "run", str(path), "--results", str(tmp_path)]) == 0
    (folder,) = tmp_path.glob("counting-*")
    assert "counted" in (folder / "000-upto=3" / "report.html").read_text()
    results = compare.points(folder)
    assert [result.summary[1]["total"] for result in results] == [3, 6] and isinstance(results[0].config, Counting)
    assert why.explain(results[1])[0] == Finding("worker 0", "fingers", "there are 4")
    assert cli.main(["experiment", "show"]) == 0
    assert "upto = 3" in capsys.readouterr().out


@pytest.mark.build
def test_what_was_measured_before_a_failure_is_kept(counting, tmp_path):
    need("matplotlib")

    class Failing(Counting):
        def run(self, folder: Path, console: Console) -> Iterator[Outcome]:
            yield next(super().run(folder, console))
            raise ConfigError("no finger is left")

    assert run.attempt(Failing(), tmp_path) == "no finger is left"
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert (metrics["finished"], len(metrics["summary"])) == (False, 1) and (tmp_path / "report.html").exists()
    assert (tmp_path / "error.txt").read_text() == "no finger is left\n"


@pytest.mark.fast
def test_what_is_no_kind_is_refused(monkeypatch, tmp_path):
    point = metadata.EntryPoint("counting", "pathlib:Path", kind.GROUP)
    monkeypatch.setattr(kind, "_entry_points", lambda: [point])
    path = tmp_path / "mine.toml"
    path.write_text('\nkind = "counting"\n')
    with pytest.raises(ConfigError, match="mine.toml:2: kind = 'counting': pathlib:Path is not an ina.lab.kind.Experiment"):
        plan.load(path)


@pytest.mark.fast
def test_a_kind_that_cannot_be_imported_is_named_and_hinders_no_other(monkeypatch, tmp_path):
    point = metadata.EntryPoint("counting", "no_such_package:Counting", kind.GROUP)
    monkeypatch.setattr(kind, "_entry_points", lambda: [point])
    units.unit_of.cache_clear()
    assert units.unit_of("rate") == "b/s" and units.unit_of("no_such_key") is None
    path = tmp_path / "mine.toml"
    path.write_text('kind = "counting"\n')
    with pytest.raises(ConfigError, match="no_such_package:Counting cannot be imported: ModuleNotFoundError: No module named"):
        plan.load(path)


@dataclass(frozen=True)
class Keyless(Experiment):
    """A kind that lacks keys."""

    kind: str = key("keyless", "a name")
    name: str = key("keyless", "a name")


@pytest.mark.fast
def test_a_kind_without_the_keys_of_all_kinds_is_refused(monkeypatch, tmp_path):
    point = metadata.EntryPoint("keyless", f"{__name__}:Keyless", kind.GROUP)
    monkeypatch.setattr(kind, "_entry_points", lambda: [point])
    path = tmp_path / "mine.toml"
    path.write_text('kind = "keyless"\n')
    with pytest.raises(ConfigError, match="Keyless lacks the keys world, workers, protocol, .*, timeout, which every"):
        plan.load(path)


@pytest.mark.fast
def test_a_key_says_type_default_range_unit_and_help():
    rate = keys(kinds()["allreduce"])["rate"]
    assert (rate.type, rate.default, rate.unit, rate.range.high) == (float, 100e9, "b/s", 1e12)
    assert rate.help.startswith("of each wire")
    algorithm = keys(kinds()["allreduce"])["algorithm"]
    assert algorithm.choices[:2] == ("in-network", "ring") and algorithm.range is None
    assert keys(kinds()["training"])["backends"].type is tuple
    for each in kinds().values():
        assert all(key.help and (key.type not in (int, float) or key.range) for key in keys(each).values())


def values_of_another_type(key: Key) -> list[object]:
    """Values that a key's type does not have, though Python would compute with most of them."""
    return {int: [1.0, True, "1", math.nan], float: [True, "1", math.nan, math.inf], bool: [1, 0.0, "true"],
            str: [3, True], tuple: [3, "a"]}[key.type]


@pytest.mark.fast
@pytest.mark.parametrize("kind", kinds())
def test_a_value_of_another_type_is_refused_by_name_in_python_and_in_a_file(kind, tmp_path):
    cls = kinds()[kind]
    path = tmp_path / "own.toml"
    for name, each in keys(cls).items():
        for value in values_of_another_type(each):
            message = rf"{name} = {re.escape(repr(value))}: expected "
            with pytest.raises(ConfigError, match=f"^{message}") as error:
                cls(**{name: value})
            assert error.value.problems[0].key == name
            if name != "kind" and each.type is not tuple:  # a file's text is a list with commas
                text = repr(value) if isinstance(value, str) else str(value).lower()
                path.write_text(f"kind = {kind!r}\n{name} = {text}\n")
                with pytest.raises(ConfigError, match=rf"own\.toml:2: {message}"):
                    plan.load(path)


@pytest.mark.fast
def test_numbers_of_numpy_and_whole_numbers_for_reals_are_taken():
    chosen = kinds()["allreduce"](workers=np.int64(4), rate=10**9, loss=np.float32(0.5), delay=np.float64(1e-6))
    assert (chosen.workers, chosen.rate, chosen.loss) == (4, 1e9, 0.5)


@pytest.mark.fast
def test_all_problems_of_an_experiment_are_told_at_once(tmp_path, capsys):
    path = tmp_path / "wrong.toml"
    path.write_text("""kind = "allreduce"
elemets = 5
loss = "x"
jobs = 4

# a comment
[[sweep]]
workers = [2, "many"]
[[sweep]]
delay = [1e-6]
lost = [0.1]
""")
    assert cli.main(["experiment", "run", str(path), "--results", str(tmp_path), "--set", "pool=true"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"ina: {path}:2: unknown key 'elemets'; did you mean 'elements'?",
        f"ina: {path}:3: loss = 'x': expected a number",
        f"ina: {path}:8: [sweep]: workers = 'many': expected a whole number",
        f"ina: {path}:11: [sweep]: unknown key 'lost'; did you mean 'loss'?",
        "ina: command line: pool = 'true': expected a whole number",
    ]
    path.write_text("""kind = "allreduce"
dtype = "int8"
[sweep]
rate = [1e9, 1e16]
loss = [0.5, 2.0]
""")
    with pytest.raises(ConfigError) as caught:
        plan.load(path)
    assert str(caught.value).splitlines() == [
        f"{path}:2: dtype = 'int8': expected 'int32' or 'float32'",
        f"{path}:5: loss = 2.0: expected 0 to 1 (a probability)",
        f"{path}:4: rate = 1e+16: expected 0 to 1e+12 (bit/s of a topology's link; 0: no limit)",
    ]
    path.write_text('kind = "allreduce"\nstripes = 2\nalgorithm = "tree"\ntransport = "dctcp"\n')
    with pytest.raises(ConfigError) as caught:
        plan.load(path)
    assert [problem.key for problem in caught.value.problems] == ["stripes", "ecn"]
