"""TNA programs compiled and interpreted: the same packets through both must leave the same packets, requests and state.

With INA_P4_EXAMPLES (a folder with other people's TNA programs, searched to any depth) those take part, too.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import atp_targets
import child
import differential
import pytest
import switchml_targets
from capabilities import need
from tna_program import HEADER, Pipe, data, pipes, source

from ina.p4.compiler import build, frontend
from ina.p4.compiler.arch.interpret_tna import egress_front, ingress_front
from ina.p4.compiler.errors import CompileError
from ina.p4.compiler.p4info import p4info
from ina.p4.compiler.reference.interpreter import Interpreter
from ina.p4.compiler.reference.values import leaves
from ina.p4.runtime import Switch
from ina.p4.runtime.entities import TableEntry

UNSUPPORTED = {
    "t2na_counter_true_egress_accounting": "Tofino 2 .* is not supported",
}


def examples() -> list[Path]:
    """Files with a `main` in the folder that INA_P4_EXAMPLES names."""
    folder = os.environ.get("INA_P4_EXAMPLES")
    programs = sorted(Path(folder).rglob("*.p4")) if folder else []
    return [p for p in programs if any(f"{package}(" in p.read_text() and "main;" in p.read_text() for package in ("Switch",))
            and "v1model.p4" not in p.read_text()]


def include_dirs(path: Path) -> list[Path]:
    return [path.parent.parent]


class Both:
    """A program as compiled pipes and in the interpreter, with the same entries."""

    def __init__(self, path: Path, defines: dict[str, str] | None = None) -> None:
        self.pipes = pipes(path, include_dirs=include_dirs(path), defines=defines)
        self.program = frontend.load(path, include_dirs=include_dirs(path), defines=defines)
        self.interpreter = Interpreter(self.program, 1)
        self.reference = self.interpreter.architecture

    def fill(self, rng: random.Random) -> None:
        info = p4info.build(self.program)
        scenario = differential.scenario(info, self.program, "", rng, lambda table, action: True, 0)
        owner = {t["name"]: pipe for pipe in self.pipes for t in pipe.layout["tables"]}
        for table, action, args in scenario.defaults:
            if table in owner and any(t["index"] >= 0 for t in owner[table].layout["tables"] if t["name"] == table):
                self.interpreter.tables[table].set_default(action, args)
                owner[table].tables.apply("MODIFY", TableEntry(table, {}, action, args, is_default=True))
        for table, match, action, args, priority in scenario.entries:
            if table not in owner:
                continue  # never applied
            self.interpreter.tables[table].insert(match, action, args, priority)
            ternary = self.interpreter.tables[table].needs_priority
            owner[table].add(TableEntry(table, match, action, args, priority=priority if ternary else 0))

    def copy(self, switch: Switch) -> None:
        """The entries of a running switch with one pipeline."""
        for table in switch.program.p4info.message["tables"]:
            for entry in switch.read([TableEntry(table["preamble"]["name"])]):
                if entry.match and not entry.is_const and not entry.is_default:
                    self.pipes[0].add(entry)
                    match, params = ({k: number(v) for k, v in x.items()} for x in (entry.match, entry.params))
                    self.interpreter.tables[entry.table].insert(match, entry.action, params, entry.priority)

    def same(self, number: int, egress: bool, front: bytes, frame: bytes, now: int) -> bytes | None:
        """Runs one phase in both; returns the frame that left."""
        fast, slow = self.pipes[number].run(egress, front, frame, now), None
        slow = self.reference.run(egress, front, frame, now, number)
        digest = (fast.digest[0], tuple(fast.digest[1].values())) if fast.digest else None
        actual = (fast.verdict, fast.frame and fast.frame.hex(), fast.requests, fast.mirror, fast.resubmit, digest)
        expected = (slow.verdict, slow.frame and slow.frame.hex(), slow.requests, slow.mirror, slow.resubmit, slow.digest)
        assert actual == expected, f"{'egress' if egress else 'ingress'} of {frame.hex()} behind {front.hex()}"
        return fast.frame

    def same_state(self) -> None:
        for pipe in self.pipes:
            plain = [r for r in pipe.layout["registers"] if r["table"] is None and ".$" not in r["name"]]
            for name in {name_of(r, pipe) for r in plain}:
                array = self.interpreter.registers[name]
                scalars = [r for r in plain if name_of(r, pipe) == name]
                for i, cells in enumerate(zip(*(pipe.register(r["name"]) for r in scalars), strict=True)):
                    values = [int(v) for v, _ in leaves(array[i], array.type)]
                    expected = [v & (1 << r["width"]) - 1 for v, r in zip(values, scalars, strict=True)]
                    assert list(cells) == expected, (name, i)
            for counter in pipe.layout["counters"]:
                if counter["table"] is None:
                    array = self.interpreter.counters[counter["name"]]
                    assert pipe.counter(counter["name"]) == list(zip(array.packets, array.octets, strict=True))


def number(value: int | bytes | str) -> int:
    """Number of an entity's value: a number, bytes, an IPv4 or a MAC address."""
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        value = bytes.fromhex(value.replace(":", "")) if ":" in value else bytes(map(int, value.split(".")))
    return int.from_bytes(value, "big")


