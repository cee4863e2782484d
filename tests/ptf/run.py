"""Runs the tests of one PTF script, unmodified, before a switch at the other end of a socket. For a Python with `ptf`.

Stands in for the `ptf` command and for what is installed with an SDE: `p4testutils`, `bfrt_grpc`, Thrift's modules (whose tests
are skipped). Frames go over a socket, one datagram each: port (16 bits), bytes. The switch answers each with all that it sends,
then with an empty one, so no time is spent on frames that do not come. In place of a port, 0xffff only polls for frames,
0xfffe takes a port down or up.

usage: run.py '{"test": path, "utils": folder, "client": folder, "socket": fd, "grpc": "host:port", "ports": [...], "pipes": N,
                "limit": seconds for each test, "only": [names]}'
Prints a line of JSON for each test: name, result (pass, fail, error, skip), why, seconds.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import random
import signal
import socket
import sys
import time
import types
import unittest
from typing import Any

WANTED = json.loads(sys.argv[1])
FRAME = 1 << 16
OUT = sys.stdout
sys.stdout = sys.stderr  # keeps stdout apart: ptf and the tests print, too

import ptf  # noqa: E402

ptf.config.update({
    "platform": "eth", "log_dir": None, "log_file": "/dev/null", "relax": False, "device_sockets": [],
    "interfaces": [(0, port, f"port{port}") for port in WANTED["ports"]], "disable_ipv6": False, "disable_vxlan": False,
    "disable_erspan": False, "disable_geneve": False, "disable_mpls": False, "disable_nvgre": False, "disable_igmp": False,
    "disable_rocev2": False, "qlen": 1 << 20, "port_map": {(0, port): f"port{port}" for port in WANTED["ports"]},
})
import ptf.dataplane  # noqa: E402
import ptf.testutils  # noqa: E402

ptf.ptfutils.default_timeout = 2
ptf.ptfutils.default_negative_timeout = 0.001  # nobody waits
host, _, port = WANTED["grpc"].rpartition(":")
ptf.testutils.TEST_PARAMS = {
    "arch": "tofino", "target": "asic-model", "num_pipes": str(WANTED["pipes"]), "test_seed": "1", "grpc_server": host,
    "bfrt_grpc_port": port, "pkt_size": "100",
}


class Line(ptf.dataplane.DataPlane):
    """All ports at once, on one socket."""

    def __init__(self, wire: socket.socket, ports: list[int]) -> None:
        self.wire = wire
        super().__init__(ptf.config)
        for number in ports:
            self.ports[0, number] = None
            self.packet_queues[0, number] = []

    def start(self) -> None:
        """Starts no thread: all frames that a frame causes have arrived when `send` returns."""

    def send(self, device_number: int, port_number: int, packet: bytes) -> int:
        self.tx_counters[device_number, port_number] += 1
        return self.exchange(port_number.to_bytes(2, "big") + packet) or len(packet)

    def exchange(self, datagram: bytes) -> None:
        """Sends a datagram, and receives the frames that the switch sends until its empty answer."""
        self.wire.send(datagram)
        while answer := self.wire.recv(FRAME):
            number = int.from_bytes(answer[:2], "big")
            queue = self.packet_queues.setdefault((0, number), [])
            queue.append((answer[2:], time.monotonic()))
            self.rx_counters[0, number] += 1

    def poll(self, device_number=0, port_number=None, timeout=None, exp_pkt=None, filters=()):
        self.exchange(b"\xff\xff")
        return super().poll(device_number, port_number, 0, exp_pkt, list(filters))


def set_port(port: int, up: bool) -> None:
    ptf.dataplane_instance.exchange(b"\xff\xfe" + port.to_bytes(2, "big") + bytes([up]))


def stand_in(name: str, **members: object) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module


def thrift_base() -> type:
    """Stub of the SDE's Thrift client: tests are skipped when they use it."""

    class Thrift(ptf.base_tests.BaseTest):
        def __init__(self, *_: object) -> None:
            super().__init__()

        def setUp(self) -> None:
            pass

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise unittest.SkipTest(f"needs the SDE's Thrift interface ({name})")

    return Thrift


def prepare() -> None:
    sys.path[:0] = [WANTED["client"], WANTED["utils"]]
    stand_in("p4testutils", __path__=[WANTED["utils"]])
    for name in ("ptf_port", "p4testutils.ptf_port"):  # the cables
        stand_in(name, take_port_down=lambda port: set_port(port, False), bring_port_up=lambda port: set_port(port, True))
    sys.modules["p4testutils"].ptf_port = sys.modules["ptf_port"]
    thrift = thrift_base()
    stand_in("pd_base_tests", ThriftInterfaceDataPlane=thrift, ThriftInterface=thrift)
    for name in ("pal_rpc", "res_pd_rpc"):
        stand_in(name, __path__=[])
        stand_in(f"{name}.ttypes")
    import scapy.packet  # as the SDE's own packets: other bytes as the same kind of packet

    scapy.packet.Packet.load_bytes = lambda self, data: type(self)(data)
    sample = random.sample  # the tests are for a Python version in which it accepted sets
    random.sample = lambda population, k, **more: sample(
        sorted(population) if isinstance(population, (set, frozenset)) else population, k, **more
    )


def watch_clients() -> list[Any]:
    """List of the clients created, to be closed after each test: one whose setUp fails would leave its client subscribed."""
    import bfrt_grpc.client as client

    clients: list[Any] = []
    init = client.ClientInterface.__init__

    def remember(self, *args, **kwargs):
        clients.append(self)
        init(self, *args, **kwargs)

    client.ClientInterface.__init__ = remember
    return clients


def end(clients: list[Any]) -> None:
    while clients:
        with contextlib.suppress(Exception):
            clients.pop().tear_down_stream()


def expired(*_: object) -> None:
    raise TimeoutError(f"not done after {WANTED['limit']} s")


def run(test: unittest.TestCase) -> dict[str, object]:
    result = unittest.TestResult()
    start = time.monotonic()
    signal.alarm(WANTED["limit"])
    try:
        test.run(result)
    finally:
        signal.alarm(0)
    problems = [("fail", text) for _, text in result.failures] + [("error", text) for _, text in result.errors]
    problems += [("skip", reason) for _, reason in result.skipped]
    verdict, text = problems[0] if problems else ("pass", "")
    return {"name": type(test).__name__, "result": verdict, "why": text[-3000:], "seconds": round(time.monotonic() - start, 2)}


def main() -> None:
    import ptf.base_tests

    wire = socket.socket(fileno=WANTED["socket"])
    ptf.dataplane_instance = Line(wire, WANTED["ports"])
    prepare()
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGALRM, expired)
    spec = importlib.util.spec_from_file_location("test", WANTED["test"])
    module = importlib.util.module_from_spec(spec)
    sys.modules["test"] = module
    spec.loader.exec_module(module)
    clients = watch_clients()
    tests = [t for t in vars(module).values() if isinstance(t, type) and issubclass(t, unittest.TestCase)]
    for kind in tests:
        if kind.__module__ != "test" or not hasattr(kind, "runTest") or WANTED["only"] and kind.__name__ not in WANTED["only"]:
            continue
        random.seed(1)
        try:
            outcome = run(kind())
        except Exception as error:  # in a constructor
            outcome = {"name": kind.__name__, "result": "error", "why": repr(error), "seconds": 0}
        end(clients)
        print(json.dumps(outcome), file=OUT, flush=True)


main()
