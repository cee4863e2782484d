"""Correctness of the benchmarks' programs, at any speed."""

import itertools
import math
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import child
import numpy as np
import pytest
from capabilities import need

from bench import __main__ as bench_main
from bench import common, complete, groups, local, peers, servers
from ina.aggregation.worker import Worker, WorkerConfig
from ina.base.native import ffi
from ina.lab.training.launch import JobFailed


@pytest.mark.fast
def test_a_figure_is_kept_with_its_spread():
    seconds, others = common.Figure.of([2.0, 4.0, 8.0]), common.Figure.of([1.0, 1.0, 2.0, 4.0])
    made = {"seconds": seconds, "twice": 2 * seconds, "rate": 16 / seconds, "ratio": seconds / others,
            "of none": 1 / common.Figure.of([0])}
    measurement = common.Measurement("some", ["name", *made], "limit", "expected")
    measurement.add("row", *made.values())
    assert measurement.rows == [["row", 4.0, 8.0, 4.0, 4.0 / 1.5, math.inf]]
    assert measurement.spread == [[None, (2, 8, 3, 3, 6), (4, 16, 3, 6, 12), (2, 8, 3, 16 / 6, 16 / 3), (0.5, 8, 3, 1.2, 6),
                                   (math.inf, math.inf, 1, math.inf, math.inf)]]
    assert {type(cell) for cell in measurement.rows[0]} == {str, float}


class Takes:
    """A group of ranks whose calls take as long as they are said to."""

    def __init__(self, name, seconds, log):
        self.name, self.seconds, self.log = name, seconds, log

    def turn(self, name, collective, size, calls):
        self.log.append((name, calls))
        return peers.Turn(self.seconds, 2 * self.seconds)


@pytest.mark.fast
def test_peers_take_turns_and_the_ratio_is_to_the_fastest(monkeypatch):
    clock, log = itertools.count(), []
    monkeypatch.setattr(local.time, "monotonic", lambda: next(clock) / 100)  # each turn takes 10 ms
    times = {"ina": 1e-3, "gloo": 2e-3, "Open MPI": 5e-4, "MPICH": 0.1}
    samples = local.take_turns({name: Takes(name, seconds, log) for name, seconds in times.items()}, "all_reduce", 1 << 20)
    assert log[:4] == [(name, 0) for name in times], "a result of each is compared before any is measured"
    measured = log[8:]
    assert all({name for name, _ in measured[i:i + 4]} == set(times) for i in (0, 4)), "each has a turn before one has its second"
    assert {calls for name, calls in measured if name == "MPICH"} == {1}
    assert {calls for name, calls in measured if name == "ina"} == {10}, "as many as fill a turn"
    row = dict(zip(local.columns(list(times)), local.cells(samples, "all_reduce", 1 << 20, 4), strict=True))
    assert (row["best peer"], row["best peer us"], row["ratio"]) == ("Open MPI", 500, 0.5)
    assert row["ina bus GB/s"] == pytest.approx(1.5 * row["ina GB/s"]) and row["ina GB/s"] == pytest.approx(1.048576)
    assert local.cells(samples, "barrier", 0, 4)[2] == "–"


@pytest.mark.fast
def test_a_peer_that_is_not_installed_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(local, "LIBRARIES", [peers.Torch(), peers.Mpi("Some MPI", "nonesuch", "some-mpi libsome-mpi-dev")])
    assert [library.label for library in local.installed()] == ["torch"]
    assert "Some MPI is left out: apt install some-mpi libsome-mpi-dev" in capsys.readouterr().out


@pytest.mark.build
@pytest.mark.judge
def test_all_installed_peers_have_right_results_in_one_run(capsys):
    need("cc", "torch")
    installed = [name for library in local.installed() for name in library.names]
    sums, others = local.measure([1024], [2], [0])
    assert [row[:2] for row in sums.rows] == [["quiet", 1024]]
    assert [row[0] for row in others.rows] == ["all_gather", "reduce_scatter", "broadcast", "barrier"]
    assert all(f"{name} us" in sums.columns for name in installed)
    assert all(cell > 0 for row in sums.rows + others.rows for cell in row[3:] if not isinstance(cell, str))
    assert "2 ranks, quiet, all_reduce: 1024 bytes in" in capsys.readouterr().out


