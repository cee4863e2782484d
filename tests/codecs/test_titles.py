"""Titles of codecs, in which all workers must agree: name and parameters."""

import pytest

from ina import codecs
from ina.codecs.quantised import Qsgd

pytestmark = pytest.mark.fast


def test_parameters_are_in_a_codecs_title():
    assert codecs.named("exact").title == "exact"
    assert codecs.Thc().title == codecs.Thc(4, outside=1 / 32).title != codecs.Thc(outside=1 / 64).title
    assert Qsgd(levels=100).title == Qsgd(100).title != Qsgd(101).title
