"""Builds the compiled part, ``ina._native``: the C files that ``ina/base/manifest.py`` names.

The declarations that Python sees are the public C headers themselves, so they cannot drift: preprocessor lines are dropped, and
so are lines between ``#ifndef INA_CDEF`` and ``#endif``.
"""

from __future__ import annotations

import os
import re
import runpy
import sysconfig
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parent.parent

MANIFEST = runpy.run_path(str(ROOT / "ina/base/manifest.py"))  # by its path: pip's build must not import the package
HEADERS = MANIFEST["BOUND"]


def declarations(header: str) -> str:
    """Returns the C declarations of a header as cffi reads them: no preprocessor, no ``extern`` definitions, no inline code."""
    text = re.sub(r"#ifndef INA_CDEF\n.*?\n#endif\n", "", (ROOT / header).read_text(), flags=re.S)
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def sources(suffix: str) -> list[str]:
    """Returns the compiled part's files of a suffix, relative to the checkout."""
    return sorted(str(path.relative_to(ROOT)) for path in MANIFEST["files"]("native") if path.suffix == suffix)


def compile_flags() -> list[str]:
    """Returns compiler flags: ``INA_MARCH`` names an instruction set, ``INA_CFLAGS`` adds flags (sanitizers).

    Without INA_MARCH, the result runs on every processor of the platform, as a wheel may end on an older machine. Loops that gain
    from wider registers are selected at load time (``host/net/kernel.h``), and all variants give the same bits: a*b+c is never
    contracted into one operation (``-ffp-contract=off``).
    """
    march = os.environ.get("INA_MARCH", "")
    flags = ["-O3", "-std=gnu11", *([f"-march={march}"] if march else []), "-ffp-contract=off"]
    if "SOURCE_DATE_EPOCH" in os.environ:  # a release (.ci/release): debug information has no folder of this machine
        flags += [f"-ffile-prefix-map={ROOT}=.", f"-ffile-prefix-map={sysconfig.get_path('include')}=python"]
    flags += ["-fno-semantic-interposition", "-fno-math-errno", "-g1", "-Wall", "-Wextra"]
    return flags + os.environ.get("INA_CFLAGS", "").split()


def builder() -> FFI:
    ffi = FFI()
    MANIFEST["files"]("bound")  # raises Incomplete
    for header in HEADERS:
        ffi.cdef(declarations(header))
    # ABI checks: workers that are compiled later, into other objects, need the same headers
    # (ina/aggregation/protocols.py), and Python needs the same sources (ina/base/native.py).
    digests = {"INA_HEADERS": MANIFEST["digest"]("headers"), "INA_SOURCES": MANIFEST["digest"]("native")}
    ffi.cdef("".join(f"static char *const {name};" for name in digests))
    ffi.set_source(
        "ina._native",
        "\n".join([*(f'#define {name} "{digest}"' for name, digest in digests.items()), *(f'#include "{h}"' for h in HEADERS)]),
        sources=sources(".c"),
        include_dirs=[str(ROOT), *(str(ROOT / folder) for folder in MANIFEST["FOLDERS"])],
        extra_compile_args=compile_flags(),
        # Binds internal calls inside the object; a user's protocol (protocols.h) still finds exported functions.
        extra_link_args=["-Wl,-Bsymbolic-functions"] + os.environ.get("INA_CFLAGS", "").split(),
        libraries=["pthread", "dl", "m"],
        depends=[str(ROOT / header) for header in sources(".h")],
    )
    return ffi


ffi = builder()
