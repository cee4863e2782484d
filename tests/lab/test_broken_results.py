"""Results folders with any JSON in any place of any file: every reader skips what it cannot use, and names it."""

import contextlib
import copy
import io
import json
import re
from unittest.mock import Mock

import pytest
from capabilities import need
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ina import cli
from ina.base import signals
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.kinds.training import Run, Training
from ina.lab.results import compare, record

pytestmark = pytest.mark.build  # a results folder has the hash of the preprocessed program
FILES = ("config.json", "environment.json", "metrics.json")
NUMBERS = st.integers() | st.just(10**400) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=3)
ANY = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                   max_leaves=4)
# What a plot may say of runs that were read
LEGITIMATE = re.compile("a plot has one|runs of a point differ in|no figures? in these runs|have no figures")
# Examples of a test that decides on each change: few, the same each time. A failing one is shown as it is: each step of making it
# smaller would run all commands again, for minutes.
FEW = settings(deadline=None, derandomize=True, database=None, phases=[Phase.generate])


def training(path, seed: int) -> None:
    run = Run("ina", [2.0, 1.0], [0.1, 0.2], [0.01, 0.02], [1000, 1000], 0.5, 0.3, 1.0, "data", 7)
    record.Folder(path, Training(backends=("ina",), world="local", seed=seed)).save([run], {"distance": 0.5}, finished=True)


def allreduce(path, seed: int) -> None:
    need("cc")
    config = AllReduce(workers=2, elements=64, seed=seed)
    record.Folder(path, config).save(config.measure(), {}, finished=True)


def places(value, at=()):
    """Yields all places of a document, the whole first."""
    yield at
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*at, key))


