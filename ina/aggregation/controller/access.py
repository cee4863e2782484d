"""Access control at the control socket.

A principal is fixed before the first request of its connection, and no request changes it. On a Unix socket it is the user
whom the kernel names (SO_PEERCRED); over TCP it is nobody, until it proves to be the holder of the socket's token
(ina/base/tokens.py), or of a pass, with which it acts for one job: by a greeting (control_socket/greeting.py), or by the token in
HTTP's ``Authorization: Bearer TOKEN``. The table ``RULES`` says what it may do, in both protocols.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import IntEnum

from ina.aggregation.control_socket import messages
from ina.aggregation.control_socket.peers import EVERYBODY, user_id, user_name
from ina.aggregation.controller.job_records import AdmissionError
from ina.base import tokens


@dataclass(frozen=True)
class Principal:
    """A client. ``uid``: of a user of this machine; None: of another machine, with the socket's token or, if there is a
    ``job_token``, with the pass of the job that has that (tokens.covers). ``NOBODY``: one that has proved nothing."""

    uid: int | None
    job_token: str = field(default="", repr=False)

    def __str__(self) -> str:
        if self.job_token:
            return "the holder of a job's pass"
        if self == NOBODY:
            return "nobody"
        return "the holder of the socket's token" if self.uid is None else f"user {user_name(self.uid)}"


NOBODY = Principal(-1)


class Role(IntEnum):
    """A principal's role at the switch."""

    ANYONE = 0  # a user of this machine
    USER = 1  # may have jobs: --user named it
    OWNER = 2  # the user of the switch process, root, or a holder of the socket's token


@dataclass(frozen=True)
class Rule:
    """Allows principals with ``role``; ``of_job``: for an existing job only its owner or, with ``or_switch``, the switch's."""

    role: Role
    of_job: bool = False
    or_switch: bool = False


RULES = {
    messages.Ping: Rule(Role.ANYONE),
    messages.Jobs: Rule(Role.ANYONE),
    messages.Switches: Rule(Role.ANYONE),
    messages.Counters: Rule(Role.ANYONE),
    messages.Topology: Rule(Role.ANYONE),
    messages.Join: Rule(Role.USER, of_job=True),
    messages.Admit: Rule(Role.USER, of_job=True),
    messages.Attach: Rule(Role.USER, of_job=True),
    messages.Report: Rule(Role.USER),
    messages.Release: Rule(Role.USER),
    messages.End: Rule(Role.USER, of_job=True, or_switch=True),
    messages.Serve: Rule(Role.OWNER),
    messages.Links: Rule(Role.OWNER),
    messages.Stop: Rule(Role.OWNER),
}


# Requests that a pass is good for, of its jobs.
OF_PASS = (messages.Ping, messages.Join, messages.Admit, messages.Attach, messages.Report, messages.Release,
           messages.End)


@dataclass(frozen=True)
class Access:
    """``owner``: uid of the switch process. ``users``: uids that may have jobs, too; None: everybody."""

    owner: int
    users: Collection[int] | None = ()

    def role(self, principal: Principal) -> Role:
        if principal == NOBODY:
            return Role.ANYONE
        if principal.job_token:
            return Role.USER
        if principal.uid is None or principal.uid in (0, self.owner):
            return Role.OWNER
        return Role.USER if self.users is None or principal.uid in self.users else Role.ANYONE

    def check(self, principal: Principal, request: messages.Request) -> Rule:
        """Returns the rule of ``request``; the caller checks the part about its job. Raises AdmissionError."""
        rule, name = RULES[type(request)], type(request).__name__.lower()
        if principal.job_token and not isinstance(request, OF_PASS):
            raise AdmissionError("denied", f"{name}: {principal} acts for its jobs only; the socket's token is needed")
        if (role := self.role(principal)) >= rule.role:
            return rule
        verb = "only looks at this switch" if role is Role.ANYONE else "has jobs at this switch"
        needed = f"user {user_name(self.owner)}, root" + (" or those that --user named" if rule.role is Role.USER else "")
        raise AdmissionError("denied", f"{name}: {principal} {verb}; expected {needed}")


def check_owner(job: str, owner: Principal, own: str, principal: Principal, token: str) -> None:
    """Checks that a ``principal`` with a ``token`` owns a job: that it has the job's ``own`` token or, of a job without one, is
    its ``owner``, who asked for it. Raises AdmissionError."""
    if own and not tokens.is_same(own, token):
        reason = "the token is wrong" if token else "a token is needed"
        raise AdmissionError("token", f"job {job!r} belongs to others: {reason}; all workers of a job bring the one that its "
                                      "first request brought")
    if not own and (token or principal != owner):
        whose = "you asked for it without a token" if principal == owner else f"it is {owner}'s"
        raise AdmissionError("token", f"job {job!r} has no token: {whose}")


def users(names: Collection[str]) -> Collection[int] | None:
    """Returns the user ids of the ``--user`` options; None: everybody. Raises ValueError."""
    return None if EVERYBODY in names else frozenset(user_id(name, "--user") for name in names)
