"""torch's distributed test suite with Gloo and with ina, side by side.

Ends with 1 if a case that passes with Gloo does not pass with ina, but for the named exceptions, or if a case that sums floats
made no call through the switch.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# In these torch itself refuses whatever is not called "gloo".
EXCEPTIONS = {
    "test_monitored_barrier_gloo": "torch: monitored_barrier is only implemented for GLOO backend",
    "test_monitored_barrier_gloo_subgroup": "torch: monitored_barrier is only implemented for GLOO backend",
}
# All-reduces and reductions that add floats up: they must have used the switch.
SUMS_FLOATS = re.compile(r"test_(all_)?reduce(_coalesced)?(_full_group|_group)?_(sum|sum_async|sum_twice)$")


def run(backend: str, world_size: int, cases: list[str] = (), limit: float = 1800) -> Iterator[dict]:
    """Yields a record for each case as it ends: see driver.py."""
    command = [sys.executable, "-m", "tests.conformance.driver", backend, str(world_size), *cases]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(["timeout", str(limit), *command], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:
        for line in process.stdout:
            if line.startswith('{"case"'):
                yield json.loads(line)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode} (124: it was not done in {limit:g} s)")


def compare(gloo: dict[str, dict], ina: dict[str, dict]) -> list[str]:
    """Errors of ``ina``'s records, by case."""
    wrong = []
    for case, reference in gloo.items():
        ours = ina.get(case)
        if ours is None:
            wrong.append(f"{case}: did not run")
        elif reference["result"] == "passed" and ours["result"] != "passed" and case not in EXCEPTIONS:
            wrong.append(f"{case}: {ours['result']}: {ours['why']}")
        elif ours["result"] == "passed" and SUMS_FLOATS.match(case) and not ours["switch"]:
            wrong.append(f"{case}: no call went through the switch")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("--world-size", type=int, nargs="+", default=[3, 4], metavar="N", help="numbers of ranks (3 4)")
    parser.add_argument("--runs", type=int, default=1, help="how often ina runs the suite (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every record there")
    parser.add_argument("cases", nargs="*", help="cases (all)")
    options = parser.parse_args()
    records, bad = [], 0
    for world_size in options.world_size:
        print(f"world size {world_size}: Gloo ...", flush=True)
        gloo = {record["case"]: record for record in run("gloo", world_size, options.cases)}
        for number in range(options.runs):
            print(f"{'case':75} {'gloo':8} {'ina':8} {'switch':>7} {'gloo':>6}  seconds   (calls of all ranks)")
            ina = {}
            for record in run("ina", world_size, options.cases):
                case = record["case"]
                ina[case] = record
                if gloo.get(case, record)["result"] != "skipped":
                    note = f"  {EXCEPTIONS[case]}" if case in EXCEPTIONS else ""
                    print(f"{case:75} {gloo[case]['result']:8} {record['result']:8} {record['switch']:7} {record['gloo']:6}"
                          f"  {record['seconds']:5.2f}{note}", flush=True)
            counts = {name: Counter(r["result"] for r in cases_of.values()) for name, cases_of in (("gloo", gloo), ("ina", ina))}
            print(f"world size {world_size}, run {number + 1}: " + "; ".join(
                f"{name} {c['passed']} passed, {c['failed']} failed, {c['skipped']} skipped" for name, c in counts.items()))
            wrong = compare(gloo, ina)
            print(*wrong, sep="\n", end="\n" if wrong else "")
            bad += len(wrong)
            records.append({"world_size": world_size, "run": number + 1, "gloo": list(gloo.values()), "ina": list(ina.values())})
    if options.json:
        options.json.write_text(json.dumps(records, indent=1))
    print("conforms" if not bad else f"{bad} case(s) do not conform")
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