def name_of(register: dict, pipe: Pipe) -> str:
    """The program's register that a scalar belongs to."""
    names = {r["preamble"]["name"] for r in pipe.program.p4info.message.get("registers", [])}
    return next((n for n in names if register["name"] == n or register["name"].startswith(n + ".")), register["name"])


def frames(both: Both, rng: random.Random, count: int) -> list[bytes]:
    pool = differential.constants(both.program)
    sample = []
    for _ in range(count):
        _, frame = differential._packet([], pool, rng)
        frame = bytearray(frame)
        for value, width in pool:
            if width == 16 and rng.random() < 0.3:  # an EtherType, say
                frame[12:14] = value.to_bytes(2, "big")
        if len(frame) > 40 and rng.random() < 0.7:  # a short IPv4 header
            frame[14] = 0x45
            frame[23] = rng.choice([6, 17, 1])
        sample.append(bytes(frame[: rng.choice([len(frame), len(frame), len(frame), 30])]))
    return sample


def compare(path: Path, packets: int, seed: int = 1, inputs: list[bytes] | None = None) -> None:
    rng = random.Random(f"{path.stem} {seed}")
    both = Both(path)
    both.fill(rng)
    for n, frame in enumerate(inputs or frames(both, rng, packets)):
        now, number = n * 1_000_000, n % len(both.pipes)
        port = rng.randrange(8)
        metadata = rng.randbytes(8)
        output = both.same(number, False, ingress_front(port, now, metadata, resubmitted=rng.random() < 0.1), frame, now)
        if output is not None and rng.random() < 0.8:
            both.same(number, True, egress_front(port, now, rng.randrange(4), len(output)), output, now)
        both.same(number, True, egress_front(port, now, 0, len(frame)), frame, now)
    both.same_state()


# --- our own programs ---------------------------------------------------------------------------------------------------

