"""Recovery after a crash of the controller (kill -9), of a switch, and between the two halves of a change."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from test_api import FakeNetwork, Someone

from ina import topology as topologies
from ina.aggregation.controller.admission import switch_address
from ina.aggregation.controller.api import JOINING, Operations
from ina.aggregation.controller.failures import SILENCES
from ina.aggregation.controller.state import StateError, StateFile
from ina.aggregation.entries import Parent
from ina.aggregation.worker import worker_address
from ina.p4.runtime.entities import TableEntry
from ina.p4.runtime.entity_error import EntityError

ROOT = Path(__file__).parent.parent.parent.parent
ADDRESS = switch_address("s1")


def worker(number):
    """Address of host h<number+1> at port <number>, which ``ina switch run`` assigns to frames of its UDP ports."""
    return worker_address(0, number)


@pytest.fixture
def network():
    return FakeNetwork(topologies.load("leaf-spine", leaves=2, spines=1, hosts=2))


@pytest.fixture
def state(tmp_path):
    return StateFile(tmp_path / "jobs.json")


def start_job(service, *pids, job="job", token="t"):
    """Workers of a job that is admitted and to which all are attached."""
    workers = [Someone(service, pid) for pid in pids]
    for index, worker in enumerate(workers):
        assert worker.ask("join", job=job, worker=index, token=token)["ok"]
    for index, worker in enumerate(workers):
        assert worker.ask("admit", job=job, workers=len(pids), slots=16, token=token)["ok"]
        assert worker.ask("attach", job=job, worker=index, token=token)["ok"]
    return workers


def entries(network):
    return {name: dict(target.entities) for name, target in network.targets.items()}


# ---- the controller ends and begins


@pytest.mark.fast
def test_a_new_controller_has_the_jobs_of_the_old_one(network, state):
    old = Operations(network, job_slots=16, state=state)
    start_job(old, 1, 3)
    before = entries(network)
    new = Operations(network, job_slots=16, state=StateFile(state.path))
    assert entries(network) == before and new.controller.unsure == set()
    assert new.controller.snapshot() == old.controller.snapshot()
    lease = old.controller.jobs["job"].incarnation
    assert new.controller.free_slots("s3") == 48
    assert Someone(new, 1).ask("join", job="job", worker=0, token="guess")["code"] == "token"
    workers = [Someone(new, 1), Someone(new, 3)]
    for index, worker in enumerate(workers):
        assert worker.ask("attach", job="job", worker=index, token="t", held=lease)["incarnation"] == lease
    assert entries(network) == before, "who comes back changes nothing at the switches"
    for worker in workers:
        assert worker.ask("release")["ok"]
    assert not any(entries(network).values()) and new.controller.jobs == {}
    start_job(new, 2, 4, job="next")
    assert new.controller.jobs["next"].incarnation != lease, "incarnations are never given twice"


@pytest.mark.fast
def test_an_open_job_of_the_old_controller_stays_open_and_only_that(network, state):
    start_job(Operations(network, state=state), 1, 3, token="")
    new = Operations(network, state=state)
    lease = new.controller.jobs["job"].incarnation
    assert Someone(new, 1).ask("attach", job="job", worker=0, token="mine", held=lease)["code"] == "token"
    assert Someone(new, 1).ask("attach", job="job", worker=0, held=lease)["ok"]


@pytest.mark.fast
def test_nobody_takes_the_place_of_a_worker_that_an_earlier_controller_had(network, state):
    """A process that begins at packet 0 would meet the rows of the one before, and get its sums."""
    start_job(Operations(network, state=state), 1, 3)
    new = Operations(network, state=state)
    stranger = Someone(new, 1).ask("attach", job="job", worker=0, token="t")
    assert stranger["code"] == "failed" and "only workers that it had then come back to it" in stranger["error"]
    other = new.controller.jobs["job"].incarnation + 1
    late = Someone(new, 3).ask("attach", job="job", worker=1, token="t", held=other)
    assert late["code"] == "failed" and f"worker 1 has incarnation {other} of it" in late["error"]


def lifetimes(service):
    return {(job.number, job.incarnation, job.life) for job in service.controller.jobs.values()}


@pytest.mark.fast
@pytest.mark.parametrize("file", ["lost", "older"])
def test_a_controller_that_knows_too_little_learns_from_the_switches(network, state, file):
    """Its first job has the old one's number, and neither its incarnation nor its life; what was there is gone."""
    old = Operations(network, state=state)
    older = state.path.read_bytes() if state.path.exists() else b""
    if file == "older":
        leavers = start_job(old, 2, 4, job="gone")
        older = state.path.read_bytes()
        for worker in leavers:
            worker.ask("release")
        old.controller._last_number = -1
    start_job(old, 1, 3)
    ((number, incarnation, life),) = lifetimes(old)
    assert number == 0
    state.path.write_bytes(older)
    if file == "lost":
        state.path.unlink()
    new = Operations(network, state=StateFile(state.path))
    assert new.controller.jobs == {} and not any(entries(network).values())
    start_job(new, 1, 3)
    new.controller._last_number = -1
    start_job(new, 2, 4, job="another")
    assert all((number, life) != (n, s) and incarnation != i for n, i, s in lifetimes(new))


