"""The host agent: all-reduces of one worker over a device of DPDK, timed and, if asked for, verified.

    ina-dpdk-worker --device memif:/run/ina.sock --control /run/ina-control --worker 0 --workers 2 --size 100M --verify
    ina-dpdk-worker -l 3 -a 65:00.0 -- --device 65:00.0 --control tcp:10.0.0.1:9400 --worker 1 --workers 2

EAL's arguments come first, then "--". The controller at --control admits the job when the first of its workers asks, and says
what frames carry. Each run is a job of its own: what a former one has left, in the switch or on the way, is not taken for
this one's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from ina.aggregation import protocols
from ina.aggregation.port_kinds import dpdk as dpdk_port
from ina.aggregation.worker import Endpoint, JobError, WorkerConfig
from ina.base import command, signals
from ina.base.bounds import SECONDS, real, whole
from ina.net import dpdk
from ina.net.dpdk import DpdkError
from ina.worlds.dpdk import devices

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
ELEMENT = np.dtype(np.float32).itemsize  # bytes; of int32, too
LARGEST = 1000  # of the numbers that are summed: exact in float32, whatever the order


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="ina-dpdk-worker", usage="%(prog)s [EAL arguments --] --device DEVICE --worker I --workers N ...",
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--device", required=True, help="a PCI address, memif:SOCKET (its connection: the worker's number), or a "
                                                     "virtual device with its arguments (net_af_packet0,iface=eth1)")
    top.add_argument("--worker", type=whole(0, 1023), required=True, metavar="I",
                     help="number of this worker, from 0")
    top.add_argument("--workers", type=whole(1, 1024), required=True, metavar="N", help="of the job")
    top.add_argument("--control", required=True, metavar="SOCKET", help="the switch's, or a controller's: it admits the job")
    top.add_argument("--job", default="bench", metavar="NAME", help="the same for all its workers (default: %(default)s)")
    top.add_argument("--at", type=whole(0, 509), metavar="PORT",
                     help="port of the switch that the device leads to (default: the worker's number)")
    work = top.add_argument_group("work")
    work.add_argument("--size", type=_size, default=1 << 20, metavar="BYTES", help="of the tensor: 4k, 100M, ... (default: 1M)")
    work.add_argument("--repeat", type=whole(1, 10**9), default=10, metavar="N", help="all-reduces (default: %(default)s)")
    work.add_argument("--duration", type=real(0, SECONDS), default=0.0, metavar="SECONDS",
                      help="not --repeat: until the time of one of the workers is over; all have it, or none")
    work.add_argument("--warmup", type=whole(0, 10**6), default=1, metavar="N",
                      help="all-reduces before those that count (default: %(default)s)")
    work.add_argument("--dtype", choices=("int32", "float32"), default="float32", help="(default: %(default)s)")
    work.add_argument("--in-flight", type=whole(1, 64), default=1, metavar="N",
                      help="tensors at once (default: %(default)s)")
    work.add_argument("--verify", action="store_true", help="compare every value of every sum; a difference is an error")
    protocol = top.add_argument_group("protocol")
    protocol.add_argument("--protocol", default="", help="switchml, atp, ... (default: the controller's, or switchml)")
    protocol.add_argument("--values", type=whole(0, 2048), default=0, metavar="K",
                          help="integers per packet (default: the controller's, or 256)")
    protocol.add_argument("--window", type=whole(0, 8192), default=0, metavar="SLOTS",
                          help="slots of the job (default: the controller's, or 128)")
    protocol.add_argument("--check", choices=protocols.CHECKS, default="",
                          help="how check words protect sums, the same for all workers (default: the job's, or sum)")
    protocol.add_argument("--rto", type=real(1e-6, SECONDS), default=10e-3, metavar="SECONDS",
                          help="least retransmission time-out (default: %(default)g)")
    protocol.add_argument("--rto-max", type=real(1e-6, SECONDS), default=0.5, metavar="SECONDS",
                          help="longest (default: %(default)g)")
    protocol.add_argument("--timeout", type=real(1e-3, SECONDS), default=30.0, metavar="SECONDS",
                          help="deadline of a tensor, and of the switch and the other workers to be there (default: %(default)g)")
    protocol.add_argument("--fault", default="", metavar="SPEC", help="such as loss=0.01,dup=0.01,reorder=0.01,seed=1, both ways")
    protocol.add_argument("--capture", default="", metavar="FILE", help="pcap file of this worker's packets")
    top.add_argument("--json", action="store_true", help="lines of JSON: one for every all-reduce, then the summary")
    top.add_argument("-q", "--quiet", action="store_true", help="only the summary")
    devices.add_arguments(top)
    return top


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]+)([kmg]?)i?b?", text.strip().lower())
    if not match or not ELEMENT <= (size := int(match[1]) * UNITS[match[2]]) <= 1 << 36 or size % ELEMENT:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a multiple of {ELEMENT} bytes, such as 4k, 25M or 1048576")
    return size


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0: all done; 1: an error, printed on standard error; 2: wrong arguments; 130: interrupted, with a summary."""
    return command.run("ina-dpdk-worker", lambda: _main(argv))


