"""P4Info: the parts of a program that a control plane sees (p4.config.v1.P4Info, P4Runtime specification §6).

`build(checked)` returns the message in protobuf's JSON mapping, ready for `google.protobuf.json_format.ParseDict`
or `json.dumps`. Names, aliases and ids are those of p4c: an id is the type's prefix byte and the low 24 bits of
Jenkins' one-at-a-time hash of the name, probing linearly where taken; `@id` is honoured.
For TNA programs they are those of p4c's Tofino back end with `--p4runtime-force-std-externs`: objects of a pipeline are hashed
with the pipeline's name in front ("pipe."), which the names themselves do not have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ina.p4.compiler import ast
from ina.p4.compiler.arch.architecture import architecture_of
from ina.p4.compiler.checked_program import CheckedProgram, Instance
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.instances import (
    action_name,
    calls_in,
    instances_of,
    key_name,
    only_pipeline,
    property_instance,
    table_size,
    tables_of,
    value_set_kind,
)
from ina.p4.compiler.p4info.descriptions import SCALARS
from ina.p4.compiler.p4info.files import FIELDS, PACKAGE, json_name
from ina.p4.compiler.p4info.types import Json, TypeInfo, annotate, bitwidth, bytes_json, constant_of, explicit_id, put
from ina.p4.compiler.types import (
    BitType,
    BoolType,
    Field,
    HeaderType,
    NewType,
    RecordType,
    SerEnumType,
    StructType,
    TupleType,
    Type,
    strip_new,
)

SELECTOR_GROUP_SIZE = 120  # p4c's default, for TNA's ActionSelector with only a size

ACTION, TABLE, VALUE_SET, CONTROLLER_HEADER = 0x01, 0x02, 0x03, 0x04
ACTION_PROFILE, COUNTER, DIRECT_COUNTER, METER, DIRECT_METER, REGISTER, DIGEST = range(0x11, 0x18)
WRED, DIRECT_WRED, LPF, DIRECT_LPF = range(0x87, 0x8B)  # extern instances (P4Runtime §6.4.10), as p4c's Tofino back end

MATCH_TYPES = {"exact": "EXACT", "lpm": "LPM", "ternary": "TERNARY", "range": "RANGE", "optional": "OPTIONAL"}
OTHER_NAMES = {"dleft_hash": "exact", "atcam_partition_index": "exact"}  # TNA's, which select how the hardware stores the table
UNITS = {"packets": "PACKETS", "bytes": "BYTES", "packets_and_bytes": "BOTH"}
# Annotations that have fields of their own in P4Info.
SHOWN_ELSEWHERE = ("max_group_size", "selector_size_semantics", "max_member_weight")
EXTERN_PREFIXES = {
    "counter": COUNTER,
    "direct_counter": DIRECT_COUNTER,
    "meter": METER,
    "direct_meter": DIRECT_METER,
    "register": REGISTER,
    "action_profile": ACTION_PROFILE,
    "action_selector": ACTION_PROFILE,
    # TNA
    "Counter": COUNTER,
    "DirectCounter": DIRECT_COUNTER,
    "Meter": METER,
    "DirectMeter": DIRECT_METER,
    "Register": REGISTER,
    "DirectRegister": REGISTER,  # as many cells as its table has entries
    "RegisterParam": REGISTER,  # one cell
    "ActionProfile": ACTION_PROFILE,
    "ActionSelector": ACTION_PROFILE,
    "Digest": DIGEST,
    "Lpf": LPF,
    "DirectLpf": DIRECT_LPF,
    "Wred": WRED,
    "DirectWred": DIRECT_WRED,
}
SECTIONS = {
    COUNTER: "counters", METER: "meters", DIRECT_COUNTER: "directCounters", DIRECT_METER: "directMeters", REGISTER: "registers",
    ACTION_PROFILE: "actionProfiles", DIGEST: "digests",
}
DIRECT = ("direct_counter", "direct_meter", "DirectCounter", "DirectMeter")
TABLE_OBJECTS = ("counters", "meters", "registers", "filters")


def build(checked: CheckedProgram) -> Json:
    """Returns the P4Info of a program with a `main`.

    Raises ValueError for duplicate `@id`s and for types that P4Info cannot express.
    """
    return _Builder(checked).build()


def one_at_a_time(name: str) -> int:
    """Computes Jenkins' one-at-a-time hash, 32 bits."""
    h = 0
    for byte in name.encode():
        h = (h + byte) * 1025 & 0xFFFFFFFF
        h ^= h >> 6
    h = h * 9 & 0xFFFFFFFF
    h ^= h >> 11
    return h * 32769 & 0xFFFFFFFF


