"""Trees of switch processes, as the ranks of a group use them: each rank sends to the one of its own machine (INA_SWITCH there),
and says to the others by which switch processes its packets go from there up (ina/aggregation/control_socket/tree_paths.py)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from ina.aggregation.controller.client import Client, ControlError

ANSWER = 5.0  # seconds for a rank's switch process to answer


def report(switch: str, access: str = "") -> dict[str, Any]:
    """Returns what a rank says of the switch process ``switch`` that INA_SWITCH names there; nothing: it names none.

    ``access``: a pass; default: the socket's token. ``tree``: the ids of that process and of those above it; ``below``: it has
    a parent; ``tree_failure``: why the path is not known.
    """
    if not switch:
        return {}
    try:
        with closing(Client(switch, ANSWER, access=access)) as client:
            about = client.ping()
    except ControlError as error:
        return {"tree_failure": f"INA_SWITCH={switch}: {error}"}
    failure = about.get("above_failure")
    lost = {"tree_failure": f"INA_SWITCH={switch} has lost the switch process above it: {failure}"} if failure else {}
    return {"tree": about.get("tree", []), "below": "above" in about, **lost}


def paths(reports: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Returns the path of each rank, from the reports of all; none: they are all at the switch process that rank 0 names,
    whatever INA_SWITCH is for the others. Raises RuntimeError: their switch processes are not one tree."""
    own = [each.get("tree") or reports[0].get("tree") or [] for each in reports]  # without INA_SWITCH a rank is at rank 0's
    if not any(each.get("below") for each in reports) or (own[0] and all(each[:1] == own[0][:1] for each in own)):
        return ()
    titles = [f"rank {rank} ({each['place'][0]})" for rank, each in enumerate(reports)]
    for title, each, path in zip(titles, reports, own, strict=True):
        if failure := each.get("tree_failure"):
            raise RuntimeError(f"ina: {title}: {failure}")
        if not path:
            raise RuntimeError(f"ina: {title} has no switch process: set INA_SWITCH there to one of the tree that others are at")
        if path[-1:] != own[0][-1:]:
            raise RuntimeError(f"ina: {titles[0]} and {title} are at switch processes of different trees: start them with "
                               "--parent, so that one is above all (docs/guide/servers.md)")
        if each.get("tree") is None and each["place"] != reports[0]["place"]:
            raise RuntimeError(f"ina: {title} names no switch process, and is not where rank 0 is: set INA_SWITCH there to one "
                               "of the tree that others are at")
    return tuple("/".join(path) for path in own)


def shown(paths: Sequence[str]) -> str:
    """Returns what the line about a group's switch adds for a tree."""
    below = len(set(paths))
    return f", one of {below} of a tree of switch processes that the ranks send to" if below else ""
