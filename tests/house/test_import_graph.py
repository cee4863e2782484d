"""Tests that a change may reach (make test SINCE=COMMIT)."""

import subprocess
import sys

import pytest
from capabilities import need
from import_graph import ROOT, graph, reached

TESTS = {path for path in graph() if path.name.startswith("test_")}


def names(*paths: str) -> set[str]:
    return {path.name for path in reached(ROOT / path for path in paths).tests}


@pytest.mark.fast
@pytest.mark.parametrize(
    "path, among, not_among",
    [
        ("ina/p4/bfrt/schema.py", "test_bfrt.py", "test_rto.py"),
        ("tests/ranks.py", "test_backend_failures.py", "test_compiler_parser.py"),
        ("tests/topology/test_topoopt.py", "test_topoopt.py", "test_bfrt.py"),
        ("host/protocol/rto.c", "test_endpoint.py", "test_words.py"),
        ("p4/ps.p4", "test_parameter_server.py", "test_words.py"),
        ("tests/programs/served/controlled.p4", "test_p4runtime_cells.py", "test_words.py"),
    ],
)
def test_a_change_reaches_the_tests_that_need_it(path, among, not_among):
    found = names(path)
    assert among in found and not_among not in found, sorted(found)


@pytest.mark.fast
def test_a_file_that_no_test_names_reaches_all_and_is_named():
    name = "no-test" + ".names"
    reach = reached([ROOT / name, ROOT / "tests/house/test_words.py"])
    assert reach.tests == TESTS
    assert reach.notes() == [f"--since: every test runs, since no test names {name}"]


@pytest.mark.build
@pytest.mark.parametrize("path", ["scratch{}.py", "scratch{}.c", "scratch{}.txt", "scratch{}/scratch{}.py",
                                  "ina/p4/scratch{}.txt", "scratch{}/scratch{}.toml"])
def test_a_new_file_that_no_test_finds_reaches_nothing(path):
    need("repository")
    path = path.replace("{}", "-of-nobody")
    reach = reached([], [ROOT / path])
    assert (reach.tests, reach.decisive) == (set(), [])
    assert reach.notes() == [f"--since: git does not know {path}, and no test finds it: ignored"]


@pytest.mark.build
@pytest.mark.parametrize("path", ["experiments/{}.toml", "tox.ini", "docs/guide/{}.md"])
def test_a_new_file_that_a_pattern_may_find_reaches_all(path):
    need("repository")
    reach = reached([], [ROOT / path.format("of-nobody")])
    assert reach.tests == TESTS and reach.decisive


@pytest.mark.fast
def test_nothing_changed_reaches_nothing():
    assert reached([]) == (set(), [], [])


@pytest.mark.build
def test_an_unknown_commit_is_named():
    need("repository")
    command = [sys.executable, "-m", "pytest", "-q", "--since", "no-such-commit", "tests/base/test_bounds.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 4 and "--since no-such-commit: fatal: " in done.stderr, done.stderr
