"""Tables of hashes that can be changed at run time, in a program's bfrt.json (as p4c's Tofino back end writes them)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ina.p4.bfrt.hashes import ALGORITHMS


def hash_tables(
    hashes: Iterable[dict[str, Any]], prefix: str, id_of: Callable[[str, str], int], ids: dict[str, int]
) -> list[dict[str, Any]]:
    """The tables of each hash. `id_of`: a table's id, by its type and its object's name; `ids`: those of fields that are the
    same in every table."""

    def field(name: str, kind: str, number: int = 0, **more: Any) -> dict[str, Any]:
        single = {"id": number or ids[name], "name": name, "repeated": False, "annotations": [], "type": {"type": kind, **more}}
        return {"mandatory": False, "read_only": False, "singleton": single}

    def member(number: int, name: str, kind: str, mandatory: bool = False, **more: Any) -> dict[str, Any]:
        return {**field(name, kind, number, **more)["singleton"], "mandatory": mandatory, "read_only": False}

    def action(name: str, data: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": ids[name], "name": name, "action_scope": "TableAndDefault", "annotations": [], "data": data}

    def table(hash_: dict[str, Any], suffix: str, kind: str, key: list[Any], data: list[Any], **more: Any) -> dict[str, Any]:
        configure = id_of("DynHashConfigure", hash_["name"])
        return {
            "name": f"{prefix}{hash_['name']}.{suffix}", "id": id_of(kind, hash_["name"]), "table_type": kind, "size": 1,
            "annotations": [], "depends_on": [] if kind == "DynHashConfigure" else [configure], "key": key, "data": data,
            "supported_operations": [], "attributes": [], **more,
        }  # fmt: skip

    tables = []
    for hash_ in hashes:
        pre_defined = [member(1, "algorithm_name", "string", choices=list(ALGORITHMS), default_value="RANDOM")]
        user_defined = [member(1, "reverse", "bool", default_value=False), member(2, "polynomial", "uint64", True),
                        member(3, "init", "uint64", default_value=0), member(4, "final_xor", "uint64", default_value=0),
                        member(5, "hash_bit_width", "uint64")]  # fmt: skip
        common = [field("rotate", "uint32", default_value=0), field("seed", "uint32", default_value=0),
                  field("msb", "bool", default_value=False), field("extend", "bool", default_value=False)]  # fmt: skip
        actions = [action("pre_defined", pre_defined), action("user_defined", user_defined)]
        tables.append(table(hash_, "algorithm", "DynHashAlgorithm", [], common, action_specs=actions))
        fields = []
        for number, f in enumerate(hash_["fields"], 1):
            items = [field("start_bit", "uint64", default_value=0), field("length", "uint64", default_value=f["width"]),
                     field("order", "uint64") | {"mandatory": True}]  # fmt: skip
            notes = [{"name": "bfrt_p4_constant"}] if f["constant"] else []
            one = {"id": number, "name": f["name"], "repeated": True, "annotations": notes, "container": items}
            fields.append({"mandatory": False, "read_only": False, "singleton": one})
        tables.append(table(hash_, "configure", "DynHashConfigure", [], fields))
        variables = [f for f in hash_["fields"] if not f["constant"]]
        keys = [{"id": n, "name": f["name"], "repeated": False, "annotations": [], "mandatory": False, "match_type": "Exact",
                 "type": {"type": "bytes", "width": f["width"]}} for n, f in enumerate(variables, 1)]  # fmt: skip
        value = field("hash_value", "bytes", width=hash_["width"]) | {"read_only": True}
        tables.append(table(hash_, "compute", "DynHashCompute", keys, [value], read_only=True))
    return tables
