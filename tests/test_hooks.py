"""The hook that chooses for each bucket: what it does with a choice, without ranks."""

import pytest

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ina.backend.hooks import Choice, per_bucket  # noqa: E402


class Bucket:
    def __init__(self):
        self.gradients = torch.tensor([1.0, 2.0, 1 / 3])

    def buffer(self):
        return self.gradients

    def index(self):
        return 7


@pytest.fixture
def sent(monkeypatch):
    """What was all-reduced, as (tensor, group); the average of one rank is its own."""
    seen = []

    class Done:
        def get_future(self):
            future = torch.futures.Future()
            future.set_result([seen[-1][0]])
            return future

    def all_reduce(tensor, op, group, async_op):
        assert op == torch.distributed.ReduceOp.AVG and async_op
        seen.append((tensor, group))
        return Done()

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    return seen


def test_the_gradients_travel_as_chosen(sent):
    bucket = Bucket()
    assert per_bucket(lambda b: Choice(), bucket).wait() is bucket.gradients and sent[-1] == (bucket.gradients, None)
    for codec in ("float16", "bfloat16"):
        bucket, group = Bucket(), object()
        rounded = bucket.gradients.to(getattr(torch, codec)).float()
        result = per_bucket(lambda b, c=codec, g=group: Choice(c, g), bucket).wait()
        assert sent[-1][0].dtype == getattr(torch, codec) and sent[-1][1] is group
        assert result is bucket.gradients and torch.equal(result, rounded)


def test_wrong_choices(sent):
    with pytest.raises(ValueError, match="codec 'int3': expected one of float32, float16, bfloat16"):
        Choice("int3")
    with pytest.raises(TypeError, match="bucket 7: the chooser gave None"):
        per_bucket(lambda b: None, Bucket())
    assert not sent
