"""Kinds of experiments, and their shared parts.

A new kind: a module here, its keys in ina/lab/experiment_keys.py, its call in ina/lab/run.py, its columns in
ina/lab/results/report.py.
"""
