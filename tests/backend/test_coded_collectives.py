"""Collectives by codecs, in real ranks."""

import pytest
from ranks import ROOT, run, succeed

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")
FAULTS = {"INA_FAULT": "loss=0.01,dup=0.01,reorder=0.01,corrupt=0.005,seed=5", "INA_VALUES": "256"}

SUMS = """
rank, n = start()
R = dist.ReduceOp
import numpy as np
from ina import codecs
codec = os.environ["INA_CODEC"]
def tensors(dtype, size):
    made = [torch.Generator().manual_seed(size + r) for r in range(n)]
    return [(torch.randn(size, generator=g, dtype=torch.float64) * 10.0 ** (size % 7 - 3)).to(dtype) for g in made]
def close(result, everyone, average, size):
    kind = np.float64 if result.dtype == torch.float64 else np.float32
    arrays = [t.to(torch.float64).numpy().astype(kind) for t in everyone]
    exact = np.sum(np.asarray(arrays, np.longdouble), axis=0) / (n if average else 1)
    bound = codecs.named(codec if np.dtype(kind).name in codecs.named(codec).dtypes else "exact").bound(arrays, average)
    eps = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}.get(result.dtype, 0.0)
    off = np.abs(result.to(torch.float64).numpy() - exact)
    assert (off <= bound * 1.000001 + 2 * eps * (np.abs(exact) + bound)).all(), (codec, result.dtype, size, average, off.max())
waiting = []
for size in (1, 3, 20, 21, 22, 64, 1000, 20_000):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        everyone, op = tensors(dtype, size), (R.SUM, R.AVG)[size % 2]
        mine = everyone[rank].clone()
        if size % 3 == 0: mine = torch.stack([mine, mine], 1)[:, 0]
        work = dist.all_reduce(mine, op=op, async_op=True)
        waiting.append((work, mine, everyone, op == R.AVG, size))
        if size > 60:
            for work, *result in reversed(waiting) if rank else waiting: work.wait(); close(*result)
            waiting = []
everyone = tensors(torch.float32, 3 * 4032)  # whole blocks for every rank: bounds are of blocks
part = torch.empty(4032); dist.reduce_scatter_tensor(part, everyone[rank].clone()); at = slice(4032 * rank, 4032 * rank + 4032)
close(part, [t[at] for t in everyone], False, 4032)
mine = everyone[rank].clone(); dist.reduce(mine, 1)
if rank == 1: close(mine, everyone, False, 12000)
elif rank: assert torch.equal(mine, everyone[rank])
scaled = everyone[rank].clone(); dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
close(scaled, [t * 0.5 for t in everyone], False, 12000)
empty = torch.empty(0); dist.all_reduce(empty)
zeros = torch.zeros(3000, dtype=torch.float64); dist.all_reduce(zeros); assert not zeros.any()
wide = everyone[rank].double(); dist.all_reduce(wide, op=dist._make_nccl_premul_sum(0.25))
close(wide, [t.double() * 0.25 for t in everyone], False, 12002)
pairs = [torch.complex(t, t.flip(0)).to(torch.complex128) for t in everyone]
mine = pairs[rank].clone(); dist.all_reduce(mine)
close(torch.view_as_real(mine).view(-1), [torch.view_as_real(pair).reshape(-1) for pair in pairs], False, 12001)
say(stats=ina.backend.stats())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("codec", ["block-64", "two-limb", "exact", "lanes-16", "omnireduce", "sketch", "qsgd-4", "natural"])
def test_every_sum_of_floats_keeps_the_codecs_bound(tmp_path, codec):
    for report in succeed(run(tmp_path, 3, SUMS, INA_CODEC=codec, **FAULTS)):
        assert report["stats"]["reasons"] == {} and report["stats"]["codecs"][codec]["elements"] > 50_000
        assert report["stats"]["worker"]["retransmissions"] > 0


def test_a_protocol_without_maxima_sums_through_gloo(tmp_path):
    for report in succeed(run(tmp_path, 2, """
        rank, n = start()
        mine = torch.full((5000,), 0.5 + rank); dist.all_reduce(mine); assert (mine == 2).all()
        say(reasons=ina.backend.stats()["reasons"]); dist.destroy_process_group()
    """, INA_PROTOCOL=str(ROOT / "examples" / "lockstep" / "lockstep.p4"), INA_CODEC="exact")):
        assert report["reasons"] == {"allreduce: its protocol has no maxima": 1}


NARROW = """
rank, n = start()
packets = {}
for dtype in (torch.float32, torch.int8, torch.uint8, torch.int16, torch.bool):
    everyone = [torch.randint(0, 40_000, (1_000_000,), generator=torch.Generator().manual_seed(r)).to(dtype) for r in range(n)]
    dist.all_reduce(torch.ones(1)); before = ina.backend.stats()["worker"]
    mine = everyone[rank].clone(); dist.all_reduce(mine)
    after = ina.backend.stats()["worker"]
    packets[str(dtype)] = after["results"] - before["results"]
    expected = torch.stack([t.to(torch.int64) for t in everyone]).sum(0).to(dtype)
    assert torch.equal(mine, expected) if dtype != torch.float32 else torch.allclose(mine, expected)
