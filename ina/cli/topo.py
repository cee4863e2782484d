"""``ina topo list`` and ``ina topo show NAME``: the topologies, and drawings with a job's aggregation tree."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from ina import topology as topologies
from ina.base.bounds import number
from ina.base.error_text import line
from ina.base.settings import keys
from ina.topology import TopologyError
from ina.topology.file import Keys, Properties
from ina.topology.points import host_list


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to ``ina``; each of its commands sets ``main``, a function of the parsed arguments."""
    topo = commands.add_parser("topo")
    verbs = topo.add_subparsers(title="commands", metavar="COMMAND", required=True)
    verbs.add_parser("list", help="the topologies with their parameters").set_defaults(main=_list)
    show = verbs.add_parser("show", help="switches, ports and a job's aggregation tree, as text and as a drawing")
    show.add_argument("name", help="a topology's name, or a TOML file")
    show.add_argument("--job", default="", metavar="H1,H2,...", help="workers of a job: h1,h2 or a range h1-h8")
    show.add_argument("--svg", type=Path, metavar="FILE", help="write a drawing there")
    group = show.add_argument_group("parameters of topologies")
    for key, (kind, owners) in sorted(parameters().items()):
        group.add_argument(f"--{key}", type=parser(key, kind), metavar=kind.__name__.upper(), help=f"of {', '.join(owners)}")
    show.set_defaults(main=_show, keys=tuple(parameters()))


def parameters() -> dict[str, tuple[type, list[str]]]:
    """Parameter -> its type and the topologies that have it."""
    owners: dict[str, tuple[type, list[str]]] = {}
    for name in topologies.names():
        for key, parameter in inspect.signature(topologies.maker(name)).parameters.items():
            kind = str if parameter.default is None else type(parameter.default)
            owners.setdefault(key, (kind, []))[1].append(name)
    return owners


def parser(key: str, kind: type) -> Callable[[str], object]:
    """Returns the argparse type of a topology's parameter."""
    units = {name: each.unit for keys_of in (Properties, Keys) for name, each in keys(keys_of).items()}
    return str if kind is str else number(kind, "b/s" if key in ("uplink", "local") else units.get(key, ""))


def _list(_: argparse.Namespace) -> int:
    for name in topologies.names():
        make = topologies.maker(name)
        about = (sys.modules[make.__module__].__doc__ or "").partition("\n")[0]
        defaults = inspect.signature(make).parameters.items()
        print(f"{name:12} {about}\n{'':12} " + " ".join(f"--{key} {p.default}" for key, p in defaults if p.default is not None))
    return 0


def _free(topology: topologies.Topology, signature: inspect.Signature, arguments: dict[str, int]) -> float:
    """Returns the TopoOpt interfaces that the least connected server leaves unused; a transmitter or a receiver is half of
    one."""
    degree: int = arguments.get("degree", signature.parameters["degree"].default)
    used: defaultdict[str, float] = defaultdict(float)
    for link in topology.links:
        if link.a[0] == link.b[0] == "s":
            for end in (link.a, link.b):
                used[end] += 0.5 if link.simplex else 1
    return degree - max(used.values())


def _show(args: argparse.Namespace) -> int:
    from ina.topology import draw
    from ina.topology.tree import aggregation_tree

    arguments = {key: getattr(args, key) for key in args.keys if getattr(args, key) is not None}
    try:
        topology = topologies.load(args.name, **arguments)
        tree = aggregation_tree(topology, host_list(args.job)) if args.job else None
        print(draw.text(topology, tree), end="")
        if args.name == "topoopt" and (free := _free(topology, inspect.signature(topologies.maker("topoopt")), arguments)):
            print(f"{free:g} of each server's interfaces are free: there are no more rings or demands for them")
        if args.svg:
            args.svg.write_text(draw.svg(topology, tree))
    except TopologyError as error:
        print(f"ina: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"ina: {line(error)}", file=sys.stderr)
        return 1
    return 0
