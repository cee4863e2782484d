"""Every class of entities has a codec of P4Runtime, or is one that P4Runtime has no message for."""

from __future__ import annotations

import pytest
from capabilities import need

need("p4runtime")

from google.protobuf import json_format  # noqa: E402

from ina.p4.p4runtime.codecs import CODECS, content, wrapped  # noqa: E402
from ina.p4.p4runtime.messages import config, p4  # noqa: E402
from ina.p4.p4runtime.translate import RemoteEntities, Translator  # noqa: E402
from ina.p4.runtime import EntityError, P4Info, RegisterEntry, Update, entities, tna_entities  # noqa: E402
from ina.p4.runtime.kinds import KINDS  # noqa: E402
from ina.p4.runtime.tna_entities import MulticastNode  # noqa: E402

pytestmark = pytest.mark.fast
NOT_SERVED = {"extern_entry"}
NO_ENTITIES = {"digest_entry"}  # digests.py


def test_every_class_of_entities_has_a_codec_but_those_of_tna():
    assert CODECS.keys() == {c for c in KINDS if c.__module__ == entities.__name__}
    assert KINDS.keys() - CODECS.keys() == {c for c in KINDS if c.__module__ == tna_entities.__name__}


def test_every_field_of_an_entity_has_a_codec_or_is_refused_by_name():
    fields = {f.name for f in p4.Entity.DESCRIPTOR.fields} - {"packet_replication_engine_entry"}
    fields |= {f.name for f in p4.PacketReplicationEngineEntry.DESCRIPTOR.oneofs_by_name["type"].fields}
    assert {c.field for c in CODECS.values()} == fields - NOT_SERVED - NO_ENTITIES
    translator = Translator(P4Info({}), config.P4Info(), {})
    for field in NOT_SERVED:
        update = p4.Update(type="INSERT")
        getattr(update.entity, field).SetInParent()
        with pytest.raises(EntityError, match=f"{field}: this switch has none") as refused:
            translator.updates(update)
        assert refused.value.code == "UNIMPLEMENTED"


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda c: c.field)
def test_a_message_stands_in_the_field_of_its_codec(codec):
    message = wrapped(codec.field, _empty(codec.field))
    assert content(message)[0] == codec.field


def _empty(field: str):
    holder = p4.Entity if field in p4.Entity.DESCRIPTOR.fields_by_name else p4.PacketReplicationEngineEntry
    return getattr(p4, holder.DESCRIPTOR.fields_by_name[field].message_type.name)()


def test_an_entity_without_a_message_is_refused_by_name():
    with pytest.raises(EntityError, match="MulticastNode.*is no entity of a switch"):
        RemoteEntities(P4Info({}), config.P4Info()).message(Update("INSERT", MulticastNode(1)).entity)


def test_a_register_of_structs_is_refused_by_name_before_anything_is_sent():
    p4info = {"registers": [{"preamble": {"id": 1, "name": "pairs"}, "typeSpec": {"struct": {"name": "pair"}}, "size": 4}]}
    remote = RemoteEntities(P4Info(p4info), json_format.ParseDict(p4info, config.P4Info()))
    with pytest.raises(EntityError, match="register pairs: data of type struct are not served") as refused:
        remote.message(RegisterEntry("pairs", 0))
    assert refused.value.code == "UNIMPLEMENTED"
