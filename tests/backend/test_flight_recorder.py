"""The flight recorder's files, read by torch's own analyser."""

from __future__ import annotations

import argparse
import pickle

import pytest
from ranks import run, succeed

pytest.importorskip("torch", reason="the back end needs torch")

from ina.backend.flight_recorder import Recorder  # noqa: E402

COLLECTIVES = """
rank, n = start()
dist.all_reduce(torch.ones(3, 4)); dist.barrier(); dist.all_gather([torch.ones(2)] * n, torch.ones(2))
dist.all_gather_into_tensor(torch.zeros(2 * n), torch.ones(2)); dist.reduce_scatter_tensor(torch.zeros(2), torch.ones(2 * n))
dist.broadcast(torch.ones(5), 0); dist.reduce(torch.ones(5), 1)
dist.gather(torch.ones(2), [torch.ones(2)] * n if rank == 0 else None)
dist.scatter(torch.ones(2), [torch.ones(2)] * n if rank == 0 else None); dist.all_to_all_single(torch.ones(n), torch.ones(n))
"""


def analysed(folder, **options):
    """Returns torch's database of the files, and its messages."""
    loader = pytest.importorskip("torch.distributed.flight_recorder.components.loader", reason="newer than this torch")
    builder = pytest.importorskip("torch.distributed.flight_recorder.components.builder")
    arguments = {"trace_dir": str(folder), "prefix": None, "just_print_entries": False, "allow_incomplete_ranks": False,
                 "mismatch_cap": 10, "print_stack_trace": False, "verbose": False, "pg_filters": None, "selected_ranks": None}
    options = argparse.Namespace(**arguments | options)
    details, version = loader.read_dir(options)
    return builder.build_db(details, options, version)


@pytest.mark.build
@pytest.mark.later
@pytest.mark.parametrize("protocol", ["switchml", "receivers"])
def test_torch_says_which_rank_did_not_come(tmp_path, protocol):
    """Rank 1 never calls the second all-reduce of 100 and is in no collective; its file is there, all the same."""
    folder = tmp_path / "flight"
    folder.mkdir()
    results = run(tmp_path, 3, COLLECTIVES + """
other = dist.new_group()
other.set_timeout(timedelta(seconds=6))
if rank == 1:
    while not os.path.exists(os.environ["INA_FLIGHT"] + "1"): time.sleep(0.05)
else:
    roll_call.TELLING = 2.0  # rank 1 has nothing to say
    try: dist.all_reduce(torch.ones(100), group=other)
    except RuntimeError as error: say(error=str(error))
""", INA_FLIGHT=f"{folder}/rank", INA_PROTOCOL=protocol)
    assert [rank.code for rank in results] == [0] * 3, results
    assert results[0].report["error"] and results[2].report["error"]
    assert sorted(path.name for path in folder.iterdir()) == ["rank0", "rank1", "rank2"]
    database = analysed(folder)
    assert [call.collective_name for call in database.collectives] == [
        "gloo:all_reduce", "gloo:barrier", "gloo:all_gather", "gloo:_all_gather_base", "gloo:_reduce_scatter_base",
        "gloo:broadcast", "gloo:reduce", "gloo:gather", "gloo:scatter", "gloo:all_to_all", "gloo:all_reduce"]
    last = database.collectives[-1]
    assert last.missing_ranks == {1} and last.input_sizes == [[100]]
    assert not any(call.missing_ranks or call.mismatch_collectives for call in database.collectives[:-1])


@pytest.mark.build
@pytest.mark.later
def test_a_smaller_group_has_files_of_its_own(tmp_path):
    """Rank 0 is killed: a failure of three, in the others' files. They shrink; later rank 2 does not come to a collective."""
    folder = tmp_path / "flight"
    folder.mkdir()
    results = run(tmp_path, 3, COLLECTIVES + """
import pickle
own = f"{os.environ['INA_FLIGHT']}{rank}"
def recorded():
    with open(own, "rb") as file: return pickle.load(file)
if rank == 0: os.kill(os.getpid(), signal.SIGKILL)
try:
    while True: dist.all_reduce(torch.ones(100))
except RuntimeError: pass
first = recorded()["pg_config"]["0"]["ranks"]
ina.backend.shrink_group().set_timeout(timedelta(seconds=6))
dist.barrier()
if rank == 2:
    while recorded()["pg_config"]["0"]["ranks"] == first: time.sleep(0.05)
else:
    roll_call.TELLING = 2.0  # rank 2 has nothing to say
    try: dist.all_reduce(torch.ones(50))
    except RuntimeError as error: say(error=str(error))
say(first=first)
""", INA_FLIGHT=f"{folder}/rank")
    reports = succeed(results[1:])
    assert [report["first"] for report in reports] == ["[0, 1, 2]"] * 2 and reports[0]["error"]
    own = [pickle.loads((folder / f"rank{rank}").read_bytes()) for rank in (1, 2)]
    assert [each["pg_config"]["0"]["ranks"] for each in own] == ["[0, 1]"] * 2
    assert [[entry["profiling_name"] for entry in each["entries"]] for each in own] == [["gloo:barrier", "gloo:all_reduce"],
                                                                                      ["gloo:barrier"]]


