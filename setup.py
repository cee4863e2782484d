"""The compiled part; everything else is in pyproject.toml."""

from setuptools import setup

setup(cffi_modules=["host/binding.py:ffi"])
