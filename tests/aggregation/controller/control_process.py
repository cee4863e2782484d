"""A control socket in a process of its own, over a switch without a data plane: for tests that attack it.

    python tests/aggregation/controller/control_process.py NAME DESCRIPTORS [TIME=SECONDS ...]

NAME: socket; DESCRIPTORS: the process's limit of open ones, 0 for the system's; TIME: one of server.py's. It ends when its
standard input does.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import child
from waiting import LONG

TESTS = Path(__file__).resolve().parent.parent.parent


@contextmanager
def control_process(name: str, descriptors: int = 0, **times: float) -> Iterator[subprocess.Popen]:
    """Starts the process; ``times``: seconds of server.py by name."""
    command = [sys.executable, __file__, name, str(descriptors), *(f"{time}={seconds}" for time, seconds in times.items())]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent}:{TESTS}"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                               text=True)
    try:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        yield process
    finally:
        process.stdin.close()
        try:
            child.status(process)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()


def free_tcp_name(ip: str = "127.0.0.1") -> str:
    with socket.create_server((ip, 0)) as reserved:
        return f"tcp:{ip}:{reserved.getsockname()[1]}"


def connected(name: str, seconds: float = LONG) -> socket.socket:
    """Connects the socket, and nothing else: no greeting, no check of the server."""
    from ina.aggregation.control_socket import descriptors
    from ina.aggregation.control_socket.channel import address, new_socket

    sock = new_socket(name)
    descriptors.allow(sock, True)
    sock.connect(address(name))  # with a time-out it would not wait for room in the queue
    sock.settimeout(seconds)
    return sock


def main() -> None:
    from test_control import FakeHost

    from ina.aggregation.control_socket.channel import elsewhere, listen
    from ina.aggregation.controller import server as module
    from ina.base import tokens

    name, descriptors = sys.argv[1], int(sys.argv[2])
    if descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    for setting in sys.argv[3:]:
        time, _, seconds = setting.partition("=")
        assert hasattr(module, time)
        setattr(module, time, float(seconds))
    server = module.Server(listen(name), FakeHost(), job_slots=16, token=tokens.make() if elsewhere(name) else "")
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print("ready", flush=True)
    server.run()


if __name__ == "__main__":
    import folders  # noqa: F401

    main()
