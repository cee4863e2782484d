"""Coverage-guided fuzzing of everything that parses outside input (docs/results/validation.md: Fuzzing).

    python -m tests.fuzz [--seconds N] [TARGET ...]     fuzz, or `make fuzz-coverage ARGS="..."`
    python -m tests.fuzz --list                         targets

    registry.py    classes of targets, and the list of all targets
    engine.py      runs a target for some seconds, with its corpus
    native.py      targets in C: built for libFuzzer, or to replay files; c/ has the harnesses
    programs.py    generated programs with table images, as C, for c/switch.c
    managed.py     targets in Python: run under atheris, or on files
    control.py, files.py, rpc.py, sources.py            the targets in Python, by their input
    corpus/TARGET  inputs kept in the tree: the minimised corpus, and former findings
    plants.py      defects that a target must find
"""

import sys
from pathlib import Path

if (tests := str(Path(__file__).parent.parent)) not in sys.path:
    sys.path.insert(0, tests)  # helpers of other tests are used here, too
import folders  # noqa: E402, F401
