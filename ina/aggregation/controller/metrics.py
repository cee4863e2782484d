"""Figures of switch processes as text for Prometheus (exposition format 0.0.4): of all that run here in ``ina dash``, of one at
its own socket for that (metrics_door.py).

Names and units follow Prometheus's rules: a prefix, base units, ``_total`` for what only grows. A process that does not answer is
``ina_up 0`` and nothing else, so that no old figure passes for a new one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ina.aggregation.control_socket.channel import shown
from ina.aggregation.controller.looks import flat, workers_of

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
MOST_BITS = 1023  # of a whole number: Prometheus reads floats
NONSENSE = (LookupError, TypeError, ValueError, AttributeError)  # what a reply that makes no sense raises
WAYS = {"rx": "in", "tx": "out", "up": "up", "down": "down"}  # a counter's first word and its label ``direction``

Look = dict[str, Any]
_LONE = re.compile("[\ud800-\udfff]")  # halves of pairs of UTF-16, which UTF-8 does not have


class Family(NamedTuple):
    """A metric: its type, its help and, by its labels, which are escaped, its values."""

    kind: str
    help: str
    samples: dict[tuple[tuple[str, str], ...], float]


_FAMILIES = {
    "ina_up": ("gauge", "1 if the switch process answered this scrape, else 0."),
    "ina_scrape_duration_seconds": ("gauge", "Time in which the switch process answered."),
    "ina_build_info": ("gauge", "1; labels: the version of ina, and the switch program with its protocol and hash."),
    "ina_process_start_time_seconds": ("gauge", "Unix time at which the switch process started."),
    "ina_process_cpu_seconds_total": ("counter", "Processor time of the switch process."),
    "ina_process_resident_memory_bytes": ("gauge", "Memory of the switch process."),
    "ina_process_open_descriptors": ("gauge", "Descriptors that the switch process has open."),
    "ina_process_descriptors_limit": ("gauge", "Descriptors that the switch process may have open."),
    "ina_switch_slots": ("gauge", "Slots of a switch."),
    "ina_switch_free_slots": ("gauge", "Slots of a switch that no job has."),
    "ina_switch_up": ("gauge", "1 if the controller can use the switch, else 0."),
    "ina_job_workers": ("gauge", "Workers of a job that are attached."),
    "ina_job_workers_asked": ("gauge", "Workers that a job was admitted for."),
    "ina_job_slots": ("gauge", "Slots of a job, its window."),
    "ina_job_port_info": ("gauge", "1 for each attached worker of a job; labels: its number, its port and its address."),
    "ina_program_packets_total": ("counter", "Packets in a cell of a counter of the switch program."),
    "ina_program_bytes_total": ("counter", "Bytes in a cell of a counter of the switch program."),
    "ina_port_packets_total": ("counter", "Packets through a port; direction in: towards the switch."),
    "ina_port_bytes_total": ("counter", "Bytes through a port; direction in: towards the switch."),
    "ina_port_drops_total": ("counter", "Packets that ended at a port's switch, by reason; ingress and egress: in the program."),
    "ina_port_count_total": ("counter", "Other counts of a port."),
    "ina_link_packets_total": ("counter", "Packets over a link; direction up: from the host or the first switch."),
    "ina_link_bytes_total": ("counter", "Bytes on the wire of a link; direction up: from the host or the first switch."),
    "ina_link_drops_total": ("counter", "Packets that a link lost, by direction, where it is known, and reason."),
    "ina_link_rate_bits_per_second": ("gauge", "Rate of a link."),
    "ina_link_up": ("gauge", "1, or 0 while the controller holds the link for down."),
    "ina_link_count_total": ("counter", "Other counts of a link."),
    "ina_server_count_total": ("counter", "Counts of the parameter server by job number."),
}


def exposition(processes: Mapping[str, Look | None]) -> str:
    """Formats one look at each process; None: it did not answer."""
    families = {name: Family(kind, help_text, {}) for name, (kind, help_text) in _FAMILIES.items()}
    for name, look in processes.items():
        try:
            samples = [*_samples(shown(name), look)] if look else []
        except NONSENSE:  # a reply of another version, or of another program
            look, samples = None, []
        samples += [("ina_up", {"process": shown(name)}, int(look is not None))]
        for metric, labels, value in samples:
            families[metric].samples[tuple((key, _escaped(text)) for key, text in labels.items())] = value
    return "".join(line for name, family in families.items() if family.samples for line in _family(name, family))


def _family(name: str, family: Family) -> Iterator[str]:
    yield f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"
    for labels, value in family.samples.items():
        inner = ",".join(f'{key}="{text}"' for key, text in labels)
        yield f"{name}{{{inner}}} {_number(value)}\n"


def _escaped(text: str) -> str:
    """Escapes a label's value; what is no Unicode text (others choose names) has the numbers of its code points, so that two
    such names stay two."""
    text = text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return _LONE.sub(lambda found: rf"\\u{ord(found[0]):04x}", text)


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return repr(value) if math.isfinite(value) else "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


Sample = tuple[str, dict[str, str], float]


def _samples(process: str, look: Look) -> Iterator[Sample]:
    """Yields (metric, labels, value) of a process that answered."""
    own = {"process": process}
    yield "ina_scrape_duration_seconds", own, float(look["seconds"])
    yield from _process(own, look["ping"])
    for name, switch in look["switches"]["switches"].items():
        labels = {**own, "switch": str(name)}
        yield "ina_switch_slots", labels, _count(switch["slots"])
        yield "ina_switch_free_slots", labels, _count(switch["free_slots"])
        yield "ina_switch_up", labels, int(switch["state"] == "up")
    for name, job in look["jobs"]["jobs"].items():
        labels = {**own, "job": str(name)}
        attached, asked = workers_of(job)
        yield "ina_job_workers", labels, attached
        yield "ina_job_workers_asked", labels, _count(asked)
        yield "ina_job_slots", labels, _count(job["slots"])
        for worker, member in job["members"].items():
            if "port" in member:
                place = {"worker": str(worker), "port": str(member["port"]), "ip": str(member["ip"])}
                yield "ina_job_port_info", {**labels, **place}, 1
    counters = look["counters"]
    yield from _program(own, counters, look["ping"])
    down = {one["link"] for one in look["switches"].get("links", ()) if one["ended"] is None and one["state"] == "down"}
    for name, row in (counters.get("ports") or {}).items():
        yield from _row("port", {**own, "port": str(name)}, row)
    for name, row in (counters.get("links") or {}).items():
        labels = {**own, "link": str(name)}
        yield "ina_link_up", labels, int(name not in down)
        yield from _row("link", labels, row)
    for number, row in counters.get("server", {}).get("jobs", {}).items():
        for field, value in flat(row).items():
            yield "ina_server_count_total", {**own, "job": str(number), "field": field}, _count(value)


def _process(own: dict[str, str], about: Look) -> Iterator[Sample]:
    """Yields samples of what ran, and of the process itself; one of an earlier version does not say these."""
    if "version" in about:
        yield "ina_build_info", {**own, **{key: str(about[key]) for key in ("version", "program", "protocol", "source_hash")}}, 1
    for key, value in about.get("process", {}).items():
        if (name := f"ina_process_{key}") in _FAMILIES:
            yield name, own, _count(value)


def _program(own: dict[str, str], counters: Look, about: Look) -> Iterator[Sample]:
    """Yields the cells of the program's counters, of each switch where the reply says which has counted."""
    from ina.aggregation.controller.counter_cells import labels  # imports the compiler

    for switch, reply in (counters.get("switches") or {"": counters}).items():
        for counter, cells in reply["program"].items():
            names = labels(about.get("source") or about["program"], counter, len(cells))
            for name, (packets, size) in zip(names, cells, strict=True):
                cell = {**own, "switch": str(switch), "counter": str(counter), "cell": name}
                yield "ina_program_packets_total", cell, _count(packets)
                yield "ina_program_bytes_total", cell, _count(size)


