"""Mixture of experts in real ranks (ina.moe): rows, sums within their bound, gradients, bytes, and errors on all ranks alike."""

from __future__ import annotations

import pytest
from ranks import run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

COMMON = """
import itertools, math, warnings
import numpy as np
import ina.moe
warnings.simplefilter("error", UserWarning)
from ina.backend.process_group import InaProcessGroup
rank, n = start()
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
def drawn(seed, k, num_experts, most=25, none=True):  # experts of each rank's tokens; a rank in five has none
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.integers(-int(none), num_experts, (int(rng.integers(1, most)) * (rng.random() < 0.8), k)))
            for _ in range(n)]
def bits(tensor): return tensor.contiguous().view(BITS[tensor.dtype])
def any_bits(seed, rows, width, dtype):  # also NaN, infinities, subnormals
    info = torch.iinfo(BITS[dtype])
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(info.min, info.max, (rows, width), generator=generator, dtype=BITS[dtype]).view(dtype)
def numbers(seed, rows, width, dtype, octaves=0):
    generator = torch.Generator().manual_seed(seed)
    scale = 2.0 ** torch.randint(-octaves, octaves + 1, (rows, 1), generator=generator)
    return (torch.randn(rows, width, generator=generator) * scale).to(dtype)
def expected_plan(everybody, per_rank):  # (source, token) of rows; (row, expert, slot) of pairs
    pairs = [(source, token, slot, int(expert) - per_rank * rank) for source, each in enumerate(everybody)
             for token, chosen in enumerate(each) for slot, expert in enumerate(chosen)
             if expert >= 0 and expert // per_rank == rank]
    rows = sorted({(source, token) for source, token, _, _ in pairs})
    return rows, [(rows.index(each[:2]), each[3], each[2]) for each in sorted(pairs, key=lambda each: (each[3], *each[:3]))]
def contributions(values, chosen, weights, per_rank):
    # Sums of each rank for a token: of its experts' outputs (values times 1, 2, ...), added up as float32 in order, rounded.
    parts = {}
    for expert, slot in sorted((int(expert), slot) for slot, expert in enumerate(chosen) if expert >= 0):
        output = (values * (expert + 1)).float()
        if weights is not None: output = output * weights[slot]
        owner = expert // per_rank
        parts[owner] = parts[owner] + output if owner in parts else output
    return {owner: part.to(values.dtype) for owner, part in parts.items()}
HALF = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}  # of a unit in the last place
LEAST = {torch.float32: 2.0**-150, torch.bfloat16: 2.0**-134, torch.float16: 2.0**-25}
def excess(result, parts, own, routed):
    # By how much the result is further from the exact sum than the bound, at most; bits of what one rank has.
    if not parts: return float(result.abs().max())
    if len(parts) == 1: return 0.0 if torch.equal(bits(result), bits(*parts.values())) else math.inf
    away = [part for owner, part in parts.items() if owner != own]
    m = len(away)
    added = routed and m > (1 if result.dtype == torch.float32 else 2)
    bound = m * 2.0 ** ((m - 1).bit_length() - 31) * max(float(part.abs().max()) for part in away) if added else 0.0
    worst = -math.inf
    for i, value in enumerate(result.tolist()):
        exact = math.fsum(float(part[i]) for part in parts.values())
        rounding = (abs(exact) + bound) * (HALF[result.dtype] + 2.0**-24) * 1.0001 + LEAST[result.dtype]
        worst = max(worst, abs(value - exact) - bound - rounding)
    return worst
"""

