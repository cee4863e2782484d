"""Rows of the view "Live": what a page shows of one switch process, from two looks at it. Pure functions of the looks.

Names and texts come from other users: they are made printable and cut here, and pages show them as text only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from ina.aggregation.control_socket.messages import printable
from ina.aggregation.controller import looks
from ina.aggregation.controller.counter_cells import labels
from ina.topology import draw
from ina.topology.topology import Link, Node, Topology

Look = dict[str, Any]
MOST_TEXT = 200  # characters of a name or text that are shown
INCIDENTS = 16  # of links that are shown, the last ones
GAP, HIGH = 70, 120  # pixels between the ports of a switch without a network, and height of that drawing


def row(new: Look, old: Look | None) -> dict[str, Any]:
    """Returns what is shown of a switch process; ``old``: an earlier look, for rates. Raises anything for looks that make no
    sense."""
    if old is not None and old["ping"]["pid"] != new["ping"]["pid"]:
        old = None  # another process at the same name
    rates = looks.rates_between(old or new, new)
    jobs, switches, counters = new["jobs"]["jobs"], new["switches"], new["counters"]
    topology = _topology(new["topology"]["topology"])
    kind = "links" if counters.get("links") else "ports"
    faults = {one["link"]: one["state"] for one in rates.get("faults", [])}
    if topology:
        names, width, height, nodes, ends = _network(topology)
    else:
        names, width, height, nodes, ends = _star(switches["switches"], [str(name) for name in counters.get("ports") or {}])
        kind = "ports"
    for whose, parts, numbers in (("ping", [new["ping"]], ("pid", "values", "slots", "free_slots")),
                                  ("jobs", jobs.values(), ("workers", "slots")),
                                  ("switches", switches["switches"].values(), ("slots", "free_slots"))):
        for part in parts:
            _check_numbers(whose, part, numbers)
    for one in switches["switches"].values():
        if not isinstance(one["jobs"], list) or not all(isinstance(job, str) for job in one["jobs"]):
            raise TypeError("switches: jobs: expected a list of names")
    members = _members(jobs)
    links = _loads(rates.get(kind, {}), counters.get(kind) or {}, names, faults)
    about = new["ping"]
    return _shown({
        "about": {key: about[key] for key in ("pid", "program", "protocol", "values", "slots", "free_slots", "server")},
        "topology": topology.name if topology else "",
        "drawing": {"width": width, "height": height, "nodes": nodes, "ends": ends},
        "links": links,
        "jobs": [_job(name, job, names, topology) for name, job in jobs.items()],
        "members": members,
        "switches": [{"name": name, **{key: one[key] for key in ("state", "slots", "free_slots", "jobs")}}
                     for name, one in switches["switches"].items()],
        "incidents": [_incident(one) for one in (switches.get("links") or [])[-INCIDENTS:]],
        "silent": [looks.silent_words(one) for one in switches.get("silent") or []],
        "drops": list(_drops(new, old)),
        "counters": list(_cells(new, old)),
        "tables": list(_tables(counters)),
    })


def _check_numbers(whose: str, part: dict[str, Any], keys: Sequence[str]) -> None:
    """Raises TypeError if a part of a reply has something else than whole numbers there."""
    for key in keys:
        if isinstance(part[key], bool) or not isinstance(part[key], int):
            raise TypeError(f"{whose}: {key}: expected a whole number")


# ---- the network


@lru_cache(64)
def _built(name: str, nodes: tuple[tuple[str, str], ...], links: tuple[tuple[str, str, float, bool], ...]) -> Topology:
    return Topology(name, tuple(Node(name, like) for name, like in nodes),
                    tuple(Link(a, b, rate=rate, simplex=simplex) for a, b, rate, simplex in links))


def _topology(reply: dict[str, Any] | None) -> Topology | None:
    """Returns the network that a process told of, checked. Raises TopologyError, TypeError, ValueError."""
    if reply is None:
        return None
    return _built(str(reply["name"]), tuple((str(name), str(like)) for name, like in reply["nodes"]),
                  tuple((str(a), str(b), float(rate), bool(simplex)) for a, b, rate, simplex in reply["links"]))


Drawn = tuple[list[str], float, float, list[list[Any]], list[list[int]]]


@lru_cache(64)
def _network(topology: Topology) -> Drawn:
    """Returns the links' names, the drawing's width and height, its nodes (name, x, y, whether it is a host), and each link's
    ends by their numbers in that list."""
    place, width, height = draw.placed(topology)
    nodes = [[node.name, *(round(part, 1) for part in place[node.name]), node.is_host] for node in topology.nodes]
    number = {node.name: i for i, node in enumerate(topology.nodes)}
    return topology.link_names(), width, height, nodes, [[number[link.a], number[link.b]] for link in topology.links]


def _star(switches: dict[str, Any], ports: list[str]) -> Drawn:
    """Draws switches in no network: their ports below them, as they are numbered."""
    width = GAP * max(len(ports), len(switches), 3)
    nodes: list[list[Any]] = [[name, width * (i + 0.5) / len(switches), 30.0, False] for i, name in enumerate(switches)]
    nodes += [[f"port {name}", width * (i + 0.5) / len(ports), HIGH - 30.0, True] for i, name in enumerate(ports)]
    first = len(switches)
    return ports, width, HIGH, nodes, [[first + i, 0] for i in range(len(ports))] if len(switches) == 1 else []


def _loads(rates: dict[str, dict[str, float]], rows: dict[str, Any], names: list[str],
           faults: dict[str, str]) -> list[dict[str, Any]]:
    """Returns for each link or port: bit/s and packets/s both ways (``up``: towards the switch or, between two, from the first),
    ``drops`` per second, ``rate`` in bit/s (0: unknown), ``share`` of that, else of the highest here, and its ``state``."""
    links: list[dict[str, Any]] = []
    for name in names:
        rate, whole = rates.get(name, {}), float(rows.get(name, {}).get("rate") or 0)
        up, down = (rate.get(f"{way}_bits", rate.get(f"{other}_bits", 0.0)) for way, other in (("up", "in"), ("down", "out")))
        packets = sum(value for key, value in rate.items() if key.endswith("_packets"))
        links.append({"name": name, "up": up, "down": down, "packets": packets, "drops": rate.get("drops", 0.0), "rate": whole,
                      "state": faults.get(name, "up"), "known": name in rows})
    highest = max((max(link["up"], link["down"]) for link in links), default=0.0)
    for link in links:
        whole = link["rate"] or highest
        link["share"] = max(link["up"], link["down"]) / whole if whole else 0.0
    return links


# ---- jobs


def _job(name: str, job: dict[str, Any], names: list[str], topology: Topology | None) -> dict[str, Any]:
    """Returns a job's row: ``links`` and ``nodes`` are those of its tree."""
    here = [str(member["port"]) for member in job["members"].values()]
    if topology and job.get("tree"):
        links = [names[number] for number in job["tree"]["links"]]
        nodes = sorted({job["root"], *job["tree"]["parent"]})
    elif topology:
        links, nodes = [], sorted(job["switches"])
    else:
        links, nodes = here, [*job["switches"], *(f"port {port}" for port in here)]
    attached, asked = looks.workers_of(job)
    return {"name": name, "number": job["number"], "here": attached, "workers": asked, "slots": job["slots"],
            "root": job["root"], "others": [switch for switch in job["switches"] if switch != job["root"]],
            "bases": {switch: one["slot_base"] for switch, one in job["switches"].items()}, "owner": job["owner"],
            "run_by": job["run_by"], "check": job["check"], "links": links, "nodes": nodes}


