"""Protocols by name: one list in C, the same names for switch programs; and a user's own protocol, in any folder."""

import ast
import os
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from folders import files
from waiting import LONG, TookTooLong

from ina import cli
from ina.aggregation import protocols
from ina.aggregation.controller.admission import AdmissionError, Controller
from ina.aggregation.controller.client import Client, ControlError, start_server
from ina.aggregation.controller.worker_ports import open_worker_port
from ina.aggregation.worker import SWITCH, Endpoint, Worker, WorkerConfig
from ina.base import abi, paths
from ina.base.native import ffi
from ina.lab.kinds import sharing
from ina.lab.kinds.sharing import Sharing
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.embedded import Switch
from ina.worlds.virtual.explorable import SwitchMachine, Tensor, WorkerMachine
from ina.worlds.virtual.explorer import Budget, Explorer

pytestmark = pytest.mark.build
ROOT = Path(__file__).resolve().parent.parent.parent.parent
LOCKSTEP = ROOT / "examples" / "lockstep"


def test_every_protocol_says_its_name_and_has_a_program():
    assert protocols.DEFAULT in protocols.names()
    for name in protocols.names():
        assert ffi.string(protocols.named(name).name).decode() == name
        assert protocols.program(name).is_file()


def test_an_unknown_protocol_is_refused_with_the_names_that_there_are():
    with pytest.raises(ValueError, match="'swichml', expected one of .*switchml"):
        WorkerConfig(0, 2, life=1, protocol="swichml")
    with pytest.raises(ValueError, match="expected one of"):
        protocols.program("swichml")


@pytest.mark.parametrize("name", protocols.names())
def test_a_worker_speaks_the_protocol_of_its_configuration(name):
    config = WorkerConfig(0, 2, life=1, protocol=name)
    worker = Worker(config)
    assert worker.behaviour() and worker.frames_to_send(0) == []
    worker.submit(np.ones(1000, np.int32))
    frames = worker.frames_to_send(0)
    assert frames and max(map(len, frames)) <= config.frame_bytes


def test_nobody_else_knows_a_protocol_by_name():
    """Protocols' names are in their own files, the list in host/protocol/protocols.h, and the choice of the default only."""
    names = set(protocols.names()) - {"ps"}  # a command, too
    allowed = ("ina/aggregation/entries/", "ina/codecs/", "ina/aggregation/wire/", "ina/cli/wire.py",
               "ina/aggregation/protocols.py",
               "ina/aggregation/worker/route.py", "ina/aggregation/worker/token_routes.py",  # a piece's receivers
               "ina/worlds/virtual/explorable.py",
               # known packets, and what was published
               "ina/aggregation/equal_scenarios.py", "ina/lab/results/figures.py")
    for path in files(ROOT / "ina", "**/*.py"):
        file = str(path.relative_to(ROOT))
        if not file.startswith(allowed):
            for node in ast.walk(ast.parse(path.read_text())):
                word = node.value if isinstance(node, ast.Constant) else node.attr if isinstance(node, ast.Attribute) else None
                assert word not in names | {f"ina_{name}" for name in names}, f"{file}:{node.lineno}: {word}"
    own = re.compile(rf"\bina_({'|'.join(sorted(names))})\b(?! *\()")
    for path in [*files(ROOT / "host", "**/*.[ch]"), *files(ROOT / "ina", "**/*.[ch]")]:
        if path.name not in {"protocols.c", "protocols.h", *(f"{name}.c" for name in names), "_native.c"}:
            assert not own.search(path.read_text()), path


