"""Workers and a model switch on an event clock: every frame may be lost, duplicated or late, from one seed."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

from model_switch import Job, ModelSwitch, binary

from ina.aggregation.worker import Event, Worker, WorkerConfig, worker_address

US = 10**6  # ps
DELAY = 5 * US  # one way, worker to switch


@dataclass(frozen=True)
class Faults:
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    late: int = 100 * US  # maximum delay of a duplicate or reordered frame: ten round trips


class Network:
    """``workers`` machines, each on a port of a model switch, one job."""

    def __init__(self, workers: int, faults: Faults = Faults(), seed: int = 0, **config):
        config = {"slots": 4, "values": 32, "rto_min": 40e-6, "rto_max": 1e-3, "timeout": 5.0, "life": 1} | config
        self.workers = [Worker(WorkerConfig(worker=i, workers=workers, **config)) for i in range(workers)]
        job = self.workers[0].config.job
        ends = [binary(worker_address(job, i)) for i in range(workers)]
        self.switch = ModelSwitch([Job.of_workers(job, ends, config["slots"])], config["values"])
        self.now = 0
        self.frames = 0
        self.events: list[list[Event]] = [[] for _ in range(workers)]
        self.deaf: set[int] = set()  # workers that neither send nor receive
        self._faults = faults
        self._random = random.Random(seed)
        self._queue: list[tuple[int, int, int | None, int, bytes]] = []  # due, order, worker or None: switch, port
        self._order = 0
        self._timers: dict[int, int] = {}

    def run(self, until: int = 10**13) -> list[list[Event]]:
        """Runs until no event is left, or the clock reads ``until``; returns each worker's events."""
        for i in range(len(self.workers)):
            self._drive(i)
        while True:
            timers = [(t, i) for i, t in self._timers.items()]
            due = min([self._queue[0][0]] if self._queue else [], default=None)
            timer = min(timers, default=None)
            if timer is not None and (due is None or timer[0] <= due):
                self.now = max(self.now, timer[0])
                if self.now > until:
                    break
                self._drive(timer[1])
            elif due is not None:
                self.now = due
                if self.now > until:
                    break
                self._deliver()
            else:
                break
        return self.events

    def _deliver(self) -> None:
        _, _, worker, port, frame = heapq.heappop(self._queue)
        if worker is None:
            for to, reply in self.switch.process(port, frame):
                self._send(to, to, reply)
        elif worker not in self.deaf:
            answer = self.workers[worker].receive(frame, self.now)
            if answer is not None:
                self._send(None, worker, answer)
            self._drive(worker)

    def _drive(self, i: int) -> None:
        worker = self.workers[i]
        if i not in self.deaf:
            for frame in worker.frames_to_send(self.now):
                self._send(None, i, frame)
        self.events[i] += worker.events()
        timer = worker.next_timer()
        if timer is None or i in self.deaf:
            self._timers.pop(i, None)
        else:
            self._timers[i] = timer

    def _send(self, worker: int | None, port: int, frame: bytes) -> None:
        self.frames += 1
        copies = [0]
        if self._random.random() < self._faults.loss:
            copies = []
        if self._random.random() < self._faults.duplicate:
            copies.append(self._random.randrange(self._faults.late))
        for late in copies:
            if self._random.random() < self._faults.reorder:
                late += self._random.randrange(self._faults.late)
            self._order += 1
            heapq.heappush(self._queue, (self.now + DELAY + late, self._order, worker, port, frame))
