"""``ina programs`` and ``ina examples``: what the package carries, by name; and programs by name for other commands."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from ina.cli.errors import reported
from ina.cli.parsers import nearest


def add_arguments(commands: argparse._SubParsersAction) -> None:
    """Adds the commands to ``ina``; each sets ``main``, a function of the parsed arguments."""
    shown = commands.add_parser("programs", epilog="Commands that take a program take these names, too, in any folder. A changed "
                                "copy finds the same headers: ina programs switchml > mine.p4; ina compile mine.p4")
    shown.add_argument("name", nargs="?", help="print this program's source (default: list them)")
    shown.add_argument("--path", action="store_true", help="print where its file is, instead of the source")
    shown.set_defaults(main=reported(_programs))

    examples = commands.add_parser("examples")
    examples.set_defaults(main=reported(_list))
    verbs = examples.add_subparsers(title="commands", metavar="COMMAND")
    verbs.add_parser("list", help="list them, each in one line (the default)").set_defaults(main=reported(_list))
    copy = verbs.add_parser("copy", help="copy an example, to run and to change it")
    copy.add_argument("name", help="an example of ina examples list")
    copy.add_argument("folder", nargs="?", type=Path, default=Path("examples"),
                      help="where NAME is written (default: examples, so that the lines of its README run as they stand)")
    copy.set_defaults(main=reported(_copy))


def program_files() -> dict[str, Path]:
    """Returns the files of the package's switch programs by their names: ``switchml``, ``tofino/switchml``."""
    from ina.base import paths

    return paths.program_files()


def program_path(text: str) -> Path:
    """Returns the path of a program: one of the package, or of another package's protocol, for a name without an ending that is
    no file here, else the text's.

    Raises argparse.ArgumentTypeError: there is no program of that name, or another package's cannot be used."""
    from ina.aggregation import protocols

    if not text:
        raise argparse.ArgumentTypeError("an empty name: expected that of a file or folder, such as ./name")
    path = Path(text)
    programs = program_files()
    if path.suffix or path.is_file() or (path.exists() and text not in programs):
        return path
    if text not in programs and text in protocols.installed():
        try:
            return protocols.own_path(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    if text not in programs:
        raise argparse.ArgumentTypeError(f"no file {text!r} here, and no program of that name{nearest(text, programs)}; "
                                         "ina programs lists them")
    return programs[text]


def _about(source: str) -> str:
    """Returns the first sentence of the comment that a program begins with."""
    comment = source.partition("*/")[0].removeprefix("/*")
    words = " ".join(line.strip().removeprefix("*").strip() for line in comment.splitlines())
    return re.split(r"[.:](?: |$)", words.strip(), maxsplit=1)[0]


def _programs(args: argparse.Namespace) -> int:
    from ina.aggregation import protocols

    programs = program_files()
    if args.name is None:
        if args.path:
            raise ValueError("--path: expected a program's name before it; ina programs lists them")
        width = max(map(len, [*programs, *protocols.installed()]))
        for name, path in programs.items():
            print(f"{name:<{width}}  {_about(path.read_text(encoding='utf-8'))}")
        for name in protocols.installed():
            try:
                protocols.check_name(name)
                about = _about(protocols.own_path(name).read_text(encoding="utf-8"))
            except ValueError as error:
                about = f"cannot be used: {error}"
            print(f"{name:<{width}}  {about}")
        return 0
    if args.name not in programs and args.name in protocols.installed():
        programs = {args.name: protocols.own_path(args.name)}
    if args.name not in programs:
        raise ValueError(f"no program {args.name!r}{nearest(args.name, programs)}; ina programs lists them")
    path = programs[args.name]
    if args.path:
        print(path)
    else:
        sys.stdout.write(path.read_text(encoding="utf-8"))
    return 0


def _examples() -> dict[str, list[Path]]:
    """Returns the files and folders of the examples by their names."""
    from ina.base import paths

    root = paths.root() / "examples"
    examples: dict[str, list[Path]] = {}
    for path in sorted(root.iterdir()):
        if path.name not in ("README.md", "__pycache__"):
            examples.setdefault(path.stem, []).append(path)
    return examples


def _list(_args: argparse.Namespace) -> int:
    examples = _examples()
    width = max(map(len, examples))
    for name, files in examples.items():
        if files[0].is_dir():
            about = (files[0] / "README.md").read_text(encoding="utf-8").splitlines()[0].partition(": ")[2]
        else:
            source = next(path for path in files if path.suffix == ".py").read_text(encoding="utf-8")
            about = _about(source.removeprefix('"""'))
        print(f"{name:<{width}}  {about}")
    return 0


def _copy(args: argparse.Namespace) -> int:
    examples = _examples()
    if args.name not in examples:
        raise ValueError(f"no example {args.name!r}{nearest(args.name, examples)}; ina examples list has them")
    targets = [args.folder / path.name for path in examples[args.name]]
    for target in targets:
        if target.exists():
            raise FileExistsError(f"{target} is there already: expected a new one; choose another folder, or move it")
    args.folder.mkdir(parents=True, exist_ok=True)
    for source, target in zip(examples[args.name], targets, strict=True):
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
        print(target)
    return 0
