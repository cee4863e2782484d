"""A program's bfrt.json, from its P4Info: the schema that a driver of Tofino returns to clients.

Form, table types, names and ids are those of p4c's Tofino back end (control-plane/bfruntime.cpp, bfruntime_ext.cpp): the id of
a table is the P4Info's with Tofino's own first byte for its kind. The name of every object in a pipeline begins with the
pipeline's: "pipe." where the program has one. `Info` reads the result (info.py), which leaves out tables that are not served.
"""

from __future__ import annotations

import re
from typing import Any

from ina.p4.bfrt.cells import FILTER_FIELDS, FILTER_INDEX
from ina.p4.bfrt.hashes import ALGORITHMS
from ina.p4.bfrt.info import PIPE
from ina.p4.compiler.p4info.p4info import one_at_a_time
from ina.p4.runtime.p4info import Json

SCHEMA = "1.0.0"
FIRST = 1 << 16  # ids of fields with a dollar are FIRST + 1 and up, in this order; "": the id of a name with several ids
_SHARED = (
    "$MATCH_PRIORITY", "$ACTION", "$ACTION_MEMBER_ID", "$SELECTOR_GROUP_ID", "", "", "$ENTRY_TTL", "$ENTRY_HIT_STATE",
    "$METER_SPEC_CIR_KBPS", "$METER_SPEC_PIR_KBPS", "$METER_SPEC_CBS_KBITS", "$METER_SPEC_PBS_KBITS", "$METER_SPEC_CIR_PPS",
    "$METER_SPEC_PIR_PPS", "$METER_SPEC_CBS_PKTS", "$METER_SPEC_PBS_PKTS", "$COUNTER_SPEC_BYTES", "$COUNTER_SPEC_PKTS",
    "$METER_INDEX", "$COUNTER_INDEX", "$REGISTER_INDEX",
)
_OF_TOFINO = (
    "", "", *FILTER_INDEX.values(), "", "", "$ACTION_MEMBER_STATUS", "$MAX_GROUP_SIZE", "$ADT_OFFSET",
    *(name for fields in FILTER_FIELDS.values() for name, _ in fields), "ig_intr_md.ingress_port", "$DEFAULT_FIELD",
    "rotate", "seed", "msb", "extend", "pre_defined", "user_defined", "hash_value", "start_bit", "length", "order",
)
DOLLARS = {name: FIRST + n for n, name in enumerate((*_SHARED, *_OF_TOFINO), 1) if name}
# In tables that tell which member a hash chooses, these names have ids of Tofino's own.
CHOSEN = {"$SELECTOR_GROUP_ID": DOLLARS["$ACTION_MEMBER_STATUS"] - 1, "$ACTION_MEMBER_ID": DOLLARS["$ACTION_MEMBER_STATUS"] - 2,
          "hash_value": DOLLARS["hash_value"]}
# The first byte of ids by the type of table, where it is not the P4Info's (control-plane/proto/barefoot/p4info.proto).
ID_BYTES = {"Action": 0x81, "Selector": 0x82, "Counter": 0x83, "Meter": 0x85, "Wred": 0x87, "Lpf": 0x89, "Register": 0x8B,
            "RegisterParam": 0x8D, "PortMetadata": 0x90, "ParserValueSet": 0xFE, "DynHashConfigure": 0x95, "DynHashCompute": 0x96,
            "DynHashAlgorithm": 0x97, "SelectorGetMember": 0x9A}
DIGEST_BYTE = 0x8E
SCOPES = {"TABLE_AND_DEFAULT": "TableAndDefault", "TABLE_ONLY": "TableOnly", "DEFAULT_ONLY": "DefaultOnly"}
MATCHES = {"EXACT": "Exact", "TERNARY": "Ternary", "LPM": "LPM", "RANGE": "Range", "OPTIONAL": "Optional"}
WRITTEN = {"atcam_partition_index": "ATCAM", "dleft_hash": "DLEFT_HASH"}  # keys whose match kind the program writes differently
PORTS = 288  # entries of a table of ports: four pipes of 72


