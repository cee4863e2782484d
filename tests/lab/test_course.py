"""The course: every solution passes, every skeleton and every mutant of a solution fails, and messages help a student."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import os
import re
import shutil
from pathlib import Path

import pytest
from capabilities import need
from course_mutants import Mutant, mutants

from ina import cli
from ina.base import manifest
from ina.lab.course import cases, check, frames, step, virtual, walks
from ina.p4.compiler.build import compile_program
from ina.p4.compiler.frontend import load
from ina.p4.tools import stf

STEPS = {each.name: each for each in step.steps()}
EVERY = pytest.mark.parametrize("name", STEPS)

# Mutants that no check can tell from the solution, by step and by the pattern of their names: with the reason.
LANES = ("versions", "loss", "multicast", "tree")
EQUIVALENT: dict[tuple[str, str], str] = {
    **{(name, r"-> .*if \(operation >= READ\)"): "READ is the largest number of an operation" for name in LANES},
    **{(name, r"-> .*\((row|slot) & 0xf\)"): "slots of 4 and more are dropped" for name in ("add", "versions", "loss")},
    ("add", r"-> .*\(slot & 0x3\)"): "slots of 4 and more are dropped",
    **{(name, r"-> .*(\(count( \+ 1\))? & 0x|count \|\+\|)"): "a count is 2 at most" for name in ("add", "versions")},
    **{(name, r"-> .*count >= WORKERS"): "a count is 2 at most" for name in ("add", "versions")},
    ("loss", r"-> .*\(bitmap & 0x"): "a bitmap is 3 at most",
    ("loss", r"-> .*bitmap >= ALL"): "a bitmap is 3 at most",
    ("loss", r"-> .*<< \(hdr.sum.worker & 0x"): "workers of 2 and more are dropped",
    **{(name, r"hdr.sum.job & 8w0x"): "jobs of 4 and more are dropped" for name in LANES[2:]},
    **{(name, r"-> .*bitmap (>=|<) workers"): "a bitmap has no bit that its job's has not" for name in LANES[2:]},
    ("tree", r"-> .*(finished|leaf) >= 1\)"): "it has one bit",
    ("forward", r"-> .*hops \|-\| 1"): "a frame with hops 0 is dropped",
    ("count", r"-> .*\|\+\| 1"): "nothing is said of what comes after 2^32 contributions",
    ("count", r"-> .*\(port & 0xf\)"): "ports of 8 and more have no cells",
    **{(name, r"const bit<2> READ = 2;.* READ = 3;"): "any number but STORE and ADD will do" for name in LANES},
    **{(name, r": operation = STORE; -> nothing"): "the operation is undefined then, and a switch that begins with 0 stores"
       for name in LANES[1:]},
    **{(name, r"-> bit<32> row = .*job\[2:0\]"): "jobs of 4 and more are dropped: the bit more is 0" for name in LANES[2:]},
    **{(name, r": default_action = NoAction"): "a table without a default action does nothing, too" for name in LANES[2:]},
    ("multicast", r"^65: return; -> nothing"): "without an entry the bitmap of workers is undefined: 0 has nobody",
    ("tree", r"^76: return; -> nothing"): "without an entry the bitmap of workers, and `leaf`, are undefined: 0 has nobody",
    ("tree", r"^49: leaf = 0; -> nothing"): "it is undefined then, and a switch that begins with 0 is a root",
    ("tree", r"^100: .*-> .*(else if \(true\)|bitmap [<>]= |bitmap & )"):
        "a sum that is not complete is read, changed by nothing, and sent to nobody",
}
# Wrong programs: a step's solution, and what is written in the place of something in it.
CUT = "hdr.sum.block{0} != block{0}"
NARROW = [(("hdr.sum.block != block", CUT.format(f"[{bit}:0]")),) for bit in (3, 7, 11)]
SATURATING = (("value + sum", "value |+| sum"),)
SMALL = [(("register<bit<32>>(8)", f"register<bit<{bits}>>(8)"), ("bit<32> here", f"bit<{bits}> here"),
          ("v0 = here", "v0 = (bit<32>)here")) for bits in (4, 8)]
WRONG: list[tuple[str, tuple[tuple[str, str], ...]]] = [
    *((name, change) for name in ("loss", "multicast", "tree") for change in [*NARROW, SATURATING]),
    ("loss", (("hdr.sum.worker >= WORKERS", "hdr.sum.worker[3:0] >= 2"),)),
    *((name, (("hdr.sum.slot >= SLOTS", "hdr.sum.slot[5:0] >= 4"),)) for name in ("add", "loss")),
    ("add", (("hdr.sum.kind != CONTRIBUTION", "hdr.sum.kind & 0x3f != CONTRIBUTION"),)),
    ("count", (("== QUESTION", ">= QUESTION"),)),
    *(("count", change) for change in SMALL),
    ("forward", (("standard.egress_spec == standard.ingress_port", "standard.egress_spec[2:0] == standard.ingress_port[2:0]"),)),
    ("forward", (("hdr.sum.isValid()", "hdr.sum.isValid() && hdr.sum.kind <= 2"),)),
]
GATE = 2  # mutants of each step that run on each change


@functools.cache
def all_mutants(name: str) -> list[Mutant]:
    return list(mutants(STEPS[name].solution.read_text(), (step.COURSE / "course.p4").read_text()))


def verdict(name: str, text: str, folder) -> check.Verdict:
    """Checks a program's text in this process."""
    program = folder / f"{name}.p4"
    program.write_text(text)
    return check.check(STEPS[name], program)