def test_options_are_the_protocol_s_own():
    """Names, ranges and what they are where they are not set: all from the worker's C file."""
    for name in protocols.names():
        own = ("window", "exponent") if name in ("atp", "ps", "atp_routes") else ("shards",)
        assert list(protocols.options(name)) == [*own, "check"], name
    fields = {name for name, _ in ffi.typeof("struct ina_worker_config").fields} | set(WorkerConfig.__dataclass_fields__)
    assert not fields & {"shards", "window", "exponent"}
    for name, value in (("window", 0), ("window", 8193), ("exponent", 127), ("exponent", -97)):
        with pytest.raises(ValueError, match=rf"{name}: {value}, expected -?\d+\.\.\d+"):
            WorkerConfig(0, 2, life=1, protocol="atp", options={name: value})
    with pytest.raises(ValueError, match="shards: 3, expected a power of two"):
        WorkerConfig(0, 2, life=1, options={"shards": 3})
    with pytest.raises(ValueError, match="options: 'window': the protocol 'switchml' has no such option: it has shards, check"):
        WorkerConfig(0, 2, life=1, options={"window": 4})


@pytest.mark.parametrize(("name", "option", "value"), [("atp", 0, 0), ("atp", 1, 127), ("atp", 3, 1), ("switchml", 0, 3)])
def test_a_worker_refuses_options_that_it_does_not_declare(name, option, value):
    config = WorkerConfig(0, 2, life=1, protocol=name).to_c()
    assert protocols.named(name).state_size(config) > 0
    config.options_set, config.option[option] = 1 << option, value
    assert protocols.named(name).state_size(config) == 0


# ---- a protocol of the user's: examples/lockstep


