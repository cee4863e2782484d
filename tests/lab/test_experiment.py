"""Configuration, data sets, launching of ranks, and the results folder."""

import dataclasses
import gzip
import json
import os
import re
import shlex
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import child
import numpy as np
import pytest
from capabilities import need
from waiting import until

from ina import topology as topologies
from ina.aggregation import protocols
from ina.base.settings import ConfigError
from ina.lab import cost_model, plan
from ina.lab.kinds import allreduce, training
from ina.lab.kinds.allreduce import AllReduce
from ina.lab.kinds.training import MODELS, Run, Training
from ina.lab.processes.hosts import described, server_host
from ina.lab.results import record, report
from ina.lab.training import data, launch


@pytest.mark.fast
def test_unknown_key_names_file_and_nearest_key(tmp_path):
    path = tmp_path / "exp.toml"
    path.write_text("worker = 3\n")
    with pytest.raises(ConfigError, match=r"exp\.toml:1: unknown key 'worker'; did you mean 'workers'"):
        plan.load(path)


@pytest.mark.fast
def test_a_key_of_another_kind_is_refused_by_the_names_of_both(tmp_path):
    path = tmp_path / "exp.toml"
    path.write_text('kind = "parameters"\nfetch = 2\n[sweep]\nsplits = [1]\n')
    with pytest.raises(ConfigError) as caught:
        plan.load(path, {"discipline": "fifo"})
    end = "; kind 'parameters' has none of this name, but"
    assert str(caught.value).splitlines() == [
        f"{path}:2: unknown key 'fetch'{end} asynchronous", f"{path}:4: [sweep]: unknown key 'splits'{end} asynchronous",
        f"command line: unknown key 'discipline'{end} updates"]


@pytest.mark.fast
@pytest.mark.parametrize(
    "text, message",
    [
        ("workers = 33", "workers = 33: expected 1 to 32"),
        ("workers = 2.5", "workers = 2.5: expected a whole number"),
        ("workers = true", "workers = True: expected a whole number"),
        ("rate = '100Gb'", "rate = '100Gb': expected a number, in b/s, such as 10e9"),
        ("delay = '1us'", "delay = '1us': expected a number, in s, such as 0.001"),
        ("queue = '1 MB'", "queue = '1 MB': expected a whole number, in B, such as 1500"),
        ("bucket_mb = '25 MiB'", "bucket_mb = '25 MiB': expected a number, in MiB, such as 25"),
        ("values = 100", "values = 100: expected 32, 64"),
        ("slots = 48", "slots = 48: expected a power of two"),
        ("backends = ['mpi']", f"expected some of ina, {', '.join(protocols.names())}, gloo"),
        ("name = 'a/b'", "a name without '/'"),
        ("program = 'swichml'", "expected one of .*switchml"),
        ("name = 3", "name = 3: expected text"),
        ("workers = ", "Invalid value"),
        ("timeout = inf", "timeout = inf: expected 0 to 1e[+]06"),
        ("data = '/no/such/folder'", "data = '/no/such/folder': expected a folder"),
        ("world = 'testbed'\ntopology = 'fat-tre'", "there is no topology 'fat-tre'"),
        ("world = 'testbed'\nhosts = 'h1-h3'", "4 workers need 4 hosts, each its own; star gives them: h1, h2, h3"),
        ("world = 'testbed'\nhosts = 'h1-h3,h17'\ntopology = 'fat-tree k=4'",
         "hosts = 'h1-h3,h17': fat-tree: there is no host 'h17'"),
        ("world = 'testbed'\npcap = 'x'\npoints = 'h5'", "there is no port, link, host or switch 'h5'"),
        ("points = 'h1'", "points = 'h1': expected a folder for captures in pcap"),
        ("faults = 'loss=2'", "faults = 'loss=2': .*a probability from 0 to 1"),
    ],
)
def test_wrong_values_are_refused(tmp_path, text, message):
    path = tmp_path / "exp.toml"
    path.write_text(text + "\n")
    with pytest.raises(ConfigError, match=message):
        plan.load(path)


