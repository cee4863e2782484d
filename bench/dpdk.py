"""``make bench-dpdk``: rates over DPDK without a NIC, on two cores, beside testpmd's over the same devices.

Workers, switch and back run to completion on one core over rte_ring; workers and switch in two processes over memif, a core
each; an all-reduce of two processes over memif and ina-dpdk-switch, in turn with Gloo. Every sum is verified.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cffi import FFI

from bench import common, complete
from bench.common import Figure, Measurement
from bench.complete import HEADERS, WORKERS, Admitted, Native, Rig
from ina.base.native import CData, ffi
from ina.lab.training.launch import piped
from ina.net import dpdk

VALUES = (64, 128, 256, 2048)  # the last one in jumbo frames
RUNS, PAIRS = 5, 3
MEMORY = 256  # MiB of each process that runs DPDK
ROOM = 16384  # mbufs of a process
EAL = ["--no-pci", "--no-telemetry", "--log-level", "error"]
HEADROOM = 128  # of an mbuf, in testpmd
ENDED = 120.0
ALL_REDUCE = 100 << 20  # bytes
REDUCE_SLOTS = 512  # three processes on two cores sleep now and then, and a window must cover that time


def cores() -> tuple[int, int]:
    """Returns two processors that this process may use. SystemExit: there are not as many."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        raise SystemExit("bench dpdk: needs two processors that it may use (one is allowed: see taskset)")
    return available[0], available[1]


