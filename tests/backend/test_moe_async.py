"""Mixture of experts with several calls under way (ina.moe with async_op): results, gradients, and errors."""

from __future__ import annotations

import pytest
from ranks import run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

COMMON = """
import random
import numpy as np
import ina.moe
from ina.backend.process_group import InaProcessGroup
rank, n = start()
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
def same(one, other): return torch.equal(one.view(BITS[one.dtype]), other.view(BITS[other.dtype]))
def drawn(seed, k, num_experts, most=20):  # experts of each rank's tokens; one rank has none
    rng = np.random.default_rng(seed)
    return [rng.integers(-1, num_experts, (0 if r == seed % n else int(rng.integers(1, most)), k)) for r in range(n)]
"""

VALUES = COMMON + """
COUNT, K, PER_RANK = 4, 3, 2
total, group, wrong = n * PER_RANK, dist.group.WORLD, []
def factors(experts): return experts + 1
def reference(x, chosen):  # of integers, exactly
    return np.stack([sum((row * factors(e) for e in each if e >= 0), np.zeros_like(row)) for row, each in zip(x, chosen)]
                    ) if len(x) else x
for dtype, width in ((torch.float32, 33), (torch.bfloat16, 8)):
    everybody = [drawn(10 * width + i, K, total) for i in range(COUNT)]
    rng = np.random.default_rng(rank)
    integers = [rng.integers(-3, 4, (len(each[rank]), width)) for each in everybody]
    floats = [torch.randn(values.shape, generator=torch.Generator().manual_seed(i)).to(dtype)
              for i, values in enumerate(integers)]
    for name, batches in (("integers", [torch.from_numpy(each).to(dtype) for each in integers]), ("floats", floats)):
        chosen = [torch.from_numpy(each[rank]) for each in everybody]
        order = random.Random(1000 * width + rank)  # another one on each rank
        def shuffled(): return order.sample(range(COUNT), COUNT)
        def outputs(rows, plan): return rows[plan.row] * factors(PER_RANK * rank + plan.expert)[:, None].to(dtype)
        handles = []
        for x, experts in zip(batches, chosen):
            changed = x.clone()
            handles.append(ina.moe.dispatch(changed, experts, num_experts=total, async_op=True))
            changed.fill_(torch.nan)
        ina.moe.dispatch(batches[0], chosen[0], num_experts=total, async_op=True)  # nobody waits for it
        mine = torch.full((3000,), rank)
        dist.all_reduce(mine)
        if mine.unique().tolist() != [n * (n - 1) // 2]: wrong.append("all-reduce between")
        got = {}
        for i in shuffled(): got[i] = handles[i].wait()
        if any(handles[i].wait() is not got[i] or not handles[i].is_completed() for i in got): wrong.append("wait again")
        sums = []
        for i in range(COUNT):
            changed = outputs(*got[i])
            sums.append(ina.moe.combine(changed, got[i][1], async_op=True))
            changed.fill_(torch.nan)
            if i == 1: between = ina.moe.dispatch(batches[2], chosen[2], num_experts=total)  # in the call
        result = {}
        for i in shuffled(): result[i] = sums[i].wait()
        for i in range(COUNT):
            rows, plan = ina.moe.dispatch(batches[i], chosen[i], num_experts=total)
            if not same(rows, got[i][0]) or not torch.equal(plan.source, got[i][1].source): wrong.append(f"rows {name} {i}")
            if plan.tokens_per_expert != got[i][1].tokens_per_expert: wrong.append(f"plan {name} {i}")
            if not same(ina.moe.combine(outputs(rows, plan), plan), result[i]): wrong.append(f"sums {name} {i}")
            if name == "integers" and result[i].double().tolist() != reference(integers[i], everybody[i][rank]).tolist():
                wrong.append(f"reference {i}")
        if not same(between[0], got[2][0]): wrong.append("in the call")
many = 70  # more than can be on their way
handles = [ina.moe.dispatch(torch.full((2, 4), 100.0 * rank + i), torch.full((2, 1), (rank + 1) % n), num_experts=n,
                            async_op=True) for i in range(many)]
for i in reversed(range(many)):
    if handles[i].wait()[0].unique().tolist() != [100.0 * ((rank - 1) % n) + i]: wrong.append(f"many {i}")
with torch.inference_mode():
    handle = ina.moe.dispatch(torch.ones(2, 4), torch.full((2, 1), (rank + 1) % n), num_experts=n, async_op=True)
if handle.wait()[0].tolist() != [[1.0] * 4] * 2 or not handle.wait()[0].is_inference(): wrong.append("inference mode")
stats = ina.backend.stats()
say(wrong=wrong, calls=stats["calls"], reasons=stats["reasons"], left=group.in_flight, failure=group.failure)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("ranks", "protocol"), [pytest.param(3, "receivers", marks=pytest.mark.gate), (2, "receivers"),
                                                 (4, "receivers"), (3, "atp_routes"), (3, "switchml"), (1, "receivers")])
def test_results_are_those_of_calls_one_at_a_time_in_whatever_order_ranks_wait(tmp_path, ranks, protocol):
    for report in succeed(run(tmp_path, ranks, VALUES, INA_PROTOCOL=protocol, INA_VALUES="64")):
        assert report["wrong"] == [] and report["left"] == 0 and report["failure"] == ""
        if ranks > 1 and protocol != "switchml":
            assert report["reasons"] == {} and report["calls"]["moe_dispatch"]["switch"] > 70


def test_lost_repeated_and_late_packets_change_nothing(tmp_path):
    fault = "loss=0.01,dup=0.01,reorder=0.01,seed=6"
    for report in succeed(run(tmp_path, 3, VALUES, INA_PROTOCOL="receivers", INA_VALUES="64", INA_FAULT=fault)):
        assert report["wrong"] == []


GRADIENTS = COMMON + """
COUNT, WIDTH, K, PER_RANK = 3, 12, 3, 2
total = n * PER_RANK
everybody = [drawn(70 + i, K, total, most=9) for i in range(COUNT)]
everybody[1] = [np.minimum(each, PER_RANK - 1) for each in everybody[1]]  # rank 0 has all of it
def numbers(*shape, seed): return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
tokens = [[numbers(len(each), WIDTH, seed=10 * i + r) for r, each in enumerate(of)] for i, of in enumerate(everybody)]
weights = [[np.abs(numbers(*each.shape, seed=99 + 10 * i + r)) for r, each in enumerate(of)] for i, of in enumerate(everybody)]
losses = [[numbers(len(each), WIDTH, seed=500 + 10 * i + r) for r, each in enumerate(of)] for i, of in enumerate(everybody)]
matrices = [numbers(WIDTH, WIDTH, seed=900 + e) / 3 for e in range(total)]
def trained(asynchronous, seed):
    order = random.Random(seed)  # the same on all ranks
    xs = [torch.from_numpy(each[rank].copy()).requires_grad_() for each in tokens]
    ws = [torch.from_numpy(each[rank].copy()).requires_grad_() for each in weights]
    own = [torch.from_numpy(matrices[PER_RANK * rank + e].copy()).requires_grad_() for e in range(PER_RANK)]
    def through(rows, plan):
        return torch.cat([part @ matrix for part, matrix in zip(rows[plan.row].split(plan.tokens_per_expert), own)])
    chosen, results = [torch.from_numpy(each[rank]) for each in everybody], {}
    if asynchronous:
        calls = [ina.moe.dispatch(x, e, w, num_experts=total, async_op=True) for x, e, w in zip(xs, chosen, ws)]
        ways_back = {}
        for i in order.sample(range(COUNT), COUNT):
            with torch.set_grad_enabled(i != 0): got = calls[i].wait()
            ways_back[i] = ina.moe.combine(through(*got), got[1], async_op=True)
        for i in order.sample(range(COUNT), COUNT): results[i] = ways_back[i].wait()
    else:
        for i in range(COUNT):
            rows, plan = ina.moe.dispatch(xs[i], chosen[i], ws[i], num_experts=total)
            results[i] = ina.moe.combine(through(rows, plan), plan)
    loss = sum((results[i] * torch.from_numpy(losses[i][rank])).sum() for i in range(COUNT))
    loss.backward(retain_graph=True)
    first = [each.grad.clone() for each in (*xs, *ws)]
    loss.backward()  # again: gradients are twice these
    return (*(results[i].detach() for i in range(COUNT)), *first), [each.grad for each in (*xs, *ws)], [each.grad for each in own]
