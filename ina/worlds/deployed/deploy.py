"""An experiment on real switches: planned, written step by step, read back, and taken back where a step fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from ina.aggregation.controller.forwarding import forwarding, guards, has_guard
from ina.base.plurals import counted
from ina.p4.runtime.entity_error import EntityError
from ina.p4.runtime.p4info import P4Info, find
from ina.topology import routes
from ina.worlds.deployed.deployable import Deployable, DeploymentError, Step
from ina.worlds.deployed.deployment_file import Deployment

Plan = dict[str, list[Step]]  # by switch, in the order in which they are written


def plan(d: Deployment, switches: Mapping[str, Deployable]) -> Plan:
    """Plans everything that is to be written. Reads the switches, writes nothing. Raises EntityError, DeploymentError."""
    topology = d.topology(lambda switch, port: switches[switch].dev_port(port))
    route_tables, floods, guard = routes.tables(topology), routes.flood_ports(topology), guards(topology)
    steps_of: Plan = {}
    for s in d.switches:
        switch = switches[s.name]
        steps = [switch.port(port) for port in s.ports]
        if _has_table(switch.p4info, "l2"):
            hosts = {topology.by_name[host].mac: hop.port for host, hop in route_tables[s.name].items()}
            entities = [u.entity for u in forwarding(hosts, floods[s.name] if len(floods[s.name]) > 1 else ())]
            steps.append(switch.entities("forwarding: every host's MAC address, and broadcasts", entities))
        if has_guard(switch.p4info):
            steps.append(switch.entities("guard: which host is at which port", [u.entity for u in guard[s.name]]))
        steps_of[s.name] = steps + [switch.mirror(m) for m in d.mirrors if m.switch == s.name]
    return steps_of


def _has_table(info: P4Info, name: str) -> bool:
    try:
        find("table", info.tables.values(), name)
    except EntityError:
        return False
    return True


def carry_out(steps: Plan, switches: Mapping[str, Deployable], say: Callable[[str], None]) -> None:
    """Writes the steps and reads them back, switch by switch. Raises DeploymentError with switch and step, after it has taken
    everything back at all switches; the message names what it could not take back."""
    done: list[tuple[str, Step]] = []

    def at(name: str, text: str) -> str:
        return f"{name}: {text}" if len(switches) > 1 else text

    for name, own in steps.items():
        for step in own:
            try:
                if step.changes:
                    switches[name].write(step)
                    done.append((name, step))
                    if wrong := switches[name].differs(step):
                        raise DeploymentError(f"written, but read back otherwise: {'; '.join(wrong)}")
            except (DeploymentError, EntityError, TimeoutError) as error:
                raise DeploymentError(at(name, f"{step.what}: {error}{_take_back(done, switches, at)}")) from None
            except BaseException:  # Ctrl-C
                _take_back(done, switches, at)
                raise
            say(at(name, f"{step.what}: {len(step.changes)} written" + (f", {step.there} there already" if step.there else "")))
    for name, switch in switches.items():
        with suppress(EntityError, TimeoutError):
            for line in switch.status():
                say(at(name, line))


def _take_back(done: list[tuple[str, Step]], switches: Mapping[str, Deployable], at: Callable[[str, str], str]) -> str:
    """Takes everything back, last first. Returns the outcome as the end of a sentence."""
    remaining, silent = [], set()
    for name, step in reversed(done):
        try:
            if name not in silent:
                switches[name].undo(step)
                continue
            why: object = "likewise"
        except (EntityError, TimeoutError) as error:
            why = error
            if isinstance(error, TimeoutError):  # each further step would wait as long
                silent.add(name)
        remaining.append(at(name, f"{step.what}: {why}"))
    if remaining:
        return f"; could not be taken back: {'; '.join(remaining)}"
    return f"; {counted(len(done), 'step before was', 'steps before were')} taken back" if done else ""
