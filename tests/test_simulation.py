"""Kills, restarts and lost memory in virtual time, over the compiled program, the real workers and the real controller; and the
simulator itself, which must find every defect that is planted into a copy of what it runs."""

import importlib.util
import re
import shutil
import sys
from dataclasses import dataclass

import pytest
from capabilities import need

from ina import cli, paths
from ina.compiler.build import compile_program
from ina.control.controller import Controller
from ina.emulator.simulation import POOL, VALUES, Report, Simulation
from ina.switch.program import Program

need("cc")
DEFINES = {"VALUES": str(VALUES), "SLOTS": str(POOL)}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def program():
    return Program(compile_program(paths.p4_dir() / "switchml.p4", defines=DEFINES).so_path)


def simulate(program, seed: int, events: int = 20_000, controller=Controller) -> Report:
    simulation = Simulation(program, seed, controller)
    try:
        return simulation.run(events)
    finally:
        simulation.close()


@pytest.mark.parametrize("seed", range(1, 9))
def test_no_kill_no_restart_and_no_lost_state_makes_a_wrong_sum_or_leaks(program, seed):
    report = simulate(program, seed)
    assert report.violation is None, report
    assert report.events >= 20_000 and report.tensors > 50
    assert {"switches killed", "workers killed", "controllers killed", "killed in a write", "lost states"} <= set(report.faults)


def test_the_command_says_what_was_done_and_names_the_seed(capsys, tmp_path):
    assert cli.main(["simulate", "--seed", "3", "--events", "3000", "--length", "2000"]) == 0
    assert re.search(r"seeds 3 to 4: [\d,]+ events, [\d,]+ sums.*\n.*\nno wrong sum", capsys.readouterr().out)
    copy = shutil.copytree(paths.p4_dir(), tmp_path / "p4")
    defect = PLANTS["a packet is added to any phase"]
    file = copy / "include" / defect.file
    file.write_text(file.read_text().replace(defect.old, defect.new))
    assert cli.main(["simulate", "--program", str(copy / "switchml.p4"), "--seed", "2", "--length", "5000"]) == 1
    assert re.match(r"seed (\d+): .*\n(.*\n)*again: ina simulate --seed \1 ", capsys.readouterr().out)


def test_a_seed_repeats_to_the_event(program):
    assert simulate(program, 3, 10_000) == simulate(program, 3, 10_000) != simulate(program, 4, 10_000)


@dataclass(frozen=True)
class Plant:
    """In ``file``, of p4/include/ or ina/control/, ``old`` becomes ``new``; ``found``: what a run says within ``seeds``."""

    file: str
    old: str
    new: str
    found: str
    seeds: int = 12


WRONG, LEAKED = "wrong sum|twice", "leaked"
PLANTS = {
    "rows of another incarnation are used": Plant("phase.p4", "incarnation == meta.incarnation && seen != 0", "seen != 0", "."),
    "late packets of an earlier life are taken": Plant("admission.p4", "(bit<8>)hdr.exponents.e1 != own_life", "false", "."),
    "a duplicate is added": Plant("phase.p4", "if (seen & meta.worker != 0)", "if (false)", "."),
    "an older packet takes a row": Plant("phase.p4", "(int<32>)(hdr.switchml.tsi - tsi) > 0", "true", "."),
    "a packet is added to any phase": Plant("phase.p4", "hdr.switchml.tsi != tsi", "false", "."),
    "the largest exponent is that of the first": Plant(
        "aggregation.p4", "meta.first == 1 || hdr.exponents.e0 > (int<8>)largest0", "meta.first == 1", WRONG),
    "the largest exponent is that of an earlier phase": Plant(
        "aggregation.p4", "meta.first == 1 || hdr.exponents.e0 > (int<8>)largest0", "hdr.exponents.e0 > (int<8>)largest0", WRONG),
    "overflows are not told": Plant(
        "aggregation.p4", "hdr.switchml.overflow = overflow[31:31];", "hdr.switchml.overflow = 0;", "overflow"),
    "overflows of an earlier phase are told": Plant(
        "aggregation.p4", "overflows.write(meta.row, (bit<32>)hdr.switchml.overflow << 31);", "", "overflow"),
    "maxima are added": Plant("aggregation.p4", "hdr.switchml.msg_type == SWITCHML_MAXIMUM", "false", WRONG),
    "all jobs have one incarnation": Plant(
        "lives.py", "            if incarnation not in self._taken:\n                return incarnation", "            return 1",
        "."),
    "each controller begins with the same incarnation": Plant(
        "lives.py", "self._next = chance.randint(1, MOST_INCARNATIONS)", "self._next = 1", "wrong sum|stuck"),
    "a job that ends keeps its entries": Plant("controller.py", "delete(*self._entries(job, branch))):\n", "[]):\n", LEAKED),
    "what a refused write left is not looked at": Plant("controller.py", "            self.unsure |= error.unsure\n", "", LEAKED),
    "a switch that did not answer is forgotten": Plant(
        "controller.py", "                self.unsure.add(branch.switch)\n", "                pass\n", LEAKED),
    "a new controller asks no switch": Plant(
        "controller.py", "        self.unsure = set(self.targets)\n        for switch", "        for switch", LEAKED),
    "slots are given twice": Plant(
        "controller.py", "all(base >= end or base + slots <= start for start, end in held)", "True", "held twice"),
    "a job's slots stay its own": Plant("controller.py", "job = self.jobs.pop(name, None)", "job = self.jobs.get(name)", "."),
}  # fmt: skip


def planted(plant: Plant, folder) -> tuple[Program, type]:
    """Program and controller, one of them of a copy with the defect."""
    source = (paths.p4_dir() / "include" if plant.file.endswith(".p4") else paths.PACKAGE / "control") / plant.file
    text = source.read_text()
    assert text.count(plant.old) == 1, f"{plant.file} has changed: the defect must be planted elsewhere"
    if plant.file.endswith(".p4"):
        copy = shutil.copytree(paths.p4_dir(), folder / "p4")
        (copy / "include" / plant.file).write_text(text.replace(plant.old, plant.new))
        return Program(compile_program(copy / "switchml.p4", defines=DEFINES, cflags=["-O1"]).so_path), Controller
    program = Program(compile_program(paths.p4_dir() / "switchml.p4", defines=DEFINES).so_path)
    (folder / plant.file).write_text(text.replace(plant.old, plant.new))
    module = _imported(folder / plant.file)
    if plant.file == "lives.py":
        controller = _imported(paths.PACKAGE / "control" / "controller.py")
        controller.Incarnations, controller.Lives = module.Incarnations, module.Lives
        module = controller
    return program, module.Controller


def _imported(path):
    """A module of its own from ``path``; its classes are found by name while it is made."""
    name = f"planted_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PLANTS)
def test_planted_defects_are_found_and_their_seeds_are_named(name, tmp_path):
    plant = PLANTS[name]
    program, controller = planted(plant, tmp_path)
    for seed in range(1, plant.seeds + 1):
        report = simulate(program, seed, controller=controller)
        if report.violation:
            assert re.search(plant.found, report.violation), report
            assert str(report).startswith(f"seed {seed}: ") and report.story
            return
    pytest.fail(f"not found within {plant.seeds} seeds: {name}")
