"""Architectures: v1model and TNA, for compiled switches (lower_*, emit_*) and for the interpreter."""
