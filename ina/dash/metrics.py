"""``/metrics`` of the page's server: the counters of all running switch processes, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ina.aggregation.control_socket.discovery import running
from ina.aggregation.controller import looks
from ina.aggregation.controller.client import ControlError
from ina.aggregation.controller.metrics import CONTENT, NONSENSE, Look, exposition
from ina.base.extras import extra

with extra("dash"):
    import bottle

ANSWER = 5.0  # seconds for a process to answer: half of Prometheus's own limit for a scrape
AT_ONCE = 16  # switch processes that are asked at a time


class Metrics:
    """The view. ``switches``: names of sockets that discovery does not find. ``sample`` and ``discover``: of tests."""

    def __init__(self, switches: Sequence[str] = (), sample: Callable[..., Look] = looks.sample,
                 discover: Callable[[], list[str]] = running):
        self._switches, self._sample, self._discover = tuple(switches), sample, discover
        self._pool = ThreadPoolExecutor(AT_ONCE, "metrics")

    def add_routes(self, app: Any) -> None:
        """Adds ``/metrics``."""
        app.route("/metrics", "GET", self.answer)

    def answer(self) -> Any:
        """Returns the text of one scrape."""
        names = list(dict.fromkeys([*self._switches, *self._discover()]))
        return bottle.HTTPResponse(exposition(dict(zip(names, self._pool.map(self._look, names), strict=True))),
                                   headers={"Content-Type": CONTENT})

    def _look(self, name: str) -> Look | None:
        start = time.monotonic()
        try:
            look = self._sample(name, timeout=ANSWER)
        except (ControlError, *NONSENSE):
            return None
        return {**look, "seconds": time.monotonic() - start}
