"""Mixtures of experts in virtual time: rows, bytes and times against counts of our own, and physical bounds."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from capabilities import need

from ina.base.settings import ConfigError
from ina.cli import main
from ina.lab.kinds import experts
from ina.lab.kinds.experts import Experts, draw
from ina.lab.results import why
from ina.lab.results.record import load
from ina.lab.virtual import virtual_network
from ina.lab.virtual.virtual_network import WrongSum

pytestmark = pytest.mark.build
need("cc")

BASE = Experts(workers=4, experts=16, top=3, tokens=6, hidden=512, batches=3)
HEADERS = 64 + 24, 72 + 24  # of a packet without a route, and with one, with Ethernet's own


def own_counts(config):
    """Rows by batch: of each worker's tokens that others need, copies of them, and what each worker gets."""
    found = []
    for number in range(config.batches):
        rng = np.random.default_rng((config.seed, number))
        own, copies, got = Counter(), Counter(), Counter()
        for worker in range(config.workers):
            for chosen in draw(config, rng).tolist():
                assert len(set(chosen)) == config.top
                others = {expert // (config.experts // config.workers) for expert in chosen} - {worker}
                own[worker] += bool(others)
                copies[worker] += len(others)
                got.update(others)
        found.append((own, copies, got))
    return found


@pytest.mark.parametrize("overlap", [True, False])
def test_rows_bytes_and_times_are_those_of_the_definition(overlap):
    config = replace(BASE, overlap=overlap)
    (mixture,) = config.measure()
    counted, row = own_counts(config), 4 * config.hidden
    own, copies, got = ([sum((batch[which] for batch in counted), Counter())[worker] for worker in range(config.workers)]
                        for which in range(3))
    assert mixture.rows == {"dispatch": sum(own), "combine": sum(own), "hosts": sum(copies), "levels": 0}
    assert sum(copies) == sum(got) and mixture.levels_seconds is None, "a star is one server"
    summary = mixture.summary()
    assert summary["dispatch_mb"] == pytest.approx(1e-6 * row * sum(own))
    assert summary["hosts_mb"] == pytest.approx(1e-6 * row * sum(copies))
    busiest = [max(o + g, g + o) for o, g in zip(own, got, strict=True)]  # up: tokens and outputs; down: rows and sums
    assert mixture.seconds > 8 * row * max(busiest) / config.rate, "faster than a wire"
    assert mixture.hosts_seconds > 8 * row * max(c + g for c, g in zip(copies, got, strict=True)) / config.rate
    values = 4 * config.values
    packets, rest = divmod(mixture.busiest_bytes - row * max(busiest), values)
    assert packets < 6 * config.batches + mixture.stats["workers"]["tx_packets"] * HEADERS[1] / config.workers / values, rest
    assert summary["retransmissions"] == 0 and summary["sums"] is None


@pytest.mark.parametrize("faults", [{"loss": 0.02}, {"duplicate": 0.05, "reorder": 0.05}])
def test_rows_and_sums_survive_faults(faults):
    (mixture,) = replace(BASE, **faults).measure()
    assert mixture.stats["workers"]["retransmissions"] > 0 or "loss" not in faults


@pytest.mark.parametrize("seed", range(1, 5))
def test_workers_that_are_late_have_the_others_order(seed):
    """Small batches on lossy links: some workers have the next batch's rows before they know the maximum of this one."""
    config = replace(BASE, workers=8, experts=24, top=4, tokens=1, hidden=64, values=256, pool=512, loss=0.05, seed=seed)
    (mixture,) = config.measure()
    assert mixture.stats["workers"]["retransmissions"] > 0


@pytest.mark.parametrize("overlap", [True, False])
def test_in_two_levels_a_row_travels_within_its_rack_and_then_between_racks(overlap):
    """Two racks of two: a copy for the other place goes to that place in the rack first, one for the other rack crosses once."""
    config = replace(BASE, topology="leaf-spine leaves=2 spines=1 hosts=2", overlap=overlap)
    (mixture,) = config.measure()
    first, second, within = 0, 0, 0
    for number in range(config.batches):
        rng = np.random.default_rng((config.seed, number))
        for worker in range(config.workers):
            for chosen in draw(config, rng).tolist():
                others = {expert // (config.experts // config.workers) for expert in chosen} - {worker}
                first += sum(other % 2 != worker % 2 for other in others)
                second += sum(other // 2 != worker // 2 for other in others)
                within += len(others)
    assert mixture.rows["levels"] == first + second > within == mixture.rows["hosts"]
    summary, row = mixture.summary(), 4 * config.hidden
    assert summary["levels_mb"] == pytest.approx(1e-6 * row * (first + second))
    assert mixture.levels_seconds > 2 * 8 * row * (first + second) / config.workers / config.rate, "faster than wires"
    assert mixture.levels_seconds > mixture.hosts_seconds, "more rows, and one level after the other"


@pytest.mark.parametrize("nic", [0, 16384])
def test_the_hosts_lose_little_time_with_or_without_a_limit_at_their_nics(nic):
    """Packets of a later phase go before those of an earlier one if receivers just take turns where NICs have a limit."""
    config = replace(BASE, workers=16, experts=64, top=6, tokens=24, batches=5, nic=nic)
    batches = [experts._Batch(config, number) for number in range(config.batches)]
    rows = sum(experts.copies(batch) for batch in batches)
    bound = 8 * 4 * config.hidden * max(rows.sum(axis=0) + rows.sum(axis=1)) / config.rate
    seconds = experts.hosts_seconds(config.resolved(), batches, virtual_network.place(config))
    assert bound < seconds < 1.3 * bound


def test_overlap_saves_time_where_the_way_down_is_full_and_the_way_up_is_empty():
    config = replace(BASE, workers=8, experts=64, top=6, hidden=2048, tokens=8, batches=6)
    (together,), (apart,) = config.measure(), replace(config, overlap=False).measure()
    assert together.seconds < 0.9 * apart.seconds
    assert together.rows == apart.rows


def test_what_concerns_nobody_else_does_not_travel(monkeypatch):
    """All experts of a token are its own worker's: only the gather and the maximum take time."""
    config = replace(BASE, top=2)
    turns = iter(range(config.workers * config.batches))

    def at_home(config, rng):
        first = next(turns) % config.workers * (config.experts // config.workers)
        return np.tile(np.arange(first, first + config.top), (config.tokens, 1))

    monkeypatch.setattr(experts, "draw", at_home)
    (mixture,) = config.measure()
    assert mixture.rows == {"dispatch": 0, "combine": 0, "hosts": 0, "levels": 0}
    assert mixture.distinct == 1 and mixture.hosts_seconds == 0


@pytest.mark.parametrize(("phase", "message"), [("output", "combine: worker . has a wrong row"),
                                                ("values", "dispatch: worker . has a wrong row"),
                                                ("gather", "has other experts")])
def test_wrong_rows_are_found(monkeypatch, phase, message):
    def changed(self, batch, name, worker, memory, plain=experts._Run.__dict__["_check_rows"]):
        plain(self, batch, name, worker, memory + (name == ("combine" if phase == "output" else "dispatch")))

    def gathered(self, batch, name, worker, memory, plain=experts._Run.__dict__["_check_gather"]):
        memory[-1] ^= phase == "gather"
        plain(self, batch, name, worker, memory)

    monkeypatch.setattr(experts._Run, "_check_rows", changed)
    monkeypatch.setattr(experts._Run, "_check_gather", gathered)
    with pytest.raises(WrongSum, match=message):
        BASE.measure()


def test_experts_are_drawn_by_zipfs_law_and_the_popular_ones_are_apart():
    config = Experts(workers=4, experts=16, top=1, tokens=60_000, skew=1.2)
    drawn = np.bincount(draw(config, np.random.default_rng(3)).ravel(), minlength=16)
    law = np.arange(1, 17) ** -1.2
    expected = 60_000 * law / law.sum()
    order = [rank % 4 * 4 + rank // 4 for rank in range(16)]  # the n-th most popular one
    assert np.all(np.abs(drawn[order] - expected) < 5 * np.sqrt(expected))
    uniform = np.bincount(draw(replace(config, skew=0.0, top=3, tokens=20_000), np.random.default_rng(4)).ravel(), minlength=16)
    assert np.all(np.abs(uniform - 3750) < 5 * np.sqrt(3750))


@pytest.mark.parametrize(("changes", "message"), [
    ({"experts": 18}, "experts = 18: expected a multiple of 4"), ({"top": 17}, "top = 17: expected at most 16"),
    ({"algorithm": "ring"}, "algorithm = 'ring': expected in-network"), ({"payload": False}, "payload"),
    ({"protocol": "switchml"}, "protocol"),
    ({"protocol": "atp_routes"}, "protocol = 'atp_routes': expected one without a parameter server"),
    ({"workers": 33, "experts": 33}, "workers = 33")])
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(BASE, **changes)


def test_rows_that_have_no_room_are_refused_before_they_are_made():
    with pytest.raises(ConfigError, match=r"tokens = 60000, hidden = 90000000: rows that are on .* GiB; this machine"):
        replace(BASE, tokens=60_000, hidden=90_000_000).measure()


def test_the_experiment_runs_from_the_command_line(tmp_path, capsys):
    small = ["workers=4", "experts=16", "top=2", "tokens=2", "hidden=256", "values=256", "pool=512", "batches=2"]
    assert main(["experiment", "run", "experts", "--results", str(tmp_path),
                 *(word for each in small for word in ("--set", each))]) == 0
    assert "the same by all-to-all between hosts" in " ".join(capsys.readouterr().out.split())
    folder = next(tmp_path.rglob("metrics.json")).parent
    (finding,) = why.explain(load(folder))
    assert finding.job == "switch" and (folder / "report.html").exists()
