"""Every class of entities is known to BFRuntime's two ends, or is one that only the server's own tables know."""

from __future__ import annotations

import pytest
from capabilities import need

need("p4runtime")

from ina.p4.bfrt import entities, remote_switch  # noqa: E402
from ina.p4.bfrt.info import MATCH_TABLES, Info  # noqa: E402
from ina.p4.bfrt.replication import FORMS  # noqa: E402
from ina.p4.runtime import EntityError  # noqa: E402
from ina.p4.runtime import entities as p4runtime_entities  # noqa: E402
from ina.p4.runtime.kinds import KINDS  # noqa: E402
from ina.p4.runtime.tna_entities import EntryScope, FilterEntry, KeyMask, MulticastNode, PortMetadata, ReplicationConfig  # noqa: E402

pytestmark = pytest.mark.fast
SEVERAL_ROWS = {
    p4runtime_entities.ValueSetEntry, p4runtime_entities.MulticastGroupEntry, p4runtime_entities.CloneSessionEntry
}
# filters.py, attributes.py, replication.py
OWN_TABLES = {FilterEntry, EntryScope, KeyMask, ReplicationConfig, PortMetadata}


def test_a_client_knows_every_class_of_entities_but_those_of_tna():
    assert entities.KINDS.keys() == {c for c in KINDS if c.__module__ == p4runtime_entities.__name__}


def test_the_server_knows_every_class_of_tna():
    tna = KINDS.keys() - entities.KINDS.keys()
    assert tna == {form[2] for form in FORMS.values()} | OWN_TABLES


def test_rows_of_every_table_of_a_program_are_entities_of_one_class():
    assert entities.BY_TABLE.keys() == {*MATCH_TABLES, "Action", "Selector", "Counter", "Meter", "Register"}


@pytest.mark.parametrize("entity", [MulticastNode(1), remote_switch.MulticastGroupEntry(1)], ids=lambda e: type(e).__name__)
def test_an_entity_that_is_no_row_is_refused_by_name(entity):
    with pytest.raises(EntityError, match=f"{type(entity).__name__} has no table in BFRuntime") as refused:
        entities.to_row(entity, Info({}))
    assert refused.value.code == "UNIMPLEMENTED"


def test_entities_of_several_rows_are_those_that_the_module_names():
    assert {c for c, kind in entities.KINDS.items() if isinstance(kind, remote_switch.Several)} == SEVERAL_ROWS
