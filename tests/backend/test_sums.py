"""Collectives as sums: with the switch played by torch.sum over the ranks' buffers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the back end needs torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ina.aggregation import protocols  # noqa: E402
from ina.backend import sums  # noqa: E402
from ina.backend.sums import extremum, ordered, placement, reduction, summable, words  # noqa: E402

pytestmark = pytest.mark.fast
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.complex64]


def switch(ranks) -> None:
    """Adds up the ranks' sums as the switch and its workers do, one after the other."""
    for of_ranks in zip(*ranks, strict=True):
        buffers = [each.begin() for each in of_ranks]
        wide = torch.int64 if buffers[0].dtype == torch.int32 else torch.float64
        stacked = torch.stack([buffer.to(wide) for buffer in buffers])
        total = stacked.amax(0) if of_ranks[0].reduction == protocols.MAX else stacked.sum(0)
        for each, buffer in zip(of_ranks, buffers, strict=True):
            assert buffer.is_contiguous() and buffer.dim() == 1 and not buffer.is_neg() and each.average == of_ranks[0].average
            assert buffer.numel() == each.elements and buffer.dtype == each.dtype
            assert buffer.data_ptr() % buffer.element_size() == 0, "C takes its values' addresses for aligned ones"
            result = total / len(of_ranks) if each.average else total
            buffer.copy_(result if wide == torch.int64 else result.to(torch.float32))  # a worker rounds float32 to its type
            each.end()
            assert each.buffer is None


@pytest.fixture(params=[24, sums.STAGE], ids=["pieces", "whole"], autouse=True)
def stage(request, monkeypatch):
    """Pieces of two int64 or six others."""
    monkeypatch.setattr(sums, "STAGE", request.param)


def random(dtype, shape, generator):
    if dtype in INTEGERS:
        info = torch.iinfo(dtype)
        return torch.from_numpy(generator.integers(info.min, info.max, shape, dtype=np.int64, endpoint=True)).to(dtype)
    if dtype == torch.complex64:
        return torch.complex(random(torch.float32, shape, generator), random(torch.float32, shape, generator))
    return torch.from_numpy(generator.standard_normal(shape).astype(np.float32)).to(dtype)


@given(dtype=st.sampled_from(INTEGERS + FLOATS), n=st.integers(1, 32), shape=st.lists(st.integers(0, 5), max_size=3),
       seed=st.integers(0, 2**32), strided=st.booleans(), in_place=st.booleans())
@settings(max_examples=150, deadline=None)
def test_reduction_is_the_sum(dtype, n, shape, seed, strided, in_place):
    generator = np.random.default_rng(seed)
    sources = [random(dtype, shape, generator) for _ in range(n)]
    if strided and len(shape) > 1:
        sources = [s.transpose(0, 1) for s in sources]
    if dtype in INTEGERS:  # torch.sum of small integers is int64: wrap as the type does
        expected = torch.stack([s.to(torch.int64) for s in sources]).sum(0).to(dtype)
    else:
        expected = torch.stack([s.to(torch.complex128 if dtype == torch.complex64 else torch.float64) for s in sources]).sum(0)
    copies = [s.clone() for s in sources]
    results = sources if in_place else [torch.empty_like(s) for s in sources]
    switch([reduction(s, r, n, average=False) for s, r in zip(sources, results, strict=True)])
    for result in results:
        if dtype in INTEGERS:
            assert torch.equal(result, expected)
        else:
            # a float32 sum in the buffer, rounded once to the type
            assert torch.equal(result, expected.to(torch.complex64 if dtype == torch.complex64 else torch.float32).to(dtype))
    if not in_place:
        assert all(torch.equal(a, b) for a, b in zip(sources, copies, strict=True)), "inputs changed"


@given(dtype=st.sampled_from([d for d in [*INTEGERS, *FLOATS, torch.bool] if ordered(d)]), n=st.integers(1, 6),
       count=st.integers(0, 20), seed=st.integers(0, 2**32), largest=st.booleans(), special=st.booleans())
@settings(max_examples=150, deadline=None)
def test_extremum_is_exact(dtype, n, count, seed, largest, special):
    generator = np.random.default_rng(seed)
    if dtype == torch.bool:
        sources = [torch.from_numpy(generator.integers(0, 2, count)).bool() for _ in range(n)]
    else:
        sources = [random(dtype, [count], generator) for _ in range(n)]
    if special and dtype.is_floating_point and count:
        odd = torch.tensor([float("inf"), -float("inf"), float("nan"), -float("nan"), 0.0, -0.0, 1e-40, -1e-40]).to(dtype)
        for source in sources:
            at = generator.integers(0, count)
            source[at] = odd[generator.integers(0, len(odd))]
    stacked = torch.stack([source.to(torch.int64 if not dtype.is_floating_point else torch.float64) for source in sources])
    expected = (stacked.amax(0) if largest else stacked.amin(0)).to(dtype)  # a NaN wins both
    copies = [source.clone() for source in sources]
    results = [torch.empty_like(source) for source in sources]
    switch([extremum(s, r, largest) for s, r in zip(sources, results, strict=True)])
    for result in results:
        assert torch.equal(result.isnan(), expected.isnan()) and torch.equal(result.nan_to_num(), expected.nan_to_num())
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(sources, copies, strict=True)), "inputs changed"


def test_bool_is_any_and_has_no_average():
    ranks = [torch.tensor([False, True, False]), torch.tensor([False, True, True])]
    switch([reduction(t, t, 2, average=False) for t in ranks])
    assert ranks[0].tolist() == ranks[1].tolist() == [False, True, True]
    with pytest.raises(TypeError, match="AVG of bool: expected numbers"):
        reduction(ranks[0], ranks[0], 2, average=True)


@pytest.mark.parametrize(("dtype", "values", "expected"), [
    (torch.uint8, (251, 64, 177), 164), (torch.int8, (-59, -123, 53), -43), (torch.int16, (-32768, -32768, -32767), -32767),
    (torch.int32, (-7, -8, 2), -4), (torch.int32, (2**31 - 1, 2**31 - 1, 2**31 - 3), 2**31 - 2),
    (torch.int32, (-(2**31), -(2**31), -(2**31) + 1), -(2**31) + 1), (torch.int64, (-7, -2, 1), -2), (torch.int64, (7, 2, -1), 2),
    (torch.int64, (2**63 - 1, 2**63 - 1, 2**63 - 3), 2**63 - 2), (torch.int64, (-(2**63),) * 3, -(2**63)),
])
def test_an_average_is_right_although_the_sum_does_not_fit_the_type(dtype, values, expected):
    ranks = [torch.tensor([value], dtype=dtype) for value in values]
    switch([reduction(t, t, 3, average=True) for t in ranks])
    assert [t.item() for t in ranks] == [expected] * 3


@given(dtype=st.sampled_from(INTEGERS), n=st.integers(1, 32), count=st.integers(0, 9), seed=st.integers(0, 2**32),
       extreme=st.booleans(), lies=st.sampled_from(["in place", "strided", "apart", "part"]))
@settings(max_examples=150, deadline=None)
def test_averages_of_integers_are_exact_and_rounded_towards_zero(dtype, n, count, seed, extreme, lies):
    generator = np.random.default_rng(seed)
    sources = [random(dtype, [count], generator) for _ in range(n)]
    if extreme:  # near the ends of the type, where every sum is beyond it
        info = torch.iinfo(dtype)
        sources = [torch.where(s % 3 == 0, info.min + s % 3, info.max - s % 5).to(dtype) for s in sources]
    totals = [sum(values) for values in zip(*(s.tolist() for s in sources), strict=True)]
    expected = [total // n if total >= 0 else -(-total // n) for total in totals]
    start = 0
    if lies == "strided":
        sources = [s.repeat_interleave(2)[::2] for s in sources]
    results = sources if lies in ("in place", "strided") else [torch.empty_like(s) for s in sources]
    if lies == "part":
        start = count // 3
        results, expected = [r[start : start + count // 2] for r in results], expected[start : start + count // 2]
    copies = [s.clone() for s in sources]
    switch([reduction(s, r, n, average=True, start=start) for s, r in zip(sources, results, strict=True)])
    assert all(r.tolist() == expected for r in results)
    assert results is sources or all(torch.equal(a, b) for a, b in zip(sources, copies, strict=True)), "inputs changed"


@pytest.mark.parametrize("average", (False, True))
@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_thousand_ranks_do_not_overflow_what_they_travel_in(dtype, average):
    """Trees of switches add up to 1,024 workers."""
    info, n = torch.iinfo(dtype), 1024
    for values in ([info.max] * 2, [info.min] * 2, [-1 % (info.max + 1) if info.min == 0 else -1, info.max // 3]):
        ranks = [torch.tensor(values, dtype=dtype) for _ in range(n)]
        switch([reduction(t, t, n, average=average) for t in ranks])
        totals = [n * value for value in values]
        wrapped = torch.tensor([(total - info.min) % (info.max - info.min + 1) + info.min for total in totals], dtype=dtype)
        assert ranks[0].tolist() == ranks[-1].tolist() == (values if average else wrapped.tolist())


def at_an_odd_address(tensor: torch.Tensor) -> torch.Tensor:
    memory = bytearray(1) + bytearray(tensor.numpy().tobytes())
    odd = torch.frombuffer(memory, dtype=tensor.dtype, offset=1)
    assert odd.data_ptr() % 2
    return odd


@pytest.mark.parametrize("lies", [lambda t: t, lambda t: torch._neg_view(-t), lambda t: t.repeat_interleave(2)[::2],
                                  at_an_odd_address], ids=["plainly", "negated", "strided", "odd"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.float16, torch.int64, torch.int16])
def test_how_the_tensor_of_one_rank_lies_in_memory_is_its_own_affair(dtype, lies):
    def ranks() -> list[torch.Tensor]:
        return [lies(torch.tensor([1, -2, 4], dtype=dtype)), torch.tensor([10, 20, -30], dtype=dtype)]

    sums_, largest, products, moved, own = ranks(), ranks(), ranks(), ranks(), ranks()
    switch([reduction(t, t, 2, average=False) for t in sums_])
    assert [t.tolist() for t in sums_] == [[11, 18, -26]] * 2
    if sums.ordered(dtype):
        switch([extremum(t, t, largest=True) for t in largest])
        assert [t.tolist() for t in largest] == [[10, 20, 4]] * 2
    switch([reduction(t, t, 2, average=False, factor=2) for t in products])
    assert [t.tolist() for t in products] == [[22, 36, -52]] * 2
    switch([[placement([(t, 0)] if t is moved[0] else [], [(t, 0)], sums.words(t))] for t in moved])
    assert [t.tolist() for t in moved] == [[1, -2, 4]] * 2
    if sums._TRAVELS_AS[dtype] == dtype:
        switch([[sums.own(t)] for t in own])  # here a sum, too
        assert [t.tolist() for t in own] == [[11, 18, -26]] * 2


def test_premultiplied_sum_keeps_its_inputs_apart():
    ranks = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])]
    switch([reduction(t, t, 2, average=False, factor=0.5) for t in ranks])
    assert ranks[0].tolist() == ranks[1].tolist() == [2.0, 3.0]


@pytest.mark.parametrize(("dtype", "factor", "first", "second", "expected"), [
    (torch.int64, 2.0, [2**60 + 1, -3], [1, 1], [2**61 + 4, -4]), (torch.int64, 0.5, [7, -7], [1, 1], [3, -3]),
    (torch.int32, 3, [2**30, 1], [1, 1], [3 * 2**30 + 3 - 2**32, 6]), (torch.uint8, 300.0, [1, 2], [1, 0], [88, 88]),
    (torch.bool, 0.5, [True, False], [False, False], [True, False]), (torch.float16, 0.1, [1, 2], [3, 4], [0.4, 0.6]),
    (torch.complex64, 2.0, [1j, 1], [1, 1], [2 + 2j, 4]), (torch.int64, torch.tensor([2.0]), [1, 2], [1, 1], [4, 6]),
])
def test_premultiplied_sum_of_any_type(dtype, factor, first, second, expected):
    ranks = [torch.tensor(first, dtype=dtype), torch.tensor(second, dtype=dtype)]
    switch([reduction(t, t, 2, average=False, factor=factor) for t in ranks])
    assert all(torch.equal(t, torch.tensor(expected, dtype=dtype)) for t in ranks), ranks


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=300, deadline=None)
def test_integers_times_a_fraction_are_exact(integers, factor):
    """Above 2^53, too, where a product of floats would not be."""
    product = sums.scaling(factor, torch.int64)(torch.tensor(integers, dtype=torch.int64))
    exact = [int(each * Fraction(factor)) for each in integers]  # towards zero
    assert product.tolist() == [(each + 2**63) % 2**64 - 2**63 for each in exact]


def test_integers_times_infinity_are_refused():
    with pytest.raises(ValueError, match="PREMUL_SUM of int64 by inf: expected a finite factor"):
        reduction(torch.ones(2, dtype=torch.int64), None, 2, average=False, factor=float("inf"))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16])
