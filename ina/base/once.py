"""Things that may be used once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Once:
    """One use, for whichever thread comes first."""

    def __init__(self) -> None:
        self._left = [True]  # list.pop is atomic

    @contextmanager
    def use(self, refusal: str) -> Iterator[None]:
        """Uses it in the block; one that raises gives it back. Raises ValueError with ``refusal``: it is used, or in use."""
        try:
            self._left.pop()
        except IndexError:
            raise ValueError(refusal) from None
        try:
            yield
        except BaseException:
            self._left.append(True)
            raise