say(packets=packets)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("ranks", "least"), [(3, {"int8": 1 / 3, "uint8": 1 / 3, "int16": 2 / 3, "bool": 1 / 16}),
                                              (4, {"int8": 1 / 3, "uint8": 1 / 3, "int16": 2 / 3, "bool": 1 / 10}),
                                              (8, {"int8": 1 / 3, "uint8": 1 / 3, "int16": 2 / 3, "bool": 1 / 8})])
def test_narrow_integers_travel_in_few_packets(tmp_path, ranks, least):
    for report in succeed(run(tmp_path, ranks, NARROW)):
        packets = {name.removeprefix("torch."): count for name, count in report["packets"].items()}
        whole = packets.pop("float32")
        assert set(packets) == set(least)
        assert all(0 <= packets[name] - -(-1_000_000 * share // 2048) <= 1 for name, share in least.items()), packets  # one late
        assert all(count <= (0.6 if name == "int16" else 0.3) * whole for name, count in packets.items()), (packets, whole)


HALVES = """
rank, n = start()
from ina.backend.hooks import Choice, per_bucket
packets, off, group = {}, {}, dist.new_group(pg_options=ina.backend.Options(codec="{codec}"))
before = ina.backend.stats()["worker"]["results"]
dist.all_reduce(torch.ones(1_000_000)); whole = ina.backend.stats()["worker"]["results"] - before
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    everyone = [torch.randn(1_000_000, generator=torch.Generator().manual_seed(r)).to(dtype) for r in range(n)]
    dist.all_reduce(torch.ones(1, dtype=dtype), group=group); before = ina.backend.stats()["worker"]
    mine = everyone[rank].clone(); dist.all_reduce(mine, group=group)
    after = ina.backend.stats()["worker"]
    name = str(dtype).removeprefix("torch.")
    packets[name] = after["results"] - before["results"]
    exact = sum(each.to(torch.float64) for each in everyone)
    off[name] = [((mine - exact) ** 2).sum().item(), ((exact.to(dtype) - exact) ** 2).sum().item()]
say(packets=packets, off=off, whole=whole)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("codec", "share"), [("lanes-16", 0.52), ("mx-e2m3", 0.37), ("mx-e2m1", 0.29)])
def test_a_narrow_codec_has_few_packets_for_16_bit_floats_too(tmp_path, codec, share):
    """A million words are 489 packets; float32's exponents take some more. In the mean square, lanes-16 adds less than rounding
    to bfloat16 itself."""
    for report in succeed(run(tmp_path, 4, HALVES.replace("{codec}", codec))):
        assert all(count <= share * 489 + 1 for count in report["packets"].values()), report["packets"]
        assert all(count <= 0.51 * report["whole"] for count in report["packets"].values()), report
        result, rounded_once = report["off"]["bfloat16"]
        if codec == "lanes-16":
            assert rounded_once < result < 1.05 * rounded_once


@pytest.mark.parametrize("codec", ["block-64", "lanes-16"])
def test_flushed_values_and_words_are_counted(tmp_path, codec):
    for report in succeed(run(tmp_path, 2, """
        rank, n = start()
        mine = torch.ones(4000); mine[1::2] = 1e-20; mine[3::4] = 0
        dist.all_reduce(mine)
        say(codecs=ina.backend.stats()["codecs"]); dist.destroy_process_group()
    """, INA_CODEC=codec)):
        counts = report["codecs"][codec]
        assert counts["elements"] == 4000 and counts["flushed"] == 1000 and counts["sums"] == 1
        assert counts["words"] == {"block-64": 4000 + 2 * 63, "lanes-16": 32 * 64 + 63}[codec]


OCTAVES = """
rank, n = start()
draw, count, wrong = torch.Generator().manual_seed(rank), 20_000, {}
octaves = 2.0 ** torch.randint(-24, 16, (count,), generator=draw)  # all that float16 has
mine = (torch.rand(count, generator=draw) * octaves / 4).to(torch.float16)
everyone = [torch.empty_like(mine) for _ in range(n)]; dist.all_gather(everyone, mine)
exact = torch.stack(everyone).double().sum(0)
for codec in ("block", "exact"):
    total = mine.clone(); dist.all_reduce(total, group=dist.new_group(pg_options=ina.backend.Options(codec=codec)))
    wrong[codec] = (total != exact.to(torch.float16)).double().mean().item()
say(wrong=wrong); dist.destroy_process_group()
"""


def test_float16_sums_over_many_octaves_are_the_nearest_with_the_exact_codec_only(tmp_path):
    for report in succeed(run(tmp_path, 3, OCTAVES)):
        assert report["wrong"]["exact"] == 0 and 0.15 < report["wrong"]["block"] < 0.3, report["wrong"]


OWN = """
rank, n = start()
import numpy as np
from ina import codecs
class Own(codecs.Codec):
    name, rounds = "own", 3
    def reduce(self, values, call):
        first = yield codecs.Round(np.array([len(values) if call.rank else 0], np.int32))
        {body}
    def bound(self, tensors, average=False): return np.zeros(1)
    def traffic(self, elements, workers): return codecs.Traffic(0, 0)
from ina.backend.hooks import Choice
group = dist.group.WORLD
def reduce(tensor): return group.allreduce_coded(tensor, Own(), False)
"""


@pytest.mark.gate
def test_a_codec_of_ones_own_may_need_less_rounds_than_it_can_have(tmp_path):
    body = """
        words = (10 * values).astype(np.int32)
        if values[0]: words = yield codecs.Round(words)
        return words.astype(np.float32)
    """
    for report in succeed(run(tmp_path, 3, OWN.format(body=body.strip()) + """
tensors = [torch.full((5000,), float(i % 2)) for i in range(6)]
works = [reduce(t) if i % 3 else dist.all_reduce(t, async_op=True) for i, t in enumerate(tensors)]
for work in works[::-1] if rank else works: work.wait()
assert [t[7].item() for t in tensors] == [0, 10 * n, 0, n, 0, 10 * n]
say(well=True); dist.destroy_process_group()
""")):
        assert report["well"]


def test_a_codec_computes_while_its_words_are_on_their_way(tmp_path):
    """THC's norm, a word, is on its way while the tensor is rotated."""
    body = """
        done = []
        def compute(): done.append(1); events.append("computed")
        words = yield codecs.Round(np.ones(5000, np.int32), meanwhile=compute)
        return words.astype(np.float32) * len(done)
    """
    for report in succeed(run(tmp_path, 2, OWN.format(body=body.strip()) + """
from ina.backend.job import Job
events = []
def logged(owner, name, event):
    own = getattr(owner, name)
    def call(*args, **options):
        result = own(*args, **options)
        events.append(event(*args))
        return result
    setattr(owner, name, call)
logged(Job, "run", lambda job, tensor, *rest: tensor.numel())
logged(codecs.Thc, "_rotated", lambda *rest: "rotated")
tensors = [torch.ones(5000) for _ in range(5)]
reduce(tensors[0]).wait()
works = [reduce(t) for t in tensors[1:]]
for work in works[::-1] if rank else works: work.wait()
assert all(t.tolist() == [n] * 5000 for t in tensors)
assert [event for event in events if event != 1] == [5000, "computed"] * 5, events
events.clear()
group.allreduce_coded(torch.ones(4096), codecs.Thc(), False).wait()
norm, rotated, levels = events
assert (norm, rotated) == (1, "rotated") and levels > 1, events
say(well=True); dist.destroy_process_group()
""")):
        assert report["well"]


def test_a_codec_that_fails_meanwhile_fails_on_all(tmp_path):
    """In the next round: the words of this one are on their way."""
    body = """
        words = yield codecs.Round(np.ones(5000, np.int32), meanwhile=lambda: 1 // call.rank)
        return (yield codecs.Round(words)).astype(np.float32)
    """
    failed, other = run(tmp_path, 2, OWN.format(body=body.strip()) + """
try: reduce(torch.ones(5000)).wait()
except RuntimeError as error: say(error=str(error))
""")
    assert "codec own: ZeroDivisionError" in failed.report["error"]
    assert "Timed out" not in other.report["error"]


def test_rounds_of_other_sizes_are_the_codecs_fault(tmp_path):
    body = "return (yield codecs.Round(np.zeros(100 + call.rank, np.int32)))[:1].astype(np.float32)"
    for rank in run(tmp_path, 2, OWN.format(body=body) + """
try: reduce(torch.ones(5000)).wait()
except RuntimeError as error: say(error=str(error))
"""):
        error = rank.report["error"]
        assert "a round has other words on each" in error and "all ranks are in allreduce SUM of float32 by own" in error, error
        assert "does not add up" not in error


def test_a_codec_that_fails_on_one_rank_fails_on_all(tmp_path):
    body = "assert call.rank != 1, 'no room'; words = yield codecs.Round(values); return words"
    results = run(tmp_path, 3, OWN.format(body=body) + """
works = []
def attempt(step):
    try: step()
    except RuntimeError as error: say(error=str(error))
attempt(lambda: works.append(reduce(torch.ones(5000))))
attempt(lambda: works.append(dist.all_reduce(torch.ones(9), async_op=True)))  # may hear at once that the group has failed
for work in works: attempt(work.wait)
""")
    assert "codec own: AssertionError: no room" in results[1].report["error"]
    assert not any("Timed out" in result.report["error"] for result in results)


def test_ranks_with_different_codecs_find_out(tmp_path):
    results = run(tmp_path, 2, """
        rank, n = start(backend="gloo")
        group = dist.new_group(backend="ina", pg_options=ina.backend.Options(codec=("exact", "two-limb")[rank]))
        try: dist.all_reduce(torch.ones(5000), group=group)
        except RuntimeError as error: say(error=str(error))
    """)
    assert all("the ranks do not agree" in result.report["error"] for result in results)


def test_the_protocols_own_code_warns_once_of_values_that_it_flushed(tmp_path):
    """It does so after a few sums, for trainings that are short."""
    results = run(tmp_path, 2, """
        import warnings
        rank, n = start()
        with warnings.catch_warnings(record=True) as heard:
            for _ in range(100):
                mine = torch.ones(4000); mine[::100] = 1e-20
                dist.all_reduce(mine)
        texts = [str(each.message) for each in heard if "values became zero" in str(each.message)]
        say(flushed=ina.backend.stats()["worker"]["flushed"], texts=texts); dist.destroy_process_group()
    """)
    for result in results:
        assert result.report["flushed"] == 100 * 40
        (text,) = result.report["texts"]
        assert "of rank" in text and "codec='exact'" in text and int(text.split(": ")[2].split()[0]) < 20 * 40


ADAM = """
rank, n = start()
from torch.nn.parallel import DistributedDataParallel
from ina.backend.hooks import Choice, per_bucket
gloo = dist.new_group(backend="gloo")
def train(group=None, codec="float32"):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.Tanh(), torch.nn.Linear(40, 2))
    for parameter in model[0].parameters(): parameter.register_hook(lambda gradient: 1e-10 * gradient)
    parallel = DistributedDataParallel(model, process_group=group)
    if group is None: parallel.register_comm_hook(lambda bucket: Choice(codec=codec), per_bucket)
    optimizer = torch.optim.Adam(parallel.parameters(), eps=1e-30, lr=0.01)
    data = torch.Generator().manual_seed(5)
    inputs, target = torch.randn(64, 20, generator=data), torch.randn(20, 2, generator=data)
    for step in range(60):
        optimizer.zero_grad()
        ((parallel(inputs[rank::n]) - inputs[rank::n] @ target) ** 2).mean().backward()
        optimizer.step()
    return ((model(inputs) - inputs @ target) ** 2).mean().item()
expected = train(gloo)
say(expected=expected, losses={codec: train(codec=codec) for codec in ("float32", "two-limb", "exact")},
    flushed=ina.backend.stats()["worker"]["flushed"])
dist.destroy_process_group()
"""


def test_adam_with_a_tiny_epsilon_and_layer_trains_as_with_gloo_in_the_exact_codes(tmp_path):
    """Gradients of a layer are 1e-10 of the other's, in one bucket; Adam makes steps of the same size of them."""
    for report in succeed(run(tmp_path, 2, ADAM)):
        losses, expected = report["losses"], report["expected"]
        assert losses["two-limb"] == pytest.approx(expected, rel=1e-3) and losses["exact"] == pytest.approx(expected, rel=1e-3)
        assert losses["float32"] > 1.1 * expected and report["flushed"] > 10_000, "and the default says so"


@pytest.mark.later
def test_an_own_reduction_of_another_type_is_refused_and_the_group_goes_on(tmp_path):
    for report in succeed(run(tmp_path, 2, """
rank, n = start()
try:
    ina.backend.all_reduce_own(torch.ones(1000))
except RuntimeError as error:
    say(error=str(error))
ones = torch.ones(1000)
dist.all_reduce(ones)
say(ones=ones[::999].tolist())
dist.destroy_process_group()
""", timeout=60, INA_PROTOCOL="thc")):
        assert "does not reduce this tensor so" in report["error"] and report["ones"] == [2.0, 2.0]
