"""Mixture of experts: tokens to the ranks of their experts, and weighted sums of the experts' outputs back, through the switch.

    rows, plan = ina.moe.dispatch(tokens, experts, weights, num_experts=64)
    inputs = rows[plan.row].split(plan.tokens_per_expert)         # one tensor for each of this rank's experts
    outputs = torch.cat([expert(each) for expert, each in zip(mine, inputs)])
    result = ina.moe.combine(outputs, plan)                       # (tokens, hidden), at the tokens' ranks

See docs/guide/torch.md, "Mixture of experts".
"""

from ina.base.extras import extra

with extra("torch"):
    from ina.backend.moe.calls import Handle, Plan, combine, dispatch

__all__ = ["Handle", "Plan", "combine", "dispatch"]