EVERYTHING = {
    "types": """struct pair_t { bit<32> first; bit<32> second; } header mirror_h { bit<8> kind; @flexible bit<11> x; }
        header bridge_h { bit<16> sum; @flexible bit<9> port; @flexible bit<3> color; bit<8> more; } header again_h { bit<64> x; }
        struct digest_t { bit<32> a; bit<9> port; } header item_h { bit<8> x; }""",
    "headers": "bridge_h bridge;",
    "metadata": "bit<16> rest; bool wrong; bit<8> color; bit<64> again; bit<4> which; port_t port;",
    "parser_locals": "Checksum() sum; value_set<bit<8>>(4) known;",
    "parser": """state start { pkt.extract(intr); transition select(intr.resubmit_flag) { 1: resubmitted; default: port; } }
        state resubmitted { again_h x; pkt.extract(x); md.again = x.x; transition more; }
        state port { md.port = port_metadata_unpack<port_t>(pkt); transition more; }
        state more { pkt.extract(hdr.data); sum.add({hdr.data.a, hdr.data.b}); sum.add({hdr.data.c}); md.wrong = sum.verify();
            sum.subtract({hdr.data.a}); sum.subtract_all_and_deposit(md.rest);
            transition select(hdr.data.e) { 0x80 &&& 0xf0: missing; known: accept; 7: reject; 200 .. 210: accept; 255: none;
                default: accept; } }
        state missing { transition select(hdr.data.d) { 1: accept; } }
        state none { pkt.advance(1600); transition accept; }""",
    "ingress_locals": """
        Register<pair_t, bit<8>>(100, {5, 7}) pairs; Register<bit<1>, bit<4>>(16) bits; Register<int<16>, bit<4>>(8) signed;
        RegisterParam<bit<32>>(3) step; MathUnit<bit<32>>(MathOp_t.SQR, 1) square; Register<bit<32>, bit<2>>(3) log;
        RegisterAction<pair_t, bit<8>, bit<32>>(pairs) add = { void apply(inout pair_t v, out bit<32> x) {
            if (v.first > hdr.data.a) { v.second = v.second |+| hdr.data.b; } else { v.first = hdr.data.a + step.read(); }
            x = v.second; } };
        RegisterAction<pair_t, bit<8>, bit<32>>(pairs) take = { void apply(inout pair_t v, out bit<32> x) {
            x = v.first; v.first = 0; } };
        RegisterAction<bit<1>, bit<4>, bit<1>>(bits) flip = { void apply(inout bit<1> v, out bit<1> x) { x = v; v = ~v; } };
        RegisterAction<int<16>, bit<4>, bit<4>>(signed) compare = { void apply(inout int<16> v, out bit<4> x) {
            x = this.predicate(v < (int<16>)hdr.data.c, v == 0); v = v - (int<16>)hdr.data.c; } };
        RegisterAction<bit<32>, bit<2>, bit<32>>(log) note = { void apply(inout bit<32> v) { v = square.execute(hdr.data.a); } };
        DirectRegister<bit<32>>(9) mine;
        DirectRegisterAction<bit<32>, bit<32>>(mine) count = { void apply(inout bit<32> v, out bit<32> x) { v = v + 1; x = v; } };
        Counter<bit<32>, bit<8>>(64, CounterType_t.PACKETS_AND_BYTES) counts; Random<bit<5>>() dice;
        CRCPolynomial<bit<16>>(0x1021, false, true, false, 0xFFFF, 0x1234) polynomial;
        Hash<bit<11>>(HashAlgorithm_t.CUSTOM, polynomial) custom; Hash<bit<32>>(HashAlgorithm_t.CRC32) crc;
        Hash<bit<64>>(HashAlgorithm_t.CRC64) wide; Hash<bit<16>>(HashAlgorithm_t.XOR16) folded;
        @symmetric("hdr.data.a", "hdr.data.b") Hash<bit<32>>(HashAlgorithm_t.CRC32) crc2;
        Hash<bit<7>>(HashAlgorithm_t.IDENTITY) same; Hash<bit<24>>(HashAlgorithm_t.RANDOM) any;
        action pair(bit<8> at) { hdr.data.b = add.execute(at); }
        action taken(bit<8> at) { hdr.data.b = take.execute(at); }
        action counted() { hdr.data.b = count.execute(); counts.count(hdr.data.d, 4); }
        action to(PortId_t port, bit<16> group) { tm.ucast_egress_port = port; tm.mcast_grp_a = group; }
        action nothing() { } action drop() { dprsr.drop_ctl = dprsr.drop_ctl | 1; }
        table choose { key = { hdr.data.d: exact; } actions = { pair; taken; nothing; } size = 64; }
        table direct { key = { hdr.data.a: ternary; hdr.data.e: range; } actions = { counted; nothing; } size = 64;
            registers = mine; }
        table forward { key = { hdr.data.b: lpm; } actions = { to; drop; nothing; } default_action = nothing(); size = 64; }
        table fixed { key = { hdr.data.d: ternary; hdr.data.e: exact; } actions = { drop; nothing; } const entries = {
            (1 &&& 3, 0): drop(); (_, 1): nothing(); (8, 0): nothing(); } }""",
    "ingress": """
        if (choose.apply().hit) hdr.data.c = hdr.data.c + 1;
        direct.apply(); forward.apply(); fixed.apply();
        md.which = compare.execute(hdr.data.e[3:0]);
        if (hdr.data.e[0:0] == 1) { tm.bypass_egress = flip.execute(hdr.data.d[3:0]); note.execute_log(); }
        if (hdr.data.e[1:1] == 1) { hdr.data.a = crc.get({hdr.data.b, hdr.data.d[2:0]});
            hdr.data.b = crc2.get({hdr.data.a, hdr.data.d, hdr.data.b}); }
        if (hdr.data.e[2:2] == 1) { hdr.data.a = hdr.data.a ^ wide.get({hdr.data.a, hdr.data.b, hdr.data.c})[40:9]; }
        if (hdr.data.e[3:3] == 1) { hdr.data.c = folded.get({hdr.data.a, hdr.data.d[4:0]}) + (bit<16>)same.get({hdr.data.b}); }
        if (hdr.data.e[4:4] == 1) { hdr.data.b = (bit<32>)any.get({hdr.data.a});
            tm.level1_mcast_hash = (bit<13>)custom.get({hdr.data.b}); }
        if (hdr.data.e[5:5] == 1) { tm.qid = dice.get(); dprsr.mirror_type = 3; }
        if (hdr.data.d == 16) { dprsr.resubmit_type = 2; } if (hdr.data.d == 64) { dprsr.digest_type = 1; }
        if (hdr.data.d == 127) { invalidate(tm.ucast_egress_port); }
        hdr.bridge.setValid(); hdr.bridge.sum = md.rest; hdr.bridge.port = intr.ingress_port + md.port.x;
        hdr.bridge.color = (bit<3>)md.which[2:0]; hdr.bridge.more = md.wrong ? 8w1 : (bit<8>)md.again[7:0];
        if (is_validated(tm.mcast_grp_a)) { hdr.bridge.more = hdr.bridge.more + 2; }""",
    "deparser_locals": "Mirror() mirror; Resubmit() again; Digest<digest_t>() digest; Checksum() sum;",
    "deparser": """
        if (dprsr.mirror_type == 3) { mirror.emit<mirror_h>((MirrorId_t)hdr.data.c, {1, (bit<11>)hdr.data.b}); }
        if (dprsr.resubmit_type == 2) { again.emit<again_h>({hdr.data.a ++ hdr.data.b}); }
        if (dprsr.digest_type == 1) { digest.pack({hdr.data.a, hdr.bridge.port}); }
        hdr.bridge.sum = sum.update({hdr.data.a, hdr.data.d, hdr.bridge.sum}, false); pkt.emit(hdr);""",
    "egress_parser": """state start { pkt.extract(intr);
            transition select(pkt.lookahead<bit<8>>()) { 1: mirrored; default: bridged; } }
        state mirrored { mirror_h m; pkt.extract(m); hdr.bridge.setValid(); hdr.bridge.port = m.x[8:0]; transition next; }
        state bridged { pkt.extract(hdr.bridge); transition next; }
        state next { pkt.extract(hdr.data); transition accept; }""",
    "egress": """if (prsr.parser_err != 0) { hdr.data.setValid(); hdr.data.c = prsr.parser_err; }
        hdr.data.a = (bit<32>)hdr.bridge.port ++ 7w0; hdr.data.d = hdr.bridge.more; hdr.data.b = (bit<32>)intr.egress_rid;
        dprsr.mirror_type = (bit<3>)hdr.bridge.color; dprsr.drop_ctl = hdr.data.e[2:0];
        oport.update_delay_on_tx = hdr.data.e[7:7];
        hdr.bridge.setInvalid(); hdr.data.c = hdr.data.c + (bit<16>)min(hdr.data.d, hdr.data.e) + (bit<16>)max(hdr.data.d, 9);""",
    "egress_deparser_locals": "Mirror() mirror;",
    "egress_deparser": "if (dprsr.mirror_type == 3) { mirror.emit<mirror_h>(5, {9, (bit<11>)hdr.data.c}); } pkt.emit(hdr);",
}


