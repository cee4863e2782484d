"""A network namespace of a test's own: nothing is in it, and nothing of it stays."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000  # unshare(2)


@contextmanager
def own_namespace() -> Iterator[None]:
    """This thread, and processes that it starts, are in a new network namespace until the end. Needs root."""
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