def test_a_result_within_its_source_is_right(dtype):
    """Reduce-scatter in place: each rank's piece is the destination of the sum."""
    sources = [torch.arange(12).to(dtype) * (rank + 1) for rank in range(3)]
    results = [source[4 * rank : 4 * rank + 4] for rank, source in enumerate(sources)]
    shifted = [torch.arange(12).to(dtype) for _ in range(3)]
    switch([reduction(s, r, 3, average=False, start=4 * i) for i, (s, r) in enumerate(zip(sources, results, strict=True))])
    assert torch.cat(results).tolist() == [6 * i for i in range(12)]
    switch([reduction(s, s[8:], 3, average=False, start=0) for s in shifted])
    assert all(s[8:].tolist() == [0, 3, 6, 9] for s in shifted)


def test_part_of_a_sum_for_each_rank():
    sources = [torch.arange(6, dtype=torch.int64) * (rank + 1) for rank in range(3)]
    parts = [torch.empty(2, dtype=torch.int64) for _ in range(3)]
    switch([reduction(s, p, 3, average=False, start=2 * i) for i, (s, p) in enumerate(zip(sources, parts, strict=True))])
    assert torch.cat(parts).tolist() == [6 * i for i in range(6)]
    assert sources[1].tolist() == [2 * i for i in range(6)]


@given(dtype=st.sampled_from([*INTEGERS, *FLOATS, torch.float64, torch.complex128, torch.bool]), n=st.integers(1, 6),
       sizes=st.data(), seed=st.integers(0, 2**32), strided=st.booleans(), one=st.booleans())
@settings(max_examples=150, deadline=None)
def test_placement_moves_every_bit(dtype, n, sizes, seed, strided, one):
    """All-gather of pieces of different sizes, into tensors of their own or into one."""
    counts = [sizes.draw(st.integers(0, 9)) for _ in range(n)]
    if one:
        counts = [counts[0]] * n
    generator = np.random.default_rng(seed)

    def bits(count):
        raw = torch.from_numpy(generator.integers(0, 2 if dtype == torch.bool else 256, count * dtype.itemsize, dtype=np.uint8))
        return raw.view(dtype) if count else torch.empty(0, dtype=dtype)

    pieces = [bits(count) for count in counts]
    starts = np.cumsum([0] + [words(piece) for piece in pieces]).tolist()
    everything, outputs = [], []
    for rank in range(n):
        if one and words(pieces[0]) * 4 == pieces[0].numel() * pieces[0].element_size():
            whole = torch.ones(n * counts[0], dtype=dtype)
            outputs.append(list(whole.view(n, counts[0])))
            results = [(whole, 0)]
        else:
            outputs.append([torch.ones(2 * c, dtype=dtype)[::2] if strided else torch.ones(c, dtype=dtype) for c in counts])
            results = list(zip(outputs[-1], starts[:-1], strict=True))
        everything.append(placement([(pieces[rank], starts[rank])], results, starts[-1]))
    switch([[each] for each in everything])
    for received in outputs:
        for copy, sent in zip(received, pieces, strict=True):
            assert torch.empty(copy.shape, dtype=dtype).copy_(copy).view(torch.uint8).tolist() == sent.view(torch.uint8).tolist()


@pytest.mark.parametrize("count", [1, 3, 4, 1000])
def test_broadcast_reaches_where_it_belongs(count):
    root = torch.arange(count, dtype=torch.uint8)
    others = [torch.full((count,), 7, dtype=torch.uint8) for _ in range(2)]
    size = words(root)
    switch([[placement([(root, 0)], [(root, 0)], size)], *([placement([], [(t, 0)], size)] for t in others)])
    assert torch.equal(root, torch.arange(count, dtype=torch.uint8)) and all(torch.equal(root, t) for t in others)


def test_what_is_not_summable():
    assert not any(map(ordered, (torch.float64, torch.int64, torch.complex64)))
    assert not any(map(summable, (torch.float64, torch.complex128))) and all(map(summable, [*INTEGERS, *FLOATS, torch.bool]))
