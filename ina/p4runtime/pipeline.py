"""A forwarding-pipeline config (P4Runtime §7) made into a switch.

`p4_device_config` says which program, in one of these forms:

    a path                      of a P4 source (*.p4, compiled here) or of a compiled program (*.so), on this machine
    {"program": path, "defines": {"NAME": "VALUE"}, "include": [folder, ...]}     the same with preprocessor flags
    a compiled program          the bytes of the shared object that `ina compile` makes

The P4Info that comes with it must describe that program: ids, names and widths, not annotations or order.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ina.compiler import cache
from ina.compiler.build import compile_program
from ina.compiler.cc import BuildError
from ina.compiler.errors import CompileError
from ina.extras import extra
from ina.p4runtime.digests import DigestQueue
from ina.p4runtime.messages import config as p4config
from ina.p4runtime.messages import p4
from ina.p4runtime.translate import Translator
from ina.switch import EntityError, Program, Switch

with extra("p4runtime"):
    from google.protobuf import json_format

ELF = b"\x7fELF"
# What P4Info may say or leave out without describing another program: comments, and what some compilers add.
UNESSENTIAL = {
    "annotations", "annotation_locations", "structured_annotations", "structured_annotation_locations", "doc",
    "documentation", "alias", "initial_default_action", "has_initial_entries", "type_name", "index_type_name",
}  # fmt: skip


@dataclass(eq=False)
class Pipeline:
    """A switch with its program, and what P4Runtime keeps beside it. `given`: the ForwardingPipelineConfig as it came."""

    switch: Switch
    given: Any
    message: Any  # the program's own P4Info, as p4.config.v1.P4Info
    translator: Translator = field(init=False)
    digests: DigestQueue = field(init=False)

    def __post_init__(self) -> None:
        self.translator = Translator(self.switch.p4info, self.message, self.switch.program.layout)
        self.digests = DigestQueue(self.message, self.switch.program.layout)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a device takes. `native` False: no compiled programs, which are code that runs in this process; `arch`
    ("v1model", "tna"): none of another architecture. `pipes` of TNA programs, as for `Switch`.
    """

    native: bool = True
    arch: str | None = None
    pipes: int = 0
    make: Callable[[Program], Any] | None = None  # another switch than `Switch`

    def switch(self, program: Program) -> Any:
        if self.arch not in (None, program.architecture):
            raise EntityError(f"{program.name} is a program for {program.architecture}, and this switch takes {self.arch}")
        if self.make is not None:
            return self.make(program)
        return Switch(program, pipes=self.pipes if program.architecture == "tna" else 0)


def from_config(given: Any, wanted: Wanted) -> Pipeline:
    """The pipeline of a ForwardingPipelineConfig. EntityError (INVALID_ARGUMENT): it cannot be realised, and why."""
    if not given.p4_device_config:
        raise EntityError("p4_device_config is empty: it says which program to load (a path, or a compiled program)")
    program = _program(given.p4_device_config, wanted.native)
    message = message_of(program)
    difference = compare(given.p4info, message)
    if difference:
        raise EntityError(f"the P4Info does not describe {program.name}: {difference}")
    kept = p4.ForwardingPipelineConfig()
    kept.CopyFrom(given)
    return Pipeline(wanted.switch(program), kept, message)


def from_program(program: Program, wanted: Wanted) -> Pipeline:
    """The pipeline of a program that the switch was started with: it has no cookie."""
    message = message_of(program)
    given = p4.ForwardingPipelineConfig(p4info=message, p4_device_config=os.fsencode(program.path))
    return Pipeline(wanted.switch(program), given, message)


def message_of(program: Program) -> Any:
    return json_format.ParseDict(program.p4info.message, p4config.P4Info())


def _program(data: bytes, native: bool) -> Program:
    try:
        if data.startswith(ELF):
            return _received(data, native)
        text = data.decode().strip()
        said = json.loads(text) if text.startswith("{") else {"program": text}
        path = said.get("program")
        if not isinstance(path, str) or set(said) - {"program", "defines", "include"}:
            raise EntityError(
                "p4_device_config is JSON, and not of this switch's kind: expected {\"program\": path of a .p4 or .so, "
                "\"defines\": {...}, \"include\": [...]}. For output of p4c-bm2-ss, give the .p4 it was made from"
            )
        if not path.endswith(".p4"):
            if not native:
                raise EntityError("compiled programs are code, and this server takes none: give the path of a .p4")
            return Program(path)
        return Program(compile_program(path, defines=said.get("defines"), include_dirs=said.get("include", ())).so_path)
    except (CompileError, BuildError) as error:
        raise EntityError(f"the program does not compile: {error}") from None
    except UnicodeDecodeError:
        raise EntityError("p4_device_config is neither a compiled program (ELF) nor text (a path, or JSON)") from None
    except json.JSONDecodeError as error:
        raise EntityError(f"p4_device_config is not JSON: {error}") from None
    except (OSError, AttributeError, TypeError) as error:
        raise EntityError(f"p4_device_config: {error}") from None


def _received(data: bytes, native: bool) -> Program:
    """The bytes of a compiled program, kept in the cache under their hash."""
    if not native:
        raise EntityError("compiled programs are code, and this server takes none: give the path of a .p4")
    path = cache.folder() / f"received-{hashlib.sha256(data).hexdigest()[:32]}.so"
    if not path.exists():
        partial = Path(f"{path}.{os.getpid()}")
        partial.write_bytes(data)
        partial.replace(path)
    return Program(path)


def compare(given: Any, own: Any) -> str:
    """What differs between two P4Infos, in words; empty: they describe the same program."""
    for section in own.DESCRIPTOR.fields:
        if section.name in ("pkg_info", "type_info"):
            continue
        theirs = {m.preamble.id: _essence(m) for m in getattr(given, section.name)}
        for message in getattr(own, section.name):
            name = f"{section.name} {message.preamble.name} ({message.preamble.id:#x})"
            other = theirs.pop(message.preamble.id, None)
            if other is None:
                return f"{name} is missing"
            mine = _essence(message)
            if mine != other:
                differing = [f.name for f in message.DESCRIPTOR.fields if getattr(mine, f.name) != getattr(other, f.name)]
                return f"{name} differs in {', '.join(differing)}"
        if theirs:
            extra = next(iter(theirs.values()))
            return f"{section.name} {extra.preamble.name} ({extra.preamble.id:#x}) is not in the program"
    return ""


def _essence(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    _strip(copy)
    return copy


def _strip(message: Any) -> None:
    for field_, value in message.ListFields():
        if field_.name in UNESSENTIAL:
            message.ClearField(field_.name)
        elif field_.message_type is None or field_.message_type.GetOptions().map_entry:
            continue
        else:
            for inner in value if _repeated(field_) else [value]:
                _strip(inner)


def _repeated(field_: Any) -> bool:
    return field_.is_repeated if hasattr(field_, "is_repeated") else field_.label == field_.LABEL_REPEATED