def _members(jobs: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"job": name, "worker": int(worker), **{key: member[key] for key in ("host", "pid", "port", "ip")}}
            for name, job in jobs.items() for worker, member in sorted(job["members"].items(), key=lambda item: int(item[0]))]


def _incident(one: dict[str, Any]) -> dict[str, Any]:
    since, until = looks.clock(one["began"]), looks.clock(one["ended"])
    when = f"was {one['state']} from {since} to {until}" if until else f"is {one['state']} since {since}"
    words = [f"link {one['link']} {when}: {one['reason']}", *([f"{one['lost']} frames lost there"] if one["lost"] else []),
             *looks.link_jobs_words(one)]
    return {"over": one["ended"] is not None, "words": "; ".join(words)}


# ---- counters


def _drops(new: Look, old: Look | None) -> Iterator[list[Any]]:
    """Yields [place, reason, total, per second] of all that was lost: at ports and links by reason, and in the program."""
    seconds = new["at"] - old["at"] if old else 0.0
    before = old["counters"] if old else {}
    for kind, noun in (("ports", "port"), ("links", "link")):
        for name, each in (new["counters"].get(kind) or {}).items():
            earlier = dict(_reasons((before.get(kind) or {}).get(name, {})))
            for reason, count in _reasons(each):
                if count:
                    yield [f"{noun} {name}", reason, count, _rate(count, earlier.get(reason, count), seconds)]
    for switch, counter, cell, packets, _, rate in _cells(new, old):
        if counter.rpartition(".")[2] == "drops":
            yield [switch or "program", cell, packets, rate]


