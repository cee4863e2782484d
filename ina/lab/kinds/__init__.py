"""Kinds of experiments, a file for each, named as the kind is: ina/lab/kind.py says what a kind has."""
