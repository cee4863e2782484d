"""Fixtures of the page's tests: a served application, and a browser with the page open.

    pytest_plugins = ("dash_page",)
    need("bottle", "waitress", "browser", "chromium")

``served`` serves views on a free port of the loopback. ``page``: a page of Chromium at the application of the module's
``VIEWS``, authorised. ``axe``: checks a page by axe-core's rules.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from capabilities import tool
from waiting import LONG

TOKEN = "a-token-of-tests-0123456789"


def _drivers() -> None:
    """Lets what drives a browser be imported."""
    folder = os.environ["INA_BROWSER_USERS"]
    if folder not in sys.path:
        sys.path.append(folder)


@dataclass
class Served:
    port: int
    token: str = TOKEN

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        return f"{self.origin}/?token={self.token}"


@contextmanager
def serving(views, token=TOKEN, **options) -> Iterator[Served]:
    """Serves ``views`` in a thread of its own until the block ends."""
    from ina.dash.server import application, listen

    server = listen(application(token, views, **options))
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            server.asyncore.loop(timeout=0.1, map=server._map, count=1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Served(server.effective_port, token)
    finally:
        over.set()
        thread.join(LONG)
        server.task_dispatcher.shutdown()
        server.close()


@pytest.fixture(scope="module")
def served(request) -> Iterator[Served]:
    """The application of the module's ``VIEWS``, else of all views."""
    from ina.dash.views import all_views

    with serving(getattr(request.module, "VIEWS", None) or all_views()) as served:
        yield served


@pytest.fixture(scope="module")
def browser():
    _drivers()
    from playwright.sync_api import sync_playwright

    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=tool("INA_CHROMIUM", "chromium"), args=root, timeout=1000 * LONG)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, served):
    """The page, authorised; a test fails if a script of it raises, or if the browser refuses something."""
    context = browser.new_context()
    context.set_default_timeout(1000 * LONG)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.goto(served.address)
    yield opened
    context.close()
    assert problems == []


@pytest.fixture
def axe():
    """Function that fails with the violations of axe-core's rules on a page, in light and in dark."""
    _drivers()
    from axe_playwright_python.sync_playwright import Axe

    def check(page) -> None:
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            results = Axe().run(page)
            assert results.violations_count == 0, f"{theme}: {results.generate_report()}"

    return check
