"""Implementations of tables: v1model's action profiles and selectors; TNA's, and its Atcam and Alpm."""

from __future__ import annotations

from functools import partial

from ina.p4.compiler import ast
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.externs.extern import ExternObject, Objects
from ina.p4.compiler.externs.hashes import hash_of
from ina.p4.compiler.externs.tna_hash import selector_hash
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.table_description import TableUse
from ina.p4.compiler.reference.hashes import hash_bits
from ina.p4.compiler.reference.machine import Machine
from ina.p4.compiler.reference.tables import ActionProfile as Members
from ina.p4.compiler.reference.tables import BoundAction, Table

SELECTOR_GROUPS = 4  # p4c's default, for an ActionSelector with only a size


class HashedMembers(Members):
    """An action profile whose groups' members are selected by a Hash."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__(name, size, None, lambda: 0)
        self.hash: Instance | None = None  # the ActionSelector's

    def select(self, group: int, width: int, bits: int) -> BoundAction | None:
        members = self.groups[group]
        if not members:
            return None
        assert self.hash is not None
        return self.members[members[hash_bits(self.hash, width, bits) % len(members)]]


class Profile(ExternObject):
    """An implementation of a table whose entries name members, or groups of them."""

    properties = ("implementation",)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        use.table.profile = instance.name

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        machine.state(instance, Members).serve(table)


class V1Profile(Profile):
    names = ("action_profile", "action_selector")

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        use.table.profile = instance.name
        if instance.decl.name == "action_selector":
            algorithm = instance.args["algorithm"]
            use.selector = lambda keys: hash_of(low, algorithm, list(keys))

    def create(self, machine: Machine, instance: Instance) -> Members:
        return Members(instance.name, instance.args["size"], instance.args.get("algorithm"), machine.random.next)


class ActionProfile(Profile):
    names = ("ActionProfile",)

    def create(self, machine: Machine, instance: Instance) -> Members:
        return HashedMembers(instance.name, instance.args["size"])


class ActionSelector(Profile):
    names = ("ActionSelector",)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        profile = instance.args.get("action_profile")
        name = use.table.profile = profile.name if isinstance(profile, Instance) else instance.name
        low.state(Objects).selectors[name] = instance.name, int(instance.args.get("num_groups", SELECTOR_GROUPS))
        use.selector = partial(selector_hash, low, instance.args["hash"])

    def create(self, machine: Machine, instance: Instance) -> Members:
        profile = instance.args.get("action_profile")
        if isinstance(profile, Instance):
            selector = machine.objects.get(profile) or machine.create(profile)
        else:
            selector = HashedMembers(instance.name, instance.args["size"])
        assert isinstance(selector, HashedMembers)
        selector.hash = instance.args["hash"]
        return selector


class Storage(ExternObject):
    """The way in which the hardware stores a table."""

    names = ("Atcam", "Alpm")
    properties = ("implementation",)
