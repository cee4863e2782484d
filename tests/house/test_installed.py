"""The package as pip installs it, outside of a checkout: it carries programs, topologies, headers and experiments."""

import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from capabilities import need
from folders import files

from ina.base import manifest, native, paths

pytestmark = pytest.mark.build
ROOT = paths.root()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel, made from a copy of the checkout. Its compiled part is the one that is built here."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("ina", "host", "setup.py", "pyproject.toml", "README.md", "LICENSE",
                 *(n for n in manifest.DATA if "/" not in n)):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "_native*"),
                            dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / name, copy)
    (copy / "docs/reference").mkdir(parents=True)
    shutil.copy(ROOT / "docs/reference/ina.1", copy / "docs/reference")
    (copy / "setup.cfg").write_text("[build]\nbuild_lib = built\n")
    (copy / "built/ina").mkdir(parents=True)
    shutil.copy(native.PATH, copy / "built/ina")
    subprocess.run([sys.executable, "setup.py", "-q", "build_py", "bdist_wheel", "--skip-build"], cwd=copy, check=True,
                   capture_output=True)
    (made,) = (copy / "dist").iterdir()
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with what the wheel holds."""
    site = tmp_path_factory.mktemp("installed") / "site"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)
    return site


def ina(site, *arguments):
    """``ina ...`` of the wheel, in another folder, without packages that are in extras only."""
    environment = {**os.environ, "PYTHONPATH": str(site), "INA_CACHE": str(site.parent / "cache")}
    lean = "import sys; sys.modules.update(dict.fromkeys(('torch', 'matplotlib', 'sklearn', 'grpc', 'scapy', 'ray')))"
    code = f"{lean}\nfrom ina import cli; sys.exit(cli.main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=site.parent, env=environment, capture_output=True,
                          text=True)


def test_one_wheel_is_for_this_python_and_later_ones(wheel):
    """Its name says so to pip: the lowest version of CPython, and the stable ABI."""
    assert re.fullmatch(r"ina-[0-9.]+-cp311-abi3-linux_\w+\.whl", wheel.name)


def test_nothing_of_it_is_global_but_ina(installed):
    assert [path.name for path in installed.iterdir() if path.suffix not in (".dist-info", ".data")] == ["ina"]


def test_it_carries_the_manual_page(installed):
    """Pip puts it below the environment's share/."""
    (page,) = installed.glob("ina-*.data/data/share/man/man1/ina.1")
    assert page.read_bytes() == (ROOT / "docs/reference/ina.1").read_bytes()


def test_it_carries_the_examples(installed):
    """All that git has of them."""
    need("repository")
    tracked = subprocess.run(["git", "ls-files", "examples"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len(tracked) > 30
    for name in tracked:
        assert (installed / "ina/data" / name).read_bytes() == (ROOT / name).read_bytes(), name


def test_it_compiles_a_program_that_it_carries(installed):
    need("cc")
    done = ina(installed, "compile", "switchml", "-D", "VALUES=32")
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_example_that_it_carries_runs_where_it_is_copied(installed):
    need("cc")
    done = ina(installed, "examples", "copy", "learn", "own")
    assert done.returncode == 0, done.stdout + done.stderr
    done = ina(installed, "stf", "own/learn/learn.p4")
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


def test_experiments_in_virtual_time_need_neither_torch_nor_matplotlib(installed):
    """The page has tables, and says why it has no plots; so does the terminal, and the command that draws them later."""
    need("cc")
    done = ina(installed, "experiment", "run", "switchml-pool", "--sweep", "pool=[16,32]", "--sweep", "rate=[1e10]",
               "--set", "elements=4096")
    assert done.returncode == 0, done.stdout + done.stderr
    (page,) = installed.parent.glob("results/switchml-pool-*/report.html")
    for text in (done.stdout, page.read_text()):
        assert "plots need matplotlib: pip install 'ina[plot]'" in text, text
    assert "then ina report FOLDER draws them" in done.stdout and "<td>32</td>" in page.read_text()
    done = ina(installed, "why", str(page.parent))
    assert done.returncode == 0, done.stdout + done.stderr
    done = ina(installed, "plot", str(page.parent), "-o", "pool.csv")
    assert done.returncode == 0 and "16" in (installed.parent / "pool.csv").read_text(), done.stdout + done.stderr


@pytest.mark.parametrize(("arguments", "message"), [
    (["run", "--steps", "1"], "training needs torch and matplotlib: pip install 'ina[torch,plot]'"),
    (["experiment", "run", "codecs"], "compression needs torch and matplotlib: pip install 'ina[torch,plot]'"),
    (["experiment", "measure", "layers.csv"], "training needs torch and matplotlib: pip install 'ina[torch,plot]'"),
])
def test_what_needs_an_extra_names_it(installed, arguments, message):
    done = ina(installed, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ina: {message}\n")
