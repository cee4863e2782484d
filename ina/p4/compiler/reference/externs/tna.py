"""The externs of TNA, by their names in p4include/tofino1_base.p4 and core.p4."""

from __future__ import annotations

from ina.p4.compiler.reference.externs import (
    checks,
    checksums,
    copies,
    counters,
    digests,
    filters,
    hashes,
    math_unit,
    meters,
    parser_objects,
    random,
    registers,
    tables,
    values,
)
from ina.p4.compiler.reference.externs.extern import Externs

TNA = Externs(
    (
        checks.Verify(),
        checks.StaticAssert(),
        values.Maximum(),
        values.Minimum(),
        values.FunnelShiftRight(),
        values.Invalidate(),
        values.IsValidated(),
        values.SizeInBits(),
        values.SizeInBytes(),
        values.PortMetadataUnpack(),
        parser_objects.ParserCounter(),
        parser_objects.ParserPriority(),
        checksums.Checksum(),
        copies.Mirror(),
        copies.Resubmit(),
        digests.Digest(),
        hashes.Hash(),
        random.Random(),
        math_unit.MathUnit(),
        registers.Register(),
        registers.RegisterParam(),
        registers.RegisterAction(),
        registers.DirectRegister(),
        registers.DirectRegisterAction(),
        counters.Counter(),
        counters.DirectCounter(),
        meters.Meter(),
        meters.DirectMeter(),
        filters.Filter(),
        filters.DirectFilter(),
        tables.ActionProfile(),
        tables.ActionSelector(),
    )
)
