"""Averages over those ranks that are ready: k of n, also one that is chosen anew for each round, deadlines, replicas.

    gradients = torch.zeros(parameters)
    quorum = ina.backend.ready.Quorum(gradients, "k=7")     # on all ranks of the group: of 8, the first 7 are enough
    quorum = ina.backend.ready.Quorum(gradients, "dynamic", least=4)        # or as many, from 4 on, as its times advise
    for step in range(steps):
        compute(gradients)
        ranks = quorum.average(gradients)                    # of these ranks; with late="next" no rank's work is lost

    model.register_comm_hook(Buckets("k=7", deadline=0.02), average_ready)      # the same in DistributedDataParallel

Each call is a round. A rank takes part in rounds that it has not come to yet: it has announced the next ``ahead`` ones, so
that the others need not wait for it, up to so many rounds. The switch decides whose values a round has (p4/quorum.p4), and all
ranks get the same average, in their own time.
"""

# No postponed annotations here: DistributedDataParallel inspects those of a hook.
import hashlib
import time
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.weak import TensorWeakRef

from ina.aggregation import protocols
from ina.aggregation.worker.arrivals import Arrivals
from ina.aggregation.worker.offer import Offer
from ina.backend import flight_recorder
from ina.backend.counters import COUNTERS
from ina.backend.eager import all_eager
from ina.backend.job import DTYPES, Job
from ina.backend.membership import Membership, membership_of
from ina.backend.settings import Options, Settings
from ina.backend.work import LazyWork
from ina.base.native import lib
from ina.base.plurals import counted
from ina.net.ports import PS

__all__ = ["Buckets", "Quorum", "average_ready", "same_replicas"]

LATE = ("next", "drop")
NOT_OVER = 1 << 63
MOST = lib.INA_BITMAP_WORKERS  # ranks


@dataclass(frozen=True)
class Rule:
    """Rule for the end of a round, and for late values; the arguments of Quorum."""

    complete: str = "all"
    late: str = "next"
    deadline: float | None = None
    least: int = 1
    ahead: int = 2
    replicas: Sequence[Sequence[int]] = ()

    @property
    def dynamic(self) -> bool:
        """True if each rank chooses for each round how many contributors are enough."""
        return self.complete == "dynamic"

    def enough(self, size: int) -> int:
        """Returns so many contributors as are enough of ``size`` ranks; of a dynamic rule the most. ValueError: it cannot be."""
        if not isinstance(self.complete, str):
            raise TypeError(f"complete: {self.complete!r}, expected a text, 'all', 'dynamic' or 'k={self.complete}'")
        if self.late not in LATE:
            raise ValueError(f"late: {self.late!r}, expected one of {', '.join(LATE)}")
        if self.deadline is not None and not (isinstance(self.deadline, int | float) and 0 < self.deadline < 1e6):
            raise ValueError(f"deadline: {self.deadline} s, expected a positive number of seconds below 1e6, or None")
        if type(self.ahead) is not int or not 0 <= self.ahead <= 16:
            raise ValueError(f"ahead: {self.ahead} rounds, expected 0 to 16; each takes as much memory as the tensor in float32")
        if self.replicas:
            members = [rank for group in self.replicas for rank in group]  # lists: see Quorum
            each_once = all(type(rank) is int for rank in members) and sorted(members) == [*range(size)]
            if not each_once or not all(self.replicas) or self.complete != "all":
                raise ValueError(f"replicas: {[*map(list, self.replicas)]} with complete = {self.complete!r}, expected each of "
                                 f"the ranks 0 to {size - 1} in one group, and 'all': one of each group")
        enough = len(self.replicas) or size
        if self.complete not in ("all", "dynamic"):
            name, _, number = self.complete.partition("=")
            enough = int(number) if name == "k" and number.isdecimal() else 0
        if not 1 <= enough <= size or type(self.least) is not int or not 1 <= self.least <= enough:
            raise ValueError(f"complete: {self.complete!r} and least = {self.least} of {size} ranks, expected 'all', 'dynamic', "
                             f"or 'k=1' to 'k={size}', and least no more than that")
        return enough

    def replayed(self, history: Sequence[Sequence[int]] | None, size: int) -> list[tuple[int, ...]] | None:
        """Returns the contributors of each round that are to be repeated; None: of none. ValueError: they cannot be those of so
        many ranks."""
        if history is None:
            return None
        for number, ranks in enumerate(history):
            known = isinstance(ranks, Sequence) and all(type(rank) is int and 0 <= rank < size for rank in ranks)
            if not known or len({*ranks}) != len(ranks):
                raise ValueError(f"replay: round {number} of {ranks!r}, expected some of the ranks 0 to {size - 1}, each once")
        return [tuple(ranks) for ranks in history]

    def rivals(self, rank: int) -> list[int]:
        """Returns the ranks that have the same values as this one."""
        return [other for group in self.replicas if rank in group for other in group if other != rank]


