"""Intel's BFRuntime client, unmodified, drives our server; and its published protobuf file agrees with ours."""

from __future__ import annotations

import pytest
from capabilities import need

need("cc", "p4runtime", "bfrt-client")

import bfrt_client  # noqa: E402
from google.protobuf import descriptor_pb2  # noqa: E402

from ina.p4.bfrt.description import BFRUNTIME  # noqa: E402
from ina.p4.bfrt.device import Device  # noqa: E402
from ina.p4.bfrt.service import Server  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.rpc.connections import Access  # noqa: E402
from ina.p4.rpc.message_classes import described  # noqa: E402
from ina.p4.runtime import Switch  # noqa: E402
from ina.p4.runtime.entities import TableEntry  # noqa: E402

pytestmark = pytest.mark.hardware
PLAIN = Access(insecure=True)  # all that the published client knows
SESSION = r"""
import sys
import bfrt_grpc.client as gc

interface = gc.ClientInterface(sys.argv[1], client_id=0, device_id=0)
interface.bind_pipeline_config("switchml")
info = interface.bfrt_info_get("switchml")
every = gc.Target(device_id=0, pipe_id=0xFFFF)

l2 = info.table_get("SwitchIngress.forwarding.l2")
l2.info.key_field_annotation_add("hdr.ethernet.dst_addr", "mac")
key = l2.make_key([gc.KeyTuple("hdr.ethernet.dst_addr", "00:00:00:00:00:02")])
l2.entry_add(every, [key], [l2.make_data([gc.DataTuple("port", 2)], "forward")])
((data, found),) = l2.entry_get(every, [])
assert data.to_dict()["port"] == 2 and found == key, (str(data), str(found))
try:
    l2.entry_add(every, [key], [l2.make_data([gc.DataTuple("port", 2)], "forward")])
    raise SystemExit("an entry was added twice")
except gc.BfruntimeReadWriteRpcException as error:
    assert "ALREADY_EXISTS" in str(error), error
assert next(iter(l2.usage_get(every))) == 1
l2.entry_mod(every, [key], [l2.make_data([gc.DataTuple("port", 5)], "forward")])
assert next(l2.entry_get(every, [key]))[0].to_dict()["port"] == 5
l2.default_entry_set(every, l2.make_data([gc.DataTuple("port", 3)], "forward"))
assert next(l2.default_entry_get(every))[0].to_dict()["port"] == 3
l2.default_entry_reset(every)

register = info.table_get("value_00")
cell = register.make_key([gc.KeyTuple("$REGISTER_INDEX", 5)])
register.entry_add(every, [cell], [register.make_data([gc.DataTuple("f1", 99)])])
register.operations_execute(every, "Sync")
assert next(register.entry_get(every, [cell], {"from_hw": True}))[0].to_dict()["SwitchIngress.values.value_00.f1"] == [99]

ports = info.table_get("$PORT")
port = ports.make_key([gc.KeyTuple("$DEV_PORT", 8)])
ports.entry_add(every, [port], [ports.make_data([gc.DataTuple("$SPEED", str_val="BF_SPEED_100G"),
                gc.DataTuple("$FEC", str_val="BF_FEC_TYP_RS"), gc.DataTuple("$PORT_ENABLE", bool_val=True)])])
assert next(ports.entry_get(every, [port]))[0].to_dict()["$PORT_NAME"] == "3/0"
panel = info.table_get("$PORT_HDL_INFO")
where = panel.make_key([gc.KeyTuple("$CONN_ID", 3), gc.KeyTuple("$CHNL_ID", 0)])
assert next(panel.entry_get(every, [where], {"from_hw": False}))[0].to_dict()["$DEV_PORT"] == 8
l2.entry_del(every)
assert list(l2.entry_get(every, [])) == []
l2.entry_add(every, [key], [l2.make_data([gc.DataTuple("port", 9)], "forward")])
print("done")
"""


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return bfrt_client.package(tmp_path_factory.mktemp("bfrt"))


def test_the_published_client_drives_the_embedded_switch(published):
    program = compile_program("p4/switchml.p4", defines={"VALUES": "32"})
    with Switch(program.so_path) as switch, Server(Device(switch, "switchml"), access=PLAIN) as server:
        assert bfrt_client.run(SESSION, published, server.address).endswith("done\n")
        (entry,) = switch.read([TableEntry("l2")])
        assert entry.params == {"port": 9}


def messages(prefix, kinds):
    for kind in kinds:
        yield f"{prefix}{kind.name}", kind
        yield from messages(f"{prefix}{kind.name}.", kind.nested_type)


def test_our_description_is_the_published_one(published):
    theirs = descriptor_pb2.FileDescriptorSet.FromString((published / "bfruntime.desc").read_bytes()).file[0]
    ours = described(BFRUNTIME)

    def summary(file):
        fields, enums = {}, {}
        for name, message in messages("", file.message_type):
            groups = [o.name for o in message.oneof_decl]
            for f in message.field:
                group = groups[f.oneof_index] if f.HasField("oneof_index") else ""
                fields[f"{name}.{f.name}"] = (f.number, f.type, f.type_name, f.label, group)
            enums |= {f"{name}.{e.name}": [(v.name, v.number) for v in e.value] for e in message.enum_type}
        return fields, enums | {e.name: [(v.name, v.number) for v in e.value] for e in file.enum_type}

    assert summary(ours) == summary(theirs)