@pytest.mark.build
@pytest.mark.judge
def test_groups_start_and_what_they_cost():
    need("cc", "torch")
    starts = groups.starts([2], [0], 1)
    assert starts.rows[0][:2] == [2, "quiet"] and all(cell > 0 for cell in starts.rows[0][2:])
    costs = groups.costs([2], [1, 3])
    assert [row[:3] for row in costs.rows] == [[2, back_end, count] for back_end in ("ina", "gloo") for count in (1, 3)]
    assert all(row[6] > 3 for row in costs.rows) and costs.rows[2][-1] == 1


@pytest.mark.build
@pytest.mark.judge
def test_ranks_sum_through_a_switch_process_that_listens_and_count_what_they_repeat():
    need("cc", "torch")
    sums, = servers.measure([4, 100_000], [3], [0], [64], ["loopback"])  # of 25,000 values: no third of them
    assert [row[:4] for row in sums.rows] == [["loopback", 64, "quiet", size] for size in (4, 100_000)]
    for row in sums.rows:
        cells = dict(zip(sums.columns, row, strict=True))
        assert cells["ratio"] == pytest.approx(cells["gloo us"] / cells["ina us"]) and cells["of the card"] == "–"
        assert 0 <= cells["needless"] <= cells["sent again"]
        assert cells["CPU ratio"] == pytest.approx(cells["gloo CPU us"] / cells["ina CPU us"])


@pytest.mark.fast
@pytest.mark.parametrize("length", [1, 63, 64, 65, 174_762, (1 << 20) + 3])
def test_a_row_of_values_repeats_to_the_end_of_any_vector(length):
    need("torch")
    import torch

    from bench.peers_torch import parts

    vector, row = torch.empty(length), torch.arange(64, dtype=torch.float32)
    for part, values in parts(vector, row):
        part.copy_(values)
    assert torch.equal(vector, (torch.arange(length) % 64).float())
    assert sum(part.numel() for part, _ in parts(vector, row)) == length


