"""Writes the C headers that follow from the P4 programs' headers: ``make generated``.

    python host/generate.py            writes them
    python host/generate.py --check    names those that differ from what the P4 sources say; status 1 if there are any

Needs no compiled part: these headers are part of its sources.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ina.aggregation.wire.host_headers import FILES  # noqa: E402
from ina.aggregation.wire.layout import LayoutError  # noqa: E402
from ina.p4.compiler.errors import CompileError  # noqa: E402


def main() -> int:
    made = {path: make() for path, make in FILES.items()}
    stale = [path for path, text in made.items() if not (ROOT / path).is_file() or (ROOT / path).read_text() != text]
    for path in stale:
        if "--check" in sys.argv:
            print(f"{path} differs from the P4 sources: run make generated")
        else:
            (ROOT / path).write_text(made[path])
            print(f"{path}: written")
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LayoutError, CompileError) as error:
        sys.exit(str(error))
