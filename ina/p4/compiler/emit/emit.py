"""Writes IR as one C file that exports `const struct ina_program ina_program` (ina/p4/runtime/c/program.h)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ina.p4.compiler import ir, layout
from ina.p4.compiler.emit.expressions import array_type, c_type, cell, cell_bytes, number
from ina.p4.compiler.emit.fast_path import FAST_PATH, FastPath
from ina.p4.compiler.emit.names import Origins, accessors, c_comment
from ina.p4.compiler.emit.wide import is_wide
from ina.p4.compiler.lower import value_trees

PRELUDE = Path(__file__).with_name("prelude.h")
WIDE = Path(__file__).with_name("wide.h")
PRELUDE_TNA = Path(__file__).with_name("prelude_tna.h")


def c_string(text: str) -> str:
    """Returns a C string literal; long ones are split (compilers need only accept 4095 characters per literal)."""
    octets = [chr(b) if 0x20 <= b < 0x7F and b not in b'"\\?' else f"\\{chr(b)}" if b in b'"\\?' else f"\\{b:03o}"
              for b in text.encode()]  # fmt: skip
    pieces = ['"' + "".join(octets[at : at + 1000]) + '"' for at in range(0, len(octets), 1000)]
    return "\n    ".join(pieces) or '""'


class Emitter(FastPath):
    """Writes the C text of a module whose registers have been placed."""

    def __init__(self, module: ir.Module, sources: Mapping[str, str] | None = None) -> None:
        """`sources`: texts by file name, for the comments."""
        super().__init__()
        self.module = module
        self.origins = Origins(module.name, sources or {})
        self.accessors = accessors(module.registers)
        self.carried = carried(module)
        self.meta = layout.place_meta(module, self.carried)

    def buffer_offset(self, region: ir.Region) -> int:
        return self.meta[id(region)]

    # --- phases -----------------------------------------------------------------------------------------------------

    def phase(self, name: str, phase: ir.Phase, load: bool) -> str:
        """Writes a phase: the function for one packet, inlined into the loop over the batch."""
        self.cached_lookups = 0
        arguments = "state, tables, pkts + i, pkts[i].data, pkts[i].meta, now, found"
        if phase.fast_path is None:
            functions = self._one("INA_INLINE void", f"{name}_one", phase.body, load)
            calls = [f"        {name}_one({arguments});"]
        else:
            functions = self._one("static __attribute__((noinline)) void", f"{name}_one", phase.body, load)
            self.settle(phase.fast_path)
            functions += self._one("INA_INLINE int", f"{name}_usual", phase.fast_path, load)
            self.settled, self.leave = set(), "return"
            calls = [f"        if (ina_unlikely(!{name}_usual({arguments})))", f"            {name}_one({arguments});"]
        return "\n".join(
            [
                *functions,
                f"static void {name}(void *state, const struct ina_tables *tables, struct ina_packet *pkts,",
                "    unsigned n, uint64_t now)",
                "{",
                f"    const struct ina_entry *found[{max(1, self.cached_lookups)}] = {{0}}; /* for the packet before */",
                "    for (unsigned i = 0; i < n; i++)",
                *calls,
                "}",
                "",
            ]
        )

    def _one(self, kind: str, name: str, statements: list[ir.Stmt], load: bool) -> list[str]:
        """Writes the function for one packet. One of kind int takes the fast path: it returns 0 without side effects if the
        packet needs the general one."""
        self.lines, self.stack_buffers, self.origins.shown = [], {}, None
        if load:
            self.fast_path_egress(statements)
            self._load(self.carried)
        self.block(statements)
        if self.leave != "return":
            self.line(f"{self.leave};")
        body = self.lines
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
        for item in self.carried:
            used.setdefault(id(item), item)
        for values in self.module.preserved.values():
            for v in values:
                item = v.array if isinstance(v, ir.Elem) else v
                used.setdefault(id(item), item)
        by_type: dict[str, list[str]] = {"uint32_t": ["verdict = INA_DROP"]}
        for item in used.values():
            name = self.name(item)
            if isinstance(item, ir.Array):
                if item.region is None:
                    by_type.setdefault(array_type(item.width), []).append(f"{name}[{item.count}] = {{0}}")
            elif isinstance(item, ir.Region):
                by_type.setdefault("uint8_t", []).append(f"*{name} = (uint8_t *)ina_zeros")
            else:
                zero = "{{0}}" if is_wide(item.width) else "0"
                by_type.setdefault(c_type(item.width), []).append(f"{name} = {zero}")
        for region in self.stack_buffers.values():
            by_type.setdefault("uint8_t", []).append(f"{self.name(region)}_room[{region.size}]")
        return [line for kind, names in by_type.items() for line in declaration(kind, names)]

    def _load(self, items: Sequence[ir.Storage]) -> None:
        for item in items:
            if isinstance(item, ir.Region):
                self._load_region(item)
            elif isinstance(item, ir.Array):
                self.line(f"memcpy({self.name(item)}, meta + {self.meta[id(item)]}, sizeof {self.name(item)});")
            else:
                cast = "" if is_wide(item.width) else f"({c_type(item.width)})"
                self.line(f"{self.name(item)} = {cast}{self._meta_cell(item)};")

    def _meta_cell(self, v: ir.Var) -> str:
        return cell(f"meta + {self.meta[id(v)]}", cell_bytes(v.width))

    def _store(self, items: Sequence[ir.Storage]) -> None:
        for item in items:
            if isinstance(item, ir.Region):
                self._store_region(item)
            elif isinstance(item, ir.Array):
                self.line(f"memcpy(meta + {self.meta[id(item)]}, {self.name(item)}, sizeof {self.name(item)});")
            else:
                size = cell_bytes(item.width)
                narrow = f"(uint{8 * size}_t)" if size < 4 else ""
                self.line(f"{self._meta_cell(item)} = {narrow}{self.name(item)};")

    def _load_region(self, region: ir.Region) -> None:
        """Loads a header's place, which is relative to the frame since a replica lies elsewhere. -1: none, -2: its own buffer."""
        name, place = self.name(region), f"*(const int32_t *)(void *)(meta + {self.meta[id(region.valid), 'place']})"
        text = f"data + {place}"
        if region.own_buffer:
            text = f"{place} == -2 ? {self.buffer(region)} : {text}"
        self.line(f"{name} = {place} == -1 ? (uint8_t *)ina_zeros : {text};")

    def _store_region(self, region: ir.Region) -> None:
        name = self.name(region)
        text = f"(int32_t)({name} - data)"
        if id(region) in self.settled:
            self.line(f"*(int32_t *)(void *)(meta + {self.meta[id(region.valid), 'place']}) = {text};")
            return
        if region.own_buffer:
            text = f"{name} == {self.buffer(region)} ? -2 : {text}"
        elsewhere = f" || {name} == {name}_room" if id(region) in self.stack_buffers else ""
        self.line(
            f"*(int32_t *)(void *)(meta + {self.meta[id(region.valid), 'place']}) ="
            f" {name} == ina_zeros{elsewhere} ? -1 : {text};"
        )

    def x_save(self, stmt: ir.Extern) -> None:
        """Ends ingress: stores what egress, clones, resubmissions and digests read."""
        storage: dict[int, ir.Storage] = {id(v): v for v in self.carried}
        storage |= {id(f.var): f.var for digest in self.module.digests for f in digest.fields}
        storage |= {id(v): v for v in self._preserved()}
        conditions = "".join(f" || {self.c(flag)}" for flag in stmt.args if isinstance(flag, ir.Var))
        self.line("pkt->verdict = (uint8_t)verdict;")
        self.line(f"if (verdict != INA_DROP{conditions}) {{")
        self.depth += 1
        if stmt.targets:
            self._stays(self.name(stmt.target), *stmt.data)
        always = {id(v) for v in (*(f.var for d in self.module.digests for f in d.fields), *self._preserved())}
        constants = (self.fast_path_constants() or {}).keys() - always
        self._store([v for k, v in storage.items() if k not in constants])
        if rest := [v for k, v in storage.items() if k in constants]:
            self.line(f"if ({self.name(stmt.target)} != {FAST_PATH}) {{")
            self.depth += 1
            self._store(rest)
            self.depth -= 1
            self.line("}")
        self.depth -= 1
        self.line("}")

    def _stays(self, stays: str, headers: list[value_trees.Header], cursor: ir.Var) -> None:
        """Sets `stays` if the headers that the deparser emits lie one after the other before the rest of the frame."""
        used = used_storage(self.module.ingress.body)
        self.line("uint32_t at = 0; /* do all headers stay where they are? */")
        self.line(f"{stays} = 1;")
        for header in headers:
            region = header.region
            if id(header.valid) not in used:
                continue  # it is never valid
            assert region is not None  # `save` has a target only where all lie in wire order
            self.line(f"if ({self.c(header.valid)}) {{")
            self.line(f"    {stays} &= {self.name(region)} == data + at;")
            self.line(f"    at += {region.size};")
            self.line("}")
        self.line(f"{stays} &= at == {self.name(cursor) if id(cursor) in used else 0};")
        self.mark_fast_path(stays, used)

    def x_preserve(self, stmt: ir.Extern) -> None:
        if self._preserved():
            self.line(f"if ({self.c(stmt.args[0])}) {{")
            self.depth += 1
            self._store(self._preserved())
            self.depth -= 1
            self.line("}")

    def x_transmit(self, stmt: ir.Extern) -> None:
        if isinstance(stmt.args[0], ir.Var):
            self.x_preserve(stmt)
        super().x_transmit(stmt)

    def _preserved(self) -> list[ir.Storage]:
        storage: dict[int, ir.Storage] = {}
        for values in self.module.preserved.values():
            for v in values:
                item = v.array if isinstance(v, ir.Elem) else v
                storage[id(item)] = item
        return list(storage.values())

    def x_restore(self, stmt: ir.Extern) -> None:
        """Loads the preserved field list of a packet that passed ingress before; `stmt.data` lists the kinds of such packets."""
        if not self.module.preserved:
            return
        self.line(f"if ({' || '.join(f'pkt->instance_type == {kind}' for kind in stmt.data)}) {{")
        self.depth += 1
        self.line("switch (pkt->field_list) {")
        for field_list, values in sorted(self.module.preserved.items()):
            self.line(f"case {field_list}u:")
            self.depth += 1
            self._load(list({id(v): v for v in (v.array if isinstance(v, ir.Elem) else v for v in values)}.values()))
            self.line("break;")
            self.depth -= 1
        self.line("default: break;")
        self.line("}")
        self.depth -= 1
        self.line("}")

    @staticmethod
    def _wide_types(text: str) -> list[str]:
        """Returns the C support of values of more than 128 bits if `text` uses any."""
        counts = sorted({int(n) for n in re.findall(r"\bina_r?w(\d+)", text)})
        if not counts and not re.search(r"\bina_(put|get)", text):
            return []
        return [WIDE.read_text(encoding="utf-8"), *(f"INA_WIDE({n})" for n in counts), ""]

    def _registers(self) -> list[str]:
        lines = []
        for register in self.accessed.values():
            at = f"state + {register.offset} + (uint64_t)(i) * {register.stride}"
            lines.append(c_comment(f"register {register.name}: {register.size} x {register.width} bits"))
            lines.append(f"#define {self.accessors[id(register)]}(i) ({cell(at, register.bytes)})")
        return lines

    # --- the program ------------------------------------------------------------------------------------------------

    def program(self, prefix: str = "") -> str:
        """Returns the C text of the program's functions; their names begin with `prefix`."""
        ingress = self.phase(f"{prefix}ingress", self.module.ingress, load=False)
        egress = self.phase(f"{prefix}egress", self.module.egress, load=True)
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
    layouts = [layout.describe(e.module, e.meta) for e in emitters]
    tables = [line for e in emitters for line in e.crc_tables()]
    largest = max((region.size for module in modules for region in module.regions), default=1)
    first = modules[0]
    text = [
        c_comment(f"{Path(first.name).name}: made by ina.p4.compiler"),
        "/* Comments repeat the lines of the program that the code below them comes from. hdr, meta and",
        " * standard_metadata are the parser's headers and metadata; reg_x(i) is cell i of register x. */",
        '#include "program.h"',
        '#include "table.h"',
        PRELUDE.read_text(encoding="utf-8"),
        *([PRELUDE_TNA.read_text(encoding="utf-8")] if first.architecture == "tna" else []),
        *Emitter._wide_types("".join(bodies)),
        f"static const uint8_t ina_zeros[{largest}]; /* what a header holds that was never extracted */",
        f"static const char ina_p4info[] =\n    {c_string(json.dumps(p4info, separators=(',', ':')))};",
        *tables,
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


def used_storage(body: list[ir.Stmt], written: bool = True) -> dict[int, ir.Storage]:
    """Returns the variables and arrays that a phase reads or (`written`) writes, and headers in wire order with their
    variables."""
    used: dict[int, ir.Storage] = {}

    def add(e: ir.Expr) -> None:
        if isinstance(e, ir.Var):
            used[id(e)] = e
        elif isinstance(e, ir.Elem):
            used[id(e.array)] = e.array
            if e.array.region:
                add_region(e.array.region)

    def add_region(region: ir.Region) -> None:
        used[id(region)] = region
        used[id(region.valid)] = region.valid

    for stmt in ir.walk(body):
        for e in ir.reads(stmt):
            for leaf in ir.leaves(e):
                add(leaf)
        for e in ir.writes(stmt):
            if written or isinstance(e, ir.Elem):
                add(e)
        if isinstance(stmt, ir.Extern):
            if isinstance(stmt.data, ir.Region):
                add_region(stmt.data)
            elif stmt.op == "copy_region":
                for region in stmt.data:
                    add_region(region)
            elif stmt.op == "deparse":
                for header, _ in stmt.data:
                    if header.region:
                        add_region(header.region)
                    else:
                        for leaf in value_trees.expressions(header):
                            add(leaf)
    return used


def carried(module: ir.Module) -> list[ir.Storage]:
    """Returns the storage that egress takes over from ingress: used by both, or passed on by egress, except what egress sets
    first."""
    ingress = used_storage(module.ingress.body)
    fresh: set[int] = set()
    for stmt in module.egress.body:
        if not isinstance(stmt, ir.Assign) or not isinstance(stmt.target, ir.Var):
            break
        if any(isinstance(leaf, ir.Var | ir.Elem) for leaf in ir.leaves(stmt.value)):
            break
        fresh.add(id(stmt.target))
    read = used_storage(module.egress.body, written=False)
    again = ("preserve", "transmit")
    if any(isinstance(s, ir.Extern) and s.op in again and isinstance(s.args[0], ir.Var) for s in module.egress.body):
        for values in module.preserved.values():  # stored for clones and recirculated packets
            for v in values:
                item = v.array if isinstance(v, ir.Elem) else v
                read.setdefault(id(item), item)
    return [
        v for k, v in read.items() if k in ingress and k not in fresh and not (isinstance(v, ir.Array) and v.region)
    ]


def reads_metadata(module: ir.Module) -> bool:
    """Returns True if egress of v1model never writes the metadata: no header lies there, no fields are preserved."""
    for stmt in ir.walk(module.egress.body):
        written = [target.array.region for target in ir.writes(stmt) if isinstance(target, ir.Elem)]
        if isinstance(stmt, ir.Extern):
            if stmt.op in ("preserve", "transmit") and isinstance(stmt.args[0], ir.Var):
                return False
            written += stmt.data if stmt.op == "copy_region" else [stmt.data] if isinstance(stmt.data, ir.Region) else []
        if any(region is not None and region.own_buffer for region in written):
            return False
    return module.architecture == "v1model"
