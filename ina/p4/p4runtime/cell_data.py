"""Counts and meters' configurations in messages, from and to the switch's form."""

from __future__ import annotations

from typing import TypeVar

from ina.p4.p4runtime.messages import p4
from ina.p4.runtime import EntityError, MeterConfig

Metered = TypeVar("Metered", p4.MeterEntry, p4.DirectMeterEntry)


def counts_of(data: p4.CounterData) -> tuple[int, int]:
    """Packets and bytes. Raises EntityError."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise EntityError("counter data: a count is negative")
    return data.packet_count, data.byte_count


def refuse_counts(message: Metered) -> None:
    """Raises EntityError: a request sets a meter's counts."""
    if message.HasField("counter_data"):
        raise EntityError("this switch's meters do not count packets by colour", "UNIMPLEMENTED")


def requested_config(message: Metered, place: str) -> MeterConfig | None:
    """The configuration that a request sets; None: none, and the meter is green. Raises EntityError."""
    if not message.HasField("config"):
        return None
    c = message.config
    if c.eburst:
        raise EntityError(f"{place}: eburst is for meters of one rate, and v1model's have two", "UNIMPLEMENTED")
    if min(c.cir, c.cburst, c.pir, c.pburst) < 0:
        raise EntityError(f"{place}: rates and bursts must not be negative")
    return answered_config(message)


def answered_config(message: Metered) -> MeterConfig | None:
    c = message.config
    return MeterConfig(c.cir, c.cburst, c.pir, c.pburst) if message.HasField("config") else None


def message_of(config: MeterConfig) -> p4.MeterConfig:
    return p4.MeterConfig(
        cir=round(config.committed_rate), cburst=config.committed_burst, pir=round(config.peak_rate),
        pburst=config.peak_burst,
    )  # fmt: skip


def with_config(message: Metered, config: MeterConfig | None) -> Metered:
    """The message with a configuration; None: without, which means green."""
    if config is not None:
        message.config.CopyFrom(message_of(config))
    return message
