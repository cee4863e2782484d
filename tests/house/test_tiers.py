"""The tiers of tests, and make test's second look at time-outs."""

import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import capabilities
import child
import pytest
import second_look
import tiers

pytestmark = [pytest.mark.build, pytest.mark.later]
TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
IMPORTS = """
import ctypes, multiprocessing, os, pytest, tiers
from pathlib import Path
from capabilities import need
from waiting import until
"""
LATE = "until(lambda: False, 'what never comes', 0.01)"


def run_pytest(folder: Path, text: str, *options: str, **settings: str) -> tuple[int, str]:
    """Runs pytest on a file with our conftest and settings in ``folder``; returns its status and output."""
    (folder / "test_it.py").write_text(IMPORTS + text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("INA_", "PYTEST_"))}
    environment |= {"PYTHONPATH": str(TESTS), "TMPDIR": str(folder), **settings}
    command = [sys.executable, "-m", "pytest", "-q", "-ra", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={folder}", "-p",
               "conftest", "-p", "no:cacheprovider", *options, "test_it.py"]
    done = child.run(command, child.TRAINING, cwd=folder, env=environment)
    return done.returncode, done.stdout + done.stderr


MARKED = "".join(
    f"@pytest.mark.{mark}\n{tier and f'@pytest.mark.{tier}'}\ndef test_{mark}_{tier or 'none'}(): pass\n"
    for mark, tier in (("fast", ""), ("build", ""), ("root", ""), ("hardware", ""), ("build", "later"), ("root", "gate"),
                       ("build", "judge"))
)
GATE = {"fast_none", "build_none", "root_gate"}


@pytest.mark.parametrize(
    "tier, chosen",
    [("test", GATE), ("all", GATE | {"root_none", "hardware_none", "build_later"}), ("judges", {"build_judge"})],
)
@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "beside"])
def test_a_tier_is_chosen(tmp_path, tier, chosen, options):
    status, output = run_pytest(tmp_path, MARKED, "--tier", tier, "-rA", *options)
    assert status == 0, output
    assert {line.partition("::test_")[2] for line in output.splitlines() if line.startswith("PASSED")} == chosen, output


BESIDE = """
@pytest.mark.fast
@pytest.mark.parametrize("first", [True, False])
def test_the_lock_stays(request, first):
    begun, ended = (Path(__file__).with_name(name) for name in ("begun", "ended"))
    if first:
        request.config.add_cleanup(ended.touch)  # the last thing that a test process does
        until(begun.exists, "the other test process")
    else:
        begun.touch()
        until(ended.exists, "the end of the other test process")
        files = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
        assert [Path(each).name for each in files if "/machine" in each] == ["machine"], files
"""


def test_the_machine_lock_is_there_until_the_last_process_ends(tmp_path):
    status, output = run_pytest(tmp_path, BESIDE, "-n", "2")
    assert status == 0 and "2 passed" in output, output


@pytest.mark.parametrize("options, message", [
    (("--since", "nonsense"), "--since nonsense: "),
    (("nowhere.py::test_it",), "file or directory not found: nowhere.py::test_it"),
])
def test_what_cannot_be_run_is_said_beside_other_processes(tmp_path, options, message):
    status, output = run_pytest(tmp_path, MARKED, "--tier", "test", "-n", "1", *options)
    assert status == pytest.ExitCode.USAGE_ERROR and message in output and "INTERNALERROR" not in output, output


def test_a_required_capability_that_is_misspelt_is_said(tmp_path):
    status, output = run_pytest(tmp_path, MARKED, "-n", "1", INA_REQUIRE="torch,nothing-has-it")
    assert status == pytest.ExitCode.USAGE_ERROR and "INA_REQUIRE lists nothing-has-it: " in output, output


@pytest.mark.gate
def test_what_ci_requires_are_capabilities():
    lists = re.findall(r"INA_REQUIRE\+?=,?(\S+)", (ROOT / ".ci/run").read_text())
    names = {name for text in lists for name in text.split(",")}
    assert len(lists) == 2 and names <= capabilities.PROBES.keys() | capabilities.CHECKED, names


def test_all_tests_together_are_the_three_tiers(tmp_path):
    status, output = run_pytest(tmp_path, MARKED)
    assert status == 0 and "7 passed" in output, output


@pytest.mark.parametrize(
    "marks, message",
    [("fast gate later", "carries 2 of the tiers gate, later, judge"), ("fast later", "take later away"),
     ("build gate judge", "keep one")],
)
def test_a_wrong_tier_is_an_error(tmp_path, marks, message):
    status, output = run_pytest(tmp_path, "".join(f"@pytest.mark.{mark}\n" for mark in marks.split()) + "def test_it(): pass\n")
    assert status != 0 and message in output, output


