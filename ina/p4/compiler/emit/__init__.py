"""Intermediate code to C."""
