"""THC over NumPy: the published tables and their errors, what error feedback keeps, and input that no table fits."""

import numpy as np
import pytest

from ina import codecs
from ina.base.native import lib
from ina.codecs import thc_tables
from ina.codecs.pointers import pointer
from ina.codecs.thc import Thc, ThcLookup, parts

pytestmark = pytest.mark.fast

# Published tables (BytePS_THC) by bits, granularity and 1 / share outside, and mean square errors of N(0, 1).
PUBLISHED = {
    (4, 30, 32): ("0 3 5 7 9 11 13 14 16 17 19 21 23 25 27 30", 0.02034),
    (4, 30, 64): ("0 3 5 7 9 11 13 14 16 17 19 21 23 25 27 30", 0.01937),
    (4, 30, 512): ("0 4 7 9 11 12 13 14 16 17 18 19 21 23 26 30", 0.02379),
    (4, 30, 16): ("0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30", 0.02680),
    (4, 34, 64): ("0 3 6 8 10 12 14 16 18 20 22 24 26 28 31 34", 0.01813),
    (4, 16, 32): ("0 2 3 4 5 6 7 8 8 9 10 11 12 13 14 16", 0.02165),
    (3, 16, 64): ("0 3 5 7 9 11 13 16", 0.07144),
    (4, 15, 32): ("0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", 0.02059),
    (4, 15, 512): ("0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15", 0.02865),
}