@contextlib.contextmanager
def on(core: int) -> Iterator[None]:
    """Runs this thread on one processor meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# ---- the ceilings: testpmd ------------------------------------------------------------------------------------------


class TestPmd:
    """dpdk-testpmd on one core, driven by lines on its standard input (stdbuf, or it would answer at its end). Frames of a port
    go back out of it, or out of its neighbour (`topology` paired); ``room``: bytes of an mbuf, headroom included."""

    def __init__(
        self, devices: list[str], core: int, other: int, frame: int, room: int, topology: str = "loop", burst: int = 32
    ) -> None:
        eal = [*EAL, *dpdk.memory(MEMORY), f"--lcores=0@{other},1@{core}", "--main-lcore", "0",
               f"--file-prefix=bench{os.getpid()}-{core}"]
        # Buffers before frames: testpmd silently replaces frames that do not fit into the buffers named so far by 64 bytes.
        own = ["-i", "--nb-cores=1", "--forward-mode=io", f"--mbuf-size={room}", f"--txpkts={frame}",
               f"--burst={burst}", "--total-num-mbufs=8192", "--no-lsc-interrupt", f"--port-topology={topology}"]
        command = ["stdbuf", "-oL", "dpdk-testpmd", *eal, *(f"--vdev={device}" for device in devices), "--", *own]
        self.output, self.frame, self.ports, pipe = "", frame, len(devices), subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        self._stdin, self._stdout = piped(self.process.stdin), piped(self.process.stdout)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while text := os.read(self._stdout.fileno(), 65536):
            self.output += text.decode(errors="replace")

    def tell(self, line: str, answer: str, seconds: float = 60.0) -> str:
        """Sends a line. Returns the output from then on, once it matches `answer`."""
        begin, deadline = len(self.output), time.monotonic() + seconds
        self._stdin.write(line + "\n")
        self._stdin.flush()
        while not re.search(answer, self.output[begin:]):
            if self.process.poll() is not None or time.monotonic() >= deadline:
                raise SystemExit(f"bench dpdk: testpmd does not answer {line!r}:\n{self.output[-3000:]}")
            time.sleep(0.02)
        return self.output[begin:]

    def received(self) -> tuple[int, int]:
        """Returns frames and bytes that all ports together have received so far."""
        output = self.tell("show port stats all", rf"(?s)(Tx-pps.*?){{{self.ports}}}")
        frames, octets = (sum(map(int, re.findall(rf"RX-{unit}: +(\d+)", output))) for unit in ("packets", "bytes"))
        return frames, octets

    def rate(self, bytes_counted: bool = True) -> float:
        """Returns frames received per second, of all ports together, over half a second. SystemExit: they are not whole, if the
        driver counts bytes (net_ring passes pointers and counts none)."""
        bursts = 2 * self.ports * 32  # may be counted in one column and not yet in the other
        begin, (before, octets_before) = time.monotonic(), self.received()
        frames = 0
        while frames <= bursts and time.monotonic() < begin + 10:
            time.sleep(0.5)
            end, (after, octets_after) = time.monotonic(), self.received()
            frames, octets = after - before, octets_after - octets_before
        if frames <= bursts or (bytes_counted and abs(octets - frames * self.frame) > bursts * self.frame):
            raise SystemExit(f"bench dpdk: testpmd has received {frames} frames, {octets} bytes: expected {self.frame} of each")
        return frames / (end - begin)

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stdin.write("stop\nquit\n")
            self._stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(5)


@dataclass(frozen=True)
class Window:
    """Frames on their way between two processes: ``slots`` frames of each worker and direction, as many as a memif's ring has,
    in bursts of ``batch``."""

    slots: int
    batch: int

    def memif(self, path: Path, worker: int, server: bool, frame: int) -> str:
        """Returns the device of a worker, at either end."""
        return dpdk.device(f"memif:{path},rsize={self.slots.bit_length() - 1}", worker, server, frame)


DEEP = Window(128, 32)  # testpmd's best


def window(values: int) -> Window:
    """Returns a window whose frames stay in the second-level cache: fewer long ones."""
    slots = 4 * complete.window(values)
    return Window(slots, slots // 2)


def ring_ceiling(frame: int) -> float:
    """Returns frames per second that one core takes from rte_rings and puts into them."""
    core, other = cores()
    pmd = TestPmd(["net_ring0", "net_ring1"], core, other, frame, frame + 512, "paired")
    try:
        pmd.tell("start tx_first 2", r"testpmd> $", 30)
        return Figure.of(pmd.rate(bytes_counted=False) for _ in range(RUNS))
    finally:
        pmd.close()


def memif_ceiling(frame: int, folder: Path, traffic: Window, room: int = 0) -> float:
    """Returns frames per second that two processes, a core each, send each other: over as many of the same devices as workers
    have, with as many frames on their way. ``room``: of an mbuf; 0: as the devices' buffers. SystemExit: frames are not whole."""
    core, other = cores()
    ends: list[TestPmd] = []
    try:
        for server, own_core, other_core in ((True, core, other), (False, other, core)):
            devices = [traffic.memif(folder / "testpmd.sock", worker, server, frame) for worker in range(WORKERS)]
            buffers = re.search(r"bsize=(\d+)", devices[0])
            assert buffers is not None
            room = room or int(buffers[1]) + HEADROOM
            ends.append(TestPmd(devices, own_core, other_core, frame, room, burst=traffic.batch))
            ends[-1].tell("", "testpmd> $")
        ends[1].tell("start", r"testpmd> $")
        time.sleep(1)
        ends[0].tell(f"start tx_first {traffic.slots // traffic.batch}", r"testpmd> $")
        return Figure.of(ends[0].rate() for _ in range(3))
    finally:
        for end in ends:
            end.close()


# ---- ours ------------------------------------------------------------------------------------------------------------


def start() -> None:
    """Starts EAL in this process."""
    dpdk.start(dpdk.arguments([], MEMORY))