def surviving(name: str, chosen: list[Mutant], folder) -> list[str]:
    return [mutant.name for mutant in chosen if verdict(name, mutant.text, folder).verdict == check.PASS]


def is_equivalent(name: str, mutant: Mutant) -> bool:
    return any(name == where and re.search(pattern, mutant.name) for where, pattern in EQUIVALENT)


@pytest.mark.build
@EVERY
def test_a_solution_passes_and_its_skeleton_fails_with_words_that_help(name, tmp_path):
    need("cc")
    solved = verdict(name, STEPS[name].solution.read_text(), tmp_path)
    assert solved.verdict == check.PASS and not solved.message, "\n".join(check.lines(name, solved))
    assert all("not all of them" not in result.note for result in solved.results)
    begun = verdict(name, STEPS[name].skeleton.read_text(), tmp_path)
    assert begun.verdict == check.FAIL
    first = next(result for result in begun.results if not result.passed)
    text = "\n".join(check.lines(name, begun))
    assert first.hint and first.hint in text and first.place in text and "expected" in text and "got" in text
    assert "step by step:" in text and "ingress (normal)" in text


@pytest.mark.fast
@EVERY
def test_packet_tests_are_stf_for_any_switch(name):
    """Students can run them with `ina stf`, and teachers on other switches; here on the interpreter."""
    for path in STEPS[name].tests:
        assert stf.run(STEPS[name].solution, path, "interpreter", stf.Options({}, [step.COURSE])) == ("pass", ""), path


@pytest.mark.fast
@EVERY
def test_every_packet_has_words_and_a_hint(name):
    for path in STEPS[name].tests:
        case = cases.load(path)
        assert all(exchange.words and exchange.hint for exchange in case.exchanges if exchange.frame), path
    assert "TODO" in STEPS[name].skeleton.read_text() and "TODO" not in STEPS[name].solution.read_text()
    for program in (STEPS[name].skeleton, STEPS[name].solution):
        assert step.step_of(program, program.read_text()) == STEPS[name]


@pytest.mark.fast
@pytest.mark.parametrize(("name", "changes"), WRONG)
def test_a_wrong_program_fails(name, changes, tmp_path):
    """On the interpreter, by its packets alone."""
    text = STEPS[name].solution.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    program = tmp_path / f"{name}.p4"
    program.write_text(text)
    options = stf.Options({}, [step.COURSE])
    verdicts = [stf.run(program, path, "interpreter", options) for path in STEPS[name].tests]
    assert any(verdict == "FAIL" or "does not fit bit<" in message for verdict, message in verdicts), verdicts


@pytest.mark.build
def test_a_parser_without_an_end_is_told_although_it_drops_what_it_should(tmp_path):
    need("cc")
    text = STEPS["parse"].solution.read_text().replace("default: accept;", "default: other;")
    text = text.replace("    state sum {", "    state other { transition other; }\n    state sum {")
    endless = verdict("parse", text, tmp_path)
    (result,) = (each for each in endless.results if not each.passed)
    assert endless.verdict == check.FAIL and "the program has no end with this packet" in "\n".join(result.details)
    assert max(map(len, result.trace)) <= cases.LONGEST + 4


