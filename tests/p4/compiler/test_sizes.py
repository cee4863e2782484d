"""Invalid sizes of registers, counters, meters and pools of slots: refused at their place in the source."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import tna_program
import v1_program
from capabilities import need, tool

from ina import cli
from ina.aggregation import protocols
from ina.base import paths
from ina.base.settings import ConfigError
from ina.lab.kinds.allreduce import AllReduce
from ina.p4.compiler import frontend
from ina.p4.compiler.errors import CompileError

V1MODEL = ["register<bit<32>>(%s) cells;", "counter(%s, CounterType.packets) cells;", "meter(%s, MeterType.bytes) cells;"]
TNA = ["Register<bit<32>, bit<8>>(%s) cells;", "Register<bit<32>, bit<8>>(%s, 7) cells;", "Lpf<bit<8>, bit<8>>(%s) cells;",
       "Counter<bit<32>, bit<8>>(%s, CounterType_t.PACKETS) cells;", "Meter<bit<8>>(%s, MeterType_t.BYTES) cells;",
       "Wred<bit<8>, bit<8>>(%s, 1, 0) cells;"]
PROGRAMS = [(v1_program, text) for text in V1MODEL] + [(tna_program, text) for text in TNA]


def loaded(folder: Path, text: str) -> frontend.CheckedProgram:
    (folder / "sizes.p4").write_text(text)
    return frontend.load(folder / "sizes.p4")


@pytest.mark.fast
@pytest.mark.parametrize(("program", "text"), PROGRAMS, ids=[text.partition("(")[0] for _, text in PROGRAMS])
def test_arrays_have_a_cell(tmp_path, program, text):
    """The message points at the size, also if it comes from a macro or constant; -1 is a large bit<32>, and of a number
    beyond that no bit is dropped first."""
    for size, number in (("0", 0), ("-1", 2**32 - 1), ("2 * NONE", 0), ("1099511627776", 2**40), ("4294967297", 2**32 + 1),
                         ("1 * (1 << 40)", 2**40)):
        source = program.source(types="const bit<32> NONE = 0;", ingress_locals="\n" + text % size)
        with pytest.raises(CompileError) as error:
            loaded(tmp_path, source)
        line = 1 + source[: source.index(text % size)].count("\n")
        column = 1 + text.index("%s") + (2 if "*" in size else 0)
        first, *_ = str(error.value).splitlines()
        assert first.startswith(f"{tmp_path}/sizes.p4:{line}:"), first
        assert "cells' is" in first and first.endswith(f" is {number}: expected 1 to 2147483647"), first
        assert "*" in size or f":{line}:{column}: error" in first, first
    loaded(tmp_path, program.source(ingress_locals=text % "1"))


@pytest.mark.fast
def test_the_size_that_a_control_was_given(tmp_path):
    """A size from a constructor parameter is known only for the instance."""
    inner = "control Inner(inout headers_t hdr)(bit<32> n) { register<bit<32>>(n) cells; apply { cells.write(0, 1); } }"
    for size in (4, 0):
        text = v1_program.source("inner.apply(hdr);", ingress_locals=f"Inner({size}) inner;")
        text = text.replace("parser P(", inner + "\nparser P(", 1)
        if size:
            loaded(tmp_path, text)
        else:
            with pytest.raises(CompileError, match="the size of the register '.*inner.cells' is 0"):
                loaded(tmp_path, text)


@pytest.mark.fast
def test_an_extern_of_ones_own_may_be_called_register(tmp_path):
    """p4c's issue3417: the program has an architecture of its own, so this is no array of cells."""
    loaded(tmp_path, """#include <core.p4>
extern Register<T> { Register(bit<32> size); }
control c() { Register<bit<8>>(0) r; apply {} }
control simple();
package top(simple s);
top(c()) main;
""")


@pytest.mark.build
@pytest.mark.parametrize("program", [*(f"{name}.p4" for name in protocols.names()), "tofino/switchml.p4", "tofino/atp.p4"])
@pytest.mark.parametrize("slots", ["0", "-4", "3", "32768", "many", ""])
def test_slots_are_a_power_of_two(program, slots, capsys):
    assert cli.main(["compile", str(paths.p4_dir() / program), "-D", "VALUES=32", "-D", f"SLOTS={slots}"]) == 1
    errors = capsys.readouterr().err
    assert "size.p4:" in errors and ("SLOTS must be a power of two from 1 to 16384" in errors or not slots), errors


@pytest.mark.hardware
def test_p4c_refuses_the_same_slots(tmp_path):
    need("p4c")
    for slots, status in (("0", 1), ("3", 1), ("4", 0)):
        call = [tool("INA_P4C", "p4c-bm2-ss"), "--Wdisable", "-DVALUES=32", f"-DSLOTS={slots}", "-o", tmp_path / "o.json",
                paths.p4_dir() / "switchml.p4"]
        process = subprocess.run(call, capture_output=True, text=True, check=False)
        assert process.returncode == status, process.stderr
        assert not status or "SLOTS must be a power of two" in process.stderr


@pytest.mark.fast
def test_a_pool_of_an_experiment_has_a_slot():
    with pytest.raises(ConfigError, match="pool = 0: expected 1 or more"):
        AllReduce(protocol="atp", pool=0, slots=64)
