"""A training by a protocol that `ina protocol new NAME --operation majority` has written: a rank, as a script."""

# signSGD with majority vote: each rank sends the signs of its gradient. Every rank also computes all ranks' gradients, and so
# knows what the switch must answer.
STEPS = 30
RANK = f"""
import json, torch, torch.distributed as dist
import ina.backend

dist.init_process_group("ina")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model, teacher = torch.nn.Linear(64, 10), torch.nn.Linear(64, 10)

def gradient(of, step):
    draws = torch.Generator().manual_seed(size * step + of)
    x = torch.randn(64, 64, generator=draws)
    loss = torch.nn.functional.cross_entropy(model(x), teacher(x).argmax(1))
    return loss.item(), torch.cat([each.flatten() for each in torch.autograd.grad(loss, [*model.parameters()])])

losses = []
for step in range({STEPS}):
    loss, own = gradient(rank, step)
    votes = torch.sign(own).to(torch.int32)
    ina.backend.all_reduce_own(votes)
    right = torch.sign(sum(torch.sign(gradient(of, step)[1]) for of in range(size))).to(torch.int32)
    assert torch.equal(votes, right), step
    with torch.no_grad():
        for part, each in zip(votes.split([p.numel() for p in model.parameters()]), model.parameters()):
            each -= 0.02 * part.view_as(each)
    losses.append(loss)
parameters = torch.cat([each.detach().flatten() for each in model.parameters()])
print(json.dumps({{"first": losses[0], "last": losses[-1], "end": parameters.sum().item(),
                  "own": ina.backend.stats()["switch"]["sums"]}}), flush=True)
dist.barrier()
dist.destroy_process_group()
"""
