"""Random packets and entries for BMv2, the compiled switch and the interpreter: the same frames leave by the same ports.

The programs are p4c's v1model samples, from the folder that INA_P4C_SAMPLES names, and our own in tests/programs for
features that those hardly use. Two seeds of 30 packets for each program; `INA_SEED` selects others.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
from bmv2_target import Bmv2Error, Bmv2Target, compile_sample
from capabilities import leave_out, need
from differential import SHORTEST, by_port, prepare, scenario
from folders import files

from ina.base import paths
from ina.p4.compiler import frontend
from ina.p4.compiler.build import compile_program
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.p4info import p4info
from ina.p4.compiler.reference.interpreter import Interpreter
from ina.p4.tools.stf_target import CompiledTarget, InterpreterTarget

need("cc", "p4c", "bmv2", "netns")

pytestmark = pytest.mark.hardware
PACKETS = 30
PATIENCE = 30.0  # seconds for BMv2 to send a frame that ours sent
OWN = Path(__file__).parent.parent.parent / "programs"
FOLDER = os.environ.get("INA_P4C_SAMPLES", "")
SEED = os.environ.get("INA_SEED", "1")

# Programs that differ on purpose, or cannot be compared: docs/guide/p4.md, "Differences from BMv2".
DIFFERENT = {
    "gauntlet_invalid_hdr_assign-bmv2": "reads a field of an invalid header, which has no defined value",
    "union4-bmv2": "reads a member of a union after another one became valid, which has no defined value",
}
BY_CHANCE = re.compile(r"\brandom\s*[(<]|HashAlgorithm\.random|global_timestamp|(enq|deq)_(timestamp|timedelta|qdepth)")


def samples() -> list[Path]:
    programs = sorted(Path(FOLDER).glob("*-bmv2.p4")) if FOLDER else []
    return [p for p in programs if "V1Switch" in p.read_text(errors="replace")]


@pytest.mark.parametrize("path", samples() or [Path("none")], ids=lambda p: p.stem)
def test_samples(path, tmp_path):
    need("p4c-samples")
    if path.stem in DIFFERENT:
        leave_out(DIFFERENT[path.stem])
    if BY_CHANCE.search(path.read_text()):
        leave_out("depends on chance or time")
    try:
        config, _ = compile_sample(path, tmp_path)
    except Bmv2Error as error:
        leave_out(str(error))
    try:
        program, compiled = frontend.load(path), compile_program(path)
    except CompileError as error:
        leave_out(f"not supported: {error.message}")
    test = path.with_suffix(".stf")
    play(path.stem, program, compiled, config, test.read_text() if test.exists() else "")


SHIPPED = sorted(paths.p4_dir().glob("*.p4")) + files(OWN.parent.parent / "examples", "*.p4", "learn/*.p4")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_programs(path, tmp_path):
    """Random packets; tests/aggregation/protocols/test_switchml_differential.py has those of the protocol."""
    defines = {"VALUES": "32", "SLOTS": "4"}
    config, _ = compile_sample(path, tmp_path, *(f"-D{k}={v}" for k, v in defines.items()))
    test = path.with_suffix(".stf")
    text = test.read_text() if test.exists() else ""
    play(path.stem, frontend.load(path, defines=defines), compile_program(path, defines=defines), config, text)


def play(name, program, compiled, config, test):
    """Runs one scenario on all three; compares frames and registers."""
    bmv2 = Bmv2Target(config, compiled.p4info)
    switch, reference = CompiledTarget(compiled), InterpreterTarget(Interpreter(program), compiled.p4info)
    try:
        plan = scenario(compiled.p4info, program, test, random.Random(f"{name} {SEED}"), bmv2.has, PACKETS)
        for target in (switch, reference, bmv2):
            prepare(target, plan)
        sent: list[list[tuple[int, bytes]]] = [[], [], []]
        for port, frame in plan.packets:
            sent[0] += (ours := switch.send(port, frame))
            sent[1] += reference.send(port, frame)
            count = sum(map(len, by_port(ours).values()))
            sent[2] += (theirs := bmv2.switch.exchange(frame, port, count, PATIENCE))
            if len(theirs) < count and not bmv2.switch.alive:
                leave_out("BMv2 ended: it does not survive this packet")
            assert len(theirs) == count, f"{frame.hex()} into port {port}: {by_port(ours)}, BMv2 {by_port(theirs)}"
        sent[2] += bmv2.switch.exchange(b"", 0, 1, 0.1)
        assert by_port(sent[0]) == by_port(sent[2]), "the compiled switch and BMv2"
        assert by_port(sent[1]) == by_port(sent[2]), "the interpreter and BMv2"
        for register in compiled.layout["registers"]:
            compare_registers(register, switch, bmv2)
    finally:
        bmv2.close()
        switch.switch.close()


def compare_registers(layout, ours, bmv2):
    """Compares cells: BMv2 shows up to 63 bits, and signed values in its internal form."""
    name, mask = layout["name"], (1 << layout["width"]) - 1
    names = {r["name"] for r in bmv2.switch.program["register_arrays"]}  # p4c splits those of structs
    if layout["width"] < 64 and name in names:
        theirs = bmv2.read_registers(name)
        assert [ours.read_register(name, i) & mask for i in range(len(theirs))] == [v & mask for v in theirs], name


# --- our own programs -----------------------------------------------------------------------------------------------


class Pair:
    """BMv2 and one of ours with a program of tests/programs. `send` asserts that both send the same frames."""

    def __init__(self, name: str, ours: str, folder: Path) -> None:
        path = OWN / f"{name}.p4"
        config, _ = compile_sample(path, folder)
        program = frontend.load(path)
        if ours == "compiled":
            self.ours = CompiledTarget(compile_program(path))
        else:
            self.ours = InterpreterTarget(Interpreter(program), p4info.build(program))
        self.bmv2 = Bmv2Target(config, p4info.build(program))

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.bmv2.close()

    def both(self, method: str, *args: object, **kwargs: object) -> object:
        """Makes a control-plane call on both; asserts equal answers (handles count from 0 in both)."""
        ours, theirs = (getattr(target, method)(*args, **kwargs) for target in (self.ours, self.bmv2))
        assert ours == theirs or method in ("insert", "point"), (method, args, ours, theirs)  # handles are each switch's own
        return ours

    def send(self, frame: bytes, port: int = 0) -> list[tuple[int, bytes]]:
        ours = self.ours.send(port, frame)
        theirs = self.bmv2.switch.exchange(frame, port, len(ours), PATIENCE)
        assert by_port(ours) == by_port(theirs)
        return ours


def frame(kind: int = 0, a: int = 0, b: int = 0, c: int = 0, more: int = 0) -> bytes:
    return bytes(range(12)) + kind.to_bytes(2, "big") + a.to_bytes(4, "big") + b.to_bytes(4, "big") + \
        c.to_bytes(2, "big") + bytes(more)


def fields(data: bytes) -> tuple[int, int, int]:
    """a, b, c"""
    return int.from_bytes(data[14:18], "big"), int.from_bytes(data[18:22], "big"), int.from_bytes(data[22:24], "big")


@pytest.fixture(params=["interpreter", "compiled"])
def ours(request: pytest.FixtureRequest) -> str:
    return request.param


def test_registers(ours, tmp_path):
    rng = random.Random(SEED)
    with Pair("registers", ours, tmp_path) as pair:
        pair.both("write_register", "Body.balance", 3, 0x7FFF)  # BMv2 takes 0x8000 for a positive number
        pair.both("write_register", "Body.wide", 5, 12345)  # BMv2's client takes no more than 64 bits
        for _ in range(60):
            pair.send(frame(a=rng.randrange(8), b=rng.getrandbits(32), c=rng.getrandbits(16)), rng.randrange(8))
        for name, width in (("flags", 1), ("ports", 9), ("balance", 16), ("addresses", 48)):
            compare_registers({"name": f"Body.{name}", "width": width}, pair.ours, pair.bmv2)


def test_meters(ours, tmp_path):
    """Meters with rates so small that buckets do not refill during the test: only the bursts pass."""
    tiny = 1e-3  # packets or bytes per second
    with Pair("meters", ours, tmp_path) as pair:
        for index in (0, 2):
            pair.both("configure_meter", "Body.packets", index, [(tiny, 3), (tiny, 5 + index)])
        pair.both("configure_meter", "Body.octets", 0, [(tiny, 100), (tiny, 250)])
        colours = {i: [fields(pair.send(frame(a=i, more=10))[0][1])[1:] for _ in range(9)] for i in range(3)}
        assert [first for first, _ in colours[0]] == [0, 0, 0, 1, 1, 2, 2, 2, 2]
        assert [second for _, second in colours[0]] == [0, 0, 1, 1, 1, 1, 1, 2, 2]
        assert [first for first, _ in colours[1]] == [0] * 9  # not configured: green
        assert [first for first, _ in colours[2]] == [0, 0, 0, 1, 1, 1, 1, 2, 2]


def test_direct_meters_and_counters(ours, tmp_path):
    tiny = 1e-3
    with Pair("meters", ours, tmp_path) as pair:
        entries = {}
        for kind, burst in ((1, 2), (2, 4)):
            request = ("Body.kinds", {"hdr.data.kind": kind}, "Body.measure", {}, 0)
            entries[kind] = [(t, t.insert(*request)) for t in (pair.ours, pair.bmv2)]
            for target, entry in entries[kind]:
                target.configure_direct_meter("Body.kinds", entry, [(tiny, burst), (tiny, 2 * burst)])
        colours = {kind: [int.from_bytes(pair.send(frame(kind))[0][1][:6], "big") for _ in range(9)] for kind in (1, 2)}
        assert colours[1] == [0, 0, 1, 1, 2, 2, 2, 2, 2]
        assert colours[2] == [0, 0, 0, 0, 1, 1, 1, 1, 2]
        pair.send(frame(3, more=7))
        for kind in (1, 2):
            counts = [target.read_direct_counter("Body.kinds", entry) for target, entry in entries[kind]]
            assert counts == [(9, 9 * len(frame()))] * 2


def test_selector(ours, tmp_path):
    rng = random.Random(SEED)
    with Pair("selector", ours, tmp_path) as pair:
        members = [pair.both("add_member", "Body.selector", "Body.send", {"port": i, "mark": 100 + i}) for i in range(5)]
        members.append(pair.both("add_member", "Body.selector", "Body.drop", {}))
        groups = [pair.both("add_group", "Body.selector", members[a:b]) for a, b in ((0, 5), (1, 3), (3, 6), (4, 5))]
        for kind, group in enumerate(groups):
            pair.both("point", "Body.chosen", {"hdr.data.kind": kind}, group=group)
        pair.both("point", "Body.chosen", {"hdr.data.kind": 9}, member=members[2])
        profile = [pair.both("add_member", "Body.profile", "Body.send", {"port": i, "mark": 7}) for i in (6, 2)]
        pair.both("point", "Body.direct", {"hdr.data.kind": (0x10, 0xF0)}, member=profile[0], priority=1)
        pair.both("point", "Body.direct", {"hdr.data.kind": (0x12, 0xFF)}, member=profile[1], priority=2)
        outcomes = set()
        for _ in range(80):
            kind = rng.choice([0, 0, 0, 1, 2, 3, 9, 0x10, 0x12, 0x20])
            for port, data in pair.send(frame(kind, rng.getrandbits(32), rng.getrandbits(32))):
                outcomes.add((kind, port, fields(data)[2]))
        assert len({port for kind, port, _ in outcomes if kind == 0}) == 5  # the hash spreads
        assert {(port, mark) for kind, port, mark in outcomes if kind == 0x12} == {(2, 7)}
        assert {(port, mark) for kind, port, mark in outcomes if kind == 0x20} == {(7, 0)}


def test_value_sets(ours, tmp_path):
    with Pair("value_sets", ours, tmp_path) as pair:
        assert fields(pair.send(frame(0x123))[0][1])[2] == 0
        pair.both("fill_value_set", "Parse.kinds", [0x123, 0x06])
        pair.both("fill_value_set", "Parse.names", [5, 0x17F7F])
        results = [
            fields(pair.send(frame(kind, a))[0][1])[2]
            for kind, a in ((0x123, 0), (0x0806, 5), (0x0807, 5), (0x0900, 4), (0x0900, 5), (0x0900, 0xFFFF7F7F))
        ]
        assert results == [2, 2, 0, 1, 3, 3]


def test_random_stays_in_its_range(ours, tmp_path):
    """The switches draw different numbers; both draw all of a small range and nothing else."""
    with Pair("random_range", ours, tmp_path) as pair:
        for target in (pair.ours.send, lambda port, data: pair.bmv2.switch.exchange(data, port, 1, PATIENCE)):
            drawn = [fields(target(0, frame())[0][1]) for _ in range(60)]
            assert {a for a, _, _ in drawn} == {0, 1, 2, 3}
            assert {b for _, b, _ in drawn} == {5}
            assert len({c for _, _, c in drawn}) > 50


def test_digests(tmp_path):
    """Frames are compared with BMv2; messages only checked in ours, as BMv2 needs nanomsg for them, which not every build has."""
    with Pair("digests", "compiled", tmp_path) as pair, Pair("digests", "interpreter", tmp_path) as other:
        for kind, a, port in ((1, 5, 0), (2, 6, 1), (1, 0xFFFFFFFF, 7)):
            pair.send(frame(kind, a), port)
            other.send(frame(kind, a), port)
        digests, lost = pair.ours.switch.digests()
        assert [(d.name, tuple(d.fields.values())) for d in digests] == [
            (d.name, d.values) for d in other.ours.interpreter.digests
        ]
        assert (len(digests), lost) == (2, 0)
        assert list(digests[1].fields.values()) == [0x060708090A0B, 7, 0xFFFFFFFF]


def test_frames_are_long_enough_for_an_interface():
    assert len(frame()) >= SHORTEST