@pytest.mark.build
@EVERY
def test_some_mutants_of_a_solution_fail(name, tmp_path):
    """Those at equal distances in the program."""
    need("cc")
    chosen = [mutant for mutant in all_mutants(name) if not is_equivalent(name, mutant)]
    chosen = chosen[len(chosen) // (2 * GATE) :: len(chosen) // GATE][:GATE]
    assert len(chosen) == GATE and surviving(name, chosen, tmp_path) == []


@pytest.mark.build
@pytest.mark.judge
@EVERY
def test_all_mutants_of_a_solution_fail(name, tmp_path):
    need("cc")
    compiled, survivors = 0, []
    for mutant in all_mutants(name):
        outcome = verdict(name, mutant.text, tmp_path).verdict
        compiled += outcome != check.REFUSED
        if (outcome == check.PASS) != is_equivalent(name, mutant):
            survivors.append(mutant.name)
    assert survivors == [] and compiled >= 20, f"{compiled} mutants compile"


@pytest.mark.fast
def test_each_exception_from_the_mutants_has_its_mutant():
    for name, pattern in EQUIVALENT:
        assert any(re.search(pattern, mutant.name) for mutant in all_mutants(name)), (name, pattern)


@pytest.mark.fast
def test_a_package_has_skeletons_and_no_solutions():
    carried = {path for pattern in manifest.BESIDE["ina/lab/course"] for path in step.COURSE.glob(pattern)}
    for each in STEPS.values():
        assert {each.skeleton, *each.tests, each.skeleton.with_name("step.toml")} <= carried and each.solution not in carried


@pytest.mark.fast
def test_steps_are_numbered_from_1():
    assert [each.number for each in STEPS.values()] == list(range(1, len(STEPS) + 1))


@pytest.mark.fast
def test_the_format_is_the_one_of_the_p4_file():
    text = (step.COURSE / "course.p4").read_text()
    parts = {"ethernet_t": "ethernet", "sum_t": "sum", "values_t": "values"}
    fields = [(f"{part}.{field}", int(bits)) for header, part in parts.items()
              for bits, field in re.findall(r"bit<(\d+)>\s+(\w+);", re.search(rf"header {header} {{(.*?)}}", text, re.S)[1])]
    assert fields == [tuple(field) for field in frames.FORMAT]
    parse = STEPS["parse"].solution.read_text()
    assert all(re.search(rf"header {header} {{.*?}}", text, re.S)[0] in parse for header in parts)


FRAME = bytes.fromhex("020000000100 020000000001 88b5 01040800 010b1234 00000001 00000002 00000003 fffffffe")


@pytest.mark.fast
@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({}, []),
        ({28: 0xFF}, ["values.v1: expected 2, got 65282"]),
        ({14: 2}, ["sum.kind: expected 1 (contribution), got 2 (result)"]),
        ({19: 0x0A}, ["sum.version: expected 1, got 0"]),
        ({19: 0x0D}, ["sum.slot: expected 5, got 6"]),
        ({5: 7, 13: 0xB4}, ["ethernet.dst: expected 0x020000000100, got 0x020000000107",
                            "ethernet.type: expected 0x88b5, got 0x88b4"]),
        ({38: 9}, ["length: expected 38 bytes, got 39"]),
    ],
)
def test_fields_that_differ_are_named(change, lines):
    frame = bytearray(FRAME)
    for at, value in change.items():
        frame[at : at + 1] = bytes([value])
    assert frames.differences(FRAME.hex() + "$", bytes(frame)) == lines


@pytest.mark.fast
def test_what_a_pattern_leaves_open_does_not_differ():
    digits = FRAME.hex()
    pattern = "*" * 24 + digits[24:36] + "**" + digits[38:40]
    assert frames.differences(pattern, bytes(12) + FRAME[12:18] + b"\x07" + FRAME[19:]) == []
    assert frames.differences(digits + "aabb", FRAME + b"\xaa\xbc") == ["byte 39: expected bb, got bc"]
    assert frames.differences(digits[:48], FRAME[:10]) == ["length: expected 24 bytes, got 10"]


