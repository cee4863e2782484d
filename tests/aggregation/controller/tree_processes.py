"""Trees of switch processes on the loopback, and endpoints of jobs whose workers are at several of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from listening_switch import TOKEN
from waiting import LONG, until


def shown(name: str) -> str:
    return name.removeprefix("tcp:")


def path_of(name: str) -> str:
    """The path of a worker at the switch process ``name``, as it says itself."""
    from ina.aggregation.controller.client import Client

    client = Client(name, LONG, access=TOKEN)
    try:
        return "/".join(client.ping()["tree"])
    finally:
        client.close()


class TreeWorker:
    """A worker of a job at a switch process of a tree. ``join`` first, ``begin`` then, in any order of workers."""

    def __init__(self, name: str, job: str, worker: int, paths: Sequence[str]):
        from ina.aggregation.controller.client import Client

        self.job, self.worker, self.paths = job, worker, paths
        self.client = Client(name, LONG, token="of the job", access=TOKEN)
        self.endpoint = None
        self.client.join(job, worker, paths)

    def begin(self, **config):
        from ina.aggregation.controller.worker_ports import open_worker_port
        from ina.aggregation.worker import Endpoint

        faults = config.pop("faults", None)
        admission = self.client.admit(self.job, len(self.paths))
        attachment = self.client.attach(self.job, self.worker)
        own = {"rto_min": 0.05, "rto_max": 1.0, "timeout": LONG} | config
        self.endpoint = Endpoint(attachment.config(**own), open_worker_port(attachment, faults), self.client.fileno())
        for fd in attachment.fds:
            os.close(fd)
        return admission

    def failure(self) -> str:
        """The reason why the job is over, once it is."""
        until(self.client.poll, f"the end of job {self.job}")
        return self.client.poll()

    def leave(self) -> None:
        self.endpoint.close()
        self.client.release()

    def close(self) -> None:
        if self.endpoint is not None:
            self.endpoint.close()
        self.client.close()


@contextmanager
def job(name: str, at: Sequence[str], begin: bool = True, **config) -> Iterator[list[TreeWorker]]:
    """Workers of a job, the i-th at the switch process ``at[i]``, which leave in peace where they can."""
    from ina.aggregation.controller.client import ControlError

    paths = [path_of(each) for each in at]
    with ExitStack() as stack:
        workers = []
        for number, each in enumerate(at):
            workers.append(TreeWorker(each, name, number, paths))
            stack.callback(workers[-1].close)
        for worker in workers if begin else ():
            worker.begin(**config)
        yield workers
        for worker in workers if begin else ():
            with suppress(ControlError):
                worker.leave()