@pytest.mark.fast
def test_overrides_are_parsed_to_the_type_of_the_key(tmp_path):
    path = tmp_path / "exp.toml"
    path.write_text("workers = 2\nlr = 1\n")
    chosen = plan.load(path, {"workers": "3", "backends": "gloo, ina"}).single
    assert (chosen.workers, chosen.backends, chosen.lr) == (3, ("gloo", "ina"), 1.0)
    with pytest.raises(ConfigError, match="command line: workers = 'many': expected a whole number"):
        plan.load(path, {"workers": "many"})


def idx(array: np.ndarray) -> bytes:
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.mark.fast
def test_idx_files_are_read_and_normalised(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (20, 28, 28)), rng.integers(0, 10, 20)
    for name, array in zip(data.FILES, (images, labels, images[:5], labels[:5]), strict=True):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    dataset, source = data.load(str(tmp_path))
    assert str(tmp_path) in source
    normal = dataset.normalised(dataset.train_images)
    assert normal.shape == (20, 1, 28, 28) and normal.dtype == np.float32
    assert abs(normal.mean()) < 1e-4 and abs(normal.std() - 1) < 1e-4
    np.testing.assert_array_equal(dataset.test_labels, labels[:5])


@pytest.mark.fast
@pytest.mark.parametrize(
    "blob, message",
    [(b"", "not an IDX file"), (b"\0\0\x0d\x01aaaa", "not an IDX file"), (idx(np.zeros(9))[:-1], "8 bytes of data"),
     (b"\0\0\x08\3abcd", "ends within its header of 3 sizes"),
     (b"\0\0\x08\x28" + 160 * b"\0", "40 dimensions, expected 4 at most"),
     (b"\0\0\x08\2" + 7 * b"\xff" + b"\1", "0 bytes of data, but its header says"),
     (b"\x1f\x8b\x08" + 7 * b"\0" + b"\xff", "Error -3 while decompressing")],
)
def test_broken_idx_file_is_named(tmp_path, blob, message):
    path = tmp_path / data.FILES[0]
    path.write_bytes(blob)
    with pytest.raises(data.DataError, match=message) as caught:
        data.read_idx(path)
    assert str(path) in str(caught.value)


@pytest.mark.fast
def test_missing_files_are_named(tmp_path):
    with pytest.raises(data.DataError, match="neither train-images-idx3-ubyte.gz nor"):
        data.load(str(tmp_path))


@pytest.mark.build
def test_digits_stand_in(monkeypatch):
    need("sklearn")
    monkeypatch.setattr(data, "SYSTEM_FOLDERS", ())
    dataset, source = data.load()
    assert "because Fashion-MNIST is not installed" in source
    assert dataset.train_images.shape[1:] == (28, 28) and set(dataset.test_labels) == set(range(10))


RANK = "import os, sys, json, time; rank = int(os.environ['RANK']); "


def start(tmp_path, code, workers=2, silence=600.0, on_message=lambda message: None):
    messages = []

    def hear(message):
        messages.append(message)
        on_message(message)

    launch.run(["-c", RANK + code], workers, tmp_path, "job", silence, hear)
    return messages


@pytest.mark.build
@pytest.mark.gate
def test_a_training_begins_when_its_start_has_been_taken(tmp_path):
    """Meters of links are read then: bytes that are sent before do not count."""
    taken = tmp_path / "taken"
    code = ("rank or (print('[]'), print('{\"kind\": \"start\"}', flush=True), sys.stdin.readline(), "
            f"print(json.dumps({{'kind': 'step', 'taken': os.path.exists({str(taken)!r})}})))")

    def take(message):
        if message == {"kind": "start"}:
            child.run([sys.executable, "-c", f"open({str(taken)!r}, 'w')"])  # takes a while

    assert start(tmp_path, code, on_message=take) == [[], {"kind": "start"}, {"kind": "step", "taken": True}]


@pytest.mark.build
@pytest.mark.later
def test_ranks_run_and_rank_0_is_heard(tmp_path):
    code = "print(json.dumps({'world': os.environ['WORLD_SIZE']}), flush=True); print('note', file=sys.stderr)"
    assert start(tmp_path, "rank == 0 or sys.exit(0); " + code, workers=3) == [{"world": "3"}]
    assert (tmp_path / "job-rank0.log").read_text() == "note\n"


