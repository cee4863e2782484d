"""Keys of experiments, plain, with types and defaults; unknown ones fail: a typo never runs the wrong experiment.

Every kind of experiment is one dataclass; its fields are the keys of the TOML file. ``ina/lab/plan.py`` reads files.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from ina.aggregation import protocols
from ina.aggregation.entries import BITMAP, program_named
from ina.aggregation.worker.config import VALUES
from ina.base import paths
from ina.base.bounds import outside
from ina.base.settings import ConfigError, nearest
from ina.lab.kinds.oracle import choose_reduction
from ina.lab.ranges import RANGES
from ina.lab.testbed_hosts import described, hosts_of, server_host
from ina.net.faults import parse_faults
from ina.topology import TopologyError
from ina.topology.points import points
from ina.worlds.testbed import switch_kinds

ALGORITHMS = ("in-network", "ring", "halving-doubling", "tree", "parameter-server")
STRIPED = ("in-network", "ring", "parameter-server")
ETHERNET = 14  # bytes of a frame that do not count for the MTU
MODELS = {"cnn": 409_034, "small": 39_418}  # models that can be trained (rank.py), and their parameters
SWITCHES = tuple(switch_kinds.KINDS)
PAYLOAD = "true; or false: packets without values, for scale: the same packets and times, but no sums to check"
SAMPLE = "s of virtual time between two looks at links, queues and slot pools, for trace.json and the report; 0: none"
SWITCH = ("testbed: embedded (all switches in one process), process (each in one) or bmv2 (BMv2); anywhere: tna (the program for "
          "Tofino, on the embedded switch)")
TNA_VALUES = 256  # a packet recirculates for each 32 of them
BMV2_WINDOW = 8  # BMv2 takes 0.1 ms and more for a packet: a longer queue only causes retransmissions


Value = TypeVar("Value")
PLAIN: dict[type, Callable[[str | int | float], object]] = {str: str, int: int, float: float}


def key(default: Value, text: str) -> Value:
    """Returns a key with its default and its help for `ina experiment show` and docs/reference/keys.md."""
    return dataclasses.field(default=default, metadata={"help": text})


def from_environment(name: str, default: int) -> int:
    """Returns the default of a key from the environment, or ``default``; results record the value either way."""
    text = os.environ.get(name, "")
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigError(f"{name} = {text[:40]!r}: expected a number up to 999999999")
    return int(text) if text else default


class Keys:
    """Base of all kinds: shared keys, checks, and conversion to JSON."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]
    kind: str
    name: str
    world: str
    workers: int
    protocol: str
    program: str
    switch: str
    values: int
    seed: int
    rate: float
    delay: float
    queue: int
    buffer: int
    timeout: float

    def need(self, ok: bool, key: str, expected: str) -> None:
        if not ok:
            raise ConfigError(f"{key} = {getattr(self, key)!r}: expected {expected}")

    def check_ranges(self) -> None:
        """Checks the range of every key that is a number (ranges.py)."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and (wrong := outside(value, *RANGES[field.name])):
                raise ConfigError(f"{field.name} = {value!r}: {wrong}")

    def check_common(self, worlds: tuple[str, ...]) -> None:
        """Checks keys that every kind has."""
        need = self.need
        self.check_ranges()
        need(self.world in worlds, "world", " or ".join(map(repr, worlds)))
        need(self.values in VALUES, "values", ", ".join(map(str, VALUES)))
        need(0 < self.timeout < 1e6, "timeout", "more than 0 and less than a million seconds")
        need(self.name != "" and "/" not in self.name, "name", "a name without '/'")
        self.check_protocol()
        need(1 <= self.workers <= self.most_workers, "workers", f"1 to {self.most_workers}")
        names = ", ".join(sorted(path.stem for path in paths.p4_dir().glob("*.p4")))
        need(self.program_path.is_file(), "program", f"one of {names}, or the path of a .p4 file")

    def check_protocol(self) -> None:
        """Checks that the protocol exists; a user's own must compile, and have all parts of a protocol."""
        self.need(self.protocol in protocols.names() or protocols.is_own(self.protocol), "protocol", protocols.expected())
        try:
            program_named(self.protocol)
            self.check_reductions()
        except ValueError as error:
            raise ConfigError(f"protocol = {self.protocol!r}: {error}") from None

    def check_reductions(self) -> None:
        """Checks that the protocol has the experiment's reduction: sums, for trainings and traces. Raises ValueError."""
        protocols.check_reduction(self.protocol, protocols.SUM)

    @property
    def most_workers(self) -> int:
        """Largest number of workers of a job: the bits of a switch's bitmap."""
        return BITMAP

    @property
    def program_path(self) -> Path:
        """The P4 file that ``program`` means."""
        if not self.program:
            return protocols.program(self.protocol, switch_kinds.KINDS[self.switch].twin)
        return Path(self.program) if self.program.endswith(".p4") else paths.p4_dir() / f"{self.program}.p4"

    def as_dict(self) -> dict[str, object]:
        return dataclasses.asdict(self)


