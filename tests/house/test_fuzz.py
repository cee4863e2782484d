"""Every reader of foreign data under coverage-guided fuzzing (tests/fuzz): corpora in the tree, some seconds of fuzzing, and
planted defects. Corpora are replayed in the gate; the rest judges the judge."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from capabilities import missing, need
from fuzz import __main__ as command_line
from fuzz import engine, managed, native, registry
from fuzz.plants import PLANTS, search
from fuzz.registry import MANAGED, NATIVE, ROOT, Managed, Target
from waiting import until

SECONDS = 2  # of fuzzing, for each target
USUAL = [target for target in NATIVE if not target.slow]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Objects, which targets share."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.fast
def test_every_target_has_a_small_corpus_and_no_other_has_one() -> None:
    assert {path.name for path in registry.CORPUS.iterdir()} == set(registry.TARGETS)
    for target in registry.TARGETS.values():
        sizes = [path.stat().st_size for path in target.corpus.iterdir()]
        assert sizes and sum(sizes) < 20_000 and max(sizes) <= target.longest, target.name


@pytest.mark.build
@pytest.mark.gate
@pytest.mark.parametrize("target", NATIVE, ids=lambda target: target.name)
def test_corpora_of_targets_in_c_find_nothing(target: registry.Native, build: Path) -> None:
    """Corpora run without clang, unoptimised."""
    need("sanitizers")
    executable = native.build(target, build, "cc")
    files = sorted(map(str, target.corpus.iterdir()))
    done = subprocess.run([executable, *files], capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, engine.essence(done.stderr)


@pytest.mark.build
@pytest.mark.gate
def test_corpora_of_targets_in_python_find_nothing() -> None:
    names = [target.name for target in MANAGED if not any(map(missing, target.needs))]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.managed", "--replay", *names], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.build
@pytest.mark.gate
@pytest.mark.parametrize("needed, name", [("atheris", "layers"), ("clang-fuzzer", "frames")])
def test_the_fuzzer_itself_runs_a_corpus_and_finds_nothing(needed: str, name: str, build: Path) -> None:
    """Without random search."""
    need(needed)
    target = replace(registry.TARGETS[name], patience=300)
    run = engine.fuzz(target, 3600, build, [target.corpus], runs=0, limit=900)
    assert run.artifact is None, run.text
    assert run.inputs >= len(list(target.corpus.iterdir())) and run.coverage > 10, run


@pytest.mark.fast
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


@pytest.mark.fast
def test_a_refusal_that_says_where_is_none() -> None:
    def refuse(data: bytes) -> None:
        raise ValueError("jobs.json:3: 'utf-8' codec can't decode byte 0xff")

    managed.watched(refuse, (ValueError,))(b"")


@pytest.mark.build
@pytest.mark.parametrize("compiler", ["cc", "clang"])
def test_large_blocks_are_the_sanitizers_business_with_any_compiler(compiler: str, tmp_path: Path) -> None:
    """A block with pages of its own (host/net/memory.h) has no red zones: no sanitizer sees writes beyond it."""
    need("sanitizers" if compiler == "cc" else "clang-fuzzer")
    source, program = tmp_path / "beyond.c", tmp_path / "beyond"
    beyond = "((volatile char *)ina_zeroed(1 << 20))[(1 << 20) + arguments]"
    source.write_text(f'#include "memory.h"\nint main(int arguments, char **v) {{ return {beyond}; }}\n')
    for flags, message in (([], ""), (["-fsanitize=address"], "heap-buffer-overflow")):
        command = [compiler, *flags, "-D_GNU_SOURCE", "-g", "-I", str(ROOT / "host/net"), str(source), "-o", str(program)]
        subprocess.run(command, check=True)
        done = subprocess.run([program], capture_output=True, text=True)
        assert message in done.stderr and bool(done.returncode) == bool(message), done


# ---- the runner


HANGS = """
import atheris, signal, sys

def call(data):
    if data == b"hang":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})  # libFuzzer's own time-out needs it
        while True:
            pass

atheris.Setup(sys.argv, call)
atheris.Fuzz()
"""
LEAVES_A_CHILD = """
import subprocess
print(subprocess.Popen(["sleep", "10000"]).pid, file=open({!r}, "w"))
print("#1 INITED cov: 7 ft: 7")
"""
NEVER_BEGINS = "import time; print('imports', flush=True); time.sleep(10000)"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch):
    """Makes each target run a Python program instead: by the target's name, or one for all."""

    def use(programs: dict[str, str] | str) -> None:
        def command(target: Target, folder: Path, root: Path = ROOT) -> list[str]:
            return [sys.executable, "-c", programs if isinstance(programs, str) else programs[target.name]]

        monkeypatch.setattr(engine, "command", command)

    return use


