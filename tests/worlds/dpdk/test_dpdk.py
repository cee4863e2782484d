"""The switch and the host agent on DPDK: sums over memif between processes, af_packet and pcap devices; faults; ends."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import child
import numpy as np
import pytest
from capabilities import need
from dpdk_admitting import SLOTS, admit
from dpdk_programs import ROOT, Process, summaries, switch, worker
from waiting import until

import ina.worlds.dpdk.switch
import ina.worlds.dpdk.worker

pytestmark = [pytest.mark.hardware, pytest.mark.later]
need("dpdk", "cc")

P4 = ROOT / "p4"
# Reasons to drop late copies (p4/include/switchml/metadata.p4). Of an unknown job: workers leave once they have all results, and
# nobody waits for what then still lies in a ring, a queue between shards or a fault's delay line.
LATE = {"UNKNOWN_JOB": 3, "STALE": 7, "REPEATED": 8}
NUMBERS = itertools.count()  # of namespaces
PATIENT = ["--timeout", 200]


def memif(folder, workers, *arguments, program="switchml.p4"):
    """A switch with a memif port for each worker."""
    ports = [word for i in range(workers) for word in ("--port", f"{i}=memif:{folder}/ports.sock")]
    return switch("--program", P4 / program, "-D", "VALUES=64", *ports, *arguments)


def sent_by(running):
    """Number of packets that each of the switch's ports has sent."""
    running.signal(signal.SIGUSR1)
    ports = json.loads(running.line("stderr"))["counters"]["ports"]
    return [ports[number]["tx_packets"] for number in sorted(ports)]


def workers(folder, count, *arguments):
    return [worker("--device", f"memif:{folder}/ports.sock", "--worker", i, "--workers", count, *PATIENT, *arguments)
            for i in range(count)]


def assert_no_mbuf_is_lost(*reports):
    """memif keeps no mbuf when nothing is in flight: those out of the pool are the ones that ports hold for the next frames."""
    for each in reports:
        assert each["mbufs"]["in_use"] == each["mbufs"]["held"] < each["mbufs"]["all"] / 4


def check(reports, summary, all_reduces):
    """Workers' summaries and the switch's agree, and no mbuf is lost."""
    for report in reports:
        assert report["all_reduces"] == all_reduces and report["verified"]
    assert_no_mbuf_is_lost(*reports, summary)
    for port, report in zip(summary["ports"].values(), sorted(reports, key=lambda s: s["worker"]), strict=True):
        assert port["rx_packets"] == report["device_stats"]["tx_packets"]
        assert not set(port["errors"]) - {"tx_full"}  # a worker that got no processor for a while


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp:127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize(("program", "dtype", "elsewhere"), [
    pytest.param("switchml", "float32", False, marks=pytest.mark.gate), ("switchml", "int32", True),
    ("tofino/switchml", "float32", False), ("atp", "float32", False)])
def test_sums_are_exact_between_processes(tmp_path, program, dtype, elsewhere):
    """``elsewhere``: the controller is reached as from another machine."""
    protocol = Path(program).name
    control = free_address() if elsewhere else tmp_path / "control"
    with memif(tmp_path, 3, "--control", control, program=f"{program}.p4") as running:
        assert running.about["protocol"] == protocol and running.about["values"] == 64
        reports = summaries(workers(tmp_path, 3, "--control", control, "--verify", "--dtype", dtype, "--size", "80k",
                                    "--repeat", 4, "--in-flight", 3))
        check(reports, running.stop(), 4)


