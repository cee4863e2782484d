"""Parser value sets: what `select` compares with and the control plane fills (P4Runtime §9.7)."""

from __future__ import annotations

from typing import Any

from ina.switch.entities import ValueSetEntry, as_match
from ina.switch.image import ImageRow, Key, build
from ina.switch.p4info import EntityError, MatchField, P4Info


class ValueSets:
    """`layouts` say, for each set, its `name`, `index` among the table images, `key_words`, `keys` and `size`."""

    def __init__(self, p4info: P4Info, layouts: Any) -> None:
        self.p4info = p4info
        self.layouts = {v["name"]: v for v in layouts}
        self.members: dict[str, ValueSetEntry] = {}
        self.keys: dict[str, tuple[Key, ...]] = {name: () for name in self.layouts}
        self._images: dict[str, Any] = {}

    def copy(self) -> ValueSets:
        twin = ValueSets(self.p4info, self.layouts.values())
        twin.members, twin.keys, twin._images = dict(self.members), dict(self.keys), dict(self._images)
        return twin

    def apply(self, type_: str, entity: ValueSetEntry) -> None:
        name = self.p4info.value_set(entity.value_set)
        what = f"value set {name}"
        if type_ != "MODIFY":
            raise EntityError(f"{what}: only MODIFY is possible: it replaces all members")
        layout = self.layouts.get(name)
        if layout is None:
            raise EntityError(f"{what}: the program declares it and never uses it", "NOT_FOUND")
        if len(entity.members) > layout["size"]:
            raise EntityError(
                f"{what}: {len(entity.members)} members, it has room for {layout['size']}", "RESOURCE_EXHAUSTED"
            )
        self.members[name] = ValueSetEntry(name, tuple(entity.members))
        self.keys[name] = tuple(self._key(layout["keys"], member, what) for member in entity.members)
        self._images.pop(name, None)

    @staticmethod
    def _key(keys: list[dict[str, Any]], member: Any, what: str) -> Key:
        if not isinstance(member, dict):
            if len(keys) != 1:
                raise EntityError(f"{what}: a member has {len(keys)} fields: {', '.join(k['name'] for k in keys)}")
            member = {keys[0]["name"]: member}
        unknown = sorted(set(member) - {k["name"] for k in keys})
        if unknown:
            raise EntityError(f"{what}: no field {unknown[0]!r}; it has: {', '.join(k['name'] for k in keys)}")
        key = []
        for i, k in enumerate(keys):
            full = (1 << k["width"]) - 1
            if k["name"] in member:
                where = f"{what}: field {k['name']}"
                key.append(as_match(member[k["name"]], MatchField(i + 1, k["name"], k["width"], k["match"]), where))
            elif k["match"] == "exact":
                raise EntityError(f"{what}: exact field {k['name']!r} is missing")
            else:
                key.append((0, full if k["match"] == "range" else 0))
        return tuple(key)

    def images(self, pipeline: int = 0) -> dict[int, Any]:
        """Those of a pipeline by index."""
        own = {name: v for name, v in self.layouts.items() if v.get("pipeline", 0) == pipeline}
        for name, layout in own.items():
            if name not in self._images:
                rows = [ImageRow(key, i, None) for i, key in enumerate(dict.fromkeys(self.keys[name]))]
                self._images[name] = build(layout["keys"], layout["key_words"], 0, rows, (0, []))
        return {v["index"]: self._images[v["name"]] for v in own.values()}
