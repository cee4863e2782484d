"""``ina doctor``: its findings, and that it detects errors."""

import argparse
import json
import re
from pathlib import Path

import pytest

from ina import cli
from ina.backend.settings import Settings
from ina.lab.doctor import machine

pytestmark = pytest.mark.build


def test_a_whole_examination(capsys):
    assert cli.main(["doctor", "--json", "--interface", "lo", "--values", "64", "--workers", "2"]) == 0
    findings = {each["what"]: each for each in json.loads(capsys.readouterr().out)}
    assert {"C compiler", "processors", "clock", "testbed", "lo link", "lo MTU", "program", "slots", "4-byte all-reduce",
            "4 MiB all-reduce", "sent again", "bound by"} <= set(findings)
    assert findings["program"]["verdict"] == "good" and "64 values" in findings["program"]["found"]
    assert not [each for each in findings.values() if each["verdict"] == "bad"]


def test_what_a_training_has_is_tried_where_nothing_else_is_set(monkeypatch, tmp_path):
    for name in ("INA_VALUES", "INA_SLOTS", "INA_PORT", "INA_PROTOCOL", "INA_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    options = argparse.Namespace(protocol=None, values=None, slots=None, port=None)
    assert list(machine.settings(options)) == []
    training = Settings.read()
    own = (training.values, training.slots, training.port_at("a process of the job's own"))
    assert (options.values, options.slots, options.port) == own == (2048, 64, "shm")


def test_what_the_fast_path_needs(tmp_path):
    """Findings on a server that is set up, from its kernel's files; and on one that is not."""
    from ina.worlds.dpdk.requirements import examine

    bare = {subject: (verdict, value, advice) for verdict, subject, value, advice in examine(tmp_path)}
    assert bare["huge pages"][:2] == ("warning", "0 MiB free") and bare["IOMMU"][0] == bare["isolated cores"][0] == "warning"
    assert "none on the PCI bus" in bare["NIC"][1]
    for name, text in {
        "kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "600", "kernel/iommu_groups/0/type": "DMA",
        "devices/system/cpu/isolated": "2-3", "bus/pci/devices/0000:17:00.0/class": "0x020000",
        "bus/pci/devices/0000:17:00.0/numa_node": "1", "bus/pci/devices/0000:17:00.0/net/eth4/mtu": "1500",
        "bus/pci/devices/0000:18:00.0/class": "0x030000", "bus/pci/drivers/ice/module": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    driver = tmp_path / "bus/pci/devices/0000:17:00.0/driver"
    driver.symlink_to(tmp_path / "bus/pci/drivers/ice")
    ready = {subject: (verdict, value, advice) for verdict, subject, value, advice in examine(tmp_path)}
    assert ready["huge pages"][:2] == ("good", "1200 MiB free") and ready["IOMMU"][0] == "good"
    assert ready["isolated cores"][1] == "2-3"
    assert ready["NIC"][:2] == ("fact", "0000:17:00.0: ice, eth4, NUMA node 1") and "loses eth4" in ready["NIC"][2]
    driver.unlink()
    (tmp_path / "bus/pci/drivers/vfio-pci").mkdir()
    driver.symlink_to(tmp_path / "bus/pci/drivers/vfio-pci")
    assert ("good", "NIC") in [finding[:2] for finding in examine(tmp_path)]
    assert cli.main(["doctor", "--target", "dpdk", "--agent", "5"]) == 2


def test_an_interface_that_will_not_do(capsys):
    assert cli.main(["doctor", "--quick", "--interface", "nosuch0"]) == 1
    out = capsys.readouterr().out
    assert "there is no such interface" in out and "lo" in out


def test_an_mtu_that_is_too_small(monkeypatch):
    real = machine.read
    monkeypatch.setattr(machine, "read", lambda path: "576" if path.endswith("/mtu") else real(path))
    findings = {each.what: each for each in machine.interface("lo", 1066, 256)}
    assert findings["lo MTU"].verdict == "bad" and "packets need 1052" in findings["lo MTU"].found


def test_rate_says_what_a_link_can_carry(monkeypatch):
    """ATE/s at line rate R: R k / (8 (4k + h + 24))."""
    real = machine.read
    monkeypatch.setattr(machine, "read", lambda path: "100000" if path.endswith("/speed") else real(path))
    values = {each.what: each.found for each in machine.interface("lo", 14 + 20 + 8 + 10 + 1024, 256)}
    assert values["lo rate"] == "100 Gb/s: at most 2909 M elements/s"


def test_a_program_that_does_not_compile(monkeypatch, tmp_path):
    broken = tmp_path / "broken.p4"
    broken.write_text("control C() { apply { x = ; } }")
    monkeypatch.setattr(machine.protocols, "program", lambda protocol: Path(broken))
    (finding,) = machine.program("switchml", 64, 64)
    assert finding.verdict == "bad" and "broken.p4" in finding.found


@pytest.mark.parametrize(("workers", "verdict"), [(1, "good"), (1000, "warning")])
def test_processors(monkeypatch, workers, verdict):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: {0, 1})
    assert next(machine.processors(workers)).verdict == verdict


def test_what_the_environment_says_is_what_is_examined(monkeypatch, capsys):
    monkeypatch.setenv("INA_VALUES", "64")
    monkeypatch.setenv("INA_SLOTS", "32")
    assert cli.main(["doctor", "--quick", "--slots", "16"]) == 0
    output = capsys.readouterr().out
    assert re.search(r"^fact +settings +values 64, slots 32$", output, re.M)
    assert "switchml.p4, 64 values" in output and "of 16 slots each" in output, "an option is above the environment"
    monkeypatch.setenv("INA_VALUES", "100")
    assert cli.main(["doctor", "--quick"]) == 1
    assert re.search(r"^bad +settings +INA_VALUES=100: expected one of 32", capsys.readouterr().out, re.M)
