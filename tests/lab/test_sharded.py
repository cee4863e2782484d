"""Communication of fully sharded training steps in virtual time: bytes and times against their formulas, and wrong values."""

from dataclasses import replace

import pytest
from capabilities import need

from ina.base.settings import ConfigError
from ina.cli import main
from ina.lab.kinds import sharded
from ina.lab.kinds.sharded import Collective, Sharded, Trained, collectives_of, compared
from ina.lab.results import why
from ina.lab.results.record import load
from ina.lab.virtual.virtual_network import WrongSum

pytestmark = pytest.mark.build
need("cc")

BASE = Sharded(workers=4, layers=3, elements=3 * 2**15, delay=1e-7)
PACKET, EMPTY = 1024 + 72 + 24, 72 + 24  # bytes of a packet of 256 values, and of one without, with Ethernet's own


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_bytes_and_times_are_those_of_the_formulas(workers, overlap):
    config = replace(BASE, workers=workers, overlap=overlap, elements=3 * 2**18)
    (step,) = config.measure()
    blocks, own = config.elements // config.values, config.elements // config.values // workers
    open_packets = 3 * config.layers * EMPTY
    sent, received = blocks + own, 2 * blocks - own  # packets with values, of three collectives
    size = 4 * config.elements
    assert step.up * size == pytest.approx(PACKET * sent + EMPTY * (3 * blocks - sent) + open_packets)
    assert step.down * size == pytest.approx(PACKET * received + EMPTY * (3 * blocks - received) + open_packets)
    most, headers = 1 - 1 / workers, PACKET / 1024
    backward = (2 * most + config.layers - 1) / config.layers if overlap else 2 * most
    assert step.formula == pytest.approx(most + backward) and step.rings_formula == pytest.approx(3 * most)
    empty = 3 * EMPTY / 1024  # of an owner's link, while another owner's values pass
    assert headers * step.formula < step.seconds / step.unit < headers * step.formula + empty / workers + 0.1
    assert headers * step.rings_formula * 0.98 < step.rings_seconds / step.unit < headers * step.rings_formula + 0.1
    assert step.rings_up == pytest.approx(3 * most * headers, rel=0.02) and step.summary()["retransmissions"] == 0


def test_overlap_saves_time_through_the_switch_and_none_by_rings():
    config = replace(BASE, workers=8, layers=8, elements=2**19)
    (together,), (apart,) = (replace(config, overlap=overlap).measure() for overlap in (True, False))
    assert together.seconds < 0.85 * apart.seconds
    assert together.rings_seconds == pytest.approx(apart.rings_seconds, rel=0.02)
    assert (together.up, together.down) == (apart.up, apart.down)


def test_a_collective_waits_for_the_one_before_or_for_the_last_gather():
    assert collectives_of(replace(BASE, layers=2, overlap=False, elements=2**15)) == [
        Collective(reduces, layer, number - 1)
        for number, (reduces, layer) in enumerate([(False, 0), (False, 1), (False, 1), (True, 1), (False, 0), (True, 0)])]
    assert [each.after for each in collectives_of(replace(BASE, overlap=True))] == [-1, 0, 1, 2, 3, 3, 5, 5, 7]


@pytest.mark.parametrize("faults", [{"loss": 0.02}, {"duplicate": 0.05, "reorder": 0.05}])
def test_values_survive_faults(faults):
    (step,) = replace(BASE, **faults).measure()
    assert step.stats["workers"]["retransmissions"] > 0 or "loss" not in faults


@pytest.mark.parametrize("reduces", [False, True])
@pytest.mark.parametrize("by", ["switch", "rings"])
def test_a_wrong_value_is_found(monkeypatch, reduces, by):
    plain, checked = sharded._Values.check, []

    def changed(self, collective, worker, memory):
        rings = collective.after == -1 and memory.base is not None
        if collective.reduces == reduces and rings == (by == "rings"):
            memory = memory.copy()
            memory[self.own(worker)][-1] += 1
            checked.append(collective)
        plain(self, collective, worker, memory)

    monkeypatch.setattr(sharded._Values, "check", changed)
    with pytest.raises(WrongSum, match="reduce-scatter of layer" if reduces else "all-gather of layer"):
        BASE.measure()
    assert len(checked) == 1


