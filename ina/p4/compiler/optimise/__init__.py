"""Passes over intermediate code."""
