"""The error of control-plane requests."""

from __future__ import annotations


class EntityError(ValueError):
    """A control-plane request that cannot be carried out.

    `code` is the canonical status of P4Runtime (INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, RESOURCE_EXHAUSTED,
    PERMISSION_DENIED, OUT_OF_RANGE, UNIMPLEMENTED); the message names entity, field and width. `update`: its index
    in a batch, where that is known.
    """

    def __init__(self, message: str, code: str = "INVALID_ARGUMENT", update: int | None = None):
        super().__init__(message)
        self.code = code
        self.update = update
