"""Experiments: plans, sweeps, and their kinds in each of the worlds."""
