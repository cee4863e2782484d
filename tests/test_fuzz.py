"""Everything that reads what others wrote, under coverage-guided fuzzing (tests/fuzz): corpora in the tree, some seconds of
fuzzing, and planted defects."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from capabilities import missing, need
from fuzz import engine, managed, native, registry
from fuzz.plants import PLANTS, search
from fuzz.registry import MANAGED, NATIVE, ROOT, Managed, Target

SECONDS = 2  # of fuzzing, for each target
USUAL = [target for target in NATIVE if not target.slow]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Objects, which targets share."""
    return tmp_path_factory.mktemp("fuzz")


def test_every_target_has_a_small_corpus_and_no_other_has_one() -> None:
    assert {path.name for path in registry.CORPUS.iterdir()} == set(registry.TARGETS)
    for target in registry.TARGETS.values():
        sizes = [path.stat().st_size for path in target.corpus.iterdir()]
        assert sizes and sum(sizes) < 20_000 and max(sizes) <= target.longest, target.name


@pytest.mark.parametrize("target", [t for t in USUAL if not t.program], ids=lambda target: target.name)
def test_corpora_of_targets_in_c_find_nothing(target: registry.Native, build: Path) -> None:
    """Without clang. Those of generated programs run where there is clang only: to compile them takes longer than all others."""
    need("sanitizers")
    executable = native.build(target, build, "cc")
    files = sorted(map(str, target.corpus.iterdir()))
    done = subprocess.run([executable, *files], capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, engine.essence(done.stderr)


def test_corpora_of_targets_in_python_find_nothing() -> None:
    names = [target.name for target in MANAGED if not any(map(missing, target.needs))]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.managed", "--replay", *names], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.parametrize(
    "refuse",
    [
        lambda data: data.decode(),
        lambda data: "\u00e9".encode("ascii"),
        lambda data: int("x"),
        lambda data: float("x"),
        lambda data: (7,).index(3) if data else 0,
        lambda data: [7].index(3),
        lambda data: len(3),
        lambda data: data["a"],
        lambda data: {[]},
        lambda data: [][1],
        lambda data: "a" + 1,
        lambda data: int(None),
    ],
)
def test_a_refusal_in_pythons_own_words_is_a_finding(refuse) -> None:
    with pytest.raises(managed.Finding):
        managed.watched(refuse, (ValueError, TypeError, IndexError))(b"\xff")


def test_a_refusal_that_says_where_is_none() -> None:
    def refuse(data: bytes) -> None:
        raise ValueError("jobs.json:3: 'utf-8' codec can't decode byte 0xff")

    managed.watched(refuse, (ValueError,))(b"")


def fuzzed(targets: list[Target], build: Path, tmp_path: Path) -> None:
    """Two at a time; prints the coverage of each."""

    def run(target: Target) -> engine.Run:
        grown = tmp_path / target.name
        grown.mkdir()
        return engine.fuzz(target, SECONDS, build, [grown, target.corpus])

    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(run, targets))
    print("\n".join(map(str, runs)))
    assert not [run for run in runs if run.artifact is not None], "\n".join(
        f"{r}\n{r.artifact!r}\n{r.text}" for r in runs if r.text
    )
    assert all(run.coverage > 10 for run in runs)


def test_fuzzing_of_targets_in_c_finds_nothing(build: Path, tmp_path: Path) -> None:
    need("clang-fuzzer")
    for target in USUAL:
        native.build(target, build)  # one after the other: they share objects
    fuzzed(list(USUAL), build, tmp_path)


def test_fuzzing_of_targets_in_python_finds_nothing(build: Path, tmp_path: Path) -> None:
    need("atheris")
    fuzzed([target for target in MANAGED if not any(map(missing, target.needs))], build, tmp_path)


@pytest.mark.parametrize("planted", PLANTS, ids=lambda planted: planted.plant.name)
def test_planted_defects_are_found_within_a_minute(planted, build: Path) -> None:
    need("atheris" if isinstance(registry.TARGETS[planted.target], Managed) else "clang-fuzzer")
    run = search(planted, build)
    assert run.artifact is not None, run
    assert planted.plant.finds in run.text
