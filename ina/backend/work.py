"""Work: a collective in flight.

``wait`` waits natively (no thread hand-off). A Future exists only if somebody asks for it; then the group's completion
thread waits for it and completes it, so that callbacks never run on the thread that moves packets.
"""

from __future__ import annotations

import queue
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from ina.backend import spans
from ina.backend.counters import COUNTERS
from ina.backend.eager import all_eager
from ina.backend.spans import span
from ina.backend.sums import Sum

SLICE = 0.1  # seconds of native waiting between looks at signals and at the news of the switch process


class Completer:
    """Completes the Futures of one group, in the order in which they were asked for.

    A callback may itself ask for Futures and wait for them (PowerSGD does): those get a thread of their own.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._local = threading.local()
        self._closed = False

    def run(self, task: Callable[[], None]) -> None:
        with self._lock:
            if self._closed or getattr(self._local, "busy", False):
                threading.Thread(target=self._nested, args=(task,), name="ina-completion", daemon=True).start()
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="ina-completion", daemon=True)
                self._thread.start()
            self._queue.put(task)

    def _nested(self, task: Callable[[], None]) -> None:
        self._local.busy = True
        task()

    def _loop(self) -> None:
        self._local.busy = True
        while (task := self._queue.get()) is not None:
            task()

    def close(self, timeout: float = 5.0) -> None:
        with self._lock:
            self._closed = True
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._queue.put(None)
            thread.join(timeout)


@all_eager
class LazyWork(dist.Work):
    """Work whose end ``_look`` finds; subclasses define it.

    ``_look(seconds)``: look for the end, waiting up to ``seconds``; on it do what has to follow, and return True. An
    exception is the work's own. It is called by one thread at a time, and never again after its end.
    """

    def __init__(self, completer: Completer, outputs: list[torch.Tensor], what: str):
        """``what``: for messages and spans; the first word is the collective."""
        super().__init__()
        self._completer = completer
        self._outputs = outputs
        self._what, self._name = what, what.split()[0]
        self._lock = threading.Lock()
        self._done = False
        self._exception: Exception | None = None
        self._future: torch.futures.Future | None = None

    def _look(self, seconds: float) -> bool:
        raise RuntimeError(f"{type(self).__name__} does not say how it ends")

    def _advance(self, seconds: float) -> bool:
        """Whether it has ended, waiting up to ``seconds``."""
        if self._done:
            return True
        if not self._lock.acquire(timeout=seconds) if seconds > 0 else not self._lock.acquire(blocking=False):
            return self._done  # another thread is looking
        try:
            if not self._done:
                try:
                    self._done = self._look(seconds)
                except Exception as error:
                    self._exception = error
                    self._done = True
            return self._done
        finally:
            self._lock.release()

    def end(self) -> None:
        """Wait for an end that is near, for whoever holds the work: its result or failure stays to be asked for."""
        with span(f"ina:{self._name} wait"):
            while not self._advance(SLICE):
                continue

    def is_completed(self) -> bool:
        return self._advance(0.0)

    def is_success(self) -> bool:
        return self._advance(0.0) and self._exception is None

    def exception(self) -> Exception | None:
        return self._exception

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Block until the end (up to ``timeout`` if it is positive). Raises RuntimeError on failure and time-out."""
        limit = timeout.total_seconds()
        deadline = time.monotonic() + limit if limit > 0 else None
        with span(f"ina:{self._name} wait"):
            while not self._done:
                seconds = SLICE if deadline is None else min(SLICE, deadline - time.monotonic())
                if seconds <= 0:
                    raise RuntimeError(f"ina: {self._what} was not done within the {limit:g} s given to wait()")
                self._advance(seconds)
        if self._exception is not None:
            raise self._exception
        return True

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        return self._outputs

    def get_future(self) -> torch.futures.Future:
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = torch.futures.Future()
        self._completer.run(self._complete)
        return self._future

    def _complete(self) -> None:
        self.end()
        if self._exception is not None:
            self._future.set_exception(self._exception)
        else:
            self._future.set_result(self._outputs)


@all_eager
class SwitchWork(LazyWork):
    """A collective through the switch: one sum or several, which it submits in order and waits for in order."""

    def __init__(self, completer: Completer, job, collective: str, outputs: list[torch.Tensor], parts: list[Sum], agreed: str):
        elements = sum(part.buffer.numel() for part in parts)
        super().__init__(completer, outputs, f"{collective} of {elements} elements in {len(parts)} part(s)")
        # Without elements it takes part with one word, so that ranks that have elements find out.
        self.parts = parts or [Sum(torch.zeros(1, dtype=torch.int32))]
        self.parts = [part if part.buffer.numel() else Sum(torch.zeros(1, dtype=torch.int32)) for part in self.parts]
        self._job = job
        self._collective = collective
        self._mark = zlib.crc32(f"{collective} {agreed} {[part.buffer.numel() for part in parts]}".encode())
        self._waiting: deque[tuple[int, int, Sum]] = deque()

    def submit(self, asynchronous: bool) -> None:
        """Start the sums. Raises RuntimeError if the job is over.

        ``asynchronous``: whether the caller has something else to do meanwhile.
        """
        self._began = time.monotonic_ns()
        try:
            with span(f"ina:{self._collective} submit"):
                self._submit(asynchronous)
        except RuntimeError:
            COUNTERS.finished()
            self._done = True
            raise

    def _submit(self, asynchronous: bool) -> None:
        for part in self.parts:
            stay = SLICE if part is self.parts[-1] and not asynchronous else 0.0
            ticket, number = self._job.submit(part.buffer, part.average, self._mark, stay, part.maximum)
            self._waiting.append((ticket, number, part))

    def _look(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        try:
            while self._waiting:
                ticket, number, part = self._waiting[0]
                what = f"{self._collective} of {part.buffer.numel()} {str(part.buffer.dtype).removeprefix('torch.')}"
                if not self._job.wait(ticket, number, what, max(0.0, deadline - time.monotonic()) if seconds else 0):
                    return False
                self._waiting.popleft()
                if not self._waiting and spans.trace is not None:
                    elements = sum(part.buffer.numel() for part in self.parts)
                    spans.trace.flight(f"ina:{self._collective}", self._began, time.monotonic_ns(), elements=elements)
                    spans.trace.counters("worker", self._job.worker_stats())
                if part.decode is not None:
                    with torch.no_grad(), span(f"ina:{self._collective} decode"):
                        part.decode()
        except RuntimeError:
            self._waiting.clear()  # the job is over: all of its tensors have ended
            COUNTERS.finished()
            raise
        COUNTERS.finished()
        return True


@all_eager
class CopyBackWork(LazyWork):
    """Work of Gloo on contiguous copies; at its end they are copied back."""

    def __init__(self, completer: Completer, work: dist.Work, copies: list[tuple[torch.Tensor, torch.Tensor]],
                 what: str):
        super().__init__(completer, [tensor for tensor, _ in copies], what)
        self._work = work
        self._copies = copies

    def _look(self, seconds: float) -> bool:
        if not seconds and not self._work.is_completed():
            return False
        self._work.wait()
        with torch.no_grad():
            for tensor, copy in self._copies:
                tensor.copy_(copy)
        return True

    def _source_rank(self) -> int:
        return self._work._source_rank()
