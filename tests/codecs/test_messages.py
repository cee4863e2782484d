"""Messages in a codec from one worker to another: what is read is what the writer's sum would be."""

import numpy as np
import pytest

from ina import codecs
from ina.codecs import PowerSgd
from ina.codecs.codec import OWN

pytestmark = pytest.mark.fast
SIZES = (1, 2, 63, 1000, 5000)


def fixed(name: str) -> bool:
    """Tells whether the codec's messages have one size, from what it says itself."""
    codec = codecs.named(name)
    return OWN not in codec.operations and codec.traffic(5000, 1).exact and name != "intsgd"


FIXED = [name for name in codecs.names() if fixed(name)]


def values(size: int, step: int) -> np.ndarray:
    random = np.random.default_rng([size, step])
    return (random.standard_normal(size) * (random.random(size) < 0.7)).astype(np.float32)


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("size", SIZES)
def test_what_is_read_is_the_sum_of_one_worker(name, size):
    writer, reader, judge = (codecs.named(name) for _ in range(3))
    for step in range(6):
        sent = values(size, step)
        before = sent.copy()
        message = codecs.write(writer, sent, step)
        assert np.array_equal(sent, before) and message.dtype == np.uint8
        assert message.size == codecs.message_bytes(reader, size) == 4 + judge.traffic(size, 1).up
        expected = codecs.reduced(judge, [sent], step=step)[0]
        assert np.array_equal(codecs.read(reader, message, size, step).view(np.uint32), expected.view(np.uint32))


def test_there_are_many_such_codecs():
    assert {"block", "lanes-16", "mx-int8", "nvfp4", "thc", "qsgd-8", "sign", "topk", "dgc", "powersgd"} <= set(FIXED)


@pytest.mark.parametrize("name", ["powersgd", "topk", "dgc", "thc", "sign"])
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_nan_is_read_as_nan_and_the_next_message_is_right(name):
    writer, reader, judge = (codecs.named(name) for _ in range(3))
    for step in range(4):
        sent = values(1000, step)
        if step == 1:
            sent[10] = np.nan
        message = codecs.write(writer, sent, step)
        assert message.size == codecs.message_bytes(reader, 1000)
        expected = codecs.reduced(judge, [sent], step=step)[0]
        assert np.array_equal(codecs.read(reader, message, 1000, step), expected, equal_nan=True)
        assert np.isnan(expected).any() == (step == 1)


@pytest.mark.parametrize(("name", "reason"), [
    ("fpisa", "the program fpisa sums in its own way"), ("thc-lookup", "the program thc"), ("exact", "depends on the values"),
    ("omnireduce", "depends on the values"), ("sketch", "depends on the values")])
def test_codecs_without_messages_of_one_size_are_refused(name, reason):
    with pytest.raises(ValueError, match=reason):
        codecs.write(codecs.named(name), values(100, 0), 0)


def test_a_first_call_that_is_longer_is_refused():
    with pytest.raises(ValueError, match="codec intsgd: 20004 bytes in step 0, expected at most 5008 in each"):
        codecs.write(codecs.named("intsgd"), values(5000, 0), 0)


@pytest.mark.parametrize(("codec", "size", "step"), [(PowerSgd(5), 1000, 0), (PowerSgd(4), 1000, 1), (PowerSgd(4), 990, 0)])
def test_another_codec_step_or_size_is_refused(codec, size, step):
    message = codecs.write(PowerSgd(4), values(1000, 0), 0)
    with pytest.raises(ValueError, match="both sides need the same codec"):
        codecs.read(codec, message, size, step)


@pytest.mark.parametrize("cut", [slice(0, -1), slice(0, 3), slice(4, None)])
def test_a_part_of_a_message_is_refused(cut):
    message = codecs.write(codecs.named("thc"), values(1000, 0), 0)
    with pytest.raises(ValueError, match="was not written"):
        codecs.read(codecs.named("thc"), message[cut], 1000, 0)