VALUES = COMMON + """
routed = os.environ["INA_PROTOCOL"] == "receivers"
wrong = []
cases = itertools.product((torch.float32, torch.bfloat16, torch.float16), ((5, 1, 1), (64, 2, 2), (33, 3, 1), (7, 4, 3)), (0, 1))
for seed, (dtype, (width, k, per_rank), weighted) in enumerate(cases):
    everybody, total = drawn(seed, k, n * per_rank), n * per_rank
    tokens = [numbers(100 * seed + r, len(each), width, dtype, octaves=12 if dtype != torch.float16 else 0)
              for r, each in enumerate(everybody)]
    weights = [torch.rand(each.shape, generator=torch.Generator().manual_seed(r)) for r, each in enumerate(everybody)]
    own = weights[rank] if weighted else None
    rows, plan = ina.moe.dispatch(tokens[rank], everybody[rank], own, num_experts=total)
    places, pairs = expected_plan(everybody, per_rank)
    same = list(zip(plan.source.tolist(), plan.token.tolist())) == places
    same &= list(zip(plan.row.tolist(), plan.expert.tolist(), plan.slot.tolist())) == pairs
    same &= plan.tokens_per_expert == [sum(expert == each for _, expert, _ in pairs) for each in range(per_rank)]
    same &= torch.equal(bits(rows), bits(torch.stack([tokens[s][t] for s, t in places]) if places else rows))
    if weighted:
        same &= plan.weights.tolist() == [float(weights[places[row][0]][places[row][1], slot]) for row, _, slot in pairs]
    outputs = rows[plan.row] * (per_rank * rank + plan.expert + 1)[:, None]
    result = ina.moe.combine(outputs, plan)
    same &= result.dtype == dtype and result.shape == tokens[rank].shape
    for i, (value, chosen) in enumerate(zip(result, everybody[rank])):
        parts = contributions(tokens[rank][i], chosen, own[i] if weighted else None, per_rank)
        same &= excess(value, parts, rank, routed) <= 0.0
    if not same: wrong.append(f"{dtype} {width} {k} {per_rank} {weighted}")
for dtype in BITS:  # whatever the bits are; one expert on another rank, whose output they are
    tokens = any_bits(rank, 20 + rank, 9, dtype)
    rows, plan = ina.moe.dispatch(tokens, torch.full((20 + rank, 1), (rank + 1) % n), num_experts=n)
    result = ina.moe.combine(rows[plan.row], plan)
    if not torch.equal(bits(rows), bits(any_bits((rank - 1) % n, 20 + (rank - 1) % n, 9, dtype))): wrong.append(f"rows {dtype}")
    if not torch.equal(bits(result), bits(tokens)): wrong.append(f"bits {dtype}")
numbered = torch.arange(1, 30, dtype=torch.float32)  # strided, half a word into their memory, no rows, with a pending negation
for tokens in (numbered[:24].view(6, 4).t(), numbered.bfloat16()[1:25].view(6, 4), numbered.half()[:1].expand(0, 4),
               torch.view_as_complex(
        torch.stack([numbered, numbered], 1)).conj().imag[:24].view(6, 4)):
    rows, plan = ina.moe.dispatch(tokens, torch.full((len(tokens), 1), (rank + 1) % n), num_experts=n)
    if not torch.equal(ina.moe.combine(rows[plan.row], plan), tokens): wrong.append("memory")
if n > 2:
    pair = dist.new_group([0, 2])
    if rank in (0, 2):
        other = 1 - dist.get_rank(pair)
        tokens = torch.full((3, 2), float(rank))
        rows, plan = ina.moe.dispatch(tokens, torch.full((3, 1), other), num_experts=2, group=pair)
        result = ina.moe.combine(rows[plan.row], plan)
        if rows.unique().tolist() != [2.0 - rank] or plan.source.tolist() != [other] * 3 or not torch.equal(result, tokens):
            wrong.append("part of the ranks")
stats = ina.backend.stats()
say(wrong=wrong, calls=stats["calls"], reasons=stats["reasons"])
dist.destroy_process_group()
"""


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.gate), 4])
def test_rows_are_the_tokens_and_sums_are_within_their_bound(tmp_path, ranks):
    for report in succeed(run(tmp_path, ranks, VALUES, INA_PROTOCOL="receivers", INA_VALUES="64")):
        assert report["wrong"] == [] and report["reasons"] == {}
        assert report["calls"]["moe_dispatch"]["switch"] > 20 and report["calls"]["moe_combine"]["switch"] > 20


def test_lost_repeated_and_late_packets_change_nothing(tmp_path):
    fault = "loss=0.01,dup=0.01,reorder=0.01,seed=5"
    for report in succeed(run(tmp_path, 3, VALUES, INA_PROTOCOL="receivers", INA_VALUES="64", INA_FAULT=fault)):
        assert report["wrong"] == []


