"""Jobs along a tree of deployed Tofinos: sums with loss, reports by switch, and failures of the controller, a connection, a
switch."""

from __future__ import annotations

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from capabilities import need

need("cc", "p4runtime")

import child  # noqa: E402
from deployed_tree import Process, Tree, Workers  # noqa: E402
from forger import contributions  # noqa: E402
from waiting import LONG, until  # noqa: E402

from ina.aggregation.controller.client import Client, ControlError  # noqa: E402
from ina.aggregation.worker import PeerLost  # noqa: E402
from ina.base import paths  # noqa: E402

pytestmark = [pytest.mark.build, pytest.mark.later]


@pytest.fixture
def make(tmp_path):
    trees = []

    def tree(**options):
        trees.append(Tree(tmp_path, **options))
        trees[-1].deploy()
        return trees[-1]

    yield tree
    for tree in trees:
        tree.close()


@pytest.fixture
def begin():
    """Starts resources that are closed in any case at the test's end."""
    resources = []

    def keep(resource):
        resources.append(resource)
        return resource

    yield keep
    for resource in reversed(resources):
        resource.close()


@pytest.mark.gate
def test_sums_are_exact_along_the_tree_with_loss_on_a_link(make, begin):
    tree = make(loss=0.02)
    begin(tree.controller())
    workers = begin(Workers(tree, [1, 2, 5, 6]))
    workers.end(workers.begin(50_000))
    assert tree.lost() > 10 and sum(endpoint.stats["retransmissions"] for endpoint in workers.endpoints) > 10
    near = begin(Workers(tree, [7, 8], "near"))
    near.end(near.begin(10_000))
    jobs = tree.ask("jobs")["jobs"]
    assert jobs["job"]["root"] == "root" and list(jobs["job"]["switches"]) == ["root", "leaf1", "leaf2"]
    assert [m["host"] for m in jobs["job"]["members"].values()] == ["server1", "server2", "server5", "server6"]
    assert jobs["job"]["switches"]["root"]["children"] == ["leaf1", "leaf2"]
    assert list(jobs["near"]["switches"]) == ["leaf2"]
    text = tree.ina("switches", "--switch", tree.socket)
    rows = [" ".join(line.replace("│", " ").split()) for line in text.splitlines() if "│ up" in line]
    assert rows == ["leaf1 up 256 240 job", "leaf2 up 256 224 job, near", "root up 256 240 job"]
    workers.endpoints[0].close()
    with tree.hosts[1].open() as port:  # a packet that is late by many rounds: leaf1 drops it
        port.send(contributions(workers.configs[0], 50_000)[:1])
        until(lambda: dropped(tree.ask("counters")["switches"]["leaf1"]), "leaf1 to drop a packet of the past")
    report = json.loads(tree.ina("counters", "--switch", tree.socket, "--json"))[tree.socket]
    drops = {name: dropped(switch) for name, switch in report["switches"].items()}
    assert drops.keys() == set(tree.names)
    assert sum(drops.values()) == sum(packets for packets, _ in report["program"]["SwitchIngress.drops"]) > 0
    assert report["links"]["leaf2-root"]["up_packets"] >= 50_000 / 64 and report["links"]["leaf2-root"]["rate"] == 100e9
    assert report["links"]["server1"]["up_packets"] >= 50_000 / 64 and report["links"]["server3"]["up_packets"] == 0
    text = tree.ina("counters", "--switch", tree.socket)
    assert re.search(r"leaf1 +│ SwitchIngress.drops │ stale", text) and re.search(r"│ leaf1-root │ 1e\+11 │", text)


def dropped(switch: dict) -> int:
    """Number of packets that the program of a switch has dropped, of its counters."""
    return sum(packets for packets, _ in switch["program"]["SwitchIngress.drops"])


def states(tree: Tree) -> dict[str, str]:
    return {name: switch["state"] for name, switch in tree.ask("switches")["switches"].items()}


def test_sums_go_on_while_the_controller_is_killed_and_started_anew(make, begin):
    tree = make()
    controller, workers = begin(tree.controller()), begin(Workers(tree, [1, 5]))
    workers.end(workers.begin(1000))
    for round_ in range(2):
        reduction = workers.begin(1_000_000, seed=round_)
        controller.end()
        with pytest.raises(ControlError, match="ended"):
            workers.clients[0].ping()
        controller = begin(tree.controller())
        assert [(a.number, a.incarnation) for a in workers.connect()] == 2 * [(0, workers.incarnation)]
        workers.end(reduction)
    assert states(tree) == dict.fromkeys(tree.names, "up")
    for client in workers.clients:
        client.release()
    assert tree.ask("jobs") == {"jobs": {}}
    assert controller.end(signal.SIGTERM).count("is here; 0 entries were not as they should be") == len(tree.names)


def test_a_connection_that_is_lost_is_made_anew_and_jobs_do_not_notice(make, begin):
    tree = make()
    begin(tree.controller())
    workers = begin(Workers(tree, [1, 5]))
    before = {name: tree.proxies[name].connections for name in ("leaf2", "root")}
    for name in before:
        reduction = workers.begin(300_000)
        tree.proxies[name].cut()
        workers.end(reduction)
    until(lambda: tree.proxies["leaf2"].connections > before["leaf2"], "the controller to connect again")
    other = begin(Workers(tree, [2, 6], "other"))  # at once, if the controller has not looked meanwhile
    other.end(other.begin(1000))
    until(lambda: tree.proxies["root"].connections > before["root"], "the controller to connect again")
    until(lambda: states(tree) == dict.fromkeys(tree.names, "up"), "all switches to be up")
    workers.end(workers.begin(1000))