@pytest.mark.parametrize(("changes", "message"), [
    ({"elements": 100}, "elements = 100: expected a multiple of 12"), ({"rate": 0.0}, "rate"), ({"jobs": 2}, "jobs"),
    ({"algorithm": "ring"}, "algorithm = 'ring': expected in-network"), ({"payload": False}, "payload"),
    ({"protocol": "switchml"}, "protocol"),
    ({"protocol": "atp_routes"}, "protocol = 'atp_routes': expected one without a parameter server"),
    ({"workers": 33, "elements": 99}, "workers = 33")])
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(BASE, **changes)


@pytest.mark.parametrize(("changes", "message"), [
    ({"ecn": 1000}, "ecn = 1000: expected 0 in world = 'testbed'"), ({"duplicate": 0.1}, "duplicate"), ({"nic": 1}, "nic"),
    ({"dtype": "int32"}, "dtype = 'int32': expected float32 in world = 'testbed'"), ({"host_packet": 1e-6}, "host_packet"),
    ({"steps": 0}, "steps"), ({"overlap": True, "latency": 1e-6}, "latency")])
def test_settings_that_the_testbed_does_not_have_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(BASE, **{"world": "testbed", **changes})


def trained(each: list[float], up: int, down: int, processors: float = 0.5) -> Trained:
    links = {"h1": {"rate": 1e9, "up_bytes": up, "down_bytes": down}, "h2": {"rate": 1e9, "up_bytes": 1, "down_bytes": 2},
             "s1-s2": {"rate": 1e12, "up_bytes": 2, "down_bytes": 10**9}}
    return Trained(each, {"links": links, "processors": processors, "seconds": 1.0}, ["h1", "h2"],
                   [{"worker": {"retransmissions": 3, "rx_ps": 7}}, {"worker": {"retransmissions": 4, "rx_ps": 7}}])


def test_trainings_of_the_testbed_are_told_in_bytes_and_times_of_all_parameters():
    config = replace(BASE, world="testbed", workers=2, elements=3 * 2**18, rate=1e9, overlap=False, steps=3).resolved()
    size = 4 * config.elements
    unit = 8 * size / 1e9
    ours = trained([2.0 * unit, 1.6 * unit, 1.8 * unit], 6 * size, 5 * size)
    rings = trained([4 * unit, 3 * unit, 2 * unit], 5 * size, 9 * size, processors=0.95)
    gloo = trained([6 * unit, 5 * unit, 7 * unit], 3 * size, 3 * size)
    step = compared(config, ours, rings, gloo)
    summary = step.summary()
    figures = {"time": 1.8, "least": 1.6, "most": 2.0, "formula": 1.5, "rings": 3, "rings_least": 2, "rings_most": 4, "gloo": 6,
               "ratio": 3 / 1.8, "up": 2, "down": 5 / 3, "rings_up": 3, "gloo_up": 1, "link_use": 6 / 5.4}
    assert {name: summary[name] for name in figures} == pytest.approx(figures)
    assert (step.bound, step.rings_bound, step.busiest_link) == ("link", "host-limited", "h1 up")
    assert summary["retransmissions"] == 7 and summary["time_ms"] == pytest.approx(1.8e3 * unit)
    finding = config.why({"stats": step.stats}, summary)
    assert finding.bound == "link" and finding.shown.startswith("1.80 S/B a step, 1.50 on links alone")
    assert trained([4 * unit], 1, 1).bound(1.5 * unit) == "neither"


def test_values_that_have_no_room_are_refused_before_they_are_made():
    with pytest.raises(ConfigError, match=r"elements = 12000000000000: parameters and gradients of 4 workers are .* GiB"):
        replace(BASE, elements=12 * 10**12).measure()


def test_the_experiment_runs_from_the_command_line(tmp_path, capsys):
    small = ["overlap=true", "workers=2", "layers=2", "elements=4096", "values=256"]
    assert main(["experiment", "run", "sharded", "--results", str(tmp_path),
                 *(word for each in small for word in ("--set", each))]) == 0
    assert "the same by rings between hosts" in " ".join(capsys.readouterr().out.split())
    (finding,) = why.explain(load(next(tmp_path.rglob("metrics.json")).parent))
    assert finding.job == "switch"
