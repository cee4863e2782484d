"""Costs of codecs: measured once, kept in the cache's folder; bytes that depend on the values."""

from types import SimpleNamespace

import numpy as np
import pytest

from ina.codecs import costs, named
from ina.codecs.memory import reduced

pytestmark = pytest.mark.fast


@pytest.fixture
def measurements(monkeypatch, tmp_path):
    """Sizes that were measured, each said to take 8 s."""
    calls = []
    monkeypatch.setenv("INA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(costs, "_measured", lambda name, size, workers: calls.append((name, size, workers)) or 8.0)
    return calls


def test_seconds_are_measured_once_for_a_codec_a_size_and_a_number_of_workers(measurements):
    assert costs.seconds("thc", 3000, 4) == 8.0 * 3000 / 4096
    assert costs.seconds("thc", 4096, 4) == 8.0
    assert measurements == [("thc", 4096, 4)]
    costs.seconds("lanes-16", 3000, 4)
    costs.seconds("thc", 3000, 2)
    costs.seconds("thc", 5000, 4)
    assert len(measurements) == 4
    assert costs.seconds("thc", 1 << 20, 64) == 8.0 * 4 and measurements[-1] == ("thc", costs.MOST, costs.WORKERS)


def test_a_spoilt_file_is_measured_again(measurements):
    costs.seconds("thc", 3000, 4)
    costs._path().write_bytes(costs._path().read_bytes().replace(b"8.0", b"0.1"))
    assert costs.seconds("thc", 4096, 4) == 8.0 and len(measurements) == 2


def test_another_compiled_part_is_another_file(measurements, monkeypatch):
    before = costs._path()
    monkeypatch.setattr(costs, "ffi", SimpleNamespace(string=lambda _: b"other sources"))
    assert costs._path() != before


def test_a_measurement_gives_seconds_of_the_codec_and_its_results_are_the_codec_s():
    assert 0 < costs._measured("lanes-16", 1024, 2) < 60
    tensors = [np.arange(200, dtype=np.float32) + rank for rank in range(3)]
    watched = [costs.Watched(named("lanes-16")) for _ in tensors]
    assert np.array_equal(reduced(watched, tensors)[0], reduced(named("lanes-16"), tensors)[0])
    assert 4 * watched[0].words == named("lanes-16").traffic(200, 3).up and watched[0].seconds > 0


def test_bytes_are_those_stated_or_where_they_depend_on_values_those_sent(measurements):
    values = np.zeros(6400, np.float32)
    thc = costs.cost("thc-lookup", values, 4)
    assert (thc.up, thc.down, thc.rounds) == (4 * 3 + 3200, 4 * 3 + 6400, 2)
    sparse, dense = costs.cost("two-limb", values, 4), costs.cost("two-limb", values + 1.1, 4)
    assert sparse.up < 0.1 * 4 * 6400 < dense.up, "digits of zeros do not travel"
    with pytest.raises(ValueError, match="9 workers"):
        costs.cost("thc-lookup", values, 9)
