"""`make run`'s packages: their size is printed before the download, and CUDA comes only on request."""

import os
import re
import subprocess
import sys
import threading
import tomllib
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.build
ROOT = Path(__file__).resolve().parent.parent.parent


def wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", f"VERSION = {version!r}\n" + "#" * 500_000)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                      + "".join(f"Requires-Dist: {other}\n" for other in requires))
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path):
    """Package index like a registry's: torch for this machine comes with CUDA."""
    folder = tmp_path / "index"
    wheel(folder, "torch", "2.13.0", "nvidia-cublas")
    wheel(folder, "nvidia_cublas", "13.1")
    wheel(folder, "sympy", "1.0")
    return folder


def install(tmp_path, links, *requirements, **environment):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "TORCH"))}
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "install", sys.executable, *requirements], cwd=ROOT, capture_output=True, text=True,
        env={**clean, "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_TARGET": str(tmp_path / "target"),
                          "PIP_FIND_LINKS": " ".join(map(str, links)), "PIP_IGNORE_INSTALLED": "1", **environment})
    return done, {path.stem for path in (tmp_path / "target").glob("*.py")}


def test_cuda_does_not_come_unasked(tmp_path, index):
    done, there = install(tmp_path, [index], "torch>=2.7", "sympy")
    assert done.returncode == 1 and not there
    assert done.stdout == "    packages: 3, 1.5 MB (torch 2.13.0, with CUDA)\n"
    assert "only with CUDA: 1.5 MB" in done.stderr and "Nothing was downloaded" in done.stderr
    assert "make run TORCH=cuda" in done.stderr and "make run TORCH_INDEX=ADDRESS" in done.stderr


def test_cuda_comes_where_it_is_asked_for(tmp_path, index):
    done, there = install(tmp_path, [index], "torch>=2.7", TORCH="cuda")
    assert done.returncode == 0 and there == {"torch", "nvidia_cublas"}, done.stderr
    assert "Successfully installed" in done.stdout, "pip is heard"


def test_a_build_for_cpus_is_preferred(tmp_path, index):
    wheel(tmp_path / "more", "torch", "2.13.0+cpu")
    done, there = install(tmp_path, [index, tmp_path / "more"], "torch>=2.7")
    assert done.returncode == 0 and there == {"torch"}, done.stderr
    assert done.stdout.startswith("    packages: 1, 0.5 MB (torch 2.13.0+cpu, for CPUs)\n")
    assert "VERSION = '2.13.0+cpu'" in (tmp_path / "target" / "torch.py").read_text()


def test_another_index_is_looked_at(tmp_path, index):
    more = tmp_path / "more" / "torch"
    more.parent.mkdir()
    wheel(more, "torch", "2.13.0+cpu")
    (name,) = (path.name for path in more.iterdir())
    (more / "index.html").write_text(f'<a href="{name.replace("+", "%2B")}">{name}</a>')
    done, there = install(tmp_path, [index], "torch", PIP_NO_INDEX="0", PIP_INDEX_URL=more.parent.as_uri(),
                          TORCH_INDEX=more.parent.as_uri())
    assert done.returncode == 0 and there == {"torch"}, done.stderr


@pytest.fixture
def registry(index):
    """``index`` over HTTP, as a mirror that has no metadata files: its address, and the files that were fetched."""
    fetched = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.path.endswith(".whl"):
                fetched.append(self.path.rpartition("/")[2])
            super().do_GET()

        def log_message(self, *_):
            pass

    for path in list(index.glob("*.whl")):
        page = index / path.name.partition("-")[0].replace("_", "-") / "index.html"
        page.parent.mkdir(exist_ok=True)
        path.rename(page.parent / path.name)
        names = [each.name for each in page.parent.glob("*.whl")]
        page.write_text("".join(f'<a href="{name.replace("+", "%2B")}">{name}</a>' for name in names))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=index))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", fetched
    server.shutdown()
    thread.join()
    server.server_close()


