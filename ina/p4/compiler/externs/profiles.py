"""Implementations of tables: v1model's action profiles and selectors; TNA's, and its Atcam and Alpm."""

from __future__ import annotations

from dataclasses import dataclass, field

from ina.p4.compiler import ast, ir
from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.externs.extern import ExternObject
from ina.p4.compiler.externs.hashing import hash_of
from ina.p4.compiler.externs.tna_hash import selector_hash
from ina.p4.compiler.lower.lowering import Lowering
from ina.p4.compiler.lower.table_description import TableUse
from ina.p4.compiler.reference.machine import Machine
from ina.p4.compiler.reference.tables import ActionProfile as Members
from ina.p4.compiler.reference.tables import BoundAction, Table
from ina.p4.compiler.reference.tna_hashes import hash_bits

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


class V1Profile(ExternObject):
    names = ("action_profile", "action_selector")
    properties = ("implementation",)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        use.table.profile = instance.name
        if instance.decl.name == "action_selector":
            algorithm = instance.args["algorithm"]
            use.selector = lambda keys: hash_of(low, algorithm, list(keys))

    def create(self, machine: Machine, instance: Instance) -> Members:
        return Members(instance.name, instance.args["size"], instance.args.get("algorithm"), machine.random.next)

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        machine.state(instance, Members).serve(table)


@dataclass(slots=True)
class Selectors:
    """The action selector of each action profile: its name and its number of groups."""

    of_profile: dict[str, tuple[str, int]] = field(default_factory=dict)


class ActionProfile(ExternObject):
    names = ("ActionProfile",)
    properties = ("implementation",)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        use.table.profile = instance.name

    def create(self, machine: Machine, instance: Instance) -> Members:
        return HashedMembers(instance.name, instance.args["size"])

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        machine.state(instance, Members).serve(table)


class ActionSelector(ExternObject):
    names = ("ActionSelector",)
    properties = ("implementation",)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        profile = instance.args.get("action_profile")
        name = use.table.profile = profile.name if isinstance(profile, Instance) else instance.name
        groups = int(instance.args.get("num_groups", SELECTOR_GROUPS))
        low.state(Selectors).of_profile[name] = instance.name, groups
        hash_ = instance.args["hash"]

        def select(keys: list[ir.Expr]) -> ir.Var:
            return selector_hash(low, hash_, keys)

        use.selector = select

    def create(self, machine: Machine, instance: Instance) -> Members:
        profile = instance.args.get("action_profile")
        if isinstance(profile, Instance):
            selector = machine.objects.get(profile) or machine.create(profile)
        else:
            selector = HashedMembers(instance.name, instance.args["size"])
        assert isinstance(selector, HashedMembers)
        selector.hash = instance.args["hash"]
        return selector

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        machine.state(instance, Members).serve(table)


class Storage(ExternObject):
    """The way in which the hardware stores a table."""

    names = ("Atcam", "Alpm")
    properties = ("implementation",)


PROFILES = (V1Profile(),)
TNA_PROFILES = (ActionProfile(), ActionSelector(), Storage())
