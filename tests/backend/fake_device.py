"""A stand-in for a device with streams: its tensors lie in main memory, and what its streams have to do is done by `step`, the
streams for copies as far ahead of the caller's as their events let them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from waiting import LONG, TookTooLong


class Event(threading.Event):
    query = threading.Event.is_set

    def synchronize(self) -> None:
        if not self.wait(LONG):
            raise TookTooLong(f"waited {LONG:g} s for the device to come so far")


class Stream:
    """A row of (condition, operation)."""

    def __init__(self) -> None:
        self.row: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()

    def do(self, operation: Callable[[], None], when: Callable[[], bool] = lambda: True) -> None:
        self.row.append((when, operation))

    def wait_event(self, event: Event) -> None:
        self.do(lambda: None, event.is_set)

    def step(self) -> bool:
        if not self.row or not self.row[0][0]():
            return False
        self.row[0][1]()
        self.row.popleft()
        return True


class Device:
    """ina.backend.staging.Device for the tensors that `away` has seen."""

    def __init__(self) -> None:
        self.up, self.down, self.default = Stream(), Stream(), Stream()
        self._tensors: list[torch.Tensor] = []
        self._current = threading.local()

    def away(self, tensor: torch.Tensor) -> torch.Tensor:
        self._tensors.append(tensor)
        return tensor

    def device_of(self, tensor: torch.Tensor) -> Device | None:
        return self if any(tensor is each for each in self._tensors) else None

    def current(self) -> Stream:
        return getattr(self._current, "stream", self.default)

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self._current.stream = self.current(), stream
        yield
        self._current.stream = before

    def mark(self, stream: Stream) -> Event:
        event = Event()
        stream.do(event.set)
        return event

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.full(tensor.shape, 77).to(tensor.dtype)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self.current().do(lambda: target.detach().copy_(source.detach()))

    def future(self) -> Future:
        return Future(self)

    def check(self) -> None:
        pass

    def step(self) -> bool:
        return self.up.step() or self.down.step() or self.default.step()

    def run(self) -> None:
        """Does what can be done."""
        while self.step():
            pass

    def run_forever(self) -> None:
        def loop() -> None:
            while True:
                if not self.step():
                    time.sleep(0.0002)

        threading.Thread(target=loop, daemon=True).start()

    def read(self, tensor: torch.Tensor) -> list:
        """Returns the values that the caller's stream sees after what it has to do now."""
        seen: list = []
        self.current().do(lambda: seen.extend(tensor.tolist()))
        event = self.mark(self.current())
        event.synchronize()
        return seen


class Future(torch.futures.Future):
    def __init__(self, device: Device):
        super().__init__()
        self._device, self._event = device, Event()

    def set_result(self, result: object) -> None:
        self._event = self._device.mark(self._device.current())
        super().set_result(result)

    def wait(self) -> object:
        result = super().wait()
        self._device.current().wait_event(self._event)
        return result

    def then(self, callback) -> Future:
        """As torch's: the callback has streams that come after this future, and what it returns comes after them."""
        child = Future(self._device)

        def ended(_: object) -> None:
            child._event = self._event
            try:
                torch.futures.Future.set_result(child, callback(self))
            except Exception as error:
                child.set_exception(error)

        super().then(ended)
        return child
