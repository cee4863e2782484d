"""Entities of switches that run a TNA program, beside those of entities.py: the replication engine, mirror sessions,
ports.

Meanings are those of Intel's "P4-16 Tofino Native Architecture" (sections 5.4, 5.7, 7.10), names those of BFRuntime's
fixed tables (`$pre.node` is MulticastNode, `$mirror.cfg` MirrorSession, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ina.p4.runtime.entities import Entity, TableEntry, Value


def front_panel(pipes: int) -> list[int]:
    """Numbers of the ports on the front panel: 64 of each pipe (64 to 67 are the processor's, 68 to 71 recirculate)."""
    return [pipe * 128 + port for pipe in range(pipes) for port in range(64)]


@dataclass(frozen=True, slots=True)
class MulticastNode(Entity):
    """A level-1 node: a copy for each of `ports`, and for one port of each of `lags`; egress sees `rid`."""

    node_id: int
    rid: int = 0
    ports: tuple[int, ...] = ()
    lags: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MulticastEcmp(Entity):
    """Level-1 nodes of which `level1_mcast_hash` chooses one. Each has one of 32 slots, and keeps it in a MODIFY: member
    h % 32, or if that slot is empty, the (h % members)-th.
    """

    ecmp_id: int
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MulticastTree(Entity):
    """Multicast group `group_id`: branches (node, exclusion id) and (ECMP group, exclusion id); a packet with that
    `level1_exclusion_id` is not copied to the branch, None: always copied.
    """

    group_id: int
    nodes: tuple[tuple[int, int | None], ...] = ()
    ecmps: tuple[tuple[int, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class MulticastLag(Entity):
    """Ports of which `level2_mcast_hash` chooses one, counted in order of their numbers after `remote_lsb` and before
    `remote_msb` members on other devices.
    """

    lag_id: int
    ports: tuple[int, ...] = ()
    remote_msb: int = 0
    remote_lsb: int = 0


@dataclass(frozen=True, slots=True)
class MulticastPrune(Entity):
    """Ports that a packet with this `level2_exclusion_id` is not copied to, at nodes whose rid is the packet's."""

    l2_xid: int
    ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MulticastPort(Entity):
    """A port's state for replication: while it is not `up`, LAGs choose another member and `backup` gets its copies (if
    ReplicationConfig has port_protection). `copy_to_cpu`: it is the port to which copy_to_cpu goes.
    """

    port: int
    backup: int | None = None
    up: bool = True
    copy_to_cpu: bool = False


@dataclass(frozen=True, slots=True)
class ReplicationConfig(Entity):
    """`global_rid`: a packet with this rid is pruned at every node."""

    global_rid: int = 0
    port_protection: bool = False


@dataclass(frozen=True, slots=True)
class MirrorSession(Entity):
    """Destination of mirrored copies with this session (1..1023): `port`, multicast groups, the CPU.

    `direction`: the phase whose copies it takes: "INGRESS", "EGRESS" or "BOTH". `max_length` cuts mirror header and frame, in
    bytes; 0: whole. `queue`, `cos` and `color` (0 green, 1 yellow, 3 red) are passed to egress or stored.
    """

    session_id: int
    enabled: bool = True
    direction: str = "BOTH"
    port: int | None = None
    mcast_a: int | None = None
    mcast_b: int | None = None
    queue: int = 0
    cos: int = 0
    color: int = 0
    level1_hash: int = 0
    level2_hash: int = 0
    l1_xid: int = 0
    l2_xid: int = 0
    rid: int = 0
    copy_to_cpu: bool = False
    cpu_cos: int = 0
    max_length: int = 0


@dataclass(frozen=True, slots=True)
class PortMetadata(Entity):
    """Metadata in front of the frames of `port` (None in a pattern: of each), for the ingress parser: values of the program's
    fields by name.

    `parser`: the parser's name or that of its `$PORT_METADATA` table, where pipelines have different ones.
    """

    port: int | None
    fields: Mapping[str, Value] = field(default_factory=dict)
    parser: str = ""


@dataclass(frozen=True, slots=True)
class EntryScope(Entity):
    """Groups of pipes with the same entries in `table` (or value set): each of `groups` has its own; none: all pipes have the
    same. A table with entries cannot change its scope. Pipes in no group have no entries. `parsers`, of a value set: each of the
    18 parsers of a pipe, which have four ports each, has its own members.
    """

    table: str
    groups: tuple[tuple[int, ...], ...] = ()
    parsers: bool = False


@dataclass(frozen=True, slots=True)
class KeyMask(Entity):
    """Masks by field for comparing keys of a `table` that the program annotates @dynamic_table_key_masks; all bits of a field
    that is left out count. Keys of entries are stored masked; a table with entries cannot change its mask.
    """

    table: str
    masks: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LpfConfig:
    """A low-pass filter: time constants in ns for samples above the average (`rise`) and below it (`fall`); `rate`: samples
    add up, otherwise they are averaged. The result is divided by 2^`scale_down`.
    """

    rise: float
    fall: float
    rate: bool = False
    scale_down: int = 0


@dataclass(frozen=True, slots=True)
class WredConfig:
    """Random early detection: drops with a probability that rises from 0 at an average of `low` to `probability` at `high`, and
    always above that; `time_constant` of the average in ns.
    """

    time_constant: float
    low: float
    high: float
    probability: float


@dataclass(frozen=True, slots=True)
class FilterEntry(Entity):
    """Cell `index` of an Lpf or Wred; None: all of them. Without `config` an Lpf returns its input, a Wred never drops.

    For a DirectLpf or DirectWred: the cell of `entry`.
    """

    filter: str
    index: int | None = None
    config: LpfConfig | WredConfig | None = None
    pipe: int | None = None
    entry: TableEntry | None = None
