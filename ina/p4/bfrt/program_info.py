"""The P4Info that a bfrt.json implies: our controllers need it of a switch that speaks only BFRuntime.

BFRuntime's names begin with the pipeline's; a program with one pipeline has its own names, without it
("pipe.SwitchIngress.forward" is `SwitchIngress.forward`). Ids are BFRuntime's.
"""

from __future__ import annotations

from typing import Any

from ina.p4.bfrt.info import Field, Info, Table
from ina.p4.runtime.p4info import P4Info

PIPE = "pipe."
MATCH_TABLES = ("MatchAction_Direct", "MatchAction_Indirect", "MatchAction_Indirect_Selector")


def own_name(name: str) -> str:
    return name.removeprefix(PIPE)


def p4info_of(info: Info) -> P4Info:
    message: dict[str, Any] = {"actions": [], "tables": [], "actionProfiles": [], "counters": [], "meters": [], "registers": [],
                               "directCounters": [], "directMeters": [], "valueSets": []}  # fmt: skip
    actions: dict[int, dict[str, Any]] = {}
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
                                              "withSelector": selector is not None, "tableIds": tables})  # fmt: skip
        elif table.kind == "Register":
            width = sum(f.width for f in table.data)
            message["registers"].append({"preamble": _preamble(table.id, table.name), "size": table.size,
                                         "typeSpec": {"bitstring": {"bit": {"bitwidth": width}}}})  # fmt: skip
        elif table.kind in ("Counter", "Meter"):
            message[f"{table.kind.lower()}s"].append({"preamble": _preamble(table.id, table.name), "size": table.size,
                                                      "spec": {"unit": unit_of(table.data)}})  # fmt: skip
        elif table.kind == "ParserValueSet":
            message["valueSets"].append({"preamble": _preamble(table.id, table.name), "size": table.size,
                                         "match": [_match(f) for f in table.keys]})  # fmt: skip
    for table in info.of_kind(*MATCH_TABLES):
        for kind, sign in (("directCounters", "$COUNTER"), ("directMeters", "$METER")):
            if fields := [f for f in table.data if f.name.startswith(sign)]:
                message[kind].append({"preamble": _preamble(table.id | 1 << 31, f"{table.name}.{kind}"),
                                      "spec": {"unit": unit_of(fields)}, "directTableId": table.id})  # fmt: skip
    message["actions"] = list(actions.values())
    return P4Info(message)


def unit_of(fields: Any) -> str:
    names = " ".join(f.name for f in fields)
    bytes_, packets = "BYTES" in names or "KBPS" in names, "PKTS" in names or "PPS" in names
    return "BOTH" if bytes_ and packets else "BYTES" if bytes_ else "PACKETS"


def _preamble(number: int, name: str) -> dict[str, Any]:
    name = own_name(name)
    return {"id": number, "name": name, "alias": name.rpartition(".")[2]}


def _match(key: Field) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "bitwidth": key.width,
        "matchType": key.match.upper(),
    }


def _match_table(table: Table, info: Info) -> dict[str, Any]:
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
    }  # fmt: skip
