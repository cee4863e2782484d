"""Arbitration of controllers (P4Runtime §5): each role's primary is the live one with the highest election id so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ina.p4.p4runtime.messages import p4
from ina.p4.runtime import EntityError

OK, NOT_FOUND, ALREADY_EXISTS = 0, 5, 6  # google.rpc.Code
CONTROLLERS = 16  # live ones for each role


Request = (
    p4.WriteRequest | p4.ReadRequest | p4.SetForwardingPipelineConfigRequest | p4.GetForwardingPipelineConfigRequest
    | p4.MasterArbitrationUpdate | p4.CapabilitiesRequest
)


def election_of(message: p4.MasterArbitrationUpdate | p4.WriteRequest | p4.SetForwardingPipelineConfigRequest) -> int | None:
    """The election id of a message; None: it is unset, which is less than 0 (§15.3.1)."""
    if not message.HasField("election_id"):
        return None
    return int(message.election_id.high << 64 | message.election_id.low)


@dataclass(eq=False)
class Controller:
    """A stream. `send` takes a StreamMessageResponse and never blocks."""

    send: Callable[[p4.StreamMessageResponse], None]
    role: str | None = None  # None: it has not arbitrated yet
    election: int | None = None


@dataclass
class Role:
    controllers: list[Controller] = field(default_factory=list)
    highest: int | None = None

    @property
    def primary(self) -> Controller | None:
        return next((c for c in self.controllers if c.election is not None and c.election == self.highest), None)


class Arbitration:
    """A device's controllers. Not thread-safe: its owner serialises calls with writes, so that a new primary waits for writes."""

    def __init__(self, device_id: int):
        self.device_id = device_id
        self.roles: dict[str, Role] = {}

    def update(self, controller: Controller, message: p4.MasterArbitrationUpdate) -> None:
        """Handles a MasterArbitrationUpdate of `controller`; notifies everyone concerned. EntityError: the stream must end."""
        first = controller.role is None
        name = message.role.name if message.HasField("role") else ""
        self.check_device(message, "NOT_FOUND" if first else "FAILED_PRECONDITION")
        if not first and controller.role != name:
            raise EntityError(f"this stream has role {controller.role!r}: open another for {name!r}", "FAILED_PRECONDITION")
        if message.role.HasField("config"):
            raise EntityError("role.config: no scheme is agreed upon; every role sees the whole pipeline")
        election = election_of(message)
        role = self.roles.get(name) or Role()
        if election is not None and any(c.election == election for c in role.controllers if c is not controller):
            raise EntityError(f"election id {election} belongs to another live controller")
        if first and len(role.controllers) >= CONTROLLERS:
            raise EntityError(f"role {name!r} has {CONTROLLERS} controllers, the most that are served", "RESOURCE_EXHAUSTED")
        self.roles[name] = role
        was_primary = role.primary is controller
        if first:
            controller.role = name
            role.controllers.append(controller)
        controller.election = election
        if election is not None and (role.highest is None or election >= role.highest):
            role.highest = election
            self._notify(name, role.controllers)
        else:
            self._notify(name, role.controllers if was_primary else [controller])

    def leave(self, controller: Controller) -> None:
        """Removes a controller whose stream has ended."""
        role = self.roles.get(controller.role or "")
        if role is None or controller not in role.controllers:
            return
        was_primary = role.primary is controller
        role.controllers.remove(controller)
        if was_primary:
            self._notify(controller.role or "", role.controllers)

    def check_device(self, request: Request, code: str = "NOT_FOUND") -> None:
        if request.device_id != self.device_id:
            raise EntityError(f"no device {request.device_id}: this is device {self.device_id}", code)

    def check(self, request: p4.WriteRequest | p4.SetForwardingPipelineConfigRequest) -> None:
        """Raises EntityError: the sender of a request that changes something is not a primary (§13, §14)."""
        self.check_device(request)
        if request.role and request.role not in self.roles:
            raise EntityError(f"no role {request.role!r}: no controller has arbitrated for it", "NOT_FOUND")
        role = self.roles.get(request.role)
        if role is None or role.primary is None:
            raise EntityError(f"role {request.role!r} has no primary: open a stream and arbitrate first", "PERMISSION_DENIED")
        if election_of(request) != role.highest:
            raise EntityError(f"not the primary: its election id is {role.highest}", "PERMISSION_DENIED")

    def is_primary(self, controller: Controller) -> bool:
        return controller.role is not None and self.roles[controller.role].primary is controller

    def primaries(self) -> list[Controller]:
        """The primaries of all roles that have one."""
        return [role.primary for role in self.roles.values() if role.primary is not None]

    def _notify(self, name: str, controllers: list[Controller]) -> None:
        """Notifies controllers of a role, the primary last (§5.3)."""
        role = self.roles[name]
        primary = role.primary
        for controller in sorted(controllers, key=lambda c: c is primary):
            response = p4.StreamMessageResponse()
            message = response.arbitration
            message.device_id = self.device_id
            if name:
                message.role.name = name
            if role.highest is not None:
                message.election_id.high, message.election_id.low = role.highest >> 64, role.highest & (1 << 64) - 1
            message.status.code, message.status.message = NOT_FOUND, "there is no primary"
            if primary is not None:
                message.status.code, message.status.message = ALREADY_EXISTS, "another controller is the primary"
            if controller is primary:
                message.status.code, message.status.message = OK, "you are the primary"
            controller.send(response)
