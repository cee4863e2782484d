"""Messages to a service manager: what is sent, when, and whose they are."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import contextmanager

import pytest
from waiting import LONG

from ina.base.service_manager import ServiceManager

pytestmark = pytest.mark.fast


@contextmanager
def listening(name):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name[1:] if name.startswith("@") else name)
        manager.settimeout(LONG)
        yield manager


@pytest.mark.parametrize("is_path", [True, False])
def test_each_message_is_a_datagram(is_path, tmp_path):
    name = str(tmp_path / "notify") if is_path else f"@ina-test-{os.getpid()}"
    with listening(name) as manager:
        service = ServiceManager.of({"NOTIFY_SOCKET": name})
        service.ready()
        service.tick()  # nobody has asked for signs of life
        service.stopping()
        assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"STOPPING=1"] and service.due() == 0


def test_signs_of_life_come_twice_in_a_period_while_it_serves(tmp_path):
    name = str(tmp_path / "notify")
    with listening(name) as manager:
        now = [100.0]
        environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "4000000", "WATCHDOG_PID": str(os.getpid())}
        service = ServiceManager.of(environment, lambda: now[0])
        assert service.due() == 0, "not before it serves"
        service.ready()
        for now[0], due in ((100.0, 102.0), (101.9, 102.0), (102.5, 104.5), (103.0, 104.5)):
            service.tick()
            assert service.due() == due
        service.stopping()
        assert service.due() == 0
        assert [manager.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


@pytest.mark.parametrize("environment", [{}, {"WATCHDOG_USEC": "1"},
                                         {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}])
def test_without_a_manager_and_for_another_process_there_are_none(environment):
    service = ServiceManager.of(environment)
    assert environment == {}, "children of this process find none of it"
    service._send = lambda state: None
    service.ready()
    assert service.due() == 0


@pytest.mark.parametrize(("environment", "words"), [
    ({"NOTIFY_SOCKET": "vsock:2:1"}, "NOTIFY_SOCKET=vsock:2:1: expected a path, or @"),
    ({"WATCHDOG_USEC": "soon"}, "WATCHDOG_USEC=soon: expected a number"),
    ({"WATCHDOG_USEC": "0"}, "WATCHDOG_USEC=0: expected a number"),
])
def test_what_is_no_manager_is_named(environment, words):
    with pytest.raises(ValueError, match=words):
        ServiceManager.of(environment)


def test_a_manager_that_is_gone_ends_nothing(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        ServiceManager(str(tmp_path / "gone")).ready()
    assert "does not take READY=1: No such file or directory" in caplog.text