@pytest.mark.fast
def test_lives_are_counted_on_and_incarnations_are_not(network, state):
    """The file may be there or not: an older one would bring incarnations back."""
    old = Operations(network, state=state)
    start_job(old, 1, 3)
    ((_, incarnation, life),) = lifetimes(old)
    for worker in old.sessions[:]:
        worker.ask("release")
    new = Operations(network, state=StateFile(state.path))
    new.controller._last_number = -1
    start_job(new, 1, 3)
    ((_, next_incarnation, next_life),) = lifetimes(new)
    assert next_life == life % 255 + 1 and next_incarnation not in (incarnation, incarnation + 1)
    assert "incarnation" not in json.dumps({**StateFile(state.path).load()["controller"], "jobs": []})


@pytest.mark.fast
def test_a_job_whose_number_another_has_is_over(network, state):
    """The file is older than what the switches hold."""
    first = Operations(network, state=state)
    start_job(first, 1, 3, job="first")
    older = state.path.read_bytes()
    for worker in first.sessions[:]:
        worker.ask("release")
    first.controller._last_number = -1
    start_job(first, 1, 3, job="second")
    ((number, incarnation, life),) = lifetimes(first)
    state.path.write_bytes(older)
    new = Operations(network, state=StateFile(state.path))
    assert new.controller.jobs == {} and not any(entries(network).values())
    reply = Someone(new, 1).ask("attach", job="first", worker=0, token="t", held=7)
    assert reply["code"] == "failed" and "or another controller has written it" in reply["error"]
    new.controller._last_number = -1
    start_job(new, 1, 3, job="third")
    ((again, next_incarnation, next_life),) = lifetimes(new)
    assert again == number and next_life not in (life, (life - 2) % 255 + 1) and next_incarnation != incarnation


