"""Ports over devices that DPDK drives. EAL starts once in a process, so every test here has processes of its own."""

import subprocess
from pathlib import Path

from capabilities import need

from ina.transport import dpdk

ROOT = Path(__file__).resolve().parent.parent
EAL = ["--no-huge", "-m", "128", "--no-pci", "--no-shconf", "--no-telemetry", "-l", "0", "--log-level", "error"]

need("dpdk")


def test_clean_under_address_and_undefined_sanitizers(tmp_path):
    need("cc", "sanitizers")
    sources = [ROOT / "tests/c/dpdk.c", *dpdk.sources(), *(ROOT / "host" / name for name in (
        "port.c", "port_fault.c", "fault.c", "segment.c", "pcap.c"))]  # fmt: skip
    program = tmp_path / "dpdk"
    command = ["cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
               "-fno-sanitize-recover=all", f"-I{ROOT}/host", *dpdk.flags("--cflags")]  # fmt: skip
    subprocess.run([*command, *map(str, sources), "-o", str(program), *dpdk.flags("--libs"), "-lpthread"], check=True)
    run = subprocess.run([str(program), *EAL], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