class Sampled(Keys):
    """Keys that the kinds in virtual time share."""

    sample: float

    def check_sample(self) -> None:
        self.need(self.sample == 0 or 1e-9 <= self.sample <= 1, "sample", "0, or 1e-9 to 1")


@dataclass(frozen=True)
class Config(Keys):
    """Training: one model, trained by each back end in turn."""

    kind: str = key("training", "what is done: training")
    name: str = key("fashion-mnist", "the results folder's name begins with it")
    world: str = key("local", "where: local (processes on this machine) or testbed (hosts of a Mininet network)")
    backends: tuple[str, ...] = key(
        ("ina", "gloo"), f"of ina (with the protocol below), {', '.join(protocols.names())}, gloo; in this order"
    )
    workers: int = key(4, "ranks")
    model: str = key("", "cnn (409,034 parameters) or small (39,418); empty: cnn, with BMv2 small")
    epochs: int = key(2, "passes over the training set")
    steps: int = key(0, "stop after this many; 0: whole epochs, with BMv2 100")
    batch: int = key(64, "images per worker and step")
    lr: float = key(0.05, "SGD's learning rate")
    momentum: float = key(0.9, "SGD's momentum")
    seed: int = key(1, "of initial parameters and order of the images")
    data: str = key("", "folder of the IDX files; empty: where the distribution's package puts them")
    bucket_mb: float = key(0.5, "DDP's gradient bucket, MiB")
    protocol: str = key(protocols.DEFAULT, "what switch and workers speak")
    program: str = key("", "P4 program: a name in p4/, or the path of a .p4 file; empty: the protocol's own")
    values: int = key(0, "int32 per packet; 0: INA_VALUES or 2048, in the testbed what fits its MTU")
    slots: int = key(0, "window of each worker, packets; a power of two; 0: INA_SLOTS or 64, in the testbed 32, with BMv2 8")
    faults: str = key("", "such as loss=0.01,dup=0.01,reorder=0.01,seed=1: on every worker's port, both directions")
    pcap: str = key("", "folder for a capture of each worker's packets, which Wireshark and scapy read; empty: none")
    timeout: float = key(60.0, "seconds that a rank waits for an all-reduce")
    record: str = key("", "CSV file: what worker 0 computes with the first back end, as a workload for virtual time; empty: none")
    compare_step: int = key(100, "parameters of the back ends are compared after this many steps")
    rate: float = key(100e6, "testbed: of each link and direction, bit/s; 0: no limit")
    delay: float = key(0.0, "testbed: of each link, one way, s")
    queue: int = key(524288, "testbed: of each link and direction, bytes; 0: no limit")
    buffer: int = key(0, "testbed: of each switch, bytes: what may wait for all of its links together; 0: no limit, or a file's")
    loss: float = key(0.0, "testbed: probability that a link loses a frame, each way")
    mtu: int = key(1500, "testbed: largest IP packet, bytes")
    topology: str = key("star", "testbed: the network, such as star, fat-tree k=4, or a .toml file (ina topo list)")
    hosts: str = key("", "testbed: where the ranks are, such as h1,h5,h9-h12, in this order; empty: h1, h2, ...")
    switch: str = key("embedded", SWITCH)
    cables: str = key("", "testbed: of what links between switches are: memory or veth; empty: memory where the switch can")
    points: str = key("", "testbed: captured into pcap as well: ports, links, hosts, switches (s1-eth1,h1-s1,h2,s2), or all")

    def with_backend(self, backend: str) -> Config:
        """Returns the configuration of one of the back ends."""
        if backend in ("ina", "gloo"):
            return self
        return dataclasses.replace(self, protocol=backend, program="")

    def check_places(self) -> None:
        """Checks keys of the testbed's network."""
        try:
            key = "topology"
            topology = described(self)
            key = "hosts"
            server_host(self, topology)
            hosts_of(self, topology)
            key = "points"
            points(topology, filter(None, self.points.split(",")))
        except TopologyError as error:
            raise ConfigError(f"{key} = {getattr(self, key)!r}: {error}") from None

    def __post_init__(self) -> None:
        need = self.need
        need(self.kind == "training", "kind", "'training'")
        need(not self.points or bool(self.pcap), "points", "a folder for captures in pcap as well")
        need(576 <= self.mtu <= 9000, "mtu", "576 to 9000")
        testbed, bmv2 = self.world == "testbed", self.switch == "bmv2"
        need(self.switch in SWITCHES, "switch", " or ".join(map(repr, SWITCHES)))
        need(testbed or not bmv2, "switch", "'embedded', or world = 'testbed': BMv2's ports are network interfaces")
        if not self.model:
            object.__setattr__(self, "model", "small" if bmv2 else "cnn")
        if bmv2 and self.steps == 0:
            object.__setattr__(self, "steps", 100)
        need(self.model in MODELS, "model", " or ".join(map(repr, MODELS)))
        self.check_protocol()
        fits = [n for n in VALUES if not testbed or protocols.frame_bytes(self.protocol, n) - ETHERNET <= self.mtu]
        if self.values == 0:
            most = TNA_VALUES if self.switch == "tna" else 2048
            object.__setattr__(self, "values", max(fits) if testbed else from_environment("INA_VALUES", most))
        if self.slots == 0:
            window = BMV2_WINDOW if bmv2 else 32
            object.__setattr__(self, "slots", window if testbed else from_environment("INA_SLOTS", 64))
        self.check_common(("local", "testbed"))
        need(self.values in fits, "values", f"at most {max(fits)}, which fits mtu = {self.mtu}")
        need(not testbed or self.workers >= 2, "workers", "2 to 32 in the testbed")
        need(0 <= self.rate <= 1e12, "rate", "bit/s from 0 (no limit) to 1e12")
        need(0 <= self.delay <= 10, "delay", "seconds from 0 to 10")
        need(0 <= self.queue <= 1 << 30, "queue", "bytes from 0 (no limit) to 2^30")
        need(0 <= self.buffer <= 1 << 40, "buffer", "bytes from 0 (no limit) to 2^40")
        need(0 <= self.loss < 1, "loss", "a probability below 1")
        names = ("ina", *protocols.names(), "gloo")
        need(len(self.backends) > 0 and set(self.backends) <= set(names), "backends", "some of " + ", ".join(names))
        need(len(set(self.backends)) == len(self.backends), "backends", "each back end once")
        need(self.lr > 0, "lr", "more than 0")
        need(0 <= self.momentum < 1, "momentum", "0 up to, not including, 1")
        need(0 < self.bucket_mb < 1e6, "bucket_mb", "more than 0 and less than a million")
        need(not self.data or Path(self.data).is_dir(), "data", "a folder with Fashion-MNIST's IDX files")
        need(not self.record or self.record.endswith(".csv"), "record", "a path that ends with .csv")
        need(not self.record or Path(self.record).absolute().parent.is_dir(), "record", "a file in a folder that is there")
        if self.faults:
            try:
                parse_faults(self.faults)
            except ValueError as error:
                raise ConfigError(f"faults = {self.faults!r}: {error}") from None
        need(1 <= self.slots <= 8192 and self.slots & (self.slots - 1) == 0, "slots", "a power of two up to 8192")
        if testbed:
            self.check_places()


