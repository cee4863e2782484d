"""Links that fail under running jobs, as the controller handles them: it goes around them, moves jobs, or tells them to wait."""

import pytest
from test_api import FakeNetwork, Someone

from ina import topology as topologies
from ina.aggregation.controller import link_recovery
from ina.aggregation.controller.api import Operations
from ina.aggregation.controller.switch_host import LinkChange, LinkNews

pytestmark = pytest.mark.fast


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

    monkeypatch.setattr(link_recovery.time, "monotonic", lambda: Clock.now)
    return Clock


def network(spines=2):
    return FakeNetwork(topologies.load("leaf-spine", leaves=2, spines=spines, hosts=2))


def start(service, moves=True, job="job"):
    """A job of the workers at h1 and h3."""
    workers = [Someone(service, pid) for pid in (1, 3)]
    for index, worker in enumerate(workers):
        assert worker.ask("join", job=job, worker=index)["ok"]
    for index, worker in enumerate(workers):
        assert worker.ask("admit", job=job, workers=2)["ok"]
        assert worker.ask("attach", job=job, worker=index, moves=moves)["ok"]
    return workers


def events(worker):
    return [(message["event"], message["reason"]) for message in worker.messages if "event" in message]


def test_a_job_moves_off_a_link_after_the_routes_have():
    net = network()
    service = Operations(net, job_slots=16)
    workers = start(service)
    old = service.controller.jobs["job"]
    link = f"s1-{old.root.switch}"
    service.links.apply([LinkChange(link, LinkNews.DOWN, "it has no carrier")])
    new = service.controller.jobs["job"]
    assert new.root.switch != old.root.switch and new.incarnation != old.incarnation
    assert net.routed_around == [[link]]
    for worker in workers:
        ((kind, reason),) = events(worker)
        assert kind == "moved" and f"link {link} is down (it has no carrier)" in reason
    (shown,) = service.links.shown()
    assert shown["moved"] == {"job": new.root.switch} and shown["ended"] is None
    service.links.apply([LinkChange(link, LinkNews.UP)])
    assert net.routed_around == [[link], []]
    assert service.links.shown()[0]["ended"] >= shown["began"]
    assert service.controller.jobs["job"] is new, "it stays where it is"


def test_a_link_without_jobs_is_only_noted():
    service = Operations(network(), job_slots=16)
    workers = start(service)
    root = service.controller.jobs["job"].root.switch
    link = "s1-s4" if root == "s3" else "s1-s3"
    service.links.apply([LinkChange(link, LinkNews.DOWN, "it has no carrier")])
    assert not any(map(events, workers)) and service.controller.jobs["job"].root.switch == root
    assert service.controller.down_links == {link: "it has no carrier"}


def test_a_job_without_another_tree_is_told_and_goes_on_when_the_link_is_back(clock):
    service = Operations(network(spines=1), job_slots=16)
    workers = start(service)
    job = service.controller.jobs["job"]
    service.links.apply([LinkChange("s1-s3", LinkNews.DOWN, "no probe comes through")])
    for worker in workers:
        ((kind, reason),) = events(worker)
        assert kind == "notice" and "link s1-s3 is down since" in reason and "ina net heal s1-s3" in reason
    assert service.links.shown()[0]["waited"] == ["job"]
    clock.now += link_recovery.WAIT / 2
    service.links.tick()
    assert [len(events(worker)) for worker in workers] == [1, 1], "it is told once"
    service.links.apply([LinkChange("s1-s3", LinkNews.UP)])
    assert events(workers[0])[1] == ("notice", "link s1-s3 is back; job job goes on")
    assert service.controller.jobs["job"] is job and not service.links.waiting


def test_a_job_that_waits_moves_when_another_link_is_back():
    service = Operations(network(), job_slots=16)
    workers = start(service)
    root = service.controller.jobs["job"].root.switch
    other = "s4" if root == "s3" else "s3"
    service.links.apply([LinkChange(f"s1-{other}", LinkNews.DOWN, "cut"), LinkChange(f"s1-{root}", LinkNews.DOWN, "cut")])
    assert "job" in service.links.waiting
    service.links.apply([LinkChange(f"s1-{other}", LinkNews.UP)])
    assert service.controller.jobs["job"].root.switch == other and not service.links.waiting
    assert [kind for kind, _ in events(workers[0])] == ["notice", "moved"]


