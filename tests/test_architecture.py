"""The house: imports point downwards, files keep to one subject, nothing unfinished is left."""

import ast
import re
from pathlib import Path

import networkx
import pytest

from ina import manifest

ROOT = Path(__file__).resolve().parent.parent

# A module may import those of lower floors and of its own room.
FLOORS = {
    "bounds": -1,
    "documents": -1,
    "extras": -1,
    "manifest": -2,
    "paths": -1,
    "reasons": -1,
    "signals": -1,
    "_native": -1,
    "native": 0,
    "tokens": 0,
    "compiler": 0,
    "wire": 1,
    "codec": 2,
    "transport": 3,
    "switch": 3,
    "rpc": 3.5,
    "bfrt": 4,
    "p4runtime": 5,
    "p4": 5,
    "control": 6,
    "equal": 7,
    "emulator": 7,
    "backend": 7,
    "dpdk": 8,
    "experiment": 9,
    "tofino": 10,
    "cli": 11,
    "__main__": 12,
}
# Rooms of one floor do not know each other, and these do not know anything of ina but what stands here.
ONLY = {"compiler": {"compiler", "manifest", "paths"}, "paths": {"manifest"},
        **dict.fromkeys(("manifest", "extras", "reasons", "signals"), set())}  # fmt: skip
DOORS = {"_native": "native"}  # the only room that may import this one

SOURCES = sorted((ROOT / "ina").rglob("*.py"))


def imported(path: Path) -> set[str]:
    """First-level modules of ina that a file imports, wherever in the file."""
    found = set()
    room = path.relative_to(ROOT / "ina").parts[0].removesuffix(".py")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            up = path.parent
            for _ in range(node.level - 1):
                up = up.parent
            inside = up.relative_to(ROOT / "ina").parts
            found.add(inside[0] if inside else (node.module or room).split(".")[0])
        elif isinstance(node, ast.ImportFrom) and node.module == "ina":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ina."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("ina.")}
    return found - {"__version__"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path):
    room = path.relative_to(ROOT / "ina").parts[0].removesuffix(".py")
    if room == "__init__":
        return
    for other in imported(path) - {room}:
        assert other in FLOORS, f"{path.name} imports ina.{other}, which has no floor in this test"
        assert FLOORS[other] < FLOORS[room], f"{path.name} ({room}) imports ina.{other}, which is not below it"
        assert DOORS.get(other, room) == room, f"{path.name} imports ina.{other}: expected ina.{DOORS[other]}"
        assert room not in ONLY or other in ONLY[room], f"ina.{room} must not know ina.{other}"


# Circles that are meant: the tree and its types; an interpreter and the architectures that it runs and that run it.
CIRCLES = {"ina.compiler.ast", "ina.compiler.types", "ina.compiler.interpreter", "ina.compiler.v1model", "ina.compiler.tna",
           "ina.compiler.reference.tna_objects"}  # fmt: skip


def modules_imported(path: Path, known: set[str]) -> set[str]:
    """Of `known`, wherever in the file: for type checkers, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found |= {full if (full := f"{node.module}.{alias.name}") in known else node.module for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known


def test_no_module_imports_one_that_imports_it():
    """Directly or by way of others."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES}
    graph = networkx.DiGraph((name, other) for name, path in names.items() for other in modules_imported(path, set(names)))
    circles = [sorted(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1]
    assert [circle for circle in circles if not CIRCLES.issuperset(circle)] == []


def test_no_name_of_a_program_outside_p4():
    """The compiler, the switch and the emulator's core know programs as data: no field or table name of ours in them."""
    words = re.compile(r"switchml|exponents|incarnation|fan_?in", re.IGNORECASE)
    for folder in ("ina/compiler", "ina/switch"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".c", ".h", ".p4"):
                for number, line in enumerate(path.read_text().splitlines(), start=1):
                    assert not words.search(line), f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def test_files_have_one_subject():
    """More than 850 lines is a sign of more than one."""
    for folder in ("ina", "host", "p4", "topologies", "tests", "bench"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".c", ".h", ".p4") and path.name != "_native.c":
                lines = len(path.read_text().splitlines())
                assert lines <= 850, f"{path.relative_to(ROOT)} has {lines} lines"


def test_the_core_imports_without_the_optional_parts():
    """torch, matplotlib and scapy are extras: importing the parts below them must not need them."""
    import subprocess
    import sys

    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'matplotlib', 'scapy', 'grpc', 'google', 'mininet', 'sklearn'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "import ina.cli, ina.codec, ina.transport, ina.switch.embedded, ina.control.controller, ina.emulator.network\n"
        "import ina.compiler.frontend, ina.backend.autoload\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_a_missing_package_is_never_named_without_its_extra():
    """Whichever module is imported first: "No module named 'grpc'" does not say what to install."""
    import subprocess
    import sys

    code = (
        "import importlib, pkgutil, sys\n"
        "import ina, topologies\n"
        "from ina.extras import Missing\n"
        "for name in ('matplotlib', 'scapy', 'grpc', 'google', 'sklearn', 'ray', 'torch'):\n"
        "    sys.modules[name] = None\n"
        "for package in (ina, topologies):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not module.name.startswith('ina.backend.') and module.name != 'ina.__main__':\n"  # torch imports those itself
        "            try:\n"
        "                importlib.import_module(module.name)\n"
        "            except ImportError as error:\n"
        "                if not isinstance(error, Missing) or 'pip install' not in str(error):\n"
        "                    print(module.name, repr(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_optional_import_in_a_function_names_its_extra(path):
    """As above, where the import is not the module's. One for the type checker alone never happens."""
    optional = {"matplotlib", "scapy", "grpc", "sklearn", "ray"}
    tree = ast.parse(path.read_text())
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.With)
              and any(ast.unparse(item.context_expr).startswith("extra(") for item in node.items)]  # fmt: skip
    blocks += [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    guarded = {id(inner) for block in blocks for inner in block.body}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        if optional & {name.split(".")[0] for name in names}:
            assert id(node) in guarded, f"{path.name}:{node.lineno}: {ast.unparse(node)}: expected in `with extra(...)`"


def test_every_extra_is_one_of_the_package():
    import tomllib

    from ina.extras import PURPOSES

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert PURPOSES.keys() <= project["optional-dependencies"].keys()


def test_every_package_and_experiment_is_installed():
    """What setup.py does not find works in the checkout and is missing after pip install."""
    for path in SOURCES:
        assert (path.parent / "__init__.py").exists(), f"{path.parent} has no __init__.py: setup.py does not see it as a package"
    named = [(folder, pattern) for folder, patterns in manifest.DATA.items() for pattern in patterns]
    carried = {path for folder, pattern in named for path in (ROOT / folder).glob(pattern)}
    for folder in ("p4", "experiments", "workloads", "host"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".p4", ".toml", ".csv", ".c", ".h"):
                assert path in carried, f"{path.relative_to(ROOT)} is not in DATA of ina/manifest.py"
