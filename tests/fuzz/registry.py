"""Classes of targets, and the list of all targets.

A target takes any bytes. Findings are reports of the sanitizers, time-outs and excess memory; in C also a CHECK that fails; in
Python also every exception but those that the target declares (refusals of bad input), and those, too, if their text is not
ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"

Function = Callable[[bytes], object]


@dataclass(frozen=True)
class Target:
    """`longest`: bytes of an input. `patience`: seconds that one input may take. `slow`: not fuzzed in CI, as its compilation by
    clang costs more than it adds; its corpus is replayed."""

    name: str
    about: str
    longest: int = field(default=600, kw_only=True)
    patience: int = field(default=10, kw_only=True)
    slow: bool = field(default=False, kw_only=True)

    @property
    def corpus(self) -> Path:
        return CORPUS / self.name


@dataclass(frozen=True)
class Native(Target):
    """A target in C. `harness`: a file of c/. `sources`: patterns of the repository's files. `program`: of programs.py; its C is
    compiled in."""

    harness: str
    sources: tuple[str, ...]
    defines: tuple[str, ...] = ()
    program: str = ""


@dataclass(frozen=True)
class Managed(Target):
    """A target in Python. The fuzzing process calls the function `make` of `module`: it imports the code to fuzz, and returns the
    function and the exceptions that it may raise. `watch`: modules and packages whose coverage guides. `needs`: capabilities
    (tests/capabilities.py)."""

    module: str
    make: str
    watch: tuple[str, ...]
    needs: tuple[str, ...] = ()


HOST = ("host/protocol/lane.c", "host/protocol/codec.c", "host/protocol/check.c", "host/protocol/keyed.c",
        "host/protocol/frame.c", "host/protocol/atp_frame.c", "host/net/internet.c")
WORKER = (*HOST, "host/protocol/switchml.c", "host/protocol/atp.c", "host/protocol/ahead.c", "host/protocol/route.c",
          "host/protocol/indices.c", "host/protocol/offers.c", "host/protocol/slots.c", "host/protocol/tensors.c",
          "host/protocol/rto.c", "host/protocol/protocols.c", "host/codec/halves.c")
SERVER = ("host/protocol/ps.c", "host/protocol/ps_jobs.c")
SWITCH = ("ina/p4/runtime/c/[!dl]*.c", "host/net/link.c", "host/net/pool.c", "host/net/port.c", "host/net/bell.c",
          "host/net/segment.c")

NATIVE = (
    Native("frames", "parsers of received frames: SwitchML, ATP, the parameter server", "frames.c", (*HOST, *SERVER)),
    *(
        Native(
            f"worker-{name}", f"a worker of protocol {name}: tensors, frames, time", "worker.c", WORKER, (f"PROTOCOL=ina_{name}",)
        )
        for name in ("switchml", "quorum", "receivers", "atp", "ps", "atp_routes")
    ),
    Native("server", "the parameter server's jobs", "server.c", (*HOST, *SERVER)),
    Native(
        "segment",
        "a shared-memory port whose peer writes what it likes",
        "segment.c",
        ("host/net/segment.c", "host/net/port_shm.c", "host/net/port.c", "host/net/bell.c"),
    ),
    Native(
        "ports",
        "a UDP port, and ports with tags, faults and captures",
        "ports.c",
        (
            "host/net/segment.c",
            "host/net/port_*[!aks].c",
            "host/net/port_socket.c",
            "host/net/siphash.c",
            "host/net/tag.c",
            "host/net/fault.c",
            "host/net/pcap.c",
            "host/net/internet.c",
            "host/net/port.c",
            "host/net/bell.c",
        ),
    ),
    *(
        Native(
            f"switch-{name}",
            f"generated code and runtime: {about}",
            "switch.c",
            SWITCH,
            program=name,
            slow=not name.endswith("everything"),
        )
        for name, about in (
            ("switchml", "p4/switchml.p4"),
            ("atp", "p4/atp.p4"),
            ("everything", "a v1model program with every feature"),
            ("tna-switchml", "p4/tofino/switchml.p4"),
            ("tna-everything", "a TNA program with every feature"),
        )
    ),
)

CONTROL = ("ina.aggregation.controller", "ina.aggregation.control_socket", "ina.base.documents")
CONFIG = ("ina.lab.kind", "ina.lab.kinds", "ina.base.settings", "ina.base.documents")

MANAGED = (
    Managed(
        "control-messages",
        "lines of the control socket",
        "control",
        "messages",
        CONTROL,
    ),
    Managed(
        "control-http",
        "requests in HTTP",
        "control",
        "http",
        CONTROL,
    ),
    Managed(
        "control-socket",
        "a connection to the controller, from its first byte to the answers",
        "control",
        "connection",
        CONTROL,
    ),
    Managed(
        "p4runtime",
        "messages of P4Runtime",
        "rpc",
        "p4runtime",
        ("ina.p4.p4runtime", "ina.p4.rpc", "ina.p4.runtime"),
        needs=("cc", "p4runtime"),
    ),
    Managed("bfrt", "messages of BFRuntime", "rpc", "bfrt", ("ina.p4.bfrt", "ina.p4.rpc", "ina.p4.runtime"),
            needs=("cc", "p4runtime")),
    Managed(
        "experiment", "experiments and sweeps in TOML", "files", "experiment", (*CONFIG, "ina.lab.plan"), longest=1000
    ),
    Managed("control-answers", "what the switch process tells a worker", "control", "answers",
            ("ina.aggregation.controller.client", *CONTROL)),
    Managed(
        "device-config",
        "P4Runtime's device configurations",
        "rpc",
        "device_config",
        ("ina.p4.p4runtime.pipeline", "ina.base.documents"),
        needs=("cc", "p4runtime"),
    ),
    Managed("bfrt-json", "tables that a BFRuntime server says it has", "rpc", "bfrt_json",
            ("ina.p4.bfrt.info", "ina.base.documents")),
    Managed("mapping", "mappings of `ina p4 equal`", "files", "mapping", ("ina.p4.tools.equal.mapping", "ina.base.documents"),
            longest=1000),
    Managed("idx", "images and labels of data sets", "files", "idx", ("ina.lab.training.data",)),
    Managed(
        "results",
        "results folders",
        "files",
        "results",
        ("ina.lab.results.record", "ina.lab.results.compare", *CONFIG),
        longest=1500,
    ),
    Managed("state", "a controller's state file", "control", "state", CONTROL, longest=3000),
    Managed(
        "chakra",
        "Chakra traces and process groups",
        "files",
        "trace",
        ("ina.lab.virtual.chakra", "ina.base.documents"),
        needs=("chakra",),
    ),
    Managed(
        "capture",
        "pcap files",
        "files",
        "capture",
        ("ina.p4.tools.trace",),
    ),
    Managed(
        "p4-source",
        "P4 programs: preprocessor, parser, checker, code",
        "sources",
        "p4",
        ("ina.p4.compiler",),
        longest=3000,
        patience=20,
    ),
    Managed(
        "stf",
        "STF commands",
        "sources",
        "stf",
        ("ina.p4.tools.stf_checks", "ina.p4.tools.stf_file", "ina.p4.tools.stf_numbers", "ina.p4.tools.stf_target"),
    ),
    Managed("topology", "networks in TOML", "files", "topology", ("ina.topology", "ina.base.documents"), longest=1000),
    Managed("deployment", "what is deployed to a Tofino", "files", "deployment", (*CONFIG, "ina.worlds.deployed"), longest=1500),
    Managed(
        "layers",
        "layers of a workload",
        "files",
        "layers",
        ("ina.lab.virtual.layers",),
    ),
    Managed("settings", "ina.toml", "files", "settings", ("ina.backend.settings", "ina.base.documents"), needs=("torch",)),
)

TARGETS: dict[str, Target] = {target.name: target for target in (*NATIVE, *MANAGED)}
