"""A job of three workers on every switch that runs SwitchML's program (tests/switchml_targets.py), and checks of its answers.

Test modules import the fixtures by name: `close`, `world`, `job`.
"""

from __future__ import annotations

import pytest
from marks import marked
from model_switch import ip_checksum
from switchml_targets import TARGETS, Job, World, close_targets, open_target

from ina.aggregation.wire import layout
from ina.aggregation.worker import SWITCH, worker_address
from ina.p4.runtime.entities import as_int

WIRE = layout.load(32)


@pytest.fixture(scope="module", autouse=True)
def close():
    yield
    close_targets()


@pytest.fixture(params=marked(TARGETS))
def world(request) -> World:
    return World(open_target(request.param, 32), ports=10)


@pytest.fixture
def job(world) -> Job:
    """Three workers, four slots."""
    return world.admit(3)


def numbers(world: World, start: int, step: int = 1) -> list[int]:
    return [start + step * i for i in range(world.values)]


def signed(values) -> list[int]:
    return [(v + 2**31) % 2**32 - 2**31 for v in values]


def total(*vectors) -> list[int]:
    return signed(map(sum, zip(*vectors, strict=True)))


def check_head(job: Job, frame: bytes, worker: int, payload: int) -> dict[str, dict[str, int]]:
    """The answer's lengths, addresses and checksums; returns its headers."""
    payload += job.head_size - 52
    assert len(frame) == 52 + payload
    headers, own = job.world.parse(frame), worker_address(job.number, worker)
    assert headers["ethernet"] == {
        "dst_addr": as_int(own.mac, 48, "mac"), "src_addr": as_int(SWITCH.mac, 48, "mac"), "ethertype": 0x0800,
    }
    ip = headers["ipv4"]
    assert (ip["src_addr"], ip["dst_addr"]) == (as_int(SWITCH.ip, 32, "ip"), as_int(own.ip, 32, "ip"))
    assert (ip["total_len"], ip["ttl"], ip["protocol"]) == (38 + payload, 64, 17)
    assert ip_checksum(frame[14:34]) == 0
    assert headers["udp"] == {"src_port": SWITCH.port, "dst_port": own.port, "length": 18 + payload, "checksum": 0}
    return headers


def check_words(headers: dict[str, dict], packets: list[dict[str, dict]]) -> None:
    """Checks version, checksum and, with values that are summed, the sums of the check words of all workers' `packets`."""
    if "check" not in packets[0]:
        return
    check = headers["check"]
    covered = b"".join(WIRE[name].pack(headers[name]) for name in ("switchml", "exponents", "check"))
    assert (check["version"], layout.checksum(covered)) == (WIRE.constants["WIRE_VERSION"], 0)
    if "values" in headers and headers["switchml"]["msg_type"] == WIRE.constants["SWITCHML_DATA"]:
        for word in ("check0", "check1"):
            assert check[word] == sum(packet["check"][word] for packet in packets) % 2**32


def check_result(job: Job, sent, values, tsi: int, e0: int = -96, *, overflow: int = 0, e1: int | None = None,
                 to: list[int] | None = None, set_: int | None = None, slot: int | None = None) -> None:
    """`sent` is the result `values` (None: no payload), once to each of workers `to` (default: all), nobody else."""
    workers = range(len(job.ports)) if to is None else to
    assert [port for port, _ in sent] == sorted(job.ports[w] for w in workers)
    frames = dict(sent)
    for worker in workers:
        headers = check_head(job, frames[job.ports[worker]], worker, 0 if values is None else 4 * len(values))
        request = job.fields(worker, tsi, values, slot=slot, set_=set_)
        assert headers["switchml"] == {**request["switchml"], "overflow": overflow}
        check_words(headers, [job.fields(w, tsi, values) for w in range(len(job.ports))])
        assert headers["exponents"] == {"e0": e0, "e1": request["exponents"]["e1"] if e1 is None else e1}
        if values is not None:
            assert signed(headers["values"]["v"]) == signed(values)


def check_pending(job: Job, sent, worker: int, tsi: int, seen: int, e0: int = -96) -> None:
    """`sent` is one frame, to `worker`, that names the missing workers: all but those in `seen`."""
    assert [port for port, _ in sent] == [job.ports[worker]]
    headers = check_head(job, sent[0][1], worker, 4)
    request = job.fields(worker, tsi, None, e0)
    assert headers["switchml"] == {**request["switchml"], "msg_type": 2, "size": 7, "overflow": 0}
    assert layout.checksum(sent[0][1][42:64]) == 0
    assert headers["exponents"] == request["exponents"]
    assert headers["pending"] == {"missing": (1 << len(job.ports)) - 1 & ~seen}


def reduce(job: Job, tsi: int, *, base: int = 0, e0: int = -96) -> list[int]:
    """All workers send packet `tsi`; returns the sum that everyone got."""
    vectors = [numbers(job.world, base + 1000 * (w + 1) + tsi % 1000) for w in range(len(job.ports))]
    for worker, vector in enumerate(vectors[:-1]):
        assert job.send(worker, tsi, vector, e0) == []
    check_result(job, job.send(len(vectors) - 1, tsi, vectors[-1], e0), total(*vectors), tsi, e0)
    return total(*vectors)