@pytest.mark.build
@pytest.mark.later
def test_failing_rank_is_named_with_its_log_and_the_others_end(tmp_path):
    with pytest.raises(launch.JobFailed, match="rank 1 .* exited with status 1") as caught:
        start(tmp_path, "rank == 1 and sys.exit('out of cheese'); time.sleep(3600)")
    assert "out of cheese" in str(caught.value)


@pytest.mark.build
@pytest.mark.later
def test_killed_rank_is_named(tmp_path):
    with pytest.raises(launch.JobFailed, match="rank 0 .* was killed by SIGKILL"):
        start(tmp_path, "rank == 0 and os.kill(os.getpid(), 9); time.sleep(3600)")


@pytest.mark.build
@pytest.mark.later
def test_a_rank_that_said_nothing_may_have_had_no_room_for_it(tmp_path, monkeypatch):
    with pytest.raises(launch.JobFailed, match=r"rank 0 .* exited with status 3; its log .*job-rank0.log is empty$"):
        start(tmp_path, "sys.exit(3 * (rank == 0))")
    monkeypatch.setattr(os, "statvfs", lambda _folder: SimpleNamespace(f_bavail=0, f_favail=9))
    with pytest.raises(launch.JobFailed, match="is empty: no space is left there"):
        start(tmp_path, "sys.exit(3 * (rank == 0))")


@pytest.mark.build
def test_tensors_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"elements = 9{14}: 2 tensors are 745,058 GiB; this machine has"):
        allreduce.reduce(AllReduce(workers=2, elements=10**14 - 1))


@pytest.mark.build
@pytest.mark.later
def test_silence_has_a_deadline(tmp_path):
    with pytest.raises(launch.JobFailed, match="job job: nothing was heard of rank 0 for 1 s, at all"):
        start(tmp_path, "time.sleep(3600)", silence=1.0)


class Clock:
    """The time module, ahead of the time by some seconds."""

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self.ahead

    def __getattr__(self, name):
        return getattr(time, name)


@pytest.mark.build
@pytest.mark.later
def test_silence_says_what_every_rank_does(tmp_path, monkeypatch):
    """Rank 0 may be done, or wait for another: the log of rank 0 alone shows neither. The deadline comes when all are where they
    are to be found."""
    code = f"""
import pathlib, signal
from ina.lab.training.launch import say_where_on_request
def here():
    (pathlib.Path({str(tmp_path)!r}) / f"pid{{rank}}").write_text(str(os.getpid()))
def in_the_way():
    here()
    time.sleep(3600)
if rank == 0:
    here()
    print(json.dumps({{"kind": "step", "step": 12}}), flush=True)
if rank == 1:
    say_where_on_request()
    in_the_way()
if rank == 2:
    here()
    os.kill(os.getpid(), signal.SIGSTOP)
"""
    clock = Clock()
    monkeypatch.setattr(launch, "time", clock)

    def is_there(rank, state):
        file = tmp_path / f"pid{rank}"
        return file.exists() and state in Path(f"/proc/{file.read_text() or 'none'}/stat").read_text().rsplit(")")[1].split()[0]

    def on_message(_message):
        for rank, state in enumerate("ZST"):
            until(lambda rank=rank, state=state: is_there(rank, state), f"rank {rank} to be {state}")
        clock.ahead = 1000.0

    with pytest.raises(launch.JobFailed, match='for 600 s, since {"kind": "step", "step": 12}') as caught:
        start(tmp_path, code, workers=3, on_message=on_message)
    lines = str(caught.value).split("\n")
    about = [next(line for line in lines if line.startswith(f"rank {rank} ")) for rank in range(3)]
    assert about[0].endswith("has ended well")
    assert " runs; its log " in about[1] and any("in in_the_way" in line for line in lines)
    assert " is stopped; " in about[2]


def a_run(backend):
    stats = {"worker": {"tx_packets": 1234}}
    return Run(backend, [2.0, 1.0], [0.1, 0.2], [0.01, 0.02], [1000, 1000], 0.5, 0.3, 1.0, "data", 7, stats)


