"""A release: the same commit makes the same files, wherever and whenever it is built."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import child
import pytest
from capabilities import need

from ina.base import paths

ROOT = paths.root()
RELEASE = runpy.run_path(str(ROOT / ".ci/release"))
NAMES = ("ina-1/b.py", "ina-1/a.sh", "ina-1/folder/c.txt")


def archive(folder: Path, names, seconds: float, mode: int) -> Path:
    """A source distribution as a build may leave it: its files in some order, of some time and some user."""
    folder.mkdir()
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}\n")
        path.chmod(mode | (0o111 if name.endswith(".sh") else 0))
        os.utime(path, (seconds, seconds))

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uname, member.uid = f"user{mode}", mode
        return member

    target = folder / "ina-1.tar.gz"
    with tarfile.open(target, "w:gz") as file:
        for name in names:
            file.add(folder / name, name, filter=owned)
    return target


@pytest.mark.fast
def test_archives_differ_in_content_alone(tmp_path):
    """Order, times, users and the permissions of others are not part of a release; permission to run is."""
    one = archive(tmp_path / "one", NAMES, 1e9, 0o600)
    other = archive(tmp_path / "other", NAMES[::-1], 1.5e9, 0o664)
    assert one.read_bytes() != other.read_bytes()
    for path in (one, other):
        RELEASE["normalised"](path, 1700000000)
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as file:
        assert {each.name: each.mode for each in file} == {name: 0o755 if name.endswith(".sh") else 0o644 for name in NAMES}
        assert {file.extractfile(name).read().decode() for name in NAMES} == {f"content of {name}\n" for name in NAMES}
        assert {(each.mtime, each.uid, each.uname) for each in file} == {(1700000000, 0, "")}


@pytest.mark.build
def test_a_step_that_fails_says_what_it_printed():
    run, failed = RELEASE["run"], RELEASE["Failed"]
    assert run(["sh", "-c", "echo done; exit 3"], status=3) == "done\n"
    with pytest.raises(failed, match="exit status 3, expected 0\nno such thing"):
        run(["sh", "-c", "echo no such thing >&2; exit 3"])


@pytest.mark.build
@pytest.mark.later
def test_two_builds_of_a_wheel_are_equal(tmp_path):
    """In folders of different names, and from files of different times. Debug information would have the folder's name."""
    need("cc")
    need("repository")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    wheels = []
    for name in ("one", "another/and/deeper"):
        tree = tmp_path / name
        for path in tracked:
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, tree / path)
        environment = {key: value for key, value in os.environ.items() if key not in ("INA_MARCH", "INA_CFLAGS")}
        child.run([sys.executable, "setup.py", "-q", "bdist_wheel"], 600, cwd=tree, check=True,
                  env={**environment, "SOURCE_DATE_EPOCH": "1700000000"})
        (wheel,) = (tree / "dist").iterdir()
        wheels.append(wheel)
    with zipfile.ZipFile(wheels[0]) as a, zipfile.ZipFile(wheels[1]) as b:
        differ = [name for name in a.namelist() if a.read(name) != b.read(name)]
        assert a.namelist() == b.namelist() and not differ
        assert str(tmp_path).encode() not in a.read("ina/_native.abi3.so")
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
