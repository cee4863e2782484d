"""INA_TRACE's file: one JSON array, with several writers, some of them killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import run
from waiting import until

from ina.backend import trace_file

pytestmark = pytest.mark.build
WRITER = """
import sys
from pathlib import Path
from ina.backend import trace_file
for number in range(int(sys.argv[2])):
    trace_file.append(Path(sys.argv[1]), [{"who": sys.argv[3], "number": number, "text": "x" * 3000}] * 3)
"""


def writer(path: Path, count: int, name: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(count), name])


@pytest.mark.later
def test_appends_of_several_processes_make_one_array(tmp_path):
    path = tmp_path / "trace.json"
    writers = [writer(path, 50, str(name)) for name in range(3)]
    until(lambda: all(process.poll() is not None for process in writers), "the writers' end")
    assert [process.returncode for process in writers] == [0, 0, 0]
    events = json.loads(path.read_text())
    for name in "012":
        assert [event["number"] for event in events if event["who"] == name] == [number for number in range(50) for _ in range(3)]
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_is_killed_leaves_an_array(tmp_path):
    """It is killed at any moment: the next one goes on, and earlier records are there."""
    path = tmp_path / "trace.json"
    before = 0
    for turn in range(8):
        process = writer(path, 10**6, "killed")
        until(lambda: path.exists() and path.stat().st_size > before, "a writer to have begun")  # noqa: B023
        process.kill()
        process.wait()
        events = json.loads(path.read_text())
        assert len(events) % 3 == 0 and path.stat().st_size > before
        before = path.stat().st_size
        if turn == 4:
            (tmp_path / ".trace.json.new").write_text("half of a copy")
    trace_file.append(path, [{"who": "last"}])
    assert json.loads(path.read_text())[-1] == {"who": "last"} and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", ["notes", "[1, 2]", "[\n{},\n{},\n"])
def test_a_file_of_something_else_is_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(trace_file.NoTrace, match="is there and is no trace of ina's: remove it"):
        trace_file.append(path, [{}])
    assert path.read_text() == content


def test_a_device_is_no_file():
    with pytest.raises(trace_file.NoTrace, match="/dev/null is no regular file"):
        trace_file.append(Path("/dev/null"), [{}])
    assert Path("/dev/null").is_char_device()


@pytest.mark.later
def test_of_a_rank_that_is_killed_the_trace_is_there(tmp_path):
    """The trace has its collectives, and those of the others, which torchrun ends by SIGTERM: Python does not notice that."""
    trace = tmp_path / "made" / "trace.json"
    trace.parent.mkdir()
    run(tmp_path, 2, """
        rank, n = start()
        dist.all_reduce(torch.ones(100))
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline:
            events = json.loads(open(os.environ["INA_TRACE"]).read())
            if len({event["pid"] for event in events if event.get("cat") == "flight"}) == 2: break
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL if rank else signal.SIGTERM)
    """, INA_TRACE=str(trace))
    events = json.loads(trace.read_text())
    assert len({event["pid"] for event in events if event.get("cat") == "flight"}) == 2
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {"rank 0", "rank 1"}
