"""Tensors of 16-bit floats in sums by a codec: as they are where it names their type, else as float32."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ina.backend import coded  # noqa: E402
from ina.codecs import Call, Codec, Operation, Round, Traffic, named  # noqa: E402
from ina.codecs.halves import narrowed  # noqa: E402

pytestmark = pytest.mark.fast


class Bits(Codec):
    """The sum of bfloat16's bits as integers: a codec that takes nothing else."""

    name, dtypes = "bits", ("bfloat16",)

    def reduce(self, values, call):
        assert values.dtype == np.uint16
        total = yield Round(values.astype(np.int32), Operation.ADD)
        return total.astype(np.uint16)

    def bound(self, tensors, average=False):
        return np.full(tensors[0].shape, np.inf)

    def traffic(self, elements, workers):
        return Traffic(4 * elements, 4 * elements)


def summed(codec, tensors, factor=None) -> list[torch.Tensor]:
    """The ranks' results, with the switch played by NumPy."""
    results = [torch.empty_like(tensor) for tensor in tensors]
    ranks = [coded.reduction(tensor, result, codec, Call(len(tensors), rank), factor)[0]
             for rank, (tensor, result) in enumerate(zip(tensors, results, strict=True))]
    going = True
    while going:
        buffers = [rank.begin().numpy() for rank in ranks]
        total = np.max(buffers, axis=0) if ranks[0].reduction == Operation.MAXIMUM else np.sum(buffers, axis=0, dtype=np.int32)
        for buffer in buffers:
            buffer[:] = total
        going = not [rank.end() for rank in ranks][0]
    return results


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("factor", [None, 0.3])
def test_lanes_have_the_sums_of_float32_rounded_to_the_type(dtype, factor):
    generator = torch.Generator().manual_seed(1)
    own = [torch.randn(1000, generator=generator).to(dtype) for _ in range(3)]
    wide = summed(named("lanes-16"), [each.float() for each in own], factor)
    for result, exact in zip(summed(named("lanes-16"), own, factor), wide, strict=True):
        assert torch.equal(result, exact.to(dtype))


def test_a_codec_of_one_type_gets_that_type_and_no_other():
    assert [coded.travels(dtype, Bits()) for dtype in (torch.bfloat16, torch.float16, torch.float32)] == [True, False, False]
    own = [torch.tensor([1.0, -2.0, 0.5]).to(torch.bfloat16), torch.zeros(3, dtype=torch.bfloat16)]
    assert summed(Bits(), own)[1].tolist() == [1.0, -2.0, 0.5]
    doubled = summed(Bits(), own, 2.0)[0].view(torch.uint16).numpy()
    assert np.array_equal(doubled, narrowed(np.float32([2.0, -4.0, 1.0]), doubled.dtype))