def _main(argv: list[str] | None) -> int:
    eal, own = devices.halves(sys.argv[1:] if argv is None else argv)
    options = parser()
    args = options.parse_args(own)
    try:
        _check(args, eal)
    except ValueError as error:
        options.error(str(error))
    signals.raising(lambda _number: KeyboardInterrupt(), signal.SIGTERM)
    try:
        return _run(args, eal)
    except (DpdkError, JobError, OSError, ValueError, RuntimeError) as error:
        print(f"ina-dpdk-worker: {error}", file=sys.stderr)
        return 1


def _check(args: argparse.Namespace, eal: list[str]) -> None:
    """Checks the arguments before anything is started. Raises ValueError."""
    args.spin = devices.spin(args.spin, eal)
    WorkerConfig(worker=args.worker, workers=args.workers, life=1, protocol=args.protocol or protocols.DEFAULT,
                 slots=args.window or 128, values=args.values or 256, **_timers(args))  # of no job: do the arguments make sense?
    _faults(args)


def _timers(args: argparse.Namespace) -> dict[str, Any]:
    return {"rto_min": args.rto, "rto_max": max(args.rto, args.rto_max), "timeout": args.timeout}


def _faults(args: argparse.Namespace) -> Any:
    from ina.net.faults import parse_faults

    return parse_faults(args.fault) if args.fault else None


def _run(args: argparse.Namespace, eal: list[str]) -> int:
    with contextlib.ExitStack() as stack:
        config, alive, leave = _admit(args, stack)
        number = args.worker if args.at is None else args.at
        opened = devices.Devices({number: args.device}, eal, max(config.frame_bytes, 1514), server=False, mbufs=args.mbufs,
                                 descriptors=args.descriptors, timeout=args.timeout)
        stack.callback(opened.close)
        bench = Bench(args, config, opened, number, alive, dpdk.cpus() if eal else [])
        stack.callback(bench.close)
        status = bench.run()
        if status == 0:
            leave()  # else the controller reports this worker as lost to the others
        return status


def _admit(args: argparse.Namespace, stack: contextlib.ExitStack) -> tuple[WorkerConfig, int, Callable[[], None]]:
    """Joins the job. Returns its configuration; a connection that ends with the switch (-1: none); and a function to leave."""
    client = _connect(args.control, args.timeout)
    stack.callback(client.close)
    client.join(args.job, args.worker)
    client.admit(args.job, args.workers, args.window or None, check=args.check)
    grant = client.attach(args.job, args.worker, dpdk_port.KIND.name + ("" if args.at is None else f"@{args.at}"), args.protocol,
                          args.values)
    for fd in grant.fds:
        os.close(fd)
    return grant.config(**_timers(args)), -1 if grant.outlives else client.fileno(), client.release


def _connect(socket: str, timeout: float) -> Any:
    """Connects to the controller; retries until ``timeout`` seconds have passed. Raises ControlError."""
    from ina.aggregation.controller.client import Client, ControlError

    deadline = time.monotonic() + timeout
    while True:
        try:
            return Client(socket, timeout)
        except ControlError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.05)