def with_codec(name, words, elements, rest=0):
    """A run of two steps on four workers: ``elements`` in ``words`` by a codec, ``rest`` through Gloo."""
    run = a_run("ina")
    run.workers, run.allreduce_bytes = 4, [2 * (elements + rest)] * 2
    run.stats = {"switch": {"bytes": 4 * words, "elements": words}, "worker": {},
                 "codecs": {name: {"sums": 2, "elements": elements, "words": words, "flushed": 0}}}
    return run.summary()


@pytest.mark.fast
def test_values_are_counted_up_and_down_as_they_travelled():
    thc = with_codec("thc", 25_000, 100_000)
    assert thc["up_kb"] == thc["down_kb"] == 50.0, "two steps of 50 kB"
    looked_up = with_codec("thc-lookup", 25_000, 100_000)
    assert looked_up["down_kb"] == 50.0 and looked_up["up_kb"] == pytest.approx(25.0, rel=0.01)
    rounded = with_codec("lanes-16-8", 51_563, 100_000)
    assert rounded["up_kb"] == pytest.approx(103.126) and rounded["down_kb"] == pytest.approx(50 + 3.125, rel=0.01)
    split = with_codec("thc", 25_000, 100_000, rest=10_000)
    assert split["up_kb"] == pytest.approx(50 + 2 * 3 / 4 * 4 * 10_000 / 2 / 1000), "a ring's, of what went through Gloo"
    gloo = dataclasses.replace(a_run("gloo"), workers=4).summary()
    assert gloo["up_kb"] == gloo["down_kb"] == pytest.approx(1.5)


@pytest.mark.fast
def test_time_to_accuracy_is_that_of_the_steps_before_the_first_measurement_at_the_target():
    run = dataclasses.replace(a_run("ina"), accuracies=[(1, 0.4), (2, 0.6)], target=0.5)
    assert (run.summary()["target_steps"], run.summary()["target_s"]) == (2, pytest.approx(0.3))
    missed = dataclasses.replace(run, target=0.7).summary()
    assert missed["target_steps"] is None and missed["target_s"] is None


@pytest.mark.build
def test_folder_holds_config_environment_and_metrics(tmp_path):
    need("matplotlib")
    first = record.new_folder(tmp_path, "trial")
    assert first != record.new_folder(tmp_path, "trial") and first.name.startswith("trial-")
    folder = record.Folder(first, Training(name="trial"))
    runs = [a_run("ina"), a_run("gloo")]
    folder.save(runs, {"distance": 0.5}, finished=True)
    metrics = json.loads((folder.path / "metrics.json").read_text())
    assert metrics["summary"][0]["goodput_gbps"] == pytest.approx(8e-9 * 2000 / 0.03)
    assert json.loads((folder.path / "config.json").read_text())["name"] == "trial"
    environment = json.loads((folder.path / "environment.json").read_text())
    assert environment["python"] == sys.version.split()[0]
    assert {len(digest) for digest in environment["sources"].values()} == {64}
    assert record.load(folder.path).config == folder.config
    page = report.page(folder, runs, {"distance": 0.5})
    assert page.count("<svg") == 3 and "1,234" in page
    assert "<script" not in page and 'href="http' not in page