class Symbols:
    """Names of objects by type prefix, with their ids and aliases."""

    def __init__(self, pipeline: str = "") -> None:
        """`pipeline`: hashed in front of all names but those of actions."""
        self._pipeline = f"{pipeline}." if pipeline else ""
        self._explicit: dict[tuple[int, str], int | None] = {}
        self._ids: dict[tuple[int, str], int] = {}
        self._suffixes: Counter[str] = Counter()

    def add(self, prefix: int, name: str, explicit_number: int | None = None) -> bool:
        """Registers an object; returns False if it was there already. Raises ValueError for an invalid or duplicate `@id`."""
        if (prefix, name) in self._explicit:
            return False
        if explicit_number is not None:
            if explicit_number >> 24 not in (0, prefix):
                raise ValueError(f"@id({explicit_number:#x}) of {name} has the wrong prefix byte, expected {prefix:#04x}")
            explicit_number |= prefix << 24
            if explicit_number in self._explicit.values():
                raise ValueError(f"@id({explicit_number:#x}) of {name} is used twice")
        if name not in {n for _, n in self._explicit}:
            self._suffixes.update(suffixes(name))
        self._explicit[prefix, name] = explicit_number
        return True

    def assign(self) -> None:
        """Gives every object an id: explicit ones first, then by prefix and name, so that probing is deterministic."""
        used = {i for i in self._explicit.values() if i is not None}
        for (prefix, name), number in sorted(self._explicit.items(), key=lambda item: item[0]):
            value = one_at_a_time(name if prefix == ACTION else self._pipeline + name)
            while number is None or (number in used and self._explicit[prefix, name] is None):
                number = prefix << 24 | value & 0xFFFFFF
                value += 1
            used.add(number)
            self._ids[prefix, name] = number

    def id(self, prefix: int, name: str) -> int:
        return self._ids[prefix, name]

    def preamble(self, prefix: int, name: str, annotations: list[ast.Annotation], alias: str | None = None) -> Json:
        alias = alias or next(s for s in suffixes(name) if self._suffixes[s] == 1 or s == name)
        return annotate({"id": self.id(prefix, name), "name": name, "alias": alias}, annotations, SHOWN_ELSEWHERE)


def suffixes(name: str) -> Iterator[str]:
    """Yields "c", "b.c", "a.b.c" for "a.b.c"."""
    parts = name.split(".")
    for i in range(len(parts) - 1, -1, -1):
        yield ".".join(parts[i:])


def field_ids(annotated: list[list[ast.Annotation]]) -> list[int]:
    """Returns ids of match fields, parameters, ...: `@id`, else their position from 1, skipping ids in use."""
    ids = [explicit_id(a) for a in annotated]
    used = {i for i in ids if i is not None}
    if len(used) != sum(i is not None for i in ids):
        raise ValueError(f"an @id is used twice: {[i for i in ids if i is not None]}")
    index = 1
    numbers: list[int] = []
    for explicit in ids:
        if explicit is not None:
            index += 1
            numbers.append(explicit)
            continue
        while index in used:
            index += 1
        numbers.append(index)
        used.add(index)
    return numbers


