"""All-reduces through the kernel's UDP, by ``ina switch run --listen``, beside Gloo in the same processes and the same run: over
the loopback, and between namespaces as servers, with and without a rate; quiet and beside busy processes. Processor time says
what a sum costs whatever else the machine does; ``--quick`` measures 2 MiB of three ranks alone."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from bench.common import Cell, Figure, Measurement, computing, console
from bench.local import take_turns
from bench.peers import SILENCE, Group, Process, Torch, standing
from ina.base import paths
from ina.lab.training import launch
from ina.net.namespaces import own_namespace

SIZES = (4, 16 << 10, 256 << 10, 2 << 20)  # bytes
RANKS = (2, 3, 4)
BUSY = (0, 2)  # processes that compute beside the ranks
VALUES = (256, 2048)  # of a packet: what an MTU of 1,500 bytes allows, and a large one
MTU = 9000
RATE = 1e9  # bit/s of a server's card
PLACES: dict[str, float | None] = {"loopback": None, "servers": 0.0, "servers at 1 Gb/s": RATE}  # rate of cards, 0: none; if any
EXPECTED = "1 or more where processors are the limit; where cards are, 2 (n - 1)/n² by the bytes that cross the busiest card"


@dataclass(frozen=True)
class Ranks(Torch):
    """Ranks of ina and Gloo whose switch process runs already. ``inside``: prefix of each rank's command."""

    inside: Sequence[Sequence[str]] = ()
    variables: dict[str, str] = field(default_factory=dict)

    def processes(self, folder: Path, ranks: int, address: str) -> Iterator[Process]:
        for prefix, (command, variables) in zip(self.inside, super().processes(folder, ranks, address), strict=True):
            yield [*prefix, *command], {**variables, **self.variables}


@contextmanager
def servers(count: int, rate: float) -> Iterator[list[list[str]]]:
    """Makes ``count`` namespaces with a card each, all at one bridge, in a namespace in which this thread is meanwhile; server n
    has the address 10.0.0.n. Cards send at ``rate`` bit/s; 0: as fast as they can. Yields prefixes of commands in them."""
    with own_namespace(), ExitStack() as stack:
        _ip([], f"link set lo up\nlink add bridge type bridge\nlink set bridge mtu {MTU} up")
        prefixes = []
        for n in range(1, count + 1):
            sleeper = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
            stack.callback(sleeper.wait)
            stack.callback(sleeper.kill)
            ours, deadline = os.readlink("/proc/thread-self/ns/net"), time.monotonic() + SILENCE
            while os.readlink(f"/proc/{sleeper.pid}/ns/net") == ours:
                if sleeper.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("servers: `unshare -n sleep infinity` made no network namespace")
                time.sleep(1e-3)
            inside = ["nsenter", "-t", str(sleeper.pid), "-n"]
            _ip([], f"link add to{n} mtu {MTU} type veth peer name nic mtu {MTU} netns {sleeper.pid}\n"
                    f"link set to{n} master bridge up")
            _ip(inside, f"link set lo up\naddr add 10.0.0.{n}/24 dev nic\nlink set nic up")
            for prefix, card in ((inside, "nic"), ([], f"to{n}")) if rate else ():
                shape = ["rate", f"{rate:.0f}bit", "burst", "256kb", "latency", "100ms"]
                subprocess.run([*prefix, "tc", "qdisc", "add", "dev", card, "root", "tbf", *shape], check=True)
            prefixes.append(inside)
        yield prefixes


def _ip(prefix: Sequence[str], lines: str) -> None:
    subprocess.run([*prefix, "ip", "-batch", "-"], input=f"{lines}\n", text=True, check=True)


