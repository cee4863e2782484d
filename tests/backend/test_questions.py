"""A group's store whose process stands still holds nobody up who waits for a collective."""

from __future__ import annotations

import threading
import time

import pytest
from ranks import run
from waiting import LONG, TookTooLong, until

torch = pytest.importorskip("torch")

from ina.backend import ballot, roll_call  # noqa: E402
from ina.backend.flight_recorder import Recorder  # noqa: E402
from ina.backend.questions import Questions, StoreSilent  # noqa: E402


class Stopped:
    """A store that answers once it is ``released``."""

    def __init__(self):
        self.released, self.asked, self.values = threading.Event(), 0, {}

    def clone(self):
        return self

    def set(self, key, value):
        self.asked += 1
        if not self.released.wait(LONG):
            raise TookTooLong("nobody released the store")
        self.values[key] = value

    def check(self, keys):
        self.set("", "")
        return all(key in self.values for key in keys)


def ends(body):
    """Runs ``body`` in a thread, which must end although nobody releases the store."""
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    until(lambda: not thread.is_alive(), "the end of a call to a store that does not answer")


@pytest.mark.fast
def test_a_question_ends_and_the_next_one_waits_for_no_answer_that_is_overdue():
    store = Stopped()
    questions = Questions(store)
    with pytest.raises(StoreSilent, match="has not answered for 0.05 s"):
        questions.ask(lambda store: store.set("key", "value"), 0.05)
    with pytest.raises(StoreSilent, match="does not answer"):
        questions.ask(lambda store: store.set("key", "other"), LONG)
    assert store.asked == 1
    store.released.set()
    until(lambda: questions._late is None, "the answer")
    assert questions.ask(lambda store: store.values["key"], LONG) == "value"
    with pytest.raises(KeyError, match="no such"):
        questions.ask(lambda store: store.values["no such"], LONG)


@pytest.mark.fast
@pytest.mark.parametrize("error", [AttributeError("no clone"), RuntimeError("pure virtual")])
def test_a_store_without_more_connections_is_asked_itself(error):
    """torch 2.7's, and one that is written in Python."""
    class Plain(Stopped):
        def clone(self):
            raise error

    store = Plain()
    store.released.set()
    assert Questions(store).ask(lambda asked: asked is store, LONG)


@pytest.mark.fast
@pytest.mark.parametrize("runs", [True, False])
def test_a_signal_handler_that_raises_while_a_question_begins_is_heard(monkeypatch, runs):
    questions, start = Questions(Stopped()), threading.Thread.start
    began = []

    def interrupted(thread):
        began.append(thread)
        if runs:
            start(thread)
            thread.join(LONG)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            questions.ask(lambda store: None, LONG)
    if not runs:
        start(began[0])  # after all: it asks nothing
        began[0].join(LONG)
    assert questions.ask(lambda store: 5, LONG) == 5


class Filling(Stopped):
    """A store in which another rank sets a key at each look."""

    def __init__(self, *keys):
        super().__init__()
        self.left = list(keys)

    def check(self, keys):
        if self.left:
            self.values[self.left.pop(0)] = ""
        return all(key in self.values for key in keys)


@pytest.mark.fast
def test_keys_are_waited_for_until_a_deadline():
    keys = [f"key {i}" for i in range(4)]
    assert Questions(Filling(*reversed(keys))).missing(keys, time.monotonic() + LONG, LONG) == []
    over = time.monotonic() - 1
    assert Questions(Filling(*keys[1:])).missing(keys[:1], over, LONG) == ["key 0"]  # it looks once all the same
    assert Questions(Filling("key 0")).missing(keys[:1], over, LONG) == []
    with pytest.raises(StoreSilent):
        Questions(store := Stopped()).missing(keys, time.monotonic() + LONG, 0.05)
    store.released.set()


@pytest.mark.fast
def test_ranks_that_did_not_measure_are_named():
    store = Filling("ways/1")
    with pytest.raises(RuntimeError, match=r"ranks \[0, 2\] did not say what they measured of ways within 0.05 s"):
        ballot.Ballot(store, 1, 3, lambda: 0.05).largest("ways")


@pytest.mark.fast
def test_who_looks_for_other_ranks_collectives_goes_on(monkeypatch):
    monkeypatch.setattr(roll_call, "PATIENCE", 0.0)
    monkeypatch.setattr(roll_call, "ANSWER", 0.05, raising=False)
    store = Stopped()
    roll = roll_call.RollCall(store, 1, 2)
    call = roll.begin("the switch", "allreduce")
    ends(lambda: [roll.look(call) for _ in range(3)])
    assert store.asked == 1
    store.released.set()


@pytest.mark.fast
def test_who_measures_ways_is_told():
    store, errors = Stopped(), []

    def give():
        try:
            ballot.Ballot(store, 0, 2, lambda: 0.05).give("ways", [1.0])
        except RuntimeError as error:
            errors.append(str(error))

    ends(give)
    assert len(errors) == 1 and "store has not answered" in errors[0]
    store.released.set()


@pytest.mark.fast
def test_who_writes_its_flight_recorder_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("ina.backend.flight_recorder.TELLING", 0.05)
    recorder, store = Recorder(f"{tmp_path}/rank", 1), Stopped()
    monkeypatch.setattr(recorder, "_watch", lambda *args: None)
    recorder.watch(store, 1, 2)
    ends(recorder.failed)
    assert (tmp_path / "rank1").exists()
    store.released.set()


@pytest.mark.build
@pytest.mark.later
def test_a_rank_that_stands_still_and_serves_the_store_is_noticed(tmp_path):
    """Rank 0 goes on when the others have failed, as they must without its store."""
    folder = tmp_path / "words"
    folder.mkdir()
    results = run(tmp_path, 3, """
        from torch.distributed.distributed_c10d import _get_default_store
        os.environ["INIT"] = "env://"
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        folder = os.environ["FOLDER"]
        import socket
        if os.environ["RANK"] == "0":
            with socket.socket() as probe: probe.bind(("127.0.0.1", 0)); port = probe.getsockname()[1]
            open(f"{folder}/port.new", "w").write(str(port)); os.rename(f"{folder}/port.new", f"{folder}/port")
        while not os.path.exists(f"{folder}/port"): time.sleep(0.02)
        os.environ["MASTER_PORT"] = open(f"{folder}/port").read()
        rank, n = start(seconds=6)
        dist.all_reduce(torch.ones(3)); meet()
        if rank == 0:
            open(f"{folder}/pid", "w").write(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            try: dist.all_reduce(torch.ones(3))
            except RuntimeError as error: say(error=str(error))
            open(f"{folder}/failed{rank}", "w").close()
            if rank == 1:
                while not os.path.exists(f"{folder}/failed2"): time.sleep(0.02)
                os.kill(int(open(f"{folder}/pid").read()), signal.SIGCONT)
    """, FOLDER=str(folder))
    for rank in (1, 2):
        assert "the switch still waits for worker 0: late, stuck or dead" in results[rank].report["error"], results[rank]
