"""All-to-alls of rows, flat and in two levels: every row against where it must be, and bytes of every host against counts."""

import itertools

import numpy as np
import pytest
from capabilities import need

from ina import topology as topologies
from ina.base import paths
from ina.p4.compiler.build import compile_program
from ina.worlds.virtual import exchanges
from ina.worlds.virtual.collectives import HEADERS, Schedule
from ina.worlds.virtual.exchanges import Servers
from ina.worlds.virtual.fabric import Fabric

pytestmark = pytest.mark.build
need("cc")

WIDTH = 48  # int32 of a row, in packets of 32
ROW = 4 * WIDTH + 2 * (HEADERS + 24)  # bytes, with all headers and Ethernet's own
ACK = 42 + 32 + 24


@pytest.fixture(scope="module")
def program():
    return compile_program(paths.p4_dir() / "switchml.p4", defines={"VALUES": "32", "SLOTS": "64"}).so_path


def drawn(seed, ranks, most=4):
    rows = np.random.default_rng(seed).integers(0, most, (ranks, ranks))
    np.fill_diagonal(rows, 0)
    return rows


def run(program, topology, schedule, rows, at):
    """Every rank begins with its own rows; returns its tensor in the end, and the bytes up each host's link."""
    n = len(rows)
    own = [np.zeros((int(rows.sum()), WIDTH), np.int32) for _ in range(n)]
    right = np.random.default_rng(9).integers(1, 2**31, own[0].shape, np.int32)
    for source, target in itertools.product(range(n), range(n)):
        place = slice(at[source, target], at[source, target] + rows[source, target])
        own[source][place] = right[place]
    hosts = [host.name for host in topology.hosts][:n]
    with Fabric(program, topology, max_frame=512) as fabric:
        job = fabric.collective(hosts, schedule, 32, rto=1.0)
        fabric.all_reduce(job, [each.reshape(-1) for each in own]).raise_failed()
        fabric.check()
        sent = {link.source: link.bytes for link in fabric.links()}
    return own, right, [sent[host] for host in hosts]


def check_bytes(sent, carried, received):
    """Rows that share a transfer share packets, so there are as many headers as rows fill packets, to twice as many as rows."""
    for nbytes, out, into in zip(sent, carried, received, strict=True):
        packets = -(-4 * WIDTH * out // 128)
        assert 4 * WIDTH * out + (HEADERS + 24) * packets <= nbytes <= ROW * out + ACK * 2 * into


def check_rows(own, right, rows, at):
    for source, target in itertools.product(range(len(rows)), repeat=2):
        place = slice(at[source, target], at[source, target] + rows[source, target])
        assert np.array_equal(own[target][place], right[place]), (source, target)


@pytest.mark.parametrize("seed", range(3))
def test_every_row_arrives_and_goes_once_if_flat(program, seed):
    rows = drawn(seed, 6)
    at, schedule = exchanges.begins(rows), Schedule("flat", 6, int(rows.sum()))
    exchanges.flat(schedule, rows, at, 0, 1)
    own, right, sent = run(program, topologies.load("star", hosts=6, rate=1e11, delay=1e-6), schedule, rows, at)
    check_rows(own, right, rows, at)
    check_bytes(sent, rows.sum(axis=1), rows.sum(axis=0))


@pytest.mark.parametrize("seed", range(3))
def test_in_two_levels_rows_of_another_place_and_server_go_twice(program, seed):
    """Four servers of three: what a host sends, row by row, is counted along the way of each row."""
    racks, each = 4, 3
    n = racks * each
    rows = drawn(seed, n)
    topology = topologies.load("leaf-spine", leaves=racks, spines=2, hosts=each, rate=1e11, delay=1e-6)
    servers = Servers.of([topology.switch_of(host.name) for host in topology.hosts])
    at, schedule = exchanges.begins(rows, servers), Schedule("two levels", n, int(rows.sum()))
    exchanges.two_levels(schedule, servers, rows, at, 0, 1)
    own, right, sent = run(program, topology, schedule, rows, at)
    check_rows(own, right, rows, at)
    carried, received, levels = np.zeros(n, int), np.zeros(n, int), [0, 0]
    for source, target in itertools.product(range(n), repeat=2):
        via = source // each * each + target % each  # the source's server, the target's place
        for level, (a, b) in enumerate(((source, via), (via, target))):
            if a != b:
                carried[a] += rows[source, target]
                received[b] += rows[source, target]
                levels[level] += rows[source, target]
    assert servers.carried(rows) == tuple(levels)
    check_bytes(sent, carried, received)


def test_rows_wait_for_the_phase_before(program):
    """Rows come back only when all have arrived: each rank sends on what it was sent, which it has not before."""
    rows = np.zeros((6, 6), np.int64)
    rows[0, 4] = rows[1, 4] = 2
    topology = topologies.load("leaf-spine", leaves=3, spines=1, hosts=2, rate=1e11, delay=1e-6)
    servers = Servers.of([topology.switch_of(host.name) for host in topology.hosts])
    there, schedule = exchanges.begins(rows, servers), Schedule("there and back", 6, int(rows.sum()))
    exchanges.two_levels(schedule, servers, rows, there, 0, 1)
    back = np.zeros_like(rows)
    back[4, 2] = 4  # the same parts go on to another rank
    exchanges.two_levels(schedule, servers, back, np.zeros_like(rows), 2, 3)
    own, right, _ = run(program, topology, schedule, rows, there)
    check_rows(own, right, rows, there)
    assert np.array_equal(own[2], right)


def test_servers_need_two_levels_and_equal_sizes():
    servers = Servers.of(["a", "b", "a", "b"])
    assert servers.server.tolist() == [0, 1, 0, 1] and servers.place.tolist() == [0, 0, 1, 1] and servers.rank(1, 1) == 3
    assert [Servers.of(names) for names in (["a", "a"], ["a", "b"], ["a", "a", "b"])] == [None] * 3
