"""open-p4studio's examples and their PTF tests before the embedded switch, served over BFRuntime.

`INA_P4STUDIO` names a checkout's folder `pkgsrc`, `INA_PTF_PYTHON` a Python with ptf, grpcio-tools, googleapis-common-protos,
six and crcmod. As a script it runs all of them, or those named (example[:Test,Test]), and says what became of each test;
`--record` keeps that in tests/ptf/results.json (a test's reason for not passing, "": it passes) and makes the table of
docs/tna-conformance.md from it.
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
STATE = 0xFFFE  # in place of a port: what follows is a port, and whether it is up
LIMIT = 60  # seconds for one test
# Of examples whose tests wait longer, or ask for much: two million keys, thousands of members and entries one by one
LIMITS = {"tna_idletimeout": 120, "tna_pktgen": 240, "tna_action_selector": 300, "bri_grpc_error": 300, "selector_resize": 1500}
PIPES = {"tna_32q_2pipe": 4, "tna_register": 4}  # others have 2
INTERNAL = {"tna_32q_2pipe": (1, 3)}  # pipes whose ports all lead back into the switch


RESULTS = HERE / "ptf/results.json"
PAGE = HERE.parent / "docs/tna-conformance.md"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
# What a failure's text says, and what it means
REASONS = (
    ("snapshot", "snapshots"),
    ("bf-rt.json", "a program replaced while the switch runs"),
    ("t2na.p4", "Tofino 2"),
    ("not supported there", "groups as what a table does by default"),
    ("not done after", "takes longer than its time limit here"),
    ("Thrift", "needs the SDE's Thrift interface"),
    ("No module named 'p4'", "P4Runtime's own test classes"),
)


# What the text of these does not say
KNOWN = {
    "DirectCounterSyncTest": "counters have no copy in software that is older than they are",
    "IndirectCounterSyncTest": "counters have no copy in software that is older than they are",
    "(script)": "needs the map of a real front panel",
}


def folder(name: str) -> Path:
    """Of an example."""
    return Path(os.environ["INA_P4STUDIO"]) / "p4-examples/p4_16_programs" / name


def names() -> list[str]:
    return sorted(p.parent.name for p in folder("").glob("*/test.py"))


def compiled(name: str) -> Any:
    from ina.p4.compiler.build import compile_program

    return compile_program(folder(name) / f"{name}.p4", include_dirs=[folder(""), folder(name)], cflags=["-O1"])


def serve(switch: Any, wire: socket.socket) -> None:
    """Until the other end closes: a frame in, or what ptf/run.py says instead, and out what has left meanwhile and all that it
    causes, then an empty datagram."""
    waiting: list[tuple[int, bytes]] = []
    wire.settimeout(0.01)
    with contextlib.suppress(OSError):
        while True:
            due, now = switch.next_due(), time.monotonic_ns() * 1000
            if due is not None and due <= now:
                waiting += switch.poll(now)
                continue
            try:
                said = wire.recv(1 << 16)
            except TimeoutError:
                continue
            if not said:
                return
            port = int.from_bytes(said[:2], "big")
            if port == STATE:
                switch.set_port(int.from_bytes(said[2:4], "big"), up=bool(said[4]))
            elif port in switch.ports:
                waiting += switch.step(said[2:], port, time.monotonic_ns() * 1000)
            for number, frame in waiting:
                wire.send(number.to_bytes(2, "big") + frame)
            waiting.clear()
            wire.send(b"")


@contextlib.contextmanager
def client() -> Iterator[Path]:
    """The published client as a package in a folder of its own."""
    import bfrt_client

    with tempfile.TemporaryDirectory() as made:
        yield bfrt_client.package(Path(made))


def run(name: str, made: Path, only: tuple[str, ...] = (), limit: int = 0) -> Iterator[dict[str, Any]]:
    """What each test of an example says as it ends: name, result (pass, fail, error, skip), why, seconds."""
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
        wanted = {
            "test": str(folder(name) / "test.py"), "utils": str(Path(os.environ["INA_P4STUDIO"]) / "ptf-modules/ptf-utils"),
            "client": str(made), "socket": theirs.fileno(), "grpc": server.address, "ports": ports, "pipes": switch.pipes,
            "limit": limit, "only": list(only),
        }  # fmt: skip
        command = [os.environ["INA_PTF_PYTHON"], str(HERE / "ptf/run.py"), json.dumps(wanted)]
        complaints = stack.enter_context(tempfile.TemporaryFile("w+"))
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, stderr=complaints, text=True)
        stack.callback(process.wait, 5)
        stack.callback(process.kill)
        stack.callback(ours.close)
        theirs.close()
        watchdog = threading.Timer(limit * 20, process.kill)  # the script limits each test itself
        watchdog.daemon = True
        watchdog.start()
        stack.callback(watchdog.cancel)
        assert process.stdout is not None
        said = 0
        for line in process.stdout:
            said += 1
            yield json.loads(line)
        if process.wait(5) or not said:
            complaints.seek(0)
            yield {"name": "(script)", "result": "error", "why": complaints.read()[-3000:], "seconds": 0}


def reason(said: dict[str, Any]) -> str:
    """Why a test does not pass; "": it does."""
    if said["result"] == "pass":
        return ""
    for sign, meaning in REASONS:
        if sign in said["why"]:
            return meaning
    if said["name"] in KNOWN:
        return KNOWN[said["name"]]
    return (said["why"].strip().splitlines() or [said["result"]])[-1].strip()[:120]


def table(results: dict[str, dict[str, str]]) -> str:
    """The page's table: tests that pass of all, and why the others do not."""
    lines = ["| example | tests that pass | the others |", "|---|---|---|"]
    for name, tests in sorted(results.items()):
        others: dict[str, list[str]] = {}
        for test, why in tests.items():
            if why:
                others.setdefault(why, []).append(test)
        said = "; ".join(f"{why}: {', '.join(f'`{t}`' for t in who)}" for why, who in others.items())
        lines.append(f"| `{name}` | {sum(not why for why in tests.values())} of {len(tests)} | {said} |")
    every = [why for tests in results.values() for why in tests.values()]
    lines += ["", f"Together {sum(not why for why in every)} of {len(every)} tests pass."]
    return "\n".join(lines) + "\n"


def page(results: dict[str, dict[str, str]]) -> str:
    """docs/tna-conformance.md with the table of these results."""
    text = PAGE.read_text()
    return text[: text.index(BEGIN) + len(BEGIN)] + table(results) + text[text.index(END) :]


def main() -> None:
    arguments = [a for a in sys.argv[1:] if a != "--record"]
    results: dict[str, dict[str, str]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with client() as made:
        for name in arguments or names():
            name, _, only = name.partition(":")
            if not (folder(name) / f"{name}.p4").exists():
                continue
            try:
                for said in run(name, made, tuple(only.split(",")) if only else ()):
                    results.setdefault(name, {})[said["name"]] = reason(said)
                    print(f"{said['result']:5} {name}.{said['name']} {said['seconds']}s {reason(said)}", flush=True)
                    if os.environ.get("VERBOSE") and said["why"]:
                        print(said["why"])
            except Exception as error:
                results[name] = {"(program)": reason({"result": "error", "why": f"{error}"})}
                print(f"error {name}: {error!r}"[:500], flush=True)
    if "--record" in sys.argv:
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        PAGE.write_text(page(results))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    main()
