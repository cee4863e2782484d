"""Regular files of folders and settings that somebody else may have made: nothing of another kind stops their reader."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def opened(path: Path) -> BinaryIO:
    """Opens a regular file to read its bytes. Raises OSError: also for a pipe, a device or a folder, of which a read may wait for
    ever; ValueError: no name of a file."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)  # open() of a pipe waits for its writer
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise
