"""The pole on a cart: its motion against equations of motion, gradients against differences, and that it can be balanced."""

import math

import numpy as np
import pytest

from ina.lab.virtual.balancing import ENTROPY, STEPS, VALUE, Balancing, Poles, moved

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("seed", range(5))
def test_motion_obeys_newton(seed):
    """The accelerations of a tick solve the two equations of motion of a cart with a uniform rod on it (Lagrange's)."""
    state, force = np.random.default_rng(seed).normal(size=(1, 4)), 10.0 * (-1) ** seed
    after = moved(state, np.array([force]))[0]
    (place, speed, angle, turn), (push, faster) = state[0], ((after - state[0]) / 0.02)[[1, 3]]
    assert after[0] == pytest.approx(place + 0.02 * speed) and after[2] == pytest.approx(angle + 0.02 * turn)
    cart, pole, half = 1.0, 0.1, 0.5
    assert (cart + pole) * push + pole * half * (faster * math.cos(angle) - turn**2 * math.sin(angle)) == pytest.approx(force)
    assert 4 / 3 * half * faster + push * math.cos(angle) == pytest.approx(9.8 * math.sin(angle))


def test_an_episode_ends_when_the_pole_falls_the_cart_is_off_or_all_steps_are_made():
    poles = Poles(3, np.random.default_rng(0))
    poles.state[:] = [[0, 0, 0.3, 0], [2.5, 0, 0, 0], [0, 0, 0, 0]]
    poles.ages[:] = [0, 0, STEPS - 1]
    failed, whole, last = poles.push(np.array([True, False, True]))
    assert failed.tolist() == [True, True, False] and whole.tolist() == [False, False, True]
    assert last[1, 0] == 2.5 and np.all(np.abs(poles.state) <= 0.05) and not poles.ages.any()
    assert not np.any(poles.push(np.ones(3, bool))[0]) and poles.ages.tolist() == [1, 1, 1]


def test_gradients_are_slopes_of_the_loss():
    task, rng = Balancing(1, 3, 1), np.random.default_rng(2)
    parameters = (task.initial() + 0.1).astype(np.float32)
    state, right, goal = rng.normal(size=(5, 4)) / 5, np.array([0, 1, 1, 0, 1]), rng.normal(size=5)
    known = task._forward(parameters, state)[1][:, 2]

    def loss(parameters):
        """Returns the loss from its definition, pair by pair; the advantage is that of the unmoved parameters."""
        total = 0.0
        outs = task._forward(parameters, state)[1]
        for (left, other, value), side, end, constant in zip(outs, right, goal, known, strict=True):
            likely = math.exp(other) / (math.exp(left) + math.exp(other))
            chosen = likely if side else 1 - likely
            entropy = -likely * math.log(likely) - (1 - likely) * math.log(1 - likely)
            total += -(end - constant) * math.log(chosen) - ENTROPY * entropy + VALUE * (end - value) ** 2 / 2
        return total / len(right)

    gradient = task._slope(parameters, state, right, goal)
    for number in range(task.parameters):
        step = np.zeros(task.parameters)
        step[number] = 1e-5
        assert gradient[number] == pytest.approx((loss(parameters + step) - loss(parameters - step)) / 2e-5, rel=1e-3, abs=1e-6)


def test_a_pole_can_be_balanced_but_not_at_once():
    task, rng = Balancing(1, 16, 1), np.random.default_rng(1)
    parameters = task.initial()
    before = task.score(parameters)
    for _ in range(150):
        parameters = parameters - task.update(parameters, 0, rng, 64, 0.2, 1)
    assert before < 0.5 and task.score(parameters) > 0.9 and parameters.dtype == np.float32


def test_a_worker_keeps_its_poles_and_draws_nothing_for_others():
    """Two updates are those of one pair of poles, from the same generator."""
    task, rng, other = Balancing(1, 4, 1), np.random.default_rng(3), np.random.default_rng(3)
    parameters, poles = task.initial(), Poles(2, other)
    for _ in range(3):
        expected = np.float32(0.1) * task._gradient(parameters, poles, other)
        assert np.allclose(task.update(parameters, 0, rng, 16, 0.1, 1), expected, atol=1e-6)
        assert rng.bit_generator.state == other.bit_generator.state, "nothing is drawn for poles that nobody has"


@pytest.mark.parametrize("batch", [0, 7, 12])
def test_a_batch_that_is_no_whole_number_of_pushes_for_each_pole_is_refused(batch):
    with pytest.raises(ValueError, match=f"batch = {batch}: expected a multiple of 8"):
        Balancing(1, 4, 1).update(np.zeros(35, np.float32), 0, np.random.default_rng(0), batch, 0.1, 1)


def test_another_number_of_poles_is_refused():
    task, rng = Balancing(1, 4, 1), np.random.default_rng(0)
    task.update(task.initial(), 0, rng, 16, 0.1, 1)
    with pytest.raises(ValueError, match="batch = 24: expected 16, as before"):
        task.update(task.initial(), 0, rng, 24, 0.1, 1)
