"""Signals that raise an exception in the main thread, and raise it again where Python dropped it.

Python runs a handler between two instructions of the main thread, whatever that is doing. An exception in a destructor, or in a
callback from C, ends there: Python hands it to ``sys.unraisablehook`` and goes on as if there had been no signal.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

STATUS = 128 + signal.SIGTERM  # exit status of a command that SIGTERM has ended, as a shell reports it
AGAIN = 0.05  # seconds from a dropped exception to the next signal: by then the destructor has ended


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends all that was started, as Ctrl-C does, but waits for nothing."""


@contextmanager
def terminable() -> Iterator[None]:
    """Makes SIGTERM raise Terminated meanwhile; in threads other than the main one nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = raising(lambda _number: Terminated(), signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before[signal.SIGTERM])


def raising(exception: Callable[[int], BaseException], *numbers: int) -> dict[int, Any]:
    """Makes each signal of ``numbers`` raise ``exception(number)``; returns the previous handlers by number.

    Main thread only, as ``signal.signal``.
    """
    _watch()

    def handler(number: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not _lost.__code__:
            frame = frame.f_back
        if frame is not None:  # the hook itself was interrupted: an exception in it would be dropped too
            _again(number)
            return
        _last[:] = [(number, error := exception(number))]
        raise error

    return {number: signal.signal(number, handler) for number in numbers}


def wait() -> NoReturn:
    """Waits for a signal whose handler raises. Looks again and again: one that comes just before a call waits in C would not end
    that call, and neither would one that another thread takes."""
    while True:
        time.sleep(AGAIN)


_last: list[tuple[int, BaseException]] = []  # the last exception raised; one is enough, as a later signal asks for the same
_sending: set[int] = set()  # signals that a thread is about to send again
_others: list[Callable[[Any], object]] = []  # the hook before ours


def _watch() -> None:
    if not _others:
        _others.append(sys.unraisablehook)
        sys.unraisablehook = _lost


def _lost(unraisable: Any) -> None:
    """The unraisable hook: sends our signals again, and passes other exceptions to the previous hook."""
    if _last and unraisable.exc_value is _last[0][1]:
        _again(_last[0][0])
    else:
        _others[0](unraisable)


def _again(number: int) -> None:
    """Sends the signal to the main thread again after AGAIN."""

    def send() -> None:
        time.sleep(AGAIN)
        _sending.discard(number)
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    if number not in _sending:
        _sending.add(number)
        _thread.start_new_thread(send, ())  # Thread.start waits until the thread runs: a signal could interrupt that