def bfrt_json(p4info: Json, layout: Json | None = None, pipelines: int = 1) -> Json:
    """`p4info`: protobuf's JSON mapping; `layout`: the compiled program's, with facts that P4Info has no place for."""
    return _Schema(p4info, layout or {}, PIPE if pipelines == 1 else "").build()


def id_of(byte: int, message: Json) -> int:
    """The P4Info's id with another first byte; 0: unchanged."""
    number = int(message["preamble"]["id"])
    return byte << 24 | number & 0xFFFFFF if byte else number


def key_name(name: str) -> str:
    """The name of a match field in BFRuntime: a header's validity is `hdr.h.$valid$` in P4Info, `hdr.h.$valid` here; an element
    of a stack is `hdr.h$0`."""
    return re.sub(r"\[(\d+)\]", r"$\1", name.removesuffix("$") if name.endswith("$valid$") else name)


def notes(message: Json) -> list[Json]:
    """Annotations of a P4Info message, as p4c writes them: the text of each is its name."""
    return [{"name": text} for text in message.get("annotations", ())]


def _typed(kind: str, **more: Any) -> Json:
    return {"type": kind, **more}


def _field(number: int, name: str, kind: Json, repeated: bool = False) -> Json:
    return {"id": number, "name": name, "repeated": repeated, "annotations": [], "type": kind}


def _dollar(name: str, kind: Json, repeated: bool = False) -> Json:
    return _field(DOLLARS[name], name, kind, repeated)


def _single(field: Json, mandatory: bool = False) -> Json:
    return {"mandatory": mandatory, "read_only": False, "singleton": field}


def _key(field: Json, match: str = "Exact", mandatory: bool = True) -> Json:
    return {**field, "mandatory": mandatory, "match_type": match}


def _bytes(width: Any) -> Json:
    return _typed("bytes", width=int(width or 1))