plain, _, plain_experts = trained(False, 0)
wrong = []
for seed in range(4):
    values, twice, experts = trained(True, seed)
    if not all(map(same, plain, values)): wrong.append(f"order {seed}")
    if not all(torch.equal(2 * one, two) for one, two in zip(plain[COUNT:], twice)): wrong.append(f"twice {seed}")
    for one, other in zip(plain_experts, experts):  # the sum of the batches' gradients, in another order
        if not torch.allclose(one, other, rtol=1e-5, atol=1e-5): wrong.append(f"experts {seed}")
# In float64, without any dispatch
far = []
of_experts = np.zeros((total, WIDTH, WIDTH))
for i in range(COUNT):
    for r in range(n):
        x, w, c = tokens[i][r].astype(float), weights[i][r].astype(float), losses[i][r].astype(float)
        y, gx, gw = np.zeros_like(x), np.zeros_like(x), np.zeros_like(w)
        for t, s in np.ndindex(*w.shape):
            if (e := everybody[i][r][t, s]) >= 0:
                y[t] += w[t, s] * (x[t] @ matrices[e])
                gx[t] += w[t, s] * (matrices[e].astype(float) @ c[t])
                gw[t, s] += (x[t] @ matrices[e]) @ c[t]
                of_experts[e] += w[t, s] * np.outer(x[t], c[t])
        if r == rank: far += [np.abs(a.double().numpy() - b).max(initial=0.0) for a, b in
                              ((plain[i], y), (plain[COUNT + i], gx), (plain[2 * COUNT + i], gw))]
