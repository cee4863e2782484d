"""Tables of hashes that can be changed at run time, in a program's bfrt.json (as p4c's Tofino back end makes them)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ina.p4.bfrt.hashes import ALGORITHMS


def hash_tables(
    hashes: Iterable[dict[str, Any]], prefix: str, id_of: Callable[[str, str], int], ids: dict[str, int]
) -> list[dict[str, Any]]:
    """`id_of`: of a table, by its type and its object's name; `ids`: of fields that have the same in every table."""

    def field(name: str, kind: str, number: int = 0, **more: Any) -> dict[str, Any]:
        made = {"id": number or ids[name], "name": name, "repeated": False, "annotations": [], "type": {"type": kind, **more}}
        return {"mandatory": False, "read_only": False, "singleton": made}

    def own(number: int, name: str, kind: str, mandatory: bool = False, **more: Any) -> dict[str, Any]:
        return field(name, kind, number, **more)["singleton"] | {"mandatory": mandatory, "read_only": False}

    def action(name: str, data: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": ids[name], "name": name, "action_scope": "TableAndDefault", "annotations": [], "data": data}

    def table(made: dict[str, Any], suffix: str, kind: str, key: list[Any], data: list[Any], **more: Any) -> dict[str, Any]:
        configure = id_of("DynHashConfigure", made["name"])
        return {
            "name": f"{prefix}{made['name']}.{suffix}", "id": id_of(kind, made["name"]), "table_type": kind, "size": 1,
            "annotations": [], "depends_on": [] if kind == "DynHashConfigure" else [configure], "key": key, "data": data,
            "supported_operations": [], "attributes": [], **more,
        }  # fmt: skip

    tables = []
    for made in hashes:
        pre_defined = [own(1, "algorithm_name", "string", choices=list(ALGORITHMS), default_value="RANDOM")]
        user_defined = [own(1, "reverse", "bool", default_value=False), own(2, "polynomial", "uint64", True),
                        own(3, "init", "uint64", default_value=0), own(4, "final_xor", "uint64", default_value=0),
                        own(5, "hash_bit_width", "uint64")]  # fmt: skip
        common = [field("rotate", "uint32", default_value=0), field("seed", "uint32", default_value=0),
                  field("msb", "bool", default_value=False), field("extend", "bool", default_value=False)]  # fmt: skip
        actions = [action("pre_defined", pre_defined), action("user_defined", user_defined)]
        tables.append(table(made, "algorithm", "DynHashAlgorithm", [], common, action_specs=actions))
        fields = []
        for number, f in enumerate(made["fields"], 1):
            items = [field("start_bit", "uint64", default_value=0), field("length", "uint64", default_value=f["width"]),
                     field("order", "uint64") | {"mandatory": True}]  # fmt: skip
            notes = [{"name": "bfrt_p4_constant"}] if f["constant"] else []
            one = {"id": number, "name": f["name"], "repeated": True, "annotations": notes, "container": items}
            fields.append({"mandatory": False, "read_only": False, "singleton": one})
        tables.append(table(made, "configure", "DynHashConfigure", [], fields))
        named = [f for f in made["fields"] if not f["constant"]]
        keys = [{"id": n, "name": f["name"], "repeated": False, "annotations": [], "mandatory": False, "match_type": "Exact",
                 "type": {"type": "bytes", "width": f["width"]}} for n, f in enumerate(named, 1)]  # fmt: skip
        value = field("hash_value", "bytes", width=made["width"]) | {"read_only": True}
        tables.append(table(made, "compute", "DynHashCompute", keys, [value], read_only=True))
    return tables
