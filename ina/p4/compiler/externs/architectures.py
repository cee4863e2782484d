"""The externs of v1model and of the Tofino native architecture."""

from ina.p4.compiler.externs import cells, checks, copies, hashes, profiles, registers
from ina.p4.compiler.externs import tna_functions as functions
from ina.p4.compiler.externs.extern import Externs
from ina.p4.compiler.externs.tna_hash import Hash

V1MODEL = Externs(
    (
        checks.Verify(), checks.StaticAssert(), checks.Assert(), checks.LogMessage(), checks.MarkToDrop(),
        copies.Clone(), copies.Again(), copies.Truncate(),
        cells.V1Counter(), copies.DigestFunction(),
        hashes.Hash(), hashes.UpdateChecksum(), hashes.VerifyChecksum(), hashes.Checksum16(),
        cells.V1Meter(), profiles.V1Profile(), hashes.RandomFunction(), registers.V1Register(),
    ),
    attachable=("counters", "meters", "implementation"),
)
TNA = Externs(
    (
        checks.Verify(), checks.StaticAssert(),
        copies.Mirror(), copies.Resubmit(),
        cells.Counter(), copies.Digest(), hashes.Checksum(), Hash(),
        cells.Meter(), cells.Filter(),
        profiles.ActionProfile(), profiles.ActionSelector(), profiles.Storage(),
        hashes.Random(),
        registers.Register(), registers.RegisterAction(), registers.RegisterParam(), registers.MathUnit(),
        functions.Extreme(), functions.FunnelShift(), functions.Size(), functions.Validity(), functions.PortMetadataUnpack(),
        functions.ParserCounter(), functions.ParserPriority(),
    ),
    attachable=("counters", "meters", "registers", "filters", "implementation"),
)
