"""The mapping of one program to its twin: a TOML file, for programs whose names are not the same.

    [entries]                      # STF files, by their paths from this file: control planes, and packets to begin with
    both = "jobs.stf"              # written by the names of A
    a = "only-a.stf"               # beside them, of one program alone
    b = "only-b.stf"

    [headers]                      # a header, or one field, of A: as B has it
    "hdr.agg" = "hdr.packet"
    "hdr.agg.version" = "hdr.packet.set"

    [tables]                       # a table of A: B's; keys, actions and parameters with other names
    "Ingress.job" = "SwitchIngress.jobs"
    "Ingress.acl" = { table = "SwitchIngress.filter", keys = { "hdr.ip.src" = "meta.source" }, actions = { deny = "drop" } }

    [counters]                     # compared after each sequence: packets of each cell
    "Ingress.drops" = "SwitchIngress.drops"

    [registers]                    # likewise; of a TNA program's in pipe 0
    "Ingress.sums" = "SwitchIngress.sums"

    [ports]                        # of A: B's. Also in 9-bit keys and parameters of entries; here A's 128 is B's 1
    "1" = 128

    [packets]                      # limits of those that are sent
    largest = { "hdr.atp.sequence" = 2147483647 }       # values of fields
    whole = true                   # no frame is shorter than its IPv4 header's length

    [differences]                  # that are intended
    ignore = ["hdr.ipv4.identification"]      # headers or fields of frames that leave
    order = "any"                  # of frames that leave by one port because of one packet; default: "same"
    digests = false                # only one of them has digests
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ina.base import documents
from ina.base.native import lib
from ina.base.settings import nearest
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.p4info import P4Info, TableInfo
from ina.p4.tools.equal.control import Json, Names
from ina.p4.tools.equal.packets import Limits
from ina.p4.tools.equal.shapes import Shapes, field_key, header_key

SECTIONS = ("entries", "headers", "tables", "counters", "registers", "ports", "packets", "differences")
KEYS = {"entries": ("both", "a", "b"), "differences": ("ignore", "order", "digests"), "packets": ("largest", "whole")}
TABLE = ("table", "keys", "actions", "params")


class MappingError(ValueError):
    """An error in a mapping; the message has file, line and key."""


@dataclass
class Mapping:
    """A mapping's sections. Without a file all names are alike."""

    document: documents.Document = documents.Document(None, {})

    def get(self, section: str) -> Json:
        content: Json = self.document.content.get(section, {})
        return content

    def fail(self, section: str, key: str, message: str) -> NoReturn:
        raise MappingError(f"{self.document.at(section, key)}: [{section}] {key}: {message}")

    def entries(self, scope: str) -> Path | None:
        """Returns the path of an STF file; `scope`: both, a or b."""
        name = self.get("entries").get(scope)
        path = self.document.path
        return None if name is None or path is None else path.parent / name

    def ports(self) -> dict[int, int]:
        return {int(key): value for key, value in self.get("ports").items()}

    @property
    def any_order(self) -> bool:
        return self.get("differences").get("order") == "any"

    @property
    def digests(self) -> bool:
        return bool(self.get("differences").get("digests", True))

    # --- against the programs

    def names(self, a: Json, b: Json, shapes: Shapes) -> Names:
        headers = {mine: other for other, mine in self.fields(shapes).items()}
        ours, theirs, names = P4Info(a), P4Info(b), Names(ports=permutation(self.ports()), headers=headers)
        for key, value in self.get("tables").items():
            options: Json = {"table": value} if isinstance(value, str) else value
            table = self._look_up("tables", key, ours.table, key, "A")
            twin = self._look_up("tables", key, theirs.table, options.get("table", table.name.rpartition(".")[2]), "B")
            names.tables[table.name] = twin.name
            keys, twin_keys = {f.name for f in table.fields}, {f.name for f in twin.fields}
            for mine, other in options.get("keys", {}).items():
                self._check_name("tables", key, mine, keys, "A's table has no key")
                self._check_name("tables", key, other, twin_keys, "B's table has no key")
            for mine, other in options.get("actions", {}).items():
                self._action(key, ours, table, mine, "A")
                self._action(key, theirs, twin, other, "B")
            names.keys[table.name] = options.get("keys", {})
            names.actions[table.name] = options.get("actions", {})
            names.params[table.name] = options.get("params", {})
        names.registers.update(self.pairs("registers", a, b))
        return names

    def pairs(self, section: str, a: Json, b: Json) -> tuple[tuple[str, str], ...]:
        """Returns the counters or registers that are compared."""
        pairs = []
        for key, value in self.get(section).items():
            mine, other = (self._look_up(section, key, getattr(P4Info(info), section[:-1]), name, program)
                           for info, name, program in ((a, key, "A"), (b, value, "B")))
            if mine.size != other.size:
                self.fail(section, key, f"A's has {mine.size} cells, B's {other.size}")
            pairs.append((mine.name, other.name))
        return tuple(pairs)

    def fields(self, shapes: Shapes) -> dict[str, str]:
        """Returns A's headers and fields by B's keys (ina/p4/tools/equal/shapes.py)."""
        known, renamed = shapes.fields(), {}
        headers = {key.partition(".")[0] for key in known}
        for key, value in self.get("headers").items():
            if header_key(key) in headers:
                renamed[header_key(value)] = header_key(key)
            elif field_key(key) in known:
                renamed[field_key(value)] = field_key(key)
            else:
                names = sorted(headers | set(known))
                self.fail("headers", key, f"A's parser extracts no such header{nearest(header_key(key), names)}")
        return renamed

    def limits(self, shapes: Shapes) -> Limits:
        """Returns the limits of packets that are sent."""
        options, known = self.get("packets"), shapes.fields()
        for name in options.get("largest", {}):
            if field_key(name) not in known:
                self.fail("packets", "largest", f"A's parser extracts no {name!r}{nearest(name, sorted(known))}")
        return Limits({field_key(name): value for name, value in options.get("largest", {}).items()}, options.get("whole", False))

    def ignored(self, shapes: Shapes) -> frozenset[str]:
        known, keys = shapes.fields(), set()
        headers = {key.partition(".")[0] for key in known}
        for name in self.get("differences").get("ignore", []):
            key = header_key(name) if header_key(name) in headers else field_key(name)
            if key not in headers and key not in known:
                names = sorted(headers | set(known))
                self.fail("differences", "ignore", f"A's parser extracts no {name!r}{nearest(name, names)}")
            keys.add(key)
        return frozenset(keys)

    def _look_up(self, section: str, key: str, find: Any, name: str, program: str) -> Any:
        try:
            return find(name)
        except EntityError as error:
            self.fail(section, key, f"{program}: {error}")

    def _action(self, key: str, info: P4Info, table: TableInfo, name: str, program: str) -> None:
        names = {n.rpartition(".")[2] for n in table.default_actions} | set(table.default_actions)
        self._look_up("tables", key, lambda name: info.action(table, name, name in names), name, program)

    def _check_name(self, section: str, key: str, name: str, names: set[str], message: str) -> None:
        if name not in names:
            self.fail(section, key, f"{message} {name!r}; it has: {', '.join(sorted(names))}")


