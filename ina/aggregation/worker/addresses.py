"""Addresses of a job's workers, as frames have them: the only place that decides them, and which workers may have one host.

A job gets those of its workers when it is admitted (``Job.addresses``); entries, ports and workers take them from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ina.net.ports import Address
from ina.topology.topology import Node

LAST_PORT = 253  # whose worker, by its number, has an address of 10.0.0.0/24


def worker_address(job: int, worker: int) -> Address:
    """Returns the address of a worker in the local world: 10.0.0.1 and up, UDP source port 4000 + job."""
    return Address(f"00:00:00:00:00:{worker + 1:02x}", f"10.0.0.{worker + 1}", 4000 + job)


def port_address(number: int) -> Address:
    """Returns the source of what comes as datagrams at a switch's UDP port: worker ``number`` of job 0, or of the job that they
    name (``UdpPort.number_jobs``). Raises ValueError: no worker has such a number."""
    if number > LAST_PORT:
        raise ValueError(f"port {number}: UDP ports have numbers 0..{LAST_PORT}, from which the worker's address is made")
    return worker_address(0, number)


def addresses(job: int, workers: int, hosts: Sequence[Node]) -> tuple[Address, ...]:
    """Returns the addresses of the workers of a controller's job number ``job``, in order: those of their ``hosts``; none: local
    world."""
    local = tuple(worker_address(job, worker) for worker in range(workers))
    return tuple(replace(own, mac=host.mac, ip=host.ip) for own, host in zip(local, hosts, strict=True)) if hosts else local


def taken(host: str, others: Mapping[int, str]) -> str:
    """Returns why a worker in ``host`` gets no address beside the job's ``others``, hosts by worker's number; "": it gets one.
    The host "" is none, as in the local world."""
    for worker, other in others.items():
        if host and other == host:
            return f"{host} has a worker of this job already ({worker}): each worker of a job needs a host of its own"
    return ""
