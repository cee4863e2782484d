"""The command line itself: what it imports, its help, and its errors."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import shutil
import sys
from pathlib import Path

import child
import pytest
from capabilities import need

from ina import cli
from ina.aggregation.worker import JobTimeout
from ina.aggregation.worker.errors import Event
from ina.base import documents, error_text, paths
from ina.cli import experiment
from ina.cli.commands import COMMANDS, GROUPS
from ina.lab import library, plan
from ina.worlds.virtual.explorer import Explorer
from ina.worlds.virtual.simulation import Simulation

HEAVY = {"numpy", "torch", "grpc", "google", "rich", "scapy", "matplotlib", "networkx", "cffi", "ina._native"}


@pytest.mark.build
@pytest.mark.parametrize("argv", [["--version"], ["--help"], ["-h"], ["experimnt"], ["run", "--help"], ["report", "--help"]])
def test_what_needs_no_package_imports_none(argv):
    """Neither `ina --version` nor help of `ina` and its largest command wait for anything."""
    code = "import sys\nfrom ina import cli\ntry:\n    cli.main(sys.argv[1:])\nexcept SystemExit:\n    print(*sys.modules)"
    done = child.run([sys.executable, "-c", code, *argv], check=True)
    modules = set(done.stdout.splitlines()[-1].split())
    assert {"argparse", "ina.cli"} <= modules and not modules & HEAVY


WORK = {"numpy", "rich", "torch", "grpc", "matplotlib", "ina.p4.compiler.ast", "ina.p4.runtime"}


@pytest.mark.build
@pytest.mark.parametrize("argv", [*([name, "--help"] for name in COMMANDS), ["experiment", "list"]], ids=" ".join)
def test_options_are_known_without_what_the_command_imports(argv):
    code = "import sys\nfrom ina import cli\ntry:\n    cli.main(sys.argv[1:])\nfinally:\n    print(*sys.modules)"
    modules = child.run([sys.executable, "-c", code, *argv], check=True).stdout
    assert WORK.isdisjoint(modules.splitlines()[-1].split())


@pytest.mark.fast
def test_the_list_of_experiments_counts_the_points_of_each():
    for path in (*library.available(), *library.large()):
        loaded = plan.load(path)
        kind, world = loaded.base.kind, loaded.base.world
        assert library.summary(path) == f"{len(loaded.points):>3} x {kind} ({world}): {loaded.about}"


@pytest.mark.fast
def test_help_has_every_command_in_a_group(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert stopped.value.code == 0 and max(map(len, text.splitlines())) <= 110
    assert [name for name in COMMANDS if f"  {name} " in text] == list(COMMANDS)
    assert all(f"{group}:\n" in text for group in GROUPS)


@pytest.mark.fast
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_parses(name, capsys):
    """The example is in the command's help, and its options exist."""
    with pytest.raises(SystemExit) as stopped:
        cli.main([name, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert stopped.value.code == 0 and COMMANDS[name].example in text
    assert COMMANDS[name].example.startswith(f"ina {name}")
    argv = shlex.split(COMMANDS[name].example)[1:]
    assert callable(cli.parser(argv).parse_args(argv).main)


@pytest.mark.fast
@pytest.mark.parametrize(("argv", "message"), [
    ("experimnt", "ina: no command 'experimnt'; did you mean 'experiment'?"),
    ("xyzzy", "ina: no command 'xyzzy';"),
    ("--verison", "ina: no option '--verison'; did you mean '--version'?"),
    ("", "ina: the following arguments are required: COMMAND;"),
    ("experiment", "ina experiment: the following arguments are required: COMMAND;"),
    ("experiment lst", "ina experiment: no command 'lst'; did you mean 'list'?"),
    ("topo xyzzy", "ina topo: no command 'xyzzy'; there are: list, show;"),
    ("run --stepz 3", "ina run: no option '--stepz'; did you mean '--steps'?"),
    ("run --stepz=3", "ina run: no option '--stepz=3'; did you mean '--steps'?"),
    ("wire show extra", "ina wire show: one argument too many: 'extra';"),
    ("run --switch bmv", "ina run: argument --switch: 'bmv': expected embedded or"),
    ("explore --dtype int", "ina explore: argument --dtype: invalid choice: 'int' (choose from"),
    ("controller --topolgy x", "ina controller: no option '--topolgy'; did you mean '--topology'?"),
    ("run -x", "ina run: one argument too many: '-x';"),
    ("topo show star --rate 100Gb", "ina topo show: argument --rate: '100Gb': expected a number, in b/s, such as 10e9;"),
    ("net up leaf-spine --uplink 1G", "ina net up: argument --uplink: '1G': expected a number, in b/s, such as 10e9;"),
    ("net up star --queue 1MB", "ina net up: argument --queue: '1MB': expected a whole number, in B, such as 1500;"),
    ("experiment --jsn list", "ina experiment: no option '--jsn';"),
    ("trace", "ina trace: the following arguments are required: program, packets;"),
    ("trace learn.p4 00 --port 999", "ina trace: argument --port: 999: expected 0 to 511 (programs have 9 bits for it);"),
    ("net up star --program", "ina net up: argument --program: expected one argument;"),
    ("exercise", "ina exercise: the following arguments are required: ACTION;"),
    ("exercise checkup learn.p4", "ina exercise: no command 'checkup'; did you mean 'check'?"),
    ("exercise show", "ina exercise show: the following arguments are required: name;"),
    ("exercise check", "ina exercise check: the following arguments are required: PATH;"),
    ("exercise check learn.p4 --deadline 0", "ina exercise check: argument --deadline: 0: expected 1 to 3,600;"),
    ("exercise check learn.p4 --deadline x", "ina exercise check: argument --deadline: 'x': expected a number from 1 to 3,600;"),
])
def test_a_wrong_command_line_is_one_line(argv, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(argv.split())
    output = capsys.readouterr()
    assert (stopped.value.code, output.out) == (2, "")
    assert output.err.startswith(message) and output.err.count("\n") == 1 and output.err.endswith(" --help says more\n")


ENTRIES = {  # files with one mistake each, in the second line
    "table": "add addressen hdr.ethernet.dst:1 forward(port:1)", "key": "add addresses hdr.ethernet.dts:1 forward(port:1)",
    "action": "add addresses hdr.ethernet.dst:1 fwd(port:1)", "parameter": "add addresses hdr.ethernet.dst:1 forward(prt:1)",
    "wide": "add addresses hdr.ethernet.dst:1 forward(port:512)", "command": "ad addresses", "group": "mc_node_associate 1 0",
}
STEPS = "parse, forward, count, add, versions, loss, multicast, tree"
ACTIONS = "Forward.forward, Forward.flood, Forward.drop"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a program, a file that is no text, and a folder, to be where the command runs."""
    shutil.copy(next(paths.root().glob("examples/**/learn.p4")), tmp_path)
    (tmp_path / "bin").write_bytes(b"\xff\xfe\0bad")
    (tmp_path / "dir").mkdir()
    for name, text in ENTRIES.items():
        (tmp_path / f"{name}.stf").write_text(f"# a comment\n{text}\n")
    monkeypatch.chdir(tmp_path)


FOLDER = "Is a directory: expected a file: name one in this folder, or elsewhere"
CONTROLLER = "controller --topology star --switch s1=127.0.0.1:1 --name ina-test-nowhere --insecure --state"


@pytest.mark.build
@pytest.mark.parametrize(("argv", "status", "message"), [
    ("explore --program nowhere.p4", 2, "ina: nowhere.p4: No such file or directory\n"),
    ("simulate --program nowhere.p4", 2, "ina: nowhere.p4: No such file or directory\n"),
    ("tofino check nowhere.p4", 2, "ina: nowhere.p4: No such file or directory\n"),
    ("trace learn.p4 00 --entries bin", 1, "ina: bin: byte 0 is not UTF-8\n"),
    ("run --pcap learn.p4", 2, "ina: command line: pcap = 'learn.p4': expected a folder\n"),
    ("net up star --protocol learn.p4", 1, "ina: --protocol learn.p4: a program alone, but switches of these networks serve "
     "jobs, whose worker (.c) and entries (.py) are expected beside it (docs/guide/new-protocol.md); --program learn.p4 has the "
     "switches run it, whatever it does\n"),
    ("net up star --entries a.stf", 1, "ina: --entries: expected --program FILE.p4 with it; the controller writes the entries of "
     "protocols\n"),
    ("net up star --program learn.p4 --values 32", 1, "ina: --values: expected without --program, which takes -D NAME=VALUE\n"),
    ("net up star --program nowhere.p4", 1, "ina: --program nowhere.p4: there is no such file\n"),
    ("net up star --program learn.p4 --entries bin", 1, "ina: bin: byte 0 is not UTF-8\n"),
    ("net up star --program learn.p4 --entries s7=learn.p4", 1, "ina: entries for 's7': star has the switches s1\n"),
    ("net up star --program learn.p4 --entries nowhere.stf", 1, "ina: nowhere.stf: No such file or directory\n"),
    ("net up star --program learn.p4 --entries dir", 1, f"ina: dir: {FOLDER}\n"),
    ("net up star --program dir", 1, "ina: --program dir: a folder: expected a file in it\n"),
    ("net up star --program learn.p4 --entries s1=", 1, "ina: --entries s1=: expected FILE.stf, or SWITCH=FILE.stf such as "
     "s1=a.stf\n"),
    ("net up star --program learn.p4 --entries =table.stf", 1, "ina: --entries =table.stf: expected FILE.stf, or "
     "SWITCH=FILE.stf such as s1=table.stf\n"),
    ("net up star --program learn.p4 -D 1x", 1, "ina: -D 1x: expected NAME or NAME=VALUE, with a name of letters, digits "
     "and _\n"),
    ("net up star --program learn.p4 --protocol atp", 1, "ina: --protocol: expected without --program, which takes "
     "-D NAME=VALUE\n"),
    ("net up str --program learn.p4", 1, "ina: there is no topology 'str'; there are: fat-tree, leaf-spine, star, topoopt, and "
     "files that end with .toml\n"),
    ("trace learn.p4 00 --entries table.stf", 1, "ina: table.stf:2: table 'addressen' is unknown; there are: Forward.addresses; "
     "what stands in a control or parser that the program does not use is left out\n"),
    ("trace learn.p4 00 --entries key.stf", 1, "ina: key.stf:2: key 'hdr.ethernet.dts' is unknown; there are: "
     "hdr.ethernet.dst\n"),
    ("trace learn.p4 00 --entries action.stf", 1, f"ina: action.stf:2: action 'fwd' is unknown; there are: {ACTIONS}\n"),
    ("trace learn.p4 00 --entries parameter.stf", 1, "ina: parameter.stf:2: action Forward.forward has no parameter 'prt'; it "
     "has: port\n"),
    ("trace learn.p4 00 --entries wide.stf", 1, "ina: wide.stf:2: table Forward.addresses: action Forward.forward(port): 512 "
     "does not fit 9 bits: expected 0..511\n"),
    ("trace learn.p4 00 --entries command.stf", 1, "ina: command.stf:2: unknown command 'ad'; did you mean 'add'?\n"),
    ("trace learn.p4 00 --entries group.stf", 1, "ina: group.stf:2: multicast group 1 is unknown; there are: none "
     "(mc_mgrp_create makes one)\n"),
    ("trace learn.p4 0g", 1, "ina: 0g: there is no such pcap file, and a frame is hexadecimal digits\n"),
    ("stf learn.p4 nowhere.stf", 1, "ina: nowhere.stf: No such file or directory\n"),
    ("exercise show pars", 2, f"ina: no step 'pars'; did you mean 'parse'?; the course has {STEPS}\n"),
    ("exercise check learn.p4 --step pars", 2, f"ina: no step 'pars'; did you mean 'parse'?; the course has {STEPS}\n"),
    ("exercise check nowhere.p4", 2, "ina: nowhere.p4: No such file or directory\n"),
    ("exercise check dir", 2, "ina: dir: no program (*.p4) in this folder; ina exercise new NAME dir writes a skeleton there\n"),
    ("doctor --slots 3", 2, "ina: --slots 3: expected a power of two\n"),
    ("report dir", 1, "ina: dir: neither experiment.json (of a sweep) nor metrics.json (of a run) is there\n"),
    ("switch run learn.p4 --pipes 2", 1, "ina: --pipes 2: learn.p4 is a program for v1model, which has no pipes\n"),
    (f"{CONTROLLER} bin", 1, "ina: bin: not a text file: expected UTF-8: not a controller's state; move it away to begin without "
                             "jobs\n"),
    (f"{CONTROLLER} dir", 1, f"ina: dir: {FOLDER}\n"),
    ("compile dir", 1, f"ina: dir: {FOLDER}\n"),
    ("compile learn.p4 -o dir", 1, f"ina: dir: {FOLDER}\n"),
    ("compile learn.p4 -o bin/learn.so", 1, "ina: bin/learn.so: Not a directory: expected a folder: a part of this path is a "
     "file\n"),
    ("explain dir", 1, f"ina: dir: {FOLDER}\n"),
    ("run dir", 2, f"ina: dir: {FOLDER}\n"),
    ("switch run bin", 1, "ina: cannot load switch program: {folder}/bin: file too short: expected a file that ina compile -o "
     "FILE.so writes\n"),
    ("exercise new parse bin", 2, "ina: bin is a file: expected a folder for parse.p4, one that there is or a new one, such as: "
     "ina exercise new parse class\n"),
    ("exercise new parse bin/class", 2, "ina: bin/class: Not a directory: expected a folder: a part of this path is a file\n"),
])
def test_a_wrong_file_or_value_is_one_line(argv, status, message, folder, capsys):
    """Also for commands that would first wait for something else, and those that say where results go."""
    need("cc", *(["p4runtime"] if argv.startswith(("controller", "switch")) else []))
    assert cli.main(argv.split()) == status
    assert capsys.readouterr().err == message.replace("{folder}", os.getcwd())


@pytest.mark.fast
@pytest.mark.parametrize(("argv", "message"), [
    (["compile", ""], "argument program: an empty name: expected that of a file or folder, such as ./name"),
    (["trace", "learn.p4", "00", "--entries="], "argument --entries: an empty name: expected that of a file or folder"),
    (["exercise", "new", "parse", ""], "argument folder: an empty name: expected that of a file or folder"),
    (["exercise", "check", "learn.p4", ""], "argument PATH: an empty name: expected that of a file or folder"),
    (["compile", "learn.p4", "-I", "bin"], "argument -I: bin: a file: expected a folder"),
    (["p4", "equal", "learn.p4", "learn.p4", "-I", "nowhere"],
     "argument -I: nowhere: there is nothing of this name: expected a folder"),
    (["compile", "learn.p4", "-I", ""], "argument -I: an empty name: expected a folder"),
])
def test_an_empty_name_or_no_folder_is_told_for_every_option(argv, message, folder, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(argv)
    assert stopped.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.build
def test_files_of_windows_are_read_and_what_is_no_text_is_told(folder, capsys):
    """Lines end with CR LF, and some editors begin a file with a mark of the byte order."""
    need("cc")
    mark = b"\xef\xbb\xbf"
    for name in ("learn.p4", "learn.stf"):
        shutil.copy(paths.root() / "examples" / "learn" / name, name)
        data = mark + open(name, "rb").read().replace(b"\n", b"\r\n")
        open(name, "wb").write(data)
    assert cli.main(["stf", "learn.p4"]) == 0
    assert cli.main(["trace", "learn.p4", "00" * 16, "--entries", "learn.stf"]) == 0
    open("star.toml", "wb").write(mark + b'name = "two"\r\n[[link]]\r\nbetween = ["h1", "s1"]\r\n')
    assert documents.document(Path("star.toml")).content == {"name": "two", "link": [{"between": ["h1", "s1"]}]}
    text = open("learn.p4", "rb").read()
    open("latin.p4", "wb").write(text.replace(b"/*", b"/* r\xe9sum\xe9 ", 1) + b"// r\xe9sum\xe9\r\n")
    assert cli.main(["compile", "latin.p4"]) == 0
    capsys.readouterr()
    open("latin.p4", "wb").write(text + b"r\xe9sum\xe9\r\n")
    assert cli.main(["compile", "latin.p4"]) == 1
    assert "bytes that are not UTF-8" in (message := capsys.readouterr().err) and "save the file as UTF-8 text" in message


@pytest.mark.fast
@pytest.mark.parametrize(("name", "message"), [
    ("learn.p4", "no line 'exercise: NAME' as in the skeleton: put it back, or name the step with --step NAME"),
    ("bin", "byte 0 is not UTF-8: save the file as UTF-8 text"),
    ("pipe", "a folder, a device, a pipe or a socket: expected a file with a program; save it as one"),
])
def test_a_file_that_is_no_program_of_the_course_is_named_with_the_remedy(name, message, folder, capsys):
    os.mkfifo("pipe")
    assert cli.main(["exercise", "check", name]) == 2
    assert capsys.readouterr().out == f"{name}: stopped\n{name}: {message}\n"


@pytest.mark.fast
@pytest.mark.parametrize(("error", "message"), [
    (JobTimeout(Event(0, 1, False, 3, 7, (1,), 0)), str(JobTimeout(Event(0, 1, False, 3, 7, (1,), 0)))),
    (FileNotFoundError(2, "No such file", "a"), "a: No such file\n"),
    (OSError(28, "No space left"), "results: No space left\n"),
    (ValueError("wrong"), "wrong\n"),
])
def test_an_error_of_an_experiment_is_told_as_it_is(error, message, capsys):
    """Also those of ours that are of the system's kinds."""
    def action(args, console):
        raise error

    assert experiment._guarded(argparse.Namespace(action=action, results="results", then="")) == 1
    assert capsys.readouterr().err.startswith(f"ina: {message}")


@pytest.mark.build
@pytest.mark.parametrize(("argv", "method"), [("simulate --seed 7 --length 50", Simulation), ("explore", Explorer)])
def test_an_error_after_the_start_is_not_told_as_one_of_the_arguments(argv, method, monkeypatch):
    need("cc")

    def fail(*args, **keys):
        raise ValueError("in the middle")

    monkeypatch.setattr(method, "run" if method is Simulation else "saturate", fail)
    with pytest.raises(ValueError, match="in the middle"):
        cli.main(argv.split())


@pytest.mark.fast
def test_a_number_that_is_none_is_named(capsys):
    with pytest.raises(SystemExit):
        cli.main([*CONTROLLER.split(), "x", "--packet-lifetime", "long"])
    assert "argument --packet-lifetime: long: expected more than 0 and less than" in capsys.readouterr().err


@pytest.mark.fast
def test_an_error_of_the_system_names_its_file():
    assert error_text.line(FileNotFoundError(2, "No such file", "a")) == "a: No such file"
    assert error_text.line(OSError(2, "cannot create a switch")) == "cannot create a switch"
    assert error_text.line(TimeoutError("no answer")) == "no answer" and error_text.line(ValueError("wrong")) == "wrong"


@pytest.mark.fast
def test_where_a_switch_listens():
    from ina.cli.switch import listen_name

    assert listen_name("lo") == listen_name("127.0.0.1") == "tcp:127.0.0.1:5588"
    assert listen_name("lo:6000") == listen_name("127.0.0.1:6000") == "tcp:127.0.0.1:6000"
    for where, words in (("127.0.0.1:", "is no TCP port"), ("127.0.0.1:0", "is no TCP port"), ("lo:65536", "is no TCP port"),
                         ("0.0.0.0", "expected that of one network interface"), ("224.0.0.1", "expected that of one"),
                         ("127.255.255.255", "expected that of one"),
                         ("wlan-of-16-bytes:6000", "'wlan-of-16-bytes' is no name .* it has 16 bytes, expected 1 to 15")):
        with pytest.raises(ValueError, match=words):
            listen_name(where)
    with pytest.raises(OSError, match="network interface nowhere0"):
        listen_name("nowhere0")


@pytest.mark.fast
def test_a_network_interface_without_an_ipv4_address_is_named(monkeypatch):
    from ina.cli import switch
    from ina.net import interfaces

    def none(*arguments):
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(interfaces.fcntl, "ioctl", none)
    with pytest.raises(OSError, match="network interface eth7 has no IPv4 address"):
        switch.listen_name("eth7")


@pytest.mark.fast
@pytest.mark.parametrize("option", [["-i", "1@lo"], ["--grpc", "127.0.0.1:9000"], ["--no-p4"], ["--pipes", "1"], ["--pcap"],
                                    ["--insecure"], ["--tls", "."], ["--device-id", "2"]])
def test_a_switch_that_listens_has_no_other_ports(capsys, option):
    assert cli.main(["switch", "run", "--listen", "lo", *option]) == 1
    assert "takes PROGRAM, -D and options of its own only" in (text := capsys.readouterr().err) and "leave --" in text


@pytest.mark.fast
@pytest.mark.parametrize("where", ["dpdk:17:00.0", "dpdk", "shm", "udp:127.0.0.1:5001", "udp@127.0.0.1:5001"])
def test_a_switch_listens_at_no_other_kind_of_port(capsys, where):
    assert cli.main(["switch", "run", "--listen", where]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "is a kind of port; workers on other machines share one of the kernel's network cards" in error


@pytest.mark.fast
@pytest.mark.parametrize(("options", "words"), [(["--listen", "lo", "--job-slots", "96"], "expected a power of two"),
                                                (["switchml", "--job-slots", "64"], "it belongs to --listen")])
def test_slots_of_jobs_are_a_power_of_two_of_a_switch_that_listens(capsys, options, words):
    assert cli.main(["switch", "run", *options]) == 1
    assert "--job-slots" in (error := capsys.readouterr().err) and words in error


@pytest.mark.fast
def test_a_switch_needs_a_program_or_a_controller_that_brings_one(capsys):
    assert cli.main(["switch", "run", "-i", "1@lo"]) == 1
    assert "or --no-p4" in capsys.readouterr().err


@pytest.mark.fast
@pytest.mark.parametrize("arguments, steps", [
    ([], 100), (["--workers", "2"], 100), (["--epochs", "2"], 0), (["--steps", "7"], 7), (["--set", "epochs=1"], 0),
    (["--set", "evaluate=20", "--set", "target=0.8"], 0)])
def test_the_first_run_in_the_testbed_is_short_and_says_so(arguments, steps, monkeypatch, capsys):
    chosen = []
    monkeypatch.setattr("ina.worlds.testbed.mininet.missing", lambda: "")
    monkeypatch.setattr("ina.lab.run.run", lambda config, root, console: chosen.append(config))
    monkeypatch.setattr("ina.lab.kinds.training.Training.check_packages", lambda config: None)
    assert cli.main(["run", "--world", "auto", *arguments]) == 0
    assert [config.steps for config in chosen] == [steps]
    assert ("The first 100 steps of each training; all of them: --epochs 2" in capsys.readouterr().out) == (steps == 100)
    assert cli.main(["run", "--world", "local", *arguments]) == 0, "there the whole takes half a minute"
    assert chosen[1].steps == (7 if steps == 7 else 0)


@pytest.mark.fast
def test_an_experiment_of_a_file_keeps_its_length_in_the_testbed(tmp_path, monkeypatch, capsys):
    chosen = []
    monkeypatch.setattr("ina.lab.run.run", lambda config, root, console: chosen.append(config))
    monkeypatch.setattr("ina.lab.kinds.training.Training.check_packages", lambda config: None)
    (tmp_path / "mine.toml").write_text("world = 'testbed'\n")
    assert cli.main(["run", str(tmp_path / "mine.toml")]) == 0
    assert [config.steps for config in chosen] == [0] and not capsys.readouterr().out
