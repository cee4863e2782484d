"""Parts that are independent of aggregation stand alone: the C of packets and switch links, the P4 switch compiles and runs."""

import os
import shutil
import subprocess
import sys

import pytest
from capabilities import need

from ina.base import paths

ROOT = paths.root()
ALONE = ("ina/base", "ina/net", "ina/topology", "ina/p4", "host/net")
CODE = """
import sys
from pathlib import Path
from ina.p4.tools import stf
import ina
assert ina.__file__.startswith(sys.argv[1]), ina.__file__
sys.exit(stf.report(stf.tests_in(Path(sys.argv[2]))[:: int(sys.argv[3])], ("compiled", "interpreter"), stf.Options({}, [])))
"""


@pytest.mark.build
def test_packets_and_the_switch_link_alone(tmp_path):
    need("cc")
    folders = ["host/net", "ina/p4/runtime/c"]
    sources = [path for folder in folders for path in sorted((ROOT / folder).glob("*.c"))]
    assert len(sources) > 25
    subprocess.run(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-shared", "-fPIC", *(f"-I{ROOT / folder}" for folder in folders),
                    *sources,
                    "-Wl,-z,defs", "-o", tmp_path / "net.so", "-lpthread", "-ldl", "-lm"], check=True)


@pytest.fixture
def alone(tmp_path):
    """A copy without aggregation, worlds, lab, backend and command line; none of their functions of the compiled part is
    called."""
    for folder in ALONE:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / "ina").glob("*.*"):
        shutil.copy(path, tmp_path / "ina")
    (tmp_path / "p4").mkdir()
    shutil.copy(ROOT / "p4/switchml.p4", tmp_path / "p4")  # marks a checkout
    return tmp_path


def stf(folder, tests, step=1):
    environment = {**os.environ, "PYTHONPATH": str(folder), "INA_CACHE": str(folder / "cache")}
    return subprocess.run([sys.executable, "-c", CODE, str(folder), str(tests), str(step)], cwd=folder, env=environment,
                          capture_output=True,
                          text=True)


@pytest.mark.build
def test_the_switch_alone_passes_tests_of_packets(alone):
    need("cc")
    done = stf(alone, ROOT / "tests/stf", 5)
    assert done.returncode == 0 and "pass" in done.stdout, done.stdout + done.stderr


@pytest.mark.hardware
@pytest.mark.timeout(1800)
def test_the_switch_alone_passes_p4c_s_tests(alone):
    """One in ten of them, or all where INA_ALL_ALONE is set."""
    need("cc", "p4c-samples")
    done = stf(alone, os.environ["INA_P4C_SAMPLES"], 1 if os.environ.get("INA_ALL_ALONE") else 10)
    assert "FAIL" not in done.stdout and done.stdout.count("pass") > 20, done.stdout + done.stderr
