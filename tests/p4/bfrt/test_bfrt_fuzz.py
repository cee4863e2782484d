"""Every item of a call gets an answer, whatever the client sends, and the switch goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from capabilities import need

need("cc", "p4runtime")

import grpc  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from messages_drawn import messages  # noqa: E402

from ina.p4.bfrt.client import SERVICE, _details  # noqa: E402
from ina.p4.bfrt.device import Device  # noqa: E402
from ina.p4.bfrt.messages import bfrt  # noqa: E402
from ina.p4.bfrt.remote_switch import BfRuntimeTarget  # noqa: E402
from ina.p4.bfrt.service import Server  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.runtime import Switch  # noqa: E402
from ina.p4.runtime.entities import RegisterEntry, modify  # noqa: E402

pytestmark = pytest.mark.build
KINDS = ("exact", "ternary", "lpm", "range", "optional")


def key(rng, field, part):
    value = rng.randbytes(rng.choice([field.bytes, field.bytes, 0, 1, 9]))
    if rng.random() < 0.5:  # one that fits
        value = (2).to_bytes(max(1, field.bytes), "big")
    kind = rng.choice([field.match] * 5 + list(KINDS))
    if kind == "exact":
        part.exact.value = value
    elif kind == "ternary":
        part.ternary.value, part.ternary.mask = value, rng.choice([value, b"\xff" * len(value)])
    elif kind == "lpm":
        part.lpm.value, part.lpm.prefix_len = value, rng.randint(-1, 50)
    elif kind == "range":
        part.range.low = part.range.high = value
    else:
        part.optional.value, part.optional.is_valid = value, True


def value(rng, field, part):
    kind = rng.choice(["right"] * 8 + ["bool", "str", "list"])
    if kind == "bool" or (kind == "right" and field.type == "bool" and not field.repeated):
        part.bool_val = rng.random() < 0.5
    elif kind == "str" or (kind == "right" and field.type == "string"):
        part.str_val = rng.choice([*field.choices, "zz"])
    elif field.type == "bool" and field.repeated:
        part.bool_arr_val.val.extend([True] * rng.randint(0, 3))
    elif kind == "list" or field.repeated:
        part.int_arr_val.val.extend(rng.choice([1, 2, 300, 2**31]) for _ in range(rng.randint(0, 3)))
    else:
        part.stream = rng.randbytes(rng.choice([field.bytes, field.bytes, 0, 1, 9]))


def entry(rng, table):
    row = bfrt.TableEntry(table_id=rng.choice([table.id] * 9 + [rng.randint(0, 2**32 - 1)]), is_default_entry=rng.random() < 0.1)
    for field in table.keys:
        if rng.random() < 0.85:
            key(rng, field, row.key.fields.add(field_id=rng.choice([field.id] * 9 + [99])))
    action = rng.choice(table.actions) if table.actions and rng.random() < 0.8 else None
    if action:
        row.data.action_id = action.id
    for field in [*(action.fields if action else ()), *table.data]:
        if rng.random() < 0.6:
            value(rng, field, row.data.fields.add(field_id=field.id))
    return row


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_any_entry_of_any_table(seed):
    rng = random.Random(seed)
    program = compile_program(Path(__file__).parent.parent.parent / "programs/served" / "bfrt.p4")
    with Switch(program.so_path) as switch, Server(Device(switch)) as server, BfRuntimeTarget(server.address) as target:
        switch.add_port(1)
        channel, tables, outcomes = target.client._channel, list(target.client.info.tables.values()), set()
        stream = channel.unary_stream(f"{SERVICE}Read", bfrt.ReadRequest.SerializeToString, bfrt.ReadResponse.FromString)

        def read(request, timeout):
            return list(stream(request, timeout=timeout))

        for _ in range(200):
            writing = bfrt.WriteRequest(p4_name="bfrt", atomicity=rng.choice([0, 0, 1, 2]))
            reading = bfrt.ReadRequest(p4_name="bfrt")
            writing.target.pipe_id = reading.target.pipe_id = rng.choice([0xFFFF, 0xFFFF, 0, 1, 3])
            for _ in range(rng.randint(1, 3)):
                message = entry(rng, rng.choice(tables))
                writing.updates.add(type=rng.randint(0, 6)).entity.table_entry.CopyFrom(message)
                reading.entities.add().table_entry.CopyFrom(message)
            for call, request in ((target.client._method("Write"), writing), (read, reading)):
                try:
                    call(request, timeout=60)
                    outcomes.add("OK")
                except grpc.RpcError as error:
                    assert error.code() is grpc.StatusCode.UNKNOWN and _details(error), error
                    outcomes |= {code for code, _ in _details(error).values()}
        assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND"} <= outcomes and "INTERNAL" not in outcomes
        target.write(modify(RegisterEntry("SwitchIngress.pairs", 7, 1)))
        assert target.read([RegisterEntry("SwitchIngress.pairs", 7)])[0].value == 1
        switch.step(bytes(64), port=1)


@pytest.fixture(scope="module")
def running():
    """A server's client, and ids that are valid there."""
    program = compile_program(Path(__file__).parent.parent.parent / "programs/served" / "bfrt.p4")
    with Switch(program.so_path) as switch, Server(Device(switch)) as server, BfRuntimeTarget(server.address) as target:
        switch.add_port(1)
        tables = target.client.info.tables.values()
        fields = {field.id for table in tables for field in (*table.keys, *table.data)}
        yield target.client, (0xFFFF, *(table.id for table in tables), *sorted(fields))


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_field_of_any_message(running, caplog, data):
    client, numbers = running
    for name in ("Write", "Read", "SetForwardingPipelineConfig", "GetForwardingPipelineConfig"):
        request = data.draw(messages(getattr(bfrt, f"{name}Request"), numbers), label=name)
        request.client_id = data.draw(st.sampled_from([client.client_id, 7]))
        if name in ("Write", "Read"):
            request.p4_name, request.target.device_id = "bfrt", 0
        response = getattr(bfrt, f"{name}Response").FromString
        kind = client._channel.unary_stream if name == "Read" else client._channel.unary_unary
        caplog.clear()
        try:
            answer = kind(f"{SERVICE}{name}", type(request).SerializeToString, response)(request, timeout=60)
            list(answer) if name == "Read" else None
        except grpc.RpcError as error:
            codes = {code for code, _ in _details(error).values()} or {error.code().name}
            assert not codes & {"INTERNAL", "UNKNOWN"}, (name, request, error)
        assert not [record for record in caplog.records if record.exc_info], caplog.text


