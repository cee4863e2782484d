"""Progress of what is under way: whole lines for readers, bounded, and no doubt about what has been killed."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import waiting
from capabilities import need
from small_sweep import quiet, trial

from ina.lab import plan, run, sweep
from ina.lab.kind import Outcome
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.results import journal, progress, record
from ina.lab.results.journal import Journal, read

__all__ = ["trial"]  # a fixture


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(journal.time, "monotonic", clock)
    return clock


def lines(folder: Path) -> list[dict]:
    found = read(folder)
    assert found is not None
    return found.lines


@pytest.mark.fast
def test_a_reader_gets_whole_lines_once_a_second_and_nothing_after_a_success(tmp_path, clock):
    with Journal(tmp_path, kind="training", name="a") as keeper:
        first = read(tmp_path)
        assert first is not None and first.running and first.lines == []
        assert first.head["kind"] == "training" and first.head["pid"] == os.getpid()
        for step in range(1, 26):  # of 0.1 s
            clock.now += 0.1
            keeper.note("ina", step, 40, loss=1 / step, step_ms=100.0)
            written = [line["done"] for line in lines(tmp_path)]
            assert written == list(range(1, 1 + (step - 1) // 10 * 10 + 1)), "the first at once, the others with the next second"
        assert lines(tmp_path)[1] == {"at": 0.2, "of": "ina", "done": 2, "total": 40, "loss": 0.5, "step_ms": 100.0}
        clock.now += 1
        keeper.due()  # nothing happens meanwhile: the last steps are there nevertheless
        assert lines(tmp_path)[-1]["done"] == 25
    assert read(tmp_path) is None and not list(tmp_path.iterdir())


@pytest.mark.fast
def test_a_line_stands_for_more_steps_the_more_there_are(tmp_path):
    """A step has one line, or is in one mean: sums over lines are sums over steps."""
    steps = 20_000
    with Journal(tmp_path) as keeper:
        for step in range(1, steps + 1):
            keeper.note("ina", step, steps, loss=float(step))
        keeper.flush()
        found = lines(tmp_path)
    ends = [line["done"] for line in found]
    counts = [b - a for a, b in zip([0, *ends], ends, strict=False)]
    assert ends[-1] == steps and sum(counts) == steps
    assert set(counts[:journal.FULL]) == {1} and sorted(counts[:-1]) == counts[:-1]
    assert len(found) <= journal.FULL + journal.HALF * math.ceil(math.log2(steps / journal.FULL))
    for line, count in zip(found, counts, strict=True):
        mean = line["done"] - (count - 1) / 2
        assert line["loss"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.fast
def test_each_back_end_has_its_own_lines_and_a_loss_may_be_no_number(tmp_path):
    with Journal(tmp_path) as keeper:
        keeper.note("ina", 1, 2, loss=math.nan)
        keeper.note("ina", 2, 2, loss=math.inf)
        keeper.note("ina", 2, 2)  # the end again
        keeper.note("gloo", 1, None, "a few words", loss=2.0)
        keeper.flush()
        found = read(tmp_path)
    assert found is not None
    assert [(line["of"], line["done"], line["total"]) for line in found.last()] == [("ina", 2, 2), ("gloo", 1, None)]
    assert [line["loss"] for line in found.lines] == [None, None, 2.0] and found.lines[-1]["words"] == "a few words"


@pytest.mark.fast
def test_what_fails_leaves_its_journal_unlocked(tmp_path):
    with pytest.raises(RuntimeError), Journal(tmp_path) as keeper:
        keeper.note("", 1, 3)
        keeper.note("", 2, 3)
        raise RuntimeError("broken")
    found = read(tmp_path)
    assert found is not None and not found.running and [line["done"] for line in found.lines] == [1, 2]
    with Journal(tmp_path):  # again, in its place
        again = read(tmp_path)
        assert again is not None and again.running and again.lines == []


KILLED = """
import os, sys, time
from pathlib import Path
from ina.lab.results.journal import Journal
with Journal(Path(sys.argv[1]), kind="training", name="a") as keeper:
    keeper.note("ina", 3, 9, loss=1.0)
    time.sleep(600)
