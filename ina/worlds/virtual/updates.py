"""Updates between hosts of a fabric: one frame each, which is sent once; and queues that merge those that wait.

    updates = Updates(fabric, ["h1", "h2", "h9"], words=100)
    queue = updates.merge_before("h9")          # at the switch, on the way to h9
    updates.send("h1", "h9", words)
    ticket, words = updates.expect("h9")        # of the next one that comes
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ina.base.native import CData, ffi, lib
from ina.worlds.virtual.fabric import Fabric
from ina.worlds.virtual.network import End

UPDATE_PORT = 4900  # UDP
HEAD = 2  # words of an update before what is added up: group, and bitmap of senders
OVERHEAD = 42 + 24  # bytes of a frame beside its words: headers, and Ethernet's own


@dataclass(frozen=True)
class MergingQueue:
    """A queue at a switch's port that merges updates (updates.h: the rule)."""

    native: CData

    @property
    def added(self) -> int:
        """Updates that came and were added to one that waited."""
        return int(self.native.added)

    @property
    def replaced(self) -> int:
        """Updates that waited and were replaced by a later one of the same senders."""
        return int(self.native.replaced)


class Updates:
    """The ends of ``hosts``. Each update has ``words`` 32-bit words: HEAD, and those that are added up.

    Raises:
        OSError: there is no memory, or a host has such an end already.
    """

    def __init__(self, fabric: Fabric, hosts: Sequence[str], words: int):
        self.fabric, self.hosts, self.words = fabric, tuple(hosts), words
        addresses = fabric.addresses(hosts, UPDATE_PORT)
        self._rank = {host: rank for rank, host in enumerate(hosts)}
        self.machine: dict[str, int] = {}  # by host
        self._state: dict[str, CData] = {}
        for host, rank in self._rank.items():
            state = lib.ina_updates_create(addresses, len(hosts), rank)
            if state == ffi.NULL:
                raise OSError(ffi.errno, f"updates at {host}: {os.strerror(ffi.errno)}")
            self._state[host] = ffi.gc(state, lib.ina_updates_destroy)
            machine = ffi.addressof(lib.ina_updates_machine)
            self.machine[host] = fabric.add_machine(fabric.host(host), machine, self._state[host], UPDATE_PORT, 1)
        self._queues: list[CData] = []  # the switches have pointers to them

    def port_before(self, host: str) -> End:
        """Returns the switch's port that leads to a host."""
        topology = self.fabric.topology
        switch = topology.switch_of(host)
        hop = next(hop for hop in topology.hops[switch] if hop.node == host)
        return self.fabric.end(hop.link, int(topology.ends[hop.link][1].node == switch))

    def merge_before(self, host: str) -> MergingQueue:
        """Has the queue of the switch's port that leads to a host merge updates. OSError: packets have no values."""
        end, queue = self.port_before(host), ffi.new("struct ina_update_queue *", {"udp_port": UPDATE_PORT})
        merge = ffi.addressof(lib, "ina_update_merge")
        error = lib.ina_switch_set_merge(self.fabric.switches[end.node].pointer, end.port, merge, queue)
        if error < 0:
            raise OSError(-error, f"queue before {host}: {os.strerror(-error)}")
        self._queues.append(queue)
        return MergingQueue(queue)

    def send(self, source: str, target: str, words: np.ndarray, at: int | None = None) -> int:
        """Sends int32 ``words`` at ``at`` ps (default: now). Returns the ticket of a completion that says that they have left
        the machine."""
        assert words.shape == (self.words,)
        return self.fabric.submit(self.machine[source], words, tag=self._rank[target], at=at)

    def expect(self, host: str, at: int | None = None) -> tuple[int, np.ndarray]:
        """Has a host expect an update from ``at`` ps on (default: now). Returns the ticket of a completion that says that one
        has come, and where its words are then: the oldest such ticket gets the next update. One that comes while nobody expects
        it is dropped."""
        words = np.zeros(self.words, np.int32)
        return self.fabric.submit(self.machine[host], words, tag=self._rank[host], at=at), words

    def dropped(self, host: str) -> int:
        """Returns how many updates came to a host that did not expect any, or of another size."""
        raw = ffi.new("struct ina_worker_stats *")
        lib.ina_updates_get_stats(self._state[host], raw)
        return int(raw.drop_malformed)
