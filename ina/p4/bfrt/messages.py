"""BFRuntime's protobuf messages.

`bfrt`: the messages of bfrt_proto as attributes (`bfrt.WriteRequest`); `Status`: google.rpc.Status of the same pool.
ina/p4/rpc/stub.py writes their types.
"""

from __future__ import annotations

from ina.p4.bfrt.description import BFRUNTIME
from ina.p4.rpc.message_classes import classes, namespace

_CLASSES = classes(BFRUNTIME)
bfrt = namespace("bfrt_proto", _CLASSES)
Status = _CLASSES["google.rpc.Status"]