@dataclass(frozen=True)
class Virtual(Sampled):
    """Keys that all-reduces, trainings and traces in virtual time share: jobs of workers in a network, and their reduction."""

    kind: str = key("", "what is done")
    name: str = key("", "the results folder's name begins with it")
    world: str = key("virtual", "where: virtual (the event clock; every run of one seed is equal to the bit)")
    topology: str = key("star", "the network: star, or a topology and its parameters ('fat-tree k=4'), or a .toml file")
    algorithm: str = key("in-network", "in-network, or between the hosts: ring, halving-doubling, tree, parameter-server")
    stripes: int = key(1, "trees (in-network), rings, or servers (parameter-server) that share each tensor")
    placement: str = key("packed", "of the workers: packed (hosts in order) or spread (over the edge switches)")
    workers: int = key(8, "workers of each job, each at a host of its own")
    jobs: int = key(1, "jobs that share the network, at once")
    dtype: str = key("int32", "int32 or float32")
    seed: int = key(1, "of the faults and of the tensors")
    rate: float = key(100e9, "of each wire, bit/s; not of a topology's file, nor between a topoopt server and its own element")
    delay: float = key(1e-6, "of each wire, one way, s; not of a topology's file")
    latency: float = key(0.0, "of each switch, s")
    queue: int = key(0, "of each wire, bytes; 0: no limit; not of a topology's file")
    buffer: int = key(0, "of each switch, bytes: what may wait for all of its wires together; 0: no limit, or a file's")
    nic: int = key(0, "bytes that wait at a host's NIC before it is given more; 0: no limit; it drops nothing")
    ecn: int = key(0, "bytes that wait when a packet is marked; 0: never")
    host_packet: float = key(0.0, "s that a host's core takes for each packet that it sends or receives")
    host_byte: float = key(0.0, "s for each byte of it, headers included")
    host_cores: int = key(1, "of each host, which work on packets side by side")
    loss: float = key(0.0, "probability that a wire loses a packet, each way")
    duplicate: float = key(0.0, "probability that a packet comes twice, the second up to ten round trips late")
    reorder: float = key(0.0, "probability that a packet is up to two round trips late")
    corrupt: float = key(0.0, "probability that a bit of a packet flips")
    protocol: str = key(protocols.DEFAULT, "what switch and workers speak")
    program: str = key("", "P4 program: a name in p4/, or the path of a .p4 file; empty: the protocol's own")
    switch: str = key("embedded", "embedded, or tna: the protocol's program for Tofino, on the same switch")
    values: int = key(256, "int32 per packet")
    pool: int = key(512, "slots of each switch, a power of two")
    slots: int = key(0, "of each job and tree, a power of two; 0: the pool, split evenly")
    servers: int = key(1, "hosts that are parameter servers, for protocols that have them; each job is given to the nearest")
    slices: int = key(8, "of what a step of ring, tree or parameter-server moves: what has come is passed on before the rest")
    flow: int = key(256, "window of a flow between two hosts, packets")
    transport: str = key("ideal", "of these flows: ideal (the window is always full) or dctcp (which needs ecn)")
    rto_min: float = key(0.0, "least retransmission time-out, s; 0: 100 us in virtual time, 10 ms in processes")
    rto_max: float = key(0.0, "largest, s; 0: 10 ms in virtual time, 500 ms in processes")
    timeout: float = key(30.0, "seconds after which a tensor has failed")
    sample: float = key(0.0, SAMPLE)
    payload: bool = key(True, PAYLOAD)

    def __post_init__(self) -> None:
        need = self.need
        self.check_sample()
        need(self.switch in SWITCHES, "switch", " or ".join(map(repr, SWITCHES)))
        anywhere = ("embedded", "tna")
        outside = f"{' or '.join(map(repr, anywhere))} outside world = 'testbed'"
        need(self.switch in anywhere or self.world == "testbed", "switch", outside)
        defaults = (100e-6, 10e-3) if self.world == "virtual" else (10e-3, 500e-3)
        for name, default in zip(("rto_min", "rto_max"), defaults, strict=True):
            object.__setattr__(self, name, getattr(self, name) or default)
        self.check_common(self.worlds)
        need(self.dtype in ("int32", "float32"), "dtype", "int32 or float32")
        for name in ("loss", "duplicate", "reorder", "corrupt"):
            need(0 <= getattr(self, name) < 1, name, "a probability below 1")
        for name in ("pool", "slots"):
            size = getattr(self, name)
            need(0 <= size <= 16384 and size & (size - 1) == 0, name, "a power of two up to 16384")
        need(self.pool > 0, "pool", "1 or more")
        need(self.algorithm in ALGORITHMS, "algorithm", ", ".join(ALGORITHMS))
        need(self.stripes == 1 or self.algorithm in STRIPED, "stripes", f"1 with {self.algorithm}")
        need(self.algorithm != "parameter-server" or self.stripes <= self.workers, "stripes", "no more servers than workers")
        power = self.workers & (self.workers - 1) == 0
        need(self.algorithm != "halving-doubling" or power, "workers", "a power of two with halving-doubling")
        need(self.algorithm == "in-network" or self.workers >= 2, "workers", f"at least 2 with {self.algorithm}")
        need(self.placement in ("packed", "spread"), "placement", "packed or spread")
        need(self.transport in ("ideal", "dctcp"), "transport", "ideal or dctcp")
        need(self.transport == "ideal" or self.ecn > 0, "ecn", "more than 0 with transport = 'dctcp'")
        reserved = self.algorithm == "in-network" and program_named(self.protocol).reserves
        shares = self.jobs * self.stripes if reserved else 1
        need(self.window >= 1 and (self.window * shares <= self.pool or not reserved), "pool", f"room for {shares} jobs")
        need(0 < self.rto_min <= self.rto_max, "rto_min", "more than 0, and no more than rto_max")

    @property
    def worlds(self) -> tuple[str, ...]:
        return ("virtual",)

    @property
    def most_workers(self) -> int:
        if self.algorithm == "in-network" and self.topology.split()[:1] == ["star"]:
            return super().most_workers
        return program_named(self.protocol).max_workers if self.algorithm == "in-network" else 1024

    @property
    def window(self) -> int:
        """Slots of each job and tree."""
        return self.window_of(self.jobs)

    def window_of(self, jobs: int) -> int:
        """Returns slots of each of so many jobs, and tree: ``slots``, or the largest power of two that all can have."""
        share = self.pool // (jobs * self.stripes)
        return min(8192, self.slots or (1 << share.bit_length() >> 1))