def test_values_that_no_enumeration_has_are_named(running):
    client, _ = running
    request = bfrt.WriteRequest(p4_name="bfrt", updates=[bfrt.Update(type=77)])
    with pytest.raises(grpc.RpcError) as error:
        client._method("Write")(request, timeout=60)
    ((code, message),) = _details(error.value).values()
    assert code == "INVALID_ARGUMENT" and "type: 77 is no value of bfrt_proto.Update.Type: expected" in message
    configured = bfrt.SetForwardingPipelineConfigRequest(dev_init_mode=77)
    for name, request in (
        ("Write", bfrt.WriteRequest(p4_name="bfrt", atomicity=77)), ("SetForwardingPipelineConfig", configured),
    ):
        with pytest.raises(grpc.RpcError) as error:
            client._method(name)(request, timeout=60)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT and "77 is no value of" in error.value.details()


def test_a_field_without_a_value_is_not_written(running):
    """Fields without a value are allowed in a Read; each update of a Write is refused by itself."""
    client, _ = running
    table = next(t for t in client.info.tables.values() if t.kind == "Register")
    for fields in (1, 2):
        entry = bfrt.TableEntry(table_id=table.id)
        entry.key.fields.add(field_id=table.keys[0].id).exact.value = bytes(table.keys[0].bytes)
        for _ in range(fields):
            entry.data.fields.add(field_id=table.data[0].id)
        request = bfrt.WriteRequest(p4_name="bfrt")
        request.target.pipe_id = 0xFFFF
        request.updates.add(type=bfrt.Update.MODIFY).entity.table_entry.CopyFrom(entry)
        with pytest.raises(grpc.RpcError) as error:
            client._method("Write")(request, timeout=60)
        ((code, message),) = _details(error.value).values()
        assert code == "INVALID_ARGUMENT" and f"field {table.data[0].name}: without a value" in message
