"""Pages and tables of docs/reference/ and docs/results/ that follow from the code: `make docs` writes them anew.

    python docs/site/generate.py            writes them
    python docs/site/generate.py --check    names those that differ from what the code says; status 1 if there are any

A generated page is a file of the checkout, too, for readers without the site; a test holds it to the code.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import codec_results  # noqa: E402
import imports  # noqa: E402
import manual  # noqa: E402
from results import benchmarks  # noqa: E402

PAGES: dict[str, Callable[[], str]] = {}  # path below docs: what makes its text


def page(path: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Registers the function that makes a page."""

    def register(make: Callable[[], str]) -> Callable[[], str]:
        PAGES[path] = make
        return make

    return register


def cell(text: str) -> str:
    """Text that fits into a cell of a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("| --- ", "|---").replace("---|\n", "---|\n")


def title(text: str) -> str:
    """Heading and note of a generated page."""
    return f"# {text}\n\n<!-- Written by docs/site/generate.py: change the code, then run `make docs`. -->\n"


@page("images/imports.svg")
def drawing_of_imports() -> str:
    return imports.drawing(ROOT)


@page("reference/keys.md")
def keys() -> str:
    from ina.lab import plan
    from ina.lab.kind import FOLDER, kinds

    parts = [
        title("Keys of an experiment"),
        "A key that does not exist, or a value outside its range, is an error that names file, key and what was expected. "
        "`ina experiment show`\nprints the same list as a file. [Experiments](../guide/experiments.md) says what the kinds do.\n",
    ]
    for name, kind in kinds().items():
        if not kind.__module__.startswith(FOLDER):
            continue  # a user's own, of another package on this machine
        parts.append(f"## Kind `{name}`\n\n{inspect.getdoc(kind)}\n\n{plan.markdown(kind)}\n")
    return "\n".join(parts)


@page("reference/settings.md")
def settings() -> str:
    from ina.aggregation.control_socket.liveness import LEAST, MOST, SILENCE
    from ina.backend.settings import Keys
    from ina.base.settings import keys

    ranks = [(f"INA_{key.name.upper()}", key.help) for key in keys(Keys).values()]
    others = [
        ("INA_CONFIG", "the configuration file, in place of `~/.config/ina.toml`"),
        ("INA_CACHE", "folder of compiled programs, an absolute path that nobody else may write to (default: `~/.cache/ina`)"),
        ("INA_RUN_DIR", "folder of sockets and state of running networks (default: `/run/ina`)"),
        ("INA_TOKEN, INA_TOKEN_FILE", "token of a controller at a `tcp:` address, or its file (default: `~/.config/ina.token`)"),
        ("INA_HOST", "host that this process is in, for a controller elsewhere"),
        ("INA_SWITCH_USER", "user whose switch process may be joined, beside one's own and root"),
        ("INA_SILENCE", f"seconds after which a machine that answers nothing counts as out of reach, {LEAST} to {MOST:,} "
                        f"(default: {SILENCE}): of a switch process, or a rank"),
    ]
    rows = [[f"`{name}`", cell(text)] for name, text in ranks]
    return "\n".join([
        title("Settings of the torch back end"),
        "A setting comes from the group's options (`ina.backend.Options(values=256)`), else from `INA_VALUES=256`,\n"
        "else from `~/.config/ina.toml` (`values = 256`: the variable's name without `INA_`, in small letters), else it has its\n"
        "default. An unknown name or value is an error that says where it stands.\n",
        table(["variable", ""], rows),
        "\n## Other variables\n",
        table(["variable", ""], [[", ".join(f"`{word}`" for word in name.split(", ")), text] for name, text in others]),
        "",
    ])


STATUS = """\
Every command of `ina` with its options; `ina COMMAND --help` prints the same.

