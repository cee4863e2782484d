"""Checks of a machine for DPDK (``ina doctor --target dpdk``): docs/guide/dpdk.md says how to get what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ina.net import dpdk

GOOD, WARNING, BAD, FACT = "good", "warning", "bad", "fact"
ETHERNET = "0x0200"  # PCI class of network controllers that are Ethernet's
OURS = ("vfio-pci", "igb_uio", "uio_pci_generic", "mlx5_core", "mlx4_core")  # drivers that leave a NIC to DPDK
ENOUGH = 512  # MiB of huge pages: a pool for two ports

Finding = tuple[str, str, str, str]  # verdict, subject, state, advice


def read(path: Path | str) -> str:
    """Returns the text of a small file; "": it cannot be read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def examine(sys: Path = Path("/sys")) -> Iterator[Finding]:
    """Examines this machine. ``sys``: the root of sysfs."""
    if reason := dpdk.missing():
        yield BAD, "DPDK", "not installed", reason
    else:
        try:
            yield GOOD, "DPDK", f"{dpdk.version()}, {len(dpdk.sources())} files of ours compiled against it", ""
        except dpdk.DpdkError as error:
            yield BAD, "DPDK", "does not build or load", str(error)
    free = dpdk.free_huge_pages(sys)
    yield (GOOD, "huge pages", f"{free} MiB free", "") if free >= ENOUGH else (
        WARNING, "huge pages", f"{free} MiB free",
        "ordinary pages do for tests; for speed: echo 512 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
    groups = sys / "kernel/iommu_groups"
    yield (GOOD, "IOMMU", "on", "") if groups.is_dir() and any(groups.iterdir()) else (
        WARNING, "IOMMU", "off", "NICs by vfio-pci need it: intel_iommu=on iommu=pt on the kernel's command line")
    isolated = read(sys / "devices/system/cpu/isolated")
    yield (GOOD, "isolated cores", isolated, "") if isolated else (
        WARNING, "isolated cores", "none", "other threads interrupt those that poll: isolcpus=... nohz_full=... rcu_nocbs=...")
    yield from _nics(sys / "bus/pci/devices")


def _nics(devices: Path) -> Iterator[Finding]:
    any_nic = False
    for device in sorted(devices.glob("*")):
        if not read(device / "class").startswith(ETHERNET):
            continue
        any_nic = True
        driver = (device / "driver").resolve().name if (device / "driver").exists() else "no driver"
        interfaces = ", ".join(sorted(p.name for p in (device / "net").glob("*"))) or "no interface"
        node = read(device / "numa_node")
        summary = f"{device.name}: {driver}, {interfaces}, NUMA node {node or '?'}"
        if driver in OURS:
            yield GOOD, "NIC", summary, ""
        else:
            lost = f" (the kernel then loses {interfaces})" if interfaces != "no interface" else ""
            yield FACT, "NIC", summary, f"for DPDK: dpdk-devbind.py --bind=vfio-pci {device.name}{lost}"
    if not any_nic:
        yield FACT, "NIC", "none on the PCI bus", "memif, virtio-user and kernel interfaces do without (docs/guide/dpdk.md)"
