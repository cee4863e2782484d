"""Externs: each stated once, for the compiled switch and for the interpreter."""
