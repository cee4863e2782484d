"""Architectures: v1model and TNA, for compiled switches (lower_*.py, emit_*.py) and for the interpreter."""
