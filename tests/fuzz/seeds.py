"""Seeds of each target for a new corpus: valid inputs, which fuzzing then mutates."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

from .registry import ROOT, Native, Target


def of(target: Target) -> list[bytes]:
    if isinstance(target, Native):
        return list(_native(target))
    seeds = globals().get(target.name.replace("-", "_"))
    return [data for data in (seeds() if seeds else ())]


def _native(target: Native) -> Iterator[bytes]:
    if target.program:
        name = target.program
        import test_compile_fuzz

        rng = random.Random(1)
        kind = "switchml" if "switchml" in name else "everything" if "everything" in name else name
        for n, frame in enumerate(test_compile_fuzz.frames(kind, rng)[:30]):
            frame = frame[:500]
            yield bytes([n % 4, 3]) + struct.pack(">H", len(frame)) + frame + bytes([n % 12]) + b"\4\0\x0c" + bytes([n])
    elif target.harness == "worker.c":
        if target.name == "worker-quorum":  # asks, gives later; gives, and an open and a decided answer
            for part in (0x04, 0x05, 0x06, 0x01):
                yield bytes([0, 8, 0, 1, part, 0, 0, 40, 0, 0, 0, 9, 1, 3, 6, 0x45, 1, 3, 2, 0, 0x11, 0, 0, 2, 0, 1, 0, 0, 1, 3,
                             7])
                yield bytes([0, 8, 0, 1, part, 0, 0, 40, 0, 0, 0, 9, 1, 3, 2, 0, 0x41, 0, 0, 1, 3, 2, 1, 1, 0, 0, 2, 2, 1, 0, 0,
                             7])
        if target.name in ("worker-receivers", "worker-atp_routes"):
            yield from _routed()
        for dtype in (0, 4, 12):
            yield bytes([0, 8, 0, dtype, 0, 40, 0, 0, 0, 9, 1, 3, 2, 0, 1, 0, 2, 1, 1, 0, 7])
            yield bytes(
                [
                    0,
                    4,
                    0,
                    dtype,
                    1,
                    200,
                    1,
                    2,
                    3,
                    9,
                    1,
                    0,
                    2,
                    0,
                    1,
                    0,
                    1,
                    0,
                    2,
                    1,
                    1,
                    0,
                    1,
                    0,
                    2,
                    2,
                    1,
                    0,
                    7,
                    5,
                    255,
                    255,
                    20,
                    1,
                    0,
                ]
            )
    elif target.harness == "frames.c":
        yield from (bytes([first, config]) + bytes(8) for first in (0x80, 0x81, 0x83) for config in (0, 2, 4, 0x20))
    elif target.harness == "server.c":
        yield bytes([0, 2, 0, 5, 1, 0, 1, 0, 0, 7, 5, 1, 1, 1, 0, 0, 7, 4, 3, 0])
        yield bytes([0, 0x12, 0, 5, 5, 0, 1, 0, 0, 7, 5, 5, 1, 1, 0, 0, 7, 4, 3, 0])


def _routed() -> Iterator[bytes]:
    """Tensors of two workers with routes that are each answered, the second of them while the first is under way."""
    gather, scatter = ((0x19, 40), (0x1a, 70)), ((0x0b, 40), (0x13, 70))  # sources, receivers << 3; elements
    swap, reduce = ((0x11, 33), (0x0a, 33)), ((0x0b, 100),)
    for first, dtype in ((gather, 0), (scatter, 0), (swap, 0), (reduce, 0), (scatter, 4), (reduce, 12)):
        data = bytes([0, 8])
        for pieces in (first, swap):
            numbers = (number for piece in pieces for number in piece)
            data += bytes([0, 1, dtype if pieces is first else 0, 0, 0, len(pieces), *numbers, 0, 0, 0, 9])
        for number in range(12):
            data += bytes([1, 0, 2, number % 8, 1, 0])
        yield data + bytes([5, 255, 255, 20, 1, 3, 2, 0, 3, 0, 7])


# ---- the controller


def control_messages() -> Iterator[bytes]:
    from ina.aggregation.control_socket.messages import REQUESTS

    right = {"job": "x", "worker": 0, "workers": 1, "slots": 4, "hosts": ["h1"], "token": "t", "host": "h1", "port": "shm",
             "events": ["at 0s fail s1-s3"]}
    for op, kind in REQUESTS.items():
        needed = {f.name: right[f.name] for f in fields(kind) if f.default is MISSING}
        yield json.dumps({"op": op, **needed}).encode()
        yield json.dumps({"op": op, **{f.name: right[f.name] for f in fields(kind) if f.name in right}}).encode()


def control_http() -> Iterator[bytes]:
    yield b"GET / HTTP/1.1\r\nHost: ina\r\n\r\n"
    yield b"GET /jobs/x HTTP/1.1\r\nHost: localhost:80\r\nAuthorization: Bearer secret\r\n\r\n"
    yield b"DELETE /jobs/a%20b?c HTTP/1.0\r\nHost: [::1]:3\r\n\r\n"
    body = b'{"job":"a","workers":1,"hosts":["h1"]}'
    yield b"POST /jobs HTTP/1.1\r\nHost: ina\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def control_socket() -> Iterator[bytes]:
    for line in control_messages():
        yield b"\0" + line + b"\n"
    for request in control_http():
        yield b"\x40" + request
    yield b"\1ina secret\n" + b'{"op":"ping"}\n'
    yield b"\1ina2 " + b"9" * 64 + b" job:token\n" + b"0" * 64 + b'\n{"op":"ping"}\n'
    admit = b'{"op":"admit","job":"x","workers":1,"hosts":["h1"]}\n'
    yield b'\0{"op":"join","job":"x","worker":0,"host":"h1"}\n' + admit + b'{"op":"jobs"}\n'
    yield b"\0" + admit + b'{"op":"attach","job":"x","worker":0,"port":"udp"}\n{"op":"release"}\n'


def state() -> Iterator[bytes]:
    import tempfile

    from test_api import FakeNetwork, Someone

    from ina import topology as topologies
    from ina.aggregation.controller.api import Operations
    from ina.aggregation.controller.state import StateFile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.json"
        service = Operations(FakeNetwork(topologies.load("leaf-spine", leaves=2, spines=1, hosts=2)), state=StateFile(path))
        service.recovery.save()
        yield path.read_bytes()
        someone = Someone(service, 1)
        someone.ask("admit", job="a", workers=2, slots=4, hosts=["h1", "h3"], token="t")
        service.recovery.save()
        yield path.read_bytes()
        someone.ask("join", job="a", worker=0, token="t", host="h1")
        someone.ask("attach", job="a", worker=0, port="udp", token="t")
        service.recovery.save()
        yield path.read_bytes()


def control_answers() -> Iterator[bytes]:
    yield b'\0{"ok":true,"pid":1}\n'
    yield b'\1{"event":"left","worker":1}\n{"ok":true,"slots":4}\n'
    yield b'\1{"ok":false,"code":"full","error":"no slots"}\n'
    address = '["02:00:00:00:00:01","10.0.0.1",5]'
    attached = f'{{"ok":true,"worker":0,"workers":1,"number":0,"incarnation":1,"life":1,"slots":4,"values":32,"protocol":"atp",' \
               f'"address":{address},"switch":{address},"outlives":false,"moves":false,"port":{{"kind":"udp"}}}}\n'
    yield b"\2" + attached.encode()
    yield b'\3{"event":"moved","incarnation":2,"reason":"x"}\n{"event":"failed","reason":"worker 1 is gone"}\n'
    yield b'\3{"event":"refused","code":"denied","reason":"no"}\n'


# ---- messages of RPCs


def p4runtime() -> Iterator[bytes]:
    from p4runtime_client import Names
    from test_p4runtime_fuzz import P4

    from ina.p4.compiler.build import compile_program
    from ina.p4.p4runtime import pipeline
    from ina.p4.p4runtime.messages import p4
    from ina.p4.runtime import Program

    message = pipeline.message_of(Program(compile_program(P4 / "controlled.p4").so_path))
    names = Names(message)
    for table in message.tables:
        entry = p4.TableEntry(table_id=table.preamble.id, priority=1)
        for field in table.match_fields:
            match = entry.match.add(field_id=field.id)
            kind = field.MatchType.Name(field.match_type).lower()
            part = getattr(match, kind)
            if kind == "range":
                part.low, part.high = b"\0", b"\1"
            else:
                part.value = b"\1"
            if kind == "ternary":
                part.mask = b"\1"
            if kind == "lpm":
                part.prefix_len = 8
        action = next(a for a in message.actions if a.preamble.id == table.action_refs[0].id)
        entry.action.action.action_id = action.preamble.id
        for param in action.params:
            entry.action.action.params.add(param_id=param.id, value=b"\1")
        for kind in (1, 2, 3):
            update = p4.Update(type=kind, entity=p4.Entity(table_entry=entry))
            yield b"\0" + p4.WriteRequest(device_id=1, updates=[update]).SerializeToString()
        yield b"\1" + p4.ReadRequest(device_id=1, entities=[p4.Entity(table_entry=entry)]).SerializeToString()
    for identifier in names.ids.values():
        for kind in (
            "counter_entry",
            "meter_entry",
            "register_entry",
            "direct_counter_entry",
            "direct_meter_entry",
            "digest_entry",
            "action_profile_member",
            "action_profile_group",
            "value_set_entry",
        ):
            entity = p4.Entity()
            part = getattr(entity, kind)
            part.SetInParent()
            for name in ("counter_id", "meter_id", "register_id", "digest_id", "action_profile_id", "value_set_id"):
                if name in part.DESCRIPTOR.fields_by_name:
                    setattr(part, name, identifier)
                    yield b"\1" + p4.ReadRequest(device_id=1, entities=[entity]).SerializeToString()
                    yield b"\0" + p4.WriteRequest(device_id=1, updates=[p4.Update(type=2, entity=entity)]).SerializeToString()
    group = p4.MulticastGroupEntry(multicast_group_id=1, replicas=[p4.Replica(egress_port=1, instance=1)])
    entity = p4.Entity(packet_replication_engine_entry=p4.PacketReplicationEngineEntry(multicast_group_entry=group))
    yield b"\0" + p4.WriteRequest(device_id=1, updates=[p4.Update(type=1, entity=entity)]).SerializeToString()
    yield b"\2" + p4.SetForwardingPipelineConfigRequest(device_id=1, action=4).SerializeToString()
    yield b"\3" + p4.GetForwardingPipelineConfigRequest(device_id=1).SerializeToString()


def bfrt() -> Iterator[bytes]:
    from test_bfrt_fuzz import entry
    from test_p4runtime_fuzz import P4

    from ina.p4.bfrt.device import Device
    from ina.p4.bfrt.messages import bfrt
    from ina.p4.compiler.build import compile_program
    from ina.p4.runtime import Switch

    rng = random.Random(1)
    with Switch(compile_program(P4 / "bfrt.p4")) as switch:
        for table in Device(switch).info.tables.values():
            for kind in (1, 2, 3):
                message = entry(rng, table)
                message.table_id = table.id
                writing = bfrt.WriteRequest(p4_name="bfrt")
                writing.target.pipe_id = 0xFFFF
                writing.updates.add(type=kind).entity.table_entry.CopyFrom(message)
                yield b"\0" + writing.SerializeToString()
                reading = bfrt.ReadRequest(p4_name="bfrt")
                reading.target.pipe_id = 0xFFFF
                reading.entities.add().table_entry.CopyFrom(message)
                yield b"\1" + reading.SerializeToString()
    yield b"\2" + bfrt.SetForwardingPipelineConfigRequest().SerializeToString()
    yield b"\3" + bfrt.GetForwardingPipelineConfigRequest().SerializeToString()


def device_config() -> Iterator[bytes]:
    yield b'{"source": "#include <core.p4>", "defines": {"N": "1"}, "name": "program.p4"}'
    yield b'{"compiled": "0123"}'
    yield b"#include <v1model.p4>\n"
    yield b"\x7fELF\1\2"


def bfrt_json() -> Iterator[bytes]:
    key = '{"id": 1, "name": "k", "match_type": "Exact", "type": {"type": "bytes", "width": 9}}'
    data = '{"singleton": {"id": 2, "name": "v", "repeated": true, "type": {"type": "uint64"}}, "mandatory": true}'
    action = '{"id": 3, "name": "a", "data": [{"id": 1, "name": "p", "type": {"type": "bool"}}]}'
    tables = f'{{"id": 4, "name": "pipe.t", "table_type": "Register", "size": 8, "key": [{key}], "data": [{data}], ' \
             f'"action_specs": [{action}], "attributes": [], "depends_on": []}}'
    yield f'{{"tables": [{tables}]}}'.encode()
    yield b'{"learn_filters": [{"id": 1, "name": "d", "fields": [{"id": 1, "name": "f", "type": {"type": "bool"}}]}]}'
    data = '{"oneof": [{"id": 1, "name": "c", "container": []}]}'
    yield f'{{"tables": [{{"id": 1, "name": "t", "table_type": "x", "key": [], "data": [{data}]}}]}}'.encode()


# ---- files


def mapping() -> Iterator[bytes]:
    yield b'[headers]\n"hdr.data" = "hdr.data"\n[ports]\n"1" = 2\n[packets]\nlargest = { "hdr.data.a" = 7 }\nwhole = true\n'
    yield b'[tables]\n"I.t" = { table = "I.t", keys = { "hdr.data.d" = "hdr.data.d" }, actions = { NoAction = "NoAction" } }\n'
    yield b'[counters]\n"I.c" = "I.c"\n[registers]\n"r" = "r"\n'
    yield b'[differences]\nignore = ["hdr.data.b"]\norder = "any"\ndigests = false\n'
    yield b'[entries]\nboth = "jobs.stf"\na = "a.stf"\n'


def idx() -> Iterator[bytes]:
    import gzip

    labels = b"\0\0\x08\1\0\0\0\3abc"
    yield from (labels, gzip.compress(labels, mtime=0), b"\0\0\x08\3" + struct.pack(">3I", 1, 2, 2) + b"abcd", b"\0\0\x08\xff")


def results() -> Iterator[bytes]:
    yield b'\0{"schema": 2, "summary": [{"backend": "ina"}], "comparison": {}, "runs": [{}], "finished": true}'
    yield b'\1{"kind": "training", "workers": 4}'
    yield b'\2{"points": [{"folder": "a"}, {"folder": "."}]}'


def experiment() -> Iterator[bytes]:
    yield from (path.read_bytes() for path in sorted((ROOT / "experiments").glob("*.toml")))


def topology() -> Iterator[bytes]:
    yield b'[every-link]\nrate = 1e8\ndelay = 1e-3\n\n[[link]]\nends = ["h1-h4", "s1"]\nqueue = 30000\n'
    yield b'name = "x"\nmtu = 9000\nbuffer = 100000\n[[link]]\nends = ["h1", "s1"]\nloss = 0.1\n'
    yield b'[[link]]\nends = ["h1", "s1"]\n[[link]]\nends = ["s1", "s2"]\nsimplex = true\n'


def deployment() -> Iterator[bytes]:
    text = (ROOT / "docs/guide/tofino.md").read_text()
    blocks = [block.partition("\n")[2] for block in text.split("```")[1::2] if block.startswith("toml")]
    yield from (block.encode() for block in blocks)
    yield b'[tofino]\nip = "10.0.0.1"\n[[tofino.ports]]\nport = "1/0"\nspeed = "100G"\n'


def chakra() -> Iterator[bytes]:
    from test_replay import all_reduce, node

    from ina.lab.virtual.chakra import _schema

    schema = _schema()

    def packed(messages: list) -> bytes:
        data = b""
        for message in messages:
            raw = message.SerializeToString()
            data += bytes([len(raw) & 127 | 128, len(raw) >> 7]) if len(raw) > 127 else bytes([len(raw)])
            data += raw
        return data

    nodes = [schema.GlobalMetadata(version="0.0.4")]
    yield b"\0" + packed(nodes)
    try:
        yield b"\0" + packed([*nodes, all_reduce(1), node(2, schema.COMP_NODE, [1], 10)])
    except Exception:
        pass
    yield b'\1{"0": [0], "1": [0, 1]}'


def capture() -> Iterator[bytes]:
    for magic, order in ((0xA1B2C3D4, "<"), (0xA1B23C4D, ">")):
        yield struct.pack(f"{order}IHHIIII", magic, 2, 4, 0, 0, 65535, 1) + 2 * (struct.pack(f"{order}4I", 1, 2, 4, 4) + b"abcd")
    yield b"02 00 00 00 00 01"


def layers() -> Iterator[bytes]:
    yield b"name,elements,forward_ns,backward_ns\na,100,1,2\nb,0,3,4\n"


def settings() -> Iterator[bytes]:
    yield b'protocol = "atp"\nvalues = 64\nslots = 128\nport = "udp"\nfault = "loss=0.01,dup=0.1,seed=1"\n'


def stf() -> Iterator[bytes]:
    yield b"add t data.d:0x1 data.a:0x** set(v:1)\nsetdefault t drop()\npacket 0 000000010000000200030405\nexpect 1 **** $\n"
    yield b"add t 5 data.d:0x1 data.a:0x1*** set(1)\nwait\nremove all\n"


def p4_source() -> Iterator[bytes]:
    import test_compile_fuzz
    from v1_program import TABLE, source

    yield source(ingress="t.apply();", ingress_locals=TABLE % ("hdr.data.d: exact;", "")).encode()
    yield source("hdr.data.a = hdr.data.b + 1;").encode()
    yield b"#define X(a, b) a##b\n#if defined(X) && 3 > 2\nconst bit<8> c = X(1, 2) ++ 4w3;\n#else\n#include <core.p4>\n#endif\n"
    yield b"enum bit<8> e { a = 1, b } struct s { bit<8> x; } header h { varbit<32> v; } typedef bit<9> p; error { One }\n"
    yield (
        b"parser P(in bit<8> x) { state start { transition select(x) { 1 &&& 2: a; 3 .. 4: b; default: accept; } } "
        b"state a { transition reject; } state b { transition accept; } }\n"
    )
    yield b"const int x = 0x1F; const bit<8> y = 8w255 |+| 8w1; const bool b = !(x > 3); extern E { E(); void f<T>(in T t); }\n"
    yield test_compile_fuzz.INGRESS.encode()
