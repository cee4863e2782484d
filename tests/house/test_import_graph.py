"""Tests that a change may reach (make test SINCE=COMMIT)."""

import re
import subprocess
import sys

import import_graph
import pytest
from capabilities import need
from import_graph import ROOT, WHATEVER, graph, reached

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
        ("host/protocol/rto.c", "test_endpoint.py", "test_carrier.py"),
        ("p4/ps.p4", "test_parameter_server.py", "test_carrier.py"),
        ("p4/include/size.p4", "test_parameter_server.py", "test_carrier.py"),
        ("tests/programs/served/controlled.p4", "test_p4runtime_cells.py", "test_carrier.py"),
        ("tests/stf/include/end.p4", "test_stf_features.py", "test_carrier.py"),
        ("tests/stf/no-test" + "-names.p4", "test_stf_features.py", "test_carrier.py"),
        ("experiments/no-test" + "-names.toml", "test_experiments.py", "test_carrier.py"),
        ("ina/lab/kinds/sharing.py", "test_experiments.py", "test_carrier.py"),
        ("ina/lab/kinds/library.py", "test_experiments.py", "test_carrier.py"),  # gone: a name that is looked for
        ("docs/" + "reference/glossary.md", "test_words.py", "test_carrier.py"),
        ("tests/house/test_that_is_" + "gone.py", "test_words.py", "test_carrier.py"),
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
    assert reach.notes() == [f"--since: every test runs, since any may need {name}"]


@pytest.mark.fast
@pytest.mark.parametrize("path", ["setup.py", "pyproject.toml", "Makefile", "tests/conftest.py", "tests/marks.py"])
def test_what_all_need_reaches_all_whoever_names_it(path):
    reach = reached([ROOT / path])
    assert (ROOT / path).exists() and reach.tests == TESTS and reach.decisive == [ROOT / path]


@pytest.mark.fast
def test_the_plugins_of_the_tests_reach_all():
    conftest = (ROOT / "tests/conftest.py").read_text()
    plugins = {ROOT / f"tests/{name}.py" for name in re.findall(r"^(?:import|from) (\w+)", conftest, re.MULTILINE)}
    assert {path for path in plugins if path.exists()} <= WHATEVER


@pytest.mark.build
def test_a_file_that_was_renamed_counts_twice(tmp_path, monkeypatch):
    def git(*words):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    need("repository")
    monkeypatch.setattr(import_graph, "ROOT", tmp_path)
    (tmp_path / "old.py").write_text("of some length\n" * 9)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    git("mv", "old.py", "new.py")
    git("commit", "-qm", "two")
    assert import_graph.changed("HEAD~1") == ({tmp_path / "old.py", tmp_path / "new.py"}, set())


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
@pytest.mark.parametrize("path, found", [("experiments/{}.toml", "test_experiments.py"), ("docs/guide/{}.md", "test_docs.py"),
                                         ("tox.ini", "test_bounds.py")])
def test_a_new_file_that_a_pattern_may_find_reaches_its_users(path, found):
    need("repository")
    reach = reached([], [ROOT / path.format("of-nobody")])
    assert found in {test.name for test in reach.tests} and not reach.ignored


@pytest.mark.fast
def test_nothing_changed_reaches_nothing():
    assert reached([]) == (set(), [], [])


@pytest.mark.build
def test_an_unknown_commit_is_named():
    need("repository")
    command = [sys.executable, "-m", "pytest", "-q", "--since", "no-such-commit", "tests/base/test_bounds.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 4 and "--since no-such-commit: fatal: " in done.stderr, done.stderr