def test_a_job_moves_however_many_other_links_have_failed():
    service = Operations(network(), job_slots=16)
    start(service)
    root = service.controller.jobs["job"].root.switch
    link = f"s1-{root}"
    service.links.apply([LinkChange(link, LinkNews.CUT)])
    for _ in range(link_recovery.KEPT):
        service.links.apply([LinkChange("h2", LinkNews.CUT), LinkChange("h2", LinkNews.MENDED)])
    service.links.apply([LinkChange(link, LinkNews.DOWN, "3 probes in a row have not come")])
    assert service.controller.jobs["job"].root.switch != root and not service.links.waiting


def test_a_job_waits_for_each_link_its_own_time(clock):
    service = Operations(network(spines=1), job_slots=16)
    workers = start(service)
    service.links.apply([LinkChange("s1-s3", LinkNews.DOWN, "cut A")])
    clock.now += link_recovery.WAIT - 5
    service.links.apply([LinkChange("s2-s3", LinkNews.DOWN, "cut B")])
    clock.now += 3
    service.links.apply([LinkChange("s1-s3", LinkNews.UP)])
    assert events(workers[0])[-1][0] == "notice" and "link s2-s3 is down since" in events(workers[0])[-1][1]
    clock.now += link_recovery.WAIT - 1
    service.links.tick()
    assert [kind for kind, _ in events(workers[0])] == ["notice", "notice"]
    first, second = service.links.shown()
    assert (first["waiting"], second["waiting"], first["waited"], second["waited"]) == ([], ["job"], ["job"], ["job"])
    clock.now += 2
    service.links.tick()
    kind, reason = events(workers[0])[-1]
    assert kind == "failed" and "link s2-s3 is down (cut B) for more than" in reason and "cut A" not in reason
    assert [one["waiting"] for one in service.links.shown()] == [[], []], "it waits no more"


def test_a_job_that_waits_too_long_fails_with_the_link(clock):
    service = Operations(network(spines=1), job_slots=16)
    workers = start(service)
    service.links.apply([LinkChange("s1-s3", LinkNews.DOWN, "no probe comes through")])
    clock.now += link_recovery.WAIT + 1
    service.links.tick()
    kind, reason = events(workers[1])[-1]
    assert kind == "failed" and "link s1-s3 is down (no probe comes through) for more than" in reason
    assert not service.links.waiting


def test_workers_that_cannot_move_wait_for_the_link():
    service = Operations(network(), job_slots=16)
    workers = start(service, moves=False)
    job = service.controller.jobs["job"]
    service.links.apply([LinkChange(f"s1-{job.root.switch}", LinkNews.DOWN, "cut")])
    ((kind, reason),) = events(workers[0])
    assert kind == "notice" and "its workers cannot move" in reason
    assert service.controller.jobs["job"] is job


def test_a_job_with_a_parameter_server_waits_for_the_link_and_hears_why(monkeypatch):
    service = Operations(network(), job_slots=16)
    workers = start(service)
    job = service.controller.jobs["job"]
    monkeypatch.setattr(type(service.controller.program), "needs_server", True)
    service.links.apply([LinkChange(f"s1-{job.root.switch}", LinkNews.DOWN, "cut")])
    ((kind, reason),) = events(workers[0])
    assert kind == "notice" and "its parameter server cannot move to another tree with it; it waits up to 60 s" in reason
    assert service.controller.jobs["job"] is job


def test_new_jobs_go_around_and_an_impossible_one_is_refused_with_the_link():
    service = Operations(network(spines=1), job_slots=16)
    service.links.apply([LinkChange("s1-s3", LinkNews.DOWN, "cut")])
    workers = [Someone(service, pid) for pid in (1, 3)]
    for index, worker in enumerate(workers):
        worker.ask("join", job="job", worker=index)
    answer = workers[0].ask("admit", job="job", workers=2)
    assert not answer["ok"] and "link s1-s3: cut" in answer["error"]


def test_a_worker_that_sends_nothing_while_others_do_is_shown():
    class Watch:
        ages = {"h1": 0.1, "h3": 5.0}

        def silence(self, host):
            return self.ages.get(host)

        def changes(self):
            return []

    net = network()
    service = Operations(net, job_slots=16)
    workers = start(service)
    assert workers[0].ask("switches")["silent"] == [], "no watch"
    net.links = Watch()
    assert service.links.silent() == [{"job": "job", "worker": 1, "host": "h3", "seconds": 5.0}]
    Watch.ages["h1"] = 5.0
    assert service.links.silent() == [], "all stand still: between two tensors"


