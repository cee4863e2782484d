"""The documentation stays true: README commands and programs run, links lead somewhere, named files exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from capabilities import need
from folders import files

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *files(ROOT / "docs", "**/*.md")]


def blocks(language: str) -> list[str]:
    """Fenced blocks of the README whose fence says `language` (commands: nothing)."""
    texts: list[str] = []
    inside: list[str] | None = None
    for line in README.splitlines():
        if inside is None and line.startswith("```"):
            inside, label = [], line[3:]
        elif inside is not None and line == "```":
            if label == language:
                texts.append("".join(text + "\n" for text in inside))
            inside = None
        elif inside is not None:
            inside.append(line)
    return texts


def run(command: list[str], cwd: Path, timeout: float = 240) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


PROGRAMS = [block for block in blocks("python") if block.startswith(("import", "from"))]


@pytest.mark.build
@pytest.mark.parametrize("code", PROGRAMS, ids=lambda code: code.splitlines()[0])
def test_python_of_the_readme_runs(code):
    need("cc")
    run([sys.executable, "-c", code], ROOT)


@pytest.mark.build
def test_commands_of_the_readme_run(tmp_path):
    """Runs every `ina` and `torchrun` command, with the experiment file that the README shows."""
    need("cc", "torch", "matplotlib")
    (tmp_path / "lossy.toml").write_text(next(b for b in blocks("toml") if "lossy" in b))
    for name in ("p4", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    commands = [line for block in blocks("") for line in block.splitlines() if line.startswith(("ina ", "torchrun "))]
    assert len(commands) >= 3
    for line in commands:
        words = line.split()
        head = {"ina": [sys.executable, "-m", "ina.cli"], "torchrun": [sys.executable, "-m", "torch.distributed.run"]}
        run([*head[words[0]], *words[1:]], tmp_path)


@pytest.mark.fast
def test_nothing_is_left_to_fill_in():
    for page in PAGES:
        assert not re.search(r"@[A-Z_]+@|to be measured", page.read_text(), re.IGNORECASE), page.name


@pytest.mark.fast
def test_make_targets_of_the_readme_exist():
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), flags=re.M))
    names = set(re.findall(r"`make ([a-z]+)`", README)) | {b.split()[1] for b in blocks("") if b.startswith("make ")}
    assert {"run", "test"} <= names <= targets | {"help"}


@pytest.mark.fast
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_files_exist(page):
    text = page.read_text()
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", text):
        if not target.startswith("http"):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name} links to {target}, which is not there"
            assert not anchor or anchor in anchors(file), f"{page.name} links to {target}#{anchor}, a section that is not there"
    for name in re.findall(r"`((?:ina|host|p4|topologies|tests|bench|docs|examples)/[\w./-]+\.\w+)`", text):
        assert (ROOT / name).exists(), f"{page.name} names {name}, which is not there"


@pytest.mark.fast
def test_pages_that_the_code_names_exist():
    """Messages, comments and docstrings outside docs/ name pages and their sections; of each there must be one."""
    missing = []
    for path in code():
        for name, anchor in re.findall(r"\b(docs/[\w./-]*\w)(?:#([\w-]+))?", path.read_text()):
            if name == "docs/simple_switch.md":  # BMv2's
                continue
            page = ROOT / name
            if not page.exists() or (anchor and anchor not in anchors(page)):
                missing.append(f"{path.relative_to(ROOT)}: {name}{anchor and '#'}{anchor}")
    assert missing == []


def code() -> list[Path]:
    folders = ("ina", "host", "p4", "tests", "bench", "examples", "experiments", "topologies")
    suffixes = (".py", ".c", ".h", ".p4", ".toml")
    return [path for folder in folders for path in files(ROOT / folder, "**/*") if path.suffix in suffixes]


def anchors(page: Path) -> set[str]:
    """Names of a page's sections in links, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.fast
def test_every_command_has_help():
    from ina import cli

    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])
    assert stopped.value.code == 0
    for action in cli.parser()._subparsers._group_actions:
        for name in action.choices:
            with pytest.raises(SystemExit) as stopped:
                cli.main([name, "--help"])
            assert stopped.value.code == 0, name