def test_the_nearest_marker_is_the_tier(tmp_path):
    text = ("pytestmark = [pytest.mark.build, pytest.mark.later]\ndef test_far(): pass\n"
            "@pytest.mark.gate\ndef test_near(): pass\n"
            "@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.gate)])\ndef test_one(n): pass\n")
    status, output = run_pytest(tmp_path, text, "--tier", "test", "-rA")
    assert status == 0 and "test_near" in output and "test_one[2]" in output and "2 passed" in output, output


@pytest.mark.parametrize("deed", ["tiers.several_processes('runs ranks')", "multiprocessing.Process(target=print).start()",
                                  "multiprocessing.get_context('spawn').Process(target=print).start()"])
def test_what_starts_several_processes_chooses_its_tier(tmp_path, deed):
    body = f"\ndef test_it():\n    try: {deed}\n    except BaseException: pass\n"
    status, output = run_pytest(tmp_path, "@pytest.mark.build" + body)
    assert status == 1 and "chooses no tier: mark it later, or gate" in output, output
    status, output = run_pytest(tmp_path, "@pytest.mark.build\n@pytest.mark.later" + body)
    assert status == 0, output
    status, output = run_pytest(tmp_path, "@pytest.mark.fast\n@pytest.mark.gate" + body)
    assert status == 1 and "is marked fast, but " in output and "mark it build" in output, output


HANG = """
tiers.GRACE = 0.1
lock, library = ctypes.create_string_buffer(64), ctypes.PyDLL(None)  # calls hold Python's lock, and a mutex ignores signals
@pytest.mark.build
def test_before(): pass
@pytest.mark.build
@pytest.mark.timeout(0.1)
def test_hang(): [library.pthread_mutex_lock(lock) for _ in range(2)]
@pytest.mark.build
def test_after(): pass
"""


@pytest.mark.parametrize("options", [(), pytest.param(("-n", "1", "--dist", "loadfile"), marks=pytest.mark.gate)],
                         ids=["alone", "beside"])
def test_a_hang_in_native_code_ends_and_is_named(tmp_path, options):
    status, output = run_pytest(tmp_path, HANG, *options)
    assert status == 1 and "Timeout (0:00:00.2" in output and "in test_hang" in output, output
    if options:  # it runs once, and its neighbours, too
        assert output.count("\nworker 'gw0' crashed while running 'test_it.py::test_hang'") == 1, output
        assert "1 failed, 2 passed" in output and "Not run" not in output, output


def test_what_did_not_run_after_many_crashes_is_named(tmp_path):
    text = "".join(f"@pytest.mark.build\ndef test_{i}(): os._exit(1)\n" for i in range(9))
    status, output = run_pytest(tmp_path, text, "-n", "1", "--dist", "loadfile")
    assert status == 1 and "5 failed" in output, output
    assert "Not run, since too many processes crashed: test_it.py (4)" in output, output


def once(deed: str) -> str:
    """Text of a statement that does ``deed`` on its first call alone."""
    return f"\n    if not (mark := Path('mark')).exists():\n        mark.touch()\n        {deed}\n"


@pytest.mark.parametrize("options", [(), pytest.param(("-n", "1"), marks=pytest.mark.gate)], ids=["alone", "beside"])
@pytest.mark.parametrize("place", ["test", "fixture"])
def test_what_took_too_long_is_looked_at_again_in_the_open(tmp_path, options, place):
    test = f"@pytest.mark.build\ndef test_late():{once(LATE)}"
    if place == "fixture":
        test = f"@pytest.fixture\ndef late():{once(LATE)}\n@pytest.mark.build\ndef test_late(late): pass\n"
    status, output = run_pytest(tmp_path, f"@pytest.mark.build\ndef test_other(): pass\n{test}", "--tier", "test", *options)
    assert status == 0 and "UNSTABLE: 1 passed" in output and "waited 0.01 s for what never comes" in output, output
    assert "1 passed, 1 unstable" in output, output
    (line,) = (tmp_path / "results/unstable.jsonl").read_text().splitlines()
    entry = json.loads(line)
    assert entry["test"] == "test_it.py::test_late" and "what never comes" in entry["first"] and entry["load"] >= 0
    (tmp_path / "mark").unlink()
    status, output = run_pytest(tmp_path, test, "--tier", "test", *options)
    assert status == 1 and "unstable before, so not looked at again: test_it.py::test_late" in output, output


