"""An experiment on a real switch: planned, written step by step, read back, and taken back where a step fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ina.control.controller import Controller, switch_address
from ina.control.forwarding import forwarding
from ina.control.jobs import AdmissionError
from ina.control.programs import recognise
from ina.switch.entities import Entity
from ina.switch.p4info import EntityError, P4Info, find
from ina.switch.target import SwitchTarget
from ina.tofino.deployment import Deployable, DeploymentError, Step
from ina.tofino.experiment import Deployment


class _Recorder(SwitchTarget):
    """Takes down what a controller would write."""

    def __init__(self, p4info: P4Info):
        self._p4info = p4info
        self.entities: dict[Any, Entity] = {}

    @property
    def p4info(self) -> P4Info:
        return self._p4info

    def write(self, updates: Any, timeout: float = 5.0) -> None:
        for update in updates:
            entity = update.entity
            self.entities[getattr(entity, "group_id", None) or repr(entity)] = entity  # a group grows with each worker

    def read(self, entities: Any, timeout: float = 5.0) -> list[Entity]:
        return []


def plan(d: Deployment, switch: Deployable) -> list[Step]:
    """Everything that is to be written, in order. Reads what is there, writes nothing. Raises EntityError, DeploymentError."""
    steps = [switch.port(port) for port in d.ports]
    numbers = {h.name: switch.dev_port(h.port) for h in d.hosts}
    if _has_table(switch.p4info, "l2"):
        hosts = {h.mac: numbers[h.name] for h in d.hosts}
        wanted = [u.entity for u in forwarding(hosts, sorted(numbers.values()) if len(numbers) > 1 else ())]
        steps.append(switch.entities("forwarding: every host's MAC address, and broadcasts", wanted))
    if d.job:
        steps.append(switch.entities(*_job(d, switch.p4info, numbers)))
    return steps + [switch.mirror(m) for m in d.mirrors]


def _has_table(info: P4Info, name: str) -> bool:
    try:
        find("table", info.tables.values(), name)
    except EntityError:
        return False
    return True


def _job(d: Deployment, info: P4Info, numbers: dict[str, int]) -> tuple[str, list[Entity]]:
    """The entities of the experiment's job, as a controller would write them."""
    known = recognise(info)
    if known is None:
        raise DeploymentError("job = true: the switch's program is none that the controller knows (ina/control/programs/)")
    program, sizes = known
    values, slots = getattr(d.config, "values", sizes.values), getattr(d.config, "slots", 0) or 64
    if values != sizes.values:
        raise DeploymentError(f"values = {values}, but the switch's program was made for {sizes.values} values per packet")
    recorder = _Recorder(info)
    controller = Controller(recorder, sizes.slots, protocol=program)
    try:
        job = controller.admit(d.config.name, len(d.hosts), slots)  # type: ignore[attr-defined]
        for i, host in enumerate(d.hosts):
            controller.attach(job, i, numbers[host.name], host.address(job.number))
    except AdmissionError as error:
        raise DeploymentError(f"job: {error}") from None
    what = f"job {d.config.name}: number {job.number}, incarnation {job.incarnation}, {slots} slots"  # type: ignore[attr-defined]
    return what, list(recorder.entities.values())


def carry_out(steps: list[Step], switch: Deployable, say: Callable[[str], None]) -> None:
    """Writes and reads back. Raises DeploymentError with the step; then nothing of it is there, or the message says what is."""
    done: list[Step] = []
    try:
        for step in steps:
            if step.changes:
                switch.write(step)
                done.append(step)
                if wrong := switch.differs(step):
                    raise DeploymentError(f"{step.what}: written, but read back otherwise: {'; '.join(wrong)}")
            say(f"{step.what}: {len(step.changes)} written" + (f", {step.there} there already" if step.there else ""))
    except BaseException as error:
        left = []
        for step in reversed(done):
            try:
                switch.undo(step)
            except (EntityError, TimeoutError) as why:
                left.append(f"{step.what}: {why}")
        if isinstance(error, DeploymentError):
            text = str(error)
        elif isinstance(error, (EntityError, TimeoutError)):
            text = f"{steps[len(done)].what}: {error}"
        else:
            raise
        end = f"; {len(done)} steps before were taken back" if done else ""
        if left:
            end = f"; could not be taken back: {'; '.join(left)}"
        raise DeploymentError(text + end) from None
    with suppress(EntityError, TimeoutError):
        for line in switch.status():
            say(line)


def host_commands(d: Deployment) -> list[tuple[str, list[str]]]:
    """By host, what is done there once, as root, and how its rank is started."""
    switch = switch_address("s1")
    found = []
    for rank, h in enumerate(d.hosts):
        frame = 1500 if getattr(d.config, "values", 256) <= 256 else 9000
        found.append((h.name, [
            f"ip link set {h.interface} mtu {frame} up",
            f"ip addr replace {h.ip}/8 dev {h.interface}",
            f"ip neigh replace {switch.ip} lladdr {switch.mac} nud permanent dev {h.interface}",
            *(f"ip neigh replace {o.ip} lladdr {o.mac} nud permanent dev {h.interface}" for o in d.hosts if o is not h),
            f"ethtool -A {h.interface} rx off tx off",
            f"ina doctor --target tofino --interface {h.interface} --peer {d.hosts[(rank + 1) % len(d.hosts)].ip}",
            f"INA_SWITCH=tcp:{d.controller or 'CONTROLLER:5588'} INA_HOST={h.name} GLOO_SOCKET_IFNAME={h.interface} torchrun "
            f"--nnodes {len(d.hosts)} --node-rank {rank} --nproc-per-node 1 --master-addr {d.hosts[0].ip} --master-port 29500 "
            "train.py",
        ]))  # fmt: skip
    return found
