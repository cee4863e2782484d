"""An experiment with its deployment on real switches, from one file."""

from __future__ import annotations

from pathlib import Path

from ina.lab import plan
from ina.worlds.deployed.deployment_file import Deployment, read


def deployment(path: Path) -> Deployment:
    """Reads an experiment's deployment. Raises ConfigError, which names the file and the key."""
    return read(path, plan.load(path).base)
