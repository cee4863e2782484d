"""Our bf-rt.json and P4Info of TNA programs, compared field by field with those of p4c's Tofino back end.

Runs where P4C_TOFINO and Intel's examples are. Known differences are listed here with their reasons; no others are allowed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tofino_judge import examples, loaded, taken_up

from ina.p4.bfrt.schema import bfrt_json
from ina.p4.compiler.generate import generate
from ina.p4.compiler.p4info import files as p4info_files

NOT_SERVED = {
    "SnapshotCfg": "snapshots", "SnapshotTrigger": "snapshots", "SnapshotData": "snapshots", "SnapshotLiveness": "snapshots",
    "TblDbgCnt": "debug counters of logical tables, which only hardware has",
}
RENAMED = "p4c writes a name that it has changed itself into an annotation"
# (type of table, place in its description): reason for the difference. Delete rows that no program needs.
KNOWN = (
    (r"RegisterParam", r"/depends_on lacks \d+", "which register's action reads the parameter is not in P4Info"),
    (r"MatchAction_.*", r"/action_specs (lacks [\w.]+|extra pipeline_\w+\.[\w.]+)",
     "of several pipelines, actions too begin with their pipeline's name here"),
    (r"MatchAction_Indirect_Selector", r"/depends_on extra \d+", "p4c names a shared profile at one of its tables only"),
    (r"DynHash.*", r"/annotations lacks .*", "annotations of a Hash are not told"),
    (r"Register|Meter", r"/annotations extra", "p4c leaves out the empty list for these"),
    (r"MatchAction_.*", r"/annotations (lacks|extra) .*alpm.*", RENAMED),
)


@functools.cache
def ours(program: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    _, info, layouts = generate(loaded(program))
    merged = {**layouts[0]}
    for section in ("registers", "counters", "meters", "filters", "tables"):
        merged[section] = [item for layout in layouts for item in layout[section]]
    merged["selectors"] = {name: s for layout in layouts for name, s in layout["selectors"].items()}
    merged["port_metadata"] = [m for layout in layouts if (m := layout["port_metadata"])["name"]]
    return bfrt_json(info, merged, len(layouts)), info


def name_of(item: Any) -> str:
    """Key that identifies an item of a list."""
    if isinstance(item, dict):
        if "singleton" in item:
            return item["singleton"]["name"]
        return "oneof" if "oneof" in item else str(item.get("name", item.get("key", item.get("id"))))
    return str(item)


def differences(mine: Any, theirs: Any, place: str = "") -> Iterator[str]:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key in sorted(mine.keys() | theirs.keys()):
            if key not in theirs:
                yield f"{place}/{key} extra"
            elif key not in mine:
                yield f"{place}/{key} missing: {theirs[key]}"
            else:
                yield from differences(mine[key], theirs[key], f"{place}/{key}")
    elif isinstance(mine, list) and isinstance(theirs, list):
        a, b = ({name_of(x): x for x in items} for items in (mine, theirs))
        yield from (f"{place} lacks {n}" for n in b if n not in a)
        yield from (f"{place} extra {n}" for n in a if n not in b)
        shared = [n for n in a if n in b]
        if shared != [n for n in b if n in a]:
            yield f"{place} order {list(a)}: expected {list(b)}"
        for n in shared:
            yield from differences(a[n], b[n], f"{place}/{n}")
    elif mine != theirs or type(mine) is not type(theirs):
        yield f"{place} is {mine!r}: expected {theirs!r}"


def is_known(kind: str, difference: str) -> bool:
    return any(re.fullmatch(k, kind) and re.fullmatch(d, difference) for k, d, _ in KNOWN)


@pytest.mark.fast
def test_the_comparison_sees_what_differs():
    a = {"tables": [{"name": "t", "id": 1, "key": [{"name": "k", "width": 3}]}, {"name": "u"}]}
    b = {"tables": [{"name": "u", "size": 4}, {"name": "t", "id": True, "key": [{"name": "k", "width": 4}]}]}
    assert list(differences(a, a)) == []
    assert list(differences(a, b)) == [
        "/tables order ['t', 'u']: expected ['u', 't']", "/tables/t/id is 1: expected True",
        "/tables/t/key/k/width is 3: expected 4", "/tables/u/size missing: 4",
    ]


@pytest.mark.hardware
@pytest.mark.parametrize("program", examples() or [None], ids=lambda p: p.stem if p else "none")
def test_schema(program):
    judgement = taken_up(program)
    mine, _ = ours(program)
    theirs = {t["name"]: t for t in judgement.schema["tables"]}
    tables = {t["name"]: t for t in mine["tables"]}
    faults = [f"{name}: not there" for name, t in theirs.items() if name not in tables and t["table_type"] not in NOT_SERVED]
    faults += [f"{name}: not in p4c's" for name in tables if name not in theirs]
    for name, table in tables.items():
        if name in theirs:
            kind = theirs[name]["table_type"]
            faults += [f"{kind} {name}{d}" for d in differences(table, theirs[name]) if not is_known(kind, d)]
    faults += [f"learn filter {d}" for d in differences(mine["learn_filters"], judgement.schema["learn_filters"])]
    assert faults == []
    json.dumps(mine)


# ---- P4Info

# Known differences of our P4Info.
P4INFO_KNOWN = (
    (r"/tables order .*", "tables of a control that is in another come first in p4c's"),
    (r"/actions order .*", "the built-in action comes where it is first used"),
    (r"/(actions/.*_[ab]\..*|tables/.*_[ab]\..*action.*)", "of several pipelines, actions too begin with their pipeline's name"),
    (r"/action_profiles/.*/table_ids order .*", "the order in which tables name a profile"),
    (r"/registers extra.*", "direct registers and RegisterParams: clients can read and write them over P4Runtime here"),
    (r"/value_sets/.*/match extra", "p4c leaves out what a value set matches, though P4Runtime 1.3 has it"),
    (r"/value_sets/.*/alias is .*", "p4c keeps the pipeline's name in that alias"),
    (r"/type_info(/\w+)? (lacks|extra|missing).*", "types of what the other one leaves out"),
    (r"/tables/.*/preamble/annotations (lacks|extra) .*alpm.*", RENAMED),
    (r"/tables/.*/match_fields/.*index.*/(match_type extra|other_match_type missing.*)",
     "P4Runtime's clients give the index of an algorithmic TCAM's partition as what it is, an exact key"),
)


def tree(text: str) -> dict[str, list[Any]]:
    """Parses protobuf's text format: every field as a list of its values."""
    lines = iter(line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))

    def block() -> dict[str, list[Any]]:
        out: dict[str, list[Any]] = {}
        for line in lines:
            if line == "}":
                return out
            key, _, value = line.partition(" ")
            out.setdefault(key.rstrip(":"), []).append(block() if line.endswith("{") else value)
        return out

    return block()


