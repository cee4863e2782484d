"""Narrow floating-point formats, beside ml_dtypes' and torch's own conversions, and the room that their sums take."""

import capabilities
import numpy as np
import pytest

from ina import codecs
from ina.codecs import microscaling
from ina.codecs.microscaling import E2M1, E2M3, E3M2, E4M3, E5M2, INT8

pytestmark = pytest.mark.fast

ML_DTYPES = {E5M2: "float8_e5m2", E4M3: "float8_e4m3fn", E3M2: "float6_e3m2fn", E2M3: "float6_e2m3fn", E2M1: "float4_e2m1fn"}
MX = {"mx-e5m2": E5M2, "mx-e4m3": E4M3, "mx-e3m2": E3M2, "mx-e2m3": E2M3, "mx-e2m1": E2M1, "mx-int8": INT8}
FP8 = {"fp8-e5m2": E5M2, "fp8-e4m3": E4M3}


def values(size: int, seed: int = 0, spread: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(size) * 10.0 ** rng.uniform(-spread, spread, size)).astype(np.float32)


def judge(form: microscaling.Format, x: np.ndarray) -> np.ndarray:
    """The nearest elements by others' code, which does not saturate; INT8 by its definition."""
    x = np.clip(x, -form.largest, form.largest)
    if form is INT8:
        return np.clip(np.rint(64 * x) / 64, -127 / 64, 127 / 64).astype(np.float32)
    import ml_dtypes

    return x.astype(getattr(ml_dtypes, ML_DTYPES[form])).astype(np.float32)


def mx_scale(block: np.ndarray, form: microscaling.Format) -> float:
    """The specification's: the largest power of two of the block's largest value over the format's."""
    return 2.0 ** max(np.floor(np.log2(np.abs(block).max().astype(np.float64))) - np.floor(np.log2(form.largest)), -127)


@pytest.mark.parametrize("form", [*ML_DTYPES, INT8], ids=lambda form: form.name)
def test_a_format_rounds_as_others_do(form):
    capabilities.need("ml_dtypes")
    every = np.arange(0, 1 << 32, 9973, dtype=np.uint64).astype(np.uint32).view(np.float32)  # of all magnitudes
    near = np.concatenate([values(20_000, seed, 3) for seed in range(3)])
    ties = np.ldexp(np.arange(-2048, 2048, dtype=np.float32), form.lowest - 1)
    x = np.concatenate([every[np.isfinite(every)], near, ties])
    assert np.array_equal(form.rounded(x), judge(form, x))


@pytest.mark.parametrize("form", FP8.values(), ids=lambda form: form.name)
def test_fp8_rounds_as_torch_does(form):
    capabilities.need("torch")
    import torch

    x = np.clip(np.concatenate([values(50_000, 1, 5), np.ldexp(np.arange(-999, 999, dtype=np.float32), form.lowest - 1)]),
                -form.largest, form.largest)
    dtype = {E5M2: torch.float8_e5m2, E4M3: torch.float8_e4m3fn}[form]
    assert np.array_equal(form.rounded(x), torch.from_numpy(x).to(dtype).to(torch.float32).numpy())


@pytest.mark.parametrize("form", [*ML_DTYPES, INT8], ids=lambda form: form.name)
def test_values_beyond_the_largest_saturate_where_libraries_disagree(form):
    """The guide says what libraries do. Ours are the OCP's conversions that saturate."""
    capabilities.need("ml_dtypes", "torch")
    import ml_dtypes
    import torch

    beyond = np.float32([1.05, 2, 1e6]) * np.float32(2 * form.largest)
    assert form.rounded(beyond).tolist() == [form.largest] * 3 and form.rounded(-beyond).tolist() == [-form.largest] * 3
    if form is not INT8:
        theirs = beyond.astype(getattr(ml_dtypes, ML_DTYPES[form])).astype(np.float32)
        other = {E5M2: np.inf, E4M3: np.nan}.get(form, form.largest)
        assert np.array_equal(theirs, np.full(3, other, np.float32), equal_nan=True)
    if form in FP8.values():
        dtype = {E5M2: torch.float8_e5m2, E4M3: torch.float8_e4m3fn}[form]
        theirs = torch.from_numpy(beyond).to(dtype).to(torch.float32).numpy()
        assert all(np.isinf(theirs)) if form is E5M2 else all(np.isnan(theirs) | (theirs == form.largest))


