"""A defect in a copy of one source file, and the copy in the original's place for as long as a walk or a run takes.

    with planted(plant, folder) as p4:
        program = compile_program(p4 / "switchml.p4", ...)      # everything else is imported as ever

A file of p4/ is changed in a copy of that folder. One of host/ is compiled again: with the worker that it is a part of, which
gets the protocol's name, or with the parameter server. A module of ina/ is executed again, and its functions and
methods take the places of those of the same names.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from unittest.mock import patch

from cffi import FFI

from ina.aggregation import protocols
from ina.aggregation.ps import state_machine
from ina.base import manifest, native, paths
from ina.base.cc import shared_object
from ina.base.native import ffi, lib
from ina.worlds.virtual import parameter_servers

FLAGS = ["-std=gnu11", "-O1", "-march=native"]
SERVER = ("ps.c", "ps_jobs.c")
SHARED = "offers.c"  # between a worker and tensors.c
SERVER_CALLS = """
    void *ina_ps_jobs_create(void);
    void ina_ps_jobs_destroy(void *jobs);
    int ina_ps_jobs_add(void *jobs, const void *config, uint64_t now);
    int ina_ps_jobs_remove(void *jobs, uint32_t job);
    int ina_ps_jobs_stats(const void *jobs, uint32_t job, void *stats);
    extern char ina_ps_machine;
    size_t ina_ps_state_size(const void *config);
    size_t ina_ps_stats_offset(const void *config);
    uint32_t ina_ps_frame_size(const void *config);
    int ina_ps_init(void *state, const void *config, uint64_t now);
    int ina_ps_receive(void *state, void *packet, uint64_t now);
    int ina_ps_frames_to_send(void *state, void *packets, int n, uint64_t now);
    uint64_t ina_ps_next_timer(const void *state);
"""


@dataclass(frozen=True)
class Plant:
    """A defect: ``old`` in ``file`` (from the checkout's root) becomes ``new``, and so do the further pairs of ``also``; each is
    there once. ``violation``: a regular expression for the violation that the defect causes."""

    file: str
    old: str
    new: str
    violation: str = "."
    also: tuple[tuple[str, str], ...] = ()
    protocol: str = "switchml"

    def text(self) -> str:
        """Returns the file's text with the defect. Raises ValueError: the code has changed, and the plant must follow."""
        text = (paths.root() / self.file).read_text()
        for old, new in ((self.old, self.new), *self.also):
            if text.count(old) != 1:
                raise ValueError(f"{self.file}: {old!r} is there {text.count(old)} times; the plant must follow the code")
            text = text.replace(old, new)
        return text


@contextmanager
def planted(plant: Plant, folder: Path) -> Iterator[Path]:
    """The folder of the switch programs while the defect is there. ``folder``: an empty one, for copies."""
    file = Path(plant.file)
    with ExitStack() as stack:
        if file.parts[0] == "p4":
            copy = shutil.copytree(paths.p4_dir(), folder / "p4")
            (folder / file).write_text(plant.text())
            yield copy
            return
        if file.parts[0] == "host":
            stack.enter_context(_compiled(plant, folder))
        else:
            stack.enter_context(_executed(plant, folder))
        yield paths.p4_dir()


# ---- in C


def _compiled(plant: Plant, folder: Path):
    name = Path(plant.file).name
    copy = folder / "host"
    copy.mkdir()
    for path in manifest.files("worker"):  # in one folder: what is included by a file's side is the copy's, too
        shutil.copy(path, copy)
    (copy / name).write_text(plant.text())
    if name in SERVER:
        return _served(_server([copy / each for each in SERVER]))
    return patch.object(protocols, "named", _worker(copy, name, plant.protocol))


@contextmanager
def _served(server: _Server) -> Iterator[None]:
    """The parameter servers of virtual time, and those without I/O, are these."""
    with patch.object(parameter_servers, "lib", server), patch.object(state_machine, "lib", server):
        yield


def _worker(copy: Path, name: str, protocol: str):
    """Returns a ``protocols.named`` in which ``protocol`` is the worker of the copy."""
    source = copy / f"{protocol}.c"
    if not source.is_file():  # its kin's file
        source = next(file for file in sorted(copy.glob("*.c")) if f"\nWORKER({protocol}," in file.read_text())
    for part in sorted({name, SHARED} - {source.name}):  # what the worker calls, and what is called from there, is its own then
        source.write_text(f'{source.read_text()}\n#include "{part}"\n')
    error = ffi.new("char[]", 512)
    built = shared_object(f"planted-{protocol}", FLAGS, [source], [native.PATH])
    machine = lib.ina_protocol_load(str(built).encode(), f"ina_{protocol}".encode(), error, 512)
    assert machine != ffi.NULL, ffi.string(error)
    original = protocols.named
    return lambda name: machine if name == protocol else original(name)


_SERVERS: list[_Server] = []  # never unloaded: what they have allocated they free, which may be later than their defect is there


class _Server:
    """The parameter server of a copy, with the part of ``ina.base.native.lib`` that concerns it."""

    INA_BITMAP_WORKERS = lib.INA_BITMAP_WORKERS

    def __init__(self, path: Path):
        calls = FFI()
        calls.cdef(SERVER_CALLS)
        self._lib = calls.dlopen(str(path))
        machine = calls.addressof(self._lib, "ina_ps_machine")
        self.ina_ps_machine = ffi.cast("struct ina_protocol *", machine)[0]

    def __getattr__(self, name: str):
        return getattr(self._lib, name)


def _server(sources: list[Path]) -> _Server:
    server = _Server(shared_object("planted-ps", [*FLAGS, "-Wl,-Bsymbolic"], sources, [native.PATH]))
    _SERVERS.append(server)
    return server


# ---- in Python


@contextmanager
def _executed(plant: Plant, folder: Path) -> Iterator[None]:
    """Replaces the functions, methods and constants of the module ``plant.file`` with those of the changed copy."""
    name = ".".join(Path(plant.file).with_suffix("").parts)
    original, copy = import_module(name), folder / Path(plant.file).name
    copy.write_text(plant.text())
    spec = spec_from_file_location(f"planted_{copy.stem}", copy)
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    with ExitStack() as stack:
        stack.callback(sys.modules.pop, spec.name)
        for key, value in list(vars(module).items()):
            own, there = getattr(value, "__module__", None) == spec.name, getattr(original, key, None)
            if own and isinstance(value, type):
                for attribute, member in vars(value).items():
                    if callable(member) or isinstance(member, (property, staticmethod, classmethod)):
                        stack.enter_context(patch.object(there, attribute, member))
                setattr(module, key, there)  # so that others still know what it raises and makes
            elif own and callable(value):
                stack.enter_context(patch.object(original, key, value))
        yield
