"""Protocols by name: one list in C, the same names for switch programs."""

import numpy as np
import pytest

from ina._native import ffi
from ina.transport import Worker, WorkerConfig, protocols


def test_every_protocol_says_its_name_and_has_a_program():
    assert protocols.DEFAULT in protocols.names()
    for name in protocols.names():
        assert ffi.string(protocols.named(name).name).decode() == name
        assert protocols.program(name).is_file()


def test_an_unknown_protocol_is_refused_with_the_names_that_there_are():
    with pytest.raises(ValueError, match="'swichml', expected one of .*switchml"):
        WorkerConfig(0, 2, protocol="swichml")
    with pytest.raises(ValueError, match="expected one of"):
        protocols.program("swichml")


@pytest.mark.parametrize("name", protocols.names())
def test_a_worker_speaks_the_protocol_of_its_configuration(name):
    config = WorkerConfig(0, 2, protocol=name)
    worker = Worker(config)
    assert worker.behaviour() and worker.frames_to_send(0) == []
    worker.submit(np.ones(1000, np.int32))
    frames = worker.frames_to_send(0)
    assert frames and max(map(len, frames)) <= config.frame_bytes
