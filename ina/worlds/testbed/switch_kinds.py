"""Kinds of switches of a network, by name: how each loads a program, and makes its running switches."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ina.base import paths
from ina.base.closing import closing_on_error
from ina.base.extras import Missing
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.p4info import P4Info
from ina.worlds.testbed.description import Description, Trunk
from ina.worlds.testbed.forwarder import Cable, EmbeddedForwarder, ForkedForwarder, Forwarder
from ina.worlds.testbed.link_board import LinkBoard

Cables = dict[Trunk, Cable] | None


class Loaded(Protocol):
    """A program, loaded for a kind of switch."""

    @property
    def p4info(self) -> P4Info: ...

    @property
    def source_hash(self) -> str: ...


@dataclass(frozen=True)
class Kind:
    """One kind. ``load``: from a program's path and preprocessor definitions to what ``make`` takes. ``make``: a running
    Forwarder for every switch of a description, with the board of its links; where it raises, none is left. ``cables`` that it
    can have between switches, the default first. ``missing``: the reason why this machine cannot; empty: it can. ``twin``: the
    folder beside a protocol's program that has the one for this kind; empty: it is the program itself."""

    load: Callable[[Path, Mapping[str, str]], Loaded]
    make: Callable[[Any, Description, LinkBoard], dict[str, Forwarder]]
    cables: tuple[str, ...]
    missing: Callable[[], str] = lambda: ""
    twin: str = ""


def compiled(program: Path, defines: Mapping[str, str]) -> Program:
    return Program(compile_program(program, defines=defines, include_dirs=[paths.p4_dir()]).so_path)


def embedded(program: Program, description: Description, board: LinkBoard) -> dict[str, Forwarder]:
    """Starts all switches in this process."""
    make = forwarder_of(description)
    return together(description, lambda name, cables: make(name, program, description, board, cables))


def forwarder_of(description: Description) -> type[EmbeddedForwarder]:
    """Returns what embedded switches of the network are: for a program alone those that P4Runtime clients drive, if gRPC is
    here."""
    if description.entries is None or not p4runtime_here():
        return EmbeddedForwarder
    from ina.worlds.testbed.served_forwarder import ServedForwarder

    return ServedForwarder


def p4runtime_here() -> bool:
    """Returns True if gRPC is installed; it is not imported before switches are forked."""
    return importlib.util.find_spec("grpc") is not None


def together(description: Description, make: Callable[[str, Cables], Forwarder]) -> dict[str, Forwarder]:
    """Starts switches whose ports are all in this process, so that cables of memory can join them."""
    cables = None
    if description.cables == "memory":
        cables = {trunk: Cable(description.max_frame) for trunk in description.trunks}
    forwarders: dict[str, Forwarder] = {}
    try:
        with closing_on_error(partial(close, forwarders)):
            for name in description.switches:
                forwarders[name] = make(name, cables)
    finally:
        for cable in (cables or {}).values():
            cable.close()
    return forwarders


def processes(program: Program, description: Description, board: LinkBoard) -> dict[str, Forwarder]:
    """Forks a process for each switch."""
    forwarders: dict[str, ForkedForwarder] = {}
    make = forwarder_of(description)
    with closing_on_error(partial(close, forwarders)):
        for name in description.switches:
            forwarders[name] = ForkedForwarder(name, partial(make, name, program, description, board))
        for forwarder in forwarders.values():
            forwarder.wait_ready()
    return dict(forwarders)


def close(forwarders: Mapping[str, Forwarder]) -> None:
    """Closes all at once: the kernel takes long over each packet socket."""
    with ThreadPoolExecutor(max(1, len(forwarders))) as pool:
        for future in [pool.submit(forwarder.close) for forwarder in forwarders.values()]:
            future.result()


# BMv2 needs the extra p4runtime, so its modules are imported on use.


def _bmv2_load(program: Path, defines: Mapping[str, str]) -> Loaded:
    from ina.p4.p4runtime.bmv2 import compile_bmv2

    return compile_bmv2(program, defines)


def _bmv2(program: Any, description: Description, board: LinkBoard) -> dict[str, Forwarder]:
    from ina.worlds.testbed.bmv2 import Bmv2Forwarder

    return together(description, lambda name, cables: Bmv2Forwarder(name, program, description, board, cables))


def _bmv2_missing() -> str:
    try:
        from ina.p4.p4runtime.bmv2 import missing
    except Missing as error:
        return str(error)
    return missing()


KINDS: dict[str, Kind] = {
    "embedded": Kind(compiled, embedded, ("memory", "veth")),
    "process": Kind(compiled, processes, ("veth",)),
    "tna": Kind(compiled, embedded, ("memory", "veth"), twin="tofino"),
    "bmv2": Kind(_bmv2_load, _bmv2, ("memory", "veth"), _bmv2_missing),
}
