"""Ports over devices that DPDK drives. EAL starts once in a process, so every test here has processes of its own."""

import os
import subprocess
import sys
from pathlib import Path

import child
import pytest
from c_program import INCLUDES, host_source
from capabilities import need
from test_switchml_worker import WORKER_SOURCES

from ina.net import dpdk

pytestmark = pytest.mark.hardware
ROOT = Path(__file__).resolve().parent.parent.parent
EAL = ["--no-huge", "-m", "128", "--no-pci", "--no-shconf", "--no-telemetry", "-l", "0", "--log-level", "error"]

need("dpdk")


def test_clean_under_address_and_undefined_sanitizers(tmp_path):
    need("cc", "sanitizers")
    sources = [ROOT / "tests/c/dpdk.c", *dpdk.sources(), *(host_source(name) for name in (
        *WORKER_SOURCES, "port.c", "port_fault.c", "fault.c", "endpoint.c", "idle.c", "bell.c"))]
    program = tmp_path / "dpdk"
    command = ["cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined",
               "-fno-sanitize-recover=all", f"-I{ROOT}/host", *INCLUDES, *dpdk.flags("--cflags")]
    subprocess.run([*command, *map(str, sources), "-o", str(program), *dpdk.flags("--libs"), "-lpthread"], check=True)
    run = child.run([program, *EAL], child.TRAINING)
    assert run.returncode == 0, run.stdout + run.stderr


def test_sums_over_rings_are_those_over_memory():
    """The switch's thread and three workers' in one process; with faults, too. No mbuf is lost."""
    command = [sys.executable, "-m", "tests.dpdk_rings", *EAL]
    run = child.run(command, child.TRAINING, cwd=ROOT, env=dict(os.environ, PYTHONPATH=str(ROOT)))
    assert run.returncode == 0 and len(run.stdout.splitlines()) == 4, run.stdout + run.stderr


def test_an_environment_is_started_once():
    code = f"""
from ina.net import dpdk
dpdk.start({EAL})
dpdk.start({EAL})
try:
    dpdk.start(["-l", "0"])
except dpdk.DpdkError as error:
    print(error)
"""
    run = child.run([sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ, PYTHONPATH=str(ROOT)))
    assert "cannot be started again with '-l 0'" in run.stdout, run.stdout + run.stderr


def test_headers_that_the_compiled_part_was_not_made_with_are_refused(monkeypatch):
    """Ports are called through structures of these headers: different ones would crash."""
    monkeypatch.setattr("ina.base.paths.host_headers", lambda: "others")
    with pytest.raises(dpdk.DpdkError, match="made with other headers than those in .*/host: build it again"):
        dpdk.build()


def test_a_device_of_several_queues():
    """Each queue is a port of its own; errors name what the device cannot do."""
    code = f"""
from ina.net import dpdk
dpdk.start({EAL})
with dpdk.Pool(8192, 1514) as pool:
    with dpdk.open_device("net_null0,size=200", pool, queues=2) as device:
        for queue in (0, 1):
            with device.port(queue) as port:
                frames = port.receive(100)
                assert len(frames) == 100 and len(frames[0]) == 200
                assert port.send(frames) == 100 and port.stats["tx_packets"] == 100
        for what in (lambda: device.port(2), lambda: device.flow(5, 1), lambda: device.flow(5, 2), lambda: device.share(0)):
            try:
                what()
            except dpdk.DpdkError as error:
                print(error)
    assert pool.in_use == 0
    try:
        dpdk.open_device("net_null1", pool, queues=5000)
    except dpdk.DpdkError as error:
        print(error)
"""
    run = child.run([sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ, PYTHONPATH=str(ROOT)))
    lines = run.stdout.splitlines()
    assert run.returncode == 0 and len(lines) == 5, run.stdout + run.stderr
    assert "has no queue 2" in lines[0] and "no flow rule for UDP port 5" in lines[1] and "share 0" in lines[3]
    assert "has no queue 2" in lines[2] and "so many queues" in lines[4]


def test_what_a_port_receives_it_sends_again():
    """It reuses mbufs of received frames, one burst of them at most; the pool supplies the rest."""
    code = f"""
from ina.net import dpdk
dpdk.start({EAL})
with dpdk.Pool(8192, 1514) as pool:
    one, other = dpdk.ring_pair("pair", pool, 256)
    with one, other, one.port() as here, other.port() as there:
        frame = bytes(range(100))
        for turn in range(20):
            assert here.send([frame] * 16) == 16
            assert [bytes(f) for f in there.receive(64)] == [frame] * 16
            assert pool.in_use == 16, (turn, pool.in_use)
            assert there.send([frame[::-1]] * 16) == 16
            assert [bytes(f) for f in here.receive(64)] == [frame[::-1]] * 16
            assert pool.in_use == 16, (turn, pool.in_use)
        for turn in range(4):
            assert here.send([frame] * 200) == 200
            assert sum(len(there.receive(64)) for _ in range(4)) == 200
        assert pool.in_use == 64, pool.in_use
        assert there.send([frame] * 200) == 200 and sum(len(here.receive(64)) for _ in range(4)) == 200
    assert pool.in_use == 0
"""
    run = child.run([sys.executable, "-c", code], cwd=ROOT, env=dict(os.environ, PYTHONPATH=str(ROOT)))
    assert run.returncode == 0, run.stdout + run.stderr