@pytest.mark.fast
def test_an_unknown_step_lists_what_there_is(capsys):
    assert cli.main(["exercise", "show", "pars"]) == 2
    error = capsys.readouterr().err
    assert "no step 'pars'" in error and "'parse'?" in error and ", ".join(STEPS) in error
    assert cli.main(["exercise", "new", "nothing"]) == 2
    assert ", ".join(STEPS) in capsys.readouterr().err


@pytest.mark.fast
@EVERY
def test_list_and_show_have_every_step(name, capsys):
    assert cli.main(["exercise", "list"]) == 0
    assert f"{STEPS[name].number}. {name} " in capsys.readouterr().out
    assert cli.main(["exercise", "show", name]) == 0
    text = capsys.readouterr().out
    assert STEPS[name].task.strip() in text and all(walk.title in text for walk in STEPS[name].walks)
    assert text.count("  packets: ") == len(STEPS[name].tests)


@pytest.mark.fast
def test_new_writes_a_skeleton_once(tmp_path, capsys):
    folder = tmp_path / "class"
    assert cli.main(["exercise", "new", "forward", str(folder)]) == 0
    assert {path.name for path in folder.iterdir()} == {"forward.p4", "course.p4"}
    (folder / "forward.p4").write_text("my work")
    assert cli.main(["exercise", "new", "forward", str(folder)]) == 2
    assert "forward.p4 is there already" in capsys.readouterr().err
    assert (folder / "forward.p4").read_text() == "my work"


@pytest.mark.build
def test_a_folder_is_graded_as_csv(tmp_path, capsys):
    """One row each for what passes, fails, does not compile, and has no mark."""
    need("cc")
    solution = STEPS["parse"].solution.read_text()
    shutil.copy(STEPS["parse"].solution, tmp_path / "ada.p4")
    (tmp_path / "ben.p4").write_text(solution.replace("hdr.sum.kind = RESULT", "hdr.sum.kind = 9"))
    (tmp_path / "cem.p4").write_text(solution.replace("= RESULT;", "= RESLT;"))
    (tmp_path / "dan.p4").write_text(solution.replace("exercise: parse", ""))
    (tmp_path / "course.p4").write_bytes((step.COURSE / "course.p4").read_bytes())
    assert cli.main(["exercise", "check", str(tmp_path), "--csv"]) == 2
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["program"].rpartition("/")[2] for row in rows] == ["ada.p4", "ben.p4", "cem.p4", "dan.p4"]
    assert [row["verdict"] for row in rows] == ["pass", "FAIL", "refused", "stopped"]
    assert rows[0]["passed"] == rows[0]["tests"] == "3" and rows[0]["first"] == ""
    assert rows[1]["first"].startswith("A contribution comes back as a result (1-answer.stf:")
    line = solution[: solution.index("= RESULT;")].count("\n") + 1
    assert f"cem.p4:{line}:" in rows[2]["first"] and "RESLT" in rows[2]["first"]
    assert "exercise: NAME" in rows[3]["first"] and "--step" in rows[3]["first"]
    assert cli.main(["exercise", "check", str(tmp_path / "ada.p4")]) == 0
    assert cli.main(["exercise", "check", str(tmp_path / "ben.p4")]) == 1
    text = capsys.readouterr().out
    assert "sum.kind: expected 2 (result), got 9" in text and "hint: " in text


@pytest.mark.build
def test_an_endless_program_cannot_hang_a_check(tmp_path):
    """Each macro is twice the one before."""
    need("cc")
    doubled = "\n".join(f"#define M{i} M{i - 1} M{i - 1}" for i in range(1, 40))
    text = STEPS["parse"].solution.read_text()
    program = tmp_path / "endless.p4"
    macros = f"#define M0 hdr.sum.job = hdr.sum.job + 1;\n{doubled}\n#include <core.p4>"
    program.write_text(text.replace("#include <core.p4>", macros).replace("bit<48> address", "M39\n        bit<48> address"))
    outcome = check.judged(STEPS["parse"], program, 3)
    assert outcome.verdict == check.STOPPED and "no result within 3 s" in outcome.message


