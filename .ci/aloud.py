#!/usr/bin/env python3
"""Runs long commands without being silent: after QUIET seconds without a line, one on standard error says what goes on.

    aloud.py WHAT COMMAND ...     prints what the command printed only if it fails; its exit status is the command's
"""

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

QUIET = 4.0  # seconds without a line


def grown(folder):
    """Returns how much is in a folder, and in which of its entries something was made last: a package that is unpacked there."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_size
            except OSError:
                pass  # it was there a moment ago
    folders = (entry for entry in os.scandir(folder) if entry.is_dir())
    newest = max(folders, key=lambda entry: entry.stat().st_mtime, default=None)
    return f"{total / 1e6:.0f} MB in {os.path.basename(folder)}" + (f", now {newest.name}" if newest else "")


@contextmanager
def told(what, folder=""):
    """Context manager: prints a line whenever QUIET seconds have passed since the last one. Yields a function that prints a
    command's own line; the next one then says how long that one is ago, and later ones what has come into ``folder``, if there
    is one."""
    over, lock = threading.Event(), threading.Lock()
    last, about, repeated = [time.monotonic()], [what], [False]
    began = last[0]

    def line(text):
        with lock:
            print(text, flush=True)
            last[0], about[0], repeated[0] = time.monotonic(), text.strip(), False

    def tell():
        while not over.wait(max(0.05, last[0] + QUIET - time.monotonic())):
            now = grown(folder) if folder and repeated[0] else ""
            with lock:
                if time.monotonic() >= last[0] + QUIET:
                    last[0] = time.monotonic()
                    text = now if repeated[0] and now else about[0]
                    repeated[0] = True
                    print(f"    {last[0] - began:3.0f} s: {text[:90]}", file=sys.stderr, flush=True)

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


def forwarded(words, what, folder=""):
    """Runs a command to its end, and prints its lines as they come. ``folder``: what the command fills. Returns its exit
    status."""
    with told(what, folder) as line, \
            subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True) as process:
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
