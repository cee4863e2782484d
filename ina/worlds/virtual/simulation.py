"""Kills, restarts and lost memory in virtual time, from seeds, as FoundationDB's and TigerBeetle's simulators do it.

    report = Simulation(program, seed=17).run(events=50_000)
    assert report.violation is None, report

A protocol's compiled program, its C workers, its parameter server, and the real controller over a small network whose wires
lose, duplicate and reorder frames. After any event any of them may end and come back: a switch without its registers and entries,
a worker without its state, a parameter server without its jobs, or without their sums, the controller with its latest state, an
older one, or none, also in the middle of a write, which a switch has then applied whole, in part, or not at all. Links are cut,
flap, or become slow, both ways or one; a job whose tree has one that the controller knows to be down is moved to another tree.
Jobs are all-reduces without an end (applications.py); when a part of a job is lost it begins anew, as another job of its name.
Checked:

- no wrong sum: every life of a job has data of its own, so that a contribution from elsewhere, or a second one, shows; with even
  seeds also where no check words catch it; most lives begin near a wrap of packets' numbers;
- no entry that the controller does not know of, at a switch of which it is sure; no job that only the parameter server serves; no
  slots, and no aggregators, that are held by nobody;
- no route and no tree over a link that the controller knows to be down; no job that was moved with the incarnation that it had;
- no stuck job: one that no fault hinders after it began makes progress, and all do when all is up again and stays up. Some lives
  are spared until their first sum, since with a fault every few milliseconds nothing is stuck for long;
- an end: so many more events are none, in which jobs only repeat frames.

Each violation names its seed, with which the run repeats to the event.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np

from ina.aggregation import protocols
from ina.aggregation.controller.admission import AdmissionError, Controller, Job
from ina.aggregation.controller.ps_client import ServerGone
from ina.aggregation.controller.reconcile import repair
from ina.aggregation.controller.transaction import REFUSED
from ina.aggregation.entries import program_named
from ina.base.plurals import counted
from ina.net.ports import PS, Faults
from ina.topology import Topology, load
from ina.worlds.virtual.applications import VALUES, Application, Violation, applied_reductions
from ina.worlds.virtual.control_plane import Calls, Fate, Killed, ServerProcess, SimulatedTarget
from ina.worlds.virtual.fabric import Fabric, Source
from ina.worlds.virtual.leaks import check_server, check_slots, check_switch
from ina.worlds.virtual.link_faults import LinkFaults, check_routes
from ina.worlds.virtual.offering_applications import Offering

__all__ = ["Report", "Simulation", "macros"]

POOL = 8  # slots of a switch: few, so that all are used again soon
AGGREGATORS = 2  # of a switch where jobs share them: late packets of another life, whose index differs, often share one
RATE, DELAY = 10e9, 1e-6
LATE = 0.8e-3  # s that a duplicate comes late, at most
LIFETIME = round(1e-3 * PS)  # ps: no packet is under way for longer
ENDLESS = round(0.3 * PS)  # ps that aggregators are believed where jobs get on without: longer than a worker waits (TIMEOUT)
SPARED = 0.3  # of the lives: nothing fails until their first sum
YOUNG = 0.5  # of the others: a worker ends soon, and the next life meets what is still under way
PATIENCE = round(10e-3 * PS)  # ps without a sum after which a hindered job is given up
QUIET = round(0.4 * PS)  # ps within which every job makes progress, when nothing fails any more
LAGGING = 0.5  # of all lives: workers begin one after the other, and late packets of an earlier life come before theirs
GOAL = 5  # tensors that count as progress
SETTLING = 300_000  # events without a fault within which a run ends: a few thousand, unless frames breed frames
NEVER = 2**63  # ps


@dataclass(frozen=True)
class Report:
    """One run. ``events``: of the emulator; ``tensors``: results that were checked; ``faults``: numbers of faults by
    kind; ``violation``: None, or what went wrong, and ``story`` has the last actions before."""

    seed: int
    events: int
    tensors: int
    faults: dict[str, int]
    violation: str | None = None
    story: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.violation is None:
            return f"seed {self.seed}: {counted(self.events, 'event')}, {counted(self.tensors, 'sum')}"
        return "\n".join((f"seed {self.seed}: {self.violation}", *(f"  {step}" for step in self.story)))


def macros(protocol: str) -> dict[str, str]:
    """Returns the macros with which a program of ``protocol`` is compiled."""
    rows = POOL if program_named(protocol).reserves else AGGREGATORS
    return {"VALUES": str(VALUES), "SLOTS": str(rows)}


class Simulation:
    """One run from one seed. ``program``: that of ``protocol``, compiled with its ``macros``. Jobs of a protocol without trees
    are at one switch. ValueError: the protocol's results cannot be told right from wrong."""

    def __init__(self, program: Source, seed: int, protocol: str = protocols.DEFAULT):
        self.seed, self.chance = seed, random.Random(seed)
        self.check = "" if seed % 2 else "off"  # workers drop what check words find: a wrong program would only be slow
        chance, self.protocol = self.chance, copy(program_named(protocol))
        loss = chance.choice((0, 0.001, 0.02, 0.15))
        faults = Faults(loss, chance.choice((0, 0.01, 0.1, 0.4)), chance.choice((0, 0.01, 0.1)), 0, LATE, 100e-6, seed)
        if self.protocol.lifetime:
            short = chance.uniform(2, 6) * LIFETIME / PS
            self.protocol.lifetime = chance.choice((short, short, ENDLESS / PS))
        self.topology = self._network()
        self.fabric = Fabric(program, self.topology, pool=POOL, protocol=protocol, faults=faults, seed=seed, max_frame=512)
        self.fabric.stop_at_completions()
        self.targets = {name: SimulatedTarget(name, switch, self._fate_of_write)
                        for name, switch in self.fabric.switch_at.items()}
        self.states: list[str] = []  # saved ones, the latest last
        self.pace = chance.choice((10, 60, 300))  # events between two chances of a fault, at most
        self.faults: Counter[str] = Counter()
        self.story: list[str] = []
        self._clock, self.quiet_until, self.settling, self._settled = 0, 0, False, 0
        self._returns: list[tuple[int, Callable[..., None], tuple[object, ...]]] = []  # ps, what happens then, to what
        self.links = LinkFaults(self.fabric, chance, lambda node: node not in self.targets or self.targets[node].up)
        self.known_down: set[int] = set()  # links that the controller knows to be down
        self.controller: Controller | None = None
        self.calls: Calls | None = None  # the controller's, to the parameter server
        self.servers: list[ServerProcess] = []  # those that are up
        self.applications = self._applications()
        self.protocol.max_jobs = len(self.applications) + chance.choice((0, 0, 1))  # few numbers: soon used again
        self._start_controller("with nothing")
        if self.protocol.needs_server:
            self._start_server()

    def _network(self) -> Topology:
        hosts, spare = self.chance.choice((2, 3)), self.protocol.needs_server  # for parameter servers: two hosts
        if self.chance.random() < 0.4 or not self.protocol.trees:
            return load("star", hosts=2 * (hosts + spare), rate=RATE, delay=DELAY, queue=0)
        return load("leaf-spine", leaves=2, spines=2, hosts=hosts + spare, rate=RATE, delay=DELAY, queue=0)

    def _applications(self) -> list[Application]:
        chance, hosts = self.chance, [host.name for host in self.topology.hosts]
        every = len(hosts) // 2  # at a leaf
        self.free = [hosts[every - 1], hosts[-1]] if self.protocol.needs_server else []
        hosts = [host for host in hosts if host not in self.free]
        chance.shuffle(hosts)
        half = len(hosts) // 2
        groups = [hosts[:half], hosts[half:]] if chance.random() < 0.6 else [hosts]
        exponents = (None, 8) if self.protocol.floats else (None,)
        reductions = applied_reductions(self.protocol)
        dtypes = (np.int32, np.float32 if protocols.SUM in reductions else np.int32)
        kind = Offering if protocols.has_offers(self.protocol.name) else Application
        return [kind(f"job{i}", self.fabric, (self.seed, i), tuple(group), slots=chance.choice((1, 2, 4)),
                     elements=VALUES * chance.choice((1, 2, 3, chance.randint(4, 12))),
                     dtype=chance.choice(dtypes), exponent=chance.choice(exponents),
                     wraps=self.protocol.wraps(), reductions=reductions)
                for i, group in enumerate(groups)]

    # ---- time

    @property
    def now(self) -> int:
        return max(self.fabric.now, self._clock)

    def _later(self, least: float, most: float) -> int:
        return self.now + round(self.chance.uniform(least, most) * PS)

    def _return(self, least: float, most: float, action: Callable[..., None], *subject: object) -> None:
        self._returns.append((self._later(least, most), action, subject))

    def _record(self, text: str) -> None:
        self.story.append(f"{self.now / PS * 1e6:12.3f} us: {text}")
        del self.story[:-40]

    def run(self, events: int) -> Report:
        """Runs about so many events, and then until every job has made progress."""
        violation = None
        try:
            while self.fabric.events < events:
                self._round(self.chance.randint(1, self.pace))
                self._fail()
            self._settle()
        except Violation as error:
            violation = str(error)
        tensors = sum(application.results for application in self.applications)
        happened = sum((a.counts for a in self.applications if isinstance(a, Offering)), Counter(self.faults))
        return Report(self.seed, self.fabric.events, tensors, dict(sorted(happened.items())), violation,
                      tuple(self.story) if violation else ())

    def close(self) -> None:
        self.fabric.close()

    def _round(self, most: int) -> None:
        """Runs up to ``most`` events and handles completions, returns, and jobs that may begin."""
        due = min([a.due for a in self.applications if a.job is None] + [when for when, _, _ in self._returns]
                  + [self.now + LIFETIME])
        if self.fabric.run(max(self.now, due), most):
            self._clock = max(self.now, due)
        for completion in self.fabric.completions():
            for application in self.applications:
                if why := application.complete(completion, self.protocol, self.now):
                    self._end(application, why)
        for application in self.applications:
            if application.hindered and self.now - application.latest > PATIENCE:
                self._end(application, "it has not got on since something failed")
        for entry in [entry for entry in self._returns if entry[0] <= self.now]:
            self._returns.remove(entry)
            action, subject = entry[1:]
            action(*subject)
        try:
            idle = all(application.job is None for application in self.applications)
            if idle or self.chance.random() < 0.1:  # when no job runs, all may wait for this
                self._watch()
            for application in self.applications:
                if application.job is None and application.due <= self.now:
                    self._begin(application)
        except Killed:
            self._kill_controller()
        if self.chance.random() < 0.3:
            self._check_entries()

    def _settle(self) -> None:
        """Ends all faults; checks that every job makes progress, and that nothing leaks."""
        self._record("all comes back, and stays")
        self.settling, self._settled = True, self.fabric.events + SETTLING
        self._returns = [(min(when, self.now), action, subject) for when, action, subject in self._returns
                         if action != self._end_young_life]
        self._make_progress(self.applications)
        for application in self.applications:
            self._end(application, "it is done", NEVER)
        assert self.controller is not None  # it is back, and stays
        for name in self.targets:
            self.controller.repair(name)
        check_slots(self.controller, POOL)
        self._check_entries()
        if self.protocol.lifetime:
            self._check_pool()

    def _make_progress(self, applications: list[Application]) -> None:
        goal, began = {a.name: a.done + GOAL for a in applications}, self.now
        while late := [a for a in applications if a.done < goal[a.name]]:
            self._round(2000)
            state = f"runs as job {late[0].job.number}" if late[0].job else "has not begun"
            if self.fabric.events > self._settled:
                raise Violation(f"no end: {SETTLING:,} events without a fault, and {late[0].name} {state}; it has "
                                f"{GOAL - goal[late[0].name] + late[0].done} of {GOAL} results")
            if self.now - began > QUIET:
                raise Violation(f"stuck: {late[0].name} {state}; it has not got on for {QUIET / PS * 1e3:g} ms without a fault")

    # ---- faults

    def _fail(self) -> None:
        if self._nothing_fails():
            return
        served = self.protocol.needs_server
        kinds = {"nothing": 90, "switch": 3, "worker": 4, "controller": 4, "link": 4, "server": 3 * served, "sums": 3 * served}
        kind = self.chance.choices(list(kinds), list(kinds.values()))[0]
        alive = [(application, worker) for application in self.applications for worker in application.machines]
        up = [target for target in self.targets.values() if target.up]
        if kind == "switch" and up:
            self._kill_switch(self.chance.choice(up))
        elif kind == "worker" and alive:
            self._kill_worker(*self.chance.choice(alive))
        elif kind == "controller" and self.controller is not None:
            self._kill_controller()
        elif kind == "link":
            self._fail_link()
        elif kind == "server" and self.servers:
            self._kill_server(self.chance.choice(self.servers))
        elif kind == "sums" and self.servers:
            self._forget_sums(self.chance.choice(self.servers))

    def _nothing_fails(self) -> bool:
        return self.settling or any(application.spared for application in self.applications)

    def _hinder(self) -> None:
        for application in self.applications:
            application.hindered = True

    def _kill_switch(self, target: SimulatedTarget) -> None:
        """Ends a switch: it loses its queues, registers and entries; frames on its wires are lost, or delivered elsewhere."""
        self.faults["switches killed"] += 1
        self._record(f"{target.name} ends")
        target.up = False
        for application in self.applications:
            application.hindered |= application.job is not None and target.name in application.job.branches
        for link, side in self._ends(target.name):
            self.fabric.close_port(self.fabric.end(link, side))
        self._return(0, 3e-3, self._start_switch, target)

    def _fail_link(self) -> None:
        jobs = [application.job for application in self.applications if application.job is not None]
        used = {link for job in jobs if job.tree is not None for link in job.tree.links}
        what, link = self.links.begin(self.now, used)
        self.faults["links that are slow" if "slow" in what else "links cut"] += 1
        self._record(what)
        self._hinder()
        self._return(0, 3e-3, self._change_link, link)

    def _kill_worker(self, application: Application, worker: int) -> None:
        self.faults["workers killed"] += 1
        self._record(f"worker {worker} of {application.name} ends")
        application.hindered = True
        application.stop(worker)
        self._return(0, self.chance.choice((0.1e-3, 1e-3)), self._miss_worker, application)

    def _kill_controller(self) -> None:
        self.faults["controllers killed"] += 1
        self._record("the controller ends")
        if self.calls is not None and self.calls.session is not None:
            self.calls.session.hang_up()
        self.controller = self.calls = None
        self._hinder()
        self._return(0, 2e-3, self._start_controller, self.chance.choice(("latest", "latest", "older", "none")))

    def _kill_server(self, process: ServerProcess) -> None:
        self.faults["parameter servers killed"] += 1
        self._end_server(process)

    def _forget_sums(self, process: ServerProcess) -> None:
        """Makes a parameter server lose its sums, like one that is replaced by another with the same jobs."""
        self.faults["parameter servers' sums forgotten"] += 1
        self._record(f"the parameter server at {process.server.host} forgets its sums")
        process.server.forget()
        self._hinder()

    def _fate_of_write(self, target: SimulatedTarget, updates: int) -> tuple[Fate, int]:
        luck = 1.0 if self._nothing_fails() else self.chance.random()
        if luck >= 0.04:
            return Fate.WHOLE, updates
        applied = self.chance.randint(0, updates)
        if luck < 0.02:
            self.faults["killed in a write"] += 1
            return Fate.KILLED, applied
        self.faults["writes without an answer"] += 1
        self._record(f"{target.name} does not answer a write, of which it took {applied} of {updates} updates")
        return Fate.SILENT, applied

    def _fate_of_call(self, process: ServerProcess) -> tuple[Fate, bool]:
        luck = 1.0 if self._nothing_fails() else self.chance.random()
        if luck >= 0.04:
            return Fate.WHOLE, True
        fate = Fate.ENDED if luck < 0.02 else Fate.SILENT
        self.faults["calls without an answer"] += 1
        self._record(f"the parameter server at {process.server.host} does not answer a call")
        return fate, self.chance.random() < 0.5

    # ---- returns

    def _miss_worker(self, application: Application) -> None:
        if application.job is not None:
            self._end(application, "a worker was lost")

    def _end_young_life(self, application: Application) -> None:
        if application.machines:
            self._kill_worker(application, self.chance.choice(list(application.machines)))

    def _change_link(self, link: int) -> None:
        if self.links.go_on(link, self.now, heal=self._nothing_fails()):
            self._return(20e-6, 1e-3, self._change_link, link)
        state = "cut again" if link in self.links.down_since else "as it should be"
        self._record(f"{self.links.names[link]} is {state}")
        self._hinder()

    def _start_switch(self, target: SimulatedTarget) -> None:
        self._record(f"{target.name} is back, without memory")
        repair(target.switch, self.protocol, [], lambda _: None)
        target.forget()
        for link, side in self._ends(target.name):
            self.fabric.open_port(self.fabric.end(link, side), self.fabric.wire(link, side))
        target.up = True

    def _start_controller(self, state: str) -> None:
        """Starts a controller as ``ina controller`` does (ina/aggregation/controller/failures.py)."""
        self._record(f"a controller begins, state: {state}")
        controller = Controller(dict(self.targets), POOL, protocol=self.protocol, topology=self.topology,
                                chance=random.Random(self.chance.getrandbits(32)))
        if self.states and state in ("latest", "older"):
            place = -1 if state == "latest" else self.chance.randrange(len(self.states))
            controller.restore(json.loads(self.states[place]))
            if state == "older":
                self.faults["older states"] += 1
        elif self.states:
            self.faults["lost states"] += 1
        self.controller = self.fabric.controller = controller
        self.known_down.clear()
        self.calls = Calls(controller, VALUES)
        self.quiet_until = self.now + LIFETIME if self.states else 0
        try:
            controller.survey()
            incarnations = {a.name: a.job.incarnation for a in self.applications if a.job is not None}
            for name, job in list(controller.jobs.items()):  # those whose workers do not come back, or whose server has ended
                if incarnations.get(name) != job.incarnation or self.protocol.needs_server:
                    controller.release(name)
            for application in self.applications:
                if application.job is not None and application.name not in controller.jobs:
                    self._end(application, "its controller does not know it")
            self._save(controller)
        except Killed:
            self._kill_controller()

    def _start_server(self) -> None:
        """Starts a parameter server at a host without one; an earlier one may not have noticed yet that its connection is
        closed."""
        hosts = [host for host in self.free if all(process.server.host != host for process in self.servers)]
        if not hosts:
            self._return(0, 0.3e-3, self._start_server)
            return
        process = ServerProcess(self.fabric, self.chance.choice(hosts), self._fate_of_call, self._hang_up)
        self._record(f"a parameter server begins at {process.server.host}")
        self.servers.append(process)
        self._connect(process)

    def _connect(self, process: ServerProcess) -> None:
        if not process.up:
            return
        try:
            if self.calls is None:
                raise AdmissionError("unreachable", "nobody listens")
            self.calls.connect(process)
        except AdmissionError:  # or the switch process has not noticed yet that the last one is gone
            self._return(0, 0.3e-3, self._connect, process)

    def _hang_up(self, process: ServerProcess) -> None:
        """Handles a connection that the switch process, or its end, has closed: both ends notice that a little later."""
        self._record(f"the parameter server at {process.server.host} is hung up on")
        self._return(0, 1e-3, self._end_server, process)

    def _end_server(self, process: ServerProcess) -> None:
        process.end()
        if process not in self.servers:
            return
        self._record(f"the parameter server at {process.server.host} has ended")
        self.servers.remove(process)
        self._hinder()
        self._return(0, 0.3e-3, self._end_connection, process)
        self._return(0, 3e-3, self._start_server)

    def _end_connection(self, process: ServerProcess) -> None:
        if self.calls is not None and self.calls.session is process:
            self._lose_server(self.calls)

    def _ends(self, switch: str) -> list[tuple[int, int]]:
        """Returns the links of a switch, and the side that it is on."""
        return [(link, side) for link, pair in enumerate(self.topology.ends) for side in (0, 1) if pair[side].node == switch]

    # ---- what the controller's process does

    def _save(self, controller: Controller) -> None:
        self.states.append(json.dumps(controller.snapshot()))
        del self.states[:-20]

    def _watch(self) -> None:
        """Checks that one switch answers, and has its jobs' entries."""
        controller = self.controller
        if controller is None:
            return
        name = self.chance.choice(list(self.targets))
        try:
            lost = controller.missing(name, ask=True)
            if lost or name in controller.down or name in controller.unsure:
                controller.repair(name)
            controller.down.pop(name, None)
        except REFUSED as error:
            controller.down[name] = str(error)
            lost = [job.name for job in controller.jobs.values() if name in job.branches]
        for application in self.applications:
            if application.name in lost:
                self._end(application, f"{name} was lost")
        self._watch_links(controller)

    def _watch_links(self, controller: Controller) -> None:
        """Notices links that have been down for some time, or are up again; moves jobs to trees without them."""
        before, self.known_down = self.known_down, self.links.noticed(self.now)
        if before == self.known_down:
            return
        controller.down_links = {self.links.names[link]: "its probes are not answered" for link in self.known_down}
        self._record(f"the controller knows to be down: {', '.join(controller.down_links) or 'no link'}")
        check_routes(self.topology, self.known_down)
        for application in self.applications:
            job = application.job
            if job is None or application.name not in controller.jobs or not self.known_down & controller.links_of(job):
                continue
            if self.protocol.needs_server:
                self._end(application, "a link of its tree is down")
            else:
                self._move(application, controller, job)

    def _move(self, application: Application, controller: Controller, old: Job) -> None:
        """Moves a job to another tree, if there is one, as ina/aggregation/controller/failures.py does."""
        try:
            controller.alternative(application.name)
        except AdmissionError:
            return
        try:
            job = controller.move(application.name)
            for worker in range(job.workers):
                controller.attach(job, worker)
                self._save(controller)
        except AdmissionError as error:
            self._end(application, f"it cannot be moved: {error}")
            return
        self.faults["jobs moved"] += 1
        if job.incarnation == old.incarnation:
            raise Violation(f"{application.name} was moved with the incarnation that it had, {old.incarnation:08x}")
        self._check_tree(controller, job)
        self._record(f"{application.name} goes on as job {job.number}, life {job.life}, incarnation {job.incarnation:08x}, "
                     f"at {', '.join(job.branches)}")
        for worker in list(application.machines):
            application.stop(worker)
        application.begin(job, spared=False, starts=[self.now] * job.workers)
        application.hindered = True

    def _check_tree(self, controller: Controller, job: Job) -> None:
        if over := self.known_down & controller.links_of(job):
            names = ", ".join(self.links.names[link] for link in over)
            raise Violation(f"a tree over what is down: {job.name}'s has {names}")

    def _lose_server(self, calls: Calls) -> None:
        """Ends every job that the parameter server served, as ina/aggregation/controller/api.py does."""
        calls.lost()
        for application in self.applications:
            if application.job is not None:
                self._end(application, "the parameter server is lost")

    def _begin(self, application: Application) -> None:
        """Begins another life of its job, if all that it needs is up."""
        controller, calls, name = self.controller, self.calls, application.name
        application.due = self._later(20e-6, 200e-6)
        if controller is None or calls is None or self.now < self.quiet_until:
            application.due = max(application.due, self.quiet_until)
            return
        try:
            self._release(name)
            (tree,) = controller.place(name, application.hosts, application.slots)
            job = controller.admit(name, len(application.hosts), application.slots, tree=tree, hosts=application.hosts,
                                   check=self.check)
            calls.add(job)
            self._save(controller)
            for worker in range(job.workers):
                controller.attach(job, worker)
                self._save(controller)
        except (AdmissionError, ServerGone):
            self.faults["refused admissions"] += 1
            application.due = self._later(0.1e-3, 0.5e-3)
            return
        self._check_tree(controller, job)
        self.faults["lives"] += 1
        lag = LIFETIME if self.chance.random() < LAGGING else 0
        starts = [self.now + self.chance.randint(0, lag) for _ in range(job.workers)]
        application.begin(job, self.chance.random() < SPARED, starts)
        self._record(f"{name} begins as job {job.number}, life {job.life}, incarnation {job.incarnation:08x}, packet "
                     f"{application.first_packet}, at {', '.join(job.branches)}")
        if not self._nothing_fails() and self.chance.random() < YOUNG:
            late = (max(starts) - self.now) / PS
            self._return(late, late + 0.1e-3, self._end_young_life, application)
        application.hindered |= bool(self.links.down_since)

    def _release(self, name: str) -> None:
        """Releases a job that is over, as ina/aggregation/controller/api.py does."""
        if self.controller is not None and self.calls is not None and name in self.controller.jobs:
            number = self.controller.jobs[name].number
            self.controller.release(name)
            self.calls.remove(number)
            self._save(self.controller)

    def _end(self, application: Application, why: str, due: int = 0) -> None:
        """Ends its workers, and the job, unless there is no controller."""
        if application.job is None:
            return
        self._record(f"{application.name} ends: {why}")
        application.end(due or self._later(0, 100e-6))
        try:
            self._release(application.name)
        except Killed:
            self._kill_controller()

    # ---- leaks

    def _check_entries(self) -> None:
        if self.controller is None or self.calls is None:
            return
        for target in self.targets.values():
            check_switch(target, self.controller, self.protocol)
        for process in self.servers:
            if process.is_called and self.calls.session is process:
                check_server(process, self.controller)

    def _check_pool(self) -> None:
        """Checks that a job which is alone finds free aggregators when nobody has used them for their lifetime: unless its own
        older packets, duplicated or delayed on wires, or sent again, arrive when the next number is there."""
        faults = self.fabric.faults
        if faults.duplicate > 0.01 or faults.reorder > 0.01 or faults.loss > 0.02:
            return
        for application in self.applications:
            self._clock = self.now + LIFETIME + round(self.protocol.lifetime * PS)
            application.due = self.now
            self._make_progress([application])
            collided, results = application.collided()
            if application.slots <= AGGREGATORS and 2 * collided > results:  # a wider window collides with itself
                raise Violation(f"leaked aggregators: {application.name} is alone, and {collided} of its {results} packets have "
                                "found theirs taken")
            self._end(application, "it is done", NEVER)
