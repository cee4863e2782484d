"""One rank of ina and of Gloo, called from torch as users do: ``python -m bench.peers_torch SOCKET``. It speaks the lines of
bench/peers.c; NAME is the back end."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import ina.backend
from ina.lab.training import launch

PERIOD = 64  # values repeat
CALLS = 50  # after which sums of four ranks still are floats
LARGE = 4 << 20  # bytes from which a barrier, not a call, brings the ranks together


class Rank:
    """The vectors of this rank, and its groups by back end."""

    def __init__(self) -> None:
        began = time.perf_counter()
        dist.init_process_group("ina", timeout=timedelta(seconds=120))
        dist.all_reduce(torch.ones(1))
        self.start = time.perf_counter() - began
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.groups = {"ina": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
        self.whole = self.piece = torch.empty(0)
        self.calls = 0  # on the present values

    def resize(self, collective: str, size: int) -> None:
        """Makes room for the vectors of a collective; those of an earlier one go."""
        piece = max(1, size // 4 // self.ranks)
        whole = size // 4 if collective in ("all_reduce", "broadcast") else piece * self.ranks
        if (len(self.whole), len(self.piece)) != (whole, piece):
            self.whole = self.piece = torch.empty(0)
            self.whole, self.piece = torch.empty(whole), torch.empty(piece)
            self.refill()

    def call(self, collective: str, back_end: str) -> Callable[[], object]:
        """Returns a call of a collective; now and then it makes the values small again."""
        whole, piece, group = self.whole, self.piece, self.groups[back_end]
        call: Callable[[], object] = {
            "all_reduce": lambda: dist.all_reduce(whole, group=group),
            "all_gather": lambda: dist.all_gather_into_tensor(whole, piece, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(piece, whole, group=group),
            "broadcast": lambda: dist.broadcast(whole, 0, group=group),
            "barrier": lambda: dist.barrier(group=group),
        }[collective]

        def counted() -> None:
            if self.calls == CALLS:
                self.refill()
            self.calls += 1
            call()

        return counted

    def refill(self) -> None:
        self.whole.fill_(1e-3)
        self.piece.fill_(1e-3)
        self.calls = 0

    def verify(self, collective: str, back_end: str) -> None:
        """Makes one call on small integers, and compares each result."""
        row = torch.arange(min(PERIOD, len(self.piece)), dtype=torch.float32)
        for vector in (self.whole, self.piece):
            for part, values in parts(vector, row + self.rank):
                part.copy_(values)
        self.calls = 0
        self.call(collective, back_end)()
        total = self.ranks * row + self.ranks * (self.ranks - 1) / 2
        pieces = self.whole.chunk(self.ranks) if collective == "all_gather" else ()
        for result, expected in {
            "all_reduce": [(self.whole, total)], "reduce_scatter": [(self.piece, total)], "broadcast": [(self.whole, row)],
            "all_gather": [(each, row + rank) for rank, each in enumerate(pieces)], "barrier": [],
        }[collective]:
            for part, values in parts(result, expected):
                error = (part - values).abs_().max().item()
                if not error <= 0.25:
                    raise SystemExit(f"{back_end}, {collective}: a wrong result, by {error:g}")
        self.refill()

    def turn(self, back_end: str, collective: str, size: int, calls: int) -> tuple[float, float]:
        """Returns seconds and processor seconds of so many calls; of "repeated": packets sent again, and of these needlessly."""
        if collective == "repeated":
            worker = ina.backend.stats()["worker"]
            return worker.get("retransmissions", 0), worker.get("spurious", 0)
        self.resize(collective, size)
        if not calls:
            self.verify(collective, back_end)
            return 0, 0
        call = self.call(collective, back_end)
        self.call(collective if size < LARGE else "barrier", back_end)()
        began, spent = time.perf_counter(), self.processor()
        for _ in range(calls):
            call()
        return time.perf_counter() - began, self.processor() - spent

    def processor(self) -> float:
        """Returns processor seconds of this process; rank 0 adds those of the switch processes: its group's own, and the one that
        runs already (PEERS_SWITCH, its process)."""
        from ina.backend import rendezvous  # after the start, which is timed

        if self.rank:
            return time.process_time()
        switches = {*rendezvous._pids.values(), *map(int, os.environ.get("PEERS_SWITCH", "").split())}
        return time.process_time() + 1e-9 * sum(map(_scheduled, switches))


def parts(vector: torch.Tensor, row: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields parts of a vector in which a row of values repeats, each with the values that are to be in it: several rows, which
    need little memory beside, and what is left where the vector ends within a row."""
    whole = len(vector) // len(row) * len(row)
    for rows in vector[:whole].view(-1, len(row)).split(1 << 14):
        yield rows, row
    if whole < len(vector):
        yield vector[whole:], row[: len(vector) - whole]


def _scheduled(pid: int) -> int:
    """Returns nanoseconds that the threads of a process have run."""
    tasks = f"/proc/{pid}/task"
    return sum(int(open(f"{tasks}/{task}/schedstat").read().split()[0]) for task in os.listdir(tasks))


def _meet(address: str) -> None:
    """Waits until all ranks have come so far, as each takes seconds to import torch: what is timed is a group, not that."""
    own, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    places = [Path(f"{address}.{rank}") for rank in range(ranks)]
    places[own].touch()
    while not all(place.exists() for place in places):
        time.sleep(1e-3)


def main(address: str) -> None:
    launch.die_with_parent()
    launch.say_where_on_request()
    ina.backend.register()
    torch.set_num_threads(1)
    _meet(address)
    rank = Rank()
    bench = socket.socket(socket.AF_UNIX)
    bench.connect(address)
    lines = bench.makefile("rw")
    with suppress(BrokenPipeError):  # a bench that ends within a turn
        print(rank.rank, rank.start, file=lines, flush=True)
        for line in lines:
            back_end, collective, size, calls = line.split()
            print(*rank.turn(back_end, collective, int(size), int(calls)), file=lines, flush=True)
    dist.destroy_process_group()
    launch.leave()


if __name__ == "__main__":
    main(sys.argv[1])
