"""The fast path: a compiled program as a switch on DPDK (``switch.py``), and the host agent (``worker.py``).

Neither has a switch or a worker of its own: they open devices, and drive the switch core and the endpoints that the other worlds
drive, in native threads. docs/guide/dpdk.md says how to set a machine up.
"""
