"""Collectives with p4/receivers.p4 and p4/atp_routes.p4 in real ranks: values go up from those who have them and down to those
who need them, with the same bits."""

import pytest
from ranks import run, succeed

from ina.base import paths

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

COLLECTIVES = """
rank, n = start()
other = dist.new_group(backend="gloo") if os.environ.get("GLOO") else None
generator = torch.Generator().manual_seed(rank)
def values(count, dtype): return (torch.randint(-1000, 1000, (count,), generator=generator) / 8).to(dtype)  # sums are exact
AGAIN = "retransmissions", "pending_replies", "duplicates", "drop_stale"  # a rank that another makes wait asks for its result
def both(name, make, run):  # run(tensors, group) -> the outputs
    tensors = make()
    own, expected = [each.clone() for each in tensors], [each.clone() for each in tensors]
    before = ina.backend.stats()["worker"]
    got = run(own, None)
    now = ina.backend.stats()["worker"]
    traffic = [now[key] - before[key] for key in ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes", *AGAIN)]
    right = run(expected, other)
    same = all(torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)) for a, b in zip(got, right))
    say(**{name: [same, *traffic]})
def outs(count, dtype): return [torch.zeros(count, dtype=dtype) for _ in range(n)]
def reduce(t, group): dist.reduce(t[0], 1, group=group); return t if rank == 1 else []
def broadcast(t, group): dist.broadcast(t[0], 2, group=group); return t
def all_gather(t, group): o = outs(len(t[0]), t[0].dtype); dist.all_gather(o, t[0], group=group); return o
def into(t, group):
    o = torch.zeros(n * len(t[0]), dtype=t[0].dtype); dist.all_gather_into_tensor(o, t[0], group=group); return [o]
def scattered(t, group):
    o = torch.zeros(len(t[0]) // n, dtype=t[0].dtype); dist.reduce_scatter_tensor(o, t[0], group=group); return [o]
def gather(t, group):
    o = outs(len(t[0]), t[0].dtype) if rank == 1 else None; dist.gather(t[0], o, dst=1, group=group); return o or []
def scatter(t, group):
    o = torch.zeros_like(t[0]); dist.scatter(o, t if rank == 2 else None, src=2, group=group); return [o]
def exchange(t, group):
    o = torch.zeros_like(t[0]); dist.all_to_all_single(o, t[0], group=group); return [o]
def uneven(t, group):  # rank i has i + j + 1 parts of 32 for rank j
    sent, o = [32 * (rank + j + 1) for j in range(n)], torch.zeros(sum(32 * (rank + i + 1) for i in range(n)), dtype=t[0].dtype)
    dist.all_to_all_single(o, t[0][: sum(sent)].contiguous(), sent, sent, group=group); return [o]
def lists(t, group):
    sent = list(t[0][: sum(32 * (rank + j + 1) for j in range(n))].split([32 * (rank + j + 1) for j in range(n)]))
    if group is not None: return uneven(t, group)
    o = [torch.zeros_like(each) for each in sent]; dist.all_to_all(o, sent); return [torch.cat(o)]
for dtype in (torch.float32, torch.int32, torch.bfloat16, torch.float64, torch.uint8, torch.int64):
    name = str(dtype).split(".")[1]
    for count in (3, 64 * n * 20, 64 * n * 20 + 8 * n):
        for each in (broadcast, all_gather, into, gather):
            both(f"{each.__name__} {name} {count}", lambda: [values(count, dtype)], each)
        for each in (exchange, uneven, lists) if count > 3 else (exchange,):
            both(f"{each.__name__} {name} {count}", lambda: [values(count, dtype)], each)
        both(f"scatter {name} {count}", lambda: [values(count, dtype) for _ in range(n)], scatter)
        if dtype in (torch.float32, torch.int32):
            for each in (reduce, scattered):
                both(f"{each.__name__} {name} {count}", lambda: [values(count, dtype)], each)
uneven = [64 * 7, 0, 65]
own, parts = torch.zeros(uneven[rank]), [torch.full((length,), float(rank + i)) for i, length in enumerate(uneven)]
dist.reduce_scatter(own, parts)
say(uneven=bool((own == sum(range(n)) + n * rank).all()))
before = ina.backend.stats()["worker"]
dist.barrier()
now = ina.backend.stats()["worker"]
say(barrier=[now[key] - before[key] for key in ("tx_bytes", "retransmissions")], reasons=ina.backend.stats()["reasons"])
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("program", "head"), [
    pytest.param({"INA_PROTOCOL": "receivers"}, 72, marks=pytest.mark.gate, id="v1model"),
    pytest.param({"INA_PROTOCOL": "receivers", "INA_PROGRAM": f"{paths.p4_dir()}/tofino/receivers.p4"}, 72, id="tna"),
    pytest.param({"INA_PROTOCOL": "atp_routes"}, 78, marks=pytest.mark.gate, id="atp")])
def test_all_collectives_have_the_bits_of_gloo_and_move_no_zeros(tmp_path, program, head):
    """``head``: bytes of a packet without values."""
    count, options = 64 * 3 * 20, {"INA_VALUES": "64", "GLOO": "1", **program}
    for rank, report in enumerate(succeed(run(tmp_path, 3, COLLECTIVES, **options))):
        facts = {name: fact for name, fact in report.items() if isinstance(fact, list) and " " in name}
        assert len(facts) > 120 and [name for name, (same, *_) in facts.items() if not same] == []
        barrier, again = report["barrier"]  # one packet; and once more for each time that a late rank has it sent again
        assert report["uneven"] and barrier == head * (1 + again) and report["reasons"] == {}
        sent = {"broadcast": count if rank == 2 else 0, "into": count, "gather": count * (rank != 1),
                "reduce": count * (rank != 1), "scattered": count - count // 3,
                "scatter": 2 * count if rank == 2 else 0, "exchange": count - count // 3}
        received = {"broadcast": 0 if rank == 2 else count, "into": 2 * count, "gather": 2 * count * (rank == 1),
                    "reduce": count * (rank == 1), "scattered": count // 3, "scatter": 0 if rank == 2 else count,
                    "exchange": count - count // 3}
        for name in sent:
            _, tx_packets, tx_bytes, rx_packets, rx_bytes, *again = facts[f"{name} int32 {count}"]
            assert any(again) or (tx_bytes - head * tx_packets, rx_bytes - head * rx_packets) in [
                (4 * sent[name] - 8 * plain, 4 * received[name] - 8 * plain) for plain in (0, 1)], (rank, name)


def test_without_receivers_pieces_go_through_gloo_and_the_reason_is_told(tmp_path):
    for report in succeed(run(tmp_path, 2, """
        rank, n = start()
        dist.gather(torch.ones(500), [torch.zeros(500)] * 2 if rank == 0 else None, dst=0)
        say(reasons=ina.backend.stats()["reasons"])
        dist.destroy_process_group()
    """)):
        why = "its sums are from all ranks and to all: INA_PROTOCOL=receivers and atp_routes have others"
        assert report["reasons"] == {f"gather: {why}": 1}


@pytest.mark.parametrize("protocol", ["switchml", "receivers"])
def test_a_root_that_no_rank_has_is_an_error(tmp_path, protocol):
    for report in succeed(run(tmp_path, 2, """
        rank, n = start()
        def refused(call):
            try:
                call()
            except (RuntimeError, ValueError) as error:
                return "root" in str(error)
            return False
        world = dist.group.WORLD
        right = [refused(lambda: world.broadcast(torch.ones(size), root=root).wait()) for size in (3, 1000) for root in (2, -2)]
        right += [refused(lambda: world.reduce(torch.ones(size), root=root).wait()) for size in (3, 1000) for root in (2, -2)]
        say(right=right)
        dist.destroy_process_group()
    """, INA_PROTOCOL=protocol)):
        assert report["right"] == [True] * 8
