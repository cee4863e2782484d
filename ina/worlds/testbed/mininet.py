"""Makes a topology real on this machine with Mininet, and takes it down again.

    with Network(load("star", hosts=4), paths.p4_dir() / "switchml.p4", {"VALUES": "256"}) as network:
        subprocess.run(network.command("h1", ["ping", "-c", "1", "10.0.0.2"]))

Hosts are Mininet's: shells in network namespaces. There is no Open vSwitch: switches are in a process of ours in the root
namespace, or each in one, with packet sockets on their ends of the veth pairs (ina/worlds/testbed/switch_host.py). Rate, delay,
queue and loss of the links are made there (host/net/link.h), in both directions, for not every kernel has netem and Mininet's
TCLink only warns where it has not.

Needs root and Debian's ``mininet`` package (without recommends).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ina.aggregation.controller.client import Client, SwitchProcess
from ina.aggregation.worker import SWITCH
from ina.base.closing import closing_on_error
from ina.net.state import State, interface_exists, run_dir
from ina.topology.points import points
from ina.topology.topology import Node, Topology, TopologyError, check_size
from ina.worlds.testbed.description import LINK_MISSES, LINK_PROBE, Description
from ina.worlds.testbed.switch_kinds import KINDS

if TYPE_CHECKING:
    from mininet.net import Mininet

DIST_PACKAGES = (Path("/usr/lib/python3/dist-packages"), Path("/usr/local/lib/python3/dist-packages"))
PREFIX = 16  # 10.0.0.0/16: hosts and the switch's own address are neighbours
MAX_UNIX_PATH = 100
MOST_HOSTS, MOST_CABLES = 1024, 4096
GROUP = 0x696E61  # interface group of the switches, for the kernel to remove them all at once


class MininetMissing(RuntimeError):
    """Mininet networks, or switches of that kind, cannot run on this machine; the message says why and what to install."""


def missing(kind: str = "embedded") -> str:
    """Returns the reason why this machine cannot run networks of switches of that kind; empty: it can."""
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
    return KINDS[kind].missing() if done.returncode == 0 else f"no network namespaces here: {done.stderr.strip()}"


def _library() -> ModuleType:
    """Imports ``mininet.net``. Of the distribution's packages, outside the virtual environment, only this one is imported."""
    if importlib.util.find_spec("mininet") is None:
        folder = next((f / "mininet" for f in DIST_PACKAGES if (f / "mininet" / "net.py").is_file()), None)
        if folder is None:
            raise MininetMissing("Mininet is not installed (Debian/Ubuntu: apt install --no-install-recommends mininet)")
        spec = importlib.util.spec_from_file_location(
            "mininet", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None and spec.loader is not None  # the file's name ends with .py
        package = importlib.util.module_from_spec(spec)
        sys.modules["mininet"] = package
        spec.loader.exec_module(package)
    try:
        return importlib.import_module("mininet.net")
    except ImportError as error:  # Mininet 2.3 wants distutils, which Python 3.12 has no more (setuptools brings it)
        raise MininetMissing(f"Mininet does not import into Python {sys.version.split()[0]}: {error}") from error


def _classes() -> dict[str, type]:
    """Returns Mininet classes for switches and links. They skip interfaces that `Network.stop` has removed all at once."""
    _library()
    from mininet.link import Link
    from mininet.node import Switch

    class Place(Switch):
        """A node that only has interfaces; the switch process drives them."""

        def start(self, controllers: object) -> None:
            return

        def deleteIntfs(self, checkName: bool = True) -> None:  # noqa: N802, N803
            if any(interface_exists(name) for name in self.intfNames() if name != "lo"):
                super().deleteIntfs(checkName)

    class Cable(Link):
        def stop(self) -> None:
            if any(interface_exists(interface.name) for interface in (self.intf1, self.intf2)):
                super().stop()

    return {"switch": Place, "link": Cable}


class Network:
    """A topology that is up between ``start`` and ``stop`` (or as a context manager). One at a time on a machine.

    ``program`` and ``defines``: the P4 program of the switches. ``seed``: of the losses. ``capture``: a folder that gets pcap
    files of the packets at ``points`` (ina/topology/points.py). ``job_slots``: as the switch process's. ``kind`` of the switches:
    embedded (all in one process), process (each in one) or bmv2. ``cables`` between switches: memory or veth; default memory
    where the kind can, else veth. ``link_probe`` (s between probes of links between switches, 0: none) and ``link_misses``:
    as Description's. ``entries``: the program is alone, no protocol's; by switch, names and texts of STF files with its entries.
    """

    def __init__(self, topology: Topology, program: Path, defines: dict[str, str], *, seed: int = 1,
                 capture: Path | None = None, points: Sequence[str] = ("all",), job_slots: int | None = None,
                 kind: str = "embedded", cables: str | None = None, link_probe: float = LINK_PROBE,
                 link_misses: int = LINK_MISSES, entries: Mapping[str, Sequence[tuple[str, str]]] | None = None):
        self.topology = topology
        for kinds, members, most, reason in (("hosts", topology.hosts, MOST_HOSTS, "each is a namespace and a process here"),
                                             ("links", topology.links, MOST_CABLES, "each is two network interfaces here")):
            check_size(topology.name, f"the number of {kinds}", len(members), 1, most, reason)
        if kind not in KINDS:
            raise TopologyError(f"switches of kind {kind!r}: expected one of {', '.join(KINDS)}")
        self._kind, self._cables = kind, cables or KINDS[kind].cables[0]
        if self._cables not in KINDS[kind].cables:
            raise TopologyError(f"cables of {self._cables!r} between switches of kind {kind!r}: expected "
                                + " or ".join(KINDS[kind].cables))
        self._captures = self._files(capture, points) if capture else {}
        # The interfaces of each veth pair, a host's first.
        self._pairs = [sorted(pair, key=lambda end: end.node[0]) for pair in topology.ends
                       if pair[0].node[0] != pair[1].node[0] or self._cables == "veth"]
        self.net: Mininet | None = None
        self.up_seconds = 0.0
        self.cleaned: list[str] = []  # leftovers of an earlier network of this tool
        self.socket = str(run_dir() / "switch.sock")
        if len(self.socket) > MAX_UNIX_PATH:
            raise TopologyError(f"INA_RUN_DIR: {self.socket} is too long for the path of a socket")
        self._program, self._defines, self._job_slots = program, defines, job_slots
        self._seed, self._probes = seed, (link_probe, link_misses)
        self._entries = None if entries is None else {switch: [list(each) for each in files] for switch, files in entries.items()}
        if unknown := sorted(set(self._entries or ()) - {switch.name for switch in topology.switches}):
            raise TopologyError(f"entries for {unknown[0]!r}: {topology.name} has the switches "
                                + ", ".join(switch.name for switch in topology.switches))
        self._state: State | None = None
        self._process: SwitchProcess | None = None

    def _files(self, folder: Path, names: Sequence[str]) -> dict[str, str]:
        return {interface: str(folder.resolve() / f"{interface}.pcap") for interface in points(self.topology, names)}

    # ---- up

    def start(self) -> Network:
        """Brings the network up. Raises MininetMissing, state.Busy, TopologyError, OSError, the switch process's ControlError."""
        began = time.monotonic()
        if reason := missing(self._kind):
            raise MininetMissing(reason)
        state = self._state = State(self.topology.name)
        self.cleaned = state.cleaned
        for path in self._captures.values():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        with closing_on_error(self.stop):
            self._check_names()
            self._make(state)
            self._configure()
            self._start_switch(state)
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

    def _make(self, state: State) -> None:
        mininet = _library()
        mininet.Mininet.inited = True  # its init() changes system-wide limits, which nothing here needs
        net = self.net = mininet.Mininet(controller=None, build=False, **_classes())
        for node in self.topology.nodes:
            if node.is_host:
                place = net.addHost(node.name, ip=f"{node.ip}/{PREFIX}", mac=node.mac)
            else:
                place = net.addSwitch(node.name, inNamespace=False)
            state.add(processes=[place.pid])
        state.add(interfaces=[end.name for _, end in self._pairs])
        for a, b in self._pairs:
            net.addLink(net[a.node], net[b.node], port1=a.port, port2=b.port, intfName1=a.name, intfName2=b.name)
        net.build()
        net.start()

    def _configure(self) -> None:
        """Configures interfaces: no checksum or segmentation offload, static neighbours, no IPv6."""
        mtu, hosts = self.topology.mtu, self.topology.hosts
        ends = [end.name for pair in self._pairs for end in pair if end.node[0] == "s"]
        for name in ends:
            Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
            Path(f"/proc/sys/net/ipv4/conf/{name}/arp_ignore").write_text("8")  # this machine answers no ARP there
        settings = "".join(f"link set {name} mtu {mtu} group {GROUP}\n" for name in ends)
        subprocess.run(["ip", "-batch", "-"], input=settings, text=True, check=True)
        neighbours = {host.ip: host.mac for host in hosts} | {SWITCH.ip: SWITCH.mac}
        setting_up = []
        for host in hosts:
            interface = f"{host.name}-eth0"
            batch = [f"link set {interface} mtu {mtu}"]
            switch = Node(self.topology.switch_of(host.name))
            batch += [f"neigh replace {ip} lladdr {mac} dev {interface} nud permanent"
                      for ip, mac in (*neighbours.items(), (switch.ip, switch.mac)) if ip != host.ip]
            batch += [f"route replace {switch.ip} dev {interface}"]
            script = (
                "set -e; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; "
                f"ethtool -K {interface} tx off tso off gso off gro off >/dev/null; ip -batch -"
            )
            process = subprocess.Popen(self.command(host.name, ["sh", "-c", script]), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            assert process.stdin is not None and process.stdout is not None  # pipes
            process.stdin.write("\n".join(batch) + "\n")
            process.stdin.close()
            setting_up.append((host, process, process.stdout))
        failed = []
        for host, process, stdout in setting_up:
            output = stdout.read()
            stdout.close()
            if process.wait(10) != 0:
                failed.append(f"{host.name}: {output.strip()}")
        if failed:
            raise OSError("hosts could not be set up: " + "; ".join(failed))

    def _start_switch(self, state: State) -> None:
        path, hosts = run_dir() / "network-description.json", self.topology.hosts
        p4runtime_sockets = [run_dir() / f"{switch.name}.p4runtime" for switch in self.topology.switches]
        state.add(files=[path, Path(self.socket), *p4runtime_sockets])
        namespaces = {host.name: os.stat(f"/proc/{self.pid(host.name)}/ns/net").st_ino for host in hosts}
        Description(self.topology, namespaces, self._kind, self._cables, self._seed, self._captures, str(run_dir()),
                    *self._probes, self._entries).write(path)
        Path(self.socket).unlink(missing_ok=True)  # left by an earlier network: nobody listens, as we hold the lock
        process = self._process = SwitchProcess(self._program, self._defines, self.socket, self._job_slots,
                                                module="ina.worlds.testbed.switch_process", arguments=["--network", str(path)])
        state.add(processes=[process.pid])
        process.wait_ready()

    # ---- in use

    @property
    def cleanup_message(self) -> str:
        """``cleaned`` as a line for people."""
        return f"left by an earlier network, and removed: {', '.join(self.cleaned)}"

    @property
    def switch_pid(self) -> int:
        """Process id of the switch process; where each switch has one, of their parent."""
        assert self._process is not None  # the network is up
        return self._process.pid

    def pid(self, host: str) -> int:
        """Returns the id of the process that keeps a host's namespaces."""
        assert self.net is not None  # the network is up
        pid: int = self.net[host].pid
        return pid

    def command(self, host: str, argv: list[str]) -> list[str]:
        """Returns the command that runs ``argv`` in ``host``; mnexec becomes that program, so its process id is the program's."""
        return ["mnexec", "-a", str(self.pid(host)), *argv]

    def adopt(self, pid: int) -> None:
        """Records a process in a host: if this process is killed, the next start ends it."""
        assert self._state is not None  # the network is up
        self._state.add(processes=[pid])

    def client(self) -> Client:
        return Client(self.socket)

    def counters(self) -> dict[str, object]:
        """Returns the switch process's counters, with those of the links."""
        with closing(self.client()) as client:
            return client.counters()

    def prompt(self, command: str | None = None) -> None:
        """Runs Mininet's command line until the user leaves it, or only ``command``. Hosts' shells know the switch and their own
        interface."""
        from mininet.cli import CLI
        from mininet.log import setLogLevel

        assert self.net is not None
        for host in self.net.hosts:  # for ranks that are started by hand: torch.distributed looks for a network's address
            host.cmd(f"export INA_SWITCH={self.socket} GLOO_SOCKET_IFNAME={host.defaultIntf().name}")
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
        """Takes everything down: the switch process, hosts, links. Idempotent."""
        process, self._process = self._process, None
        net, self.net = self.net, None
        state, self._state = self._state, None
        try:
            if process is not None:
                process.close()
            if net is not None:
                subprocess.run(["ip", "link", "del", "group", str(GROUP)], capture_output=True)  # fails if none were made yet
                net.stop()
        finally:
            if state is not None:
                state.close()

    def __enter__(self) -> Network:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