"""


@pytest.mark.build
def test_a_killed_writer_is_seen_to_have_ended(tmp_path):
    """SIGKILL lets it write nothing: the kernel takes the lock away."""
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)]) as process:
        try:
            waiting.until(lambda: (found := read(tmp_path)) and found.lines, "a line of the journal")
            found = read(tmp_path)
            assert found is not None and found.running and found.head["pid"] == process.pid
        finally:
            process.send_signal(signal.SIGKILL)
    after = read(tmp_path)
    assert after is not None and not after.running and after.lines == found.lines


@pytest.mark.fast
def test_half_a_line_is_left_out_and_anything_else_is_named(tmp_path):
    path = tmp_path / journal.FILE
    head = json.dumps({"schema": 1, "began": 1.0})
    good = json.dumps({"at": 1.0, "of": "ina", "done": 1, "total": 2, "loss": None})
    path.write_text(f"{head}\n{good}\n{good[:20]}")
    assert len(lines(tmp_path)) == 1
    path.write_text(head)
    assert read(tmp_path) is None
    for text, named in {"{}\n": ":1: schema None, expected 1", f"{head}\n[]\n": ":2: a list, expected an object",
                        f"{head}\n{good}\nx\n": ":3: ", f"{head}\n{good.replace('1.0', 'true')}\n": ":2: at = True",
                        f'{head}\n{good.replace("null", "[]")}\n': ":2: loss = []: expected a figure",
                        '{"schema": 1}\n': ":1: began = None"}.items():
        path.write_text(text)
        with pytest.raises(record.ResultsError, match="progress.jsonl") as error:
            read(tmp_path)
        assert named in str(error.value)


@pytest.mark.fast
def test_a_pipe_of_this_name_stops_no_reader(tmp_path):
    os.mkfifo(tmp_path / journal.FILE)
    with pytest.raises(record.ResultsError, match="progress.jsonl: no regular file"):
        read(tmp_path)


@pytest.mark.fast
def test_a_full_disk_ends_no_run_and_loses_no_line(tmp_path, monkeypatch):
    """A write of which only a part fits goes on where it stopped."""
    with Journal(tmp_path) as keeper:
        real, room = os.write, [30]

        def write(file: int, data: bytes) -> int:
            if not room[0]:
                raise OSError(28, "No space left on device")
            count = real(file, data[:room[0]])
            room[0] -= count
            return count

        with monkeypatch.context() as patched:
            patched.setattr(journal.os, "write", write)
            for step in range(1, 4):
                keeper.note("ina", step, 3)
                keeper.flush()
            assert lines(tmp_path) == []
        keeper.flush()
        assert [line["done"] for line in lines(tmp_path)] == [1, 2, 3]


@pytest.mark.fast
def test_a_run_goes_on_where_nothing_can_be_locked(tmp_path, monkeypatch, capsys):
    def flock(file: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(journal.fcntl, "flock", flock)
    with progress.kept(tmp_path, progress.Console(width=200)):
        assert journal.of(tmp_path) is None
    assert "progress is not recorded" in capsys.readouterr().out and not list(tmp_path.iterdir())


@pytest.mark.build
def test_a_sweep_and_its_points_have_journals_while_they_run(trial, tmp_path, monkeypatch):
    need("cc")
    seen: list[tuple[int, str]] = []
    plain = AllReduce.run

    def looked_at(self, folder, console):
        above, own = read(folder.parent), read(folder)
        assert above is not None and above.running and above.head["points"] == 4
        assert own is not None and own.running and own.head["kind"] == "allreduce"
        keeper = journal.of(folder.parent)
        keeper.flush()
        seen.append((lines(folder.parent)[-1]["done"], lines(folder.parent)[-1].get("words", "")))
        if len(seen) == 2:
            raise run.WrongSum("broken")
        yield from plain(self, folder, console)

    monkeypatch.setattr(AllReduce, "run", looked_at)
    with pytest.raises(sweep.SweepFailed):
        sweep.sweep(plan.load(trial), tmp_path, quiet())
    assert seen == [(0, ""), (1, "0 failed"), (2, "1 failed"), (3, "1 failed")]
    (folder,) = tmp_path.glob("trial-*")
    left = sorted(str(path.relative_to(folder).parent) for path in folder.rglob(journal.FILE))
    assert len(left) == 2 and left[0] == "." and left[1].startswith("001-"), "of the failed point, and of the sweep"


@pytest.mark.fast
def test_a_virtual_run_notes_its_share_once_a_second(tmp_path, monkeypatch):
    class Fabric:
        now = 2_000_000_000  # ps

        def stats(self):
            return {"frames": 3_000_000}

        def progress(self):
            return 0.25

    clock = Clock()
    monkeypatch.setattr(journal.time, "monotonic", clock)
    with Journal(tmp_path) as keeper, progress.Watch(quiet(), keeper) as watch:
        for _ in range(35):
            clock.now += 0.1
            watch(Fabric())
        keeper.flush()
        found = lines(tmp_path)
    assert [line["done"] for line in found] == [0.25] * 3
    assert found[0]["words"].startswith("2.000 virtual ms") and found[0]["hops_per_s"] == pytest.approx(3e6, rel=0.2)


@pytest.mark.build
def test_a_kind_that_keeps_nothing_has_a_journal_nevertheless(tmp_path, monkeypatch):
    """A user's own kind needs no line for it."""
    def looked_at(self, folder, console):
        found = read(folder)
        assert found is not None and found.running
        yield Outcome([])

    monkeypatch.setattr(AllReduce, "run", looked_at)
    run.measure(AllReduce(), tmp_path / "run", quiet())
    assert read(tmp_path / "run") is None
