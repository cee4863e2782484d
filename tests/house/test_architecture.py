"""Structure of the source tree: imports point downwards, files keep to one subject, nothing is unfinished."""

import ast
import re

import networkx
import pytest
from folders import files
from import_graph import DOORS, MODULES, ROOT, SOURCES, imported

from ina.base import manifest

# A module may import those of lower floors and of its own room. A room is a folder of ina/; rooms of one floor do not know each
# other.
FLOORS = {
    "_native": -1,
    "base": 0,
    "net": 1,
    "topology": 1,
    "p4.compiler": 2,
    "p4.runtime": 3,
    "p4.tofino": 3,
    "p4.rpc": 4,
    "p4.bfrt": 5,
    "p4.p4runtime": 6,
    "p4.tools": 6,
    "p4": 4,  # the public face, ina/p4/switch.py; all other modules of it are in rooms
    "aggregation.wire": 7,
    "aggregation.port_kinds": 7,
    "aggregation.lane": 1,
    "codecs": 9,
    "aggregation.completion": 8,
    "aggregation.protocols": 8,
    "aggregation.control_socket": 8,
    "aggregation.worker": 9,
    "aggregation.ps": 10,
    "aggregation.entries": 11,
    "aggregation.skeleton": 12,
    "aggregation.controller": 12,
    "aggregation.equal_scenarios": 13,
    "worlds.dpdk": 14,
    "worlds.testbed": 14,
    "worlds.virtual": 14,
    "worlds.deployed": 15,
    "protocol": 12,
    "virtual": 15,
    "backend": 15,
    "moe": 16,
    "lab": 16,
    "experiment": 17,
    "dash": 17,
    "cli": 18,
}
# C, by folder; the prelude of compiled programs is text to the compiler.
C_FLOORS = {"host/net": 1, "host/codec": 2, "ina/p4/runtime/c": 2, "host/protocol": 3, "host/dpdk": 4, "ina/worlds/virtual/c": 4}


def room(module: str) -> str:
    """The room of a module, or of a folder of rooms."""
    name = module.removeprefix("ina.")
    while name not in FLOORS and "." in name:
        name = name.rpartition(".")[0]
    return name


@pytest.mark.fast
@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    own = room(module)
    assert own in FLOORS or path.name == "__init__.py", f"{path}: no room of this test's FLOORS"
    for other in imported(path):
        theirs = room(other)
        assert theirs in FLOORS, f"{path.name} imports {other}, which is in no room of this test"
        if theirs != own and own in FLOORS:
            assert FLOORS[theirs] < FLOORS[own], f"{path.name} ({own}) imports {other}, which is not below it"
        assert DOORS.get(other, module) == module, f"{path.name} imports {other}: expected {DOORS[other]}"


@pytest.mark.fast
def test_the_ground_does_not_know_the_network():
    """Modules of pure data: a network's model, and the paths of this package's files."""
    for name, others in (("topology", {"base", "topology"}), ("base", {"base", "_native"})):
        for module, path in MODULES.items():
            if room(module) == name:
                assert {room(other) for other in imported(path)} <= others, module


@pytest.mark.fast
def test_a_topology_is_data():
    """A topology is found by its name, like a switch program, and imports the network's model and nothing else of ina."""
    for path in files(ROOT / "topologies", "*.py"):
        assert all(name.startswith("ina.topology") for name in imported(path)), path


@pytest.mark.fast
def test_c_includes_point_downwards():
    headers = {path.name: folder for folder in C_FLOORS for path in files(ROOT / folder, "*.h")}
    both = {"core.h"}  # of two rooms: each includes its own, as the compiler looks beside the file first
    for folder, floor in C_FLOORS.items():
        for path in files(ROOT / folder, "*.[ch]"):
            for name in re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE):
                owner = folder if name in both else headers.get(name)
                assert owner is not None, f"{path}: {name}: no such header in {', '.join(C_FLOORS)}"
                assert owner == folder or C_FLOORS[owner] < floor, f"{path}: {name} of {owner} is not below it"


