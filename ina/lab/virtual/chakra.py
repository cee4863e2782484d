"""Execution traces of MLCommons Chakra, as ASTRA-sim and others replay them, a file a rank: ``PREFIX.0.et``, ``PREFIX.1.et``, ...

A file is a sequence of protobuf messages, each with its length in front as a varint: GlobalMetadata, then a Node each (schema:
et_def.proto of the package mlc-chakra; files may be compressed with gzip). A node begins when the nodes in its ``ctrl_deps`` and
``data_deps`` have ended.

    COMP_NODE         takes ``duration_micros`` of the rank's GPU, or of its CPU if ``is_cpu_op``; without a duration, that of a
                      roofline for its ``num_ops`` and ``tensor_size``
    COMM_COLL_NODE    ``comm_type`` of ``comm_size`` bytes, which each rank puts in, in the process group ``pg_name``
    COMM_SEND_NODE    ``comm_size`` bytes to rank ``comm_dst``; COMM_RECV_NODE from rank ``comm_src``; ``comm_tag``
    METADATA_NODE     takes no time; one whose inputs list process groups ({"pg_name", "ranks"}) names their ranks

Others (INVALID_NODE, MEM_LOAD_NODE, MEM_STORE_NODE) have no meaning without a model of remote memory, and are refused by number.
"""

from __future__ import annotations

import gzip
import math
import operator
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from ina.base import documents
from ina.base.error_text import line
from ina.base.settings import ConfigError, shown

HINT = "pip install --no-deps mlc-chakra protobuf (or 'ina[chakra]', with all that its converters need)"
COMPUTE, NOTHING, SEND, RECEIVE = "compute", "nothing", "send", "receive"
COLLECTIVES = ("all-reduce", "reduce", "all-gather", "gather", "scatter", "broadcast", "all-to-all", "reduce-scatter",
               "reduce-scatter", "barrier")  # by CollectiveCommType
NAMED = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "broadcast", "barrier")  # whose words are in no other's
US, PS = 1_000_000, 10**12  # ps
LONGEST = 10**6  # s that the nodes of one rank compute together; the emulator's clock ends at 2^64 ps
READ = {"is_cpu_op", "num_ops", "tensor_size", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "pg_name",
        "involved_dim", "root", "comm_root", "root_rank"}
# Attributes of Chakra's converters that describe a node's origin: times, dependencies and sizes do not depend on them.
DESCRIPTIONS = {"rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema", "kernel_backend", "kernel_file", "pid"}


@dataclass(frozen=True)
class Roofline:
    """A rank's GPU for nodes without a duration: ``peak`` in FLOP/s, ``bandwidth`` of its memory in byte/s; 0: not known.

    The model of ASTRA-sim (astra-sim/system/Roofline.cc): num_ops / min(peak, bandwidth * num_ops / tensor_size), which is the
    larger of num_ops / peak and tensor_size / bandwidth (Williams, Waterman, Patterson, CACM 52(4), 2009)."""

    peak: float = 0.0
    bandwidth: float = 0.0

    def duration(self, where: str, operations: float, moved: float) -> int:
        """Returns ps for so many floating-point operations on so many bytes. Raises ConfigError with ``where``: a key is
        missing."""
        need = {"peak_flops": (operations, self.peak), "memory_bandwidth": (moved, self.bandwidth)}
        if missing := [key for key, (amount, rate) in need.items() if amount and not rate]:
            keys = f"key{'s' * (len(missing) > 1)} {' and '.join(missing)}"
            raise ConfigError(f"{where} has num_ops = {operations:g} and tensor_size = {moved:g}, and no duration: expected "
                              f"duration_micros in the trace, or the {keys} of the rank's GPU, from which a roofline gives one")
        seconds = max((amount / rate for amount, rate in need.values() if amount), default=0.0)
        return round(PS * min(seconds, 2 * LONGEST))


