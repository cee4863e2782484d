"""Work: a collective in flight.

``wait`` waits natively (no thread hand-off). A Future exists only if somebody asks for it; then the group's completion
thread waits for it and completes it, so that callbacks never run on the thread that moves packets.
"""

from __future__ import annotations

import math
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from ina.aggregation import protocols
from ina.backend import spans
from ina.backend.coded import CodecError, Coded
from ina.backend.counters import COUNTERS
from ina.backend.eager import all_eager
from ina.backend.group_state import SLICE, GroupState
from ina.backend.names import torch_name
from ina.backend.roll_call import Call, Disagreement
from ina.backend.spans import span
from ina.backend.sums import Sum

if TYPE_CHECKING:
    from ina.backend.job import Job


@all_eager
class LazyWork(dist.Work):
    """Work whose end ``_look`` detects; subclasses define it.

    ``_look(seconds)``: waits for the end up to ``seconds``; then finishes the work and returns True. An exception is the work's
    own. It is called by one thread at a time, and never again after its end.
    """

    def __init__(self, group: GroupState, outputs: list[torch.Tensor], title: str, way: str = "", agreed: str = "",
                 call: Call | None = None):
        """``title``: for messages and spans; its first word is the collective. ``way``, ``agreed``: as in roll_call.Call;
        empty unless it is a collective of all ranks. ``call``: of a roll call that has begun."""
        super().__init__()
        self._group_state = group
        self._outputs = outputs
        self._title, self._name = title, torch_name(title.split()[0])
        self._lock = threading.RLock()
        self._looker: int | None = None  # the thread that is in `_look`
        self._looked = time.monotonic()
        self._done = False
        self._exception: Exception | None = None
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None
        self._listeners: list[Callable[[Exception | None], None]] | None = []  # None: they know of the end
        self._telling = threading.Lock()  # held for a moment
        self._inference = torch.is_inference_mode_enabled() or any(tensor.is_inference() for tensor in outputs)
        self._roll_call = group.roll_call if way else None
        self._call = call or (self._roll_call.begin(way, agreed) if self._roll_call is not None else None)

    @contextmanager
    def as_called(self) -> Iterator[None]:
        """Computes as in the call, in whichever thread: tensors made in inference mode can be written to in this mode only."""
        with torch.inference_mode(self._inference), torch.no_grad():
            yield

    def _look(self, seconds: float) -> bool:
        raise RuntimeError(f"{type(self).__name__} does not say how it ends")

    def _disagree(self, reason: str) -> None:
        """Handles ranks that disagree on the group's collectives: this one has to fail soon."""

    def look(self, seconds: float) -> bool:
        """Waits up to ``seconds``; returns True if it has ended. RuntimeError: the caller is a signal handler that has
        interrupted this wait."""
        if self._done:
            return True
        if not self._lock.acquire(timeout=seconds) if seconds > 0 else not self._lock.acquire(blocking=False):
            if time.monotonic() - self._looked > self._group_state.patience():
                raise RuntimeError(f"ina: {self._title}: another thread has waited for it for {self._group_state.patience():g} s")
            return self._done  # another thread is looking
        try:
            self._looked = time.monotonic()
            if self._looker is not None:
                raise RuntimeError(f"ina: a signal handler waits for {self._title}, as the thread does that it interrupted")
            if not self._done:
                self._looker = threading.get_ident()
                try:
                    self._look_and_tell(seconds)
                finally:
                    self._looker = None
            if self._roll_call is not None and self._call is not None:
                if self._done:
                    self._roll_call.end(self._call)
                elif seconds > 0 and (reason := self._roll_call.look(self._call)):
                    self._disagree(f"ina: {reason}")
            return self._done
        finally:
            self._lock.release()

    def _look_and_tell(self, seconds: float) -> None:
        """Looks; tells listeners of an end before any other thread can see it."""
        try:
            if not self._look(seconds):
                return
        except Exception as error:
            self._exception = error
        with self._telling:
            listeners, self._listeners = self._listeners or [], None
        try:
            for listener in listeners:
                listener(self._exception)
        finally:
            self._done = True

    def advance(self, seconds: float) -> bool:
        """Does the same, and looks at earlier collectives if this one waits for them."""
        return self.look(seconds)

    def interrupted(self) -> bool:
        """Returns True if the caller is a signal handler that has interrupted its thread in `look`."""
        return self._looker == threading.get_ident()

    def listen(self, ended: Callable[[Exception | None], None]) -> None:
        """Lets the thread that detects the end call ``ended`` with the failure, or None, before any ``wait`` returns."""
        with self._telling:
            if self._listeners is not None:
                self._listeners.append(ended)
                return
        ended(self._exception)

    def end(self) -> None:
        """Waits for an end that is near, without raising: the result or failure stays for the holder of the work."""
        with span(f"ina:{self._name} wait"):
            while not self.advance(SLICE):
                continue

    def finished(self) -> bool:
        """Returns True if it has ended. For destroying the group, perhaps in a signal handler that has interrupted its wait."""
        if self.interrupted():
            return False
        return self.advance(0.0) or (self._looker is not None and self.advance(SLICE))  # the driver's thread may be looking

    def give_up(self) -> None:
        """Waits, when the job is over, while the endpoint may write to the work's memory. A wait that a signal handler has
        interrupted ends after the handler."""
        if not self.interrupted():
            self.end()

    def is_completed(self) -> bool:
        return self.advance(0.0)

    def is_success(self) -> bool:
        return self.advance(0.0) and self._exception is None

    def exception(self) -> Exception | None:
        return self._exception

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Blocks until the end (up to ``timeout`` if it is positive). Raises RuntimeError on failure and time-out."""
        limit = timeout.total_seconds()
        deadline = time.monotonic() + limit if limit > 0 else None
        with self._group_state.inside(self._title, alone=False), span(f"ina:{self._name} wait"):
            while not self._done:
                seconds = SLICE if deadline is None else min(SLICE, deadline - time.monotonic())
                if seconds <= 0:
                    raise RuntimeError(f"ina: {self._title} was not done within the {limit:g} s given to wait()")
                self.advance(seconds)
        if self._exception is not None:
            raise self._exception
        return True

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        return self._outputs

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        if self._future is None:
            ended = self._new_future()
            # A callback's error is one for C++, too. That of `set_exception` is for Python only: DistributedDataParallel takes it
            # for tensors, which ends the process (torch 2.13).
            self._future = ended.then(self._result_of)
            if self._done:  # so its callbacks run at once, as those of torch's own back ends do: torchft 0.2.0 relies on it
                self._complete(ended)
            else:
                self._group_state.completer.run(lambda: self._complete(ended))
        return self._future

    def _new_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        return torch.futures.Future()

    def _complete(self, ended: torch.futures.Future[list[torch.Tensor]]) -> None:
        self.end()
        ended.set_result(self._outputs)

    def _result_of(self, ended: torch.futures.Future[list[torch.Tensor]]) -> list[torch.Tensor]:
        if self._exception is not None:
            raise self._exception
        return ended.value()


@all_eager
class Ended(LazyWork):
    """A collective that has ended in its call."""

    _done, _exception, _future, _listeners, _looker = True, None, None, None, None
    _telling = threading.Lock()

    def __init__(self, outputs: list[torch.Tensor]):
        dist.Work.__init__(self)
        self._outputs = outputs

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        return True

    def end(self) -> None:
        pass


@dataclass(frozen=True)
class Agreed:
    """Properties of a collective through the switch that all ranks must have in common: as text, and as the number that their
    packets carry."""

    text: str
    mark: int
    as_it_is: bool  # one sum, in the tensor's own memory

    @classmethod
    def of(cls, collective: str, agreed: str, parts: Sequence[Sum]) -> Agreed:
        """``agreed``: text beyond the collective and its numbers of elements."""
        counts = [part.elements if part.alike else 0 for part in parts]
        text = f"{collective} {agreed}{', ' * bool(agreed)}{'+'.join(map(str, counts)) or 0} words"
        return cls(text, zlib.crc32(text.encode()), len(parts) == 1 and not parts[0].converts)


@all_eager
class SwitchWork(LazyWork):
    """A collective through the switch: one sum or several, which it begins in order and waits for in order."""

    def __init__(self, group: GroupState, job: Job, collective: str, outputs: list[torch.Tensor], parts: list[Sum],
                 agreed: Agreed, call: Call | None = None):
        """``call``: of a roll call that has begun."""
        # Without elements it takes part with one word, so that ranks with elements detect the mismatch.
        self.parts = [part if part.elements or part.route else _word(job) for part in parts] or [_word(job)]
        elements = sum(part.elements for part in parts if part.alike)
        title = f"{collective} of {elements} elements in {len(parts)} part(s)"
        super().__init__(group, outputs, title, "the switch", agreed.text, call)
        self._job = job
        self._collective = collective
        self._mark = agreed.mark
        self._started = 0  # parts whose last round has begun
        self._between = False  # a round of the next part is on its way, on which its next one depends
        self._waiting: deque[tuple[int, int, Sum]] = deque()
        self._failure: Exception | None = None  # of a part that could not begin
        self._asynchronous = True

    def submit(self, asynchronous: bool) -> None:
        """Starts the sums. Raises RuntimeError if the job is over.

        ``asynchronous``: True if the caller has something else to do meanwhile.
        """
        self._asynchronous = asynchronous
        self._began = time.monotonic_ns()
        with span(f"ina:{self._name} submit"):
            self._group_state.add(self)
            self._group_state.go_on()
        if self._failure is not None:
            COUNTERS.finished()
            self._done = True
            self._group_state.let_go(self)
            raise self._explained(self._failure, coded=False) from None
        if self._started < len(self.parts):  # the caller might not wait for it in time
            self._group_state.drive_on()

    def go_on(self, ticket: int, number: int, last: bool) -> None:
        """Goes on with a collective of one part, of which a round has begun, and perhaps the ``last`` one."""
        self._began, part = time.monotonic_ns(), self.parts[0]
        self._started, self._between = int(last), not last
        self._waiting.append((ticket, number, part))
        self._group_state.adopt(self, int(part.staged), not last)
        if not last:
            self._group_state.drive_on()

    def send(self, room: int) -> tuple[int, bool]:
        """Begins parts: group_state.Sender."""
        staged = 0
        while self._started < len(self.parts) and self._failure is None:
            part = self.parts[self._started]
            first = part.staged and not part.begun
            if not self._job.failed and (self._between or (first and staged == room)):
                return staged, False
            try:
                if self._job.failed:
                    raise RuntimeError(self._job.failure)
                with self.as_called(), span(f"ina:{self._name} encode"):
                    buffer = part.begin()
                stay = SLICE if part is self.parts[-1] and not self._asynchronous and part.meanwhile is None else 0.0
                ticket, number, _ = self._job.run(buffer, part.average, self._mark, stay, part.reduction, part.route)
                if part.meanwhile is not None:
                    with self.as_called(), span(f"ina:{self._name} encode"):
                        part.meanwhile()
            except Exception as error:
                self._fail(error)
                break
            # In this order, since another thread may look at the part as soon as it is in `_waiting`.
            last = part.last
            self._between = not last
            self._waiting.append((ticket, number, part))
            if last:
                self._started += 1
            staged += first
        return staged, True

    def _fail(self, error: Exception) -> None:
        """Notes the failure, and ends the job if the other ranks do not get what they wait for."""
        self._job.fail(self._title, error)
        self._failure = error

    def _blocked(self) -> bool:
        """Returns True if none of its parts is on its way, and some have not begun: they wait for memory."""
        return not (self._waiting or self._done or self._failure is not None or self._started == len(self.parts))

    def advance(self, seconds: float) -> bool:
        if self._blocked():
            self._group_state.drive(seconds)
            seconds = 0.0
        return self.look(seconds)

    def give_up(self) -> None:
        if not (self._blocked() and self._group_state.interrupted()):  # else nothing of it is on its way, nor will be
            super().give_up()

    def _disagree(self, reason: str) -> None:
        self._job.abort(reason)

    def _look(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        try:
            while self._started < len(self.parts) or self._waiting:  # in this order: see `send`
                if not self._waiting:
                    if self._failure is not None:
                        raise self._failure
                    return False  # `advance` looks at the others, which have the memory
                remaining = max(0.0, deadline - time.monotonic()) if seconds else 0.0
                ticket, number, part = self._waiting[0]
                title = f"{self._collective} of {part.elements} {str(part.dtype).removeprefix('torch.')}"
                if not self._job.wait(ticket, number, title, remaining):
                    return False
                between = self._between and part is self.parts[self._started]
                if part.converts or spans.observed():
                    with self.as_called(), span(f"ina:{self._name} decode"):
                        ended = part.end()
                else:
                    ended = part.end()
                self._waiting.popleft()
                if between:  # `send` does nothing before this: no other thread has touched them
                    self._started += ended  # a codec may need less rounds than it can have
                    self._between = False
                if part.staged:
                    self._group_state.go_on(self, int(ended))
            if spans.trace is not None:
                elements = sum(part.elements for part in self.parts)
                spans.trace.flight(f"ina:{self._name}", self._began, time.monotonic_ns(), elements=elements)
                spans.trace.counters("worker", self._job.worker_stats())
        except Exception as error:
            if isinstance(error, CodecError) or self._started < len(self.parts) or len(self._waiting) > 1:
                self._fail(error)
            coded = bool(self._waiting) and isinstance(self._waiting[0][2], Coded)
            self._waiting.clear()  # the job is over, all of its tensors have ended; or it was the last one
            COUNTERS.finished()
            self._group_state.let_go(self)  # so that waiting collectives notice the end, too
            raise self._explained(error, coded) from None
        COUNTERS.finished()
        return True

    def _explained(self, error: Exception, coded: bool) -> Exception:
        """Returns the failure: of a Disagreement with what each rank is in, and whom to blame where all are in the same.
        ``coded``: of a sum in a codec."""
        if isinstance(error, Disagreement) and self._roll_call is not None and self._call is not None:
            if difference := self._job.difference or self._roll_call.differing(self._call):
                self._job.explain(difference)
                return RuntimeError(f"{error}: {difference}")
            if self._roll_call.agree:
                return RuntimeError(self._job.blame(self._call.agreed, coded))
        return error


def _word(job: Job) -> Sum:
    """Returns one word, by a sum, or where the job's protocol has none by what it has."""
    word = torch.zeros(1, dtype=torch.int32, device="cpu")
    reduction = protocols.SUM if protocols.SUM in job.reductions else min(job.reductions)
    return Sum(1, word.dtype, lambda: word, reduction=reduction)


