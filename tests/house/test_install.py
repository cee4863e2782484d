"""`make run`'s packages: their size is printed before the download, and CUDA comes only on request."""

import os
import subprocess
import sys
import zipfile
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


def test_what_is_not_to_be_had_is_said(tmp_path, index):
    done, _ = install(tmp_path, [index], "torch>=99")
    assert done.returncode == 1 and "torch>=99" in done.stderr and "Traceback" not in done.stderr
    done, _ = install(tmp_path, [index], "sympy", TORCH="gpu")
    assert done.returncode == 1 and done.stderr == "error: TORCH=gpu: expected cpu or cuda\n"