class _Schema:
    def __init__(self, p4info: Json, layout: Json, prefix: str):
        self.p4info, self.layout, self.prefix = p4info, layout, prefix
        self.actions = {int(a["preamble"]["id"]): a for a in p4info.get("actions", ())}
        self.tables: list[Json] = []

    def build(self) -> Json:
        info = self.p4info
        for table in info.get("tables", ()):
            self._match_table(table)
        for profile in info.get("actionProfiles", ()):
            self._profile(profile)
        for counter in info.get("counters", ()):
            self._add(counter, "Counter", [_key(_dollar("$COUNTER_INDEX", _typed("uint32")))], self._counts(counter), ["Sync"])
        for meter in info.get("meters", ()):
            self._add(meter, "Meter", [_key(_dollar("$METER_INDEX", _typed("uint32")))], self._rates(meter),
                      attributes=["MeterByteCountAdjust"])
        for register in info.get("registers", ()):
            name = register["preamble"]["name"]
            layouts = [r for r in self.layout.get("registers", ()) if name in (r["name"], r["name"].rpartition(".")[0])]
            if any(r.get("table") for r in layouts):  # a direct one: a field of its table's entries
                continue
            if any(r.get("param") for r in layouts):
                value = self._member(1, "value", register.get("typeSpec", {}))
                value["type"]["default_value"] = int(layouts[0]["initial"])
                self._add(register, "RegisterParam", [], [_single(value, True)])
                continue
            data = self._cells(name, register.get("typeSpec", {}))
            self._add(register, "Register", [_key(_dollar("$REGISTER_INDEX", _typed("uint32")))], data, ["Sync"])
        for cells in self.layout.get("filters", ()):
            if cells["table"] is None:  # a direct one is in its table's entries
                self._filter(cells)
        for values in info.get("valueSets", ()):
            keys = [_key(_field(int(m["id"]), m.get("name", f"f{m['id']}"), _bytes(m.get("bitwidth"))), "Ternary", False)
                    for m in values.get("match", ())]
            self._add(values, "ParserValueSet", keys, [], attributes=["EntryScope"])
        for metadata in self.layout.get("port_metadata", ()):
            self._port_metadata(metadata)
        for hash_ in self.layout.get("hashes", ()):
            self._hash_tables(hash_)
        digests = [{"name": self.prefix + d["preamble"]["name"], "id": id_of(DIGEST_BYTE, d),
                    "annotations": notes(d["preamble"]),
                    "fields": [self._member(n, *m) for n, m in enumerate(self._members(d.get("typeSpec", {})), 1)]}
                   for d in info.get("digests", ())]
        return {"schema_version": SCHEMA, "tables": self.tables, "learn_filters": digests}

    def _add(self, message: Json, kind: str, keys: list[Any], data: list[Any], operations: Any = (),
             attributes: Any = (), depends_on: Any = (), **more: Any) -> None:
        preamble = message["preamble"]
        self.tables.append({
            "name": self.prefix + preamble["name"], "id": id_of(ID_BYTES.get(kind, 0), message), "table_type": kind,
            "size": int(message.get("size", 0)), "annotations": notes(preamble), "depends_on": list(depends_on), "key": keys,
            "data": data,
            "supported_operations": list(operations), "attributes": list(attributes), **more,
        })

    def _match_table(self, table: Json) -> None:
        keys = []
        key_lists = [t["keys"] for t in self.layout.get("tables", ()) if t["name"] == table["preamble"]["name"]]
        match_kinds = {k["name"]: k["written"] for keys in key_lists for k in keys if "written" in k}
        for m in table.get("matchFields", ()):
            match = MATCHES[m.get("matchType", "EXACT")]
            field = _field(int(m["id"]), key_name(m["name"]), _bytes(m.get("bitwidth")))
            field["annotations"] = notes(m)
            if re.search(r"\[\d+:\d+\]", m["name"]):
                field["annotations"].append({"name": "isFieldSlice", "value": "true"})
            if match == "Exact" and (mask := re.search(r"\s*&\s*(0x[0-9a-fA-F]+)", m["name"])):
                field["type"]["mask"] = mask[1]
            keys.append(_key(field, WRITTEN.get(match_kinds.get(m["name"], ""), match), False))
        if any(k["match_type"] in ("Ternary", "Range", "Optional") for k in keys):
            keys.append(_key(_dollar("$MATCH_PRIORITY", _typed("uint32")), mandatory=False))
        profile = int(table.get("implementationId", 0))
        selector = profile and any(int(p["preamble"]["id"]) == profile and p.get("withSelector")
                                   for p in self.p4info.get("actionProfiles", ()))
        data, operations, attributes = [], [], []
        more: Json = {"has_const_default_action": bool(int(table.get("constDefaultActionId", 0)))}
        if selector:
            member, group = (_dollar(n, _typed("uint32")) for n in ("$ACTION_MEMBER_ID", "$SELECTOR_GROUP_ID"))
            data.append({"mandatory": True, "read_only": False, "oneof": [member, group]})
        elif profile:
            data.append(_single(_dollar("$ACTION_MEMBER_ID", _typed("uint32")), True))
        else:
            more["action_specs"] = self._actions(table)
        direct = {int(i) for i in table.get("directResourceIds", ())}
        for counter in self.p4info.get("directCounters", ()):
            if int(counter["preamble"]["id"]) in direct:
                data += self._counts(counter)
                operations.append("SyncCounters")
        for meter in self.p4info.get("directMeters", ()):
            if int(meter["preamble"]["id"]) in direct:
                data += self._rates(meter)
                attributes.append("MeterByteCountAdjust")
        actions = [self.actions[int(r["id"])] for r in table.get("actionRefs", ())]
        params = max((int(p["id"]) for a in actions for p in a.get("params", ())), default=0)
        data += self._direct_objects(table["preamble"]["name"], params, operations)
        attributes.append("EntryScope")
        if any(t["name"] == table["preamble"]["name"] and t.get("key_mask") for t in self.layout.get("tables", ())):
            attributes.append("DynamicKeyMask")
        if table.get("isConstTable"):
            attributes.append("ConstTable")
        if any(t["name"] == table["preamble"]["name"] and t.get("hits") is not None for t in self.layout.get("tables", ())):
            data.append(_single(_dollar("$ENTRY_HIT_STATE", _typed("string", choices=["ENTRY_IDLE", "ENTRY_ACTIVE"]))))
            if "@idletime_precision(1)" not in table["preamble"].get("annotations", ()):  # precision 1: polled, without notices
                data.append(_single(_dollar("$ENTRY_TTL", _typed("uint32", default_value=0))))
            operations.append("UpdateHitState")
            attributes.append("IdleTimeout")
        kind = "MatchAction_Indirect_Selector" if selector else "MatchAction_Indirect" if profile else "MatchAction_Direct"
        depends = [self._selector_id(profile)] if selector else []
        depends += [ID_BYTES["Action"] << 24 | profile & 0xFFFFFF] if profile else []
        self._add(table, kind, keys, data, operations, attributes, depends, **more)

    def _direct_objects(self, name: str, params: int, operations: list[str]) -> list[Json]:
        """Fields of a table's direct registers, whose ids follow those of parameters, and of its direct filters."""
        data = []
        for register in self.p4info.get("registers", ()):
            register_name = register["preamble"]["name"]
            if any(r.get("table") == name and register_name in (r["name"], r["name"].rpartition(".")[0])
                   for r in self.layout.get("registers", ())):
                for cell in self._cells(register_name, register.get("typeSpec", {})):
                    field = {**cell["singleton"], "id": params + cell["singleton"]["id"]}
                    data.append({**cell, "mandatory": True, "singleton": field})
                operations.append("SyncRegisters")
        for cells in self.layout.get("filters", ()):
            if cells["table"] == name:
                data += self._filter_fields(cells["type"].capitalize())
        return data

    def _actions(self, table: Json) -> list[Json]:
        specs = []
        for reference in table.get("actionRefs", ()):
            action = self.actions[int(reference["id"])]
            data = [{**_field(int(p["id"]), p["name"], _bytes(p.get("bitwidth"))), "annotations": notes(p), "mandatory": True,
                     "read_only": False} for p in action.get("params", ())]
            specs.append({"id": int(reference["id"]), "name": action["preamble"]["name"], "annotations": notes(reference),
                         "data": data, "action_scope": SCOPES[reference.get("scope", "TABLE_AND_DEFAULT")]})
        return specs

    def _profile(self, profile: Json) -> None:
        number = int(profile["preamble"]["id"])
        tables = [t for t in self.p4info.get("tables", ()) if int(t.get("implementationId", 0)) == number]
        key = _key(_dollar("$ACTION_MEMBER_ID", _typed("uint32")))
        self._add(profile, "Action", [key], [], action_specs=self._actions(tables[0]) if tables else [])
        if not profile.get("withSelector"):
            return
        size_type = _typed("uint32", default_value=int(profile.get("maxGroupSize", 0)))
        data = [_single(_dollar("$ACTION_MEMBER_ID", _typed("uint32"), True)),
                _single(_dollar("$ACTION_MEMBER_STATUS", _typed("bool"), True)),
                _single(_dollar("$MAX_GROUP_SIZE", size_type)),
                _single(_dollar("$ADT_OFFSET", _typed("uint32", default_value=0xDEADBEEF)))]
        name, groups = self._selector(profile["preamble"]["name"])
        selector = {"preamble": {"id": self._selector_id(number), "name": name}, "size": groups}
        self._add(selector, "Selector", [_key(_dollar("$SELECTOR_GROUP_ID", _typed("uint32")))], data,
                  depends_on=[id_of(ID_BYTES["Action"], profile)])
        get_member = {"preamble": {"id": self._hash_id("SelectorGetMember", name), "name": f"{name}_get_member"}, "size": 1}
        group, member, value = (_field(number, name, _typed("uint64")) for name, number in CHOSEN.items())
        self._add(get_member, "SelectorGetMember", [_key(group), _key(value)], [_single(member)],
                  depends_on=[self._selector_id(number)])

    def _selector(self, profile: str) -> tuple[str, int]:
        """The selector's own name and the number of its groups, which P4Info does not have."""
        name, groups = self.layout.get("selectors", {}).get(profile, (profile, 0))
        return (name, groups) if name != profile else (f"{profile}_sel", groups)

    def _selector_id(self, profile: int) -> int:
        message = next(p for p in self.p4info["actionProfiles"] if int(p["preamble"]["id"]) == profile)
        return self._hash_id("Selector", self._selector(message["preamble"]["name"])[0])

    def _hash_id(self, kind: str, name: str) -> int:
        """The id of an object that is not in P4Info."""
        return ID_BYTES[kind] << 24 | one_at_a_time(self.prefix + name) & 0xFFFFFF

    @staticmethod
    def _counts(counter: Json) -> list[Json]:
        unit = counter.get("spec", {}).get("unit", "BOTH")
        names = {"BYTES": ["$COUNTER_SPEC_BYTES"], "PACKETS": ["$COUNTER_SPEC_PKTS"]}
        return [_single(_dollar(n, _typed("uint64", default_value=0)))
                for n in names.get(unit, ["$COUNTER_SPEC_BYTES", "$COUNTER_SPEC_PKTS"])]

    @staticmethod
    def _rates(meter: Json) -> list[Json]:
        in_bytes = meter.get("spec", {}).get("unit") == "BYTES"
        units = ("CIR_KBPS", "PIR_KBPS", "CBS_KBITS", "PBS_KBITS") if in_bytes else ("CIR_PPS", "PIR_PPS", "CBS_PKTS", "PBS_PKTS")
        return [_single(_dollar(f"$METER_SPEC_{u}", _typed("uint64", default_value=(1 << 64) - 1))) for u in units]

    def _cells(self, name: str, spec: Json) -> list[Json]:
        members = [self._member(n, f"{name}.{member}", kind) for n, (member, kind) in enumerate(self._members(spec), 1)]
        # Fields with one value for each pipe: clients make a list of them
        return [_single(m | {"annotations": [{"name": "$bfrt_field_class", "value": "register_data"}]}, True) for m in members]

    def _member(self, number: int, name: str, spec: Json) -> Json:
        if "bool" in spec:
            return _field(number, name, _typed("bool", default_value=True))
        return _field(number, name, _bytes(self._width(spec)))

    def _width(self, spec: Json) -> int:
        """Bits of a value; declared types are looked up in the P4Info's type_info."""
        if "bitstring" in spec or "bit" in spec:
            bits = spec.get("bitstring", spec)
            return int(bits.get("bit", bits.get("int", {})).get("bitwidth", 1))
        types = self.p4info.get("typeInfo", {})
        if "serializableEnum" in spec:
            return int(types["serializableEnums"][spec["serializableEnum"]["name"]]["underlyingType"]["bitwidth"])
        new_type = types["newTypes"][spec["newType"]["name"]]
        if "originalType" in new_type:
            return self._width(new_type["originalType"])
        return int(new_type["translatedType"]["sdnBitwidth"])

    def _members(self, spec: Json) -> list[tuple[str, Json]]:
        """Names and types of a struct's members; a plain value is one member, f1."""
        info = self.p4info.get("typeInfo", {})
        for kind, group in (("struct", "structs"), ("header", "headers")):
            if kind in spec:
                return [(m["name"], m["typeSpec"]) for m in info[group][spec[kind]["name"]].get("members", ())]
        if "tuple" in spec:
            return [(f"f{n}", m) for n, m in enumerate(spec["tuple"].get("members", ()), 1)]
        return [("f1", spec)]

    def _filter(self, cells: Json) -> None:
        kind = cells["type"].capitalize()
        data = self._filter_fields(kind)
        message = {"preamble": {"id": self._hash_id(kind, cells["name"]), "name": cells["name"]}, "size": cells["size"]}
        self._add(message, kind, [_key(_dollar(FILTER_INDEX[kind], _typed("uint32")))], data)

    @staticmethod
    def _filter_fields(kind: str) -> list[Json]:
        types = {name: _typed("string", choices=type_.split("|")) if "|" in type_ else _typed(type_)
                 for name, type_ in FILTER_FIELDS[kind]}
        return [_single(_dollar(name, type_), True) for name, type_ in types.items()]

    def _hash_tables(self, hash_: Json) -> None:
        """The tables of a hash that can change at run time: its algorithm, the fields that it reads, its value."""

        def data(name: str, kind: str, **more: Any) -> Json:
            return _single(_dollar(name, _typed(kind, **more)))

        def action(name: str, *data: Json) -> Json:
            return {"id": DOLLARS[name], "name": name, "action_scope": "TableAndDefault", "annotations": [], "data": list(data)}

        def member(number: int, name: str, kind: str, mandatory: bool = False, **more: Any) -> Json:
            return {**_field(number, name, _typed(kind, **more)), "mandatory": mandatory, "read_only": False}

        def add(suffix: str, kind: str, key: list[Any], data: list[Any], **more: Any) -> None:
            configure = self._hash_id("DynHashConfigure", hash_["name"])
            message = {"preamble": {"id": self._hash_id(kind, hash_["name"]), "name": f"{hash_['name']}.{suffix}"}, "size": 1}
            self._add(message, kind, key, data, depends_on=() if kind == "DynHashConfigure" else [configure], **more)

        algorithm = member(1, "algorithm_name", "string", choices=list(ALGORITHMS), default_value="RANDOM")
        actions = [action("pre_defined", algorithm), action(
            "user_defined", member(1, "reverse", "bool", default_value=False), member(2, "polynomial", "uint64", True),
            member(3, "init", "uint64", default_value=0), member(4, "final_xor", "uint64", default_value=0),
            member(5, "hash_bit_width", "uint64"))]
        common = [data("rotate", "uint32", default_value=0), data("seed", "uint32", default_value=0),
                  data("msb", "bool", default_value=False), data("extend", "bool", default_value=False)]
        add("algorithm", "DynHashAlgorithm", [], common, action_specs=actions)
        fields = []
        for number, f in enumerate(hash_["fields"], 1):
            items = [data("start_bit", "uint64", default_value=0), data("length", "uint64", default_value=f["width"]),
                     data("order", "uint64") | {"mandatory": True}]
            notes = [{"name": "bfrt_p4_constant"}] if f["constant"] else []
            fields.append(_single({"id": number, "name": f["name"], "repeated": True, "annotations": notes, "container": items}))
        add("configure", "DynHashConfigure", [], fields)
        variables = [f for f in hash_["fields"] if not f["constant"]]
        keys = [_key(_field(n, f["name"], _bytes(f["width"])), mandatory=False) for n, f in enumerate(variables, 1)]
        value = data("hash_value", "bytes", width=hash_["width"]) | {"read_only": True}
        add("compute", "DynHashCompute", keys, [value], read_only=True)

    def _port_metadata(self, metadata: Json) -> None:
        """`metadata`: the table's name ("SwitchIngressParser.$PORT_METADATA") and its fields, as the layout has them."""
        fields = [(f["name"], f["width"]) for f in metadata["fields"] if metadata.get("unpacked", True)]
        data = [_single(_field(i, name, _bytes(width)), True) for i, (name, width) in enumerate(fields, 1)]
        # A header that the parser extracts has no names in the table.
        data = data or [_single(_dollar("$DEFAULT_FIELD", _bytes(64)))]
        message = {"preamble": {"id": self._hash_id("PortMetadata", metadata["name"]), "name": metadata["name"]}, "size": PORTS}
        key = _field(DOLLARS["ig_intr_md.ingress_port"], metadata.get("key", "ig_intr_md.ingress_port"), _bytes(9))
        self._add(message, "PortMetadata", [_key(key)], data)
