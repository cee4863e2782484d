"""Messages to the service manager that started this process, as systemd's services of ``Type=notify`` send them: lines of text in
one datagram to the Unix socket ``NOTIFY_SOCKET`` (sd_notify(3)).

    READY=1      it serves
    WATCHDOG=1   it still runs; due twice in WATCHDOG_USEC microseconds, after which the manager ends it
                 (sd_watchdog_enabled(3))
    STOPPING=1   it has begun to end
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, MutableMapping

PATIENCE = 1.0  # seconds for the manager's socket to have room

log = logging.getLogger(__name__)


class ServiceManager:
    """``address``: of the manager's socket, "": there is none, and nothing is sent. ``interval``: seconds between signs of life,
    0: none are asked for. ``clock``: returns seconds."""

    def __init__(self, address: str = "", interval: float = 0.0, clock: Callable[[], float] = time.monotonic):
        self._address, self._interval, self._clock = address, interval, clock
        self._due = 0.0  # seconds of the clock of the next sign of life; 0: none

    @classmethod
    def of(cls, environment: MutableMapping[str, str] = os.environ,
           clock: Callable[[], float] = time.monotonic) -> ServiceManager:
        """Returns the manager that the environment names, and takes its variables out: they are for this process, not for those
        that it starts. Raises ValueError for values that are no socket's name, or no number."""
        address = environment.pop("NOTIFY_SOCKET", "")
        period, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        if address and address[0] not in "/@":
            raise ValueError(f"NOTIFY_SOCKET={address}: expected a path, or @ and an abstract name")
        if period and not (period.isascii() and period.isdigit() and int(period)):
            raise ValueError(f"WATCHDOG_USEC={period}: expected a number of microseconds")
        is_asked = bool(address and period) and pid in ("", str(os.getpid()))
        return cls(address, int(period) / 2e6 if is_asked else 0.0, clock)

    def ready(self) -> None:
        """Says that the process serves; from now on it gives signs of life."""
        self._send("READY=1")
        self._due = self._clock() + self._interval if self._interval else 0.0

    def stopping(self) -> None:
        """Says that the process has begun to end."""
        self._due = 0.0
        self._send("STOPPING=1")

    def due(self) -> float:
        """Returns when ``tick`` is due (seconds of the clock); 0: never."""
        return self._due

    def tick(self) -> None:
        """Gives a sign of life if one is due."""
        now = self._clock()
        if self._due and now >= self._due:
            self._send("WATCHDOG=1")
            self._due = now + self._interval

    def _send(self, state: str) -> None:
        """Sends a message. A manager that does not take it is no reason to serve nobody; the log says so."""
        if not self._address:
            return
        name = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(PATIENCE)
                sock.sendto(state.encode(), name)
        except OSError as error:
            log.warning("the service manager at NOTIFY_SOCKET=%s does not take %s: %s", self._address, state,
                        error.strerror or error)
