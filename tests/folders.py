"""Folders of tests and their helpers, on the path as soon as this is imported: also in processes that pytest did not start."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
FOLDERS = sorted({str(path.parent) for path in TESTS.rglob("*.py") if not (path.parent / "__init__.py").exists()})

sys.path[:0] = [folder for folder in FOLDERS if folder not in sys.path]
