"""View "Runs": results folders, one run, comparison of runs, and the progress of those that are under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ina.base import documents
from ina.base.extras import extra
from ina.dash.folders import Answer, Folders, Unknown
from ina.lab.results.record import ResultsError, finite

with extra("dash"):
    import bottle

# A report has its styles inside and no scripts; its page may do nothing else.
REPORT = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'none'"


class Runs:
    """The view. ``roots``: folders in which results are looked for."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._folders = Folders(roots)

    def add_routes(self, app: Any) -> None:
        """Adds ``/api/runs`` and what is below it; all but the list take the name of a run as ``run``; a
        table is asked for by ``{"runs": [NAME, ...], "where": {KEY: TEXT}}``, as many names are longer than an address."""
        folders = self._folders
        app.route("/api/runs", "GET", lambda: _answered(folders.listed))
        app.route("/api/runs/one", "GET", lambda: _answered(lambda: folders.detail(_run())))
        app.route("/api/runs/live", "GET", lambda: _answered(lambda: folders.live(_run())))
        app.route("/api/runs/table", "POST", lambda: _answered(lambda: folders.table(*_chosen())))
        app.route("/api/runs/report", "GET", self._report)

    def _report(self) -> Any:
        body = _checked(lambda: self._folders.report(_run()))
        return bottle.HTTPResponse(body, headers={"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": REPORT})


def _run() -> str:
    names = bottle.request.query.decode().getall("run")
    if len(names) != 1:
        raise Unknown(f"run: expected one name of a results folder, not {len(names)}")
    return str(names[0])


def _chosen() -> tuple[list[str], list[tuple[str, str]]]:
    """Returns the names and the conditions of a request for a table. Raises ResultsError."""
    try:
        asked = documents.json_text(bottle.request.body.read())
    except documents.Unreadable as error:
        raise ResultsError(f"the request: {error}") from None
    names, where = (asked.get("runs"), asked.get("where", {})) if isinstance(asked, dict) else (None, None)
    if not isinstance(names, list) or not isinstance(where, dict) or {*map(type, [*names, *where.values()])} - {str}:
        raise ResultsError('the request: expected {"runs": [NAME, ...], "where": {KEY: TEXT}}')
    return names, list(where.items())


def _answered(question: Callable[[], Answer]) -> Any:
    return finite(_checked(question))


def _checked(question: Callable[[], Any]) -> Any:
    """Returns the answer; errors become those of HTTP, with their words."""
    try:
        return question()
    except Unknown as error:
        raise bottle.HTTPError(404, str(error)) from None
    except ResultsError as error:
        raise bottle.HTTPError(400, str(error)) from None
