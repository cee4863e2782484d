"""What the switches of a network can be, by name: how each kind loads a program, and makes its running switches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ina.base import paths
from ina.base.extras import Missing
from ina.p4.compiler.build import compile_program
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.p4info import P4Info
from ina.worlds.testbed.description import Description, Trunk
from ina.worlds.testbed.forwarder import Cable, EmbeddedForwarder, ForkedForwarder, Forwarder

Cables = dict[Trunk, Cable] | None


class Loaded(Protocol):
    """A program as a kind of switch takes it."""

    @property
    def p4info(self) -> P4Info: ...

    @property
    def source_hash(self) -> str: ...


@dataclass(frozen=True)
class Kind:
    """``load``: a program's path and preprocessor definitions to what ``make`` takes. ``make``: a running Forwarder for every
    switch of a description; it raises, and leaves nothing. ``cables`` that it can have between switches, the default first.
    ``missing``: why this machine cannot; empty: it can. ``twin``: the folder beside a protocol's program that has the one for
    this kind; empty: it is the program itself."""

    load: Callable[[Path, Mapping[str, str]], Loaded]
    make: Callable[[Any, Description], dict[str, Forwarder]]
    cables: tuple[str, ...]
    missing: Callable[[], str] = lambda: ""
    twin: str = ""


def compiled(program: Path, defines: Mapping[str, str]) -> Program:
    return Program(compile_program(program, defines=defines, include_dirs=[paths.p4_dir()]).so_path)


def embedded(program: Program, description: Description) -> dict[str, Forwarder]:
    """All switches in this process."""
    return together(description, lambda name, cables: EmbeddedForwarder(name, program, description, cables))


def together(description: Description, make: Callable[[str, Cables], Forwarder]) -> dict[str, Forwarder]:
    """Switches whose ports are all in this process, so that memory can be between them."""
    cables = None
    if description.cables == "memory":
        cables = {trunk: Cable(description.max_frame) for trunk in description.trunks}
    made: dict[str, Forwarder] = {}
    try:
        for name in description.switches:
            made[name] = make(name, cables)
    except BaseException:
        close(made)
        raise
    finally:
        for cable in (cables or {}).values():
            cable.close()
    return made


def processes(program: Program, description: Description) -> dict[str, Forwarder]:
    """A process for each switch, forked from this one."""
    made: dict[str, ForkedForwarder] = {}
    try:
        for name in description.switches:
            made[name] = ForkedForwarder(name, partial(EmbeddedForwarder, name, program, description))
        for forwarder in made.values():
            forwarder.wait_ready()
    except BaseException:
        close(made)
        raise
    return dict(made)


def close(forwarders: Mapping[str, Forwarder]) -> None:
    """All at once: the kernel takes its time over each packet socket."""
    with ThreadPoolExecutor(max(1, len(forwarders))) as pool:
        for closed in [pool.submit(forwarder.close) for forwarder in forwarders.values()]:
            closed.result()


# BMv2 needs the extra p4runtime, so its modules are imported when it is asked for.


def _bmv2_load(program: Path, defines: Mapping[str, str]) -> Loaded:
    from ina.p4.p4runtime.bmv2 import compile_bmv2

    return compile_bmv2(program, defines)


def _bmv2(program: Any, description: Description) -> dict[str, Forwarder]:
    from ina.worlds.testbed.bmv2 import Bmv2Forwarder

    return together(description, lambda name, cables: Bmv2Forwarder(name, program, description, cables))


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