@pytest.mark.fast
@pytest.mark.parametrize(("original", "argv", "module", "pasted"), [
    (["PYTHON", "BIN/ina", "run", "a b.toml"], ["BIN/ina", "run", "a b.toml"], None, "ina run 'a b.toml'"),
    (["PYTHON", "-m", "ina.cli", "run"], ["/a/ina/cli/__main__.py", "run"], "ina.cli.__main__", "python -m ina.cli run"),
    (["PYTHON", "sweeps/mine.py", "--loss", "0.1"], ["sweeps/mine.py", "--loss", "0.1"], None,
     "python sweeps/mine.py --loss 0.1"),
    (["PYTHON", "-O", "./mine", "1"], ["./mine", "1"], None, "python -O ./mine 1"),
    (["PYTHON", "ina", "1"], ["ina", "1"], None, "python ina 1"),  # a script here, not the one of this name on the path
    (["PYTHON", "-c", "import mine", "1"], ["-c", "1"], None, "python -c 'import mine' 1"),
])
def test_the_command_of_a_run_can_be_pasted(tmp_path, monkeypatch, original, argv, module, pasted):
    folder = tmp_path / "a b" / "bin"
    folder.mkdir(parents=True)
    for name in ("ina", "python"):
        (folder / name).touch(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    for name, words in (("orig_argv", original), ("argv", argv)):
        monkeypatch.setattr(sys, name, [word.replace("BIN", str(folder)) for word in words])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", module and SimpleNamespace(name=module))
    monkeypatch.chdir(tmp_path)
    assert record.command() == pasted
    monkeypatch.setenv("PATH", "")
    assert record.command().startswith(shlex.quote(sys.executable)), "elsewhere, nobody finds it by its name"


@pytest.mark.build
def test_a_pasted_command_runs_a_script_of_any_name_with_the_same_words(tmp_path):
    script = tmp_path / "my run"
    script.write_text("import sys\nfrom ina.lab.results import record\nprint(sys.argv, record.command())\n")
    first = subprocess.check_output([sys.executable, script.name, "a b", "'"], cwd=tmp_path, text=True)
    assert subprocess.check_output(first.rpartition("] ")[2], shell=True, cwd=tmp_path, text=True) == first


@pytest.mark.build
def test_the_report_of_a_testbed_says_so_in_its_plots(tmp_path):
    """Gloo's packets used the same links: table and legends say that, and small rates keep their digits."""
    need("matplotlib")
    runs = [a_run("ina"), a_run("gloo")]
    for each in runs:
        each.network = {"links": {"h1-s1": {"up_bytes": 1000, "down_bytes": 900, "rate": 1e8}}, "processors": 0.5}
    page = report.page(record.Folder(tmp_path / "trial", Training(name="trial")), runs, {})
    assert page.count("<!-- gloo (same links) -->") == 3 and "loopback" not in page
    assert "<td>0.000533</td>" in page, "16 kbit in 30 ms, Gb/s"


@pytest.mark.build
@pytest.mark.parametrize("backends", [("ina",), ("ina", "atp"), ("gloo",), ("ina", "gloo")])
def test_losses_are_compared_where_there_is_gloos_line_beside_ours(tmp_path, backends):
    need("matplotlib")
    page = report.page(record.Folder(tmp_path / "trial", Training(name="trial")), [a_run(name) for name in backends], {})
    assert "Training loss" in page and ("lines that lie on each other" in page) == (backends == ("ina", "gloo"))


@pytest.mark.build
@pytest.mark.parametrize(("busy", "bound"), [(0.95, "host-limited"), (0.5, "neither")])
def test_in_the_local_world_processors_bound_a_training_or_nothing_does(tmp_path, busy, bound):
    need("matplotlib")
    run = a_run("gloo")
    run.network = {"links": {}, "processors": busy, "seconds": 1.0}
    summary = run.summary()
    assert (summary["bound"], summary["link_mb"], summary["link_use"]) == (bound, None, None)
    page = report.page(record.Folder(tmp_path / "trial", Training(name="trial")), [run], {})
    assert ("no result about the network" in page) == (bound == "host-limited")
    assert f"<td>{bound}</td>" in page and "gloo (loopback)" in page and "busiest link" not in page


@pytest.mark.fast
def test_the_cost_model_counts_headers():
    """1024 B of integers travel in a frame of 1088 B, 1448 B of TCP payload in one of 1514 B; each frame costs 24 B more."""
    assert cost_model.in_network_seconds(1024, 8e6, 256) == pytest.approx(1112e-6)
    alone, helped = (cost_model.in_network_seconds(1024, 8e6, 256, protocol, workers=4) for protocol in ("ps", "atp"))
    assert alone == 4 * helped
    assert cost_model.ring_seconds(4, 1448, 8e6, 1500) == pytest.approx(1.5 * 1538e-6)
    assert cost_model.speed_up(8, 2048, 9000) == pytest.approx(2 * 7 / 8 * (9038 / 8948) / (8280 / 8192))


@pytest.mark.fast
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"values": "1024"}, "values = 1024: expected at most 256, which fits mtu = 1500"),
        ({"mtu": "100"}, "mtu = 100: expected 576 to 9,000 (bytes)"),
        ({"rate": "-1"}, "rate = -1.0: expected 0 to 1e"),
        ({"loss": "1"}, "loss = 1.0: expected a probability below 1"),
        ({"workers": "1"}, "workers = 1: expected 2 to 32 in the testbed"),
    ],
)
def test_testbed_keys_are_checked(keys, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        plan.load(None, {"world": "testbed", **keys})


@pytest.mark.fast
def test_packets_and_window_follow_the_world(monkeypatch):
    assert (plan.load(None).base.values, plan.load(None).base.slots) == (2048, 64)
    monkeypatch.setenv("INA_VALUES", "64")
    monkeypatch.setenv("INA_SLOTS", "16")
    assert (plan.load(None).base.values, plan.load(None).base.slots) == (64, 16)
    monkeypatch.setenv("INA_SLOTS", "many")
    with pytest.raises(ConfigError, match="INA_SLOTS = 'many': expected a number"):
        plan.load(None)
    monkeypatch.delenv("INA_SLOTS")
    chosen = plan.load(None, {"world": "testbed"}).base
    assert (chosen.values, chosen.slots) == (256, 32)
    assert plan.load(None, {"world": "testbed", "mtu": "9000", "slots": "16"}).base.values == 2048


@pytest.mark.fast
@pytest.mark.parametrize("compiled", [True, False])
def test_a_training_on_bmv2_is_small_and_says_how_long_it_takes(compiled, monkeypatch):
    need("p4runtime")
    from ina.p4.p4runtime import bmv2

    chosen = plan.load(None, {"world": "testbed", "switch": "bmv2"}).base
    assert (chosen.model, chosen.steps, chosen.slots) == ("small", 100, 8) and MODELS["small"] <= 50_000
    monkeypatch.setattr(bmv2, "is_compiled", lambda program, defines: compiled)
    forecast = training.forecast(chosen)
    assert "expect about 16 s for ina and" in forecast and "100 steps, 39,418 parameters" in forecast
    assert forecast.endswith("p4c to compile the program") != compiled and ("p4c" in forecast) != compiled
    assert plan.load(None, {"world": "testbed", "switch": "bmv2", "model": "cnn", "steps": "7"}).base.steps == 7
    for other in ({"switch": "bmv2"}, {"kind": "allreduce", "switch": "bmv2"}):
        with pytest.raises(ConfigError, match="switch = 'bmv2': expected 'embedded'"):
            plan.load(None, other)


@pytest.mark.fast
def test_several_bmv2s_share_the_processors():
    """Two leaves of two hosts and a spine: three, three and two packets for each packet of a worker, on the cores there are."""
    star, leaves = topologies.load("star", hosts=4), topologies.load("leaf-spine", leaves=2, spines=1, hosts=2)
    hosts = [f"h{n}" for n in range(1, 5)]

    def seconds(backend, topology, cores):
        return cost_model.bmv2_seconds(backend, topology, hosts, 39_418, 256, 1500, cores)

    assert seconds("ina", star, 1) == seconds("ina", star, 8)
    assert seconds("ina", leaves, 8) / seconds("ina", star, 8) == pytest.approx(3 / 4)
    assert seconds("ina", leaves, 1) / seconds("ina", star, 8) == pytest.approx(8 / 4)
    assert seconds("gloo", leaves, 1) / seconds("gloo", star, 1) == pytest.approx(8 / 4)  # two ways of four: over three switches


@pytest.mark.fast
@pytest.mark.parametrize(("switch", "bound", "share"), [("bmv2", "BMv2", False), ("embedded", "neither", True)])
def test_a_row_of_bmv2_is_about_bmv2(switch, bound, share):
    """BMv2 is slower than the links on any processor: a share of the links' rate means nothing."""
    link = {"up_bytes": 1000, "down_bytes": 1000, "rate": 1e8}
    network = {"links": {"h1": link}, "processors": 0.5, "switch": switch}
    ours, gloo = (dataclasses.replace(a_run(name), network=network) for name in ("ina", "gloo"))
    assert ours.summary()["bound"] == bound
    chosen = plan.load(None, {"world": "testbed", "switch": switch}).base
    assert ("share of the predicted gain" in training.gain(chosen, ours, gloo)) == share


@pytest.mark.fast
def test_models_have_the_parameters_that_they_are_said_to_have():
    need("torch")
    from ina.lab.training import models

    assert list(models.MODELS) == list(MODELS)
    for name, parameters in MODELS.items():
        assert sum(p.numel() for p in models.MODELS[name]().parameters()) == parameters


@pytest.mark.build
def test_a_rank_does_not_start_without_its_runner(tmp_path):
    """The runner may be killed while its ranks still import: nobody would end them."""
    need("torch")
    runner = subprocess.Popen([sys.executable, "-c", ""])
    runner.wait()
    environment = {**os.environ, "INA_RUNNER": str(runner.pid), "WORLD_SIZE": "1", "RANK": "0"}
    rank = child.run([sys.executable, "-m", "ina.lab.training.rank", "no.json", "ina", tmp_path], env=environment)
    assert rank.returncode == 1 and f"the runner, process {runner.pid}, is gone" in rank.stderr


@pytest.mark.build
def test_a_rank_that_is_done_leaves_before_the_interpreter_is_torn_down():
    """A thread of Gloo's that wants the GIL in between would abort the process."""
    code = """
import atexit, threading, time
from ina.lab.training.launch import leave
class Late:
    def __del__(self): print("torn down")
late = Late()
threading.Thread(target=time.sleep, args=(3600,)).start()
atexit.register(print, "closed")
print("said")
leave()"""
    rank = child.run([sys.executable, "-c", code])
    assert (rank.returncode, rank.stdout, rank.stderr) == (0, "said\nclosed\n", "")


@pytest.mark.fast
def test_back_ends_are_protocols_each_in_its_network():
    chosen = Training(backends=("gloo", "switchml", "ina", "atp", "ps"), world="testbed", workers=2)
    worlds = [(there.protocol, names) for there, names in training.worlds(chosen)]
    assert worlds == [("switchml", ["gloo", "switchml", "ina"]), ("atp", ["atp"]), ("ps", ["ps"])]
    with pytest.raises(ConfigError, match=f"expected some of ina, {', '.join(protocols.names())}, gloo"):
        Training(backends=("ina", "nccl"))


@pytest.mark.fast
def test_the_parameter_server_has_a_host_of_its_own():
    chosen = Training(protocol="atp", world="testbed", workers=3)
    assert len(described(chosen).hosts) == 4 and server_host(chosen, described(chosen)) == "h4"
    nobody = Training(world="testbed")
    assert server_host(nobody, described(nobody)) == ""
    two = "leaf-spine leaves=2 spines=1 hosts=2"
    placed = Training(protocol="atp", world="testbed", workers=3, topology=two, hosts="h2-h4")
    assert server_host(placed, described(placed)) == "h1"
    with pytest.raises(ConfigError, match="no host is left for the parameter server of atp"):
        Training(protocol="atp", world="testbed", workers=4, topology=two)


@pytest.mark.fast
def test_the_end_of_a_log_has_the_error_that_chatter_follows(tmp_path):
    log = tmp_path / "rank.log"
    error = ["Traceback (most recent call last):", '  File "x.py", line 1', "    boom()", "ValueError: INA_SLOTS=3: expected 4"]
    log.write_text("\n".join(["begins", *error, *(f"[rank 0] thread {i} ends" for i in range(30))]))
    tail = launch.tail(log).splitlines()
    assert tail[0].strip() == error[-1] and tail[1].strip() == "..." and tail[-1].strip() == "[rank 0] thread 29 ends"
    log.write_text("\n".join(["begins", *error]))
    assert [line.strip() for line in launch.tail(log).splitlines()] == ["begins", *(line.strip() for line in error)]
