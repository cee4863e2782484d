"""Losses and late workers in virtual time: how much longer an all-reduce takes, and how many packets are sent again."""

from statistics import median

import numpy as np
import pytest

from ina.lab.kinds.allreduce import AllReduce, Reduction
from ina.lab.virtual import virtual_network
from ina.net.ports import PS

pytestmark = pytest.mark.build


def reduction(topology: str, protocol: str, **keys) -> Reduction:
    config = AllReduce(workers=16, elements=200_000, slots=256, payload=False, topology=topology, placement="spread",
                       protocol=protocol, **keys)
    return config.measure()[0]


@pytest.mark.parametrize(("protocol", "topology"), [
    ("switchml", "star"), ("switchml", "fat-tree k=8"), ("atp", "star"), ("atp", "fat-tree k=8")])
def test_one_loss_in_a_thousand_costs_a_few_round_trips(protocol, topology):
    """A timer for each slot, or a few probes an interval, took 22 and 9 times as long (SwitchML; median)."""
    base = reduction(topology, protocol).seconds
    runs = [reduction(topology, protocol, loss=1e-3, seed=seed) for seed in range(1, 9)]
    factors = [run.seconds / base for run in runs]
    assert median(factors) < 2 and max(factors) < 3
    assert all(run.stats["network"]["lost"] > 10 for run in runs)


@pytest.mark.parametrize("protocol", ["switchml", "atp"])
def test_nothing_is_sent_again_without_losses(protocol):
    stats = reduction("fat-tree k=8", protocol).stats["workers"]
    assert stats["retransmissions"] == stats["spurious"] == 0 < stats["results"]


@pytest.mark.parametrize("protocol", ["switchml", "atp"])
@pytest.mark.parametrize("late", [0.5, 2.0])
def test_waiting_for_a_late_worker_costs_few_packets(protocol, late):
    """One of 16 workers is late by half or by twice the time that the rest takes: as after a 1.5 or 3 times longer step."""
    config = AllReduce(workers=16, elements=200_000, slots=256, payload=False, protocol=protocol).resolved()
    place = virtual_network.place(config)
    alone = config.measure()[0].seconds
    with virtual_network.fabric(config, place) as fabric:
        (job,) = virtual_network.admit(fabric, config, place, virtual_network.servers(fabric, config, place))
        arrays = [np.zeros(config.elements, np.int32) for _ in range(config.workers)]
        for worker, array in enumerate(arrays):
            fabric.submit_one(job, worker, array, after=round(late * alone * PS) if worker == 3 else 0)
        fabric.run()
        stats = [fabric.worker_stats(machine) for machine in job.machines]
    again, packets = (sum(each[name] for each in stats) for name in ("retransmissions", "tx_packets"))
    assert again <= 0.02 * packets
    assert sum(each["spurious"] for each in stats) <= 0.01 * packets


@pytest.mark.parametrize("protocol", ["switchml", "atp"])
def test_repetitions_are_counted_by_reason(protocol):
    stats = reduction("star", protocol, loss=1e-2).stats["workers"]
    assert stats["retransmissions"] == stats["timeouts"] + stats["probes"] + stats["fast_resends"] > stats["spurious"] > 0
