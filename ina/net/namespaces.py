"""Private network namespaces: a new one is empty, and the kernel removes it after its last user."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000  # unshare(2)


@contextmanager
def own_namespace() -> Iterator[None]:
    """Moves this thread into a new network namespace for the body; its child processes and sockets stay there.

    Needs root. The namespace lives as long as any of these do.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no new network namespace")
        try:
            yield
        finally:
            if libc.setns(home, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot go back to the first network namespace")
    finally:
        os.close(home)
