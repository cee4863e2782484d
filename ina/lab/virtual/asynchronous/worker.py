"""A worker of an asynchronous training, and its updates."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from ina.lab.virtual.client_tiers import Rounds
from ina.lab.virtual.loss_prediction import LossTrend
from ina.lab.virtual.staleness import StalenessBound
from ina.lab.virtual.straggling import Computation


@dataclass
class Update:
    """A result of a worker. ``version``: of the parameters that it began with; ``note``: foresight, the loss at that version;
    fedlesscan, s for which it computed."""

    values: np.ndarray
    version: int
    note: float = 0.0


@dataclass
class Worker:
    """A worker. ``version``: sums that it has applied; ``clocks``: updates of each worker in these; ``pushes``: when the last two
    of each came, s; ``memory``: momentum, or Adagrad's sums of squares; ``sizes``: of all batches, points."""

    number: int
    times: np.random.Generator
    data: np.random.Generator
    parameters: np.ndarray
    memory: np.ndarray
    clocks: np.ndarray
    pushes: list[list[float]]
    sizes: list[int]
    bound: StalenessBound | None = None  # of its updates; None: they may have any staleness
    pace: float = 0.0  # of its compute times for a mean batch, the mean, where it reports it; 0: it has none
    speeds: np.ndarray | None = None  # of all workers, as the sums that it has applied have them; 0: not known
    leasts: dict[int, int] = field(default_factory=dict)  # fedsa: workers that are enough, by sum
    drift: np.ndarray | None = None  # layerwise: what its own deep layers have fallen below the shared ones by; None: nothing
    version: int = 0
    announced: int = 0
    allowed: int | None = None  # dssp: updates that it may still make before it waits; None: it is not ahead
    own: tuple[int, np.ndarray] | None = None  # downpour: version, and the copy that it has made of that and works on
    computed: int = 0  # updates
    computing: bool = False
    running: Computation | None = None  # nurd: that it does, or has done last
    token: int = 0  # of what it computes; another one: that was stopped
    ready: deque[Update] = field(default_factory=deque)  # not sent: what it has computed, behind what came too late for a sum
    offered: tuple[int, Update] | None = None  # to which sum
    tickets: dict[int, int] = field(default_factory=dict)  # sum, by ticket
    outs: dict[int, np.ndarray] = field(default_factory=dict)
    arrived: dict[int, tuple[int, ...]] = field(default_factory=dict)  # contributors of sums that are not applied yet
    idle: int | None = 0  # ps, since when
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    trend: LossTrend = field(default_factory=LossTrend)  # foresight: of the losses in the sums that it has applied
    rounds: Rounds | None = None  # fedlesscan: by the sums that it has applied

    def ticket_of(self, number: int) -> int:
        """Returns the ticket of a sum in which the worker takes part, and which it does not have."""
        return next(ticket for ticket, each in self.tickets.items() if each == number)
