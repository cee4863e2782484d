"""Targets that read users' files: experiments, networks, deployments, traces, captures."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / name

    def call(data: bytes) -> None:
        assert folder  # kept until the process ends
        path.write_bytes(data)
        read(path)

    return call


def experiment() -> tuple[Any, ...]:
    """An experiment or sweep: its plan, and each point after writing and reading it again."""
    from ina.base.settings import ConfigError
    from ina.lab import plan

    def read(path: Path) -> None:
        loaded = plan.load(path)
        assert loaded.points and len(loaded.points) <= plan.MOST_POINTS
        for point in loaded.points[:3]:
            str(point), point.folder(0)

    return _file("experiment.toml", read), ConfigError


def topology() -> tuple[Any, ...]:
    """A network, with its forwarding tables."""
    from ina.topology import TopologyError, file, routes

    def read(path: Path) -> None:
        network = file.read(path)
        if len(network.nodes) < 20:
            routes.tables(network)

    return _file("network.toml", read), TopologyError


def deployment() -> tuple[Any, ...]:
    """A deployment file for a Tofino."""
    from ina.base.settings import ConfigError
    from ina.lab.deployment import deployment

    return _file("tofino.toml", deployment), ConfigError


def trace() -> tuple[Any, ...]:
    """One rank's Chakra trace, or the process groups beside it.

    which 1 | file: 0: the trace; 1: the file of process groups, with an empty trace
    """
    from ina.base.settings import ConfigError
    from ina.lab.virtual import chakra

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
    from ina.p4.tools import trace

    def read(path: Path) -> None:
        for seconds, frame in trace.packets(str(path), 100):
            assert isinstance(frame, bytes) and seconds == seconds

    return _file("capture.pcap", read), ValueError


def layers() -> tuple[Any, ...]:
    """A workload's layers."""
    from ina.base.settings import ConfigError
    from ina.lab.virtual import layers

    return _file("layers.csv", lambda path: layers.buckets(layers.read(path), 1 << 20, 25 << 20)), ConfigError


def settings() -> tuple[Any, ...]:
    """ina.toml of the torch back end."""
    import os

    from ina.backend import settings

    def read(path: Path) -> None:
        os.environ["INA_CONFIG"] = str(path)
        settings.Settings.read()

    return _file("ina.toml", read), ValueError


def mapping() -> tuple[Any, ...]:
    """`ina p4 equal`'s mapping, on a program and itself."""
    from v1_program import TABLE, check, source

    from ina.p4.compiler.p4info import p4info
    from ina.p4.tools.equal import mapping
    from ina.p4.tools.equal.shapes import Shapes

    with tempfile.TemporaryDirectory() as folder:
        cells = "counter(4, CounterType.packets) c; register<bit<8>>(4) r; "
        text = source("t.apply(); c.count(0); r.write(0, 1);", ingress_locals=cells + TABLE % ("hdr.data.d: exact;", ""))
        program = check(Path(folder), text)
    info, shapes = p4info.build(program), Shapes(program)

    def read(path: Path) -> None:
        names = mapping.load(path)
        names.names(info, info, shapes)
        names.limits(shapes), names.ignored(shapes), names.any_order, names.digests
        names.pairs("counters", info, info)
        for side in ("both", "a", "b"):
            names.entries(side)

    return _file("map.toml", read), mapping.MappingError


def idx() -> tuple[Any, ...]:
    """Images or labels of a data set."""
    from ina.lab.training import data

    return _file("train-images-idx3-ubyte", data.read_idx), data.DataError


def results() -> tuple[Any, ...]:
    """A results folder, as `ina report` reads it.

    which 1 | file: which % 3: metrics.json, config.json, experiment.json; the other files are valid
    """
    from ina.lab.results import compare
    from ina.lab.results.record import SCHEMA, ResultsError

    folder = tempfile.TemporaryDirectory()
    here = Path(folder.name)
    right = {
        "metrics.json": f'{{"schema": {SCHEMA}, "summary": [], "comparison": {{}}, "runs": [], "finished": true}}'.encode(),
        "config.json": b'{"kind": "training"}',
        "environment.json": b"{}",
    }

    def read(data: bytes) -> None:
        assert folder
        file = ("metrics.json", "config.json", "experiment.json")[data[0] % 3 if data else 0]
        (here / "experiment.json").unlink(missing_ok=True)
        for name, content in {**right, file: data[1:]}.items():
            (here / name).write_bytes(content)
        compare.grouped(compare.points(here))

    return read, ResultsError
