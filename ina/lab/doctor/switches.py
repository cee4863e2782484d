"""`ina tofino doctor`: checks that the switches of a deployment are there, deployed, and their links up. It writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from ina.aggregation.entries import recognise
from ina.base.plurals import counted
from ina.lab.doctor.machine import BAD, FACT, GOOD, WARNING, Finding
from ina.p4.bfrt.remote_switch import BfRuntimeTarget
from ina.p4.rpc.connections import Access
from ina.p4.runtime.entity_error import EntityError
from ina.topology.tree import aggregation_tree
from ina.worlds.deployed import deploy
from ina.worlds.deployed.deployable import Bfrt, DeploymentError
from ina.worlds.deployed.deployment_file import Deployment, Tofino
from ina.worlds.deployed.remote import is_refused
from ina.worlds.deployed.switch_host import ERRORS

CABLE = "cable, optics, speed, FEC and autonegotiation at both ends"


def examine(d: Deployment, addresses: Mapping[str, str], device_id: int = 0, timeout: float = 5.0,
            access: Access | None = None) -> Iterator[Finding]:
    """Examines switch by switch, then all together."""
    with ExitStack() as stack:
        switches: dict[str, Bfrt] = {}
        for s in d.switches:
            address, name = addresses[s.name], _name(d, s)
            try:
                if is_refused(address):
                    yield Finding(BAD, name, f"nobody listens at {address}", "is bf_switchd, or `ina switch run --bfrt`, up?")
                    continue
                target = BfRuntimeTarget(address, device_id, s.p4_name, timeout=timeout, access=access)
            except (EntityError, TimeoutError, OSError) as error:
                yield Finding(BAD, name, str(error))
                continue
            stack.callback(target.close)
            switches[s.name] = Bfrt(target)
            try:
                yield Finding(GOOD, name, f"{target.client.program} at {address}")
                yield from _program(d, s, target)
                yield from _ports(d, s, target)
            except (EntityError, TimeoutError, ValueError) as error:
                yield Finding(BAD, name, str(error))
        if len(switches) == len(d.switches):
            yield from _together(d, switches)


def _name(d: Deployment, s: Tofino) -> str:
    return s.name if d.several else "switch"


def _program(d: Deployment, s: Tofino, target: BfRuntimeTarget) -> Iterator[Finding]:
    name, recognised = f"{_name(d, s)} program", recognise(target.p4info)
    if recognised is None:
        yield Finding(WARNING, name, "none that the controller knows", "`ina tofino controller` needs one of ours")
        return
    program, sizes = recognised
    values: Any = getattr(d.config, "values", sizes.values)
    slots = getattr(d.config, "slots", 0) or 64
    room = sizes.slots // slots
    text = f"{program.title}, {sizes.values} values per packet, {sizes.slots} slots: room for {counted(room, 'job')} of {slots}"
    if sizes.values != values:
        yield Finding(BAD, name, text, f"the file says values = {values}: the program with -D VALUES={values}, or another file")
    elif not room:
        yield Finding(BAD, name, text, "fewer slots in the file, or the program with more: -D SLOTS=...")
    else:
        yield Finding(GOOD, name, text)


def _ports(d: Deployment, s: Tofino, target: BfRuntimeTarget) -> Iterator[Finding]:
    """Checks the ports that something is connected to."""
    peers = {(h.switch, h.port): h.name for h in d.hosts}
    for c in d.cables:
        peers |= {(c.a, c.a_port): f"{c.b}:{c.b_port}", (c.b, c.b_port): f"{c.a}:{c.a_port}"}
    configured, statistics = target.ports(), target.statistics()
    for port in s.ports:
        end = peers.get((s.name, port.name))
        if end is None:
            continue
        number = target.dev_port(port.name)
        name = f"{s.name} {port.name}" if d.several else f"port {port.name}"
        if number not in configured:
            yield Finding(WARNING, name, f"to {end}: not configured", "ina deploy writes it")
            continue
        up = configured[number].get("$PORT_UP")
        bad = sum(statistics.get(number, {}).get(key, 0) for key in ERRORS)
        errors = f", {counted(bad, 'frame')} with errors" if bad else ""
        text = f"to {end}: {'up' if up else 'down'}, {port.speed}, FEC {port.fec}{errors}"
        yield Finding(BAD if not up else WARNING if bad else GOOD, name, text, CABLE if bad or not up else "")


def _together(d: Deployment, switches: Mapping[str, Bfrt]) -> Iterator[Finding]:
    try:
        plan = deploy.plan(d, switches)
        topology = d.topology(lambda switch, port: switches[switch].dev_port(port))
    except (DeploymentError, EntityError, TimeoutError) as error:
        yield Finding(BAD, "deployed", str(error))
        return
    missing = {name: sum(len(step.changes) for step in steps) for name, steps in plan.items()}
    if any(missing.values()):
        where = ", ".join(counted(count, "write") + f" at {name}" * d.several for name, count in missing.items() if count)
        yield Finding(WARNING, "deployed", f"not as the file says: {where}", f"ina deploy {d.path} --dry-run shows them")
    else:
        yield Finding(GOOD, "deployed", "all that the file says is there")
    tree = aggregation_tree(topology, [h.name for h in d.hosts])
    below = f" over {', '.join(tree.switches[1:])}" if tree.switches[1:] else ""
    if d.several:
        yield Finding(FACT, "tree", f"a job of all hosts is aggregated at {tree.root}{below}")
