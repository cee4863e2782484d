"""Every interleaving of small jobs, over the real compiled program and the real worker."""

import pytest
from capabilities import need

from ina import paths
from ina.emulator.explorer import Budget, Explorer

need("cc")


@pytest.fixture(scope="module")
def program():
    from ina.compiler.build import compile_program
    from ina.switch.embedded import Program

    built = compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "2"})
    return Program(built.so_path)


@pytest.mark.parametrize(
    "slots, depth, budget",
    [
        (1, 16, Budget(losses=1, duplicates=1, timeouts=2)),
        (1, 14, Budget(losses=2, duplicates=2, timeouts=2)),
        (2, 9, Budget(losses=1, duplicates=1, timeouts=1)),
    ],
)
def test_no_wrong_sum_and_no_dead_end(program, slots, depth, budget):
    report = Explorer(program, slots=slots).explore(depth, budget)
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.states > 1000


def test_the_explorer_finds_what_one_version_bit_lets_through(program):
    """Without the tsi check a duplicate that is late by two phases is taken for a first write."""
    report = Explorer(program, slots=1, strict=False).explore(16, Budget(losses=0, duplicates=1, timeouts=1))
    assert report.violation is not None and ("wrong sum" in report.violation or "error code" in report.violation)
    assert any(step.startswith("duplicated") or step.startswith("times out") for step in report.steps)