Exit status: 0, done; 1, it began and failed, or found what it looks for (errors of a P4 program, differences, wrong sums, a
switch that lacks something); 2, the command line, or the file of an experiment, network or deployment, is wrong: nothing was
begun, and all problems are printed; 130, interrupted; 141, nobody reads its output; 143, terminated.
"""


@page("reference/commands.md")
def commands() -> str:
    from ina import cli

    parts = [title("Commands"), STATUS]
    for words, help, parser in walk(cli.parser(), ()):
        parts.append(f"## ina {' '.join(words)}\n\n{sentence(parser.description or help)}\n")
        rows = [[option(action), cell(expanded(parser, action))] for action in shown(parser)]
        if rows:
            parts.append(table(["argument", ""], rows) + "\n")
    return "\n".join(parts)


def shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Arguments of a command that its help shows, but for --help and further commands."""
    return [action for action in parser._actions if action.help != argparse.SUPPRESS
            and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)]


@page("reference/ina.1")
def manual_page() -> str:
    from ina import __version__, cli
    from ina.cli.commands import GROUPS
    from ina.cli.parsers import DESCRIPTION

    def arguments(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
        return [(option(action).strip("`").replace("\\|", "|"), expanded(parser, action)) for action in shown(parser)]

    commands = [(words, sentence(parser.description or help), parser) for words, help, parser in walk(cli.parser(), ())]
    return manual.page(__version__, DESCRIPTION, GROUPS, commands, arguments)


Command = tuple[tuple[str, ...], str, argparse.ArgumentParser]  # words, help, and the parser of its arguments


def walk(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[Command]:
    """Commands below a parser that have no further ones below them, with their help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, below in action.choices.items():
                if any(isinstance(inner, argparse._SubParsersAction) for inner in below._actions):
                    yield from walk(below, (*words, name))
                else:
                    yield (*words, name), helps.get(name, ""), below


def option(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    if action.choices:
        value = ", ".join(str(choice) for choice in action.choices)
    words = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return f"`{words}`".replace("|", "\\|")
    return f"`{', '.join(action.option_strings)}{'' if action.nargs == 0 else f' {words}'}`".replace("|", "\\|")


def expanded(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """An argument's help with its values in place; processors and folders of this machine are not among them."""
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    return text.replace(str(Path.home()), "~").replace(str(ROOT), ".")


def sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", ":")) else ".")


@page("reference/counters.md")
def counters() -> str:
    sources = (
        ("Of a worker", "host/protocol/protocol.h", "ina_worker_stats", "`ina.backend.stats()[\"worker\"]`, `metrics.json`"),
        ("Of a parameter server", "host/protocol/ps.h", "ina_ps_stats", "`ina ps`, `metrics.json`"),
        ("Of a port", "host/net/port.h", "ina_port_stats", "`ina counters`"),
        ("Of a switch's port", "ina/p4/runtime/c/switch.h", "ina_switch_port_stats", "`ina counters`"),
        ("Of a link", "host/net/link.h", "ina_link_stats", "`ina counters`, `metrics.json`"),
    )
    parts = [
        title("Counters"),
        "A frame that does not go on is counted, by the reason. `ina counters` also prints the counters of the P4 program.\n",
    ]
    for heading, path, struct, where in sources:
        rows = [[", ".join(f"`{name}`" for name in names), cell(comment)] for names, comment in members(path, struct)]
        parts.append(f"## {heading}\n\n{where} (`struct {struct}` in `{path}`)\n\n{table(['counter', ''], rows)}\n")
    return "\n".join(parts)


def members(path: str, struct: str) -> Iterator[tuple[list[str], str]]:
    """Members of a C structure: the names of each declaration, and its comment."""
    text = (ROOT / path).read_text()
    match = re.search(rf"struct {struct} \{{\n(.*?)\n\}};", text, flags=re.S)
    if not match:
        raise SystemExit(f"docs/site/generate.py: {path}: expected struct {struct} there")
    for names, comment in re.findall(r"^ *\w+ ([\w, \[\]]+);[ \t]*(?:/\*(.*?)\*/)?", match[1], flags=re.M | re.S):
        yield [re.sub(r"\[.*", "", name.strip()) for name in names.split(",")], comment


@page("reference/packet-kinds.md")
def packet_kinds() -> str:
    from ina.aggregation.wire import kinds

    head = ["number", "kind", "program", "reduction", "values", "words", "headers behind the check header", "contributors",
            "receivers", "completed by", "its result", "a retransmission gets"]

    def row(kind: kinds.Kind) -> list[str]:
        width = {4: "as wide as the lane"}.get(kind.quarters, f"{Fraction(kind.quarters, 4)} of the lane's width")
        values = f"{kind.values}, {width}" if kind.has_values else kind.values
        words = ["" if word == "none" else word
                 for word in (kind.reduction, values, kind.words, kind.contributors, kind.receivers, kind.completes)]
        headers = [kind.extra] if kind.has_values else [kind.extra, kind.payload]
        behind = ", ".join(f"`{header.name}`" for header in headers if header)
        result = f"`{kind.result}`" if kind.completes != "none" else ""
        answer = f"`{kind.again}`, or the result" if kind.again else ""
        return [str(kind.number), f"`{kind.name}`", f"`{kind.program}`", *words[:3], behind, *words[3:], result, answer]

    meanings = [[column.replace("completes", "completed by"), f"`{word}`", meaning]
                for column, words in kinds.COLUMNS.items() for word, meaning in words.items() if word != "none"]
    return "\n".join([
        title("Packet kinds"),
        "The number is the header's message type. What a switch does with each: [SwitchML](../design/protocol.md),\n"
        "[ATP](../design/protocol-atp.md). [A new one](../design/architecture.md#a-new-kind-of-packet) is a row of the file.\n",
        f"## SwitchML and its kin\n\nFrom `{kinds.SOURCE}`.\n\n{table(head, [row(kind) for kind in kinds.switchml()])}\n",
        f"## ATP\n\nFrom `{kinds.ATP_SOURCE}`.\n\n{table(head, [row(kind) for kind in kinds.atp()])}\n",
        f"## Words\n\n{table(['column', 'word', ''], meanings)}\n",
    ])


@page("reference/p4-features.md")
def features() -> str:
    content = tomllib.loads((ROOT / "docs/site/features.toml").read_text())
    groups, judges, estimates = content["group"], content["judge"], content["estimates"]
    results = json.loads((ROOT / "tests/ptf/results.json").read_text())
    not_on_bmv2 = constant(ROOT / "tests/p4/compiler/test_stf_features.py", "NOT_ON_BMV2")
    parts = [
        title("P4 features"),
        "What there is of P4_16, of v1model and of TNA (Tofino 1), with a sample or a test of each, and what others' tests and\n"
        "compilers say of it ([judges](#judges)). A sample is a short program of `tests/stf` with a packet test;\n"
        "`ina stf tests/stf` runs them. Meanings of TNA follow Intel's \"P4-16 Tofino Native Architecture\", public version;\n"
        "where it is silent (which LAG member a hash chooses, for example), open-p4studio's tests.\n",
        "| column | |\n|---|---|\n"
        "| v1model, TNA | sample or test that shows it; *same*: both architectures share the code; –: not in the architecture |\n"
        "| compiled | the compiled switch passes that test |\n"
        "| interpreted | so does the reference interpreter; TNA's: on random packets, `test_tna_differential.py` |\n"
        "| BMv2 | simple_switch gives the same answers to the sample, or why not |\n"
        "| PTF | open-p4studio's [examples](#examples-of-open-p4studio) that use it, with the tests that pass |\n",
        "[Tofino programs](../guide/tna.md) has TNA's rules and what is refused of it, [P4 here](../guide/p4.md#what-is-not)\n"
        "what is refused of v1model.\n",
    ]
    for group in groups:
        rows = []
        for row in group["rows"]:
            samples, tests = row["v1model"], row["tna"]
            inside = any(name == "same" or "/tna/" in name or "differential" in name for name in tests)
            judged = [not_on_bmv2[name] for name in samples if name in not_on_bmv2]
            rows.append([
                row["feature"],
                "<br>".join(sample(name) for name in samples) or "–",
                "<br>".join(test(name) for name in tests) or "–",
                "yes" if samples or tests else "no",
                "yes" if samples or (inside and group is not groups[-1]) else "–",
                "; ".join(judged) or ("yes" if samples else "–"),
                "<br>".join(f"`{name}` {passing(results[name].values())}" for name in row.get("ptf", ())) or "–",
                cell(row["note"]),
            ])
        head = ["feature", "v1model", "TNA", "compiled", "interpreted", "BMv2", "PTF", "note"]
        used = [i for i, _ in enumerate(head) if i < 6 or any(row[i] not in ("", "–") for row in rows)]
        parts.append(f"## {group['name']}\n\n{table([head[i] for i in used], [[row[i] for i in used] for row in rows])}\n")
    every = passing(cause for tests in results.values() for cause in tests.values())
    rows = [[f"[{judge['name']}](#{anchor(judge['name'])})", judge["of"], judge["result"].replace("PTF", f"{every} tests pass"),
             judge["run"]] for judge in judges]
    parts.append(f"## Judges\n\n{table(['judge', 'of', 'result', 'run by'], rows)}\n")
    parts += [f"## {judge['name']}\n\n{judge['text'].strip()}\n" for judge in judges]
    rows = [[f"`{name}`", passing(tests.values()), others(tests), *estimates.get(name, ["–"] * 6)]
            for name, tests in sorted(results.items())]
    head = ["example", "PTF tests that pass", "the others", "stages", "bits of containers", "stateful and meter ALUs", "SRAM",
            "TCAM", "hash bits"]
    parts.append("## Examples of open-p4studio\n\nTests that pass, and of each resource the estimate of `ina tofino check` / "
                 f"what p4c takes.\n\n{table(head, rows)}\n\nTogether {every} tests pass.\n")
    return "\n".join(parts)


def passing(causes: Iterable[str]) -> str:
    """The number of tests that pass: those whose failure has no cause."""
    every = list(causes)
    return f"{every.count('')} of {len(every)}"


def others(tests: dict[str, str]) -> str:
    """The tests of an example that do not pass, by cause."""
    by_cause: dict[str, list[str]] = {}
    for name, cause in tests.items():
        by_cause.setdefault(cause, []).append(f"`{name}`")
    return "; ".join(f"{cause}: {', '.join(names)}" for cause, names in by_cause.items() if cause)


def anchor(heading: str) -> str:
    """The id that the site gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")


def sample(name: str) -> str:
    path = f"tests/stf/{name}.p4"
    present(path)
    return f"[`{name}`](../../{path})"


def test(name: str) -> str:
    if name == "same":
        return "same"
    path, _, function = name.partition("::")
    present(f"tests/{path}", f"def {function}(" if function else "")
    return f"[`{function or path.rpartition('/')[2]}`](../../tests/{path})"


def present(path: str, text: str = "") -> None:
    """Checks that a file is there and has a text."""
    if not (ROOT / path).is_file() or text not in (ROOT / path).read_text():
        raise SystemExit(f"docs/site/features.toml: {path}: expected {text or 'this file'} there")


def constant(path: Path, name: str) -> dict[str, str]:
    """Value of a module's constant, which is not imported."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return ast.literal_eval(node.value)
    raise SystemExit(f"docs/site/generate.py: {path}: expected {name} there")


PAGES |= {f"results/{path}": lambda text=text: text for path, text in {**benchmarks(), **codec_results.pages()}.items()}


def main() -> int:
    os.environ["COLUMNS"] = "100"
    stale = []
    for path, make in PAGES.items():
        file, text = ROOT / "docs" / path, make()
        if not file.exists() or file.read_text() != text:
            stale.append(path)
            if "--check" not in sys.argv:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
    for path in stale:
        print(f"docs/{path}: {'differs from the code: run make docs' if '--check' in sys.argv else 'written'}")
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
