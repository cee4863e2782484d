"""The whole published SwitchML except the Tofino.

Its program runs on the embedded switch; its unedited controller uses Intel's client and our BFRuntime server; then packets of
its workers are summed.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from capabilities import need

need("cc", "p4runtime", "bfrt-client", "switchml-controller")

from published_controller import IP, MAC, Controller  # noqa: E402

from ina.p4.bfrt.device import Device  # noqa: E402
from ina.p4.bfrt.service import Server  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.rpc.connections import Access  # noqa: E402
from ina.p4.runtime import Switch  # noqa: E402
from ina.p4.runtime.entities import TableEntry, modify  # noqa: E402

pytestmark = pytest.mark.hardware
PLAIN = Access(insecure=True)  # all that the published client knows
PORTS = (0, 4, 8)  # front panel 1/0, 2/0, 3/0
WORKERS = [(f"0C:42:A1:00:00:0{n}", f"10.0.0.{n}") for n in (1, 2, 3)]
SIZES = {64: 1, 256: 3}  # values of a packet, and its code
SHOWN = ("ports", "switch_address", "forwarding_table", "drop_probabilities", "dropped_packets", "rdma_workers",
         "queue_pairs_counters", "udp_workers", "bitmap", "statistics")
LATE = slice(128, 160)  # values that the third harvest brings


@pytest.fixture(scope="module")
def program() -> Path:
    return compile_program(Path(os.environ["INA_P4APP_SWITCHML"], "dev_root/p4/switchml.p4"), cflags=["-O1"]).so_path


def hexed(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def frame(worker: int, values: np.ndarray, slot: int) -> bytes:
    """A packet of a published UDP worker: tensor index 7, exponents 5 and 6."""
    mac, ip = WORKERS[worker]
    payload = bytes([0x10 | SIZES[len(values)], 0]) + struct.pack(">IH2b", 7, slot, 5, 6) + values.astype(">i4").tobytes()
    udp = struct.pack(">HHHH", 4000, 0xBEE0, 8 + len(payload), 0) + payload
    ends = (bytes(map(int, address.split("."))) for address in (ip, IP))
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, *ends)
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + head[12:]
    return hexed(MAC) + hexed(mac) + b"\x08\x00" + head + udp


def reduced(switch: Switch, vectors: np.ndarray, slot: int) -> np.ndarray:
    """Sends one packet of each worker, two of them twice; all get the same result, and a worker that repeats gets it alone."""
    *others, last = enumerate(vectors)
    for worker, values in [*others, *others]:
        assert switch.step(frame(worker, values, slot), PORTS[worker]) == []
    worker, values = last
    replies = dict(switch.step(frame(worker, values, slot), PORTS[worker]))
    assert sorted(replies) == sorted(PORTS)
    for port, reply in replies.items():
        assert reply[:12] == hexed(WORKERS[PORTS.index(port)][0]) + hexed(MAC)
    (again,) = switch.step(frame(0, vectors[0], slot), PORTS[0])
    assert again[0] == PORTS[0] and again[1][52:] == replies[PORTS[0]][52:]
    (result,) = {reply[52 : 52 + 4 * vectors.shape[1]] for reply in replies.values()}
    return np.frombuffer(result, ">i4")


@pytest.mark.parametrize(("pipes", "arguments"), [(2, ()), (4, ("--enable-folded-pipe",))], ids=["2 pipes", "folded"])
def test_its_own_controller_sets_it_up_and_256_values_are_summed(program, tmp_path, pipes, arguments):
    rng = np.random.default_rng(7)
    with Switch(program, pipes=pipes) as switch, Server(Device(switch, "SwitchML"), access=PLAIN) as server:
        for port in PORTS:
            switch.add_port(port)
        with Controller(server.address, [mac for mac, _ in WORKERS], tmp_path, *arguments) as controller:
            answers = controller.join(SIZES[64], WORKERS)
            assert answers == [f"7 {hexed(MAC).hex()} {bytes(map(int, IP.split('.'))).hex()}"] * len(WORKERS)
            vectors = rng.integers(-(2**31), 2**31, (len(WORKERS), 256), dtype=np.int32)
            right = vectors.sum(axis=0, dtype=np.int32)
            for at in range(0, 256, 64):  # each in a slot of its own
                assert np.array_equal(reduced(switch, vectors[:, at : at + 64], at // 32), right[at : at + 64])
            pages = {topic: controller.command(f"show_{topic}") for topic in SHOWN}
            errors = {topic: text for topic, text in pages.items() if "rror" in text and topic != "ports" or "Traceback" in text}
            assert not errors and "2/0" in pages["ports"] and " RS " in pages["ports"]
            assert all(mac in pages[topic].upper() for mac, _ in WORKERS for topic in ("udp_workers", "forwarding_table"))
            if not arguments:
                return
            assert len(controller.join(SIZES[256], WORKERS)) == len(WORKERS)
            published = reduced(switch, vectors, slot=2)
            # The entry for the third harvest names a port of pipe 3: docs/design/tna-programs.md
            assert np.array_equal(np.delete(published, LATE), np.delete(right, LATE))
            assert np.array_equal(published[LATE], right[192:224])
            (third,) = (e for e in switch.read([TableEntry("next_step")]) if e.action.endswith("HARVEST3"))
            assert dict(third.params) == {"recirc_port": 448}
            switch.write(modify(TableEntry(third.table, third.match, third.action, {"recirc_port": 324}, third.priority)))
            assert np.array_equal(reduced(switch, vectors, slot=4), right)
