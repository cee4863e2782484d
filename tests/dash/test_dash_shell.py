"""The shell of the page in Chromium: tabs, themes, widths, keyboard, and axe-core's rules."""

from __future__ import annotations

import pytest
from capabilities import need

need("bottle", "waitress", "browser", "chromium")

pytestmark = [pytest.mark.build, pytest.mark.gate]
pytest_plugins = ("dash_page",)  # its fixtures


def test_the_page_opens_its_views_in_both_themes_and_widths(page, axe):
    assert "token" not in page.url
    for name in ("Live", "Runs", "Playground"):
        page.get_by_role("tab", name=name).click()
        page.get_by_role("heading", name=name, level=2, exact=True).first.wait_for()
        assert page.title() == f"ina: {name}"
        for width in (400, 1600):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than {width} pixels"
        axe(page)
    page.get_by_role("tab", name="Playground").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_role("heading", name="Live", level=2, exact=True).first.wait_for()


def test_the_theme_is_switched_and_kept(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="light")
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme: auto").click()
    page.get_by_role("button", name="Theme: light").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    page.get_by_role("button", name="Theme: dark").wait_for()
    assert page.evaluate(ground) == dark
