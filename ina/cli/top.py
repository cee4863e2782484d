"""``ina top`` on a terminal: a screen of its own, with keys to sort, scroll and hide what is idle.

A thread asks the switch processes, so that keys are heard while one of them is slow to answer. The screen is drawn as a whole, in
one write: lines over lines, without a flicker. ANSI sequences do, as every terminal that is not dumb knows them.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.cells import set_cell_size

from ina.aggregation.control_socket.channel import shown
from ina.aggregation.control_socket.messages import printable
from ina.aggregation.controller.client import ControlError
from ina.aggregation.controller.looks import workers_of

TICK = 0.1  # seconds: a new size, or new figures, wait so long
PENDING = 64  # bytes of an unfinished key: longer ones are none
COLUMNS = (("port or link", 0), ("in packets/s", 14), ("in Mb/s", 11), ("out packets/s", 15), ("out Mb/s", 11), ("drops/s", 10))
"""The columns with their widths; the first one gets the rest. A link's ``in`` is up: from the host or the first switch."""
NAMES = 16  # the least width of the first column
HELP = (
    "left right  the column to sort by        r        reverse the order",
    "up down     scroll by a line (k, j)      PgUp PgDn Home End",
    "i           hide ports and links that are idle, or show them",
    "space       pause, and go on             h or ?   this help",
    "q           end (Ctrl-C, too)",
)
KEYS = {
    **{f"{lead}{last}": name for lead in ("\x1b[", "\x1bO") for last, name in
       (("A", "up"), ("B", "down"), ("C", "right"), ("D", "left"), ("H", "home"), ("F", "end"))},
    **{f"\x1b[{number}~": name for number, name in
       ((1, "home"), (4, "end"), (5, "page up"), (6, "page down"), (7, "home"), (8, "end"))},
    "k": "up", "j": "down", "?": "help", "h": "help", "i": "idle", "r": "reverse", " ": "pause", "p": "pause", "q": "quit",
}
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~]|[^\[O])")


class Look(NamedTuple):
    """Replies and rates by switch process, and what did not work."""

    replies: dict[str, dict]
    rates: dict[str, dict]
    problems: list[str]


class Row(NamedTuple):
    """A port or link of a switch process, with the numbers of the columns."""

    name: str
    numbers: tuple[float, ...]

    @property
    def idle(self) -> bool:
        return not any(self.numbers)


def keys(text: str) -> tuple[list[str], str]:
    """Splits what a terminal sent into names of KEYS (those that mean nothing here are left out); returns the unfinished end,
    too."""
    names: list[str] = []
    while text:
        if text[0] != "\x1b":
            key, text = text[0], text[1:]
        elif match := _SEQUENCE.match(text):
            key, text = match[0], text[match.end():]
        elif len(text) > PENDING:
            return names, ""
        else:
            break
        if name := KEYS.get(key):
            names.append(name)
    return names, text


def rows(look: Look) -> list[Row]:
    """Returns all ports and links; where several processes run, with the process before the name."""
    result = []
    for process, rates in look.rates.items():
        prefix = f"{shown(process)} " if len(look.rates) > 1 else ""
        for kind, ways in (("ports", ("in", "out")), ("links", ("up", "down"))):
            for name, rate in rates.get(kind, {}).items():
                numbers = [rate[f"{way}_{unit}"] / scale for way in ways for unit, scale in (("packets", 1), ("bits", 1e6))]
                result.append(Row(printable(f"{prefix}{kind[:-1]} {name}"), (*numbers, rate["drops"])))
    return result


def summary(look: Look) -> Iterator[str]:
    """Yields a line for each switch process, its jobs and its links that are down or slow."""
    for process, reply in look.replies.items():
        about = reply["ping"]
        yield f"{shown(process)}: process {about['pid']}, {about['program']}, {about['free_slots']} slots free"
        for name, job in reply["jobs"]["jobs"].items():
            attached, asked = workers_of(job)
            yield f"  job {name}: {attached} of {asked} workers, {job['slots']} slots, root {job['root']}"
        for one in look.rates[process].get("faults", ()):
            since = time.strftime("%H:%M:%S", time.localtime(one["began"]))
            yield f"  link {one['link']} is {one['state']} since {since}: {one['reason']}"


