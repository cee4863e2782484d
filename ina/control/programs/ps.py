"""Entries of p4/ps.p4: as those of p4/atp.p4, for jobs that the switch does not aggregate for."""

from __future__ import annotations

from ina.control.programs.atp import ATP


class ParameterServer(ATP):
    name = "ps"
    title = "parameter server"
    aggregates = False
    multicasts = False


PROGRAM = ParameterServer()
