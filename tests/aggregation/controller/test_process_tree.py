"""Trees of switch processes: sums of workers below several of them, and why jobs end."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import closing
from pathlib import Path

import child
import numpy as np
import pytest
import tiers
from capabilities import need
from control_process import free_tcp_name
from listening_switch import TOKEN, listening
from tree_processes import TreeWorker, job, path_of, shown
from waiting import LONG, until

need("cc")

from ina.aggregation.controller.client import Client, ControlError, SwitchProcess  # noqa: E402
from ina.aggregation.controller.looks import workers_of  # noqa: E402

pytestmark = [pytest.mark.build, pytest.mark.later]
LOSSY = (str(Path(__file__).with_name("lossy_switch.py")),)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Names of a root, of two switch processes below, and of one below the second, at a path."""
    path = str(tmp_path_factory.mktemp("tree") / "switch.sock")
    with listening() as root, listening("--parent", shown(root.name)) as one, listening("--parent", shown(root.name)) as two, \
            listening("--parent", shown(two.name), at=path) as three:
        yield root.name, one.name, two.name, three.name


def sums(workers, elements=5000, dtype=np.int32):
    """Sums random values, which all get; returns the sum."""
    rng = np.random.default_rng(elements)
    whole = dtype is np.int32
    arrays = [rng.integers(-2**20, 2**20, elements, dtype=dtype) if whole else rng.normal(size=elements).astype(dtype)
              for _ in workers]
    expected = np.sum(arrays, axis=0, dtype=np.int64) if whole else None
    tickets = [worker.endpoint.submit(array) for worker, array in zip(workers, arrays, strict=True)]
    for worker, ticket in zip(workers, tickets, strict=True):
        worker.endpoint.wait(ticket, LONG)
    assert all(np.array_equal(array, arrays[0]) for array in arrays)
    assert expected is None or np.array_equal(arrays[0], expected)
    return arrays[0]


def asked(name, operation):
    with closing(Client(name, LONG, access=TOKEN)) as client:
        return client.ask(operation)


def test_one_contribution_for_all_workers_below_goes_up(tree):
    root, one, two, _ = tree
    assert path_of(one).split("/")[1:] == [path_of(root)]
    with job("two and two", [one, one, two, two], rto_min=5.0, rto_max=5.0) as workers:
        sums(workers)
        ports = asked(root, "counters")["ports"].values()
        results = workers[0].endpoint.stats["results"]
        sent = [each["rx_packets"] for each in ports]  # some again, on a machine that is busy for as long as rto_min
        assert len(sent) == 2 and all(results <= each < 2 * results for each in sent), "as of one worker each"
        about = asked(root, "jobs")["jobs"]["two and two"]
        assert sorted(about["below"].values()) == [[0, 1], [2, 3]] and about["above"] == ""
        below = asked(one, "jobs")["jobs"]["two and two"]
        assert below["above"] == shown(root)
        assert workers_of(about) == (4, 4) and workers_of(below) == (2, 2), "nobody is missing"
    until(lambda: not asked(root, "jobs")["jobs"] and not asked(one, "jobs")["jobs"], "the end of the job")
    assert asked(one, "counters")["ports"] == asked(root, "counters")["ports"] == {}


@pytest.mark.parametrize("at", ["0123", "1133", "31", "0230", "33210"])
def test_sums_are_those_of_one_switch_to_the_bit(tree, at):
    with job(f"tree {at}", [tree[int(each)] for each in at]) as workers:
        whole, floats = sums(workers), sums(workers, dtype=np.float32)
        sums(workers, 1)
        assert not any(worker.endpoint.stats["drop_foreign"] for worker in workers), "results come from the switch, by any port"
    with job(f"alone {at}", [tree[0] for _ in at]) as workers:
        assert np.array_equal(sums(workers), whole)
        assert sums(workers, dtype=np.float32).tobytes() == floats.tobytes()


def test_more_workers_than_a_bitmap_has_bits(tree):
    with job("many", [tree[each % 4] for each in range(36)]) as workers:
        sums(workers, 300)


