"""Runs torch's distributed test suite in one environment: ``python -m tests.conformance.driver BACKEND WORLD_SIZE [CASE...]``.

Prints one JSON line for each case: ``{"case", "result": "passed" | "skipped" | "failed", "seconds", "why", "switch", "gloo"}``;
``switch`` and ``gloo`` count the calls of all ranks by the way that they took (back end ``ina`` only).

The suite decides while it is imported which cases a back end is able to run; they shall be Gloo's, so it gets "gloo", and
the processes of a case use another back end. They are forked: importing torch for each would take the day.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

BACKEND, WORLD_SIZE = sys.argv[1], int(sys.argv[2])
PATIENCE, CASE = 180, 600  # seconds, which only a hang takes: of a barrier or a collective, and of a case
os.environ.update(
    BACKEND="gloo", WORLD_SIZE=str(WORLD_SIZE), TEMP_DIR=tempfile.mkdtemp(prefix="ina-conformance-"), OMP_NUM_THREADS="1",
    MASTER_ADDR="127.0.0.1", DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(CASE),
)

import torch  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

import ina.backend  # noqa: E402
import ina.backend.process_group  # noqa: E402, F401  (imported once, before the forks)

torch.set_num_threads(1)
ina.backend.register()


class Barrier(distributed_test.Barrier):
    """torch's barrier of files, with patience: torch's gives up after 10 s, and a rank of a loaded machine may be that late."""

    @classmethod
    def sync(cls, wait_for: int | None = None, timeout: float = 0.0) -> None:
        super().sync(wait_for, max(timeout, PATIENCE))


distributed_test.Barrier = Barrier
distributed_test.default_pg_timeout = PATIENCE
distributed_test.CUSTOM_PG_TIMEOUT.clear()  # shorter ones, for NCCL's watchdog


# Their bodies run on the CPU only where the back end is called "gloo": they hear that name, and get the other back end.
NAME_MEANS_CPU = {
    "test_accumulate_gradients_no_sync", "test_accumulate_gradients_no_sync_allreduce_hook",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook", "test_accumulate_gradients_no_sync_grad_is_view",
}


def start_ours(*args, backend: str, **options):
    INIT(*args, backend=BACKEND, **options)


INIT = torch.distributed.init_process_group


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """The cases, each in ``WORLD_SIZE`` forked processes."""

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    def _check_return_codes(self, fn, elapsed_time):
        """Adds to an error how all ranks ended: where a signal ended one, only those that waited for it report an error."""
        try:
            super()._check_return_codes(fn, elapsed_time)
        except (RuntimeError, AssertionError) as error:
            codes = {rank: process.exitcode for rank, process in enumerate(self.processes)}
            raise RuntimeError(f"{error}\nexit codes of ranks: {codes}") from None

    @classmethod
    def _run(cls, rank, test_name, file_name, pipe, **kwargs):
        if test_name in NAME_MEANS_CPU:
            torch.distributed.init_process_group = start_ours
        else:
            distributed_test.BACKEND = BACKEND
        try:
            super()._run(rank, test_name, file_name, pipe, **kwargs)
        finally:
            Path(f"{file_name}.ways.{rank}").write_text(json.dumps(ina.backend.stats()["calls"]))


class Report(unittest.TestResult):
    """Prints a line as soon as a case has ended."""

    def startTest(self, test):
        super().startTest(test)
        self._began = time.monotonic()

    def _say(self, test, result: str, why: str = "") -> None:
        ways: dict[str, int] = {"switch": 0, "gloo": 0}
        file_name = getattr(test, "file_name", None)
        for path in Path(file_name).parent.glob(f"{Path(file_name).name}.ways.*") if file_name else ():
            for calls in json.loads(path.read_text()).values():
                for way, count in calls.items():
                    ways[way] += count
            path.unlink()
        seconds = round(time.monotonic() - self._began, 2)
        print(json.dumps({"case": test._testMethodName, "result": result, "seconds": seconds, "why": why, **ways}), flush=True)

    def addSuccess(self, test):
        self._say(test, "passed")

    def addSkip(self, test, reason):
        self._say(test, "skipped", reason)

    def addFailure(self, test, error):
        self._say(test, "failed", self._exc_info_to_string(error, test)[-3000:])

    addError = addFailure


def main(cases: list[str]) -> None:
    names = cases or unittest.TestLoader().getTestCaseNames(Suite)
    unittest.TestSuite(Suite(name) for name in names).run(Report())


if __name__ == "__main__":
    main(sys.argv[3:])
