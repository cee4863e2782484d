"""Pipeline stages that send gradients in a codec: they learn what torch's own stages learn, with the bytes that they state."""

import pytest
from ranks import run, succeed

torch = pytest.importorskip("torch", reason="the back end needs torch")
from torch.distributed.pipelining import PipelineStage  # noqa: E402

from ina import codecs  # noqa: E402
from ina.backend.pipelining import Stage, low_rank  # noqa: E402

pytestmark = pytest.mark.build
MICRO, WIDTH = 64, 64  # samples of a micro-batch, and values of each between two stages
BODY = """
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble
from ina import codecs
from ina.backend.pipelining import Stage, low_rank
rank, n = start()
WIDTH, PARTS = 64, 4
def layers():
    torch.manual_seed(0)
    wide = [layer for _ in range(2) for layer in
            (nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH), nn.GELU())]
    return [*wide, nn.Linear(WIDTH, 8)]
def batch(step):
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(256, WIDTH, generator=generator)
    return inputs, torch.tanh(2 * inputs[:, :8] + inputs[:, 8:16] * inputs[:, 16:24]).argmax(1)
def train(kind, steps, schedule=Schedule1F1B, each=1, dtype=torch.float32, **options):
    whole, count = layers(), n * each
    cuts = [round(i * len(whole) / count) for i in range(count + 1)]
    stages = [kind(nn.Sequential(*whole[cuts[i]:cuts[i + 1]]).to(dtype), i, count, torch.device("cpu"), **options)
              for i in range(rank, count, n)]
    runner = schedule(stages if each > 1 else stages[0], PARTS, loss_fn=nn.functional.cross_entropy)
    optimizer = torch.optim.SGD([p for stage in stages for p in stage.submod.parameters()], lr=0.2)
    last, late = rank == n - 1, []
    for step in range(steps):
        inputs, labels = batch(step)
        losses = []
        optimizer.zero_grad()
        runner.step(*([inputs.to(dtype)] if rank == 0 else []), **({"target": labels, "losses": losses} if last else {}))
        optimizer.step()
        if last:
            late.append(torch.stack(losses).float().mean().item())
    mean = sum(late[-100:]) / len(late[-100:]) if last else 0
    return mean, sum(getattr(s, "sent", 0) for s in stages), sum(getattr(s, "dense", 0) for s in stages)
"""


@pytest.mark.later
def test_gradients_of_low_rank_learn_what_whole_ones_do(tmp_path):
    """Within 1 % of the loss after 1,000 steps, from the first on, with a quarter of the bytes. The epilogue is the last of four
    micro-batches of the last of two stages."""
    _, last = succeed(run(tmp_path, 2, BODY + """
say(dense=train(PipelineStage, 1000),
    low=train(Stage, 1000, codec=lambda shape: codecs.PowerSgd(8, shape[-1])),
    epilogue=train(Stage, 1000, codec=lambda shape: codecs.PowerSgd(8, shape[-1]), epilogue_only=True))
dist.destroy_process_group()
""", timeout=800))
    whole, message = 4 * MICRO * WIDTH, 4 + 4 * 8 * (MICRO + WIDTH)  # P and Q of rank 8
    for name, in_codec in (("low", 4), ("epilogue", 1)):
        loss, sent, dense = last[name]
        assert loss == pytest.approx(last["dense"][0], rel=0.01)
        assert dense == 1000 * 4 * whole and sent == 1000 * (in_codec * message + (4 - in_codec) * whole)


@pytest.mark.later
def test_schedules_types_and_codecs(tmp_path):
    """Interleaved stages, zero bubbles, GPipe, three ranks, bfloat16; a codec of 16 bits changes next to nothing."""
    reports = succeed(run(tmp_path, 3, BODY + """
kinds = {"1f1b": {}, "gpipe": dict(schedule=ScheduleGPipe), "interleaved": dict(schedule=ScheduleInterleaved1F1B, each=2),
         "bubbles": dict(schedule=ScheduleInterleavedZeroBubble, each=2)}
say(dense=train(PipelineStage, 20),
    half=train(PipelineStage, 20, dtype=torch.bfloat16),
    bfloat16=train(Stage, 20, codec="lanes-16", dtype=torch.bfloat16),
    **{kind: train(Stage, 20, codec="lanes-16", **options) for kind, options in kinds.items()},
    default=train(Stage, 20), thc=train(Stage, 20, codec="thc"))
dist.destroy_process_group()
"""))
    dense = reports[-1]["dense"][0]
    for kind in ("1f1b", "gpipe", "interleaved", "bubbles"):
        assert reports[-1][kind][0] == pytest.approx(dense, rel=1e-5)
    for kind in ("default", "thc"):
        assert reports[-1][kind][0] == pytest.approx(dense, rel=1e-2)
    assert reports[-1]["bfloat16"][0] == pytest.approx(reports[-1]["half"][0], rel=1e-2)
    assert reports[0]["1f1b"][1:] == [0, 0], "the first stage sends none"
    for report in reports[1:]:
        assert 0.5 < report["1f1b"][1] / report["1f1b"][2] < 0.53 and report["thc"][1] < 0.2 * report["thc"][2]
    assert all(report["interleaved"][2] > 0 for report in reports)


@pytest.mark.later
@pytest.mark.parametrize(("first", "second", "text"), [
    ("codec='thc'", "codec='lanes-16'", "stage 1: gradients in codec lanes-16, but stage 0 has codec thc"),
    ("codec=shapes", "codec=shapes", "codec powersgd (4, 0, True): expected the same codec on all stages, for each shape"),
    ("epilogue_only=True", "", "but stage 0 has codec powersgd (16, 64, True), the epilogue only")])
def test_stages_with_different_codecs_are_told_before_the_first_gradient(tmp_path, first, second, text):
    ranks = run(tmp_path, 2, BODY + f"""
PARTS = 8
def shapes(shape):  # the same but for these gradients
    return codecs.PowerSgd(4 + rank * (shape[0] == 256 // PARTS))
if rank == 0:
    train(Stage, 2, {first})
else:
    try:
        train(Stage, 2, {second})
    except ValueError as error:
        say(error=str(error))
        os._exit(0)
""", timeout=100)
    assert text in ranks[1].report["error"]


def test_a_codec_without_messages_is_refused_when_a_stage_is_made():
    with pytest.raises(ValueError, match="codec exact: how many bytes travel depends on the values"):
        _stage("exact")
    with pytest.raises(ValueError, match="codec intsgd: 16388 bytes in step 0"):
        _stage("intsgd")
    with pytest.raises(ValueError, match="codec 'nothing': expected one of"):
        _stage("nothing")
    with pytest.raises(TypeError, match="expected an ina.codecs.Codec"):
        _stage(lambda shape: "thc")


def _stage(codec) -> PipelineStage:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        return Stage(torch.nn.Linear(2, 2), 0, 1, torch.device("cpu"), codec=codec)
    finally:
        torch.distributed.destroy_process_group()


def test_the_default_has_the_columns_of_the_last_dimension():
    assert low_rank(torch.Size([2, 30, 64])).title == codecs.PowerSgd(16, 64).title
    assert low_rank(torch.Size([30])).title == codecs.PowerSgd(16).title