@pytest.mark.parametrize(("ranks", "protocol"), [(1, "receivers"), (3, "switchml")])
def test_groups_without_routes_have_the_same_through_gloo_and_say_why(tmp_path, ranks, protocol):
    for report in succeed(run(tmp_path, ranks, VALUES, INA_PROTOCOL=protocol, INA_VALUES="64")):
        assert report["wrong"] == []
        if ranks == 1:  # nothing travels but what the ranks tell each other
            assert {reason.partition(": ")[2] for reason in report["reasons"]} == {"one rank"}
            continue
        why = "its sums are from all ranks and to all: INA_PROTOCOL=receivers and atp_routes have others"
        assert report["reasons"] == {f"{name}: {why}": report["calls"][name]["gloo"] for name in ("moe_dispatch", "moe_combine")}
        assert report["calls"]["moe_dispatch"]["gloo"] > 20 and report["calls"]["moe_dispatch"]["switch"] == 0


NOT_FINITE = COMMON + """
# Three tokens of rank 0, which ranks 1 and 2 (and 0, in the second one) have; all values come from the ranks' own tables.
nan, inf = math.nan, math.inf
largest = {torch.float32: 3e38, torch.float16: 6e4, torch.bfloat16: 3e38}
smallest = {torch.float32: 2.0**-149, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}
def tables(dtype):
    big, tiny = largest[dtype], smallest[dtype]
    return (torch.tensor([[1.0, nan, 3.0, inf, inf, -0.0], [tiny, tiny, 3 * tiny, -tiny, 0.0, 128 * tiny],
                          [big, 1.0, -big, 3.0, 0.0, 0.0]], dtype=dtype),
            torch.tensor([[1.0, 2.0, -3.0, inf, -inf, -0.0], [tiny, -tiny, 5 * tiny, 0.0, 0.0, 0.0],
                          [big, 1.0, big, 1.0, 0.0, -0.0]], dtype=dtype))
experts = torch.tensor([[1, 2, -1], [0, 1, 2], [1, 2, -1]]) if rank == 0 else torch.zeros(0, 3, dtype=torch.int64)
right = []
for dtype in largest:
    one, two = tables(dtype)
    rows, plan = ina.moe.dispatch(torch.zeros(len(experts), 6, dtype=dtype), experts, num_experts=3)
    mine = one if rank == 1 else two if rank == 2 else torch.zeros(1, 6, dtype=dtype)
    result = ina.moe.combine(mine[plan.row], plan)
    if rank == 0:
        exact = (one.double() + two.double()).float().to(dtype)
        finite = exact.isfinite().all(1)
        right.append(torch.equal(result[0].nan_to_num(7.0), exact[0].nan_to_num(7.0)) and torch.equal(result[1], exact[1])
                     and torch.equal(result[2].isinf(), exact[2].isinf()) and float(result[2, 2]) == 0.0)
say(right=right)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("protocol", ["receivers", "switchml"])
def test_nan_infinities_and_the_smallest_values_arrive(tmp_path, protocol):
    """A NaN stays where it is, and infinities of both signs make one; the largest values overflow, and subnormal ones do not
    vanish."""
    reports = succeed(run(tmp_path, 3, NOT_FINITE, INA_PROTOCOL=protocol))
    assert reports[0]["right"] == [True] * 3


GRADIENTS = COMMON + """
WIDTH, HIDDEN, K, PER_RANK = 12, 20, 3, 2
def expert(number):
    generator = torch.Generator().manual_seed(number)
    return [torch.randn(shape, generator=generator).div_(3).requires_grad_() for shape in ((WIDTH, HIDDEN), (HIDDEN, WIDTH + 1))]
def through(parameters, rows): return torch.tanh(rows @ parameters[0].to(rows.dtype)) @ parameters[1].to(rows.dtype)
def worst(own, other):
    own, other = [torch.zeros(1) if each is None else each for each in (own, other)]
    return float((own.double() - other.double()).abs().max() / (1e-30 + other.double().abs().max())) if own.numel() else 0.0