@pytest.mark.parametrize("name", MX)
@pytest.mark.parametrize("workers", [1, 8])
def test_what_a_worker_sends_is_on_the_formats_grid(name, workers):
    """The sum of one worker beside zeros is what it sent."""
    capabilities.need("ml_dtypes")
    form, x = MX[name], values(3200, spread=2)
    sent = codecs.reduced(codecs.named(name), [x] + [np.zeros_like(x)] * (workers - 1))[0]
    scale = np.repeat([mx_scale(block, form) for block in x.reshape(-1, 32)], 32)
    elements, expected = (sent / scale).astype(np.float32), judge(form, (x / scale).astype(np.float32))
    assert np.array_equal(judge(form, elements), elements)
    _, step = form.step(workers)
    above = np.abs(x / scale) >= 2.0 ** (step + form.fraction)  # where the format's own steps are no smaller
    assert np.array_equal(elements[above], expected[above]) and above.any()
    assert np.all(np.abs(elements - x / scale)[~above] <= 2.0 ** (step - 1)) and np.array_equal(elements, np.ldexp(np.rint(
        np.ldexp(elements, -step)), step))
    assert step > form.lowest or np.array_equal(elements, expected)


@pytest.mark.parametrize("name", FP8)
def test_fp8_is_on_the_formats_grid_under_the_tensors_scale(name):
    capabilities.need("ml_dtypes")
    form, x = FP8[name], values(6400, spread=3)
    sent = codecs.reduced(codecs.named(name), [x, np.zeros_like(x)])[0]
    scale = np.abs(x).max() / np.float32(form.largest)
    near = (sent / np.float64(scale)).astype(np.float32)
    elements = near.astype(np.float16).astype(np.float32)  # the product with the scale was rounded
    assert np.allclose(elements, near, rtol=2e-7, atol=0)
    assert np.array_equal(judge(form, elements), elements)
    largest = np.abs(x).reshape(-1, 64).max(axis=1).repeat(64)
    above = np.abs(x) > largest / 2.0 ** (13 - form.fraction)
    assert np.array_equal(elements[above], judge(form, x * (np.float32(1) / scale))[above]) and above.sum() > 1000


def test_nvfp4_has_an_e4m3_scale_for_16_and_a_float32_for_the_tensor():
    capabilities.need("ml_dtypes")
    x = values(1600, spread=1)
    sent = codecs.reduced(codecs.named("nvfp4"), [x])[0]
    tensor = np.abs(x).max() / np.float32(6 * 448)
    blocks = judge(E4M3, np.maximum(np.abs(x).reshape(-1, 16).max(axis=1) / np.float32(6) / tensor, np.float32(2.0**-6)))
    scales = np.repeat(tensor * blocks, 16)
    expected = judge(E2M1, x * (1 / scales.astype(np.float64) * 2).astype(np.float32) / 2).astype(np.float64) * scales
    assert np.array_equal(sent, expected.astype(np.float32))


@pytest.mark.parametrize("name", ["mx-int8", "mx-e3m2", "mx-e2m3", "mx-e2m1"])
def test_the_sum_is_that_of_all_workers_elements(name):
    form, own = MX[name], [values(320, rank) for rank in range(8)]
    result = codecs.reduced(codecs.named(name), own)[0]
    scale = np.repeat([mx_scale(block, form) for block in np.max(np.abs(own), axis=0).reshape(-1, 32)], 32)
    assert form.step(8)[1] == form.lowest
    assert np.array_equal(result, np.sum([form.rounded(each / scale) for each in own], axis=0) * scale)


