"""Tags between workers and a switch process over TCP: sums under attack, and who decides that frames have them."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace

import numpy as np
import pytest
from capabilities import need
from siphash_model import siphash
from waiting import LONG, until

need("cc")

from test_udp_across import joined, listening, machine  # noqa: E402, F401

from ina.aggregation.controller.admission import AdmissionError  # noqa: E402
from ina.aggregation.controller.client import Client, ControlError  # noqa: E402
from ina.aggregation.controller.port_requests import tag_salt  # noqa: E402
from ina.aggregation.controller.worker_ports import open_worker_port  # noqa: E402
from ina.aggregation.port_kinds import Control  # noqa: E402
from ina.aggregation.worker import Endpoint, Worker  # noqa: E402

SIZE = 10_000
LIES = np.full(SIZE, 666, np.int32)


class Raw:
    """Someone who can send packets with any sender's address, such as that of the socket ``own``, to its peer."""

    def __init__(self, own):
        self.source, self.destination = own.getsockname(), own.getpeername()
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def send(self, payload):
        udp = struct.pack("!4H", self.source[1], self.destination[1], 8 + len(payload), 0)
        ends = socket.inet_aton(self.source[0]) + socket.inet_aton(self.destination[0])
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(payload), 0, 0, 64, socket.IPPROTO_UDP, 0) + ends  # the kernel sums up
        self.sock.sendto(ip + udp + payload, self.destination)

    def close(self):
        self.sock.close()


class Attacked:
    """A job of two workers, and someone who can send with the address of worker 1: by that worker's own socket."""

    def __init__(self, machine, job, tags):  # noqa: F811
        self.clients = [joined(machine, worker, job) for worker in range(2)]
        self.attachments = [client.attach(job, worker, tags=tags) for worker, client in enumerate(self.clients)]
        self.attacker = socket.socket(fileno=os.dup(self.attachments[1].fds[-1]))
        self.ports = [open_worker_port(attachment) for attachment in self.attachments]
        self.endpoints = []

    def config(self, worker, **more):
        return self.attachments[worker].config(rto_min=0.5, rto_max=5.0, timeout=LONG, **more)

    def begin(self):
        self.endpoints = [Endpoint(self.config(i), port, self.clients[i].fileno()) for i, port in enumerate(self.ports)]

    def contributions(self, values):
        """Returns what worker 1 would send first, without tags."""
        worker = Worker(self.config(1))
        worker.submit(values.copy(), now=0)
        return [frame[42:] for frame in worker.frames_to_send(0)]

    def sums(self):
        arrays = [np.arange(SIZE, dtype=np.int32) * (worker + 1) for worker in range(2)]
        tickets = [endpoint.submit(array) for endpoint, array in zip(self.endpoints, arrays, strict=True)]
        for endpoint, ticket in zip(self.endpoints, tickets, strict=True):
            endpoint.wait(ticket, LONG)
        return arrays

    def drops(self):
        """Returns the drops of worker 1's port at the switch, by reason."""
        ports = self.clients[0].counters()["ports"]
        return ports[max(ports, key=int)]["drops"]

    def wait_for(self, reason, count):
        until(lambda: self.drops().get(reason, 0) >= count, f"{count} drops: {reason}")

    def close(self):
        for endpoint in self.endpoints:
            endpoint.close()
        if not self.endpoints:
            for port in self.ports:
                port.close()
        self.attacker.close()
        for attachment in self.attachments:
            for fd in attachment.fds:
                os.close(fd)
        for client in self.clients:
            with suppress(ControlError):  # the job has failed
                client.release()
            client.close()


@contextmanager
def attacked(machine, job, tags):  # noqa: F811
    with closing(Attacked(machine, job, tags)) as world:
        yield world


def right(arrays):
    return all(np.array_equal(array, 3 * np.arange(SIZE)) for array in arrays)


@pytest.mark.build
@pytest.mark.gate
def test_forged_contributions_do_not_change_a_sum(machine):  # noqa: F811
    with attacked(machine, "forged", "on") as world:
        forged = world.contributions(LIES)
        tag = siphash(world.attachments[1].tags.to_worker, forged[0] + (1).to_bytes(8, "big")).to_bytes(8, "big")
        for payload in forged:
            for each in (payload, payload + bytes(16), payload + (1).to_bytes(8, "big") + tag):
                world.attacker.send(each)
        world.wait_for("forged", 3 * len(forged))
        world.begin()
        assert right(world.sums())
        assert world.drops()["forged"] == 3 * len(forged) and world.drops()["replayed"] == 0


@pytest.mark.root
@pytest.mark.later
@pytest.mark.parametrize("tags", ["on", ""])
def test_packets_with_a_forged_address(machine, tags):  # noqa: F811
    """The same by a raw socket of another process, as from another machine; without tags sums are wrong."""
    need("root")
    with attacked(machine, f"raw {tags}", tags) as world, closing(Raw(world.attacker)) as raw:
        forged = world.contributions(LIES)
        for payload in forged:
            raw.send(payload + bytes(16) * bool(tags))
        if tags:
            world.wait_for("forged", len(forged))
        world.begin()
        assert right(world.sums()) is bool(tags)


@pytest.mark.build
@pytest.mark.gate
def test_without_tags_they_do(machine):  # noqa: F811
    """The attack of the test above is one: the first packets have the lies in place of worker 1's values."""
    with attacked(machine, "unprotected", "") as world:
        forged = world.contributions(LIES)
        for payload in forged:
            world.attacker.send(payload)
        world.begin()
        arrays = world.sums()
        assert not right(arrays) and arrays[0][0] == 666
        assert "forged" not in world.drops()


