"""Routes of a mixture of experts' tokens: each row goes up once, and down once to each rank that needs it, on every link, and
sums are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from capabilities import need

from ina.aggregation.wire import layout
from ina.aggregation.worker import Route
from ina.aggregation.worker.token_routes import CHUNK, Leg, Tokens, ranks_in
from ina.base import paths
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import load
from ina.worlds.virtual.fabric import Fabric

VALUES, SLOTS = 32, 8


def drawn(seed: int, ranks: int, k: int = 2, per_rank: int = 2, most: int = 30) -> list[np.ndarray]:
    """Experts of each rank's tokens; some are none, some ranks have no tokens."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-1, ranks * per_rank, (int(rng.integers(0, most)) * int(rng.random() < 0.9), k)) for _ in range(ranks)]


def seen(experts: list[np.ndarray], per_rank: int) -> list[Tokens]:
    return [Tokens(experts, per_rank, rank) for rank in range(len(experts))]


def targets_of(experts: list[np.ndarray], per_rank: int) -> list[tuple[int, set[int]]]:
    """The rank of each token, and those of its experts."""
    return [(rank, {int(expert) // per_rank for expert in chosen if expert >= 0})
            for rank, each in enumerate(experts) for chosen in each]


def back(tokens: Tokens) -> tuple[Leg, Leg]:
    """The way back with all sums."""
    return tokens.back(np.zeros(tokens.several.size, bool))


@pytest.mark.fast
@pytest.mark.parametrize("way", ["out", "back"])
def test_all_ranks_have_rows_from_the_first_packet_to_the_last(way):
    """Tokens to 8 of 256 experts at 32 ranks: each eighth of the packets loads all ranks alike. Where sets were in the order of
    their bitmaps, a rank with a high number had nothing in the first half, and the last eighth nearly alone."""
    ranks, rng = 32, np.random.default_rng(1)
    experts = [rng.permuted(np.tile(np.arange(8 * ranks), (64, 1)), axis=1)[:, :8] for _ in range(ranks)]
    tokens = Tokens(experts, 8, 0)
    leg = tokens.out if way == "out" else back(tokens)[0]
    table = leg.pieces(VALUES, 0, VALUES)
    loads = np.repeat(table["receivers" if way == "out" else "sources"], (table["count"] // VALUES).astype(int))
    for part in np.array_split(loads, 8):
        rows = np.array([(part >> np.uint32(rank) & 1).sum() for rank in range(ranks)])
        assert np.abs(rows - rows.mean()).max() < 5 * np.sqrt(rows.mean()), "as drawn at random"


@pytest.mark.fast
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 32])
def test_every_rank_knows_its_rows_and_for_which_experts_they_are(ranks):
    for seed in range(5):
        experts = drawn(seed, ranks, k=3)
        flat = np.concatenate(experts)
        for tokens in seen(experts, 2):
            mine = [(token, slot, int(expert) - 2 * tokens.rank) for token, chosen in enumerate(flat)
                    for slot, expert in enumerate(chosen) if expert >= 0 and expert // 2 == tokens.rank]
            assert tokens.rows.tolist() == sorted({token for token, _, _ in mine})
            pairs = list(zip(tokens.rows[tokens.row].tolist(), tokens.slot.tolist(), tokens.expert.tolist(), strict=True))
            assert pairs == sorted(mine, key=lambda pair: (pair[2], pair[0], pair[1]))
            assert tokens.per_expert == [sum(expert == each for _, _, expert in mine) for each in range(2)]
            bits = [sum(1 << rank for rank in targets) for _, targets in targets_of(experts, 2)]
            assert tokens.targets.tolist() == bits and ranks_in(tokens.targets).tolist() == [bit.bit_count() for bit in bits]


@pytest.mark.fast
def test_pieces_are_alike_on_all_ranks_and_take_turns():
    """The places in memory differ between ranks. Rows of one source and set share packets; a long run is cut at whole packets,
    and that of another rank comes in between."""
    experts = [np.full((300, 1), 1), np.full((290, 1), 0), np.zeros((0, 1), int)]
    tables = [tokens.out.pieces(8, 0, VALUES) for tokens in seen(experts, 1)]
    for name in ("count", "sources", "receivers"):
        assert all((table[name] == tables[0][name]).all() for table in tables)
    whole = CHUNK * VALUES
    assert tables[0]["count"].sum() == 8 * 590 and (np.sort(tables[0]["count"])[2:] == whole).all()
    assert tables[0]["sources"][:6].tolist() == [1, 2, 1, 2, 1, 2] and (tables[2]["at"] == 0).all()
    assert tables[1]["at"][:4].tolist() == [0, 8 * 300, whole, 8 * 300 + whole]


@pytest.mark.fast
def test_a_token_for_its_own_rank_alone_does_not_travel():
    experts = [np.array([[0, 1], [0, -1], [-1, -1], [0, 2]]), np.array([[3, 2]])]
    for tokens in seen(experts, 2):
        assert tokens.out.rows == 1 and [leg.rows for leg in back(tokens)] == [0, 1] and tokens.several.size == 0
        assert not tokens.out.pieces(4, 0, VALUES)["receivers"][1:].any()


@pytest.fixture(scope="module")
def program():
    need("cc")
    return Program(compile_program(paths.p4_dir() / "receivers.p4", defines={"VALUES": str(VALUES), "SLOTS": "16"}).so_path)


def moved(fabric: Fabric, job, legs: list[Leg], width: int, rows: list[dict[int, np.ndarray]]) -> list[dict[int, np.ndarray]]:
    """Moves rows, of each rank by token. Returns what each rank gets, by token."""
    arrays, tables = [], [leg.pieces(width, 0, VALUES) for leg in legs]
    for leg, own in zip(legs, rows, strict=True):
        array = np.full((leg.here, width), -99, np.int32)
        for tokens, place in leg.places(leg.sent):
            for token, row in zip(tokens.tolist(), array[place], strict=True):
                row[:] = own[token]
        arrays.append(array)
    for rank, (array, table) in enumerate(zip(arrays, tables, strict=True)):
        fabric.submit_one(job, rank, array.reshape(-1) if array.size else np.zeros(1, np.int32), route=Route.of(table))
    fabric.run()
    assert all(each.event.error() is None for each in fabric.completions())
    return [{token: row for tokens, place in leg.places(leg.got)
             for token, row in zip(tokens.tolist(), array[place], strict=True)}
            for leg, array in zip(legs, arrays, strict=True)]


def carried(fabric: Fabric) -> dict[str, int]:
    """Bytes of values by direction of a link: without headers, gates and `done`."""
    head = layout.load(VALUES).size(layout.HEAD) + 24 + 8
    return {traffic.name: traffic.bytes - head * traffic.packets for traffic in fabric.links() if traffic.packets}


@pytest.mark.build
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_token_goes_up_once_and_down_once_to_each_other_rank_of_its_experts(program, ranks):
    """And its sum comes back from each of them once, to its rank alone. Rows are a packet."""
    experts = drawn(ranks, ranks, k=3)
    known, topology = seen(experts, 2), load("star", hosts=ranks)
    tokens = targets_of(experts, 2)
    others = [targets - {rank} for rank, targets in tokens]
    rng = np.random.default_rng(1)
    values = rng.integers(-2**28, 2**28, (len(tokens), VALUES)).astype(np.int32)

    with Fabric(program, topology, pool=16, protocol="receivers") as fabric:
        job = fabric.admit([host.name for host in topology.hosts], SLOTS, VALUES, rto_min=1.0, rto_max=1.0, rto_fixed=True)
        got = moved(fabric, job, [each.out for each in known], VALUES, [dict(enumerate(values))] * ranks)
        for rank in range(ranks):
            assert sorted(got[rank]) == [token for token, each in enumerate(others) if rank in each]
            assert all((row == values[token]).all() for token, row in got[rank].items())
        bytes_of = carried(fabric)
        for rank in range(ranks):
            up = sum(bool(each) for each, (source, _) in zip(others, tokens, strict=True) if source == rank)
            assert bytes_of.get(f"h{rank + 1}>s1", 0) == 4 * VALUES * up
            assert bytes_of.get(f"s1>h{rank + 1}", 0) == 4 * VALUES * sum(rank in each for each in others)

    parts = [values + rank for rank in range(ranks)]
    with Fabric(program, topology, pool=16, protocol="receivers") as fabric:
        job = fabric.admit([host.name for host in topology.hosts], SLOTS, VALUES, rto_min=1.0, rto_max=1.0, rto_fixed=True)
        for which in (0, 1):  # sums of several ranks, and what one has
            got = moved(fabric, job, [back(each)[which] for each in known], VALUES, [dict(enumerate(part)) for part in parts])
            for rank in range(ranks):
                mine = [token for token, (source, _) in enumerate(tokens)
                        if source == rank and (len(others[token]) > 1 if which == 0 else len(others[token]) == 1)]
                assert sorted(got[rank]) == mine
                with np.errstate(over="ignore"):
                    assert all((got[rank][token] == sum(parts[each][token] for each in others[token])).all() for token in mine)
        bytes_of = carried(fabric)
        for rank in range(ranks):
            down = sum(bool(each) for each, (source, _) in zip(others, tokens, strict=True) if source == rank)
            assert bytes_of.get(f"h{rank + 1}>s1", 0) == 4 * VALUES * sum(rank in each for each in others)
            assert bytes_of.get(f"s1>h{rank + 1}", 0) == 4 * VALUES * down


@pytest.mark.build
def test_links_between_switches_carry_a_token_once(program):
    """Ranks 0 and 1 are below s1, 2 and 3 below s2, and s3 above: a token goes up there once if the other side needs it, and
    comes down once to each side that does, its own included; on the way back each side that has some of a sum sends one row up,
    and one comes down. Each token has an expert on the other side: others have no reason to go up."""
    topology, experts = load("leaf-spine", leaves=2, spines=1, hosts=2), drawn(7, 4, k=3, per_rank=1, most=40)
    for rank, each in enumerate(experts):
        each[:, 0] = 2 - rank // 2 * 2 + each[:, 0] % 2
    known, tokens = seen(experts, 1), targets_of(experts, 1)
    values = np.arange(len(tokens) * VALUES, dtype=np.int32).reshape(-1, VALUES)
    crossing = [(source // 2, {rank // 2 for rank in targets - {source}}, len(targets - {source}) > 1)
                for source, targets in tokens]
    out = {"up": [sum(own == side for own, _, _ in crossing) for side in (0, 1)],
           "down": [sum(side in having for _, having, _ in crossing) for side in (0, 1)]}
    home = {"up": [sum(side in having and several for _, having, several in crossing) for side in (0, 1)],
            "down": [sum(own == side and several for own, _, several in crossing) for side in (0, 1)]}
    for legs, rows in (([each.out for each in known], out), ([back(each)[0] for each in known], home)):
        with Fabric(program, topology, pool=16, protocol="receivers") as fabric:
            job = fabric.admit([host.name for host in topology.hosts], SLOTS, VALUES, rto_min=1.0, rto_max=1.0, rto_fixed=True)
            moved(fabric, job, legs, VALUES, [dict(enumerate(values))] * 4)
            bytes_of = carried(fabric)
        for side in (0, 1):
            assert 0 < bytes_of[f"s{side + 1}>s3"] == 4 * VALUES * rows["up"][side]
            assert 0 < bytes_of[f"s3>s{side + 1}"] == 4 * VALUES * rows["down"][side]


@pytest.mark.build
def test_tokens_of_one_rank_and_set_share_packets(program):
    """Rows of 8 words, four in a packet: 30 tokens for one rank are 8 packets, 30 for another one 8 more."""
    experts = [np.repeat([[1], [2]], 30, axis=0), np.zeros((0, 1), int), np.zeros((0, 1), int)]
    known, topology = seen(experts, 1), load("star", hosts=3)
    values = np.arange(60 * 8, dtype=np.int32).reshape(60, 8)
    with Fabric(program, topology, pool=16, protocol="receivers") as fabric:
        job = fabric.admit([host.name for host in topology.hosts], SLOTS, VALUES, rto_min=1.0, rto_max=1.0, rto_fixed=True)
        got = moved(fabric, job, [each.out for each in known], 8, [dict(enumerate(values))] * 3)
        bytes_of = carried(fabric)
    assert [len(each) for each in got] == [0, 30, 30] and all((got[1][token] == values[token]).all() for token in range(30))
    assert bytes_of["h1>s1"] == 4 * VALUES * 16 and bytes_of["s1>h2"] == bytes_of["s1>h3"] == 4 * VALUES * 8


@pytest.mark.build
def test_dispatch_and_combine_take_little_more_than_half_of_the_time_of_two_all_to_alls():
    """In virtual time: 8 ranks at 100 Gb/s with 64 tokens of 1,024 words each, for 8 of 64 experts; beside it all-to-alls of a
    row for each distinct rank, and of one for each expert, by the same switch."""
    ranks, count, width, values, slots, per_rank = 8, 64, 1024, 256, 256, 8
    need("cc")
    built = compile_program(paths.p4_dir() / "receivers.p4", defines={"VALUES": str(values), "SLOTS": str(2 * slots)})
    rng, star = np.random.default_rng(0), load("star", hosts=ranks)
    experts = [np.stack([rng.permutation(ranks * per_rank)[:8] for _ in range(count)]) for _ in range(ranks)]
    known = seen(experts, per_rank)
    links = replace(star, links=tuple(replace(link, rate=100e9, delay=1e-6) for link in star.links))

    def seconds(routes: list[Route], sizes: list[int]) -> float:
        with Fabric(Program(built.so_path), links, pool=2 * slots, protocol="receivers") as fabric:
            job = fabric.admit([host.name for host in links.hosts], slots, values, rto_min=1e-2, rto_max=1e-2, rto_fixed=True)
            for rank, (route, size) in enumerate(zip(routes, sizes, strict=True)):
                fabric.submit_one(job, rank, np.zeros(size, np.int32), route=route)
            fabric.run()
            return max(each.time for each in fabric.completions()) / 1e12

    def of(legs: list[Leg]) -> float:
        return seconds([Route.of(leg.pieces(width, 0, values)) for leg in legs], [width * leg.here for leg in legs])

    def exchange(distinct: bool) -> float:
        rows = np.array([[sum(int((chosen // per_rank == target).sum()) if not distinct else target in chosen // per_rank
                              for chosen in each) for target in range(ranks)] for each in experts])
        return seconds([Route.all_to_all(width * rows, rank, 4 * values) for rank in range(ranks)],
                       [width * int(rows[rank].sum() + rows[:, rank].sum()) for rank in range(ranks)])

    ours = of([each.out for each in known]) + of([back(each)[0] for each in known])
    assert ours < 350e-6 and 2 * exchange(distinct=True) / ours > 1.2 and 2 * exchange(distinct=False) / ours > 1.8
