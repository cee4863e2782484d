"""The view "Runs" in Chromium: filters, one run, comparison with plots, and a training that goes on meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from capabilities import need
from dash_page import serving
from waiting import until

need("bottle", "waitress", "browser", "chromium")

import made_results  # noqa: E402

from ina.dash.views import all_views  # noqa: E402
from ina.lab.results import journal  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
FOREIGN = "<b onmouseover=alert(1)>x"
pytestmark = [pytest.mark.build, pytest.mark.gate]
pytest_plugins = ("dash_page",)  # its fixtures


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs") / "results"
    made_results.training(root, "fast", 100.0, protocol="switchml")
    made_results.training(root, FOREIGN, 200.0, protocol="atp")
    points = [made_results.reduction(root / "sweep", f"{index:03}-workers", time_ms, workers=workers, seed=seed)
              for index, (workers, seed, time_ms) in enumerate([(2, 1, 1.0), (2, 2, 3.0), (2, 3, 1.5), (4, 1, 5.0)])]
    made_results.plan(root / "sweep", "sweep", points)
    return root


@pytest.fixture(scope="module")
def served(root):
    with serving(all_views(roots=[root])) as served:
        yield served


def runs_view(page) -> None:
    page.get_by_role("tab", name="Runs").click()
    page.locator("#runs tbody tr").first.wait_for()


def test_runs_are_found_opened_and_compared(page, axe):
    runs_view(page)
    assert page.locator("#runs tbody tr").count() == 3
    page.get_by_label("Protocol", exact=True).select_option("atp")
    assert page.locator("#runs tbody tr").count() == 1 and page.locator("#runs tbody b").count() == 0
    assert page.locator("#runs tbody button").inner_text() == FOREIGN
    page.get_by_label("Protocol", exact=True).select_option("")
    page.get_by_role("button", name="fast", exact=True).click()
    run = page.get_by_role("region", name="Run", exact=True)
    run.get_by_text("median step, ms", exact=True).first.wait_for()
    assert "no link or processor was measured" in run.inner_text() and "unknown" in run.inner_text()
    axe(page)
    page.get_by_label("choose 0/sweep").check()
    page.get_by_role("button", name="Compare the 1 chosen").click()
    table = page.locator("#comparison")
    table.wait_for()
    page.get_by_label("figure", exact=True).select_option("time_ms")
    page.get_by_label("against", exact=True).select_option("workers")
    comparison = page.get_by_role("region", name="Comparison", exact=True)
    values = [float(each.get_attribute("data-value")) for each in comparison.locator("svg.plot circle").all()]
    assert values == pytest.approx([1.5, 5.0]), "the median over seeds, and the only one"
    assert comparison.locator("svg.plot .spread").count() == 1 and "all-reduce, ms" in comparison.inner_text()
    heads = table.locator("thead th").all_inner_texts()
    column = heads.index("time_ms")
    for order, expected in (("ascending", ["1", "1.5", "3", "5"]), ("descending", ["5", "3", "1.5", "1"])):
        table.get_by_role("button", name="time_ms", exact=True).click()
        assert table.locator("thead th").nth(column).get_attribute("aria-sort") == order
        assert [row.locator("td").nth(column).inner_text() for row in table.locator("tbody tr").all()] == expected
    comparison.get_by_label("filter by", exact=True).select_option("workers")
    comparison.get_by_label("workers", exact=True).select_option("4")
    page.locator("#comparison tbody tr").nth(1).wait_for(state="detached")
    assert page.locator("#comparison tbody tr").count() == 1
    for width in (400, 1600):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        assert page.evaluate(BROKEN_WORDS) == [], width
    axe(page)


# Words of cells that are seen on more than one line; longer ones, such as hashes, may be.
BROKEN_WORDS = """() => {
  const broken = [];
  for (const cell of document.querySelectorAll("th, td")) {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      for (const word of walker.currentNode.data.matchAll(/\\b[A-Za-z0-9]{1,24}\\b/g)) {
        const range = document.createRange();
        range.setStart(walker.currentNode, word.index);
        range.setEnd(walker.currentNode, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map((each) => each.top)).size > 1) broken.push(word[0]);
      }
    }
  }
  return broken;
}"""


def test_unlike_units_share_no_plot(page):
    runs_view(page)
    page.get_by_role("button", name="Compare all in the list").click()
    comparison = page.get_by_role("region", name="Comparison", exact=True)
    comparison.locator("svg.plot").first.wait_for()
    comparison.get_by_label("figure", exact=True).select_option("goodput_gbps")
    captions = comparison.locator("figcaption").all_inner_texts()
    assert len(captions) == len(set(captions)) == 2, captions
    assert sorted(captions) == ["goodput, Gb/s by workers", "goodput, mean, Gb/s by workers"]
    lines = [text for texts in comparison.locator(".legend").all_inner_texts() for text in texts.splitlines()]
    assert len(lines) == len(set(lines)) >= 3


def test_a_run_under_way_is_drawn_until_it_has_ended(page, root, axe):
    made_results.training(root, "now", finished=False)
    with journal.Journal(root / "now", kind="training", name="now") as keeper:
        keeper.note("ina", 1, 4, loss=2.0, step_ms=5.0)
        keeper.flush()
        runs_view(page)
        page.get_by_role("button", name="now", exact=True).click()
        page.get_by_text("ina: 1 of 4").wait_for()
        keeper.note("ina", 2, 4, loss=1.0, step_ms=6.0)
        keeper.flush()
        page.get_by_text("ina: 2 of 4").wait_for()
        figures = page.locator("section figure", has=page.locator("figcaption", has_text="training loss, live"))
        values = [float(each.get_attribute("data-value")) for each in figures.locator("circle").all()]
        assert values == [2.0, 1.0]
        axe(page)
        made_results.training(root, "now")
    page.get_by_text("training now, finished").wait_for()


@pytest.mark.later
def test_a_training_is_watched(page, root):
    """A training that really runs: its curves grow, and end as its figures."""
    need("cc", "torch", "matplotlib", "fashion-mnist")
    command = [sys.executable, "-m", "ina.cli", "run", "--results", str(root), "--steps", "150", "--workers", "2", "--backends",
               "ina", "--set", "model=small", "--set", "pause=0.05", "--set", "name=watched"]
    runs_view(page)
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL) as process:
        try:
            button = page.locator("#runs button", has_text="watched-")
            button.wait_for()
            button.click()
            page.locator("section figure circle").first.wait_for()
            progress = page.locator("section progress")
            before = float(progress.get_attribute("value"))
            until(lambda: float(progress.get_attribute("value")) > before, "further steps")
            assert process.wait(600) == 0
            page.get_by_text("training watched, finished").wait_for()
        finally:
            process.kill()