def _print(text: str) -> None:
    """Prints a line in one write: an interrupt may come at any moment, and must not leave half a line before the summary."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def operand(worker: int, turn: int, count: int, dtype: str) -> npt.NDArray[Any]:
    """Returns the tensor of ``worker`` in all-reduce ``turn``: integers from -LARGEST to LARGEST that differ in every place."""
    mixed = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(turn * 97 + worker * 40503)
    numbers = ((mixed >> np.uint32(16)) % np.uint32(2 * LARGEST + 1)).astype(np.int32)
    tensor: npt.NDArray[Any] = numbers.astype(dtype) - np.dtype(dtype).type(LARGEST)
    return tensor


class Bench:
    """The worker's endpoint, its tensors, and the measured times."""

    def __init__(self, args: argparse.Namespace, config: WorkerConfig, opened: devices.Devices, number: int, alive: int,
                 cpus: list[int]):
        self.args, self.config, self.opened, self.number = args, config, opened, number
        self.device, self.port = opened.opened[number], opened.ports[number]
        if faults := _faults(args):
            self.port.with_faults(replace(faults, seed=faults.seed * 1024 + 2 * config.worker),
                                  replace(faults, seed=faults.seed * 1024 + 2 * config.worker + 1))
        if args.capture:
            self.port.with_capture(args.capture)
        if cpus:
            os.sched_setaffinity(0, cpus[:1])  # this thread drives, and the endpoint's is started by it
        self._wait_link()
        self.endpoint = Endpoint(config, self.port, alive, args.spin)
        opened.ports.pop(number)  # owned by the endpoint from now on
        self.times: list[float] = []

    def _wait_link(self) -> None:
        deadline = time.monotonic() + self.args.timeout
        while not self.device.up:
            if time.monotonic() >= deadline:
                raise DpdkError(f"device {self.device.name}: no link for {self.args.timeout:g} s: is the switch there?")
            time.sleep(0.01)

    def close(self) -> None:
        self.endpoint.close()

    def run(self) -> int:
        args, count = self.args, self.args.size // ELEMENT
        sources = [operand(self.config.worker, turn, count, args.dtype) for turn in range(args.in_flight)]
        expected = [reduce(np.add, (operand(w, turn, count, args.dtype) for w in range(self.config.workers)))
                    for turn in range(args.in_flight)] if args.verify else []
        outs = [np.empty_like(source) for source in sources]
        began, status = time.monotonic(), 0
        try:
            for turn in self._turns(began):
                start = time.monotonic()
                tickets = [self.endpoint.submit(source, out) for source, out in zip(sources, outs, strict=True)]
                for ticket in tickets:
                    self.endpoint.wait(ticket)
                seconds = time.monotonic() - start
                for out, sums in zip(outs, expected, strict=False):
                    if not np.array_equal(out, sums):
                        wrong = int(np.flatnonzero(out != sums)[0])
                        raise DpdkError(f"all-reduce {turn}: value {wrong} is {out[wrong]}, expected {sums[wrong]}")
                if args.verify:
                    for out in outs:
                        out.fill(0)  # so that an old result does not pass for a new one
                if turn >= 0:
                    self.times.append(seconds)
                    if not args.quiet:
                        self._tell(turn, seconds)
        except KeyboardInterrupt:
            status = 130
        self._summary(time.monotonic() - began)
        return status

    def _turns(self, began: float) -> Iterator[int]:
        """Yields numbers of all-reduces; negative: warming up."""
        turn = -self.args.warmup
        while turn < 0 or (self._time_left(began) if self.args.duration else turn < self.args.repeat):
            yield turn
            turn += 1

    def _time_left(self, began: float) -> bool:
        """Returns True if all workers go on; they agree on it, as they must stop after the same all-reduce."""
        over = np.array([time.monotonic() - began >= self.args.duration], np.int32)
        self.endpoint.run(over)
        return not over[0]

    def _tell(self, turn: int, took: float) -> None:
        size = self.args.size * self.args.in_flight
        if self.args.json:
            _print(json.dumps({"all_reduce": turn, "seconds": took, "bytes": size, "mbufs": self.opened.mbufs()}))
        else:
            _print(f"{turn}: {size} B in {took * 1e3:.3f} ms, {8 * size / took / 1e9:.2f} Gb/s")

    def _summary(self, seconds: float) -> None:
        args, stats = self.args, self.endpoint.stats
        size, times = args.size * args.in_flight, sorted(self.times)
        row = {
            "worker": self.config.worker, "workers": self.config.workers, "protocol": self.config.protocol,
            "values": self.config.values, "slots": self.config.slots, "device": self.device.name,
            "all_reduces": len(times), "bytes": size, "verified": bool(args.verify), "seconds": seconds,
        }
        if times:
            middle = times[len(times) // 2]
            row |= {"best": times[0], "median": middle, "worst": times[-1], "gbps": 8 * size / middle / 1e9,
                    "ate_per_s": size / ELEMENT / middle}
        row |= {"worker_stats": stats, "port": self.endpoint.port_stats, "device_stats": self.device.stats,
                "mbufs": self.opened.mbufs()}
        if args.json:
            _print(json.dumps({"summary": row}))
            return
        rate = "none complete"
        if times:
            rate = (f"median {row['median'] * 1e3:.3f} ms ({row['gbps']:.2f} Gb/s, {row['ate_per_s'] / 1e6:.1f} M ATE/s), "
                    f"best {row['best'] * 1e3:.3f}, worst {row['worst'] * 1e3:.3f} ms")
        _print(f"worker {row['worker']} of {row['workers']} at {row['device']}, {row['protocol']}, {row['values']} values, "
              f"{row['slots']} slots\n{len(times)} all-reduces of {size} B{', every value verified' * args.verify}: {rate}\n"
              f"sent {stats['tx_packets']} packets ({stats['retransmissions']} again), received {stats['rx_packets']} "
              f"({stats['duplicates']} duplicates, {stats['drop_stale']} stale, "
              f"{stats['drop_malformed'] + stats['drop_foreign']} not ours)\n"
              f"mbufs: {row['mbufs']['in_use']} of {row['mbufs']['all']} in use")


if __name__ == "__main__":
    sys.exit(main())
