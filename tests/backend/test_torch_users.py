"""Libraries over torch.distributed, unmodified, in two ranks that torchrun starts: they compute the same over Gloo and over
the switch. They lie in folders of their own (INA_TORCH_USERS, INA_DEEPSPEED), since they are many and only tests want them."""

from __future__ import annotations

import json
import os
import sys
import textwrap

import child
import pytest
from capabilities import need
from ranks import ROOT

pytestmark = [pytest.mark.build, pytest.mark.later]
pytest.importorskip("torch", reason="the back end needs torch")

PRELUDE = """
import json, os, sys, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
backend, folder = sys.argv[1:3]
torch.set_num_threads(1)
x = torch.randn(128, 8, generator=torch.Generator().manual_seed(1)); y = (x.sum(1) > 0).long()
def done(**facts):
    import ina.backend
    stats = ina.backend.stats()
    facts |= {"used": dist.get_backend(), "reasons": stats["reasons"], "calls": stats["calls"]}
    if dist.get_rank() == 0: print(json.dumps(facts), flush=True)
    if dist.is_initialized(): dist.destroy_process_group()
"""
LIGHTNING = """
import lightning
from lightning.pytorch.strategies import DDPStrategy
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__(); torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    def training_step(self, batch, _):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True, on_epoch=True)
        return loss
    def validation_step(self, batch, _):
        self.log("right", (self.net(batch[0]).argmax(1) == batch[1]).float().mean(), sync_dist=True)
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend=backend),
                            logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder)
model = Model()
trainer.fit(model, *(DataLoader(TensorDataset(x, y), 16) for _ in range(2)))
done(facts={name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})
"""
TRANSFORMERS = """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
dist.init_process_group(backend)  # the line: it takes the group that is there
torch.manual_seed(0)
model = BertForSequenceClassification(BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, hidden_dropout_prob=0,
    attention_probs_dropout_prob=0))
words = torch.randint(0, 50, (64, 8), generator=torch.Generator().manual_seed(1))
data = [{"input_ids": row, "labels": row.sum() % 2} for row in words]
arguments = TrainingArguments(folder, per_device_train_batch_size=8, num_train_epochs=2, report_to=[], use_cpu=True, seed=0,
                              save_strategy="no", disable_tqdm=True, logging_steps=100)
trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data)
trainer.train()
done(facts=round(trainer.evaluate()["eval_loss"], 4))
"""
ACCELERATE = """
from accelerate import Accelerator
dist.init_process_group(backend)  # the line: it takes the group that is there
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(8, 2)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), DataLoader(TensorDataset(x, y), 8))
for inputs, labels in data:
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    accelerator.backward(loss); optimizer.step(); optimizer.zero_grad()
losses = [round(value, 4) for value in accelerator.gather(loss.detach()).tolist()]
ranks = accelerator.gather_for_metrics([accelerator.process_index], use_gather_object=True)
accelerator.wait_for_everyone()
done(facts=[losses, ranks])
"""
DETAIL = """
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group(backend)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 2))
for _ in range(3): model(x + dist.get_rank()).sum().backward()
pair = dist.new_group([0, 1])
tensor = torch.ones(5); dist.all_reduce(tensor, group=pair); dist.broadcast(tensor, 1, group=pair); dist.barrier()
dist.all_reduce(tensor, async_op=True).wait()
found = [None, None]; dist.all_gather_object(found, dist.get_rank())
done(facts=[tensor.tolist(), found, [round(v, 2) for v in model.module.weight.grad.flatten().tolist()]])
"""


# DeepSpeed pads what it scatters with memory as it finds it, so the script fills that with what may be there.
DEEPSPEED = """
import deepspeed
real_empty = torch.empty
def dirty_empty(*sizes, **options):
    tensor = real_empty(*sizes, **options)
    return tensor.detach().fill_(1e30).requires_grad_(tensor.requires_grad) if tensor.is_floating_point() else tensor
torch.empty = dirty_empty
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled for minutes; only inference uses it
deepspeed.init_distributed(dist_backend=backend)  # the line
rank, ranks = dist.get_rank(), dist.get_world_size()
x, y = x.repeat(1, 8), y + 1
def losses(model, optimizer, zero, after=lambda loss: loss):
    config = {"train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0, "zero_optimization": zero,
              "zero_allow_untested_optimizer": True}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    found = []
    for step in range(4):
        at = (step * ranks + rank) * 8
        loss = torch.nn.functional.cross_entropy(engine(x[at:at + 8]), y[at:at + 8])
        engine.backward(loss); engine.step(); found.append(loss.item())
    for parameter in model.parameters():
        with deepspeed.zero.GatheredParameters([parameter], enabled=zero["stage"] == 3):
            found.append(parameter.detach().double().sum().item())
    return found
def dense(**zero):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 65), torch.nn.ReLU(), torch.nn.Linear(65, 3))  # sizes that two do not divide
    return losses(model, torch.optim.AdamW(model.parameters(), 0.01), zero)
"""
DEEPSPEED_ZERO = DEEPSPEED + """
done(facts=[dense(stage=stage) for stage in range(4)])
"""
DEEPSPEED_ALL_REDUCED = DEEPSPEED + """
done(facts=dense(stage=3, reduce_scatter=False))
"""
DEEPSPEED_EXPERTS = DEEPSPEED + """
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as split
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 32), torch.nn.Linear(32, 3)
        self.experts = MoE(32, torch.nn.Linear(32, 32), num_experts=2 * ranks, ep_size=ranks, k=1, use_rts=False)
    def forward(self, x):
        hidden = self.first(x)
        return self.last(hidden + self.experts(hidden)[0])
torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(split({"params": list(model.parameters()), "name": "parameters"}), 0.1)
done(facts=losses(model, optimizer, {"stage": 0}))
"""
DEEPSPEED_PIPELINE = DEEPSPEED + """
from deepspeed.pipe import PipelineModule
torch.manual_seed(0)
layers = [torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16), torch.nn.Linear(16, 3)]
model = PipelineModule(layers, num_stages=2, loss_fn=torch.nn.functional.cross_entropy, partition_method="uniform")
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), config={
    "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2})
batches = iter([(x[at:at + 8], y[at:at + 8]) for at in range(0, 64, 8)])
done(facts=[engine.train_batch(batches).item() for _ in range(3)])
"""