@contextlib.contextmanager
def ring_ports(values: int) -> Iterator[list[tuple[CData, CData]]]:
    """Opens both ends of each worker's link over rte_rings; all share one pool."""
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(dpdk.Pool(ROOM // 16, HEADERS + 4 * values))
        ends = []
        for worker in range(WORKERS):
            pair = [stack.enter_context(device) for device in dpdk.ring_pair(f"bench{worker}", pool, 64)]
            ends.append([stack.enter_context(contextlib.closing(device.port())) for device in pair])
        yield [(inner.handle, outer.handle) for inner, outer in ends]


def over_rings(values: int, bench: FFI, native: Native, watch: bool = False, count: int = 0) -> Rig:
    """Runs once to completion over rte_rings."""
    with ring_ports(values) as ports:
        rig = Rig(values, ports, bench, native, watch)
        rig.c.count = count or rig.c.count
        try:
            return rig.run()
        finally:
            rig.close()


@contextlib.contextmanager
def memif_ports(values: int, path: Path, server: bool) -> Iterator[list[CData]]:
    """Opens this process's end of each worker's link: a memif each."""
    frame = HEADERS + 4 * values
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(dpdk.Pool(ROOM, frame, [f"memif:{path}"]))
        names = [window(values).memif(path, worker, server, frame) for worker in range(WORKERS)]
        devices = [stack.enter_context(dpdk.open_device(name, pool, descriptors=256, timeout=10)) for name in names]
        ports = [stack.enter_context(contextlib.closing(device.port())) for device in devices]
        deadline = time.monotonic() + 10
        while not all(device.up for device in devices):
            if not server and time.monotonic() >= deadline:
                raise SystemExit(f"bench dpdk: nobody answers at {path}")
            if server:
                break
            time.sleep(0.01)
        yield [port.handle for port in ports]


def workers_process(path: str, values: int, count: int, number: int, life: int) -> None:
    """Runs the workers over memif, in a process of their own: reduces `count` tensors on this core and prints the counters.
    ``number``, ``life``: of the job that the switch's process has admitted."""
    with tempfile.TemporaryDirectory() as folder:
        bench, native = complete.compiled(Path(folder))
    start()
    with memif_ports(values, Path(path), server=False) as ports:
        rig = Rig(values, [(ffi.NULL, port) for port in ports], bench, native, slots=window(values).slots,
                  job=Admitted(number, life))
        rig.c.batch, rig.c.watch = window(values).batch, 1
        rig.c.count = count or rig.c.count
        rig.run()
        c = rig.c
        resent = c.sent - complete.frames(values, c.count, window(values).slots)
        print(json.dumps({"packets": rig.packets, "again": resent, "cycles": list(c.cycles),
                          "seconds": 1e-12 * (c.wall_ps - c.aside_ps)}))
        rig.close()


def over_memif(values: int, bench: FFI, native: Native, count: int = 0) -> dict:
    """Runs a switch here and workers in another process, a core each. Returns the workers' counters, and the switch's cycles."""
    own_core, other_core = cores()
    with tempfile.TemporaryDirectory() as folder, memif_ports(values, Path(folder) / "memif.sock", server=True) as ports:
        rig = Rig(values, [(port, ffi.NULL) for port in ports], bench, native, watch=True, slots=window(values).slots)
        rig.c.batch, stop = window(values).batch, bench.new("int *")
        rig.c.stop = stop

        def switch() -> None:
            with on(own_core):
                native.serve_switch(rig.c)

        thread = threading.Thread(target=switch)
        thread.start()
        command = ["taskset", "-c", str(other_core), sys.executable, "-m", "bench.dpdk", f"{folder}/memif.sock", str(values),
                   str(count), str(rig.job.number), str(rig.job.life)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=ENDED)
        finally:
            stop[0] = 1
            thread.join()
            drops = rig.drops()
            rig.close()
        if done.returncode:
            raise SystemExit(f"bench dpdk: the workers' process failed, {drops}:\n{done.stderr[-3000:]}")
        counters = json.loads(done.stdout.splitlines()[-1])
        return counters | {"switch": [cycles / counters["packets"] for cycles in rig.c.cycles]}


@dataclass(frozen=True)
class Pair:
    """A run over memif and testpmd's rate next to it."""

    run: dict          # the workers' counters, and the switch's cycles
    ceiling: float     # testpmd's frames per second
    handing: float     # ns that a cache line took from core to core

    @property
    def pps(self) -> float:
        return self.run["packets"] / self.run["seconds"]


def handing(native: Native) -> float:
    """Returns ns that a cache line takes from one of the cores to the other, at best."""
    own_core, other_core = cores()
    with on(own_core):
        return min(native.latency(other_core) for _ in range(3)) / 1e3


def beside_testpmd(values: int, bench: FFI, native: Native, folder: Path) -> list[Pair]:
    """Returns ``PAIRS`` pairs by their ratio. Pairs do not count if the host moved the processors apart
    between two runs, which makes copies several times as expensive. SystemExit: nearly all are such."""
    pairs, windows = [], {window(values), DEEP}
    for _ in range(3 * PAIRS):
        before = handing(native)
        run = over_memif(values, bench, native)
        ceiling = max(memif_ceiling(HEADERS + 4 * values, folder, each) for each in windows)
        pair = Pair(run, ceiling, handing(native))
        message = f"  memif, {values} values: {pair.pps / 1e6:.3g} of {ceiling / 1e6:.3g} Mpps"
        if max(before, pair.handing) < 1.5 * min(before, pair.handing):
            pairs.append(pair)
        else:
            message += f"; the cores moved, a line takes {before:.0f} ns and then {pair.handing:.0f}: does not count"
        common.console.print(message, highlight=False)
        if len(pairs) == PAIRS:
            return sorted(pairs, key=lambda pair: pair.pps / pair.ceiling)
    raise SystemExit(f"bench dpdk: in more than {2 * PAIRS} of {3 * PAIRS} runs the processors did not stay where they were")


# ---- an all-reduce, beside Gloo -------------------------------------------------------------------------------------

REDUCE = """
import json, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
import ina.backend
ina.backend.register()
torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
groups = {name: dist.new_group(backend=name) for name in ("ina", "gloo")}
size, blocks = int(sys.argv[1]), int(sys.argv[2])
wall = {name: [] for name in groups}
for turn in range(-1, blocks):
    for name, group in groups.items():
        tensor = torch.arange(size // 4, dtype=torch.float32).remainder_(1024).mul_(dist.get_rank() + 1)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        if turn >= 0:
            wall[name].append(time.perf_counter() - start)
        wanted = torch.arange(size // 4, dtype=torch.float32).remainder_(1024).mul_(3)
        assert torch.equal(tensor, wanted), f"{name}: wrong sums"
if dist.get_rank() == 0:
    print(json.dumps(wall), flush=True)
dist.destroy_process_group()
"""


def all_reduce(values: int, size: int = ALL_REDUCE, blocks: int = 5) -> dict[str, Figure]:
    """Returns the seconds of an all-reduce by two processes over memif and ina-dpdk-switch, and by Gloo, in turn."""
    root = Path(__file__).resolve().parent.parent
    environment = dict(os.environ, PYTHONPATH=str(root), OMP_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:
        memif, control, script = f"memif:{folder}/ports.sock", f"{folder}/control", Path(folder) / "reduce.py"
        script.write_text(REDUCE)
        command = [sys.executable, "-m", "ina.worlds.dpdk.switch", "--program", str(root / "p4/switchml.p4"), "-D",
                   f"VALUES={values}",
                   "--port", f"0={memif}", "--port", f"1={memif}", "--control", control, "--json",
                   "--job-slots", str(REDUCE_SLOTS)]
        with open(f"{folder}/switch.log", "w+") as log:
            switch = subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log)
            try:
                deadline = time.monotonic() + ENDED
                while not Path(control).exists():
                    if switch.poll() is not None or time.monotonic() >= deadline:
                        log.seek(0)
                        raise SystemExit(f"bench dpdk: ina-dpdk-switch does not start:\n{log.read()[-3000:]}")
                    time.sleep(0.05)
                command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script), str(size),
                           str(blocks)]
                ranks = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=10 * ENDED,
                                       env=environment | {"INA_SWITCH": control, "INA_PORT": f"dpdk:{memif}"})
            finally:
                switch.send_signal(signal.SIGINT)
                switch.wait(ENDED)
        if ranks.returncode:
            raise SystemExit(f"bench dpdk: all-reduce failed:\n{ranks.stderr[-3000:]}")
        return {name: Figure.of(times) for name, times in json.loads(ranks.stdout.splitlines()[-1]).items()}


