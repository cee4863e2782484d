"""A small task of reinforcement learning, in NumPy: a cart is pushed left or right so that the pole on it does not fall.

The cart-pole of Barto, Sutton and Anderson (IEEE Transactions on Systems, Man, and Cybernetics, 1983), and the advantage
actor-critic method: a network with one hidden layer says how likely a push to either side is, and how many steps are still to
come. Everything is of one seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

STEPS = 200  # after which an episode ends
ROLLOUT = 8  # steps that a pole makes for one gradient
GRAVITY, CART, POLE, HALF, FORCE, TICK = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02  # m/s^2, kg, kg, m of the pole, N, s
TRACK, ANGLE = 2.4, np.radians(12)  # m and rad from the middle, where it has failed
SCALE = np.array([1, 1, 10, 2])  # brings the state's four numbers to about one size
DISCOUNT, REWARD, VALUE, ENTROPY = 0.99, 0.1, 0.5, 0.01
JUDGED = 32  # episodes


class Poles:
    """Poles side by side. ``state``: float64 (n, 4): place, speed, angle, angular speed; ``ages``: steps of their episodes."""

    def __init__(self, count: int, rng: np.random.Generator):
        self._rng = rng
        self.state = rng.uniform(-0.05, 0.05, (count, 4))
        self.ages = np.zeros(count, int)

    def push(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pushes each cart for one tick, to the right or the left. Returns which have failed, which have made all steps of an
        episode, and the states before these begin anew."""
        self.state = moved(self.state, np.where(right, FORCE, -FORCE))
        self.ages += 1
        failed = (np.abs(self.state[:, 0]) > TRACK) | (np.abs(self.state[:, 2]) > ANGLE)
        whole, last = ~failed & (self.ages >= STEPS), self.state.copy()
        over = failed | whole
        self.state[over] = self._rng.uniform(-0.05, 0.05, (int(over.sum()), 4))
        self.ages[over] = 0
        return failed, whole, last


def moved(state: np.ndarray, force: np.ndarray) -> np.ndarray:
    """Returns the states one tick later: Euler's method with the speeds from before."""
    place, speed, angle, turn = state.T
    mass, sine, cosine = CART + POLE, np.sin(angle), np.cos(angle)
    pressed = (force + POLE * HALF * turn**2 * sine) / mass
    faster = (GRAVITY * sine - cosine * pressed) / (HALF * (4 / 3 - POLE * cosine**2 / mass))
    return state + TICK * np.stack([speed, pressed - POLE * HALF * faster * cosine / mass, turn, faster], axis=1)


@dataclass(frozen=True)
class Balancing:
    """The carts of ``workers`` workers."""

    workers: int
    hidden: int
    seed: int
    _poles: dict[int, Poles] = field(default_factory=dict, repr=False)

    @property
    def parameters(self) -> int:
        return 8 * self.hidden + 3

    @property
    def deep(self) -> int:
        """Number of the first parameter of deep layers: those behind the hidden one."""
        return 5 * self.hidden

    def initial(self) -> np.ndarray:
        """Returns the parameters that all workers begin with."""
        rng = np.random.default_rng((self.seed, 1))
        out = 0.1 * rng.standard_normal(3 * self.hidden) / np.sqrt(self.hidden)  # both sides are about as likely
        into = rng.standard_normal(4 * self.hidden) / 2
        return np.concatenate([into, np.zeros(self.hidden), out, np.zeros(3)]).astype(np.float32)

    def update(self, parameters: np.ndarray, worker: int, rng: np.random.Generator, batch: int, lr: float,
               steps: int) -> np.ndarray:
        """Returns by how much ``parameters`` fall in so many steps of SGD, each on the next ``batch`` pushes of a worker: ROLLOUT
        for each of its poles. Raises ValueError: not so many for each, or for other poles than before."""
        if batch % ROLLOUT or not batch:
            raise ValueError(f"batch = {batch}: expected a multiple of {ROLLOUT}, the pushes of a pole")
        if worker not in self._poles:
            self._poles[worker] = Poles(batch // ROLLOUT, rng)
        poles = self._poles[worker]
        if len(poles.ages) * ROLLOUT != batch:
            raise ValueError(f"batch = {batch}: expected {len(poles.ages) * ROLLOUT}, as before: a worker keeps its poles")
        now = parameters
        for _ in range(steps):
            now = now - np.float32(lr) * self._gradient(now, poles, rng)
        return parameters - now

    def score(self, parameters: np.ndarray) -> float:
        """Returns for which part of an episode's steps the pole stands, if the likelier push is always taken: the mean of 32."""
        poles = Poles(JUDGED, np.random.default_rng((self.seed, 5)))
        standing, total = np.ones(JUDGED, bool), np.zeros(JUDGED)
        for _ in range(STEPS):
            total += standing
            standing &= ~poles.push(self._right(parameters, poles.state) > 0)[0]
        return float(total.mean() / STEPS)

    def _forward(self, parameters: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns what is hidden, and float64 (n, 3): scores of left and right, and the value."""
        ends = np.cumsum([4 * self.hidden, self.hidden, 3 * self.hidden])
        into, bias, out, last = np.split(parameters.astype(np.float64), ends)
        hidden = np.tanh(state * SCALE @ into.reshape(4, self.hidden) + bias)
        return hidden, hidden @ out.reshape(self.hidden, 3) + last

    def _right(self, parameters: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Returns by how much the score of a push to the right is above that to the left."""
        scores = self._forward(parameters, state)[1]
        return scores[:, 1] - scores[:, 0]

    def _gradient(self, parameters: np.ndarray, poles: Poles, rng: np.random.Generator) -> np.ndarray:
        """Returns the gradient of the actor's and the critic's loss on the next ROLLOUT pushes of all poles."""
        states, sides, ends = [], [], []
        for _ in range(ROLLOUT):
            states.append(poles.state)
            sides.append(rng.random(len(poles.ages)) < (1 + np.tanh(self._right(parameters, poles.state) / 2)) / 2)
            ends.append(poles.push(sides[-1]))
        value, returns = self._forward(parameters, poles.state)[1][:, 2], []
        for failed, whole, last in reversed(ends):
            value = REWARD + DISCOUNT * np.where(failed, 0, np.where(whole, self._forward(parameters, last)[1][:, 2], value))
            returns.append(value)
        state, right, goal = np.concatenate(states), np.concatenate(sides).astype(int), np.concatenate(returns[::-1])
        return self._slope(parameters, state, right, goal)

    def _slope(self, parameters: np.ndarray, state: np.ndarray, right: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """Returns the gradient for pushes made in these states: mean of - advantage x log-likelihood - ENTROPY x entropy + VALUE
        x squared error of the value / 2, in which the advantage is a constant."""
        hidden, out = self._forward(parameters, state)
        scores, advantage = out[:, :2] - out[:, :2].max(axis=1, keepdims=True), goal - out[:, 2]
        log = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        likely = np.exp(log)
        entropy = -(likely * log).sum(axis=1, keepdims=True)
        error = np.empty_like(out)
        error[:, :2] = (likely - np.eye(2)[right]) * advantage[:, None] + ENTROPY * likely * (log + entropy)
        error[:, 2] = -VALUE * advantage
        error /= len(right)
        weights = parameters[5 * self.hidden : 8 * self.hidden].reshape(self.hidden, 3)
        back = (error @ weights.T) * (1 - hidden**2)
        parts = ((state * SCALE).T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0))
        return np.concatenate([part.ravel() for part in parts]).astype(np.float32)