@dataclass(frozen=True)
class AllReduce(Virtual):
    """All-reduces: one tensor of each job, all at once."""

    kind: str = key("allreduce", "what is done: allreduce")
    name: str = key("allreduce", "the results folder's name begins with it")
    world: str = key("virtual", "where: virtual (the event clock; every run of one seed is equal to the bit), or in processes: "
                     "local (one machine, shared memory), testbed (hosts of a Mininet network)")  # fmt: skip
    elements: int = key(1_000_000, "of each job's tensor")
    tensors: str = key("own", "own: each worker has one; common: all of a job have the same, and their results lie in one place: "
                       "virtual time, where memory for all of them is not to be had")  # fmt: skip
    switch: str = key("embedded", SWITCH)

    def __post_init__(self) -> None:
        self.need(self.kind == "allreduce", "kind", "'allreduce'")
        if self.switch == "bmv2" and self.slots == 0:
            object.__setattr__(self, "slots", BMV2_WINDOW)
        self.need(self.tensors in ("own", "common"), "tensors", "own or common")
        self.need(self.tensors == "own" or self.world == "virtual", "tensors", "own outside virtual time")
        super().__post_init__()
        self.need(self.tensors == "own" or self.algorithm == "in-network", "tensors", f"own with {self.algorithm}")
        if self.world != "virtual":
            need, where = self.need, f"in world = {self.world!r}"
            need(self.algorithm == "in-network", "algorithm", f"in-network {where}")
            need(self.stripes == 1, "stripes", f"1 {where}")
            need(self.payload, "payload", f"true {where}")
            need(self.nic == 0, "nic", f"0 {where}")
            need(self.buffer == 0 or self.world == "testbed", "buffer", f"0 {where}")
            need(self.sample == 0, "sample", f"0 {where}")
            need(self.latency == 0 == self.ecn, "latency" if self.latency else "ecn", f"0 {where}")
            need(self.world == "testbed" or self.topology == "star", "topology", f"star {where}")
            need(not program_named(self.protocol).needs_server, "protocol", f"one without a parameter server {where}")

    @property
    def worlds(self) -> tuple[str, ...]:
        return ("virtual", "local", "testbed")

    @property
    def reduction(self) -> int:
        """The reduction to request: one that the protocol declares; baselines between hosts compute sums."""
        return choose_reduction(self.protocol, self.dtype, self.payload) if self.algorithm == "in-network" else protocols.SUM

    def check_reductions(self) -> None:
        if self.algorithm == "in-network":
            choose_reduction(self.protocol, self.dtype, self.payload)


