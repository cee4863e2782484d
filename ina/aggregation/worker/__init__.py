"""Transport: the host protocol over frames. ``Worker`` is the state machine without I/O, ``Endpoint`` runs it on a port."""

from ina.aggregation.worker.addresses import worker_address
from ina.aggregation.worker.config import SERVER, SWITCH, WorkerConfig, slots_for
from ina.aggregation.worker.endpoint import Endpoint
from ina.aggregation.worker.errors import (
    Event,
    JobAborted,
    JobCorrupt,
    JobError,
    JobMismatch,
    JobTimeout,
    PeerLost,
    TensorRefused,
    VersionRefused,
)
from ina.aggregation.worker.route import Route
from ina.aggregation.worker.worker import Worker
from ina.net.ports import Address

__all__ = [
    "SERVER", "SWITCH", "Address", "Endpoint", "Event", "JobAborted", "JobCorrupt", "JobError", "JobMismatch", "JobTimeout",
    "PeerLost", "Route", "TensorRefused", "VersionRefused", "Worker", "WorkerConfig", "slots_for", "worker_address",
]
