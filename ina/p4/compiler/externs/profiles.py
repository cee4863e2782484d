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

SELECTOR_GROUPS = 4  # p4c's default, for an ActionSelector with only a size


class V1Profile(ExternObject):
    names = ("action_profile", "action_selector")
    properties = ("implementation",)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        use.table.profile = instance.name
        if instance.decl.name == "action_selector":
            algorithm = instance.args["algorithm"]
            use.selector = lambda keys: hash_of(low, algorithm, list(keys))


@dataclass(slots=True)
class Selectors:
    """The action selector of each action profile: its name and its number of groups."""

    of_profile: dict[str, tuple[str, int]] = field(default_factory=dict)


class ActionProfile(ExternObject):
    names = ("ActionProfile",)
    properties = ("implementation",)

    def attach(self, low: Lowering, use: TableUse, prop: ast.Property, instance: Instance) -> None:
        use.table.profile = instance.name


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


class Storage(ExternObject):
    """The way in which the hardware stores a table."""

    names = ("Atcam", "Alpm")
    properties = ("implementation",)


PROFILES = (V1Profile(),)
TNA_PROFILES = (ActionProfile(), ActionSelector(), Storage())
