"""Sums along routes (host/protocol/route.h) with p4/atp_routes.p4 and a parameter server: right on any way, and only the values
that someone needs on links."""

from __future__ import annotations

import numpy as np
import pytest
from atp_routed_frames import BARE, RESULT, TO, VALUES, WIRE, contents, routed
from capabilities import need
from test_receivers import FAULTS, compiled, exchanged, expected, routes

from ina.aggregation.ps.state_machine import ParameterServer, ServerConfig
from ina.aggregation.wire import layout
from ina.aggregation.worker import JobMismatch, Route, Worker, WorkerConfig, worker_address
from ina.aggregation.worker.config import ATP_SWITCH, SERVER
from ina.aggregation.worker.route import PIECE
from ina.base import paths
from ina.net.ports import Faults
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import Topology, load
from ina.worlds.virtual.fabric import Fabric, FabricJob
from ina.worlds.virtual.parameter_servers import Servers

pytestmark = pytest.mark.build
need("cc")
SLOTS = 8
ON_LINK = BARE + 24  # of a packet without values, with Ethernet's overhead
STAR = load("star", hosts=4), ["h1", "h2", "h3"], "h4"
TREE = load("leaf-spine", leaves=2, spines=1, hosts=3), ["h1", "h2", "h4", "h5"], "h3"  # s1 is the root: the server is below it
CLEAN = Faults(seed=1)
FLOATS = WIRE.constants["ATP_FLOATS"]


@pytest.fixture(scope="module")
def programs():
    source = paths.p4_dir() / "atp_routes.p4"
    return {pool: Program(compile_program(source, defines={"VALUES": str(VALUES), "SLOTS": str(pool)}).so_path)
            for pool in (2, 1024)}


class Jobs:
    """A fabric with a parameter server, and jobs of the same workers."""

    def __init__(self, program: Program, place: tuple[Topology, list[str], str], pool: int, faults: Faults = CLEAN, jobs: int = 1,
                 **options):
        topology, self.hosts, server = place
        self.fabric = Fabric(program, topology, pool=pool, faults=faults, seed=5, protocol="atp_routes")
        self.servers = Servers(self.fabric)
        self.servers.add(server)
        options = {"rto_min": 50e-6, "rto_max": 2e-3, "timeout": 60.0} | options
        self.jobs: list[FabricJob] = []
        for _ in range(jobs):
            self.jobs.append(self.fabric.admit(self.hosts, SLOTS, VALUES, **options))
            self.servers.serve(self.jobs[-1], VALUES)

    def __enter__(self) -> Jobs:
        return self

    def __exit__(self, *error) -> None:
        self.fabric.close()

    def run(self) -> None:
        self.fabric.run()
        assert all(each.event.error() is None for each in self.fabric.completions())


class Plain(Jobs):
    """The same of p4/receivers.p4, without a server."""

    def __init__(self, place: tuple[Topology, list[str], str], **options):
        topology, self.hosts, _ = place
        self.fabric = Fabric(compiled("receivers.p4", 16), topology, pool=16, protocol="receivers")
        self.jobs = [self.fabric.admit(self.hosts, SLOTS, VALUES, timeout=60.0, **options)]


@pytest.mark.parametrize(("pool", "jobs"), [(1024, 1), (2, 2)], ids=["alone", "collide"])
@pytest.mark.parametrize("options", [{"check": "off"}, {"check": "sum"}, {"options": {"exponent": 20}},
                                     {"options": {"exponent": 0}}],
                         ids=["off", "sum", "fixed point", "floats"])
