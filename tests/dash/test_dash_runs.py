"""Results over HTTP: list, one run, comparison and progress; nothing outside the roots, and nothing broken hides the rest."""

from __future__ import annotations

import json
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from capabilities import need
from waiting import LONG

need("bottle", "waitress")

import made_results  # noqa: E402
from dash_page import TOKEN, serving  # noqa: E402

from ina.dash.folders import POINTS, ROWS, Folders, Unknown, _thinned  # noqa: E402
from ina.dash.runs import Runs  # noqa: E402
from ina.lab.results import journal, record  # noqa: E402

pytestmark = pytest.mark.build


@pytest.fixture
def root(tmp_path):
    """Two trainings, a sweep of three all-reduces, and two broken folders."""
    root = tmp_path / "results"
    made_results.training(root, "fast", 100.0, protocol="switchml")
    made_results.training(root, "slow", 200.0, protocol="atp", seed=2)
    points = [made_results.reduction(root / "sweep", f"{index:03}-workers", 1.5 * (1 + index), workers=2 + index, seed=1 + index)
              for index in range(3)]
    made_results.plan(root / "sweep", "sweep", points)
    odd = made_results.training(root, "odd")
    metrics = json.loads((odd / "metrics.json").read_text())
    metrics["summary"][0]["step_ms"] = "no number"
    record.write_json(odd / "metrics.json", metrics)
    broken = made_results.training(root, "broken")
    (broken / "metrics.json").write_text('{"schema": 1}')
    (broken / "config.json").write_text("[")
    return root


@pytest.fixture
def ask(root):
    with serving([Runs([root]).add_routes]) as served:

        def get(path: str, *pairs: tuple[str, str]):
            if path != "/table":
                address, body = f"{served.origin}/api/runs{path}?{urllib.parse.urlencode(pairs)}", None
            else:
                names, where = ([value for key, value in pairs if key == wanted] for wanted in ("run", "where"))
                asked = {"runs": names, "where": dict(text.split("=") for text in where)}
                address, body = f"{served.origin}/api/runs{path}", json.dumps(asked).encode()
            request = urllib.request.Request(address, body, {"Authorization": f"Bearer {TOKEN}"})
            try:
                with urllib.request.urlopen(request, timeout=LONG) as answer:
                    body = answer.read()
                    return answer.headers if path == "/report" else json.loads(body)
            except urllib.error.HTTPError as error:
                return error.code, json.loads(error.read())["error"]

        yield get


def test_the_list_has_every_folder_and_says_which_it_skips(ask, root):
    listed = ask("")
    runs = {run["run"]: run for run in listed["runs"]}
    assert set(runs) == {"0/fast", "0/slow", "0/sweep"}
    skipped = {skipped["run"]: skipped["reason"] for skipped in listed["skipped"]}
    assert skipped.keys() == {"0/broken", "0/odd"}
    assert "config.json" in skipped["0/broken"] and "metrics.json: summary" in skipped["0/odd"] and "step_ms" in skipped["0/odd"]
    assert runs["0/fast"]["state"] == runs["0/sweep"]["state"] == "finished"
    assert runs["0/fast"]["kind"] == "training" and runs["0/fast"]["protocols"] == ["switchml"]
    assert runs["0/fast"]["backends"] == ["gloo", "ina"] and runs["0/sweep"]["points"] == [3, 3]
    figures = {figure["key"]: figure["text"] for figure in runs["0/slow"]["rows"][0]["figures"]}
    assert figures["step_ms"] == "200.0"