def test_workers_below_one_switch_process_need_no_other(tree):
    root, _, two, three = tree
    with job("local", [three, three]) as local, job("both", [two, three]) as both, job("none", [tree[1]], begin=False) as alone:
        sums(local)
        sums(both)
        alone[0].begin()
        sums(alone)
        assert asked(root, "jobs")["jobs"] == {}
        assert set(asked(two, "jobs")["jobs"]) == {"both"} and set(asked(three, "jobs")["jobs"]) == {"local", "both"}
        numbers = [each["number"] % 4 for name in (two, three) for each in asked(name, "jobs")["jobs"].values()]
        assert sorted(numbers) == [1, 1, 2], "jobs from above have numbers of their level"


def test_frames_that_are_lost_between_switch_processes_come_again(tree):
    root, _, two, _ = tree
    with listening("--parent", shown(root), main=LOSSY) as lossy, job("lossy", [lossy.name, lossy.name, two, two]) as workers:
        for count in (20_000, 1, 3000):
            sums(workers, count)
        assert sum(worker.endpoint.stats["retransmissions"] for worker in workers)


def test_a_lost_worker_is_named_to_all(tree):
    root, one, two, three = tree
    with job("lost", [one, one, three, root]) as workers:
        workers[2].client.close()
        for each in (0, 1, 3):
            assert "worker 2 of job 'lost'" in workers[each].failure() and "is lost" in workers[each].failure()
            client = workers[each].client
            until(lambda client=client: client.poll() and 2 in client.lost, "the number of the lost worker")
            assert set(workers[each].client.lost) == {2}


def test_workers_that_have_left_are_known_to_all(tree):
    _, one, two, three = tree
    with job("leaves", [one, one, three, two]) as workers:
        sums(workers)
        workers[0].leave()
        for each in (1, 2, 3):
            until(lambda each=each: workers[each].client.poll() or workers[each].client.left, "news of worker 0")
            assert set(workers[each].client.left) == {0} and not workers[each].client.failure


@pytest.mark.parametrize("which", ["one", "root"])
def test_a_switch_process_that_ends_is_named_to_all_others(which):
    with listening() as root, listening("--parent", shown(root.name)) as one, listening("--parent", shown(root.name)) as two, \
            job("gone", [one.name, two.name, two.name]) as workers:
        sums(workers)
        victim = one if which == "one" else root
        victim.process.send_signal(signal.SIGKILL)
        for each in (1, 2):
            reason = workers[each].failure()
            if which == "one":
                assert "the switch process" in reason and "of workers 0 of job 'gone' is lost" in reason
            else:
                assert f"the switch process above, {shown(root.name)}, is lost" in reason
        if which == "root":
            assert "is lost" in workers[0].failure()


def test_a_switch_process_that_is_stopped_has_not_left_in_peace():
    with listening() as root, listening("--parent", shown(root.name)) as one, listening("--parent", shown(root.name)) as two, \
            job("stopped", [one.name, two.name, two.name]) as workers:
        sums(workers)
        one.process.send_signal(signal.SIGTERM)
        for each in (1, 2):
            assert "of workers 0 of job 'stopped' is lost" in workers[each].failure()


def test_a_root_that_is_started_anew_serves_new_jobs_only():
    name = free_tcp_name()
    with listening(at=name) as root, listening("--parent", shown(name)) as one, listening("--parent", shown(name)) as two:
        paths = [path_of(one.name), path_of(two.name)]
        root.process.kill()
        child.status(root.process)
        until(lambda: "above_failure" in asked(one.name, "ping"), "news of the root's end")
        with job("alone", [one.name, one.name]) as workers:
            sums(workers)
        with listening(at=name):
            until(lambda: all(path_of(each.name).count("/") for each in (one, two)), "the new root")
            late = TreeWorker(one.name, "late", 0, paths)
            with closing(late.client), pytest.raises(ControlError, match="one tree; the one above may have been started anew"):
                late.client.admit("late", 2)
            with job("again", [one.name, two.name]) as workers:
                sums(workers)


def refused(*options):
    """Starts a switch process that ends at once; returns its errors."""
    tiers.several_processes("starts a switch process")
    command = [sys.executable, "-m", "ina.cli", "switch", "run", "-DVALUES=64", "--listen", shown(free_tcp_name()), *options]
    run = child.run(command, env=os.environ | {"INA_TOKEN": TOKEN})
    assert run.returncode == 1, run
    return run.stderr


