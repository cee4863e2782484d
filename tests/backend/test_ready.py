"""Averages over those ranks that are ready, in real processes."""

import signal

import pytest
from ranks import run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

START = """
import numpy as np
from ina.backend.ready import Buckets, Quorum, average_ready, same_replicas
rank, n = start()
store = dist.distributed_c10d._get_default_store()
def mine(step, dtype=torch.float32):
    return torch.full((1000,), float(10 ** rank * (step + 1)), dtype=dtype)
"""


def accounted(history: list[list[int]], given: list[dict[int, float]], late: str = "next") -> list[float]:
    """Returns the averages of rounds with these contributors, of what the ranks gave."""
    kept, averages = {rank: 0.0 for rank in given[0]}, []
    for ranks, mine in zip(history, given, strict=True):
        whole = {rank: value + kept[rank] for rank, value in mine.items()}
        averages.append(sum(whole[rank] for rank in ranks) / max(1, len(ranks)))
        kept = {rank: whole[rank] if late == "next" and rank not in ranks else 0.0 for rank in whole}
    return averages


@pytest.mark.parametrize("protocol", ["switchml", "atp"])  # of the group: the switch decides, or the parameter server
def test_the_slowest_is_not_waited_for_and_its_work_is_not_lost(tmp_path, protocol):
    """Rank 2 comes to rounds 1 and 2 when the others have their averages; what it gave then is in a later round."""
    reports = succeed(run(tmp_path, 3, START + """
quorum = Quorum(torch.zeros(1000), "k=2", ahead=2)
values, decided = [], []
for step in range(6):
    tensor = mine(step)
    if step in (1, 2) and rank == 2:
        store.wait([f"{step}/0", f"{step}/1"])
        while not quorum.decided:
            time.sleep(0.01)
    if step == 5:
        dist.barrier()
    quorum.average(tensor)
    store.set(f"{step}/{rank}", "")
    values.append(tensor[0].item())
spoken = quorum._group._joined_job().config.protocol
quorum.close()
say(values=values, history=quorum.history, stats=ina.backend.stats()["ready"], protocol=spoken)
""", INA_PROTOCOL=protocol))
    values, history = reports[0]["values"], reports[0]["history"]
    assert {report["protocol"] for report in reports} == {"atp" if protocol == "atp" else "quorum"}
    assert all(report["values"] == values and report["history"] == history for report in reports)
    assert history[1] == history[2] == [0, 1]
    given = [{rank: 10.0**rank * (step + 1) for rank in range(3)} for step in range(6)]
    assert values == pytest.approx(accounted(history, given))
    left_out = {str(rank): sum(rank not in ranks for ranks in history) for rank in range(3)}
    for report in reports:
        assert report["stats"]["rounds"] == 6 and report["stats"]["empty"] == 0
        assert report["stats"]["left_out"] == {rank: count for rank, count in left_out.items() if count}
        assert report["stats"]["partial"] == sum(len(ranks) < 3 for ranks in history)