@pytest.mark.fast
def test_a_benchmark_without_a_short_form_says_so(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bench", "servers", "codec", "--quick"])
    with pytest.raises(SystemExit):
        bench_main.main()
    assert "--quick: codec has no short form" in capsys.readouterr().err


@pytest.mark.fast
def test_the_bound_of_a_card_is_the_time_of_all_frames_that_cross_it():
    assert servers.bound(3, 2 << 20, 2048) == pytest.approx(3 * 256 * (8192 + 56) * 8 / 1e9)


@pytest.mark.root
@pytest.mark.judge
def test_servers_reach_each_other_through_their_cards_at_their_rate():
    need("root", "netns")
    with servers.servers(2, 1e9) as (first, second):
        ping = child.run([*first, "ping", "-c", "1", "-w", "60", "10.0.0.2"])
        assert ping.returncode == 0, ping.stdout + ping.stderr
        shaped = child.run([*second, "tc", "qdisc", "show", "dev", "nic"], check=True).stdout
        assert "tbf" in shaped and "rate 1Gbit" in shaped


SUMS_NOTHING = """
#include <stdlib.h>
#include "peers.h"
void library_begin(int *rank, int *ranks) { *rank = atoi(getenv("RANK")), *ranks = 2; }
void library_call(enum collective which, float *whole, size_t wholes, float *piece, size_t pieces) {
    (void)which, (void)whole, (void)wholes, (void)piece, (void)pieces;
}
void library_end(void) {}
"""


@pytest.mark.build
@pytest.mark.judge
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
def test_a_wrong_result_of_a_peer_ends_its_benchmark(collective, tmp_path):
    need("cc")
    (tmp_path / "nothing.c").write_text(SUMS_NOTHING)
    program = tmp_path / "peers"
    subprocess.run(["cc", "-std=gnu11", f"-I{peers.SOURCES}", str(peers.SOURCES / "peers.c"), str(tmp_path / "nothing.c"), "-lm",
                    "-o", str(program)], check=True)

    class Nothing:
        label, names = "nothing", ("nothing",)

        def processes(self, folder, ranks, address):
            return [([str(program), address], {"RANK": str(rank)}) for rank in range(ranks)]

    with tempfile.TemporaryDirectory() as folder, peers.standing([Nothing()], 2, Path(folder)) as groups:
        assert groups["nothing"].turn("nothing", collective, 4096, 3).seconds >= 0
        with pytest.raises(JobFailed, match="(?s)nothing: a rank failed.*a wrong result"):
            groups["nothing"].turn("nothing", collective, 4096, 0)


@pytest.mark.build
@pytest.mark.judge
@pytest.mark.parametrize("values", [64, 1024])
@pytest.mark.parametrize("watch", [False, True])
def test_run_to_completion_counts_and_verifies_every_packet(values, watch, tmp_path):
    need("cc")
    rig = complete.in_memory(values, *complete.compiled(tmp_path), watch=watch, count=3)
    blocks = complete.ELEMENTS // values
    assert rig.packets == 3 * complete.WORKERS * blocks
    # Beside its blocks a tensor has a first packet with values, and others that carry exponents alone.
    assert rig.c.sent == complete.frames(values, 3, complete.window(values))
    assert rig.c.bare == 3 * complete.WORKERS * (min(blocks, complete.window(values)) - 1)
    assert rig.c.wrong == 0 and rig.c.elapsed_ps > 0 and rig.limit() > 0
    assert all(cycles > 0 for cycles in rig.cycles()[:6]) == watch


@pytest.mark.build
@pytest.mark.judge
def test_a_wrong_sum_ends_a_benchmark(tmp_path):
    need("cc")
    bench, native = complete.compiled(tmp_path)
    ports = complete.memory_ports(64)
    rig = complete.Rig(64, ports, bench, native)
    rig.c.count = 1
    rig.c.work[1] = rig.c.work[0]  # two workers on one tensor
    with pytest.raises(SystemExit, match="wrong|nothing moved"):
        rig.run()
    rig.close()


@pytest.mark.build
@pytest.mark.judge
def test_workers_apart_from_their_switch_are_of_the_job_that_it_admitted(tmp_path):
    need("cc")
    bench, native = complete.compiled(tmp_path)
    ports = complete.memory_ports(64)
    switch = complete.Rig(64, [(inner, ffi.NULL) for inner, _ in ports], bench, native)
    workers = complete.Rig(64, [(ffi.NULL, outer) for _, outer in ports], bench, native, job=switch.job)
    switch.c.stop = stop = bench.new("int *")
    thread = threading.Thread(target=native.serve_switch, args=(switch.c,))
    thread.start()
    try:
        workers.c.count = 1
        assert workers.run().c.wrong == 0
    finally:
        stop[0] = 1
        thread.join()
    assert switch.drops() == "the switch dropped nothing"
    workers.close()
    switch.close()


@pytest.mark.build
@pytest.mark.judge
def test_a_benchmark_tells_what_its_switch_has_dropped(tmp_path):
    need("cc")
    bench, native = complete.compiled(tmp_path)
    rig = complete.Rig(64, [(ffi.NULL, ffi.NULL)] * complete.WORKERS, bench, native)
    earlier = Worker(WorkerConfig(worker=0, workers=complete.WORKERS, life=rig.job.life % 255 + 1, slots=1, values=64))
    earlier.submit(np.zeros(1, np.int32))
    rig.switch.add_port(0)
    rig.switch.step(earlier.frames_to_send(0)[0], 0)
    assert rig.drops() == "the switch dropped 1 of reason 5 (enum Drop in p4/include/switchml/metadata.p4)"  # OLD_LIFE
    rig.close()


OVER_DPDK = """
import sys, tempfile
from pathlib import Path
from bench import complete, dpdk
dpdk.start()
with tempfile.TemporaryDirectory() as folder:
    bench, native = complete.compiled(Path(folder))
    rig = dpdk.over_rings(256, bench, native, count=2)
    print(rig.packets, rig.c.wrong)
    run = dpdk.over_memif(256, bench, native, count=2)
    print(run["packets"], run["seconds"] > 0, min(run["switch"][2:4]) > 0)
    print(dpdk.over_memif(2048, bench, native, count=1)["packets"])  # jumbo frames
    here, there = dpdk.cores()
    with dpdk.on(here):
        print(0 < native.latency(there) < 10**9)
"""


@pytest.mark.hardware
@pytest.mark.judge
@pytest.mark.machine
def test_over_rings_and_memif_every_packet_is_counted_and_verified():
    need("dpdk", "cc", "two processors")
    root = Path(__file__).resolve().parent.parent.parent
    done = child.run([sys.executable, "-c", OVER_DPDK], 800, cwd=root)
    packets = 2 * complete.WORKERS * (complete.ELEMENTS // 256)
    jumbo = str(complete.WORKERS * (complete.ELEMENTS // 2048))
    assert done.stdout.splitlines() == [f"{packets} 0", f"{packets} True True", jumbo, "True"], done.stdout + done.stderr


@pytest.mark.hardware
@pytest.mark.gate
@pytest.mark.machine
def test_the_ceiling_is_what_testpmd_forwards():
    need("dpdk", "dpdk-testpmd", "two processors")
    from bench import dpdk

    assert dpdk.ring_ceiling(1076) > 0


@pytest.mark.hardware
@pytest.mark.judge
@pytest.mark.machine
def test_frames_that_testpmd_forwards_over_memif_are_whole(tmp_path):
    need("dpdk", "dpdk-testpmd", "two processors")
    from bench import dpdk

    assert dpdk.memif_ceiling(8244, tmp_path, dpdk.window(2048)) > 0
    with pytest.raises(SystemExit, match="expected 8244 of each"):  # it takes frames of 64 bytes, and only says so
        dpdk.memif_ceiling(8244, tmp_path, dpdk.window(2048), room=2176)


@pytest.mark.hardware
@pytest.mark.judge
@pytest.mark.machine
def test_a_testpmd_that_ends_is_told_with_what_it_said():
    need("dpdk", "dpdk-testpmd", "two processors")
    from bench import dpdk

    with pytest.raises(SystemExit, match="(?s)testpmd does not answer 'show port stats all'.*nothing"):
        pmd = dpdk.TestPmd(["net_nothing0"], *dpdk.cores(), 1076, 2176)
        try:
            pmd.rate()
        finally:
            pmd.close()


ENDED = """
import sys, time
import bench.codec
from bench.__main__ import main
from bench.common import Measurement
def measure():
    try:
        yield Measurement("a: b", ["values", "ratio"], "of all", "more", [[64, 0.5]])
        print("begun", flush=True)
        time.sleep(10000)
    finally:
        print("closed", flush=True)
bench.codec.measure = measure
sys.argv = ["bench", "codec", "--results", sys.argv[1]]
main()
"""


@pytest.mark.build
@pytest.mark.judge
@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_who_ends_a_benchmark_ends_what_it_started_and_keeps_what_there_is(number, status, tmp_path):
    need("matplotlib")
    root = Path(__file__).resolve().parent.parent.parent
    process = subprocess.Popen([sys.executable, "-c", ENDED, str(tmp_path)], cwd=root, stdout=subprocess.PIPE, text=True)
    output = ""
    while "begun" not in output:
        output += (line := process.stdout.readline())
        assert line, output
    process.send_signal(number)
    output += child.output(process, child.TRAINING)[0]
    assert process.returncode == status and "closed" in output, output
    assert list(tmp_path.glob("bench-*/bench.json"))


@pytest.mark.fast
def test_plots_say_what_was_measured_with_the_whole_title(tmp_path):
    """Bars are named by the columns that describe the measurement, and by no measured figure."""
    need("matplotlib")
    title = "emulator-trees: hierarchical SwitchML in a fat-tree of 128 hosts, with payload and without, and some more words"
    measurement = common.Measurement(title, ["values", "payload", "Mpps", "ratio"], "virtual over processor time", "", keys=2)
    measurement.add(1024, "with", 15.231458209220493, 0.123456)
    common.plot(measurement, tmp_path / "plot.svg")
    labels = re.findall(r"<!-- (.*?) -->", (tmp_path / "plot.svg").read_text(), re.S)
    assert {"1,024, with", "values, payload", "virtual over processor time", "0.123"} <= set(labels)
    assert " ".join(line for line in labels if "emulator" in line or "some" in line).split() == title.split()
    assert not any("15.2" in line for line in labels)


@pytest.mark.fast
def test_tables_never_cut_a_figure(monkeypatch, capsys):
    from rich.console import Console

    from bench import common

    monkeypatch.setattr(common, "console", Console(width=40))
    columns = ["values", "frames Gb/s", "M ATE/s", "workers' cycles", "testpmd Mpps", "ratio"]
    measurement = common.Measurement("a: b", columns, "of all", "more")
    measurement.add(2048, 33.84, 1404.2, 1859, 28.15, 0.4861)
    measurement.show()
    output = capsys.readouterr().out
    assert "…" not in output
    for word in ("2,048", "33.8", "1,404", "1,859", "28.1", "0.486", "workers'", "testpmd"):
        assert word in output
