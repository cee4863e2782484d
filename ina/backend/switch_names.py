"""Comparison of the switches that the ranks of a new group name (INA_SWITCH): all of them mean one process, or none gets it.

Rank 0's name holds for all ranks, and a rank that names none agrees. Another name may be of the same process all the same, such
as another address of its machine: that rank asks it by its own name, and all ranks wait for what it says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ina.aggregation.control_socket.channel import TCP, shown
from ina.aggregation.controller.client import Client, ControlError

if TYPE_CHECKING:
    import torch.distributed as dist

ANSWER = 20.0  # seconds, at most, in which a switch process of another name answers


@dataclass(frozen=True)
class Identity:
    """Identity of a switch process: its id on its machine, and when it started (seconds since 1970; 0: it does not say, as one
    that has just been started, or is older)."""

    pid: int
    started: float = 0.0

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> Identity:
        """Returns that of the process whose answer to ``ping`` is ``about``."""
        return cls(about["pid"], float(about.get("process", {}).get("start_time_seconds", 0.0)))

    def is_same(self, other: Identity) -> bool:
        return self.pid == other.pid and (self.started == other.started or 0.0 in (self.started, other.started))


def check(store: dist.Store, rank: int, names: Sequence[str], chosen: str, identity: Identity, access: str,
          timeout: timedelta) -> None:
    """Compares what all ranks name with the ``chosen`` switch. To be called by all ranks of a group with the same arguments, with
    a store of its own. ``names``: by rank; "": it names none. ``identity``: of the chosen process. ``access``: the pass of the
    group's job there. Raises RuntimeError, the same on all ranks: one names another process, or one that cannot be asked, or does
    not say so within ``timeout``."""
    others = [each for each, name in enumerate(names) if name and name.removeprefix(TCP) != chosen.removeprefix(TCP)]
    if not others:
        return
    if rank in others:
        patience = min(ANSWER, timeout.total_seconds())
        store.set(f"name/{rank}", json.dumps(_difference(names[rank], identity, access, patience)))
    keys = [f"name/{each}" for each in others]
    try:
        store.wait(keys, timeout)
    except RuntimeError:  # DistStoreError
        silent = [each for each in others if not store.check([f"name/{each}"])]
        raise RuntimeError(f"ina: ranks {silent} did not say within {timeout.total_seconds():g} s whether INA_SWITCH there means "
                           f"{shown(chosen)}, the switch of rank 0") from None
    differences = {each: json.loads(text) for each, text in zip(others, store.multi_get(keys), strict=True)}
    if wrong := [f"rank {each} INA_SWITCH={names[each]} ({why})" for each, why in differences.items() if why]:
        own = f"INA_SWITCH={names[0]}" if names[0] else f"{shown(chosen)}, without INA_SWITCH"
        raise RuntimeError(f"ina: the ranks of a group name different switches: rank 0 has {own} (process {identity.pid}), "
                           f"{', '.join(wrong)}: name one switch process on all ranks, or on rank 0 only")


def _difference(name: str, identity: Identity, access: str, patience: float) -> str:
    """Returns how the switch process ``name`` differs from the chosen one; "": it is that."""
    try:
        with closing(Client(name, patience, access=access)) as client:
            found = Identity.of(client.ping())
    except ControlError as error:
        if error.code == "token" and access:
            return "the pass of rank 0's switch is none there"
        return str(error)
    return "" if found.is_same(identity) else f"process {found.pid}"