@pytest.mark.parametrize("place", [STAR, TREE], ids=["star", "tree"])
@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_all_kinds_are_right_whatever_happens_on_the_way(programs, place, faults, options, pool, jobs):
    """Pieces of all sizes, kinds in turn with sums for all; jobs that take each other's aggregators; and blocks that integers
    cannot represent, which go to the server as floats."""
    n, rng = len(place[1]), np.random.default_rng(3)
    with Jobs(programs[pool], place, pool, faults, jobs, **options) as all_jobs:
        for turn, largest in enumerate([3, 100, 700]):
            pieces = [int(size) * (rng.random() < 0.8) for size in rng.integers(1, largest, n)]
            root = turn % n
            for name, route in routes(pieces, root).items():
                for dtype in (np.int32, np.float32) if not route.one_source else (np.int32,):
                    unit, work = 8 if dtype is np.float32 else 1, []
                    for job in all_jobs.jobs:
                        arrays = [(rng.integers(-1000, 1000, sum(pieces)) / unit).astype(dtype) for _ in range(n)]
                        work.append((arrays, expected(name, arrays, pieces, root)))
                        all_jobs.fabric.submit_all(job, arrays, route=route)
                    all_jobs.run()
                    for arrays, right in work:
                        for rank, (array, each) in enumerate(zip(arrays, right, strict=True)):
                            np.testing.assert_array_equal(array, each, err_msg=f"{name} {dtype.__name__} {pieces} at {rank}")
            sizes = (rng.integers(0, largest, (n, n)) * (rng.random((n, n)) < 0.8)).tolist()
            moved = [[exchanged(sizes, rank) for rank in range(n)] for _ in all_jobs.jobs]
            sums = [[np.arange(500, dtype=np.int32) * (rank + 1) for rank in range(n)] for _ in all_jobs.jobs]
            for job, own, arrays in zip(all_jobs.jobs, moved, sums, strict=True):
                for rank, (array, _) in enumerate(own):
                    all_jobs.fabric.submit_one(job, rank, array, route=Route.all_to_all(sizes, rank, (1 + turn % 2) * VALUES))
                all_jobs.fabric.submit_all(job, [np.zeros(0, np.int32) for _ in range(n)], route=Route.barrier())
                all_jobs.fabric.submit_all(job, arrays)
            all_jobs.run()
            assert all(np.array_equal(array, right) for own in moved for array, right in own), sizes
            assert all(np.array_equal(array, np.arange(500) * sum(range(1, n + 1))) for arrays in sums for array in arrays)
        if faults == CLEAN:
            collided = [all_jobs.fabric.worker_stats(machine)["collided"] for job in all_jobs.jobs for machine in job.machines]
            assert (min(collided) > 20) == (jobs == 2), "the jobs have met"


def test_nan_and_infinity_go_to_their_owner_alone(programs):
    """Agreed exponents: the block is summed in floats, of which each worker keeps what it is to get."""
    with Jobs(programs[1024], STAR, 1024) as jobs:
        arrays = [np.full(6 * VALUES, rank + 0.5, np.float32) for rank in range(3)]
        arrays[1][::7], arrays[2][5] = np.nan, np.inf
        before, total = [array.copy() for array in arrays], np.sum(arrays, axis=0)
        jobs.fabric.all_reduce(jobs.jobs[0], arrays, route=Route.reduce_scatter([2 * VALUES] * 3)).raise_failed()
        for rank, array in enumerate(arrays):
            own = slice(2 * VALUES * rank, 2 * VALUES * (rank + 1))
            before[rank][own] = total[own]
            np.testing.assert_array_equal(array, before[rank])


# ---- bytes

N = 3
UP = {"reduce": lambda root: N * (1 - root), "reduce_scatter": lambda _: N - 1, "broadcast": lambda root: N * root,
      "all_gather": lambda _: 1, "gather": lambda root: 1 - root, "scatter": lambda root: (N - 1) * root}
DOWN = {"reduce": lambda root: N * root, "reduce_scatter": lambda _: 1, "broadcast": lambda root: N * (1 - root),
        "all_gather": lambda _: N - 1, "gather": lambda root: (N - 1) * root, "scatter": lambda root: 1 - root}
SUMMED = {"reduce": N, "reduce_scatter": N, "broadcast": N, "all_gather": N, "gather": N - 1, "scatter": N - 1}  # pieces