@dataclass(frozen=True)
class Workload(Virtual):
    """Trainings in virtual time: layers compute for the times that a file gives, DDP's buckets are reduced meanwhile."""

    kind: str = key("workload", "what is done: workload")
    name: str = key("workload", "the results folder's name begins with it")
    layers: str = key("fashion-mnist", "a CSV file of layers, or one of workloads/ by its name")
    steps: int = key(4, "training steps")
    bucket_mb: float = key(25.0, "DDP's gradient bucket, MiB")
    first_bucket_mb: float = key(1.0, "DDP's first one, MiB")
    compute: float = key(1.0, "times of the file are multiplied by this")
    scale: float = key(1.0, "elements and times of the file are: a small model of the same shape, where networks are large")
    jitter: float = key(0.0, "of a step's compute time: uniform from none to this share more, by worker and step")
    slow_worker: float = key(1.0, "compute time of worker 0, times that of the others")

    def __post_init__(self) -> None:
        need = self.need
        need(self.kind == "workload", "kind", "'workload'")
        need(self.layers_path.is_file(), "layers", f"one of {', '.join(known_workloads())}, or the path of a .csv file")
        need(1 <= self.steps <= 10_000, "steps", "1 to 10000")
        need(0 < self.bucket_mb < 1e6, "bucket_mb", "more than 0 and less than a million")
        need(0 < self.first_bucket_mb < 1e6, "first_bucket_mb", "more than 0 and less than a million")
        need(0 < self.scale <= 1, "scale", "more than 0, at most 1")
        need(0 < self.slow_worker <= 1e6, "slow_worker", "more than 0, up to a million")
        super().__post_init__()

    @property
    def layers_path(self) -> Path:
        """The file that ``layers`` means."""
        return Path(self.layers) if self.layers.endswith(".csv") else paths.root() / "workloads" / f"{self.layers}.csv"


