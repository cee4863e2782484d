"""Signals that raise an exception in the main thread, and raise it again where it got lost.

Python runs a handler between two instructions of the main thread, whatever that is doing. An exception in a destructor, or in a
callback from C, ends there: Python hands it to ``sys.unraisablehook`` and goes on as though nobody had asked it to stop.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

AGAIN = 0.05  # seconds after an exception was lost: what runs then is not the same destructor


def raising(exception: Callable[[int], BaseException], *numbers: int) -> dict[int, Any]:
    """From now on each signal of ``numbers`` raises ``exception(number)``; the handlers before, by number, to be set again.

    Main thread only, as ``signal.signal``.
    """
    _watch()

    def handler(number: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not _lost.__code__:
            frame = frame.f_back
        if frame is not None:  # the hook itself was interrupted: there it would be lost once more, and unheard
            _again(number)
            return
        _last[:] = [(number, error := exception(number))]
        raise error

    return {number: signal.signal(number, handler) for number in numbers}


_last: list[tuple[int, BaseException]] = []  # what was raised last; one, as a later signal only asks for the same again
_sending: set[int] = set()  # signals that a thread is about to send once more
_others: list[Callable[[Any], object]] = []  # the hook before ours


def _watch() -> None:
    if not _others:
        _others.append(sys.unraisablehook)
        sys.unraisablehook = _lost


def _lost(unraisable: Any) -> None:
    """The hook: of exceptions that are not ours, who heard of them before hears."""
    if _last and unraisable.exc_value is _last[0][1]:
        _again(_last[0][0])
    else:
        _others[0](unraisable)


def _again(number: int) -> None:
    """Sends the signal to the main thread once more, a little later."""

    def send() -> None:
        time.sleep(AGAIN)
        _sending.discard(number)
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    if number not in _sending:
        _sending.add(number)
        _thread.start_new_thread(send, ())  # threading's waits until it runs, where the next signal would come upon it
