"""Profiles of tables: v1model's action_profile and action_selector, TNA's ActionProfile and ActionSelector."""

from __future__ import annotations

from ina.p4.compiler.checked_program import Instance
from ina.p4.compiler.reference.externs.extern import ExternObject
from ina.p4.compiler.reference.externs.hashes import hash_bits
from ina.p4.compiler.reference.machine import Machine
from ina.p4.compiler.reference.tables import ActionProfile as Profile
from ina.p4.compiler.reference.tables import BoundAction, Table


class SelectorProfile(Profile):
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


class V1ActionProfile(ExternObject):
    names = ("action_profile", "action_selector")

    def create(self, machine: Machine, instance: Instance) -> Profile:
        return Profile(instance.name, instance.args["size"], instance.args.get("algorithm"), machine.random.next)

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        _join(machine, table, instance)


class ActionProfile(ExternObject):
    names = ("ActionProfile",)

    def create(self, machine: Machine, instance: Instance) -> Profile:
        return SelectorProfile(instance.name, instance.args["size"])

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        _join(machine, table, instance)


class ActionSelector(ExternObject):
    names = ("ActionSelector",)

    def create(self, machine: Machine, instance: Instance) -> Profile:
        profile = instance.args.get("action_profile")
        if isinstance(profile, Instance):
            selector = machine.objects.get(profile) or machine.create(profile)
        else:
            selector = SelectorProfile(instance.name, instance.args["size"])
        assert isinstance(selector, SelectorProfile)
        selector.hash = instance.args["hash"]
        return selector

    def join(self, machine: Machine, table: Table, prop: str, instance: Instance) -> None:
        _join(machine, table, instance)


def _join(machine: Machine, table: Table, instance: Instance) -> None:
    table.profile = machine.state(instance, Profile)
    table.profile.tables.append(table)
