"""`ina protocol new`: what it writes is right in every world, and examples/maximum and examples/majority are that."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import tomllib
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pytest
from folders import files

from ina import cli
from ina.aggregation import protocols, skeleton
from ina.base import paths
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.loaded_program import Program
from ina.topology import specified
from ina.worlds.virtual.explorable import Tensor, job

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PORTS = {"maximum": 0xBEC2, "majority": 0xBEC3}
EXAMPLES = pytest.mark.parametrize("name", PORTS)


def majority(values: tuple[int, ...]) -> int:
    """The oracle: counts votes one by one; zeros do not vote, and a tie gives 0."""
    votes = Counter("+" if value > 0 else "-" for value in values if value)
    return 1 if votes["+"] > votes["-"] else -1 if votes["-"] > votes["+"] else 0


ORACLES = {"maximum": (max, protocols.MAX), "majority": (majority, protocols.OWN)}
EXTREMES = (-(2**31), -1, 0, 1, 2**31 - 1)


def walk(program: str, name: str, workers: int, numbers: tuple[int, ...]) -> str | None:
    """Walks every interleaving of a job whose elements are all combinations of the workers' ``numbers``, which one packet has
    room for; whatever is lost, late or repeated. Returns the violation."""
    oracle, reduction = ORACLES[name]
    columns = list(itertools.product(numbers, repeat=workers))
    assert len(columns) <= 32
    rows = np.array(columns, np.int32).T
    right = np.array([oracle(column) for column in columns], np.int32)
    work = [[Tensor(np.ascontiguousarray(row), right, reduction=reduction)] for row in rows]
    built = compile_program(program, defines={"VALUES": "32", "JOBS": "1"}, include_dirs=[paths.p4_dir()])
    explorer = job(Program(built.so_path), specified(f"star hosts={workers}"), slots=1, protocol=program, work=work)
    report = explorer.saturate()
    assert report.complete or report.violation
    return report.violation


@pytest.mark.build
@EXAMPLES
def test_an_example_is_what_the_command_writes(name):
    made = skeleton.texts(name, Path("examples") / name, name, PORTS[name])
    assert {path.name: path.read_text() for path in files(ROOT / "examples" / name, "*")} == made


@pytest.mark.build
@pytest.mark.parametrize(("suffix", "own"), [
    (".c", ["    uint8_t reserved;", "    f->reserved = 0;", "    .reductions = 1 << INA_SUM,"]),
    (".p4", ["    bit<8>  reserved;", "#define STORE(i) value##i.write(meta.row, hdr.values.v##i);",
             "#define ADD(i) { bit<32> old; value##i.read(old, meta.row); value##i.write(meta.row, old + hdr.values.v##i); }",
             "            FOR_EACH_VALUE(ADD)", "#define LOAD(i) value##i.read(hdr.values.v##i, meta.row);"]),
    (".py", []),
])
def test_lockstep_is_what_the_command_writes_less_the_operation(suffix, own):
    """Sums need no kind of values in the packet, and take floats: each other line is the same in both, but for comments."""
    made = skeleton.texts("lockstep", Path("examples/lockstep"), "maximum", 0xBEC0)[f"lockstep{suffix}"].splitlines()
    example = (ROOT / "examples" / "lockstep" / f"lockstep{suffix}").read_text().splitlines()
    changes = [change for change in SequenceMatcher(None, made, example, autojunk=False).get_opcodes() if change[0] != "equal"]
    assert [line for *_, begin, end in changes for line in example[begin:end]
            if not line.startswith(("/*", " *", '"""'))] == own
    about = re.compile("kind|reduce|result|operation|largest|numpy|INT32|INA_MAX", re.IGNORECASE)
    assert all(about.search("\n".join(made[begin:end])) for _, begin, end, *_ in changes)


@pytest.mark.build
@pytest.mark.parametrize(("name", "workers", "numbers"), [
    ("maximum", 2, EXTREMES), ("maximum", 3, (-(2**31), 0, 2**31 - 1)),
    ("majority", 2, EXTREMES), ("majority", 3, (-7, 0, 2**31 - 1)),
])
def test_every_combination_of_values_is_right_in_every_interleaving(name, workers, numbers):
    assert walk(str(ROOT / "examples" / name / f"{name}.p4"), name, workers, numbers) is None


@pytest.mark.build
@pytest.mark.parametrize(("name", "change"), [
    ("maximum", ("(int<32>)row > (int<32>)value", "row > value")),
    ("maximum", ("reduced ? NEXT(old, hdr.values.v##i) : old", "reduced ? NEXT(old, old) : old")),
    ("majority", ("value == 0 ? 32w0", "value == 0 ? 32w1")),
    ("majority", ("row + SIGN(value)", "row + value")),
    ("majority", ("#define RESULT(row) SIGN(row)", "#define RESULT(row) row")),
    ("majority", ("bool repeated = !fresh &&", "bool repeated = seen == meta.full &&")),  # counts a repeated vote again
])
def test_a_wrong_operation_is_found(name, change, tmp_path):
    skeleton.write(name, tmp_path, name)
    program = tmp_path / f"{name}.p4"
    before, after = change
    assert before in program.read_text()
    program.write_text(program.read_text().replace(before, after))
    assert walk(str(program), name, 2, EXTREMES) is not None


