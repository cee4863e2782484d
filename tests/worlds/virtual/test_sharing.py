"""Jobs that share a switch in virtual time: sums, each job's share, servers' load; and the experiments about it."""

import numpy as np
import pytest

from ina.aggregation import protocols
from ina.base import paths
from ina.base.settings import ConfigError
from ina.lab.kinds import sharing
from ina.lab.kinds.sharing import Sharing
from ina.lab.plan import load
from ina.lab.virtual.virtual_network import WrongSum

pytestmark = pytest.mark.build
SMALL = {"protocol": "atp", "jobs": 2, "workers": 4, "window": 32, "elements": 40_000}


def run(**changes) -> sharing.Shares:
    (result,) = sharing.share(Sharing(**{**SMALL, **changes}))
    return result


@pytest.mark.parametrize(("protocol", "load"), [("atp", (1.0, 3.9)), ("ps", (4.0, 4.0)), ("switchml", None)])
def test_servers_carry_what_the_switch_does_not(protocol, load):
    """The server carries one packet for all workers' at best, every one at worst; SwitchML has no server."""
    result = run(protocol=protocol, share=0.25)
    if load is None:
        assert result.server_load is None and result.aggregated is None
    else:
        assert load[0] <= result.server_load <= load[1]
        assert (result.aggregated == 0) == (protocol == "ps")
    assert all(len(times) == 1 for times in result.seconds)


@pytest.mark.later
def test_more_aggregators_are_more_goodput_and_less_load():
    results = [run(share=share) for share in (0.125, 1.0)]
    assert results[0].summary()["goodput_gbps"] < results[1].summary()["goodput_gbps"]
    assert results[0].server_load > results[1].server_load >= 1
    assert results[0].aggregated < results[1].aggregated < 1
    assert all(shares.summary()["fairness"] > 0.95 for shares in results)


def test_the_same_configuration_gives_the_same_figures():
    assert run(share=0.25).summary() == run(share=0.25).summary()


@pytest.mark.parametrize("protocol", ["atp", "switchml"])
def test_a_slow_worker_slows_its_own_job(protocol):
    plain, slow = run(protocol=protocol, share=1.0), run(protocol=protocol, share=1.0, straggler=10.0)
    assert plain.summary()["straggler_gbps"] is None
    assert slow.summary()["straggler_gbps"] < 0.2 * plain.summary()["goodput_gbps"]
    assert slow.summary()["goodput_gbps"] > 3 * slow.summary()["straggler_gbps"]


def test_tensors_start_at_their_period():
    result = run(protocol="switchml", tensors=3, period=1e-3)
    assert [len(times) for times in result.seconds] == [3, 3]
    assert max(max(times) for times in result.seconds) < 1e-3
    assert np.ptp(result.seconds[0]) < 0.1 * result.seconds[0][0]  # nobody else is on: each takes as long


def test_a_wrong_sum_is_found(monkeypatch):
    monkeypatch.setattr(np, "sum", lambda *args, **kwargs: np.zeros(40_000, np.int32))
    with pytest.raises(WrongSum, match=r"job \d, tensor 0"):
        run()


@pytest.mark.parametrize(("changes", "message"), [
    ({"share": 1.5}, "share = 1.5: expected 0 to 1"),
    ({"protocol": "switchml", "jobs": 16, "window": 1, "share": 0.1}, "share = 0.1: expected a slot for each of 16 jobs"),
    ({"window": 48}, "window = 48: expected a power of two"),
    ({"protocol": "apt"}, "protocol = 'apt': expected one of " + ", ".join(protocols.names())),
])
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        Sharing(**{**SMALL, **changes})


@pytest.mark.parametrize("name", ["sharing", "sharing-in-turns", "straggler"])
def test_experiments_of_the_repository(name):
    """Every point is a configuration; the first one, smaller, runs."""
    plan = load(paths.root() / "experiments" / f"{name}.toml")
    assert {point.config.protocol for point in plan.points} == {"atp", "switchml", "ps"}
    assert sharing.share(Sharing(**{**plan.points[0].config.as_dict(), **SMALL, "period": 0.0}))
