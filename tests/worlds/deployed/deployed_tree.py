"""Two leaves and a root as deployed Tofinos: embedded TNA switches in this process, cabled by memory, each behind a BFRuntime
server; hosts are ports of the leaves that this process holds, too. `ina` drives all of it from processes of its own."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import child
import numpy as np
import tiers
import tofino_file
from waiting import LONG, TookTooLong

from ina.aggregation.controller.client import Client
from ina.aggregation.worker import Endpoint, WorkerConfig
from ina.base import paths
from ina.net.ports import Faults, Port, create_bells, create_segment, open_shared
from ina.p4.bfrt.device import Device
from ina.p4.bfrt.service import Server
from ina.p4.compiler.build import compile_program
from ina.p4.runtime import Switch
from ina.worlds.testbed.forwarder import NAP, Cable

ROOT = Path(__file__).resolve().parent.parent.parent.parent
FRAME = 1518
HOSTS = 4  # of each leaf
FILE = """
kind = "training"
name = "racks"
workers = 8
values = 64
slots = 32

[tofino]
p4_name = "switchml"
"""


def dev_port(name: str) -> int:
    """Device port number of a port of the model's front panel."""
    connection = int(name.partition("/")[0]) - 1
    return connection // 16 * 128 + connection % 16 * 4


class Proxy:
    """TCP proxy between a controller and a driver, whose connections can be cut; `flows`: if cleared, no data passes any more."""

    def __init__(self, to: str):
        host, _, port = to.rpartition(":")
        self._to, self._ends = (host, int(port)), []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.flows = threading.Event()
        self.flows.set()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                theirs = socket.create_connection(self._to)
                self.connections += 1
                self._ends += [ours, theirs]
                for a, b in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    def _carry(self, a: socket.socket, b: socket.socket) -> None:
        with suppress(OSError):
            while data := a.recv(1 << 16):
                self.flows.wait()
                b.sendall(data)
        for end in (a, b):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self.flows.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        self.cut()


