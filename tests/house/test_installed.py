"""The package as pip installs it, outside of a checkout: it carries programs, topologies, headers and experiments."""

import os
import shutil
import subprocess
import sys

import pytest
from capabilities import need
from folders import files

from ina.base import manifest, native, paths

pytestmark = pytest.mark.build
ROOT = paths.root()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with what a wheel holds. Its compiled part is the one that is built here."""
    folder = tmp_path_factory.mktemp("installed")
    copy = folder / "checkout"
    copy.mkdir()
    for name in ("ina", "host", "setup.py", "pyproject.toml", "README.md", "LICENSE",
                 *(n for n in manifest.DATA if "/" not in n)):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "_native*"),
                            dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / name, copy)
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(folder / "site")]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    shutil.copy(native.PATH, folder / "site/ina")
    shutil.rmtree(copy)
    return folder / "site"


def ina(site, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(site), "INA_CACHE": str(site.parent / "cache")}
    return subprocess.run([sys.executable, "-m", "ina.cli", *arguments], cwd=site.parent, env=environment, capture_output=True,
                          text=True)


def test_it_compiles_a_program_that_it_carries(installed):
    need("cc")
    done = ina(installed, "compile", str(installed / "ina/data/p4/switchml.p4"), "-D", "VALUES=32")
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_runs_virtual_time(installed):
    need("cc")
    done = ina(installed, "simulate", "--events", "2000")
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_has_topologies_and_experiments(installed):
    done = ina(installed, "topo", "list")
    assert done.returncode == 0 and "fat-tree" in done.stdout and "topoopt" in done.stdout, done.stdout + done.stderr
    done = ina(installed, "experiment", "list")
    assert done.returncode == 0 and "loss-sweep" in done.stdout, done.stdout + done.stderr


def test_it_carries_the_headers_of_workers_that_are_compiled_later(installed):
    for folder in (*manifest.HOST, "host/dpdk"):
        for path in files(ROOT / folder, "*.h"):
            assert (installed / "ina/data" / folder / path.name).read_bytes() == path.read_bytes()
