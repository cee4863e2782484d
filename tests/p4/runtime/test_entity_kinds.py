"""Every class of entities is known wherever entities are handled."""

from __future__ import annotations

import pytest

from ina.p4.runtime import control_plane, entities, tna_entities
from ina.p4.runtime.entities import Entity
from ina.p4.runtime.kinds import KINDS, kind

pytestmark = pytest.mark.fast
CLASSES = [
    c
    for module in (entities, tna_entities)
    for c in vars(module).values()
    if isinstance(c, type) and issubclass(c, Entity) and c is not Entity
]


@pytest.mark.parametrize("entity_class", CLASSES, ids=lambda c: c.__name__)
def test_the_embedded_switch_knows_every_class_of_entities(entity_class):
    assert entity_class in KINDS


def test_an_entity_without_a_kind_is_refused_by_name():
    class Unknown(Entity):
        def __repr__(self):
            return "Unknown()"

    with pytest.raises(control_plane.EntityError, match="Unknown.. is no entity of this switch"):
        kind(Unknown())