# ---- tables ----------------------------------------------------------------------------------------------------------


def measure() -> list[Measurement]:
    if reason := dpdk.missing() or ("" if shutil.which("dpdk-testpmd") else f"there is no dpdk-testpmd: {dpdk.INSTALL}"):
        raise SystemExit(f"bench dpdk: {reason}")
    rates, stages = complete.tables(
        f"dpdk-ring: one core run to completion over rte_ring, {WORKERS} workers",
        "10 Mpps at 256 values: quantised, framed, parsed, added, replicated, turned back, and every sum verified",
    )
    rings = Measurement(
        "dpdk-ring-ceiling: packets over rte_ring, beside testpmd's io forwarding", ["values", "Mpps", "testpmd Mpps", "ratio"],
        "of half of testpmd's frames: a packet and its result pass two rings",
        "few per cent: testpmd passes pointers and looks at no byte",
    )
    memifs = Measurement(
        "dpdk-memif: workers and switch in two processes over memif, a core each",
        ["values", "Mpps", "frames Gb/s", "M ATE/s", "workers' cycles", "switch's", "sent again", "core ns", "testpmd Mpps",
         "ratio"],
        "of testpmd's frames over as many of the same devices, with nothing done to them (with our rings and bursts, or with 128 "
        "frames in bursts of 32 if that is more); cycles: but for those of waiting; core: a line from one to the other",
        "half of testpmd's",
    )
    free, needed = dpdk.free_huge_pages(), 3 * MEMORY  # this process and two at a time
    pages = "huge pages" if free >= needed else (
        f"ordinary pages, which cost up to a tenth ({free} MiB of huge ones are free, wanted are {needed}: "
        f"echo {needed // 2} > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)")
    common.console.print(f"DPDK's memory is in {pages}", highlight=False)
    start()
    core, _ = cores()
    with tempfile.TemporaryDirectory() as folder:
        bench, native = complete.compiled(Path(folder))
        for values in VALUES:
            with on(core):
                runs = [over_rings(values, bench, native) for _ in range(RUNS)]
                watched = [over_rings(values, bench, native, watch=True).cycles() for _ in range(RUNS)]
            pps = complete.add(rates, stages, values, runs, watched)
            common.console.print(f"  rte_ring, {values} values: {pps / 1e6:.3g} Mpps", highlight=False)
            frame = HEADERS + 4 * values
            ceiling = ring_ceiling(frame)
            rings.add(values, pps / 1e6, ceiling / 1e6, pps / (ceiling / 2))
            pairs = beside_testpmd(values, bench, native, Path(folder))
            pair, run = pairs[PAIRS // 2], pairs[PAIRS // 2].run
            pps, ceiling = (Figure.of(getattr(each, name) for each in pairs) for name in ("pps", "ceiling"))
            ratio = Figure.of(each.pps / each.ceiling for each in pairs)
            memifs.add(values, pps / 1e6, pps * frame * 8e-9, pps * values / 1e6,
                       round(sum(run["cycles"][:5]) / run["packets"]), round(sum(run["switch"][2:4])), run["again"],
                       round(pair.handing), ceiling / 1e6, ratio)
    reduced = Measurement(
        "dpdk-allreduce: 100 MiB of float32, two processes over memif and ina-dpdk-switch, beside Gloo over loopback",
        ["values", "ina ms", "ina GB/s", "gloo ms", "gloo GB/s", "ratio"], "Gloo's time over ours",
        "less than over shared memory: three processes that never sleep share two cores",
    )
    for values in (256, 2048):
        seconds = all_reduce(values)
        cells = [cell for name in ("ina", "gloo") for cell in (1e3 * seconds[name], 1e-9 * ALL_REDUCE / seconds[name])]
        reduced.add(values, *cells, seconds["gloo"] / seconds["ina"])
    return [rates, stages, rings, memifs, reduced]


if __name__ == "__main__":
    workers_process(sys.argv[1], *map(int, sys.argv[2:]))
