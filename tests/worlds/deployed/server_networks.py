"""Servers as network namespaces, each with one network card on one bridge, a name, and an /etc/hosts with all names.

Everything belongs to the sleeping process that holds a server's namespaces, and this thread's own network namespace: the kernel
removes it with them, also where the test's process is killed. Nothing has a name that another test could take.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import child
from waiting import until

from ina.net.namespaces import own_namespace

CARD = "nic"


@dataclass(frozen=True)
class Server:
    """Server ``number``, from 1. ``inside``: the prefix of commands that run there, with ``address`` on the card ``nic``."""

    number: int
    inside: Sequence[str]

    @property
    def name(self) -> str:
        return f"server{self.number}"

    @property
    def address(self) -> str:
        return f"10.0.0.{self.number}"

    @property
    def bridge_port(self) -> str:
        """The other end of its cable, in the test's namespace."""
        return f"to{self.number}"

    def link(self, state: str) -> None:
        """Cuts its cable ("down"), or mends it ("up"). Its card keeps its address."""
        ip([], f"link set {self.bridge_port} {state}")


def ip(prefix: Sequence[str], *lines: str) -> None:
    child.run([*prefix, "ip", "-batch", "-"], input="\n".join(lines) + "\n", check=True)


@contextmanager
def server_network(folder: Path, count: int, rate: str = "", delay: str = "", *, whole: bool = True) -> Iterator[list[Server]]:
    """``count`` servers at one bridge, which is in a namespace that this thread is in meanwhile. ``rate`` (such as ``1gbit``) and
    ``delay`` (``100us``) are netem's, of what each card sends, and of what comes to it. Not ``whole``: cards cut messages up into
    packets, as those of real machines do; else these count a message of many packets with the headers of one."""
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"10.0.0.{n} server{n}\n" for n in range(1, count + 1)))
    with own_namespace(), ExitStack() as stack:
        ip([], "link set lo up", "link add lan type bridge", "link set lan up")
        servers = []
        for n in range(1, count + 1):
            # The last command of the shell shows that the rest is done.
            script = f"hostname server{n} && mount --bind {hosts} /etc/hosts && exec setpriv --pdeathsig KILL sleep infinity"
            holder = subprocess.Popen(["unshare", "--net", "--mount", "--uts", "sh", "-c", script])
            stack.callback(holder.wait)
            stack.callback(holder.kill)
            until(lambda holder=holder: holder.poll() is not None or _command(holder) == "sleep", f"the namespaces of server {n}")
            assert holder.poll() is None, f"server {n}: {script!r} ended with status {holder.returncode}"
            server = Server(n, ["nsenter", "-t", str(holder.pid), "--net", "--mount", "--uts"])
            ip([], f"link add {server.bridge_port} type veth peer name {CARD} netns {holder.pid}",
               f"link set {server.bridge_port} master lan", f"link set {server.bridge_port} up")
            ip(server.inside, "link set lo up", f"addr add {server.address}/24 dev {CARD}", f"link set {CARD} up")
            for prefix, card in () if whole else ((server.inside, CARD), ([], server.bridge_port)):
                child.run([*prefix, "ethtool", "-K", card, "tx-udp-segmentation", "off", "tso", "off", "gso", "off"], check=True)
            shape = [*(["rate", rate] if rate else []), *(["delay", delay] if delay else [])]
            for prefix, card in ((server.inside, CARD), ([], server.bridge_port)) if shape else ():
                child.run([*prefix, "tc", "qdisc", "add", "dev", card, "root", "netem", *shape, "limit", "10000"], check=True)
            servers.append(server)
        yield servers


def _command(process: subprocess.Popen[bytes]) -> str:
    """The name of the command that the process runs now; "": it has ended."""
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
