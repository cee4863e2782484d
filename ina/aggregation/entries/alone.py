"""A program that is no protocol's: its switches have the entries that their owner gives them, and serve no jobs."""

from __future__ import annotations

from ina.aggregation.entries.base import Child, JobProgram, Place
from ina.p4.runtime.entities import Entity


class Alone(JobProgram):
    name = "none"
    title = "a program alone"
    tables = ()
    max_workers = max_jobs = max_slots = 0
    reserves = False

    def job(self, place: Place) -> list[Entity]:
        raise ValueError("it serves no jobs")

    def child(self, place: Place, child: Child) -> list[Entity]:
        raise ValueError("it serves no jobs")


PROGRAM = Alone()