@pytest.mark.build
@pytest.mark.gate
def test_frames_that_were_recorded_are_taken_once(machine):  # noqa: F811
    """Frames of worker 1 are sent again, later: to a new phase they would look like contributions to it."""
    with attacked(machine, "recorded", "on") as world:
        own = Worker(world.config(1))
        own.submit(LIES.copy(), now=0)
        frames = own.frames_to_send(0)
        assert world.ports[1].send(frames) == len(frames)
        key = world.attachments[1].tags.to_switch
        recorded = []
        for number, frame in enumerate(frames, 1):
            covered = frame[42:] + number.to_bytes(8, "big")
            recorded.append(covered + siphash(key, covered).to_bytes(8, "big"))
        for turn in range(1, 4):
            for each in recorded:
                world.attacker.send(each)
            world.wait_for("replayed", turn * len(frames))
        assert world.drops()["replayed"] == 3 * len(frames) and world.drops()["forged"] == 0


@pytest.mark.build
def test_each_attachment_has_keys_of_its_own(machine):  # noqa: F811
    with attacked(machine, "one", "on") as one, attacked(machine, "another", "on") as other:
        keys = [key for world in (one, other) for each in world.attachments for key in (each.tags.to_switch, each.tags.to_worker)]
        assert len({*keys}) == 8 and all(len(key) == 16 for key in keys)
        assert "tags" not in one.attachments[0].port and keys[0].hex() not in repr(one.attachments[0])


# ---- who decides


HERE, ELSEWHERE = "127.0.0.1", "10.9.8.7"


@pytest.mark.build
@pytest.mark.parametrize(("process", "address", "wanted", "tagged"), [
    (True, ELSEWHERE, "", True), (True, ELSEWHERE, "on", True), (True, HERE, "", False), (True, HERE, "on", True),
    (True, HERE, "off", False), (False, ELSEWHERE, "", False), (False, ELSEWHERE, "off", False), (False, HERE, "", False),
])
def test_frames_of_other_machines_have_tags(process, address, wanted, tagged):
    assert bool(salt(process, address, wanted)) is tagged


def salt(process, address, wanted, can=True, seal=object()):  # noqa: B008
    request = SimpleNamespace(tags=wanted, port=f"udp@{address}:4000" if can else "udp")
    return tag_salt(process, seal, request, Control("", address))


@pytest.mark.build
@pytest.mark.parametrize(("process", "wanted", "more", "code", "words"), [
    (True, "off", {}, "mismatch", r"\(INA_TAGS=off\), but the switch process takes no frames of other machines without"),
    (False, "on", {}, "mismatch", r"\(INA_TAGS=on\), but the switch process was started with --no-tags"),
    (True, "on", {"can": False}, "mismatch", "frames of this port have none; those of INA_PORT=udp"),
    (True, "on", {"seal": None}, "mismatch", "frames of this port have none"),
    (True, "yes", {}, "invalid", "tags: expected on or off, got 'yes'"),
])
def test_who_wants_otherwise_is_refused(process, wanted, more, code, words):
    with pytest.raises(AdmissionError, match=words) as error:
        salt(process, ELSEWHERE, wanted, **more)
    assert error.value.code == code


@pytest.mark.build
def test_a_process_without_tags_says_so():
    from control_process import control_process, free_tcp_name

    name = free_tcp_name()  # its switch has no ports that check tags
    with control_process(name), closing(Client(name)) as client:
        client.join("job", 0)
        client.admit("job", 1)
        with pytest.raises(ControlError, match="INA_TAGS=on.*cannot check them") as error:
            client.attach("job", 0, tags="on")
        assert error.value.code == "mismatch"
        for fd in client.attach("job", 0).fds:
            os.close(fd)


@pytest.mark.build
def test_tags_are_a_setting(monkeypatch):
    need("torch")
    from ina.backend.settings import Settings

    monkeypatch.setenv("INA_TAGS", "on")
    assert Settings.read().tags == "on"
    monkeypatch.setenv("INA_TAGS", "yes")
    with pytest.raises(ValueError, match="INA_TAGS.*expected on or off"):
        Settings.read()


@pytest.mark.build
def test_tags_are_for_workers_on_other_machines_only(capsys):
    from ina import cli

    assert cli.main(["switch", "run", "--no-tags", "switchml"]) == 1
    assert "--no-tags: it belongs to --listen" in capsys.readouterr().err


def own_address():
    """Returns an address of this machine that others could reach; "": it has none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return probe.getsockname()[0]


@pytest.mark.build
@pytest.mark.parametrize(("options", "tagged"), [((), True), (("--no-tags",), False)])
def test_workers_at_an_address_for_others_have_tags_by_default(options, tagged):
    ip = own_address()
    if not ip or ip.startswith("127."):
        pytest.skip("this machine has no address beside the loopback's")
    with listening(ip, *options) as name:
        client = joined(name, 0, "default")
        attachment = client.attach("default", 0)
        assert (attachment.tags is not None) is tagged
        with open_worker_port(attachment) as port:
            assert port.max_frame == Worker(attachment.config()).config.frame_bytes
        for fd in attachment.fds:
            os.close(fd)
        client.release()
        client.close()
