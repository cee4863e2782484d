"""A codec of your own: a fifth of the values at random places, with error feedback (random-k: Stich et al., NeurIPS'18).

    torchrun --nproc-per-node 2 examples/codecs/random_k.py

All workers draw the same places from the number of the call, so no place has to travel, and the switch adds up what it always
adds up. What is not drawn is added to the next gradients.
"""

import numpy as np

from ina import codecs


class RandomK(codecs.Codec):
    name = "random-k"
    remembers = True  # so each bucket has a codec of its own

    def __init__(self, share=0.2):
        super().__init__()
        self.share, self.missed = share, None

    def reduce(self, values, call):
        wanted = values.copy() if self.missed is None or len(self.missed) != len(values) else values + self.missed
        places = np.random.default_rng(call.step).permutation(len(values))[: self.count(len(values))]
        sent = wanted[places]
        wanted[places] = 0
        self.missed = np.nan_to_num(wanted, nan=0, posinf=0, neginf=0)  # an infinity shall not last

        total = yield codecs.Round(sent)  # float32, in the protocol's own code
        result = np.zeros_like(values)
        result[places] = total / np.float32(call.divisor)
        return result

    def count(self, elements):
        return int(np.ceil(self.share * elements))

    def bound(self, tensors, average=False):
        return np.full(tensors[0].shape, np.inf)  # it is right in the long run, not in a step

    def traffic(self, elements, workers):
        size = 4 * self.count(elements)
        return codecs.Traffic(size, size)


codecs.register("random-k", RandomK)  # in a package: the entry point `random-k = "my_package:RandomK"` of the group `ina.codecs`


def main():
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import ina.backend
    from ina.backend.hooks import Choice, per_bucket

    ina.backend.register()
    dist.init_process_group("ina")
    torch.manual_seed(0)
    inputs, target = torch.randn(300, 40), torch.randn(40, 1)
    own = slice(dist.get_rank(), None, dist.get_world_size())
    model = DistributedDataParallel(torch.nn.Linear(40, 1))
    model.register_comm_hook(lambda bucket: Choice(codec="random-k"), per_bucket)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(301):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[own]), inputs[own] @ target)
        loss.backward()
        optimizer.step()
        if step % 100 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    assert loss.item() < 0.1, "it does not learn"
    if dist.get_rank() == 0:
        counts = ina.backend.stats()["codecs"]["random-k"]
        print(f"{counts['sums']} sums of {counts['elements']} values in {counts['words']} words")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
