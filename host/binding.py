"""Builds the compiled part, ``ina._native``: every C file of ``host/``, ``ina/switch/`` and ``ina/emulator/``.

The declarations that Python sees are the public C headers themselves, so they cannot drift: preprocessor lines are
dropped, and what a header keeps from Python stands between ``#ifndef INA_CDEF`` and ``#endif``.
"""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parent.parent

HEADERS = [
    "host/packet.h",
    "host/link.h",
    "host/port.h",
    "host/fault.h",
    "host/port_link.h",
    "host/codec.h",
    "host/protocol.h",
    "host/protocols.h",
    "host/ps.h",
    "host/ps_jobs.h",
    "host/ps_server.h",
    "host/endpoint.h",
    "ina/switch/table.h",
    "ina/switch/program.h",
    "ina/switch/tna.h",
    "ina/switch/switch.h",
    "ina/switch/tna_switch.h",
    "ina/emulator/emulator.h",
    "ina/emulator/flow.h",
    "ina/emulator/collective.h",
]
PATHS = runpy.run_path(str(ROOT / "ina/paths.py"))  # by its path: when pip builds, the package is not to be imported
SOURCE_DIRS = PATHS["NATIVE"]


def declarations(header: str) -> str:
    """The C declarations of a header as cffi reads them: no preprocessor, no ``extern`` definitions, no inline code."""
    text = re.sub(r"#ifndef INA_CDEF\n.*?\n#endif\n", "", (ROOT / header).read_text(), flags=re.S)
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def sources() -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for d in SOURCE_DIRS for p in (ROOT / d).glob("*.c"))


def compile_flags() -> list[str]:
    """``INA_MARCH`` names the instruction set (default: this machine's), ``INA_CFLAGS`` adds flags (sanitizers)."""
    march = os.environ.get("INA_MARCH", "native")
    flags = ["-O3", "-std=gnu11", f"-march={march}", "-fno-semantic-interposition", "-fno-math-errno", "-g1"]
    flags += ["-Wall", "-Wextra", "-Wno-unused-parameter"]
    return flags + os.environ.get("INA_CFLAGS", "").split()


def builder() -> FFI:
    ffi = FFI()
    headers = [h for h in HEADERS if (ROOT / h).exists()]
    for header in headers:
        ffi.cdef(declarations(header))
    # Workers that are compiled later, into other objects, must have been made with the same headers (ina/transport/protocols.py),
    # and what Python calls must be what lies beside it (ina/native.py).
    made = {"INA_HEADERS": PATHS["host_headers"](), "INA_SOURCES": PATHS["native_sources"]()}
    ffi.cdef("".join(f"static char *const {name};" for name in made))
    ffi.set_source(
        "ina._native",
        "\n".join([*(f'#define {name} "{digest}"' for name, digest in made.items()), *(f'#include "{h}"' for h in headers)]),
        sources=sources(),
        include_dirs=[str(ROOT), str(ROOT / "host"), str(ROOT / "ina/switch"), str(ROOT / "ina/emulator")],
        extra_compile_args=compile_flags(),
        # Calls within stay within; an own protocol (protocols.h) still finds the functions that it calls.
        extra_link_args=["-Wl,-Bsymbolic-functions"] + os.environ.get("INA_CFLAGS", "").split(),
        libraries=["pthread", "dl", "m"],
        depends=[str(p) for d in SOURCE_DIRS for p in (ROOT / d).glob("*.h")],
    )
    return ffi


ffi = builder()
