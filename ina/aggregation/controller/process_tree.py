"""Trees of switch processes: one on each server sums the workers of its machine, and its parent the sums of all servers.

A switch process that was started with a parent is one worker there of each job that has workers below it and elsewhere. The
workers of such a job say when they join it by which switch processes their packets go (control_socket/tree_paths.py). So

    join    of the first worker below: this process joins the job at its parent (above.py), and so on up
    admit   here: asked of the parent first, whose answer has the job's number, life and slots; then the entries are written, with
            one port towards the parent (in_tree.py). Where all workers are below, the job is complete here, and no parent hears
            of it
    left    a worker that leaves, or is lost, and the reason why a job is over are told up and down

No switch program knows of this: they sum sums of switches below in any tree. All workers of a job and the switch processes below
are to join within START seconds, as they make their group together; else the job fails, and says who is missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from ina.aggregation import completion
from ina.aggregation.control_socket import messages, tree_paths
from ina.aggregation.control_socket.channel import shown
from ina.aggregation.control_socket.tree_paths import Share
from ina.aggregation.controller import above
from ina.aggregation.controller.above import Admitted, Failed, JobAbove, Left, Membership, News, ParentSwitch, Refused
from ina.aggregation.controller.client import Attachment
from ina.aggregation.controller.in_tree import Above, Part
from ina.aggregation.controller.job_records import AdmissionError, NotYet
from ina.aggregation.controller.switch_host import SwitchHost
from ina.aggregation.entries import JobProgram, Parent
from ina.base.error_text import reason

START = 60.0  # seconds for all workers of a job to join it, after the first
GENTLE = ("full", "too_many_workers")  # refusals after which a job's workers do without a switch


class Member(Protocol):
    """A connection of a worker, or of a switch process below."""

    job: str
    index: int
    below: tuple[int, ...]
    child: str
    released: bool


class Jobs(Protocol):
    """Jobs and their members, as ina/aggregation/controller/api.py has them."""

    host: SwitchHost

    def members(self, job: str) -> Iterator[Any]: ...

    def fail(self, job: str, reason: str, lost: Sequence[int] = ()) -> None: ...

    def tell_left(self, job: str, worker: int, pid: int) -> None: ...


class UpwardHost(Protocol):
    """A switch that can have a port towards a parent."""

    def open_above(self, attachment: Attachment) -> int: ...

    def close_server_port(self, number: int) -> None: ...


@dataclass
class Record:
    """A job of the tree here. ``until``: when all are to have joined (monotonic seconds); 0: they have. ``port``: towards the
    parent, -1: none. ``failed``: nothing is told to the parent any more."""

    paths: tuple[str, ...]
    share: Share
    token: str = field(repr=False)
    until: float
    joined: set[int] = field(default_factory=set)  # lowest workers of the seats
    above: JobAbove | None = None
    asked: bool = False
    part: Part | None = None
    port: int = -1
    refusal: Refused | None = None
    failed: bool = False


class ProcessTree:
    """The place of a switch process, which runs ``host``'s switch, in a tree; a process of its own until others name it as
    their parent. ``parent``: the control socket of the one above, "": none; ``access``: its token, or a pass. ``service`` is to
    be set before anything joins. Raises ControlError: the parent does not answer; ValueError: it cannot be this one's."""

    service: Jobs

    def __init__(self, host: SwitchHost, parent: str = "", access: str = ""):
        self.id = tree_paths.new_id()
        self.level = 0
        self._host = host
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._jobs: dict[str, Record] = {}
        self._ending: list[JobAbove] = []
        self.parent: ParentSwitch | None = None
        if parent:
            self.parent = ParentSwitch(parent, access, self.id, self._ring)
            self._begin(self.parent)

    def _begin(self, parent: ParentSwitch) -> None:
        about, own = parent.look(), self._host.describe()
        for name in ("protocol", "values"):
            if about.get(name) != own[name]:
                raise ValueError(f"the switch process {shown(parent.name)} runs {about.get('program')} with {name}="
                                 f"{about.get(name)}, this one {own['program']} with {name}={own[name]}: "
                                 "start both alike")
        parent.start(about["tree"])
        self.level = len(parent.path)

    def _ring(self) -> None:
        os.eventfd_write(self._bell, 1)

    def fileno(self) -> int:
        """Returns a descriptor that is readable when ``tick`` has work."""
        return self._bell

    @property
    def path(self) -> tuple[str, ...]:
        """Ids of this process and of those above it."""
        return (self.id, *(self.parent.path if self.parent else ()))

    @property
    def is_telling(self) -> bool:
        """True while the parent has not yet heard of the end of every job that is over here: who ends before, is lost to it."""
        return bool(self._ending)

    def about(self) -> dict[str, Any]:
        """Returns what clients are told of the tree."""
        own = {"tree": [*self.path], "no_trees": why_not(self._host)}
        if self.parent is None:
            return own
        return {**own, "above": self.parent.name,
                **({"above_failure": self.parent.failure} if self.parent.failure else {})}

    # ---- requests

    def join(self, request: messages.Join) -> tuple[int, ...]:
        """Takes a worker, or a switch process below with its workers, into the job; returns these. Raises AdmissionError,
        ValueError: the paths are not of this tree, or others than those of the job's other workers."""
        paths, record = tuple(request.paths or ()), self._jobs.get(request.job)
        if record is None and not paths:
            return (request.worker,)
        if record is not None and record.paths != paths:
            raise AdmissionError("mismatch", f"worker {request.worker} of job {request.job!r} says other switch processes above "
                                             "its workers than those that joined before it; all are to say the same")
        share = record.share if record else self._share(request, paths)
        if request.child:
            below = share.below.get(request.child, ())
            if request.worker not in below[:1]:
                raise AdmissionError("mismatch", f"job {request.job!r}: the switch process {request.child} joins for worker "
                                                 f"{request.worker}, but by the workers' paths it is not directly below this "
                                                 "one, or that is not its lowest worker")
        elif request.worker in share.seats:
            below = (request.worker,)
        else:
            raise AdmissionError("mismatch", f"worker {request.worker} of job {request.job!r} is at this switch process "
                                             f"({self.id}), but its path is "
                                             f"{paths[request.worker] if request.worker < len(paths) else 'none'}")
        if record is None:
            record = Record(paths, share, request.token, time.monotonic() + START)
            if not share.whole:
                record.above = self._go_up(request, record)  # may find no descriptors: then there is no job
            self._jobs[request.job] = record
        record.joined.add(request.worker)
        if len(record.joined) == len(share.seats):
            record.until = 0.0
        return below

    def _share(self, request: messages.Join, paths: tuple[str, ...]) -> Share:
        try:
            share = tree_paths.share(paths, len(paths), self.path)
        except ValueError as error:
            lost = f" ({self.parent.failure})" if self.parent and self.parent.failure else ""
            raise AdmissionError("failed", f"job {request.job!r}: {error}{lost}") from None
        if not share.whole and self.parent is None:
            raise AdmissionError("failed", f"job {request.job!r}: not all of its workers are below this switch process "
                                           f"({self.id}), and it has no parent: start it with --parent")
        return share

    def _go_up(self, request: messages.Join, record: Record) -> JobAbove:
        assert self.parent is not None
        membership = Membership(request.job, record.share.workers[0], record.paths, self.path[1:], request.token,
                                request.above or self.parent.access)
        return JobAbove(self.parent.name, self.id, membership, self._ring)

    def part(self, request: messages.Admit) -> Part | None:
        """Returns the job's part here; None: it is no other process's, and this one has no parent. Raises NotYet: the parent is
        to admit it; AdmissionError: it has refused it, or these are not the job's workers."""
        record = self._jobs.get(request.job)
        if record is None:
            numbers = tuple(range(request.workers))
            return Part(Share(numbers, {}, numbers, True), self.level) if self.level else None
        if len(record.paths) != request.workers or not request.strict:
            raise AdmissionError("mismatch", f"job {request.job!r}: {request.workers} workers, strict={request.strict}; expected "
                                             f"{len(record.paths)}, as its workers have said when they joined, and strict=True")
        if record.refusal:
            raise AdmissionError(record.refusal.code, record.refusal.reason)
        if record.share.whole:
            return Part(record.share, self.level)
        if record.part is None:
            if record.above and not record.asked:
                own, record.asked = self._host.describe(), True
                record.above.order(above.Ask(request.workers, request.slots, request.check, own["protocol"], own["values"]))
            assert self.parent is not None
            raise NotYet(f"the switch process above, {shown(self.parent.name)}, to admit job {request.job!r}")
        return record.part

    def report(self, session: Member, request: messages.Report) -> None:
        """Takes news of workers below from the switch process that they are at. Raises AdmissionError, ValueError."""
        record = self._jobs.get(session.job)
        if record is None or not session.child or session.released:  # that job is over, and this one may be others'
            raise AdmissionError("invalid", "report: only switch processes below report, of a job that they have joined, and not "
                                            "left")
        for worker in (request.left, request.lost):
            if worker is not None and worker not in session.below:
                raise ValueError(f"worker {worker} of job {session.job!r} is not below that switch process")
        if request.left is not None:
            self.service.tell_left(session.job, request.left, 0)
        if request.failed:
            self.service.fail(session.job, request.failed, () if request.lost is None else (request.lost,))

    # ---- news for the parent

    def failed(self, job: str, reason: str, lost: Sequence[int] = ()) -> None:
        """Tells the parent that a job is over, unless it has said so itself."""
        record = self._jobs.get(job)
        if record and record.above and not record.failed and not record.refusal:
            record.above.order(Failed(reason, tuple(worker for worker in lost if worker in record.share.workers)))

    def left(self, job: str, worker: int) -> None:
        """Tells the parent that a worker below has left in peace."""
        record = self._jobs.get(job)
        if record and record.above and not record.failed and worker in record.share.workers:
            record.above.order(Left(worker))

    def over(self, job: str, in_peace: bool) -> None:
        """Frees a job that is over here, after its entries."""
        record = self._jobs.pop(job, None)
        if record is None:
            return
        if record.above:
            record.above.order(above.End(in_peace))
            self._ending.append(record.above)
        if record.port >= 0:
            self._upward.close_server_port(record.port)

    # ---- time

    def due(self) -> float | None:
        return min((record.until for record in self._jobs.values() if record.until), default=None)

    def tick(self) -> None:
        """Acts on news from above, and fails jobs that not all have joined in time."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        if self.parent and self.parent.path:
            self.level = len(self.parent.path)
        for job, record in list(self._jobs.items()):
            while record.above and not record.above.news.empty():
                self._take(job, record, record.above.news.get())
            if record.until and record.until <= time.monotonic():
                record.until = 0.0
                self.service.fail(job, f"{self._missing(record)} not joined job {job!r} within {START:g} s after the first")
        going, self._ending = self._ending, []
        for ending in going:
            if not ending.reap():
                self._ending.append(ending)
            while not ending.news.empty():  # after its end, with which its last news may have come
                if isinstance(late := ending.news.get(), Admitted):
                    _close(late.attachment)

    def _take(self, job: str, record: Record, news: News) -> None:
        if isinstance(news, Admitted):
            try:
                self._open(record, news)
            except Exception as error:  # the workers wait for it
                self.service.fail(job, f"no port to the switch process above: {reason(error)}")
            finally:
                _close(news.attachment)
        elif isinstance(news, Left):
            self.service.tell_left(job, news.worker, 0)
        elif isinstance(news, Refused) and news.code in GENTLE:
            record.refusal = news
        else:
            record.failed = True
            self.service.fail(job, news.reason, news.lost if isinstance(news, Failed) else ())

    def _open(self, record: Record, news: Admitted) -> None:
        attachment, reply = news.attachment, news.reply
        record.port = self._upward.open_above(attachment)
        record.part = Part(record.share, self.level, Above(
            attachment.number, attachment.life, attachment.slots, str(reply["check"]), attachment.rule or completion.DEFAULT,
            attachment.key, Parent(record.port, attachment.switch, attachment.address)))

    @property
    def _upward(self) -> UpwardHost:
        return self._host  # type: ignore[return-value]  # those with in_trees have its methods

    @staticmethod
    def _missing(record: Record) -> str:
        texts = []
        for seat in record.share.seats:
            lowest = record.share.below[seat][0] if isinstance(seat, str) else seat
            if lowest not in record.joined:
                texts.append(f"the switch process {seat} of workers {', '.join(map(str, record.share.below[seat]))}"
                             if isinstance(seat, str) else f"worker {seat}")
        return f"{' and '.join(texts)} {'has' if len(texts) == 1 else 'have'}"

    def shown(self, job: str) -> Mapping[str, Any]:
        """Returns what `jobs` says about a job's place in the tree; nothing: it has none."""
        record = self._jobs.get(job)
        if record is None:
            return {}
        return {"here": len(record.share.workers), "below": {child: [*workers] for child, workers in record.share.below.items()},
                "above": self.parent.name if record.above and self.parent else ""}

    def close(self) -> None:
        if self.parent:
            self.parent.close()
        for job in list(self._jobs):
            self.over(job, in_peace=False)


def why_not(host: SwitchHost) -> str:
    """Returns why the switch of ``host`` cannot be one of a tree of switch processes; "": it can."""
    program = getattr(host, "job_program", None)
    if not getattr(host, "in_trees", False) or not isinstance(program, JobProgram):
        return "this process runs no switch of its own that could be below another one"
    if program.needs_server or not program.trees:
        why = "has a parameter server" if program.needs_server else "sums at one switch"
        return f"the protocol {program.title} {why}: expected one with trees, such as switchml"
    return ""


def _close(attachment: Attachment) -> None:
    for fd in attachment.fds:
        os.close(fd)
