"""Completion rules: found by name, the same in Python and in C, carried from a job to its entries and hosts."""

import itertools
from dataclasses import asdict

import numpy as np
import pytest

from ina.aggregation import completion
from ina.aggregation.completion import Rule
from ina.aggregation.controller.admission import Controller
from ina.aggregation.controller.state import job_from_json, job_to_json
from ina.aggregation.entries.base import Place
from ina.aggregation.ps.state_machine import ServerConfig
from ina.aggregation.worker import WorkerConfig
from ina.base.native import lib
from ina.worlds.virtual.explorable import tensors

pytestmark = pytest.mark.fast


class Switch:
    """A switch that takes all entries."""

    def write(self, updates):
        pass

    def read(self, patterns):
        return []


class KOfN(Rule):
    """Any k workers."""

    kind = lib.INA_RULE_ALL

    def __init__(self, value):
        self.k = int(value)

    def full(self, below):
        return below

    def last(self, children):
        return self.k - 1

    def contributions(self, rows):
        return itertools.combinations(rows, self.k)


@pytest.fixture
def two(monkeypatch):
    """A rule of this test: two workers complete a sum."""
    named = completion.named
    monkeypatch.setattr(completion, "named", lambda text: KOfN("2") if text == "k_of_n:2" else named(text))
    return "k_of_n:2"


def test_the_rule_is_all_unless_a_job_names_another():
    config = WorkerConfig(0, 2, life=1)
    assert completion.names() == ["all"] and completion.DEFAULT == "all"
    assert config.rule == ServerConfig(2, life=1).rule == "all" and config.to_c().rule.kind == lib.INA_RULE_ALL


def test_all_waits_for_everybody_and_has_everybodys_values():
    rule = completion.named("all")
    assert (rule.full(0b1101), rule.last(3)) == (0b1101, 2)
    assert rule.awaited(4, {0: "h1", 2: "h3"}) == [1, 3]
    assert list(rule.contributions("abc")) == ["abc"]


@pytest.mark.parametrize(("text", "error"), [("some", "rule: 'some', expected one of all"), ("all:2", "it takes no value"),
                                             ("all:", "expected a value behind the colon")])
def test_a_rule_that_is_none_is_refused(text, error):
    for make in (lambda: WorkerConfig(0, 2, life=1, rule=text), lambda: ServerConfig(2, life=1, rule=text),
                 lambda: Controller(Switch(), 8).admit("job", 2, 8, rule=text)):
        with pytest.raises(ValueError, match=error):
            make()


def test_each_rule_has_a_kind_of_its_own_in_c():
    kinds = [completion.named(name).kind for name in completion.names()]
    assert sorted(kinds) == list(range(lib.INA_RULES))


def test_workers_and_parameter_servers_refuse_a_kind_that_is_none():
    worker, server = WorkerConfig(0, 2, life=1).to_c(), ServerConfig(2, life=1).to_c()
    assert lib.ina_protocol_named(b"switchml").state_size(worker) and lib.ina_ps_state_size(server)
    worker.rule.kind = server.rule.kind = lib.INA_RULES
    assert not lib.ina_protocol_named(b"switchml").state_size(worker) and not lib.ina_ps_state_size(server)


def test_a_job_that_was_saved_without_a_rule_has_all():
    job = Controller(Switch(), 8).admit("job", 2, 8)
    saved = job_to_json(job)
    assert "rule" not in saved, "older versions know no rule, and read this"
    assert job_from_json(saved) == job and job.rule == "all"


def test_only_another_rule_is_said():
    assert completion.stated("all") == {} and completion.stated("k_of_n:2") == {"rule": "k_of_n:2"}


@pytest.mark.parametrize("rule", ["some", 7, None, ["all"]])
def test_a_saved_job_with_a_rule_that_is_none_is_refused(rule):
    saved = job_to_json(Controller(Switch(), 8).admit("job", 2, 8)) | {"rule": rule}
    with pytest.raises(ValueError, match="rule"):
        job_from_json(saved)


def test_a_jobs_entries_have_its_rules_parameters(two):
    controller = Controller(Switch(), 8)
    job = controller.admit("job", 3, 8, rule=two)
    place = job.place(job.root)
    assert (place.full, place.last) == (0b111, 1)
    assert controller.program.job(place)[0].params["last"] == 1
    assert Place(**{**asdict(place), "rule": "all"}).last == 2


def test_the_explorer_takes_any_sum_that_the_rule_says_is_right(two):
    values = [each[0] for each in tensors(1, 1, 1, 3, 32, np.int32, 32, rule=two)]
    for pair in itertools.combinations(values, 2):
        right = np.asarray(pair[0].source + pair[1].source)
        assert all(value.overflow_of(right) is False for value in values)
    assert all(value.overflow_of(np.asarray(sum(each.source for each in values))) is None for value in values)


def test_an_overflow_is_that_of_the_sum_that_came(two):
    values = [each[0] for each in tensors(1, 0, 1, 3, 32, np.int32, 32, rule=two)]
    with np.errstate(over="ignore"):
        overflows = {values[0].overflow_of(np.asarray(a.source + b.source)) for a, b in itertools.combinations(values, 2)}
    assert overflows == {True, False}
