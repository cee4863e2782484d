"""Runs scripts as ranks that are forked from one process: ``python -m tests.forked RANKS SCRIPT...``

Importing torch takes longer than most examples; here it is imported once. Prints the ranks' output; the exit status is the number
of scripts of which a rank failed or did not end within LIMIT seconds, which only a hang takes.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.multiprocessing

import ina.backend
import ina.backend.process_group  # noqa: F401  (imported before the forks)

LIMIT = 300.0


def rank(script: Path, number: int, ranks: int, store: str) -> None:
    os.environ.update(RANK=str(number), WORLD_SIZE=str(ranks), LOCAL_RANK=str(number))
    sys.path.insert(0, str(script.parent))
    sys.argv = [str(script)]
    torch.distributed.init_process_group = functools.partial(
        torch.distributed.init_process_group, init_method=f"file://{store}", rank=number, world_size=ranks)
    runpy.run_path(str(script), run_name="__main__")


def run(script: Path, ranks: int) -> bool:
    """Runs the ranks of a script; returns True if all succeeded."""
    context = torch.multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=rank, args=(script, i, ranks, f"{folder}/store")) for i in range(ranks)]
        for process in processes:
            process.start()
        deadline = time.monotonic() + LIMIT
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        late = [i for i, process in enumerate(processes) if process.is_alive()]
        for process in processes:
            process.kill()
            process.join()
        if late:
            print(f"{script.name}: ranks {late} did not end within {LIMIT:g} s", file=sys.stderr)
        return not late and all(process.exitcode == 0 for process in processes)


if __name__ == "__main__":
    torch.set_num_threads(1)
    ina.backend.register()
    failed = [script for script in map(Path, sys.argv[2:]) if not run(script, int(sys.argv[1]))]
    print(*(f"failed: {script}" for script in failed), sep="\n", end="")
    raise SystemExit(len(failed))
