"""Bytes of values on each rank's link in steps of real trainings with p4/receivers.p4, counted in captures of its packets: as
many as docs/guide/torch.md, "Sharded training", says, and not one more."""

import struct
from pathlib import Path

import pytest
from ranks import ROOT, run, succeed

from ina import codecs
from ina.aggregation.wire import layout

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

LAYERS, WIDTH, VALUES, STEPS = 8, 64, 64, 3
TENSOR = 4 * LAYERS * WIDTH * WIDTH  # S: bytes of all parameters, and of their gradients
PACKET = 4 * VALUES

TRAININGS = f"""
os.environ["INA_CAPTURE"] = os.path.join(os.environ["CAPTURES"], os.environ["RANK"])
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
rank, n = start()
def model():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear({WIDTH}, {WIDTH}, bias=False), nn.Tanh()) for _ in range({LAYERS})))
def batch(step, ranks, rank):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(16, {WIDTH}, generator=generator).chunk(ranks)[rank]
marks = {{}}
def train(name, net, optimizer, ranks=n, rank=rank):
    for step in range({STEPS}):
        began = time.monotonic()
        loss = net(batch(step, ranks, rank)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        marks.setdefault(name, []).append((began, time.monotonic()))
    return net
def sharded(mesh, **options):
    net = model()
    for layer in net: fully_shard(layer, mesh=mesh, **options)
    return fully_shard(net, mesh=mesh, **options)
def sgd(net): return torch.optim.SGD(net.parameters(), lr=1.0)
def trained(net):  # whole parameters, one behind the other
    return torch.cat([(p.full_tensor() if hasattr(p, "full_tensor") else p).detach().flatten() for p in net.parameters()])
nets = {{}}
def fsdp(name, mesh, **options):
    net = sharded(mesh, **options)
    nets[name] = trained(train(name, net, sgd(net)))
mesh = init_device_mesh("cpu", (n,))
fsdp("FSDP2", mesh)
fsdp("ZeRO-2", mesh, reshard_after_forward=False)
if n > 2: fsdp("HSDP", init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("replicate", "shard")))
net = DistributedDataParallel(model())
nets["ZeRO-1"] = trained(train("ZeRO-1", net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=1.0)))
net = DistributedDataParallel(model())
nets["DDP"] = trained(train("DDP", net, sgd(net)))
parameters = torch.full(({TENSOR} // 4,), float(rank))
for _ in range({STEPS}):
    began = time.monotonic()
    dist.broadcast(parameters, 1)
    marks.setdefault("broadcast", []).append((began, time.monotonic()))
net, seen = model(), dict(marks)
alone = trained(train("alone", net, sgd(net), 1, 0))
errors = {{name: float((each - alone).norm() / (alone - trained(model())).norm()) for name, each in nets.items()}}
say(marks=seen, errors=errors, right=parameters.unique().tolist() == [1.0], reasons=ina.backend.stats()["reasons"])
dist.destroy_process_group()
"""


def values(path: Path) -> list[tuple[float, bool, int]]:
    """Times, directions (True: up) and bytes of the packets with values of a capture; of those that come again only the first."""
    data, at, packets, seen = path.read_bytes(), 24, [], set()
    constants, sizes = layout.load().constants, layout.size_codes()
    while at < len(data):
        seconds, nanoseconds, captured, _ = struct.unpack_from("=4I", data, at)
        frame, at = data[at + 16 : at + 16 + captured], at + 16 + captured
        up = struct.unpack_from("!H", frame, 36)[0] & constants["SWITCHML_MASK"] == constants["SWITCHML_PORT"]
        kind, size, number = frame[42] >> 4, frame[42] & 7, struct.unpack_from("!I", frame, 44)[0]
        if kind == constants["SWITCHML_PENDING"] or (number, up) in seen:
            continue
        seen.add((number, up))
        if size != constants["SIZE_NONE"]:
            packets.append((seconds + 1e-9 * nanoseconds, up, 4 * sizes[size]))
    return packets


def captured(tmp_path: Path, n: int, script: str) -> tuple[list[dict], list[Path]]:
    """Runs ranks; returns their reports, and each one's folder of captures."""
    folders = [tmp_path / "captures" / str(rank) for rank in range(n)]
    for folder in folders:
        folder.mkdir(parents=True)
    reports = run(tmp_path, n, script, INA_PROTOCOL="receivers", INA_VALUES=str(VALUES), CAPTURES=str(tmp_path / "captures"))
    return succeed(reports), folders


