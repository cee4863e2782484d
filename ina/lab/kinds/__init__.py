"""Kinds of experiments, and their shared parts.

A new kind: a module here, its keys in ina/lab/config.py, its call in ina/lab/run.py.
"""
