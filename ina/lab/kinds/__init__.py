"""Kinds of experiments, and what they share.

A new kind: a module here, its keys in ina/lab/config.py, its way in ina/lab/run.py.
"""
