"""Groups that grow in the same processes: ranks come, or come back after others have died, and sums stay exact."""

import signal

import pytest
from ranks import EXACT_SUMS, run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

SUMS = EXACT_SUMS + """
from ina.backend import grow, regroup
grow.ACCEPT, regroup.MAKING = 1.0, 5.0
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def store(): return dist.FileStore(os.environ["INIT"].removeprefix("file://"), -1)
def begin(size):
    dist.init_process_group("ina", store=store(), rank=rank, world_size=size, timeout=timedelta(seconds=120))
def report(**more):
    group = dist.group.WORLD
    say(rank=group.rank(), size=group.size(), newcomers=group.newcomers, backend=dist.get_backend(), **more)
    dist.destroy_process_group()
"""


@pytest.mark.parametrize(("members", "protocol"), [(2, "switchml"), (1, "switchml"), (2, "atp")])
def test_processes_join(tmp_path, members, protocol):
    """Two join at once, one as rank 0, which is to start the switch process from then on; one as the last."""
    reports = succeed(run(tmp_path, members + 2, SUMS + f"""
members = {members}
if rank < members:
    begin(members)
    sums()
    before = dist.group.WORLD
    group = ina.backend.grow_group(members + 2, seconds=60)
    assert group is dist.group.WORLD
    try:
        before.allreduce([torch.ones(3)])
        raise SystemExit("a sum of the group that there was, also of one rank")
    except RuntimeError as error:
        assert before.has_ended and "has been destroyed" in str(error)
else:
    ina.backend.join_group(0 if rank == members else None, store())
sums()
values = torch.full((3,), float(rank))
dist.broadcast(values, 1)  # a member
assert values.tolist() == [0.0] * 3
report()
""", INA_PROTOCOL=protocol))
    assert [report["rank"] for report in reports] == [*range(1, members + 1), 0, members + 1]
    assert all((report["size"], report["newcomers"]) == (members + 2, [0, members + 1]) for report in reports)


def test_a_rank_that_died_comes_back_as_itself(tmp_path):
    """Rank 1 of 3 is killed in the middle of sums; another process comes as rank 1 and gets the model from the others."""
    results = run(tmp_path, 4, SUMS + """
from torch import nn
from torch.nn.parallel import DistributedDataParallel
def train(net, steps):
    for step in range(steps):
        net.zero_grad()
        net(torch.full((4, 8), float(dist.get_rank() + step))).sum().backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter -= 0.01 * parameter.grad
torch.manual_seed(rank)
model = nn.Linear(8, 2)
if rank < 3:
    begin(3)
    train(DistributedDataParallel(model), 5)
    try:
        while True:
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.all_reduce(torch.ones(10_000))
    except RuntimeError:
        ina.backend.shrink_group()
    sums()
    train(DistributedDataParallel(model), 5)
    group = ina.backend.grow_group(3, seconds=60)
else:
    group = ina.backend.join_group(1, store())
sums()
source = min({*range(group.size())} - {*group.newcomers})
for parameter in model.parameters():
    dist.broadcast(parameter.data, source)
train(DistributedDataParallel(model), 5)
ina.backend.ready.same_replicas(model.parameters())
report(sum=float(sum(parameter.double().sum() for parameter in model.parameters())))
""")
    assert results[1].code == -signal.SIGKILL
    reports = succeed([results[0], results[2], results[3]])
    assert [report["rank"] for report in reports] == [0, 2, 1]
    assert all(report["newcomers"] == [1] and report["sum"] == reports[0]["sum"] for report in reports)


def test_who_ended_in_the_queue_is_not_waited_for(tmp_path):
    """The first in the queue is dead. The group takes the second one, at once or at the next call; a third waits on."""
    results = run(tmp_path, 4, SUMS + """
queue = grow.Queue(store())
if rank == 0:
    begin(1)
    while len(queue.waiting()) < 3:
        time.sleep(0.05)
    ina.backend.grow_group(3)
    assert dist.get_world_size() == 2
    sums()
    ina.backend.grow_group(3, seconds=60)
elif rank == 1:
    queue.enter(None)
    os.kill(os.getpid(), signal.SIGKILL)
else:
    while not queue.waiting():
        time.sleep(0.05)
    ina.backend.join_group(store=store())
    if dist.get_world_size() == 2:
        sums()
        ina.backend.grow_group(3, seconds=60)
sums()
report()
""")
    assert results[1].code == -signal.SIGKILL
    reports = succeed([results[0], *results[2:]])
    assert sorted(report["rank"] for report in reports) == [0, 1, 2] and all(report["newcomers"] == [2] for report in reports)