report = {}
for name in ("all", "no weights", "weights only", "one rank's tokens", "skipped"):
    everybody = drawn(7, K, n * PER_RANK)
    if name == "skipped": everybody = [each.clamp(max=PER_RANK - 1) for each in everybody]  # rank 0 has all of it
    tokens = [numbers(r, len(each), WIDTH, torch.float32) for r, each in enumerate(everybody)]
    weights = [torch.rand(each.shape, generator=torch.Generator().manual_seed(r)) for r, each in enumerate(everybody)]
    loss_of = [numbers(50 + r, len(each), WIDTH + 1, torch.float32) for r, each in enumerate(everybody)]
    need_tokens = [name in ("all", "no weights", "skipped") or (name == "one rank's tokens" and r == 1) for r in range(n)]
    need_weights = name in ("all", "weights only", "skipped")
    weighted = name != "no weights"
    # Here
    mine = [expert(PER_RANK * rank + e) for e in range(PER_RANK)]
    x = tokens[rank].clone().requires_grad_(need_tokens[rank])
    w = weights[rank].clone().requires_grad_(need_weights) if weighted else None
    rows, plan = ina.moe.dispatch(x, everybody[rank], w, num_experts=n * PER_RANK)
    if name == "skipped" and not len(plan.row):
        outputs = torch.zeros(0, WIDTH + 1)
    else:
        outputs = torch.cat([through(each, part) for each, part in zip(mine, rows[plan.row].split(plan.tokens_per_expert))])
    result = ina.moe.combine(outputs, plan)
    (result * loss_of[rank]).sum().backward()
    # In one process, in float64
    experts = [expert(e) for e in range(n * PER_RANK)]
    xs = [each.double().requires_grad_() for each in tokens]
    ws = [each.double().requires_grad_() for each in weights]
    results, loss = [], 0.0
    for r, chosen in enumerate(everybody):
        total = torch.zeros(len(chosen), WIDTH + 1, dtype=torch.float64)
        for (token, slot), number in zip(np.ndindex(chosen.shape), chosen.reshape(-1).tolist()):
            if number >= 0:
                output = through(experts[number], xs[r][token : token + 1]) * (ws[r][token, slot] if weighted else 1.0)
                total = total.index_add(0, torch.tensor([token]), output)
        results.append(total)
        loss = loss + (total * loss_of[r]).sum()
    loss.backward()
    facts = [worst(result.detach(), results[rank].detach())]
    facts += [worst(a.grad, b.grad) for own, number in zip(mine, range(PER_RANK * rank, PER_RANK * (rank + 1)))
              for a, b in zip(own, experts[number])]
    facts += [worst(x.grad, xs[rank].grad) if need_tokens[rank] else float(x.grad is not None)]
    facts += [worst(w.grad, ws[rank].grad) if need_weights else float(w is not None and w.grad is not None)]
    report[name] = facts
x = torch.ones(2, 3, requires_grad=True)
rows, plan = ina.moe.dispatch(x, torch.tensor([[0, 1], [1, 0]]), num_experts=n)
gradient, = torch.autograd.grad(ina.moe.combine(rows[plan.row] ** 2, plan).sum(), x, create_graph=True)
try:
    gradient.sum().backward()
    twice = ""
except RuntimeError as error:
    twice = str(error)
with torch.no_grad():
    rows, plan = ina.moe.dispatch(x, torch.tensor([[0, 1], [1, 0]]), num_experts=n)
    free = ina.moe.combine(rows[plan.row], plan).requires_grad
say(facts=report, gradient=gradient.tolist(), twice=twice, free=free)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("protocol", ["receivers", "switchml"])
def test_gradients_are_those_of_all_experts_in_one_process(tmp_path, protocol):
    for report in succeed(run(tmp_path, 3, GRADIENTS, INA_PROTOCOL=protocol, INA_VALUES="64")):
        for name, facts in report["facts"].items():
            assert max(facts) < 2e-6, (name, facts)
        assert report["gradient"] == [[4.0] * 3] * 2 and "once_differentiable" in report["twice"] and not report["free"]


