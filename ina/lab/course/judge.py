"""A check in a process of its own, within limits: `python -m ina.lab.course.judge STEP PROGRAM SECONDS` prints JSON."""

from __future__ import annotations

import errno
import math
import resource
import sys
from pathlib import Path

from ina.base import error_text, tool
from ina.base.cc import BuildError
from ina.lab.course import check, step

MEMORY = 4 << 30  # bytes of address space of the process and of each compiler
OUTPUT = 256 << 20  # bytes of each file


def main(name: str, program: str, seconds: str) -> int:
    """Checks a program; returns the exit status. The caller kills the process group at its deadline; the limits are for what a
    program may ask for before."""
    tool.caller_cleans()
    processor = math.ceil(float(seconds)) + 1
    for limit, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, processor), (resource.RLIMIT_FSIZE, OUTPUT)):
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    try:
        print(check.encoded(check.check(step.named(name), Path(program))))
    except BuildError as error:
        print(error_text.line(error), file=sys.stderr)
        return 1
    except (MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOMEM:
            raise
        print(f"the program needs more than {MEMORY >> 30} GiB of memory: look for large registers", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
