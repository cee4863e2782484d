"""Writes IR as one C file that exports `const struct ina_program ina_program` (ina/p4/runtime/c/program.h)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ina.p4.compiler import ir, layout
from ina.p4.compiler.arch.emit_tna import TNA
from ina.p4.compiler.arch.emit_v1model import V1MODEL
from ina.p4.compiler.emit.expressions import array_type, c_type, cell, number
from ina.p4.compiler.emit.fast_path import fast_path_egress, settle
from ina.p4.compiler.emit.hashes import crc_tables
from ina.p4.compiler.emit.names import c_comment
from ina.p4.compiler.emit.statements import Statements
from ina.p4.compiler.emit.storage import load
from ina.p4.compiler.emit.usage import preserved, reads_metadata, used_storage
from ina.p4.compiler.emit.wide import is_wide
from ina.p4.compiler.emit.writer import Writer

HANDLERS = {"v1model": V1MODEL, "tna": TNA}
# Read at import: a process that has given up its privileges may not be able to (sandboxed_process.py).
PRELUDE = Path(__file__).with_name("prelude.h").read_text(encoding="utf-8")
WIDE = Path(__file__).with_name("wide.h").read_text(encoding="utf-8")
PRELUDE_TNA = Path(__file__).with_name("prelude_tna.h").read_text(encoding="utf-8")


def c_string(text: str) -> str:
    """Returns a C string literal; long ones are split (compilers need only accept 4095 characters per literal)."""
    octets = [chr(b) if 0x20 <= b < 0x7F and b not in b'"\\?' else f"\\{chr(b)}" if b in b'"\\?' else f"\\{b:03o}"
              for b in text.encode()]
    pieces = ['"' + "".join(octets[at : at + 1000]) + '"' for at in range(0, len(octets), 1000)]
    return "\n    ".join(pieces) or '""'


class Emitter:
    """Writes the C text of a module whose registers have been placed."""

    def __init__(self, module: ir.Module, sources: Mapping[str, str] | None = None) -> None:
        """`sources`: texts by file name, for the comments."""
        self.module = module
        self.w = Writer(module, sources)
        self.statements = Statements(self.w, HANDLERS[module.architecture])

    # --- phases -----------------------------------------------------------------------------------------------------

    def phase(self, name: str, phase: ir.Phase, loads: bool) -> str:
        """Writes a phase: the function for one packet, inlined into the loop over the batch."""
        self.w.cached_lookups = 0
        arguments = "state, tables, pkts + i, pkts[i].data, pkts[i].meta, now, found"
        if phase.fast_path is None:
            functions = self._one("INA_INLINE void", f"{name}_one", phase.body, loads)
            calls = [f"        {name}_one({arguments});"]
        else:
            functions = self._one("static __attribute__((noinline)) void", f"{name}_one", phase.body, loads)
            settle(self.w, phase.fast_path)
            functions += self._one("INA_INLINE int", f"{name}_usual", phase.fast_path, loads)
            self.w.settled, self.w.leave = set(), "return"
            calls = [f"        if (ina_unlikely(!{name}_usual({arguments})))", f"            {name}_one({arguments});"]
        return "\n".join(
            [
                *functions,
                f"static void {name}(void *state, const struct ina_tables *tables, struct ina_packet *pkts,",
                "    unsigned n, uint64_t now)",
                "{",
                f"    const struct ina_entry *found[{max(1, self.w.cached_lookups)}] = {{0}}; /* for the packet before */",
                "    for (unsigned i = 0; i < n; i++)",
                *calls,
                "}",
                "",
            ]
        )

    def _one(self, kind: str, name: str, statements: list[ir.Stmt], loads: bool) -> list[str]:
        """Writes the function for one packet. One of kind int takes the fast path: it returns 0 without side effects if the
        packet needs the general one."""
        w = self.w
        w.lines, w.stack_buffers, w.origins.shown = [], {}, None
        if loads:
            fast_path_egress(w, statements, self.statements.block)
            load(w, w.carried)
        self.statements.block(statements)
        if w.leave != "return":
            w.line(f"{w.leave};")
        body = w.lines
        return [
            f"{kind} {name}(uint8_t *restrict state, const struct ina_tables *tables,",
            "    struct ina_packet *restrict pkt, uint8_t *restrict data, uint8_t *restrict meta, uint64_t now,",
            "    const struct ina_entry **found)",
            "{",
            "    (void)state, (void)tables, (void)now, (void)data, (void)meta, (void)found;",
            *self._declarations(statements),
            *body,
            "}",
            "",
        ]

    def _declarations(self, statements: list[ir.Stmt]) -> list[str]:
        used = used_storage(statements)
        for item in (*self.w.carried, *preserved(self.module)):
            used.setdefault(item)
        by_type: dict[str, list[str]] = {"uint32_t": ["verdict = INA_DROP"]}
        for item in used:
            name = self.w.name(item)
            if isinstance(item, ir.Array):
                if item.region is None:
                    by_type.setdefault(array_type(item.width), []).append(f"{name}[{item.count}] = {{0}}")
            elif isinstance(item, ir.Region):
                by_type.setdefault("uint8_t", []).append(f"*{name} = (uint8_t *)ina_zeros")
            else:
                zero = "{{0}}" if is_wide(item.width) else "0"
                by_type.setdefault(c_type(item.width), []).append(f"{name} = {zero}")
        for region in self.w.stack_buffers:
            by_type.setdefault("uint8_t", []).append(f"{self.w.name(region)}_room[{region.size}]")
        return [line for kind, names in by_type.items() for line in declaration(kind, names)]

    @staticmethod
    def _wide_types(text: str) -> list[str]:
        """Returns the C support of values of more than 128 bits if `text` uses any."""
        counts = sorted({int(n) for n in re.findall(r"\bina_r?w(\d+)", text)})
        if not counts and not re.search(r"\bina_(put|get)", text):
            return []
        return [WIDE, *(f"INA_WIDE({n})" for n in counts), ""]

    def _registers(self) -> list[str]:
        lines = []
        for register in self.w.accessed:
            at = f"state + {register.offset} + (uint64_t)(i) * {register.stride}"
            comment = c_comment(f"register {register.name}: {register.size} x {register.width} bits")
            lines += [comment, f"#define {self.w.accessors[register]}(i) ({cell(at, register.bytes)})"]
        return lines

    # --- the program ------------------------------------------------------------------------------------------------

    def program(self, prefix: str = "") -> str:
        """Returns the C text of the program's functions; their names begin with `prefix`."""
        ingress = self.phase(f"{prefix}ingress", self.module.ingress, loads=False)
        egress = self.phase(f"{prefix}egress", self.module.egress, loads=True)
        seed = "*(uint64_t *)state = seed;" if self.module.uses_random else "(void)state, (void)seed;"
        macros = self._registers()
        lines = [
            *macros,
            "",
            ingress,
            egress,
            f"static void {prefix}init(void *state, uint64_t seed)",
            "{",
            f"    {seed}",
            *(line for register in self.module.registers if register.initial for line in self._initial(register)),
            "}",
        ]
        if prefix:
            lines += [f"#undef {line.split()[1].split('(')[0]}" for line in macros if line.startswith("#define")]
        return "\n".join([*lines, ""])

    @staticmethod
    def _initial(r: ir.Register) -> list[str]:
        at = cell(f"(uint8_t *)state + {r.offset} + i * {r.stride}", r.bytes)
        value = number(r.initial, r.width)
        return [f"    for (uint64_t i = 0; i < {r.size}; i++) {c_comment(r.name)}", f"        {at} = {value};"]

    def descriptor(self, source_hash: str, published: dict[str, Any], prefix: str, following: str) -> list[str]:
        """Returns the fields of the program's struct ina_program."""
        m = self.module.layout
        flags = ["INA_PROGRAM_KEEP_INGRESS"] if self.module.keep_ingress else []
        flags += ["INA_PROGRAM_READS_META"] if reads_metadata(self.module) else []
        return [
            "    .abi = INA_PROGRAM_ABI,",
            f"    .table_count = {sum(t.index >= 0 for t in self.module.tables)},",
            f"    .architecture = INA_{self.module.architecture.upper()},",
            f"    .flags = {' | '.join(flags) or 0},",
            f"    .next = {following},",
            f"    .pipeline = {c_string(self.module.pipeline)},",
            f"    .name = {c_string(Path(self.module.name).name)},",
            f"    .source_hash = {c_string(source_hash)},",
            "    .p4info = ina_p4info,",
            f"    .layout =\n    {c_string(json.dumps(published, separators=(',', ':')))},",
            f"    .state_size = {m['state_size']},",
            f"    .stats_offset = {m['stats_offset']},",
            f"    .meta_size = {m['meta_size']},",
            f"    .max_grow = {self.module.max_grow},",
            f"    .init = {prefix}init,",
            f"    .ingress = {prefix}ingress,",
            f"    .egress = {prefix}egress,",
        ]


