"""Defects that a walk of the explorer must find."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Program
from ina.topology import Link, Node, Topology, load
from ina.worlds.virtual.explorable import job
from ina.worlds.virtual.explorer import Explorer, Report
from ina.worlds.virtual.restarts import jobs

from .planting import Plant, planted

STATES = 20_000  # by then a defect must have shown
PAIR, LEAVES = load("star", hosts=2), load("leaf-spine", leaves=2, spines=1, hosts=1)
ODD = Topology(  # two workers at one leaf, one at the other
    "odd",
    tuple(map(Node, ("h1", "h2", "h3", "s1", "s2", "s3"))),
    (Link("h1", "s1"), Link("h2", "s1"), Link("h3", "s2"), Link("s1", "s3"), Link("s2", "s3")),
)


@dataclass(frozen=True)
class Walk:
    """The arguments of ``job``; with ``between``, of ``jobs``."""

    topology: Topology
    between: tuple[str, ...] = ()
    options: tuple[tuple[str, object], ...] = ()

    def explorer(self, p4: Path) -> Explorer:
        built = compile_program(p4 / "switchml.p4", defines={"VALUES": "32", "SLOTS": "2"}, cflags=["-O1"])
        options = dict(self.options)
        if self.between:
            return jobs(Program(built.so_path), self.topology, self.between, **options)
        return job(Program(built.so_path), self.topology, **options)


def walk(topology: Topology, between: str = "", **options: object) -> Walk:
    return Walk(topology, tuple(between.split()), tuple(options.items()))


SUMS, TREE = walk(PAIR, elements=7, count=3), walk(LEAVES, elements=7, count=3)
RACK = walk(ODD, elements=7, count=2)
MAXIMA = walk(PAIR, elements=96, maximum=True)
KINDS, LATE = walk(PAIR, elements=40, maximum=True, count=2), walk(PAIR, elements=7, late=True)
FLOATS, WINDOW = walk(PAIR, elements=96, dtype=np.float32), walk(PAIR, elements=32, dtype=np.float32, slots=2)
ABOVE = walk(LEAVES, elements=96, dtype=np.float32)
WRAP, HALF = walk(PAIR, first=2**32 - 1), walk(PAIR, first=2**31 - 1)
NEXT, LOST = walk(PAIR, "next"), walk(PAIR, "lost")

_AGGREGATION, _PHASE, _ADMISSION = (f"p4/include/switchml/{name}.p4" for name in ("aggregation", "phase", "admission"))
_LARGEST = "meta.first == 1 || hdr.exponents.e0 > (int<8>)largest0"
_STORE = "if (meta.first == 1) {\n                store"
_LIFE = "\n    if (h->job != config->job || h->e1 != (int8_t)config->life)"
STUCK = "does not finish"
SUM, FLAG = "wrong sum|workers do not agree", "wrong overflow flag"
PLANTS: dict[str, tuple[Plant, Walk]] = {
    "the largest exponent is that of the first": (Plant(_AGGREGATION, _LARGEST, "meta.first == 1", SUM), FLOATS),
    "the largest exponent is that of the last": (Plant(_AGGREGATION, _LARGEST, "true", SUM), FLOATS),
    "the largest exponent is the smallest": (
        Plant(_AGGREGATION, _LARGEST, _LARGEST.replace(" > ", " < "), SUM), FLOATS),
    "the largest exponent may be that of an earlier phase": (
        Plant(_AGGREGATION, _LARGEST, "hdr.exponents.e0 > (int<8>)largest0", SUM), FLOATS),
    "a result has the exponent of the other version": (
        Plant(_AGGREGATION, "exponents0.read(largest0, meta.row)", "exponents0.read(largest0, meta.row ^ 1)", SUM), FLOATS),
    "a result has the exponent of another slot": (
        Plant(_AGGREGATION, "hdr.exponents.e0 = (int<8>)largest0;",
              "exponents0.read(largest0, meta.row ^ 2); hdr.exponents.e0 = (int<8>)largest0;", SUM), WINDOW),
    "a result has the sender's exponent": (
        Plant(_AGGREGATION, "hdr.exponents.e0 = (int<8>)largest0;", "", SUM), FLOATS),
    "a switch below the root answers with its own exponent": (
        Plant(_AGGREGATION, "if (meta.repeated == 0) {\n            if",
              "if (meta.repeated == 0 && meta.worker != 0) {\n            if", SUM), ABOVE),
    "an overflow at a switch below is lost": (
        Plant(_AGGREGATION, "overflow = overflow | (bit<LANE_BITS>)hdr.switchml.overflow << LANE_SIGN;", "", FLAG), RACK),
    "an overflow is lost on the answer": (
        Plant(_AGGREGATION, "hdr.switchml.overflow = overflow[LANE_SIGN:LANE_SIGN];", "hdr.switchml.overflow = 0;", FLAG), SUMS),
    "an overflow of an earlier phase is told": (
        Plant(_AGGREGATION, "overflows.write(meta.row, (bit<LANE_BITS>)hdr.switchml.overflow << LANE_SIGN);", "", FLAG), SUMS),
    "an overflow above is not told below": (
        Plant(_AGGREGATION, "overflows.write(meta.row, (bit<LANE_BITS>)hdr.switchml.overflow << LANE_SIGN);",
              "overflows.write(meta.row, 0);", FLAG), TREE),
    "only the last value's overflow is told": (
        Plant(_AGGREGATION, "overflow = overflow | ((old ^ sum)", "overflow = ((old ^ sum)", FLAG), SUMS),
    "maxima are added": (Plant(_AGGREGATION, "hdr.switchml.msg_type == SWITCHML_MAXIMUM", "false", SUM), MAXIMA),
    "maxima are compared without their signs": (
        Plant(_AGGREGATION, "(int<LANE_BITS>)old > (int<LANE_BITS>)hdr.values", "old > hdr.values", SUM), MAXIMA),
    "a maximum may be that of an earlier phase": (
        Plant(_AGGREGATION, "if (meta.first == 1) {\n                store();\n",
              "if (meta.first == 1 && hdr.switchml.msg_type != SWITCHML_MAXIMUM) {\n                store();\n", SUM), MAXIMA),
    "a row has the kind of the other set": (
        Plant(_PHASE, "kinds.read(kind, meta.row)", "kinds.read(kind, meta.row ^ 1)", STUCK), KINDS),
    "a row keeps the kind that it had first": (
        Plant(_PHASE, "kinds.write(meta.row, own);\n                if (left",
              "if (kind == 0) { kinds.write(meta.row, own); }\n if (left", STUCK), KINDS),
    "a result stops no timer": (
        Plant("host/protocol/rto.h", "burst->results++;\n    ina_rto_stop(rto, index);", "burst->results++;", "a timer runs"),
        SUMS),
    "who is told to wait when a timer has expired asks no more": (
        Plant("host/protocol/rto.c", "if (!slot->listed) { /* it", "if (0) { /* it", "no timer runs"), LATE),
    "packet numbers are compared without the wrap": (
        Plant(_PHASE, "(int<32>)(hdr.switchml.tsi - tsi) > 0", "hdr.switchml.tsi > tsi", STUCK), WRAP),
    "packet numbers are compared as they are signed": (
        Plant(_PHASE, "(int<32>)(hdr.switchml.tsi - tsi) > 0", "(int<32>)hdr.switchml.tsi > (int<32>)tsi", STUCK),
        HALF),
    "workers compare whole packet numbers": (
        Plant("host/protocol/switchml.c", "view.tsi != (uint32_t)seq\n", "view.tsi != seq\n", STUCK), WRAP),
    "incarnations are not compared": (
        Plant(_PHASE, "incarnation == meta.incarnation && seen != 0", "seen != 0", f"{SUM}|does not finish"), LOST),
    "switches do not compare lives": (
        Plant(_ADMISSION, "meta.strict == 1 && (bit<8>)hdr.exponents.e1 != own_life", "false", SUM), NEXT),
    "workers do not compare lives": (
        Plant("host/protocol/frame.c", _LIFE, "\n    if (h->job != config->job)", f"{SUM}|{FLAG}|failed",
              also=((".e1 = -1,", ".e1 = 0,"),)), NEXT),
    "workers take a result of another phase": (
        Plant("host/protocol/switchml.c", "view.tsi != (uint32_t)seq\n                         || view.set", "view.set", SUM),
        walk(PAIR, elements=96)),
    "workers do not wait for a block's exponent": (
        Plant("host/protocol/switchml.c", "case INA_PACKET_BLOCKED: next = BLOCKED", "case INA_PACKET_BLOCKED: next = READY",
              SUM),
        WINDOW),
}


def find(name: str) -> Report:
    """Returns the report of the walk that must find the defect."""
    plant, at = PLANTS[name]
    with tempfile.TemporaryDirectory() as folder, planted(plant, Path(folder)) as p4:
        return at.explorer(p4).saturate(max_states=STATES)


def plant(name: str) -> Plant:
    """Returns the plant of this name."""
    return PLANTS[name][0]


def summary(report: Report) -> str:
    """Returns a line about the report."""
    return f"{report.violation or 'nothing'}, {report.states:,} states"