def normal(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def missed_share(result: np.ndarray, exact: np.ndarray) -> float:
    return float(np.sum((result - exact) ** 2, dtype=np.float64) / np.sum(exact**2, dtype=np.float64))


@pytest.mark.parametrize("table", PUBLISHED)
def test_the_solver_finds_the_published_tables(table):
    bits, granularity, share = table
    assert thc_tables.levels(bits, granularity, 1 / share) == tuple(map(int, PUBLISHED[table][0].split()))


@pytest.mark.parametrize("table", PUBLISHED)
def test_the_error_is_that_of_the_published_table(table):
    bits, granularity, share = table
    own = np.exp(normal(1 << 18)) * normal(1 << 18, 1)  # a long tail, which the rotation takes away
    result = codecs.reduced(Thc(bits, granularity, 1 / share), [own])[0]
    assert missed_share(result, own) == pytest.approx(PUBLISHED[table][1], rel=0.03)


def test_without_a_rotation_a_long_tail_is_lost():
    """The test above can fail: the same values on the same table, not rotated."""
    own = np.exp(normal(1 << 18)) * normal(1 << 18, 1)
    codec = Thc()
    rest, levels = own * np.float32(np.sqrt(own.size) / np.linalg.norm(own)), np.empty(own.size, np.uint8)
    before = rest.copy()
    lib.ina_thc_quantise(codec.native, own.size, pointer(rest), 1.0, 1, pointer(levels))
    assert missed_share(before - rest, before) > 0.1


def test_workers_round_by_chance_of_their_own():
    """Rounding errors shrink with the number of workers, cut values do not."""
    own = [normal(1 << 18)] * 8
    t = thc_tables.limit(1 / 32)
    cut = 2 * ((1 + t * t) / 32 / 2 - t * thc_tables.NORMAL.pdf(t))  # the mean square of what lies beyond t and -t
    result = codecs.reduced([Thc() for _ in own], own, average=True)[0]
    assert missed_share(result, own[0]) == pytest.approx((PUBLISHED[4, 30, 32][1] - cut) / 8 + cut, rel=0.03)


@pytest.mark.parametrize("size", [1, 2, 8, 16, 1 << 6, 1 << 12, 1 << 13, 1 << 14, 1 << 15])
def test_the_rotation_is_hadamards(size):
    x, z, back = normal(size), np.empty(size, np.float32), np.empty(size, np.float32)
    for at in {0, size // 3, size - 1}:
        unit = np.zeros(size, np.float32)
        unit[at] = 1
        lib.ina_thc_rotate(size, size, pointer(unit), 1, 7, pointer(z))
        column = np.array([(-1) ** (row & at).bit_count() for row in range(size)])
        assert np.array_equal(z, column * z[0]) and abs(z[0]) == 1
    lib.ina_thc_rotate(size, size, pointer(x), 1, 7, pointer(z))
    assert np.sum(z.astype(np.float64) ** 2) == pytest.approx(size * np.sum(x.astype(np.float64) ** 2), rel=1e-5)
    lib.ina_thc_rotate_back(size, size, pointer(back), 1 / size, 7, pointer(z))
    assert np.allclose(back, x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [64, 1000, 70_000])
def test_a_rotation_during_the_norms_way_is_the_same_as_behind_it(monkeypatch, size):
    own, ended, events, rotate = normal(size, 3), [], [], Thc._rotated

    def rotated(codec, wanted, *rest):
        events.append("rotated")
        return rotate(codec, wanted, *rest)

    monkeypatch.setattr(Thc, "_rotated", rotated)
    others = ["rotated"] * (len(parts(size)) - 1)
    for early in (True, False):
        events.clear()
        running = Thc().reduce(own, codecs.Call(2, rank=1, step=5))
        first = next(running)
        events.append("norms sent")
        if early:
            first.meanwhile()
        events.append("norms received")
        larger = (2 * first.words.view(np.float32)).view(np.int32)  # another worker's norms
        second = running.send(larger)
        assert second.meanwhile is None
        during, behind = (["rotated"], []) if early else ([], ["rotated"])
        assert events == ["norms sent", *during, "norms received", *behind, *others]
        words = second.words.copy()
        with pytest.raises(StopIteration) as end:
            running.send(second.words)
        ended.append((words.tobytes(), end.value.value.tobytes()))
    assert ended[0] == ended[1]


def test_signs_are_common_and_fresh():
    x, rotated = np.ones(1 << 10, np.float32), []
    for step in range(3):
        z = np.empty_like(x)
        lib.ina_thc_rotate(x.size, x.size, pointer(x), 1, lib.ina_thc_seed(step, 0, 0), pointer(z))
        rotated.append(z)
    assert not np.array_equal(rotated[0], rotated[1]) and not np.array_equal(rotated[1], rotated[2])


@pytest.mark.parametrize(("workers", "size"), [(1, 100), (3, 1000), (8, 5000)])
def test_error_feedback_keeps_what_a_sum_misses(workers, size):
    """All sums together and what is still missed are what all workers gave."""
    own = [normal(size, rank) for rank in range(workers)]
    each = [Thc() for _ in own]
    total = np.zeros(size)
    for step in range(50):
        total += codecs.reduced(each, own, step=step)[0]
    exact = 50 * np.sum(own, axis=0, dtype=np.float64)
    assert np.allclose(total + np.sum([codec.missed for codec in each], axis=0), exact, atol=1e-3)
    assert missed_share(total, exact) < 1e-3


def test_a_tensor_of_any_length_is_cut_into_powers_of_two():
    for size in [*range(300), 1000, 4097, 9000, (1 << 20) + 1, (1 << 24) + 12345]:
        cuts = parts(size)
        assert [at for at, _, _ in cuts] == [sum(count for _, count, _ in cuts[:i]) for i in range(len(cuts))]
        assert sum(count for _, count, _ in cuts) == size
        assert all(count <= room <= 1 << 23 and room & (room - 1) == 0 for _, count, room in cuts)
        assert sum(room for _, _, room in cuts) <= max(size * 9 / 8, size + 63)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 63, 65, 1000])
def test_short_tensors_and_lengths_that_are_no_power_of_two(size):
    own = [normal(size, rank) for rank in range(4)]
    each = [Thc() for _ in own]
    results = codecs.reduced(each, own)
    assert all(np.array_equal(result, results[0]) for result in results)
    missed = np.sum([codec.missed for codec in each], axis=0)
    assert np.allclose(results[0] + missed, np.sum(own, axis=0), atol=1e-4)


