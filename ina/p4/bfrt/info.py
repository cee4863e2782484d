"""A bfrt.json as Python values: the tables of a switch with the names, ids and types of their fields; and the P4Info that it
implies, which our controllers need of a switch that speaks only BFRuntime.

A table has key fields, data fields of its own, and actions with theirs. Objects are found by their full name or any suffix of
it (after a dot) that only one of them has: `pipe.SwitchIngress.forward` is `SwitchIngress.forward` and `forward`. BFRuntime's
names begin with the pipeline's; a program with one pipeline has its own names, without it ("pipe.SwitchIngress.forward" is
`SwitchIngress.forward`). Ids are BFRuntime's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ina.base import documents
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.p4info import Json, N, P4Info, find

STORED = {"atcam": "exact", "dleft_hash": "exact"}  # ways in which the hardware stores a table: how its keys match
WIDTHS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "int8": 8, "int16": 16, "int32": 32, "int64": 64}


@dataclass(frozen=True, slots=True)
class Field:
    """`type`: int (of `width` bits), bool, string, float, or container, whose fields are `items`.
    `match`: of a key field, exact, ternary, lpm, range or optional."""

    id: int
    name: str
    type: str
    width: int = 0
    match: str = ""
    repeated: bool = False
    read_only: bool = False
    choices: tuple[str, ...] = ()
    items: tuple[Field, ...] = ()

    @property
    def bytes(self) -> int:
        return (self.width + 7) // 8


@dataclass(frozen=True, slots=True)
class Action:
    """`scope`: TableAndDefault, TableOnly or DefaultOnly."""

    id: int
    name: str
    scope: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """`kind`: BFRuntime's table type, MatchAction_Direct, Register, PortConfigure, ..."""

    id: int
    name: str
    kind: str
    size: int
    keys: tuple[Field, ...]
    actions: tuple[Action, ...]
    data: tuple[Field, ...]
    attributes: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    const_default: bool = False
    depends_on: tuple[int, ...] = ()
    annotations: tuple[str, ...] = ()

    def key(self, name: str | int) -> Field:
        return self._find("key field", self.keys, name)

    def action(self, name: str | int) -> Action:
        return self._find("action", self.actions, name)

    def field(self, name: str | int, action: Action | None = None) -> Field:
        """A data field: the action's own come first, then the table's."""
        return self._find(f"data field of action {action.name}" if action else "data field",
                          [*(action.fields if action else ()), *self.data], name)

    def _find(self, kind: str, items: Iterable[N], name: str | int) -> N:
        try:
            return find(kind, items, name)
        except EntityError as error:
            raise EntityError(f"table {self.name}: {error}", error.code) from None


def _text(spec: Json, key: str) -> str:
    text = spec[key]
    if not isinstance(text, str):
        raise TypeError(f"{key} is {text!r:.100}, expected a text")
    return text


def _field(spec: Json, match: str = "", read_only: bool = False) -> Field:
    kind = spec.get("type") or {"type": "container"}
    name = kind["type"]
    items = tuple(_field(item["singleton"]) for item in spec.get("container", ()))
    width = int(kind.get("width", 0)) if name == "bytes" else WIDTHS.get(name, 0)
    blob = name == "bytes" and bool(spec.get("repeated"))  # any number of bytes
    return Field(int(spec["id"]), _text(spec, "name"), name if blob else "int" if width else name, width,
                 STORED.get(match.lower(), match.lower()),
                 bool(spec.get("repeated")), read_only or bool(spec.get("read_only")),
                 tuple(kind.get("choices", ())), items)


def _action(spec: Json) -> Action:
    fields = tuple(map(_field, spec.get("data", ())))
    return Action(int(spec["id"]), _text(spec, "name"), spec.get("action_scope", "TableAndDefault"), fields)


def _table(spec: Json) -> Table:
    data = tuple(
        _field(one, read_only=bool(item.get("read_only")))
        for item in spec.get("data", ())
        for one in ([item["singleton"]] if "singleton" in item else item["oneof"])
    )
    return Table(
        int(spec["id"]), _text(spec, "name"), _text(spec, "table_type"), int(spec.get("size", 0)),
        tuple(_field(k, k["match_type"]) for k in spec["key"]),
        tuple(map(_action, spec.get("action_specs", ()))),
        data, tuple(spec.get("attributes", ())), tuple(spec.get("supported_operations", ())),
        bool(spec.get("has_const_default_action")), tuple(spec.get("depends_on", ())),
        tuple(_text(note, "name") for note in spec.get("annotations", ())),
    )