# A circle that is meant: the tree and its types.
CIRCLES = {"ina.p4.compiler.ast", "ina.p4.compiler.types"}


@pytest.mark.build
def test_no_module_imports_one_that_imports_it():
    """Cycles of imports, direct or through other modules."""
    edges = ((name, other) for name, path in MODULES.items() for other in imported(path, text=False))
    graph = networkx.DiGraph((name, other) for name, other in edges if other in MODULES)
    circles = [sorted(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1]
    assert [circle for circle in circles if not CIRCLES.issuperset(circle)] == []


@pytest.mark.fast
def test_no_name_of_a_program_outside_p4():
    """All that a P4 switch is made of knows programs as data: no field or table name of ours in it."""
    words = re.compile(r"switchml|exponents|incarnation|fan_?in", re.IGNORECASE)
    for folder in ("ina/p4",):
        for path in files(ROOT / folder, "**/*.py", "**/*.[ch]", "**/*.p4"):
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                assert not words.search(line), f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


@pytest.mark.fast
def test_files_have_one_subject():
    """More than 850 lines is a sign of more than one."""
    for folder in ("ina", "host", "p4", "topologies", "tests", "bench"):
        for path in files(ROOT / folder, "**/*.*"):
            if path.suffix in (".py", ".c", ".h", ".p4") and path.name != "_native.c":
                lines = len(path.read_text().splitlines())
                assert lines <= 850, f"{path.relative_to(ROOT)} has {lines} lines"


@pytest.mark.build
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
        "import ina.cli, ina.aggregation.worker, ina.p4.runtime.embedded\n"
        "import ina.aggregation.controller.admission, ina.worlds.virtual.network\n"
        "import ina.p4.compiler.frontend, ina.backend.autoload\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.build
def test_a_missing_package_is_never_named_without_its_extra():
    """Any module may be imported first: "No module named 'grpc'" does not say what to install."""
    import subprocess
    import sys

    code = (
        "import importlib, pkgutil, sys\n"
        "import ina\n"
        "from ina.base.extras import Missing\n"
        "for name in ('matplotlib', 'scapy', 'grpc', 'google', 'sklearn', 'ray', 'torch'):\n"
        "    sys.modules[name] = None\n"
        "for package in (ina,):\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        # torch imports those itself
        "        if not module.name.startswith('ina.backend.') and not module.name.endswith('__main__'):\n"
        "            try:\n"
        "                importlib.import_module(module.name)\n"
        "            except ImportError as error:\n"
        "                if not isinstance(error, Missing) or 'pip install' not in str(error):\n"
        "                    print(module.name, repr(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.fast
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_optional_import_in_a_function_names_its_extra(path):
    """An import in a function, like those of modules above. Imports for the type checker alone are never executed."""
    optional = {"matplotlib", "scapy", "grpc", "sklearn", "ray"}
    tree = ast.parse(path.read_text())
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.With)
              and any(ast.unparse(item.context_expr).startswith("extra(") for item in node.items)]
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


@pytest.mark.fast
def test_every_extra_is_one_of_the_package():
    import tomllib

    from ina.base.extras import PURPOSES

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert PURPOSES.keys() <= project["optional-dependencies"].keys()


@pytest.mark.fast
def test_every_package_and_experiment_is_installed():
    """A file that setup.py does not find works in the checkout and is missing after pip install."""
    for path in SOURCES:
        assert (path.parent / "__init__.py").exists(), f"{path.parent} has no __init__.py: setup.py does not see it as a package"
    pairs = [(folder, pattern) for folder, patterns in manifest.DATA.items() for pattern in patterns]
    carried = {path for folder, pattern in pairs for path in (ROOT / folder).glob(pattern)}
    for folder in ("p4", "experiments", "workloads", "host"):
        for path in files(ROOT / folder, "**/*.*"):
            if path.suffix in (".p4", ".toml", ".csv", ".c", ".h"):
                assert path in carried, f"{path.relative_to(ROOT)} is not in DATA of ina/base/manifest.py"
