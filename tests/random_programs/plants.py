"""Defects that the judge must find: each changes one line of a copy of the compiler, runtime or interpreter.

`python -m tests.random_programs.plants` plants them all, one after the other, and prints the seed that finds each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = 100  # programs until a defect must have shown


@dataclass(frozen=True)
class Plant:
    """A defect: `old`, which `file` must contain once, becomes `new`. `finds`: the expected verdict. `seed`: of a program
    that showed the defect once, which is tried first."""

    name: str
    file: str
    old: str
    new: str
    finds: str
    seed: int = 0


PLANTS = (
    Plant(
        "concatenations lose their sign",
        "ina/p4/compiler/lower/expressions.py",
        "fold.cast(fold.concat([a, b]), a.width + b.width, a.signed)",
        "fold.concat([a, b])",
        "compiled",
        48,
    ),
    Plant(
        "signed right shifts fill with zeros",
        "ina/p4/compiler/emit/expressions.py",
        'if e.op == "shr" and e.signed:\n            limited',
        "if False:\n            limited",
        "compiled",
        37,
    ),
    Plant(
        "a shift by the width or more is a shift by less",
        "ina/p4/compiler/emit/expressions.py",
        'limited = f"({by} < {width}u ? {by} : {width - 1}u)"',
        'limited = f"({by} & {width - 1}u)"',
        "compiled",
        7,
    ),
    Plant(
        "signed differences saturate on the wrong side",
        "ina/p4/compiler/emit/prelude.h",
        "ina_saturate(a, s, (a ^ b) & (a ^ s), w)",
        "ina_saturate(b, s, (a ^ b) & (a ^ s), w)",
        "compiled",
        36,
    ),
    Plant(
        "resubmitted packets bring no metadata along",
        "ina/p4/compiler/arch/lower_v1model.py",
        '("INA_RESUBMITTED", "INA_RECIRCULATED")',
        '("INA_RECIRCULATED",)',
        "compiled",
        7,
    ),
    Plant(
        "the Internet checksum forgets a carry",
        "ina/p4/compiler/emit/prelude.h",
        "half += half << 16 | half >> 16;",
        "half += half << 16;",
        "compiled",
        7,
    ),
    Plant(
        "popped elements stay valid",
        "ina/p4/compiler/lower/lowering.py",
        'for i in range(count) if e.method == "push_front" else range(size - count, size):',
        'for i in range(count) if e.method == "push_front" else range(0):',
        "compiled",
        0,
    ),
    Plant(
        "headers of a union stay valid beside another",
        "ina/p4/compiler/lower/values.py",
        "if header.union is not None:",
        "if False:",
        "compiled",
        1,
    ),
    Plant(
        "a yellow packet takes nothing from the peak bucket",
        "ina/p4/compiler/emit/prelude.h",
        "    m->peak_tokens -= amount;\n    if (m->committed_tokens < amount)\n        return YELLOW;\n",
        "    if (m->committed_tokens < amount)\n        return YELLOW;\n    m->peak_tokens -= amount;\n",
        "compiled",
        1,
    ),
    Plant(
        "ranges leave out their upper end",
        "ina/p4/compiler/reference/tables.py",
        "return low <= number(value) <= high",
        "return low <= number(value) < high",
        "interpreted",
        19,
    ),
    Plant(
        "the shortest prefix wins",
        "ina/p4/compiler/reference/tables.py",
        "(e.priority, self._prefix(e), -e.handle)",
        "(e.priority, -self._prefix(e), -e.handle)",
        "interpreted",
        53,
    ),
    Plant(
        "results are copied out from right to left",
        "ina/p4/compiler/reference/blocks.py",
        "for place, param in results:",
        "for place, param in reversed(results):",
        "interpreted",
        49,
    ),
    Plant(
        "what follows the headers of a clone of egress begins with them",
        "ina/p4/compiler/arch/lower_v1model.py",
        "self.code.emit(ir.Assign(self.context.cursor, self.copies.payload_at))",
        "self.code.emit(ir.Assign(self.context.cursor, fold.const(0, 32)))",
        "compiled",
        3,
    ),
    Plant(
        "a clone of egress shares its headers with the packet",
        "ina/p4/compiler/arch/interpret_v1model.py",
        "clone = replace(item, headers=headers.copy(),",
        "clone = replace(item, headers=headers,",
        "interpreted",
        70,
    ),
    Plant(
        "all digests are the first that the program has",
        "ina/p4/compiler/externs/copies.py",
        'low.emit(ir.Assign(low.context.flag("digest"), fold.const(number, 32)))',
        'low.emit(ir.Assign(low.context.flag("digest"), fold.const(1, 32)))',
        "compiled",
        4,
    ),
    Plant(
        "the first digest of a packet wins",
        "ina/p4/compiler/externs/copies.py",
        "machine.packet.requests.digest = Message(",
        "machine.packet.requests.digest = machine.packet.requests.digest or Message(",
        "interpreted",
        4,
    ),
    Plant(
        "entries that name a member do as the profile's first",
        "ina/p4/compiler/reference/tables.py",
        "return self.profile.members[entry.member], entry",
        "return self.profile.members[0], entry",
        "interpreted",
        37,
    ),
    Plant(
        "all groups have the members of the first",
        "ina/p4/runtime/entry_table.py",
        "members = profiles.group_members(self.info.profile, row.group)",
        "members = profiles.group_members(self.info.profile, 1)",
        "compiled",
        19,
    ),
)


def copy_with(plant: Plant, folder: Path) -> Path:
    """A copy of the package with the defect in it. Raises ValueError where the line no longer exists."""
    shutil.copytree(
        ROOT,
        folder,
        ignore=lambda path_, names: [
            n
            for n in names
            if Path(path_) == ROOT and n not in ("ina", "host", "p4", "topologies", "tests") or n == "__pycache__"
        ],
    )
    file = folder / plant.file
    text = file.read_text(encoding="utf-8")
    if text.count(plant.old) != 1:
        raise ValueError(f"{plant.file}: {plant.old!r} is there {text.count(plant.old)} times; the plant must follow the code")
    file.write_text(text.replace(plant.old, plant.new), encoding="utf-8")
    return folder


def search(plant: Plant, programs: int = PROGRAMS, deadline: float = 600) -> tuple[int, str] | None:
    """Seed and verdict of the first program that shows the defect, from the plant's seed, then seed 0; None if none does."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = copy_with(plant, Path(scratch) / "copy")
        script = (
            "import sys; sys.path.insert(0, 'tests')\n"
            "from pathlib import Path\n"
            "from random_programs.generate import Generator\n"
            "from random_programs.judge import judge\n"
            f"for seed in [{plant.seed}, *range({programs})]:\n"
            f"    verdict = judge(Generator(seed).program(), Path({scratch!r}))\n"
            "    if verdict.kind in ('compiled', 'interpreted', 'both'): print(seed, verdict.kind); break\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(tree), "INA_CACHE": f"{scratch}/cache"}
        process = subprocess.run(
            [sys.executable, "-c", script], cwd=tree, capture_output=True, text=True, env=environment, timeout=deadline
        )
        if process.returncode:
            raise RuntimeError(process.stderr[-3000:])
        words = process.stdout.split()
        return (int(words[0]), words[1]) if words else None


def main() -> int:
    misses = 0
    for plant in PLANTS:
        hit = search(plant)
        right = hit is not None and hit[1] == plant.finds
        misses += not right
        print(
            f"{'found' if right else 'MISSED':<7} {plant.name}: {f'seed {hit[0]}, {hit[1]}' if hit else 'no program differs'}",
            flush=True,
        )
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
