"""Events of mkdocs: pages that are made while the site is built, and links to files of the repository.

README.md, CONTRIBUTING.md and CHANGELOG.md are pages of the site. A file or folder outside docs/ that a page links to becomes a
page under source/ that shows it, so that every link works in the checkout and on the site.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent.parent
TOP = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}  # page: file
LANGUAGES = {".p4": "c", ".c": "c", ".h": "c", ".py": "python", ".toml": "toml", ".json": "json", ".csv": "text"}
HIDDEN = "---\nsearch:\n  exclude: true\n---\n"  # front matter of pages that the search leaves out
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.M | re.S)


def prose(text: str) -> str:
    """Text without its fenced blocks, in which nothing is a link."""
    return FENCE.sub("", text)


def target(page: str, link: str) -> str | None:
    """Path in the repository of what a page of the site links to; None: an address elsewhere."""
    if re.match(r"[a-z]+:", link):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(TOP.get(page, f"docs/{page}")), link))


def page_of(path: str) -> str:
    """Page of the site that shows a file or folder of the repository."""
    for page, file in TOP.items():
        if path == file:
            return page
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}/index.md" if (ROOT / path).is_dir() else f"source/{path}.md"


def source(path: str) -> str:
    """Page that shows a file of the repository, or lists a folder's files."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(entry.name for entry in file.iterdir() if entry.is_file() and entry.suffix in LANGUAGES)
        return HIDDEN + "\n\n".join([f"# {path}", *(f"`{name}`\n\n{listing(file / name)}" for name in names)])
    return f"{HIDDEN}# {path}\n\n{listing(file)}"


def listing(file: Path) -> str:
    return f"~~~~~{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}\n~~~~~\n"


@event_priority(-100)
def on_config(config: MkDocsConfig) -> None:
    """Adds our script, in place of the one that the offline plugin takes from a server, and our styles."""
    config.extra["polyfills"] = ["assets/worker.js"]
    config.extra_css.append("assets/site.css")


def modules() -> str:
    """Page with the first sentence of every package and module, and of every file of C."""
    parts = ["# Modules\n\nThe first sentence of each package, module and file of C says what is in it.\n"]
    packages = {init.parent: first_sentence(init) for init in sorted(ROOT.glob("ina/**/__init__.py"))}
    for folder, about in (packages | {ROOT / name: "" for name in ("host/net", "host/protocol", "host/dpdk")}).items():
        paths = [path for pattern in ("*.py", "*.[ch]", "c/*.[ch]") for path in sorted(folder.glob(pattern))]
        paths = [path for path in paths if not path.name.startswith(("_", "."))]
        parts.append(f"## {folder.relative_to(ROOT)}\n\n{about}\n\n| file | |\n|---|---|")
        parts += [f"| `{path.relative_to(folder)}` | {first_sentence(path)} |" for path in paths] + [""]
    return "\n".join(parts)


def first_sentence(path: Path) -> str:
    """First sentence of a file's docstring or first comment, as a table's cell."""
    text = path.read_text()
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    else:
        comment = re.search(r"/\*(.*?)\*/", text, flags=re.S)
        text = re.sub(r"^ \* ?", "", comment[1].strip(), flags=re.M) if comment else ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.:]) (?=[A-Z`])", paragraph)[0].removesuffix(":")
    cell = sentence.replace("|", "\\|")
    return re.sub(r"(`+).*?\1|<", lambda match: match[0] if match[1] else "&lt;", cell)  # in code nothing is escaped


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "design/modules.md", content=modules()))
    for name in ("worker.js", "site.css"):
        files.append(File.generated(config, f"assets/{name}", content=(ROOT / "docs/site" / name).read_text()))
    for page, name in TOP.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    sources = set()
    for file in files.documentation_pages():
        for link, _ in LINK.findall(prose(file.content_string)):
            path = target(file.src_uri, link)
            if path and not path.startswith("docs/") and path not in TOP.values() and (ROOT / path).exists():
                sources.add(path)
    for path in sorted(sources):
        files.append(File.generated(config, page_of(path), content=source(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Text of a page whose links lead to pages of the site."""

    def rewritten(match: re.Match[str]) -> str:
        path = target(page.file.src_uri, match[1])
        if path is None:
            return match[0]
        return f"]({posixpath.relpath(page_of(path), posixpath.dirname(page.file.src_uri) or '.')}{match[2] or ''})"

    if page.file.src_uri.startswith("source/"):
        return markdown
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(rewritten, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(rewritten, markdown[end:])])
