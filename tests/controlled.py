"""Fixtures of the P4Runtime server's tests: tests/programs/served/controlled.p4 in a switch behind that server, and a client."""

from __future__ import annotations

from pathlib import Path

import pytest
from p4runtime_client import Client, Failure, Names
from waiting import until

from ina.net.ports import memory_pair
from ina.p4.compiler.build import compile_program
from ina.p4.p4runtime import pipeline
from ina.p4.p4runtime.device import Device
from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.service import Server
from ina.p4.rpc.errors import CODES
from ina.p4.runtime import Program

SOURCE = Path(__file__).parent / "programs/served" / "controlled.p4"
MAC = 0x0200_0000_0001
ATOMIC = ("ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC")


@pytest.fixture(scope="module")
def compiled():
    return compile_program(SOURCE)


@pytest.fixture(scope="module")
def names(compiled) -> Names:
    return Names(pipeline.message_of(Program(compiled.so_path)))


@pytest.fixture
def config(compiled, names):
    message = p4.ForwardingPipelineConfig(p4info=names.message, p4_device_config=SOURCE.read_bytes())
    message.cookie.cookie = 7
    return message


@pytest.fixture
def world():
    """A device without a pipeline, the far ends of its ports 1 to 3, a client."""
    pairs = {number: memory_pair() for number in (1, 2, 3)}
    with Device(device_id=1) as device:
        for number, (inside, _) in pairs.items():
            device.add_port(number, inside)
        with Server(device, "127.0.0.1:0") as server:
            client = Client(server.address)
            yield device, {number: far for number, (_, far) in pairs.items()}, client
            client.close()
    for pair in pairs.values():
        for port in pair:
            port.close()


@pytest.fixture
def ports(world):
    return world[1]


@pytest.fixture
def client(world, config) -> Client:
    """The primary, of a device with a pipeline."""
    _, _, client = world
    client.primary = client.stream()
    assert client.primary.arbitrate(1).status.code == 0
    client.set_pipeline("VERIFY_AND_COMMIT", config)
    return client


def frame(dst: int = MAC, src: int = 0x0A, a: int = 0, b: int = 0, c: int = 0, d: int = 0, e: int = 0) -> bytes:
    head = dst.to_bytes(6, "big") + src.to_bytes(6, "big") + b"\x88\xb5"
    return head + a.to_bytes(4, "big") + b.to_bytes(4, "big") + c.to_bytes(2, "big") + bytes([d, e]) + bytes(34)


def arrived(port, count: int = 1) -> list[bytes]:
    frames: list[bytes] = []

    def enough() -> bool:
        if len(frames) < count:
            port.wait(0.1)
        frames.extend(port.receive())
        return len(frames) >= count

    until(enough, f"{count} frames")
    return frames


def fails(code: str, call, *args, **kwargs) -> Failure:
    with pytest.raises(Failure) as caught:
        call(*args, **kwargs)
    assert caught.value.code == code, caught.value
    return caught.value


def refused(client: Client, code: str, *updates, **fields) -> list[tuple[int, str]]:
    """Asserts that every update of a Write fails with `code`."""
    details = fails("UNKNOWN", client.write, *updates, **fields).details
    assert [c for c, _ in details] == [CODES[code]] * len(updates), details
    assert all(message for _, message in details)
    return details


def replication(entry):
    return p4.Entity(packet_replication_engine_entry=entry)


def group(number, *replicas, **fields):
    return p4.PacketReplicationEngineEntry(
        multicast_group_entry=p4.MulticastGroupEntry(multicast_group_id=number, replicas=replicas, **fields))
