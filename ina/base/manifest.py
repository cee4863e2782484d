"""Files that each compiled part, digest and package is made of: the only list of them.

A pattern that matches nothing and a file that is empty are errors: the digest of nothing always agrees, and a part without one of
its sources may still build. Imports nothing of ina, since the build loads it by its path; as a command it lists a group, from
which the Makefile takes the dependencies of the compiled part.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent

HOST = ("host/net", "host/codec", "host/protocol")  # end hosts, in the compiled part; host/dpdk is compiled where it is used
INCLUDES = ("host/net", "ina/p4/runtime/c")  # include path of a compiled P4 program
FOLDERS = (*HOST, "ina/p4/runtime/c", "ina/worlds/virtual/c")  # the compiled part
PROGRAM_HEADERS = ("host/net/packet.h", "ina/p4/runtime/c/program.h", "ina/p4/runtime/c/table.h", "ina/p4/runtime/c/tna.h")

# The headers whose declarations Python sees, each after those that it needs.
BOUND = (
    "host/net/packet.h",
    "host/net/address.h",
    "host/net/link.h",
    "host/net/port.h",
    "host/net/fault.h",
    "host/net/port_link.h",
    "host/net/port_probe.h",
    "host/net/tag.h",
    "host/codec/fraction.h",
    "host/codec/integers.h",
    "host/codec/halves.h",
    "host/codec/lanes.h",
    "host/codec/levels.h",
    "host/codec/limbs.h",
    "host/codec/matrix.h",
    "host/codec/signs.h",
    "host/codec/sketch.h",
    "host/codec/sparse.h",
    "host/codec/thc.h",
    "host/codec/topk.h",
    "host/protocol/lane.h",
    "host/protocol/codec.h",
    "host/protocol/completion.h",
    "host/protocol/protocol.h",
    "host/protocol/protocols.h",
    "host/protocol/ps.h",
    "host/protocol/ps_jobs.h",
    "host/protocol/ps_server.h",
    "host/protocol/endpoint.h",
    "ina/p4/runtime/c/table.h",
    "ina/p4/runtime/c/program.h",
    "ina/p4/runtime/c/tna.h",
    "ina/p4/runtime/c/switch.h",
    "ina/p4/runtime/c/tna_switch.h",
    "ina/p4/runtime/c/shared.h",
    "ina/worlds/virtual/c/emulator.h",
    "ina/worlds/virtual/c/flow.h",
    "ina/worlds/virtual/c/collective.h",
    "ina/worlds/virtual/c/updates.h",
)

GROUPS = {
    "headers": tuple(f"{folder}/*.h" for folder in HOST),  # ABI: a worker compiled later needs the same ones
    # the worker's version in results
    "worker": tuple(f"{folder}/*{suffix}" for folder in HOST for suffix in (".c", ".h")),
    "native": tuple(f"{folder}/*{suffix}" for folder in FOLDERS for suffix in (".c", ".h")),
    "binding": ("host/binding.py", "ina/base/manifest.py"),
    "bound": BOUND,
    "program": PROGRAM_HEADERS,
    "compiler": ("ina/base/cc.py", "ina/base/cache.py", "ina/base/tool.py", "ina/p4/compiler/**/*.py", "ina/p4/compiler/emit/*.h",
                 "ina/p4/compiler/p4include/*.p4", *(f"{d}/*.h" for d in INCLUDES)),
    "dpdk": ("host/dpdk/*.c",),
    "dpdk headers": ("host/dpdk/*.h",),
}

# Files of the checkout in an installed package: DATA under ina/data with the same paths, BESIDE among the modules.
DATA = {
    "p4": ("*.p4",),
    "p4/include": ("*.p4", "*/*.p4"),
    "p4/tofino": ("*.p4",),
    "p4/tofino/include": ("*.p4", "*/*.p4"),
    "host/net": ("*.c", "*.h"),
    "host/codec": ("*.c", "*.h"),
    "host/protocol": ("*.c", "*.h"),
    "host/dpdk": ("*.c", "*.h"),
    "examples": ("README.md", "one_packet.*", "*/*.md", "*/*.p4", "*/*.stf", "*/*.c", "*/*.py", "*/*.toml", "*/*.ipynb",
                 "servers/*"),
    "experiments": ("*.toml", "scale/*.toml"),
    "topologies": ("*.py",),
    "workloads": ("*.csv",),
}
BESIDE = {
    "ina": ("py.typed",),
    # Solutions of the course stay in the checkout.
    "ina/aggregation/skeleton": ("*.in",),
    "ina/lab/course": ("course.p4", "steps/*/step.toml", "steps/*/skeleton.p4", "steps/*/*.stf"),
    "ina/dash": ("page/*.html", "page/*.css", "page/*.js"),
    "ina/p4/compiler": ("p4include/*.p4",),
    "ina/p4/compiler/emit": ("*.h",),
    "ina/p4/runtime": ("c/*.h",),
}


class Incomplete(FileNotFoundError):
    """A file that must be there is missing or empty."""


def root(package: Path = PACKAGE) -> Path:
    """Returns the checkout, or the folder of an installed package that stands for it. Raises Incomplete."""
    mark = Path("p4", "switchml.p4")  # a folder p4/ alone says nothing: the package p4runtime puts one into site-packages
    for candidate in (package.parent, package / "data"):
        if (candidate / mark).is_file():
            return candidate
    raise Incomplete(f"no {mark} beside {package} nor in {package / 'data'}: reinstall ina")


def folder(name: str, package: Path = PACKAGE) -> Path:
    """Returns the path of a folder of the checkout; folders of the package are where it is installed."""
    return package.parent / name if name.split("/")[0] == "ina" else root(package) / name


def listed(patterns: Iterable[str], package: Path = PACKAGE) -> list[Path]:
    """Returns the files that `patterns` match, sorted within each pattern. Raises Incomplete that names the pattern or the
    file."""
    paths = []
    for pattern in patterns:
        top, _, rest = pattern.partition("/")
        matches = sorted(path for path in folder(top, package).glob(rest) if not path.name.startswith("_native."))
        if not matches:
            raise Incomplete(f"{folder(top, package)}: expected {rest} there, found none: the sources are incomplete")
        if empty := [path for path in matches if not path.stat().st_size and path.name not in ("__init__.py", "py.typed")]:
            raise Incomplete(f"{empty[0]} is empty: the sources are incomplete")
        paths += matches
    return paths


def files(group: str, package: Path = PACKAGE) -> list[Path]:
    """The files of a group of GROUPS. Raises Incomplete."""
    return listed(GROUPS[group], package)


def digest(group: str, package: Path = PACKAGE) -> str:
    """SHA-256 over names and bytes of a group's files, in hex. Raises Incomplete."""
    digest = hashlib.sha256()
    for path in sorted(files(group, package)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def package_data() -> dict[str, list[str]]:
    """Returns setuptools' package_data: patterns by package. Raises Incomplete."""
    data = {data_package(name): list(patterns) for name, patterns in DATA.items()}
    data |= {name.replace("/", "."): list(patterns) for name, patterns in BESIDE.items()}
    listed(f"{name}/{pattern}" for name, patterns in (DATA | BESIDE).items() for pattern in patterns)
    return data


def data_package(name: str) -> str:
    """The package that carries a folder of the checkout."""
    return "ina.data." + name.replace("/", ".")


def main() -> int:
    names = sys.argv[1:]
    if unknown := [name for name in names if name not in GROUPS] or (not names and ["no group"]):
        print(f"manifest: {unknown[0]}: expected one of {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    try:
        paths = [path for name in names for path in files(name)]
    except Incomplete as error:
        print(f"manifest: {error}", file=sys.stderr)
        return 1
    print(*(path.relative_to(PACKAGE.parent) for path in paths))
    return 0


if __name__ == "__main__":
    sys.exit(main())
