"""Files that users write: experiments, networks, deployments, traces, captures."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / name

    def call(data: bytes) -> None:
        assert folder  # it stays
        path.write_bytes(data)
        read(path)

    return call


def experiment() -> tuple[Any, ...]:
    """An experiment or sweep: its plan, and each point written and read again."""
    from ina.experiment import plan
    from ina.experiment.config import ConfigError

    def read(path: Path) -> None:
        made = plan.load(path)
        assert made.points and len(made.points) <= plan.MOST_POINTS
        for point in made.points[:3]:
            str(point), point.folder(0)

    return _file("experiment.toml", read), ConfigError


def topology() -> tuple[Any, ...]:
    """A network, with its forwarding tables."""
    from topologies import TopologyError, file, routes

    def read(path: Path) -> None:
        network = file.read(path)
        if len(network.nodes) < 20:
            routes.tables(network)

    return _file("network.toml", read), TopologyError


def deployment() -> tuple[Any, ...]:
    """What is deployed to a Tofino."""
    from ina.experiment.config import ConfigError
    from ina.tofino import experiment

    return _file("tofino.toml", experiment.read), ConfigError


def trace() -> tuple[Any, ...]:
    """One rank's Chakra trace, or the process groups beside it.

    which 1 | file: 0: the trace; 1: the file of process groups, the trace being an empty one
    """
    from ina.experiment import chakra
    from ina.experiment.config import ConfigError

    folder = tempfile.TemporaryDirectory()
    prefix = str(Path(folder.name) / "trace")

    def read(data: bytes) -> None:
        assert folder
        groups = data[:1] == b"\1"
        Path(f"{prefix}.0.et").write_bytes(b"\0" if groups else data[1:])
        Path(f"{prefix}.json").write_bytes(data[1:] if groups else b'{"0": [0]}')
        chakra.read(prefix, f"{prefix}.json" if groups else "")

    return read, ConfigError


def capture() -> tuple[Any, ...]:
    """A pcap file, as `ina trace` reads it."""
    from ina.p4 import trace

    def read(path: Path) -> None:
        for seconds, frame in trace.packets(str(path), 100):
            assert isinstance(frame, bytes) and seconds == seconds

    return _file("capture.pcap", read), ValueError


def layers() -> tuple[Any, ...]:
    """A workload's layers."""
    from ina.experiment import layers
    from ina.experiment.config import ConfigError

    return _file("layers.csv", lambda path: layers.buckets(layers.read(path), 1 << 20, 25 << 20)), ConfigError


def settings() -> tuple[Any, ...]:
    """ina.toml of the torch back end."""
    import os

    from ina.backend import settings

    def read(path: Path) -> None:
        os.environ["INA_CONFIG"] = str(path)
        settings.Settings.read()

    return _file("ina.toml", read), ValueError