BYTES = COMMON + """
WIDTH, K, PER_RANK = 64, 3, 2
routes, plain = [], InaProcessGroup.route_words
NAMES = "tx_packets", "tx_bytes", "rx_packets", "rx_bytes", "retransmissions", "pending_replies", "duplicates", "drop_stale"
def counted(self, words, name, table, agreed, opts):
    before = ina.backend.stats()["worker"]
    plain(self, words, name, table, agreed, opts).wait()
    now = ina.backend.stats()["worker"]
    routes.append([name, *(now[key] - before[key] for key in NAMES)])
    return self.barrier()
InaProcessGroup.route_words = counted
everybody = drawn(3, K, n * PER_RANK, most=60)
x = numbers(rank, len(everybody[rank]), WIDTH, torch.float32).requires_grad_()
ina.backend.reset_stats()
rows, plan = ina.moe.dispatch(x, everybody[rank], num_experts=n * PER_RANK)
dispatch_calls = ina.backend.stats()["calls"]
ina.backend.reset_stats()
ina.moe.combine(rows[plan.row], plan).sum().backward()
others = [[{int(e) // PER_RANK for e in chosen if e >= 0} - {r} for chosen in each] for r, each in enumerate(everybody)]
leave = sum(bool(each) for each in others[rank])
arrive = sum(rank in each for source in others for each in source)
def calls(experts):
    ina.backend.reset_stats()
    ina.moe.dispatch(torch.zeros(len(experts), WIDTH), experts, num_experts=n * PER_RANK)
    return ina.backend.stats()["calls"]
small = torch.zeros(2, K, dtype=torch.int64)
later = [calls(each) for each in (everybody[rank], small, small)]
say(routes=routes, leave=leave, arrive=arrive, first=dispatch_calls, later=later)
dist.destroy_process_group()
"""


def test_ranks_send_a_token_once_and_get_each_that_they_need_once(tmp_path):
    """And in reverse for sums and gradients. Rows are a packet; other packets have no values, 64 or 72 bytes."""
    for report in succeed(run(tmp_path, 4, BYTES, INA_PROTOCOL="receivers", INA_VALUES="64")):
        names = ["moe_dispatch", "moe_combine", "moe_dispatch", "moe_combine"]  # the latter two: backward
        assert [name for name, *_ in report["routes"]] == [*names, *3 * ["moe_dispatch"]]
        for name, tx_packets, tx_bytes, rx_packets, rx_bytes, *again in report["routes"][:4]:
            up, down = report["leave"], report["arrive"]
            up, down = (up, down) if name == "moe_dispatch" else (down, up)
            values = tx_bytes - 72 * tx_packets, rx_bytes - 72 * rx_packets
            assert any(again) or values in [(256 * up - 8 * plain, 256 * down - 8 * plain) for plain in (0, 1)], name
        # Beside the tokens: what the ranks have to know, in one all-gather if a packet has room for it, or it was as much before.
        assert report["first"]["allgather"] == {"switch": 2, "gloo": 0}
        assert [sum(calls["allgather"].values()) for calls in report["later"]] == [1, 1, 1]
        assert report["later"][2] == {"allgather": {"switch": 1, "gloo": 0}, "moe_dispatch": {"switch": 1, "gloo": 0},
                                      "barrier": {"switch": 1, "gloo": 0}}


