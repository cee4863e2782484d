"""Compiled programs on mutated packets under the address and undefined-behaviour sanitizers (tests/c/fuzz_program.c).

`python tests/p4/compiler/test_compile_fuzz.py 10000000` runs that many packets through each program.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.build
ROOT = Path(__file__).parents[3]
FLAGS = ["-O1", "-g", "-march=native", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
MANY = """
    state start { p.extract(hdr.data); transition select(hdr.data.d, hdr.data.e) {
        (1, _): options; (2, _): items; (3, _): wide; (4, _): either; all: odd; (6, one): skip; default: accept; } }
    state options { p.extract(hdr.v, (bit<32>)hdr.data.c); transition accept; }
    state items { p.extract(hdr.s.next); transition select(hdr.s.last.more) { 0: accept; 7: tail; default: items; } }
    state tail { meta.seen = p.lookahead<bit<48>>(); transition accept; }
    state wide { p.extract(hdr.w); transition accept; }
    state either { transition select(p.lookahead<bit<8>>()) { 0: left; default: right; } }
    state left { p.extract(hdr.u.l); transition accept; } state right { p.extract(hdr.u.r); transition accept; }
    state odd { p.advance((bit<32>)hdr.data.c); p.extract(hdr.o); transition accept; }
    state skip { p.extract<item_t>(_); verify(hdr.data.c != 7, error.NoMatch); transition items; }"""
TYPES = """
    header opts_t { bit<4> k; bit<4> n; varbit<320> o; bit<8> last; } header item_t { bit<12> x; bit<4> more; }
    header wide_t { bit<3> a; bit<330> b; int<131> c; } header l_t { bit<16> x; } header r_t { bit<40> y; }
    header_union u_t { l_t l; r_t r; } header odd_t { bit<7> a; bit<17> b; bit<9> c; bit<95> d; bit<16>[3] e; }
    struct pair_t { @match(ternary) bit<8> d; bit<8> e; } struct cell_t { bit<70> x; bool y; }"""
LOCALS = """
    register<bit<200>>(5) big; register<cell_t>(4) cells; counter(6, CounterType.packets_and_bytes) c;
    meter(3, MeterType.bytes) m; direct_meter<bit<8>>(MeterType.packets) dm; direct_counter(CounterType.bytes) dc;
    action_selector(HashAlgorithm.crc16, 8, 8) sel;
    action set(bit<8> v) { hdr.data.e = v; dm.read(hdr.data.e); } action wide(bit<200> w) { meta.w = w; }
    table t { key = { hdr.data.d: ternary; hdr.w.b: ternary; } actions = { set; wide; NoAction; }
        meters = dm; counters = dc; }
    table g { key = { hdr.data.e: exact; hdr.data.a: selector; hdr.v.isValid(): exact; } actions = { set; wide; }
        implementation = sel; }"""
INGRESS = """
    t.apply(); g.apply(); c.count((bit<32>)hdr.data.e); m.execute_meter((bit<32>)hdr.data.d & 3, hdr.data.e);
    big.read(meta.w, (bit<32>)hdr.data.e); big.write((bit<32>)hdr.data.d, meta.w * 3 + (bit<200>)hdr.w.b[199:0]);
    cell_t cell; cells.read(cell, (bit<32>)hdr.data.e); cell.x = cell.x + 1; cells.write((bit<32>)hdr.data.d & 7, cell);
    hdr.w.b = (hdr.w.b << (bit<8>)hdr.data.e) |+| ((bit<330>)hdr.data.a ^ (bit<330>)cell.x);
    hdr.w.c = (hdr.w.c >> hdr.data.d) |-| (int<131>)(bit<131>)hdr.data.b;
    hdr.s[hdr.data.d & 3].x = hdr.data.c[11:0]; hdr.o.e[hdr.data.e] = hdr.data.c;
    hash(hdr.data.a, HashAlgorithm.crc32, 32w0, { hdr.v, hdr.w.b, hdr.o.d }, 32w0xFFFF);
    if (hdr.data.e == 1) { hdr.s.push_front(2); hdr.v.setValid(); } if (hdr.data.e == 2) { hdr.s.pop_front(1); }
    if (hdr.data.e == 3) { opts_t saved = hdr.v; hdr.v.setInvalid(); hdr.v = saved; hdr.u.l.setValid(); }
    if (hdr.data.e == 4) { clone_preserving_field_list(CloneType.I2E, 1, 2); }
    if (hdr.data.e == 5 && meta.round < 3) { meta.round = meta.round + 1; resubmit_preserving_field_list(1); }
    if (hdr.data.e == 6) { sm.mcast_grp = 1; } if (hdr.data.e == 7) { mark_to_drop(sm); }
    assert(hdr.data.e != 9); log_msg("x {}", { hdr.data.e }); if (hdr.data.e == 8) { digest(1, hdr.data); }
    random(meta.low, (bit<16>)hdr.data.d, hdr.data.c); truncate((bit<32>)hdr.data.c);"""
EGRESS = """
    if (hdr.data.d == 3 && meta.round < 2) { meta.round = meta.round + 1; recirculate_preserving_field_list(1); }
    if (hdr.data.d == 4) { clone_preserving_field_list(CloneType.E2E, 1, 2); } if (hdr.w.isValid()) { hdr.u.r.setValid(); }
    hdr.data.c = hdr.data.c + (bit<16>)meta.w[199:190] + meta.low; if (sm.egress_rid == 3) { mark_to_drop(sm); }"""
COMPUTE = """
    update_checksum_with_payload(hdr.v.isValid(), { hdr.v.k, hdr.v.n, hdr.v.o, hdr.data.a }, hdr.data.c,
        HashAlgorithm.csum16);"""
METADATA = "@field_list(1) bit<8> round; @field_list(1, 2) bit<200> w; @field_list(2) bit<16> low; bit<48> seen;"


def everything(folder: Path) -> Path:
    from v1_program import source

    path = folder / "everything.p4"
    path.write_text(source(
        INGRESS, types=TYPES, headers="opts_t v; item_t[4] s; wide_t w; u_t u; odd_t o;", metadata=METADATA, parser=MANY,
        parser_locals="value_set<bit<8>>(3) one; value_set<pair_t>(3) all;", ingress_locals=LOCALS, egress=EGRESS,
        verify="verify_checksum(hdr.v.isValid(), { hdr.v.o }, hdr.data.c, HashAlgorithm.xor16);", compute=COMPUTE,
    ))
    return path


def entries() -> list:
    from ina.p4.runtime import (
        MeterConfig,
        MeterEntry,
        ProfileGroup,
        ProfileMember,
        TableEntry,
        Update,
        ValueSetEntry,
        insert,
        modify,
    )

    members = [ProfileMember("sel", i, "set", {"v": i}) for i in range(4)]
    group = ProfileGroup("sel", 1, ((0, 1), (1, 2), (3, 1)))
    rows = [TableEntry("g", {"hdr.data.e": e, "hdr.v.$valid$": v}, group=1) for e in range(5) for v in (0, 1)]
    more = [TableEntry("t", {"hdr.data.d": (d, 255)}, "wide", {"w": d << 190}, d) for d in (1, 2, 3)]
    sets = [ValueSetEntry("one", (9,)), ValueSetEntry("all", ({"d": (5, 7), "e": 1}, {"d": 5, "e": 0}))]
    meter = MeterEntry("m", 1, MeterConfig(1e3, 200, 1e4, 500))
    return [*insert(*members, group, *rows, *more), *modify(*sets, meter), Update("MODIFY", meter)]


def frames(name: str, rng: random.Random) -> list[bytes]:
    if name == "switchml":
        from test_compile_differential import aggregation_frame

        return [aggregation_frame(rng, 32, 0)[0] for _ in range(200)]
    if name == "atp":
        return [atp_frame(rng) for _ in range(200)]
    result = []
    for _ in range(200):
        head = bytearray(rng.randbytes(12))
        head[8:12] = [0, rng.choice([0, 8, 16, 64, 255]), rng.randrange(7), rng.randrange(10)]
        result.append(bytes(head) + rng.randbytes(rng.choice([0, 3, 8, 60, 120])))
    return result


def run(name: str, packets: int) -> tuple[int, int, int]:
    """Runs in a process with the sanitizers; returns how many packets were sent, dropped, and recirculated."""
    from cffi import FFI

    from ina.base import paths
    from ina.base.native import ffi as native
    from ina.p4.compiler import build
    from ina.p4.runtime import Switch

    with tempfile.TemporaryDirectory() as folder:
        path = everything(Path(folder)) if name == "everything" else paths.p4_dir() / f"{name}.p4"
        defines = None if name == "everything" else {"VALUES": "32", "SLOTS": "4"}
        compiled = build.compile_program(path, defines=defines, cflags=FLAGS)
        library = Path(folder) / "fuzz.so"
        includes = [f"-I{d}" for d in paths.include_dirs()]
        source = str(ROOT / "tests/c/fuzz_program.c")
        command = [*build.c_compiler(), "-std=gnu11", "-shared", "-fPIC", *FLAGS, *includes, source, "-o", str(library)]
        subprocess.run(command, check=True)
        ffi = FFI()
        ffi.cdef("void fuzz(void *, void *, const char *, const uint32_t *, uint32_t, uint64_t, uint64_t, uint64_t *);")
        with Switch(compiled) as switch:
            if name == "switchml":
                admit(switch)
            elif name == "atp":
                atp_job(switch)
            else:
                switch.write(entries())
            rng = random.Random(1)
            seeds = frames(name, rng)
            results = ffi.new("uint64_t[3]")
            pointers = [
                ffi.cast("void *", int(native.cast("uintptr_t", p)))
                for p in (switch.program.pointer, switch._images[0].pointer)
            ]
            ffi.dlopen(str(library)).fuzz(
                *pointers, b"".join(seeds), [len(s) for s in seeds], len(seeds), packets, 7, results
            )
        return tuple(results)


def admit(switch) -> None:
    """Admits job 1 of three workers and job 2 of three below a switch at port 4, and forwards one more address."""
    from ina.p4.runtime import MulticastGroupEntry, Replica, TableEntry, insert

    info = {a.name.split(".")[-1]: [p.name for p in a.params] for a in switch.p4info.actions.values()}

    def entry(table: str, match: dict, action: str, *values: int) -> TableEntry:
        return TableEntry(table, match, action, dict(zip(info[action], values, strict=True)))

    rows = []
    for job in (1, 2):
        rows.append(entry("admission.job", {"hdr.switchml.job": job}, "set_job", 7, 2, 4 - 2 * job, 3, 77, 5, 9, 1, job - 1))
        for w in range(2 + job):
            key = {"hdr.switchml.job": job, "hdr.ipv4.src_addr": 0x0A000001 + w, "hdr.udp.src_port": 4001}
            key["standard.ingress_port"] = w + 1
            if w == 3:
                rows.append(entry("admission.worker", key, "set_parent"))
                continue
            rows.append(entry("admission.worker", key, "set_worker", 1 << w))
            replica = {"hdr.switchml.job": job, "standard.egress_rid": w}
            rows.append(entry("replicas.replica", replica, "to_worker", w + 1, 0x0A000001 + w, 4001))
    rows.append(entry("reply.parent", {"hdr.switchml.job": 2}, "to_parent", 4, 4, 0x0A000004, 4001, 5, 0x0AFF0001, 0xBEE0))
    rows.append(entry("forwarding.l2", {"hdr.ethernet.dst_addr": 0x020000000102}, "forward", 3))
    switch.write(insert(MulticastGroupEntry(9, tuple(Replica(w + 1, w) for w in range(3))), *rows))


class Writes:
    """A switch as a write-only target of tests/atp_targets.py."""

    def __init__(self, switch=None):
        self.write = switch.write if switch else lambda updates: None

    def reset(self, ports: int) -> None:
        pass


def atp_job(switch=None):
    """Job 1 of three workers at ports 1 to 3, the server at port 0."""
    from atp_targets import World

    world = World(Writes(switch))
    job = world.admit([1, 2, 4], number=1, life=5, first_port=1, port=0)
    if switch:
        world.forward("02:00:00:00:01:02", 3)
    return job


def atp_frame(rng: random.Random) -> bytes:
    """A packet of a worker, or an answer of the server."""
    job, sequence, index = atp_job(), rng.randrange(4), rng.randrange(3)
    if rng.random() < 0.25:
        kind, size = rng.choice([(3, 128), (3, 0), (4, 128), (5, 4)])
        return job.down(sequence, rng.choice([1, 2, 4, 7]), kind, rng.randbytes(size), index=index)
    values = [rng.getrandbits(32) for _ in range(32)] if rng.random() < 0.8 else None
    return job.data(rng.randrange(3), sequence, values, index=index, resend=int(rng.random() < 0.2))


def sanitized(name: str, packets: int) -> list[int]:
    from ina.p4.compiler import build

    libraries = [
        subprocess.run(
            [*build.c_compiler(), f"-print-file-name={lib}"], capture_output=True, text=True
        ).stdout.strip()
        for lib in ("libasan.so", "libubsan.so")
    ]
    script = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\n"
    script += f"import folders, test_compile_fuzz as t; print(*t.run({name!r}, {packets}))"
    environment = {**os.environ, "LD_PRELOAD": ":".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"}
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return [int(n) for n in process.stdout.split()]


@pytest.mark.later
@pytest.mark.parametrize("name", ["switchml", "atp", "everything"])
def test_mutated_packets(name: str) -> None:
    from capabilities import need

    need("sanitizers")
    sent, dropped, again = sanitized(name, 50_000)
    assert sent > 200 and dropped > 1000  # most frames of jobs of three workers wait for others
    assert again > 1000 or name != "everything"


def test_everything_at_once_agrees_with_the_interpreter(tmp_path: Path) -> None:
    """The same program and packets, result by result."""
    from shadow import Shadowed

    from ina.p4.compiler.reference.interpreter import CloneSession

    switch = Shadowed(everything(tmp_path), cflags=["-O1"], seed=3)
    switch.clone_sessions[1] = CloneSession(3, None)
    switch.multicast_groups[1] = [(1, 1), (2, 2), (4, 3)]
    profile = switch.profiles["sel"]
    group = profile.add_group([profile.add_member("set", [v]) for v in range(4)])
    for e in range(5):
        for valid in (False, True):
            switch.tables["g"].insert({"e": e, "hdr.v.$valid$": valid}, group=group)
    for d in (1, 2, 3):
        switch.tables["t"].insert({"d": (d, 255)}, "wide", [d << 190], d)
    switch.value_sets["one"].insert(9)
    switch.value_sets["all"].insert((5, 7), 1)
    switch.value_sets["all"].insert((5, 255), 0)
    rng = random.Random(5)
    seeds, sent = frames("everything", rng), 0
    for k in range(250):
        frame = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(3)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        if rng.random() < 0.2:
            del frame[1 + rng.randrange(len(frame)) :]
        sent += len(switch.process(bytes(frame), rng.randrange(4), k * 10**9))
    assert sent > 500


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT)]
    for program in ("switchml", "atp", "everything"):
        start, count = time.monotonic(), int(sys.argv[1])
        print(program, *sanitized(program, count), f"{time.monotonic() - start:.0f} s")