far += [np.abs(grad.double().numpy() / 2 - of_experts[PER_RANK * rank + e]).max() for e, grad in enumerate(plain_experts)]
say(wrong=wrong, far=float(max(far)), largest=float(np.abs(of_experts).max()), group=dist.group.WORLD.in_flight)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("ranks", "protocol"), [(2, "receivers"), (4, "receivers"), (3, "receivers"), (3, "switchml")])
def test_gradients_are_those_of_a_dense_computation_and_of_calls_one_at_a_time(tmp_path, ranks, protocol):
    for report in succeed(run(tmp_path, ranks, GRADIENTS, INA_PROTOCOL=protocol, INA_VALUES="64")):
        assert report["wrong"] == [] and report["group"] == 0
        assert report["far"] < 2e-5 and report["largest"] > 1


AT_ONCE = COMMON + """
class Held:  # a collective that rank 1 begins only when rank 0 has seen both under way
    waiting = []
    def __init__(self, begin):
        self.begin, self.work = begin, None
        self.waiting.append(self)
    def is_completed(self): return False
    def wait(self, timeout=timedelta(0)):
        dist.group.WORLD.store.wait(["seen"], timedelta(seconds=100))
        for each in self.waiting: each.work = each.begin()
        self.waiting.clear()
        return self.work.wait()
x = torch.full((3, 4), rank + 1.0)
experts = torch.tensor([[0, 1]] * 3)
rows, plan = ina.moe.dispatch(x, experts, num_experts=2)
plain = InaProcessGroup.route_words
if rank == 1: InaProcessGroup.route_words = lambda *args: Held(lambda: plain(*args))
out = ina.moe.dispatch(x, experts, num_experts=2, async_op=True)
back = ina.moe.combine(rows[plan.row] * (rank + 1), plan, async_op=True)
facts = {}
if rank == 0:
    facts = {"in_flight": dist.group.WORLD.in_flight, "completed": [out.is_completed(), back.is_completed()]}
    for each in (out, back):
        try:
            each.wait(timedelta(milliseconds=20))
        except RuntimeError as error:
            facts[str(error)] = True
    dist.group.WORLD.store.set("seen", "")
say(facts=facts, sums=back.wait().tolist(), rows=out.wait()[0].tolist())
InaProcessGroup.route_words = plain
dist.destroy_process_group()
"""


def test_a_dispatch_and_a_combine_are_under_way_at_once(tmp_path):
    """Neither can end before both have begun; a wait that ends before may be tried again."""
    first, second = succeed(run(tmp_path, 2, AT_ONCE, INA_PROTOCOL="receivers"))
    late = "was not done within the 0.02 s given to wait()"
    dispatch, combine = [message for message in first["facts"] if late in message]
    assert "moe_dispatch" in dispatch and "moe_combine" in combine
    assert first["facts"]["in_flight"] == 2 and first["facts"]["completed"] == [False, False]
    assert first["sums"] == [[3.0] * 4] * 3 and second["sums"] == [[6.0] * 4] * 3
    assert first["rows"] == second["rows"] == [[1.0] * 4] * 3 + [[2.0] * 4] * 3


