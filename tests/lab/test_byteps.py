"""BytePS's placement in virtual time: shares, times and bytes against the paper's, and beside a ring and the switch."""

import re
from dataclasses import replace

import pytest
from capabilities import need

from ina.base import paths
from ina.base.settings import ConfigError
from ina.cli import main
from ina.lab import plan
from ina.lab.kinds import byteps
from ina.lab.kinds.byteps import BytePs, best_share, loads, model_seconds
from ina.lab.results import why
from ina.lab.results.record import load
from ina.lab.virtual.virtual_network import WrongSum
from ina.worlds.virtual import collectives

pytestmark = pytest.mark.build
need("cc")
BASE = BytePs(elements=1_000_000, rate=10e9, flow=64, rto_min=10e-3)
FRAME = 4 * 256 / (4 * 256 + collectives.HEADERS + 24)  # the share of a frame that is payload


@pytest.mark.parametrize(("n", "k"), [(2, 0), (2, 1), (2, 2), (3, 1), (8, 0), (8, 1), (8, 4), (8, 7), (8, 8), (32, 20)])
def test_shares_and_times_are_those_of_the_paper(n, k):
    """Theorem 1: M_SS,CPU, M_SS,GPU and the time, and none near is quicker."""
    config = BytePs(workers=n, cpus=k, elements=10_000_000).resolved()
    whole, bytes_ = n * n + k * n - 2 * k, 40_000_000
    assert config.cpu_share == pytest.approx(k * 2 * (n - 1) / whole)
    assert 1 - config.cpu_share == pytest.approx(n * (n - k) / whole)
    assert model_seconds(config) == pytest.approx(2 * n * (n - 1) / whole * 8 * bytes_ / config.rate)
    packets = loads(config)
    assert len(packets) == n + k and sum(packets) == -(-10_000_000 // 256)
    assert all(abs(each - 2 * (n - 1) / whole * sum(packets)) <= 1 for each in packets[n:])
    assert all(abs(each - (n - k) / whole * sum(packets)) <= 1 for each in packets[:n])
    for step in (-0.01, 0.01):
        if k and 0 <= config.cpu_share + step <= 1:
            assert model_seconds(replace(config, cpu_share=config.cpu_share + step)) >= model_seconds(config)


@pytest.mark.parametrize("changes", [{"cpus": 0}, {"cpus": 4}, {"cpus": 8}, {"workers": 5, "cpus": 3},
                                     {"cpu_share": 0.0}, {"cpu_share": 0.5}, {"cpu_share": 1.0}])
def test_a_placement_takes_as_long_as_its_busiest_link_sends(changes):
    """The link sends what the model says, headers and acknowledgements, and is idle for little of the time, the more where CPU
    machines have too much to add up: all that is under way waits before them at first."""
    config = replace(BASE, **changes)
    (placement,) = config.measure()
    assert placement.busiest_bytes == max(placement.gpu_bytes, placement.cpu_bytes)
    assert (placement.cpu_bytes == 0) == (config.resolved().cpu_share == 0)
    assert 1 < FRAME * placement.busiest_bytes / (placement.model_seconds * config.rate / 8) < 1.035
    assert 1 < placement.seconds / (8 * placement.busiest_bytes / config.rate) < (1.05 if config.cpu_share == 1 else 1.03)
    line = 8 * placement.bytes / config.rate / FRAME
    assert placement.ring_seconds == pytest.approx(2 * (1 - 1 / config.workers) * line, rel=0.05)
    assert placement.switch_seconds == pytest.approx(line, rel=0.03)
    assert placement.summary()["retransmissions"] == 0


def test_as_many_cpu_machines_are_as_fast_as_the_switch_and_none_as_a_ring():
    (none,), (all_,) = (replace(BASE, cpus=cpus).measure() for cpus in (0, 8))
    assert none.seconds == pytest.approx(none.ring_seconds, rel=0.02)
    assert all_.seconds == pytest.approx(all_.switch_seconds, rel=0.04)


@pytest.mark.parametrize("faults", [{"loss": 0.005}, {"duplicate": 0.02, "reorder": 0.02}])
def test_sums_survive_faults(faults):
    (placement,) = replace(BASE, elements=100_000, **faults).measure()
    assert placement.summary()["retransmissions"] > 0 or "loss" not in faults


@pytest.mark.parametrize("job", ["switch", "ring", "byteps"])
def test_a_sum_that_differs_in_one_place_is_found(monkeypatch, job):
    turns = iter(["switch", "ring", "byteps"])

    def other(*arguments, plain=byteps.expected):
        right, allowed = plain(*arguments)
        right[-1] += next(turns) == job
        return right, allowed

    monkeypatch.setattr(byteps, "expected", other)
    with pytest.raises(WrongSum, match=f"{job}: GPU machine 0 has a wrong sum"):
        replace(BASE, elements=10_000).measure()


@pytest.mark.parametrize(("changes", "message"), [
    ({"cpus": 9}, "cpus = 9: expected at most 8, the GPU machines"),
    ({"cpu_share": -0.5}, "cpu_share = -0.5: expected 0 to 1, or -1"),
    ({"cpus": 0, "cpu_share": 0.5}, "cpu_share = 0.5: expected 0 without CPU machines"), ({"rate": 0.0}, "rate = 0.0"),
    ({"protocol": "ps"}, "protocol = 'ps'"), ({"topology": "leaf-spine"}, "topology = 'leaf-spine': expected star"),
    ({"slots": 1024}, "slots = 1024: expected at most 512"), ({"payload": False}, "payload"), ({"dtype": "float32"}, "dtype"),
    ({"jobs": 2}, "jobs"), ({"stripes": 2}, "stripes"), ({"algorithm": "ring"}, "algorithm"), ({"workers": 1}, "workers")])
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(BASE, **changes)


def test_tensors_that_have_no_room_are_refused_before_they_are_made():
    with pytest.raises(ConfigError, match=r"elements = 900000000000: 12 tensors are .* GiB; this machine"):
        replace(BASE, elements=900_000_000_000).measure()


def test_the_experiment_runs_from_the_command_line(tmp_path, capsys):
    small = ["elements=100000", "values=256", "cpus=2", "cpu_share=0.25"]
    assert main(["experiment", "run", "byteps", "--results", str(tmp_path),
                 *(word for each in small for word in ("--set", each))]) == 0
    assert "the same round a ring, ms" in " ".join(capsys.readouterr().out.split())
    folder = next(tmp_path.rglob("metrics.json")).parent
    (finding,) = why.explain(load(folder))
    assert finding.bound == "link" and (folder / "report.html").exists()


@pytest.mark.later
def test_the_experiment_gives_the_table_of_the_guide_within_3_percent_of_the_paper():
    section = (paths.root() / "docs/guide/experiments.md").read_text().split("## Kind `byteps`")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if re.match(r"\| \d \|", line)]
    points = plan.load(paths.root() / "experiments/byteps.toml").points
    for line, point in zip(table, points, strict=True):
        config = point.config.resolved()
        (placement,) = config.measure()
        n, k, summary = config.workers, config.cpus, placement.summary()
        assert line.startswith(f"| {k} | {100 * config.cpu_share:.3g}"), line
        assert f"| {summary['time_ms']:.3f} | {summary['model_ms']:.3f}" in line
        assert f"| {100 * (summary['ratio'] - 1):.1f} % | {placement.seconds / placement.switch_seconds:.2f} |" in line
        assert f"**{summary['switch_ms']:.3f} ms through" in section and f"**{summary['ring_ms']:.3f} ms round" in section
        assert f" | {summary['gpu_mb']:.1f} |" in line and (k == 0 or f"| {summary['cpu_mb']:.3g} |" in line)
        if config.cpu_share == best_share(n, k):
            published = 2 * n * (n - 1) / (n * n + k * n - 2 * k) * 8 * placement.bytes / config.rate
            assert published < placement.seconds < 1.03 * published