@pytest.mark.build
@pytest.mark.parametrize("seed", range(4))
def test_everything(tmp_path: Path, seed: int) -> None:
    everything(tmp_path, seed)


SANITIZED = """
import sys
sys.path[:0] = {paths!r}
import folders
from pathlib import Path
import test_tna_differential as t
from ina.p4.compiler import build
flags = ["-O1", "-g", "-march=native", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-sanitize=alignment"]
plain = build.compile_program
build.compile_program = lambda path, **options: plain(path, cflags=flags, **options)
t.everything(Path({folder!r}), 9)
"""


@pytest.mark.build
@pytest.mark.later
def test_everything_under_sanitizers(tmp_path: Path) -> None:
    need("sanitizers")
    call = [*build.c_compiler(), "-print-file-name=libasan.so"], [*build.c_compiler(), "-print-file-name=libubsan.so"]
    libraries = [child.run(c).stdout.strip() for c in call]
    script = SANITIZED.format(paths=[str(Path(__file__).parent.parent.parent.parent), str(Path(__file__).parent.parent.parent)],
                              folder=str(tmp_path))
    environment = {**os.environ, "LD_PRELOAD": ":".join(libraries), "ASAN_OPTIONS": "detect_leaks=0"}
    done = child.run([sys.executable, "-c", script], child.TRAINING, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]


