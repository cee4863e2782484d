"""The externs of v1model."""

from ina.p4.compiler.externs.checks import CHECKS
from ina.p4.compiler.externs.copies import COPIES
from ina.p4.compiler.externs.counters import COUNTERS
from ina.p4.compiler.externs.digests import DIGESTS
from ina.p4.compiler.externs.extern import Externs
from ina.p4.compiler.externs.hashes import HASHES
from ina.p4.compiler.externs.meters import METERS
from ina.p4.compiler.externs.profiles import PROFILES
from ina.p4.compiler.externs.random import RANDOM
from ina.p4.compiler.externs.registers import REGISTERS

V1MODEL = Externs(
    (*CHECKS, *COPIES, *COUNTERS, *DIGESTS, *HASHES, *METERS, *PROFILES, *RANDOM, *REGISTERS),
    attachable=("counters", "meters", "implementation"),
)