@pytest.mark.parametrize("late", ["next", "drop"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_of_many_rounds_with_ranks_late_at_random(tmp_path, dtype, late):
    """Each average is of the ranks that it names: with "next", of all that they gave and that no earlier round has."""
    reports = succeed(run(tmp_path, 4, START + f"""
import random
late, dtype, chance = {late!r}, torch.{dtype}, random.Random(rank)
quorum = Quorum(torch.zeros(1000, dtype=dtype), "k=3", late=late)
values = []
for step in range(60):
    tensor = torch.full((1000,), float(2 ** rank), dtype=dtype)
    if chance.random() < 0.2:
        time.sleep(0.02)
    quorum.average(tensor)
    values.append(tensor[0].item())
same_replicas([tensor, torch.tensor(1.0)])
quorum.close()
say(values=values, history=quorum.history)
"""))
    history, values = reports[0]["history"], reports[0]["values"]
    assert all(report["history"] == history and report["values"] == values for report in reports)
    assert len({*map(tuple, history)}) > 1 and all(len(ranks) >= 3 for ranks in history)
    right = accounted(history, [{rank: 2.0**rank for rank in range(4)}] * 60, late)
    assert values == pytest.approx(right, rel=2**-6 if dtype == "bfloat16" else 1e-6)


def test_a_round_knows_when_it_was_over_however_late_its_rank_looks(tmp_path):
    reports = succeed(run(tmp_path, 3, START + """
quorum = Quorum(torch.zeros(1000), "k=2")
quorum.average(mine(0))
if rank == 2:
    store.wait(["over/0", "over/1"])
    quorum._group._job._endpoint.wait(quorum._announced[0]._ticket, 60)  # it has the average, and the round has not looked
came, turn = time.monotonic(), quorum.begin(mine(1))
turn.wait()
store.set(f"over/{rank}", "")
quorum.close()
say(came=came, over=turn.time, ranks=turn.contributors)
"""))
    assert all(report["ranks"] == [0, 1] for report in reports)
    assert reports[2]["over"] < reports[2]["came"]
    assert all(reports[rank]["over"] > reports[rank]["came"] for rank in range(2))


def test_a_deadline_makes_fewer_enough(tmp_path):
    reports = succeed(run(tmp_path, 3, START + """
quorum = Quorum(torch.zeros(1000), "all", deadline=0.2)
tensor = mine(0)
quorum.average(tensor)
dist.barrier()
tensor = mine(1)
if rank == 2:
    store.wait(["1/0", "1/1"])
began = time.monotonic()
ranks = quorum.average(tensor)
took = time.monotonic() - began
store.set(f"1/{rank}", "")
quorum.close()
others = Quorum(torch.zeros(1000), "all", late="drop")
none = others.average(None, tensor) if rank == 2 else others.average(mine(2))
others.close()
say(ranks=ranks, value=tensor[0].item(), took=took, none=none)
"""))
    assert all(report["ranks"] == [0, 1] for report in reports)
    assert all(report["took"] >= 0.2 for report in reports[:2]), "not before the deadline"
    assert reports[0]["value"] == 2 * (1 + 10) / 2
    assert all(report["none"] == [0, 1] for report in reports), "a round is of those that have something to give"


@pytest.mark.parametrize("complete", ["k=2", "dynamic"])
def test_a_run_can_be_repeated_to_the_bit(tmp_path, complete):
    reports = succeed(run(tmp_path, 3, START + f"""
import random
def train(replay, seed):
    chance, quorum, values = random.Random(seed + rank), Quorum(torch.zeros(1000), {complete!r}, least=2, replay=replay), []
    for step in range(30):
        tensor = torch.from_numpy(np.random.default_rng((rank, step)).standard_normal(1000).astype(np.float32))
        time.sleep(0.01 * chance.random())
        quorum.average(tensor)
        values.append(tensor.clone())
    quorum.close()
    return torch.stack(values), quorum.history
first, history = train(None, 1)
again, repeated = train(history, 2)
say(equal=torch.equal(first, again), history=history, same=history == repeated)
"""))
    assert all(report["equal"] and report["same"] for report in reports)
    assert len({*map(tuple, reports[0]["history"])}) > 1


def test_each_rank_chooses_how_many_are_enough_and_all_have_the_same_averages(tmp_path):
    """At first all ranks try the same numbers, whatever their times are: 4, 3 and 2 for three rounds each. Later each follows the
    times that it has seen: a round has 2 ranks or more, and the same average everywhere, whoever chose what."""
    reports = succeed(run(tmp_path, 4, START + """
import random
chance, numbers = random.Random(rank), []
quorum = Quorum(torch.zeros(1000), "dynamic", least=2)
choose = quorum._choose
def noted(number, arrivals):
    numbers.append(choose(number, arrivals))
    return numbers[-1]
quorum._choose = noted
values = []
for step in range(120):
    tensor = torch.full((1000,), float(2 ** rank))
    if chance.random() < 0.3 or (rank == 3 and step > 60):
        time.sleep(0.01)
    quorum.average(tensor)
    values.append(tensor[0].item())
quorum.close()
say(values=values, history=quorum.history, numbers=numbers, known=len(quorum._arrivals._sums))
"""))
    history, values = reports[0]["history"], reports[0]["values"]
    assert all(report["history"] == history and report["values"] == values for report in reports)
    assert values == pytest.approx(accounted(history, [{rank: 2.0**rank for rank in range(4)}] * 120), rel=1e-6)
    counts = [len(ranks) for ranks in history]
    assert counts[:3] == [4, 4, 4] and min(counts[3:6]) >= 3 and min(counts) >= 2
    for report in reports:
        assert report["numbers"][:6] == [3, 3, 3, 2, 2, 2], "the first three were announced before"
        assert all(2 <= number <= 4 for number in report["numbers"]) and report["known"] >= 2
    fewest = [min(numbers) for numbers in zip(*(report["numbers"] for report in reports), strict=True)]
    assert all(count >= number for count, number in zip(counts[3:], fewest[:-3], strict=True))


def test_replicas_give_the_same_bits_whoever_is_dead(tmp_path):
    """Gradient coding by fractional repetition: pairs of ranks have the same data; one of each pair is killed."""
    results = run(tmp_path, 4, START + """
import hashlib
def gradient(step, half):
    return torch.from_numpy(np.random.default_rng((half, step)).standard_normal(3000).astype(np.float32))
group, half, step, values = dist.group.WORLD, rank // 2, 0, []
quorum = Quorum(torch.zeros(3000), replicas=[[0, 1], [2, 3]])
while step < 20:
    if step == 10 and rank in (1, 2):
        os.kill(os.getpid(), signal.SIGKILL)
    tensor = gradient(step, half)
    try:
        quorum.average(tensor)
    except RuntimeError:
        ina.backend.shrink_group()
        steps = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]  # one may have had its last average, and the other not
        dist.all_gather(steps, torch.tensor([step]))
        if steps[0] != steps[1]:
            tensor = values[-1].clone() if step == max(steps) else torch.zeros(3000)
            dist.broadcast(tensor, int(steps[1] > steps[0]))
            values += [tensor] * (step < max(steps))
        step = len(values)
        quorum = Quorum(torch.zeros(3000))
        continue
    values.append(tensor)
    step += 1
say(bits=hashlib.sha256(torch.stack(values).numpy().tobytes()).hexdigest(),
    near=all(torch.allclose(value, (gradient(k, 0) + gradient(k, 1)) / 2, atol=1e-6) for k, value in enumerate(values)))
""")
    assert {results[rank].code for rank in (1, 2)} == {-signal.SIGKILL}
    reports = succeed([results[0], results[3]])
    assert reports[0]["bits"] == reports[1]["bits"] and all(report["near"] for report in reports)


TRAIN = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(0)
net = DistributedDataParallel(nn.Sequential(nn.Linear(20, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 1)),
                              bucket_cap_mb=0.1)
"""


def test_in_distributed_data_parallel(tmp_path):
    """Buckets have rounds of their own; those of DistributedDataParallel's first step end. Replicas stay equal."""
    reports = succeed(run(tmp_path, 3, START + TRAIN + """
state = Buckets("k=2", deadline=5.0)
net.register_comm_hook(state, average_ready)
optimizer, losses = torch.optim.SGD(net.parameters(), 0.01), []
torch.manual_seed(rank)
for step in range(40):
    inputs = torch.randn(32, 20)
    optimizer.zero_grad()
    loss = (net(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    if rank == 2 and step % 5 == 3:
        store.wait([f"{step}/0", f"{step}/1"])
    loss.backward()
    optimizer.step()
    store.set(f"{step}/{rank}", "")
    losses.append(loss.item())
same_replicas(net.parameters())
state.close()
say(first=losses[0], last=sum(losses[-10:]) / 10, history=state.history, stats=ina.backend.stats()["ready"])
"""))
    assert all(report["last"] < report["first"] for report in reports)
    assert all(report["stats"]["left_out"]["2"] >= 8 for report in reports), "it comes last to every fifth step"


WRONG = {
    "torch.zeros(4), 'k=4'": "expected 'all', 'dynamic', or 'k=1' to 'k=3'",
    "torch.zeros(4), 'most'": "expected 'all', 'dynamic', or 'k=1'",
    "torch.zeros(4), 'dynamic', least=4": "least = 4 of 3 ranks",
    "torch.zeros(4), 'dynamic', replicas=[[0, 1], [2]]": "and 'all': one of each group",
    "torch.zeros(4), late='never'": "expected one of next, drop",
    "torch.zeros(4), deadline=0.0": "a positive number of seconds",
    "torch.zeros(4), ahead=99": "expected 0 to 16",
    "torch.zeros(4), ahead=1.5": "expected 0 to 16",
    "torch.zeros(4), least=1.5": "least = 1.5 of 3 ranks",
    "torch.zeros(4), 2": "expected a text, 'all', 'dynamic' or 'k=2'",
    "torch.zeros(4), replicas=[0, 1, 2]": "expected groups of ranks, such as [[0, 1], [2, 3]]",
    "torch.zeros(4), deadline='1'": "a positive number of seconds",
    "torch.eye(4).to_sparse()": "and strided",
    "torch.zeros(4), replay=[[0, 1], [0, 7]]": "round 1 of [0, 7], expected some of the ranks 0 to 2",
    "torch.zeros(4), replay=[1]": "round 0 of 1, expected some of the ranks 0 to 2",
    "torch.zeros(4), replay=[[1.0]]": "round 0 of [1.0], expected some of the ranks 0 to 2",
    "torch.zeros(4), replicas=[[0, 1]]": "each of the ranks 0 to 2 in one group",
    "torch.zeros(4), replicas=[[0.0, 1.0], [2.0]]": "each of the ranks 0 to 2 in one group",
    "torch.zeros(4), replicas=[[0, None], [2]]": "each of the ranks 0 to 2 in one group",
    "torch.zeros(4), replicas=[[], [0, 1, 2]]": "each of the ranks 0 to 2 in one group",
    "[0.0]": "a quorum of a list, expected a tensor",
    "torch.zeros(4, dtype=torch.int32)": "expected float32, float16 or bfloat16",
}


def test_what_cannot_be_is_refused_before_anybody_waits(tmp_path):
    reports = succeed(run(tmp_path, 3, START + f"""
errors = []
for arguments in {[*WRONG]}:
    try:
        eval(f"Quorum({{arguments}})")
    except (ValueError, TypeError) as error:
        errors.append(str(error))
say(errors=errors)
"""))
    for report in reports:
        for error, message in zip(report["errors"], WRONG.values(), strict=True):
            assert message in error


def test_mistakes_are_told_and_leave_nothing_behind(tmp_path):
    """An average that cannot be written is an error of that call alone; other numbers of rounds are an error of who has fewer."""
    reports = succeed(run(tmp_path, 3, START + """
quorum, errors = Quorum(torch.zeros(1000), "all"), []
try:
    quorum.average(mine(0), torch.ones(1).expand(1000))
except RuntimeError as error:
    errors.append(str(error))
tensor = mine(1)
quorum.average(tensor)
stats = ina.backend.stats()["ready"]["rounds"]
if rank:
    quorum.average(mine(2), tensor.clone()) if rank == 2 else None
try:
    quorum.close()
except RuntimeError as error:
    errors.append(str(error))
quorum.close()
dist.barrier()
other = Quorum(torch.zeros(4))
meet()
dist.destroy_process_group()
other.close()
for over in (quorum, other):
    try:
        over.average(torch.zeros(4) if over is other else tensor)
    except RuntimeError as error:
        errors.append(str(error))
say(errors=errors, value=tensor[0].item(), history=quorum.history, stats=stats, owes=quorum.owes)
"""))
    for report in reports:
        assert report["errors"][-2:] == ["ina: the quorum is closed"] * 2
        assert "single memory location" in report["errors"][0] and report["stats"] == 2 and not report["owes"]
        assert report["value"] == pytest.approx(2 * 111 / 3) and report["history"][:2] == [[0, 1, 2]] * 2
    assert "ranks [2] have given to round 2" in reports[0]["errors"][1]
    assert "has left group" in reports[2]["errors"][1]


def test_tensors_without_elements_of_inference_and_of_16_bits(tmp_path):
    """Late values of many rounds are added up in float32: float16 would be infinite."""
    reports = succeed(run(tmp_path, 3, START + """
empty = Quorum(torch.zeros(0), "k=2")
sets = [empty.average(torch.zeros(0)), empty.average(torch.zeros(0))]
empty.close()
quorum = Quorum(torch.zeros(100), "all")
with torch.inference_mode():
    inferred = mine(0)[:100]
    quorum.average(inferred)
normal = torch.ones(100, requires_grad=True)
out = torch.zeros(100)
quorum.average(normal, out)
quorum.close()
half = Quorum(torch.zeros(100, dtype=torch.float16), "k=2", ahead=8)
for step in range(7):
    while rank == 2 and not half.decided:
        time.sleep(0.01)
    result = torch.full((100,), 20000.0, dtype=torch.float16)
    assert half.average(result) == (0, 1) and result[0] == 20000
left = half._left[0].item() if half.owes else 0
half.close()
say(sets=sets, inferred=inferred[0].item(), out=out[0].item(), left=left)
"""))
    for rank, report in enumerate(reports):
        assert all(len(ranks) >= 2 for ranks in report["sets"]) and report["out"] == 1
        assert report["inferred"] == pytest.approx(37) and report["left"] == (7 * 20000 if rank == 2 else 0)


def test_a_tensor_that_cannot_be_read_is_no_round(tmp_path):
    """Rank 0 makes mistakes before each of its rounds; nobody waits for rounds that it has not come to."""
    reports = succeed(run(tmp_path, 2, START + """
quorum, errors, values = Quorum(torch.zeros(4)), [], []
for step in range(3):
    for wrong in (torch.ones(4).to_sparse(), torch.ones(4, device="meta"), [1.0] * 4) if rank == 0 else ():
        try:
            quorum.average(wrong)
        except (TypeError, NotImplementedError) as error:
            errors.append(str(error))
    tensor = torch.full((4,), 1.0 + rank + step)
    quorum.average(tensor)
    values.append(tensor[0].item())
quorum.close()
say(errors=errors, values=values)
"""))
    assert [report["values"] for report in reports] == [[1.5, 2.5, 3.5]] * 2
    sparse, meta, texts = reports[0]["errors"][:3]
    assert len(reports[0]["errors"]) == 9 and "meta" in meta
    assert sparse.endswith("torch.sparse_coo, expected a strided tensor") and texts.endswith("list, expected a strided tensor")


def test_a_quorum_that_the_switch_refuses_leaves_no_group_behind(tmp_path):
    reports = succeed(run(tmp_path, 2, START + """
from ina.backend import ready
other, quorum, errors = Quorum(torch.zeros(4)), Quorum(torch.zeros(4)), []  # their jobs have all slots
groups = dist.distributed_c10d._world.pg_map
before = len(groups)
for most in (32, 32, 1):
    ready.MOST = most
    try:
        Quorum(torch.zeros(4))
    except (RuntimeError, ValueError) as error:
        errors.append(str(error))
tensor = torch.ones(4)
quorum.average(tensor)
quorum.close()
say(errors=errors, more=len(groups) - before)
other.close()
""", INA_SLOTS="8192"))
    for report in reports:
        full, again, many = report["errors"]
        assert "a quorum has no job at the switch" in full and "a quorum has no job at the switch" in again
        assert many == "ina: a quorum of 2 ranks, expected a group of 2 to 1"
        assert report["more"] == -1, "the one that is closed, and no other"


def test_what_is_late_is_given_with_more_than_16_bits(tmp_path):
    """Late values of three rounds, and then an average that the type has, though it has not their sum."""
    reports = succeed(run(tmp_path, 2, START + """
averages = []
for dtype, values in ((torch.float16, [30000.0] * 4), (torch.bfloat16, [256.0, 0.5, 0.25, 0.25])):
    quorum = Quorum(torch.zeros(100, dtype=dtype), replay=[[0]] * 3 + [[0, 1]])
    for value in values:
        mine = value if rank else -256.0 * (dtype == torch.bfloat16)
        tensor = torch.full((100,), mine, dtype=dtype)
        quorum.average(tensor)
    averages.append(tensor[99].item())
    quorum.close()
say(averages=averages)
"""))
    assert [report["averages"] for report in reports] == [[60000.0, 0.5]] * 2


def test_a_wait_that_is_interrupted_counts_nothing_twice(tmp_path):
    """Late values of rank 2, of round 0, are in round 1. Its call for round 2 waits for that, is interrupted, and made again."""
    reports = succeed(run(tmp_path, 3, START + """
class Stop(BaseException):
    pass
quorum, values = Quorum(torch.zeros(100), "k=2", ahead=4), []
if rank == 2:
    store.wait(["0/0", "0/1"])
    while not quorum.decided:
        time.sleep(0.01)
quorum.average(torch.full((100,), 0.0 if rank < 2 else 1000.0))
store.set(f"0/{rank}", "")
tensors = [torch.zeros(100) for _ in range(2)]
if rank < 2:
    store.wait(["interrupted"])
    turns = [quorum.begin(tensors[0])]
else:
    turns = [quorum.begin(tensors[0])]
    whole, turns[0].end = turns[0].end, lambda: (_ for _ in ()).throw(Stop())
    try:
        quorum.begin(tensors[1])
    except Stop:
        turns[0].end = whole
    store.set("interrupted", "")
turns.append(quorum.begin(tensors[1]))
for turn, tensor in zip(turns, tensors):
    turn.wait()
    values.append(round(tensor[0].item() * len(turn.contributors)))
quorum.close()
say(values=values, history=quorum.history)
"""))
    for report in reports:
        late = next(number for number, ranks in enumerate(report["history"][1:]) if 2 in ranks)
        assert report["values"] == [1000 * (number == late) for number in range(2)], reports
