"""C text of TNA programs' requests to the switch (tna.h), and of their objects."""

from __future__ import annotations

from collections.abc import Sequence

from ina.p4.compiler import ir
from ina.p4.compiler.emit.expressions import c_type
from ina.p4.compiler.emit.names import c_comment
from ina.p4.compiler.emit.statements import Statements
from ina.p4.compiler.externs.hashing import Crc


class TnaStatements(Statements):
    def __init__(self) -> None:
        super().__init__()
        self.crcs: dict[Crc, str] = {}

    # --- the packet's path --------------------------------------------------------------------------------------------

    def x_tna_begin(self, stmt: ir.Extern) -> None:
        self.line("struct ina_tna *const tna = (struct ina_tna *)(void *)meta;")
        self.line("const uint32_t octets = pkt->wire_len - tna->front + 4; /* counters and meters count the FCS */")
        self.line("(void)octets;")
        self.line("memset((uint8_t *)tna + 2, 0, offsetof(struct ina_tna, mirror_header) - 2);")
        self.line("pkt->digest = pkt->clone = 0;")

    def x_tna_parser_drop(self, stmt: ir.Extern) -> None:
        self.line("tna->parser_drop = 1;")
        self.line("pkt->verdict = INA_DROP;")
        self.line("return;")

    def _requests(self, names: list[str], values: list[ir.Expr]) -> None:
        self.line("/* what the program asked of the switch */")
        for name, value in zip(names, values, strict=False):
            self.line(f"tna->{name} = (uint{8 if value.width <= 8 else 16}_t){self.c(value)};")

    def x_tna_ingress(self, stmt: ir.Extern) -> None:
        names, digest = stmt.data
        self._requests(names, stmt.args)
        if digest:
            self.line(f"pkt->digest = (uint8_t){self.c(stmt.args[-1])};")
            self.line("if (pkt->digest) {")
            self.depth += 1
            self._store([f.var for d in self.module.digests for f in d.fields])
            self.depth -= 1
            self.line("}")
        self.line("if (tna->drop_ctl & INA_TNA_DROP_FORWARD)")
        self.line("    tna->has_ucast = tna->has_mcast_a = tna->has_mcast_b = tna->resubmit = 0;")
        self.line("if (tna->drop_ctl & INA_TNA_DROP_CPU) tna->copy_to_cpu = 0;")
        self.line("if (tna->resubmit) {")
        self.line("    tna->mirror = 0;")
        self.line("    pkt->verdict = INA_RESUBMIT;")
        self.line("    return;")
        self.line("}")
        self.line("if (!(tna->has_ucast | tna->has_mcast_a | tna->has_mcast_b | tna->copy_to_cpu)) {")
        self.line("    pkt->verdict = INA_DROP;")
        self.line("    return;")
        self.line("}")

    def x_tna_egress(self, stmt: ir.Extern) -> None:
        self._requests(stmt.data, stmt.args)
        self.line("if (tna->drop_ctl & INA_TNA_DROP_MIRROR) tna->mirror = 0;")
        self.line("if (tna->drop_ctl & INA_TNA_DROP_FORWARD && !tna->mirror) {")
        self.line("    pkt->verdict = INA_DROP;")
        self.line("    return;")
        self.line("}")

    def x_tna_sent(self, stmt: ir.Extern) -> None:
        """Ends a phase. `data`: True for egress, where dropped packets get here for their mirrored copy."""
        dropped = "tna->drop_ctl & INA_TNA_DROP_FORWARD ? INA_DROP : " if stmt.data else ""
        self.line(f"pkt->verdict = {dropped}INA_UNICAST;")

    def _header(self, field: str, values: list[ir.Expr]) -> None:
        at = 0
        for text, bits in self.packed(values):
            size = bits // 8
            self.line(f"ina_store(tna->{field} + {at}, {size}, {text if bits == 64 else f'({text}) >> {64 - bits}'});")
            at += size

    def x_tna_mirror(self, stmt: ir.Extern) -> None:
        session, *fields = stmt.args
        self.line("tna->mirror = 1;")
        self.line(f"tna->mirror_session = (uint16_t){self.c(session)};")
        self.line(f"tna->mirror_len = {sum(f.width for f in fields) // 8};")
        self._header("mirror_header", fields)

    def x_tna_resubmit(self, stmt: ir.Extern) -> None:
        self.line("tna->resubmit = 1;")
        self._header("resubmit_data", stmt.args)

    def x_keep_region(self, stmt: ir.Extern) -> None:
        """Makes the header valid with its old content: where it lies, or in its own buffer, all zero."""
        name, region = self.name(stmt.data), stmt.data
        self.line(f"if ({name} == ina_zeros) {name} = memset({self.buffer(region)}, 0, {region.size});")

    # --- objects --------------------------------------------------------------------------------------------------------

    def crc(self, crc: Crc, size: str) -> str:
        """Returns the CRC of the first `size` bytes of `bytes`."""
        table = self.crcs.setdefault(crc, f"ina_crc{crc.width}_{len(self.crcs)}")
        if crc.reversed:
            return f"({c_type(crc.width)})ina_crc_low({table}, {crc.init}ull, bytes, {size}) ^ {crc.xor}ull"
        return f"({c_type(crc.width)})ina_crc_high({table}, {crc.width}, {crc.init}ull, bytes, {size}) ^ {crc.xor}ull"

    def crc_tables(self) -> list[str]:
        lines = []
        for crc, name in self.crcs.items():
            lines.append(f"static const uint64_t {name}[256] = {{ /* polynomial {crc.poly:#x} */")
            values = crc_table(crc)
            for i in range(0, 256, 4):
                lines.append("    " + " ".join(f"{v:#018x}ull," for v in values[i : i + 4]))
            lines.append("};")
        return lines

    def x_dynamic_hash(self, stmt: ir.Extern) -> None:
        """Emits a hash that the control plane may change. `args`: the result of the program's own hash, then the fields;
        `data`: the hash."""
        dynamic, (static, *values) = stmt.data, stmt.args
        bits = sum(v.width for v in values)
        words = f"(const uint64_t *)(const void *)(state + {dynamic.configure.offset})"
        self.line(f"{self.name(stmt.target)} = {self.c(static)};")
        self.line(f"if (*{words}) {{ {c_comment(f'hash {dynamic.name}: the control plane has changed it')}")
        self.depth += 1
        self.line(f"uint8_t bytes[{8 * max(1, (bits + 63) // 64)}];")
        for i, (text, _) in enumerate(self.packed(values)):
            self.line(f"ina_store64(bytes + {8 * i}, {text});")
        self.line(f"{self.name(stmt.target)} = ({c_type(dynamic.width)})ina_dynamic_hash({words}, bytes);")
        self.depth -= 1
        self.line("}")

    def x_math(self, stmt: ir.Extern) -> None:
        target, unit = stmt.target, stmt.data
        table = ", ".join(map(str, unit.table))
        call = f"ina_math({self.c(stmt.args[0])}, table, {int(unit.invert)}, {unit.shift}, {unit.scale})"
        if target.width < 32:
            largest = (1 << target.width) - 1
            call = f"({c_type(target.width)})({call} > {largest}u ? {largest}u : {call})"
        self.line("{")
        self.line(f"    static const uint8_t table[16] = {{{table}}};")
        self.line(f"    {self.name(target)} = {call};")
        self.line("}")

    def _filter(self, filter_: ir.Filter, index: str, call: str, otherwise: str) -> str:
        cell = f"(struct ina_filter *)(void *)(state + {filter_.offset} + 64 * (uint64_t)({index}))"
        return f"({index} < {filter_.size}u ? {call.replace('CELL', cell)} : {otherwise})"

    def x_lpf(self, stmt: ir.Extern) -> None:
        index, sample = (self.c(a) for a in stmt.args)
        text = self._filter(stmt.data, index, f"ina_lpf(CELL, {sample}, now)", sample)
        self.line(f"{self.name(stmt.target)} = {text};")

    def x_wred(self, stmt: ir.Extern) -> None:
        index, sample = (self.c(a) for a in stmt.args)
        seed = f"(uint64_t *)(void *)(state + {self.module.layout['random_offset']})"
        text = self._filter(stmt.data, index, f"ina_wred(CELL, {sample}, now, ina_random({seed}, 0, 0))", "0")
        self.line(f"{self.name(stmt.target)} = {text};")

    def _store(self, items: Sequence[ir.Storage]) -> None:
        raise TypeError("defined in emit/emit.py")


def crc_table(crc: Crc) -> list[int]:
    """Returns the table of a CRC: the effect of each byte on the register."""
    mask, values = (1 << crc.width) - 1, []
    poly = int(f"{crc.poly:0{crc.width}b}"[::-1], 2) if crc.reversed else crc.poly
    for byte in range(256):
        value = byte if crc.reversed else byte << (crc.width - 8)
        for _ in range(8):
            if crc.reversed:
                value = value >> 1 ^ (poly if value & 1 else 0)
            else:
                value = (value << 1 ^ (poly if value >> (crc.width - 1) & 1 else 0)) & mask
        values.append(value)
    return values
