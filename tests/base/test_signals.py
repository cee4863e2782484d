"""A signal that ends a process takes effect, whatever the process is doing."""

import os
import signal
import sys
import threading

import child
import pytest
from waiting import until

from ina.base import signals

pytestmark = pytest.mark.build
# What runs where Python swallows exceptions: a destructor, the callback of a weak reference, one from C.
LOSES = {
    "destructor": "class Lost:\n    def __del__(self): asked()\nlost = Lost()\ndel lost\n",
    "weak reference": "import weakref\nclass Lost: pass\nlost = Lost()\nseen = weakref.ref(lost, lambda _: asked())\ndel lost\n",
    "callback": "import gc\ngc.callbacks.append(lambda *_: asked())\ngc.collect()\ngc.callbacks.clear()\n",
}


@pytest.mark.parametrize("place", LOSES)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_exception_that_was_lost_comes_again(place, number):
    code = ("import os, threading, time, types\nfrom ina.base import signals\n"
            "told = threading.Event()\n"  # when it goes on, and not after so many seconds, the signal comes again
            "signals.time = types.SimpleNamespace(sleep=lambda seconds: told.wait())\n"
            f"asked = lambda: (os.kill(os.getpid(), {int(number)}), sum(()))\n"
            f"signals.raising(lambda number: SystemExit(40 + number), {int(number)})\n{LOSES[place]}"
            "print('goes on', flush=True)\ntold.set()\n"
            "for _ in range(1200): time.sleep(0.05)\n"  # a signal just before a sleep does not end it
            "print('never asked')\n")
    done = child.run([sys.executable, "-c", code])
    assert (done.returncode, done.stdout, done.stderr) == (40 + number, "goes on\n", "")


def test_other_exceptions_are_told_as_before(monkeypatch):
    exceptions = []
    monkeypatch.setattr(sys, "unraisablehook", exceptions.append)
    monkeypatch.setattr(signals, "_others", [])

    class Broken:
        def __del__(self):
            raise ValueError("a defect")

    before = signals.raising(lambda _number: KeyboardInterrupt(), signal.SIGUSR2)
    try:
        Broken()
        assert [str(one.exc_value) for one in exceptions] == ["a defect"]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_it_raises_where_the_main_thread_is():
    before = signals.raising(lambda number: InterruptedError(number), signal.SIGUSR2)
    try:
        with pytest.raises(InterruptedError, match=str(int(signal.SIGUSR2))):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR2)).start()
            until(lambda: False, "the signal")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
