"""Lanes: one table says how wide a value is, and everything that counts its bytes asks it."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from capabilities import need
from cffi import FFI
from folders import files

from ina.aggregation import protocols
from ina.aggregation.lane import DEFAULT, INT32, LANES, lane_for
from ina.aggregation.wire import layout
from ina.aggregation.worker import WorkerConfig
from ina.base import manifest, paths
from ina.base.native import ffi, lib

ROOT = paths.root()
# A lane of 16 bits, as docs/design/architecture.md says how to add one.
NARROW = (
    ("INA_FLOAT16 = 3, INA_DTYPES = 4", "INA_FLOAT16 = 3, INA_INT16 = 4, INA_DTYPES = 5"),
    ("INA_LANE_INT32 = 0, INA_LANES = 1", "INA_LANE_INT32 = 0, INA_LANE_INT16 = 1, INA_LANES = 2"),
    ("    [INA_LANE_INT32] =",
     "    [INA_LANE_INT16] = {.bits = 16, .is_signed = 1, .dtype = INA_INT16, .values = 64 | 256},\n    [INA_LANE_INT32] ="),
    ("    case INA_LANE_INT32:",
     "    case INA_LANE_INT16: by(kernel, INA_LANE_INT16, __VA_ARGS__); break; \\\n    case INA_LANE_INT32:"),
)


def add_narrow(folder):
    """Adds it to the sources in ``folder``."""
    header = folder / "host/protocol/lane.h"
    text = header.read_text()
    for before, after in NARROW:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    header.write_text(text)


@pytest.mark.fast
def test_a_program_has_values_of_its_lane_s_width():
    for lane in LANES:
        for load in (layout.load, lambda values, lane: layout.load(values, paths.p4_dir() / "include/atp/headers.p4", lane=lane)):
            (field,) = load(64, lane=lane)["values"].fields
            assert (field.width, field.count, load(64, lane=lane)["values"].size) == (lane.bits, 64, lane.bytes(64))
    assert layout.load(64)["values"].fields[0].width == DEFAULT.bits, "of a program that names no lane"


@pytest.mark.fast
def test_a_packet_has_as_many_values_as_its_lane_s_row_says():
    """Each number has a size code, and neither side takes another one, whoever asks: Python, or a worker in C."""
    for lane in LANES:
        assert set(lane.values) <= set(layout.size_codes().values())
        config = WorkerConfig(0, 2, life=1, lane=lane).to_c()
        for values in range(4097):
            config.values = values
            assert (protocols.named("switchml").state_size(config) > 0) == (values in lane.values), values
        with pytest.raises(ValueError, match="values: 33, expected one of"):
            WorkerConfig(0, 2, life=1, lane=lane, values=33)
    assert DEFAULT.values == tuple(sorted(layout.size_codes().values()))


@pytest.mark.fast
def test_the_sum_of_all_workers_floats_stays_within_half_the_range():
    for lane in LANES:
        for workers in (1, 2, 3, 4, 5, 8, 31, 32, 33, 1000, 1024):
            largest = 2 ** lane.shift(workers)
            assert workers * largest <= lane.limit // 2 == largest * 2 ** np.ceil(np.log2(workers))
            assert lane.error(3, workers) == workers * 2.0 ** (3 - lane.shift(workers)) / 2
    assert INT32.shift(1) == 30 and INT32.shift(8) == 27 and INT32.error(0, 2) == 2.0**-29


@pytest.mark.fast
def test_a_sum_that_leaves_the_range_wraps_and_its_flag_stays():
    """As C adds up packets one after the other: it must be set, or may be, by the order."""
    rng, limit = np.random.default_rng(7), INT32.limit
    for rows in [np.array([[limit - 1, 0], [1, 0]]), np.array([[limit - 1], [1], [-1]]), np.array([[-limit], [-1]]),
                 *(rng.integers(-limit // 2, limit // 2, (3, 4)) for _ in range(50))]:
        rows = rows.astype(INT32.dtype)
        total, flag = rows[0].astype(">i4"), False
        for row in rows[1:].astype(">i4"):
            flag |= bool(lib.ina_codec_add(INT32.number, ffi.from_buffer("uint8_t *", total), ffi.from_buffer("uint8_t *", row),
                                           row.size))
        must, may = INT32.overflows(rows)
        assert must <= flag <= may and np.array_equal(total, INT32.sums(rows))
        assert must == bool((rows.sum(axis=0, dtype=np.int64) != INT32.sums(rows)).any())
    assert INT32.overflows([np.array([limit - 1]), np.array([1]), np.array([-1])]) == (False, True)


@pytest.mark.fast
def test_sums_of_integers_wrap():
    rows = np.array([[INT32.limit - 1, 1], [1, 2]], INT32.dtype)
    assert INT32.sums(rows).tolist() == [-INT32.limit, 3]
    assert lane_for(np.int32) is INT32 and lane_for(np.float32) is None


@pytest.mark.fast
def test_nobody_counts_a_value_s_bytes_by_hand():
    """``4 * values`` and the like; P4's own words are of other things (ina/p4)."""
    by_hand = re.compile(r"(?<![\w.])(4|32) ?\* ?\(?(size_t\)|uint64_t\))?[\w.>()-]*"
                         r"(values|VALUES|elements|words|count|parameters)\b|"
                         r"(?<!\w)(values|elements|words|count)\)? ?(\* ?4|// ?4|/ ?4)\b|wire \+ 4 \*")
    sources = [path for folder in ("host", "ina", "p4") for path in files(ROOT / folder, "**/*.*")
               if path.suffix in (".c", ".h", ".py", ".p4") and path.name != "_native.c" and ROOT / "ina/p4" not in path.parents]
    assert len(sources) > 300
    found = [f"{path.relative_to(ROOT)}:{number}: {line.strip()}" for path in sources
             for number, line in enumerate(path.read_text().splitlines(), 1) if by_hand.search(line)]
    assert by_hand.search("payload + 4 * VALUES;") and by_hand.search("bytes = 4 * config->values"), "it finds what it is for"
    assert found == []


