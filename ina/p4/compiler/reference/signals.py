"""Signals that end a part of a program's run early, and the errors of the reference interpreter."""

from __future__ import annotations

from ina.p4.compiler import ast
from ina.p4.compiler.reference.values import Value


class InterpreterError(Exception):
    """An error for something that the interpreter cannot do; the message starts with the place in the source."""

    def __init__(self, node: ast.Node | None, message: str) -> None:
        super().__init__(f"{node.span}: {message}" if node is not None else message)


class PacketFailed(Exception):
    """Signal that ends a packet and drops its requests, at any call depth; counted as `reason`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ParserError(Exception):
    """Signal that the parser goes to `reject` with this error (the member's name)."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class ReturnSignal(Exception):
    """Signal of `return`: leaves the enclosing action, function or control."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class ExitSignal(Exception):
    """Signal of `exit`: leaves all enclosing blocks up to the architecture's call (§12.5)."""


class BreakSignal(Exception):
    """Signal of `break` (§12.8)."""


class ContinueSignal(Exception):
    """Signal of `continue`."""