@pytest.mark.parametrize("name", UP)
def test_links_carry_exactly_the_values_of_those_who_have_some_to_those_who_need_them(programs, name):
    """A tensor of N pieces of 10 packets: values on each worker's link in pieces; to and from the server each sum once."""
    pieces, root = [10 * VALUES] * N, N - 1
    with Jobs(programs[1024], STAR, 1024, rto_min=1.0, rto_max=1.0, rto_fixed=True) as jobs:
        arrays = [np.full(sum(pieces), rank, np.int32) for rank in range(N)]
        jobs.fabric.all_reduce(jobs.jobs[0], arrays, route=routes(pieces, root)[name]).raise_failed()
        links = {each.name: (each.packets, each.bytes - ON_LINK * each.packets) for each in jobs.fabric.links()}
        some = [{rank, root} for rank in range(N - 1) for _ in range(10)]
        own = some if name in ("gather", "scatter") else [{*range(N)}] * 10 * N
        for rank in range(N):
            packets = 1 + sum(rank in members or number % SLOTS == SLOTS - 1 for number, members in enumerate(own, 1))
            assert links[f"h{rank + 1}>s1"] == (packets, UP[name](rank == root) * 4 * 10 * VALUES), rank
            assert links[f"s1>h{rank + 1}"] == (packets, DOWN[name](rank == root) * 4 * 10 * VALUES), rank
        for name_of_link in ("s1>h4", "h4>s1"):
            assert links[name_of_link] == (1 + len(own), SUMMED[name] * 4 * 10 * VALUES)


def test_links_between_switches_carry_what_lies_below_them(programs):
    """Workers 0 and 1 are below s1, the root, as the server; 2 and 3 below s2. What has no member below s2 does not go there."""
    pieces = [4 * VALUES, 0, VALUES, 7 * VALUES]
    with Jobs(programs[1024], TREE, 1024, rto_min=1.0, rto_max=1.0, rto_fixed=True) as jobs:
        for route, sizes, expected_traffic in [  # (packets, values) up from s2, down to s2, to the server
            (Route.all_gather(pieces), pieces, ((13, 8), (13, 12), (13, 12))),
            (Route.reduce_scatter(pieces), pieces, ((13, 12), (13, 8), (13, 12))),
            (Route.gather(0, pieces), pieces, ((9, 8), (9, 0), (9, 8))),
            (Route.gather(2, pieces), pieces, ((12, 7), (12, 11), (12, 11))),
            (Route.gather(0, [0, 5 * VALUES, VALUES, 0]), [0, 5 * VALUES, VALUES, 0], ((2, 1), (2, 0), (7, 6))),
        ]:
            before = {each.name: (each.packets, each.bytes) for each in jobs.fabric.links()}
            jobs.fabric.all_reduce(jobs.jobs[0], [np.ones(sum(sizes), np.int32) for _ in range(4)], route=route).raise_failed()
            for name, (packets, values) in zip(("s2>s3", "s3>s2", "s1>h3"), expected_traffic, strict=True):
                (link,) = (each for each in jobs.fabric.links() if each.name == name)
                sent, total = link.packets - before[name][0], link.bytes - before[name][1]
                assert (sent, (total - ON_LINK * sent) / (4 * VALUES)) == (packets, values), (name, sizes)


ROWS = [line.split("|")[1:-1] for line in (paths.root() / "docs/guide/torch.md").read_text().splitlines()
        if line.startswith(("| `receivers` | ", "| `atp_routes` | "))]


