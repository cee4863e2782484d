"""Errors of calls: their canonical codes (google.rpc.Code), checks of enumerations, and messages that every client accepts.

gRPC sends errors as metadata, of which clients accept 8 KiB by default (P4Runtime §A.4): more than that ends the connection
without the error. Protobuf lets any number through as a value of an enumeration, and servers must name the field.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from ina.base.extras import extra
from ina.p4.runtime.entity_error import EntityError

CODES = {
    "OK": 0, "CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6, "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8, "FAILED_PRECONDITION": 9, "ABORTED": 10,
    "OUT_OF_RANGE": 11, "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14,
}
_NAMES = {number: name for name, number in CODES.items()}


def code_name(number: int) -> str:
    """The name of a code; UNKNOWN for a number that is none."""
    return _NAMES.get(number, "UNKNOWN")


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


def await_server(channel: grpc.Channel, seconds: float, absent: str) -> None:
    """Waits until a server answers. Raises TimeoutError with the message `absent`: none does."""
    try:
        grpc.channel_ready_future(channel).result(seconds)
    except grpc.FutureTimeoutError:
        raise TimeoutError(absent) from None


def failure(error: Any, address: str) -> Exception:
    """The exception for the status of a call (grpc.RpcError) to the server at `address`."""
    code, text = error.code(), f"{address}: {error.details()}"
    return TimeoutError(text) if code is grpc.StatusCode.DEADLINE_EXCEEDED else EntityError(text, code.name)


def batch_failures(error: Any, status: Any, kind: Callable[[], Any]) -> dict[int, Any]:
    """The failures of a batch, by number: messages of `kind` in the details (google.rpc.Status, of the class `status`)."""
    packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    failures = {}
    for i, item in enumerate(status.FromString(packed).details if packed else ()):
        one = kind()
        if item.Unpack(one) and one.canonical_code:
            failures[i] = one
    return failures


def shortened(text: str, room: int) -> str:
    """The text, or as much of its beginning as fits into `room` bytes, percent-encoded as gRPC does it. Halves of surrogate
    pairs, which JSON can have and UTF-8 cannot, become question marks."""
    text = text.encode("utf-8", "replace").decode()
    for at, character in enumerate(text):
        room -= sum(1 if 0x20 <= octet < 0x7F and octet != 0x25 else 3 for octet in character.encode())
        if room < 0:
            return f"{text[:at]}... ({len(text) - at} more characters)"
    return text


def check_enums(message: Any, skip: str = "") -> None:
    """Checks every field that is set, at any depth, except the top one called `skip`. Raises EntityError with the field, the
    number and the values that exist."""
    if not _has_enums(message.DESCRIPTOR):
        return
    for field, value in message.ListFields():
        if field.name == skip:
            continue
        if field.enum_type is not None:
            for number in value if is_repeated(field) else [value]:
                if number not in field.enum_type.values_by_number:
                    *names, last = (entry.name for entry in field.enum_type.values)
                    raise EntityError(f"{field.name}: {number} is no value of {field.enum_type.full_name}: expected "
                                       f"{', '.join(names)} or {last}")
        elif field.message_type is not None and _has_enums(field.message_type):
            for at, inner in enumerate(value) if is_repeated(field) else [("", value)]:
                try:
                    check_enums(inner)
                except EntityError as error:
                    raise EntityError(f"{field.name}{f'[{at}]' if at != '' else ''}.{error}") from None


def is_repeated(field: Any) -> bool:
    """Tells whether a field of a message is a list, with any version of protobuf."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


@functools.cache
def _has_enums(descriptor: Any) -> bool:
    """True if a field of the type, or of a type inside it, is an enumeration."""
    seen, todo = {descriptor.full_name}, [descriptor]
    while todo:
        for field in todo.pop().fields:
            if field.enum_type is not None:
                return True
            if field.message_type is not None and field.message_type.full_name not in seen:
                seen.add(field.message_type.full_name)
                todo.append(field.message_type)
    return False