def test_a_rank_ends_while_the_new_group_is_made(tmp_path):
    """A newcomer, and then also a member, end after all have agreed: the others make the group without them."""
    results = run(tmp_path, 4, SUMS + """
from torch.distributed import distributed_c10d as c10d
def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
if rank < 3:
    begin(3)
    sums()
    if rank == 1:
        dist.init_process_group = die
    group = ina.backend.grow_group(4, seconds=60)
else:
    dist.init_process_group = die
    ina.backend.join_group(0, store())
sums()
report()
""")
    assert [rank.code for rank in results] == [0, -signal.SIGKILL, 0, -signal.SIGKILL], [rank.errors for rank in results]
    assert [(report["rank"], report["size"], report["newcomers"]) for report in succeed([results[0], results[2]])] == [
        (0, 2, []), (1, 2, [])]


def test_who_has_given_up_is_not_counted_on(tmp_path):
    """One member comes long after the other, and after a process in the queue has given up: nobody has told that one to wait."""
    results = run(tmp_path, 3, SUMS + """
if rank < 2:
    begin(2)
    if rank == 1:
        store().get("given up")
    before = dist.group.WORLD
    assert ina.backend.grow_group(seconds=60 * (rank == 0)) is before
    sums()
    report()
else:
    try:
        ina.backend.join_group(None, store(), seconds=1)
    except RuntimeError as error:
        say(error=str(error))
    store().set("given up", "")
""")
    assert [each["size"] for each in succeed(results)[:2]] == [2, 2]
    assert "no group has let this process in" in results[2].report["error"]


def test_who_waits_for_newcomers_notices_who_is_lost(tmp_path):
    """Rank 0 would wait much longer than rank 1, which has met the failure in a sum and goes on without who does not come."""
    results = run(tmp_path, 3, SUMS + """
begin(3)
sums()
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    ina.backend.grow_group(4, seconds=1000) if rank == 0 else dist.all_reduce(torch.ones(10))
except RuntimeError as error:
    say(error=str(error))
ina.backend.shrink_group(seconds=100)
sums()
report()
""")
    assert results[2].code == -signal.SIGKILL
    reports = succeed(results[:2])
    assert [each["size"] for each in reports] == [2, 2] and "ranks [2] are lost" in reports[0]["error"]


def test_who_waits_is_asked_by_the_group_that_is_left(tmp_path):
    """Rank 0 dies when it has asked; rank 1, which shrinks first, asks again."""
    results = run(tmp_path, 3, SUMS + """
if rank < 2:
    begin(2)
    sums()
if rank == 0:
    def die(*args): os.kill(os.getpid(), signal.SIGKILL)
    grow._decision = die
    ina.backend.grow_group(seconds=60)
elif rank == 1:
    while not dist.group.WORLD.lost():
        time.sleep(0.05)
    ina.backend.shrink_group()
    ina.backend.grow_group(2, seconds=60)
    report()
else:
    ina.backend.join_group(None, store(), seconds=100)
    report()
""")
    assert results[0].code == -signal.SIGKILL
    assert [each["size"] for each in succeed(results[1:])] == [2, 2]


def test_newcomers_take_over_what_all_ranks_agree_on(tmp_path):
    """Another protocol, other sizes and another codec in the environment of a process that becomes rank 0."""
    reports = succeed(run(tmp_path, 2, SUMS + """
if rank == 1:
    os.environ |= {"INA_PROTOCOL": "atp", "INA_VALUES": "256", "INA_SLOTS": "8", "INA_CODEC": "exact"}
    ina.backend.join_group(0, store())
else:
    begin(1)
    ina.backend.grow_group(2, seconds=60)
sums()
job = dist.group.WORLD._joined_job()
report(protocol=job.config.protocol, values=job.config.values, slots=job.config.slots, codec=job.settings.codec)
""", INA_PROTOCOL="", INA_CODEC="lanes-16"))
    assert [report["rank"] for report in reports] == [1, 0]
    assert all((each["protocol"], each["values"], each["slots"], each["codec"]) == ("switchml", 2048, 64, "lanes-16")
               for each in reports)


