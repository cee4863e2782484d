"""A switch without a data plane: it keeps entities as P4Runtime would, and executes writes, refuses them, or does not answer."""

from __future__ import annotations

from ina.p4.runtime.entities import MulticastGroupEntry, TableEntry
from ina.p4.runtime.entity_error import EntityError


class FakeTarget:
    """Tables and groups by key; wrong updates are errors, as in P4Runtime §9.1, and change nothing.

    ``failing``: exceptions of the next writes: EntityError (it refuses) or TimeoutError (it does not answer).
    """

    def __init__(self):
        self.entities = {}
        self.failing: Exception | None = None

    def write(self, updates):
        if self.failing is not None:
            raise self.failing
        entities = dict(self.entities)
        for number, update in enumerate(updates):
            entity = update.entity
            group = isinstance(entity, MulticastGroupEntry)
            key = entity.group_id if group else (entity.table, tuple(sorted(entity.match.items())))
            if (key in entities) == (update.type == "INSERT"):
                code = "ALREADY_EXISTS" if key in entities else "NOT_FOUND"
                raise EntityError(f"update {number}: {update.type} {key}: {code}", code, number)
            if update.type == "DELETE":
                del entities[key]
            else:
                entities[key] = entity
        self.entities = entities

    def read(self, entities):
        if isinstance(self.failing, TimeoutError):
            raise self.failing
        result = []
        for pattern in entities:
            result += self.table(pattern.table) if isinstance(pattern, TableEntry) else self.groups()
        return result

    def table(self, name):
        return [e for e in self.entities.values() if isinstance(e, TableEntry) and e.table == name]

    def groups(self):
        return [e for e in self.entities.values() if isinstance(e, MulticastGroupEntry)]
