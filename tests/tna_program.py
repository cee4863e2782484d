"""Small TNA programs for tests, and a runner for one pipe: one packet at a time, no traffic manager."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from capabilities import need

from ina.base.native import ffi
from ina.p4.compiler import build
from ina.p4.runtime.entities import TableEntry
from ina.p4.runtime.loaded_program import Program
from ina.p4.runtime.tables import Tables

DROP, UNICAST, RESUBMIT = 0, 1, 3
HEADROOM, TAILROOM = 96, 64
REQUESTS = (
    "ucast_egress_port", "mcast_grp_a", "mcast_grp_b", "level1_mcast_hash", "level2_mcast_hash", "level1_exclusion_id",
    "level2_exclusion_id", "rid", "has_ucast", "has_mcast_a", "has_mcast_b", "bypass_egress", "deflect_on_drop",
    "ingress_cos", "qid", "copy_to_cpu", "icos_for_copy_to_cpu", "packet_color", "parser_drop", "drop_ctl", "mirror",
    "mirror_type", "mirror_session", "mirror_len", "resubmit", "resubmit_type", "digest_type", "coalesce_flush",
    "coalesce_length", "capture_tstamp_on_tx", "update_delay_on_tx",
)


@dataclass(frozen=True)
class Result:
    """`frame`: None if dropped. `requests`: non-zero fields of struct ina_tna. `digest`: its number and fields."""

    verdict: int
    frame: bytes | None
    requests: dict[str, int]
    mirror: bytes | None = None
    resubmit: bytes | None = None
    digest: tuple[int, dict[str, int]] | None = None


@dataclass
class Pipe:
    """A compiled pipeline with state and tables of its own."""

    program: Program
    pointer: Any
    layout: dict[str, Any]
    tables: Tables = field(init=False)

    def __post_init__(self) -> None:
        self.memory: list[Any] = []
        self.state = self._aligned(self.pointer.state_size)
        self.meta = self._aligned(self.pointer.meta_size)
        self.pointer.init(self.state, 1)
        self.tables = Tables(self.program.p4info, self.layout)
        self.entries: list[TableEntry] = []

    def _aligned(self, size: int) -> Any:
        memory = np.zeros(size + 64, np.uint8)
        self.memory.append(memory)
        return ffi.cast("uint8_t *", memory.ctypes.data + -memory.ctypes.data % 64)

    def add(self, *entries: TableEntry) -> None:
        for entry in entries:
            self.tables.apply("INSERT", entry)

    def ingress(
        self, frame: bytes, port: int = 0, now: int = 0, *, metadata: bytes = bytes(8), resubmitted: bool = False
    ) -> Result:
        """`metadata`: the port's, or resubmit data."""
        front = (int(resubmitted) << 15 | port).to_bytes(2, "big") + bytes(6) + metadata
        return self.run(False, front, frame, now)

    def egress(self, frame: bytes, port: int = 0, now: int = 0, rid: int = 0, mirror: bytes = b"") -> Result:
        """`mirror`: the header that stands in front of a mirrored copy."""
        fields = ((7, 0), (9, port), (5, 0), (19, 11), (6, 0), (2, 0), (14, 0), (18, 12), (5, 0), (19, 13), (6, 0), (2, 0),
                  (8, 0), (14, 0), (18, 14), (16, rid), (7, 0), (1, 1), (3, 0), (5, 3), (5, 0), (3, 2), (7, 0), (1, 0),
                  (16, len(frame)))
        number = bits = 0
        for width, value in fields:
            number, bits = number << width | value, bits + width
        return self.run(True, number.to_bytes(bits // 8, "big"), mirror + frame, now)

    def run(self, egress: bool, front: bytes, frame: bytes, now: int) -> Result:
        """Runs ingress or egress with `front` before the frame."""
        phase = self.pointer.egress if egress else self.pointer.ingress
        whole = front + frame
        buffer = ffi.new("uint8_t[]", b"\xee" * HEADROOM + whole + b"\xee" * TAILROOM)
        meta = ffi.cast("struct ina_tna *", self.meta)
        ffi.memmove(self.meta, b"\xa5" * self.pointer.meta_size, self.pointer.meta_size)
        meta.front = len(front)
        pkt = ffi.new(
            "struct ina_packet *",
            {"data": buffer + HEADROOM, "len": len(whole), "wire_len": len(whole), "headroom": HEADROOM,
             "tailroom": TAILROOM, "meta": self.meta, "verdict": 99, "digest": 99},
        )
        image = self.tables.image()
        phase(self.state, image.pointer, pkt, 1, now)
        content = None
        if pkt.verdict == UNICAST or pkt.verdict == DROP and meta.mirror and egress:
            content = bytes(ffi.buffer(pkt.data, pkt.len))
            assert pkt.headroom == pkt.data - ffi.cast("uint8_t *", buffer) and pkt.wire_len == pkt.len
            assert pkt.headroom + pkt.len + pkt.tailroom == len(buffer) - 1
        requests = {name: int(getattr(meta, name)) for name in REQUESTS if getattr(meta, name)}
        mirror = bytes(ffi.buffer(meta.mirror_header, 64))[: meta.mirror_len] if meta.mirror else None
        resubmit = bytes(ffi.buffer(meta.resubmit_data, 8)) if meta.resubmit else None
        return Result(pkt.verdict, content, requests, mirror, resubmit, self._digest(pkt.digest))

    def _digest(self, number: int) -> tuple[int, dict[str, int]] | None:
        if not number:
            return None
        raw = bytes(ffi.buffer(self.meta, self.pointer.meta_size))
        layout = next(d for d in self.layout["digests"] if d["number"] == number)
        fields = {f["name"]: int.from_bytes(raw[f["offset"] :][: f["bytes"]], "little") for f in layout["fields"]}
        return number, fields

    def register(self, name: str) -> list[int]:
        """Cells of the register whose name ends with `name`."""
        layout = next(r for r in self.layout["registers"] if r["name"].endswith(name))
        raw = bytes(ffi.buffer(self.state, self.pointer.state_size))
        at = (layout["offset"] + i * layout["stride"] for i in range(layout["size"]))
        return [int.from_bytes(raw[a : a + layout["bytes"]], "little") for a in at]

    def counter(self, name: str) -> list[tuple[int, int]]:
        """Cells (packets, bytes) of the counter whose name ends with `name`."""
        layout = next(c for c in self.layout["counters"] if c["name"].endswith(name))
        raw = bytes(ffi.buffer(self.state, self.pointer.state_size))[layout["offset"] :]
        cells = np.frombuffer(raw[: 16 * layout["size"]], "<u8").reshape(-1, 2)
        return [(int(a), int(b)) for a, b in cells]

    def poke(self, kind: str, name: str, index: int, cell: bytes) -> None:
        """Writes a cell of a register, meter or filter."""
        layout = next(c for c in self.layout[kind] if c["name"].endswith(name))
        at = layout["offset"] + index * layout.get("stride", 64)
        ffi.memmove(self.state + at, cell, len(cell))


def pipes(path: Path, **options: Any) -> list[Pipe]:
    """The pipelines of a program file."""
    need("cc")
    compiled = build.compile_program(path, **options)
    program = Program(compiled.so_path)
    result, at = [], program.pointer
    for layout in compiled.layouts:
        result.append(Pipe(program, at, layout))
        at = at.next
    assert at == ffi.NULL
    return result


# --- programs -----------------------------------------------------------------------------------------------------------

# a 32 | b 32 | c 16 | d 8 | e 8
HEADER = "header data_h { bit<32> a; bit<32> b; bit<16> c; bit<8> d; bit<8> e; }"


def data(a: int = 0, b: int = 0, c: int = 0, d: int = 0, e: int = 0) -> bytes:
    """The default header's bytes."""
    return a.to_bytes(4, "big") + b.to_bytes(4, "big") + c.to_bytes(2, "big") + bytes([d, e])


def source(
    ingress: str = "",
    *,
    types: str = "",
    headers: str = "",
    metadata: str = "",
    parser_locals: str = "",
    parser: str = "state start { pkt.extract(intr); pkt.advance(PORT_METADATA_SIZE); pkt.extract(hdr.data); transition accept; }",
    ingress_locals: str = "",
    deparser_locals: str = "",
    deparser: str = "pkt.emit(hdr);",
    egress_parser_locals: str = "",
    egress_parser: str = "state start { pkt.extract(intr); pkt.extract(hdr.data); transition accept; }",
    egress_locals: str = "",
    egress: str = "",
    egress_deparser_locals: str = "",
    egress_deparser: str = "pkt.emit(hdr);",
) -> str:
    """A whole program. Blocks see `hdr` (with `hdr.data`), `md`, `intr`, `prsr`, `dprsr`, `tm` or `oport`; ingress starts
    by setting port 1."""
    return f"""
#include <core.p4>
#include <tna.p4>
{HEADER}
{types}
struct headers_t {{ {headers} data_h data; }}
struct md_t {{ {metadata} }}
parser IP(packet_in pkt, out headers_t hdr, out md_t md, out ingress_intrinsic_metadata_t intr) {{
    {parser_locals}
    {parser}
}}
control I(inout headers_t hdr, inout md_t md, in ingress_intrinsic_metadata_t intr,
          in ingress_intrinsic_metadata_from_parser_t prsr, inout ingress_intrinsic_metadata_for_deparser_t dprsr,
          inout ingress_intrinsic_metadata_for_tm_t tm) {{
    {ingress_locals}
    apply {{ tm.ucast_egress_port = 1; {ingress} }}
}}
control ID(packet_out pkt, inout headers_t hdr, in md_t md, in ingress_intrinsic_metadata_for_deparser_t dprsr) {{
    {deparser_locals}
    apply {{ {deparser} }}
}}
parser EP(packet_in pkt, out headers_t hdr, out md_t md, out egress_intrinsic_metadata_t intr) {{
    {egress_parser_locals}
    {egress_parser}
}}
control E(inout headers_t hdr, inout md_t md, in egress_intrinsic_metadata_t intr,
          in egress_intrinsic_metadata_from_parser_t prsr, inout egress_intrinsic_metadata_for_deparser_t dprsr,
          inout egress_intrinsic_metadata_for_output_port_t oport) {{
    {egress_locals}
    apply {{ {egress} }}
}}
control ED(packet_out pkt, inout headers_t hdr, in md_t md, in egress_intrinsic_metadata_for_deparser_t dprsr) {{
    {egress_deparser_locals}
    apply {{ {egress_deparser} }}
}}
Pipeline(IP(), I(), ID(), EP(), E(), ED()) pipe;
Switch(pipe) main;
"""


def pipe(directory: Path, *args: str, **kwargs: str) -> Pipe:
    path = directory / "program.p4"
    path.write_text(source(*args, **kwargs))
    return pipes(path)[0]