def install_from(registry, tmp_path, *requirements, **environment):
    return install(tmp_path, [], *requirements, PIP_NO_INDEX="0", PIP_INDEX_URL=registry[0],
                   **{"PIP_CACHE_DIR": str(tmp_path / "cache"), **environment})


def test_cuda_is_known_by_its_version_where_an_index_has_no_metadata(tmp_path, registry):
    """To see what torch needs, pip would fetch all of it, gigabytes, and then its libraries."""
    done, there = install_from(registry, tmp_path, "torch>=2.7", "sympy")
    assert (done.returncode, there, registry[1]) == (1, set(), [])
    assert done.stdout == ("    packages: 2, 1.0 MB (torch 2.13.0, with CUDA), and what they need, which this index does not say "
                           "before they are fetched\n")
    assert "only with CUDA: 0.5 MB, and its libraries. Nothing was downloaded." in done.stderr


def describe(index, *names):
    """Gives the packages of these names metadata files, from which pip sees what they need."""
    for path in index.glob("*/*.whl"):
        if path.parent.name in names:
            with zipfile.ZipFile(path) as file:
                (name,) = (each for each in file.namelist() if each.endswith("METADATA"))
                path.with_name(f"{path.name}.metadata").write_bytes(file.read(name))
            page = path.with_name("index.html")
            page.write_text(page.read_text().replace("<a ", '<a data-core-metadata="true" '))


def test_an_index_with_metadata_tells_all_before_anything_is_fetched(tmp_path, index, registry):
    describe(index, "torch", "nvidia-cublas", "sympy")
    done, there = install_from(registry, tmp_path, "torch>=2.7", "sympy")
    assert (done.returncode, there, registry[1]) == (1, set(), [])
    assert done.stdout == "    packages: 3, 1.5 MB (torch 2.13.0, with CUDA)\n"


@pytest.fixture
def chain(index, request):
    """A registry whose packages have metadata, but for the last of a chain: torch needs sympy, which needs mpmath."""
    wheel(index, "torch", "2.13.0", "nvidia-cublas", "sympy")
    wheel(index, "sympy", "1.0", "mpmath")
    wheel(index, "mpmath", "1.3")
    registry = request.getfixturevalue("registry")
    describe(index, "torch", "nvidia-cublas", "sympy")
    return registry


def test_nothing_is_fetched_to_see_what_the_last_of_a_chain_needs(tmp_path, chain):
    done, there = install_from(chain, tmp_path, "torch>=2.7")
    assert (done.returncode, there, chain[1]) == (1, set(), [])
    assert done.stdout == ("    packages: 1, 0.5 MB (torch 2.13.0, with CUDA), and what they need, which this index does not say "
                           "before they are fetched\n")
    assert "only with CUDA: 0.5 MB, and its libraries. Nothing was downloaded." in done.stderr


def test_each_file_of_a_chain_is_fetched_once_after_the_sizes_are_said(tmp_path, chain):
    done, there = install_from(chain, tmp_path, "torch>=2.7", TORCH="cuda")
    assert done.returncode == 0 and there == {"torch", "nvidia_cublas", "sympy", "mpmath"}, done.stderr
    assert sorted(chain[1]) == [f"{name}-py3-none-any.whl"
                                for name in ("mpmath-1.3", "nvidia_cublas-13.1", "sympy-1.0", "torch-2.13.0")]
    assert done.stdout.startswith("    packages: 1, 0.5 MB (torch 2.13.0, with CUDA), and what they need")


