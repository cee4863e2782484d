"""Points of a sweep on a Ray cluster (https://docs.ray.io): each is one task for one core of any node.

A node has the same `ina` installed: a point whose program or worker are others there fails, and says so. Nodes need not share a
file system: what a point leaves in its folder comes back as bytes. Files that a configuration names (a program, a topology,
layers, a trace) are looked for on the node, under the same path.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ina.base.extras import extra
from ina.base.settings import ConfigError
from ina.lab import run
from ina.lab.config import Keys
from ina.lab.results.record import ERROR, sources

LAST = "metrics.json"  # by which a folder counts as finished: written when all else is there


def finished(
    address: str, todo: Mapping[int, Keys], places: Sequence[Path], console: Console
) -> Iterator[tuple[int, str]]:
    """Points as they get done, by number, each with what went wrong. ``address``: of the cluster's head (host:port), ``auto``
    (that which RAY_ADDRESS or this machine knows), or ``local``: one of this machine's cores, for as long as it takes.

    Raises ConfigError: there is no ray here, or nobody answers at the address.
    """
    with extra("ray"):
        import ray
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"--ray {address}: no Ray cluster answers there: {error}") from None
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        cores = sum(int(node["Resources"].get("CPU", 0)) for node in nodes)
        console.print(f"Ray: {cores} cores on {len(nodes)} node{'s' * (len(nodes) > 1)}", highlight=False)
        task = ray.remote(num_cpus=1, max_retries=2)(measured)
        under_way = {task.remote(config, sources(config)): index for index, config in todo.items()}
        try:
            while under_way:
                done, _ = ray.wait(list(under_way), num_returns=1)
                index = under_way.pop(done[0])
                try:
                    wrong, files = ray.get(done[0])
                except ray.exceptions.RayError as lost:
                    wrong, files = f"the node that ran it: {str(lost).splitlines()[0]}", {}
                _write(places[index], files)
                yield index, wrong
        finally:
            for left in under_way:
                ray.cancel(left, force=True)
    finally:
        ray.shutdown()


def measured(config: Keys, wanted: dict[str, str]) -> tuple[str, dict[str, bytes]]:
    """On a node: what went wrong, and the files of the point's folder by name."""
    here = sources(config)
    if here != wanted:
        others = " and ".join(part for part in wanted if here[part] != wanted[part])
        return f"the node has another {others} than this machine: install the same ina there", {}
    with tempfile.TemporaryDirectory() as folder:
        error = run.tried(config, Path(folder))
        return error, {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def _write(place: Path, files: Mapping[str, bytes]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / ERROR).unlink(missing_ok=True)  # of an attempt before this one
    for name in sorted(files, key=lambda name: name == LAST):
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(files[name])