@dataclass
class View:
    """The reader's choices. ``sort``: number of the column; ``top``: the first row on the screen, of those that are shown."""

    sort: int = 0
    reverse: bool = False
    idle: bool = True
    paused: bool = False
    help: bool = False
    ended: bool = False
    top: int = 0
    page: int = 1
    _count: int = field(default=0, repr=False)

    def press(self, key: str) -> None:
        """Does what a key of KEYS says."""
        moves = {"up": self.top - 1, "down": self.top + 1, "page up": self.top - self.page, "page down": self.top + self.page,
                 "home": 0, "end": self._count}
        if key in moves:
            self._scroll(moves[key])
        elif key in ("left", "right"):
            self.sort = (self.sort + (1 if key == "right" else -1)) % len(COLUMNS)
            self.reverse = False
        elif key in ("reverse", "idle", "help"):
            setattr(self, key, not getattr(self, key))
        elif key == "pause":
            self.paused = not self.paused
        elif key == "quit":
            self.ended = True

    def _scroll(self, top: int) -> None:
        self.top = max(0, min(top, self._count - self.page))

    def ordered(self, all_rows: Sequence[Row]) -> list[Row]:
        """Returns the rows to show in their order: by name from the first on, by a number from the largest on."""
        chosen = sorted((row for row in all_rows if self.idle or not row.idle), key=lambda row: _natural(row.name))
        if self.sort == 0:
            return chosen[::-1] if self.reverse else chosen
        return sorted(chosen, key=lambda row: row.numbers[self.sort - 1], reverse=not self.reverse)

    def draw(self, look: Look, width: int, height: int) -> list[str]:
        """Returns the screen: ``height`` lines of ``width`` cells. Those that do not fit are counted where they would stand."""
        chosen = self.ordered(rows(look))
        head = _cut(list(summary(look)), max(1, height // 3), "lines: ina jobs and ina switches have them all")
        below = [*_cut(look.problems, max(1, height // 6), "messages"), *(HELP if self.help else ())]
        self.page = max(1, height - len(head) - len(below) - 2)
        self._count = len(chosen)
        self._scroll(self.top)
        last = min(self.top + self.page, len(chosen))
        hidden = "" if self.idle else ", idle ones hidden"
        status = (f" {self.top + 1 if chosen else 0}-{last} of {len(chosen)}{hidden}{', paused' if self.paused else ''}"
                  "  h help  q end")
        body = [_line(row.name, [f"{n:,.{1 if i in (1, 3) else 0}f}" for i, n in enumerate(row.numbers)], width)
                for row in chosen[self.top:last]]
        body += [" " * width] * (self.page - len(body))
        marks = [f"{name}{('^' if self._rises() else 'v') if i == self.sort else ''}" for i, (name, _) in enumerate(COLUMNS)]
        above, under = ([set_cell_size(printable(line), width) for line in lines] for lines in (head, below))
        screen = [*above, _bright(_line(marks[0], marks[1:], width)), *body, *under, _bright(set_cell_size(status, width))]
        return screen[:height]

    def _rises(self) -> bool:
        return self.reverse == bool(self.sort)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Returns a key by which port 10 comes after port 9."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", name) if part]


def _cut(lines: list[str], most: int, of_what: str) -> list[str]:
    return lines if len(lines) <= most else [*lines[:most - 1], f"... {len(lines) - most + 1} more {of_what}"]


def _line(name: str, cells: Sequence[str], width: int) -> str:
    room = max(NAMES, width - sum(size for _, size in COLUMNS))
    numbers = "".join(cell.rjust(size) for cell, (_, size) in zip(cells, COLUMNS[1:], strict=True))
    return set_cell_size(set_cell_size(name, room) + numbers, width)


def _bright(text: str) -> str:
    return f"\x1b[7m{text}\x1b[0m"


class Sampler:
    """A thread that looks again and again. ``names`` and ``sample`` find and ask the switch processes, ``rates`` compares two
    replies of one; ``first``: a look that has been taken."""

    def __init__(self, names: Callable[[], list[str]], sample: Callable[[str], dict], rates: Callable[[dict, dict], dict],
                 delay: float, first: dict[str, dict]) -> None:
        self._names, self._sample, self._rates, self._delay = names, sample, rates, delay
        self._before = first
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._look = Look(first, {name: rates(reply, reply) for name, reply in first.items()}, [])
        self._thread = threading.Thread(target=self._run, name="ina top", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()  # the thread may wait for an answer: the process does not wait for it

    def look(self) -> Look:
        """Returns the last look. Raises what ended the thread."""
        if self._error:
            raise self._error
        return self._look

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._delay):
                self._look = self._next()
        except BaseException as error:
            self._error = error

    def _next(self) -> Look:
        """Asks all. A process that does not answer keeps no row: its figures would be old ones."""
        replies: dict[str, dict] = {}
        problems: list[str] = []
        try:
            names = self._names()
        except ValueError as error:
            return Look({}, {}, [str(error)])
        for name in names:
            try:
                replies[name] = self._sample(name)
            except ControlError as error:
                problems.append(f"{shown(name)} is left out: {error}")
        rates = {name: self._rates(self._before.get(name, reply), reply) for name, reply in replies.items()}
        self._before = replies
        return Look(replies, rates, problems)


class Screen:
    """The terminal of standard input and output, in character mode and on its other page while it is entered."""

    def __init__(self) -> None:
        self._input, self._output = sys.stdin.fileno(), sys.stdout
        self._before = termios.tcgetattr(self._input)
        self._pending = ""
        self._drawn: list[str] = []
        self._asked = False  # to be suspended: between two screens, as a signal may come while one is being written

    @contextmanager
    def entered(self) -> Iterator[Screen]:
        """Takes the terminal for a block and gives it back whatever ends the block; Ctrl-Z gives it back meanwhile."""
        handler = signal.signal(signal.SIGTSTP, self._ask)
        try:
            self._enter()
            yield self
        finally:
            self._leave()
            signal.signal(signal.SIGTSTP, handler)

    def _enter(self) -> None:
        tty.setcbreak(self._input)
        self._write("\x1b[?1049h\x1b[?25l\x1b[2J")
        self._drawn = []

    def _leave(self) -> None:
        try:
            self._write("\x1b[0m\x1b[?25h\x1b[?1049l")
        finally:
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def _ask(self, _number: int, _frame: object) -> None:
        self._asked = True

    def _suspend(self) -> None:
        self._asked = False
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()

    def size(self) -> tuple[int, int]:
        """Returns columns and lines, at least one each: some terminals say 0."""
        size = os.get_terminal_size(self._output.fileno())
        return size.columns or 80, size.lines or 24

    def show(self, lines: Sequence[str]) -> None:
        """Draws lines that are as wide as the screen, where they are not what it shows."""
        if lines != self._drawn:
            self._write("\x1b[?7l\x1b[H" + "\r\n".join(lines) + "\x1b[J\x1b[?7h")
            self._drawn = list(lines)

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()

    def keys(self, seconds: float) -> list[str]:
        """Waits for keys. "quit" when the terminal is gone; an unfinished key that nothing follows is dropped (Escape)."""
        ready = select.select([self._input], [], [], seconds)[0]
        if self._asked:
            self._suspend()
            return []  # the shell may have read what was ready
        if not ready:
            self._pending = ""
            return []
        data = os.read(self._input, 4096)
        names, self._pending = keys(self._pending + data.decode("latin-1"))
        return names if data else ["quit"]


def show(names: Callable[[], list[str]], sample: Callable[[str], dict], rates: Callable[[dict, dict], dict], delay: float) -> int:
    """Shows the switch processes until ``q``; returns the exit status. Raises what ``names`` and ``sample`` raise at first."""
    first = {name: sample(name) for name in names()}
    view = View()
    with Sampler(names, sample, rates, delay, first) as sampler, Screen().entered() as screen:
        look = sampler.look()
        while not view.ended:
            if not view.paused:
                look = sampler.look()
            screen.show(view.draw(look, *screen.size()))
            for key in screen.keys(TICK):
                view.press(key)
    return 0


def possible() -> bool:
    """Tells whether a screen can be shown: input and output are a terminal that moves its cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")
