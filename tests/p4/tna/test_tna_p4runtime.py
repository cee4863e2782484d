"""A TNA switch over P4Runtime, which has no notion of pipes."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from tna_probe import BYPASS, CPU, UCAST, frame, passed, probe
from waiting import until

from ina.p4.runtime import CounterEntry, EntityError, MeterConfig, MeterEntry

pytestmark = pytest.mark.build
__all__ = ["probe"]  # fixtures


def test_a_device_runs_a_tna_program(probe):
    messages = pytest.importorskip("ina.p4.p4runtime.messages", reason="the P4Runtime server needs grpcio")
    from ina.net.ports import memory_pair
    from ina.p4.p4runtime.device import Device

    inside, outside = memory_pair()
    packets_in: list[bytes] = []
    arrived = threading.Event()

    def packet_in(message: Any) -> None:
        packets_in.append(message.payload)
        arrived.set()

    with contextlib.ExitStack() as stack:
        stack.callback(outside.close)
        stack.callback(inside.close)
        device = stack.enter_context(Device(1, arch="tna"))
        device.on_packet_in = packet_in
        device.add_port(1, inside)
        device.load(probe)
        assert device.switch.ports == [1, 192]
        p4 = messages.p4
        data = frame((UCAST, 1), BYPASS)
        device.packet_out(p4.PacketOut(payload=data))
        assert outside.wait(120) and [bytes(f) for f in outside.receive()] == [passed(data)]
        data = frame(CPU, BYPASS)
        outside.send([data])
        assert arrived.wait(120) and packets_in == [passed(data)]
        pattern = p4.Entity(register_entry=p4.RegisterEntry(register_id=30, index=p4.Index(index=0)))
        (register,), errors = device.read([pattern])  # one packet entered each pipe
        assert register.register_entry.data.bitstring == b"\1" and errors is None
        device.packet_out(p4.PacketOut(payload=data))
        assert arrived.wait(120)
        until(lambda: device.switch.register("seen", 0).tolist() == [[1], [2]], "a packet in the second pipe")
        entries, errors = device.read([pattern])
        assert not entries and "its pipes differ" in str(errors)


def test_a_device_for_another_architecture_refuses_it(probe):
    pytest.importorskip("ina.p4.p4runtime.messages", reason="the P4Runtime server needs grpcio")
    from ina.p4.p4runtime.device import Device

    with Device(1, arch="v1model") as device, pytest.raises(EntityError, match="for tna, and this switch takes v1model"):
        device.load(probe)


def test_counters_of_all_pipes_are_one_and_meters_must_agree():
    pipes = pytest.importorskip("ina.p4.p4runtime.cell_codecs", reason="the P4Runtime server needs grpcio")
    counters = [CounterEntry("c", i, 1 + i + 2 * pipe, 10 + i, pipe) for pipe in (0, 1) for i in (0, 1)]
    assert pipes.merge(counters) == [CounterEntry("c", 0, 4, 20), CounterEntry("c", 1, 6, 22)]
    plain = [CounterEntry("c", 0, 1, 10), CounterEntry("c", 1, 1, 10)]
    assert pipes.merge(plain) == plain
    config = MeterConfig(1, 2, 3, 4)
    assert pipes.merge([MeterEntry("m", 0, config, 0), MeterEntry("m", 0, config, 1)]) == [MeterEntry("m", 0, config)]
    with pytest.raises(EntityError, match=r"m\[0\]: its pipes differ"):
        pipes.merge([MeterEntry("m", 0, config, 0), MeterEntry("m", 0, None, 1)])