@dataclass(frozen=True)
class Node:
    """A node. ``kind``: COMPUTE, NOTHING, SEND, RECEIVE or one of COLLECTIVES. ``duration``: ps, on ``processor`` ("cpu", "gpu").
    ``bytes``: this rank's input; ``group``: of a collective, "": all ranks; ``peer`` and ``tag``: of a message, and ``own``, the
    node's rank in the trace, -1: not given."""

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
    own: int = -1


@dataclass(frozen=True)
class Traces:
    """All traces. ``ranks``: the nodes of each, in the order of its file; ``groups``: the ranks of each process group, "": all.
    ``ignored``: attributes of nodes that have no meaning here, though they may have one elsewhere, and their counts."""

    ranks: list[list[Node]]
    groups: dict[str, tuple[int, ...]]
    ignored: dict[str, int]


UNKNOWN = Roofline()


def files(prefix: str) -> list[Path]:
    """Returns the files of Chakra's traces of ranks 0, 1, ...; empty: there is none."""
    ranks: list[Path] = []
    while prefix and (path := Path(f"{prefix}.{len(ranks)}.et")).is_file():
        ranks.append(path)
    return ranks


def read(prefix: str, groups: str = "", roofline: Roofline = UNKNOWN) -> Traces:
    """Reads all ranks' traces. ``groups``: a JSON file of process groups as ASTRA-sim has it, {"0": [0, 1], ...}. ``roofline``:
    for nodes that compute and have no duration.

    Raises ConfigError with file and node.
    """
    paths = files(prefix)
    from_file = _groups(Path(groups)) if groups else {}
    groups_by_name = {"": tuple(range(len(paths)))} | from_file
    ranks: list[list[Node]] = []
    ignored: Counter[str] = Counter()
    for path in paths:
        nodes, own_groups, unread = _rank(path, roofline)
        ranks.append(nodes)
        ignored += unread
        for name, members in own_groups.items():
            if groups_by_name.setdefault(name, members or groups_by_name[""]) != (members or groups_by_name[""]):
                raise ConfigError(f"{path}: process group {name!r} has ranks {members}, elsewhere {groups_by_name[name]}")
    for name, members in groups_by_name.items():
        if not set(members) <= set(groups_by_name[""]) or len(set(members)) < len(members):
            place = groups if name in from_file else f"{prefix}.*.et"
            raise ConfigError(f"{place}: process group {name!r} has ranks {shown(list(members))}, expected some of 0 to "
                              f"{len(paths) - 1}, each once; there is a file for each of these")
    for rank, (path, nodes) in enumerate(zip(paths, ranks, strict=True)):
        for node in nodes:
            _check(path, node, rank, groups_by_name)
    _warn_of_names(list(zip(paths, ranks, strict=True)))
    return Traces(ranks, groups_by_name, dict(sorted(ignored.items())))


def _warn_of_names(ranks: list[tuple[Path, list[Node]]]) -> None:
    """Warns of collectives whose names are those of another kind, once for each pair of kinds."""
    doubts: dict[tuple[str, str], list[str]] = {}
    for path, nodes in ranks:
        for node in nodes:
            if node.kind in COLLECTIVES and (kinds := _kind_of_name(node.name)) and node.kind not in kinds:
                doubts.setdefault((node.kind, " or ".join(kinds)), []).append(f"{path}: node {node.number} ({node.name!r})")
    for (kind, other), places in doubts.items():
        warnings.warn(f"ina: {places[0]} is {kind} by its comm_type, but {other} by its name: replayed as {kind} (so are "
                      f"{len(places)} nodes in all). Chakra's text converter makes all-reduces of what it does not know",
                      RuntimeWarning, stacklevel=3)


def _kind_of_name(name: str) -> list[str]:
    """Returns the kinds that a collective's name says; none: it says nothing."""
    plain = re.sub("[^a-z]", "", name.lower())
    if kinds := [kind for kind in NAMED if kind.replace("-", "") in plain]:
        return kinds
    return ["none"] if name.startswith("COMM_COLL_NODE") and name.endswith("_NONE") else []


