"""Controller: the jobs that its switches serve, and each job's resources.

A job owns a number, a life of that number, an incarnation (job_incarnations.py: the life tells packets of earlier jobs, the
incarnation their rows), and at every switch of its aggregation tree a power-of-two range of slots, a multicast group, and one
port per child: a worker or a switch below. One switch is a tree of one. The protocol defines the entries that make a switch's
program serve a job (ina/aggregation/entries/). All of it is written through switch targets in P4Runtime's terms; registers are
never touched.

    controller = Controller({"s1": a, "s2": b, "s3": c}, slots=512, topology=topology)
    (tree,) = controller.place("training", hosts, slots=64)
    job = controller.admit("training", workers=4, slots=64, tree=tree, hosts=hosts)     # written at all switches, or at none
    controller.attach(job, 0)                                                            # the worker at hosts[0]
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ina.aggregation import completion, protocols
from ina.aggregation.controller.in_tree import Part, child_at
from ina.aggregation.controller.job_incarnations import CHANCE, Incarnations, Lives
from ina.aggregation.controller.job_records import AdmissionError, Branch, Job
from ina.aggregation.controller.reconcile import absent, repair
from ina.aggregation.controller.state import StateError, described, job_from_json, job_to_json
from ina.aggregation.controller.transaction import REFUSED, Change, WriteFailed, try_write, write
from ina.aggregation.controller.tree_placement import place
from ina.aggregation.entries import Child, JobProgram, Parent, entries_of, program_named
from ina.aggregation.worker import SWITCH
from ina.aggregation.worker.addresses import addresses
from ina.net.ports import Address
from ina.p4.runtime.entities import Entity, SwitchTarget, TableEntry, Update, delete, insert, modify
from ina.p4.runtime.entity_error import EntityError
from ina.topology.topology import Node, Topology
from ina.topology.tree import Tree

__all__ = ["AdmissionError", "Controller", "Job", "SwitchTarget", "switch_address"]


SHOWN = 4  # jobs that hold a pool, in a refusal


def switch_address(switch: str, udp_port: int = SWITCH.port) -> Address:
    """Returns a switch's address in trees, to which its workers send. ``udp_port``: the protocol's."""
    node = Node(switch)
    return Address(node.mac, node.ip, udp_port)


def _ports(job: Job) -> int:
    """Returns the ports of a switch that the job needs, for workers and for switch processes above and below."""
    return len(job.root.seats) + (job.root.parent is not None) if job.in_process_tree else job.workers


class Controller:
    """Jobs of the switches ``targets`` (by name; a lone target is a switch s1), whose programs use ``protocol`` (its name, or a
    JobProgram with other parameters than the default ones).

    ``slots``: each program's pool, which jobs share; by switch, where they differ. ``topology``: gives the ports of a tree's
    links; needed for trees only. ``seats``: most workers of all jobs at a time; None: no limit. ``chance``: source
    of the first incarnation and lives; a seeded one for runs that are to repeat exactly, with switches that have no other jobs.
    """

    def __init__(self, targets: SwitchTarget | Mapping[str, SwitchTarget], slots: int | Mapping[str, int],
                 protocol: str | JobProgram = protocols.DEFAULT, topology: Topology | None = None,
                 chance: random.Random = CHANCE, seats: int | None = None):
        self.targets = dict(targets) if isinstance(targets, Mapping) else {"s1": targets}
        self.slots = dict(slots) if isinstance(slots, Mapping) else dict.fromkeys(self.targets, slots)
        self.program = protocol if isinstance(protocol, JobProgram) else program_named(protocol)
        self.topology = topology
        self.jobs: dict[str, Job] = {}
        self.servers: dict[str, Parent] = {}  # parameter servers, by switch
        self.unsure: set[str] = set()  # switches whose entries are unknown
        self.down: dict[str, str] = {}  # failed switches, and the reasons
        self.down_links: dict[str, str] = {}  # failed links by name (Topology.link_names), and the reasons
        self.forgotten: set[tuple[str, int]] = set()  # switches to which a job's entries were written again, and its incarnation
        self.incarnations = Incarnations(chance)
        self._chance, self._seats = chance, seats
        self.lives = Lives(self.program.last_life, chance)
        self._last_number = self.program.max_jobs - 1

    def admit(self, name: str, workers: int, slots: int, strict: bool = True, tree: Tree | None = None,
              hosts: Sequence[str] = (), check: str = "", rule: str = completion.DEFAULT, part: Part | None = None) -> Job:
        """Reserves resources for job ``name`` at every switch of ``tree``. Raises AdmissionError, or ValueError: there is no
        such rule; then nothing has changed.

        ``hosts``: of the workers in order (default: the tree's, by number), from which their addresses follow. Without a tree the
        controller's only switch serves the job, and workers may be at any of its ports. ``check``: how its workers make check
        words (protocols.CHECKS; default: the protocol's). ``rule``: when its sums are complete (ina/aggregation/completion).
        ``part``: of a job whose other parts switch processes above and below have.
        """
        self._check(name, workers, slots)
        check = self._check_words(name, check)
        completion.named(rule)
        self._repair_unsure(tree.switches if tree else self.targets)  # reads the lives in use there
        above = part.above if part else None
        number = self._number(name, part)
        seated = sum(map(_ports, self.jobs.values()))
        needed = part.ports if part else workers
        if self._seats is not None and seated + needed > self._seats:
            raise AdmissionError("full", f"job {name!r} needs ports for {needed} workers, but the {len(self.jobs)} jobs that "
                                         f"run have {seated} of the {self._seats} that there are; end a job")
        if above:
            self.lives.use(number, above.life)
        life = above.life if above else self.lives.give(number)
        job = Job(name, number, self.incarnations.give(), life, workers, slots, strict, {}, tree,
                  check=check, rule=rule, given_key=above.key.hex() if above else "",
                  secret=self._chance.randbytes(32).hex() if check == "keyed" and not above else "")
        if part is not None:
            (switch,) = self.targets
            self._check_children(name, switch, len(part.share.seats))
            job.branches[switch] = part.branch(switch, self._reserve(name, switch, slots))
        elif tree is None:
            if len(self.targets) != 1:
                raise AdmissionError("invalid", f"job {name!r} has no tree over the switches {', '.join(self.targets)}")
            (switch,) = self.targets
            seats = tuple(range(workers))
            self._check_children(name, switch, workers)
            job.branches[switch] = Branch(switch, self._reserve(name, switch, slots), seats, seats,
                                          self._server(name, switch))
            job.hosts = tuple(hosts)
        else:
            self._plant(job, tree, tuple(hosts) or tree.workers)
        job.addresses = part.addresses(number, workers, self.program.udp_port) if part else self._addresses(job)
        try:
            entries_by_switch = {branch.switch: self._entries(job, branch) for branch in job.branches.values()}
        except ValueError as error:  # of a user's own protocol
            raise AdmissionError("invalid", f"job {name!r}: the protocol {self.program.title} refuses it: {error}") from error
        self._write([Change(switch, [*self.program.clear(job.place(job.branches[switch])), *insert(*entries)], delete(*entries))
                     for switch, entries in entries_by_switch.items()])
        self.jobs[name] = job
        self._last_number = number
        return job

    def place(self, name: str, hosts: Sequence[str], slots: int, stripes: int = 1,
              load: Mapping[int, float] | None = None) -> tuple[Tree, ...]:
        """Returns trees for a job whose workers are at ``hosts``, each for one ``admit`` (tree_placement.py).

        Raises AdmissionError with the switch that is in the way.
        """
        if self.topology is None:
            raise AdmissionError("invalid", f"job {name!r}: no trees without a topology")
        failed = {switch: "it does not answer" for switch in self.unsure} | self.down
        try:
            room = {switch: len(self._ranges(switch, slots)) if self.program.reserves else self.program.max_jobs
                    for switch in self.targets}
            return place(self.topology, hosts, room,
                         running=[job.tree for job in self.jobs.values() if job.tree], load=load, failed=failed,
                         failed_links=self.down_links, stripes=stripes, roots=self._roots() if self.program.needs_server else ())
        except AdmissionError as error:
            raise AdmissionError(error.code, f"job {name!r} asks for {slots} slots: {error}") from error

    def attach(self, job: Job, worker: int, port: int | None = None) -> Child:
        """Registers a worker of ``job`` at its port. Raises AdmissionError.

        ``port`` of its switch: default, where the job has a tree, that of its host.
        """
        job.check_worker(worker)
        if worker in job.attached:
            raise AdmissionError("duplicate", f"worker {worker} of job {job.name!r} is already attached: two processes "
                                              "have the same rank")
        try:
            branch = job.branch_of(worker)
        except StopIteration:
            raise AdmissionError("mismatch", f"worker {worker} of job {job.name!r} is below another switch process, as its paths "
                                             "say, and not attached to this one") from None
        if job.tree is not None:
            host = job.hosts[worker]
            _, host_port = self._ends(job.tree, host)
            if port not in (None, host_port):
                raise AdmissionError("invalid", f"worker {worker} of job {job.name!r} is at port {port}, but its host {host} is "
                                                f"at port {host_port} of {branch.switch}")
            port = host_port
        if port is None:
            raise AdmissionError("invalid", f"worker {worker} of job {job.name!r}: expected a port of {branch.switch}")
        child = child_at(branch, worker, port, job.addresses[worker])
        self._change_children(job, branch, {**branch.attached, child.index: child})
        return child

    def detach(self, job: Job, worker: int) -> None:
        """Undoes ``attach`` for a worker that has not been told of it. One that may have sent must not be replaced, since its
        successor would meet rows in which it was seen. Raises AdmissionError."""
        if worker not in job.attached:
            raise AdmissionError("unknown", f"worker {worker} of job {job.name!r} is not attached")
        branch = job.branch_of(worker)
        seat = branch.seats_by_worker[worker]
        self._change_children(job, branch, {i: child for i, child in branch.attached.items() if i != seat})

    def release(self, name: str) -> None:
        """Frees all of job ``name``: its number, slots, groups and entries. Unknown names are an error.

        A switch that does not answer is `unsure` from then on; the job is over all the same.
        """
        job = self.jobs.pop(name, None)
        if job is None:
            raise AdmissionError("unknown", f"there is no job {name!r}")
        self.forgotten -= {(switch, job.incarnation) for switch in job.branches}
        for branch in reversed(job.branches.values()):
            if branch.switch in self.unsure:  # its entries may be another job's
                with suppress(*REFUSED):
                    self.repair(branch.switch)
            elif not try_write(self.targets[branch.switch], branch.switch, delete(*self._entries(job, branch))):
                self.unsure.add(branch.switch)

    def free_slots(self, switch: str | None = None) -> int:
        """Returns the free slots of one switch; by default of the one with the fewest."""
        if switch is None:
            return min(self.free_slots(name) for name in self.targets)
        return self.slots[switch] - (sum(job.slots for job in self._at(switch)) if self.program.reserves else 0)

    # ---- after a crash

    def move(self, name: str) -> Job:
        """Gives a job another tree, number, life and incarnation, on switches that work; its workers attach again.

        Raises AdmissionError: there is no such job, or no other tree for it; then it is released.
        """
        old = self.jobs.get(name)
        if old is None or old.tree is None:
            raise AdmissionError("unknown", f"there is no job {name!r} on a tree")
        self.release(name)
        for switch in self.unsure.intersection(old.branches).difference(self.down):
            with suppress(*REFUSED):
                self.repair(switch)
        (tree,) = self.place(name, old.hosts, old.slots)
        return self.admit(name, old.workers, old.slots, old.strict, tree, old.hosts, old.check, old.rule)

    def alternative(self, name: str) -> Tree:
        """Returns the tree that ``move`` would give a job. Raises AdmissionError: there is no such job, or no tree."""
        job = self.jobs.get(name)
        if job is None or job.tree is None:
            raise AdmissionError("unknown", f"there is no job {name!r} on a tree")
        others = {other: self.jobs[other] for other in self.jobs if other != name}
        everyone, self.jobs = self.jobs, others  # without what it holds itself
        try:
            return self.place(name, job.hosts, job.slots)[0]
        finally:
            self.jobs = everyone

    def link_names(self) -> tuple[str, ...]:
        """Returns the names of the topology's links, by number; none without one."""
        return () if self.topology is None else tuple(self.topology.link_names())

    def links_of(self, job: Job) -> set[int]:
        """Returns the numbers of the links that a job with a tree uses, with the one to its parameter server."""
        if job.tree is None:
            return set()
        roots = self._roots() if self.program.needs_server else {}
        uplink = roots.get(job.tree.root)
        return {*job.tree.links, *(() if uplink is None else (uplink,))}

    def missing(self, switch: str, ask: bool = False) -> list[str]:
        """Returns jobs whose own entries at ``switch`` are absent or different, or were so when it was last repaired: it was
        restarted, or another controller wrote it. Raises what its target raises; ``ask``: reads a switch without jobs, too."""
        jobs = self._at(switch)
        if not jobs and not ask:
            return []
        entries = self.targets[switch].read([TableEntry(self.program.tables[0])])
        self._learn(entries)
        names = {job.name for job in self._lacking(switch, entries)}
        return [job.name for job in jobs if job.name in names or (switch, job.incarnation) in self.forgotten]

    def _lacking(self, switch: str, entries: Sequence[Entity]) -> list[Job]:
        """Returns the jobs at ``switch`` whose own entry is not among its ``entries``."""
        return [job for job in self._at(switch) if absent(entries, self.program.job(job.place(job.branches[switch]))[:1])]

    def survey(self) -> None:
        """Reads all switches before any is written: their entries are unknown, and lives and incarnations in them must not be
        given again. Switches that do not answer are read before they are used."""
        self.unsure = set(self.targets)
        for switch in self.targets:
            with suppress(*REFUSED):
                self.missing(switch, ask=True)

    def _learn(self, entries: Sequence[Entity]) -> None:
        """Marks lives and incarnations of other jobs in a switch's entries as used, so that they are not given again."""
        incarnations = {job.incarnation for job in self.jobs.values()}
        for entry in entries:
            if (other := self.program.identity(entry)) is not None and other.incarnation not in incarnations:
                self.lives.use(other.number, other.life)
                self.incarnations.take(other.incarnation)

    def repair(self, switch: str) -> int:
        """Writes the entries that ``switch`` should hold; returns how many differed. Raises what its target raises."""
        expected = [entry for job in self._at(switch) for entry in self._entries(job, job.branches[switch])]

        def learn(entries: list[Entity]) -> None:
            self._learn(entries)
            self.forgotten |= {(switch, job.incarnation) for job in self._lacking(switch, entries)}

        updates = repair(self.targets[switch], self.program, expected, learn)
        self.unsure.discard(switch)
        return len(updates)

    def snapshot(self) -> dict[str, Any]:
        """Returns ``restore``'s argument, in JSON's terms."""
        return {"lives": self.lives.snapshot(), "last_number": self._last_number,
                "jobs": [job_to_json(job) for job in self.jobs.values()]}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Restores jobs and lives from ``snapshot``, but no other incarnations. No switch is written: all are ``unsure``, until
        they are repaired.

        Raises StateError: jobs are at switches that this controller does not have, or it is no snapshot.
        """
        try:
            jobs = [job_from_json(data) for data in snapshot["jobs"]]
            for job in jobs:
                job.addresses = job.addresses or self._addresses(job)
            last_number, lives = int(snapshot["last_number"]), snapshot["lives"]
            self.lives.restore(lives)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"not a controller's jobs and lives: {described(error)}") from error
        for job in jobs:
            if unknown := set(job.branches) - set(self.targets):
                raise StateError(f"job {job.name!r} is at switch {sorted(unknown)[0]}, which this controller does not drive "
                                 f"(it has {', '.join(self.targets)})")
        self.jobs = {job.name: job for job in jobs}
        self._last_number = last_number
        for job in jobs:
            self.incarnations.take(job.incarnation)
        self.unsure = set(self.targets)

    # ---- resources

    def _server(self, name: str, root: str) -> Parent | None:
        """Returns the parent of the root of a job's tree."""
        if not self.program.needs_server:
            return None
        if root not in self.servers:
            raise AdmissionError("switch", f"job {name!r}: the protocol {self.program.name!r} needs a parameter server at "
                                           f"{root}, and there is none; start one (ina ps)")
        return self.servers[root]

    def _check(self, name: str, workers: int, slots: int) -> None:
        if name in self.jobs:
            raise AdmissionError("duplicate", f"job {name!r} is already running; choose another name or release it")
        most = self.program.max_workers
        if not 1 <= workers <= most:
            own = "" if most == type(self.program).max_workers else \
                ", as the program of this switch states (@ina_program: workers); compile it for more"
            raise AdmissionError("too_many_workers",
                                 f"job {name!r} has {workers} workers; a switch job takes 1 to {most}{own}")
        if slots < 1 or slots & (slots - 1) or slots > self.program.max_slots:
            raise AdmissionError("invalid", f"job {name!r} asks for {slots} slots; expected a power of two "
                                            f"from 1 to {self.program.max_slots}")

    def _check_words(self, name: str, check: str) -> str:
        """Returns how the job's check words are made. Raises AdmissionError: its protocol has none of that kind."""
        if not check:
            return protocols.default_check(self.program.name)
        try:
            protocols.check_check(self.program.name, check)
        except ValueError as error:
            raise AdmissionError("invalid", f"job {name!r}: {error}") from None
        return check

    def _check_children(self, name: str, switch: str, children: int) -> None:
        most = self.program.max_children
        if children > most:
            raise AdmissionError("too_many_workers", f"job {name!r} has {children} children at {switch}, workers or switches; a "
                                                     f"switch adds up at most {most}; spread them over a tree of more switches")

    def _reserve(self, name: str, switch: str, slots: int) -> int:
        """Returns the lowest free range."""
        if free := self._ranges(switch, slots):
            return free[0]
        jobs = self._at(switch)
        held = ", ".join(f"{job.name}: {job.slots}" for job in jobs[:SHOWN]) or "none"
        if len(jobs) > SHOWN:
            held += f", and {sum(job.slots for job in jobs[SHOWN:])} by {len(jobs) - SHOWN} more jobs"
        raise AdmissionError("full", f"job {name!r} asks for {slots} slots, but no range of that size is free in "
                                     f"the pool of {self.slots[switch]} at {switch} (held: {held}); end a job, ask for fewer "
                                     "slots, or compile the program with a larger SLOTS")

    def _ranges(self, switch: str, slots: int) -> list[int]:
        """Returns the starts of free ranges, aligned to their size (so ranges of powers of two never fragment needlessly)."""
        if not self.program.reserves:
            return [0]
        held = [(job.branches[switch].slot_base, job.branches[switch].slot_base + job.slots) for job in self._at(switch)]
        bases = range(0, self.slots[switch] - slots + 1, slots)
        return [base for base in bases if all(base >= end or base + slots <= start for start, end in held)]

    def _at(self, switch: str) -> list[Job]:
        return [job for job in self.jobs.values() if switch in job.branches]

    def _number(self, name: str, part: Part | None) -> int:
        """Returns a free number in round-robin order, so that reuse is as late as possible: late packets of its old job die out;
        or that which the switch process above has given. Raises AdmissionError."""
        numbers, most = {job.number for job in self.jobs.values()}, self.program.max_jobs
        if part and part.above:
            if part.above.number in numbers:
                raise AdmissionError("full", f"job {name!r} has number {part.above.number} at the switch process above, which "
                                             "another job has here: this process and the one above disagree on their levels; "
                                             "begin the job again when that one is over")
            return part.above.number
        order = ((self._last_number + 1 + i) % most for i in range(most))
        for number in order:
            if number not in numbers and (part is None or part.takes(number)):
                return number
        some = "" if part is None or all(map(part.takes, range(most))) else ", of those for jobs of this level of a tree"
        raise AdmissionError("full", f"job {name!r}: all {most} job numbers are in use{some}; end a job")

    # ---- trees

    def _plant(self, job: Job, tree: Tree, hosts: tuple[str, ...]) -> None:
        """Makes the branches of ``job`` at every switch of ``tree``."""
        title = f"job {job.name!r}"
        if not job.strict:
            raise AdmissionError("invalid", f"{title}: published clients (strict=False) are served by one switch, without a tree")
        if sorted(hosts) != sorted(tree.workers) or len(hosts) != job.workers:
            raise AdmissionError("invalid", f"{title}: {job.workers} workers at {', '.join(hosts)}, but the tree reaches "
                                            f"{', '.join(tree.workers)}; expected one worker at each of them")
        for switch in tree.switches:
            if switch not in self.targets:
                raise AdmissionError("switch", f"{title}: its tree goes through {switch}, which this controller does not drive "
                                               f"(it has {', '.join(self.targets)})")
        below: dict[str, set[int]] = {switch: set() for switch in tree.switches}
        for worker, host in enumerate(hosts):
            for switch in tree.path(host)[1:]:
                below[switch].add(worker)
        if not self.program.trees and len(tree.switches) > 1:
            raise AdmissionError("invalid", f"{title}: the protocol {self.program.title} adds up at one switch, but the tree of "
                                            f"its workers goes over {', '.join(tree.switches)}; expected workers at one switch")
        job.hosts = hosts
        numbers = {host: worker for worker, host in enumerate(hosts)}
        for switch in tree.switches:
            children = tree.children(switch)
            self._check_children(job.name, switch, len(children))
            if switch == tree.root:
                parent = self._server(job.name, switch)
            else:
                own_port, _ = self._ends(tree, switch)
                parent = Parent(own_port, self._address(tree.parent[switch]), self._address(switch))
            branch = Branch(switch, self._reserve(job.name, switch, job.slots),
                            tuple(numbers.get(child, child) for child in children), tuple(sorted(below[switch])), parent)
            for seat, child in enumerate(children):
                if child not in numbers:
                    _, port = self._ends(tree, child)
                    branch.attached[seat] = Child(seat, port, self._address(child), tuple(sorted(below[child])))
            job.branches[switch] = branch

    def _network(self) -> Topology:
        if self.topology is None:
            raise AdmissionError("invalid", "a job with a tree needs a controller that knows the topology")
        return self.topology

    def _roots(self) -> dict[str, int | None]:
        """Returns the switches with a parameter server, and the numbers of their links to it; None: it is in no topology."""
        hops = self._network().hops
        return {switch: next((hop.link for hop in hops[switch] if hop.port == server.port), None)
                for switch, server in self.servers.items()}

    def _ends(self, tree: Tree, node: str) -> tuple[int, int]:
        """Returns the port numbers of the link from ``node`` to its parent: at the node, at the parent."""
        topology = self._network()
        parent, link = tree.parent[node], dict(zip(tree.parent, tree.links, strict=True))[node]
        if link < len(topology.ends):
            for near, far in (topology.ends[link], topology.ends[link][::-1]):
                if (near.node, far.node) == (node, parent):
                    return near.port, far.port
        raise AdmissionError("invalid", f"the tree's link {link} is not between {node} and {parent} in {topology.name}: it "
                                        "belongs to another topology")

    def _address(self, switch: str) -> Address:
        node = self._network().by_name[switch]
        return Address(node.mac, node.ip, self.program.udp_port)

    def _addresses(self, job: Job) -> tuple[Address, ...]:
        return addresses(job.number, job.workers, [self._network().by_name[host] for host in job.hosts])

    # ---- entries

    def _entries(self, job: Job, branch: Branch) -> list[Entity]:
        """Returns all present entries of the job at this switch."""
        return entries_of(self.program, job.place(branch), branch.children)

    def _change_children(self, job: Job, branch: Branch, attached: dict[int, Child]) -> None:
        place, before = job.place(branch), branch.attached

        def updates(old: dict[int, Child], new: dict[int, Child]) -> list[Update]:
            old_entries = [e for i, child in old.items() if i not in new for e in self.program.child(place, child)]
            new_entries = [e for i, child in new.items() if i not in old for e in self.program.child(place, child)]
            return [*delete(*old_entries), *insert(*new_entries), *modify(self.program.group(place, [*new.values()]))]

        self._write([Change(branch.switch, updates(before, attached), updates(attached, before))])
        branch.attached = attached

    def _repair_unsure(self, switches: Iterable[str]) -> None:
        """Repairs those of ``switches`` whose entries are unknown. Raises AdmissionError."""
        for switch in self.unsure.intersection(switches):
            try:
                self.repair(switch)
            except REFUSED as error:
                raise AdmissionError("switch", f"switch {switch}: {error}") from error

    def _write(self, changes: list[Change]) -> None:
        self._repair_unsure(change.switch for change in changes)
        try:
            write(self.targets, changes)
        except WriteFailed as error:
            self.unsure |= error.unsure
            if isinstance(error.reason, EntityError):  # it answers, so its entries can be read
                for switch in error.unsure:
                    with suppress(*REFUSED):
                        self.repair(switch)
            raise AdmissionError("switch", str(error)) from error