def test_slots_are_spread_over_shards(tmp_path):
    """Two threads, each with the rows of its slots; one queue for each device, steered in software."""
    with memif(tmp_path, 2, "--control", tmp_path / "control", "--shards", 2) as running:
        assert running.about["shards"] == 2 and running.about["steering"] == {"0": "software", "1": "software"}
        reports = summaries(workers(tmp_path, 2, "--control", tmp_path / "control", "--verify", "--size", "400k", "--repeat", 3,
                                    "--in-flight", 2, "--rto", 0.004, "--fault", "loss=0.005,dup=0.01,reorder=0.01"))
        summary = running.stop()
    assert all(report["all_reduces"] == 3 for report in reports)
    assert sum(summary["shards"]) == sum(port["rx_packets"] for port in summary["ports"].values())
    assert min(summary["shards"]) > 3200, "of 9600 packets without repetitions"
    assert summary["program"].get("SwitchIngress.drops", {}).keys() <= set(map(str, LATE.values()))
    assert_no_mbuf_is_lost(*reports, summary)


def test_shards_over_p4runtime(tmp_path):
    """EAL's lcores give the number; a P4Runtime client reads sums over shards, and registers are refused."""
    need("p4runtime")
    from ina.p4.p4runtime.remote_switch import RemoteSwitch
    from ina.p4.runtime import CounterEntry, EntityError, RegisterEntry

    eal = ["--no-huge", "-m", "128", "--no-shconf", "--no-pci", "--no-telemetry", "--lcores", "0@0,1@0", "--log-level", "error"]
    ports = [word for i in range(2) for word in ("--port", f"{i}=memif:{tmp_path}/ports.sock")]
    with switch(*eal, "--", "--spin", 0, "--program", P4 / "switchml.p4", "-D", "VALUES=64", *ports, "--control",
                tmp_path / "control", "--job-slots", 32, "--grpc", f"unix:{tmp_path}/grpc") as running:
        assert running.about["shards"] == 2
        reports = summaries(workers(tmp_path, 2, "--control", tmp_path / "control", "--verify", "--size", "100k"))
        remote = RemoteSwitch(running.about["grpc"], 1)
        try:
            with pytest.raises(EntityError, match="each of the 2 shards"):
                remote.read([RegisterEntry("SwitchIngress.phase.tsis", 0)])
            assert len(remote.read([CounterEntry("SwitchIngress.drops")])) > 1
        finally:
            remote.close()
        check(reports, running.stop(), 10)


def test_each_run_is_a_job_of_its_own(tmp_path):
    """The second, of other numbers, meets the rows of the first, which are final, and gets none of its sums."""
    with memif(tmp_path, 2, "--control", tmp_path / "control", "--job-slots", 32) as running:
        for dtype, repeat in (("int32", 1), ("float32", 1), ("int32", 3)):
            reports = summaries(workers(tmp_path, 2, "--control", tmp_path / "control", "--verify", "--size", "100k", "--repeat",
                                        repeat, "--dtype", dtype))
            assert all(report["all_reduces"] == repeat and report["verified"] for report in reports)
        assert_no_mbuf_is_lost(*reports, running.stop(signal.SIGTERM))


def test_sums_are_exact_under_loss_duplication_and_reordering(tmp_path):
    with memif(tmp_path, 2, "--control", tmp_path / "control") as running:
        reports = summaries(workers(
            tmp_path, 2, "--control", tmp_path / "control", "--verify", "--size", "400k", "--repeat", 3, "--rto", "0.004",
            "--fault", "loss=0.02,dup=0.02,reorder=0.05,corrupt=0.01,seed=7"))
        summary = running.stop()
    assert all(report["all_reduces"] == 3 and report["worker_stats"]["retransmissions"] > 50 for report in reports)
    assert all(report["port"]["rx_malformed"] > 0 for report in reports)  # corrupted frames: a CRC's business
    assert sum(report["worker_stats"]["duplicates"] + report["worker_stats"]["drop_stale"] for report in reports) > 10
    assert_no_mbuf_is_lost(*reports, summary)


