"""Groups that shrink in the same processes: who is left goes on, with exact sums, without the ranks that died."""

import signal

import pytest
from ranks import EXACT_SUMS, run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

UNTIL_FAILURE = EXACT_SUMS + """
rank, n = start()
sums()
def until_failure():
    try:
        while True:
            dist.all_reduce(torch.ones(10_000))
    except RuntimeError as error:
        return str(error)
"""


@pytest.mark.parametrize(("ranks", "dead", "known", "protocol"), [
    (3, [2], False, "switchml"), (3, [1], True, "atp"), (4, [1, 3], False, "switchml"), (4, [1, 2, 3], True, "switchml")])
def test_the_others_go_on(tmp_path, ranks, dead, known, protocol):
    """Ranks are killed in the middle of sums. ``known``: the others say who is left out; else the switch process has noticed."""
    results = run(tmp_path, ranks, UNTIL_FAILURE + f"""
dead = {dead}
if rank in dead:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
error = until_failure()
time.sleep(0.2 * rank)  # they notice at different times
group = ina.backend.shrink_group({"dead" if known else ""})
sums()
if dist.get_world_size() > 1:
    dist.broadcast(torch.ones(3), 0)
    dist.all_to_all_single(torch.zeros(dist.get_world_size()), torch.ones(dist.get_world_size()))
say(error=error, rank=dist.get_rank(), size=dist.get_world_size(), default=group is dist.group.WORLD)
dist.destroy_process_group()
""", INA_PROTOCOL=protocol)
    left = [rank for rank in range(ranks) if rank not in dead]
    for rank in dead:
        assert results[rank].code == -signal.SIGKILL
    for number, rank in enumerate(left):
        report = succeed([results[rank]])[0]
        assert "is lost" in report["error"] and report["default"]
        assert (report["rank"], report["size"]) == (number, len(left))


def test_rank_0_dies(tmp_path):
    """It has started the switch process, which lives long enough to say who is lost. The new rank 0 starts another one."""
    results = run(tmp_path, 3, UNTIL_FAILURE + """
if rank == 0:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
until_failure()
ina.backend.shrink_group(seconds=1e6)
sums()
say(rank=dist.get_rank(), switch=list(rendezvous._pids.items()))
dist.destroy_process_group()
""")
    assert [report["rank"] for report in succeed(results[1:])] == [0, 1]


def test_ranks_are_sent_away_one_after_another(tmp_path):
    """No failure: a rank leaves by itself, then another; groups of some ranks shrink, too."""
    results = run(tmp_path, 4, UNTIL_FAILURE + """
some = dist.new_group([1, 2, 3])
for size in (4, 3):
    if dist.get_world_size() == 4 and rank > 0:
        mine = torch.full((10,), float(rank))
        dist.all_reduce(mine, group=some)
        if rank != 2:
            some = ina.backend.shrink_group([1], some)
            mine = torch.full((10,), float(rank))
            dist.all_reduce(mine, group=some)
            assert mine[0] == 4 and some.size() == 2
    if dist.get_rank() == size - 1:
        break
    ina.backend.shrink_group([size - 1])
    sums()
say(size=dist.get_world_size())
dist.destroy_process_group()
""")
    assert [report["size"] for report in succeed(results)] == [2, 2, 3, 4]


def test_who_comes_too_late_gets_an_error(tmp_path):
    results = run(tmp_path, 3, UNTIL_FAILURE + """
if rank == 2:
    time.sleep(3)
try:
    ina.backend.shrink_group(seconds=1.0)
    sums()
    say(size=dist.get_world_size())
except RuntimeError as error:
    say(error=str(error))
dist.destroy_process_group()
""")
    reports = succeed(results)
    assert [report.get("size") for report in reports] == [2, 2, None]
    assert "ranks [0, 1] have gone on without rank 2" in reports[2]["error"]


def test_what_cannot_be_is_refused(tmp_path):
    reports = succeed(run(tmp_path, 2, """
rank, n = start()
errors = []
for ranks in ([], [2], [-1], [rank]):
    try:
        ina.backend.shrink_group(ranks)
    except (ValueError, RuntimeError) as error:
        errors.append(f"{type(error).__name__}: {error}")
for arguments in ({"seconds": float("nan")}, {"seconds": -1}, {"seconds": None}, {"ranks_to_exclude": 1}):
    try:
        ina.backend.shrink_group(**arguments)
    except (TypeError, ValueError) as error:
        errors.append(f"{type(error).__name__}: {error}")
say(errors=errors)
dist.destroy_process_group()
"""))
    for rank, report in enumerate(reports):
        *wrong, own, not_a_number, negative, none, one = report["errors"]
        for error, seconds in ((not_a_number, "nan"), (negative, "-1"), (none, "None")):
            assert error == f"ValueError: ina: seconds = {seconds}, expected a number of seconds, 0 or more"
        assert one.startswith("TypeError: ina: ranks_to_exclude is 1, expected a list of ranks")
        assert all(text.startswith("ValueError: ina: ranks_to_exclude is ") for text in wrong) and len(wrong) == 3
        assert own == f"RuntimeError: ina: rank {rank} is to be left out, so it must not call shrink_group"