BACKWARDS = COMMON + """
events = []
class Expert(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, number):
        ctx.number = number
        events.append(f"forward {number}")
        return rows * 2
    @staticmethod
    def backward(ctx, gradient):
        events.append(f"backward {ctx.number}")
        return gradient * 2, None
plain, ended = InaProcessGroup.route_words, ina.backend.moe.exchange.Transfer.result
def begun(self, words, name, table, agreed, opts):
    events.append(f"{name} {agreed} begins")
    return plain(self, words, name, table, agreed, opts)
def result(self):
    events.append("result")
    return ended(self)
InaProcessGroup.route_words, ina.backend.moe.exchange.Transfer.result = begun, result
xs = [torch.ones(2, 4, requires_grad=True) for _ in range(2)]
experts = torch.tensor([[(rank + 1) % n]] * 2)
calls = [ina.moe.dispatch(x, experts, num_experts=n, async_op=True) for x in xs]
backs = []
for number, call in enumerate(calls):
    rows, plan = call.wait()
    backs.append(ina.moe.combine(Expert.apply(rows, number)[plan.row], plan, async_op=True))
results = [back.wait() for back in backs]
events.append("loss")
sum(result.sum() for result in results).backward()
say(events=events, right=[x.grad.tolist() == [[2.0] * 4] * 2 for x in xs])
dist.destroy_process_group()
"""


def test_rows_and_gradients_of_one_batch_travel_beside_the_other_s_experts(tmp_path):
    for report in succeed(run(tmp_path, 2, BACKWARDS, INA_PROTOCOL="receivers")):
        assert report["right"] == [True, True]
        out, back, ended = ("moe_dispatch of plan {} begins", "moe_combine of plan {} begins", "result")
        assert report["events"] == [
            out.format(0), out.format(1), ended, "forward 0", back.format(0), ended, "forward 1", back.format(1), ended, ended,
            "loss",
            out.format(1), out.format(0), ended, "backward 1", back.format(1), ended, "backward 0", back.format(0), ended, ended]


ERRORS = COMMON + """
def error(call):
    try:
        call()
        return ""
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
x, experts = torch.ones(2, 4, requires_grad=True), torch.tensor([[(rank + 1) % n]] * 2)
def begin(group=None): return ina.moe.dispatch(x, experts, num_experts=n, group=group, async_op=True)
def ended(calls, order): return dict(sorted((i, calls[i].wait()) for i in order))
facts = {}
rows, plan = begin().wait()
facts["dispatch of one"] = error(lambda: ina.moe.dispatch(x, experts, num_experts=n, async_op=rank == 1))
facts["combine of one"] = error(lambda: ina.moe.combine(rows[plan.row], plan, async_op=rank == 1))
own = lambda first, second: first if rank == 0 else second
group = dist.new_group()
got = ended([begin(group) for _ in range(2)], own((0, 1), (1, 0)))
loss = sum(ina.moe.combine(rows[plan.row], plan, async_op=True).wait().sum() for rows, plan in got.values())
facts["waits"] = error(loss.backward)
facts["after"] = error(lambda: ina.moe.combine(got[0][0][got[0][1].row], got[0][1], async_op=True).wait())
facts["failure"] = group.failure
group = dist.new_group()
rows, plan = begin(group).wait()
calls = [lambda: ina.moe.combine(rows[plan.row], plan, async_op=True), lambda: begin(group)]
facts["calls"] = error(own(*calls))
group = dist.new_group()
begin(group).wait()
class Never(Exception): pass
def never(*args): raise Never
if rank == 1: InaProcessGroup.route_words = never
calls = []
for _ in range(2):
    try:
        calls.append(begin(group))
    except Never:
        pass
dist.destroy_process_group(group)
facts["destroyed"] = [error(call.wait) for call in calls]
say(facts=facts)
dist.destroy_process_group()
"""


def test_errors_are_the_same_on_all_ranks(tmp_path):
    first, second = succeed(run(tmp_path, 2, ERRORS, INA_PROTOCOL="receivers"))
    one, other = first["facts"], second["facts"]
    assert one["dispatch of one"] == other["dispatch of one"] == (
        "ValueError: ina: moe.dispatch: the ranks differ in async_op: 0 at rank 0, 1 at rank 1")
    assert one["combine of one"] == other["combine of one"] == (
        "ValueError: ina: moe.combine: the ranks differ in async_op: 0 on one, 1 on another")
    for facts in (one, other):
        assert "rank 0 is in moe_combine of plan 1" in facts["waits"] and "rank 1 is in moe_combine of plan 0" in facts["waits"]
        assert facts["after"] == f"RuntimeError: {facts['failure']}" and facts["waits"].partition(": ")[2] in facts["failure"]
        assert "rank 0 is in allreduce MAX" in facts["calls"] and "rank 1 is in allgather" in facts["calls"]
    assert len(one["destroyed"]) == 2 and other["destroyed"] == []  # one rank has begun none
    assert all("was destroyed with 2 collective(s) in flight" in message for message in one["destroyed"])