def _row(kind: str, labels: dict[str, str], row: Look) -> Iterator[Sample]:
    """Yields the counters of a port or link: what is known of packets, bytes, drops and rate by its meaning, all else by its
    name."""
    for field, value in row.items():
        way, _, rest = field.partition("_")
        if isinstance(value, Mapping):
            metric = f"ina_{kind}_drops_total" if field == "drops" else f"ina_{kind}_count_total"
            for reason, n in value.items():
                key = {"reason": str(reason)} if field == "drops" else {"field": f"{field} {reason}"}
                yield metric, {**labels, **key}, _count(n)
        elif way in WAYS and rest in ("packets", "bytes"):
            yield f"ina_{kind}_{rest}_total", {**labels, "direction": WAYS[way]}, _count(value)
        elif way in WAYS and rest.endswith("_drops"):
            reason = rest.removesuffix("_drops")
            yield f"ina_{kind}_drops_total", {**labels, "direction": WAYS[way], "reason": reason}, _count(value)
        elif field == "lost" and kind == "link":
            yield "ina_link_drops_total", {**labels, "reason": "lost"}, _count(value)
        elif field == "rate" and kind == "link":
            if value:  # without one a link is as fast as this machine
                yield "ina_link_rate_bits_per_second", labels, _count(value)
        elif not isinstance(value, str | bool):  # a device's name, and such
            yield f"ina_{kind}_count_total", {**labels, "field": str(field)}, _count(value)


def _count(value: Any) -> float:
    """Returns a number of a reply. Raises TypeError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r}: expected a number")
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise TypeError("a number has more digits than Prometheus takes")
    return value