def _reasons(row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields the reasons of losses in a port's or link's counters, and their counts."""
    for key, value in row.items():
        if isinstance(value, dict):
            skipped = looks.PHASES if key == "drops" else ()
            yield from ((f"{key}: {reason}", count) for reason, count in value.items() if reason not in skipped)
        elif key.endswith("drops") or key in ("lost", "errors"):
            yield key.replace("_", " "), value


def _cells(new: Look, old: Look | None) -> Iterator[list[Any]]:
    """Yields [switch, counter, cell, packets, bytes, packets per second] of each cell that is not zero, by the program's
    names."""
    about, seconds = new["ping"], new["at"] - old["at"] if old else 0.0
    tables = _programs(new["counters"])
    earlier = _programs(old["counters"]) if old else {}
    for switch, program in tables.items():
        for counter, cells in program.items():
            names = labels(about.get("source") or about["program"], counter, len(cells)) if any(map(any, cells)) else []
            before = earlier.get(switch, {}).get(counter, [])
            for number, (packets, size) in enumerate(cells):
                if packets or size:
                    was = before[number][0] if number < len(before) else packets
                    yield [switch, counter, names[number], packets, size, _rate(packets, was, seconds)]


def _programs(counters: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the programs' counters by switch, or of all switches under ""."""
    switches = counters.get("switches")
    return {name: one["program"] for name, one in switches.items()} if switches else {"": counters.get("program") or {}}


def _tables(counters: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields tables of the ports', links' and the parameter server's counters: their columns and rows."""
    kinds = {"port": counters.get("ports"), "link": counters.get("links"),
             "job of the parameter server": counters.get("server", {}).get("jobs")}
    for kind, rows in kinds.items():
        if rows:
            each = {name: looks.flat(one) for name, one in rows.items()}
            columns = list(dict.fromkeys(key for one in each.values() for key in one))
            yield {"kind": kind, "columns": columns, "rows": [[str(name), *(one.get(key, 0) for key in columns)]
                                                              for name, one in each.items()]}
    for switch, one in (counters.get("switches") or {}).items():
        if one.get("error"):
            yield {"kind": f"{switch} does not answer: {one['error']}", "columns": [], "rows": []}
    if (pool := counters.get("mbufs")) is not None:
        numbers = pool if isinstance(pool, dict) else {"mbufs": pool}
        yield {"kind": "packet buffers", "columns": list(numbers), "rows": [["all", *numbers.values()]]}


def _rate(now: float, before: float, seconds: float) -> float:
    return max(now - before, 0) / seconds if seconds > 0 else 0.0


# ---- texts


def _shown(value: Any) -> Any:
    """Returns the value with printable, bounded texts, and without numbers that JSON lacks. Raises TypeError."""
    if isinstance(value, str):
        text = value[:MOST_TEXT]
        text = text if text.isprintable() else printable(text)  # the usual name needs no look at each character
        return text if len(value) <= MOST_TEXT else f"{text}... ({len(value):,} characters)"
    if isinstance(value, dict):
        return {_shown(str(key)): _shown(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value]
    if value is None or isinstance(value, bool | int) or isinstance(value, float) and math.isfinite(value):
        return value
    raise TypeError(f"{type(value).__name__} where a text or a finite number is expected")
