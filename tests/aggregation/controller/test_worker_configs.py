"""A worker's configuration, as the controller gives it: all that both have is the same."""

import dataclasses

import pytest

from ina.aggregation.controller.client import Attachment
from ina.aggregation.controller.job_records import Job
from ina.aggregation.worker.config import KEY_BYTES, WorkerConfig
from ina.net.ports import Address

pytestmark = pytest.mark.fast

OWN = Address("02:00:00:00:00:07", "10.0.0.7", 4003)
SWITCH = Address("02:00:00:00:ff:01", "10.0.255.1", 0xBEE0)
NUMBER, RULE = 3, "all"


def names(kind):
    return {field.name for field in dataclasses.fields(kind) if field.init}


def test_an_attachment_gives_all_that_it_has():
    attachment = Attachment(
        job="training", worker=2, workers=5, number=NUMBER, incarnation=9, life=77, slots=16, values=64, protocol="switchml",
        address=OWN, switch=SWITCH, outlives=False, check="keyed", key=bytes(range(KEY_BYTES)), moves=False,
        port={"kind": "shm", "options": {"shards": 4}}, fds=[], rule=RULE)
    config = attachment.config(rto_min=0.25, rto_max=0.5, timeout=7.0)
    shared = names(Attachment) & names(WorkerConfig) - {"job"}  # its name there, its number here
    assert shared >= {"worker", "workers", "life", "slots", "values", "protocol", "address", "switch", "check", "key", "rule"}
    assert {name: getattr(config, name) for name in shared} == {name: getattr(attachment, name) for name in shared}
    assert (config.job, config.server, config.options) == (NUMBER, SWITCH, {"shards": 4})
    assert (config.rto_min, config.rto_max, config.timeout) == (0.25, 0.5, 7.0)


def test_a_job_gives_all_that_it_has():
    job = Job("training", NUMBER, 9, 77, 5, 16, True, {}, addresses=(SWITCH, OWN), check="keyed", rule=RULE, secret="ab" * 32)
    config = job.config(1, SWITCH, values=64, first_packet=12)
    shared = names(Job) & names(WorkerConfig)
    assert shared >= {"workers", "life", "slots", "check", "rule"}
    assert {name: getattr(config, name) for name in shared} == {name: getattr(job, name) for name in shared}
    assert (config.job, config.worker, config.address, config.switch, config.server) == (NUMBER, 1, OWN, SWITCH, SWITCH)
    assert (config.key, config.values, config.first_packet) == (job.key, 64, 12)