ERRORS = COMMON + """
def error(call):
    try:
        call()
    except (ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return "none"
ones, first = torch.ones(2, 4), torch.zeros(2, 1, dtype=torch.int64)
def dispatch(tokens=ones, experts=first, weights=None, num_experts=2 * n, **kwargs):
    return ina.moe.dispatch(tokens, experts, weights, num_experts=num_experts, **kwargs)
own = lambda wrong, right: wrong if rank == 1 else right  # at rank 1 alone
facts = {
    "beyond": error(lambda: dispatch(experts=own(first + 2 * n, first))),
    "negative": error(lambda: dispatch(experts=own(first - 2, first))),
    "tokens": error(lambda: dispatch(own(torch.ones(2), ones))),
    "no tensor": error(lambda: dispatch(own([1.0], ones))),
    "no width": error(lambda: dispatch(own(torch.ones(2, 0), ones))),
    "dtype": error(lambda: dispatch(own(ones.double(), ones))),
    "sparse": error(lambda: dispatch(own(ones.to_sparse(), ones))),
    "floats": error(lambda: dispatch(experts=own(first.float(), first))),
    "unsigned": error(lambda: dispatch(experts=own(first.to(torch.uint64), first))),
    "number": error(lambda: dispatch(experts=own(first[:1], first))),
    "k": error(lambda: dispatch(experts=own(first[:, :0], first))),
    "weights": error(lambda: dispatch(weights=own(torch.ones(2), torch.ones(2, 1)))),
    "indivisible": error(lambda: dispatch(num_experts=own(2 * n + 1, 2 * n))),
    "many": error(lambda: dispatch(num_experts=n << 15)),
    "other H": error(lambda: dispatch(own(torch.ones(2, 5), ones))),
    "other dtype": error(lambda: dispatch(own(ones.half(), ones))),
    "other k": error(lambda: dispatch(experts=own(first.repeat(1, 2), first))),
    "other num_experts": error(lambda: dispatch(num_experts=own(3 * n, 2 * n))),
    "other weights": error(lambda: dispatch(weights=own(torch.ones(2, 1), None))),
    "no memory": error(lambda: dispatch(own(ones.to("meta"), ones))),
    "no experts": error(lambda: dispatch(experts=own(first.to("meta"), first))),
    "no weights": error(lambda: dispatch(weights=own(torch.ones(2, 1, device="meta"), torch.ones(2, 1)))),
    "no integer": error(lambda: dispatch(num_experts=own(2.0 * n, 2 * n))),
    "numpy": error(lambda: dispatch(num_experts=np.int64(2 * n))),
}
rows, plan = dispatch(experts=torch.tensor([[0], [3]]))
outputs = rows[plan.row]
facts |= {
    "outputs": error(lambda: ina.moe.combine(own(torch.ones(len(outputs) + 1, 4), outputs), plan)),
    "output dtype": error(lambda: ina.moe.combine(own(outputs.double(), outputs), plan)),
    "output device": error(lambda: ina.moe.combine(own(outputs.to("meta"), outputs), plan)),
    "other output H": error(lambda: ina.moe.combine(own(torch.ones(len(outputs), 6), outputs), plan)),
    "other output dtype": error(lambda: ina.moe.combine(own(outputs.bfloat16(), outputs), plan)),
    "other plan": error(lambda: ina.moe.combine(outputs, own(dispatch(experts=torch.tensor([[0], [3]]))[1], plan))),
    "gloo": error(lambda: dispatch(group=dist.new_group(backend="gloo"))),
}
from types import SimpleNamespace
ina.backend.moe.checks.lib = SimpleNamespace(INA_BITMAP_WORKERS=1)
facts["ranks"] = error(dispatch)
from ina.base.native import lib
ina.backend.moe.checks.lib = lib
after = ina.moe.combine(outputs, plan).tolist()
_, late = dispatch(group=(other := dist.new_group()))
dist.destroy_process_group(other)
try:
    ended = ina.moe.combine(torch.ones(len(late.row), 4), late)
except RuntimeError as error:
    ended = str(error)
say(facts=facts, after=after, ended=ended)
dist.destroy_process_group()
"""
DISPATCH, COMBINE = "ValueError: ina: moe.dispatch: ", "ValueError: ina: moe.combine: "


