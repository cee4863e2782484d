"""Records of collectives in torch's profiler and execution trace, as torch's own back ends make them.

In C++, ProcessGroupNCCL records each as an operator ``record_param_comms`` with tensors, group and kind
(torch/csrc/distributed/c10d/ParamCommsUtils.hpp); ProcessGroupGloo's ``gloo:all_reduce`` has the tensors only. That very operator
cannot be recorded from Python: torch looks for the same facts in memory of the thread, which only C++ can set, and crashes
without. So ours is ``ina::record_param_comms``, and Chakra's converter looks for the end of that name. It does nothing; its
inputs are those of torch's, in the same order:

    tensors, (sequence number, is a message), (group's name, description), rank, kind, input's and output's split sizes,
    first global rank, distance of global ranks (-1: they differ), size of the group, is asynchronous
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ina.backend.arguments import inputs_and_outputs, tensors_in
from ina.backend.flight_recorder import Group, members
from ina.backend.names import torch_name

NAME = "record_param_comms"

_library = torch.library.Library("ina", "FRAGMENT")  # the operator is there as long as this
_library.define(f"{NAME}(Tensor[] tensors, (int, bool) number, (str, str) group, int rank, str kind, int[] input_splits, "
                "int[] output_splits, int first, int distance, int size, bool is_asynchronous) -> ()")
_library.impl(NAME, lambda *_: None, "CompositeExplicitAutograd")


def record(group: Group, number: int, method: str, args: Sequence[object], writes: bool, by_all: bool) -> None:
    """Records the call of a collective or message.

    ``number``: of the group's collectives, or of this rank's messages in it; ``args``: the method's; ``writes``: its first
    argument is an output; ``by_all``: it is no message.
    """
    inputs, outputs = inputs_and_outputs(args, writes, by_all)
    ranks = members(group)
    distances = {b - a for a, b in zip(ranks, ranks[1:], strict=False)} or {1}
    output_splits, input_splits = (_sizes(args, 2), _sizes(args, 3)) if method == "alltoall_base" else ([], [])
    torch.ops.ina.record_param_comms.default(
        tensors_in(inputs) or tensors_in(outputs),  # a receive has only these
        (number, not by_all), (group.group_name, group.group_desc), group.rank(), torch_name(method), input_splits, output_splits,
        ranks[0], distances.pop() if len(distances) == 1 else -1, group.size(),
        bool(getattr(args[-1], "asyncOp", True)) if args else True)


def _sizes(args: Sequence[object], place: int) -> list[int]:
    argument = args[place] if len(args) > place else ()
    return [int(each) for each in argument] if isinstance(argument, (list, tuple)) else []
