"""Bodies of the externs that average.p4 declares: in C for the compiled switch, in Python for the interpreter."""

import math

from ina.p4 import UserFunction, UserObject


class SquareRoot(UserFunction):
    names = ("square_root",)
    c_source = """
static uint64_t square_root(uint64_t value, uint64_t *rest)
{
    uint64_t root = 0;
    while ((root + 1) * (root + 1) <= value)
        root++;
    *rest = value - root * root;
    return root;
}
"""

    def call(self, value: int) -> tuple[int, int]:
        root = math.isqrt(value)
        return root, value - root * root


class Average(UserObject):
    """An exponentially weighted moving average: each sample moves it by 1/weight of their difference."""

    names = ("Average",)
    state_bytes = 8  # the average
    c_source = """
static uint64_t Average_update(void *state, uint64_t weight, uint64_t sample)
{
    uint64_t *average = state;
    *average += sample / weight - *average / weight;
    return *average;
}
"""

    def start(self, weight: int) -> dict[str, int]:
        return {"weight": weight, "average": 0}

    def call(self, state: dict[str, int], method: str, sample: int) -> int:
        state["average"] += sample // state["weight"] - state["average"] // state["weight"]
        return state["average"]
