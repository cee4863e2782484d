"""DPDK's devices as people write them, and messages where it is not installed: none of this needs DPDK."""

import pytest

from ina.net import dpdk

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(("text", "wanted"), [
    ("dpdk:memif:/run/x", ("memif:/run/x", 3)),
    ("dpdk@7:0000:17:00.0", ("0000:17:00.0", 7)),
    ("dpdk@{rank}:net_af_packet0,iface=eth{rank}", ("net_af_packet0,iface=eth3", 3)),
])
def test_where_a_process_is_plugged_in(text, wanted):
    assert dpdk.plug(text, 3) == dpdk.Plug(*wanted)


def test_devices_as_people_say_them():
    assert dpdk.device("17:00.0", 1, True, 1100) == dpdk.device("0000:17:00.0", 1, True, 1100) == "0000:17:00.0"
    assert dpdk.device("net_null0,copy=1", 1, True, 1100) == "net_null0,copy=1"
    arguments = dpdk.device("memif:/run/x,rsize=11", 2, False, 8300)
    assert arguments == "net_memif2,role=client,id=2,socket=/run/x,socket-abstract=no,bsize=8384,rsize=11"
    for frame, lines in ((64, 25), (1518, 25), (1600, 25), (1601, 27), (8244, 129)):  # an odd number, and a standard frame
        assert f",bsize={64 * lines},rsize=9" in dpdk.device("memif:/run/x", 2, True, frame)
    with pytest.raises(ValueError, match="expected memif:SOCKET"):
        dpdk.device("memif:", 0, True, 1100)


def test_command_lines_of_who_has_no_wishes(monkeypatch):
    monkeypatch.setattr(dpdk, "free_huge_pages", lambda: 100)
    small, large = dpdk.arguments(["17:00.0", "memif:x"], 64), dpdk.arguments(["memif:x"], 200)
    assert small[:4] == ["--in-memory", "--single-file-segments", "-m", "64"] and small[4:6] == ["-a", "17:00.0"]
    assert large[:3] == ["--no-huge", "-m", "200"] and "--no-pci" in large and "--in-memory" not in large


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt install dpdk dpdk-dev libdpdk-dev pkg-config" in dpdk.missing()
    with pytest.raises(dpdk.DpdkError, match="apt install"):
        dpdk.build()