def test_statistics_on_request_and_a_clean_end(tmp_path):
    with memif(tmp_path, 2, "--control", tmp_path / "control") as running:
        pair = workers(tmp_path, 2, "--control", tmp_path / "control", "--verify", "--size", "64k", "--duration", 3600)
        try:
            assert all(json.loads(each.line())["bytes"] == 65536 for each in pair)  # they are at work
            running.signal(signal.SIGUSR1)
            counted = json.loads(running.line("stderr"))["counters"]
            assert counted["ports"]["0"]["rx_packets"] >= 256 and counted["ports"]["0"]["up"]
            command = [sys.executable, "-m", "ina.cli", "counters", "--json", "--switch", tmp_path / "control"]
            result = child.run(command, cwd=ROOT)
            (ports,) = (counters["ports"] for counters in json.loads(result.stdout).values())
            assert ports["0"]["rx_packets"] >= counted["ports"]["0"]["rx_packets"] and ports["1"]["errors"]["rx_malformed"] == 0
            pair[1].signal(signal.SIGINT)
            status, out, err = pair[1].end()
            assert status == 130 and json.loads(out.splitlines()[-1])["summary"]["all_reduces"] > 0
            status, _, err = pair[0].end()  # told that its peer is lost
            assert status == 1 and "ina-dpdk-worker" in err
        finally:
            for process in pair:
                process.kill()
        assert_no_mbuf_is_lost(running.stop())


@pytest.mark.parametrize("killed", [1, 2])
def test_the_name_of_a_killed_job_is_free(tmp_path, killed):
    """Each run is a job of its own: also after one whose workers were killed."""
    with memif(tmp_path, 2, "--control", tmp_path / "control") as running:
        pair = workers(tmp_path, 2, "--control", tmp_path / "control", "--size", "64k", "--duration", 3600)
        try:
            assert all(process.line() for process in pair)
            for process in pair[-killed:]:
                process.process.kill()
            assert all(process.end()[0] != 0 for process in pair)
        finally:
            for process in pair:
                process.kill()
        again = workers(tmp_path, 2, "--control", tmp_path / "control", "--verify", "--size", "64k", "--repeat", 2)
        assert all(report["all_reduces"] == 2 and report["verified"] for report in summaries(again))
        running.stop()


def test_a_flood_hides_no_deadline(tmp_path):
    """The device always has a full burst of foreign frames: the worker still sends, and still gives up in time."""
    with memif(tmp_path, 2, "--control", tmp_path / "control"):
        flooded = worker("--device", "net_null0", "--control", tmp_path / "control", "--worker", 0, "--workers", 2, "--size",
                         "64k", "--rto", 0.05, "--timeout", 10)
        code, _, err = flooded.end()
    assert code == 1 and "Timed out after 10 s: slot 0" in err, err


def test_a_switch_that_ends_fails_its_workers_at_once(tmp_path):
    """And the next one begins anew."""
    with memif(tmp_path, 1, "--control", tmp_path / "control") as running:
        (alone,) = workers(tmp_path, 1, "--control", tmp_path / "control", "--size", "64k", "--duration", 3600)
        try:
            assert alone.line()
            running.process.kill()
            status, _, err = alone.end()
            assert status == 1 and err and "Timed out" not in err
        finally:
            alone.kill()
    assert (tmp_path / "control").exists()
    (tmp_path / "ports.sock").unlink()
    with memif(tmp_path, 1, "--control", tmp_path / "control") as again:
        second = Process("ina.worlds.dpdk.switch", "--program", P4 / "switchml.p4", "-D", "VALUES=64", "--port",
                         f"0=memif:{tmp_path}/ports.sock", "--control", tmp_path / "control")
        status, _, err = second.end()
        assert status == 1 and "another switch serves it" in err  # a living one is left alone
        reports = summaries(workers(tmp_path, 1, "--control", tmp_path / "control", "--verify", "--size", "64k", "--repeat", 2))
        check(reports, again.stop(), 2)


# ---- real interfaces -----------------------------------------------------------------------------------------------------


