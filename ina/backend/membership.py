"""A rank's membership of a group: the rendezvous of its ranks, its job at the switch, its inner Gloo, and its end.

torch takes a Python subclass of ProcessGroup. Gloo itself is registered inside as the CPU back end, for the calls that C++ makes
past Python.
"""

from __future__ import annotations

import atexit
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

import torch
import torch.distributed as dist

from ina.backend import flight_recorder, rendezvous, spans
from ina.backend.ballot import Ballot
from ina.backend.eager import all_eager
from ina.backend.group_state import GroupState
from ina.backend.inner_gloo import inner_gloo
from ina.backend.launcher import end_with_launcher
from ina.backend.roll_call import RollCall
from ina.backend.settings import Options, Settings
from ina.backend.spans import open_trace
from ina.backend.staging import Stager
from ina.backend.work import LazyWork
from ina.base.native import lib

if TYPE_CHECKING:
    from ina.backend.job import Job

GLOO = dist.ProcessGroup.BackendType.GLOO
_open_groups: WeakSet[Membership] = WeakSet()


@all_eager
class Membership(dist.ProcessGroup):
    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta, name: str, options: Options | None = None,
                 owner: Membership | None = None):
        """``owner``: the group whose lane this is (`lane`)."""
        super().__init__(rank, size)  # type: ignore[call-arg]  # torch has it, its stubs do not
        self._timeout = timeout
        self._name, self._owner = name, owner
        self._lanes: dict[str, Self] = {}  # by name; this group itself where the switch had no room for one
        self.options = options
        self._job: Job | None = None
        self._settings: Settings | None = None  # of a group with a job
        self.switch = ""
        self._refusal = ""
        self._closed = False
        self._watched = False  # by the flight recorder
        self.newcomers: tuple[int, ...] = ()  # ranks that were not in the group that it has grown from (grow.py)
        self._in_flight: deque[LazyWork] = deque()  # the endpoint may still write to their memory
        # A store may have seen this group before (destroyed and made again): creation is collective, so the n-th time
        # that `size` ranks arrive is the n-th life of the group, and old keys are never read.
        generation = (store.add("ina/arrivals", 1) - 1) // size
        self.store = store = dist.PrefixStore(f"ina/{generation}", store)

        if size == 1:
            self._refusal = "one rank"
        elif size > lib.INA_BITMAP_WORKERS:
            self._refusal = f"more than {lib.INA_BITMAP_WORKERS} ranks"
        agreed = None if self._refusal else self._agree()  # first: a new switch process starts while Gloo's ranks connect
        with ExitStack() as undo:
            if agreed is not None:
                undo.callback(rendezvous.release, agreed.switch)
            self._make_gloo(dist.PrefixStore("gloo", store))
            self._ballot = Ballot(dist.PrefixStore("plans", store), rank, size, lambda: self._timeout.total_seconds())
            if owner is None:
                roll_call = RollCall(dist.PrefixStore("calls", store), rank, size)
                self._group_state = GroupState(lambda: self._timeout.total_seconds(), roll_call)
                self._stager = Stager()
            else:  # its collectives have places in the owner's order: a rank that begins another one in either is detected
                self._group_state = owner._group_state.beside()
                self._stager = owner._stager
            if agreed is not None:
                self._open_job(agreed, f"{name}/{generation}")
            undo.pop_all()
        _open_groups.add(self)

    def _make_gloo(self, store: dist.Store) -> None:
        gloo = inner_gloo(store, self.rank(), self.size(), self._timeout)
        self._inner = dist.ProcessGroup(store, self.rank(), self.size())
        for group in (self, self._inner):
            for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                group._register_backend(torch.device(device), GLOO, gloo)
            group._set_default_backend(GLOO)

    def _agree(self) -> rendezvous.Agreement:
        self._settings = Settings.read(self.options)
        end_with_launcher()
        agreed = rendezvous.agree(dist.PrefixStore("switch", self.store), self.rank(), self.size(), self._timeout, self._settings)
        rendezvous.tell(agreed, self.rank(), self.size(), self._settings)
        return agreed

    def _open_job(self, agreed: rendezvous.Agreement, name: str) -> None:
        from ina.backend.job import Job

        settings, store = self._settings, self.store
        assert settings is not None  # _agree has read them
        self.switch = agreed.switch
        open_trace(settings.trace, self.rank())
        self._watched = flight_recorder.open_recorder(settings.flight, rendezvous.number(self.rank()),
                                                      dist.PrefixStore("flight", store), self.rank(), self.size())
        if spans.trace is not None and self.rank() == 0:
            spans.trace.watch(agreed.switch)
        self._job = Job(agreed.switch, agreed.pid, f"{name}/{agreed.nonce}", self.rank(), self.size(),
                        self._timeout.total_seconds(), settings, agreed.token,
                        dist.PrefixStore("job", store), agreed.access, agreed.runs, _ranks_of(self._owner or self),
                        agreed.paths, agreed.started, agreed.above)

    def lane(self, name: str) -> Self:
        """Returns a group of the same ranks, with a job of its own, for collectives that are not to wait for this group's
        packets, nor these for theirs; it ends with this group. All ranks ask for it at the same place in the order of their
        collectives. Where the switch has no room for another job, it is this group, with a warning. RuntimeError: the group has
        been destroyed, or a rank does not come."""
        if (lane := self._lanes.get(name)) is not None:
            return lane
        self._joined_job()
        lane = type(self)(dist.PrefixStore(f"lane/{name}", self.store), self.rank(), self.size(), self._timeout,
                          f"{self._name}/{name}", self.options, self)
        lane._set_group_name(f"{self.group_name}/{name}")  # type: ignore[arg-type]  # newer torch has a type for names
        if refusal := lane._joined_job().admit():
            lane.shutdown()
            warnings.warn(f"ina: group {self.group_name!r} has one job for all of its collectives, and {name} waits for the "
                          f"others' packets: {refusal}", stacklevel=5)
            lane = self
        self._lanes[name] = lane
        return lane

    def _own_lanes(self) -> list[Self]:
        return [lane for lane in self._lanes.values() if lane is not self]

    def _joined_job(self) -> Job:
        """Returns the job of a group that is not refused. RuntimeError: the group has been destroyed."""
        if self._job is None:
            raise self._destroyed()
        return self._job

    def _destroyed(self) -> RuntimeError:
        return RuntimeError(f"ina: group {self.group_name!r} has been destroyed; there are no collectives in it")

    def name(self) -> str:
        return "ina"

    def getBackendName(self) -> str:
        return "ina"

    @property
    def timeout(self) -> timedelta:
        """The time-out of collectives."""
        return self._timeout

    @property
    def has_ended(self) -> bool:
        """True if the group has been destroyed."""
        return self._closed

    @property
    def in_flight(self) -> int:
        """Number of collectives that have begun and not ended, those in lanes too."""
        return max(len(self._unfinished()), self._stager.unfinished())

    def _unfinished(self) -> list[LazyWork]:
        return [work for group in (self, *self._own_lanes()) for work in group._in_flight if not work.finished()]

    @property
    def failure(self) -> str:
        """Reason why the group's job, or that of a lane, is over; "": none is."""
        job = self._job  # another thread may abort
        return (job.failure if job is not None else "") or next(filter(None, (lane.failure for lane in self._own_lanes())), "")

    def lost(self) -> set[int]:
        """Returns the ranks of which the switch process has said that they are lost."""
        job = self._job
        return set() if job is None else job.lost()

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the time-out of Gloo's collectives, and of the switch if it has not been used yet."""
        self._timeout = timeout
        self._inner.set_timeout(timeout)
        if self._job is not None:
            self._job.timeout = timeout.total_seconds()
        for lane in self._own_lanes():
            lane.set_timeout(timeout)

    def monitored_barrier(self, *args: object, **kwargs: object) -> None:
        return self._inner.monitored_barrier(*args, **kwargs)  # type: ignore[attr-defined]  # torch has it, its stubs do not

    def _set_sequence_number_for_group(self) -> None:
        self._inner._set_sequence_number_for_group()

    def _get_sequence_number_for_group(self) -> int:
        return self._inner._get_sequence_number_for_group()  # type: ignore[attr-defined]  # the same

    def abort(self) -> None:
        if self._job is not None:
            self._job.abort()
        self._inner.abort()
        self._close(in_peace=False)

    def shutdown(self) -> None:
        self._end(in_peace=True)

    def _end(self, in_peace: bool) -> None:
        self._close(in_peace)
        self._inner.shutdown()

    def _close(self, in_peace: bool, wait: float = 2.0) -> None:
        """Leaves the job; collectives in flight fail. In peace, the other ranks may finish theirs."""
        _open_groups.discard(self)
        self._closed = True
        job, self._job = self._job, None
        if job is None:
            if self._owner is None:
                self._stager.close()
            return
        interrupted = self._group_state.interrupted()  # by a signal handler, the caller: the interrupted collective fails
        unfinished, count = self._unfinished(), self.in_flight
        if count or interrupted:
            for each in (job, *(lane._job for lane in self._own_lanes())):
                if each is not None:
                    each.abort(f"ina: group {self.group_name!r} was destroyed with {count} collective(s) in flight")
        for work in unfinished:
            work.give_up()
        self._in_flight.clear()
        for lane in self._own_lanes():
            lane._end(in_peace)
        self._lanes.clear()
        if self._owner is None:
            self._stager.close()
        self._group_state.close()
        if self._watched and flight_recorder.recorder is not None:
            flight_recorder.recorder.leave()
        job.close(in_peace and not job.failed)
        rendezvous.release(self.switch, wait)


def membership_of(group: dist.ProcessGroup | None, expected: str = "a group") -> Membership:
    """Returns ``group``; None: the default group. TypeError: it is another back end's."""
    ours = dist.group.WORLD if group is None else group
    if not isinstance(ours, Membership):
        raise TypeError(f"ina: {expected} of the back end 'ina' is expected, not a {type(ours).__name__}")
    return ours


def _ranks_of(group: Membership) -> Callable[[], Sequence[int]]:
    """Returns a function that gives the ranks of a group in the default group; 0, 1, ... while torch does not know it."""
    size, found = group.size(), weakref.ref(group)

    def ranks() -> Sequence[int]:
        try:
            return dist.get_process_group_ranks(found())
        except (KeyError, RuntimeError, ValueError):
            return range(size)

    return ranks


@atexit.register
def _at_exit() -> None:
    """Closes groups that are open at the interpreter's end: threads must not outlive it, and the switch process is released."""
    for group in list(_open_groups):
        group._close(in_peace=False, wait=0.0)
