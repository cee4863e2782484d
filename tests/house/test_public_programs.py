"""bench/programs.py on a collection made here: pinned files only, and a verdict for each program."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from v1_program import source

from bench import programs

pytestmark = pytest.mark.build


def git(folder: Path, *args: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", folder, *identity, *args], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def pinned(tmp_path, monkeypatch):
    """Makes programs.toml for one collection, `made`, of the texts given; returns the folder of clones."""

    def make(texts: dict[str, str], tree: str = "") -> Path:
        clone = tmp_path / "clones" / "made"
        clone.mkdir(parents=True)
        for name, text in texts.items():
            (clone / name).parent.mkdir(exist_ok=True)
            (clone / name).write_text(text)
        git(clone, "init", "-q")
        git(clone, "add", "-A")
        git(clone, "commit", "-q", "-m", "all")
        tree = tree or git(clone, "rev-parse", "HEAD^{tree}")
        (tmp_path / "programs.toml").write_text(f"""
[collection.made]
url = "https://example.org/owner/made"
commit = "{git(clone, "rev-parse", "HEAD")}"
tree = "{tree}"
[[fair]]
message = "is of .*, which is not supported"
why = "for another architecture"
by = "p4c-bm2-ss"
""")
        monkeypatch.setattr(programs, "PINS", tmp_path / "programs.toml")
        return clone.parent

    return make


TEXTS = {
    "good/one.p4": '#include "part.p4"\n' + source(),
    "good/part.p4": "const bit<8> part = 1;\n",
    "psa.p4": "#include <core.p4>\n#include <psa.p4>\nPSA_Switch(x) main;\n",
    "wrong.p4": source("hdr.data.x = 1;"),
    "notes.txt": "V1Switch() main;",
}


def test_programs_are_judged_as_they_were_committed(pinned, capsys):
    folder = pinned(TEXTS)
    (folder / "made" / "good" / "part.p4").write_text("const = nonsense")  # nobody's edit counts
    assert programs.main([str(folder), "--list"]) == 1
    out = capsys.readouterr().out
    assert "made: good/one.p4: accepted" in out and "made: psa.p4: refused fairly: for another architecture" in out
    assert "made: wrong.p4: refused wrongly: wrong.p4:" in out and "part.p4:" not in out and "notes" not in out
    assert "| 3 | 1 | 1 | 1 |" in out and "| 1 | for another architecture | p4c-bm2-ss |" in out


def test_every_rule_says_who_else_refuses():
    described = tomllib.loads(programs.PINS.read_text(encoding="utf-8"))
    assert all(rule["by"] and rule["why"] for rule in described["fair"])


def test_another_tree_is_not_judged(pinned):
    folder = pinned({"one.p4": source()}, tree="0" * 40)
    with pytest.raises(ValueError, match="has the tree [0-9a-f]{40}, expected 0{40}"):
        programs.main([str(folder)])


def test_a_collection_that_is_not_there_is_named(pinned, tmp_path, capsys):
    pinned({"one.p4": source()})
    assert programs.main([str(tmp_path)]) == 0
    assert "made: no clone of https://example.org/owner/made" in capsys.readouterr().err
