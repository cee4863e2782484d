"""Values of a JobProgram: what no program, packet or switch can have is named."""

import math

import pytest

from ina.aggregation.entries import PUBLISHED, fields, programs
from ina.aggregation.entries.switchml import SwitchML

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("program", [*programs(), PUBLISHED], ids=lambda program: program.title)
def test_the_values_of_ours_are_right(program):
    assert fields.problem(program) == ""


@pytest.mark.parametrize(("name", "value", "message"), [
    ("number_bits", 0, "expected 8 to 63"),
    ("number_bits", 64, "expected 8 to 63"),
    ("number_bits", "x", "expected a whole number from 8 to 63"),
    ("number_bits", True, "expected a whole number from 8 to 63"),
    ("max_workers", 1025, "expected 1 to 1,024"),
    ("max_children", 33, "expected 1 to 32"),
    ("max_jobs", 0, "expected 1 to 256"),
    ("max_slots", 1000, "expected a power of two"),
    ("last_life", 2**16, "expected 1 to 65,535"),
    ("udp_port", 0xBEC00, "expected 1 to 65,535"),
    ("job_byte", -1, "expected 0 to 65,535"),
    ("pipes", 5, "expected 0 to 4"),
    ("trees", None, "expected True or False"),
    ("title", "", "expected text"),
    ("tables", "job", "expected names of tables, that of the jobs first"),
    ("tables", (), "expected names of tables, that of the jobs first"),
    ("lifetime", math.nan, "expected seconds, at most 1e+06"),
    ("ports", [1, "2"], "expected numbers of ports"),
    ("loopback", 3, "expected numbers of ports"),
    ("payloads", (64, 65), "expected some of 32, 64, 128, 256, 1024, 2048"),
    ("slot_registers", {"rows": 0}, "expected ends of registers' names, each with its cells for a slot"),
])
def test_a_value_that_cannot_be_is_named(name, value, message):
    program = SwitchML()
    setattr(program, name, value)
    assert fields.problem(program) == f"{name}: {value!r}, {message}"