@pytest.mark.parametrize("name", ["leaf2", "root"])
def test_a_switch_that_is_off_ends_its_jobs_and_no_others(make, begin, name):
    tree = make()
    begin(tree.controller())
    far, near = begin(Workers(tree, [1, 5], watched=True)), begin(Workers(tree, [2, 3], "near", watched=True))
    reduction = far.begin(5_000_000)
    tree.kill(name)
    with pytest.raises(PeerLost):
        far.end(reduction)
    until(lambda: all(client.failure for client in far.clients if client.poll() or True), "the news")
    assert all(f"switch {name} is lost: " in client.failure for client in far.clients)
    near.end(near.begin(1000))
    after = states(tree)
    assert "nobody listens at" in after.pop(name) and set(after.values()) == {"up"}
    far.close()
    with pytest.raises(ControlError, match=f"{name}") as error:
        Workers(tree, [1, 5], "again")
    assert error.value.code == "unreachable"
    counters = tree.ask("counters")
    assert counters["switches"][name]["error"] and not counters["switches"]["leaf1"].get("error")
    assert f"{name} does not answer: " in tree.ina("counters", "--switch", tree.socket)
    assert ("server5" in counters["links"]) == (name == "root") and "leaf1-root" in counters["links"]


def test_a_controller_that_starts_waits_for_the_switch_that_does_not_answer(make, begin):
    """It names the switch; a worker that came meanwhile is admitted when the switch answers; a signal ends the waiting."""
    tree = make(silence=4.0)
    tree.proxies["leaf2"].flows.clear()
    controller = begin(Process(*tree.controlled_by, ready=False))
    message = "ina: waiting until it answers, with a look every 2 s: switch leaf2: "
    assert any(line.startswith(message) for line in controller.process.stderr)  # on a busy machine others may be slow, too
    ended = begin(Process(*tree.controlled_by[:-4], "--name", tree.folder / "other", "--state", tree.folder / "x", ready=False))
    assert any("leaf2" in line for line in ended.process.stderr)
    ended.process.send_signal(signal.SIGTERM)
    assert child.status(ended.process) == 0 and not (tree.folder / "other").exists()
    client = begin(Client(tree.socket, LONG))
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(client.ask, "switches")
        assert not future.done() and controller.process.poll() is None
        tree.proxies["leaf2"].flows.set()
        until(future.done, "the controller's answer")
        answer = future.result()["switches"]
    assert {name: switch["state"] for name, switch in answer.items()} == dict.fromkeys(tree.names, "up")
    workers = begin(Workers(tree, [1, 5]))
    workers.end(workers.begin(1000))


def test_a_switch_that_is_silent_is_lost_after_a_while_and_nothing_hangs(make, begin):
    """Its machine accepts connections, and does not answer."""
    tree = make(silence=3.0)
    begin(tree.controller())
    far, near = begin(Workers(tree, [1, 5], watched=True)), begin(Workers(tree, [2, 3], "near", watched=True))
    tree.proxies["leaf2"].flows.clear()
    error = tree.ina("deploy", tree.file, "--timeout", 10, ok=False)
    assert error.startswith("ina: leaf2: ") and "within 10 s" in error
    until(lambda: far.clients[0].poll(), "the news", 5 * LONG)  # several looks, each with several questions
    assert "switch leaf2 is lost: " in far.clients[0].failure
    near.end(near.begin(1000))
    assert states(tree)["leaf2"] != "up"
    tree.proxies["leaf2"].flows.set()
    until(lambda: states(tree)["leaf2"] == "up", "leaf2 to be back")
    far.close()
    again = begin(Workers(tree, [1, 5], "again"))
    again.end(again.begin(1000))


def test_a_job_goes_on_over_another_root(make, begin, monkeypatch):
    """The job has two ranks of the back end, in this process."""
    need("torch")
    import torch

    from ina.backend import job as backend
    from ina.backend.settings import Settings

    tree, store, jobs = make(roots=2), torch.distributed.HashStore(), []
    controller = begin(tree.controller())
    monkeypatch.setattr(backend, "open_worker_port", lambda a, faults=None, own=None: tree.hosts[1 + 4 * a.worker].open())
    settings = Settings(program=paths.p4_dir() / "tofino" / "switchml.p4", protocol="switchml", switch=tree.socket)
    try:
        for rank in range(2):
            monkeypatch.setenv("INA_HOST", f"server{1 + 4 * rank}")
            jobs.append(backend.Job(tree.socket, controller.process.pid, "group", rank, 2, LONG, settings, "secret", store))
        assert [job.admit() for job in jobs] == ["", ""]
        root = tree.ask("jobs")["jobs"]["group"]["root"]
        for step in range(2):
            tensors = [torch.full((3_000_000,), rank + step, dtype=torch.int32) for rank in range(2)]
            tickets = [job.submit(tensor, False, 0) for job, tensor in zip(jobs, tensors, strict=True)]
            if not step:
                tree.kill(root)
            for job, ticket in zip(jobs, tickets, strict=True):
                assert job.wait(*ticket, "all-reduce", LONG)
            assert all((tensor == 1 + 2 * step).all() for tensor in tensors)
        assert tree.ask("jobs")["jobs"]["group"]["root"] == ({"root", "root2"} - {root}).pop()
    finally:
        for job in jobs:
            job.close(in_peace=False)
