"""Switch processes of a deployment: a look at each at its control address, start on its machine by ssh, and end."""

from __future__ import annotations

import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from ina.aggregation.control_socket.messages import printable
from ina.aggregation.controller.client import Client, ControlError
from ina.base import tokens
from ina.base.native import lib
from ina.base.plurals import counted
from ina.worlds.deployed.deployable import DeploymentError
from ina.worlds.deployed.process_file import Processes, ProcessSwitch

READY = 300.0  # s from its start until ranks can attach: its first start compiles the program
REACHED = 30.0  # s more, for ssh to reach the machine and to end
LOOK = 0.2  # s between two looks at what starts or ends
SCRIPT = r"""
umask 077
IFS= read -r INA_TOKEN || {{ echo 'no token came over standard input' >&2; exit 3; }}
export INA_TOKEN
folder=${{XDG_STATE_HOME:-$HOME/.local/state}}/ina
mkdir -p "$folder" || exit 3
log=$folder/switch-{name}.log
if [ -s "$log" ]; then mv -f "$log" "$log.1" || exit 3; fi
: >"$log" || exit 3
setsid nohup {command} >"$log" 2>&1 </dev/null &
pid=$!
looks={looks}
while kill -0 $pid 2>/dev/null; do
    grep -q 'sums for workers with INA_SWITCH=' "$log" && {{ echo "process $pid, whose log is $log"; exit 0; }}
    [ $looks -gt 0 ] || {{ kill $pid; echo "not ready within {ready:g} s; its log is $log" >&2; exit 4; }}
    looks=$((looks - 1))
    sleep {look:g}
done
tail -n 3 "$log" >&2
echo "it has ended; its log is $log" >&2
exit 5
"""


@dataclass(frozen=True)
class Running:
    """A switch process that answers: its reply to `ping`, and its jobs by name with the number of their workers."""

    about: Mapping[str, Any]
    jobs: Mapping[str, int]

    def __str__(self) -> str:
        about = {key: printable(str(value)) for key, value in self.about.items()}
        jobs = ", ".join(f"{printable(name)} ({counted(workers, 'worker')})" for name, workers in self.jobs.items())
        return (f"process {about.get('pid')} runs {about.get('protocol')} with {about.get('values')} values a packet, "
                f"{about.get('free_slots')} of {about.get('slots')} slots free, ina {about.get('version')}; "
                f"{counted(len(self.jobs), 'job')}{': ' * bool(jobs)}{jobs}")


def look(switch: ProcessSwitch, timeout: float, any_version: bool = False) -> Running | None:
    """Returns what runs at a switch's address; None: nobody listens there. Raises DeploymentError: no answer within `timeout`
    seconds, another token, another wire version (unless `any_version`), or not a switch process."""
    if _is_refused(switch, timeout):
        return None
    try:
        with closing(Client(switch.address, timeout)) as client:
            about = client.ping()
            wire, own = about.get("wire"), lib.INA_WIRE_VERSION
            if wire != own and not any_version:
                older = "this one" if type(wire) is int and wire > own else "the switch process"
                where = "here" if older == "this one" else "on its machine"
                raise DeploymentError(f"{_at(switch)} speaks wire version {printable(str(wire or 1))}, ina here {own}: "
                                      f"{older} is older: upgrade ina {where}")
            jobs = {name: job["workers"] for name, job in client.ask("jobs")["jobs"].items()}
    except (ControlError, KeyError, TypeError, AttributeError) as error:
        text = str(error) if isinstance(error, ControlError) else "its answer is none of a switch process"
        raise DeploymentError(f"{_at(switch)}: {text}") from None
    return Running(about, jobs)


def _is_refused(switch: ProcessSwitch, timeout: float) -> bool:
    """Returns True if nobody listens there. Raises DeploymentError: its machine does not answer."""
    host, _, port = switch.address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout):
            return False
    except ConnectionRefusedError:
        return True
    except OSError as error:
        text = error.strerror or f"no answer within {timeout:g} s"
        raise DeploymentError(f"{_at(switch)}: {text}: is its machine up, and does a firewall let TCP through?") from None


def _at(switch: ProcessSwitch) -> str:
    return f"{switch.name} at {switch.address}"


def check(d: Processes, switch: ProcessSwitch, running: Running) -> None:
    """Raises DeploymentError if it is not the switch of the file."""
    there = running.about.get("protocol"), running.about.get("values")
    if there != (d.protocol, d.values):
        raise DeploymentError(f"{_at(switch)}: {there[0]} with {there[1]} values a packet runs there, but {d.path} says "
                              f"{d.protocol} with {d.values}: end it (ina deploy {d.path} --down), then deploy again; or change "
                              "the file")


@dataclass(frozen=True)
class Intent:
    """Plan for a switch process. `running`: it is there, and nothing is to be done; `words`: the command that starts it."""

    switch: ProcessSwitch
    running: Running | None
    words: Sequence[str]

    def __str__(self) -> str:
        if self.running:
            return f"{_at(self.switch)} is there already: {self.running}"
        place = f"on {self.switch.machine}" if self.switch.machine else "by its operator, on its machine"
        return f"{_at(self.switch)} is to be started {place}\n    {shlex.join(self.words)}"

    def as_json(self) -> dict[str, Any]:
        return {"name": self.switch.name, "address": self.switch.address, "machine": self.switch.machine,
                "running": {**self.running.about, "jobs": dict(self.running.jobs)} if self.running else None,
                "command": [] if self.running else [*self.words]}


