"""Execution traces of MLCommons Chakra, as ASTRA-sim and others replay them, a file a rank: ``PREFIX.0.et``, ``PREFIX.1.et``, ...

A file is a sequence of protobuf messages, each with its length in front as a varint: GlobalMetadata, then a Node each (schema:
et_def.proto of the package mlc-chakra; files may be compressed with gzip). A node begins when the nodes in its ``ctrl_deps`` and
``data_deps`` have ended.

    COMP_NODE         takes ``duration_micros`` of the rank's GPU, or of its CPU if ``is_cpu_op``
    COMM_COLL_NODE    ``comm_type`` of ``comm_size`` bytes, which each rank puts in, in the process group ``pg_name``
    COMM_SEND_NODE    ``comm_size`` bytes to rank ``comm_dst``; COMM_RECV_NODE from rank ``comm_src``; ``comm_tag``
    METADATA_NODE     takes no time; one whose inputs list process groups ({"pg_name", "ranks"}) names their ranks

Others (INVALID_NODE, MEM_LOAD_NODE, MEM_STORE_NODE) have no meaning without a model of remote memory, and are refused by number.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ina.experiment.config import ConfigError, trace_files

HINT = "pip install --no-deps mlc-chakra protobuf (or 'ina[chakra]', with all that its converters need)"
COMPUTE, NOTHING, SEND, RECEIVE = "compute", "nothing", "send", "receive"
COLLECTIVES = ("all-reduce", "reduce", "all-gather", "gather", "scatter", "broadcast", "all-to-all", "reduce-scatter",
               "reduce-scatter", "barrier")  # by CollectiveCommType  # fmt: skip
US = 1_000_000  # ps


@dataclass(frozen=True)
class Node:
    """``kind``: COMPUTE, NOTHING, SEND, RECEIVE or one of COLLECTIVES. ``duration``: ps, on ``processor`` ("cpu", "gpu").
    ``bytes``: that this rank puts in; ``group``: of a collective, "": all ranks; ``peer`` and ``tag``: of a message."""

    number: int
    name: str
    kind: str
    after: tuple[int, ...]
    duration: int = 0
    processor: str = "gpu"
    bytes: int = 0
    group: str = ""
    peer: int = 0
    tag: int = 0


@dataclass(frozen=True)
class Traces:
    """``ranks``: the nodes of each, in the order of its file; ``groups``: the ranks of each process group, "": all."""

    ranks: list[list[Node]]
    groups: dict[str, tuple[int, ...]]


def read(prefix: str, groups: str = "") -> Traces:
    """All ranks' traces. ``groups``: a JSON file of process groups as ASTRA-sim has it, {"0": [0, 1], ...}.

    Raises ConfigError with file and node.
    """
    paths = trace_files(prefix)
    named = {"": tuple(range(len(paths)))} | (_groups(Path(groups)) if groups else {})
    ranks = []
    for path in paths:
        nodes, told = _rank(path)
        ranks.append(nodes)
        for name, members in told.items():
            if named.setdefault(name, members or named[""]) != (members or named[""]):
                raise ConfigError(f"{path}: process group {name!r} has ranks {members}, elsewhere {named[name]}")
    for rank, (path, nodes) in enumerate(zip(paths, ranks, strict=True)):
        for node in nodes:
            _check(path, node, rank, named)
    return Traces(ranks, named)


def _groups(path: Path) -> dict[str, tuple[int, ...]]:
    try:
        return {str(name): tuple(map(int, ranks)) for name, ranks in json.loads(path.read_text()).items()}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f'{path}: expected process groups in JSON, such as {{"0": [0, 1], "1": [2, 3]}}') from None


def _check(path: Path, node: Node, rank: int, groups: dict[str, tuple[int, ...]]) -> None:
    where, everyone = f"{path}: node {node.number} ({node.name!r})", groups[""]
    if node.kind in (SEND, RECEIVE) and (node.peer not in everyone or node.peer == rank):
        raise ConfigError(f"{where}: {node.kind} with rank {node.peer}, expected another of ranks 0 to {len(everyone) - 1}")
    if node.kind in COLLECTIVES:
        if node.group not in groups:
            known = ", ".join(map(repr, groups))
            raise ConfigError(f"{where}: no process group {node.group!r}; known: {known}; the key `groups` names a file of them")
        members = groups[node.group]
        if rank not in members or not set(members) <= set(everyone):
            raise ConfigError(f"{where}: process group {node.group!r} has ranks {members}, expected rank {rank} among them, and "
                              f"none above {len(everyone) - 1}")  # fmt: skip


# ---- one file


def _schema() -> Any:
    try:
        from chakra.schema.protobuf import et_def_pb2
    except ImportError as error:
        raise ConfigError(f"kind = 'trace': the schema of Chakra is missing: {HINT} ({error})") from None
    return et_def_pb2


def _messages(path: Path) -> Iterator[bytes]:
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError) as error:
        raise ConfigError(f"{path}: {error}") from None
    at = 0
    while at < len(data):
        size, shift = 0, 0
        while True:
            if at >= len(data) or shift > 28:
                raise ConfigError(f"{path}: byte {at}: expected the length of a message: this is no Chakra trace, or half of one")
            size |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 0x80:
                break
        if at + size > len(data):
            raise ConfigError(f"{path}: byte {at}: a message of {size} bytes, but only {len(data) - at} are left")
        yield data[at : at + size]
        at += size


def _rank(path: Path) -> tuple[list[Node], dict[str, tuple[int, ...]]]:
    from google.protobuf.message import DecodeError

    schema, messages, nodes, groups = _schema(), _messages(path), [], {}
    try:
        if (first := next(messages, None)) is None:
            raise ConfigError(f"{path}: empty; expected Chakra's GlobalMetadata and nodes")
        schema.GlobalMetadata.FromString(first)
        for message in messages:
            raw = schema.Node.FromString(message)
            node, told = _node(path, schema, raw)
            nodes.append(node)
            groups |= told
    except DecodeError as error:
        raise ConfigError(f"{path}: message {len(nodes) + 1}: {error}") from None
    known = {node.number for node in nodes}
    if len(known) < len(nodes):
        twice = next(n.number for i, n in enumerate(nodes) if n.number in {m.number for m in nodes[:i]})
        raise ConfigError(f"{path}: node {twice} is there twice")
    for node in nodes:
        if missing := [number for number in node.after if number not in known]:
            raise ConfigError(f"{path}: node {node.number} ({node.name!r}) comes after node {missing[0]}, which is not there")
    return nodes, groups


def _node(path: Path, schema: Any, raw: Any) -> tuple[Node, dict[str, tuple[int, ...]]]:
    where = f"{path}: node {raw.id} ({raw.name!r})"
    values = {attr.name: getattr(attr, kind) for attr in raw.attr if (kind := attr.WhichOneof("value"))}
    after = tuple(dict.fromkeys([*raw.ctrl_deps, *raw.data_deps]))
    common = {"number": raw.id, "name": raw.name, "after": after}
    kind = schema.NodeType.Name(raw.type) if raw.type in schema.NodeType.values() else str(raw.type)
    if kind == "METADATA_NODE":
        return Node(kind=NOTHING, **common), _process_groups(raw.inputs.values)
    if kind == "COMP_NODE":
        processor = "cpu" if values.get("is_cpu_op") else "gpu"
        return Node(kind=COMPUTE, duration=raw.duration_micros * US, processor=processor, **common), {}
    if kind in ("COMM_SEND_NODE", "COMM_RECV_NODE"):
        side, key = (SEND, "comm_dst") if kind == "COMM_SEND_NODE" else (RECEIVE, "comm_src")
        size, peer = (_number(where, values, name) for name in ("comm_size", key))
        return Node(kind=side, bytes=size, peer=peer, tag=int(values.get("comm_tag", 0)), **common), {}
    if kind == "COMM_COLL_NODE":
        type_ = _number(where, values, "comm_type")
        if type_ >= len(COLLECTIVES):
            raise ConfigError(f"{where}: comm_type {type_}, expected one of {', '.join(schema.CollectiveCommType.keys())}")
        size = 0 if COLLECTIVES[type_] == "barrier" else _number(where, values, "comm_size")
        return Node(kind=COLLECTIVES[type_], bytes=size, group=str(values.get("pg_name", "")), **common), {}
    raise ConfigError(f"{where} is a {kind}, which cannot be replayed; expected COMP_NODE, COMM_COLL_NODE, COMM_SEND_NODE, "
                      "COMM_RECV_NODE or METADATA_NODE")  # fmt: skip


def _number(where: str, values: dict, name: str) -> int:
    if not isinstance(values.get(name), int) or values[name] < 0:
        raise ConfigError(f"{where}: {name} is {values.get(name)!r}, expected a number of 0 or more")
    return values[name]


def _process_groups(text: str) -> dict[str, tuple[int, ...]]:
    """Of PyTorch's traces: the inputs of the metadata node are a list with one string, the groups in JSON."""
    try:
        listed = json.loads(text[2:-2])
        return {str(item["pg_name"]): tuple(item["ranks"]) for item in listed}
    except (ValueError, TypeError, KeyError):
        return {}