@dataclass(frozen=True)
class Trace(Virtual):
    """Chakra's execution traces in virtual time: ranks compute and communicate as recorded, all-reduces by any algorithm."""

    kind: str = key("trace", "what is done: trace")
    name: str = key("trace", "the results folder's name begins with it")
    workers: int = key(0, "ranks; 0: as many as there are files")
    trace: str = key("", "path of the files without their ends, which are .0.et, .1.et, ...: one a rank")
    groups: str = key("", "JSON file of process groups' ranks, as ASTRA-sim has it; empty: all, or what the trace says")
    compute: float = key(1.0, "times of the trace are multiplied by this")
    peak_flops: float = key(0.0, "FLOP/s of a rank's GPU, for nodes with num_ops and no duration; 0: not known")
    memory_bandwidth: float = key(0.0, "byte/s of its memory, for nodes with tensor_size and no duration; 0: not known")

    def __post_init__(self) -> None:
        need, files = self.need, len(trace_files(self.trace))
        need(self.kind == "trace", "kind", "'trace'")
        need(files > 0, "trace", f"a path with which {Path(self.trace).name}.0.et begins the files of a trace")
        need(self.workers in (0, files), "workers", f"0, or {files}: there are so many files")
        for name in ("peak_flops", "memory_bandwidth"):
            need(0 <= getattr(self, name) < 1e30, name, "0 or more, below 1e30")
        object.__setattr__(self, "workers", files)
        super().__post_init__()
        need(self.jobs == 1, "jobs", "1: a trace has its own process groups")
        need(self.dtype == "int32", "dtype", "int32: traces have sizes, and no values")


