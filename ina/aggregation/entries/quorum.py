"""Entries of p4/quorum.p4: SwitchML's."""

from __future__ import annotations

from ina.aggregation.entries.base import BITMAP
from ina.aggregation.entries.switchml import SwitchML


class Quorum(SwitchML):
    name = "quorum"
    title = "SwitchML with a quorum"
    max_workers = BITMAP  # a packet has a bit for each that may contribute


PROGRAM = Quorum()