class Info:
    """Tables of one program and the fixed tables: the two parts that a server returns, each a bfrt.json (bytes or its value).

    Raises EntityError: one is no bfrt.json."""

    def __init__(self, program: bytes | Json, fixed: bytes | Json | None = None):
        self.tables: dict[str, Table] = {}
        self.learns: dict[str, Action] = {}  # digests: an "action" with a digest's fields
        for name, part in (("program", program), ("fixed tables", fixed)):
            try:
                self._add(documents.json_text(part) if isinstance(part, (bytes, str)) and part else part or {})
            except documents.Unreadable as error:
                raise EntityError(f"bfrt.json of the {name}: {error}") from None
            except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
                raise EntityError(f"bfrt.json of the {name}: not as BFRuntime defines it: {error!r}"[:500]) from None
        self._by_id = {t.id: t for t in self.tables.values()}

    def _add(self, part: Json) -> None:
        self.tables |= {table.name: table for table in map(_table, part.get("tables", ()))}
        for item in part.get("learn_filters", ()):
            name = _text(item, "name")
            self.learns[name] = Action(int(item["id"]), name, "", tuple(_field(f) for f in item["fields"]))

    def table(self, name: str | int) -> Table:
        """Raises EntityError (NOT_FOUND) with the nearest name."""
        table = self.tables.get(name) if isinstance(name, str) else self._by_id.get(name)
        return table or find("table", self.tables.values(), name)

    def of_kind(self, *kinds: str) -> list[Table]:
        return [t for t in self.tables.values() if t.kind in kinds]


PIPE = "pipe."
MATCH_TABLES = ("MatchAction_Direct", "MatchAction_Indirect", "MatchAction_Indirect_Selector")


def own_name(name: str) -> str:
    return name.removeprefix(PIPE)


def p4info_of(info: Info) -> P4Info:
    message: Json = {"actions": [], "tables": [], "actionProfiles": [], "counters": [], "meters": [], "registers": [],
                               "directCounters": [], "directMeters": [], "valueSets": []}
    actions: dict[int, Json] = {}
    for table in info.tables.values():
        for action in table.actions if table.name.startswith("$") is False else ():
            params = [{"id": f.id, "name": f.name, "bitwidth": f.width or 1} for f in action.fields]
            actions[action.id] = {"preamble": _preamble(action.id, action.name), "params": params}
        if table.kind in MATCH_TABLES:
            message["tables"].append(_match_table(table, info))
        elif table.kind == "Action":
            selector = next((t for t in info.of_kind("Selector") if t.depends_on == (table.id,)), None)
            tables = [t.id for t in info.of_kind(*MATCH_TABLES) if {table.id, getattr(selector, "id", None)} & set(t.depends_on)]
            message["actionProfiles"].append({"preamble": _preamble(table.id, table.name), "size": table.size,
                                              "withSelector": selector is not None, "tableIds": tables})
        elif table.kind == "Register":
            width = sum(f.width for f in table.data)
            message["registers"].append({"preamble": _preamble(table.id, table.name), "size": table.size,
                                         "typeSpec": {"bitstring": {"bit": {"bitwidth": width}}}})
        elif table.kind in ("Counter", "Meter"):
            message[f"{table.kind.lower()}s"].append({"preamble": _preamble(table.id, table.name), "size": table.size,
                                                      "spec": {"unit": unit_of(table.data)}})
        elif table.kind == "ParserValueSet":
            message["valueSets"].append({"preamble": _preamble(table.id, table.name), "size": table.size,
                                         "match": [_match(f) for f in table.keys]})
    for table in info.of_kind(*MATCH_TABLES):
        for kind, sign in (("directCounters", "$COUNTER"), ("directMeters", "$METER")):
            if fields := [f for f in table.data if f.name.startswith(sign)]:
                message[kind].append({"preamble": _preamble(table.id | 1 << 31, f"{table.name}.{kind}"),
                                      "spec": {"unit": unit_of(fields)}, "directTableId": table.id})
    message["actions"] = list(actions.values())
    return P4Info(message)


def unit_of(fields: Any) -> str:
    names = " ".join(f.name for f in fields)
    bytes_, packets = "BYTES" in names or "KBPS" in names, "PKTS" in names or "PPS" in names
    return "BOTH" if bytes_ and packets else "BYTES" if bytes_ else "PACKETS"


def _preamble(number: int, name: str) -> Json:
    name = own_name(name)
    return {"id": number, "name": name, "alias": name.rpartition(".")[2]}


def _match(key: Field) -> Json:
    return {
        "id": key.id,
        "name": key.name,
        "bitwidth": key.width,
        "matchType": key.match.upper(),
    }


def _match_table(table: Table, info: Info) -> Json:
    scopes = {"TableAndDefault": "TABLE_AND_DEFAULT", "TableOnly": "TABLE_ONLY", "DefaultOnly": "DEFAULT_ONLY"}
    profile = 0
    references = table.actions
    for number in table.depends_on:
        dependency = info.table(number)
        if dependency.kind == "Selector":
            dependency = info.table(dependency.depends_on[0])
        if dependency.kind == "Action":
            profile, references = dependency.id, dependency.actions
    return {
        "preamble": _preamble(table.id, table.name) | {"annotations": list(table.annotations)}, "size": table.size,
        "implementationId": profile,
        "matchFields": [_match(k) for k in table.keys if k.name != "$MATCH_PRIORITY"],
        "actionRefs": [{"id": a.id, "scope": scopes[a.scope]} for a in references],
        "constDefaultActionId": (table.actions[0].id if table.actions else 1) if table.const_default else 0,
        "isConstTable": "ConstTable" in table.attributes,
    }
