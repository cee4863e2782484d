"""Connections of a switch process to its parent, each in a thread of its own: their calls wait, and the process serves others
meanwhile.

``ParentSwitch`` knows what is above: it looks every LOOK seconds. ``JobAbove`` is this process at the parent for one job, of
which it is one worker there: that with the lowest number below it.
"""

from __future__ import annotations

import errno
import os
import queue
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from ina.aggregation.control_socket import tree_paths
from ina.aggregation.control_socket.channel import shown
from ina.aggregation.control_socket.messages import printable
from ina.aggregation.controller.client import Attachment, Client, ControlError

ANSWER = 5.0  # seconds for the parent to take a connection and to answer
ADMISSION = 35.0  # seconds for it to admit a job, which may wait for its own parent
LOOK = 1.0  # seconds between looks at it


@dataclass(frozen=True)
class Refused:
    """The parent does not take the job. ``code``: as of a reply."""

    code: str
    reason: str


@dataclass(frozen=True)
class Admitted:
    """The parent has admitted the job, as its ``reply`` says, and attached this process."""

    reply: dict[str, Any]
    attachment: Attachment


@dataclass(frozen=True)
class Failed:
    """The job is over, for a reason; ``lost``: workers that have ended."""

    reason: str
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class Left:
    """A worker has left the job in peace."""

    worker: int


@dataclass(frozen=True)
class Ask:
    """Asks the parent for the admission of the job: its ``workers``, ``slots`` (None: its default), ``check`` words, and the
    ``protocol`` with its ``values`` in a packet."""

    workers: int
    slots: int | None
    check: str
    protocol: str
    values: int


@dataclass(frozen=True)
class End:
    """The last order. ``in_peace``: else the parent takes all workers below for lost, if it has not been told more."""

    in_peace: bool


News = Refused | Admitted | Failed | Left
Order = Ask | Failed | Left | End


@dataclass(frozen=True)
class Membership:
    """A job and its workers' ``paths``. ``worker``: the lowest one below this process; ``above``: ids of the parent and those
    above it; ``access``: the token or pass with which it is asked; ``token``: the job's."""

    job: str
    worker: int
    paths: tuple[str, ...]
    above: tuple[str, ...]
    token: str = field(repr=False)
    access: str = field(repr=False)


class ParentSwitch:
    """The switch process above process ``own`` (its id), at the control socket ``name``, for which ``access`` is the token or a
    pass. ``wake`` is called when something about it has changed. Call ``look`` first, ``start`` then, ``close`` at the end."""

    def __init__(self, name: str, access: str, own: str, wake: Callable[[], None]):
        self.name, self.access = name, access
        self.path: tuple[str, ...] = ()  # ids of the parent and of those above it; none while it does not answer
        self.failure = ""  # why not
        self._own, self._wake = own, wake
        self._client: Client | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ina-parent", daemon=True)

    def look(self) -> dict[str, Any]:
        """Asks the parent, and returns its reply to ``ping``. Raises ControlError: it does not answer; ValueError: it cannot be
        the parent of this process."""
        if self._client is None:
            self._client = Client(self.name, ANSWER, access=self.access)
        reply, title = self._client.ping(child=self._own), f"the switch process {shown(self.name)}"
        path = reply.get("tree")
        if not isinstance(path, list) or not path or not all(isinstance(each, str) for each in path):
            raise ValueError(f"{title} takes no others below it: upgrade ina there, or name one that ina switch run --listen has "
                             "started")
        if self._own in path:
            raise ValueError(f"{title} is below this one, which would be its own parent: leave --parent out for one of them")
        if len(path) >= tree_paths.MOST_LEVELS:
            raise ValueError(f"{title} has {len(path) - 1} above it already; expected a tree of at most "
                             f"{tree_paths.MOST_LEVELS} levels")
        if above := reply.get("above_failure"):
            raise ValueError(f"{title} has lost its parent: {printable(above)}")
        tree_paths.split("/".join(path), title)
        return reply

    def start(self, path: Sequence[str]) -> None:
        """Watches it from now on. ``path``: as ``look`` has found it."""
        self.path = tuple(path)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(LOOK):
            path: tuple[str, ...] = ()
            try:
                path, failure = tuple(self.look()["tree"]), ""
            except (ControlError, ValueError) as error:
                failure = str(error)
                self._hang_up()
            if (path, failure) != (self.path, self.failure):
                self.path, self.failure = path, failure
                self._wake()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def close(self) -> None:
        self._end.set()


