"""Transport: the host protocol over frames. ``Worker`` is the machine without I/O, ``Endpoint`` runs it on a port."""

from ina.net.ports import Address

from .config import SERVER, SWITCH, WorkerConfig, slots_for, worker_address
from .endpoint import Endpoint
from .errors import Event, JobAborted, JobError, JobMismatch, JobTimeout, PeerLost
from .worker import Worker

__all__ = [
    "SERVER", "SWITCH", "Address", "Endpoint", "Event", "JobAborted", "JobError", "JobMismatch", "JobTimeout", "PeerLost",
    "Worker", "WorkerConfig", "slots_for", "worker_address",
]  # fmt: skip
