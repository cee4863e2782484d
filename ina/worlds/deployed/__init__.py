"""Experiments on real Tofinos: `ina deploy`.

`experiment.py` (the file) -> `deploy.py` (every row, written, read back, taken back) -> `hosts.py` (what each server runs).
"""