def _groups(path: Path) -> dict[str, tuple[int, ...]]:
    try:
        content = documents.json_of(path)
    except OSError as error:
        raise ConfigError(line(error)) from None
    except documents.Unreadable as error:
        raise ConfigError(str(error)) from None
    if not isinstance(content, dict):
        raise ConfigError(f'{path}: expected process groups, such as {{"0": [0, 1], "1": [2, 3]}}')
    for name, ranks in content.items():
        if not isinstance(ranks, list) or not all(type(rank) is int for rank in ranks):
            raise ConfigError(f"{path}: key {name!r}: {shown(ranks)}: expected a list of ranks, such as [0, 1]")
    return {name: tuple(ranks) for name, ranks in content.items()}


def _check(path: Path, node: Node, rank: int, groups: dict[str, tuple[int, ...]]) -> None:
    where, everyone = f"{path}: node {node.number} ({node.name!r})", groups[""]
    if node.own not in (-1, rank):
        raise ConfigError(f"{where}: {node.kind} of rank {node.own}, in the file of rank {rank}")
    if node.kind in (SEND, RECEIVE) and (node.peer not in everyone or node.peer == rank):
        raise ConfigError(f"{where}: {node.kind} with rank {node.peer}, expected another of ranks 0 to {len(everyone) - 1}")
    if node.kind in COLLECTIVES:
        if node.group not in groups:
            names = ", ".join(map(repr, groups))
            raise ConfigError(f"{where}: no process group {node.group!r}; known: {names}; the key `groups` names a file of them")
        members = groups[node.group]
        if rank not in members or not set(members) <= set(everyone):
            raise ConfigError(f"{where}: process group {node.group!r} has ranks {members}, expected rank {rank} among them, and "
                              f"none above {len(everyone) - 1}")


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
    except (OSError, EOFError, zlib.error) as error:
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


def _rank(path: Path, roofline: Roofline) -> tuple[list[Node], dict[str, tuple[int, ...]], Counter[str]]:
    """Returns nodes, process groups, and counts of unread attributes."""
    from google.protobuf.message import DecodeError

    schema, messages = _schema(), _messages(path)
    nodes: list[Node] = []
    groups: dict[str, tuple[int, ...]] = {}
    unread: Counter[str] = Counter()
    try:
        if (first := next(messages, None)) is None:
            raise ConfigError(f"{path}: empty; expected Chakra's GlobalMetadata and nodes")
        schema.GlobalMetadata.FromString(first)
        for message in messages:
            raw = schema.Node.FromString(message)
            node, own_groups = _node(path, schema, raw, roofline)
            nodes.append(node)
            if node.kind != NOTHING:
                unread.update(attr.name for attr in raw.attr if attr.name not in READ | DESCRIPTIONS)
            groups |= own_groups
    except DecodeError as error:
        raise ConfigError(f"{path}: message {len(nodes) + 1}: {error}") from None
    numbers = {node.number for node in nodes}
    if len(numbers) < len(nodes):
        duplicate = next(n.number for i, n in enumerate(nodes) if n.number in {m.number for m in nodes[:i]})
        raise ConfigError(f"{path}: node {duplicate} is there twice")
    for node in nodes:
        if missing := [number for number in node.after if number not in numbers]:
            raise ConfigError(f"{path}: node {node.number} ({node.name!r}) comes after node {missing[0]}, which is not there")
    try:
        TopologicalSorter({node.number: node.after for node in nodes}).prepare()
    except CycleError as error:
        circle = ", ".join(map(str, error.args[1]))
        raise ConfigError(f"{path}: nodes {circle} wait for each other in a circle: none of them can begin") from None
    if (total := sum(node.duration for node in nodes)) > LONGEST * PS:
        longest = max(nodes, key=lambda node: node.duration)
        raise ConfigError(f"{path}: its nodes compute for {total / PS:g} s, node {longest.number} ({longest.name!r}) the longest "
                          f"of them: expected {LONGEST:g} s at most")
    return nodes, groups, unread