def plain(message: dict[str, list[Any]]) -> dict[str, Any]:
    """Simplifies the tree: messages by their preamble's name, a field with one value as that value."""
    out: dict[str, Any] = {}
    for key, values in message.items():
        values = [plain(v) if isinstance(v, dict) else v for v in values]
        out[key] = values if len(values) > 1 or key in REPEATED else values[0]
    if "preamble" in out:
        out["name"] = out["preamble"]["name"]
    return out


REPEATED = ("tables", "actions", "action_profiles", "counters", "direct_counters", "meters", "direct_meters", "registers",
            "digests", "value_sets", "match_fields", "action_refs", "params", "annotations", "match", "members", "structs",
            "new_types", "serializable_enums", "headers", "direct_resource_ids", "table_ids", "externs")


@pytest.mark.fast
def test_the_text_is_read():
    assert plain(tree('a {\n  preamble {\n    name: "x y"\n  }\n  params {\n    id: 1\n  }\n}\n')) == {
        "a": {"preamble": {"name": '"x y"'}, "params": [{"id": "1"}], "name": '"x y"'}}


@pytest.mark.hardware
@pytest.mark.parametrize("program", examples() or [None], ids=lambda p: p.stem if p else "none")
def test_p4info(program):
    judgement = taken_up(program)
    schema, info = ours(program)
    own_text = p4info_files.text(info)
    for pipeline in {t["name"].partition(".")[0] for t in schema["tables"]}:  # p4c leaves them out
        own_text = own_text.replace(f'"{pipeline}.', '"')
    mine, theirs = (plain(tree(text)) for text in (own_text, judgement.p4info))
    for info in (mine, theirs):
        info.pop("externs", None)  # Tofino's own: the schema has them
    faults = [d for d in differences(mine, theirs) if not any(re.fullmatch(k, d) for k, _ in P4INFO_KNOWN)]
    assert faults == []
