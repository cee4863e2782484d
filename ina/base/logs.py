"""Logs of processes that run for long: lines of text, or of JSON for programs that collect them.

    2026-03-01 12:00:00,123 WARNING worker 1 of job 'a' (process 77) is lost: its connection closed
    {"time": "2026-03-01T12:00:00.123Z", "level": "warning", "event": "worker_lost", "message": "worker 1 ...", "job": "a", ...}
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

FORMS = ("text", "json")
TEXT = "%(asctime)s %(levelname)s %(message)s"
OTHER = "other"  # event of a line that names none


def begin(form: str, level: int) -> None:
    """Sends the lines of ``level`` and above of all loggers to standard error. ``form``: one of FORMS."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if form == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=level, handlers=[handler])


def event(log: logging.Logger, level: int, name: str, message: str, /, **about: Any) -> None:
    """Logs an event: its ``name``, words for people, and what it is about, by field. No field and no word may be a secret."""
    log.log(level, "%s", message, extra={"event": name, "about": about}, stacklevel=2)


class Json(logging.Formatter):
    """One object a line: ``time`` (UTC, RFC 3339), ``level``, ``event``, ``message``, then the event's own fields; ``trace`` of
    an exception."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"time": f"{at}.{int(record.msecs):03d}Z", "level": record.levelname.lower(),
                "event": getattr(record, "event", OTHER), "message": record.getMessage(), **getattr(record, "about", {})}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
