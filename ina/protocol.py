"""Protocols of one's own: what the controller needs to know of a switch program (docs/guide/new-protocol.md).

`NAME.py` beside the program `NAME.p4` defines `PROGRAM`, an instance of a JobProgram that returns, in P4Runtime's terms
(`ina.p4`), which table entries make a switch serve a job.
"""

from ina.aggregation.entries import program_named
from ina.aggregation.entries.base import Child, Identity, JobProgram, Parent, Place, Sizes, bits, has_key
from ina.net.ports import Address
from ina.p4.runtime.entities import Update
from ina.p4.runtime.p4info import P4Info

__all__ = ["Address", "Child", "Identity", "JobProgram", "P4Info", "Parent", "Place", "Sizes", "Update", "bits", "has_key",
           "program_named"]
