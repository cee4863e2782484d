"""Streams of BFRuntime: digests go to who has subscribed to them when their packets come."""

from __future__ import annotations

import queue
import threading
from contextlib import contextmanager

import pytest
from capabilities import need

need("cc", "p4runtime")

from tna_program import data, source  # noqa: E402

from ina.p4.bfrt.client import SERVICE, Client  # noqa: E402
from ina.p4.bfrt.device import Device  # noqa: E402
from ina.p4.bfrt.messages import bfrt  # noqa: E402
from ina.p4.bfrt.rows import Row  # noqa: E402
from ina.p4.bfrt.service import Server  # noqa: E402
from ina.p4.compiler.build import compile_program  # noqa: E402
from ina.p4.runtime import Switch  # noqa: E402

pytestmark = pytest.mark.build


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "learns.p4"
    path.write_text(source("dprsr.digest_type = 1; dprsr.drop_ctl = 1;", types="struct learn_t { bit<32> a; }",
                           deparser_locals="Digest<learn_t>() learn;",
                           deparser="if (dprsr.digest_type == 1) learn.pack({hdr.data.a}); pkt.emit(hdr);"))
    return compile_program(path)


@pytest.fixture
def switch(program):
    with Switch(program.so_path, pipes=1) as switch:
        switch.add_port(1)
        yield switch


class Learner:
    """A client's stream."""

    def __init__(self, client: Client, client_id: int):
        self._requests, self._client_id = queue.SimpleQueue(), client_id
        method = client._channel.stream_stream(f"{SERVICE}StreamChannel", bfrt.StreamMessageRequest.SerializeToString,
                                               bfrt.StreamMessageResponse.FromString)
        self._answers = method(iter(self._requests.get, None), timeout=120)

    def subscribe(self, learns=True):
        request = bfrt.StreamMessageRequest(client_id=self._client_id)
        request.subscribe.notifications.enable_learn_notifications = learns
        self._requests.put(request)
        assert next(self._answers).subscribe.status.code == 0
        return self

    def learnt(self):
        return int.from_bytes(next(self._answers).digest.data[0].fields[0].stream, "big")

    def close(self):
        self._requests.put(None)
        assert list(self._answers) == []


def test_digests_of_packets_from_before_a_subscription_are_not_sent(switch):
    def come(*values):
        for value in values:
            switch.step(data(value) + bytes(60), 1)

    with Server(Device(switch, "learns")) as server, Client(server.address) as client:
        come(1)
        first = Learner(client, 101).subscribe()
        come(2)
        second = Learner(client, 102).subscribe()
        third = Learner(client, 103).subscribe(learns=False)
        come(3)
        third.subscribe()
        come(4)
        assert [first.learnt() for _ in range(3)] == [2, 3, 4]
        assert [second.learnt() for _ in range(2)] == [3, 4]
        assert third.learnt() == 4
        for learner in (first, second, third):
            learner.close()


def test_a_write_takes_the_servers_lock_before_the_switchs(switch, monkeypatch):
    """As the search for idle entries and for digests does: the other way round, each waits for the other for ever."""
    batch, held = switch.batch, []

    def look():
        held.append(not server._lock.acquire(blocking=False))
        if not held[-1]:
            server._lock.release()

    @contextmanager
    def watched():
        with batch():
            looker = threading.Thread(target=look)
            looker.start()
            looker.join()
            yield

    monkeypatch.setattr(switch, "batch", watched)
    with Server(Device(switch, "learns")) as server, Client(server.address) as client:
        client.write([("INSERT", Row("$PORT", {"$DEV_PORT": 1}, {"$SPEED": "BF_SPEED_10G", "$FEC": "BF_FEC_TYP_NONE"}))])
    assert held == [True]
