"""Optional packages: the extra that installs each, and an error that names it where one is missing.

    with extra("p4runtime"):
        import grpc

Every import of such a package stands in this block; tests/house/test_architecture.py checks this for all modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# What an extra's packages are for, by the names of pyproject.toml.
PURPOSES = {
    "torch": "the torch back end and trainings need torch",
    "torchft": "a process group of torchft needs torchft",
    "plot": "plots need matplotlib",
    "data": "the bundled digits need scikit-learn",
    "ray": "--ray needs Ray",
    "p4runtime": "P4Runtime and BFRuntime need gRPC, protobuf and the package cryptography",
    "dash": "ina dash needs bottle and waitress",
    "completion": "ina completion needs shtab",
    "dev": "the scapy layers need scapy",
}


class Missing(ImportError):
    """A package, or the compiled part, that is not installed; the message says what needs it and how to install it."""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Context manager for imports of the packages of extra `name`. Raises Missing where one of them is missing."""
    try:
        yield
    except Missing:
        raise
    except ImportError as error:
        raise Missing(f"{PURPOSES[name]}: pip install 'ina[{name}]' ({error})", name=error.name) from error
