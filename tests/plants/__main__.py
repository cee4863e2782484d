"""`python -m tests.plants [explore|simulate] [PART-OF-A-NAME ...]`: exit status 1 if a defect is not found."""

from __future__ import annotations

import logging
import re
import sys
import time
from importlib import import_module

LISTS = {"explore": "explored", "simulate": "simulated"}


def main(words: list[str]) -> int:
    logging.disable(logging.WARNING)
    lists = [words.pop(0)] if words and words[0] in LISTS else list(LISTS)
    missed = 0
    for command in lists:
        plants = import_module(f"tests.plants.{LISTS[command]}")
        for name in (name for name in plants.PLANTS if not words or any(word in name for word in words)):
            began, report = time.monotonic(), plants.find(name)
            right = bool(report.violation) and re.search(plants.plant(name).violation, report.violation) is not None
            missed += not right
            verdict, seconds = "found" if right else "MISSED", time.monotonic() - began
            print(f"{verdict:<7} {command}: {name}: {plants.summary(report)}, {seconds:.1f} s", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
