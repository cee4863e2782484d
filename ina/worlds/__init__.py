"""Worlds: each only moves packets and time."""
