"""The marks fast, build, root and hardware: each test has one, which covers all that the test needs."""

import ast
import os
import re
import sys
import tomllib
from pathlib import Path

import capabilities
import child
import marks
import pytest
from folders import files

pytestmark = [pytest.mark.build, pytest.mark.later]
TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent


def run_pytest(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """Runs pytest with our conftest and settings, without settings of outside programs; returns its status and output."""
    (folder / "test_it.py").write_text("import os, subprocess\nimport pytest\nfrom capabilities import need\n" + text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("INA_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-ra", "-c", ROOT / "pyproject.toml", f"--rootdir={folder}", "-p",
               "conftest", "-p", "no:cacheprovider", *options, folder]
    done = child.run(command, child.TRAINING, env={**environment, "PYTHONPATH": str(TESTS)})
    return done.returncode, done.stdout + done.stderr


UNMARKED = "\n@pytest.mark.fast\ndef test_one(): pass\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_two(n): pass\n"


@pytest.mark.parametrize("options", [pytest.param((), marks=pytest.mark.gate), ("-m", "fast"), ("-n", "1")], ids=" ".join)
def test_a_test_without_a_mark_is_an_error(tmp_path, options):
    """The error comes also if another test is selected, and if other processes collect."""
    status, output = run_pytest(tmp_path, UNMARKED, *options)
    assert status != 0 and "test_it.py::test_two carries none of the marks fast, build, root, hardware" in output, output
    assert "pytestmark = pytest.mark.fast" in output and "test_it.py::test_one carries" not in output, output


@pytest.mark.parametrize("place", ["class", "parameter"])
def test_a_test_with_two_marks_is_an_error(tmp_path, place):
    code = {"class": "class TestIt:\n @pytest.mark.root\n def test_it(self): pass\n",
            "parameter": "@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.root)])\ndef test_it(n): pass\n"}
    status, output = run_pytest(tmp_path, f"pytestmark = pytest.mark.build\n{code[place]}")
    assert status != 0 and "::test_it carries 2 of the marks" in output and "root, build; keep one" in output, output


@pytest.mark.parametrize(
    "mark, capability, least",
    [pytest.param("fast", "cc", "build", marks=pytest.mark.gate), ("fast", "netns", "root"), ("fast", "dpdk", "hardware"),
     ("build", "root", "root"), ("root", "tna-programs", "hardware")],
)
def test_a_mark_that_says_less_than_the_test_needs_fails_it(tmp_path, mark, capability, least):
    """The need is in the test, in a fixture, or in the file as a whole; the capability may be there or not."""
    marked = f"pytestmark = pytest.mark.{mark}\n"
    message = f"is marked {mark}, but needs {capability}: mark it {least}"
    status, output = run_pytest(tmp_path, f"{marked}def test_it(): need('scapy', {capability!r})\n")
    assert status == 1 and f"test_it.py::test_it {message}" in output and "1 failed" in output, output
    fixture = f"@pytest.fixture(scope='module')\ndef there(): need({capability!r})\n"
    status, output = run_pytest(tmp_path, f"{marked}{fixture}def test_it(there): pass\n")
    assert status == 1 and f"test_it.py::test_it {message}" in output, output
    if not capabilities.missing(capability):  # else there is no test, whatever its mark
        status, output = run_pytest(tmp_path, f"need({capability!r})\n{marked}def test_it(): pass\n")
        assert status != 0 and f"test_it is marked {mark}, but its file needs {capability}: mark it {least}" in output, output


@pytest.mark.parametrize(
    "code", ["subprocess.run(['true'])", "os.waitpid(os.fork() or os._exit(0), 0)", "os.system('true')"],
    ids=lambda code: code.partition("(")[0],
)
def test_a_fast_test_starts_no_process(tmp_path, code):
    """It fails even if it catches every exception, or starts it in a thread."""
    body = f"\n try: {code}\n except BaseException: pass\n"
    status, output = run_pytest(tmp_path, f"@pytest.mark.fast\ndef test_it():{body}\n@pytest.mark.build\ndef test_other():{body}")
    assert status == 1 and "test_it.py::test_it is marked fast, but starts a process: mark it build" in output, output
    assert "1 failed, 1 passed" in output, output
    thread = f"\n import threading\n thread = threading.Thread(target=lambda: {code})\n thread.start(); thread.join()\n"
    status, output = run_pytest(tmp_path, f"@pytest.mark.fast\ndef test_it():{thread}")
    assert status == 1 and "test_it.py::test_it is marked fast, but starts a process: mark it build" in output, output


@pytest.mark.gate
def test_a_mark_that_says_enough_passes(tmp_path):
    """The check for a capability may start a process, though the test may not."""
    code = "import capabilities\n" + "\n".join(
        f"@pytest.mark.{mark}\ndef test_{mark}():\n need({needs!r})\n capabilities.missing('repository')\n"
        for mark, needs in (("fast", "two processors"), ("build", "cc"), ("root", "cc"), ("hardware", "root"))
    )
    status, output = run_pytest(tmp_path, code)
    assert status == 0, output


@pytest.mark.gate
def test_marks_are_declared_and_name_capabilities_that_exist():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    assert set(marks.MARKS) <= {line.partition(":")[0] for line in declared}
    assert set(marks.LEAST) <= set(capabilities.PROBES)


def unmarked(source: str) -> list[str]:
    """Tests of a file that names no mark for them that covers what the file as a whole needs. Where that is absent, pytest
    collects none of them, and so misses no mark. The mark is in ``pytestmark``, above the test, or in parameters."""
    texts, needs = {"pytestmark": ""}, []
    for part in ast.parse(source).body:
        if isinstance(part, ast.Assign):
            texts[ast.unparse(part.targets[0])] = ast.unparse(part.value)
        elif isinstance(part, ast.FunctionDef):
            texts[part.name] = " ".join(map(ast.unparse, [*part.decorator_list, part.args]))
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Call) and ast.unparse(part.value.func) == "need":
            needs += [ast.literal_eval(value) for value in part.value.args]
    least = max((marks.LEAST.get(need, "fast") for need in needs), key=marks.MARKS.index, default="fast")
    enough = re.compile(rf"pytest\.mark\.({'|'.join(marks.MARKS[marks.MARKS.index(least) :])})\b|\bmarked\(")

    def covered(name: str) -> bool:
        return bool(enough.search(texts[name])) or any(covered(word) for word in re.findall(r"\w+", texts[name]) if word in texts)

    return [name for name in texts if name.startswith("test_") and not covered("pytestmark") and not covered(name)]


@pytest.mark.gate
@pytest.mark.parametrize("path", [path for path in files(TESTS, "**/test_*.py") if re.search(r"^need\(", path.read_text(), re.M)],
                         ids=lambda path: path.stem)
def test_files_that_need_something_name_their_marks_where_it_is_absent_too(path):
    assert not unmarked(path.read_text())


@pytest.mark.gate
def test_a_missing_mark_is_read_from_the_source():
    ours = "OURS = [pytest.param('ours', marks=pytest.mark.hardware)]\n@pytest.fixture(params=OURS)\ndef target(request): pass\n"
    source = f"{ours}need('cc', 'bmv2')\ndef test_one(target): pass\n\n@pytest.mark.build\ndef test_two(): pass\n"
    assert unmarked(source) == ["test_two"]
    assert unmarked(f"{source}pytestmark = [pytest.mark.build]\n") == ["test_two"]
    assert unmarked(f"{source}pytestmark = [pytest.mark.hardware]\n") == []
