"""Spans of a collective's time, in torch's profiler, and in a trace file for Perfetto or chrome://tracing.

    encode   the rank's tensors to buffers of the switch        (thread of the caller)
    submit   hand them to the endpoint; a small one stays here until it is done
    flight   from there until the last result is back
    wait     the caller, or the completion thread, has nothing else to do
    decode   results to the output tensors

INA_TRACE names the file (Chrome's JSON array format), to which every rank appends about once a second and when its last group
ends: it is whole at any moment, and for a killed rank only the last second is missing. Times are microseconds of the
machine's monotonic clock, so the ranks and the switch share one axis; the first rank also samples the switch's counters.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from ina.backend import trace_file
from ina.backend.locks import Lock

SAMPLE = 0.02  # seconds between samples of the switch's counters
FLUSH = 1.0  # seconds between two appends to the file, or SPARE times the duration of the last one
SPARE = 20.0
PATIENCE = 60.0  # seconds for another thread that records or writes events
LIMIT = 1_000_000  # events of a rank: then it records that in the trace and drops the rest
_NOTHING = nullcontext()


class Trace:
    """The events of this process. Methods may be called from any thread."""

    def __init__(self, path: Path, rank: int):
        """Opens the file. Raises OSError: it cannot be written, or is not a trace."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._pid, self._lock = path, os.getpid(), Lock("the trace", lambda: PATIENCE)
        self._flights = 0
        self._count = 0
        self._events: list[dict] = []
        trace_file.append(path, [{"ph": "M", "name": "process_name", "pid": self._pid, "args": {"name": f"rank {rank}"}},
                                 {"ph": "M", "name": "process_sort_index", "pid": self._pid, "args": {"sort_index": rank}}])
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._writing = Lock("the trace file", lambda: PATIENCE)
        self._start(self._flush_often)
        self._watching = False

    def _start(self, body: Callable[..., None], *arguments: str) -> None:
        self._threads.append(threading.Thread(target=body, args=arguments, name="ina-trace", daemon=True))
        self._threads[-1].start()

    def _add(self, **event: object) -> None:
        with self._lock:
            self._count += 1
            if self._count <= LIMIT:
                self._events.append({"pid": self._pid, "tid": threading.get_native_id(), **event})
            elif self._count == LIMIT + 1:
                self._events.append({"ph": "i", "s": "g", "name": f"more than {LIMIT} events: the rest is missing",
                                     "pid": self._pid, "ts": time.monotonic_ns() / 1000})

    def span(self, name: str, began: int, ended: int) -> None:
        """Records a span. Times: nanoseconds of the monotonic clock."""
        self._add(ph="X", name=name, cat="ina", ts=began / 1000, dur=(ended - began) / 1000)

    def flight(self, name: str, began: int, ended: int, **facts: object) -> None:
        """Records a span that may overlap others of its kind."""
        with self._lock:
            self._flights += 1
            number = f"{self._pid}.{self._flights}"
        self._add(ph="b", name=name, cat="flight", id=number, ts=began / 1000, args=facts)
        self._add(ph="e", name=name, cat="flight", id=number, ts=ended / 1000)

    def counters(self, name: str, values: Mapping[str, float], process: str = "") -> None:
        pid = {"pid": process} if process else {}
        self._add(ph="C", name=name, ts=time.monotonic_ns() / 1000, args=values, **pid)

    def watch(self, switch: str) -> None:
        """Samples the counters of the switch process at that socket until ``close``."""
        if not self._watching:
            self._watching = True
            self._start(self._sample, switch)

    def _sample(self, switch: str) -> None:
        from ina.aggregation.controller.client import Client, ControlError

        try:
            client = Client(switch)
            before: dict[str, float] = {}
            while not self._stop.wait(SAMPLE):
                now = flat(client.counters())
                for name, value in now.items():
                    if value != before.get(name, 0):
                        self.counters(name, {"total": value}, "switch")
                before = now
            client.close()
        except ControlError as error:  # the switch ends when the job does
            self._add(ph="i", s="g", name=f"counters of the switch end here: {error}", ts=time.monotonic_ns() / 1000)

    def _flush_often(self) -> None:
        pause = FLUSH
        while not self._stop.wait(pause):
            began = time.monotonic()
            if not self._flush():
                return
            pause = max(FLUSH, SPARE * (time.monotonic() - began))

    def _flush(self) -> bool:
        """Appends the events since the last time. Returns False, after a message on standard error, if that fails."""
        with self._writing:
            with self._lock:
                events, self._events = self._events, []
            try:
                if events:
                    trace_file.append(self._path, events)
            except OSError as error:
                print(f"ina: INA_TRACE={self._path} cannot be written, {len(events)} events are lost: {error}", file=sys.stderr)
                return False
            return True

    def close(self) -> None:
        """Appends the events that are not in the file yet. Called again, it appends later ones."""
        if os.getpid() != self._pid:  # a forked child has its parent's events
            return
        self._stop.set()
        for thread in self._threads:
            thread.join(5)
        self._flush()


class _Span:
    def __init__(self, trace: Trace | None, name: str, profiled: bool):
        self._trace, self._name = trace, name
        self._record = torch.profiler.record_function(name) if profiled else None

    def __enter__(self) -> None:
        if self._record is not None:
            self._record.__enter__()
        self._began = time.monotonic_ns()

    def __exit__(self, *error: object) -> None:
        if self._trace is not None:
            self._trace.span(self._name, self._began, time.monotonic_ns())
        if self._record is not None:
            self._record.__exit__(*error)


trace: Trace | None = None  # of this process


def open_trace(path: str, rank: int) -> None:
    """Opens the trace with the first group that requests it, until the process ends. RuntimeError: the file cannot be written."""
    global trace
    if path and (trace is None or trace._pid != os.getpid()):
        try:
            trace = Trace(Path(path), rank)
        except OSError as error:
            raise RuntimeError(f"ina: INA_TRACE={path} cannot be written: {error}") from None
        atexit.register(trace.close)


def observed() -> bool:
    """Returns True if spans are recorded."""
    return trace is not None or torch.autograd._profiler_enabled()


def span(name: str) -> AbstractContextManager:
    """Returns a context manager that records a span; its cost is negligible without a trace or profiler."""
    profiled = torch.autograd._profiler_enabled()
    return _Span(trace, name, profiled) if profiled or trace is not None else _NOTHING


def flat(counters: dict, prefix: str = "") -> dict[str, float]:
    """Returns nested counters as ``a.b``; lists of cells as their sum."""
    values: dict[str, float] = {}
    for name, value in counters.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            values.update(flat(value, f"{key}."))
        elif isinstance(value, list):
            values[key] = sum(sum(cell) if isinstance(cell, list) else cell for cell in value)
        elif isinstance(value, (int, float)):
            values[key] = value
    return values