def trace_files(prefix: str) -> list[Path]:
    """Returns the files of Chakra's traces of ranks 0, 1, ...; empty: there is none."""
    files: list[Path] = []
    while prefix and (path := Path(f"{prefix}.{len(files)}.et")).is_file():
        files.append(path)
    return files


def known_workloads() -> list[str]:
    return sorted(path.stem for path in (paths.root() / "workloads").glob("*.csv"))


@dataclass(frozen=True)
class Sharing(Sampled):
    """Jobs that share one switch in virtual time, with fewer aggregators than they need, or with a slow worker."""

    kind: str = key("sharing", "what is done: sharing")
    name: str = key("sharing", "the results folder's name begins with it")
    world: str = key("virtual", "where: virtual (the event clock; every run of one seed is equal to the bit)")
    protocol: str = key(protocols.DEFAULT, "what switch and workers speak")
    share: float = key(1.0, "slots that the switch has, of those that all jobs need for their windows; at most 1")
    jobs: int = key(8, "jobs, each with hosts and wires of its own, one more host for its parameter server")
    workers: int = key(8, "of each job")
    window: int = key(128, "packets that a worker has under way at most, a power of two; a job needs as many slots")
    elements: int = key(500_000, "of each job's tensors, int32")
    tensors: int = key(1, "of each job, one after the other")
    period: float = key(0.0, "s from a tensor's start to that of the next; the jobs' are staggered evenly. 0: all at once")
    straggler: float = key(1.0, "how many times slower the wire of worker 0 of job 0 is")
    seed: int = key(1, "of the tensors")
    rate: float = key(100e9, "of each wire, bit/s")
    delay: float = key(1e-6, "of each wire, one way, s")
    queue: int = key(0, "of each wire, bytes; 0: no limit")
    buffer: int = key(0, "of the switch, bytes: what may wait for all of its wires together; 0: no limit")
    ecn_depth: int = key(64, "packets in an egress queue from which congestion is marked; 0: never")
    program: str = key("", "P4 program: a name in p4/, or the path of a .p4 file; empty: the protocol's own")
    switch: str = key("embedded", "embedded, or tna: the protocol's program for Tofino, on the same switch")
    values: int = key(256, "int32 per packet")
    rto_min: float = key(100e-6, "least retransmission time-out, s")
    rto_max: float = key(10e-3, "largest, s")
    timeout: float = key(30.0, "virtual seconds after which a tensor has failed")
    sample: float = key(0.0, SAMPLE)
    payload: bool = key(True, PAYLOAD)

    def __post_init__(self) -> None:
        need = self.need
        self.check_sample()
        need(self.kind == "sharing", "kind", "'sharing'")
        need(self.switch in ("embedded", "tna"), "switch", "'embedded' or 'tna'")
        self.check_common(("virtual",))
        need(0 < self.share <= 1, "share", "more than 0 and at most 1")
        need(1 <= self.jobs <= 16, "jobs", "1 to 16")
        need(1 <= self.window <= 1024 and self.window & (self.window - 1) == 0, "window", "a power of two up to 1024")
        need(self.shared or self.slots >= 1, "share", f"a slot for each of {self.jobs} jobs")
        need(0 < self.rto_min <= self.rto_max, "rto_min", "more than 0, and no more than rto_max")

    @property
    def reduction(self) -> int:
        """The reduction to request: one that the protocol declares."""
        return choose_reduction(self.protocol, "int32", self.payload)

    def check_reductions(self) -> None:
        choose_reduction(self.protocol, "int32", self.payload)

    @property
    def shared(self) -> bool:
        """True if jobs hold no slots of their own."""
        return not program_named(self.protocol).reserves

    @property
    def pool(self) -> int:
        """Slots of the switch: the largest power of two that is no more than its share."""
        return 1 << int(max(1, self.share * self.window * self.jobs)).bit_length() - 1

    @property
    def slots(self) -> int:
        """Slots that a job is admitted with: its window, or, where slots are reserved, as many of it as all can have."""
        part = self.pool // self.jobs
        return self.window if self.shared else min(self.window, 1 << part.bit_length() >> 1)


