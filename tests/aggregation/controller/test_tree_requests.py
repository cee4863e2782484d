"""Requests of a tree of switch processes, without sockets: what a connection that has left may ask, and what
stays after an error."""

from __future__ import annotations

import errno
import os
import queue
from types import SimpleNamespace

import pytest
from test_api import FakeNetwork, Someone
from waiting import LONG

from ina import topology as topologies
from ina.aggregation.controller import above, process_tree
from ina.aggregation.controller.above import Admitted, JobAbove, Membership, Refused
from ina.aggregation.controller.api import Operations
from ina.aggregation.controller.client import ControlError
from ina.aggregation.controller.process_tree import ProcessTree

pytestmark = pytest.mark.fast
CHILDREN = ("a" * 12, "b" * 12)


@pytest.fixture
def service():
    network = FakeNetwork(topologies.load("leaf-spine", leaves=2, spines=1, hosts=2))
    network.host_of = lambda pid, name: ""
    return Operations(network, tree=ProcessTree(network))


def child(service, number, token, below=CHILDREN):
    """The switch process of worker ``number``, which has joined a job, with one worker at each of those ``below``."""
    session = Someone(service, 0)
    paths = [f"{each}/{service.tree.id}" for each in below]
    assert session.ask("join", job="job", worker=number, token=token, paths=paths, child=below[number])["ok"]
    return session


def test_who_has_left_a_job_does_not_end_a_later_one_of_its_name(service):
    stranger = child(service, 2, "of the stranger", (*CHILDREN, "c" * 12))
    assert stranger.ask("release")["ok"]
    mine = [child(service, number, "mine") for number in range(2)]
    answer = stranger.ask("report", failed="it is over", lost=2)
    assert answer.get("code") == "invalid" and "not left" in answer["error"]
    assert not any("event" in message for each in mine for message in each.messages)


def test_who_has_left_a_job_does_not_join_it_again(service):
    """Nobody would be its member, so that it would never be over."""
    session = child(service, 0, "")
    assert session.ask("release")["ok"]
    paths = [f"{each}/{service.tree.id}" for each in CHILDREN]
    answer = session.ask("join", job="job", worker=0, paths=paths, child=CHILDREN[0])
    assert answer["code"] == "duplicate" and "has left it; open another one" in answer["error"]
    service.gone(session, "its connection closed")
    assert not service.tree._jobs and not service.principals


def test_nothing_stays_of_a_job_that_found_no_descriptors(service, monkeypatch):
    def none(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(process_tree, "JobAbove", none)
    service.tree.parent = SimpleNamespace(path=("f" * 12,), failure="", name="parent", access="")
    session = Someone(service, 0)
    paths = [f"{service.tree.id}/{'f' * 12}", "f" * 12]
    assert session.ask("join", job="job", worker=0, paths=paths)["code"] == "system"
    service.gone(session, "its connection closed")
    assert not service.tree._jobs and service.tree.due() is None


def test_descriptors_that_come_at_the_end_are_closed(service):
    """A job is over while its parent admits it, and the answer comes between two looks."""
    reading, writing = os.pipe()

    class Late:
        news = queue.SimpleQueue()

        def reap(self):
            self.news.put(Admitted({}, SimpleNamespace(fds=[writing])))
            return True

    service.tree._ending.append(Late())
    service.tree.tick()
    assert os.read(reading, 1) == b"", "nobody has the other end"
    os.close(reading)


def test_a_parent_without_room_for_a_connection_has_not_refused_the_job(monkeypatch):
    """It may have admitted it for others: the workers here must not do without the switch alone."""
    def full(*_, **__):
        raise ControlError("full", "it has no room: all descriptors for connections are in use")

    monkeypatch.setattr(above, "Client", full)
    job = JobAbove("parent", "a" * 12, Membership("job", 0, (), ("f" * 12,), "", ""), lambda: None)
    assert job.news.get(timeout=LONG) == Refused(
        "failed", "the switch process above, @parent: it has no room: all descriptors for connections are in use")
    job._thread.join(LONG)
    assert job.reap()
