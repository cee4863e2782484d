"""The externs of the Tofino native architecture."""

from ina.p4.compiler.externs.checks import CORE_CHECKS
from ina.p4.compiler.externs.copies import TNA_COPIES
from ina.p4.compiler.externs.counters import TNA_COUNTERS
from ina.p4.compiler.externs.digests import TNA_DIGESTS
from ina.p4.compiler.externs.extern import Externs
from ina.p4.compiler.externs.hashes import TNA_CHECKSUMS
from ina.p4.compiler.externs.meters import TNA_METERS
from ina.p4.compiler.externs.profiles import TNA_PROFILES
from ina.p4.compiler.externs.random import TNA_RANDOM
from ina.p4.compiler.externs.registers import TNA_REGISTERS
from ina.p4.compiler.externs.tna_functions import TNA_FUNCTIONS
from ina.p4.compiler.externs.tna_hash import TNA_HASHES

TNA = Externs(
    (
        *CORE_CHECKS, *TNA_COPIES, *TNA_COUNTERS, *TNA_DIGESTS, *TNA_CHECKSUMS, *TNA_METERS, *TNA_PROFILES, *TNA_RANDOM,
        *TNA_REGISTERS, *TNA_FUNCTIONS, *TNA_HASHES,
    ),
    attachable=("counters", "meters", "registers", "filters", "implementation"),
)  # fmt: skip
