"""Makes a topology real on this machine with Mininet, and takes it down again.

    with Network(load("star", hosts=4), paths.p4_dir() / "switchml.p4", {"VALUES": "256"}) as network:
        subprocess.run(network.command("h1", ["ping", "-c", "1", "10.0.0.2"]))

Hosts are Mininet's: shells in network namespaces. There is no Open vSwitch: a switch is a process of ours in the root
namespace, with packet sockets on its ends of the veth pairs. Rate, delay, queue and loss of the links are made there
(host/link.h), in both directions, for not every kernel has netem and Mininet's TCLink only warns where it has not.

Needs root and Debian's ``mininet`` package (without recommends).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

from ina.control.client import Client, SwitchProcess
from ina.transport import SWITCH
from topologies import routes
from topologies.model import Topology, TopologyError
from topologies.state import State, interface_exists, run_dir

DIST_PACKAGES = (Path("/usr/lib/python3/dist-packages"), Path("/usr/local/lib/python3/dist-packages"))
PREFIX = 16  # 10.0.0.0/16: hosts and the switch's own address are neighbours
MAX_UNIX_PATH = 100


class MininetMissing(RuntimeError):
    """This machine cannot run Mininet networks; the message says why and what to install."""


def missing() -> str:
    """Why networks cannot be made real here; empty: they can."""
    if os.geteuid() != 0:
        return "not running as root (network namespaces and packet sockets need it)"
    for command in ("mnexec", "ip", "ethtool"):
        if shutil.which(command) is None:
            return f"there is no {command} (Debian/Ubuntu: apt install --no-install-recommends mininet iproute2 ethtool)"
    try:
        _library()
    except MininetMissing as error:
        return str(error)
    done = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True)
    return "" if done.returncode == 0 else f"no network namespaces here: {done.stderr.strip()}"


def _library() -> ModuleType:
    """Module ``mininet.net``. The distribution's packages are outside a virtual environment: only this one is let in."""
    if importlib.util.find_spec("mininet") is None:
        folder = next((f / "mininet" for f in DIST_PACKAGES if (f / "mininet" / "net.py").is_file()), None)
        if folder is None:
            raise MininetMissing("Mininet is not installed (Debian/Ubuntu: apt install --no-install-recommends mininet)")
        spec = importlib.util.spec_from_file_location(
            "mininet", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        package = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        sys.modules["mininet"] = package
        spec.loader.exec_module(package)  # type: ignore[union-attr]
    try:
        return importlib.import_module("mininet.net")
    except ImportError as error:  # Mininet 2.3 wants distutils, which Python 3.12 has no more (setuptools brings it)
        raise MininetMissing(f"Mininet does not import into Python {sys.version.split()[0]}: {error}") from error


def _switch_class() -> type:
    _library()
    from mininet.node import Switch

    class EmbeddedSwitch(Switch):
        """A place for interfaces; the switch process drives them."""

        def start(self, controllers: object) -> None:
            return

    return EmbeddedSwitch


def _flood(topology: Topology) -> dict[str, list[int]]:
    """For every switch the ports that lead to a host, or to a switch along one tree that spans all."""
    ports: dict[str, set[int]] = {switch.name: set() for switch in topology.switches}
    root = topology.switches[0].name
    reached, waiting = {root}, [root]
    for switch in waiting:
        for hop in topology.hops[switch]:
            if hop.node not in ports:
                ports[switch].add(hop.port)
            elif hop.node not in reached:
                reached.add(hop.node)
                waiting.append(hop.node)
                ports[switch].add(hop.port)
                ports[hop.node].add(next(end.port for end in topology.ends[hop.link] if end.node == hop.node))
    return {switch: sorted(found) for switch, found in ports.items()}


class Network:
    """A topology that is up between ``start`` and ``stop`` (or as a context manager). One at a time on a machine.

    ``program`` and ``defines``: the P4 program of the switch. ``seed``: of the losses. ``capture``: a folder that gets a
    pcap file of each switch port. ``job_slots``: as the switch process's.
    """

    def __init__(self, topology: Topology, program: Path, defines: dict[str, str], *, seed: int = 1,
                 capture: Path | None = None, job_slots: int | None = None):
        if any(link.simplex for link in topology.links):
            raise TopologyError(f"{topology.name}: it has links of one direction; a network of real interfaces has none")
        self.topology = topology
        # The interfaces: between switches frames go through the switch process's memory.
        self._pairs = [sorted(pair, key=lambda end: end.node[0]) for pair in topology.ends if pair[0].node[0] != pair[1].node[0]]
        self.net = None  # the Mininet object
        self.up_seconds = 0.0
        self.cleaned: list[str] = []  # what an earlier network of this tool had left
        self.socket = str(run_dir() / "switch.sock")
        if len(self.socket) > MAX_UNIX_PATH:
            raise TopologyError(f"INA_RUN_DIR: {self.socket} is too long for the path of a socket")
        self._program, self._defines, self._job_slots = program, defines, job_slots
        self._seed, self._capture = seed, capture
        self._state: State | None = None
        self._process: SwitchProcess | None = None

    # ---- up

    def start(self) -> Network:
        """Raises MininetMissing, state.Busy, TopologyError, OSError and the switch process's ControlError."""
        began = time.monotonic()
        if reason := missing():
            raise MininetMissing(reason)
        self._state = State(self.topology.name)
        self.cleaned = self._state.cleaned
        try:
            self._check_names()
            self._make()
            self._configure()
            self._start_switch()
        except BaseException:
            self.stop()
            raise
        self.up_seconds = time.monotonic() - began
        return self

    def _check_names(self) -> None:
        for pair in self._pairs:
            for end in pair:
                if interface_exists(end.name):
                    raise TopologyError(
                        f"interface {end.name} is there already, and not of this tool: another Mininet network runs, or "
                        f"left it behind (ip link del {end.name})"
                    )

    def _make(self) -> None:
        mininet = _library()
        mininet.Mininet.inited = True  # its init() changes system-wide limits, which nothing here needs
        self.net = mininet.Mininet(controller=None, build=False, switch=_switch_class())
        for node in self.topology.nodes:
            if node.is_host:
                made = self.net.addHost(node.name, ip=f"{node.ip}/{PREFIX}", mac=node.mac)
            else:
                made = self.net.addSwitch(node.name, inNamespace=False)
            self._state.add(processes=[made.pid])
        self._state.add(interfaces=[end.name for _, end in self._pairs])
        for host, end in self._pairs:
            self.net.addLink(self.net[host.node], self.net[end.node], port1=host.port, port2=end.port,
                             intfName1=host.name, intfName2=end.name)  # fmt: skip
        self.net.build()
        self.net.start()

    def _configure(self) -> None:
        """Checksums are made by the sender and segments by nobody, addresses of neighbours are known, there is no IPv6."""
        mtu, hosts = self.topology.mtu, self.topology.hosts
        for _, end in self._pairs:
            Path(f"/proc/sys/net/ipv6/conf/{end.name}/disable_ipv6").write_text("1")
            Path(f"/proc/sys/net/ipv4/conf/{end.name}/arp_ignore").write_text("8")  # this machine is not there
            subprocess.run(["ip", "link", "set", end.name, "mtu", str(mtu)], check=True)
        neighbours = {host.ip: host.mac for host in hosts} | {SWITCH.ip: SWITCH.mac}
        setting_up = []
        for host in hosts:
            interface = f"{host.name}-eth0"
            batch = [f"link set {interface} mtu {mtu}"]
            batch += [f"neigh replace {ip} lladdr {mac} dev {interface} nud permanent" for ip, mac in neighbours.items()
                      if ip != host.ip]  # fmt: skip
            script = (
                "set -e; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; "
                f"ethtool -K {interface} tx off tso off gso off gro off >/dev/null; ip -batch -"
            )
            process = subprocess.Popen(self.command(host.name, ["sh", "-c", script]), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
            process.stdin.write("\n".join(batch) + "\n")  # type: ignore[union-attr]
            process.stdin.close()  # type: ignore[union-attr]
            setting_up.append((host, process))
        failed = []
        for host, process in setting_up:
            said = process.stdout.read()  # type: ignore[union-attr]
            process.stdout.close()  # type: ignore[union-attr]
            if process.wait(10) != 0:
                failed.append(f"{host.name}: {said.strip()}")
        if failed:
            raise OSError("hosts could not be set up: " + "; ".join(failed))

    def _start_switch(self) -> None:
        description = run_dir() / "ports.json"
        self._state.add(files=[description, Path(self.socket)])
        description.write_text(json.dumps(self._described()))
        Path(self.socket).unlink(missing_ok=True)  # of an earlier network: nobody can be listening, the lock is ours
        self._process = SwitchProcess(
            self._program, self._defines, self.socket, self._job_slots, network=description
        )
        self._state.add(processes=[self._process.pid])
        self._process.wait_ready()

    def _described(self) -> dict:
        """The network as ``ina.control.network.Description`` reads it."""
        topology, ports, trunks = self.topology, [], []
        hosts = {host.name: host for host in topology.hosts}
        for number, (link, ends) in enumerate(zip(topology.links, topology.ends, strict=True)):
            wire = {"rate": link.rate, "delay": link.delay, "queue": link.queue, "loss": link.loss,
                    "seed": self._seed * 10_000 + number}  # fmt: skip
            a, b = sorted(ends, key=lambda end: end.node[0])
            if a.node not in hosts:
                trunks.append({"a": a.node, "a_port": a.port, "b": b.node, "b_port": b.port, "wire": wire})
                continue
            host = hosts[a.node]
            ports.append({"switch": b.node, "number": b.port, "interface": b.name, "host": host.name, "mac": host.mac,
                          "ip": host.ip, "namespace": os.stat(f"/proc/{self.pid(host.name)}/ns/net").st_ino,
                          "wire": wire})  # fmt: skip
        ways = routes.tables(topology)
        return {
            "mtu": topology.mtu, "ports": ports, "trunks": trunks, "flood": _flood(topology),
            "routes": {switch: {hosts[h].mac: hop.port for h, hop in way.items()} for switch, way in ways.items()},
            "capture": str(self._capture.resolve()) if self._capture else "",
        }  # fmt: skip

    # ---- in use

    def pid(self, host: str) -> int:
        """The process that keeps a host's namespaces."""
        return self.net[host].pid

    def command(self, host: str, argv: list[str]) -> list[str]:
        """``argv`` to be run in ``host``; mnexec becomes that program, so its process id is the program's."""
        return ["mnexec", "-a", str(self.pid(host)), *argv]

    def adopt(self, pid: int) -> None:
        """A process in a host: were this process killed, the next start would end it."""
        self._state.add(processes=[pid])

    def client(self) -> Client:
        return Client(self.socket)

    def counters(self) -> dict:
        """The switch process's counters, with those of the links."""
        client = self.client()
        try:
            return client.counters()
        finally:
            client.close()

    def prompt(self, command: str | None = None) -> None:
        """Mininet's command line, until its user leaves it; or just ``command`` there."""
        from mininet.cli import CLI
        from mininet.log import setLogLevel

        setLogLevel("output" if command else "info")
        try:
            if command is None:
                CLI(self.net)
                return
            with tempfile.NamedTemporaryFile("w", suffix=".mininet") as script:
                script.write(command + "\n")
                script.flush()
                CLI(self.net, script=script.name)
        finally:
            setLogLevel("warning")

    # ---- down

    def stop(self) -> None:
        """Takes everything down: the switch process, hosts, links. Twice is once."""
        process, self._process = self._process, None
        net, self.net = self.net, None
        state, self._state = self._state, None
        try:
            if process is not None:
                process.close()
            if net is not None:
                net.stop()
        finally:
            if state is not None:
                state.close()

    def __enter__(self) -> Network:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
