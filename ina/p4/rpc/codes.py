"""The canonical codes of errors (google.rpc.Code) that both interfaces' messages carry, by the names that `EntityError` has."""

from __future__ import annotations

CODES = {
    "OK": 0, "CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6, "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8, "FAILED_PRECONDITION": 9, "ABORTED": 10,
    "OUT_OF_RANGE": 11, "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14,
}  # fmt: skip
_NAMES = {number: name for name, number in CODES.items()}


def code_name(number: int) -> str:
    """The name of a code; UNKNOWN for a number that is none."""
    return _NAMES.get(number, "UNKNOWN")
