"""Pipelines: makes a switch of a forwarding-pipeline config (P4Runtime §7).

`p4_device_config` has the program, in one of these forms:

    the text of a P4 source     compiled here, by a process that cannot do harm with it (ina/p4/compiler/sandbox.py)
    {"source": text, "defines": {"NAME": "VALUE"}, "name": "program.p4"}        the same with preprocessor macros
    {"compiled": hash}          a program that this switch has compiled already: SHA-256 of its shared object, in hex
    a compiled program          the bytes of the shared object; only their hash is used, as above

No file is opened and no code is loaded that a client sends or names: a source includes what ships with the project, or contains
what it includes, as `ina compile --device-config` writes it. The P4Info in the config must describe that program: ids,
names and widths, not annotations or order.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ina.base import cache, documents
from ina.base.cc import BuildError
from ina.base.extras import extra
from ina.p4.compiler.sandbox import Busy, NotCompiled, compile_text
from ina.p4.p4runtime.digests import DigestQueue
from ina.p4.p4runtime.messages import config as p4config
from ina.p4.p4runtime.messages import p4
from ina.p4.p4runtime.translate import Translator
from ina.p4.rpc.errors import is_repeated
from ina.p4.runtime import EntityError, Program, Switch
from ina.p4.runtime.shards import LocalSwitch

with extra("p4runtime"):
    from google.protobuf import json_format
    from google.protobuf.message import Message

log = logging.getLogger(__name__)

ELF = b"\x7fELF"
HASH = re.compile("[0-9a-f]{64}")
# Fields of P4Info that do not matter for the comparison: comments, and fields that only some compilers write.
UNESSENTIAL = {
    "annotations", "annotation_locations", "structured_annotations", "structured_annotation_locations", "doc",
    "documentation", "alias", "initial_default_action", "has_initial_entries", "type_name", "index_type_name",
}


@dataclass(eq=False)
class Pipeline:
    """A switch with its program, and P4Runtime's state of it. `config`: the ForwardingPipelineConfig as received."""

    switch: LocalSwitch
    config: p4.ForwardingPipelineConfig
    message: p4config.P4Info  # the program's own
    translator: Translator = field(init=False)
    digests: DigestQueue = field(init=False)

    def __post_init__(self) -> None:
        self.translator = Translator(self.switch.p4info, self.message, self.switch.program.layout)
        self.digests = DigestQueue(self.message, self.switch.program.layout)

    def read(self, pattern: p4.Entity) -> list[p4.Entity]:
        """The entities that match a pattern. Raises EntityError."""
        if pattern.WhichOneof("entity") != "digest_entry":
            return list(self.translator.read(pattern, self.switch))
        kinds, one = self.digests.kinds(), pattern.digest_entry.digest_id
        return [p4.Entity(digest_entry=p4.DigestEntry(digest_id=i, config=k.config)) for i, k in kinds.items() if one in (0, i)]

    def collect_digests(self, now: int) -> None:
        """Moves the digests of packets so far from the switch to the queue. `now`: ns."""
        digests, lost = self.switch.digests()
        if lost and self.digests.enabled:
            log.warning("%d digests were overwritten before they were read", lost)
        self.digests.add(digests, now)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Restricts the programs that a device accepts. `arch`: "v1model", "tna" or None (both). `pipes`: of TNA programs, as for
    `Switch`. `own`: paths of the programs that its owner has loaded, by SHA-256.
    """

    arch: str | None = None
    pipes: int = 0
    make: Callable[[Program], LocalSwitch] | None = None  # another switch than `Switch`
    own: dict[str, str] = field(default_factory=dict)

    def switch(self, program: Program) -> LocalSwitch:
        if self.arch not in (None, program.architecture):
            raise EntityError(f"{program.name} is a program for {program.architecture}, and this switch takes {self.arch}")
        if self.make is not None:
            return self.make(program)
        return Switch(program, pipes=self.pipes if program.architecture == "tna" else 0)


def from_config(config: p4.ForwardingPipelineConfig, restrictions: Wanted) -> Pipeline:
    """The pipeline of a ForwardingPipelineConfig. Raises EntityError (INVALID_ARGUMENT) if it cannot be realised."""
    if not config.p4_device_config:
        raise EntityError("p4_device_config is empty: it says which program to load (a P4 source)")
    program = _program(config.p4_device_config, restrictions.own)
    message = message_of(program)
    difference = compare(config.p4info, message)
    if difference:
        raise EntityError(f"the P4Info does not describe {program.name}: {difference}")
    return Pipeline(restrictions.switch(program), deepcopy(config), message)


def from_program(program: Program, restrictions: Wanted) -> Pipeline:
    """The pipeline of a program that the switch starts with: it has no cookie."""
    message, code = message_of(program), hashlib.sha256(Path(program.path).read_bytes()).hexdigest()
    restrictions.own[code] = os.path.abspath(program.path)
    config = p4.ForwardingPipelineConfig(p4info=message, p4_device_config=json.dumps({"compiled": code}).encode())
    return Pipeline(restrictions.switch(program), config, message)


def message_of(program: Program) -> p4config.P4Info:
    return json_format.ParseDict(program.p4info.message, p4config.P4Info())


def _program(data: bytes, own: Mapping[str, str]) -> Program:
    """The program of a `p4_device_config`. `own`: paths of the programs that the switch's owner has loaded, by hash."""
    if data.startswith(ELF):
        return _compiled_before(hashlib.sha256(data).hexdigest(), own)
    try:
        text = data.decode()
        form = documents.json_text(text) if text.lstrip().startswith("{") else {"source": text}
    except UnicodeDecodeError:
        raise EntityError("p4_device_config is neither P4 source (UTF-8), nor JSON, nor a compiled program (ELF)") from None
    except documents.Unreadable as error:
        raise EntityError(f"p4_device_config is not JSON: {error}") from None
    if form.keys() == {"compiled"} and isinstance(form["compiled"], str):
        return _compiled_before(form["compiled"], own)
    source, defines, name = form.get("source"), form.get("defines", {}), form.get("name", "program.p4")
    if form.keys() - {"source", "defines", "name"} or not (
        isinstance(source, str) and isinstance(defines, dict) and isinstance(name, str)
    ):
        raise EntityError(
            "p4_device_config is JSON, and not of this switch's kind: expected {\"source\": text of a P4 program, \"defines\": "
            "{\"NAME\": \"VALUE\"}, \"name\": \"program.p4\"}, or {\"compiled\": hash}. For output of p4c-bm2-ss, give the "
            "source that it was made of"
        )
    if source.strip().endswith((".p4", ".so")) and len(source.split()) == 1:
        raise EntityError(f"p4_device_config is {source.strip()[:200]!r}: a switch opens no file that a client names. Give the "
                          "source itself, as `ina compile --device-config` writes it")
    return _sent(source, name, defines)