def test_a_run_has_figures_with_words_reasons_keys_and_its_environment(ask, root):
    run = ask("/one", ("run", "0/fast"))
    assert [row["name"] for row in run["rows"]] == ["ina (P4 switch)", "gloo (loopback)"]
    figures = {figure["key"]: figure for figure in run["rows"][1]["figures"]}
    assert figures["step_ms"]["text"] == "200.0" and figures["step_ms"]["heading"] == "median step, ms"
    assert figures["allreduce_ms"]["words"].startswith("Time of a step in which a rank waited")
    assert [each["bound"] for each in run["why"]] == ["unknown", "unknown"] and "no link" in run["why"][0]["shown"]
    keys = {key["name"]: key for key in run["keys"]}
    assert keys["protocol"]["value"] == "switchml" and keys["rate"]["value"] == "100 Mb/s" and keys["rate"]["help"]
    assert run["environment"]["cores"] == os.cpu_count() and run["report"] is False
    sweep = ask("/one", ("run", "0/sweep"))
    assert [point["state"] for point in sweep["sweep"]] == ["finished"] * 3
    assert len(sweep["why"]) == 3 and "figures that would show it are missing" in sweep["why"][0]["shown"], "made by hand"
    assert ask("/one", ("run", sweep["sweep"][1]["run"]))["rows"][0]["name"] == "job 0"


def test_rows_are_chosen_by_any_key(ask):
    every = ask("/table", ("run", "0/fast"), ("run", "0/slow"), ("run", "0/sweep"), ("run", "0/fast"))
    assert len(every["rows"]) == 2 + 2 + 3 and every["skipped"] == []
    assert every["values"]["protocol"] == ["atp", "switchml"] and every["values"]["kind"] == ["allreduce", "training"]
    columns = {column["name"]: column for column in every["columns"]}
    assert columns["rate"]["unit"] == "b/s" and not columns["rate"]["figure"]
    assert columns["step_ms"]["figure"] and columns["step_ms"]["headings"]["training"] == "median step, ms"
    names = [("run", name) for name in ("0/fast", "0/slow", "0/sweep")]
    one = ask("/table", *names, ("where", "kind=training"), ("where", "backend=gloo"), ("where", "protocol=atp"))
    assert [(row["run"], row["step_ms"]) for row in one["rows"]] == [("0/slow", 400.0)]
    by_number = ask("/table", *names, ("where", "workers=3"))
    assert [row["run"] for row in by_number["rows"]] == ["0/sweep/001-workers"] and by_number["rows"][0]["time_ms"] == 3.0
    assert ask("/table", *names, ("where", "nothing=1"))[0] == 400
    assert ask("/table")["rows"] == ask("/table")["columns"] == []


def test_nothing_outside_the_roots_is_read(ask, root, tmp_path):
    outside = made_results.training(tmp_path, "secret")
    (outside / "report.html").write_text("secret")
    (root / "link").symlink_to(outside)
    inner = made_results.training(root, "inner")
    (inner / "report.html").symlink_to(outside / "report.html")
    planned = json.loads((root / "sweep" / "experiment.json").read_text())
    planned["points"][0]["folder"] = "../../secret"
    (root / "other").mkdir()
    (root / "other" / "experiment.json").write_text(json.dumps(planned))
    for name in ("0/../secret", "0/link", "0/inner", "1/fast", "-1/fast", "0//etc", f"0/{outside}", "0/fast\0", "0/" + "a" * 5000,
                 "", "0", "fast", "9" * 5000 + "/fast", "0/\ud800"):
        for path in ("/one", "/live", "/report", "/table") if name.isascii() else ("/table",):
            assert ask(path, ("run", name))[0] == 404, (path, name)
    assert ask("/one", ("run", "0/other"))[0] == 400
    skipped = {each["run"]: each["reason"] for each in ask("")["skipped"]}
    assert "leads out of" in skipped["0/inner"] and "expected folders of points" in skipped["0/other"]
    assert "0/link" not in skipped, "a link to a folder is not followed"
    assert "secret" not in json.dumps(ask("")["runs"])
    os.unlink(inner / "report.html")
    os.unlink(inner / "metrics.json")
    os.mkfifo(inner / "metrics.json")
    assert "expected a file" in ask("/one", ("run", "0/inner"))[1]


