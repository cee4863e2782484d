"""Checks and types of the tree, and its instances."""