@pytest.mark.build
@pytest.mark.later
def test_torch_says_which_rank_did_not_come_to_a_round_of_a_quorum(tmp_path):
    """Rank 1 takes part in the second round, which it has announced, but never comes to it."""
    folder = tmp_path / "flight"
    folder.mkdir()
    results = run(tmp_path, 3, """
from ina.backend.ready import Quorum
rank, n = start()
dist.barrier()
group = dist.new_group()
group.set_timeout(timedelta(seconds=6))
quorum = Quorum(torch.zeros(5, 20, dtype=torch.bfloat16), "all", group=group)
quorum.average(torch.ones(5, 20, dtype=torch.bfloat16))
if rank == 1:
    while not os.path.exists(os.environ["INA_FLIGHT"] + "1"): time.sleep(0.05)
else:
    try: quorum.average(torch.ones(5, 20, dtype=torch.bfloat16))
    except RuntimeError as error: say(error=str(error), calls=ina.backend.stats()["calls"])
""", INA_FLIGHT=f"{folder}/rank")
    assert [rank.code for rank in results] == [0] * 3, results
    for rank in (0, 2):
        assert "quorum round 1 of 100 elements" in results[rank].report["error"]
        assert [*results[rank].report["calls"]] == ["barrier"], "a round is no call of a collective"
    assert sorted(path.name for path in folder.iterdir()) == ["rank0", "rank1", "rank2"]
    entries = {rank: [entry for entry in pickle.loads((folder / f"rank{rank}").read_bytes())["entries"]
                      if entry["process_group"][1] == "ready"] for rank in range(3)}
    assert [[entry["state"] for entry in entries[rank]] for rank in range(3)] == [
        ["completed", "scheduled"], ["completed"], ["completed", "scheduled"]]
    *others, first, second = analysed(folder).collectives
    assert [call.collective_name for call in (*others, first, second)] == ["gloo:barrier", "gloo:all_reduce", "gloo:all_reduce"]
    assert not any(call.missing_ranks for call in (*others, first)) and second.missing_ranks == {1}
    for call in (first, second):
        assert call.input_sizes == call.output_sizes == [[5, 20]] and not call.mismatch_collectives
    assert entries[0][0]["input_dtypes"] == ["BFloat16"]


@pytest.mark.build
@pytest.mark.later
def test_nothing_is_written_when_nothing_fails(tmp_path):
    folder = tmp_path / "flight"
    folder.mkdir()
    succeed(run(tmp_path, 2, COLLECTIVES + """
if rank == 0: dist.send(torch.ones(7), 1)
else: dist.recv(torch.ones(7), 0)
dist.destroy_process_group()
""", INA_FLIGHT=f"{folder}/rank"))
    assert list(folder.iterdir()) == []


class Group:
    group_name, group_desc = "7", "pair"

    def __init__(self):
        from datetime import timedelta

        self._timeout = timedelta(seconds=30)

    def rank(self) -> int:
        return 1

    def size(self) -> int:
        return 2


@pytest.mark.fast
def test_entries_have_sizes_types_states_and_numbers_of_their_own(tmp_path):
    import torch

    recorder, group = Recorder(f"{tmp_path}/rank", 3), Group()
    lists = [[torch.ones(4, dtype=torch.int64)] * 2]
    done = recorder.begin(group, "allgather", (lists, [torch.ones(4, dtype=torch.int64)]), True, True)
    recorder.begin(group, "send", ([torch.ones(2)], 0, 5), False, False)
    recorder.begin(group, "allreduce", ([torch.ones(2, 3, dtype=torch.float16)], None), True, True)
    assert recorder.begin(group, "recv_anysource", ([torch.ones(2)], 5), True, False) is None
    done.ended(None)
    recorder.write()
    dump = pickle.loads((tmp_path / "rank3").read_bytes())
    assert dump["pg_config"] == {"7": {"name": "7", "desc": "pair", "ranks": "[0, 1]"}}
    assert dump["pg_status"]["0"]["last_completed_collective"] == 1 and dump["pg_status"]["0"]["last_enqueued_collective"] == 2
    keys = ("profiling_name", "input_sizes", "output_sizes", "input_dtypes", "state", "collective_seq_id", "p2p_seq_id", "is_p2p")
    assert [tuple(entry[key] for key in keys) for entry in dump["entries"]] == [
        ("gloo:all_gather", [[4]], [[2, 4]], ["Long"], "completed", 1, 0, False),
        ("gloo:send 1->0", [[2]], [], ["Float"], "scheduled", 1, 1, True),
        ("gloo:all_reduce", [[2, 3]], [[2, 3]], ["Half"], "scheduled", 2, 1, False),
    ]


@pytest.mark.fast
def test_a_folder_that_cannot_be_made_is_said_at_the_start(tmp_path):
    with pytest.raises(ValueError, match="INA_FLIGHT=/proc/nowhere/rank: /proc/nowhere: .*expected FOLDER/NAME"):
        Recorder("/proc/nowhere/rank", 0)
    Recorder(f"{tmp_path}/new/rank", 0)
    assert (tmp_path / "new").is_dir()


@pytest.mark.fast
def test_the_oldest_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr("ina.backend.flight_recorder.LAST", 5)
    recorder = Recorder(f"{tmp_path}/rank", 0)
    for _ in range(12):
        recorder.begin(Group(), "barrier", (), True, True)
    assert [entry["record_id"] for entry in recorder.dump()["entries"]] == [7, 8, 9, 10, 11]
