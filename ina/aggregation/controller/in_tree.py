"""Jobs of a tree of switch processes, as the controller of one of them has them (process_tree.py).

A switch process is to its parent one worker of each job: that with the lowest number below it. All switches of a job have its
number, life and slots from the process where it is complete; rows and incarnations are each switch's own. So that no number is
taken at a process below, those of a job that is complete on one level are of one class: the number modulo MOST_LEVELS.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ina.aggregation.control_socket.tree_paths import MOST_LEVELS, Share
from ina.aggregation.controller.job_records import Branch
from ina.aggregation.entries import Child, Parent
from ina.aggregation.worker import SWITCH
from ina.aggregation.worker import addresses as worker_addresses
from ina.net.ports import Address


@dataclass(frozen=True)
class Above:
    """A job at the parent, which has admitted it, and the port towards it. ``key``: of its workers, b"": they need none."""

    number: int
    life: int
    slots: int
    check: str
    rule: str
    key: bytes = field(repr=False)
    parent: Parent


@dataclass(frozen=True)
class Part:
    """A job's part at this process. ``level``: of the process, 0: the root. ``above``: None where the job is complete here."""

    share: Share
    level: int
    above: Above | None = None

    @property
    def ports(self) -> int:
        """Ports of the switch that it needs."""
        return len(self.share.seats) + (self.above is not None)

    def takes(self, number: int) -> bool:
        """Returns True if a job that is complete here may have this number: none that a job from above may have at a process
        below, or here."""
        return number % MOST_LEVELS == self.level or not (self.level or self.share.below)

    def branch(self, switch: str, slot_base: int) -> Branch:
        parent = self.above.parent if self.above else None
        return Branch(switch, slot_base, self.share.seats, self.share.workers, parent, below=dict(self.share.below))

    def addresses(self, number: int, workers: int, udp_port: int) -> tuple[Address, ...]:
        """Returns the addresses of all workers: that of the seat by which a worker's packets come; of those that are not below,
        which have none here, that of seat 0. A switch below has the address of every switch, from which its own workers expect
        results; its port tells its packets from others'. ``udp_port``: the program's, at which switches take packets."""
        seats = worker_addresses.addresses(number, len(self.share.seats), ())
        addresses = [seats[0]] * workers
        for seat, child in enumerate(self.share.seats):
            if isinstance(child, int):
                addresses[child] = seats[seat]
            else:
                for worker in self.share.below[child]:
                    addresses[worker] = replace(SWITCH, port=udp_port)
        return tuple(addresses)


def child_at(branch: Branch, worker: int, port: int, address: Address) -> Child:
    """Returns the child of a switch by which a worker's packets come: the worker, or the switch process below that it stands for
    as its lowest. Raises KeyError: neither is the case."""
    seat = branch.seats_by_worker[worker]
    child = branch.seats[seat]
    return Child(seat, port, address, branch.below[child] if isinstance(child, str) else (worker,))
