"""Memory of the controller for jobs that are over: nobody makes it forget what belongs to others."""

from __future__ import annotations

import pytest
from test_api import FakeNetwork, Someone

from ina import topology as topologies
from ina.aggregation.controller.access import Principal
from ina.aggregation.controller.api import Operations
from ina.aggregation.controller.memory import MOST, Memory

pytestmark = pytest.mark.fast


def test_the_holder_with_the_most_entries_forgets_its_oldest():
    memory: Memory[str, int] = Memory(4)
    for number, (key, holder) in enumerate([("a", 1), ("b", 2), ("c", 2), ("d", 2)]):
        memory.remember(key, number, holder)
    memory.remember("e", 4, 1)
    assert memory.items() == [("a", 0), ("c", 2), ("d", 3), ("e", 4)]
    memory.remember("c", 5, 1)
    assert memory.get("c") == 5 and len(memory) == 4, "it has replaced that"
    memory.remember("f", 6, 3)
    assert [key for key, _ in memory.items()] == ["d", "e", "c", "f"], "the first one's, which has three"
    memory.forget("f")
    memory.forget("f")
    assert "f" not in memory and memory.get("f") is None


def test_holders_of_one_entry_each_forget_the_oldest():
    memory: Memory[int, int] = Memory(3)
    for number in range(5):
        memory.remember(number, number, number)
    assert [key for key, _ in memory.items()] == [2, 3, 4]


@pytest.fixture
def service():
    return Operations(FakeNetwork(topologies.load("leaf-spine", leaves=2, spines=1, hosts=2)), job_slots=16)


def holder(service, token):
    """A client with the pass of the job with that token."""
    return Someone(service, 1, Principal(None, token))


def flush(service, token):
    """Has as many jobs of that pass as there are entries, one after the other."""
    for number in range(MOST + 1):
        client = holder(service, token)
        assert client.ask("join", job=f"{token} {number}", worker=0, token=f"{token}.{number}")["ok"]
        service.gone(client, "its process ended")


def test_a_pass_does_not_flush_what_others_passes_were_used_for(service):
    first = holder(service, "first")
    assert first.ask("join", job="one", worker=0, token="first")["ok"]
    service.gone(first, "")
    flush(service, "second")
    reply = holder(service, "first").ask("join", job="another", worker=0, token="first")
    assert reply["code"] == "denied" and "pass is of job 'one'" in reply["error"]
    assert len(service.passes) <= MOST


def test_a_pass_does_not_flush_why_others_jobs_failed(service):
    first = holder(service, "first")
    assert first.ask("join", job="one", worker=0, token="first")["ok"]
    service.gone(first, "its process ended")
    flush(service, "second")
    reply = holder(service, "first").ask("join", job="one", worker=1, token="first")
    assert reply["code"] == "failed" and "worker 0 of job 'one'" in reply["error"]