def between(packets: list[tuple[float, bool, int]], begin: float, end: float) -> tuple[int, int]:
    """Bytes up and down between two times."""
    inside = [(way, size) for time, way, size in packets if begin < time < end]
    return sum(size for up, size in inside if up), sum(size for up, size in inside if not up)


def expected(name: str, n: int, rank: int, step: int) -> tuple[int, int]:
    """Bytes up and down in a step. A sum for all has its fingerprint in a packet of its own."""
    piece = TENSOR // n
    if name == "FSDP2":  # a gather in each pass, and a reduce-scatter
        return TENSOR + piece, 2 * TENSOR - piece
    if name == "ZeRO-2":  # one gather
        return TENSOR, TENSOR
    if name == "HSDP":  # FSDP2 among half of the ranks, and sums of shards between the halves
        shard = 2 * piece
        sums = shard + LAYERS * PACKET
        return TENSOR + shard + sums, 2 * TENSOR - shard + sums
    if name == "broadcast":
        return (TENSOR, 0) if rank == 1 else (0, TENSOR)
    sums = TENSOR + PACKET + 2 * PACKET * (step == 1)  # DDP has one bucket, and tells all of it in two packets
    return (sums + piece, sums + TENSOR - piece) if name == "ZeRO-1" else (sums, sums)


@pytest.mark.parametrize("n", [pytest.param(2, marks=pytest.mark.gate), 4, 8])
def test_steps_of_trainings_carry_the_bytes_of_their_collectives(tmp_path, n):
    reports, captures = captured(tmp_path, n, TRAININGS)
    for rank, (report, folder) in enumerate(zip(reports, captures, strict=True)):
        assert report["right"] and max(report["errors"].values()) < 1e-4 and report["reasons"] == {}, report
        assert len(report["marks"]) == (5 if n == 2 else 6)
        packets = [packet for path in folder.iterdir() for packet in values(path)]
        for name, steps in report["marks"].items():
            for step, (begin, end) in enumerate(steps):
                assert between(packets, begin, end) == expected(name, n, rank, step), (rank, name, step)


ZEROPP = f"""
os.environ["INA_CAPTURE"] = os.path.join(os.environ["CAPTURES"], os.environ["RANK"])
sys.path.insert(0, {str(ROOT / "examples" / "parallel")!r})
import zeropp
rank, n = start()
plain, marks = zeropp.Zero3.collective, []
def noted(self, phase, *args, **kwargs):
    began = time.monotonic()
    plain(self, phase, *args, **kwargs)
    marks.append((type(self).__name__, phase, self.elements, began, time.monotonic()))
zeropp.Zero3.collective, zeropp.STEPS = noted, 2
local, _ = dist.new_subgroups(n // 2)
losses = [torch.stack(zeropp.train(kind, local)[0]) for kind in (zeropp.Zero3, zeropp.ZeroPP)]
say(marks=marks, off=float((losses[1] / losses[0] - 1).abs().max()))
dist.destroy_process_group()
"""


def zeropp_bytes(kind: str, phase: str, elements: int, n: int) -> tuple[int, int]:
    """Bytes up and down of a collective of a layer, in packets that are full but for the last one of each piece."""
    piece, quantised, members = -(-elements // n), kind == "ZeroPP", n
    words = piece
    if quantised and phase == "backward":  # within a server
        members = n // 2
        words = -(-n * piece // members)
    elif quantised:
        codec = codecs.named("qsgd-8" if phase == "forward" else "qsgd-4")
        words = -(-codecs.message_bytes(codec, piece) // 4)
    one = -(-words // VALUES) * PACKET
    others = (members - 1) * one
    if phase != "gradients":
        return one, others
    return (others, others) if quantised else (others, one)


def test_zeropp_carries_its_messages_and_nothing_between_servers_in_the_backward_pass(tmp_path):
    n = 4
    for report, folder in zip(*captured(tmp_path, n, ZEROPP), strict=True):
        world, others = ([packet for path in folder.iterdir() if path.name.startswith("0-") == own for packet in values(path)]
                         for own in (True, False))
        assert report["off"] < 2e-3 and len(report["marks"]) == 2 * 2 * 3 * 3  # kinds, steps, phases, layers
        for kind, phase, elements, begin, end in report["marks"]:
            right = zeropp_bytes(kind, phase, elements, n)
            local = kind == "ZeroPP" and phase == "backward"
            assert between(world, begin, end) == ((0, 0) if local else right), (kind, phase, elements)
            assert between(others, begin, end) == (right if local else (0, 0)), (kind, phase, elements)