@pytest.fixture
def namespace():
    """A network namespace with the veth pairs w0-s0 and w1-s1."""
    need("root", "netns")
    name = f"ina-dpdk-{os.getpid()}-{next(NUMBERS)}"
    run = ["ip", "netns", "exec", name]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for i in range(2):
            subprocess.run([*run, "ip", "link", "add", f"w{i}", "type", "veth", "peer", "name", f"s{i}"], check=True)
            for end in (f"w{i}", f"s{i}"):
                subprocess.run([*run, "sysctl", "-qw", f"net.ipv6.conf.{end}.disable_ipv6=1"], check=False)
                subprocess.run([*run, "ip", "link", "set", end, "up"], check=True)
        yield run
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


RING = "blocksz=4096,framesz=2048,framecnt=512"


@pytest.mark.parametrize(("ours", "theirs", "shards"), [
    (f"net_af_packet{{i}},iface=s{{i}},{RING}", f"net_af_packet{{i}},iface=w{{i}},{RING}", 1),
    ("net_af_xdp{i},iface=s{i}", "net_af_xdp{i},iface=w{i}", 1),
    ("net_tap{i},iface=t{i}", f"net_af_packet{{i}},iface=t{{i}},{RING}", 2),  # takes rules on some kernels, else software steers
], ids=["af_packet", "af_xdp", "tap"])
def test_over_interfaces_of_the_kernel(tmp_path, namespace, ours, theirs, shards):
    if "af_xdp" in ours:
        need("af-xdp")
    if "tap" in ours:
        need("tun")
    ports = [word for i in range(2) for word in ("--port", f"{i}={ours.format(i=i)}")]
    with switch("--program", P4 / "switchml.p4", "-D", "VALUES=64", *ports, "--control", tmp_path / "control",
                "--shards", shards, before=namespace) as running:
        reports = summaries([
            worker("--device", theirs.format(i=i), "--worker", i, "--workers", 2, *PATIENT, "--control", tmp_path / "control",
                   "--verify", "--size", "100k", "--repeat", 3, before=namespace) for i in range(2)])
        assert all(report["all_reduces"] == 3 for report in reports)
        summary = running.stop()
    assert summary["ports"]["0"]["rx_packets"] > 1000
    assert shards == 1 or min(summary["shards"]) > 1000, "of 2400 packets without repetitions"


def test_over_vhost_and_virtio_user(tmp_path):
    """vhost is used as between a host and its virtual machines."""
    ports = [word for i in range(2) for word in ("--port", f"{i}=net_vhost{i},iface={tmp_path}/v{i}")]
    with switch("--program", P4 / "switchml.p4", "-D", "VALUES=64", *ports, "--control", tmp_path / "control") as running:
        reports = summaries([
            worker("--device", f"net_virtio_user{i},path={tmp_path}/v{i},queues=1", "--worker", i, "--workers", 2, *PATIENT,
                   "--control", tmp_path / "control", "--verify", "--size", "100k", "--repeat", 3)
            for i in range(2)])
        assert all(report["all_reduces"] == 3 for report in reports)
        assert_no_mbuf_is_lost(running.stop())


# ---- recorded packets: the same as any other port gives ------------------------------------------------------------------