class Quorum:
    """Averages of tensors like one, over those ranks that are ready.

    ``like``: a tensor of float32, float16 or bfloat16 on any device, the same on all ranks. ``complete``: "k=7": when 7 ranks
    have given theirs, "all": when all have, "dynamic": when so many have, ``least`` or more, as give the most contributions in a
    second by the times of earlier rounds (docs/guide/torch.md). ``late``: what a rank has given too late is added to what it
    gives "next", or dropped ("drop"). ``deadline``: seconds after a rank has given, from which on ``least`` ranks are enough for
    it. ``ahead``: rounds that each rank takes part in before it comes to them. ``replicas``: groups of ranks that give the same
    values (gradient coding by fractional repetition): one of each is enough, whichever comes first, and the average is over one
    of each, with the same bits. ``replay``: contributors of each round, as ``history`` has them, instead of a rule: the run's
    averages are the same to the bit. ``group``: None, the default group; another one of the back end "ina".

    To be made, called and closed by all ranks of ``group`` alike. A job of its own carries the rounds, so other collectives go
    on as ever. TypeError, ValueError: an argument cannot be. RuntimeError: the switch has no room, or no such program.
    """

    def __init__(self, like: torch.Tensor, complete: str = "all", *, late: str = "next", deadline: float | None = None,
                 least: int = 1, ahead: int = 2, replicas: Sequence[Sequence[int]] = (),
                 replay: Sequence[Sequence[int]] | None = None, group: dist.ProcessGroup | None = None):
        if not all(isinstance(each, Sequence) for each in (replicas, *replicas)):
            raise TypeError(f"ina: replicas = {replicas!r}, expected groups of ranks, such as [[0, 1], [2, 3]]")
        rule = Rule(complete, late, deadline, least, ahead, tuple(map(tuple, replicas)))
        ours = membership_of(group)
        if not isinstance(like, torch.Tensor):
            raise TypeError(f"ina: a quorum of a {type(like).__name__}, expected a tensor like those that it averages")
        if like.dtype not in DTYPES or not like.dtype.is_floating_point or like.layout != torch.strided:
            raise TypeError(f"ina: a quorum of {like.dtype}, {like.layout}: expected float32, float16 or bfloat16, and strided")
        self.rule = rule
        self._history = array("Q")  # bitmaps of ranks, by round
        self.rank, self.size = ours.rank(), ours.size()
        if not 2 <= self.size <= MOST:
            raise ValueError(f"ina: a quorum of {counted(self.size, 'rank')}, expected a group of 2 to {MOST}")
        self._enough, self._replay = rule.enough(self.size), rule.replayed(replay, self.size)
        self._arrivals = Arrivals(self.size, least) if rule.dynamic else None
        self._like = torch.empty(like.shape, dtype=like.dtype, device="meta")
        agreed = f"{like.dtype} {complete} {late} {least} {ahead} {[*map(list, replicas)]} {self._replay}"
        self._mark = zlib.crc32(agreed.encode())
        self._left: torch.Tensor | None = None  # float32: what this rank gave too late
        self._members = dist.get_process_group_ranks(ours)
        self._group: Membership | None = self._new_group(ours)
        self._announced: deque[Round] = deque()
        self._given: deque[Round] = deque()
        self._unobserved: deque[Round] = deque()
        self._rounds = 0
        for _ in range(rule.ahead + 1):
            self._announce()

    def _new_group(self, ours: Membership) -> Membership:
        settings = Settings.read(ours.options)
        options = replace(ours.options or Options(), protocol=protocols.offering(settings.protocol, settings.check))
        made: Any = dist.new_group(self._members, ours.timeout, dist.get_backend(ours), options,
                                   use_local_synchronization=ours is not dist.group.WORLD, group_desc="ready")
        try:
            if refusal := made._joined_job().admit():
                raise RuntimeError(f"ina: a quorum has no job at the switch: {refusal}")
        except BaseException:
            dist.destroy_process_group(made)
            raise
        group: Membership = made
        return group

    def _announce(self) -> None:
        assert self._group is not None
        under_way = self._group._in_flight
        while under_way and under_way[0].is_completed():
            under_way.popleft()
        turn = Round(self, self._group, self._rounds)
        self._announced.append(turn)
        self._rounds += 1
        if self._arrivals is not None:
            self._unobserved.append(turn)

    def _choose(self, number: int, arrivals: Arrivals) -> int:
        """Returns how many contributors are enough for a round. It follows from the rounds that are over on every rank that
        announces this one, and from no later ones that this rank happens to know of: so all ranks, which have seen these come
        at the same times, choose alike."""
        rounds = self._unobserved
        while rounds and rounds[0].number < number - self.rule.ahead - 1 and rounds[0].is_completed():
            turn = rounds.popleft()
            if turn.exception() is None:
                arrivals.observe(len(turn.contributors), turn.time)
        return arrivals.enough(number)

    def _offer(self, number: int) -> Offer:
        if self._replay is None:
            enough = self._enough if self._arrivals is None else self._choose(number, self._arrivals)
            return Offer(enough, self.rule.rivals(self.rank))
        if number >= len(self._replay):
            return Offer(self.size)  # nobody comes to it
        return Offer(len(self._replay[number]) or self.size)

    def _gives(self, number: int) -> bool:
        if self._replay is None:
            return True
        if number >= len(self._replay):
            raise RuntimeError(f"ina: round {number}: the history to be repeated has {len(self._replay)}")
        return self.rank in self._replay[number]

    @property
    def decided(self) -> bool:
        """True if this rank's next round is over: what it computes for it comes too late."""
        return bool(self._announced) and self._announced[0].is_completed()

    @property
    def owes(self) -> bool:
        """True if this rank's late values wait for the next round: it can give them at once, without any others."""
        return self._left is not None

    @property
    def history(self) -> list[tuple[int, ...]]:
        """The ranks whose values the rounds had to which this rank has come, and which are over."""
        return [tuple(rank for rank in range(self.size) if bits >> rank & 1) for bits in self._history if bits != NOT_OVER]

    def begin(self, tensor: torch.Tensor | None, out: torch.Tensor | None = None) -> dist.Work:
        """Gives ``tensor``, whose values are read at once, and what was late, to the next round; None: nothing but what was late.
        The average comes to ``out``, by default to ``tensor``. Returns the round, a torch.distributed.Work, which also has
        ``contributors`` when it is over: the ranks whose values the average has."""
        return self._begin(tensor, out)

    def _begin(self, tensor: torch.Tensor | None, out: torch.Tensor | None) -> "Round":
        out = tensor if out is None else out
        for each in (tensor, out):
            if each is not None and (not isinstance(each, torch.Tensor) or each.layout != torch.strided):
                kind = each.layout if isinstance(each, torch.Tensor) else type(each).__name__
                raise TypeError(f"ina: a quorum's values: {kind}, expected a strided tensor")
            if each is not None and (each.shape != self._like.shape or each.dtype != self._like.dtype):
                raise ValueError(f"ina: a quorum of {tuple(self._like.shape)} {self._like.dtype}: a tensor of "
                                 f"{tuple(each.shape)} {each.dtype}")
        if not self._announced:
            raise RuntimeError("ina: the quorum is closed")
        turn = self._announced[0]
        gives = self._gives(turn.number)
        with torch.no_grad():  # what cannot be read is an error of this call alone: the round is still to come
            values = None if tensor is None else tensor.to("cpu", torch.float32, copy=True).contiguous()
        while self._given and (self.rule.late == "next" or self._given[0].is_completed()):
            self._given[0].end()  # what is late of it belongs to this one; it stays there if this wait is interrupted
            self._given.popleft()
        self._announced.popleft()
        self._announce()
        turn._give(values, gives, out)
        self._given.append(turn)
        return turn

    def average(self, tensor: torch.Tensor | None, out: torch.Tensor | None = None) -> tuple[int, ...]:
        """As ``begin``, and waits. Returns the ranks of the group whose values the average has; RuntimeError: the group's job
        is over."""
        turn = self._begin(tensor, out)
        turn.wait()
        return turn.contributors

    def close(self) -> None:
        """Ends it: waits until all ranks have done so, up to the group's time-out. What is late is lost. RuntimeError: other
        ranks have come to a round that this one has not; or the group's job is over. Does nothing if its group has ended."""
        group, self._group = self._group, None
        left, self._announced = self._announced, deque()
        if group is None or group.has_ended:
            return
        try:
            for turn in left:
                turn._leave()
            for turn in (*self._given, *left):
                turn.wait()
        finally:
            dist.destroy_process_group(group)
        for turn in left:
            if turn.contributors:
                raise RuntimeError(f"ina: ranks {[*turn.contributors]} have given to round {turn.number}, to which this rank has "
                                   "not come: all ranks close a quorum after the same number of rounds")

    def _ended(self, turn: "Round") -> None:
        """Notes what is left of a round that this rank came to, in order."""
        ranks = turn.contributors
        while len(self._history) <= turn.number:
            self._history.append(NOT_OVER)
        self._history[turn.number] = sum(1 << rank for rank in ranks)
        met = {*ranks}.union(*(self.rule.rivals(rank) for rank in ranks))
        COUNTERS.chosen(self._like.numel(), self._members, [self._members[rank] for rank in range(self.size) if rank not in met])
        if turn._kept is not None:
            self._left = None if self.rank in met else turn._kept


