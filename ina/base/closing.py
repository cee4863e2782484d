"""Base of what holds a switch, a process or a connection: `with` closes it at the end of the block; and what closes the parts of
one that is not whole yet."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, Self


class Closing(Protocol):
    """Anything with `close`."""

    @abstractmethod
    def close(self) -> None:
        """Gives back what it holds; closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def closing_on_error(close: Callable[[], object]) -> Iterator[None]:
    """Calls ``close`` if the body fails, in whatever way."""
    try:
        yield
    except BaseException:
        close()
        raise
