"""The views of the page: the only list of them. Each module adds the routes below its own path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ina.dash.live import Live
from ina.dash.metrics import Metrics
from ina.dash.playground import Playground
from ina.dash.runs import Runs
from ina.dash.server import View


def all_views(switches: Sequence[str] = (), roots: Sequence[Path] = ()) -> list[View]:
    """Returns the views. ``switches``: names of sockets that discovery does not find; ``roots``: folders of results."""
    return [Live(switches).add_routes, Runs(roots).add_routes, Metrics(switches).add_routes, Playground().add_routes]