def _sent(source: str, name: str, defines: dict[str, str]) -> Program:
    try:
        return Program(compile_text(source, name, defines).so_path)
    except Busy as error:
        raise EntityError(f"p4_device_config: {error}", "RESOURCE_EXHAUSTED") from None
    except NotCompiled as error:
        raise EntityError(f"the program does not compile: {error}") from None
    except (BuildError, OSError) as error:  # this machine's own, which may name its files
        log.error("a program that was sent: %s", error)
        raise EntityError("this switch cannot compile programs: its log says why", "FAILED_PRECONDITION") from None


def _compiled_before(digest: str, own: Mapping[str, str]) -> Program:
    path = own.get(digest) or (cache.find(digest, "p4info") if HASH.fullmatch(digest) else None)
    if path is None:
        raise EntityError("compiled programs are code, and this switch runs none but what it has compiled itself, which this is "
                          f"not: no program here has the SHA-256 {digest[:64]}. Give the P4 source, as `ina compile "
                          "--device-config` writes it")
    return Program(path)


def compare(p4info: p4config.P4Info, own: p4config.P4Info) -> str:
    """Describes the first difference between two P4Infos; empty: they describe the same program."""
    for section in own.DESCRIPTOR.fields:
        if section.name in ("pkg_info", "type_info"):
            continue
        theirs = {m.preamble.id: _essence(m) for m in getattr(p4info, section.name)}
        for message in getattr(own, section.name):
            name = f"{section.name} {message.preamble.name} ({message.preamble.id:#x})"
            other = theirs.pop(message.preamble.id, None)
            if other is None:
                return f"{name} is missing"
            mine = _essence(message)
            if mine != other:
                fields = [f.name for f in message.DESCRIPTOR.fields if getattr(mine, f.name) != getattr(other, f.name)]
                return f"{name} differs in {', '.join(fields)}"
        if theirs:
            extra = next(iter(theirs.values()))
            return f"{section.name} {extra.preamble.name} ({extra.preamble.id:#x}) is not in the program"
    return ""


def _essence(message: Any) -> Any:
    copy = deepcopy(message)
    _strip(copy)
    return copy


def _strip(message: Message) -> None:
    for field_, value in message.ListFields():
        if field_.name in UNESSENTIAL:
            message.ClearField(field_.name)
        elif field_.message_type is None or field_.message_type.GetOptions().map_entry:
            continue
        else:
            for inner in value if is_repeated(field_) else [value]:
                _strip(inner)
