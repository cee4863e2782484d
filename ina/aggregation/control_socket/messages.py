"""Messages of the control socket: parsed whole, with types, ranges and lengths, before anything is done about them.

    bytes of a line --decode--> a JSON object within limits --parse--> a request with valid fields (``Join``, ``Admit``, ...)

Data from a socket are not trusted. ``decode`` bounds their size and depth and refuses JSON that two readers could read
differently (a key twice, NaN, bytes that are no text). ``parse`` checks operation and fields. Both raise Malformed, which names
the wrong part and the expected value; the connection stays open.
"""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, get_type_hints

from ina.aggregation import port_kinds
from ina.aggregation.control_socket import tree_paths

MAX_REQUEST = 1 << 17  # bytes of a request: 1,024 hosts with names of 100 characters
MAX_REPLY = 1 << 25  # bytes of a reply: the counters of thousands of ports
MAX_DEPTH = 16  # objects and lists within each other; requests need 2, counters 6
MAX_DIGITS = 20  # of a number: 64 bits

# Possessive, and an unclosed string extends to the end: linear time for any input.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class Malformed(ValueError):
    """An invalid request; the message names the wrong part, and what was expected."""


def printable(text: object, keep: str = "") -> str:
    """Escapes control characters, so that others' text can be printed on a terminal, except those in ``keep``."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in str(text))


# ---- JSON


def decode(line: bytes) -> dict[str, Any]:
    """Parses the JSON object in ``line``. Raises Malformed."""
    try:
        _check_depth(line)
        message = _JSON.decode(line.decode())
    except Malformed:
        raise
    except ValueError as error:  # of JSON, or of UTF-8
        raise Malformed(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise Malformed(f"expected a JSON object, got {_kind(message)}")
    return message


def _check_depth(line: bytes) -> None:
    if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _TOKENS.finditer(line):
        bracket = token[0][:1]
        depth += (bracket in b"[{") - (bracket in b"]}")
        if depth > MAX_DEPTH:
            raise Malformed(f"JSON that is nested more than {MAX_DEPTH} deep")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise Malformed(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
    return result


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise Malformed(f"a number of {len(text)} digits; expected at most {MAX_DIGITS}")
    return int(text)


def _constant(text: str) -> Any:
    raise Malformed(f"{text} is no JSON number")


_JSON = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_constant=_constant)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "an integer", float: "a fraction",
             type(None): "null"}
    return names[type(value)]


# ---- fields


@dataclass(frozen=True)
class Text:
    """Printable characters only, so that no name can fake lines or colours on a terminal."""

    most: int
    least: int = 0

    def __str__(self) -> str:
        return f"text of {self.least} to {self.most} printable characters"

    def wrong(self, value: object) -> str:
        if not isinstance(value, str):
            return _kind(value)
        if not self.least <= len(value) <= self.most:
            return f"{len(value)} characters"
        return "" if value.isprintable() else "characters that cannot be printed"


@dataclass(frozen=True)
class Number:
    least: int
    most: int

    def __str__(self) -> str:
        return f"an integer from {self.least} to {self.most}"

    def wrong(self, value: object) -> str:
        if type(value) is not int:
            return _kind(value)
        return "" if self.least <= value <= self.most else str(value)


@dataclass(frozen=True)
class Flag:
    def __str__(self) -> str:
        return "true or false"

    def wrong(self, value: object) -> str:
        return "" if isinstance(value, bool) else _kind(value)


@dataclass(frozen=True)
class Texts:
    each: Text
    most: int

    def __str__(self) -> str:
        return f"a list of up to {self.most}, each {self.each}"

    def wrong(self, value: object) -> str:
        if not isinstance(value, list):
            return _kind(value)
        if len(value) > self.most:
            return f"{len(value)} of them"
        return next((f"one of {wrong}" for item in value if (wrong := self.each.wrong(item))), "")


MAX_WORKERS = 1 << 16  # more than any protocol takes; protocols check their own limits
JOB = Text(255, 1)
HOST = Text(100)
TOKEN = Text(255)
WORKER = Number(0, MAX_WORKERS - 1)
SIZE = Number(1, (1 << 31) - 1)
PORT = Text(100)  # a kind of port
PROTOCOL = Text(4096)  # a name, or the path of one's own program
TAGS = Text(8)  # on, off; "": as the switch process says
CHECK = Text(16)  # of protocols.CHECKS; "": the job's, or its protocol's default
SWITCH = Text(12)  # id of a switch process (tree_paths.py); "": none
PASS = Text(600)
REASON = Text(4096)


# ---- requests


@dataclass(frozen=True, kw_only=True)
class Ping:
    """The switch process, and what it runs. ``child``: the id of the one below that asks, and goes on asking."""

    child: Annotated[str, SWITCH] = ""


@dataclass(frozen=True, kw_only=True)
class Join:
    """``wire``: the worker's wire version (p4/include/frame.p4); workers before version 2 do not say it.

    In a tree of switch processes ``paths`` are those of all workers of the job (tree_paths.py), and ``child`` is the id of the
    process that joins for all workers below it, of which ``worker`` is the lowest. ``above``: a pass for the job at the parent.
    """

    job: Annotated[str, JOB]
    worker: Annotated[int, WORKER]
    wire: Annotated[int, Number(1, 255)] = 1
    token: Annotated[str, TOKEN] = field(default="", repr=False)
    host: Annotated[str, HOST] = ""
    paths: Annotated[list[str] | None, Texts(Text(tree_paths.LONGEST, 1), 1024)] = None
    child: Annotated[str, SWITCH] = ""
    above: Annotated[str, PASS] = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Admit:
    """``slots``: None for the switch process's default; ``hosts``: None for those of the workers that have joined."""

    job: Annotated[str, JOB]
    workers: Annotated[int, Number(1, MAX_WORKERS)]
    slots: Annotated[int | None, SIZE] = None
    check: Annotated[str, CHECK] = ""
    strict: Annotated[bool, Flag()] = True
    hosts: Annotated[list[str] | None, Texts(HOST, 1024)] = None
    token: Annotated[str, TOKEN] = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Attach:
    job: Annotated[str, JOB]
    worker: Annotated[int, WORKER]
    port: Annotated[str, PORT] = port_kinds.DEFAULT
    token: Annotated[str, TOKEN] = field(default="", repr=False)
    protocol: Annotated[str, PROTOCOL] = ""
    values: Annotated[int, Number(0, MAX_WORKERS)] = 0
    moves: Annotated[bool, Flag()] = False
    held: Annotated[int, Number(0, 2**32 - 1)] = 0
    runs: Annotated[bool, Flag()] = False
    tags: Annotated[str, TAGS] = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A switch process tells its parent of workers below it, of the job of this connection: one has ``left``, or the job has
    ``failed`` for a reason, since one was ``lost``."""

    left: Annotated[int | None, WORKER] = None
    failed: Annotated[str, REASON] = ""
    lost: Annotated[int | None, WORKER] = None


@dataclass(frozen=True, kw_only=True)
class Release:
    """The worker of this connection leaves its job."""


@dataclass(frozen=True, kw_only=True)
class End:
    job: Annotated[str, JOB]
    token: Annotated[str, TOKEN] = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Serve:
    port: Annotated[str, PORT] = port_kinds.DEFAULT
    host: Annotated[str, HOST] = ""


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """The jobs, their resources and workers."""


@dataclass(frozen=True, kw_only=True)
class Switches:
    """The switches, their pools and links."""


@dataclass(frozen=True, kw_only=True)
class Counters:
    """Counters of programs, ports and the parameter server."""


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The network of the switches, if they are in one."""


