"""ina-dpdk-switch and ina-dpdk-worker before any device is opened: wrong arguments, and interrupts. None of this needs DPDK."""

from pathlib import Path

import pytest

from ina.worlds.dpdk import switch, worker

pytestmark = pytest.mark.fast
ROOT = Path(__file__).resolve().parent.parent.parent.parent

SWITCHML = ["--program", "p4/switchml.p4"]
ONE = [*SWITCHML, "--port", "0=memif:x"]
WORKER = ["--device", "memif:x", "--control", "x", "--worker", "0", "--workers", "2"]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(("module", "arguments", "message"), [
    (switch, [*SWITCHML, "--port", "0"], "expected N=DEVICE"),
    (switch, [*SWITCHML, "--port", "600=memif:x", "--control", "x"], "port of 0..509"),
    (switch, [*ONE, "--port", "0=memif:y", "--control", "x"], "memif:x already"),
    (switch, ["--program", "p4/nothing.p4", "--port", "0=memif:x", "--control", "x"], "p4/nothing.p4: there is no"),
    (switch, ONE, "--control or --grpc"),
    (switch, [*ONE, "--control", "x", "--max-frame", "20000"], "--max-frame 20000"),
    (switch, [*ONE, "--control", "x", "--shards", "3"], "power of two"),
    (switch, [*ONE, "--control", "x", "--spin", "-1"], "--spin: -1: expected 0 to"),
    (worker, ["--device", "memif:x", "--worker", "0", "--workers", "2"], "required: --control"),
    (worker, [*WORKER, "--worker", "2"], "worker: 2, expected 0..1"),
    (worker, [*WORKER, "--size", "3"], "multiple of 4"),
    (worker, [*WORKER, "--values", "100"], "values: 100"),
    (worker, [*WORKER, "--protocol", "tcp"], "'tcp'"),
    (worker, [*WORKER, "--fault", "loss=2"], "loss"),
])
def test_wrong_arguments_are_named(module, arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        module.main(arguments)
    assert stopped.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize(("module", "arguments", "message"), [
    (switch, [*ONE, "--control", "x"], "ina-dpdk-switch: interrupted\n"), (worker, WORKER, "ina-dpdk-worker: interrupted\n")])
def test_an_interrupt_before_anything_runs_is_one_line(module, arguments, message, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_run", interrupted)
    try:
        status = module.main(arguments)
    except KeyboardInterrupt:  # which would end pytest
        pytest.fail("the interrupt ends the process with a traceback")
    assert (status, capsys.readouterr().err) == (130, message)