def test_a_newcomer_that_cannot_be_in_the_group_is_left_out(tmp_path):
    """Its protocol is fixed by a switch process of its own: the others go on without it, with a warning."""
    reports = succeed(run(tmp_path, 3, SUMS + """
import warnings
from ina.backend import rendezvous
if rank == 2:
    def refuse(*args): raise RuntimeError("ina: of another world")
    rendezvous.agree = refuse
    try:
        ina.backend.join_group(None, store())
    except RuntimeError as error:
        say(error=str(error))
else:
    regroup.MAKING = 2.0
    begin(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ina.backend.grow_group(3, seconds=60)
    sums()
    report(warnings=[str(warning.message) for warning in caught])
"""))
    assert "of another world" in reports[2]["error"]
    for number, each in enumerate(reports[:2]):
        assert (each["rank"], each["size"], each["newcomers"]) == (number, 2, [])
        assert any("goes on without ranks [2], which were to be new in it" in text for text in each["warnings"]), each


def test_looking_for_newcomers_leaves_nothing_behind(tmp_path):
    """One rank may be far ahead of the other, up to a limit at which it waits."""
    reports = succeed(run(tmp_path, 2, SUMS + """
served = dist.TCPStore("127.0.0.1", 0, is_master=True) if rank == 0 else None
if rank == 0:
    store().set("port", str(served.port))
own = served or dist.TCPStore("127.0.0.1", int(store().get("port")), is_master=False)
dist.init_process_group("ina", store=own, rank=rank, world_size=2)
keys = []
grow.MEET = 10
for _ in range(2):
    for _ in range(55):
        assert ina.backend.grow_group() is dist.group.WORLD
    dist.barrier()
    keys.append(own.num_keys())
    dist.barrier()
say(keys=keys)
dist.barrier()
report()
"""))
    assert all(report["keys"][1] - report["keys"][0] <= 10 for report in reports), reports


def test_what_cannot_be_is_refused(tmp_path):
    reports = succeed(run(tmp_path, 2, SUMS + """
errors = []
def refused(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except (TypeError, ValueError, RuntimeError) as error:
        errors.append(f"{type(error).__name__}: {error}")
refused(ina.backend.grow_group)
refused(ina.backend.join_group, -1, store())
refused(ina.backend.join_group, None, store(), seconds=float("nan"))
refused(ina.backend.join_group, None, "store")
refused(ina.backend.join_group, seconds=0.3)
os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "12a"}
refused(ina.backend.join_group, seconds=0.3)
refused(ina.backend.join_group, 3, store(), seconds=0.3)
begin(2)
refused(ina.backend.join_group, None, store())
refused(ina.backend.grow_group, 1)
refused(ina.backend.grow_group, 3.0)
refused(ina.backend.grow_group, seconds=float("nan"))
refused(ina.backend.grow_group, seconds=-1)
refused(ina.backend.grow_group, seconds="1")
if rank == 0:
    work = dist.all_reduce(torch.ones(10), async_op=True)
    refused(ina.backend.grow_group)
    store().set("go", "")
    work.wait()
else:
    store().get("go")
    dist.all_reduce(torch.ones(10))
say(errors=errors)
report()
"""))
    for rank, report in enumerate(reports):
        starts = ["TypeError: ina: a default group of the back end 'ina' is expected, not a NoneType",
                  "ValueError: ina: rank = -1, expected",
                  "ValueError: ina: seconds = nan, expected a number of seconds, 0 or more",
                  "TypeError: ina: store is a str, expected",
                  "ValueError: ina: without a store, MASTER_ADDR and MASTER_PORT must be set",
                  "ValueError: ina: MASTER_PORT='12a': expected the port of the group's store, 1 to 65535",
                  "RuntimeError: ina: no group has let this process in within 0.3 s",
                  "RuntimeError: ina: this process has a default group already", "ValueError: ina: size = 1, expected",
                  "ValueError: ina: size = 3.0, expected", "ValueError: ina: seconds = nan, expected",
                  "ValueError: ina: seconds = -1, expected", "ValueError: ina: seconds = '1', expected",
                  "RuntimeError: ina: 1 collective(s) are in flight"]
        assert len(report["errors"]) == 14 - rank
        assert all(error.startswith(start) for error, start in zip(report["errors"], starts, strict=False)), report["errors"]
