"""Requests for ports of workers: whether their frames have tags, and whether the port can be sent."""

from __future__ import annotations

import ipaddress
import secrets

from ina.aggregation import port_kinds
from ina.aggregation.control_socket import messages
from ina.aggregation.control_socket.greeting import Seal
from ina.aggregation.controller.access import Principal
from ina.aggregation.controller.job_records import AdmissionError
from ina.aggregation.controller.worker_ports import Plug


def tag_salt(tags: bool, seal: Seal | None, request: messages.Attach, control: port_kinds.Control) -> str:
    """Returns the salt of the keys of a new port's tags; "": its frames have none. ``tags``: what this process says of
    them; ``seal``: of the worker's connection. Raises AdmissionError: the worker says otherwise."""
    wanted = request.tags
    if wanted not in ("", "on", "off"):
        raise AdmissionError("invalid", f"attach: tags: expected on or off, got {wanted!r}")
    requested, place = port_kinds.requested_kind(request.port) if tags or wanted == "on" else (None, "")
    can = requested is not None and requested.tags and bool(place) and seal is not None
    if wanted == "on" and not (can and tags):
        reason = ("the switch process was started with --no-tags, or its switches cannot check them" if can else
                  "frames of this port have none; those of INA_PORT=udp at INA_SWITCH=HOST:PORT do")
        raise AdmissionError("mismatch", f"the worker asks for tags (INA_TAGS=on), but {reason}")
    if not (can and tags):
        return ""
    here = ipaddress.ip_address(control.worker).is_loopback
    if wanted == "off" and not here:
        raise AdmissionError("mismatch", "the worker asks for no tags (INA_TAGS=off), but the switch process takes no frames "
                                         "of other machines without: leave INA_TAGS out, or start the process with --no-tags")
    return secrets.token_hex(16) if wanted == "on" or not (here or wanted) else ""


def check_reach(principal: Principal, plug: Plug) -> None:
    """Checks that the port's descriptors can be sent to ``principal``. Raises AdmissionError."""
    if plug.fds and principal.uid is None:
        raise AdmissionError("invalid", "this switch process is plugged into its workers by descriptors, which no TCP connection "
                                        "carries: name its Unix socket, on its machine, with INA_SWITCH, or set "
                                        f"INA_PORT={port_kinds.ACROSS}")
