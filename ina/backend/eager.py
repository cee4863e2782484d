"""Dynamo (torch.compile) stays out of the back end: its frames are neither traced nor compiled, whoever calls them.

A collective moves memory by its address and waits for packets, of which no graph can know. torch's own back ends are C++, where
Dynamo cannot look; a process group in Python it would take apart.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

import torch
import torch._C._dynamo.eval_frame as dynamo


def eager(function: Callable) -> Callable:
    """``function``, left as it is by Dynamo, with all that it calls. A decorator.

    What Dynamo's own `disable` does, without importing it (1.3 s) in programs that compile nothing.
    """
    if not hasattr(dynamo, "set_code_exec_strategy"):  # before torch 2.8
        return torch._disable_dynamo(function)
    skip = dynamo._FrameAction.SKIP
    dynamo.set_code_exec_strategy(function.__code__, dynamo._FrameExecStrategy(skip, skip))
    function.__dict__["_torchdynamo_disable"] = True  # for calls that are met while tracing
    return function


def all_eager(cls: type) -> type:
    """A class with no method of its own that Dynamo looks into. A decorator."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType):
            setattr(cls, name, eager(method))
    return cls
