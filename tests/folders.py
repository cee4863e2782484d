"""Puts the folders of tests and helpers on sys.path when imported, also in processes that pytest did not start."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
FOLDERS = sorted({str(path.parent) for path in TESTS.rglob("*.py") if not (path.parent / "__init__.py").exists()})

sys.path[:0] = [folder for folder in FOLDERS if folder not in sys.path]


def files(folder: Path, *patterns: str) -> list[Path]:
    """Files of ``folder`` that match any of ``patterns`` (Path.glob's), sorted. A pattern without a file fails the calling
    test: a loop over no files would pass after they were moved."""
    matches = {pattern: sorted(folder.glob(pattern)) for pattern in patterns}
    for pattern, paths in matches.items():
        assert paths, f"{folder}: expected files {pattern} there, found none: have they moved?"
    return sorted({path for paths in matches.values() for path in paths})
