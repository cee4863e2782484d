"""Parameter server: the machines of its jobs (``host/protocol/ps.h``) on one port, driven by a native thread
(``host/protocol/ps_server.h``)."""

from __future__ import annotations

import os

from ina.aggregation.ps.state_machine import ServerConfig
from ina.aggregation.worker.block import stats_dict
from ina.base.closing import Closing
from ina.base.native import CData, checked, ffi, lib
from ina.net.ports import Port

__all__ = ["Server", "ServerConfig"]


class Server(Closing):
    """Serves jobs over ``port``, which it then owns (not if it cannot start). Jobs may be added and removed while it runs."""

    def __init__(self, port: Port):
        server = lib.ina_ps_server_start(port.handle)
        if server == ffi.NULL:
            raise OSError(ffi.errno, f"parameter server not started: {os.strerror(ffi.errno)}")
        port.release()
        self._pointer = server
        self.jobs: list[int] = []  # their numbers

    def add(self, config: ServerConfig) -> None:
        """Adds a job. OSError: its number is taken, its frames do not fit, there is no memory for it."""
        checked(lib.ina_ps_server_add(self._server, config.to_c()), f"job {config.job}")
        self.jobs.append(config.job)

    def remove(self, job: int) -> None:
        """Removes a job. OSError: there is none of that number."""
        checked(lib.ina_ps_server_remove(self._server, job), f"job {job}")
        self.jobs.remove(job)

    def stats(self, job: int) -> dict[str, int]:
        """Returns counters of ``struct ina_ps_stats``. OSError: there is no such job."""
        stats = ffi.new("struct ina_ps_stats *")
        checked(lib.ina_ps_server_stats(self._server, job, stats), f"job {job}")
        return stats_dict(stats)

    @property
    def port_stats(self) -> dict[str, int]:
        """Counters of the port, and ``strangers``: frames that belong to no job."""
        stats, strangers = ffi.new("struct ina_port_stats *"), ffi.new("uint64_t *")
        lib.ina_ps_server_port_stats(self._server, stats, strangers)
        return {**stats_dict(stats), "strangers": strangers[0]}

    def close(self) -> None:
        """Ends the thread and closes the port. A second call does nothing."""
        server, self._pointer = self._pointer, ffi.NULL
        lib.ina_ps_server_stop(server)

    @property
    def _server(self) -> CData:
        if self._pointer == ffi.NULL:
            raise BrokenPipeError("the parameter server is closed")
        return self._pointer
