"""Errors of calls, in a size and an alphabet that every client accepts.

gRPC sends them as metadata, of which clients accept 8 KiB by default (P4Runtime §A.4): more than that ends the connection
without the error.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ina.base.extras import extra

with extra("p4runtime"):
    import grpc

MESSAGE = 5 << 10  # bytes of an error as gRPC sends it; DETAILS and BRIEF together are as many
BRIEF = 1 << 10  # of one that has details
DETAILS = 5 << 10


def abort(context: grpc.ServicerContext, code: str, message: str, details: Any = None) -> NoReturn:
    """Ends a call. `code`: a name of grpc.StatusCode; `details`: a google.rpc.Status without a message, of DETAILS bytes."""
    message = shortened(message, MESSAGE if details is None else BRIEF)
    if details is not None:
        details.message = message
        context.set_trailing_metadata((("grpc-status-details-bin", details.SerializeToString()),))
    context.abort(grpc.StatusCode[code], message)


def shortened(text: str, room: int) -> str:
    """The text, or as much of its beginning as fits into `room` bytes, percent-encoded as gRPC does it. Halves of surrogate
    pairs, which JSON can have and UTF-8 cannot, become question marks."""
    text = text.encode("utf-8", "replace").decode()
    for at, character in enumerate(text):
        room -= sum(1 if 0x20 <= octet < 0x7F and octet != 0x25 else 3 for octet in character.encode())
        if room < 0:
            return f"{text[:at]}... ({len(text) - at} more characters)"
    return text