def answered(question, pipes=()):
    """Returns the answer to a question, which must come although nobody writes to the pipes."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(question)
        try:
            return answer.result(LONG)
        finally:
            for pipe in pipes:
                os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # what waits for a writer ends


@pytest.mark.parametrize("file", ["metrics.json", "config.json", "environment.json", "progress.jsonl", "error.txt",
                                  "report.html"])
def test_a_pipe_in_a_point_stops_no_answer(root, file):
    folders = Folders([root])
    pipe = root / "sweep" / "001-workers" / file
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    runs = {run["run"]: run for run in answered(folders.listed, [pipe])["runs"]}
    assert set(runs) == {"0/fast", "0/slow", "0/sweep"} and runs["0/sweep"]["points"] == [2, 3]
    detail = answered(lambda: folders.detail("0/sweep"), [pipe])
    assert [point["name"] for point in detail["sweep"]] == ["000-workers", "002-workers"]
    assert [reason for reason in detail["skipped"] if "expected a file" in reason], detail["skipped"]
    assert len(answered(lambda: folders.table(["0/sweep"]), [pipe])["rows"]) == 2


def test_a_point_that_leads_out_of_the_root_is_not_read(root, tmp_path):
    outside = made_results.reduction(tmp_path, "secret", 1.5)
    point = root / "sweep" / "001-workers"
    (point / "metrics.json").unlink()
    (point / "metrics.json").symlink_to(outside / "metrics.json")
    (root / "sweep" / "002-workers").rename(root / "sweep" / "moved")
    (root / "sweep" / "002-workers").symlink_to(outside)
    folders = Folders([root])
    (sweep,) = [run for run in folders.listed()["runs"] if run["run"] == "0/sweep"]
    assert sweep["points"] == [1, 3]
    assert [point["name"] for point in folders.detail("0/sweep")["sweep"]] == ["000-workers"]


def test_a_name_that_is_no_text_is_skipped_with_the_reason(root):
    (root / "slow").rename(root / os.fsdecode(b"\xff"))
    (skipped,) = [each for each in Folders([root]).listed()["skipped"] if "not UTF-8" in each["reason"]]
    assert skipped["run"] == "0/\udcff"


@pytest.mark.parametrize("line", [
    '{"schema": 1, "began": 1%s}\n',
    '{"schema": 1, "began": 1}\n{"at": 1, "of": "ina", "done": 1%s, "total": 2}\n'])
def test_numbers_beyond_all_floats_in_a_journal_are_named(ask, root, line):
    (root / "fast" / "progress.jsonl").write_text(line % ("0" * 400))
    for path in ("/one", "/live"):
        status, words = ask(path, ("run", "0/fast"))
        assert status == 400 and "progress.jsonl:" in words
    assert "0/fast" in [each["run"] for each in ask("")["skipped"]]


def test_no_point_is_the_sweep_itself(root):
    plan = json.loads((root / "sweep" / "experiment.json").read_text())
    plan["points"][0]["folder"] = "."
    record.write_json(root / "sweep" / "experiment.json", plan)
    skipped = {each["run"]: each["reason"] for each in Folders([root]).listed()["skipped"]}
    assert "expected folders of points" in skipped["0/sweep"]


@pytest.mark.parametrize("body", [
    b"[", b"[]", b'{"runs": "a"}', b'{"runs": [1]}', b'{"runs": ["0/fast", 1]}', b'{"runs": [], "where": {"kind": 1}}', b"\xff"])
def test_a_request_that_makes_no_sense_is_named(root, body):
    with serving([Runs([root]).add_routes]) as served:
        request = urllib.request.Request(f"{served.origin}/api/runs/table", body, {"Authorization": f"Bearer {TOKEN}"})
        with pytest.raises(urllib.error.HTTPError, match="400") as error:
            urllib.request.urlopen(request, timeout=LONG)
        assert json.loads(error.value.read())["error"].startswith("the request: ")


def test_a_report_may_run_no_script(ask, root):
    (root / "fast" / "report.html").write_text("<script>alert(1)</script>")
    headers = ask("/report", ("run", "0/fast"))
    assert headers.get_all("Content-Security-Policy") == [
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'none'"]
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Content-Type"].startswith("text/html")
    assert ask("/report", ("run", "0/slow"))[0] == 404


def test_progress_is_seen_until_the_end_and_what_was_left_behind_is_named(ask, root):
    made_results.training(root, "now", finished=False)
    with pytest.raises(RuntimeError), journal.Journal(root / "now", kind="training", name="now") as keeper:
        for step in range(1, 4):
            keeper.note("ina", step, 10, loss=4.0 - step, step_ms=5.0)
        keeper.flush()
        live = ask("/live", ("run", "0/now"))
        assert live["state"] == "running" and 0 <= live["age"] < LONG
        (job,) = live["jobs"]
        assert (job["of"], job["done"], job["total"]) == ("ina", 3, 10)
        assert job["curves"] == {"loss": [[1, 3.0], [2, 2.0], [3, 1.0]], "step_ms": [[1, 5.0], [2, 5.0], [3, 5.0]]}
        assert {run["run"]: run["state"] for run in ask("")["runs"]}["0/now"] == "running"
        raise RuntimeError("broken")
    left = ask("/live", ("run", "0/now"))
    assert left["state"] == "ended without a result" and left["jobs"][0]["done"] == 3
    (root / "now" / "error.txt").write_text("the reason\n")
    assert (ask("/live", ("run", "0/now"))["state"], ask("/one", ("run", "0/now"))["error"]) == ("failed", "the reason")
    assert ask("/live", ("run", "0/fast")) == {"state": "finished", "age": None, "jobs": [], "error": ""}


def test_what_is_written_again_is_read_again(root):
    folders = Folders([root])
    for step_ms in (100.0, 300.0):
        made_results.training(root, "fast", step_ms)
        row = folders.table(["0/fast"], [("backend", "ina")])["rows"][0]
        assert row["step_ms"] == pytest.approx(step_ms)


@pytest.mark.parametrize("count", [0, 1, POINTS, POINTS + 1, 11_000])
def test_a_long_curve_is_thinned_to_means(count):
    points = [(float(x), float(x)) for x in range(1, count + 1)]
    thinned = _thinned(points)
    assert len(thinned) <= POINTS and (len(thinned) == count or count > POINTS)
    assert [x for x, _ in thinned[-1:]] == [x for x, _ in points[-1:]]
    ends = [0.0, *(x for x, _ in thinned)]
    assert [y for _, y in thinned] == pytest.approx([(a + 1 + b) / 2 for a, b in zip(ends, ends[1:], strict=False)])


def test_roots_in_each_other_show_a_run_once_and_alike_names_are_told_apart(root, tmp_path):
    """Every title is another one, and every name leads to its own run."""
    for roots in ([root, root / "fast"], [root / "fast", root], [root, root]):
        folders = Folders(roots)
        runs = folders.listed()["runs"]
        assert len(runs) == len(Folders([root]).listed()["runs"]) == len({folders.path(run["run"]) for run in runs})
        for run in runs:
            assert folders.detail(run["run"])["title"] == run["title"]
            assert all(each["run"].startswith(run["run"]) for each in folders.detail(run["run"])["why"])
    others = [tmp_path / "a" / "results", tmp_path / "b" / "results", tmp_path / "c"]
    for other in others:
        shutil.copytree(root / "fast", other / "fast")
    titles = {run["title"] for run in Folders(others).listed()["runs"]}
    assert titles == {f"{others[0]}/fast", f"{others[1]}/fast", "c/fast"}
    assert {run["title"] for run in Folders([others[2]]).listed()["runs"]} == {"fast"}
    assert [run["title"] for run in Folders([root / "fast"]).listed()["runs"]] == ["fast"], "the root itself"


def test_a_root_that_is_not_there_is_empty_and_one_run_may_be_a_root(root, tmp_path):
    assert Folders([tmp_path / "none"]).listed()["runs"] == []
    alone = Folders([root / "fast"])
    (run,) = alone.listed()["runs"]
    assert alone.detail(run["run"])["state"] == "finished" and ROWS > 0
    with pytest.raises(Unknown):
        alone.path("0/../slow")
