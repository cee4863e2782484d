"""Sharded trainings by torch's FSDP2 on real links: as many bytes as in virtual time, and no faster than links can be."""

import json
from dataclasses import replace

import pytest
from real_networks import alone, ina

from ina.lab.kinds.sharded import Sharded

pytestmark = [pytest.mark.root, pytest.mark.later]
pytest.importorskip("torch.distributed.fsdp", reason="the ranks need torch")
__all__ = ["alone"]  # a fixture

SMALL = Sharded(workers=2, layers=2, elements=2**16, values=256, rate=20e6, delay=1e-4, slots=64, rto="fixed", rto_min=5.0,
                rto_max=5.0)
PACKET = 1024 + 72 + 24  # bytes of a packet of 256 values, with Ethernet's own
EXPONENT = 64 + 24  # and of one with nothing but an exponent


@pytest.mark.parametrize("overlap", [False, True])
def test_links_carry_what_they_carry_in_virtual_time(tmp_path, overlap):
    keys = {**{name: getattr(SMALL, name) for name in ("workers", "layers", "elements", "values", "rate", "delay", "slots")},
            "overlap": str(overlap).lower(), "steps": 2}
    done = ina("experiment", "run", "sharded-testbed", "--results", str(tmp_path),
               *(word for name, value in keys.items() for word in ("--set", f"{name}={value}")))
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = tmp_path.rglob("metrics.json")
    metrics = json.loads(path.read_text())
    (step,), (run,) = metrics["summary"], metrics["runs"]
    (virtual,) = replace(SMALL, overlap=overlap).measure()
    size = 4 * SMALL.elements
    exponents = SMALL.layers * SMALL.slots * EXPONENT  # of float32, before the first blocks of each reduce-scatter
    barriers = 2  # a step's, and the one before the first
    for way in ("up", "down"):
        more = size * (step[way] - getattr(virtual, way)) - exponents
        plain = 8 * 3 * SMALL.layers  # first packets of collectives, with the sets of a route or without
        assert -plain <= more + 1 < (1 + barriers + step["retransmissions"]) * PACKET, way
    most = 1 - 1 / SMALL.workers
    assert 3 * most < step["rings_up"] < 1.15 * 3 * most, "headers and acknowledgements of TCP on top"
    assert 4 * most < step["gloo_up"] < 1.15 * 4 * most, "Gloo's reduce-scatter is an all-reduce"
    assert len(run["each"]) == len(run["rings_each"]) == len(run["gloo_each"]) == 2
    assert step["least"] > step["formula"] and step["rings_least"] > step["rings_formula"], "no faster than the links"
    assert step["bound"] in ("link", "host-limited", "neither")
    assert f"{step['time']:.2f} S/B a step" in ina("why", str(path.parent)).stdout