@pytest.mark.parametrize("protocol", ["receivers", "switchml"])
def test_errors_are_the_same_on_all_ranks_and_leave_the_group_as_it_is(tmp_path, protocol):
    first, *rest = succeed(run(tmp_path, 2, ERRORS, INA_PROTOCOL=protocol))
    assert all(report["facts"] == first["facts"] for report in rest)
    assert all(report["after"] == [[1.0] * 4] * 2 and "has been destroyed" in report["ended"] for report in (first, *rest))
    dense = "expected dense float32, bfloat16 or float16"
    assert first["facts"] == {
        "beyond": DISPATCH + "rank 1: experts: from 4 to 4, expected 0 to 3, or -1 for none",
        "negative": DISPATCH + "rank 1: experts: from -2 to -2, expected 0 to 3, or -1 for none",
        "tokens": DISPATCH + "rank 1: tokens: float32 of shape (2,), expected two dimensions, the second of 1 or more",
        "no tensor": DISPATCH + f"rank 1: tokens: a list, {dense}",
        "no width": DISPATCH + "rank 1: tokens: float32 of shape (2, 0), expected two dimensions, the second of 1 or more",
        "dtype": DISPATCH + f"rank 1: tokens: float64 of shape (2, 4), {dense}",
        "sparse": DISPATCH + f"rank 1: tokens: float32 of shape (2, 4), {dense}",
        "floats": DISPATCH + "rank 1: experts: float32 of shape (2, 1), expected int64, int32, int16, int8 or uint8",
        "unsigned": DISPATCH + "rank 1: experts: uint64 of shape (2, 1), expected int64, int32, int16, int8 or uint8",
        "number": DISPATCH + "rank 1: experts: int64 of shape (1, 1), expected (2, k): k of each token",
        "k": DISPATCH + "rank 1: experts: int64 of shape (2, 0), expected (2, k): k of each token",
        "weights": DISPATCH + "rank 1: weights: float32 of shape (2,), expected floats, (2, 1) as experts",
        "indivisible": DISPATCH + "rank 1: num_experts: 5, expected an integer, a multiple of the 2 ranks, 32768 at most",
        "many": DISPATCH + "rank 0: num_experts: 65536, expected an integer, a multiple of the 2 ranks, 32768 at most",
        "other H": DISPATCH + "the ranks differ in hidden size: 4 at rank 0, 5 at rank 1",
        "other dtype": DISPATCH + "the ranks differ in dtype: float32 at rank 0, float16 at rank 1",
        "other k": DISPATCH + "the ranks differ in experts per token: 1 at rank 0, 2 at rank 1",
        "other num_experts": DISPATCH + "the ranks differ in num_experts: 4 at rank 0, 6 at rank 1",
        "other weights": DISPATCH + "the ranks differ in having weights: 0 at rank 0, 1 at rank 1",
        "no memory": DISPATCH + f"rank 1: tokens: float32 of shape (2, 4) on meta, {dense}",
        "no experts": DISPATCH + "rank 1: experts: int64 of shape (2, 1) on meta, expected int64, int32, int16, int8 or uint8",
        "no weights": DISPATCH + "rank 1: weights: float32 of shape (2, 1) on meta, expected floats, (2, 1) as experts",
        "no integer": DISPATCH + "rank 1: num_experts: 4.0, expected an integer, a multiple of the 2 ranks, 32768 at most",
        "numpy": "none",
        "outputs": COMBINE + "rank 1: outputs: float32 of shape (3, 4), expected (2, H): one for each of the plan's pairs",
        "output dtype": COMBINE + f"rank 1: outputs: float64 of shape (2, 4), {dense}",
        "output device": COMBINE + f"rank 1: outputs: float32 of shape (2, 4) on meta, {dense}",
        "other output H": COMBINE + "the ranks differ in hidden size: 4 on one, 6 on another",
        "other output dtype": COMBINE + "the ranks differ in dtype: float32 on one, bfloat16 on another",
        "other plan": COMBINE + "the ranks differ in plan: 1 on one, 2 on another",
        "gloo": "TypeError: ina: a group of the back end 'ina' is expected, not a ProcessGroup",
        "ranks": DISPATCH + "a group of 2 ranks, expected 1 at most",
    }


ORDER = COMMON + """
x = torch.ones(4, 8, requires_grad=True)
plans = [ina.moe.dispatch(x, torch.full((4, 1), (rank + 1) % n), num_experts=n) for _ in range(2)]
results = [ina.moe.combine(rows[plan.row], plan) for rows, plan in plans]
try:
    results[rank].sum().backward()
    message = ""
except RuntimeError as error:
    message = str(error)
say(message=message)
dist.destroy_process_group()
"""


def test_backward_passes_of_different_plans_are_an_error_on_all_ranks(tmp_path):
    for report in succeed(run(tmp_path, 2, ORDER, INA_PROTOCOL="receivers")):
        assert "rank 0 is in moe_dispatch of plan 0" in report["message"]
        assert "rank 1 is in moe_dispatch of plan 1" in report["message"]