class _Builder:
    def __init__(self, checked: CheckedProgram) -> None:
        if checked.main is None:
            raise ValueError(f"{checked.filename}: no main package, so no P4Info")
        self.program = checked
        self.symbols = Symbols(only_pipeline(checked))
        self.types = TypeInfo(checked.errors)
        self.info: Json = {}
        self.direct_tables: dict[Instance, str] = {}
        self.direct_sizes: dict[Instance, int] = {}
        self.selectors: dict[Instance, Instance] = {}  # by action profile
        self.profile_tables: dict[Instance, list[str]] = {}
        self.later: list[Callable[[], None]] = []  # messages, once all ids are known

    def build(self) -> Json:
        self._package()
        for instance in instances_of(self.program):
            match instance.decl:
                case ast.ControlDecl():
                    self._control(instance)
                case ast.ParserDecl():
                    self._parser(instance)
                case ast.ExternDecl():
                    self._extern(instance)
        for decl in self.program.declarations:
            if (
                isinstance(decl, ast.RecordDecl)
                and (note := decl.annotation("controller_header"))
                and isinstance(decl.type, HeaderType)
            ):
                self._controller_header(decl, decl.type, note.string)
        self.symbols.assign()
        for emit in self.later:
            emit()
        return {**self.info, "typeInfo": self.types.message}

    def _add(self, section: str, message: Json) -> None:
        self.info.setdefault(section, []).append(message)

    def _package(self) -> None:
        """Adds PkgInfo: `@pkginfo` on the main instance, and the architecture's name (P4Runtime §6.2.1)."""
        main = self.program.package
        info: Json = {"arch": architecture_of(self.program) or main.decl.name}
        annotations = main.site.annotations if main.site is not None else []
        for a in annotations:
            if a.name == "pkginfo":
                info.update(pairs_of(a, "PkgInfo"))
            elif a.name == "platform_property":
                info["platformProperties"] = pairs_of(a, "PlatformProperties")
        own = [a for a in annotations if a.name not in ("pkginfo", "platform_property")]
        self.info["pkgInfo"] = annotate(info, own)

    # --- controls and tables --------------------------------------------------------------------------------------

    def _control(self, instance: Instance) -> None:
        for node in tables_of(instance):
            if not node.annotation("hidden"):
                self._table(instance, node)
        for call in calls_in(instance.decl):
            if call.kind == "extern_function" and call.decl.name == "digest":
                self._digest(call)
        for call in calls_in(instance.decl.body):  # an action that only other actions call is not listed
            if call.kind == "action":
                self._action(instance, call.decl, called=True)

    def _action(self, instance: Instance, decl: ast.ActionDecl, called: bool = False) -> str:
        """Adds an action of a table, or with `called` one that only the program calls, which has no parameters to set."""
        name = action_name(instance, decl)
        if self.symbols.add(ACTION, name, explicit_id(decl.annotations)):
            self.later.append(lambda: self._emit_action(name, decl, called))
        return name

    def _emit_action(self, name: str, decl: ast.ActionDecl, called: bool) -> None:
        params = [] if called else [p for p in decl.params if p.direction == ""]
        ids = field_ids([p.annotations for p in params])
        out = []
        for p, number in zip(params, ids, strict=True):
            param = put({}, id=number, name=p.cp_name, bitwidth=bitwidth(p.type), typeName=self.types.named(p.type))
            out.append(annotate(param, p.annotations))
        self._add("actions", put({"preamble": self.symbols.preamble(ACTION, name, decl.annotations)}, params=out))

    def _table(self, instance: Instance, decl: ast.TableDecl) -> None:
        name = instance.cp_names[decl.name]
        self.symbols.add(TABLE, name, explicit_id(decl.annotations))
        refs = [(self._action(instance, ref.decl), ref.annotations, False) for ref in decl.actions]
        if all(ref.decl is not decl.default_action.decl for ref in decl.actions):
            refs.append((self._action(instance, decl.default_action.decl), [], True))
        implementation = self._property_object(instance, name, decl, "implementation")
        direct = [self._property_object(instance, name, decl, p) for p in TABLE_OBJECTS]
        if implementation is not None:
            self.profile_tables.setdefault(implementation, []).append(name)
        for resource in direct:
            if resource is not None:
                self.direct_tables[resource] = name
                self.direct_sizes[resource] = table_size(self.program, instance, decl)
        self.later.append(lambda: self._emit_table(instance, name, decl, refs, implementation, direct))

    def _property_object(self, instance: Instance, table: str, decl: ast.TableDecl, prop_name: str) -> Instance | None:
        prop = decl.properties.get(prop_name)
        if prop is None:
            return None
        extern = property_instance(self.program, instance, table, prop)
        if extern.decl.name not in EXTERN_PREFIXES:  # TNA's Alpm and Atcam, which select how the hardware stores the table
            return None
        profile = extern.args.get("action_profile")
        if isinstance(profile, Instance):
            self.selectors[profile] = extern
            extern = profile
        self._extern(extern, prop.annotations)
        return extern

    def _emit_table(
        self,
        instance: Instance,
        name: str,
        decl: ast.TableDecl,
        refs: list[tuple[str, list[ast.Annotation], bool]],
        implementation: Instance | None,
        direct: list[Instance | None],
    ) -> None:
        table: Json = {"preamble": self.symbols.preamble(TABLE, name, decl.annotations)}
        put(table, matchFields=self._match_fields(decl))
        table["actionRefs"] = []
        for action, notes, implicit in refs:
            ref = annotate({"id": self.symbols.id(ACTION, action)}, notes)
            if implicit:
                ref["annotations"] = ["@defaultonly"]
            names = {a.name for a in notes} | ({"defaultonly"} if implicit else set())
            scope = "TABLE_ONLY" if "tableonly" in names else "DEFAULT_ONLY" if "defaultonly" in names else None
            table["actionRefs"].append(put(ref, scope=scope))
        default = self.symbols.id(ACTION, action_name(instance, decl.default_action.decl))
        if decl.const_default:
            table["constDefaultActionId"] = default
        table["initialDefaultAction"] = put(
            {"actionId": default}, arguments=self._default_arguments(decl.default_action)
        )
        if implementation is not None:
            table["implementationId"] = self.symbols.id(ACTION_PROFILE, implementation.name)
        resources = [
            self.symbols.id(EXTERN_PREFIXES[r.decl.name], r.name) for r in direct if r is not None and r.decl.name in DIRECT
        ]
        timeout = decl.properties.get("support_timeout") or decl.properties.get("idle_timeout")
        put(
            table,
            directResourceIds=resources,
            size=str(table_size(self.program, instance, decl)),
            idleTimeoutBehavior="NOTIFY_CONTROL" if timeout is not None and timeout.value.const else None,
            isConstTable=decl.const_entries,
            hasInitialEntries=bool(decl.entries),
        )
        self._add("tables", table)

    def _default_arguments(self, ref: ast.ActionRef) -> list[Json]:
        out = []
        params = ref.decl.params
        for param, number, arg in zip(params, field_ids([p.annotations for p in params]), ref.args, strict=True):
            if arg is not None and isinstance(arg.const, int) and bitwidth(param.type):
                out.append({"paramId": number, "value": bytes_json(int(arg.const), bitwidth(param.type))})
        return out

    def _match_fields(self, decl: ast.TableDecl) -> list[Json]:
        out = []
        for key, number in zip(decl.keys, field_ids([k.annotations for k in decl.keys]), strict=True):
            if key.match_kind == "selector":
                continue
            t = key.expr.type
            message = put({}, id=number, name=key_name(key), bitwidth=bitwidth(t), typeName=self.types.named(t))
            out.append(annotate({**message, **match_kind(key.match_kind)}, key.annotations))
        return out

    # --- externs --------------------------------------------------------------------------------------------------

    def _extern(self, instance: Instance, annotations: Sequence[ast.Annotation] = ()) -> None:
        prefix = EXTERN_PREFIXES.get(instance.decl.name)
        if prefix is None or isinstance(instance.args.get("action_profile"), Instance):
            return
        annotations = list(annotations) if instance.site is None else instance.site.annotations
        if self.symbols.add(prefix, instance.name, explicit_id(annotations)):
            self.later.append(lambda: self._emit_extern(prefix, instance, annotations))

    def _emit_extern(self, prefix: int, instance: Instance, annotations: list[ast.Annotation]) -> None:
        message: Json = {"preamble": self.symbols.preamble(prefix, instance.name, annotations)}
        args = instance.args
        size = args.get("size", self.direct_sizes.get(instance, 1 if instance.decl.name == "RegisterParam" else 0))
        spec = put({}, unit=UNITS.get(str(args.get("type")).lower()))
        match SECTIONS.get(prefix):
            case "counters" | "meters" as section:
                index = self._index_type(instance.type.args, 1 if instance.decl.name == "Counter" else 0)
                self._add(section, put(message, spec=spec, size=str(size), indexTypeName=index))
            case "directCounters" | "directMeters" as section:  # only where a table uses them
                if instance in self.direct_tables:
                    table = self.symbols.id(TABLE, self.direct_tables[instance])
                    self._add(section, put(message, spec=spec, directTableId=table))
            case "registers":
                t, index = instance.type.args[0], self._index_type(instance.type.args, 1)
                self._add("registers", put(message, typeSpec=self.types.spec(t), size=size, indexTypeName=index))
            case "actionProfiles":
                self._add("actionProfiles", self._profile(message, instance, annotations))
            case "digests":
                self._add("digests", put(message, typeSpec=self.types.spec(instance.type.args[0])))
            case None:
                externs = self.info.setdefault("externs", [])
                entry = next((e for e in externs if e["externTypeId"] == prefix), None)
                if entry is None:
                    entry = {"externTypeId": prefix, "externTypeName": instance.decl.name, "instances": []}
                    externs.append(entry)
                entry["instances"].append(message)

    def _index_type(self, args: tuple[Type, ...], place: int) -> Json | None:
        t = args[place] if place < len(args) else None
        return self.types.named(t) if isinstance(t, NewType) else None

    def _profile(self, message: Json, instance: Instance, annotations: list[ast.Annotation]) -> Json:
        tables = [self.symbols.id(TABLE, t) for t in self.profile_tables.get(instance, [])]
        notes = {a.name: a for a in reversed(annotations)}
        attached = self.selectors.get(instance)
        selector = attached is not None or instance.decl.name in ("action_selector", "ActionSelector")
        size = instance.args["size"]
        put(message, tableIds=tables, withSelector=selector, size=str(size) if size else None)
        if not selector:
            return message
        if attached is not None:
            put(message, maxGroupSize=int(attached.args["max_group_size"]))
        elif instance.decl.name == "ActionSelector":
            put(message, maxGroupSize=SELECTOR_GROUP_SIZE)
        if "max_group_size" in notes:
            message["maxGroupSize"] = int(constant_of(notes["max_group_size"].exprs[0]))
        if notes.get("selector_size_semantics") and notes["selector_size_semantics"].string == "sum_of_members":
            weight = notes.get("max_member_weight")
            message["sumOfMembers"] = put({}, maxMemberWeight=int(constant_of(weight.exprs[0])) if weight else 0)
        elif "selector_size_semantics" in notes:
            message["sumOfWeights"] = {}
        return message

    # --- parsers, digests, packet I/O -----------------------------------------------------------------------------

    def _parser(self, instance: Instance) -> None:
        transitions = [s.transition for s in instance.decl.states.values() if s.transition is not None]
        used = {k.name for t in transitions for case in t.cases for k in case.keys if isinstance(k, ast.Name)}
        for node in instance.decl.locals:
            if isinstance(node, ast.ValueSetDecl) and node.name in used:  # p4c drops those that no state uses
                name = instance.cp_names.get(node.name, node.cp_name)
                if self.symbols.add(VALUE_SET, name, explicit_id(node.annotations)):
                    self.later.append(partial(self._emit_value_set, name, node))

    def _emit_value_set(self, name: str, decl: ast.ValueSetDecl) -> None:
        message: Json = {"preamble": self.symbols.preamble(VALUE_SET, name, decl.annotations)}
        t = strip_new(getattr(decl.type, "element", decl.type))
        match: list[Json] = []
        plain = value_set_kind(self.program)
        match t:
            case StructType():
                members = list(t.fields.values())
                notes = [f.decl.annotations if f.decl is not None else [] for f in members]
                for f, annotations, number in zip(members, notes, field_ids(notes), strict=True):
                    kind = next(("".join(a.tokens) for a in annotations if a.name == "match"), plain)
                    entry = {"id": number, "name": f.name, "bitwidth": bitwidth(f.type), **match_kind(kind)}
                    match.append(annotate(entry, annotations, ("match",)))
            case TupleType():
                match += [{"id": i, "bitwidth": bitwidth(e), **match_kind(plain)} for i, e in enumerate(t.elements, 1)]
            case BitType() | SerEnumType() | BoolType():
                match.append({"id": 1, "bitwidth": bitwidth(t), **match_kind(plain)})
            case _:
                raise ValueError(f"{decl.span}: a value set of {t} cannot be shown to a control plane")
        self._add("valueSets", put(message, match=match, size=decl.size.const))

    def _digest(self, call: ast.Call) -> None:
        """Adds a digest, named after its struct type (v1model.p4, `digest`)."""
        t = call.given(1).type
        count = sum(1 for prefix, _ in self.symbols._explicit if prefix == DIGEST)
        name = t.name if isinstance(t, StructType) and t.name else f"digest_{count}"
        if self.symbols.add(DIGEST, name):
            self.later.append(
                lambda: self._add(
                    "digests", {"preamble": self.symbols.preamble(DIGEST, name, []), "typeSpec": self.types.spec(t)}
                )
            )

    def _controller_header(self, decl: ast.RecordDecl, header: HeaderType, title: str | None) -> None:
        """Adds a `@controller_header("packet_in")`: fields in front of packet-in and packet-out payloads (P4Runtime §6.4.6)."""
        self.symbols.add(CONTROLLER_HEADER, decl.cp_name, explicit_id(decl.annotations))

        def emit() -> None:
            preamble = self.symbols.preamble(CONTROLLER_HEADER, decl.cp_name, decl.annotations, title)
            preamble["name"] = title
            members = list(flat_fields(header))
            notes = [f.decl.annotations if f.decl is not None else [] for _, f in members]
            metadata = []
            for (name, f), field_notes, number in zip(members, notes, field_ids(notes), strict=True):
                entry = put({}, id=number, name=name, bitwidth=bitwidth(f.type), typeName=self.types.named(f.type))
                metadata.append(annotate(entry, field_notes))
            self._add("controllerPacketMetadata", put({"preamble": preamble}, metadata=metadata))

        self.later.append(emit)