def test_an_own_protocol_in_the_local_world():
    """Its program through the compiler, its worker and its entries, from the path of the program alone."""
    process = start_server(LOCKSTEP / "lockstep.p4", {"VALUES": "64"}, job_slots=1)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(5000).astype(np.float32) for _ in range(3)]
    results = [array.copy() for array in inputs]

    def rank(index):
        client = Client(process.name)
        try:
            client.join("job", index)
            client.admit("job", 3)
            at = client.attach("job", index)
            config = WorkerConfig(index, 3, job=at.number, life=at.life, slots=at.slots, values=at.values,
                                  protocol=at.protocol, address=at.address, switch=at.switch, timeout=LONG)
            with Endpoint(config, open_worker_port(at), client.fileno()) as endpoint:
                endpoint.run(results[index], average=True)
                endpoint.run(results[index], average=True)  # of what is equal by now: itself
            client.release()
        finally:
            client.close()
            for fd in at.fds:
                os.close(fd)

    try:
        ranks = [threading.Thread(target=rank, args=(i,), daemon=True) for i in range(3)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join(LONG)
            if each.is_alive():
                raise TookTooLong(f"waited {LONG:g} s for a rank")
    finally:
        process.close()
    assert np.allclose(results[0], np.mean(inputs, axis=0), atol=1e-6)
    assert all(np.array_equal(results[0], other) for other in results)


def test_an_own_protocol_in_virtual_time():
    (result,) = sharing.share(Sharing(protocol=str(LOCKSTEP / "lockstep.p4"), jobs=2, workers=3, window=16, elements=10_000))
    assert len(result.goodputs) == 2 and result.stats["workers"]["retransmissions"] == 0


def test_every_interleaving_of_an_own_protocol():
    """Two workers, three packets each, with a loss, a duplicate and two time-outs anywhere: no wrong sum, and it finishes."""
    name = str(LOCKSTEP / "lockstep.p4")
    built = compile_program(name, defines={"VALUES": "32", "JOBS": "1"}, include_dirs=[ROOT / "p4"])
    switch = Switch(built.so_path)
    controller = Controller(switch, 1, protocol=name)
    job = controller.admit("explored", 2, 1)
    inputs = [np.arange(64, dtype=np.int32) * (i + 1) - 2**30 for i in range(2)]
    machines, wires = [], []
    for i in range(2):
        switch.add_port(i)
        child = controller.attach(job, i, i)
        address = replace(SWITCH, port=controller.program.udp_port)
        config = WorkerConfig(i, 2, life=job.life, values=32, slots=1, protocol=name, address=child.address,
                              switch=address, rto_min=1.0, rto_max=1.0, timeout=1e5)
        machines.append(WorkerMachine(f"h{i}", Worker(config), [Tensor(inputs[i], np.sum(inputs, axis=0, dtype=np.int32))]))
        wires.append(((f"h{i}", 0), ("s1", i)))
    explorer = Explorer([*machines, SwitchMachine("s1", switch)], wires, lambda frame: frame[42:50].hex())
    report = explorer.explore(24, Budget(losses=1, duplicates=1, timeouts=2))
    assert report.violation is None, "\n".join((report.violation, *report.steps))
    assert report.states > 200


def test_the_commands_walk_and_simulate_an_own_protocol(capsys):
    name = str(LOCKSTEP / "lockstep.p4")
    assert cli.main(["explore", "--protocol", name]) == cli.main(["explore", "--program", name, "--tensors", "2"]) == 0
    out = capsys.readouterr().out
    assert len(re.findall(r"from packet \d+: \d+ states \(all of them\)", out)) == 6
    assert out.count("no wrong sum; the job can finish from every state") == 2
    assert cli.main(["simulate", "--protocol", name, "--events", "6000", "--length", "3000"]) == 0
    assert "no wrong sum, no leaked slot or aggregator, no stuck job" in capsys.readouterr().out


def test_the_commands_find_what_is_wrong_with_an_own_protocol(tmp_path, capsys):
    """Rows of any earlier job are taken for this one's, and packets of any round are added."""
    for path in files(LOCKSTEP, "lockstep.*"):
        shutil.copy(path, tmp_path)
    program, name = tmp_path / "lockstep.p4", str(tmp_path / "lockstep.p4")
    right = program.read_text()
    program.write_text(right.replace("!fresh && number != hdr.lockstep.number", "false"))
    assert cli.main(["explore", "--protocol", name, "--first", "0"]) == 1
    assert re.search(r"violation: h\d .*\n  1. arrives: packet [0-9a-f ]+, h1 to s1\n", capsys.readouterr().out)
    program.write_text(right.replace("incarnation != meta.incarnation ||", "seen == 0 ||"))
    assert cli.main(["simulate", "--protocol", name]) == 1
    assert re.search(r"seed \d+: (a wrong sum|stuck)", capsys.readouterr().out)


@pytest.mark.parametrize(("reduced", "status"), [
    ("tensors.sum(axis=0, dtype='int32')", 0), ("tensors.max(axis=0)", 1), ("None", 2)])
def test_the_commands_compare_a_reduction_of_its_own(tmp_path, capsys, reduced, status):
    for path in files(LOCKSTEP, "lockstep.*"):
        text = path.read_text().replace("1 << INA_SUM", "1 << INA_OWN")
        (tmp_path / path.name).write_text(text.replace(
            "\n    def child(", f"\n    def reduced(self, tensors):\n        return {reduced}\n\n    def child("))
    name = str(tmp_path / "lockstep.p4")
    assert cli.main(["explore", "--protocol", name, "--first", "0"]) == status
    assert cli.main(["simulate", "--protocol", name, "--events", "3000", "--length", "3000"]) == status
    assert (capsys.readouterr().err.count("its PROGRAM.reduced tells no other results") == 2) == (status == 2)


def test_a_protocol_that_lacks_what_an_experiment_needs_is_refused_where_it_was_named(tmp_path, capsys):
    for path in files(LOCKSTEP, "lockstep.*"):
        (tmp_path / path.name).write_text(path.read_text().replace("1 << INA_SUM", "1 << INA_OWN"))
    name, message = str(tmp_path / "lockstep.p4"), "has no sums: it declares a reduction of its own"
    experiment = tmp_path / "mine.toml"
    experiment.write_text(f"workers = 2\nprotocol = {name!r}\n")
    assert cli.main(["run", "--protocol", name]) == cli.main(["run", str(experiment)]) == 2
    argument, line = capsys.readouterr().err.splitlines()
    assert argument.startswith(f"ina: command line: protocol = {name!r}: ") and message in argument
    assert line.startswith(f"ina: {experiment}:2: protocol = {name!r}: ") and message in line


def test_a_job_of_a_protocol_without_trees_is_refused_at_several_switches(capsys):
    name = str(LOCKSTEP / "lockstep.p4")
    assert cli.main(["explore", "--protocol", name, "--topology", "leaf-spine leaves=2 spines=1 hosts=1"]) == 2
    message = "the protocol lockstep adds up at one switch, but the tree of its workers goes over s3, s1, s2"
    assert message in capsys.readouterr().err


def test_what_an_own_protocol_raises_for_a_job_is_a_refusal(tmp_path):
    """The switch process answers the rank with it, and lives."""
    for path in files(LOCKSTEP, "lockstep.*"):
        (tmp_path / path.name).write_text(path.read_text().replace(
            'params = {"full"', 'raise ValueError("not on Sundays")\n        params = {"full"'))
    program = tmp_path / "lockstep.p4"
    built = compile_program(program, defines={"VALUES": "32", "JOBS": "1"}, include_dirs=[ROOT / "p4"])
    controller = Controller(Switch(built.so_path), 1, protocol=str(program))
    with pytest.raises(AdmissionError, match="job 'late': the protocol lockstep refuses it: not on Sundays") as refused:
        controller.admit("late", 2, 1)
    assert refused.value.code == "invalid" and not controller.jobs


@pytest.mark.parametrize(("worker", "message"), [
    ("int x = ;", "pigeon.c does not compile:"),
    ("int ina_dove;", "no `const struct ina_protocol ina_pigeon`"),
])
def test_an_own_worker_that_is_none(tmp_path, worker, message):
    for suffix, text in ((".p4", ""), (".c", worker), (".py", "")):
        (tmp_path / f"pigeon{suffix}").write_text(text)
    with pytest.raises(ValueError, match=message):
        protocols.named(str(tmp_path / "pigeon.p4"))


@pytest.fixture
def own(tmp_path, monkeypatch):
    """lockstep in a folder of its own that nobody has loaded, a cache of its own; what compiles it and says where it lies."""
    monkeypatch.setenv("INA_CACHE", str(tmp_path / "cache"))
    for suffix in (".p4", ".c", ".py"):
        shutil.copy(LOCKSTEP / f"lockstep{suffix}", tmp_path)

    def compile_it():
        protocols._load.cache_clear()
        protocols.named(str(tmp_path / "lockstep.p4"))
        return set((tmp_path / "cache").glob("lockstep-worker-*.so"))

    return compile_it


def test_an_own_worker_is_compiled_again_when_something_it_depends_on_has_changed(tmp_path, monkeypatch, own):
    """Its text, what lies beside it, the C compiler, the headers that the compiled part was made with; and for nothing else."""
    worker, beside = tmp_path / "lockstep.c", tmp_path / "mine.h"
    beside.write_text("enum { MINE = 1 };\n")
    worker.write_text('#include "mine.h"\n' + worker.read_text() + "int ina_mine = MINE;\n")
    first = own()
    assert len(first) == 1
    mtime = next(iter(first)).stat().st_mtime_ns
    worker.write_text("/* says nothing new */" + worker.read_text())
    os.utime(beside)
    assert own() == first and next(iter(first)).stat().st_mtime_ns == mtime
    beside.write_text("enum { MINE = 2 };\n")
    assert len(own()) == 2
    compiler = tmp_path / "other-cc"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && echo other && exit\nexec cc "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert len(own()) == 3
    monkeypatch.delenv("CC")
    assert len(own()) == 3
    newer = ffi.new("char[]", b"headers of a newer version")
    monkeypatch.setattr(abi, "lib", SimpleNamespace(INA_HEADERS=newer))
    monkeypatch.setattr(paths, "host_headers", lambda: "headers of a newer version")
    assert len(own()) == 4


def test_headers_that_the_compiled_part_was_not_made_with_are_refused(tmp_path, monkeypatch, own):
    """A worker compiled with them would have other structures than the part that calls it: also where it was cached before."""
    own()
    checkout = tmp_path / "checkout"
    for folder in ("host", "p4"):
        shutil.copytree(ROOT / folder, checkout / folder)
    monkeypatch.setattr(paths, "PACKAGE", checkout / "ina")
    own()  # the same headers elsewhere
    header = checkout / "host/protocol/protocol.h"
    header.write_text(header.read_text().replace("uint32_t job; ", "uint64_t more; uint32_t job; "))
    with pytest.raises(ValueError, match="made with other headers than those in .*checkout/host: build it again"):
        own()


def test_a_program_alone_is_no_protocol(tmp_path):
    (tmp_path / "pigeon.p4").write_text((LOCKSTEP / "lockstep.p4").read_text())
    names = ", ".join(protocols.names())
    with pytest.raises(ValueError, match=f"expected one of {names}, or the path of a .p4"):
        protocols.named(str(tmp_path / "pigeon.p4"))
    with pytest.raises(ControlError, match="no aggregation program that the controller knows"):
        start_server(tmp_path / "pigeon.p4", {"VALUES": "32"}).close()


@pytest.mark.parametrize(("old", "new"), [("@ina_program", "@program"), ('protocol="lockstep"', 'protocol="pigeon"')])
def test_a_program_that_does_not_state_its_protocol_is_told_what_to_write(tmp_path, old, new):
    for path in files(LOCKSTEP, "lockstep.*"):
        (tmp_path / path.name).write_text(path.read_text().replace(old, new))
    message = r'`main` needs the annotation @ina_program\[protocol="NAME", .*where NAME is lockstep '
    with pytest.raises(ControlError, match=message):
        start_server(tmp_path / "lockstep.p4", {"VALUES": "32"}).close()


@pytest.mark.parametrize(
    ("suffix", "old", "new", "message"),
    [
        (".c", "ina_lockstep", "ina_lockstp", r"lockstep\.c: no `const struct ina_protocol ina_lockstep`"),
        (".c", "static int ", "static itn ", r"lockstep\.c:\d+:\d+: error: unknown type name"),
        (".py", "PROGRAM = ", "PROGRM = ", r"lockstep\.py: no PROGRAM"),
        (".py", "reserves = False", "reserve = False", r"lockstep\.py: PROGRAM has 'reserve', .*did you mean 'reserves'"),
        (".py", "max_workers, max_jobs", "_workers, max_jobs", r"lockstep\.py: PROGRAM has no max_workers, which every"),
        (".py", "PROGRAM = Lockstep()", "PROGRAM = Lockstp()", r"lockstep\.py:33: NameError: name 'Lockstp'"),
        (".py", "trees = False", "trees = 0", r"lockstep\.py: PROGRAM\.trees: 0, expected True or False"),
        (".py", "trees = False", "number_bits = 64", r"lockstep\.py: PROGRAM\.number_bits: 64, expected 8 to 63"),
        (".py", "trees = False", "number_bits = 'x'", r"lockstep\.py: PROGRAM\.number_bits: 'x', expected a whole number from 8"),
        (".c", "    .next_timer = next_timer,", "", r"lockstep\.c: ina_lockstep has no next_timer, which every protocol has"),
        (".c", "    .name = ", "    .max_workers = 1025, .name = ",
         r"lockstep\.c: ina_lockstep\.max_workers: 1025, expected at most 1024"),
        (".py", "class Lockstep", "clas Lockstep", r"lockstep\.py:\d+: SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_protocol_is_one_message_of_an_experiment(tmp_path, capsys, suffix, old, new, message):
    for path in files(LOCKSTEP, "lockstep.*"):
        shutil.copy(path, tmp_path)
    wrong = tmp_path / f"lockstep{suffix}"
    assert old in wrong.read_text()
    wrong.write_text(wrong.read_text().replace(old, new))
    name = str(tmp_path / "lockstep.p4")
    assert cli.main(["experiment", "run", "two-jobs", "--set", f"protocol={name}", "--results", str(tmp_path)]) == 2
    output = capsys.readouterr().err
    assert output.startswith(f"ina: command line: protocol = '{name}': ") and re.search(message, output)