@pytest.mark.parametrize(("protocol", "figures"), [(row[0].strip(" `"), list(map(int, row[1:]))) for row in ROWS])
def test_headers_are_as_long_as_the_guide_says(programs, protocol, figures):
    """docs/guide/torch.md, "Sharded training": of frames that a worker sends, and of ten blocks each way between two."""
    switch = {"switch": ATP_SWITCH} if protocol == "atp_routes" else {}
    for route, size in ((None, figures[0]), (Route.broadcast(0), figures[1])):
        one = Worker(WorkerConfig(0, 2, life=1, values=VALUES, slots=2, protocol=protocol, **switch))
        one.submit(np.ones(4 * VALUES, np.int32), route=route)
        assert len(one.frames_to_send(0)[1]) == size + 4 * VALUES
    place = load("star", hosts=3), ["h1", "h2"], "h3"
    once = {"rto_min": 1.0, "rto_max": 1.0, "rto_fixed": True}
    sizes = [[0, 10 * VALUES], [10 * VALUES, 0]]
    with (Jobs(programs[1024], place, 1024, **once) if protocol == "atp_routes" else Plain(place, **once)) as jobs:
        for rank in range(2):
            route = Route.all_to_all(sizes, rank, 4 * VALUES)
            jobs.fabric.submit_one(jobs.jobs[0], rank, np.ones(20 * VALUES, np.int32), route=route)
        jobs.run()
        links = {each.name: (each.packets, each.bytes) for each in jobs.fabric.links()}
    opening = figures[1] + 24
    for name in ("h1>s1", "s1>h1", "h2>s1", "s1>h2"):
        assert links[name] == (1 + 2 * 10, opening + 10 * (figures[3] + 4 * VALUES)), name
    assert figures[3] == figures[2] + 2 * 24 == 2 * opening


def test_the_guide_has_both_protocols():
    assert [row[0].strip() for row in ROWS] == ["`receivers`", "`atp_routes`"]


# ---- workers and server alone


def worker(rank: int, **options) -> Worker:
    return Worker(WorkerConfig(rank, 2, life=1, values=VALUES, slots=2, protocol="atp_routes", switch=ATP_SWITCH, **options))


def test_packets_without_values_are_short_and_those_for_all_are_atp_s():
    one = worker(0)
    plain = Worker(WorkerConfig(0, 2, life=1, values=VALUES, slots=2, protocol="atp", switch=ATP_SWITCH))
    words = np.arange(4 * VALUES, dtype=np.int32)
    one.submit(words)
    plain.submit(words)
    assert one.frames_to_send(0) == plain.frames_to_send(0)
    for route, lengths in ((Route.broadcast(0), [78, 78 + 4 * VALUES]), (Route.broadcast(1), [78, 78])):
        sender = worker(0)
        sender.submit(words, route=route)
        assert [len(frame) for frame in sender.frames_to_send(0)] == lengths


@pytest.mark.parametrize(("receivers", "members", "values", "taken"), [
    (1, 3, True, True), (1, 3, False, False), (2, 3, True, False), (3, 3, True, False), (1, 1, True, False)])
def test_a_worker_takes_a_result_with_its_own_sets_and_with_values_if_it_is_a_receiver(receivers, members, values, taken):
    one = worker(0, check="off")
    one.submit(np.ones(VALUES, np.int32), route=Route.reduce(0))
    opening = one.frames_to_send(0)[0]
    words = 2 * int.from_bytes(opening[62:66], "big"), 2 * int.from_bytes(opening[66:70], "big")
    one.receive(routed(RESULT, ATP_SWITCH, worker_address(0, 0), 0, 3, 0, 3, None, words), 1)
    one.frames_to_send(1)
    sums = np.arange(VALUES, dtype=np.int32) if values else None
    one.receive(routed(RESULT, ATP_SWITCH, worker_address(0, 0), 1, 3, receivers, members, sums), 2)
    assert (one.stats["drop_malformed"], len(one.events())) == ((0, 1) if taken else (1, 0))


@pytest.mark.parametrize(("dtype", "options", "taken"), [
    (np.int32, {}, False), (np.int32, {"exponent": 20}, False), (np.float32, {}, False), (np.float32, {"exponent": 20}, True)],
    ids=["int32", "int32 beside fixed point", "agreed exponents", "fixed point"])
