"""Experiments on real Tofinos and at switch processes: `ina deploy`.

`deployment_file.py` (the file) -> `deploy.py` (every row, written, read back, undone) -> `host_setup.py` (what each server runs).
`process_file.py` (the file) -> `processes.py` (each switch process looked at, started, ended).
"""