@pytest.mark.build
def test_a_protocol_of_any_name_works_in_any_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["protocol", "new", "my_own2"]) == 0
    written = sorted(capsys.readouterr().out.split())
    assert written == sorted(f"my_own2/{name}" for name in ("README.md", "my_own2.c", "my_own2.p4", "my_own2.py", "my_own2.toml",
                                                            "test_my_own2.py"))
    assert not any("@" in line.replace("@ina_program", "") for path in written for line in Path(path).read_text().splitlines())
    assert cli.main(["explore", "--protocol", "my_own2/my_own2.p4", "--first", "0"]) == 0
    assert cli.main(["experiment", "run", "my_own2/my_own2.toml", "--results", "results", "--processes", "1"]) == 0


@pytest.mark.build
def test_ports_are_also_taken_in_hexadecimal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["protocol", "new", "mine", "--port", "0xbec9"]) == 0
    assert "const bit<16> MINE_PORT = 0xBEC9;" in Path("mine/mine.p4").read_text()
    assert "udp_port = 0xBEC9" in Path("mine/mine.py").read_text()
    for text in ("0xports", "BEC9", "", "9" * 5000):
        with pytest.raises(SystemExit):
            cli.main(["protocol", "new", "other", "--port", text])
        assert f"{text!r}: expected a UDP port, such as 48841 or 0xBEC9" in capsys.readouterr().err
    for text in ("0", "0x3FF", "0x10000"):
        assert cli.main(["protocol", "new", "other", "--port", text]) == 2
        assert f"ina: --port {int(text, 0)}: expected 1024 to 65535, a UDP port of its own" in capsys.readouterr().err
    assert not Path("other").exists()


@pytest.mark.build
@pytest.mark.parametrize("folder", ["my own", "it's", "𝕏", 'a"b\\c', "del\x7f", "tab\t"])
def test_the_experiment_and_the_readme_name_any_folder(folder):
    made = skeleton.texts("mine", Path(folder), "maximum")
    assert tomllib.loads(made["mine.toml"])["protocol"] == f"{folder}/mine.p4"
    line = next(line for line in made["README.md"].splitlines() if line.startswith("$ python "))
    assert shlex.split(line) == ["$", "python", f"{folder}/test_mine.py"]
    for command, file in (("experiment run", "mine.toml"), ("explore --protocol", "mine.p4")):
        assert f"`ina {command} {shlex.quote(f'{folder}/{file}')}`" in made["README.md"]


@pytest.mark.build
@pytest.mark.parametrize(("words", "message"), [
    (["Mine"], "NAME 'Mine': expected 1 to 31 small letters, digits and _, a letter first"),
    (["switchml"], "NAME 'switchml': a protocol of the package has it: expected another one"),
    (["none"], "NAME 'none': its class in Python would be None: expected another one"),
    *(([name], f"NAME {name!r}: its class in Python would be {shown}: expected another one") for name, shown in [
        ("none_", "None"), ("true_", "True"), ("false_", "False"), ("none__", "None"), ("table_entry", "TableEntry"),
        ("job_program", "JobProgram"), ("child", "Child"), ("p_r_o_g_r_a_m", "PROGRAM")]),
    *(([name], f"NAME {name!r}: {name}.py would hide the Python module of that name: expected another one") for name in [
        "random", "tempfile", "numpy", "ina", "pytest", "conftest", "cffi"]),
    *(([name], f"NAME {name!r} means something else in C (") for name in ["option", "tensors_init", "options_valid"]),
    (["mine", os.fsdecode(b"fi\xe9")], r"folder 'fi\udce9': expected a name in UTF-8"),
    (["mine", "--port", "48864"], "--port 48864 (0xBEE0): 0xBEE0 to 0xBEEF are ports of SwitchML, "),
    (["mine", "--port", "0xBEEF"], "--port 48879 (0xBEEF): 0xBEE0 to 0xBEEF are ports of SwitchML, "),
    (["mine", "--port", "0xBEF1"], "--port 48881 (0xBEF1): 0xBEF0 to 0xBEFF are ports of ATP"),
    (["mine", "--port", "0xBED0"], "--port 48848 (0xBED0): the port of the parameter server: expected another one"),
    (["headers"], "NAME 'headers' means something else in P4 ("),
    (["table"], "NAME 'table' means something else in P4 ("),
    (["mine", "--operation", "sum"], "--operation 'sum': expected one of maximum, majority; for sums begin with a copy of "
     "examples/lockstep (ina examples copy lockstep)"),
    (["mine", "file"], "file is a file: expected a folder, one that there is or a new one"),
    (["mine", "full"], "full/mine.p4: there already: expected a folder without it"),
])
def test_what_cannot_be_written_is_told(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    Path("full").mkdir()
    Path("full/mine.p4").write_text("mine")
    assert cli.main(["protocol", "new", *words]) == 2
    assert capsys.readouterr().err.startswith(f"ina: {message}")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "mine.p4"]
    assert Path("full/mine.p4").read_text() == "mine"
