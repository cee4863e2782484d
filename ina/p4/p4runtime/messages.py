"""P4Runtime's protobuf messages.

`p4`: those of p4.v1 as attributes (`p4.TableEntry`), `config`: of p4.config.v1; `Status`: google.rpc.Status of the same pool.
ina/p4/rpc/stub.py writes their types.
"""

from __future__ import annotations

from ina.p4.p4runtime.description import FILES
from ina.p4.rpc.message_classes import classes, namespace

_CLASSES = classes(*FILES)
p4 = namespace("p4.v1", _CLASSES)
config = namespace("p4.config.v1", _CLASSES)
Status = _CLASSES["google.rpc.Status"]
