"""Experiments on real Tofinos: `ina deploy`.

`deployment_file.py` (the file) -> `deploy.py` (every row, written, read back, undone) -> `host_setup.py` (what each server runs).
"""