@all_eager
class GlooWork(LazyWork):
    """Work of Gloo, perhaps on contiguous copies or the buffers of sums; at its end they are copied back or decoded."""

    def __init__(self, group: GroupState, work: dist.Work, copies: list[tuple[torch.Tensor, torch.Tensor]],
                 outputs: list[torch.Tensor], title: str, agreed: str = "", job: Job | None = None, parts: Sequence[Sum] = (),
                 message: bool = False):
        """``agreed``: "": not a collective of all ranks. ``job``: ended if the ranks disagree. ``parts``: begun. ``message``: a
        send or receive."""
        super().__init__(group, outputs, title, "Gloo" if agreed else "", agreed)
        self._work, self._copies, self._job, self._parts = work, copies, job, parts
        self._message = message
        self._ignores_time = "reduce_scatter" in title  # Gloo's work does, and never says that it is completed
        self._waiter: Waiter | None = None
        self._failure = ""

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        if self._message and timeout > timedelta(0):  # a wait of Gloo's that times out ends the message, and all others
            self._wait_apart()
        return super().wait(timeout)

    def _wait_apart(self) -> Waiter:
        self._waiter = self._waiter or Waiter(self._wait_for_end)
        return self._waiter

    def _wait_for_end(self) -> None:
        """Waits for the end of Gloo's work; for a message up to the group's time-out: its own is that of Gloo's beginning."""
        if self._message:
            self._work.wait(timedelta(seconds=self._group_state.patience()))
        else:
            self._work.wait()

    def _disagree(self, reason: str) -> None:
        self._failure = reason
        if self._job is not None:
            self._job.abort(reason)

    def _look(self, seconds: float) -> bool:
        if self._failure:
            raise RuntimeError(self._failure)
        if self._waiter is not None or self._ignores_time or (self._message and not seconds):
            if not self._wait_apart().look(seconds):
                return False
        elif self._message:
            self._wait_for_end()
        elif seconds:
            try:
                self._work.wait(timedelta(milliseconds=math.ceil(1000 * seconds)))  # torch cuts a rest to 0, which is for ever
            except RuntimeError:
                if not self._work.is_completed():
                    return False
                self._work.wait()  # it may have ended after the time-out: only a new wait returns its outcome
        elif not self._work.is_completed():
            return False
        else:
            self._work.wait()
        with self.as_called():
            for tensor, copy in self._copies:
                tensor.copy_(copy)
            for part in self._parts:
                part.end()
        return True

    def _source_rank(self) -> int:
        return self._work._source_rank()


@all_eager
class Together(dist.Work):
    """Works of Gloo that count as one."""

    def __init__(self, works: Sequence[dist.Work]):
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits for each of them up to ``timeout``; 0: until they end. Raises the first one's failure or time-out."""
        failure = None
        for work in self._works:
            try:
                work.wait(timeout)
            except RuntimeError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)


class Waiter:
    """Waits in a thread for work that has no other way to be waited for up to a moment; ``wait`` returns at its end."""

    def __init__(self, wait: Callable[[], None]):
        self._wait_for_end, self._ended = wait, threading.Event()
        self._error: Exception | None = None
        threading.Thread(target=self._wait, name="ina-gloo", daemon=True).start()

    def _wait(self) -> None:
        try:
            self._wait_for_end()
        except Exception as error:
            self._error = error
        self._ended.set()

    def look(self, seconds: float) -> bool:
        """Waits up to ``seconds``; returns True if the work has ended. Raises what it failed with."""
        if not self._ended.wait(seconds):
            return False
        if self._error is not None:
            raise self._error
        return True
