"""The view "Live" in Chromium, over made-up switch processes: heat, failures, trees, hostile names, and processes that end."""

from __future__ import annotations

import dash_looks
import pytest
from capabilities import need

need("bottle", "waitress", "browser", "chromium")

from ina.dash.live import Live  # noqa: E402

pytestmark = [pytest.mark.build, pytest.mark.gate]
pytest_plugins = ("dash_page",)  # its fixtures

EVIL = "<img src=x onerror=\"document.title='owned'\">" + "n" * 150


class World:
    """The switch processes, by name; each look at one is half a second and some packets later than the one before."""

    def __init__(self):
        self.looks = 0
        self.faults = []

    def names(self):
        return ["net", "local", "nonsense"]

    def look(self, name):
        self.looks += 1
        at = 10.0 + 0.5 * self.looks
        if name == "nonsense":
            return {}
        if name == "local":
            return dash_looks.local(at, 100 * self.looks, name=EVIL)
        return dash_looks.network(at, 187_500 * self.looks, faults=self.faults, names=("a", "b"))


WORLD = World()
VIEWS = [Live(look=lambda name: WORLD.look(name), discover=lambda: WORLD.names()).add_routes]


def test_heat_failures_trees_and_hostile_names(page, axe):
    section = page.locator("section").filter(has=page.get_by_role("heading", name="@net"))
    drawing = section.locator(".drawing")
    drawing.locator("line.heat2").first.wait_for(state="attached")
    assert drawing.locator("line.heat2").count() == 6, "four hosts and two trunks; 3 of 10 Gb/s each"
    assert drawing.locator("line.failed").count() == 0
    WORLD.faults = ["h2"]
    drawing.locator("line.failed").wait_for(state="attached")
    assert drawing.locator("text.mark", has_text="down").count() == 1, "a word beside the dashes"
    assert drawing.locator("line.failed").evaluate("element => getComputedStyle(element).strokeDasharray") != "none"
    news = section.locator("ul.news").inner_text()
    assert "a waits" in news and "nothing has come from h2" in news
    section.get_by_label("Tree of job").select_option("a")
    assert drawing.locator("line.halo.tree").count() == 6 and drawing.locator("rect.root").count() == 1
    section.get_by_text("Drops by reason").click()
    section.get_by_role("cell", name="up tail drops", exact=True).first.wait_for()

    local = page.locator("section").filter(has=page.get_by_role("heading", name="@local"))
    assert EVIL in local.get_by_role("table").nth(1).inner_text(), "a name is text, whatever is in it"
    assert page.title() == "ina: Live" and page.locator("main img").count() == 0
    nonsense = page.locator("section").filter(has=page.get_by_role("heading", name="@nonsense"))
    assert "makes no sense" in nonsense.inner_text()

    for width in (400, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"wider than {width} pixels"
    axe(page)
    WORLD.names = lambda: ["net"]
    local.get_by_text("it has ended").wait_for()
    assert local.get_by_role("table").first.is_visible(), "the last that it told of itself stays"