def test_a_parent_that_cannot_be_one_is_refused(tree, tmp_path):
    root, _, _, three = tree
    assert "no switch process at socket 127.0.0.1:9" in refused("--parent", "127.0.0.1:9")
    token = tmp_path / "token"
    assert "there is no such file" in refused("--parent", shown(root), "--parent-token-file", str(token))
    token.write_text("another-token-than-that-of-the-root")
    os.chmod(token, 0o600)
    assert "the token of this socket is needed" in refused("--parent", shown(root), "--parent-token-file", str(token))
    assert "with values=64, this one" in (text := refused("-DVALUES=32", "--parent", shown(root))) and "start both alike" in text
    assert "the protocol ATP has a parameter server" in refused("atp", "--parent", shown(root))
    with listening("--parent", three) as fourth:
        assert "a tree of at most 4 levels" in refused("--parent", shown(fourth.name))


def test_a_process_that_is_below_another_cannot_be_above_it():
    name = free_tcp_name()
    with listening(at=name) as root, listening("--parent", shown(name)) as below:
        root.process.kill()
        child.status(root.process)
        until(lambda: "above_failure" in asked(below.name, "ping"), "news of the root's end")
        assert "has lost its parent" in refused("--parent", shown(below.name))


@pytest.mark.parametrize(("worker", "paths", "words"), [
    (0, ["{one}", "{one}"], "at this switch process"), (0, ["{root}", "{two}", "x"], "expected ids of 12 hexadecimal digits"),
    (0, ["{root}", "{one}/{root}"], "goes through a switch process twice"), (0, ["{two}", "{two}"], "at this switch process"),
    (5, ["{root}"], "its path is none"), (0, ["{root}", "0123456789ab"], "those here at"),
])
def test_paths_that_are_none_are_refused(tree, worker, paths, words):
    root, one, two, _ = tree
    known = {"root": path_of(root), "one": path_of(one), "two": path_of(two)}
    late = TreeWorker(root, f"wrong {paths}", worker, [path.format(**known) for path in paths])
    with closing(late.client), pytest.raises(ControlError, match=words):
        late.client.ping()


def test_workers_that_say_different_paths_are_refused(tree):
    root, one, two, _ = map(path_of, tree)
    first = TreeWorker(tree[0], "differs", 0, [root, one, root])
    late = TreeWorker(tree[0], "differs", 2, [root, two, root])
    with closing(first.client), closing(late.client), pytest.raises(ControlError, match="says other switch processes above"):
        late.client.ping()


def test_a_switch_process_without_a_parent_says_so(tree):
    with listening() as alone:
        paths = [path_of(alone.name), f"{'0' * 12}/{path_of(alone.name)}"]
        worker = TreeWorker(alone.name, "children", 0, paths)
        with closing(worker.client):
            worker.client.admit("children", 2)
        paths = [path_of(alone.name), path_of(tree[0])]
        worker = TreeWorker(alone.name, "strangers", 0, paths)
        with closing(worker.client), pytest.raises(ControlError, match="are one tree"):
            worker.client.admit("strangers", 2)


def test_a_switch_process_ends_only_after_its_parent_has_heard_that_its_workers_have_left():
    with listening() as root:
        below = SwitchProcess("p4/switchml.p4", {"VALUES": "64", "SLOTS": "1024"}, parent=shown(root.name), parent_access=TOKEN)
        try:
            below.wait_ready(LONG)
            with job("ends", [root.name, below.name]) as (here, there):
                sums([here, there])
                os.kill(root.process.pid, signal.SIGSTOP)
                try:
                    there.leave()
                    there.client.close()
                    below.close(1.0)  # while the parent cannot hear of it
                finally:
                    os.kill(root.process.pid, signal.SIGCONT)
                until(lambda: here.client.poll() or 1 in here.client.left, "news of the worker that has left")
                assert not here.client.failure
        finally:
            below.close()
        assert below.process.wait(LONG) == 0


def test_a_switch_process_that_others_reach_is_not_started_for_a_parent():
    with pytest.raises(ValueError, match="listens at a path or an abstract socket"):
        SwitchProcess("p4/switchml.p4", name="tcp:127.0.0.1:0", parent="127.0.0.1:1")
