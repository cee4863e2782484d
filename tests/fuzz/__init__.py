"""Coverage-guided fuzzing of everything that reads what others wrote (docs/validation.md: Fuzzing).

    python -m tests.fuzz [--seconds N] [TARGET ...]     fuzz, or `make fuzz-coverage ARGS="..."`
    python -m tests.fuzz --list                         targets

    registry.py    what a target is, and all of them
    engine.py      runs a target: for some seconds, with its corpus
    native.py      targets in C: built for libFuzzer, or to replay files; c/ has the harnesses
    programs.py    generated programs with table images, as C, for c/switch.c
    managed.py     targets in Python: run under atheris, or on files
    control.py, files.py, rpc.py, sources.py            the targets in Python, by what they read
    corpus/TARGET  inputs that are kept: minimised, and those that once found something
    plants.py      defects that a target must find
"""

import sys
from pathlib import Path

if (tests := str(Path(__file__).parent.parent)) not in sys.path:
    sys.path.insert(0, tests)  # helpers of other tests are used here, too
import folders  # noqa: E402, F401
