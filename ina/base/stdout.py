"""Standard output, whose errors are told from those of files: a full disk behind it is no error of a results folder."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class OutputError(Exception):
    """An error of writing to standard output. No OSError, which commands and libraries take for one of a file of theirs."""


class ReaderGone(OutputError):
    """Nobody reads the pipe behind standard output any more."""


class _Output(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise ReaderGone("nobody reads standard output") from error
        except OSError as error:
            raise OutputError(f"cannot write to standard output: {error.strerror}") from error


@contextmanager
def own() -> Iterator[None]:
    """Makes what is written to `sys.stdout` meanwhile raise OutputError where it cannot be written. Descriptors that are closed
    are opened, so that no file of the command's gets their numbers; writing to a standard output that was closed fails."""
    before = sys.stdout, sys.stderr
    if sys.stdout is None or sys.stderr is None or sys.stdin is None:
        while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= 2:
            pass
        os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115: for as long as the command runs
    stream, first = sys.stdout, sys.__stdout__
    if stream is None or (first is not None and stream is first and first.fileno() == 1):
        sys.stdout = _stream(stream)
    try:
        try:
            yield
        finally:  # also when --help has printed and exits
            sys.stdout.flush()
    except OutputError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # it is flushed once more
        raise
    finally:
        if before[0] is not None:
            sys.stdout = before[0]


def _stream(like: Any) -> io.TextIOWrapper:
    """Returns a stream to descriptor 1 that is buffered like another one."""
    raw = _Output(1, "w", closefd=False)
    unbuffered = like is not None and like.write_through
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw), encoding=getattr(like, "encoding", "utf-8"),
        errors=getattr(like, "errors", "replace"), line_buffering=getattr(like, "line_buffering", False),
        write_through=unbuffered,
    )
