"""The hook that chooses for each bucket: its handling of a choice, without ranks."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the back end needs torch")

from ina.backend.hooks import Choice, per_bucket  # noqa: E402

pytestmark = pytest.mark.fast
OPS = torch.distributed.ReduceOp


class Bucket:
    def __init__(self):
        self.gradients = torch.tensor([1.0, 2.0, 1 / 3])

    def buffer(self):
        return self.gradients

    def index(self):
        return 7


@pytest.fixture
def sent(monkeypatch):
    """All-reduces, as (tensor, group); the average of one rank is its own tensor."""
    calls, ops = [], []

    class Done:
        def get_future(self):
            future = torch.futures.Future()
            future.set_result([calls[-1][0]])
            return future

    def all_reduce(tensor, op, group, async_op):
        assert async_op
        ops.append(op)
        calls.append((tensor, group))
        return Done()

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group: 1)
    yield calls
    assert set(ops) <= {OPS.AVG} or set(ops) == {OPS.SUM}, "a codec of one's own gets the sum, the others average"


def test_the_gradients_travel_as_chosen(sent):
    bucket = Bucket()
    assert per_bucket(lambda b: Choice(), bucket).wait() is bucket.gradients and sent[-1] == (bucket.gradients, None)
    for codec in ("float16", "bfloat16"):
        bucket, group = Bucket(), object()
        rounded = bucket.gradients.to(getattr(torch, codec)).float()
        result = per_bucket(lambda b, c=codec, g=group: Choice(c, g), bucket).wait()
        assert sent[-1][0].dtype == getattr(torch, codec) and sent[-1][1] is group
        assert result is bucket.gradients and torch.equal(result, rounded)


def test_a_codec_of_ones_own_says_what_travels_and_what_its_sum_means(sent):
    class Halves:
        def encode(self, gradients, ranks):
            return (2 * gradients).round().to(torch.int32).reshape(1, -1)

        def decode(self, total, ranks):
            return total.flatten().float() / 2 / ranks

    bucket = Bucket()
    result = per_bucket(lambda b: Choice(Halves()), bucket).wait()
    assert sent[-1][0].dtype == torch.int32 and sent[-1][0].tolist() == [[2, 4, 1]]
    assert result is bucket.gradients and result.tolist() == [1.0, 2.0, 0.5]


def test_a_codec_that_loses_the_shape_is_an_error(sent):
    class Sums:
        def encode(self, gradients, ranks):
            return gradients

        def decode(self, total, ranks):
            return total.sum()

    with pytest.raises(RuntimeError, match=r"bucket 7: .*Sums.* decoded a tensor of shape \(\), expected \(3,\)"):
        per_bucket(lambda b: Choice(Sums()), Bucket()).wait()


def test_wrong_choices(sent):
    for codec in ("int3", object(), None):
        with pytest.raises(ValueError, match="codec .*: expected one of float32, .*lanes-16, .*, or an object with encode"):
            Choice(codec)
    with pytest.raises(TypeError, match="bucket 7: the chooser gave None"):
        per_bucket(lambda b: None, Bucket())
    assert not sent


def test_what_a_codec_remembers_belongs_to_the_buckets_parameters_in_their_order():
    codecs_of_calls = []

    class Group:
        def allreduce_coded(self, gradients, codec, average, step):
            codecs_of_calls.append((codec, step))
            work = torch.futures.Future()
            work.set_result([gradients])
            return SimpleNamespace(get_future=lambda: work)

    class Of(Bucket):
        def __init__(self, *parameters):
            super().__init__()
            self.of = parameters

        def parameters(self):
            return list(self.of)

    a, b, c = (torch.nn.Parameter(torch.zeros(1)) for _ in range(3))
    for parameters in ((a, b), (a, b), (a, c), (a, c), (b, a), (a, c, b)):  # as many values in the first five
        per_bucket(lambda _: Choice("topk", Group()), Of(*parameters)).wait()
    objects, steps = zip(*codecs_of_calls, strict=True)
    assert objects[0] is objects[1] and objects[2] is objects[3] and len(set(map(id, objects))) == 4
    assert steps == (0, 1, 0, 1, 0, 0)
