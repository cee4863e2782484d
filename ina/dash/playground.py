"""View "Playground": checks a pasted program, explains it, and runs packets through it in the reference interpreter.

Each request has a process of its own with bounds of time, memory and output (ina/p4/compiler/sandbox.py), which may include what
the project ships, reads no other file, and leaves nothing behind. Few run at a time, others wait a little and are then told. A
page that asks again, or goes, ends the process of its last request.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from contextlib import suppress
from typing import Any

from ina.base import paths
from ina.base.extras import extra
from ina.p4.compiler import sandbox
from ina.p4.compiler.front.preprocess import macros
from ina.p4.compiler.sandbox import Limits, NotCompiled

with extra("dash"):
    import bottle

LIMITS = Limits(seconds=45, memory=2 << 30, output=8 << 20)
AT_ONCE = 2  # processes
WAITING = 2  # requests that wait for one of them; the server's other threads serve the other views
PATIENCE = 10.0  # seconds that they wait
FOLDERS = ["/p4include", "/p4"]
KEYS = {"run": str, "text": str, "defines": str, "packets": str, "port": int, "entries": str, "like": str}
NEEDED = ("run", "text")


class Playground:
    """The view. ``limits`` of a process; ``patience``: seconds that a request waits for another one's end."""

    def __init__(self, limits: Limits = LIMITS, patience: float = PATIENCE):
        self._limits, self._patience = limits, patience
        self._places = threading.BoundedSemaphore(AT_ONCE)
        self._queue = threading.BoundedSemaphore(AT_ONCE + WAITING)
        self._lock = threading.Lock()
        self._children: dict[str, subprocess.Popen[bytes]] = {}  # by the page's name for its runs

    def add_routes(self, app: Any) -> None:
        """Adds the routes below ``/api/playground``."""
        app.route("/api/playground/programs", "GET", lambda: {"programs": list(paths.program_files())})
        app.route("/api/playground/programs/<name:path>", "GET", self.program)
        app.route("/api/playground/check", "POST", self.check)
        app.route("/api/playground/cancel", "POST", self.cancel)

    def program(self, name: str) -> dict[str, str]:
        """Returns the text of a program of ``ina programs``."""
        files = paths.program_files()
        if name not in files:
            raise bottle.HTTPError(404, f"there is no program {name[:100]!r}; /api/playground/programs lists them")
        return {"text": files[name].read_text(encoding="utf-8")}

    def check(self) -> dict[str, Any]:
        """Checks a program, or runs ``packets`` through it; returns the answer of playground_process.py. The text may include the
        files beside the program that it is ``like``."""
        request = _request()
        run = request.pop("run")
        try:
            request["defines"] = macros(request.get("defines", "").split())
        except ValueError as error:
            raise bottle.HTTPError(400, str(error).removeprefix("-D ")) from None
        if "packets" in request:
            request = {"port": 0, "entries": "", **request}
            if not 0 <= request["port"] <= 511:
                raise bottle.HTTPError(400, f"port {request['port']}: expected 0 to 511")
        beside = "/p4/tofino" if request.pop("like", "").startswith("tofino/") else "/p4"
        request |= {"name": f"{beside}/program.p4", "folders": FOLDERS, "files": sandbox.shipped_files()}
        self._end(run)
        if not self._queue.acquire(blocking=False):
            raise bottle.HTTPError(503, "other pages' programs are waiting: try again")
        try:
            if not self._places.acquire(timeout=self._patience):
                raise bottle.HTTPError(503, f"other programs have been in work for {self._patience:g} s: try again")
            try:
                return self._run(run, json.dumps(request))
            finally:
                self._places.release()
        finally:
            self._queue.release()

    def cancel(self) -> dict[str, Any]:
        """Ends the process of a page's last request."""
        return {"ended": self._end(_request(("run",))["run"])}

    def _run(self, run: str, request: str) -> dict[str, Any]:
        mine: list[subprocess.Popen[bytes]] = []

        def started(child: subprocess.Popen[bytes]) -> None:
            mine.append(child)
            with self._lock:
                self._children[run] = child

        try:
            answer, status = sandbox.confined("ina.dash.playground_process", request, self._limits, started)
        except NotCompiled:
            raise bottle.HTTPError(422, f"the program was not through within {self._limits.seconds} s: expected a smaller one, "
                                        "or fewer packets") from None
        finally:
            with self._lock:
                if mine and self._children.get(run) is mine[0]:
                    del self._children[run]
        if status:
            memory, output = (size >> 20 for size in (self._limits.memory, self._limits.output))
            raise bottle.HTTPError(422, f"the process ended with status {status}: cancelled, or beyond its limits of {memory} "
                                        f"MiB of memory and {output} MiB of output")
        reply: dict[str, Any] = json.loads(answer)
        return reply

    def _end(self, run: str) -> bool:
        """Kills the process of a run; returns False if there is none."""
        with self._lock:
            child = self._children.pop(run, None)
            if child is None or child.returncode is not None:
                return False
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            return True


def _request(needed: tuple[str, ...] = NEEDED) -> dict[str, Any]:
    """Returns the request's JSON. Raises HTTPError 400."""
    try:
        request = json.loads(bottle.request.body.read())
    except (ValueError, RecursionError):
        raise bottle.HTTPError(400, "a body that is no JSON: expected an object") from None
    if not isinstance(request, dict):
        raise bottle.HTTPError(400, "a body that is no object of JSON")
    for key, value in request.items():
        if key not in KEYS or not isinstance(value, KEYS[key]) or isinstance(value, bool):
            names = ", ".join(f"{name} ({kind.__name__})" for name, kind in KEYS.items())
            raise bottle.HTTPError(400, f"key {key[:50]!r}: expected {names}")
    for key in needed:
        if key not in request:
            raise bottle.HTTPError(400, f"key {key!r} is missing")
    return request