@contextmanager
def switch(prefix: Sequence[str], place: str, values: int, token: str) -> Iterator[int]:
    """Runs a switch process that listens at ``place``, ADDRESS:PORT. Yields its process id: what the prefix runs becomes it."""
    command = [*prefix, sys.executable, "-m", "ina.cli", "switch", "run", f"-DVALUES={values}", "--listen", place]
    environment = {**os.environ, "INA_TOKEN": token}
    process = subprocess.Popen(command, cwd=paths.root(), env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if "sums for workers" not in (line := process.stdout.readline()):
            raise SystemExit(f"servers: {' '.join(command)} says {line!r}, expected that it sums for workers")
        yield process.pid
    finally:
        process.terminate()
        process.wait(SILENCE)
        process.stdout.close()


@contextmanager
def ranks_at(rate: float | None, ranks: int, values: int, folder: Path) -> Iterator[dict[str, Group]]:
    """Yields the group of ranks, each on a server of its own with a card of ``rate``, as the switch process; None: all here."""
    token = secrets.token_hex(16)
    here: list[list[str]] = [[]] * (ranks + 1)
    network: AbstractContextManager[list[list[str]]] = nullcontext(here) if rate is None else servers(ranks + 1, rate)
    with network as (*inside, last):
        first, host, card = ("127.0.0.1", "127.0.0.1", "lo") if rate is None else ("10.0.0.1", f"10.0.0.{ranks + 1}", "nic")
        at = f"{host}:{launch.free_port()}"
        variables = {"INA_SWITCH": f"tcp:{at}", "INA_TOKEN": token, "INA_QUIET": "true", "MASTER_ADDR": first,
                     "GLOO_SOCKET_IFNAME": card}
        with switch(last, at, values, token) as process:
            variables["PEERS_SWITCH"] = str(process)
            with standing([Ranks(inside=inside, variables=variables)], ranks, folder) as groups:
                yield groups


def bound(ranks: int, size: int, values: int) -> float:
    """Returns the least seconds of an all-reduce where the switch process's card has RATE: what all ranks send crosses it."""
    headers = 14 + 20 + 8 + 14  # Ethernet, IPv4, UDP, SwitchML
    return ranks * -(-size // (4 * values)) * (headers + 4 * values) * 8 / RATE


def measure(sizes: Sequence[int] = SIZES, all_ranks: Sequence[int] = RANKS, loads: Sequence[int] = BUSY,
            all_values: Sequence[int] = VALUES, places: Iterable[str] = PLACES) -> Iterator[Measurement]:
    if os.geteuid():
        console.print("  servers: only over the loopback, as namespaces need root", highlight=False)
        places = [place for place in places if PLACES[place] is None]
    for ranks in all_ranks:
        result = Measurement(
            f"servers {ranks} ranks: all-reduce of float32 through the kernel's UDP, by {Torch().title()}",
            ["place", "values", "beside", "bytes", "ina us", "gloo us", "ina CPU us", "gloo CPU us", "CPU ratio", "of the card",
             "sent again", "needless", "ratio"],
            "Gloo's time over ours", EXPECTED, keys=4)
        for place in places:
            for values in all_values:
                with tempfile.TemporaryDirectory() as folder, ranks_at(PLACES[place], ranks, values, Path(folder)) as groups:
                    for load in loads:
                        beside = f"{load} busy" if load else "quiet"
                        console.print(f"  {ranks} ranks, {place}, {values} values, {beside}", highlight=False)
                        with computing(load):
                            for size in sizes:
                                result.add(place, values, beside, size, *_cells(groups, place, size, ranks, values))
        yield result


def _cells(groups: dict[str, Group], place: str, size: int, ranks: int, values: int) -> list[Cell]:
    """Returns the figures of one size. Processor time is that of all ranks and of the switch process, for one all-reduce."""
    before = groups["ina"].repeated()
    samples = take_turns(groups, "all_reduce", size)
    again, needless = (int(now - then) for now, then in zip(groups["ina"].repeated(), before, strict=True))
    ours, gloo = (Figure.of(samples[name].seconds) for name in ("ina", "gloo"))
    our_cpu, its_cpu = (Figure.of(samples[name].processor) for name in ("ina", "gloo"))
    of_card: Cell = bound(ranks, size, values) / ours if PLACES[place] else "–"
    return [1e6 * ours, 1e6 * gloo, 1e6 * our_cpu, 1e6 * its_cpu, its_cpu / our_cpu, of_card, again, needless, gloo / ours]


def quick() -> Iterator[Measurement]:
    """Measures one size of three ranks, between servers with and without a rate: two starts, so that it ends in two minutes."""
    return measure([2 << 20], [3], BUSY, [2048], [place for place in PLACES if place != "loopback" or os.geteuid()])
