"""Dynamo (torch.compile) stays out of the back end: its frames are neither traced nor compiled, whoever calls them.

A collective moves memory by its address and waits for packets, which no graph can represent. torch's own back ends are C++, which
Dynamo does not trace; a process group in Python it would trace.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

import torch
import torch._C._dynamo.eval_frame as dynamo


def eager(function: Callable) -> Callable:
    """Decorator: Dynamo neither traces nor compiles ``function``, nor any function that it calls.

    Like Dynamo's own `disable`, without importing it (1.3 s) in programs that compile nothing.
    """
    if not hasattr(dynamo, "set_code_exec_strategy"):  # before torch 2.8
        return torch._disable_dynamo(function)
    skip = dynamo._FrameAction.SKIP
    dynamo.set_code_exec_strategy(function.__code__, dynamo._FrameExecStrategy(skip, skip))
    function.__dict__["_torchdynamo_disable"] = True  # for calls during tracing
    return function


def all_eager(cls: type) -> type:
    """Class decorator: makes all of the class's own methods eager."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType):
            setattr(cls, name, eager(method))
    return cls