@dataclass(frozen=True, kw_only=True)
class Links:
    """``events``: lines of ina/topology/link_events.py, with times from now on."""

    events: Annotated[list[str], Texts(Text(200, 1), 256)]


@dataclass(frozen=True, kw_only=True)
class Stop:
    """End when the last client is gone."""


REQUESTS = {kind.__name__.lower(): kind
            for kind in (Ping, Join, Admit, Attach, Report, Release, End, Serve, Jobs, Switches, Counters, Topology, Links,
                         Stop)}
OfJob = Join | Admit | Attach | End  # those that name a job, and bring its token
Request = Ping | Join | Admit | Attach | Report | Release | End | Serve | Jobs | Switches | Counters | Topology | Links | Stop


def parse(message: dict[str, Any]) -> Request:
    """Parses a request: ``op`` names its type, the other keys are its fields. Raises Malformed."""
    op = message.get("op")
    if not isinstance(op, str) or op not in REQUESTS:
        title = repr(op) if isinstance(op, str) and len(op) < 64 else "of this kind" if "op" in message else "without 'op'"
        raise Malformed(f"unknown operation {title}; expected one of {', '.join(REQUESTS)}")
    kind = REQUESTS[op]
    checks = _checks(kind)
    for key, value in message.items():
        if key == "op":
            continue
        if key not in checks:
            raise Malformed(f"{op}: unknown field {key[:64]!r}; expected {', '.join(checks) or 'none'}")
        check, optional = checks[key]
        if (problem := check.wrong(value)) and not (optional and value is None):
            raise Malformed(f"{op}: {key}: expected {check}, got {problem}")
    for each in fields(kind):
        if each.default is MISSING and each.name not in message:
            raise Malformed(f"{op}: {each.name} is missing; expected {checks[each.name][0]}")
    return kind(**{key: value for key, value in message.items() if key != "op"})


@cache
def _checks(kind: type) -> dict[str, tuple[Any, bool]]:
    """Returns for each field its check, and whether it may be null."""
    hints = get_type_hints(kind, include_extras=True)
    return {each.name: (hints[each.name].__metadata__[0], each.default is None) for each in fields(kind)}
