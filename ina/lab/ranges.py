"""Ranges of an experiment's numeric keys: the limits of a machine, or of the packet format.

A key means the same in every kind of experiment. experiment_keys.py checks limits that depend on other keys; allreduce.py checks
the memory that tensors take.
"""

from __future__ import annotations

from ina.base.bounds import SECONDS

BYTES = 1 << 40
PROBABILITY = (0, 1, "a probability")
RANGES: dict[str, tuple[float, float, str]] = {
    # how much
    "workers": (0, 1024, "each is a process, or a host of virtual time"),
    "jobs": (1, 64, "each has hosts or slots of its own"),
    "elements": (1, 10**15, "4 bytes each, which memory has to hold"),
    "tensors": (1, 10**6, "one after the other"),
    "epochs": (1, 10**6, ""),
    "steps": (0, 10**9, ""),
    "batch": (1, 65536, "images that are in memory at once"),
    "compare_step": (1, 10**9, ""),
    "servers": (1, 1024, ""),
    "stripes": (1, 64, "each is a tree, or a ring"),
    "slices": (1, 256, ""),
    "host_cores": (1, 1024, ""),
    # packets, slots and bytes
    "values": (0, 2048, "what a frame has room for"),
    "slots": (0, 16384, "slot numbers have 14 bits"),
    "pool": (0, 16384, "slot numbers have 14 bits"),
    "window": (1, 1024, "packets"),
    "flow": (1, 65536, "packets"),
    "mtu": (576, 9000, "bytes"),
    "queue": (0, BYTES, "bytes"),
    "buffer": (0, BYTES, "bytes"),
    "nic": (0, BYTES, "bytes"),
    "ecn": (0, BYTES, "bytes"),
    "ecn_depth": (0, 1 << 30, "packets"),
    "bucket_mb": (0, 1e6, "MiB"),
    "first_bucket_mb": (0, 1e6, "MiB"),
    # times and rates
    "rate": (0, 1e15, "bit/s: a byte takes a whole number of femtoseconds at least"),
    "peak_flops": (0, 1e24, "operations a second"),
    "memory_bandwidth": (0, 1e18, "bytes a second"),
    "delay": (0, 10, "seconds"),
    "latency": (0, 10, "seconds"),
    "host_packet": (0, 10, "seconds"),
    "host_byte": (0, 10, "seconds"),
    "rto_min": (0, SECONDS, "seconds"),
    "rto_max": (0, SECONDS, "seconds"),
    "timeout": (0, SECONDS, "seconds"),
    "period": (0, SECONDS, "seconds"),
    "sample": (0, 1, "seconds"),
    # factors
    "lr": (0, 1e6, ""),
    "momentum": (0, 1, ""),
    "compute": (0, 1e6, ""),
    "scale": (0, 1, ""),
    "jitter": (0, 100, ""),
    "slow_worker": (0, 1e6, ""),
    "straggler": (1, 1000, ""),
    "share": (0, 1, ""),
    "loss": PROBABILITY,
    "duplicate": PROBABILITY,
    "reorder": PROBABILITY,
    "corrupt": PROBABILITY,
    "seed": (0, 2**63 - 1, "63 bits"),
}
