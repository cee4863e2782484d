"""The key `check` of experiments, and what `ina why` tells of frames that failed a check."""

from __future__ import annotations

import pytest

from ina.aggregation.worker import WorkerConfig
from ina.base.settings import ConfigError
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.kinds.sharing import Sharing
from ina.lab.results.why import spoilt

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(("keys", "check"), [
    ({}, "sum"), ({"check": "off"}, "off"), ({"payload": False}, "off"), ({"protocol": "atp"}, "sum"),
])
def test_check_words_are_the_protocols_default(keys, check):
    assert AllReduce(**keys).resolved().check == check


@pytest.mark.parametrize(("kind", "keys", "text"), [
    (AllReduce, {"check": "maybe"}, "check = 'maybe': expected"),
    (AllReduce, {"check": "sum", "payload": False}, "expected off with payload = false"),
    (Sharing, {"check": "sum", "payload": False}, "expected off with payload = false"),
])
def test_what_cannot_be_checked_is_refused(kind, keys, text):
    with pytest.raises(ConfigError, match=text):
        kind(**keys).validate()


def test_a_worker_is_told_once_how_to_make_check_words():
    assert WorkerConfig(0, 1, life=1, check="off").to_c().option[1] == 0
    with pytest.raises(ValueError, match="check: 'off', and again as an option: 1"):
        WorkerConfig(0, 1, life=1, check="off", options={"check": 1})
    with pytest.raises(ValueError, match="check: 'maybe': the protocol 'switchml' has off, sum"):
        WorkerConfig(0, 1, life=1, check="maybe")


def test_spoilt_frames_are_named():
    assert spoilt({"stats": {"workers": {"drop_corrupt": 3, "drop_version": 0, "refusals": 1}}}) == [
        "3 frames did not fit the checksum or check words: something on the way changes bits",
        "1 packet refused by a switch of another wire version",
    ]
    assert spoilt({}) == []
