#!/usr/bin/env python3
"""Runs long commands without being silent: after QUIET seconds without a line, one on standard error says what goes on.

    aloud.py WHAT COMMAND ...     prints what the command printed only if it fails; its exit status is the command's
"""

import subprocess
import sys
import threading
import time
from contextlib import contextmanager

QUIET = 4.0  # seconds without a line


@contextmanager
def told(what):
    """Context manager: prints a line whenever QUIET seconds have passed since the last one. Yields a function that prints a
    command's own line; the next one then says how long that one is ago."""
    over, lock = threading.Event(), threading.Lock()
    last, about = [time.monotonic()], [what]
    began = last[0]

    def line(text):
        with lock:
            print(text, flush=True)
            last[0], about[0] = time.monotonic(), text.strip()

    def tell():
        while not over.wait(max(0.05, last[0] + QUIET - time.monotonic())):
            with lock:
                if time.monotonic() >= last[0] + QUIET:
                    last[0] = time.monotonic()
                    print(f"    {last[0] - began:3.0f} s: {about[0][:90]}", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield line
    finally:
        over.set()
        teller.join()


def quietly(words, what, **options):
    """Runs a command to its end, and keeps what it prints. Returns subprocess.CompletedProcess, with standard error in stdout.
    Raises subprocess.TimeoutExpired if `timeout` is among the options."""
    with told(what):
        return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              **options)


def forwarded(words, what):
    """Runs a command to its end, and prints its lines as they come. Returns its exit status."""
    with told(what) as line, subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True) as process:
        for text in process.stdout:
            line(text.rstrip("\n"))
    return process.returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    done = quietly(sys.argv[2:], sys.argv[1])
    if done.returncode:
        print(done.stdout, end="", file=sys.stderr)
    sys.exit(done.returncode)
