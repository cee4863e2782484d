"""Fuzzing of P4Runtime: any value in any field of any message gets the specified errors, and the switch goes on."""

from __future__ import annotations

import itertools
import logging
from contextlib import contextmanager
from pathlib import Path

import pytest
from capabilities import need

need("cc", "p4runtime")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from messages_drawn import messages  # noqa: E402
from p4runtime_client import Client, Failure, Names, update  # noqa: E402

from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.p4runtime import pipeline  # noqa: E402
from ina.p4.p4runtime.device import Device  # noqa: E402
from ina.p4.p4runtime.messages import p4  # noqa: E402
from ina.p4.p4runtime.service import Server  # noqa: E402
from ina.p4.rpc.errors import CODES  # noqa: E402
from ina.p4.runtime import Program  # noqa: E402

pytestmark = pytest.mark.build
P4 = Path(__file__).parent.parent.parent / "programs/served"
HEALTHY = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]  # messages are large
MANY = settings(max_examples=250, deadline=None, derandomize=True, print_blob=True, suppress_health_check=HEALTHY)
ELECTIONS = itertools.count(2**127)
OWN_FAULT = {"INTERNAL", "UNKNOWN"}


class World:
    """A switch that runs a program, its primary, and the ids that are valid there."""

    def __init__(self, client: Client, program: Program):
        self.client = client
        self.p4info = pipeline.message_of(program)
        self.names = Names(self.p4info)
        self.ids = tuple(self.names.ids.values())
        self.primary = client.stream()
        self.primary.arbitrate(1)

    def identified(self, request, device_id: int):
        request.device_id = device_id
        request.ClearField("role")
        request.election_id.high, request.election_id.low = 0, self.client.election
        return request

    def answered(self, call, *args, **more) -> str:
        """Calls and returns the code; a code for an internal error is a failure."""
        try:
            call(*args, **more)
            return "OK"
        except Failure as failure:
            numbers = {number: name for name, number in CODES.items()}
            codes = {numbers[code] for code, _ in failure.details} - {"OK", "ABORTED"}
            assert failure.code not in OWN_FAULT or (codes and not codes & OWN_FAULT), (failure, failure.details)
            return failure.code if not codes else codes.pop()


@pytest.fixture(scope="module", params=["controlled", "objects"])
def world(request):
    with running(request.param) as device:
        yield device


@pytest.fixture(scope="module")
def crowded():
    """A device whose primary changes to any client with a higher election id, up to the highest."""
    with running("controlled") as device:
        yield device


@contextmanager
def running(name: str):
    program = Program(compile_program(P4 / f"{name}.p4").so_path)
    with Device(device_id=1) as device, Server(device, "127.0.0.1:0") as server:
        device.load(program)
        client = Client(server.address)
        yield World(client, program)
        client.close()


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Fails the test after a traceback in the log, whatever the client's answer was."""
    with caplog.at_level(logging.ERROR, "ina.p4.p4runtime"):
        yield
    assert not [r for r in caplog.get_records("call") if r.exc_info], caplog.text


@MANY
@given(data=st.data())
def test_any_write(world, data):
    request = world.identified(data.draw(messages(p4.WriteRequest, world.ids)), data.draw(st.sampled_from([1, 1, 1, 1, 0])))
    world.answered(world.client.call, "Write", request)


@MANY
@given(data=st.data())
def test_any_read(world, data):
    entities = [data.draw(messages(p4.Entity, world.ids)) for _ in range(data.draw(st.integers(1, 3)))]
    world.answered(world.client.read, *entities)


