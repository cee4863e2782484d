"""Fate of a switch process whose connection has ended: it has ended, lives on out of reach, or was replaced.

On this machine the kernel says whether the process lives. Elsewhere the same end of a connection may be that of the process, of
its machine, or of the way there, so a new connection is tried, and who answers is compared with who was there.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from contextlib import closing

from ina.aggregation.control_socket.channel import TCP, address, elsewhere
from ina.aggregation.controller.client import Client, ControlError

PATIENCE = 2.0  # seconds for a new connection, for an answer, and for the end of a process that has hung up


def fate(name: str, pid: int, cause: str, access: str = "", started: float = 0.0) -> str:
    """Returns what became of the switch process ``name``, and what to do. ``pid``: its id on its machine; ``started``: when it
    started, in seconds since 1970 (0: not known), as a process in a container has the same id in each life; ``cause``: how its
    connection ended; ``access``: as Client's. Takes up to 3 * PATIENCE seconds."""
    if not elsewhere(name):
        return f"the switch process {pid} ended" if _has_ended(pid) else (
            f"the switch process {pid} hung up ({cause}) though it lives: its log says why")
    at, place = name.removeprefix(TCP), address(name)
    assert isinstance(place, tuple)
    try:
        socket.create_connection(place, PATIENCE).close()
    except ConnectionRefusedError:
        return (f"the switch process {pid} at {at} ended ({cause}; nothing listens there any more): its log, on that machine, "
                "says why; start it anew, unless rank 0 had started it by itself, then the training from its last checkpoint")
    except OSError as error:
        why = error.strerror or str(error)
        return (f"the switch process {pid} at {at} cannot be reached any more ({cause}; a new connection: {why}): it may live, "
                "but a link is cut, a firewall is in the way, or its machine is off; mend that (`ina cluster check` finds it), "
                "then start the training from its last checkpoint")
    return _compared(name, at, pid, cause, access, started)


def _compared(name: str, at: str, pid: int, cause: str, access: str, started: float) -> str:
    """Returns what became of the process, by who answers in its place."""
    again = "start the training from its last checkpoint"
    try:
        with closing(Client(name, PATIENCE, access=access)) as client:
            about = client.ping()
    except ControlError as error:
        if error.code != "token":
            return f"the connection to the switch process {pid} at {at} was lost ({cause}); it does not answer anew: {error}"
        return (f"the switch process {pid} at {at} ended ({cause}), and one with another token is in its place: copy that to the "
                f"machine of rank 0, then {again}")
    there, since = about["pid"], about.get("process", {}).get("start_time_seconds", 0.0)
    if there != pid:
        return f"the switch process {pid} at {at} ended ({cause}), and process {there} is in its place: {again}"
    if started and since and since != started:
        return (f"the switch process {pid} at {at} ended ({cause}), and one that started later, with the same process id, is in "
                f"its place, as where a container starts anew: {again}")
    return (f"the connection to the switch process {pid} at {at} was lost ({cause}), though it lives and can be reached: a link "
            f"was cut for a while, or a firewall forgot the connection; {again}")


def _has_ended(pid: int) -> bool:
    """Returns True if a process of this machine has ended, or does within PATIENCE: its sockets close a little earlier."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        return error.errno == errno.ESRCH  # no more to be seen; else the kernel does not say
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(PATIENCE * 1000))
    finally:
        os.close(descriptor)
