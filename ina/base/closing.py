"""Base of what holds memory, a thread or a connection: `with` closes it at the end of the block."""

from abc import abstractmethod
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
