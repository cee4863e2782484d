"""Files of `ina cluster check`: each error names file and line, and what was expected."""

from __future__ import annotations

import re

import pytest

from ina.base.settings import ConfigError
from ina.lab.servers import hosts, session
from ina.lab.servers.hosts import Host

pytestmark = pytest.mark.fast
NAMES = {"node1": "10.0.0.1", "node2": "10.0.0.2", "me": "127.0.1.1"}


def resolve(name):
    """Address of a name; "user@node1" is node1."""
    bare = name.rpartition("@")[2]
    if bare not in NAMES:
        raise OSError("unknown")
    return NAMES[bare]


def read(tmp_path, text):
    path = tmp_path / "hosts.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return hosts.read(path, resolve)


def test_a_line_is_a_server(tmp_path):
    text = "\ufeff# the rack\r\nnode1   # first\n\nuser@node2 ranks=8 switch\n10.0.0.3 ranks=0\nx.y-z address=10.0.0.4 switch\n"
    assert read(tmp_path, text) == [
        Host("node1", "10.0.0.1"), Host("user@node2", "10.0.0.2", True, 8), Host("10.0.0.3", "10.0.0.3", ranks=0),
        Host("x.y-z", "10.0.0.4", True)]


@pytest.mark.parametrize(("text", "words"), [
    ("node1\nnode2 rank=8", ":2: rank=8: expected NAME [address=10.0.0.1] [switch] [ranks=8]"),
    ("node1\nnode2 switch=yes", ":2: switch=yes: expected NAME"),
    ("node1\nnode2 ranks", ":2: ranks: expected NAME"),
    ("node1 ranks=1 ranks=2\nnode2", ":1: ranks=2 a second time: expected NAME"),
    ("node1 ranks=-1\nnode2", ":1: ranks=-1: expected a whole number from 0 to 256"),
    ("node1 ranks=257\nnode2", ":1: ranks=257: expected a whole number from 0 to 256"),
    ("node1 ranks=\u0661\nnode2", ":1: ranks=\u0661: expected a whole number from 0 to 256"),
    ("node1 address=node2\nnode2", ":1: address=node2: expected an IPv4 address, such as address=10.0.0.1"),
    ("node1 address=::1\nnode2", ":1: address=::1: expected an IPv4 address"),
    ("-oProxyCommand=x\nnode2", ":1: -oProxyCommand=x: no name of a server"),
    ("a;reboot\nnode2", ":1: a;reboot: no name of a server"),
    ("$(reboot)\nnode2", ":1: $(reboot): no name of a server"),
    ("node1\x1b[2J\nnode2", r":1: node1\x1b[2J: no name of a server"),
    ("node1\nnowhere", ":2: nowhere: no IPv4 address of this name is known here: expected address=10.0.0.1"),
    ("node1\nme", ":2: me is 127.0.1.1 here, which no other server reaches: expected address=10.0.0.1"),
    ("node1\nnode1", ":2: name node1: expected each server once"),
    ("node1\nother address=10.0.0.1", ":2: address 10.0.0.1, as node1 has: expected each server once"),
    ("node1", ": 1 servers: expected 2 to 64, one a line"),
    ("# none", ": 0 servers: expected 2 to 64, one a line"),
    ("\n".join(f"n{n} address=10.0.1.{n}" for n in range(65)), ": 65 servers: expected 2 to 64, one a line"),
    ("node1 ranks=0\nnode2 ranks=0", ": ranks=0 everywhere: expected a server that trains"),
    (b"\xff\xfe", ": no text (UTF-8); expected NAME"),
])
def test_what_is_wrong_is_named_with_its_line(text, words, tmp_path):
    with pytest.raises(ConfigError, match="^" + re.escape(str(tmp_path / "hosts.txt") + words)) as refused:
        read(tmp_path, text)
    assert len(str(refused.value)) < 300


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(OSError, match="no regular file|directory"):
        hosts.read(tmp_path)


@pytest.mark.parametrize("template", ["ssh", "ssh node1", "{host}", "{host} sh -c", "'ssh {host}", ""])
def test_a_transport_names_the_host_in_an_argument(template):
    with pytest.raises(ConfigError, match="^--ssh .*such as 'ssh -o BatchMode=yes"):
        session.transport(template, Host("node1", "10.0.0.1"))


def test_a_transport_is_split_as_a_shell_does():
    words = session.transport("ip netns exec '{host} x' sh -c", Host("node1", "10.0.0.1"))
    assert words == ["ip", "netns", "exec", "node1 x", "sh", "-c"]