def run_script(script: str, backend: str, folder, libraries: str = "INA_TORCH_USERS", **env: str) -> dict:
    """Runs a script on two ranks, with the libraries in the folder that this variable names; returns the JSON that rank 0
    prints."""
    folder.mkdir()
    path = folder / "user.py"
    path.write_text(PRELUDE + textwrap.dedent(script))
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get(libraries))))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", path, backend, str(folder)]
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **env}
    done = child.run(command, 400, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"facts"')))


@pytest.mark.parametrize("library", ["lightning", "transformers", pytest.param("accelerate", marks=pytest.mark.gate)])
def test_a_library_computes_over_the_switch_what_it_computes_over_gloo(tmp_path, library):
    need("torch-users")
    script = {"lightning": LIGHTNING, "transformers": TRANSFORMERS, "accelerate": ACCELERATE}[library]
    ours, theirs = (run_script(script, backend, tmp_path / backend) for backend in ("ina", "gloo"))
    assert ours["used"] == "ina" and not ours["reasons"]
    assert ours["facts"] == theirs["facts"]


def test_debugging_in_detail_changes_nothing(tmp_path):
    """torch wraps its own back ends then, to compare what ranks pass; ours does that itself."""
    plain, detailed = (run_script(DETAIL, "ina", tmp_path / level, TORCH_DISTRIBUTED_DEBUG=level) for level in ("OFF", "DETAIL"))
    assert plain == detailed and plain["used"] == "ina" and plain["facts"][:2] == [[4.0] * 5, [0, 1]]


def run_deepspeed(script: str, backend: str, folder, **env: str) -> dict:
    return run_script(script, backend, folder, "INA_DEEPSPEED", DS_ACCELERATOR="cpu", **env)


def test_deepspeed_computes_in_every_stage_of_zero_what_it_computes_over_gloo(tmp_path):
    """Two numbers have one sum, so with the codec "exact" all bits are Gloo's."""
    need("deepspeed")
    ours = run_deepspeed(DEEPSPEED_ZERO, "ina", tmp_path / "ina", INA_CODEC="exact")
    theirs = run_deepspeed(DEEPSPEED_ZERO, "gloo", tmp_path / "gloo")
    assert ours["used"] == "ina" and not ours["reasons"]
    assert ours["calls"].keys() == {"_allgather_base", "_reduce_scatter_base", "allreduce", "barrier", "broadcast"}
    assert ours["facts"] == theirs["facts"]


def test_deepspeeds_stage_3_without_reduce_scatter_needs_no_codec(tmp_path):
    need("deepspeed")
    ours, theirs = (run_deepspeed(DEEPSPEED_ALL_REDUCED, backend, tmp_path / backend) for backend in ("ina", "gloo"))
    assert ours["used"] == "ina" and "_reduce_scatter_base" not in ours["calls"]
    assert ours["facts"] == pytest.approx(theirs["facts"], abs=1e-3)


def test_deepspeeds_experts_exchange_tokens_through_the_switch(tmp_path):
    need("deepspeed")
    ours = run_deepspeed(DEEPSPEED_EXPERTS, "ina", tmp_path / "ina", INA_PROTOCOL="receivers", INA_CODEC="exact")
    theirs = run_deepspeed(DEEPSPEED_EXPERTS, "gloo", tmp_path / "gloo")
    assert ours["calls"]["alltoall_base"]["gloo"] == 0 < ours["calls"]["alltoall_base"]["switch"]
    assert {reason.split(": ")[1] for reason in ours["reasons"]} == {"one rank"}
    assert ours["facts"] == theirs["facts"]


def test_deepspeeds_pipelines_send_through_gloo_and_sum_through_the_switch(tmp_path):
    need("deepspeed")
    ours, theirs = (run_deepspeed(DEEPSPEED_PIPELINE, backend, tmp_path / backend) for backend in ("ina", "gloo"))
    reasons = {reason.split(":")[0] for reason in ours["reasons"] if not reason.endswith(": one rank")}
    assert ours["used"] == "ina" and reasons == {"send", "recv"}
    assert ours["facts"] == pytest.approx(theirs["facts"], abs=1e-5)