def test_that_values_go_as_floats_is_said_only_of_floats_in_fixed_point(dtype, options, taken):
    """By exponent 127, to a receiver too, without values. Of other tensors it would leave the receiver with what it had."""
    one = worker(0, check="off", options=options)
    one.submit(np.ones(VALUES, dtype), route=Route.reduce(0))
    opening = one.frames_to_send(0)[0]
    words = 2 * int.from_bytes(opening[62:66], "big"), 2 * int.from_bytes(opening[66:70], "big")
    one.receive(routed(RESULT, ATP_SWITCH, worker_address(0, 0), 0, 3, 0, 3, None, words, exponent=1), 1)
    one.frames_to_send(1)
    one.receive(routed(RESULT, ATP_SWITCH, worker_address(0, 0), 1, 3, 1, 3, None, exponent=127), 2)
    assert one.stats["drop_malformed"] == (not taken) and not one.events()
    again = one.frames_to_send(2)
    assert [WIRE.unpack(frame, layout.ATP_HEAD)["atp"]["msg_type"] for frame in again] == [FLOATS] * taken


def test_a_barrier_is_one_short_packet():
    one = worker(0)
    one.submit(np.zeros(0, np.int32), route=Route.barrier())
    assert [len(frame) for frame in one.frames_to_send(0)] == [78]


def test_routes_that_do_not_fit_are_refused():
    words = np.zeros(10, np.int32)
    with pytest.raises(ValueError, match=r"root: 2, expected a worker, 0\.\.1"):
        worker(0).submit(words, route=Route.reduce(2))
    for dtype in (np.float32, np.float16):
        with pytest.raises(ValueError, match=f"{np.dtype(dtype)} from some workers only, expected integers"):
            worker(0).submit(words.astype(dtype), route=Route.broadcast(0))
    with pytest.raises(ValueError, match="with check 'keyed'"):
        worker(0, check="keyed", key=bytes(range(16))).submit(words, route=Route.reduce(0))


@pytest.mark.parametrize("other", [Route.broadcast(0), Route.reduce(1), Route.all_gather([VALUES, VALUES, VALUES])])
def test_workers_that_do_not_mean_the_same_route_end_with_an_error(programs, other):
    with Jobs(programs[1024], STAR, 1024, timeout=0.1) as jobs:
        for rank in range(3):
            route = other if rank == 1 else Route.reduce(0)
            jobs.fabric.submit_one(jobs.jobs[0], rank, np.ones(3 * VALUES, np.int32), route=route)
        jobs.fabric.run()
        assert all(isinstance(each.event.error(), JobMismatch) for each in jobs.fabric.completions())


def to(sequence: int, bitmap: int, receivers: int, members: int, values: np.ndarray | None, words: tuple[int, int] = (0, 0),
       **fields: int) -> bytes:
    """A packet for a server of three workers, from the switch."""
    return routed(TO, ATP_SWITCH, SERVER, sequence, bitmap, receivers, members, values, words, index=3, **fields)


