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
from ina.dash import live_rows

MOST = 64  # switch processes that are asked, each in a thread
KEPT = 60.0  # seconds that a process is shown after its end
ANSWER = 5.0  # seconds for a process to answer
PATIENCE = 0.5  # seconds that an answer of ours waits for theirs
PAUSE = 0.4  # seconds between two questions to a process, however many pages are open

Look = dict[str, Any]


@dataclass
class Process:
    """A switch process: its last look, the row that is shown of it, and the question that it has not answered yet."""

    look: Look | None = None
    row: dict[str, Any] | None = None
    error: str = ""
    question: Future[tuple[Look, dict[str, Any]]] | None = None
    asked: float = field(default=float("-inf"))  # monotonic seconds
    ended: float = 0.0  # monotonic seconds, 0: its socket is there


def sample(name: str) -> Look:
    """Returns a look at a switch process. Raises ControlError."""
    return looks.sample(name, "topology", timeout=ANSWER)


class Live:
    """The view. ``switches``: names of sockets that discovery does not find. ``look`` and ``discover``: of tests."""

    def __init__(self, switches: Sequence[str] = (), look: Callable[[str], Look] = sample,
                 discover: Callable[[], list[str]] = running):
        self._switches, self._look, self._discover = tuple(switches), look, discover
        self._processes: dict[str, Process] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(MOST, "look")

    def add_routes(self, app: Any) -> None:
        """Adds ``/api/live``."""
        app.route("/api/live", "GET", self.answer)

    def answer(self) -> dict[str, Any]:
        """Returns ``switches``: for each process its ``name``, ``error`` ("": it answers), and what live_rows.py shows of its
        last answer; ``unasked``: how many processes there are beyond those."""
        names = list(dict.fromkeys([*self._switches, *self._discover()]))
        with self._lock:
            self._forget(set(names[:MOST]))
            for name in names[:MOST]:
                self._ask(name, self._processes.setdefault(name, Process()))
            questions = [process.question for process in self._processes.values() if process.question]
        wait(questions, PATIENCE)
        with self._lock:
            rows = [self._row(name, process) for name, process in self._processes.items()]
        return {"switches": rows, "unasked": max(len(names) - MOST, 0)}

    def _forget(self, names: set[str]) -> None:
        """Marks processes whose sockets are gone, and forgets those that ended long ago."""
        now = time.monotonic()
        for name, process in list(self._processes.items()):
            process.ended = 0.0 if name in names else process.ended or now
            if process.ended and (process.row is None or now - process.ended > KEPT):
                del self._processes[name]

    def _ask(self, name: str, process: Process) -> None:
        now = time.monotonic()
        if process.question is None and now - process.asked >= PAUSE:
            process.asked = now
            process.question = self._pool.submit(self._look_at, name, process.look)

    def _look_at(self, name: str, old: Look | None) -> tuple[Look, dict[str, Any]]:
        new = self._look(name)
        return new, live_rows.row(new, old)

    def _row(self, name: str, process: Process) -> dict[str, Any]:
        """Takes a process's answer if it has come; returns what is shown."""
        if process.question and process.question.done():
            try:
                (process.look, process.row), process.error = process.question.result(), ""
            except ControlError as error:
                process.error = f"no answer: {error}"
            except Exception as error:  # a reply of another version, or of another program
                process.error = (f"an answer that makes no sense ({type(error).__name__}: {error}); does a switch process of "
                                 "this version listen there?")
            process.question = None
        words = process.error
        if process.question and (waited := time.monotonic() - process.asked) > PATIENCE:
            words = f"it has not answered for {waited:.1f} s" + (f"; before: {words}" if words else "")
        if process.ended:
            words = "it has ended; this is the last that it told of itself"
        return {"name": printable(shown(name)), "error": printable(words[:1000]), **(process.row or {})}