KINDS: dict[str, type[Keys]] = {"training": Config, "allreduce": AllReduce, "workload": Workload, "trace": Trace,
                               "sharing": Sharing}


def convert(kind: type[Keys], name: str, value: object, where: str, parse: bool = False) -> object:
    """Converts ``value`` to the type of the key. ``parse``: it is a text of the command line; in a file "4" is no number.

    Raises:
        ConfigError: there is no such key (the nearest is named), or the value is of another type.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    if name not in defaults:
        raise ConfigError(f"{where}: unknown key {name!r}{nearest(name, list(defaults))}")
    expected_type = type(defaults[name])
    try:
        if isinstance(value, str) and expected_type in (int, float, bool) and not parse:
            raise ValueError
        if expected_type is tuple:
            items = value.split(",") if isinstance(value, str) else value
            if not isinstance(items, (list, tuple)):
                raise ValueError
            return tuple(str(item).strip() for item in items)
        if expected_type is bool:
            if str(value) not in ("true", "false", "True", "False"):
                raise ConfigError(f"{where}: {name} = {value!r}: expected true or false")
            return str(value).lower() == "true"
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError
        if expected_type is int and isinstance(value, float):
            raise ValueError
        if expected_type is str and not isinstance(value, str):
            raise ValueError
        return PLAIN[expected_type](value)
    except ValueError:
        raise ConfigError(f"{where}: {name} = {value!r}: expected {expected_type.__name__}") from None


def from_dict(values: dict[str, object]) -> Keys:
    """Returns the configuration of ``as_dict``, also after a round trip through JSON. Raises ConfigError."""
    name = values.get("kind")
    if not isinstance(name, str) or name not in KINDS:
        raise ConfigError(f"config.json: kind = {name!r}: expected {' or '.join(map(repr, KINDS))}")
    kind = KINDS[name]
    return kind(**{name: convert(kind, name, value, "config.json") for name, value in values.items()})
