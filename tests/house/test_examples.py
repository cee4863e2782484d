"""Examples: each has a README with its run line and what it prints, and prints that."""

from __future__ import annotations

import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from capabilities import need
from folders import files

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
TOOLS = {
    "python": [sys.executable], "ina": [sys.executable, "-m", "ina.cli"],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone"],
}
READMES = files(EXAMPLES, "**/README.md")
RUN = re.compile(r"^```text\n\$ (.+)\n((?:.*\n)*?)```$", re.MULTILINE)
RUNS = [(line, output) for path in READMES for line, output in RUN.findall(path.read_text())]
MARKED = [pytest.param(*run, id=run[0], marks=pytest.mark.later if "torchrun" in run[0] else pytest.mark.gate) for run in RUNS]


def same(word: str, expected: str) -> bool:
    """Compares words; numbers with a point may differ by what another processor's arithmetic makes of them."""
    try:
        a, b = float(word.rstrip(",")), float(expected.rstrip(","))
    except ValueError:
        return word == expected
    return math.isclose(a, b, rel_tol=0.02, abs_tol=1e-5) if "." in expected else word == expected


@pytest.mark.build
@pytest.mark.parametrize(("line", "output"), MARKED)
def test_an_example_prints_what_its_readme_says(line, output):
    need("cc")
    words = shlex.split(line)
    variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    tool, *arguments = words[len(variables) :]
    if tool == "torchrun":
        need("torch")
    environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*TOOLS[tool], *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines, expected = done.stdout.splitlines(), output.splitlines()
    assert len(lines) == len(expected), done.stdout
    for ours, theirs in zip(lines, expected, strict=True):
        assert len(ours.split()) == len(theirs.split()) and all(map(same, ours.split(), theirs.split())), f"{ours}\n{theirs}"


@pytest.mark.fast
def test_numbers_may_differ_in_their_last_digits_only():
    assert same("1.794", "1.793") and same("3e-8", "1.8e-07") and same("loss", "loss")
    assert not same("1.9", "1.793") and not same("41", "42") and not same("lost", "loss") and not same("1e-3", "1.8e-07")


@pytest.mark.fast
def test_every_example_has_a_run_line():
    programs = {path.parent for path in files(EXAMPLES, "**/*.p4", "**/*.py", "**/*.ipynb")}
    assert {path.parent for path in READMES} == programs | {EXAMPLES / "servers"}, "files of settings run nothing by themselves"
    assert {path.parent for path in READMES if RUN.search(path.read_text())} == programs


@pytest.mark.fast
def test_the_first_thing_to_read_is_short():
    assert len((EXAMPLES / "one_packet.py").read_text().splitlines()) <= 40
    assert [path.name for path in EXAMPLES.iterdir() if path.is_file()].count("one_packet.py") == 1


@pytest.mark.fast
@pytest.mark.parametrize("page", READMES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_links_of_examples_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
