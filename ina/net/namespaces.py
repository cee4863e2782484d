"""Network namespaces of this process's own: nothing is in a new one, and nothing of it stays."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000  # unshare(2)


@contextmanager
def own_namespace() -> Iterator[None]:
    """This thread is in a new network namespace until the end; processes that it starts and sockets that it opens stay there.

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