def load(path: Path) -> Mapping:
    """Reads a mapping. Raises MappingError, OSError."""
    try:
        document = documents.document(path)
    except documents.Unreadable as error:
        line = re.search(r"at line (\d+)", str(error))
        number = line[1] if line else len(path.read_text().splitlines()) if "end of document" in str(error) else ""
        raise MappingError(f"{path}:{number}{':' if number else ''}{str(error).removeprefix(f'{path}:')}") from None
    mapping = Mapping(document)
    for section, content in document.content.items():
        if section not in SECTIONS:
            raise MappingError(f"{document.at(section)}: [{section}]: unknown section{nearest(section, [*SECTIONS])}")
        if not isinstance(content, dict):
            raise MappingError(f"{document.at(section)}: {section}: expected a section [{section}]")
        for key, value in content.items():
            _check(mapping, section, key, value)
    if len(set(mapping.ports().values())) != len(mapping.ports()):
        key = next(k for k, v in mapping.get("ports").items() if list(mapping.ports().values()).count(v) > 1)
        mapping.fail("ports", key, "two ports of A are one of B")
    return mapping


# By section and key ("": any), a test of its value, and what is expected
CHECKS: dict[tuple[str, str], tuple[Callable[[Any], bool], str]] = {
    ("differences", "ignore"): (lambda v: isinstance(v, list) and all(isinstance(name, str) for name in v),
                                "a list of headers and fields"),
    ("differences", "order"): (lambda v: v in ("same", "any"), '"same" or "any"'),
    ("differences", "digests"): (lambda v: isinstance(v, bool), "true or false"),
    ("packets", "whole"): (lambda v: isinstance(v, bool), "true or false"),
    ("packets", "largest"): (lambda v: isinstance(v, dict) and all(type(n) is int and n >= 0 for n in v.values()),
                             "numbers by fields"),
    ("ports", ""): (lambda v: isinstance(v, int), "a number"),
}


def _check(mapping: Mapping, section: str, key: str, value: Any) -> None:
    if section in KEYS and key not in KEYS[section]:
        mapping.fail(section, key, f"unknown key{nearest(key, [*KEYS[section]])}")
    for number in (key, value) if section == "ports" else ():
        digits = re.fullmatch(r"[0-9]{1,9}", str(number))
        if not digits or isinstance(number, bool) or int(number) >= lib.INA_DROP_PORT:
            mapping.fail(section, key, f"{number!r}: expected a port, 0 to {lib.INA_DROP_PORT - 1}")
    if section == "tables" and isinstance(value, dict):
        for name, inner in value.items():
            if name not in TABLE:
                mapping.fail(section, key, f"unknown key {name!r}{nearest(name, [*TABLE])}")
            texts = [inner] if name == "table" else list(inner.values()) if isinstance(inner, dict) else [None]
            if not all(isinstance(text, str) for text in texts):
                mapping.fail(section, key, f"{name} = {inner!r}: expected {'a name' if name == 'table' else 'names by names'}")
        return
    test, expected = CHECKS.get((section, key)) or CHECKS.get((section, "")) or (lambda v: isinstance(v, str), "a name")
    if not test(value):
        mapping.fail(section, key, f"{value!r}: expected {expected}")


def permutation(ports: dict[int, int]) -> dict[int, int]:
    """Extends `ports` so that each number of B's that is a port of A has a port of B too: no port stands for two."""
    back, full = {theirs: ours for ours, theirs in ports.items()}, dict(ports)
    for number in back.keys() - ports.keys():
        theirs = number
        while theirs in back:
            theirs = back[theirs]
        full[number] = theirs
    return full
