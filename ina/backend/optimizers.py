"""Adam with one bit a value: 1-bit Adam (Tang et al., ICML'21) and 0/1 Adam (Lu et al., ICLR'23), for torch.

    model = DistributedDataParallel(model)                      # sends the first parameters; after that it only computes
    optimizer = OneBitAdam(model.parameters(), lr=1e-3, warm_up=300)
    with model.no_sync():                                       # gradients stay this rank's own
        loss.backward()
    optimizer.step()                                            # what travels, does so here

A step is one of three kinds, by its number, so all ranks agree on it:

variance    the gradients' average, as float32: momentum and variance as in torch.optim.Adam
bits        one bit a value of u, the sum of rate times momentum since the last exchange, with error feedback (codec `sign-vote`);
            parameters move by its average u' / (sqrt(v) + eps), and momentum becomes u' / sum of rates on all ranks; v stays
local       nothing travels: each rank moves by its own momentum, until the next exchange puts that right

The published designs compress twice: workers send signs to a server of each part of the tensor, which adds them up, compresses
the average with a feedback of its own, and sends signs back. Here the first of these sums is the switch's: votes in lanes of
ceil(log2(n + 1)) bits, after a round of maxima in which scales are agreed on. The second has no round: the counts that the switch
returns are on all ranks, which make the same signs of them. `codec="sign"` takes the counts as they are, in as many bytes.

A value whose variance is zero has had no gradient, and stays: a sign would move it by its block's mean over eps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ina import codecs

__all__ = ["Exchange", "OneBitAdam", "ZeroOneAdam"]

Parameters = Iterable[torch.Tensor] | Iterable[dict[str, Any]]


@dataclass(frozen=True)
class Exchange:
    """Flat float32 of this rank, of which the average over all ranks is to come; ``codec``: how it travels, None: as float32."""

    values: torch.Tensor
    codec: codecs.Codec | None
    step: int  # the number of the codec's exchanges before this one


class _ByBits(torch.optim.Optimizer):
    """Both optimisers, which differ in what their steps are."""

    def __init__(self, params: Parameters, lr: float, betas: tuple[float, float], eps: float, weight_decay: float,
                 codec: str, group: dist.ProcessGroup | None) -> None:
        low, high = betas
        for name, value, valid in (("lr", lr, lr >= 0), ("betas", betas, 0 <= low < 1 and 0 <= high < 1),
                                   ("eps", eps, eps > 0), ("weight_decay", weight_decay, weight_decay >= 0)):
            if not valid:
                raise ValueError(f"{type(self).__name__}: {name} = {value}: expected lr and weight_decay of 0 or more, betas "
                                 "from 0 up to, not including, 1, and eps above 0")
        self.codec, self.process_group = codecs.named(codec), group
        if "float32" not in self.codec.dtypes:
            raise ValueError(f"{type(self).__name__}: codec {codec!r} takes {', '.join(self.codec.dtypes)}, expected float32")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "step": 0, "updates": 0,
                                  "rates": 0.0})

    def _updates_variance(self, step: int) -> bool:
        """Returns whether gradients travel as float32 in this step, the first of which is 1."""
        raise NotImplementedError

    def _exchanges(self, step: int) -> bool:
        """Returns whether ranks exchange bits in this step, if it is none of the variance."""
        raise NotImplementedError

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Makes one step. All ranks have to, with the same parameters. A rank's missing gradient is one of zeros.

        ValueError: the group is none of the back end 'ina', or a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        group: Any = dist.group.WORLD if self.process_group is None else self.process_group
        if not hasattr(group, "allreduce_coded"):
            raise ValueError(f"{type(self).__name__}: expected a group of the back end 'ina', not a {type(group).__name__}")
        running, average = self.advance(), None
        while True:
            try:
                exchange = running.send(average)  # type: ignore[arg-type]  # the first is None
            except StopIteration:
                return loss
            average = exchange.values
            if exchange.codec is None:
                dist.all_reduce(average, dist.ReduceOp.AVG, group)
            else:
                group.allreduce_coded(average, exchange.codec, True, exchange.step).wait()

    @torch.no_grad()
    def advance(self) -> Generator[Exchange, torch.Tensor, None]:
        """Yields what a step exchanges, if anything, and takes the average that is sent back: `step` without the group, for
        workers of one process."""
        number = self.param_groups[0]["step"] + 1
        own = [(group, each, self._state(each)) for group in self.param_groups for each in group["params"] if each.requires_grad]
        gradients = [self._gradient(group, each) for group, each, _ in own]
        for group in self.param_groups:
            group["step"] = number
        if self._updates_variance(number):
            averages = yield Exchange(_flat(gradients), None, number - 1)
            for group in self.param_groups:
                group["updates"] += 1
            for (group, each, state), average in zip(own, _parts(averages, gradients), strict=True):
                low, high = group["betas"]
                state["exp_avg"].lerp_(average, 1 - low)
                state["exp_avg_sq"].mul_(high).addcmul_(average, average, value=1 - high)
                each.addcdiv_(state["exp_avg"], _divisor(group, state), value=-_rate(group))
            return
        for group in self.param_groups:
            group["rates"] += _rate(group)
        for (group, _, state), gradient in zip(own, gradients, strict=True):
            state["exp_avg"].lerp_(gradient.mul_(state["exp_avg_sq"] != 0), 1 - group["betas"][0])
            state["moved"].add_(state["exp_avg"], alpha=_rate(group))
        if not self._exchanges(number):
            for group, each, state in own:
                if "start" not in state:
                    state["start"] = each.clone()
                each.addcdiv_(state["exp_avg"], _divisor(group, state), value=-_rate(group))
            return
        moved = [state["moved"] for _, _, state in own]
        averages = yield Exchange(_flat(moved), self.codec, number - 1)
        for (group, each, state), average in zip(own, _parts(averages, moved), strict=True):
            average.mul_(state["exp_avg_sq"] != 0)
            if "start" in state:  # ranks' own steps round differently: begin where all were equal
                each.copy_(state.pop("start"))
            each.addcdiv_(average, _divisor(group, state), value=-1)
            state["exp_avg"].copy_(average / group["rates"] if group["rates"] else torch.zeros_like(average))
            state["moved"].zero_()
        for group in self.param_groups:
            group["rates"] = 0.0

    def _state(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        state = self.state[parameter]
        if not state:
            state.update({name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq", "moved")})
        return state

    def _gradient(self, group: dict[str, Any], parameter: torch.Tensor) -> torch.Tensor:
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        if gradient.layout != torch.strided:
            raise ValueError(f"{type(self).__name__}: a gradient of layout {gradient.layout}, expected a dense one")
        return gradient.add(parameter, alpha=group["weight_decay"])


class OneBitAdam(_ByBits):
    """1-bit Adam: torch.optim.Adam in the first ``warm_up`` steps, the published ones having 15 to 25 % of all; then the variance
    stays, and momentum travels as bits in each step.

    ``params``, ``lr``, ``betas``, ``eps``, ``weight_decay``: as of torch.optim.Adam, in whose steps they are of the same effect.
    ``codec``: of the bits, one with error feedback. ``group``: of the back end 'ina'; None: the default group. What the codec
    missed is no part of `state_dict`: after loading one, it begins anew. ValueError: an option that cannot be.
    """

    def __init__(self, params: Parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, *, warm_up: int, codec: str = "sign-vote",
                 group: dist.ProcessGroup | None = None) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, codec, group)
        if warm_up < 1:
            raise ValueError(f"{type(self).__name__}: warm_up = {warm_up}: expected 1 step at least, for the variance")
        self.warm_up = warm_up

    def _updates_variance(self, step: int) -> bool:
        return step <= self.warm_up

    def _exchanges(self, step: int) -> bool:
        return True


class ZeroOneAdam(OneBitAdam):
    """0/1 Adam: the variance has ever fewer steps, and after ``warm_up`` none; then there are local steps.

    ``variance_every``: steps of the variance after which the gap between them doubles, from 1 (the paper's kappa; other steps
    of the warm-up exchange bits). ``local_every``: exchanges, from the warm-up's end, after which the gap between them doubles,
    up to ``local_most`` steps, a power of two (the paper's H). The rest: as of `OneBitAdam`.
    """

    def __init__(self, params: Parameters, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, *, warm_up: int, variance_every: int = 16, local_every: int = 1000,
                 local_most: int = 16, codec: str = "sign-vote", group: dist.ProcessGroup | None = None) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, warm_up=warm_up, codec=codec, group=group)
        if variance_every < 1 or local_every < 1 or local_most < 1 or local_most & (local_most - 1):
            raise ValueError(f"{type(self).__name__}: variance_every = {variance_every}, local_every = {local_every}, local_most "
                             f"= {local_most}: expected 1 at least, and a power of two as the last")
        self.variance_every, self.local_every, self.local_most = variance_every, local_every, local_most

    def _updates_variance(self, step: int) -> bool:
        return step <= self.warm_up and _due(step, self.variance_every)

    def _exchanges(self, step: int) -> bool:
        return step <= self.warm_up or _due(step - self.warm_up, self.local_every, self.local_most)


def _due(step: int, every: int, most: int = 1 << 62) -> bool:
    """Returns whether a step, from 1, is one of those whose gap is 1 at first and doubles after each ``every`` of them."""
    level = min(((step - 1) // every + 1).bit_length(), most.bit_length()) - 1
    return (step - every * ((1 << level) - 1)) % (1 << level) == 0


def _rate(group: dict[str, Any]) -> float:
    """Returns the learning rate, with the correction of momentum's bias."""
    return group["lr"] / (1 - group["betas"][0] ** group["step"])


def _divisor(group: dict[str, Any], state: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns sqrt(v) + eps, with the correction of the variance's bias; of a group without variance so far it is eps."""
    bias = 1 - group["betas"][1] ** group["updates"] or 1.0
    return (state["exp_avg_sq"] / bias).sqrt_().add_(group["eps"])


def _flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1).to(torch.float32) for tensor in tensors])


def _parts(flat: torch.Tensor, like: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    return (part.view(each.shape).to(each.dtype) for part, each in zip(flat.split([x.numel() for x in like]), like, strict=True))