@pytest.mark.build
def test_a_program_that_asks_for_too_much_memory_is_stopped(tmp_path):
    need("cc")
    text = STEPS["count"].solution.read_text()
    program = tmp_path / "giant.p4"
    program.write_text(text.replace("register<bit<32>>(8)", "register<bit<32>>(2000000000)"))
    outcome = check.judged(STEPS["count"], program, 60)
    assert outcome.verdict == check.STOPPED and "needs more than 4 GiB of memory" in outcome.message


@pytest.mark.fast
def test_what_is_no_program_is_told(tmp_path):
    program = tmp_path / "long.p4"
    program.write_bytes(b"/" * (step.LONGEST + 1))
    with pytest.raises(step.StepError, match="longer than"):
        step.source(program)
    program.write_bytes(b"exercise: parse \xff")
    with pytest.raises(step.StepError, match="not UTF-8"):
        step.source(program)
    with pytest.raises(step.StepError, match="no step 'parsley'"):
        step.step_of(program, "// exercise: parsley\n")


@pytest.mark.fast
def test_a_pipe_or_a_device_is_told_and_not_waited_for(tmp_path, capsys):
    pipe = tmp_path / "parse.p4"
    os.mkfifo(pipe)
    (tmp_path / "folder.p4").mkdir()
    for path in (pipe, Path("/dev/zero"), tmp_path / "folder.p4"):
        with pytest.raises(step.StepError, match=re.escape(f"{path}: a folder, a device, a pipe or a socket: expected a file")):
            step.source(path)
    assert cli.main(["exercise", "check", str(pipe)]) == 2
    assert "expected a file with a program" in capsys.readouterr().out


@pytest.mark.build
def test_an_included_pipe_or_device_is_named(tmp_path):
    need("cc")
    os.mkfifo(tmp_path / "pipe.p4")
    text = STEPS["parse"].solution.read_text()
    for name in ("/dev/zero", "pipe.p4"):
        outcome = verdict("parse", f'#include "{name}"\n{text}', tmp_path)
        assert outcome.verdict == check.REFUSED and "parse.p4:1:1: error" in outcome.message
        assert f"include file '{name}' is a device, a pipe or a socket" in outcome.message


@pytest.mark.build
@pytest.mark.parametrize("name", ['a"b', '"', "a\\b", "two\nlines"])
def test_a_file_may_have_any_name(name, tmp_path):
    need("cc")
    folder = tmp_path / name
    folder.mkdir()
    text = STEPS["parse"].solution.read_text()
    assert verdict("parse", text, folder).verdict == check.PASS
    wrong = verdict("parse", text.replace("= RESULT;", "= RESLT;"), folder)
    line = text[: text.index("= RESULT;")].count("\n") + 1
    assert wrong.message.startswith(f"{folder}/parse.p4:{line}:24: error") and "hdr.sum.kind = RESLT;" in wrong.message


@pytest.mark.build
def test_a_changed_course_file_and_changed_names_are_told(tmp_path):
    need("cc")
    text = STEPS["forward"].solution.read_text()
    (tmp_path / "course.p4").write_text("// mine\n")
    changed = verdict("forward", text, tmp_path)
    assert changed.verdict == check.REFUSED and "course.p4 is not the course's" in changed.message
    (tmp_path / "course.p4").unlink()
    renamed = verdict("forward", text.replace("hosts", "addresses"), tmp_path)
    details = "\n".join(renamed.results[0].details)
    assert renamed.verdict == check.FAIL and "keep the names that the skeleton has" in details and "addresses" in details


@pytest.mark.build
def test_what_a_program_lacks_is_told_when_it_is_needed_and_not_before(tmp_path):
    need("cc")
    text = STEPS["count"].solution.read_text()
    renamed = verdict("count", text.replace("total", "sum_of_all"), tmp_path)
    assert renamed.results[0].place == "1-contributions.stf:39" and "sum_of_all" in "\n".join(renamed.results[0].details)
    both = verdict("count", text.replace("total", "sum_of_all").replace("here + 1", "here + 2"), tmp_path)
    assert "values.v0: expected 1, got 2" in "\n".join(both.results[0].details) and both.results[0].trace


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("number = 1\n", "no key"),
        ('number = "1"\ntitle = "a"\nminutes = 1\nabout = ""\ntask = ""\n', "step.toml:1: number: expected int, got '1'"),
        ('number = 1\ntitle = "a"\nminutes = 1\nabout = ""\ntask = ""\nnmae = 1\n', "step.toml:6: unknown key 'nmae'"),
        ('number = 1\ntitle = "a"\nminutes = 1\nabout = ""\ntask = ""\n', "expected skeleton.p4 and packet tests"),
    ],
)
def test_a_step_whose_files_are_wrong_is_an_error(tmp_path, text, message):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "step.toml").write_text(text)
    with pytest.raises(step.StepError, match=re.escape(message)):
        step.steps(tmp_path)


