"""Small v1model programs for tests: one default header, everything else optional."""

from __future__ import annotations

from pathlib import Path

from ina.p4.compiler import frontend
from ina.p4.compiler.checked_program import CheckedProgram
from ina.p4.compiler.reference.interpreter import Interpreter

PAYLOAD = b"\xde\xad\xbe\xef"
# a 32 | b 32 | c 16 | d 8 | e 8
HEADER = "header data_t { bit<32> a; bit<32> b; bit<16> c; bit<8> d; bit<8> e; }"
# A table's keys, and its other properties.
TABLE = """
action set(bit<8> v) { hdr.data.e = v; }
action drop() { mark_to_drop(sm); }
table t { key = { %s } actions = { set; drop; NoAction; } default_action = set(0xDD); %s }
"""


def source(
    ingress: str = "",
    *,
    types: str = "",
    headers: str = "",
    metadata: str = "",
    parser_locals: str = "",
    parser: str = "state start { p.extract(hdr.data); transition accept; }",
    verify: str = "",
    ingress_locals: str = "",
    egress: str = "",
    egress_locals: str = "",
    compute: str = "",
    deparser: str = "p.emit(hdr);",
) -> str:
    """A whole program. Blocks see `hdr` (with `hdr.data`), `meta` and `sm`; ingress starts by setting port 1."""
    return f"""
#include <core.p4>
#include <v1model.p4>
{HEADER}
{types}
struct headers_t {{ data_t data; {headers} }}
struct metadata_t {{ {metadata} }}
parser P(packet_in p, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {{
    {parser_locals}
    {parser}
}}
control V(inout headers_t hdr, inout metadata_t meta) {{ apply {{ {verify} }} }}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {{
    {ingress_locals}
    apply {{ sm.egress_spec = 1; {ingress} }}
}}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {{
    {egress_locals}
    apply {{ {egress} }}
}}
control C(inout headers_t hdr, inout metadata_t meta) {{ apply {{ {compute} }} }}
control D(packet_out p, in headers_t hdr) {{ apply {{ {deparser} }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def check(directory: Path, text: str) -> CheckedProgram:
    path = directory / "program.p4"
    path.write_text(text)
    return frontend.load(path)


def interpret(directory: Path, *args: str, seed: int = 0, **kwargs: str) -> Interpreter:
    return Interpreter(check(directory, source(*args, **kwargs)), seed)


def data(a: int = 0, b: int = 0, c: int = 0, d: int = 0, e: int = 0) -> bytes:
    """The default header's bytes."""
    return a.to_bytes(4, "big") + b.to_bytes(4, "big") + c.to_bytes(2, "big") + bytes([d, e])


def sends(interpreter: Interpreter, frame: bytes, port: int = 0) -> list[tuple[int, bytes]]:
    return interpreter.process(frame + PAYLOAD, port)


def result(interpreter: Interpreter, frame: bytes, port: int = 0) -> bytes:
    """The header part of the only packet sent, which must leave by port 1 with the payload untouched."""
    ((out, content),) = sends(interpreter, frame, port)
    assert out == 1
    assert content.endswith(PAYLOAD)
    return content[: -len(PAYLOAD)]
