"""The log of `ina switch run --listen`: an object for each event, and no secret in any of them."""

from __future__ import annotations

import json
import logging
import re
import signal
import socket
import struct
from contextlib import closing

import child
import pytest
from capabilities import need
from listening_switch import TOKEN, listening, sum_once, workers
from waiting import LONG

from ina.aggregation.controller.access import Principal
from ina.aggregation.controller.api import Session
from ina.aggregation.controller.client import Client, ControlError
from ina.base import logs, tokens

JOB_TOKEN, WRONG = "5" * 40, "a" * 40


@pytest.mark.build
@pytest.mark.gate
def test_a_job_s_life_is_told_and_no_secret(tmp_path):
    need("cc")
    metrics_token = tmp_path / "metrics.token"
    with listening("--log", "json", "--metrics", "0", "--metrics-token-file", str(metrics_token)) as (process, name):
        with workers(name, "good", token=JOB_TOKEN) as endpoints:
            sum_once(endpoints)
            with closing(Client(name, LONG, token=WRONG, access=TOKEN)) as thief, pytest.raises(ControlError):
                thief.admit("good", 2)
        with closing(Client(name, LONG, token=JOB_TOKEN, access=tokens.pass_for(TOKEN, JOB_TOKEN))) as client:
            client.join("bad", 0)
            client.admit("bad", 2)
            client.attach("bad", 0)  # and ends without a word
        with pytest.raises(ControlError), closing(Client(name, LONG, access=WRONG)) as stranger:
            stranger.ask("ping")
        with closing(Client(name, LONG, access=TOKEN)) as client:
            client.ask("ping")  # what came before is logged
        process.send_signal(signal.SIGTERM)
        _, text = child.output(process)
    lines = [json.loads(line) for line in text.splitlines()]
    events = [line["event"] for line in lines]
    assert events[0] == "ready" and events[-1] == "stopping" and logs.OTHER not in events, text
    of = {event: next(line for line in lines if line["event"] == event) for event in events}
    assert [events.count(event) for event in ("job_admitted", "worker_attached", "worker_left", "worker_lost", "job_failed")] == [
        2, 3, 2, 1, 1]
    assert of["job_admitted"] | {"job": "good", "workers": 2, "switches": ["s1"], "level": "info"} == of["job_admitted"]
    assert of["worker_attached"] | {"job": "good", "worker": 0, "address": "127.0.0.1"} == of["worker_attached"]
    assert of["request_refused"] | {"op": "admit", "code": "token", "job": "good"} == of["request_refused"]
    assert of["worker_lost"] | {"job": "bad", "worker": 0, "level": "warning"} == of["worker_lost"]
    assert re.search(r"worker 0 of job 'bad' \(the process at 127\.0\.0\.1:\d+\) is lost", of["job_failed"]["reason"])
    assert of["token_refused"] | {"address": "127.0.0.1", "count": 1} == of["token_refused"]
    assert {line["job"] for line in lines if line["event"] == "job_over"} == {"good", "bad"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) and line["message"] for line in lines)
    key = tokens.pass_for(TOKEN, JOB_TOKEN).rpartition(":")[2]
    for secret in (TOKEN, JOB_TOKEN, WRONG, key, metrics_token.read_text().strip()):
        assert secret not in text


@pytest.mark.fast
def test_both_forms_say_the_same(capsys):
    for form in logs.FORMS:
        logger = logging.Logger("one")
        before, logging.root.handlers = logging.root.handlers, []
        try:
            logs.begin(form, logging.INFO)
            logger.addHandler(logging.root.handlers[0])
        finally:
            logging.root.handlers = before
        logs.event(logger, logging.WARNING, "worker_lost", "100 % of\nit", job='"a"', worker=1)
        logger.info("plain %d", 7)
        try:
            raise OSError("no")
        except OSError:
            logger.exception("failed")
        text = capsys.readouterr().err
        if form == "json":
            one, two, three = map(json.loads, text.splitlines())
            assert one | {"event": "worker_lost", "level": "warning", "message": "100 % of\nit", "job": '"a"', "worker": 1} == one
            assert two | {"event": logs.OTHER, "message": "plain 7", "level": "info"} == two
            assert three["message"] == "failed" and three["trace"].endswith("OSError: no")
        else:
            assert "WARNING 100 % of\nit\n" in text and "INFO plain 7\n" in text and "OSError: no" in text


@pytest.mark.fast
def test_a_client_that_is_gone_has_no_address():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as gone:
        accepted, _ = server.accept()
        session = Session(0, lambda message, fds: None, Principal(None), accepted)
        assert session.shown_address() == "127.0.0.1"
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()  # resets the connection
        with accepted:
            with pytest.raises(ConnectionResetError):
                accepted.recv(1)
            with pytest.raises(OSError, match="not connected"):
                session.control()
            assert session.shown_address() == ""
