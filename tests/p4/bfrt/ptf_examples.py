"""open-p4studio's examples and their PTF tests on the embedded switch, served over BFRuntime.

`INA_P4STUDIO` names a checkout's folder `pkgsrc`, `INA_PTF_PYTHON` a Python with ptf, grpcio-tools, googleapis-common-protos,
six and crcmod. As a script it runs all of them, or those named (example[:Test,Test]), and prints each test's outcome;
`--record` stores the outcomes in tests/ptf/results.json (a test's reason for not passing; "": it passes), of which
`make docs` makes the table of docs/reference/p4-features.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent.parent
PORTS = range(8)  # of each pipe
STATE = 0xFFFE  # in place of a port: a port follows, and whether it is up
LIMIT = 60  # seconds for one test
# For examples whose tests wait longer, or do much: two million keys, thousands of members and entries one by one
LIMITS = {"tna_idletimeout": 120, "tna_pktgen": 240, "tna_action_selector": 300, "bri_grpc_error": 300, "selector_resize": 1500}
PIPES = {"tna_32q_2pipe": 4, "tna_register": 4}  # others have 2
INTERNAL = {"tna_32q_2pipe": (1, 3)}  # pipes whose ports all lead back into the switch


RESULTS = HERE / "ptf/results.json"
# Part of a failure's text, and the reason it stands for
REASONS = (
    ("snapshot", "snapshots"),
    ("bf-rt.json", "a program replaced while the switch runs"),
    ("t2na.p4", "Tofino 2"),
    ("not supported there", "groups as what a table does by default"),
    ("not done after", "takes longer than its time limit here"),
    ("Thrift", "needs the SDE's Thrift interface"),
    ("No module named 'p4'", "P4Runtime's own test classes"),
)


# Reasons for failures whose text gives none
KNOWN = {
    "DirectCounterSyncTest": "counters have no copy in software that is older than they are",
    "IndirectCounterSyncTest": "counters have no copy in software that is older than they are",
    "(script)": "needs the map of a real front panel",
}


def folder(name: str) -> Path:
    """Folder of an example."""
    return Path(os.environ["INA_P4STUDIO"]) / "p4-examples/p4_16_programs" / name


def names() -> list[str]:
    return sorted(p.parent.name for p in folder("").glob("*/test.py"))


def compiled(name: str) -> Any:
    from ina.p4.compiler.build import compile_program

    return compile_program(folder(name) / f"{name}.p4", include_dirs=[folder(""), folder(name)], cflags=["-O1"])


def serve(switch: Any, wire: socket.socket) -> None:
    """Serves the socket until the other end closes: takes a frame, or a request of ptf/run.py, and answers with the frames that
    have left since and those it causes, then with an empty datagram."""
    waiting: list[tuple[int, bytes]] = []
    wire.settimeout(0.01)
    with contextlib.suppress(OSError):
        while True:
            due, now = switch.next_due(), time.monotonic_ns() * 1000
            if due is not None and due <= now:
                waiting += switch.poll(now)
                continue
            try:
                datagram = wire.recv(1 << 16)
            except TimeoutError:
                continue
            if not datagram:
                return
            port = int.from_bytes(datagram[:2], "big")
            if port == STATE:
                switch.set_port(int.from_bytes(datagram[2:4], "big"), up=bool(datagram[4]))
            elif port in switch.ports:
                waiting += switch.step(datagram[2:], port, time.monotonic_ns() * 1000)
            for number, frame in waiting:
                wire.send(number.to_bytes(2, "big") + frame)
            waiting.clear()
            wire.send(b"")


@contextlib.contextmanager
def client() -> Iterator[Path]:
    """The published client as a package in a folder of its own."""
    import bfrt_client

    with tempfile.TemporaryDirectory() as scratch:
        yield bfrt_client.package(Path(scratch))


def run(name: str, package: Path, only: tuple[str, ...] = (), limit: int = 0) -> Iterator[dict[str, Any]]:
    """Yields the outcome of each test of an example as it ends: name, result (pass, fail, error, skip), why, seconds."""
    from ina.p4.bfrt.device import Device
    from ina.p4.bfrt.service import Server
    from ina.p4.rpc.connections import Access
    from ina.p4.runtime import Program, Switch

    limit = limit or LIMITS.get(name, LIMIT)
    with contextlib.ExitStack() as stack:
        pipes = PIPES.get(name, 2)
        switch = stack.enter_context(Switch(Program(compiled(name).so_path), pipes=pipes))
        ports = [128 * pipe + port for pipe in range(pipes) for port in PORTS]
        for port in ports:
            switch.add_port(port, loopback=port >> 7 in INTERNAL.get(name, ()))
        device = Device(switch, name)
        server = stack.enter_context(Server(device, access=Access(insecure=True)))  # all that their client knows
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        thread = threading.Thread(target=serve, args=(switch, ours), daemon=True)
        thread.start()
        request = {
            "test": str(folder(name) / "test.py"), "utils": str(Path(os.environ["INA_P4STUDIO"]) / "ptf-modules/ptf-utils"),
            "client": str(package), "socket": theirs.fileno(), "grpc": server.address, "ports": ports, "pipes": switch.pipes,
            "limit": limit, "only": list(only),
        }
        command = [os.environ["INA_PTF_PYTHON"], str(HERE / "ptf/run.py"), json.dumps(request)]
        complaints = stack.enter_context(tempfile.TemporaryFile("w+"))
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, stderr=complaints, text=True)
        stack.callback(process.wait)
        stack.callback(process.kill)
        stack.callback(ours.close)
        theirs.close()
        watchdog = threading.Timer(limit * 20, process.kill)  # the script itself limits each test
        watchdog.daemon = True
        watchdog.start()
        stack.callback(watchdog.cancel)
        assert process.stdout is not None
        count = 0
        for line in process.stdout:
            count += 1
            yield json.loads(line)
        if process.wait(60) or not count:
            complaints.seek(0)
            yield {"name": "(script)", "result": "error", "why": complaints.read()[-3000:], "seconds": 0}


def reason(outcome: dict[str, Any]) -> str:
    """Reason why a test does not pass; "" if it does."""
    if outcome["result"] == "pass":
        return ""
    for sign, meaning in REASONS:
        if sign in outcome["why"]:
            return meaning
    if outcome["name"] in KNOWN:
        return KNOWN[outcome["name"]]
    return (outcome["why"].strip().splitlines() or [outcome["result"]])[-1].strip()[:120]


def main() -> None:
    arguments = [a for a in sys.argv[1:] if a != "--record"]
    results: dict[str, dict[str, str]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with client() as package:
        for name in arguments or names():
            name, _, only = name.partition(":")
            if not (folder(name) / f"{name}.p4").exists():
                continue
            try:
                for outcome in run(name, package, tuple(only.split(",")) if only else ()):
                    results.setdefault(name, {})[outcome["name"]] = reason(outcome)
                    print(f"{outcome['result']:5} {name}.{outcome['name']} {outcome['seconds']}s {reason(outcome)}", flush=True)
                    if os.environ.get("VERBOSE") and outcome["why"]:
                        print(outcome["why"])
            except Exception as error:
                results[name] = {"(program)": reason({"result": "error", "why": f"{error}"})}
                print(f"error {name}: {error!r}"[:500], flush=True)
    if "--record" in sys.argv:
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    main()