# The published rule of SwitchML (NSDI'21, section 3.5): a bit for the version; a worker's bit in the other version is cleared.
ONE_BIT = """
        bit<8> count;
        bit<8> others;
        arrived.read(count, row);
        seen.read(others, row ^ 1);
        if (bitmap & mine == 0) {
            operation = count == 0 ? STORE : ADD;
            bitmap = bitmap | mine;
            count = count + 1 == WORKERS ? 8w0 : count + 1;
            arrived.write(row, count);
            seen.write(row ^ 1, others & ~mine);
            if (count == 0) {
                hdr.sum.kind = RESULT;
                standard.mcast_grp = 1;
            }
        } else if (count == 0) {
            operation = READ;
            hdr.sum.kind = RESULT;
            standard.egress_spec = standard.ingress_port;
        } else {
            return;
        }
        seen.write(row, bitmap);
"""


@pytest.mark.build
def test_a_walk_finds_the_late_copy_that_a_version_bit_cannot_tell(tmp_path):
    """The same program is right where nothing is lost, so the step before takes it for granted."""
    need("cc")
    text = STEPS["loss"].solution.read_text()
    start, end = text.index("        if (bitmap == 0 ||"), text.index("        lane0.apply(")
    text = text[:start] + ONE_BIT + text[end:]
    program = tmp_path / "bit.p4"
    counted = "register<bit<8>>(256) arrived;"
    program.write_text(text.replace("register<bit<16>>(256) blocks;", f"register<bit<16>>(256) blocks; {counted}"))
    compiled = compile_program(program, include_dirs=[step.COURSE], cflags=["-O1"])
    (walk,) = STEPS["loss"].walks
    report = walks.run(walk, compiled)
    assert report.violation and "gets a wrong sum of block" in report.violation
    sent = [each for each in report.steps if "contribution of" in each]
    assert len(sent) > len(set(sent)), "a copy that comes late is among the steps"
    assert walks.run(dataclasses.replace(walk, faults=False), compiled).violation is None
    lines = "\n".join(walks.traced(walk, report, load(program, include_dirs=[step.COURSE]))).split("step ")[1:]
    places = [number for number, text in enumerate(report.steps, 1) if text.endswith("to s1")]
    assert [int(each.split(",")[0]) for each in lines] == places and len(places) < len(report.steps)
    late, wrong = lines[-2:]  # the copy of block 0 clears worker 0's bit of block 1, whose contribution is then added twice
    assert "contribution of block 0" in late and "register Add.seen[1] = 0 (was 1)" in late
    assert "contribution of block 1" in wrong and "cell 1 = 0x200 0x400 0x600 0x800 (were 0x100 0x200 0x300 0x400)" in wrong
    # The interpreter has done what the compiled switch did: the wrong sum leaves.
    assert re.search(r"out of port 1: 38 bytes.*\n +[0-9a-f]{44}00000200000004000000060000000800$", wrong, re.MULTILINE)


@pytest.mark.build
def test_a_check_shows_what_each_switch_of_a_wrong_walk_remembered(tmp_path):
    """A leaf that adds a repeated contribution to its partial sum passes the packet tests here, and has a wrong walk."""
    need("cc")
    each = STEPS["tree"]
    program = tmp_path / "tree.p4"
    text = each.solution.read_text()
    assert "bitmap & mine == 0" in text
    program.write_text(text.replace("bitmap & mine == 0", "true"))
    result = next(result for result in check.check(dataclasses.replace(each, tests=[]), program).results if not result.passed)
    assert "gets a wrong sum" in result.details[0] or "does not finish" in result.details[0]
    assert any(re.match(r"step \d+, into port \d of s1: contribution", line) for line in result.trace)
    assert any(re.search(r"register \S+\[\w+\] (is|=) ", line) for line in result.trace)
    shown = "\n".join(check.lines("tree.p4", check.Verdict("tree", check.FAIL, results=[result])))
    assert "        step by step:\n          step 1, into port " in shown


