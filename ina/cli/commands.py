"""The commands of ``ina``: the name, the module that adds it, one line of help, and an example. Light: it imports nothing."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command. ``module``: its ``add_arguments`` adds it, and maybe others; it is imported when the command is called."""

    name: str
    module: str
    summary: str
    example: str


_EXPERIMENT, _P4, _JOBS, _EXPLORE = "ina.cli.experiment", "ina.cli.p4", "ina.cli.jobs", "ina.cli.explore"

GROUPS: dict[str, tuple[Command, ...]] = {
    "train and measure": (
        Command("run", _EXPERIMENT, "train a model through the P4 switch and over Gloo, and compare", "ina run --steps 50"),
        Command("experiment", _EXPERIMENT, "list, show and run the experiments of experiments/", "ina experiment run loss-sweep"),
        Command("figures", _EXPERIMENT, "make published figures again in virtual time", "ina figures switchml-loss"),
        Command("report", _EXPERIMENT, "compare results folders in one HTML page", "ina report results/loss-sweep-*"),
        Command("plot", "ina.cli.plot", "draw a figure for a paper: PDF, SVG, PNG or CSV",
                "ina plot results/loss-sweep-* -o loss.pdf"),
        Command("why", _EXPERIMENT, "say what bounds a run: link, pool, processor, ...", "ina why results/loss-sweep-*"),
        Command("doctor", "ina.cli.doctor", "check this machine, and say what will limit a run", "ina doctor --quick"),
        Command("cluster", "ina.cli.cluster", "measure between servers, and say what a switch process can win there",
                "ina cluster check hosts.txt"),
    ),
    "write P4": (
        Command("programs", "ina.cli.shipped", "list the switch programs of the package, print one", "ina programs switchml"),
        Command("examples", "ina.cli.shipped", "list the examples of the package, copy one", "ina examples copy learn"),
        Command("compile", _P4, "compile a P4_16 program to a native switch program", "ina compile switchml -D VALUES=64"),
        Command("explain", _P4, "show what a program is: headers, parser, tables, memory", "ina explain examples/learn/learn.p4"),
        Command("trace", _P4, "follow packets through a program: states, tables, registers",
                "ina trace examples/learn/learn.p4 0000000000030000000000010800aabb --port 1 --entries examples/learn/learn.stf"),
        Command("stf", _P4, "run p4c's STF tests: what goes in, what must come out", "ina stf examples/learn/learn.p4"),
        Command("exercise", "ina.cli.exercise", "a course for students: steps, skeletons, and checks of what they write",
                "ina exercise new parse class"),
        Command("p4", "ina.cli.equal", "compare a P4 program with its twin", "ina p4 equal switchml tofino/switchml"),
        Command("protocol", "ina.cli.protocol", "begin a protocol of your own: program, worker, entries, test, experiment",
                "ina protocol new mine --operation maximum"),
        Command("wire", "ina.cli.wire", "show the wire layout, as a table, C or a Wireshark dissector", "ina wire show"),
    ),
    "build networks": (
        Command("topo", "ina.cli.topo", "list topologies, draw one and a job's tree", "ina topo show fat-tree --job h1-h8"),
        Command("net", "ina.cli.net", "bring a Mininet network up around the switch (needs root)", "ina net up star --hosts 4"),
    ),
    "look at what runs": (
        Command("jobs", _JOBS, "show jobs with their switches, slots and workers", "ina jobs"),
        Command("switches", _JOBS, "show switches with their pools and jobs", "ina switches"),
        Command("counters", _JOBS, "show what the switch programs, ports and links have counted", "ina counters --json"),
        Command("top", _JOBS, "show jobs and the traffic of ports and links, again and again", "ina top --delay 2"),
        Command("dash", "ina.cli.dash", "serve a page to watch in a browser: networks, jobs, counters", "ina dash"),
    ),
    "run switches and hardware": (
        Command("switch", "ina.cli.switch", "run an embedded switch with a P4Runtime server",
                "ina switch run examples/learn/learn.p4 -i 1@veth0"),
        Command("controller", "ina.cli.controllers", "run the controller of switches that are driven over P4Runtime",
                "ina controller --topology racks.toml --switch s1=tor1:9559 --name tcp:0.0.0.0:5588 --state jobs.json"),
        Command("ps", "ina.aggregation.controller.ps_process", "run the parameter server of a switch process",
                "ina ps --switch /run/ina/controller.sock"),
        Command("deploy", "ina.cli.deploy", "write an experiment's ports, tables and groups to real switches",
                "ina deploy wedge.toml --dry-run"),
        Command("tofino", "ina.cli.tofino", "check programs for Tofino, drive deployed switches",
                "ina tofino check tofino/switchml"),
    ),
    "set up": (
        Command("completion", "ina.cli.completion", "print a script with which a shell completes commands",
                "ina completion bash"),
    ),
    "look for wrong sums": (
        Command("explore", _EXPLORE, "walk every interleaving of a small job", "ina explore --slots 2"),
        Command("simulate", _EXPLORE, "kill and restart everything in virtual time, from seeds", "ina simulate --events 100000"),
    ),
}
COMMANDS = {command.name: command for commands in GROUPS.values() for command in commands}
