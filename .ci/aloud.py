#!/usr/bin/env python3
"""Runs long commands without being silent: after QUIET seconds without a line, one on standard error says what goes on.

    aloud.py [--saying REGEX] WHAT COMMAND ...

Prints what the command printed only if it fails; its exit status is the command's. With --saying, a line of ours says the last of
the command's lines that have a match, in place of WHAT.
"""

import os
import re
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
    """Context manager: prints a line whenever QUIET seconds have passed since the last one. Yields a function of a command's own
    line, which it prints (loud) or only keeps; the next line of ours then shows it with the time, and later ones what has come
    into ``folder``, if there is one."""
    over, lock = threading.Event(), threading.Lock()
    last, about, repeated = [time.monotonic()], [what], [False]
    began = last[0]

    def line(text, loud=True):
        with lock:
            if loud:
                print(text, flush=True)
                last[0] = time.monotonic()
            about[0], repeated[0] = text.strip(), False

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


def forwarded(words, what, folder="", shown=None):
    """Runs a command to its end, and prints its lines as they come. ``folder``: what the command fills. ``shown``: a function of
    a line that returns (text, loud), or None for noise; all that the command has said then follows if it fails. Returns its exit
    status."""
    kept = []
    with told(what, folder) as line, \
            subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True, errors="replace",
                             stderr=subprocess.STDOUT if shown else None) as process:
        for text in process.stdout:
            text = text.rstrip("\n")
            if not shown:
                line(text)
                continue
            kept.append(text)
            if reply := shown(text):
                line(*reply)
    if process.returncode and kept:
        print(*kept, sep="\n", file=sys.stderr, flush=True)
    return process.returncode


def main(arguments):
    saying = None
    if arguments[:1] == ["--saying"]:
        saying, arguments = arguments[1:2], arguments[2:]
    if len(arguments) < 2 or saying == []:
        sys.exit(__doc__)
    what, *command = arguments
    if saying:
        def shown(line):
            match = re.search(saying[0], line)
            return (match[0], False) if match else None

        sys.exit(forwarded(command, what, shown=shown))
    done = quietly(command, what)
    if done.returncode:
        print(done.stdout, end="", file=sys.stderr)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