def _node(path: Path, schema: Any, raw: Any, roofline: Roofline) -> tuple[Node, dict[str, tuple[int, ...]]]:
    where = f"{path}: node {raw.id} ({raw.name!r})"
    values = {attr.name: getattr(attr, kind) for attr in raw.attr if (kind := attr.WhichOneof("value"))}
    after = tuple(dict.fromkeys([*raw.ctrl_deps, *raw.data_deps]))
    common = {"number": raw.id, "name": raw.name, "after": after}
    kind = schema.NodeType.Name(raw.type) if raw.type in schema.NodeType.values() else str(raw.type)
    if kind == "METADATA_NODE":
        return Node(kind=NOTHING, **common), _process_groups(raw.inputs.values)
    if kind == "COMP_NODE":
        processor = "cpu" if values.get("is_cpu_op") else "gpu"
        return Node(kind=COMPUTE, duration=_duration(where, raw, values, processor, roofline), processor=processor, **common), {}
    if kind in ("COMM_SEND_NODE", "COMM_RECV_NODE"):
        side, key = (SEND, "comm_dst") if kind == "COMM_SEND_NODE" else (RECEIVE, "comm_src")
        size, peer = (_number(where, values, name) for name in ("comm_size", key))
        own_key = "comm_src" if side == SEND else "comm_dst"
        own = _number(where, values, own_key) if own_key in values else -1
        tag = _number(where, values, "comm_tag") if "comm_tag" in values else 0
        return Node(kind=side, bytes=size, peer=peer, tag=tag, own=own, **common), {}
    if kind == "COMM_COLL_NODE":
        type_ = _number(where, values, "comm_type")
        if type_ >= len(COLLECTIVES):
            raise ConfigError(f"{where}: comm_type {type_}, expected one of {', '.join(schema.CollectiveCommType.keys())}")
        _check_whole(where, values)
        size = 0 if COLLECTIVES[type_] == "barrier" else _number(where, values, "comm_size")
        return Node(kind=COLLECTIVES[type_], bytes=size, group=str(values.get("pg_name", "")), **common), {}
    raise ConfigError(f"{where} is a {kind}, which cannot be replayed; expected COMP_NODE, COMM_COLL_NODE, COMM_SEND_NODE, "
                      "COMM_RECV_NODE or METADATA_NODE")


def _duration(where: str, raw: Any, values: dict, processor: str, roofline: Roofline) -> int:
    """Returns ps of a node that computes: as measured, or by the roofline."""
    if raw.duration_micros:
        return raw.duration_micros * US
    numbers = ("num_ops", "tensor_size")
    operations, moved = (_number(where, values, name, (int, float)) if name in values else 0 for name in numbers)
    if processor == "cpu" and (operations or moved):
        raise ConfigError(f"{where} computes on the CPU and has num_ops or tensor_size, and no duration: expected "
                          "duration_micros; only a GPU's roofline is known")
    return roofline.duration(where, operations, moved)


def _check_whole(where: str, values: dict) -> None:
    """Checks that a collective is of a whole process group, and its root the first rank. Raises ConfigError."""
    dimensions = list(getattr(values.get("involved_dim"), "values", ()))
    if not all(dimensions):
        raise ConfigError(f"{where}: involved_dim is {dimensions}, a collective along some dimensions of a topology: expected "
                          "its ranks as a process group, pg_name")
    for name in ("root", "comm_root", "root_rank"):
        if values.get(name):
            raise ConfigError(f"{where}: {name} is {values[name]!r}: expected 0, or a process group whose first rank is the root")


def _number(where: str, values: dict, name: str, types: tuple[type, ...] = (int,)) -> int:
    if not isinstance(values.get(name), types) or isinstance(values[name], bool) or not 0 <= values[name] < math.inf:
        raise ConfigError(f"{where}: {name} is {values.get(name)!r}, expected a number of 0 or more")
    return values[name]


def _process_groups(text: str) -> dict[str, tuple[int, ...]]:
    """Parses PyTorch's process groups: the inputs of the metadata node are a list with one string, the groups in JSON."""
    try:
        items = documents.json_text(text[2:-2])
        return {str(item["pg_name"]): tuple(map(operator.index, item["ranks"])) for item in items}
    except (ValueError, TypeError, KeyError):
        return {}