def test_recorded_packets_get_the_answers_of_the_memory_port(tmp_path):
    """net_pcap devices replay two workers' packets into the switch, and record its output: that of Switch.step."""
    need("scapy")
    from scapy.layers.l2 import Ether
    from scapy.utils import PcapReader, wrpcap

    from ina.aggregation.worker import Worker, WorkerConfig
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime import Switch as Embedded

    compiled = compile_program(P4 / "switchml.p4", defines={"VALUES": "64"}, include_dirs=[P4])
    rng, sent = np.random.default_rng(5), []
    with Embedded(compiled.so_path) as expected:
        job = admit(expected)
        for i in range(2):
            expected.add_port(i)
            machine = Worker(WorkerConfig(worker=i, workers=2, life=job.life, slots=SLOTS, values=64))
            machine.submit(rng.integers(-1000, 1000, 64 * SLOTS, dtype=np.int32))
            frames = machine.frames_to_send(1)
            assert len(frames) == SLOTS
            wrpcap(str(tmp_path / f"in{i}.pcap"), [Ether(frame) for frame in frames])
            # Each port's packets come in order; which port's first does not matter to the sums.
            sent += [out for frame in frames for out in expected.step(frame, i)]
    replies = [sorted(frame for port, frame in sent if port == i) for i in range(2)]
    assert len(replies[0]) == SLOTS

    def recorded(i):
        try:
            return sorted(bytes(packet) for packet in PcapReader(str(tmp_path / f"out{i}.pcap")))
        except (OSError, EOFError):
            return []

    ports = [word for i in range(2) for word in (
        "--port", f"{i}=net_pcap{i},rx_pcap={tmp_path}/in{i}.pcap,tx_pcap={tmp_path}/out{i}.pcap")]
    with switch("--program", compiled.so_path, *ports, "--control", tmp_path / "control",
                module="tests.worlds.dpdk.dpdk_admitting") as running:
        until(lambda: sent_by(running) == [SLOTS, SLOTS], "all answers")
        summary = running.stop()
    assert [recorded(i) for i in range(2)] == replies
    assert [summary["ports"][str(i)]["tx_packets"] for i in range(2)] == [SLOTS, SLOTS]


# ---- the page ----------------------------------------------------------------------------------------------------------


def test_commands_of_the_page_run(tmp_path):
    """The commands get sockets of the test's, and a smaller tensor."""
    page = (ROOT / "docs/guide/dpdk.md").read_text()
    lines = [line.strip() for line in page.splitlines() if line.startswith("    ina-dpdk-")]
    assert len(lines) == 3
    commands = [line.replace("/tmp/", f"{tmp_path}/").replace("100M", "1M").split() for line in lines]
    assert commands[0][0] == "ina-dpdk-switch"
    with switch(*commands[0][1:]) as running:
        reports = summaries([worker(*command[1:], *PATIENT) for command in commands[1:]])
        check(reports, running.stop(), 10)


# ---- wrong arguments ------------------------------------------------------------------------------------------------------


SWITCHML = ["--program", "p4/switchml.p4"]
WORKER = ["--device", "memif:x", "--control", "x", "--worker", "0", "--workers", "2"]


@pytest.mark.parametrize(("module", "arguments", "message"), [
    (ina.worlds.dpdk.switch, [*SWITCHML, "--port", "0=net_nothing0", "--control", "x"], "net_nothing0"),
    (ina.worlds.dpdk.switch, ["--program", "examples/learn/learn.p4", "--port", "0=net_null0", "--control", "x"],
     "no aggregation program"),
    (ina.worlds.dpdk.switch, [*SWITCHML, "--port", "0=net_null0", "--control", "x", "--max-frame", "500"], "have 1088"),
    (ina.worlds.dpdk.switch, ["--nonsense", "--", *SWITCHML, "--port", "0=net_null0", "--control", "x"], "EAL"),
    (ina.worlds.dpdk.switch, ["--program", "p4/atp.p4", "--port", "0=net_null0", "--control", "x", "--shards", "2"],
     "declares no"),
    (ina.worlds.dpdk.worker, [*WORKER, "--control", "/nowhere", "--timeout", "0.2"], "/nowhere"),
])
def test_what_cannot_be_started_is_said(module, arguments, message):
    """Each case runs in a process of its own: most of these start EAL."""
    process = Process(module.__name__, *arguments)
    code, out, err = process.end()
    assert (code, message in err) == (1, True), (code, out, err)
    assert "Traceback" not in err


@pytest.mark.parametrize(("device", "message"), [("memif:/nowhere/x", "server was not there"), ("net_nothing0", "net_nothing0")])
def test_a_worker_s_device_that_is_not_there_is_named(tmp_path, device, message):
    with memif(tmp_path, 1, "--control", tmp_path / "control"):
        process = worker("--device", device, "--control", tmp_path / "control", "--worker", 0, "--workers", 1, "--timeout", 10)
        code, out, err = process.end()
    assert (code, message in err) == (1, True), (code, out, err)
    assert "Traceback" not in err
