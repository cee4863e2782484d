"""Expected results of an all-reduce, by the reduction that its protocol declares (`reductions` of its worker)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.entries import program_named
from ina.aggregation.lane import DEFAULT, INTEGERS, lane_for
from ina.aggregation.protocols import MAX, OWN, SUM


def choose_reduction(protocol: str, dtype: str, checked: bool = True) -> int:
    """Returns an experiment's reduction: the protocol's sums, or else maxima (of int32), or else its own.

    ValueError: it declares none for tensors of ``dtype``; or, if results are ``checked``, one without expected results.
    """
    declared = protocols.reductions(protocol)
    reduction = next((each for each in (SUM, MAX, OWN) if each in declared and (each != MAX or dtype == "int32")), None)
    if reduction is None:
        raise ValueError(f"its worker declares no reduction of {dtype} (reductions = {sum(1 << each for each in declared)})")
    if reduction == OWN and checked and program_named(protocol).reduced(np.zeros((1, 1), dtype)) is None:
        raise ValueError("its worker declares a reduction of its own, but its entries do not say what that gives "
                         "(`reduced` of ina.aggregation.entries.base.JobProgram); or give payload = false")
    return reduction


def expected(arrays: Sequence[np.ndarray], workers: int, protocol: str, reduction: int) -> tuple[np.ndarray, float]:
    """Returns the exact result for the workers' tensors, or for ``workers`` times the only one (int32 sums wrap), and the largest
    deviation: docs/design/protocol.md, "off by at most"."""
    times = workers // len(arrays)
    if reduction == MAX:
        return np.max(arrays, axis=0), 0.0
    if reduction == OWN:
        rows = np.broadcast_to(arrays[0], (workers, arrays[0].size)) if times > 1 else np.stack(arrays)
        reduced = program_named(protocol).reduced(rows)
        assert reduced is not None  # `choose_reduction` refuses a reduction without expected results
        right: np.ndarray = reduced
    elif lane := lane_for(arrays[0].dtype):
        right = lane.sums(arrays) * lane.dtype.type(times)
    else:
        right = np.asarray(times * np.sum(arrays, axis=0, dtype=np.float64))
    if arrays[0].dtype in INTEGERS:
        return right, 0.0
    if not (largest := max(np.abs(array).max() for array in arrays)):
        return right, 0.0
    return right, DEFAULT.error(np.ceil(np.log2(largest)) + 1, workers) + 2.0**-24 * np.abs(right).max()
