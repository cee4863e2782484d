"""PyTorch's own distributed test suite, run with the back end ``ina`` and with Gloo: ``python -m tests.conformance``."""
