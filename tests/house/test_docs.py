"""The documentation stays true: README commands and programs run, links lead somewhere, named files exist."""

import ast
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from capabilities import need
from folders import files
from marks import least

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *files(ROOT / "docs", "**/*.md")]
TUTORIALS = [ROOT / "README.md", *files(ROOT / "docs/guide", "tutorial-*.md"), ROOT / "docs/guide/explore-and-trace.md",
             ROOT / "docs/guide/course.md"]


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of each fenced block of a page; commands have no language."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page, flags=re.M | re.S)


def commands(language: str, text: str) -> list[tuple[str, str]]:
    """Commands of `ina` and torchrun in a block with the output that the page shows: in a block `console` behind $, else
    alone in their lines."""
    if language == "console":
        return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, flags=re.M)
    return [(line, "") for line in text.splitlines() if not language and re.match(r"([A-Z_]+=\S+ )*(ina|torchrun) ", line)]


def run(command: list[str], cwd: Path, statuses: tuple[int, ...] = (0,), errors: int = subprocess.PIPE, **variables: str) -> str:
    environment = {**os.environ, **variables, "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert done.returncode in statuses, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


HEAD = {"ina": [sys.executable, "-m", "ina.cli"], "torchrun": [sys.executable, "-m", "torch.distributed.run"]}
STEADY = ((r"\b\d+\.\d+ s\b", "TIME"), (r"-\d{8}-\d{6}\b", "-DATE"), (r" +$", ""))


@pytest.mark.later
@pytest.mark.parametrize("page", [pytest.param(page, marks=least("cc", *["mininet"] * ("$ sudo" in page.read_text())))
                                  for page in TUTORIALS], ids=lambda page: page.stem)
def test_commands_of_a_page_run(page, tmp_path):
    """Does what a page tells its reader to do, from top to bottom in one folder. A block whose first line is a comment with a
    file's name is that file; a Python block that begins with an import is a program. Output beside a command is what the
    command prints, where a line of three dots stands for any lines; such a command may end with status 1."""
    need("cc", "torch", "matplotlib")
    for name in ("p4", "examples", "experiments", "topologies", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    done = 0
    for language, text in blocks(page.read_text()):
        if named := re.match(r"(?:#|//) ([\w.-]+\.(?:toml|py|p4|stf))\n", text):
            (tmp_path / named[1]).write_text(text)
        elif language == "python" and text.startswith(("import", "from")):
            run([sys.executable, "-c", text], tmp_path)
            done += 1
        for command, expected in commands(language, text):
            (variables, words), errors = split(command, tmp_path), subprocess.PIPE
            if words[0] == "sudo":  # of a network; Mininet prints on standard error
                need("root", "mininet")
                words, errors, variables = words[1:], subprocess.STDOUT, {**variables, "PYTHONUNBUFFERED": "1"}
            printed = run([*HEAD[words[0]], *words[1:]], tmp_path, (0, 1) if expected else (0,), errors, **variables)
            assert not expected or matches(expected, printed), f"{command}\n{printed}"
            done += 1
    assert done >= 3, f"{page.name}: expected commands or programs, found {done}"


def split(command: str, folder: Path) -> tuple[dict[str, str], list[str]]:
    """Variables before a command, and its words, with the names of files in place of a pattern that ends with *."""
    words = shlex.split(command)
    count = next(i for i, word in enumerate(words) if not re.match(r"[A-Z_]+=", word))
    arguments: list[str] = []
    for word in words[count:]:
        arguments += [str(path.relative_to(folder)) for path in files(folder, word)] if word.endswith("*") else [word]
    return dict(word.split("=", 1) for word in words[:count]), arguments


def matches(expected: str, printed: str) -> bool:
    """Compares what a page shows with what a command printed, but for seconds and dates."""
    for pattern, word in STEADY:
        expected, printed = (re.sub(pattern, word, text, flags=re.M) for text in (expected, printed))
    lines = [r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in expected.strip("\n").split("\n")]
    return bool(re.fullmatch("".join(lines), printed.strip("\n") + "\n"))


@pytest.mark.fast
def test_a_page_with_other_output_is_noticed():
    assert matches("a\n...\nd in 0.1 s\n", "a\nb\nc\nd in 23.5 s\n")
    assert not matches("a\n...\nd\n", "a\nb\n") and not matches("3 states\n", "4 states\n")


@pytest.mark.fast
def test_tables_of_the_first_run_have_todays_rows():
    """All that have a value without an accuracy as a target; those of links where the network is measured."""
    from ina.lab.kinds.training import Training

    rows = [row.heading for row in Training.rows if not row.key.startswith("target_")]
    measured = [row.heading for row in Training.rows if row.key.startswith("link_")]
    page = (ROOT / "docs/guide/start.md").read_text()
    local, network = ([line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")]
                      for _, text in blocks(page) if "│" in text)
    assert network == rows and local == [heading for heading in rows if heading not in measured]


@pytest.mark.fast
def test_generated_pages_are_what_the_code_says():
    pages = runpy.run_path(str(ROOT / "docs/site/generate.py"))["PAGES"]
    stale = [path for path, make in pages.items() if (ROOT / "docs" / path).read_text() != make()]
    assert not stale, f"make docs writes {stale} anew"


@pytest.mark.fast
def test_every_package_and_module_says_what_it_is():
    """The architecture page is a map of folders: what is in one, its docstring says, and what a module is, the module's."""
    empty = [path for path in files(ROOT / "ina", "**/*.py") if not path.name.startswith("_native")
             and len(ast.get_docstring(ast.parse(path.read_text())) or "") < 20]
    assert [str(path.relative_to(ROOT)) for path in empty if path.name != "__main__.py"] == []


@pytest.mark.fast
def test_nothing_is_left_to_fill_in():
    for page in PAGES:
        assert not re.search(r"@[A-Z_]+@|to be measured", page.read_text(), re.IGNORECASE), page.name


@pytest.mark.fast
def test_make_targets_of_the_readme_exist():
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), flags=re.M))
    commands = {text.split()[1] for _, text in blocks(README) if text.startswith("make ")}
    names = set(re.findall(r"`make ([a-z]+)[`\s]", README)) | commands
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


@pytest.mark.fast
def test_drawings_of_the_first_page_are_not_clipped():
    """The site at 1,280 pixels has 86 characters of code between its navigation and its contents."""
    blocks = re.findall(r"^```text\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.M | re.S)
    assert blocks and max(len(line) for block in blocks for line in block.splitlines()) <= 86
