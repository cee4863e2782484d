"""Points of a sweep on a Ray cluster (https://docs.ray.io): each is one task for one core of any node.

A node needs the same `ina`: a point whose program or worker differ there fails, with a message. Nodes need not share a file
system: the files of a point's folder come back as bytes. Files that a configuration names (a program, a topology, layers, a
trace) are looked for on the node, under the same path.
"""

from __future__ import annotations

import logging
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ina.base.extras import extra
from ina.base.plurals import counted
from ina.base.settings import ConfigError
from ina.lab import run
from ina.lab.kind import Experiment
from ina.lab.results.record import ERROR, sources

LAST = "metrics.json"  # written last: it makes a folder count as finished
PATIENCE = 10.0  # seconds for a cluster's head to take a connection; Ray by itself tries for minutes


def run_points(
    address: str, todo: Mapping[int, Experiment], places: Sequence[Path], console: Console
) -> Iterator[tuple[int, str]]:
    """Runs points; yields the number of each as it ends, with its error or "". ``address``: of the cluster's head (host:port),
    ``auto`` (from RAY_ADDRESS, or running on this machine), or ``local``: of this machine's cores, for this call.

    Raises ConfigError: there is no ray here, or nobody answers at the address.
    """
    with extra("ray"):
        import ray
    _reach(address)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as refusal:
        raise ConfigError(f"--ray {address}: no Ray cluster answers there: {refusal}") from None
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        cores = sum(int(node["Resources"].get("CPU", 0)) for node in nodes)
        console.print(f"Ray: {counted(cores, 'core')} on {counted(len(nodes), 'node')}", highlight=False)
        task = ray.remote(num_cpus=1, max_retries=2)(measured)
        under_way = {task.remote(config, sources(config)): index for index, config in todo.items()}
        try:
            while under_way:
                done, _ = ray.wait(list(under_way), num_returns=1)
                index = under_way.pop(done[0])
                try:
                    error, files = ray.get(done[0])
                except ray.exceptions.RayError as failure:
                    error, files = f"the node that ran it: {str(failure).splitlines()[0]}", {}
                _write(places[index], files)
                yield index, error
        finally:
            for pending in under_way:
                ray.cancel(pending, force=True)
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Raises ConfigError if `address` is host:port and takes no connection."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return  # auto, local, or an address in Ray's own form
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, OverflowError) as refusal:
        raise ConfigError(f"--ray {address}: no Ray cluster answers there: {refusal}") from None


def measured(config: Experiment, expected: dict[str, str]) -> tuple[str, dict[str, bytes]]:
    """Runs a point on a node. Returns its error or "", and the files of the point's folder by name."""
    here = sources(config)
    if here != expected:
        others = " and ".join(part for part in expected if here[part] != expected[part])
        return f"the node has another {others} than this machine: install the same ina there", {}
    with tempfile.TemporaryDirectory() as folder:
        error = run.attempt(config, Path(folder))
        return error, {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def _write(place: Path, files: Mapping[str, bytes]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / ERROR).unlink(missing_ok=True)  # left by an earlier attempt
    for name in sorted(files, key=lambda name: name == LAST):
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(files[name])
