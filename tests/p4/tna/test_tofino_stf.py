"""The STF tests of p4c's back end for Tofino, from the repository that INA_BF_P4C names: both switches send what they expect.

The files are those of the commit that bench/programs.toml pins (collection `bf-p4c`); none of them is in this repository.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
from capabilities import leave_out, need

from bench import programs
from ina.p4.tools import stf

pytestmark = [pytest.mark.hardware, pytest.mark.timeout(600)]
PINNED = programs.Collection("bf-p4c", **tomllib.loads(programs.PINS.read_text(encoding="utf-8"))["collection"]["bf-p4c"])
TESTS = re.compile(r"p4-tests/p4_16/(?:internal/)?stf/[^/]+\.stf")
TARGETS = "interpreter", "compiled"

# Requests that are not ours to serve: a pattern of the reason that a switch gives.
NOT_OURS = (
    ("Tofino [23]|#error Invalid target", "for Tofino 2 or 3"),
    ("Portable Switch Architecture", "for another architecture, PSA"),
    ("this package 'Switch' is not|'tofino/stateful_alu.p4' not found", "for architectures of p4c that came before TNA"),
    ("unknown command '(setenv|wire)'", "commands of the model's harness beyond packets and tables"),
    ("has no parameter 'meter_(addr|pfe)'", "names buses of the hardware"),
    ("there is already an entry", "adds a key again, for which an exact table of the hardware has several ways"),
    ("key '(data.f2|hdr.data.f1)' is unknown", "names a field where the key is a slice of it"),
    ("meta.rand_num: 4294967295 does not fit in 24 bits", "gives a key more bits than it has"),
)
# Tests that expect other packets than ours: none may pass, or its row is to go.
DIFFERENT = {
    "hash_dist_sharing": "expects that an assignment in an action has no effect: value3 stays what it was",
    "header_stack_checksum": "expects verify() of a right checksum to be true, where true is wrong in all other tests",
    "ipv4_options_varbit": "a varbit's size, and verify(), from a header that is not extracted yet: it has no defined value",
    "p4c-1179": "expects (bit<64>)(b << 4) of 32 bits to keep what was shifted out, which P4_16 8.5 cuts off",
    "p4c-5288": "three pipelines that hand their headers to each other; not understood yet",
}


def names() -> list[str]:
    """The paths of the tests that have a program, in the pinned commit."""
    repository = repository_of(os.environ.get("INA_BF_P4C", ""))
    if repository is None:
        return []
    paths = set(programs.git(repository, "ls-tree", "-r", "--name-only", PINNED.commit, "p4-tests/p4_16/").decode().splitlines())
    return sorted(path for path in paths if TESTS.fullmatch(path) and path.removesuffix("stf") + "p4" in paths)


def repository_of(folder: str) -> Path | None:
    return next((path for path in (Path(folder, ".git"), Path(folder)) if (path / "HEAD").is_file()), None) if folder else None


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bf-p4c")
    repository = repository_of(os.environ["INA_BF_P4C"])
    assert repository is not None
    programs.extract(repository, PINNED, folder)
    return folder


@pytest.mark.parametrize("test", names() or ["none"], ids=lambda path: Path(path).stem)
def test_both_switches_send_what_the_hardware_does(request: pytest.FixtureRequest, test: str) -> None:
    need("cc", "bf-p4c")
    path: Path = request.getfixturevalue("checkout") / test
    options = stf.Options(PINNED.define, [request.getfixturevalue("checkout") / folder for folder in PINNED.include])
    outcomes = [stf.run(path.with_suffix(".p4"), path, target, options) for target in TARGETS]
    if path.stem in DIFFERENT:
        assert [verdict for verdict, _ in outcomes] == ["FAIL", "FAIL"], f"this test is in DIFFERENT no longer: {outcomes}"
        leave_out(DIFFERENT[path.stem])
    for pattern, why in NOT_OURS:
        if all(verdict in ("refused", "no run") for verdict, _ in outcomes) and re.search(pattern, outcomes[0][1]):
            leave_out(f"{why}: {outcomes[0][1]}")
    assert outcomes == [("pass", ""), ("pass", "")]