@pytest.mark.build
def test_a_walk_tells_a_frame_to_nobody_and_a_job_that_never_ends(tmp_path):
    need("cc")
    (walk,) = STEPS["loss"].walks
    nobody = dataclasses.replace(walk, switches={"s1": walk.switches["s1"].replace("0 1 2", "0 1 2 3")})
    compiled = compile_program(STEPS["loss"].solution, include_dirs=[step.COURSE], cflags=["-O1"])
    with pytest.raises(ValueError, match="s1 sends to port 3, which has no wire: result of block 0"):
        walks.run(nobody, compiled)
    program = tmp_path / "deaf.p4"  # a lost result is never answered again
    program.write_text(STEPS["loss"].solution.read_text().replace("standard.egress_spec = standard.ingress_port;", ""))
    report = walks.run(walk, compile_program(program, include_dirs=[step.COURSE], cflags=["-O1"]))
    assert report.violation and "does not finish" in report.violation


RUNS = [(name, place) for name, each in STEPS.items() for place, walk in enumerate(each.walks) if walk.run]


@pytest.mark.build
@pytest.mark.parametrize(("name", "place"), RUNS)
def test_a_run_in_virtual_time_ends_with_right_sums_whatever_is_lost(name, place):
    need("cc")
    walk = STEPS[name].walks[place]
    compiled = compile_program(STEPS[name].solution, include_dirs=[step.COURSE], cflags=["-O1"])
    outcomes = [virtual.run(walk, compiled, seed) for seed in (1, 1, 2)]
    workers = sum(":" not in end for wire in walk.wires for end in wire)
    for outcome in outcomes:
        assert not outcome.problem and not outcome.trace
        # Each result took a frame to each worker, and a contribution of each.
        assert outcome.frames > 2 * workers * virtual.BLOCKS and outcome.lost > outcome.frames / 20
        assert outcome.time > virtual.AGAIN / 1e12
    assert outcomes[0] == outcomes[1] != outcomes[2]


@pytest.mark.fast
def test_every_step_that_recovers_from_loss_has_a_run():
    assert [name for name, each in STEPS.items() if any(walk.faults for walk in each.walks)] == list(dict(RUNS))
    assert all(bool(walk.run) == walk.faults for each in STEPS.values() for walk in each.walks)


@pytest.mark.build
@pytest.mark.parametrize(("change", "problem"), [
    (("standard.egress_spec = standard.ingress_port;", ""), "w0 still waits for the result of block 32642, after 0.100 s"),
    (("hdr.sum.kind = RESULT;\n            standard.egress", "standard.egress"), "a frame that is no result: contribution of"),
    (("bitmap & mine == 0", "true"), "a wrong sum of block"),
])
def test_a_run_tells_what_went_wrong_first_and_the_frames_before(change, problem, tmp_path):
    need("cc")
    (walk,) = STEPS["loss"].walks
    text = STEPS["loss"].solution.read_text()
    assert text.count(change[0]) == 1
    program = tmp_path / "wrong.p4"
    program.write_text(text.replace(*change))
    outcome = virtual.run(walk, compile_program(program, include_dirs=[step.COURSE], cflags=["-O1"]))
    assert problem in outcome.problem and 0 < len(outcome.trace) <= virtual.SHOWN
    assert all(re.match(r" *\d+\.\d us  w[01] (sends|gets) ", line) for line in outcome.trace)


@pytest.mark.build
def test_a_run_is_not_begun_before_packets_and_walks_are_right(tmp_path):
    need("cc")
    text = STEPS["loss"].solution.read_text().replace("hdr.sum.block != block", "hdr.sum.block[3:0] != block[3:0]")
    results = verdict("loss", text, tmp_path).results
    assert [result.passed for result in results] == [True, False, True, False, False]
    assert results[-1].note == results[-2].note == "not run: what comes before first"