def match_kind(kind: str) -> Json:
    kind = OTHER_NAMES.get(kind, kind)
    return {"matchType": MATCH_TYPES[kind]} if kind in MATCH_TYPES else {"otherMatchType": kind}


def flat_fields(t: RecordType, prefix: str = "") -> Iterator[tuple[str, Field]]:
    """Yields the fields of a header that are no structs, with dotted names."""
    for name, f in t.fields.items():
        if isinstance(f.type, RecordType):
            yield from flat_fields(f.type, f"{prefix}{name}.")
        else:
            yield prefix + name, f


def pairs_of(annotation: ast.Annotation, message: str) -> Json:
    """Returns `name = value` pairs of a structured annotation, or of one in parentheses like `@pkginfo(...)`, as fields of
    `message` (p4info/files.py). Raises CompileError for other names and types."""
    if annotation.pairs:
        pairs = {key: constant_of(e) for key, e in annotation.pairs.items()}
    else:
        matches = re.findall(r'(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|\w+)', " ".join(annotation.tokens))
        pairs = {key: _pair_value(value) for key, value in matches}
    fields = {f.name: f for f in FIELDS[PACKAGE + message] if f.kind in SCALARS and not f.repeated}
    out: Json = {}
    for key, value in pairs.items():
        if key not in fields:
            raise CompileError(annotation.span, f"@{annotation.name} has no '{key}': expected {', '.join(fields)}")
        expected = str if fields[key].kind == "string" else int
        if type(value) is not expected:
            example = f'a string, as in {key} = "1.0"' if expected is str else f"an integer, as in {key} = 64"
            raise CompileError(annotation.span, f"@{annotation.name}: '{key}' takes {example}")
        out[json_name(fields[key])] = value
    return out


def _pair_value(text: str) -> str | int | None:
    """Returns a string or an integer; None if the text is neither."""
    if text.startswith('"'):
        return text[1:-1]
    try:
        return int(text, 0)
    except ValueError:
        return None