@all_eager
class Round(LazyWork):
    """One round of a Quorum. Once it is over: ``contributors``, the ranks whose values it has, and ``time``, when the average
    came to this rank's endpoint, in seconds of the monotonic clock, however much later the rank comes to it."""

    def __init__(self, quorum: Quorum, group: Any, number: int):
        super().__init__(group._group_state, [], f"quorum round {number} of {quorum._like.numel()} elements")
        self.number, self.contributors, self.time = number, tuple[int, ...](), 0.0
        self._kept: torch.Tensor | None = None  # its values, with what was left of earlier rounds, if late ones are kept
        self._given: torch.Tensor | None = None  # valid until it is over
        self._came = self._released = False
        self._quorum, self._deadline = quorum, float("inf")
        self._job: Job = group._joined_job()
        # As all types travel: what is late may be beyond 16 bits
        self._sums = torch.empty(quorum._like.shape, dtype=torch.float32, device="cpu")
        self._ticket, self._order = self._job.ask(self._sums, True, quorum._mark, quorum._offer(number))
        group._in_flight.append(self)

    def _give(self, values: torch.Tensor | None, gives: bool, out: torch.Tensor | None) -> None:
        """Gives this rank's ``values``, a copy in float32, and what is left of earlier ones; not ``gives``: they are to be too
        late. ``out`` gets the average."""
        quorum = self._quorum
        with torch.no_grad():
            mine = values
            if quorum.rule.late == "next":
                if quorum._left is not None:
                    mine = quorum._left if mine is None else mine + quorum._left
                self._kept = mine
        self._inference = torch.is_inference_mode_enabled() or (out is not None and out.is_inference())
        self._record()
        with self._lock:
            self._came, self._outputs = True, [] if out is None else [out]
            self._given = mine if gives else None
            if self._done:
                self._take()
                return
        self._job.give(self._ticket, self._given)
        if self._given is not None and quorum.rule.deadline is not None:  # from now on another thread may say more
            self._deadline = time.monotonic() + quorum.rule.deadline

    def _record(self) -> None:
        """Records that this rank has come to the round, where there is a flight recorder: as an all-reduce of the quorum's group.
        A rank that never comes to it has no such entry, though it has announced the round."""
        quorum, recorder = self._quorum, flight_recorder.recorder
        if recorder is not None and quorum._group is not None:
            entry = recorder.begin(quorum._group, "allreduce", ([quorum._like],), True, True)
            assert entry is not None  # no receive
            self.listen(entry.ended)

    def _leave(self) -> None:
        """Says that this rank never gives anything, and does not come to it."""
        self._job.give(self._ticket)

    def _look(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while True:
            due = until if self._released else min(until, self._deadline)
            event = self._job.result(self._ticket, self._order, self._title, max(0.0, due - time.monotonic()))
            if event is not None:
                break
            now = time.monotonic()
            if now >= self._deadline and not self._released:
                self._released = True
                self._job.give(self._ticket, least=self._quorum.rule.least)
            if now >= until:
                return False
        self.contributors, self.time = event.contributors, event.last_rx / PS
        if self._came:
            self._take()
        return True

    def _take(self) -> None:
        """Hands over the average of a round that is over and that this rank has come to."""
        sums, self._sums = self._sums, torch.empty(0, device="cpu")
        self._quorum._ended(self)
        self._given = self._kept = None
        with self.as_called():
            for out in self._outputs:
                out.copy_(sums)


class Buckets:
    """State of the hook ``average_ready``: a Quorum for each bucket, with these arguments (Quorum's). A bucket is known by its
    parameters: when DistributedDataParallel makes others, after its first step, theirs end, and late values with them."""

    def __init__(self, complete: str = "all", *, late: str = "next", deadline: float | None = None, least: int = 1,
                 ahead: int = 2, replicas: Sequence[Sequence[int]] = (), group: dist.ProcessGroup | None = None):
        self._make = partial(Quorum, complete=complete, late=late, deadline=deadline, least=least, ahead=ahead, replicas=replicas,
                             group=group)
        self._quorums: list[tuple[list[TensorWeakRef], Quorum]] = []

    def of(self, bucket: dist.GradBucket) -> Quorum:
        """Returns the bucket's."""
        parameters = bucket.parameters()
        known = {id(parameter) for parameter in parameters}
        for refs, quorum in [*self._quorums]:
            own = [id(ref()) for ref in refs]
            if own == [id(parameter) for parameter in parameters]:
                return quorum
            if known.intersection(own):
                quorum.close()
                self._quorums.remove((refs, quorum))
        quorum = self._make(bucket.buffer())
        self._quorums.append(([TensorWeakRef(parameter) for parameter in parameters], quorum))
        return quorum

    @property
    def history(self) -> list[list[tuple[int, ...]]]:
        """The contributors of each round, by bucket."""
        return [quorum.history for _, quorum in self._quorums]

    def close(self) -> None:
        """Ends it, on all ranks alike: Quorum.close."""
        quorums, self._quorums = self._quorums, []
        for _, quorum in quorums:
            quorum.close()


def average_ready(state: Buckets, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Communication hook: averages the bucket's gradients over the ranks that are ready.
    ``model.register_comm_hook(Buckets("k=7"), average_ready)``."""
    return state.of(bucket).begin(bucket.buffer()).get_future().then(lambda future: future.value()[0])


def same_replicas(tensors: Iterable[torch.Tensor], group: dist.ProcessGroup | None = None) -> None:
    """Compares the tensors (a model's parameters) of all ranks of ``group``, to the bit. RuntimeError: they differ, with the
    ranks that differ from most."""
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        digest.update(tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    own = torch.tensor([int.from_bytes(digest.digest(), "little", signed=True)], device="cpu")
    every = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, own, group=group)
    digests = [int(each) for each in every]
    most = Counter(digests).most_common(1)[0][0]
    if others := [rank for rank, each in enumerate(digests) if each != most]:
        raise RuntimeError(f"ina: replicas differ: those of ranks {others} from the other {len(digests) - len(others)}")
