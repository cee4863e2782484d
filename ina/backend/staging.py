"""Tensors on a device (CUDA): a collective works on pinned copies in main memory, in the order of the device's streams.

    caller    event of its stream ─► copies to main memory, on a stream of their own ─► returns
    starter                          waits for their event, begins the collective
    finisher                                                waits for it ─► copies back, on another stream ─► event
    wait()                                                  waits for this moment; the caller's stream waits for the event

So a collective waits for what the caller's stream did before it, and for nothing that comes later: buckets travel while the
backward pass computes. `wait` orders the results into the stream that is current then, as NCCL's does; it blocks until they are
in main memory, not until the device has them.

Collectives of a group begin in the order of their calls, on tensors anywhere: one on main memory begins when those before it
have. Pinned memory is torch's to cache (its host allocator takes no block again before its copies have ended).
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from ina.backend.arguments import tensors_in
from ina.backend.eager import all_eager
from ina.backend.group_state import GroupState
from ina.backend.work import LazyWork

CLOSING = 5.0  # seconds for the threads of a group that ends


class Device:
    """A device's streams: one for copies to main memory, one for copies from there. Tests have a stand-in for it."""

    def __init__(self, device: torch.device):
        self._device = device
        self.up, self.down = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def current(self) -> Any:
        """Returns the caller's stream, which has ``wait_event``."""
        return torch.cuda.current_stream(self._device)

    def mark(self, stream: Any) -> Any:
        """Returns an event of what is in the stream now; it has ``query`` and ``synchronize``, which sleeps."""
        event = torch.cuda.Event(blocking=True)
        event.record(stream)
        return event

    def on(self, stream: Any) -> AbstractContextManager:
        """Makes ``stream`` the thread's current one."""
        return torch.cuda.stream(stream)

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns memory for a copy, contiguous."""
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True, device="cpu")

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copies on the current stream, and returns before it has; the tensor on the device may be freed meanwhile."""
        target.copy_(source, non_blocking=True)
        for tensor in (target, source):
            if tensor.is_cuda:
                tensor.record_stream(torch.cuda.current_stream(self._device))

    def future(self) -> torch.futures.Future:
        """Returns a future whose callbacks, and waiting streams, come after the streams that are current when it is completed."""
        return torch.futures.Future(devices=[torch.device("cuda", index) for index in range(torch.cuda.device_count())])

    def check(self) -> None:
        """Raises RuntimeError where collectives cannot run."""
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("ina: a collective of the back end 'ina' cannot be captured in a CUDA graph: it needs the "
                               "processor. Capture the parts before and after it")


@functools.cache
def device(of: torch.device) -> Device:
    return Device(of)


def device_of(tensor: torch.Tensor) -> Device | None:
    """Returns the device of a tensor that has to be staged, else None."""
    return device(tensor.device) if tensor.is_cuda else None


