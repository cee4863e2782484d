"""Measurements: each against a peer or a physical limit in the same run. ``python -m bench`` or ``make bench``."""
