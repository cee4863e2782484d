"""Libraries over torch.distributed, unmodified, in two ranks that torchrun starts: they compute the same over Gloo and over
the switch. They lie in a folder of their own (INA_TORCH_USERS), since they are many and only tests want them."""

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
    if dist.get_rank() == 0: print(json.dumps({**facts, "used": dist.get_backend(), "reasons": stats["reasons"]}), flush=True)
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


def run_script(script: str, backend: str, folder, **env: str) -> dict:
    """Runs a script on two ranks; returns the JSON that rank 0 prints."""
    folder.mkdir()
    path = folder / "user.py"
    path.write_text(PRELUDE + textwrap.dedent(script))
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("INA_TORCH_USERS"))))
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
