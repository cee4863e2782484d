"""The externs of v1model, by their names in p4include/v1model.p4 and core.p4."""

from __future__ import annotations

from ina.p4.compiler.reference.externs import (
    checks,
    checksums,
    copies,
    counters,
    digests,
    hashes,
    meters,
    random,
    registers,
    tables,
)
from ina.p4.compiler.reference.externs.extern import Externs

V1MODEL = Externs(
    (
        checks.Verify(),
        checks.StaticAssert(),
        checks.Assert(),
        checks.LogMessage(),
        copies.MarkToDrop(),
        copies.Truncate(),
        copies.Clone(),
        copies.V1Resubmit(),
        copies.Recirculate(),
        digests.V1Digest(),
        hashes.V1Hash(),
        checksums.VerifyChecksum(),
        checksums.UpdateChecksum(),
        checksums.Checksum16(),
        random.V1Random(),
        registers.V1Register(),
        counters.V1Counter(),
        counters.V1DirectCounter(),
        meters.V1Meter(),
        meters.V1DirectMeter(),
        tables.V1ActionProfile(),
    )
)
