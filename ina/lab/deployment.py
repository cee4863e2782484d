"""An experiment with its deployment on real switches and switch processes, from one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ina.base.settings import ConfigError
from ina.lab import plan
from ina.worlds.deployed import process_file
from ina.worlds.deployed.deployment_file import Deployment, read
from ina.worlds.deployed.process_file import Processes


def tables(path: Path, names: Sequence[str]) -> list[str]:
    """Returns those of the tables that an experiment's file has. Raises ConfigError: it is none, or has none of them."""
    plan.load(path)
    there = [name for name in names if process_file.has_table(path, name)]
    if not there:
        raise ConfigError(f"{path}: there is no table {' or '.join(f'[{name}]' for name in names)}: one says where the switches "
                          "are (docs/guide/tofino.md, docs/guide/operate.md)")
    return there


def deployment(path: Path) -> Deployment:
    """Reads an experiment's deployment on Tofinos. Raises ConfigError, which names the file and the key."""
    return read(path, plan.load(path).base)


def switch_processes(path: Path) -> Processes:
    """Reads an experiment's switch processes. Raises ConfigError, which names file, line and key."""
    return process_file.read(path, plan.load(path).base)