def test_zeros_are_zero_and_a_worker_of_zeros_adds_nothing_but_rounding():
    own = [np.zeros(1000, np.float32), np.zeros(1000, np.float32)]
    each = [Thc(), Thc()]
    assert not codecs.reduced(each, own)[0].any() and not each[0].missed.any()
    own[1] = normal(1000)
    result = codecs.reduced(each, own, step=1)[0]
    assert np.allclose(result + each[0].missed + each[1].missed, own[1], atol=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_workers_nan_makes_its_part_nan_once(bad):
    size = (1 << 12) + 1024
    assert [count for _, count, _ in parts(size)] == [1 << 12, 1024]
    own = [normal(size, 0), normal(size, 1)]
    each = [Thc(), Thc()]
    codecs.reduced(each, own)
    before = [codec.missed.copy() for codec in each]
    spoilt = [own[0].copy(), own[1]]
    spoilt[0][5000] = bad
    for result in codecs.reduced(each, spoilt, step=1):
        assert np.isfinite(result[: 1 << 12]).all() and np.isnan(result[1 << 12 :]).all()
    for codec, earlier in zip(each, before, strict=True):
        assert np.array_equal(codec.missed[1 << 12 :], earlier[1 << 12 :])
    assert np.isfinite(codecs.reduced(each, own, step=2)[0]).all()


def test_tiny_values_are_summed_and_a_norm_beyond_float32_is_nan():
    tiny = np.full(64, 1e-42, np.float32)
    result = codecs.reduced(Thc(), [tiny])[0]
    assert missed_share(result.astype(np.float64) * 1e40, tiny.astype(np.float64) * 1e40) < 0.2
    huge = np.full(64, 1e38, np.float32)  # norm 8e38
    assert np.isnan(codecs.reduced(Thc(), [huge])[0]).all()


def test_sums_beyond_8_bits_take_wider_lanes_and_beyond_16_bits_are_refused():
    assert Thc().traffic(1 << 20, 8).up * 4 <= 1.001 * (4 << 20)  # 240: 8 bits
    assert Thc().traffic(1 << 20, 9).up * 3 <= 1.001 * (4 << 20)  # 270: 9 bits
    own = [normal(256, rank) for rank in range(9)]
    each = [Thc() for _ in own]
    result = codecs.reduced(each, own)[0]
    assert np.allclose(result + np.sum([codec.missed for codec in each], axis=0), np.sum(own, axis=0), atol=1e-3)
    with pytest.raises(ValueError, match="2185 workers with a table of granularity 30, expected at most 2184"):
        next(Thc().reduce(own[0], codecs.Call(2185)))


@pytest.mark.parametrize("bad", [(0, 30, 1 / 32), (5, 30, 1 / 32), (4, 0, 1 / 32), (4, 256, 1 / 32), (4, 30, 0), (4, 30, 1)])
def test_a_table_that_cannot_be_is_refused(bad):
    with pytest.raises(ValueError, match="expected 1 to 4 bits"):
        Thc(*bad)


def test_least_squares_learn_as_with_exact_sums():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((300, 40)).astype(np.float32)
    target = rng.standard_normal(40).astype(np.float32)

    def loss_after(workers: list[codecs.Codec]) -> float:
        weights = np.zeros(40, np.float32)
        for step in range(1000):
            own = [inputs[rank::3] for rank in range(3)]
            gradients = [(each.T @ (each @ (weights - target)) / 50).astype(np.float32) for each in own]
            weights = weights - 0.05 * codecs.reduced(workers, gradients, average=True, step=step)[0]
        return float(np.mean((inputs @ (weights - target)) ** 2))

    assert loss_after([codecs.named("thc") for _ in range(3)]) < 1e-8


# ---- with a look-up in the switch


@pytest.mark.parametrize("size", [0, 1, 3, 5, 100, 5000])
def test_a_look_up_gives_the_sums_of_levels_in_lanes(size):
    own = [normal(size, rank) for rank in range(8)]
    results = [codecs.reduced([make() for _ in own], own, average=True, step=3)[0] for make in (Thc, ThcLookup)]
    assert np.array_equal(*results)


def test_a_look_up_sends_an_eighth_and_gets_a_quarter():
    traffic = ThcLookup().traffic(1 << 20, 8)
    assert (traffic.up - 4, traffic.down - 4) == ((4 << 20) / 8, (4 << 20) / 4)  # one norm


def test_a_byte_has_room_for_eight_workers():
    with pytest.raises(ValueError, match="thc-lookup: 9 workers with a table .* 30, expected at most 8: sums have 8 bits"):
        next(ThcLookup().reduce(normal(64), codecs.Call(9)))
    with pytest.raises(ValueError, match="expected at most 8"):
        ThcLookup().traffic(64, 9)