class Line:
    """Runs tasks in order, in a thread that begins with the first one."""

    def __init__(self, name: str) -> None:
        self._name, self._tasks = name, queue.SimpleQueue[Callable[[], None] | None]()
        self._thread: threading.Thread | None = None

    def run(self, task: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            self._thread.start()
        self._tasks.put(task)

    def _loop(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # and with it the memory of its copies, before the next one comes

    def close(self) -> None:
        if self._thread is not None:
            self._tasks.put(None)
            if self._thread is not threading.current_thread():
                self._thread.join(CLOSING)


class Stager:
    """The staged collectives of one rank of one group."""

    def __init__(self) -> None:
        self._starter, self._finisher = Line("ina-staging"), Line("ina-staged")
        self._closed = False
        self._begun = threading.Condition()  # has a lock that a signal handler may take again
        self._waiting = 0  # that have not begun
        self._unfinished: set[StagedWork] = set()
        self._local = threading.local()

    def run(self, work: StagedWork) -> None:
        with self._begun:
            if self._closed:
                raise RuntimeError("ina: the group has been destroyed; there are no collectives in it")
            self._waiting += 1
            self._unfinished.add(work)
            self._starter.run(lambda: self._start(work))

    def _start(self, work: StagedWork) -> None:
        self._local.starting = True
        work.start()
        with self._begun:
            self._waiting -= 1
            self._begun.notify_all()
        self._finisher.run(lambda: self._finish(work))

    def _finish(self, work: StagedWork) -> None:
        work.finish()
        with self._begun:
            self._unfinished.discard(work)  # before anybody hears of it, who may end the group then
        work.end_waits()

    def settle(self, patience: float) -> None:
        """Waits until all collectives have begun that were called before. RuntimeError: they have not within ``patience``
        seconds."""
        if self._waiting and not getattr(self._local, "starting", False):
            with self._begun:
                if not self._begun.wait_for(lambda: not self._waiting, patience):
                    raise RuntimeError(f"ina: {self._waiting} collective(s) on tensors of a device have not begun within "
                                       f"{patience:g} s: what does the device do to their inputs?")

    @property
    def idle(self) -> bool:
        """True if all collectives that were called have begun."""
        return not self._waiting

    def unfinished(self) -> int:
        with self._begun:
            return len(self._unfinished)

    def close(self) -> None:
        """Ends the threads when all collectives that were called have ended."""
        with self._begun:
            self._closed = True
        self._starter.close()
        self._finisher.close()


class Group(Protocol):
    """A process group (membership.py)."""

    _group_state: GroupState
    _stager: Stager


def staged(method: Callable[..., dist.Work], reads: bool, writes: bool) -> Callable[..., dist.Work]:
    """Decorates a collective, of any arguments, for tensors on any device. ``reads``, ``writes``: what it does with the tensors
    of its first argument; it reads all others."""

    @functools.wraps(method)
    def collective(self: Group, *args: object, **kwargs: object) -> dist.Work:
        if not any(device_of(tensor) for tensor in tensors_in(args)):
            self._stager.settle(self._group_state.patience())
            return method(self, *args, **kwargs)
        work = StagedWork(self._group_state, method.__name__, args, reads, writes)
        work.begin = lambda: method(self, *work.arguments, **kwargs)
        self._stager.run(work)
        return work

    return collective


@all_eager
class StagedWork(LazyWork):
    """A collective on tensors of devices. ``start`` and ``finish`` run in the stager's threads, in this order."""

    begin: Callable[[], dist.Work]  # the collective, on ``arguments``

    def __init__(self, group: GroupState, name: str, args: tuple[object, ...], reads: bool, writes: bool):
        """Begins the copies to main memory. ``args``: the collective's; ``reads``, ``writes``: as in `staged`."""
        self._copies: dict[int, tuple[Device, torch.Tensor, torch.Tensor]] = {}  # by id of a tensor: it, and its copy
        outputs = [tensor for tensor in tensors_in(args[:1]) if writes and device_of(tensor)]
        super().__init__(group, outputs, name)
        read = {id(tensor) for tensor in tensors_in(args if reads else args[1:])}
        self.arguments = tuple(map(self._on_host, args))
        self._written = {id(tensor) for tensor in outputs}
        self._devices = {each: None for each, _, _ in self._copies.values()}  # in order, each once
        self._ready = []
        for each in self._devices:
            before = each.mark(each.current())
            with each.on(each.up):
                each.up.wait_event(before)
                for key, (_, tensor, copy) in self._copies_of(each):
                    if key in read:
                        each.copy(copy, tensor)
                self._ready.append(each.mark(each.up))
        self._work: dist.Work | None = None
        self._results: list[tuple[Device, Any]] = []  # events of the copies back
        self._failure: Exception | None = None
        self._ended = threading.Event()

    def _copies_of(self, device: Device) -> Iterator[tuple[int, tuple[Device, torch.Tensor, torch.Tensor]]]:
        return (item for item in self._copies.items() if item[1][0] is device)

    def _on_host(self, argument: object) -> object:
        """Returns ``argument`` with memory for copies; a tensor that occurs twice has one copy."""
        if isinstance(argument, (list, tuple)):
            return [self._on_host(item) for item in argument]
        if not isinstance(argument, torch.Tensor) or (device := device_of(argument)) is None:
            return argument
        if argument.layout != torch.strided:
            raise ValueError(f"ina: a tensor of layout {argument.layout} on {argument.device}: expected a dense one, or one in "
                             "main memory")
        if id(argument) not in self._copies:
            device.check()
            self._copies[id(argument)] = device, argument.detach(), device.pinned(argument)
        return self._copies[id(argument)][2]

    def start(self) -> None:
        try:
            for event in self._ready:
                event.synchronize()
            with self.as_called():
                self._work = self.begin()
        except Exception as error:
            self._failure = error
        del self.begin, self.arguments  # which refer to this: its pinned memory is free when its last user lets it go

    def finish(self) -> None:
        try:
            if self._failure is None:
                assert self._work is not None  # it has begun
                self._work.wait()
                for each in self._devices:
                    with each.on(each.down), self.as_called():
                        for key, (_, tensor, copy) in self._copies_of(each):
                            if key in self._written:
                                each.copy(tensor, copy)
                        self._results.append((each, each.mark(each.down)))
        except Exception as error:
            self._failure = error

    def end_waits(self) -> None:
        self._ended.set()

    def _look(self, seconds: float) -> bool:
        if not self._ended.wait(seconds):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Blocks until the results are in main memory; the current streams wait for the copies to the devices. Raises
        RuntimeError on failure and time-out."""
        super().wait(timeout)
        for each, event in self._results:
            each.current().wait_event(event)
        return True

    def is_completed(self) -> bool:
        return super().is_completed() and all(event.query() for _, event in self._results)

    def _new_future(self) -> torch.futures.Future:
        return next(iter(self._devices)).future()

    def _complete(self, future: torch.futures.Future) -> None:
        self.end()
        with ExitStack() as streams:  # that the future's callbacks come after
            for each in self._devices:
                streams.enter_context(each.on(each.down))
            super()._complete(future)

    def _source_rank(self) -> int:
        assert self._work is not None  # waited for
        return self._work._source_rank()