@pytest.mark.build
def test_kernels_serve_a_narrower_lane_without_a_word_changed(tmp_path):
    need("cc")
    for folder in manifest.HOST:
        shutil.copytree(ROOT / folder, tmp_path / folder)
    add_narrow(tmp_path)
    target = tmp_path / "codec.so"
    sources = [tmp_path / f"host/protocol/{name}.c" for name in ("codec", "check", "lane")]
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-DINA_KERNEL=",
                    *(f"-I{tmp_path / folder}" for folder in manifest.HOST), *sources, "-o", target, "-lm"], check=True)
    ffi = FFI()
    ffi.cdef("""int ina_lane_shift(uint32_t lane, int workers);
        void ina_codec_encode(uint32_t lane, uint8_t *wire, const float *x, size_t count, int exponent, int shift);
        void ina_codec_decode(uint32_t lane, float *x, const uint8_t *wire, size_t count, int exponent, int shift, int divisor);
        void ina_codec_swap(uint32_t lane, void *to, const void *from, size_t count);
        int ina_codec_add(uint32_t lane, uint8_t *sum, const uint8_t *other, size_t count);
        void ina_check_add(uint32_t lane, uint32_t *check, const uint8_t *wire, size_t count);
        void ina_check_encode(uint32_t lane, uint32_t *check, uint8_t *wire, const float *x, size_t count, int exponent,
                              int shift);""")
    narrow, rng = ffi.dlopen(str(target)), np.random.default_rng(5)
    for count in (32, 64, 96, 256):
        rows = rng.integers(-(2**15), 2**15, (2, count)).astype(np.int16)
        sums, other = np.empty(count, ">i2"), np.empty(count, ">i2")
        p = {name: ffi.cast("uint8_t *", array.ctypes.data) for name, array in (("sums", sums), ("other", other))}
        narrow.ina_codec_swap(1, p["sums"], ffi.cast("void *", rows[0].ctypes.data), count)
        narrow.ina_codec_swap(1, p["other"], ffi.cast("void *", rows[1].ctypes.data), count)
        assert (sums == rows[0]).all() and (other == rows[1]).all()
        overflow = narrow.ina_codec_add(1, p["sums"], p["other"], count)
        wide = rows.astype(np.int64).sum(axis=0)
        assert (sums == wide.astype(np.int16)).all() and overflow == bool((abs(wide + 0.5) > 2**15).any())
        x, back = rng.standard_normal(count).astype(np.float32), np.empty(count, np.float32)
        shift, words = narrow.ina_lane_shift(1, 2), np.zeros((2, 2), np.uint32)
        assert shift == 16 - 2 - 1
        px, pb, *pw = (ffi.cast(kind, array.ctypes.data) for kind, array in (
            ("float *", x), ("float *", back), ("uint32_t *", words[0]), ("uint32_t *", words[1])))
        narrow.ina_codec_encode(1, p["sums"], px, count, 3, shift)
        narrow.ina_codec_decode(1, pb, p["sums"], count, 3, shift, 1)
        assert np.abs(back - x).max() <= 2.0 ** (3 - shift - 1)
        narrow.ina_check_add(1, pw[0], p["sums"], count)
        narrow.ina_check_encode(1, pw[1], p["other"], px, count, 3, shift)
        assert (sums == other).all() and (words[0] == words[1]).all()


JOB = """
import sys
import numpy as np
from ina.aggregation.lane import lane_for
from ina.base import paths
from ina.net.ports import Faults
from ina.p4.compiler.build import compile_program
from ina.topology import load
from ina.worlds.virtual.fabric import Fabric

defines = {"VALUES": "64", "SLOTS": "64", "LANE_BITS": "16"}
program = compile_program(paths.p4_dir() / "switchml.p4", defines=defines, include_dirs=[paths.p4_dir()])
fabric = Fabric(program, load("star", hosts=4), faults=Faults(loss=0.02, seed=3), seed=5)
job = fabric.admit([host.name for host in fabric.topology.hosts], slots=8, values=64, check="sum", rto_min=1e-4, rto_max=1e-2)
rng = np.random.default_rng(1)
arrays = [rng.integers(-2**15, 2**15, 1000).astype(np.int16) for _ in range(4)]
right = lane_for(np.int16).sums(arrays)
fabric.submit_all(job, arrays)
fabric.run()
stats = fabric.worker_stats(job.machines[0])
assert all(np.array_equal(array, right) for array in arrays) and stats["overflows"] == stats["results"] - 1, stats
assert stats["tx_bytes"] == stats["tx_packets"] * (64 + 2 * 64) and stats["retransmissions"] > 0, stats
print("right")
"""


@pytest.mark.build
@pytest.mark.later
def test_a_job_sums_int16_with_one_more_row(tmp_path):
    """Sums that wrap, with their flags and check words, over links that lose packets."""
    need("cc")
    for folder in ("host", "ina", *manifest.DATA):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "_native*"),
                        dirs_exist_ok=True)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    add_narrow(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "INA_CACHE": str(tmp_path / "cache")}
    for command in (["setup.py", "-q", "build_ext", "--inplace"], ["-c", JOB]):
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "right\n"
