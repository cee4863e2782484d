"""A terminal for tests: a command that runs in it, keys that are pressed, and the screens that it draws."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence

from waiting import LONG, TookTooLong

FRAME = re.compile(r"\x1b\[H(.*?)\x1b\[J", re.DOTALL)
_STYLE = re.compile(r"\x1b\[[0-9?;]*[a-zA-Z]")
_LEADER = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    """Runs ``command`` on a terminal of its own, which is its session's: Ctrl-C there is a signal."""

    def __init__(self, command: Sequence[str], columns: int = 100, lines: int = 30) -> None:
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.resize(columns, lines)
        self.process = subprocess.Popen([sys.executable, "-c", _LEADER, *command], stdin=self.slave, stdout=self.slave,
                                        stderr=self.slave, start_new_session=True, env={**os.environ, "TERM": "xterm"})
        self.output = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def read(self, seconds: float = 0.05) -> str:
        """Reads what has come; returns all output so far."""
        while select.select([self.master], [], [], seconds)[0]:
            self.output += os.read(self.master, 65536).decode()
            seconds = 0.0
        return self.output

    def screen(self) -> list[str]:
        """Returns the lines of the last whole screen, without styles."""
        frames = FRAME.findall(self.read())
        return [_STYLE.sub("", line).rstrip() for line in frames[-1].split("\r\n")] if frames else []

    def until(self, condition: Callable[[list[str]], object]) -> list[str]:
        """Waits until the screen is as ``condition`` says; returns it."""
        deadline = time.monotonic() + LONG
        while not condition(screen := self.screen()):
            if self.process.poll() is not None:
                raise AssertionError(f"the command has ended ({self.process.returncode}): {self.read()[-2000:]}")
            if time.monotonic() > deadline:
                raise TookTooLong("a screen:\n" + "\n".join(screen))
        return screen

    def status(self) -> int:
        """Waits for the end of the command, and reads meanwhile; returns its exit status."""
        deadline = time.monotonic() + LONG
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                raise TookTooLong("the end of the command")
            self.read()
        self.read()
        return self.process.returncode

    def is_sane(self) -> bool:
        """Tells whether the terminal is as it was: its modes, its cursor and its page."""
        last = {mode: self.output.rfind(mode) for mode in ("\x1b[?1049h", "\x1b[?1049l", "\x1b[?25l", "\x1b[?25h")}
        return (termios.tcgetattr(self.slave) == self.before and last["\x1b[?1049l"] > last["\x1b[?1049h"]
                and last["\x1b[?25h"] > last["\x1b[?25l"])