@MANY
@given(data=st.data())
def test_any_message_of_a_stream(crowded, data):
    """Messages come from a primary, or from a client that only reads. The primary of the example before may not have ended yet,
    so each has an election id of its own."""
    stream = crowded.client.stream()
    try:
        stream.arbitrate(next(ELECTIONS) if data.draw(st.booleans()) else None)
        message = data.draw(messages(p4.StreamMessageRequest, (1, *crowded.ids)))
        stream._out.put(message)
        stream._out.put(p4.StreamMessageRequest(arbitration=p4.MasterArbitrationUpdate(device_id=1)))
        answers = []
        try:
            while not answers or answers[-1].WhichOneof("update") != "arbitration":
                answers.append(stream.next())
        except Failure as failure:
            assert failure.code not in OWN_FAULT, failure
        for answer in answers:
            if answer.WhichOneof("update") == "error":
                assert answer.error.canonical_code not in (CODES["INTERNAL"], CODES["UNKNOWN"]), answer
    finally:
        stream.close()
        crowded.client.streams.remove(stream)


@settings(MANY, max_examples=80)
@given(data=st.data())
def test_any_pipeline_request(world, data):
    """Pipeline requests with a working device config and any P4Info; forms of configs are tested in test_sent_programs.py."""
    running_config = world.client.call("GetForwardingPipelineConfig", p4.GetForwardingPipelineConfigRequest(device_id=1)).config
    request = data.draw(messages(p4.SetForwardingPipelineConfigRequest, world.ids, skip=("role", "p4_device_config")))
    world.identified(request, data.draw(st.sampled_from([1, 1, 1, 0])))
    if request.HasField("config"):
        request.config.p4_device_config = running_config.p4_device_config
        if data.draw(st.booleans()):
            request.config.p4info.CopyFrom(world.p4info)
    if request.action != p4.SetForwardingPipelineConfigRequest.VERIFY_AND_SAVE:  # which would divert the other tests' writes
        world.answered(world.client.call, "SetForwardingPipelineConfig", request)
    reading = data.draw(messages(p4.GetForwardingPipelineConfigRequest))
    world.answered(world.client.call, "GetForwardingPipelineConfig", reading)


UNKNOWN = 77


def test_values_that_no_enumeration_has_are_named(world):
    """The message names the field, the number, and the valid values."""
    client = world.client

    def refused(call, *args) -> str:
        with pytest.raises(Failure) as caught:
            call(*args)
        codes = {code for code, _ in caught.value.details} - {CODES["ABORTED"]}
        assert caught.value.code == "INVALID_ARGUMENT" or codes == {CODES["INVALID_ARGUMENT"]}, caught.value
        return caught.value.message

    entry = p4.TableEntry(table_id=world.p4info.tables[0].preamble.id)
    typed = p4.Update(type=UNKNOWN, entity=p4.Entity(table_entry=entry))
    for atomicity in ("CONTINUE_ON_ERROR", "ROLLBACK_ON_ERROR"):
        message = refused(lambda a=atomicity: client.write(typed, atomicity=a))
        assert "type: 77 is no value of p4.v1.Update.Type: expected UNSPECIFIED, INSERT, MODIFY or DELETE" in message
    digest = p4.Update(type=UNKNOWN, entity=p4.Entity(digest_entry=p4.DigestEntry(digest_id=1)))
    assert "type: 77" in refused(client.write, digest)
    assert "atomicity: 77 is no value of p4.v1.WriteRequest.Atomicity" in refused(lambda: client.write(typed, atomicity=UNKNOWN))
    entry_with_set = p4.TableEntry(table_id=entry.table_id)
    entry_with_set.action.action_profile_action_set.size_semantics = UNKNOWN
    place = "action.action_profile_action_set.size_semantics: 77"
    assert f"entity.table_entry.{place}" in refused(client.write, update("INSERT", table_entry=entry_with_set))
    assert f"table_entry.{place}" in refused(client.read, p4.Entity(table_entry=entry_with_set))
    assert "action: 77 is no value" in refused(lambda: client.set_pipeline(UNKNOWN, p4.ForwardingPipelineConfig()))
    request = p4.GetForwardingPipelineConfigRequest(device_id=1, response_type=UNKNOWN)
    assert "response_type: 77 is no value" in refused(client.call, "GetForwardingPipelineConfig", request)
