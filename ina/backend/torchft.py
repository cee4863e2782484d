"""torchft's process group over this back end: replicas of a training that die, leave and come back while it goes on.

    manager = torchft.Manager(pg=ina.backend.torchft_group(), min_replica_size=2, load_state_dict=..., state_dict=..., ...)

torchft decides, between two steps, who is in it (a quorum), and each quorum has a group of its own here, with a job of its own
at the switch: nothing of an earlier quorum can get into its sums.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta

import torch.distributed as dist

from ina.backend import regroup, rendezvous
from ina.backend.process_group import InaProcessGroup
from ina.backend.settings import Options, Settings
from ina.base.bounds import SECONDS
from ina.base.extras import extra

with extra("torchft"):
    from torchft.process_group import ProcessGroupWrapper


class ProcessGroupIna(ProcessGroupWrapper):
    """Group of torchft's; ``seconds`` and ``options`` as of ina.backend.torchft_group."""

    def __init__(self, seconds: float, options: Options | None):
        """TypeError: ``options`` are no Options. ValueError: no such ``seconds``, or an option that does not fit."""
        regroup.check_seconds(seconds)
        if not isinstance(options, Options | None):
            raise TypeError(f"ina: options is a {type(options).__name__}, expected ina.backend.Options")
        Settings.read(options)  # an error here, not of a quorum
        super().__init__(timedelta(seconds=min(seconds, SECONDS)))
        self._options = options
        self._pg: InaProcessGroup | None  # the quorum's
        self._error: Exception | None = None
        self._switch = ExitStack()  # keeps the switch process that this process has started, from one quorum to the next

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> InaProcessGroup:
        try:
            group = InaProcessGroup(store, rank, world_size, self._timeout, "torchft", self._options)
        except Exception as error:
            self._error = error
            raise
        self._error = None
        before, self._switch = self._switch, ExitStack()
        self._switch.enter_context(rendezvous.kept(group.switch))
        before.close()
        return group

    def abort(self, errored: bool = True) -> None:
        """Ends the quorum's group; its collectives fail. ``errored``: with an error."""
        if errored and self._error is None:
            self._error = self.errored() or RuntimeError("ina: the process group was aborted")
        super().abort(errored)

    def errored(self) -> Exception | None:
        """Returns why no collective can succeed before the next quorum; None: they can."""
        group = self._pg  # another thread may abort
        if self._error is None and group is not None and (failure := group.failure):
            self._error = RuntimeError(failure)
        return self._error

    def shutdown(self) -> None:
        """Ends the group, in peace."""
        group, self._pg = self._pg, None
        if group is not None:
            group.shutdown()
        self._switch.close()

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the time-out of collectives, and of the wait for the other replicas."""
        self._timeout = timeout
        if self._pg is not None:
            self._pg.set_timeout(timeout)

    def getBackendName(self) -> str:
        return "torchft-ina"
