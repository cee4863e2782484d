"""Counts in messages: a noun for one, and for any other number."""

import pytest

from ina.base.plurals import counted

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("number, text", [(0, "0 workers"), (1, "1 worker"), (2, "2 workers"), (1200, "1,200 workers")])
def test_a_noun_takes_an_s_for_any_number_but_one(number, text):
    assert counted(number, "worker") == text


def test_another_plural_is_named():
    assert [counted(n, "switch", "switches") for n in (1, 2)] == ["1 switch", "2 switches"]