def everything_source(folder: Path) -> Path:
    program = {**EVERYTHING, "types": EVERYTHING["types"] + " struct port_t { bit<9> x; bit<23> y; }"}
    program["egress"] = program["egress"].replace("(bit<32>)hdr.bridge.port ++ 7w0", "16w0 ++ hdr.bridge.port ++ 7w0")
    program["deparser"] = program["deparser"].replace("hdr.bridge.sum}, false)", "hdr.bridge.sum})")
    path = folder / "everything.p4"
    path.write_text(source(**program))
    return path


def everything(tmp_path: Path, seed: int) -> None:
    path = everything_source(tmp_path)
    rng = random.Random(seed)
    values = [0, 1, 2, 3, 7, 16, 64, 127, 255, 0x80, 0x81, 200, 0x2F]
    packets = [data(rng.choice([0, 5, 2**31, rng.getrandbits(32)]), rng.choice([1, 2**31, rng.getrandbits(32)]),
                    rng.getrandbits(16), rng.choice(values), rng.choice([*values, rng.getrandbits(8)]))
               + rng.randbytes(2 * rng.randrange(40)) for _ in range(400)]
    packets += [p[: rng.randrange(14)] for p in packets[:40]]
    compare(path, 0, seed, packets)


def integers(rng: random.Random) -> list[int]:
    return [rng.choice([rng.getrandbits(32), 5, 0x7FFFFFFF, 0x80000000]) for _ in range(32)]


def jobs_packets(target: switchml_targets.Target, packets: Callable[[random.Random], tuple[int, bytes]]) -> None:
    """A program of ours with the entries of `target`; ingress's output comes back as recirculated."""
    both = Both(target.source, {"VALUES": "32", "SLOTS": str(switchml_targets.SLOTS)})
    both.copy(target.switch)
    rng = random.Random(3)
    forwarded = 0
    for now in range(0, 400_000, 1000):
        port, frame = packets(rng)
        for _ in range(6):
            output = both.same(0, False, ingress_front(port, now), frame, now)
            if output is None:
                break
            forwarded += 1
            both.same(0, True, egress_front(rng.randrange(4), now, rng.randrange(1, 4), len(output)), output, now)
            frame, port = output, 68
    assert forwarded > 100
    both.same_state()
    target.close()


@pytest.mark.build
def test_packets_of_a_switchml_job() -> None:
    """Packets that are late, doubled and wrong."""
    target = switchml_targets.TnaTarget(32)
    job = switchml_targets.World(target, ports=5).admit(workers=3)

    def packets(rng: random.Random) -> tuple[int, bytes]:
        worker, tsi = rng.randrange(3), rng.randrange(40)
        values = integers(rng) if rng.random() < 0.9 else None
        return job.ports[worker], job.frame(worker, tsi, values, e0=rng.randrange(-128, 128))

    jobs_packets(target, packets)


@pytest.mark.build
@pytest.mark.later
def test_packets_of_an_atp_job() -> None:
    """Packets of its workers, and answers of its server."""
    target = atp_targets.TARGETS["tna"](32)
    job = atp_targets.World(target).admit([1, 2, 4])

    def packets(rng: random.Random) -> tuple[int, bytes]:
        child, sequence = rng.randrange(3), rng.randrange(12)
        if rng.random() < 0.3:
            return atp_targets.PARENT, job.down(sequence, rng.choice([1, 3, 7]), payload=rng.randbytes(128))
        return job.port(child), job.data(child, sequence, integers(rng))

    jobs_packets(target, packets)


@pytest.mark.fast
def test_a_header_of_the_tests_is_the_programs() -> None:
    assert HEADER in source()


# --- other people's -----------------------------------------------------------------------------------------------------


@pytest.mark.hardware
@pytest.mark.parametrize("path", examples() or [None], ids=lambda p: p.stem if p else "none")
def test_examples(path: Path | None) -> None:
    need("p4-examples")
    assert path is not None, "no TNA program below INA_P4_EXAMPLES"
    if path.stem in UNSUPPORTED:
        with pytest.raises(CompileError, match=UNSUPPORTED[path.stem]):
            frontend.load(path, include_dirs=include_dirs(path))
        return
    compare(path, 150)
