"""ina: in-network aggregation emulator and testbed."""

__version__ = "0.1.0"