@pytest.mark.parametrize("seed", range(4))
def test_a_server_s_answers_are_those_of_the_definition_whatever_comes(seed):
    """Sets, values, sums of any workers, resends; twice, late, early, with other sets than the number's, with sets that cannot
    be."""
    rng, slots, full = np.random.default_rng(seed), 2, 7
    server = ParameterServer(ServerConfig(3, life=1, slots=slots, values=VALUES, routes=True))
    rows: dict[int, dict] = {}
    kinds = {"result": 0, "pending": 0, "bare": 0, "wrong": 0}
    for _ in range(1200):
        index = int(rng.integers(2 * slots))
        row = rows.get(index)
        sequence = index if row is None else row["sequence"] + 2 * slots * (row["bitmap"] == row["members"])
        sequence = max(index, sequence + 2 * slots * int(rng.choice([0, 0, 0, 0, 0, 1, -1])))
        members = (sequence * 3 + 3) % 8 or full
        receivers = members & (sequence * 5 + 1)
        if rng.random() < 0.05:
            members, receivers = int(rng.integers(32)), int(rng.integers(32))
        bitmap = int(rng.integers(1, 8)) if rng.random() < 0.1 else (members & int(rng.integers(1, 8))) or 1
        values = rng.integers(-(2**31), 2**31, VALUES).astype(np.int32) if rng.random() < 0.5 else None
        words, resend = (int(rng.integers(2**32)), int(rng.integers(2**32))), int(rng.random() < 0.5)
        exponent = int(rng.integers(-96, 127))
        server.receive(to(sequence, bitmap, receivers, members, values, words, resend=resend, exponent=exponent), 0)
        expected_answers: list[tuple] = []
        if members & ~full or receivers & ~members or bitmap & ~members or bitmap & ~full:
            kinds["wrong"] += 1
        else:
            if row is None or (sequence > row["sequence"] and row["bitmap"] == row["members"]):
                row = rows[index] = {"sequence": sequence, "members": members, "receivers": receivers, "bitmap": 0, "sum": None,
                                     "words": np.zeros(2, np.uint32), "exponent": -128}
            if sequence == row["sequence"]:
                if row["bitmap"] & bitmap:
                    asks = bitmap if resend else 0
                elif (members, receivers) != (row["members"], row["receivers"]):
                    asks = 0
                else:
                    row["bitmap"] |= bitmap
                    row["words"] = row["words"] + np.array(words, np.uint32)
                    row["exponent"] = max(row["exponent"], exponent)
                    if values is not None:
                        row["sum"] = values if row["sum"] is None else row["sum"] + values
                    asks = row["members"] if row["bitmap"] == row["members"] else bitmap if resend else 0
                complete = row["bitmap"] == row["members"]
                for whom in ([full] if asks.bit_count() > 1 else [asks] if asks else []):
                    if not complete:
                        expected_answers.append(("pending", whom, row["bitmap"]))
                        kinds["pending"] += 1
                        continue
                    own = row["sum"].tolist() if row["sum"] is not None and row["receivers"] & whom else None
                    kinds["bare" if own is None else "result"] += 1
                    expected_answers.append((whom, row["receivers"], row["members"], tuple(map(int, row["words"])),
                                             row["exponent"], own))
        assert [contents(frame) for frame in server.frames_to_send(0)] == expected_answers
    assert min(kinds.values()) > 20, kinds


def test_a_server_without_routes_drops_packets_that_have_one():
    server = ParameterServer(ServerConfig(3, life=1, slots=2, values=VALUES))
    server.receive(to(0, 1, 2, 3, None), 0)
    assert (server.stats["drop_malformed"], server.stats["merged_raw"]) == (1, 0)


def test_a_token_s_values_go_up_once_and_down_to_each_of_its_receivers(programs):
    """Any sets for each piece, in a tree: sums of the sources go to the receivers, wherever each has its own."""
    n, rng, tokens = 4, np.random.default_rng(5), 60
    table = np.zeros(tokens, PIECE)
    table["count"] = VALUES * rng.integers(1, 3, tokens)
    table["sources"], table["receivers"] = rng.integers(0, 16, tokens), rng.integers(0, 16, tokens)
    with Jobs(programs[1024], TREE, 1024, FAULTS["very lossy"]) as jobs:
        arrays, tables, pieces = [], [], []
        for rank in range(n):
            own = table.copy()
            order = rng.permutation(tokens)
            own["at"][order] = np.cumsum(own["count"][order]) - own["count"][order]
            arrays.append(rng.integers(-99, 99, own["count"].sum()).astype(np.int32))
            tables.append(own)
            pieces.append([arrays[rank][at : at + count].copy() for count, at in own[["count", "at"]].tolist()])
        for rank in range(n):
            jobs.fabric.submit_one(jobs.jobs[0], rank, arrays[rank], route=Route.of(tables[rank]))
        jobs.run()
        for token, (count, sources, receivers) in enumerate(table[["count", "sources", "receivers"]].tolist()):
            others = receivers & ~sources if sources.bit_count() == 1 else receivers
            total = sum((pieces[rank][token] for rank in range(n) if sources >> rank & 1), np.zeros(count, np.int32))
            for rank in range(n):
                at = tables[rank]["at"][token]
                gets = others >> rank & 1 and sources
                np.testing.assert_array_equal(arrays[rank][at : at + count], total if gets else pieces[rank][token])