@pytest.mark.fast
def test_the_first_job_waits_for_a_packet_lifetime(network, state, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    network.packet_lifetime = 2.0
    service = Operations(network, job_slots=16, state=state)
    workers = [Someone(service, 1), Someone(service, 3)]
    for index, worker in enumerate(workers):
        worker.ask("join", job="job", worker=index)
    assert service.due() == 1002.0
    count = len(workers[0].messages)
    workers[0].ask("admit", job="job", workers=2)
    clock[0] = 1001.9
    service.retry()
    assert len(workers[0].messages) == count and service.controller.jobs == {}
    clock[0] = 1002.1
    service.retry()
    assert workers[0].messages[-1]["ok"] and "job" in service.controller.jobs


@pytest.mark.fast
@pytest.mark.parametrize(("change", "error"), [
    (lambda s: s.pop("controller"), "key 'controller' of a controller's state is missing"),
    (lambda s: s.update(tokens=[]), "key 'tokens' of a controller's state is list, expected an object"),
    (lambda s: s["controller"].pop("lives"), "the key 'lives' is missing"),
    (lambda s: s["controller"].update(lives={"0": [256]}), "life 256 of job number 0, expected 1..255"),
    (lambda s: s["controller"].update(lives=[]), "not a controller's jobs and lives"),
    (lambda s: s["controller"]["jobs"][0].pop("hosts"), "the key 'hosts' is missing"),
    (lambda s: s["controller"]["jobs"][0].pop("life"), "not a controller's jobs and lives: .*'life'"),
    (lambda s: s["controller"]["jobs"][0].update(slots=None), "slots of job 'job' is None"),
    (lambda s: s["controller"]["jobs"][0].update(number="x"), "number of job 'job' is 'x'"),
    (lambda s: s["controller"]["jobs"][0].update(branches=[]), "branches of job 'job' is"),
    (lambda s: s["controller"]["jobs"][0]["branches"][0].update(workers=[1 << 40]), "worker of job 'job' is 1099511627776"),
    (lambda s: s["controller"]["jobs"][0]["branches"][0].update(seats=[]), "attached of job 'job' is"),
    (lambda s: s["left"].update(job=["x"]), "invalid literal"),
])
def test_a_state_with_something_missing_is_named(network, state, change, error):
    start_job(Operations(network, state=state), 1, 3)
    record = json.loads(state.path.read_text())
    change(record)
    state.path.write_text(json.dumps(record))
    with pytest.raises(StateError, match=f"jobs.json: .*{error}.*; move it away to begin without jobs"):
        Operations(network, state=StateFile(state.path))


@pytest.mark.fast
def test_workers_that_had_left_in_peace_are_not_awaited(network, state):
    first, _ = start_job(Operations(network, state=state), 1, 3)
    assert first.ask("release")["ok"]
    new = Operations(network, state=state)
    assert new.recovery.awaited == {"job": {1}}
    second = Someone(new, 3)
    second.ask("attach", job="job", worker=1, token="t", held=new.controller.jobs["job"].incarnation)
    assert second.ask("release")["ok"] and new.controller.jobs == {} and not any(entries(network).values())


@pytest.mark.fast
def test_workers_that_do_not_come_back_are_lost(network, state, monkeypatch):
    start_job(Operations(network, state=state), 1, 3)
    monkeypatch.setattr("ina.aggregation.controller.failures.COMING_BACK", 0.0)
    new = Operations(network, state=state)
    first = Someone(new, 1)
    assert first.ask("attach", job="job", worker=0, token="t", held=new.controller.jobs["job"].incarnation)["ok"]
    new.recovery.tick()
    assert "workers 1 of job 'job' have not come back within 0 s" in first.messages[-1]["reason"]
    new.gone(first, "")
    assert new.controller.jobs == {} and not any(entries(network).values())
    assert StateFile(state.path).load()["controller"]["jobs"] == []


@pytest.mark.fast
def test_jobs_with_a_parameter_server_end_with_the_controller_that_it_knew(state):
    """The server ended with the controller, and no other process can describe these jobs to the next controller."""
    network = FakeNetwork(topologies.load("leaf-spine", leaves=2, spines=1, hosts=2), "atp")
    old = Operations(network, state=state)
    old.controller.servers["s2"] = Parent(2, worker_address(0, 3), switch_address("s2"))
    tree = old.controller.place("job", ("h1", "h2"), 16)[0]
    old.controller.admit("job", 2, 16, tree=tree, hosts=("h1", "h2"))
    old.tokens["job"] = "t"
    old.controller.attach(old.controller.jobs["job"], 0)
    old.recovery.save()
    new = Operations(network, state=StateFile(state.path))
    assert new.controller.jobs == {} and not any(entries(network).values())
    reply = Someone(new, 1).ask("join", job="job", worker=0, token="t")
    assert reply["code"] == "failed" and "its parameter server has ended with the controller" in reply["error"]
    assert StateFile(state.path).load()["controller"]["jobs"] == []


@pytest.mark.fast
def test_what_was_half_done_when_the_controller_died_is_undone(network, state):
    """Entries of a job that was neither confirmed nor saved yet."""
    old = Operations(network, state=state)
    start_job(old, 1, 3)
    before = entries(network)
    tree = old.controller.place("unsaved", ("h2", "h4"), 16)[0]
    old.controller.admit("unsaved", 2, 16, tree=tree, hosts=("h2", "h4"))
    key = next(key for key, e in network.targets["s1"].entities.items() if isinstance(e, TableEntry) and e.table == "replica")
    del network.targets["s1"].entities[key]  # and one that is missing
    Operations(network, state=state)
    assert entries(network) == before


@pytest.mark.fast
def test_a_switch_that_is_away_when_the_controller_begins_is_repaired_later(network, state, monkeypatch):
    start_job(Operations(network, state=state), 1, 2)  # at s1 only
    network.targets["s3"].failing = TimeoutError("silence")
    new = Operations(network, state=state)
    assert new.controller.unsure == {"s3"} and "job" in new.controller.jobs
    network.targets["s3"].failing = None
    monkeypatch.setattr("ina.aggregation.controller.failures.CHECK", 0.0)
    new.recovery.tick()
    assert new.controller.unsure == set()


@pytest.mark.fast
def test_state_is_replaced_as_a_whole(state, monkeypatch):
    state.save({"controller": {"a": 1}, "tokens": {}, "principals": {}, "left": {}})
    assert state.path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(json, "dump", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        state.save({"controller": {"a": 2}, "tokens": {}, "principals": {}, "left": {}})
    assert state.load()["controller"] == {"a": 1}


@pytest.mark.fast
@pytest.mark.parametrize(("text", "error"), [("{", "not a controller's"), ('{"version": 1}', "version 2"), ("[]", "version 2")])
def test_files_that_are_no_state(state, network, text, error):
    state.path.write_text(text)
    with pytest.raises(StateError, match=f"{error}.* move it away to begin without jobs"):
        Operations(network, state=state)


@pytest.mark.fast
def test_a_place_where_no_state_can_be_kept_is_refused_at_the_start(network, tmp_path):
    with pytest.raises(StateError, match="nowhere/jobs.json: a file cannot be made in .*nowhere; expected a folder"):
        Operations(network, state=StateFile(tmp_path / "nowhere" / "jobs.json"))


@pytest.mark.fast
def test_state_of_other_switches(network, state):
    start_job(Operations(network, state=state), 1, 3)
    smaller = FakeNetwork(topologies.load("star", hosts=2))
    with pytest.raises(StateError, match="job 'job' is at switch s2, which this controller does not drive"):
        Operations(smaller, state=state)


# ---- switches vanish


@pytest.fixture
def watched(network, monkeypatch):
    monkeypatch.setattr("ina.aggregation.controller.failures.CHECK", 0.0)
    return Operations(network, job_slots=16)


@pytest.mark.fast
def test_every_look_at_a_switch_is_one_at_its_guard(watched, network):
    network.protected.clear()
    watched.recovery.tick()
    assert network.protected == list(network.targets)


@pytest.mark.fast
def test_a_switch_that_vanishes_takes_its_jobs_with_it(watched, network):
    far, near = start_job(watched, 1, 3, job="far"), start_job(watched, 2, job="near")
    network.targets["s3"].failing = TimeoutError("no answer within 5 s")
    for _ in range(2):
        watched.recovery.tick()
    assert "event" not in far[0].messages[-1], "a switch may be silent for a moment"
    watched.recovery.tick()
    assert all(worker.messages[-1] == {"event": "failed", "reason": "switch s3 is lost: no answer within 5 s"} for worker in far)
    assert "event" not in near[0].messages[-1]
    assert near[0].ask("switches")["switches"]["s3"]["state"] == "no answer within 5 s"
    for worker in far:
        watched.gone(worker, "")
    again = [Someone(watched, 1), Someone(watched, 3)]
    for index, worker in enumerate(again):
        worker.ask("join", job="again", worker=index)
    assert "s3: no answer within 5 s" in again[0].ask("admit", job="again", workers=2, slots=16)["error"]
    network.targets["s3"].failing = None
    watched.recovery.tick()
    assert network.targets["s3"].entities == {}, "what it kept of the lost job is gone"
    start_job(watched, 4, 1, job="third")


@pytest.mark.fast
@pytest.mark.parametrize("asking", [1, 2])
def test_a_name_is_free_when_the_switch_is_back(watched, network, asking):
    """Also where workers of a job without a token were refused meanwhile, whether all had asked or only the first."""
    for worker in start_job(watched, 1, 3, token=""):
        watched.gone(worker, "")
    network.targets["s3"].failing = TimeoutError("no answer within 5 s")
    for _ in range(SILENCES):
        watched.recovery.tick()
    workers = [Someone(watched, 1), Someone(watched, 3)]
    for index, worker in enumerate(workers):
        assert worker.ask("join", job="job", worker=index)["ok"]
    for worker in workers[:asking]:
        assert "s3: no answer within 5 s" in worker.ask("admit", job="job", workers=2, slots=16)["error"]
    for worker in workers:
        watched.gone(worker, "its process ended")
    network.targets["s3"].failing = None
    watched.recovery.tick()
    start_job(watched, 1, 3, token="")


@pytest.mark.fast
def test_a_switch_that_a_job_did_not_use_frees_no_name(watched, network):
    """Else a late worker of the failed run and one of the next run were one job."""
    first = Someone(watched, 1)
    for op, arguments in (("join", {"worker": 0}), ("admit", {"workers": 2, "slots": 16, "hosts": ["h1", "h2"]}),
                          ("attach", {"worker": 0})):
        assert first.ask(op, job="job", token="", **arguments)["ok"]
    assert set(watched.controller.jobs["job"].branches) == {"s1"}
    watched.gone(first, "its process ended")
    network.targets["s3"].failing = TimeoutError("no answer within 5 s")
    for _ in range(SILENCES):
        watched.recovery.tick()
    assert "s3" in watched.controller.down
    network.targets["s3"].failing = None
    watched.recovery.tick()
    assert "s3" not in watched.controller.down
    assert "is lost" in Someone(watched, 2).ask("join", job="job", worker=1, token="")["error"]


@pytest.mark.fast
def test_workers_that_are_refused_do_not_fail_the_job(watched, network):
    """Those that have not asked yet get the refusal, with its reason, and not the news that one that was refused has gone."""
    network.targets["s3"].failing = EntityError("connection refused", "UNAVAILABLE")
    watched.recovery.tick()
    first, second = Someone(watched, 1), Someone(watched, 3)
    for index, worker in enumerate((first, second)):
        assert worker.ask("join", job="job", worker=index)["ok"]
    refusal = first.ask("admit", job="job", workers=2, slots=16)["error"]
    watched.gone(first, "its process ended")
    assert second.ask("admit", job="job", workers=2, slots=16)["error"] == refusal


@pytest.mark.fast
def test_a_refusal_without_a_token_is_no_longer_than_workers_are_waited_for(watched, network, monkeypatch):
    holder = Someone(watched, 4)
    assert holder.ask("join", job="big", worker=0)["ok"] and holder.ask("admit", job="big", workers=1, slots=64)["ok"]
    first = Someone(watched, 3)
    assert "no slots left" in first.ask("admit", job="job", workers=2, slots=16, hosts=["h1", "h3"])["error"]
    watched.gone(first, "its process ended")
    holder.ask("release")
    late = Someone(watched, 3)
    assert "no slots left" in late.ask("admit", job="job", workers=3, slots=16, hosts=["h1", "h3"])["error"], "one of that run"
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + JOINING)
    start_job(watched, 1, 3, token="")


@pytest.mark.fast
def test_a_job_whose_workers_did_not_come_back_leaves_its_name(network, state, monkeypatch):
    """One of two had attached before the controller ended: no other can join that job, so nobody has to be told of its end."""
    old = Operations(network, job_slots=16, state=state)
    workers = [Someone(old, 1), Someone(old, 3)]
    for index, worker in enumerate(workers):
        assert worker.ask("join", job="job", worker=index)["ok"]
    assert workers[0].ask("admit", job="job", workers=2, slots=16)["ok"] and workers[0].ask("attach", job="job", worker=0)["ok"]
    monkeypatch.setattr("ina.aggregation.controller.failures.COMING_BACK", 0.0)
    new = Operations(network, job_slots=16, state=state)
    new.recovery.tick()
    start_job(new, 1, 3, token="")


@pytest.mark.fast
def test_a_switch_that_refuses_the_connection_is_lost_at_once(watched, network):
    workers = start_job(watched, 1, 3)
    network.targets["s2"].read = lambda entities: (_ for _ in ()).throw(EntityError("s2: connection refused", "UNAVAILABLE"))
    watched.recovery.tick()
    assert workers[0].messages[-1]["reason"] == "switch s2 is lost: s2: connection refused"


@pytest.mark.fast
def test_a_switch_without_jobs_that_is_gone_is_shown_and_avoided(watched, network):
    """The controller notices before a job does."""
    someone, read = Someone(watched, 1), network.targets["s3"].read
    network.targets["s3"].read = lambda entities: (_ for _ in ()).throw(EntityError("s3: connection refused", "UNAVAILABLE"))
    watched.recovery.tick()
    states = {name: switch["state"] for name, switch in someone.ask("switches")["switches"].items()}
    assert states == {"s1": "up", "s2": "up", "s3": "s3: connection refused"}
    network.targets["s3"].read = read
    watched.recovery.tick()
    assert someone.ask("switches")["switches"]["s3"]["state"] == "up"


@pytest.mark.fast
def test_a_switch_that_was_started_anew_has_forgotten(watched, network):
    """Its registers are gone: jobs at it cannot go on, others get their entries back."""
    workers = start_job(watched, 1, 3)
    network.targets["s1"].entities.clear()
    watched.recovery.tick()
    reason = "switch s1 is lost: it does not hold the entries of job as they were written: it was started anew"
    assert reason in workers[0].messages[-1]["reason"]
    assert watched.controller.down == {}, "it works"
    for worker in workers:
        watched.gone(worker, "")
    assert not any(entries(network).values())


@pytest.mark.fast
def test_a_repair_for_another_job_does_not_hide_that_a_switch_was_started_anew(watched, network):
    """The restart is between two checks: a job's end fails at the switch, so the next job's end repairs it for all jobs."""
    workers = start_job(watched, 1, 3)
    first, second = start_job(watched, 2, job="first"), start_job(watched, 4, 2, job="second")
    network.targets["s1"].entities.clear()
    watched.gone(first[0], "")
    assert watched.controller.unsure == {"s1"}
    for worker in second:
        watched.gone(worker, "")
    assert watched.controller.unsure == set() and "event" not in workers[0].messages[-1]
    watched.recovery.tick()
    assert "switch s1 is lost: it does not hold the entries of job as they were" in workers[0].messages[-1]["reason"]
    for worker in workers:
        watched.gone(worker, "")
    assert watched.controller.forgotten == set() and not watched.controller.jobs


@pytest.mark.fast
def test_a_job_whose_workers_can_go_on_is_moved(monkeypatch, state):
    monkeypatch.setattr("ina.aggregation.controller.failures.CHECK", 0.0)
    network = FakeNetwork(topologies.load("leaf-spine", leaves=2, spines=2, hosts=2))
    service = Operations(network, state=state)
    workers = [Someone(service, 1), Someone(service, 3)]
    for index, worker in enumerate(workers):
        worker.ask("join", job="job", worker=index)
    for index, worker in enumerate(workers):
        worker.ask("admit", job="job", workers=2, slots=16)
        assert worker.ask("attach", job="job", worker=index, moves=True)["moves"] is True
    assert service.controller.jobs["job"].root.switch == "s3"
    old = service.controller.jobs["job"].incarnation
    network.targets["s3"].failing = EntityError("connection refused", "UNAVAILABLE")
    network.targets["s3"].read = lambda entities: (_ for _ in ()).throw(network.targets["s3"].failing)
    service.recovery.tick()
    reason = "switch s3 is lost: connection refused; job job goes on over s4, s1, s2"
    new = service.controller.jobs["job"].incarnation
    assert new != old
    assert all(worker.messages[-1] == {"event": "moved", "incarnation": new, "reason": reason} for worker in workers)
    for i, worker in enumerate(workers):
        assert worker.ask("attach", job="job", worker=i, moves=True)["incarnation"] == new
    assert StateFile(state.path).load()["controller"]["jobs"][0]["incarnation"] == new
    service.recovery.tick()
    assert "event" not in workers[0].messages[-1], "it is moved once"
    network.targets["s1"].entities.clear()  # started anew: the workers' own switch works, the job begins again there
    service.recovery.tick()
    assert "goes on over s4, s1, s2" in workers[0].messages[-1]["reason"]
    network.targets["s4"].read = network.targets["s3"].read
    for index, worker in enumerate(workers):
        worker.ask("attach", job="job", worker=index, moves=True)
    service.recovery.tick()
    assert workers[0].messages[-1]["event"] == "failed"
    assert "s4 is lost: connection refused; and there is no other way: job 'job' asks for 16" in workers[0].messages[-1]["reason"]


@pytest.mark.fast
def test_a_job_with_a_worker_that_cannot_go_on_is_over(watched, network):
    workers = start_job(watched, 1, 3)
    assert workers[0].messages[-1]["moves"] is False
    network.targets["s3"].read = lambda entities: (_ for _ in ()).throw(EntityError("refused", "UNAVAILABLE"))
    watched.recovery.tick()
    assert workers[0].messages[-1]["event"] == "failed"