def test_routes_go_around_switches_that_are_down_too():
    net = network()
    service = Operations(net, job_slots=16)
    service.controller.down["s4"] = "it is gone"
    service.links.apply([LinkChange("s1-s3", LinkNews.DOWN, "cut")])
    assert net.routed_around == [["s1-s3", "s4"]]


def test_a_link_that_is_cut_briefly_or_slow_is_noted_and_moves_nothing():
    service = Operations(network(), job_slots=16)
    start(service)
    job = service.controller.jobs["job"]
    link = f"s1-{job.root.switch}"
    service.links.apply([LinkChange(link, LinkNews.CUT), LinkChange(link, LinkNews.SLOW, "1 Gb/s", 1e9)])
    service.links.apply([LinkChange(link, LinkNews.MENDED), LinkChange(link, LinkNews.SLOW)])
    down, slow = service.links.shown()
    assert (down["state"], down["noticed"], slow["state"], slow["rate"]) == ("down", None, "slow", 1e9)
    assert down["ended"] and slow["ended"] and service.controller.jobs["job"] is job


def test_the_end_of_a_slow_link_is_not_that_of_its_cut():
    service = Operations(network(), job_slots=16)
    service.links.apply([LinkChange("s1-s3", LinkNews.SLOW, "1 Gb/s", 1e9), LinkChange("s1-s3", LinkNews.CUT)])
    service.links.apply([LinkChange("s1-s3", LinkNews.SLOW)])
    service.links.apply([LinkChange("s1-s3", LinkNews.CUT)])  # a direction of it is mended
    slow, down = service.links.shown()
    assert (slow["state"], down["state"]) == ("slow", "down") and slow["ended"] and down["ended"] is None


def test_the_end_of_a_cut_is_not_that_of_its_slowness():
    service = Operations(network(), job_slots=16)
    service.links.apply([LinkChange("s1-s3", LinkNews.SLOW, "1 Gb/s", 1e9), LinkChange("s1-s3", LinkNews.CUT)])
    service.links.apply([LinkChange("s1-s3", LinkNews.MENDED)])  # its other direction is still slow
    slow, down = service.links.shown()
    assert slow["ended"] is None and down["ended"]


def test_a_link_without_carrier_is_down_whatever_command_mends_it(clock):
    service = Operations(network(spines=1), job_slots=16)
    workers = start(service)
    service.links.apply([LinkChange("s1-s3", LinkNews.DOWN, "it has no carrier")])
    service.links.apply([LinkChange("s1-s3", LinkNews.MENDED)])
    (one,) = service.links.shown()
    assert one["ended"] is None and one["waiting"] == ["job"]
    service.links.apply([LinkChange("s1-s3", LinkNews.CUT), LinkChange("s1-s3", LinkNews.UP)])
    (one,) = service.links.shown()
    assert one["ended"] is None, "it is cut now"
    service.links.apply([LinkChange("s1-s3", LinkNews.MENDED)])
    assert service.links.shown()[0]["ended"] and events(workers[0])[-1][1] == "link s1-s3 is back; job job goes on"


def test_a_job_that_has_failed_hears_no_more_of_links(clock):
    service = Operations(network(spines=1), job_slots=16)
    workers = start(service)
    service.links.apply([LinkChange("s1-s3", LinkNews.DOWN, "cut")])
    clock.now += link_recovery.WAIT + 1
    service.links.tick()
    heard = [kind for kind, _ in events(workers[0])]
    service.links.apply([LinkChange("s2-s3", LinkNews.DOWN, "cut")])
    clock.now += link_recovery.WAIT + 1
    service.links.tick()
    assert heard == ["notice", "failed"] == [kind for kind, _ in events(workers[0])]


def test_a_cut_that_is_noticed_is_one_incident():
    service = Operations(network(), job_slots=16)
    service.links.apply([LinkChange("s1-s3", LinkNews.CUT)])
    service.links.apply([LinkChange("s1-s3", LinkNews.DOWN, "3 probes in a row have not come")])
    (one,) = service.links.shown()
    assert one["noticed"] >= one["began"] and one["reason"] == "3 probes in a row have not come"
    service.links.apply([LinkChange("s1-s3", LinkNews.MENDED)])
    assert service.controller.down_links, "it is not used yet"
    service.links.apply([LinkChange("s1-s3", LinkNews.UP)])
    assert not service.controller.down_links and len(service.links.shown()) == 1