def test_what_a_pip_has_fetched_that_cannot_be_asked_is_not_denied(tmp_path, registry):
    """A pip whose inside has other names says what it would install only after it has fetched it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif sys.orig_argv[1] == '-c':\n"
        "    sys.modules['pip._internal.cli.main'] = sys.modules['pip._internal.commands'] = None\n")
    done, there = install_from(registry, tmp_path, "torch>=2.7", PYTHONPATH=str(tmp_path))
    assert (done.returncode, there, done.stdout.splitlines()[0][:57]) == (
        1, set(), "note: this pip may fetch packages to see what they need: ")
    assert registry[1], done
    assert "CUDA: 1.0 MB. Nothing was installed (what was fetched to see this is in pip's cache)" in done.stderr


def test_each_file_is_fetched_once_where_an_index_has_no_metadata(tmp_path, registry):
    done, there = install_from(registry, tmp_path, "torch>=2.7", "sympy", TORCH="cuda")
    assert done.returncode == 0 and there == {"torch", "nvidia_cublas", "sympy"}, done.stderr
    assert sorted(registry[1]) == [f"{name}-py3-none-any.whl" for name in ("nvidia_cublas-13.1", "sympy-1.0", "torch-2.13.0")]
    assert done.stdout.startswith("    packages: 2, 1.0 MB (torch 2.13.0, with CUDA), and what they need")
    assert "Successfully installed" in done.stdout


def test_a_build_for_cpus_is_known_by_its_version(tmp_path, index, request):
    wheel(index, "torch", "2.13.0+cpu")
    registry = request.getfixturevalue("registry")
    done, there = install_from(registry, tmp_path, "torch>=2.7", "sympy; python_version < '3'")
    assert done.returncode == 0 and there == {"torch"}, done.stderr
    assert registry[1] == ["torch-2.13.0%2Bcpu-py3-none-any.whl"]
    assert done.stdout.startswith("    packages: 1, 0.5 MB (torch 2.13.0+cpu, for CPUs), and what they need")


def test_what_is_there_is_not_fetched_where_an_index_has_no_metadata(tmp_path, registry):
    done, there = install_from(registry, tmp_path, "pip", "pytest>=1", PIP_IGNORE_INSTALLED="0", PIP_TARGET="")
    assert (done.returncode, done.stdout, registry[1]) == (0, "", []), done.stderr


def test_what_is_not_to_be_had_is_said(tmp_path, index):
    done, _ = install(tmp_path, [index], "torch>=99")
    assert done.returncode == 1 and "torch>=99" in done.stderr and "Traceback" not in done.stderr
    done, _ = install(tmp_path, [index], "sympy", TORCH="gpu")
    assert done.returncode == 1 and done.stderr == "error: TORCH=gpu: expected cpu or cuda\n"


def test_the_makefile_asks_for_extras_that_there_are(tmp_path):
    """Its rules are read, not carried out: of packages, tools of tests and of the documentation."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    venv = tmp_path / "venv"
    done = subprocess.run(["make", "-n", f"VENV={venv}", f"PYTHON={sys.executable}", venv / "installed", venv / "tested-with"],
                          cwd=ROOT, capture_output=True, text=True)
    asked = [words.split() for words in re.findall(r'for e in "(.*?)"\.split', done.stdout)]
    assert done.returncode == 0 and len(asked) >= 2, done.stderr
    assert {"torch", "plot"} <= set(asked[0]) and all(set(words) <= set(extras) for words in asked), asked
    fallback = subprocess.run([ROOT / ".ci/system", "fallback"], capture_output=True, text=True, check=True).stdout.split()
    assert fallback == ([] if Path("/usr/share/datasets/fashion-mnist").is_dir() else ["data"])


def test_an_environment_that_has_its_packages_needs_no_network(tmp_path):
    """It may be of an earlier commit, and lack files that later ones make."""
    for name in ("pyvenv.cfg", "installed"):
        (tmp_path / name).touch()
    done = subprocess.run(["make", f"VENV={tmp_path}", f"PYTHON={sys.executable}", tmp_path / "tools"], cwd=ROOT, text=True,
                          capture_output=True)
    assert done.returncode == 0 and (tmp_path / "tools").exists(), done.stderr
