"""A run of asynchronous training: all workers, driven by the network's events."""

from __future__ import annotations

import numpy as np

from ina.aggregation.worker.offer import Offer
from ina.lab.virtual import virtual_network
from ina.lab.virtual.asynchronous.keys import TASKS, AsynchronousKeys
from ina.lab.virtual.asynchronous.worker import Update, Worker
from ina.lab.virtual.client_tiers import Rounds
from ina.lab.virtual.client_tiers import weight as weight_of_late
from ina.lab.virtual.judge import Judge
from ina.lab.virtual.learning import Task
from ina.lab.virtual.masks import Masks, parts, whole
from ina.lab.virtual.methods import batches, further
from ina.lab.virtual.semi_asynchronous import factor, participants
from ina.lab.virtual.shared_masks import SharedMasks
from ina.lab.virtual.straggling import Lookout
from ina.net.ports import PS
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.network import Completion

SMOOTHING = 0.1  # weight of the latest compute time in a worker's mean, from which its speed follows
FASTEST = 1e-3  # least mean, in means of all: nobody is taken for more than a thousand times faster


class Run:
    """All workers, driven by the network's events."""

    def __init__(self, config: AsynchronousKeys, network: Fabric, job: FabricJob):
        self.config, self.network, self.job = config, network, job
        self.ahead = config.way.ahead(config.terms)
        self.task = TASKS[config.task].make(config)
        first = self.task.initial()
        self.workers = [
            Worker(number, np.random.default_rng((config.seed, 3, number)), np.random.default_rng((config.seed, 4, number)),
                    first, np.zeros_like(first), np.zeros(config.workers, int), [[0.0] for _ in range(config.workers)],
                    config.workers * [config.batch])
            for number in range(config.workers)]
        for number, bound in enumerate(config.way.bounds(config.terms)):
            self.workers[number].bound = bound
        self.judge = Judge(config.method, config.workers, config.enough, config.protocol, config.together,
                           config.way.bounds(config.terms))
        self.scores = [(0.0, 0, self.task.score(first))]
        self.updates = self.dropped = self.waited = 0
        self.length = self.task.parameters + config.reported  # of a sum
        self.lookout = Lookout(config) if config.way.leaves_out else None
        self.released = -1  # nurd: latest sum that does not wait for all
        self.masks: Masks | SharedMasks = Masks(config.seed, config.workers)
        if config.shares:
            self.masks = SharedMasks(config.seed, config.workers, config.shares)
        self._numbers = {machine: number for number, machine in enumerate(job.machines)}
        if config.way.selects:
            for worker in self.workers:
                worker.rounds = Rounds(config.workers, config.terms.chosen, config.updates / config.local, config.seed)
                self._select(worker, worker.rounds)

    @property
    def over(self) -> bool:
        return self.updates * self.config.local >= self.config.updates

    def go_on(self, worker: Worker) -> None:
        """Does what the worker can do now: takes part in sums, offers its update, computes."""
        config = self.config
        while worker.announced <= worker.version + config.ahead:
            out = np.empty(self._length(worker.announced), np.int32 if config.masked else np.float32)
            worker.outs[worker.announced] = out
            least = worker.leasts.pop(worker.announced, config.enough)
            self.judge.expect(worker.announced, worker.number, least)
            ticket = self.network.submit(self.job.machines[worker.number], None, out, tag=worker.announced,
                                         offer=Offer(least, self._rivals(worker.number)))
            worker.tickets[ticket] = worker.announced
            worker.announced += 1
        while worker.ready and not worker.offered:
            self._offer(worker, worker.ready.popleft())
        if not (worker.computing or worker.ready or config.way.waits and worker.offered) and self._may_begin(worker):
            self._compute(worker)
        elif not worker.computing and worker.idle is None:
            worker.idle = self.network.now

    def _length(self, number: int) -> int:
        """Returns how many values a sum has."""
        config = self.config
        if config.way.layered and number % config.loop < config.loop - config.deep:
            return self.task.deep
        return self.length

    def _rivals(self, worker: int) -> list[int]:
        """Returns those that compute the same as a worker."""
        first = worker - worker % self.config.together
        return [each for each in range(first, first + self.config.together) if each != worker]

    def _offer(self, worker: Worker, update: Update) -> None:
        """Offers an update to the first sum that the worker does not know to be over; or drops it: it would be too stale."""
        number = next(each for each in range(worker.version, worker.announced) if each not in worker.arrived)
        stale = number - update.version
        drops = self.config.way.selects or not self.config.way.waits  # others wait, and are never too late
        if drops and worker.bound and stale > worker.bound.now:
            self.judge.refuse(number, worker.number, update.version)
            worker.bound.refuse()
            self.dropped += 1
            return
        weight = {"none": 1.0, "inverse": 1 / max(1, stale), "exponential": (np.e / 2) ** -stale}[self.config.damping]
        if self.config.way.foresees:
            weight *= worker.trend.weight(stale)
        if self.config.way.selects:
            weight *= weight_of_late(update.version, number)
        values, plain = np.ascontiguousarray(self._layers(worker, number, update) * np.float32(weight)), None
        if self.config.way.foresees or self.config.way.selects:
            values = self._with_note(worker, values, update.note, stale)
        if self.config.masked:
            plain = whole(values, self.config.workers)
            values = self.masks.cover(worker.number, number, plain)
        self.judge.offer(number, worker.number, update.version, values, plain)
        worker.offered = number, update
        self.network.amend(worker.ticket_of(number), values)
        if self.lookout:
            self._leave_out(self.lookout, number)

    def _leave_out(self, lookout: Lookout, number: int) -> None:
        """Has a sum be complete with those that have offered, if all others are predicted to straggle; from half of them on."""
        given = [each for each in self.workers if each.offered and each.offered[0] == number]
        rest = {each.number: each.running for each in self.workers if each.computing and each.version == number and each.running}
        early = len(given) + len(rest) < self.config.workers or 2 * len(given) < self.config.workers
        if number > self.released and not early and lookout.all_straggle(number, rest):
            self.released = number
            self.judge.lower(number, len(given))
            for each in given:
                self.network.amend(each.ticket_of(number), least=len(given))

    def _layers(self, worker: Worker, number: int, update: Update) -> np.ndarray:
        """Returns those values of an update that a sum has: with deep layers, if it has any, all that they have changed since
        they were shared."""
        if worker.drift is None:
            return update.values
        return np.concatenate([update.values[: self.task.deep], worker.drift])[: self._length(number)]

    def _may_begin(self, worker: Worker) -> bool:
        """Tells whether the worker is not too far ahead of the slowest, and chosen where not all are."""
        config, ahead = self.config, int(worker.clocks[worker.number] - worker.clocks.min())
        if worker.rounds is not None:
            return worker.number in worker.rounds.chosen
        if self.ahead is None or ahead <= config.bound:
            worker.allowed = None
            return True
        if worker.allowed is None:
            own, slowest = worker.pushes[worker.number], worker.pushes[int(np.argmin(worker.clocks))]
            worker.allowed = further(own, slowest, self.ahead - config.bound) if config.way.predicts else 0
        worker.allowed -= 1
        return worker.allowed >= 0

    def _compute(self, worker: Worker) -> None:
        config = self.config
        self.waited += self.network.now - (self.network.now if worker.idle is None else worker.idle)
        worker.idle, worker.computing = None, True
        self.judge.begin(worker.version, worker.number)
        size = worker.sizes[worker.number]
        seconds = size / config.batch * config.seconds(worker.number, worker.times, config.local)
        if self.lookout:
            worker.running = self.lookout.begin(seconds)
        version, begin = worker.version, worker.parameters
        if worker.own is not None and worker.computed % config.fetch:
            version, begin = worker.own
        if worker.drift is not None:
            begin = np.concatenate([begin[: self.task.deep], begin[self.task.deep :] - worker.drift])
        rate = config.rate_at(int(worker.clocks.sum()) * config.local)
        if config.way.adapts:
            rate *= factor(worker.clocks, worker.number)
        piece, data = worker.number // config.together, worker.data
        if config.way.backups:
            data = np.random.default_rng((config.seed, 4, piece, version))
        note = seconds
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is looked at
            if config.way.foresees and isinstance(self.task, Task):
                note = self.task.loss(begin, piece, data, size)
            values = self.task.update(begin, piece, data, size, rate, config.local)
        self._check_bounded(values, worker, "", rate)
        self._check_bounded(np.array([note]), worker, "the loss before ", rate)
        if config.way.keeps:
            worker.own = version, begin - values
        if config.way.layered:
            deep = values[self.task.deep :]
            worker.drift = deep if worker.drift is None else worker.drift + deep
            self._check_bounded(worker.drift, worker, "the change of the deep layers up to ", rate)
        if config.way.balances or config.way.adapts:
            values = self._weighted(worker, values, seconds)
        worker.computed += 1
        worker.spans.append((f"compute at version {version}", self.network.now / PS, self.network.now / PS + seconds))
        update, token = Update(values, version, note), worker.token
        self.network.plan(self.network.now + round(seconds * PS), lambda: self._computed(worker, update, token))

    def _check_bounded(self, values: np.ndarray, worker: Worker, name: str, rate: float) -> None:
        """Raises Diverged: a sum of as large values of all workers might be no float, which is no fault of the switch. ``name``:
        words before the update that the worker computes."""
        name = f"{name}update {worker.computed + 1} of worker {worker.number}"
        virtual_network.check_summable(values, self.config.workers, name, rate)

    def _weighted(self, worker: Worker, values: np.ndarray, seconds: float) -> np.ndarray:
        """Returns an update weighed by its batch, and behind it the worker's speed among zeros, so that a sum has all of them: it
        follows from the worker's latest compute times, the last one of which took so many seconds."""
        part = worker.sizes[worker.number] / self.config.batch
        latest = seconds / (part * self.config.computing * self.config.local)
        worker.pace = worker.pace + SMOOTHING * (latest - worker.pace) if worker.pace else latest
        speeds = np.zeros(self.config.workers, np.float32)
        speeds[worker.number] = 1 / max(worker.pace, FASTEST)
        return np.concatenate([np.float32(part) * values, speeds])

    def _with_note(self, worker: Worker, values: np.ndarray, note: float, stale: int) -> np.ndarray:
        """Returns an update, and behind it the worker's loss or compute time, and the update's staleness, each among zeros, so
        that a sum has those of all that are in it. Raises Diverged: the staleness would be rounded beside the others."""
        behind = np.zeros((2, self.config.workers), np.float32)
        behind[:, worker.number] = note, stale
        values = np.concatenate([values, *behind])
        name = f"an update of worker {worker.number}, or its {'loss' if self.config.way.foresees else 'compute time'},"
        virtual_network.check_exact_beside(values, self.config.workers, name)
        return values

    def _computed(self, worker: Worker, update: Update, token: int) -> None:
        if token != worker.token:
            return
        worker.computing = False
        if self.lookout and worker.running:
            self.lookout.finish(worker.running)
        worker.ready.append(update)
        self.go_on(worker)

    def _stop(self, worker: Worker) -> None:
        """Has the worker stop to compute what is of no use any more."""
        name, began, _ = worker.spans[-1]
        worker.spans[-1] = name, began, self.network.now / PS
        worker.computing = False
        worker.token += 1

    def completed(self, completion: Completion) -> None:
        """Takes a worker's sum, applies those whose turn it is, and has the worker go on."""
        completion.raise_failed()
        worker = self.workers[self._numbers[completion.machine]]
        number = worker.tickets.pop(completion.ticket)
        worker.arrived[number] = completion.event.contributors
        if self.config.masked:
            clear = self._clear(number, worker.outs[number], completion.event.contributors)
            self.judge.check_clear(number, clear, completion.event.contributors)
        self.judge.check_sum(worker.number, number, worker.outs[number], completion.event.contributors)
        if self.config.masked:
            worker.outs[number] = clear
        if worker.offered and worker.offered[0] == number:
            update, worker.offered = worker.offered[1], None
            if worker.bound and worker.number in completion.event.contributors:
                worker.bound.take()
            if worker.number not in completion.event.contributors and not self.config.way.stops:
                worker.ready.appendleft(update)
            elif self._length(number) == self.length:
                worker.drift = None
        if self.config.way.stops and worker.computing:
            self._stop(worker)
        while worker.version in worker.arrived:
            self._apply(worker, completion.time)
        self.go_on(worker)

    def _clear(self, number: int, total: np.ndarray, contributors: tuple[int, ...]) -> np.ndarray:
        """Returns a sum without masks: those that are in it reveal their shares."""
        return self.masks.uncover(number, total, contributors) if isinstance(self.masks, SharedMasks) else total

    def _apply(self, worker: Worker, time: int) -> None:
        config, number = self.config, worker.version
        contributors = worker.arrived.pop(number)
        out = worker.outs.pop(number)
        total, speeds = np.split(parts(out) if config.masked else out, [self.task.parameters])
        if config.way.balances:
            worker.sizes = batches(np.maximum(speeds.astype(np.float64), 0), config.workers * config.batch)
        if config.way.foresees:
            losses, stale = speeds.reshape(2, config.workers)
            for each in contributors:
                worker.trend.know(number - round(float(stale[each])), float(losses[each]))
        if worker.rounds is not None:
            times, stale = speeds.reshape(2, config.workers)
            worker.rounds.end(number, {each: (float(times[each]), number - round(float(stale[each]))) for each in contributors})
        average = total / np.float32(config.workers if config.way.shares else len(contributors))
        if average.size < self.task.parameters:
            average = np.concatenate([average, np.zeros(self.task.parameters - average.size, np.float32)])
        worker.parameters = worker.parameters - np.float32(config.outer_lr) * self._step(worker, average)
        worker.version += 1
        for each in contributors:
            worker.clocks[each] += 1
            worker.pushes[each] = [*worker.pushes[each][-1:], time / PS]
        if config.way.adapts:
            self._choose(worker, contributors, speeds)
        if worker.rounds is not None:
            self._select(worker, worker.rounds)
        self.judge.check_copy(worker.number, worker.version, worker.parameters)
        if worker.number == 0:
            before = self.updates * config.local // config.evaluate
            self.updates += len(contributors)
            if self.updates * config.local // config.evaluate > before or self.over:
                self.scores.append((time / PS, self.updates, self.task.score(worker.parameters)))

    def _select(self, worker: Worker, rounds: Rounds) -> None:
        """Chooses who computes at the worker's version."""
        rounds.choose(worker.version, int(worker.clocks.sum()))
        self.judge.choose(worker.version, worker.number, rounds.chosen)

    def _choose(self, worker: Worker, contributors: tuple[int, ...], speeds: np.ndarray) -> None:
        """Chooses how many workers are enough for the next sum that the worker takes part in, by their latest speeds: as all do
        when they have applied the same sums."""
        config = self.config
        known = np.zeros(config.workers) if worker.speeds is None else worker.speeds.copy()
        known[list(contributors)] = np.maximum(speeds[list(contributors)], FASTEST)
        worker.speeds = known
        if np.all(known > 0):
            mean = config.computing * config.local
            worker.leasts[worker.version + config.ahead] = participants(tuple(mean / known), config.noise, config.budget)

    def _step(self, worker: Worker, average: np.ndarray) -> np.ndarray:
        """Returns what an average of updates comes to with the worker's memory of those before."""
        if self.config.outer == "adagrad":
            worker.memory = worker.memory + average * average
            return average / np.sqrt(worker.memory + np.float32(1e-12))
        momentum = np.float32(self.config.outer_momentum)
        worker.memory = momentum * worker.memory + average
        return average + momentum * worker.memory if momentum else average
