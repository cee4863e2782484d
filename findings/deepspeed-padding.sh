#!/bin/sh
# DeepSpeed 0.19.8 with torch 2.13.0, ZeRO stage 3: what the ranks reduce and scatter is padded wherever their number does not divide a
# parameter's size, and one would guess with zeros. But the padding is memory as it is found (torch.empty), so values that nobody
# computed go through the collective. Each rank cuts off what comes of them, so a sum of floats, element by element, is right. Whatever
# gives neighbouring elements something in common is not: a shared exponent or scale, the largest of a block, a norm, an error that is
# fed back. Elements of a gradient then depend on memory that was freed before.
#
# Here torch fills memory as it is found with NaN (torch.utils.deterministic.fill_uninitialized_memory), and one step of a layer of 3 times
# 65 weights is trained on two ranks over Gloo:
#
#   of the 196 values that a rank puts into the reduce-scatter of the weights      1 is NaN
#   of its gradients, losses and parameters afterwards                             none is
#
# The remedy on DeepSpeed's side is "zero_optimization": {"reduce_scatter": false}, for parameters that fit into a bucket.
#
# Takes the packages from the registry, in a folder that is removed; needs Python 3.11. All traffic stays on this machine. Ends with
# status 1 if a result is another than above.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q torch==2.13.0 numpy setuptools
"$folder/venv/bin/pip" install -q --no-deps deepspeed==0.19.8 einops==0.8.2 hjson==3.1.0 msgpack==1.2.4 packaging psutil==7.2.2 \
    py-cpuinfo==9.0.0 pydantic==2.14.4 pydantic_core==2.50.5 annotated-types==0.8.0 typing-inspection==0.4.5 tqdm==4.70.1
cat > "$folder/padding.py" <<'PYTHON'
import torch
import torch.distributed as dist

seen = []
real = dist.reduce_scatter_tensor


def recorded(output, input, *rest, **options):
    seen.append((input.numel(), int(input.isnan().sum())))
    return real(output, input, *rest, **options)


dist.reduce_scatter_tensor = recorded
import deepspeed  # which takes the function from torch

torch.use_deterministic_algorithms(True)  # fills memory as it is found with NaN, too
torch.manual_seed(0)
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled, for inference alone
deepspeed.init_distributed(dist_backend="gloo")
model = torch.nn.Linear(65, 3, bias=False)
config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}, "zero_allow_untested_optimizer": True}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), config=config)
loss = engine(torch.ones(4, 65)).square().mean()
engine.backward(loss)
engine.step()
with deepspeed.zero.GatheredParameters(list(model.parameters())):
    finite = all(bool(each.isfinite().all()) for each in model.parameters())
if dist.get_rank() == 0:
    print(*(f"{size} values, of which NaN: {count}" for size, count in seen), sep="\n")
    print("loss and parameters are finite:", finite and bool(loss.isfinite()))
dist.destroy_process_group()
PYTHON
DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 "$folder/venv/bin/python" -m torch.distributed.run --standalone --nproc-per-node 2 \
    "$folder/padding.py" > "$folder/out" 2> "$folder/errors" || { cat "$folder/errors"; exit 1; }
grep -E "^(196 values|loss and)" "$folder/out"
grep -qx "196 values, of which NaN: 1" "$folder/out"
grep -qx "loss and parameters are finite: True" "$folder/out"
echo "as written above"
