"""The playground in Chromium: an example, an error that leads to its line, the graph, and a packet's way."""

from __future__ import annotations

import pytest
from capabilities import need
from waiting import until

need("bottle", "waitress", "browser", "chromium")

from ina.base import paths  # noqa: E402

pytestmark = [pytest.mark.build, pytest.mark.gate]
pytest_plugins = ("dash_page",)  # its fixtures
LEARN = paths.root() / "examples/learn/learn.p4"


def test_a_program_is_mended_drawn_and_run(page, axe):
    page.get_by_role("tab", name="Playground").click()
    program = page.get_by_label("Program")
    text = LEARN.read_text()
    broken = text.replace("apply {", "apply { nothing(); ", 1)
    program.fill(broken)
    page.get_by_role("button", name="Check").click()
    line = next(i for i, row in enumerate(broken.splitlines(), start=1) if "nothing();" in row)
    page.get_by_text(f"the program has errors, listed below; the first: line {line}: ").wait_for()
    page.get_by_role("list", name="Errors and warnings").get_by_role("button").first.click()
    selected = page.evaluate("(({value, selectionStart}) => [value.slice(0, selectionStart).split('\\n').length, "
                             "value.slice(selectionStart, selectionStart + 9)])(document.activeElement)")
    assert selected == [line, "nothing()"]

    program.fill(text)
    page.get_by_role("button", name="Check").click()
    graph = page.get_by_role("img", name="The parser's states")
    graph.wait_for()
    graph.evaluate("image => image.decode()")
    assert graph.evaluate("image => image.naturalWidth") > 100
    assert "tables" in page.get_by_role("region", name="Explanation").inner_text()

    page.get_by_label("Entries").fill("add addresses hdr.ethernet.dst:0x000000000002 forward(port:2)")
    page.get_by_label("dst (48 bits)").fill("2")
    page.get_by_label("src (48 bits)").fill("0x1")
    page.get_by_role("button", name="Append to the last packet").click()
    assert page.get_by_label("Packets, a line").input_value().startswith("000000000002000000000001")
    page.get_by_label("Port that the packets come in at:").fill("1")
    page.get_by_role("button", name="Send packets").click()
    way = page.get_by_role("region", name="The way of the packets")
    way.wait_for()
    assert "into port 1" in way.inner_text() and "out of port 2" in way.inner_text()
    for width in (400, 1600):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
    axe(page)


DARKNESS = """async (image) => {
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [4, 4];
  const drawing = canvas.getContext("2d");
  drawing.drawImage(image, 0, 0);
  return drawing.getImageData(1, 1, 1, 1).data[0] < 128;
}"""


@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_graph_has_the_pages_theme(page, system):
    page.emulate_media(color_scheme=system)
    page.get_by_role("tab", name="Playground").click()
    page.get_by_label("Program").fill(LEARN.read_text())
    page.get_by_role("button", name="Check").click()
    graph, button = page.get_by_role("img", name="The parser's states"), page.get_by_role("button", name="Theme:")
    graph.wait_for()
    assert graph.evaluate(DARKNESS) == (system == "dark")
    for theme in ("light", "dark", "auto"):
        button.click()
        page.get_by_role("button", name=f"Theme: {theme}").wait_for()
        assert graph.evaluate(DARKNESS) == ((system if theme == "auto" else theme) == "dark"), theme


def test_an_example_is_loaded(page):
    page.get_by_role("tab", name="Playground").click()
    page.get_by_label("Example:").select_option("switchml")
    until(lambda: page.get_by_label("Program").input_value(), "the example's text")
    assert page.get_by_label("Program").input_value() == paths.program_files()["switchml"].read_text()


def test_what_was_said_of_another_program_goes(page):
    page.get_by_role("tab", name="Playground").click()
    hint = page.get_by_text("Check lists the headers here")
    hint.wait_for()
    program, packets = page.get_by_label("Program"), page.get_by_label("Packets, a line")
    check, send = page.get_by_role("button", name="Check"), page.get_by_role("button", name="Send packets")
    parts = [page.get_by_role("img", name="The parser's states"), page.get_by_label("dst (48 bits)"),
             page.get_by_role("region", name="The way of the packets")]

    def all_said():
        program.fill(LEARN.read_text())
        check.click()
        parts[1].wait_for()
        assert hint.count() == 0
        packets.fill("0" * 28)
        send.click()
        parts[2].wait_for()
        assert [part.count() for part in parts] == [1, 1, 1]

    for change in (lambda: program.press_sequentially(" "), lambda: page.get_by_label("Macros:").fill("VALUES=4"),
                   lambda: page.get_by_label("Example:").select_option("switchml")):
        all_said()
        change()
        hint.wait_for()
        assert [part.count() for part in parts] == [0, 0, 0]
        page.get_by_label("Macros:").fill("")
        page.get_by_label("Example:").select_option("")


def test_a_refusal_stands_beside_the_button_that_sends(page):
    page.get_by_role("tab", name="Playground").click()
    page.get_by_label("Program").fill(LEARN.read_text())
    packets, send = page.get_by_label("Packets, a line"), page.get_by_role("button", name="Send packets")
    beside = send.locator("xpath=..").get_by_role("status")
    packets.fill("0" * 28)
    send.click()
    way = page.get_by_role("region", name="The way of the packets")
    way.wait_for()
    packets.fill("no digits")
    send.click()
    beside.filter(has_text="no digits").wait_for()
    assert way.count() == 0
    page.get_by_label("Program").fill(LEARN.read_text().replace("apply {", "apply { nothing(); ", 1))
    send.click()
    beside.filter(has_text="the program has errors, listed below Check; the first: line ").wait_for()
    assert "nothing" in beside.inner_text()
