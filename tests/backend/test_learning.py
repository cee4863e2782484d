"""Training by codecs with error feedback, and by what a program does itself (p4/thc.p4, p4/fpisa.p4): they learn what float32
learns, from the first step, with the bytes that they state."""

import pytest
from ranks import run, succeed

torch = pytest.importorskip("torch", reason="the back end needs torch")
from ina import codecs  # noqa: E402

WORKERS = 2
COMMON = """
generator = torch.Generator().manual_seed(1)
inputs = torch.randn(1536, 32, generator=generator)
labels = (inputs @ torch.randn(32, 10, generator=generator) + 2 * torch.randn(1536, 10, generator=generator)).argmax(1)
def new_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 24), torch.nn.ReLU(), torch.nn.Linear(24, 10))
def loss_at(model, step, rank, n):
    at = torch.arange(rank + n * step, rank + n * (step + 64), n) % len(inputs)
    return torch.nn.functional.cross_entropy(model(inputs[at]), labels[at])
def loss_of(model):
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model(inputs), labels).item()
"""
RANKS = """
rank, n = start()
from torch.nn.parallel import DistributedDataParallel
from ina import codecs
from ina.backend.hooks import Choice, per_bucket
class Larger(codecs.TopK): name = "larger"  # 1 % of 1,042 values would be a hundred steps late
codecs.register("larger", lambda: Larger(0.1))
def train(codec, steps=100):
    model = DistributedDataParallel(new_model())
    model.register_comm_hook(lambda bucket: Choice(codec=codec), per_bucket)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for step in range(steps):
        optimizer.zero_grad()
        loss_at(model, step, rank, n).backward()
        optimizer.step()
    return loss_of(model.module)
say(losses={codec: train(codec) for codec in ["float32", *WORDS]}, stats=ina.backend.stats())
dist.destroy_process_group()
"""
WORDS = {"sign": 0.067, "sign-vote": 0.067, "larger": 0.154, "powersgd": 0.25}  # words, of 1,042 values' in two ranks
OWN = {"thc-lookup": "thc", "fpisa": "fpisa", "lanes-16-8": "requantised"}
MAKE = {name: lambda name=name: codecs.named(name) for name in (*WORDS, *OWN)} | {"larger": lambda: codecs.TopK(0.1)}


@pytest.mark.build
@pytest.mark.later
def test_ranks_train_by_codecs_with_the_words_that_these_state(tmp_path):
    body = COMMON + RANKS.replace("WORDS", str(list(WORDS)))
    for report in succeed(run(tmp_path, WORKERS, body, timeout=800, INA_VALUES="64")):
        assert report["stats"]["reasons"] == {}
        for name, words in WORDS.items():
            assert report["losses"][name] == pytest.approx(report["losses"]["float32"], rel=0.05), "in the first 100 steps"
            counts = report["stats"]["codecs"][name]
            assert counts["sums"] == 100 and counts["words"] / counts["elements"] == pytest.approx(words, abs=0.001)


@pytest.mark.build
@pytest.mark.later
@pytest.mark.parametrize("codec", OWN)
def test_ranks_train_by_what_a_program_does_itself_and_packets_are_lost(tmp_path, codec):
    body = COMMON + RANKS.replace("WORDS", repr([codec]))
    for report in succeed(run(tmp_path, WORKERS, body, INA_PROTOCOL=OWN[codec], INA_VALUES="64",
                              INA_FAULT="loss=0.005,dup=0.01,seed=5")):
        assert report["losses"][codec] == pytest.approx(report["losses"]["float32"], rel=0.02)
        assert report["stats"]["reasons"] == {} and report["stats"]["codecs"][codec]["sums"] == 100
        assert report["stats"]["worker"]["retransmissions"] > 0


@pytest.mark.build
@pytest.mark.later
@pytest.mark.parametrize(("codec", "protocol", "reason"), [
    ("thc-lookup", "switchml", "its protocol is switchml, codec thc-lookup needs thc"),
    ("thc-lookup", "omnireduce", "its protocol is omnireduce, codec thc-lookup needs thc"),
    ("fpisa", "thc", "its protocol is thc, codec fpisa needs fpisa"),
])
def test_another_program_is_no_wrong_sum(tmp_path, codec, protocol, reason):
    """Other programs may have a reduction of their own, but not the same: averages go through Gloo, and say so."""
    for report in succeed(run(tmp_path, 2, f"""
        rank, n = start()
        from ina import codecs
        mine = torch.full((1000,), float(rank))
        dist.group.WORLD.allreduce_coded(mine, codecs.named("{codec}"), True).wait()
        say(mine=mine[::999].tolist(), reasons=ina.backend.stats()["reasons"])
        dist.destroy_process_group()
    """, INA_PROTOCOL=protocol)):
        assert report["mine"] == [0.5, 0.5]
        assert report["reasons"] == {f"allreduce: {reason}": 1}


def trained(make, forget: bool = False, steps: int = 1000, momentum: float | None = None) -> float:
    """Returns the loss after a training in this process by the codecs that ``make`` makes: in each step new ones, if they are to
    ``forget``. ``momentum``: of the optimizer; with one, the rate is a tenth and the decay is a part of the gradients."""
    here: dict = {"torch": torch}
    exec(COMMON, here)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more only wait for each other
    model = here["new_model"]()
    parameters = list(model.parameters())
    rate, decay, late = (0.2, 0.0, 0.02) if momentum is None else (0.02, 0.02, 0.0)
    optimizer = torch.optim.SGD(parameters, lr=rate, weight_decay=late, momentum=momentum or 0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, steps)
    each = [make() for _ in range(WORKERS)]
    for step in range(steps):
        gradients = []
        for rank in range(WORKERS):
            optimizer.zero_grad()
            here["loss_at"](model, step, rank, WORKERS).backward()
            gradients.append(torch.cat([(p.grad + decay * p.detach()).flatten() for p in parameters]).numpy())
        if forget:
            each = [make() for _ in range(WORKERS)]
        average = torch.from_numpy(codecs.reduced(each, gradients, average=True, step=step)[0])
        for parameter, part in zip(parameters, average.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = part.view(parameter.shape)
        optimizer.step()
        schedule.step()
    torch.set_num_threads(threads)
    return here["loss_of"](model)


@pytest.fixture(scope="module")
def exact() -> float:
    return trained(lambda: codecs.named("exact"))


@pytest.mark.build
@pytest.mark.parametrize("name", [name if name == "sign" else pytest.param(name, marks=pytest.mark.later) for name in MAKE])
def test_it_learns_what_float32_learns(exact, name):
    assert trained(MAKE[name]) == pytest.approx(exact, rel=0.01)


@pytest.mark.build
@pytest.mark.later
def test_momentum_of_a_codec_learns_what_momentum_of_an_optimizer_does():
    """With a tenth of the values in each step, most of a gradient's momentum comes after it is sent, and must not be lost."""
    judge = trained(lambda: codecs.named("exact"), momentum=0.9)
    assert trained(lambda: codecs.Dgc(0.1, masked=False), momentum=0) == pytest.approx(judge, rel=0.01)


@pytest.mark.build
@pytest.mark.later
def test_what_it_remembers_is_what_it_learns_by(exact):
    assert trained(MAKE["sign"], forget=True) > 1.1 * exact
