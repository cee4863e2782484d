"""One rank of a job of ``bench.soak_servers``: sums integers, compares every sum with its own, and perhaps ends badly."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ina.aggregation.controller.client import Attachment, Client, ControlError
from ina.aggregation.controller.worker_ports import open_worker_port
from ina.aggregation.worker import Endpoint, Worker
from ina.aggregation.worker.errors import JobError

PATIENCE = 60.0  # s for each answer, and for each sum
SIZES = (1, 300, 10_000, 100_000)  # values of a sum
ENDS = ("leave", "kill", "reset")


@dataclass(frozen=True)
class Rank:
    """``access``: the socket's token, or the job's pass; ``rounds``: sums of the job; ``end``: after them the rank leaves; or, in
    the middle of the last but one, is killed, or its control connection is reset, too; so the last one cannot end. ``forges``: it
    sends frames with wrong tags."""

    switch: str
    job: str
    token: str
    access: str
    rank: int
    ranks: int
    rounds: int
    seed: int
    end: str = "leave"
    forges: bool = False


def values(seed: int, turn: int, rank: int, size: int) -> npt.NDArray[np.int32]:
    """Returns what a rank gives to a sum: any integers, so that sums wrap."""
    return np.random.default_rng([seed, turn, rank]).integers(-(2**31), 2**31, size, dtype=np.int32)


def expected(seed: int, turn: int, ranks: int, size: int) -> npt.NDArray[np.int32]:
    """Returns the sum modulo 2^32, by Python's own wide integers' rule: 64 bits, and then the lower half."""
    total = np.zeros(size, np.int64)
    for rank in range(ranks):
        total += values(seed, turn, rank, size)
    return (total & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


class Forger:
    """Someone with the address of a rank: frames of its job without a tag, with a wrong one, and of no meaning, by its socket."""

    def __init__(self, attachment: Attachment, seed: int):
        self._socket = socket.socket(fileno=os.dup(attachment.fds[-1]))
        model = Worker(attachment.config(timeout=PATIENCE, reply_in_place=False))
        model.submit(np.full(1000, 666, np.int32), now=0)
        self._frames = [frame[42:] for frame in model.frames_to_send(0)]
        self._random = random.Random(seed)
        self.count = 0

    def send(self, many: int = 8) -> None:
        for _ in range(many):
            frame = self._random.choice(self._frames)
            kind = self._random.randrange(4)
            payload = (frame, frame + bytes(16), frame + self._random.randbytes(16),
                       self._random.randbytes(self._random.randrange(1, 400)))[kind]
            with suppress(BlockingIOError, ConnectionRefusedError):  # its buffer is full; the switch process is gone
                self._socket.send(payload)
                self.count += 1

    def close(self) -> None:
        self._socket.close()


def run(rank: Rank) -> dict[str, object]:
    """Runs the rank to its end. Returns ``sums`` that were right, ``wrong`` ones, ``forged`` frames that it has sent, and
    ``failure``: the reason why its job is over, "" where it has left in peace."""
    result: dict[str, object] = {"sums": 0, "wrong": 0, "forged": 0, "failure": ""}
    client: Client | None = None
    endpoint: Endpoint | None = None
    forger: Forger | None = None
    sizes = random.Random(rank.seed)
    try:
        client = Client(rank.switch, PATIENCE, token=rank.token, access=rank.access)
        client.join(rank.job, rank.rank)
        client.admit(rank.job, rank.ranks)
        attachment = client.attach(rank.job, rank.rank, tags="on")
        try:
            forger = Forger(attachment, rank.seed) if rank.forges else None
            port = open_worker_port(attachment)
            endpoint = Endpoint(attachment.config(timeout=PATIENCE), port, client.fileno())
        finally:
            for fd in attachment.fds:
                os.close(fd)
        for turn in range(rank.rounds):
            size = sizes.choice(SIZES)
            array = values(rank.seed, turn, rank.rank, size)
            if forger:
                forger.send()
            ticket = endpoint.submit(array)
            if turn == rank.rounds - 2 and rank.end != "leave":
                _end_badly(rank.end, client)
            endpoint.wait(ticket, PATIENCE)
            right = np.array_equal(array, expected(rank.seed, turn, rank.ranks, size))
            key = "sums" if right else "wrong"
            result[key] = int(str(result[key])) + 1
        endpoint.close()
        client.release()
    except (JobError, ControlError, OSError) as error:
        reason = client.poll() if client else ""
        result["failure"] = f"{type(error).__name__}: {error}" + (f" ({reason})" if reason else "")
    finally:
        if forger:
            result["forged"] = forger.count
            forger.close()
        for each in (endpoint, client):
            if each:
                each.close()
    return result


def _end_badly(how: str, client: Client) -> None:
    """Ends this process: by a kill, or after its control connection was reset (RST, no FIN), as by a machine that reboots."""
    if how == "reset":
        with socket.socket(fileno=os.dup(client.fileno())) as control:
            control.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.kill(os.getpid(), signal.SIGKILL)


def main(rank: Rank, result: Path) -> None:
    """Runs a rank in a process of its own, and writes what it says to a file."""
    result.write_text(json.dumps(run(rank)))