class JobAbove:
    """A job's connection to the parent at ``name``, where process ``own`` (its id) joins it. ``wake`` is called when there are
    ``news``, and at its end: then ``reap`` frees it. Its other methods are for one thread."""

    def __init__(self, name: str, own: str, membership: Membership, wake: Callable[[], None]):
        self.news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._name, self._own, self._member, self._wake = name, own, membership, wake
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ended = False
        self._asks = False  # for the job's admission: its refusal is the same for all workers, others are not
        self._thread = threading.Thread(target=self._run, name=f"ina-above {membership.job}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            os.close(self._bell)
            raise OSError(errno.EAGAIN, f"no thread for job {membership.job!r} at the switch process above: {error}") from error

    def order(self, order: Order) -> None:
        """Gives an order; after ``End`` no other one."""
        self._orders.put(order)
        os.eventfd_write(self._bell, 1)

    def reap(self) -> bool:
        """Returns True if the thread has ended after the last order; then nothing is left of it."""
        if self._thread.is_alive() and not self._ended:
            return False
        self._thread.join()
        os.close(self._bell)
        return True

    # ---- in the thread

    def _run(self) -> None:
        member, title = self._member, f"the switch process above, {shown(self._name)}"
        try:
            with closing(Client(self._name, ANSWER, member.token, host="", access=member.access)) as client:
                self._join(client)
                self._serve(client)
        except ControlError as error:
            self._say(Refused(error.code if self._asks else "failed", f"{title}: {error}"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._say(Failed(f"{title}: {error}"))
        self._ended = True
        self._wake()

    def _join(self, client: Client) -> None:
        member = self._member
        path = tuple(client.ping()["tree"])
        if path != member.above:
            raise ControlError("failed", f"it is {printable('/'.join(path))} now, not {'/'.join(member.above)} as when job "
                                         f"{member.job!r} was begun: it has been started anew, or has another parent; begin the "
                                         "job again")
        client.join(member.job, member.worker, member.paths, self._own, member.access if member.access.startswith("job:") else "")
        client.ping()  # raises a refusal

    def _serve(self, client: Client) -> None:
        """Passes news on in both directions, until the last order. Raises ControlError: the job is not admitted."""
        poller, left, lost, failed = select.poll(), set[int](), set[int](), False
        poller.register(self._bell, select.POLLIN)
        poller.register(client.fileno(), select.POLLIN | select.POLLRDHUP)
        while True:
            failure = client.poll()
            for worker in [worker for worker in client.left if worker not in left]:
                left.add(worker)
                self._say(Left(worker))
            if failure and (not failed or not lost.issuperset(client.lost)):
                news = tuple(worker for worker in client.lost if worker not in lost)
                gone = f"the switch process above, {shown(self._name)}, is lost: it has ended, or there is no way to it any more"
                self._say(Failed(gone if client.gone else failure, news))
                failed, lost = True, {*client.lost}
            if not self._orders.empty():
                if not self._obey(client):
                    return
                continue  # events may have come with the answers
            for descriptor, events in poller.poll():
                if descriptor == self._bell:
                    with suppress(BlockingIOError):
                        os.eventfd_read(self._bell)
                elif failed and events & (select.POLLHUP | select.POLLERR | select.POLLRDHUP):
                    poller.unregister(descriptor)

    def _obey(self, client: Client) -> bool:
        """Carries out the orders that have come; returns False after the last one. Raises ControlError: it is not admitted."""
        while not self._orders.empty():
            order = self._orders.get()
            if isinstance(order, Ask):
                self._admit(client, order)
                continue
            with suppress(ControlError):  # the parent is gone, of which there are news
                if isinstance(order, Left):
                    client.report(left=order.worker)
                elif isinstance(order, Failed):
                    for worker in order.lost or (None,):
                        client.report(failed=order.reason, lost=worker)
                elif order.in_peace:
                    client.release()
            if isinstance(order, End):
                return False
        return True

    def _admit(self, client: Client, ask: Ask) -> None:
        client.timeout, self._asks = ADMISSION, True
        reply = client.admit(self._member.job, ask.workers, ask.slots, check=ask.check)
        self._asks = False
        attachment = client.attach(self._member.job, self._member.worker, protocol=ask.protocol, values=ask.values)
        client.timeout = ANSWER
        self._say(Admitted(reply, attachment))

    def _say(self, news: News) -> None:
        self.news.put(news)
        self._wake()