class Process:
    """`ina ...`, which prints one line when it is ready; `ready`: wait for that line."""

    def __init__(self, *argv: object, ready: bool = True):
        tiers.several_processes("starts a controller beside other processes")
        command = [sys.executable, "-m", "ina.cli", *map(str, argv)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        if not ready:
            return
        ready, _, _ = select.select([self.process.stdout], [], [], LONG)
        self.ready_line = self.process.stdout.readline() if ready else ""
        if not self.ready_line:
            self.process.kill()
            raise (AssertionError if ready else TookTooLong)(self.process.communicate()[1])

    def end(self, number: int = signal.SIGKILL) -> str:
        """Ends the process with a signal; returns its standard error."""
        self.process.send_signal(number)
        return child.output(self.process)[1]

    def close(self) -> None:
        if self.process.poll() is None:
            self.end()


class Host:
    """A host's link to its leaf. Like a NIC in a machine it can be opened again, once its user has closed it."""

    def __init__(self) -> None:
        self._memory, self._bells = create_segment(1024, FRAME), create_bells()

    def switch_end(self) -> Port:
        return open_shared(self._memory, 0, *self._bells.of(0))

    def open(self) -> Port:
        return open_shared(self._memory, 1, *self._bells.of(1))

    def close(self) -> None:
        """Closes the link; open ports stay."""
        self._bells.close()
        os.close(self._memory)


class Tree:
    """`roots` above two leaves, with servers 1 to 4 and 5 to 8; the cable from leaf1 to the first root is lossy where `loss` is
    not 0. `silence`: seconds without an answer after which a controller asks a switch again."""

    def __init__(self, folder: Path, roots: int = 1, loss: float = 0.0, silence: float = LONG):
        self.folder, self.file, self.silence = folder, folder / "racks.toml", silence
        self.names = ["leaf1", "leaf2", *("root", "root2")[:roots]]
        self.socket = str(folder / "controller")
        self._stack = ExitStack()
        self.hosts: dict[int, Host] = {}
        self.switches: dict[str, Switch] = {}
        self.servers: dict[str, Server] = {}
        self.proxies: dict[str, Proxy] = {}
        self._ports: dict[str, dict[str, Port]] = {name: {} for name in self.names}
        self._lossy: list[Port] = []
        cabled: list[tuple[str, str]] = []
        built = compile_program(paths.p4_dir() / "tofino" / "switchml.p4", defines={"VALUES": "64", "SLOTS": "256"},
                                include_dirs=[paths.p4_dir()])
        try:
            for name in self.names:
                self.switches[name] = Switch(built.so_path, pipes=2)
            for n in range(1, 2 * HOSTS + 1):
                self.hosts[n] = Host()
                self._stack.callback(self.hosts[n].close)
                self._plug(f"leaf{(n - 1) // HOSTS + 1}", f"{(n - 1) % HOSTS + 1}/0", self.hosts[n].switch_end())
            for up, root in enumerate(self.names[2:]):
                for leaf in (1, 2):
                    ends = f"leaf{leaf}:{31 + up}/0", f"{root}:{leaf}/0"
                    cable = Cable(FRAME)
                    for side, end in enumerate(ends):
                        port = cable.open(side)
                        if loss and not cabled:
                            port.with_faults(rx=Faults(loss=loss, seed=side + 1))
                            self._lossy.append(port)
                        self._plug(*end.split(":"), port)
                    cable.close()
                    cabled.append(ends)
            for name, switch in self.switches.items():
                switch.start(yields=0, nap=NAP)
                self.servers[name] = Server(Device(switch, "switchml"))
                self.proxies[name] = Proxy(self.servers[name].address)
        except BaseException:
            self.close()
            raise
        tables = [tofino_file.switch(name, self.proxies[name].address, self._ports[name]) for name in self.names]
        tables += [tofino_file.link(a, b) for a, b in cabled]
        tables += [tofino_file.host(n, f"leaf{(n - 1) // HOSTS + 1}", (n - 1) % HOSTS + 1) for n in self.hosts]
        self.file.write_text(FILE + "".join(tables))

    def _plug(self, switch: str, name: str, port: Port) -> None:
        self._ports[switch][name] = port
        self.switches[switch].add_port(dev_port(name), port.handle)

    def lost(self) -> int:
        """Number of frames that the lossy cable has lost."""
        return sum(side.lost for port in self._lossy for side in port.faults.values())

    def kill(self, name: str) -> None:
        """The switch is off, and nobody listens at its driver's address."""
        self.switches[name].stop()  # at once: no sum that is under way is completed
        self.proxies.pop(name).close()
        self.servers.pop(name).stop()
        self.switches.pop(name).close()

    def ina(self, *argv: object, ok: bool = True) -> str:
        done = child.run([sys.executable, "-m", "ina.cli", *argv], cwd=ROOT)
        assert (done.returncode == 0) == ok, done.stdout + done.stderr
        return done.stdout if ok else done.stderr

    def deploy(self) -> None:
        self.ina("deploy", self.file)

    @property
    def controlled_by(self) -> tuple:
        return ("tofino", "controller", self.file, "--job-slots", 16, "--switch-timeout", self.silence, "--name", self.socket,
                "--state", self.folder / "jobs.json")

    def controller(self) -> Process:
        return Process(*self.controlled_by, "-v")

    def ask(self, operation: str) -> dict:
        client = Client(self.socket, LONG)
        try:
            return client.ask(operation)
        finally:
            client.close()

    def close(self) -> None:
        for proxy in self.proxies.values():
            proxy.close()
        for server in self.servers.values():
            server.stop()
        for switch in self.switches.values():
            switch.close()
        for ports in self._ports.values():
            for port in ports.values():
                port.close()
        self._stack.close()


class Workers:
    """Workers of one job, at hosts by number, in this process. `watched`: they end with the connection to the controller."""

    def __init__(self, tree: Tree, hosts: list[int], job: str = "job", watched: bool = False):
        self.tree, self.hosts, self.job = tree, hosts, job
        self.clients: list[Client] = []
        self.endpoints: list[Endpoint] = []
        self.configs: list[WorkerConfig] = []
        self.incarnation = 0  # of their job, once they have it
        try:
            for a, host in zip(self.connect(), hosts, strict=True):
                config = WorkerConfig(
                    worker=a.worker, workers=len(hosts), job=a.number, life=a.life, slots=a.slots,
                    values=a.values, address=a.address, switch=a.switch, rto_min=10e-3, timeout=LONG)
                self.configs.append(config)
                alive = self.clients[a.worker].fileno() if watched else -1
                self.endpoints.append(Endpoint(config, tree.hosts[host].open(), alive))
                self.incarnation = a.incarnation
        except BaseException:
            self.close()
            raise

    def connect(self):
        """Connects the workers to the controller (again)."""
        for client in self.clients:
            client.close()
        self.clients = [Client(self.tree.socket, LONG, token="secret", host=f"server{host}") for host in self.hosts]
        for i, client in enumerate(self.clients):
            client.join(self.job, i)
        for client in self.clients:
            client.admit(self.job, len(self.hosts))
        return [client.attach(self.job, i, "udp", held=self.incarnation) for i, client in enumerate(self.clients)]

    def begin(self, count: int, seed: int = 1):
        """Begins an all-reduce of full-range integers; returns the expected sums, and the other arguments of `end`."""
        arrays = [np.random.default_rng([seed, i]).integers(-(2**31), 2**31, count, dtype=np.int32)
                  for i in range(len(self.hosts))]
        expected = np.sum(arrays, axis=0, dtype=np.int32)
        tickets = [endpoint.submit(array) for endpoint, array in zip(self.endpoints, arrays, strict=True)]
        return expected, arrays, tickets

    def end(self, reduction) -> None:
        expected, arrays, tickets = reduction
        for endpoint, ticket in zip(self.endpoints, tickets, strict=True):
            endpoint.wait(ticket, LONG)
        for array in arrays:
            assert np.array_equal(array, expected)

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.close()
        for client in self.clients:
            client.close()