def test_what_was_unstable_in_an_earlier_try_is_not_looked_at_again(tmp_path):
    (tmp_path / "ina-try-ci").mkdir()
    (tmp_path / "ina-try-ci/unstable.jsonl").write_text(json.dumps({"test": "test_it.py::test_late"}) + "\n")
    status, output = run_pytest(tmp_path, f"@pytest.mark.build\ndef test_late():{once(LATE)}", "--tier", "test")
    assert status == 1 and "unstable before" in output, output


@pytest.mark.parametrize(
    "mark, deed, tier",
    [
        pytest.param("build", "assert 1 == 2", "test", marks=pytest.mark.gate),
        ("build", "raise TimeoutError", "test"),
        ("build", "import os, signal; os.kill(os.getpid(), signal.SIGINT)", "test"),
        ("fast", LATE, "test"),
        ("build", LATE, "all"),
    ],
    ids=["a wrong value", "another time-out", "a signal", "a fast test", "make test-all"],
)
def test_nothing_else_is_looked_at_again(tmp_path, mark, deed, tier):
    status, output = run_pytest(tmp_path, f"@pytest.mark.{mark}\ndef test_it():{once(deed)}", "--tier", tier)
    assert status != 0 and "UNSTABLE" not in output and "second look" not in output, output


def test_one_wrong_value_forbids_the_second_look_at_the_others(tmp_path):
    text = f"@pytest.mark.build\ndef test_late():{once(LATE)}\n@pytest.mark.build\ndef test_wrong(): assert 1 == 2\n"
    status, output = run_pytest(tmp_path, text, "--tier", "test")
    assert status == 1 and "UNSTABLE" not in output, output


def test_what_takes_too_long_twice_fails(tmp_path):
    status, output = run_pytest(tmp_path, f"@pytest.mark.build\ndef test_late(): {LATE}\n", "--tier", "test")
    assert status == 1 and "took too long, and failed when looked at again: test_it.py::test_late" in output, output
    assert not (tmp_path / "results/unstable.jsonl").exists()


@pytest.mark.parametrize("test, status", [("need('torch')", 0), ("pass", 1), ("need('torch')\n    assert False", 1)])
def test_a_required_capability_without_a_test_that_passes_fails_the_run(tmp_path, test, status):
    """Only a run of the whole tier says so: this one takes the file for all tests."""
    whole = "import second_look\nsecond_look.Verdict._whole = lambda self: True\n"
    text = f"{whole}@pytest.mark.fast\ndef test_it():\n    {test}\n"
    code, output = run_pytest(tmp_path, text, "--tier", "test", INA_REQUIRE="torch,clang-tidy")
    assert code == status, output
    assert ("INA_REQUIRE lists torch, but no test" in output) == (test == "pass"), output


def test_a_capability_counts_where_its_only_test_passed_when_looked_at_again(tmp_path):
    whole = "import second_look\nsecond_look.Verdict._whole = lambda self: True\n"
    text = f"{whole}@pytest.mark.build\ndef test_late():\n    need('torch'){once(LATE)}"
    status, output = run_pytest(tmp_path, text, "--tier", "test", INA_REQUIRE="torch")
    assert status == 0 and "1 unstable" in output and "INA_REQUIRE" not in output, output


@pytest.mark.gate
@pytest.mark.parametrize("choice", [
    {}, {"keyword": "sums"}, {"markexpr": "fast"}, {"collectonly": True}, {"since": "main~1"}, "tests/p4"])
def test_a_run_is_whole_unless_something_chose_among_its_tests(choice):
    folder, choice = (choice, {}) if isinstance(choice, str) else ("tests", choice)
    option = SimpleNamespace(**{"keyword": "", "markexpr": "", "collectonly": False, "since": None} | choice)
    config = SimpleNamespace(option=option, args=[folder], invocation_params=SimpleNamespace(dir=ROOT))
    assert second_look.Verdict(config)._whole() == (folder == "tests" and not choice)


@pytest.mark.gate
def test_the_longest_files_come_first():
    seconds = tiers.durations()
    assert seconds and all((ROOT / file).is_file() and value > 0 for file, value in seconds.items())
    assert list(seconds.values()) == sorted(seconds.values(), reverse=True)


@pytest.mark.gate
def test_a_hang_ends_by_a_limit_of_its_mark():
    assert 60 <= tiers.LIMITS["fast"] <= min(tiers.LIMITS.values()) and set(tiers.LIMITS) == set(second_look.marks.MARKS)
