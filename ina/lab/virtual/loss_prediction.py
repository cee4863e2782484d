"""Loss prediction: how much smaller the gradients of a training are by the time that a stale one is applied.

After the idea of LC-ASGD (Li et al., ICPP 2020: the losses of all workers, and a model that predicts them, compensate a delay).
The model and the rule are this project's own: losses fall by about the same factor in each step, and gradients with the root of
the loss, as those of a quadratic function do on the way to its minimum of 0.
"""

from __future__ import annotations

from collections import deque

import numpy as np

WINDOW = 64  # losses that the trend is of
FEWEST = 16  # with fewer there is none


class LossTrend:
    """Latest losses of all workers, and their trend."""

    def __init__(self) -> None:
        self._known: deque[tuple[int, float]] = deque(maxlen=WINDOW)

    def know(self, version: int, loss: float) -> None:
        """Notes a worker's loss at a version of the parameters."""
        self._known.append((version, max(loss, 1e-9)))

    @property
    def slope(self) -> float:
        """Change of the loss's logarithm in a version: of the line of least squares, 0 where it rises, or too few are known."""
        if len(self._known) < FEWEST:
            return 0.0
        versions, losses = np.array(self._known).T
        off = versions - versions.mean()
        spread = float(off @ off)
        return min(0.0, float(off @ np.log(losses)) / spread) if spread else 0.0

    def weight(self, stale: int) -> float:
        """Returns what a gradient that is ``stale`` versions old is multiplied by, 0 to 1: the root of the predicted loss now
        over that then."""
        return float(np.exp(self.slope * stale / 2))