LOST = COMMON + """
x, experts = torch.ones(2, 4), torch.tensor([[(rank + 1) % n]] * 2)
rows, plan = ina.moe.dispatch(x, experts, num_experts=n)
plain = InaProcessGroup.route_words
def ends(*args):
    if args[2] == "moe_combine": os._exit(7)
    class Never: pass
    return Never()
if rank == 1: InaProcessGroup.route_words = ends
out = ina.moe.dispatch(x, experts, num_experts=n, async_op=True)
back = ina.moe.combine(rows[plan.row], plan, async_op=True)
messages = []
for each in (back, out, back):
    try:
        each.wait()
    except RuntimeError as error:
        messages.append(str(error))
say(messages=messages)
"""


def test_a_rank_that_ends_with_two_under_way_ends_both(tmp_path):
    first, second = run(tmp_path, 2, LOST, INA_PROTOCOL="receivers")
    assert second.code == 7 and first.code == 0, first.errors
    messages = first.report["messages"]
    assert len(messages) == 3 and messages[0] == messages[2]
    assert all("worker 1 of job" in message and "is lost" in message for message in messages), messages


FULL = COMMON + """
import warnings
from ina.backend.job import Job
admit = Job.admit
Job.admit = lambda self: "no room" if "/moe_" in self.name else admit(self)
x, experts = torch.full((2, 4), rank + 1.0), torch.tensor([[0, 1]] * 2)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    calls = [ina.moe.dispatch(x * i, experts, num_experts=2, async_op=True) for i in (1, 2)]
    ways_back = [ina.moe.combine(rows[plan.row], plan, async_op=True) for rows, plan in (call.wait() for call in calls)]
    sums = [way_back.wait().unique().tolist() for way_back in reversed(ways_back)]
say(sums=sums, warned=[str(each.message) for each in caught if "one job" in str(each.message)])
dist.destroy_process_group()
"""


def test_without_room_for_more_jobs_the_group_has_one_for_all(tmp_path):
    for rank, report in enumerate(succeed(run(tmp_path, 2, FULL, INA_PROTOCOL="receivers"))):
        assert report["sums"] == [[4.0 * (rank + 1)], [2.0 * (rank + 1)]]
        assert len(report["warned"]) == 2 and all("no room" in message for message in report["warned"])


GRAPH = COMMON + """
import gc
x = torch.randn(64, 512, requires_grad=True)
experts = torch.full((64, 1), (rank + 1) % n)
def travelled():  # tensors as large as the rows, of the type in which they travel
    gc.collect()
    tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
    return sum(each.dtype == torch.int32 and each.numel() >= x.numel() for each in tensors)
results = []
for _ in range(3):
    rows, plan = ina.moe.dispatch(x, experts, num_experts=n)
    results.append(ina.moe.combine(rows[plan.row], plan))
dist.barrier()
before = travelled()
sum(each.sum() for each in results).backward(retain_graph=True)
dist.barrier()
say(before=before, after=travelled(), right=torch.equal(x.grad, torch.full_like(x, 3)))
"""


def test_a_graph_that_lives_on_holds_no_rows_that_have_travelled(tmp_path):
    for report in succeed(run(tmp_path, 2, GRAPH, INA_PROTOCOL="receivers")):
        assert report == {**report, "before": 0, "after": 0, "right": True}


@pytest.mark.gate
def test_what_is_no_plan_and_no_timeout_is_told(tmp_path):
    results = run(tmp_path, 2, COMMON + """
handle = ina.moe.dispatch(torch.ones(3, 2), torch.zeros(3, 1, dtype=torch.int64), num_experts=n, async_op=True)
rows, plan = handle.wait()
texts = []
for call in (lambda: handle.wait(1.0), lambda: ina.moe.combine(rows, handle)):
    try: call()
    except TypeError as error: texts.append(str(error))
say(texts=texts, rows=ina.moe.combine(rows, plan).tolist())
""")
    for report in succeed(results):
        timeout, plan = report["texts"]
        assert "expected a datetime.timedelta" in timeout and "wait() returns rows and plan" in plan
        assert report["rows"] == [[1.0, 1.0]] * 3