def c_file(
    modules: Sequence[ir.Module], source_hash: str, p4info: dict[str, Any], sources: Mapping[str, str] | None = None
) -> tuple[str, list[dict[str, Any]]]:
    """Returns (C text, layout of each module). The first module is `ina_program`; the others follow by `next`.

    `sources`: texts by file name, for the comments.
    """
    emitters = [Emitter(module, sources) for module in modules]
    prefixes = [f"p{i}_" if i else "" for i in range(len(modules))]
    bodies = [e.program(prefix) for e, prefix in zip(emitters, prefixes, strict=True)]
    layouts = [layout.describe(e.module, e.w.meta) for e in emitters]
    tables = [line for e in emitters for line in crc_tables(e.w)]
    largest = max((region.size for module in modules for region in module.regions), default=1)
    first = modules[0]
    text = [
        c_comment(f"{Path(first.name).name}: made by ina.p4.compiler"),
        "/* Comments repeat the lines of the program that the code below them comes from. hdr, meta and",
        " * standard_metadata are the parser's headers and metadata; reg_x(i) is cell i of register x. */",
        '#include "program.h"',
        '#include "table.h"',
        PRELUDE,
        *([PRELUDE_TNA] if first.architecture == "tna" else []),
        *Emitter._wide_types("".join(bodies)),
        f"static const uint8_t ina_zeros[{largest}]; /* what a header holds that was never extracted */",
        f"static const char ina_p4info[] =\n    {c_string(json.dumps(p4info, separators=(',', ':')))};",
        *tables,
        *dict.fromkeys(text for module in modules for text in module.c_text),
        "",
    ]
    for module, body in zip(modules, bodies, strict=True):
        if len(modules) > 1:
            text.append(c_comment(f"--- pipeline {module.pipeline}"))
        text.append(body)
    for i in reversed(range(len(modules))):
        following = f"&program{i + 1}" if i + 1 < len(modules) else "0"
        visible = ["extern const struct ina_program ina_program;", '__attribute__((visibility("default")))']
        head = [*visible, "const struct ina_program ina_program = {"]
        text += head if i == 0 else [f"static const struct ina_program program{i} = {{"]
        text += [*emitters[i].descriptor(source_hash, layouts[i], prefixes[i], following), "};", ""]
    return "\n".join(text), layouts


def declaration(kind: str, names: list[str]) -> list[str]:
    """Returns C declarations of variables of one type, filled to the width of a line."""
    lines, text = [], f"    {kind} {names[0]}"
    for name in names[1:]:
        if len(text) + len(name) > 116:
            lines.append(text + ",")
            text = f"        {name}"
        else:
            text += f", {name}"
    return [*lines, text + ";"]
