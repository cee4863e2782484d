"""View "Live": what all running switch processes say of themselves, in one answer.

Each process is asked in a thread of its own, and one that does not answer is asked again only when that question is over: it
delays nobody, whatever it does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from ina.aggregation.control_socket.channel import shown
from ina.aggregation.control_socket.discovery import running
from ina.aggregation.control_socket.messages import printable
from ina.aggregation.controller import looks
from ina.aggregation.controller.client import ControlError

MOST = 64  # switch processes that are asked, each in a thread
ANSWER = 5.0  # seconds for a process to answer
PATIENCE = 0.5  # seconds that an answer of ours waits for theirs
PAUSE = 0.4  # seconds between two questions to a process, however many pages are open

Look = dict[str, Any]


@dataclass
class Process:
    """A switch process: its last two looks, and the question that it has not answered yet."""

    new: Look | None = None
    old: Look | None = None
    error: str = ""
    question: Future[Look] | None = None
    asked: float = field(default=float("-inf"))  # monotonic seconds


class Live:
    """The view. ``switches``: names of sockets that discovery does not find. ``sample`` and ``discover``: of tests."""

    def __init__(self, switches: Sequence[str] = (), sample: Callable[[str, float], Look] = looks.sample,
                 discover: Callable[[], list[str]] = running):
        self._switches, self._sample, self._discover = tuple(switches), sample, discover
        self._processes: dict[str, Process] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(MOST, "look")

    def add_routes(self, app: Any) -> None:
        """Adds ``/api/live``."""
        app.route("/api/live", "GET", self.answer)

    def answer(self) -> dict[str, Any]:
        """Returns ``switches``: a row for each process, and ``unasked``: how many there are beyond those."""
        names = list(dict.fromkeys([*self._switches, *self._discover()]))
        with self._lock:
            for gone in self._processes.keys() - set(names):
                del self._processes[gone]
            for name in names[:MOST]:
                self._ask(name, self._processes.setdefault(name, Process()))
            questions = [process.question for process in self._processes.values() if process.question]
        wait(questions, PATIENCE)
        with self._lock:
            rows = [self._row(name, process) for name, process in self._processes.items()]
        return {"switches": rows, "unasked": max(len(names) - MOST, 0)}

    def _ask(self, name: str, process: Process) -> None:
        now = time.monotonic()
        if process.question is None and now - process.asked >= PAUSE:
            process.asked = now
            process.question = self._pool.submit(self._sample, name, ANSWER)

    def _row(self, name: str, process: Process) -> dict[str, Any]:
        """Takes a process's answer if it has come; returns its row."""
        if process.question and process.question.done():
            try:
                process.old, process.new, process.error = process.new, process.question.result(), ""
            except ControlError as error:
                process.error = str(error)
            except Exception as error:  # a reply of another version, or of another program
                process.error = f"an answer that makes no sense ({type(error).__name__}: {error})"
            process.question = None
        row: dict[str, Any] = {"name": shown(name), "error": printable(process.error)}
        if process.question and (waited := time.monotonic() - process.asked) > PATIENCE:
            row["error"] = f"it has not answered for {waited:.1f} s"
        if process.new:
            row |= {key: process.new[key] for key in ("ping", "jobs", "switches", "counters")}
        return row