@pytest.mark.build
@pytest.mark.judge
def test_a_target_that_hangs_is_a_finding_with_its_input(runs, tmp_path: Path) -> None:
    need("atheris")
    program, corpus = tmp_path / "hangs.py", tmp_path / "corpus"
    program.write_text(HANGS)
    corpus.mkdir()
    (corpus / "one").write_bytes(b"hang")
    runs(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    for limit in (15, 60, 240):  # the first that is long enough, on this machine, to begin with the input
        with suppress(engine.Broken):
            run = engine.fuzz(registry.TARGETS["layers"], 1, tmp_path, [corpus], limit=limit)
            break
    assert run.artifact == b"hang"
    assert f"did not end within {limit} s" in run.text


@pytest.mark.build
@pytest.mark.judge
def test_a_target_that_never_takes_an_input_is_broken(runs, tmp_path: Path) -> None:
    runs(NEVER_BEGINS)
    for limit in (2, 20, 200):  # the first that is long enough, on this machine, to say so
        with pytest.raises(engine.Broken, match=f"layers: did not end within {limit} s and left no input:\n") as broken:
            engine.fuzz(registry.TARGETS["layers"], 1, tmp_path, limit=limit)
        if "imports" in str(broken.value):
            break
    assert str(broken.value).endswith("imports\n")


@pytest.mark.build
@pytest.mark.judge
def test_a_child_that_a_target_leaves_holds_nobody_up(runs, tmp_path: Path) -> None:
    """It is killed, as the output that it holds open would not end before it."""
    runs(LEAVES_A_CHILD.format(str(tmp_path / "pid")))
    assert engine.fuzz(registry.TARGETS["layers"], 1, tmp_path, limit=600).coverage == 7
    process = Path("/proc", (tmp_path / "pid").read_text().strip())
    until(lambda: not process.exists() or ") Z " in (process / "stat").read_text(), "the end of the child")


def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *targets: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fuzz", "--results", str(tmp_path), "--seconds", "1", "--nice", "0", *targets])
    return command_line.main()


@pytest.mark.build
@pytest.mark.judge
def test_the_other_targets_run_when_one_cannot(runs, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(command_line, "usable", lambda target: "")
    runs({"stf": "raise SystemExit(3)", "layers": "print('#1 INITED cov: 7 ft: 7')"})
    assert called(monkeypatch, tmp_path, "capture", "stf", "layers") == 1  # "capture" has no command at all: KeyError
    out = capsys.readouterr().out
    assert re.findall(r"^(\S+) +BROKEN$", out, re.MULTILINE) == ["capture", "stf"]
    assert re.search(r"^layers .* cov: 7$", out, re.MULTILINE)


@pytest.mark.fast
def test_to_fuzz_nothing_is_a_failure(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(command_line, "usable", lambda target: "no fuzzer")
    assert called(monkeypatch, tmp_path) == 1
    out, err = capsys.readouterr()
    assert out.count("left out: no fuzzer") == len(registry.TARGETS)
    assert err == "nothing was fuzzed: all targets are left out, for the reasons above\n"


@pytest.mark.build
@pytest.mark.judge
def test_a_corpus_that_cannot_be_minimised_stays(runs, tmp_path: Path, monkeypatch) -> None:
    corpus = tmp_path / "layers"
    corpus.mkdir()
    (corpus / "one").write_bytes(b"x")
    monkeypatch.setattr(registry, "CORPUS", tmp_path)
    runs("raise SystemExit(1)")
    with pytest.raises(engine.Broken, match="cannot be minimised"):
        command_line.renew(registry.TARGETS["layers"], tmp_path / "build", [])
    assert [path.read_bytes() for path in corpus.iterdir()] == [b"x"]


# ---- seconds of fuzzing, and plants


def fuzzed(targets: list[Target], build: Path, tmp_path: Path) -> None:
    """Fuzzes the targets, two at a time; prints the coverage of each."""

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


@pytest.mark.build
@pytest.mark.judge
def test_fuzzing_of_targets_in_c_finds_nothing(build: Path, tmp_path: Path) -> None:
    need("clang-fuzzer")
    for target in USUAL:
        native.build(target, build)  # one after the other: they share objects
    fuzzed(list(USUAL), build, tmp_path)


@pytest.mark.build
@pytest.mark.judge
def test_fuzzing_of_targets_in_python_finds_nothing(build: Path, tmp_path: Path) -> None:
    need("atheris")
    fuzzed([target for target in MANAGED if not any(map(missing, target.needs))], build, tmp_path)


@pytest.mark.build
@pytest.mark.judge
@pytest.mark.machine
@pytest.mark.parametrize("planted", PLANTS, ids=lambda planted: planted.plant.name)
def test_planted_defects_are_found_within_a_minute(planted, build: Path) -> None:
    need("atheris" if isinstance(registry.TARGETS[planted.target], Managed) else "clang-fuzzer")
    run = search(planted, build)
    assert run.artifact is not None, run
    assert planted.plant.finds in run.text
