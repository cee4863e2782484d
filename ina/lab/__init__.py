"""Experiments: plans, sweeps, and what they need of the worlds."""
