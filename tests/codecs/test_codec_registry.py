"""Codecs by name, and a codec of one's own."""

import re

import numpy as np
import pytest

from ina import codecs
from ina.base import paths
from ina.codecs import registry

pytestmark = pytest.mark.fast


class Halves(codecs.Codec):
    name = "halves"

    def reduce(self, values, call):
        total = yield codecs.Round((2 * values).round().astype(np.int32))
        return total.astype(np.float32) / np.float32(2 * call.divisor)

    def bound(self, tensors, average=False):
        return np.full(tensors[0].shape, len(tensors) / 4)

    def traffic(self, elements, workers):
        return codecs.Traffic(4 * elements, 4 * elements)


class Entry:
    def __init__(self, name, thing):
        self.name, self._thing = name, thing

    def load(self):
        return self._thing


class Entries(list):
    @property
    def names(self):
        return {entry.name for entry in self}


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()


def test_a_codec_of_ones_own_is_there_by_name(registered):
    codecs.register("halves", Halves)
    assert "halves" in codecs.names()
    own = [np.array([0.5, 1.26], np.float32), np.array([1.0, -3.0], np.float32)]
    assert codecs.reduced(codecs.named("halves"), own)[1].tolist() == [1.5, -1.5]
    with pytest.raises(ValueError, match="expected a new name"):
        codecs.register("exact", Halves)


def test_codecs_of_installed_packages_are_there_by_name(registered, monkeypatch):
    monkeypatch.setattr(registry, "entry_points", lambda group: Entries([Entry("halves", Halves), Entry("wrong", dict)]))
    assert codecs.names()[-2:] == ("halves", "wrong")
    assert isinstance(codecs.named("halves"), Halves)
    with pytest.raises(ValueError, match="expected an ina.codecs.Codec"):
        codecs.named("wrong")


def test_an_unknown_codec_is_an_error_that_names_all():
    known = ", ".join(codecs.names())
    assert known.startswith("block, ")
    with pytest.raises(ValueError, match=f"codec 'zip': expected one of {known}"):
        codecs.named("zip")
    with pytest.raises(ValueError, match="codec 'bf16': expected one of .*; 'lanes-16' sums bfloat16 and float16 in 16 bits$"):
        codecs.named("bf16")


def test_workers_that_differ_in_a_round_are_an_error():
    with pytest.raises(ValueError, match="differ in a round"):
        codecs.reduced(Halves(), [np.ones(2, np.float32), np.ones(3, np.float32)])


def test_the_guide_says_what_each_codec_is_summed_in():
    guide = (paths.root() / "docs/guide/codecs.md").read_text()
    rows = re.findall(r"^\| ([^|`]+) \| ((?:`[a-z0-9-]+`(?:, )?)+) \|$", guide, re.M)
    summed_in = {name.strip("`"): summed for summed, names in rows for name in names.split(", ")}
    assert summed_in == {name: codecs.named(name).accumulator for name in codecs.names()}
