"""Results folders with figures that tests choose."""

from __future__ import annotations

import json
from pathlib import Path

from ina.lab.kinds.allreduce import AllReduce, Reduction
from ina.lab.kinds.training import Run, Training
from ina.lab.results import record


def training(path: Path, name: str, step_ms: float = 100.0, backends=("ina", "gloo"), finished: bool = True, **keys) -> Path:
    """A training whose back ends take ``step_ms`` a step, the second one twice as long."""
    folder = record.Folder(path / name, Training(name=name, backends=backends, **keys))
    runs = [Run(backend, [2.0, 1.0], [1e-3 * step_ms * (1 + i)] * 2, [0.01, 0.02], [1000, 1000], 0.5, 0.3, 1.0, "data", 7)
            for i, backend in enumerate(backends)]
    folder.save(runs, {}, finished=finished)
    return folder.path


def reduction(path: Path, name: str, time_ms: float, **keys) -> Path:
    folder = record.Folder(path / name, AllReduce(name=name, **keys))
    stats = {"workers": {"tx_packets": 7, "retransmissions": 0}}
    folder.save([Reduction("job 0", 8, 4_000_000, 1e-3 * time_ms, "h1>s1", 4_299_000, 0.994, 0.000588, stats)], {}, True)
    return folder.path


def plan(folder: Path, name: str, points: list[Path]) -> None:
    """Makes a folder, with points that are in it, a sweep's."""
    document = {"schema": record.SCHEMA, "name": name, "about": "", "kind": "allreduce", "axes": [],
                "points": [{"folder": point.name, "values": {}, "config": json.loads((point / "config.json").read_text()),
                            "sources": {}} for point in points]}
    record.write_json(folder / "experiment.json", document)
