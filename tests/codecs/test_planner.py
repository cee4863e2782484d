"""The choice of a way by costs: pure functions of figures that all ranks have agreed on."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ina.codecs import planner, registry
from ina.codecs.costs import Cost
from ina.codecs.limbs import Exact
from ina.codecs.planner import DEFAULT, GAIN, GLOO, Link, estimates, propose, settle

pytestmark = pytest.mark.fast
ELEMENTS = 1_000_000
COSTS = {  # seconds of the codec, bytes, rounds: of the order of those measured
    "thc": Cost(8e-3, ELEMENTS, ELEMENTS, 2),
    "thc-lookup": Cost(12e-3, ELEMENTS // 2, ELEMENTS, 2),
    "lanes-16": Cost(6e-3, 2 * ELEMENTS, 2 * ELEMENTS, 2),
}


def way(rate, costs=COSTS, workers=4, latency=20e-6):
    return propose(ELEMENTS, workers, costs, Link(rate, latency, 1.05))


def test_compression_pays_on_slow_links_and_not_on_fast_ones():
    assert way(100e6).way == "thc"
    assert way(1e9).way == "thc"
    assert [way(rate).way for rate in (10e9, 25e9, 100e9)] == [DEFAULT] * 3
    assert "no codec pays: lanes-16 takes 6 ms" in way(25e9).reason
    assert "pays for its 8 ms" in way(100e6).reason and "100 Mb/s" in way(100e6).reason


def test_the_cheaper_codec_wins_where_the_link_is_in_between():
    costs = {"thc": Cost(8e-3, ELEMENTS, ELEMENTS, 2), "quick": Cost(1e-3, 2 * ELEMENTS, 2 * ELEMENTS, 2)}
    assert way(0.5e9, costs).way == "thc" and way(2e9, costs).way == "quick"


def test_the_larger_direction_counts_and_so_do_rounds_and_fan_in():
    seconds = estimates(ELEMENTS, 4, COSTS, Link(1e9, 1e-3))
    assert seconds["thc-lookup"] == pytest.approx(12e-3 + 8e-3 + 2e-3)
    assert seconds[DEFAULT] == pytest.approx(32e-3 + 1e-3)
    assert seconds[GLOO] == pytest.approx(48e-3 + 6e-3)
    assert estimates(ELEMENTS, 16, COSTS, Link(1e9, 1e-3))[GLOO] > 1.2 * seconds[GLOO]


def test_latency_decides_for_small_tensors():
    costs = {"thc": Cost(1e-5, 250, 250, 2)}
    assert propose(1000, 4, costs, Link(1e9, 1e-3)).way == DEFAULT, "two rounds of 1 ms for 32 us less on the link"
    assert propose(1000, 4, costs, Link(1e9, 1e-6)).way == "thc"


def test_gloo_and_the_best_codec_are_tried_beside_the_uncompressed_sum():
    assert list(way(100e6).seconds) == [DEFAULT, GLOO, "thc"]
    assert list(way(100e9).seconds) == [DEFAULT, GLOO]
    assert list(way(100e6, {}).seconds) == [DEFAULT, GLOO]


def test_measured_times_have_the_last_word():
    proposal = way(100e6)
    assert settle(proposal, {DEFAULT: 1.0, GLOO: 0.8, "thc": 0.5}).way == "thc"
    other = settle(proposal, {DEFAULT: 1.0, GLOO: 0.8, "thc": 1.5})
    assert other.way == GLOO and other.reason.startswith("gloo: measured: gloo 800 ms, block 1e+03 ms, thc 1.5e+03 ms; estimated")
    assert settle(proposal, {DEFAULT: 1.0, GLOO: 0.96, "thc": 0.97}).way == DEFAULT, "a gain of less than 5 % is none"
    assert "pays for its 8 ms" in settle(proposal, {DEFAULT: 1.0, GLOO: 0.8, "thc": 0.5}).reason


patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
seconds = st.floats(1e-7, 10)
sizes = st.integers(0, 4 * ELEMENTS)
tables = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.builds(Cost, seconds, sizes, sizes, st.integers(1, 8)))
links = st.builds(Link, st.floats(1e5, 1e13), st.floats(0, 1), st.floats(1, 2))


@patient
@given(tables, links, st.integers(1, 2 * ELEMENTS), st.integers(2, 1024))
def test_no_choice_is_estimated_slower_than_the_uncompressed_sum(costs, link, elements, workers):
    plan = propose(elements, workers, costs, link)
    every = estimates(elements, workers, costs, link)
    assert every[plan.way] <= every[DEFAULT]
    assert plan.way == DEFAULT or every[plan.way] <= (1 - GAIN) * every[DEFAULT]
    assert every[plan.way] <= min(every.values()) / (1 - GAIN) * (1 + 1e-12), "nor is much left on the table"
    assert plan == propose(elements, workers, dict(reversed(costs.items())), link), "in whatever order a rank has the codecs"


@patient
@given(st.dictionaries(st.sampled_from(["thc", GLOO]), seconds), seconds)
def test_no_decision_was_measured_slower_than_the_uncompressed_sum(others, base):
    measured = {DEFAULT: base, **others}
    assert measured[settle(way(100e6), measured).way] <= base


def test_a_link_that_is_measured_has_the_time_of_the_sum_that_was_measured():
    link = Link.measured(4 * ELEMENTS, 0.5, 1e-3)
    assert estimates(ELEMENTS, 4, {}, link)[DEFAULT] == pytest.approx(0.5)
    assert Link.measured(4, 1e-4, 2e-4).rate > 0, "noise may make a small round slower than the sum"


def test_only_harmless_codecs_are_chosen_from_unless_others_are_named():
    assert {"block-64", "block-256", "omnireduce", "two-limb", "exact"} <= set(planner.harmless(256))
    assert not {"lanes-16", "thc", "thc-lookup", "omnireduce-ahead", "sketch", DEFAULT} & set(planner.harmless(2048))
    assert {"block-32", "two-limb", "exact"} <= set(planner.harmless(32))
    assert not {"block-64", "block-256", "omnireduce"} & set(planner.harmless(32)), "packets have an exponent for fewer values"
    assert planner.allowed("auto") == planner.harmless()
    assert planner.allowed("auto:thc,lanes-16") == (*planner.harmless(), "thc", "lanes-16")
    assert planner.allowed("thc") is None and planner.allowed("automatic") is None
    assert planner.allowed("auto", 256) == planner.harmless(256)
    for text in ("auto:", "auto:zip", "auto:thc,"):
        with pytest.raises(ValueError, match=r"auto.*expected some of block"):
            planner.allowed(text)


def test_codecs_that_cannot_be_smaller_are_not_measured():
    assert planner.worth_measuring((DEFAULT, "lanes-16", "thc"), ELEMENTS, 4) == ("lanes-16", "thc")
    assert planner.worth_measuring(("lanes-16",), 1, 4) == (), "a scale and a word for one value"
    assert planner.worth_measuring(("two-limb",), ELEMENTS, 4) == ("two-limb",), "its bytes depend on the values"
    assert planner.worth_measuring(("thc-lookup",), ELEMENTS, 9) == (), "no room for nine workers"


def test_a_codec_that_fails_is_not_chosen_from(monkeypatch):
    class Failing(Exact):
        name = "failing"

        def bound(self, tensors, average=False):
            raise ValueError("two workers only")

    monkeypatch.setattr(registry, "_REGISTERED", {"failing": Failing})
    planner.harmless.cache_clear()
    with pytest.warns(UserWarning, match="leaves out failing: ValueError: two workers only"):
        assert "failing" not in planner.harmless()
    planner.harmless.cache_clear()
