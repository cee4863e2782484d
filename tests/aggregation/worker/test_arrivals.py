"""Number of contributors that are enough, chosen from times: against closed forms of drawn ones, and for steady ones."""

import random
from collections import Counter
from collections.abc import Callable
from statistics import mean

import pytest

from ina.aggregation.worker.arrivals import BLOCK, TRIAL, Arrivals

pytestmark = pytest.mark.fast

WORKERS, AHEAD = 8, 3
Draw = Callable[[random.Random, int, int], float]  # seconds that a worker computes for a sum


def chosen(draw: Draw, sums: int, least: int = 1, seed: int = 1) -> tuple[list[int], float]:
    """Returns the numbers that are chosen, each ``AHEAD`` sums before, and contributions in a second."""
    arrivals, rng, time = Arrivals(WORKERS, least), random.Random(seed), 0.0
    numbers = [arrivals.enough(number) for number in range(AHEAD)]
    for number in range(sums):
        time += sorted(draw(rng, worker, number) for worker in range(WORKERS))[numbers[number] - 1]
        arrivals.observe(numbers[number], time)
        numbers.append(arrivals.enough(number + AHEAD))
    return numbers[:sums], sum(numbers[:sums]) / time


def first(enough: int) -> float:
    """Expected time until so many of the workers are ready, of exponential times, in means of one: H_n - H_(n-k)."""
    return sum(1 / busy for busy in range(WORKERS - enough + 1, WORKERS + 1))


def trials(sums: int, least: int = 1) -> set[int]:
    """Returns the sums in which a number is tried, whatever the times are."""
    numbers = WORKERS - least + 1
    return {number for number in range(sums)
            if number // BLOCK < numbers or (number // BLOCK - numbers) % TRIAL == TRIAL - 1}


@pytest.mark.parametrize("cost", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_exponential_times_on_top_of_an_equal_cost(cost, seed):
    """The most contributions in a second are the maximum over k of k / (cost + H_n - H_(n-k)): 4, 6 and 7 of 8."""
    rates = {number: number / (cost + first(number)) for number in range(1, WORKERS + 1)}
    best = max(rates.values())
    numbers, rate = chosen(lambda rng, *_: cost + rng.expovariate(1), 3000, seed=seed)
    most = Counter(number for at, number in enumerate(numbers) if at not in trials(3000)).most_common(1)[0][0]
    assert rates[most] > 0.95 * best, "what it chooses most often is as good as the best"
    assert rates[WORKERS] < rate and 0.92 * best < rate < 1.03 * best


def test_estimates_are_the_expected_times():
    arrivals, rng, time = Arrivals(WORKERS, 6), random.Random(3), 0.0
    for number in (6, 7, 8):
        for _ in range(84):
            time += sorted(rng.expovariate(1) for _ in range(WORKERS))[number - 1]
            arrivals.observe(number, time)
    assert arrivals.seconds() == pytest.approx({number: first(number) for number in (6, 7, 8)}, rel=0.12)


def test_all_are_waited_for_where_all_take_as_long():
    numbers, rate = chosen(lambda *_: 1.0, 1000)
    assert {number for at, number in enumerate(numbers) if at not in trials(1000)} == {WORKERS}
    assert rate == pytest.approx(mean(numbers)), "and what it tries costs no time"


def test_one_slow_worker_is_not_waited_for_and_is_again_when_it_is_as_fast_as_the_others():
    numbers, _ = chosen(lambda _, worker, number: 3.0 if worker == 0 and number < 1000 else 1.0, 2000)
    chosen_then, chosen_now = ({numbers[at] for at in range(*part) if at not in trials(2000)}
                               for part in ((100, 1000), (1500, 2000)))
    assert chosen_then == {WORKERS - 1} and chosen_now == {WORKERS}


def test_no_number_below_the_least_is_chosen_and_each_other_one_is_tried_again_and_again():
    numbers, _ = chosen(lambda rng, *_: rng.expovariate(1), 1000, least=5)
    assert {*numbers} == {5, 6, 7, 8} and numbers[:4 * BLOCK:BLOCK] == [8, 7, 6, 5]
    assert Counter(numbers).most_common(1)[0][0] == 5, "times without memory: fewer are always better"


def test_workers_that_see_the_same_sums_choose_alike_each_by_its_own_clock():
    rng, time = random.Random(5), 0.0
    one, other = Arrivals(WORKERS), Arrivals(WORKERS)
    same = 0
    for number in range(1000):
        same += one.enough(number) == other.enough(number)
        enough = one.enough(number)
        time += 0.5 + sorted(rng.expovariate(1) for _ in range(WORKERS))[enough - 1]
        one.observe(enough, time)
        other.observe(enough, 1000 + time + 1e-5 * rng.random())
    assert same > 990


def test_a_sum_counts_if_the_one_before_had_as_many_contributors():
    arrivals = Arrivals(8, 2)
    for contributors, time in [(8, 100.0), (8, 101.0), (4, 101.1), (4, 101.5), (1, 102.0), (1, 103.0), (8, 110.0)]:
        arrivals.observe(contributors, time)
    assert arrivals.seconds() == pytest.approx({8: 1.0, 4: 0.4}), "those of fewer than the least do not"
    assert arrivals.best() == 4


def test_more_contributors_are_never_taken_to_come_earlier():
    arrivals, time = Arrivals(3), 0.0
    for contributors, seconds in [(2, 9.0), (2, 3.0), (3, 9.0), (3, 1.0)]:
        time += seconds
        arrivals.observe(contributors, time)
    assert arrivals.seconds() == pytest.approx({2: 2.0, 3: 2.0}) and arrivals.best() == 3


@pytest.mark.parametrize("least", [0, 9])
def test_a_least_number_that_cannot_be_is_refused(least):
    with pytest.raises(ValueError, match=rf"least = {least}, expected 1\.\.8"):
        Arrivals(8, least)