def plan(d: Processes, timeout: float, looks: bool = True) -> list[Intent]:
    """Plans what is to be done about each switch; `looks`: asks those that run. Raises DeploymentError, as `look` and `check`."""
    intents = []
    for switch in d.switches:
        running = look(switch, timeout) if looks else None
        if running:
            check(d, switch, running)
        intents.append(Intent(switch, running, d.command(switch)))
    return intents


Reach = Callable[[str], Sequence[str]]  # machine -> words that run one more word, a shell's command, there


def up(
    d: Processes, intents: Sequence[Intent], reach: Reach, timeout: float, say: Callable[[str], None]
) -> list[ProcessSwitch]:
    """Starts the switch processes that are not there. Returns those that it has started. Raises DeploymentError: one cannot be
    started; those that this call has started are ended again."""
    for intent in intents:
        if not intent.running and not intent.switch.machine:
            raise DeploymentError(f"{_at(intent.switch)}: nobody listens there, and {d.path} names no machine for ina deploy to "
                                  f"start it on: start it there ({shlex.join(intent.words)}, or "
                                  "examples/servers/ina-switch.service), or add the key machine")
    started: list[ProcessSwitch] = []
    try:
        for intent in intents:
            if intent.running:
                say(str(intent))
                continue
            say(f"{_at(intent.switch)} starts on {intent.switch.machine}; a first start compiles its program, for up to a minute")
            where = _start(intent, reach)
            started.append(intent.switch)
            running = look(intent.switch, timeout)
            if running is None:
                raise DeploymentError(f"{_at(intent.switch)}: {where} says that it runs, but nobody listens there")
            check(d, intent.switch, running)
            say(f"{_at(intent.switch)} runs: {where}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            say(f"interrupted: what was starting may still come up; ina deploy {d.path} --status says so, --down ends it")
        end(started, timeout)
        raise
    return started


def end(switches: Sequence[ProcessSwitch], timeout: float) -> None:
    """Ends those that answer, after something else has failed."""
    for switch in switches:
        with suppress(DeploymentError):
            _end(switch, timeout)


def _start(intent: Intent, reach: Reach) -> str:
    """Starts a switch process, and waits until ranks can attach. Returns where it runs, in words."""
    switch = intent.switch
    script = SCRIPT.format(name=switch.name, command=shlex.join(intent.words), looks=int(READY / LOOK), ready=READY, look=LOOK)
    words = [*reach(switch.machine), script]
    try:
        done = subprocess.run(words, input=f"{tokens.make()}\n", capture_output=True, text=True, errors="replace",
                              timeout=READY + REACHED, start_new_session=True)
    except FileNotFoundError:
        raise DeploymentError(f"--ssh: there is no command {words[0]!r}") from None
    except subprocess.TimeoutExpired:
        raise DeploymentError(f"{_at(switch)}: {switch.machine} does not answer within {READY + REACHED:g} s") from None
    lines = [line.strip() for line in done.stdout.splitlines() if line.startswith("process ")]
    if done.returncode or not lines:
        errors = " | ".join(line.strip() for line in done.stderr.splitlines() if line.strip())[-1000:]
        raise DeploymentError(f"{_at(switch)}: it could not be started on {switch.machine} (status {done.returncode}): "
                              f"{printable(errors) or 'no reason given'}")
    return f"{printable(lines[-1])} on {switch.machine}"


def down(d: Processes, timeout: float, say: Callable[[str], None]) -> None:
    """Ends the switch processes, whoever has started them. Raises DeploymentError, before any is ended, if one has jobs, or does
    not answer; and if one does not end within `timeout` seconds."""
    # Whoever has upgraded ina here ends the process that is to be upgraded, too: its requests are the same in all versions.
    there = {switch: look(switch, timeout, any_version=True) for switch in d.switches}
    for switch, running in there.items():
        if running and running.jobs:
            names = ", ".join(map(printable, running.jobs))
            raise DeploymentError(f"{_at(switch)} has {counted(len(running.jobs), 'job')} ({names}), which would fail: wait for "
                                  f"their end (ina jobs --switch {switch.address}); nothing was ended")
    for switch, running in there.items():
        if running:
            _end(switch, timeout)
        say(f"{_at(switch)} has ended" if running else f"{_at(switch)}: nobody listens there")


def _end(switch: ProcessSwitch, timeout: float) -> None:
    try:
        with closing(Client(switch.address, timeout)) as client:
            client.ask("stop")
    except ControlError as error:
        raise DeploymentError(f"{_at(switch)}: {error}") from None
    deadline = time.monotonic() + timeout
    while not _is_refused(switch, timeout):
        if time.monotonic() >= deadline:
            raise DeploymentError(f"{_at(switch)}: it was told to end, but did not within {timeout:g} s: it does so when its "
                                  "last client, such as ina top, hangs up")
        time.sleep(LOOK)