def changed(document, at, value):
    """Returns the document with another value in a place; ``value`` ...: with none."""
    if not at:
        return value
    document = copy.deepcopy(document)
    inner = document
    for key in at[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return document


class Folders:
    """A good run and one to break, beside each other as the points of a sweep, and the files of the latter."""

    def __init__(self, root, save):
        self.root, self.broken, self.good = root, root / "000-broken", root / "001-good"
        for seed, path in enumerate((self.broken, self.good), start=1):
            save(path, seed)
        self.right = {name: json.loads((self.broken / name).read_text()) for name in FILES}
        points = [{"folder": path.name, "config": self.right["config.json"], "sources": self.right["environment.json"]["sources"]}
                  for path in (self.broken, self.good)]
        self.plan = {"schema": record.SCHEMA, "name": "trial", "about": "", "kind": "allreduce", "axes": [], "points": points}
        record.write_json(root / "experiment.json", self.plan)

    def write(self, name: str, text: bytes) -> None:
        for file, content in {**{file: json.dumps(value).encode() for file, value in self.right.items()}, name: text}.items():
            (self.broken / file).write_bytes(content)


@pytest.fixture(scope="module", params=[training, allreduce], ids=["training", "allreduce"])
def folders(request, tmp_path_factory):
    return Folders(tmp_path_factory.mktemp("sweep"), request.param)


def called(*words: str) -> tuple[int, str]:
    """Runs a command, which no exception leaves; returns its status and its messages. A command that has been interrupted is the
    end of the test, too: its status would be one more failing example, and the search would go on."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        status = cli.main(list(map(str, words)))
    if status in (signals.STATUS, 130):
        raise KeyboardInterrupt(errors.getvalue())
    return status, errors.getvalue()


@st.composite
def breaks(draw, right):
    name = draw(st.sampled_from(sorted(right)))
    if draw(st.integers(0, 9)) == 0:
        return name, draw(st.binary(max_size=20))
    at = draw(st.sampled_from(list(places(right[name]))))
    value = draw(ANY if not at else ANY | st.just(...))
    return name, json.dumps(changed(right[name], at, value)).encode()


def check(folders: Folders, name: str, text: bytes, commands: list[list[str]]) -> None:
    """The good run is in all outputs; of the broken one it is said which file is wrong, by each command that does not use it."""
    folders.write(name, text)
    skipped = re.compile(rf"ina: skipped: {re.escape(str(folders.broken))}/{re.escape(name)}: .+\n")
    for command in commands:
        for arguments in ([folders.broken, folders.good], [folders.root]):
            status, errors = called(command[0], *arguments, *command[1:])
            if status and command[0] == "plot":
                assert LEGITIMATE.search(errors), errors
            else:
                assert status == 0 and (not errors or skipped.fullmatch(errors)), errors


def check_tables(folders: Folders, data) -> None:
    target = folders.root / "out.csv"
    check(folders, *data.draw(breaks(folders.right)),
          [["report", "--output", target], ["why"], ["plot", "-o", target], ["plot", "-o", target, "--cdf"]])


@settings(FEW, max_examples=5)
@given(st.data())
def test_tables_and_findings_are_without_what_is_broken(folders, data):
    check_tables(folders, data)


@pytest.mark.judge
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_tables_and_findings_are_without_whatever_is_broken(folders, data):
    check_tables(folders, data)


@pytest.mark.later
@settings(FEW, max_examples=5)
@given(st.data())
def test_pages_and_plots_are_without_what_is_broken(folders, data):
    need("matplotlib")
    root = folders.root
    name, text = data.draw(breaks({"metrics.json": folders.right["metrics.json"]}))
    check(folders, name, text, [["report", "--output", root / "out.html"], ["plot", "-o", root / "out.svg"]])


def test_a_signal_ends_a_search_for_what_is_broken(folders, monkeypatch):
    for error in (signals.Terminated(), KeyboardInterrupt()):
        monkeypatch.setattr(compare, "readable", Mock(side_effect=error))
        with pytest.raises(KeyboardInterrupt, match="terminated|interrupted"):
            called("why", folders.good)


@pytest.mark.parametrize(("name", "at", "value", "message"), [
    ("metrics.json", ("summary",), [1], "summary[0]: 1, expected an object"),
    ("metrics.json", ("summary", 0, "time_ms"), "x", "summary[0].time_ms: 'x', expected a number"),
    ("metrics.json", ("summary", 0, "job"), ..., "has no key 'summary[0].job'"),
    ("metrics.json", ("runs",), [], "runs: 0, expected as many as in summary: 1"),
    ("metrics.json", ("finished",), 1, "finished: 1, expected true or false"),
    ("environment.json", ("sources",), "x", "sources: 'x', expected an object"),
    ("environment.json", ("commit",), ..., "has no key 'commit'"),
])
def test_what_is_wrong_is_named_with_its_place(tmp_path, name, at, value, message):
    folders = Folders(tmp_path, allreduce)
    folders.write(name, json.dumps(changed(folders.right[name], at, value)).encode())
    with pytest.raises(record.ResultsError, match=re.escape(f"{folders.broken / name}: {message}; run it again")):
        record.load(folders.broken)
    assert called("why", folders.broken)[0] == 1


def test_what_only_a_kind_relies_on_is_named_where_it_explains_a_run(tmp_path):
    folders = Folders(tmp_path, allreduce)
    folders.write("metrics.json", json.dumps(changed(folders.right["metrics.json"], ("runs", 0, "stats"), [])).encode())
    status, errors = called("why", folders.broken, folders.good)
    assert status == 0
    assert errors.startswith(f"ina: skipped: {folders.broken}/metrics.json: expected all figures of kind allreduce: TypeError: ")
    assert called("report", folders.broken, folders.good, "--output", tmp_path / "a.csv") == (0, "")


@pytest.mark.parametrize("counters", ["network", "drops", "workers"])
def test_counters_that_a_run_lacks_are_named(tmp_path, counters):
    """Such a run may be of another version."""
    folders = Folders(tmp_path, allreduce)
    lacking = changed(folders.right["metrics.json"], ("runs", 0, "stats", counters), ...)
    folders.write("metrics.json", json.dumps(lacking).encode())
    message = f"has no figure '{counters}', which explains runs of kind allreduce; run it again"
    assert called("why", folders.broken) == (1, f"ina: {folders.broken}/metrics.json: {message}\n")