@pytest.mark.parametrize(("form", "workers", "lanes", "cut"), [
    (INT8, 2, 3, 0), (INT8, 8, 2, 0), (INT8, 258, 2, 0),
    (E2M1, 2, 5, 0), (E2M1, 4, 4, 0), (E2M1, 8, 4, 0), (E2M1, 16, 3, 0), (E2M1, 1024, 2, 0),
    (E2M3, 2, 4, 0), (E2M3, 8, 3, 0), (E2M3, 16, 2, 0), (E2M3, 1024, 2, 1),
    (E3M2, 2, 2, 0), (E3M2, 64, 2, 0), (E3M2, 128, 2, 1),
    (E4M3, 1, 2, 3), (E4M3, 8, 2, 6), (E4M3, 1024, 2, 13),
    (E5M2, 1, 2, 17), (E5M2, 8, 2, 20), (E5M2, 1024, 2, 27),
])
def test_lanes_have_room_for_all_workers_or_cut_the_smallest_steps_off(form, workers, lanes, cut):
    bits, step = form.step(workers)
    assert (32 // bits, step - form.lowest) == (lanes, cut)
    assert workers * 2 * form.largest * 2.0**-step < 2**bits
    if cut:
        assert workers * 2 * form.largest * 2.0 ** (1 - step) >= 2**bits, "no finer step has room"


def test_sums_of_the_largest_elements_stay_in_their_lanes():
    """All workers' largest values, of both signs side by side: a carry would be in the next block."""
    for name in (*MX, *FP8, "nvfp4", "lanes-16"):
        for workers in (1, 2, 3, 7, 8, 31, 258):
            x = np.where(np.arange(640) // 16 % 2, 1, -1).astype(np.float32)
            result = codecs.reduced(codecs.named(name), [x] * workers)[0]
            assert np.allclose(result, workers * x, rtol=0.01), (name, workers)  # MX-INT8: 63.5 of 64


def test_values_that_are_cut_off_are_counted():
    """E5M2 has 2^-31 of its largest value, here 2^-12 with 8 workers; fp8 has its own range for the tensor."""
    x = np.zeros(256, np.float32)
    x[0], x[1], x[64], x[65] = 1, 2.0**-14, 2.0**-20, 2.0**-26
    for name, flushed in (("mx-e5m2", 1), ("fp8-e5m2", 1), ("fp8-e4m3", 3)):
        each = [codecs.named(name) for _ in range(8)]
        result = codecs.reduced(each, [x] + [np.zeros_like(x)] * 7)[0]
        assert [codec.flushed for codec in each] == [flushed] + [0] * 7
        assert np.count_nonzero(x) - np.count_nonzero(result) == flushed


def test_an_infinity_makes_its_own_block_nan_and_no_other():
    for name in (*MX, *FP8, "nvfp4"):
        own = [np.ones(320, np.float32), np.ones(320, np.float32)]
        own[1][100] = np.inf
        result, block = codecs.reduced(codecs.named(name), own)[0], codecs.named(name).block
        spoilt = np.arange(320) // block == 100 // block
        assert np.isnan(result[spoilt]).all() and np.allclose(result[~spoilt], 2, rtol=0.01), name


@pytest.mark.parametrize("exponent", [-149, -140, -127, -126, -100, 126, 127])
def test_scales_have_float32s_range(exponent):
    """E8M0 ends at 2^-127, tensors' scales at 2^-110: what is below keeps the bits that are left, or is counted."""
    x = np.ldexp(np.linspace(1, 1.99, 64, dtype=np.float32), exponent)
    for name in (*MX, *FP8, "nvfp4"):
        codec = codecs.named(name)
        result = codecs.reduced(codec, [x])[0]
        assert np.all(np.abs(result.astype(np.float64) - x) <= codec.bound([x])), name
        assert codec.flushed == np.count_nonzero(result == 0), name
        if exponent >= -100:
            assert np.allclose(result / x, 1, rtol=0.26) and not codec.flushed, name


def test_bytes_with_8_workers():
    """Share of float32's, the round of maxima included."""
    shares = {name: codecs.named(name).traffic(1 << 20, 8).up / (4 << 20) for name in (*MX, *FP8, "nvfp4", "lanes-16")}
    assert {name: round(share, 3) for name, share in shares.items()} == {
        "mx-int8": 0.531, "mx-e5m2": 0.531, "mx-e4m3": 0.531, "mx-e3m2": 0.531, "mx-e2m3": 0.365, "mx-e2m1": 0.281,
        "nvfp4": 0.312, "fp8-e5m2": 0.516, "fp8-e4m3": 0.516, "lanes-16": 0.516,
    }


@pytest.mark.parametrize(("name", "limit"), [("mx-int8", 258), ("mx-e4m3", 2340), ("mx-e5m2", 4681), ("nvfp4", 10922)])
def test_workers_beyond_the_room_are_refused(name, limit):
    codec = codecs.named(name)
    codec.element(limit)
    with pytest.raises(ValueError, match=f"codec {name}: {limit + 1} workers, expected at most {limit}: sums of .* 16 bits"):
        next(codec.reduce(np.ones(64, np.float32), codecs.Call(limit + 1)))


def test_float16s_of_16_bits_are_finer_than_formats_of_16_bits():
    """A switch that adds up needs room for a format's range: in as many words, whole numbers are nearer than fp8's elements."""
    own = [values(1 << 14, rank, 0.3) for rank in range(8)]
    exact = np.sum(own, axis=0, dtype=np.float64)
    missed = {name: np.sum((codecs.reduced(codecs.named(name), own)[0] - exact) ** 2) / np.sum(exact**2)
              for name in ("lanes-16", "fp8-e4m3", "fp8-e5m2", "mx-e4m3", "mx-e2m1")}
    assert missed["lanes-16"] < missed["mx-e4m3"] / 100 and missed["mx-e4m3"] < missed["fp8-e5m2"] < missed["mx-e2m1"] < 0.02
